"""Writers of files whose storage fails end with one error, and print nothing when they are collected."""

from __future__ import annotations

import gc
import io
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.cli.data_commands import _ParquetWriter
from pyhudi.format.parquet.parquet_file import ParquetWriter

ROWS = pa.table({"v": list(range(1000))})


class FullSink(io.RawIOBase):
    """Takes the first bytes of a file."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._left = limit_bytes

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if len(data) > self._left:
            raise OSError("no space left on device")
        self._left -= len(data)
        return len(data)


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    return seen


@pytest.mark.sample(2)
@pytest.mark.parametrize("limit_bytes", [4, 100, 3000])
def test_a_failed_parquet_writer_is_quiet(unraisable: list[Any], limit_bytes: int) -> None:
    collected: list[Any] = []
    with (
        pytest.raises(OSError, match="no space"),
        ParquetWriter(FullSink(limit_bytes), ROWS.schema, metadata_collector=collected) as writer,
    ):
        writer.write_table(ROWS)
    del writer
    gc.collect()
    assert not unraisable


def test_a_failed_export_is_quiet(unraisable: list[Any], tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no space"), _ParquetWriter(pa.PythonFile(FullSink(100), mode="w"), ROWS.schema) as writer:
        writer.write_table(ROWS)
    del writer
    gc.collect()
    assert not unraisable
