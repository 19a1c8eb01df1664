"""Which base files a read opens."""

from __future__ import annotations

from typing import Any

import pytest

from pyhudi.operations.read import native_scan
from pyhudi.tasks import read_slice
from pyhudi.tasks.base_file_reader import open_base_rows


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The base files that reads of this process open from now on, in order."""
    paths: list[str] = []

    def recording(storage: Any, path: str, *others: Any, **options: Any) -> Any:
        paths.append(path)
        return open_base_rows(storage, path, *others, **options)

    for module in (read_slice, native_scan):
        monkeypatch.setattr(module, "open_base_rows", recording)
    return paths
