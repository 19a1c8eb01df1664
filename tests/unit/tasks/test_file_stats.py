"""Column ranges of base files: damage on the way to them is named."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.storage import Storage
from pyhudi.tasks.base_file_reader import open_base_file
from pyhudi.tasks.file_stats import base_file_ranges
from tests.support.base_writer import create, new_storage, spec

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("ts", pa.int64()), pa.field("x", pa.float64())])


def test_ranges_that_are_read_back_from_a_damaged_file() -> None:
    storage = new_storage()
    rows = pa.Table.from_pylist([{"id": str(n), "ts": 1, "x": float(n)} for n in range(50)], SCHEMA)
    (status,) = create(spec(storage, SCHEMA, options={"hoodie.parquet.compression.codec": "uncompressed"}), rows)
    path = str(status.stat.path)
    with open_base_file(storage, path) as file:
        footer = file.metadata
        assert isinstance(footer, pq.FileMetaData)
        at = footer.row_group(0).column(footer.schema.names.index("x")).data_page_offset
    # It is unknown whether the column contains NaN, so its rows are read.
    assert _ranges(storage, path, footer) == (0.0, 49.0)
    whole = storage.read(path)
    assert whole is not None
    storage.put(path, whole[:at] + bytes(64) + whole[at + 64 :])
    with pytest.raises(CorruptData, match="a base file cannot be read") as caught:
        _ranges(storage, path, footer)
    assert path in str(caught.value)


def _ranges(storage: Storage, path: str, footer: object) -> tuple[object, object]:
    ((_, found),) = base_file_ranges(storage, path, footer, with_meta_fields(SCHEMA), ["x"])  # type: ignore[arg-type]
    return found.min, found.max
