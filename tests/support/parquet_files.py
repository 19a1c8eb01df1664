"""Parquet files of several writers, and what their footers hold."""

from __future__ import annotations

import math
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.format.parquet.parquet_file import open_parquet
from tests.support.golden_tables import ROOT

NESTED = pa.array([{"x": 1.0, "y": [2.0]}, {"x": math.nan, "y": None}, None])
ROWS = pa.table({"a": [1.5, math.nan, None], "b": [1, 2, 3], "c": ["x", None, "z"], "s": NESTED, "flag": [True, False, None]})


def written(row_group_size: int = 2) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, ROWS.schema, write_page_index=True) as writer:
        writer.write_table(ROWS, row_group_size=row_group_size)
        writer.add_key_value_metadata({"key": "value"})
    content: bytes = sink.getvalue().to_pybytes()
    return content


def files_of_others() -> dict[str, bytes]:
    """Every Parquet file of the tables that Apache Hudi wrote."""
    found = {}
    for table in sorted(ROOT.glob("hudi-*/*/*.zip")):
        with zipfile.ZipFile(table) as archive:
            for name in archive.namelist():
                if name.endswith(".parquet"):
                    found[f"{table.parent.name}/{name}"] = archive.read(name)
    return found


def look_at(content: bytes) -> None:
    """Everything that a footer records of columns, and the rows."""
    file = open_parquet(pa.BufferReader(content))
    for group in range(file.metadata.num_row_groups):
        for place in range(file.metadata.row_group(group).num_columns):
            chunk = file.metadata.row_group(group).column(place)
            _ = chunk.compression, chunk.encodings, chunk.statistics and chunk.statistics.has_min_max
    file.read(use_threads=False)
