"""Files without partition columns: values come from partition paths, as text or as the declared type."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.records.keys.partition_paths import DEFAULT_PARTITION
from tests.support.golden_tables import open_golden

OMIT = "hoodie.datasource.write.drop.partition.columns"
HIVE, ENCODE = "hoodie.datasource.write.hive_style_partitioning", "hoodie.datasource.write.partitionpath.urlencode"
REGIONS = ("north/east", "a=b c", None)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("level", pa.int32()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("note", pa.string()),
        ("day", pa.date32()),
        ("seconds", pa.int64()),
    ]
)


def rows(numbers: Iterable[int], ts: int, *, move: int = 0) -> pa.Table:
    """Rows k0, k1, ...  move: by how much their partitions are shifted."""
    made = [
        {
            "id": f"k{n}",
            "level": (n + move) % 2,
            "region": REGIONS[(n + move) % 3],
            "ts": ts,
            "note": f"note {n} of {ts}",
            "day": datetime.date(2026, 1, 1 + (n + move) % 2),
            "seconds": 1767225600 + 86400 * ((n + move) % 2),
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def new_table(path: Path, *partition_by: str, schema: pa.Schema | None = None, **more: Any) -> Table:
    options = {OMIT: True, "hoodie.index.bloom.num_entries": 100, **more.pop("options", {})}
    keys = {"record_key": "id", **more}
    return Table.create(path / "t", partition_by=list(partition_by), ordering="ts", schema=schema, options=options, **keys)


def found(table: Table, columns: Iterable[str], **question: Any) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in table.scan(list(columns), **question).to_arrow().to_pylist()}


def stored_columns(path: Path) -> set[str]:
    files = (path / "t").rglob("*.parquet")
    return {name for file in files for name in pq.read_schema(file).names if ".hoodie" not in str(file)}


@pytest.mark.sample(1)
@pytest.mark.parametrize("hive", [True, False])
def test_writes_and_reads(tmp_path: Path, hive: bool) -> None:
    """Every operation: columns follow the others as text, null where the path has null, and in no file."""
    table = new_table(
        tmp_path, "region", "level", options={HIVE: hive, ENCODE: True, "hoodie.metadata.record.index.enable": True}
    )
    table.upsert(rows(range(6), 1))
    first = table.timeline().completed_writes()[0]
    table.upsert(rows([0, 1, 8], 2))
    table.bulk_insert(rows([9], 2))
    table.delete(rows([2], 3).select(["id", "level", "region"]))
    table.delete(where="level = '1' AND id = 'k3'")
    table.insert_overwrite(rows([4], 5))
    expected = {
        ("k0", 2, "north/east", "0"),
        ("k1", 2, "a=b c", "1"),
        ("k4", 5, "a=b c", "0"),
        ("k5", 1, None, "1"),
        ("k8", 2, None, "0"),
        ("k9", 2, "north/east", "1"),
    }
    columns = ("id", "ts", "region", "level")
    assert found(table, columns) == expected
    assert table.schema().names == ["id", "ts", "note", "day", "seconds", "region", "level"]
    assert [table.schema().field(name).type for name in ("region", "level")] == [pa.string(), pa.string()]
    assert not stored_columns(tmp_path) & {"region", "level"}
    assert len(found(table, columns, as_of=first.request_time)) == 6
    incremental = table.incremental(first.completion_time or "", first.completion_time, list(columns)).to_arrow()
    assert {row["level"] for row in incremental.to_pylist()} == {"0", "1"}

    table.cluster()
    table.clean(dry_run=False)
    assert found(table, columns) == expected
    assert not stored_columns(tmp_path) & {"region", "level"}
    # What was read can be written back: the text makes the same paths.
    result = table.upsert(table.scan().to_arrow())
    assert (result.rows_updated, result.rows_inserted) == (6, 0)
    assert table.validate().ok
    table.rollback(str(result.instant))
    assert found(table, columns) == expected


def test_partition_filters_read_only_matching_partitions(tmp_path: Path) -> None:
    table = new_table(tmp_path, "region", "level", options={ENCODE: True})
    table.upsert(rows(range(12), 1))
    for text, kept, count in (
        ("level = '1'", 3, 6),
        ("region IS NULL", 2, 4),
        ("region = 'north/east' AND note <> ''", 2, 4),
        ("level = '7'", 0, 0),
    ):
        scan = table.scan(["id"], filter=text)
        assert len({slice_.partition for slice_ in scan.explain().slices}) == kept, text
        assert scan.to_arrow().num_rows == count == scan.count(), text


def test_types_that_the_table_was_created_with(tmp_path: Path) -> None:
    table = new_table(tmp_path, "day", "level", schema=SCHEMA, options={"hoodie.metadata.enable": False})
    assert table.schema().names[-2:] == ["day", "level"]
    table.upsert(rows(range(4), 1))
    assert table.schema().field("day").type == pa.date32()
    assert found(table, ("id", "level", "day"), filter="level = 1") == {(f"k{n}", 1, datetime.date(2026, 1, 2)) for n in (1, 3)}
    known = table.lookup(rows([0], 1).select(["id", "day", "level"])).to_arrow().to_pylist()
    assert [(row["id"], row["level"]) for row in known] == [("k0", 0)]
    with pytest.raises(InvalidRequest, match="partition field"):
        table.upsert(rows([5], 1).set_column(1, "level", pa.array(["x"])))
    with pytest.raises(InvalidRequest, match="'day' is not a column"):
        table.upsert(rows([5], 1).drop_columns(["day"]))
    assert table.delete(rows([3], 1).select(["id", "level", "day"])).rows_deleted == 1

    (tmp_path / "t" / "2026-01-01" / "0").rename(tmp_path / "t" / "2026-01-01" / "zero")
    with pytest.raises(CorruptData, match="partition path"):
        Table(tmp_path / "t").scan().to_arrow()


@pytest.mark.parametrize("value", [1.0, True, datetime.date(2026, 1, 1)])
def test_a_declared_text_column_refuses_what_a_record_key_of_text_refuses(tmp_path: Path, value: Any) -> None:
    table = new_table(tmp_path, "region", schema=SCHEMA)
    table.upsert(rows(range(2), 1))
    place = SCHEMA.get_field_index("region")
    other = rows([5], 1).set_column(place, "region", pa.array([value]))
    with pytest.raises(InvalidRequest, match="region  string  "):
        table.upsert(other)
    with pytest.raises(InvalidRequest, match="'region' of the rows to delete"):
        table.delete(other.select(["id", "region"]))
    table.upsert(rows([5], 1).set_column(place, "region", pa.array([7])))
    assert found(table, ("region",), filter="id = 'k5'") == {("7",)}


def test_a_column_without_declared_type_takes_the_type_of_each_batch(tmp_path: Path) -> None:
    table = new_table(tmp_path, "day")
    for time in (1, 2):
        table.upsert(rows([0], time))
    assert found(table, ("ts", "day")) == {(2, "2026-01-01")}


def test_formatted_times_are_read_from_the_path(tmp_path: Path) -> None:
    times = {
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
        "hoodie.keygen.timebased.timezone": "UTC",
    }
    table = new_table(tmp_path, "seconds", options=times)
    table.upsert(rows(range(4), 1))
    table.upsert(rows([0], 2))
    scan = table.scan(["id", "ts", "seconds"], filter="seconds = '2026/01/01'")
    assert {tuple(row.values()) for row in scan.to_arrow().to_pylist()} == {("k0", 2, "2026/01/01"), ("k2", 1, "2026/01/01")}
    assert len(scan.explain().slices) == 1


def test_keys_that_hold_an_omitted_column(tmp_path: Path) -> None:
    table = new_table(tmp_path, "day", record_key=["id", "day"], options={"hoodie.metadata.record.index.enable": True})
    table.upsert(rows(range(4), 1))
    assert table.upsert(rows([0], 2)).rows_updated == 1
    assert table.lookup(rows([0], 2).select(["id", "day"])).to_arrow()["ts"].to_pylist() == [2]


def test_records_that_change_their_partition(tmp_path: Path) -> None:
    options = {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": True}
    table = new_table(tmp_path, "level", options=options)
    table.upsert(rows(range(4), 1))
    table.upsert(rows([0], 2, move=1), options=options)
    assert found(table, ("id", "level")) == {("k0", "1"), ("k1", "1"), ("k2", "0"), ("k3", "1")}


def test_change_data_contains_omitted_columns(tmp_path: Path) -> None:
    table = new_table(tmp_path, "level", options={"hoodie.table.cdc.enabled": True})
    table.upsert(rows([0, 1], 1))
    table.upsert(rows([0], 2))
    table.delete(rows([1], 3).select(["id", "level"]))
    told = [
        (row["op"], *(image and image["level"] for image in (row["before"], row["after"])))
        for row in table.changes("000", typed=True).to_arrow().to_pylist()
    ]
    assert sorted(told, key=str) == [("d", "1", None), ("i", None, "0"), ("i", None, "1"), ("u", "0", "0")]


def test_columns_come_and_rows_are_updated_in_part(tmp_path: Path) -> None:
    table = new_table(tmp_path, "region")
    table.upsert(rows(range(3), 1))
    wider = rows([0], 2).append_column("extra", pa.array([7]))
    table.upsert(wider)
    table.upsert(rows([1], 3).select(["id", "region", "ts"]), partial=True)
    assert table.schema().names[-2:] == ["extra", "region"]
    assert found(table, ("id", "ts", "note", "extra", "region")) == {
        ("k0", 2, "note 0 of 2", 7, "north/east"),
        ("k1", 3, "note 1 of 1", None, "a=b c"),
        ("k2", 1, "note 2 of 1", None, None),
    }


def test_nulls_that_hudi_stored_do_not_count(tmp_path: Path) -> None:
    """A delete of Apache Hudi rewrites files with the column, null in every row, and states it in its commit."""
    table = new_table(tmp_path, "level", options={"hoodie.metadata.enable": False})
    table.upsert(rows([1], 1))
    (file,) = (tmp_path / "t" / "1").glob("*.parquet")
    held = pq.ParquetFile(file)
    columns = held.read().append_column("level", pa.nulls(1, pa.string()))
    pq.write_table(columns.replace_schema_metadata(held.metadata.metadata), file)
    assert found(Table(tmp_path / "t"), ("id", "level")) == {("k1", "1")}
    assert found(Table(tmp_path / "t"), ("id", "level"), filter="level = '1'") == {("k1", "1")}


def test_golden_table_is_written(tmp_path: Path) -> None:
    golden = open_golden("cow_path_columns", tmp_path)
    table = Table(golden.path)
    before = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    fresh = [{**before["t001"], "ts": 9, "rider": "new"}, {**before["t000"], "id": "t900", "ts": 9}]
    table.upsert(pa.Table.from_pylist(fresh, table.schema()))
    assert {row["id"]: row for row in table.scan().to_arrow().to_pylist()} == before | {row["id"]: row for row in fresh}


def test_unpartitioned_tables_have_nothing_to_omit(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows([0, 1], 1))
    assert table.schema() == SCHEMA
    assert table.scan().to_arrow().num_rows == 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "merge on read": ({"partition_by": ["day"], "table_type": "mor"}, "only copy-on-write tables"),
    "no meta columns": ({"partition_by": ["day"], "options": {"hoodie.populate.meta.fields": False}}, "without meta columns"),
    "the ordering field": ({"partition_by": ["ts"]}, "orders records by ts"),
    "a part of a column": ({"partition_by": ["place.city"]}, "a part of another column"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_omitted_columns_with_unsupported_settings_are_rejected(tmp_path: Path, name: str) -> None:
    given, why = REFUSED[name]
    options = {OMIT: True, **given.get("options", {})}
    with pytest.raises(Unsupported, match=why):
        Table.create(tmp_path / "t", record_key="id", ordering="ts", **{**given, "options": options})
    assert not Table.exists(tmp_path / "t")


def test_merge_on_read_without_the_columns_is_read_and_not_written(tmp_path: Path) -> None:
    """No writer of Hudi on Spark makes such a table."""
    table = Table.create(tmp_path / "t", record_key="id", partition_by="level", ordering="ts", table_type="mor")
    table.upsert(rows(range(4), 1).drop_columns(["region"]))
    table.upsert(rows([0], 2).drop_columns(["region"]))
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    lines = [line for line in properties.read_text().splitlines() if not line.startswith(("#", OMIT))]
    properties.write_text("\n".join([*lines, f"{OMIT}=true"]) + "\n")
    # The files hold the column, as in Apache Hudi's tables, and everything goes on.
    again = Table(tmp_path / "t")
    again.upsert(rows([1], 3).drop_columns(["region"]))
    assert found(again, ("id", "ts", "level")) == {("k0", 2, 0), ("k1", 3, 1), ("k2", 1, 0), ("k3", 1, 1)}
    assert DEFAULT_PARTITION not in again.partitions()
