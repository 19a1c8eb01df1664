"""Selection of columns with statistics."""

from __future__ import annotations

import pyarrow as pa

from pyhudi.metadata_table.indexes.column_stats_index import indexed_columns

META = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")
SCHEMA = pa.schema(
    [
        ("_hoodie_commit_time", pa.string()),
        ("id", pa.int32()),
        ("address", pa.struct([("city", pa.string()), ("tags", pa.list_(pa.string()))])),
        ("bin", pa.binary()),
        ("small", pa.decimal128(10, 2)),
        ("large", pa.decimal128(20, 2)),
        ("fine", pa.decimal128(18, 16)),
        ("ts", pa.timestamp("us", "UTC")),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("last", pa.string()),
    ]
)


def test_supported_columns_in_schema_order() -> None:
    assert indexed_columns(SCHEMA) == (*META, "id", "bin", "small", "ts", "last")
    assert indexed_columns(SCHEMA, with_meta_columns=False) == ("id", "bin", "small", "ts", "last")
    assert indexed_columns(SCHEMA, with_binary=False) == (*META, "id", "ts", "last")


def test_the_limit_counts_neither_meta_columns_nor_columns_without_statistics() -> None:
    assert indexed_columns(SCHEMA, max_columns=2) == (*META, "id", "bin")
    assert indexed_columns(SCHEMA, max_columns=0) == META


def test_a_list_of_names() -> None:
    names = ["last", "address.city", "address.tags", "none", "id", "last", "_hoodie_commit_time", "m"]
    assert indexed_columns(SCHEMA, names=names, max_columns=1) == (*META, "last", "address.city", "id")
