"""Bytes that Apache Hudi wrote, kept next to the checkout (../shared/vectors) and not in it; tests skip without them."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3] / "shared" / "vectors"


def vector(name: str) -> bytes:
    """The content of the vector file `name`, for example "bloom/simple_200_000001_murmur.bf.data"."""
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"no test vector {path}")
    return path.read_bytes()


def vector_body(name: str) -> bytes:
    """As `vector`, without the licence comment at its head."""
    data = vector(name)
    if data.startswith(b"/*"):
        data = data[data.index(b"*/") + 2 :].removeprefix(b"\n")
    return data
