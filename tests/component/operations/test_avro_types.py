"""Avro types without an Arrow counterpart: enums become text, milliseconds of a day become microseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest
from tests.support.golden_tables import open_golden
from tests.support.rows import assert_same_rows

SEEN = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def rows(key: str, colour: str = "RED", sure: str | None = None) -> pa.Table:
    types = {"id": pa.string(), "ts": pa.int64(), "colour": pa.string(), "sure": pa.string()}
    times = {"seen": pa.timestamp("us", "UTC"), "clock": pa.timestamp("us")}
    made = {"id": key, "ts": 1 << 41, "colour": colour, "sure": sure, "seen": SEEN, "clock": SEEN.replace(tzinfo=None)}
    return pa.Table.from_pylist([made], pa.schema({**types, **times}))


def newest_file(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(max(path.glob("*.parquet"), key=lambda file: file.name.rpartition("_")[2]))


@pytest.mark.parametrize("block", ["avro", "parquet", "hfile"])
def test_files_store_avro_types_as_the_table_schema_defines(block: str, tmp_path: Path) -> None:
    golden = open_golden("mor_v9_avro_types", tmp_path)
    table = Table(golden.path)
    before = table.scan().to_arrow()
    table.upsert(rows("a", "GREEN"), options={"hoodie.logfile.data.block.format": block})
    table.upsert(rows("e", "BLUE", "NO"))
    found = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert found["a"]["colour"] == "GREEN" and found["e"]["sure"] == "NO"
    for row in (found["a"], found["e"]):
        assert (row["seen"], row["clock"]) == (SEEN, SEEN.replace(tzinfo=None))
    assert [found[key] for key in "bcd"] == [
        row for row in sorted(before.to_pylist(), key=lambda row: row["id"]) if row["id"] in "bcd"
    ]
    table.compact()
    assert_same_rows(table.scan().to_arrow(), pa.Table.from_pylist(list(found.values()), table.scan().to_arrow().schema))
    file = newest_file(golden.path)
    assert [file.schema_arrow.field(name).type for name in ("seen", "clock")] == [pa.timestamp("ms", "UTC"), pa.timestamp("ms")]
    said = (file.metadata.metadata or {})[b"parquet.avro.schema"].decode()
    for text in ('"symbols":["RED","GREEN","BLUE"]', '"timestamp-millis"', '"local-timestamp-millis"'):
        assert text in said
    assert table.validate().ok, str(table.validate())


@pytest.mark.parametrize("block", ["avro", "parquet", "hfile"])
def test_invalid_enum_symbol_is_rejected(block: str, tmp_path: Path) -> None:
    golden = open_golden("mor_v9_avro_types", tmp_path)
    table = Table(golden.path)
    before = table.scan().to_arrow()
    options = {"hoodie.logfile.data.block.format": block}
    for write in (table.upsert, table.bulk_insert):
        with pytest.raises(InvalidRequest, match=r"'colour': row 0 .* is 'PINK', which is not a symbol"):
            write(rows("a", "PINK"), options=options)
    with pytest.raises(InvalidRequest, match=r"'sure': row 0 .* is 'MAYBE'"):
        table.upsert(rows("a", "RED", "MAYBE"), options=options)
    fine = pa.array([SEEN.replace(microsecond=999_001)], pa.timestamp("us", "UTC"))
    for write in (table.upsert, table.bulk_insert):
        with pytest.raises(InvalidRequest, match=r"'seen': 1969-12-31 23:59:59.999001.* milliseconds"):
            write(rows("a").set_column(4, "seen", fine), options=options)
    assert_same_rows(table.scan().to_arrow(), before)


def test_filters_on_enums(tmp_path: Path) -> None:
    table = Table(open_golden("mor_v9_avro_types", tmp_path).path)
    for colour, keys in (("RED", ["c", "d"]), ("GREEN", ["b"]), ("BLUE", ["a"]), ("PINK", [])):
        assert sorted(table.scan(["id"], filter=[("colour", "=", colour)]).to_arrow()["id"].to_pylist()) == keys


def test_an_instant_is_no_local_time(tmp_path: Path) -> None:
    """A column of local times takes times without a zone alone: which clock an instant is read from would be a guess."""
    table = Table(open_golden("mor_v9_avro_types", tmp_path).path)
    zoned = rows("a").set_column(5, "clock", pa.array([SEEN], pa.timestamp("us", "UTC")))
    with pytest.raises(InvalidRequest, match=r"clock +timestamp\[us\] +timestamp\[us, tz=UTC\]"):
        table.upsert(zoned)
