"""Base files as tasks write them: new ones, and the next versions of old ones."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import MarkerType, WriteToken
from pyhudi.format.partition_metadata import PartitionMetadata
from pyhudi.records.record_merge import CommitTimeRule, EventTimeRule, RecordMergeRule
from pyhudi.storage import Storage
from pyhudi.storage.markers import Markers
from pyhudi.tasks import write_base_files
from pyhudi.tasks.base_file_reader import footer_filter, open_base_file
from pyhudi.tasks.base_file_writer import BaseFileWriter
from pyhudi.tasks.incoming_layout import DELETE_COLUMN
from pyhudi.tasks.write_base_files import run_create, run_merge
from pyhudi.tasks.write_tasks import CreateTask, MergeTask, WriteStatus
from tests.support.base_writer import create, footer, incoming, new_storage, read, spec

OLD, NEW = "20260101000000000", "20260102000000000"
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
META = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]


def rows(*triples: tuple[str, int, str], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = {"id": [t[0] for t in triples], "ts": [t[1] for t in triples], "v": [t[2] for t in triples]}
    return pa.table(columns, schema=schema)


def merge(
    storage: Storage,
    old: WriteStatus,
    newer: pa.Table,
    rule: RecordMergeRule | None = None,
    schema: pa.Schema = SCHEMA,
    **more: Any,
) -> WriteStatus:
    rule = rule or EventTimeRule("ts")
    match = more.pop("match_keys", True)
    made = spec(storage, schema, NEW, rule=rule, **more)
    assert old.stat.file_id is not None
    assert old.stat.path is not None
    task = MergeTask(old.stat.partition_path or "", old.stat.file_id, old.stat.path, WriteToken(3, 0, 3), match)
    return run_merge(made, task, newer, rule)


def data(storage: Storage, status: WriteStatus) -> list[tuple[Any, ...]]:
    table = read(storage, status.stat.path)
    return sorted(zip(*(table.column(name).to_pylist() for name in ("id", "ts", "v")), strict=True))


# New file groups


def test_a_new_file() -> None:
    storage = new_storage()
    made = spec(storage, SCHEMA, OLD)
    (status,) = create(made, rows(("b", 1, "x"), ("a", 2, "y")), "city=oslo/day=1")
    stat = status.stat
    assert stat.path == "city=oslo/day=1/11111111-2222-3333-4444-555555555555-0_7-0-7_20260101000000000.parquet"
    assert (stat.file_id, stat.partition_path, stat.prev_commit) == (
        "11111111-2222-3333-4444-555555555555-0",
        "city=oslo/day=1",
        "null",
    )
    assert (stat.num_writes, stat.num_inserts, stat.num_update_writes, stat.num_deletes) == (2, 2, 0, 0)
    info = storage.stat(stat.path)
    assert info is not None
    assert stat.total_write_bytes == stat.file_size_in_bytes == info.size_bytes
    table = read(storage, stat.path)
    assert table.column_names == [*META, "id", "ts", "v"]
    assert table.to_pylist()[0] == {
        "_hoodie_commit_time": OLD,
        "_hoodie_commit_seqno": f"{OLD}_7_0",
        "_hoodie_record_key": "b",
        "_hoodie_partition_path": "city=oslo/day=1",
        "_hoodie_file_name": stat.path.rsplit("/", 1)[1],
        "id": "b",
        "ts": 1,
        "v": "x",
    }
    assert Markers(storage, OLD).list() == ((stat.path, MarkerType.CREATE),)
    document = PartitionMetadata.decode(storage.read("city=oslo/day=1/.hoodie_partition_metadata") or b"")
    assert (document.instant_time, document.depth) == (OLD, 2)
    entries = footer(storage, stat.path)
    assert (entries["hoodie_min_record_key"], entries["hoodie_max_record_key"]) == ("a", "b")
    assert entries["parquet.avro.schema"] == arrow_to_avro(with_meta_fields(SCHEMA), "t")
    with open_base_file(storage, stat.path) as file:
        key_filter = footer_filter(file.metadata)
    assert key_filter is not None
    assert key_filter.might_contain(pa.array(["a", "b"])).all()
    assert "ARROW:schema" not in entries


def test_partition_metadata_is_written_once() -> None:
    storage = new_storage()
    create(spec(storage, SCHEMA, OLD), rows(("a", 1, "x")), "p")
    create(spec(storage, SCHEMA, NEW), rows(("b", 1, "x")), "p")
    assert PartitionMetadata.decode(storage.read("p/.hoodie_partition_metadata") or b"").instant_time == OLD


def test_files_roll_over_when_they_are_full() -> None:
    storage = new_storage()
    options = {"hoodie.parquet.max.file.size": 200_000, "hoodie.parquet.compression.codec": "uncompressed"}
    made = spec(storage, SCHEMA, options=options)
    many = rows(*((f"k{number:06d}", number, f"{number * 7919:040d}") for number in range(20_000)))
    statuses = create(made, many, step=1000)
    assert len(statuses) > 3
    assert [status.stat.file_id[-2:] for status in statuses if status.stat.file_id] == [f"-{n}" for n in range(len(statuses))]
    # A file ends with the piece that fills it.
    assert all(100_000 < status.stat.total_write_bytes < 400_000 for status in statuses[:-1])
    tables = [read(storage, status.stat.path) for status in statuses]
    assert pa.concat_tables(tables).column("id").to_pylist() == many.column("id").to_pylist()
    sequence = [int(text.rsplit("_", 1)[1]) for table in tables for text in table.column("_hoodie_commit_seqno").to_pylist()]
    assert sequence == list(range(20_000))
    for table, status in zip(tables, statuses, strict=True):
        assert status.stat.num_writes == table.num_rows
        name = (status.stat.path or "").rsplit("/", 1)[-1]
        assert set(table.column("_hoodie_file_name").to_pylist()) == {name}
        entries = footer(storage, status.stat.path)
        assert entries["hoodie_min_record_key"] == table.column("id")[0].as_py()


def test_soft_deletes_make_no_file() -> None:
    storage = new_storage()
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = rows(("a", 1, "x"), ("b", 1, "y")).append_column("_hoodie_is_deleted", pa.array([True, True]))
    assert create(spec(storage, schema), table) == ()
    assert run_create(spec(storage, SCHEMA), CreateTask("", "x", WriteToken(0, 0, 0)), []) == ()
    assert list(storage.walk("")) == []
    kept = table.set_column(3, "_hoodie_is_deleted", pa.array([True, None]))
    (status,) = create(spec(storage, schema), kept)
    assert read(storage, status.stat.path).column("id").to_pylist() == ["b"]


def test_without_meta_columns() -> None:
    storage = new_storage()
    (status,) = create(spec(storage, SCHEMA, OLD, populate=False), rows(("a", 1, "x"), ("b", 1, "y")))
    merged = merge(storage, status, incoming(rows(("b", 2, "z"), ("c", 1, "w"))), populate=False)
    table = read(storage, merged.stat.path)
    assert all(table.column(name).null_count == 3 for name in META)
    assert data(storage, merged) == [("a", 1, "x"), ("b", 2, "z"), ("c", 1, "w")]
    assert "hoodie_min_record_key" not in footer(storage, merged.stat.path)
    assert "org.apache.hudi.bloomfilter" not in footer(storage, merged.stat.path)


def test_key_ranges_are_in_the_order_of_java() -> None:
    storage = new_storage()
    # As UTF-16 the emoji is a pair of surrogates, which sort before U+FF01.
    (status,) = create(spec(storage, SCHEMA), rows(("\uff01", 1, "x"), ("😀", 1, "y")))
    entries = footer(storage, status.stat.path)
    assert (entries["hoodie_min_record_key"], entries["hoodie_max_record_key"]) == ("😀", "\uff01")


def test_a_failed_file_does_not_appear() -> None:
    storage = new_storage()
    made = spec(storage, SCHEMA)
    with (
        pytest.raises(RuntimeError),
        BaseFileWriter(storage, "x.parquet", made.stored_schema, made.avro_schema, made.files) as writer,
    ):
        writer.write(read(storage, create(made, rows(("a", 1, "x")))[0].stat.path))
        raise RuntimeError
    assert storage.stat("x.parquet") is None


# The next version of a file group


def test_updates_inserts_and_what_stays() -> None:
    storage = new_storage()
    (old,) = create(spec(storage, SCHEMA, OLD), rows(("a", 5, "a"), ("b", 5, "b"), ("c", 5, "c")), "p")
    merged = merge(storage, old, incoming(rows(("c", 5, "tie"), ("a", 4, "older"), ("d", 1, "new"), ("e", 1, "new")), "p"))
    stat = merged.stat
    assert stat.path == f"p/{old.stat.file_id}_3-0-3_{NEW}.parquet"
    assert (stat.prev_commit, stat.prev_base_file) == (OLD, (old.stat.path or "").rsplit("/", 1)[1])
    assert (stat.num_writes, stat.num_inserts, stat.num_update_writes, stat.num_deletes) == (5, 2, 1, 0)
    found = {row["id"]: row for row in read(storage, stat.path).to_pylist()}
    assert {key: (row["ts"], row["v"], row["_hoodie_commit_time"]) for key, row in found.items()} == {
        "a": (5, "a", OLD),
        "b": (5, "b", OLD),
        "c": (5, "tie", NEW),
        "d": (1, "new", NEW),
        "e": (1, "new", NEW),
    }
    assert found["a"]["_hoodie_commit_seqno"] == f"{OLD}_7_0"
    assert len({row["_hoodie_commit_seqno"] for row in found.values()}) == 5
    assert {row["_hoodie_file_name"] for row in found.values()} == {(stat.path or "").rsplit("/", 1)[1]}
    assert Markers(storage, NEW).list() == ((stat.path, MarkerType.MERGE),)
    entries = footer(storage, stat.path)
    assert (entries["hoodie_min_record_key"], entries["hoodie_max_record_key"]) == ("a", "e")
    with open_base_file(storage, stat.path or "") as file:
        key_filter = footer_filter(file.metadata)
    assert key_filter is not None
    assert key_filter.might_contain(pa.array(list("abcde"))).all()
    # The old version is untouched.
    assert data(storage, old) == [("a", 5, "a"), ("b", 5, "b"), ("c", 5, "c")]


def test_by_commit_time_the_incoming_row_wins() -> None:
    storage = new_storage()
    (old,) = create(spec(storage, SCHEMA, OLD), rows(("a", 5, "a")))
    assert data(storage, merge(storage, old, incoming(rows(("a", 1, "b"))), CommitTimeRule())) == [("a", 1, "b")]


def test_soft_deletes_of_older_and_newer_rows() -> None:
    storage = new_storage()
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    stored = rows(*((key, 5, key) for key in "abcdef")).append_column("_hoodie_is_deleted", pa.array([False] * 6))
    (old,) = create(spec(storage, schema, OLD), stored)
    newer = rows(("a", 4, "late"), ("b", 5, "tie"), ("c", 6, "x"), ("d", 9, "x"), ("z", 9, "nobody"))
    newer = newer.append_column("_hoodie_is_deleted", pa.array([True, True, True, False, True]))
    merged = merge(storage, old, incoming(newer), schema=schema)
    assert data(storage, merged) == [("a", 5, "a"), ("d", 9, "x"), ("e", 5, "e"), ("f", 5, "f")]
    assert (merged.stat.num_deletes, merged.stat.num_update_writes, merged.stat.num_inserts) == (2, 1, 0)
    keys = pa.table({"_hoodie_record_key": ["a", "q"], "_hoodie_partition_path": ["", ""], DELETE_COLUMN: [True, True]})
    gone = merge(storage, merged, keys, schema=schema)
    assert [row[0] for row in data(storage, gone)] == ["d", "e", "f"]
    # Deletes without a row among rows.
    both = rows(("e", 0, "x"), ("d", 9, "y")).append_column("_hoodie_is_deleted", pa.array([False, False]))
    mixed = incoming(both, "", [True, False])
    assert data(storage, merge(storage, gone, mixed, schema=schema)) == [("d", 9, "y"), ("f", 5, "f")]


def test_all_rows_deleted_leave_an_empty_file() -> None:
    storage = new_storage()
    (old,) = create(spec(storage, SCHEMA, OLD), rows(("a", 5, "a"), ("b", 5, "b")))
    keys = pa.table({"_hoodie_record_key": ["a", "b"], "_hoodie_partition_path": ["", ""], DELETE_COLUMN: [True, True]})
    empty = merge(storage, old, keys)
    assert (empty.stat.num_writes, empty.stat.num_deletes) == (0, 2)
    table = read(storage, empty.stat.path)
    assert (table.num_rows, table.column_names) == (0, [*META, "id", "ts", "v"])
    assert "hoodie_min_record_key" not in footer(storage, empty.stat.path)
    refilled = merge(storage, empty, incoming(rows(("c", 1, "c"))))
    assert data(storage, refilled) == [("c", 1, "c")]
    assert footer(storage, refilled.stat.path)["hoodie_min_record_key"] == "c"


def test_each_copy_of_a_key_is_updated() -> None:
    storage = new_storage()
    (old,) = create(spec(storage, SCHEMA, OLD), rows(("a", 5, "1"), ("a", 9, "2"), ("b", 5, "b")))
    merged = merge(storage, old, incoming(rows(("a", 7, "new"))))
    assert data(storage, merged) == [("a", 7, "new"), ("a", 9, "2"), ("b", 5, "b")]


def test_of_several_incoming_rows_the_last_counts() -> None:
    storage = new_storage()
    (old,) = create(spec(storage, SCHEMA, OLD), rows(("a", 1, "a")))
    newer = incoming(rows(("a", 9, "first"), ("c", 1, "first"), ("a", 2, "last"), ("c", 1, "last")))
    assert data(storage, merge(storage, old, newer)) == [("a", 2, "last"), ("c", 1, "last")]
    # Inserts that are not looked up are all added.
    appended = merge(storage, old, newer, match_keys=False)
    assert [row[0] for row in data(storage, appended)] == ["a", "a", "a", "c", "c"]
    assert appended.stat.num_inserts == 4


def test_widened_and_new_columns() -> None:
    storage = new_storage()
    narrow = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int32()), ("f", pa.float32())])
    (old,) = create(spec(storage, narrow, OLD), pa.table({"id": ["a", "b"], "ts": [1, 1], "v": [1, 2], "f": [0.1, None]}, narrow))
    wide = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("f", pa.float64()), ("w", pa.string())])
    newer = pa.table({"id": ["b"], "ts": [2], "v": [1 << 40], "f": [0.5], "w": ["w"]}, wide)
    table = read(storage, merge(storage, old, incoming(newer), schema=wide).stat.path)
    assert table.select(["id", "v", "f", "w"]).to_pylist() == [
        {"id": "a", "v": 1, "f": 0.1, "w": None},
        {"id": "b", "v": 1 << 40, "f": 0.5, "w": "w"},
    ]


NESTED = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("s", pa.struct([("x", pa.int32()), ("deep", pa.struct([("y", pa.string())]))])),
        ("l", pa.list_(pa.field("element", pa.int64()))),
        ("m", pa.map_(pa.field("key", pa.string(), False), pa.field("value", pa.struct([("z", pa.bool_())])))),
        ("ls", pa.list_(pa.field("element", pa.struct([("q", pa.decimal128(10, 2))])))),
    ]
)


def nested(key: str, ts: int, value: int | None) -> dict[str, Any]:
    if value is None:
        return {"id": key, "ts": ts, "s": None, "l": None, "m": None, "ls": None}
    return {
        "id": key,
        "ts": ts,
        "s": {"x": value, "deep": {"y": str(value)} if value % 2 else None},
        "l": [value] * (value % 3),
        "m": [(str(value), {"z": True}), ("n", None)],
        "ls": [{"q": None}, None],
    }


def test_nested_columns() -> None:
    storage = new_storage()
    before = [nested("a", 1, 1), nested("b", 1, None), nested("c", 1, 3), nested("d", 1, 4)]
    (old,) = create(spec(storage, NESTED, OLD), pa.Table.from_pylist(before, NESTED))
    after = [nested("b", 2, 5), nested("c", 2, None), nested("e", 1, 7)]
    merged = merge(storage, old, incoming(pa.Table.from_pylist(after, NESTED)), schema=NESTED)
    found = read(storage, merged.stat.path).select(NESTED.names).to_pylist()
    assert found == [before[0], after[0], after[1], before[3], after[2]]


def test_an_old_file_of_several_row_groups() -> None:
    storage = new_storage()
    options = {"hoodie.parquet.block.size": 10_000}
    many = rows(*((f"k{number:04d}", 1, "x" * 20) for number in range(3000)))
    (old,) = create(spec(storage, SCHEMA, OLD, options=options), many, step=500)
    with open_base_file(storage, old.stat.path or "") as file:
        assert file.metadata.num_row_groups > 2
    merged = merge(storage, old, incoming(rows(*((f"k{number:04d}", 2, "y") for number in range(0, 3000, 7)))))
    found = data(storage, merged)
    assert found == [(f"k{n:04d}", 1, "x" * 20) if n % 7 else (f"k{n:04d}", 2, "y") for n in range(3000)]
    assert merged.stat.num_update_writes == 429
    table = read(storage, merged.stat.path)
    assert len(set(table.column("_hoodie_commit_seqno").to_pylist())) == 3000


def test_rows_of_one_write_are_divided_into_row_groups() -> None:
    """As in Hudi, a group has the size of `hoodie.parquet.block.size`, and at least 100 rows."""
    storage = new_storage()
    many = rows(*((f"k{number:04d}", 1, "x" * 20) for number in range(3000)))
    for block_size, group_count in ((10_000_000, 1), (100_000, 3), (1, 30)):
        options = {"hoodie.parquet.block.size": block_size}
        (stored,) = create(spec(storage, SCHEMA, OLD, options=options), many)
        with open_base_file(storage, stored.stat.path or "") as file:
            row_counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        assert (len(row_counts), sum(row_counts), min(row_counts) >= 100) == (group_count, 3000, True), block_size


def test_a_row_group_is_merged_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_base_files, "BATCH_ROWS", 200)
    storage = new_storage()
    many = rows(*((f"k{number:04d}", 1, f"{number % 3}") for number in range(1000)))
    (old,) = create(spec(storage, SCHEMA, OLD), many)
    with open_base_file(storage, old.stat.path or "") as file:
        assert file.metadata.num_row_groups == 1
    merged = merge(storage, old, incoming(rows(*((f"k{number:04d}", 2, f"new {number}") for number in range(0, 1005, 10)))))
    expected = [(f"k{n:04d}", 1, f"{n % 3}") if n % 10 else (f"k{n:04d}", 2, f"new {n}") for n in range(1000)]
    assert data(storage, merged) == [*expected, ("k1000", 2, "new 1000")]
    assert (merged.stat.num_update_writes, merged.stat.num_inserts) == (100, 1)
    table = read(storage, merged.stat.path)
    assert len(set(table.column("_hoodie_commit_seqno").to_pylist())) == 1001
    with open_base_file(storage, merged.stat.path or "") as file:
        assert file.metadata.num_row_groups == 1


@pytest.mark.parametrize("codec", ["gzip", "zstd", "snappy", "uncompressed", "lz4_raw"])
def test_codecs(codec: str) -> None:
    storage = new_storage()
    (status,) = create(spec(storage, SCHEMA, options={"hoodie.parquet.compression.codec": codec}), rows(("a", 1, "x")))
    with storage.open_input(status.stat.path or "") as source:
        used = pq.ParquetFile(source).metadata.row_group(0).column(0).compression
    assert used.lower() == {"lz4_raw": "lz4"}.get(codec, codec)
    assert data(storage, status) == [("a", 1, "x")]


@pytest.mark.parametrize("damage", ["empty", "cut", "inside"])
def test_a_damaged_base_file_is_named(damage: str) -> None:
    storage = new_storage()
    (old,) = create(spec(storage, SCHEMA, OLD), rows(*((f"k{n}", 1, str(n * 7919)) for n in range(500))))
    path = old.stat.path or ""
    whole = storage.read(path) or b""
    storage.put(path, {"empty": b"", "cut": whole[: len(whole) // 2], "inside": whole[:4] + bytes(200) + whole[204:]}[damage])
    with pytest.raises(CorruptData) as caught:
        merge(storage, old, incoming(rows(("k1", 2, "x"))))
    assert caught.value.path == storage.absolute(path)
    new = path.replace("_7-0-7_" + OLD, "_3-0-3_" + NEW)
    assert storage.stat(new) is None
