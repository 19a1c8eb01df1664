"""What Apache Hudi (1.0.2, 1.1.1) loses, hides or cannot read: PyHudi reads it right, and writes nothing that triggers it.

`tests/test_defects.py` lists every known defect with its tests; this module has those without a place elsewhere.
"""

from __future__ import annotations

import datetime
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.avro_wrappers import Wrapper
from pyhudi.format.log.delete_blocks import decode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock
from pyhudi.format.names import parse_log_file
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.table.file_slices import LogFile
from pyhudi.tasks.log_scan import read_headers
from tests.simulation.tables import World
from tests.support.hudi_dead_writes import SERVICES_ARE_DEAD

QUIET = {"hoodie.compact.inline": False, "hoodie.parquet.small.file.limit": 0, "pyhudi.threads": 1}
NINE = {**QUIET, "hoodie.write.table.version": 9, "hoodie.index.bloom.num_entries": 100}
ORDERING = "hoodie.datasource.write.precombine.field"
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


def blocks(table: Table) -> list[tuple[LogBlock, bytes]]:
    """Every block of every log file, with its content."""
    found = []
    storage = table.context.storage
    for info in sorted(storage.walk(""), key=lambda info: info.path):
        name = parse_log_file(info.path.rsplit("/", 1)[-1])
        if name is None or info.path.startswith(".hoodie/"):
            continue
        data = storage.read(info.path) or b""
        headers = read_headers(storage, LogFile(info.path, name, len(data)))
        assert all(isinstance(block, LogBlock) for block in headers)
        assert sum(block.size_bytes for block in headers) == len(data), "bytes between blocks hide the block before them"
        found += [(b, data[b.content_offset :][: b.content_size_bytes]) for b in headers if isinstance(b, LogBlock)]
    return found


# The values of an ordering column that fall and rise, and how a delete block may hold them.
ORDERINGS: dict[str, tuple[pa.DataType, list[Any], Wrapper | None]] = {
    "int": (pa.int32(), [3, 5, 7], Wrapper.INT),
    "bigint": (pa.int64(), [3, 5, 7], Wrapper.LONG),
    "float": (pa.float32(), [3.5, 5.5, 7.5], Wrapper.FLOAT),
    "double": (pa.float64(), [3.5, 5.5, 7.5], Wrapper.DOUBLE),
    "string": (pa.string(), ["s3", "s5", "s7"], Wrapper.STRING),
    "date": (pa.date32(), [datetime.date(2026, 1, day) for day in (3, 5, 7)], Wrapper.INT),
    "timestamp": (pa.timestamp("us", "UTC"), [NOON + datetime.timedelta(days=day) for day in (3, 5, 7)], Wrapper.LONG),
    "decimal": (pa.decimal128(9, 2), [Decimal("3.00"), Decimal("5.00"), Decimal("7.00")], None),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", sorted(ORDERINGS))
def test_deletes_store_the_values_that_hudi_compares(tmp_path: Path, kind: str) -> None:
    type_, (low, middle, high), wrapper = ORDERINGS[kind]

    def rows(ids: str, ts: Any, deleted: bool = False) -> pa.Table:
        flags = pa.array([deleted] * len(ids))
        return pa.table({"id": list(ids), "ts": pa.array([ts] * len(ids), type_), "_hoodie_is_deleted": flags})

    table = Table.create(str(tmp_path), record_key="id", ordering="ts", table_type="mor", options=QUIET)
    table.upsert(rows("abcde", middle))
    table.upsert(rows("a", high, True))
    table.upsert(rows("b", low, True))
    table.upsert(rows("c", middle, True))
    if wrapper is not None:
        # Of a decimal a delete by key has no value that every reader compares; nothing may follow it in the slice.
        table.delete(pa.table({"id": ["d"]}))
    deletes = [block for block in blocks(table) if block[0].kind is BlockType.DELETE]
    found = [batch.column("ordering") for _, content in deletes for batch in decode_deletes(content)]
    codes = {code for column in found for code in np.asarray(column.type_codes).tolist()}
    assert codes == (set() if wrapper is None else {wrapper})
    gone = {"a", "c"} if wrapper is None else {"a", "c", "d"}
    assert set(table.scan().to_arrow()["id"].to_pylist()) == set("abcde") - gone
    table.upsert(rows("".join(sorted(gone)), high))
    assert set(table.scan().to_arrow()["id"].to_pylist()) == set("abcde")
    table.compact()
    assert set(table.scan().to_arrow()["id"].to_pylist()) == set("abcde")


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_null_dates_in_logs_with_column_statistics(tmp_path: Path, table_type: str) -> None:
    """Apache Hudi fails to collect them from log files."""

    def rows(ids: str, *days: int | None) -> pa.Table:
        dates = [None if day is None else datetime.date(2026, 1, day) for day in days]
        return pa.table({"id": list(ids), "ts": [len(days)] * len(ids), "day": pa.array(dates, pa.date32())})

    options = {**QUIET, "hoodie.metadata.index.column.stats.enable": True}
    table = Table.create(str(tmp_path), record_key="id", ordering="ts", table_type=table_type, options=options)
    table.upsert(rows("abc", 1, None, 3))
    table.upsert(rows("abcd", None, None, 9, None))
    day = "day = date '2026-01-09'"
    assert table.scan(filter=day).to_arrow()["id"].to_pylist() == ["c"]
    assert sorted(table.scan(filter="day is null").to_arrow()["id"].to_pylist()) == ["a", "b", "d"]
    assert table.validate().ok


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_in_keys_are_one_text_in_every_operation(tmp_path: Path, zone: str | None) -> None:
    """Apache Hudi's bulk_insert makes another text of them than its upsert, so nothing is found again."""
    moments = pa.array([NOON.replace(tzinfo=None), NOON.replace(tzinfo=None, microsecond=7)], pa.timestamp("us")).cast(
        pa.timestamp("us", zone)
    )
    rows = pa.table({"id": moments, "at": moments, "ts": [1, 1]})
    options = QUIET | {"pyhudi.timestamps.without.zone": "local"}
    table = Table.create(str(tmp_path), record_key="id", partition_by="at", ordering="ts", options=options)
    table.bulk_insert(rows)
    done = table.upsert(rows.set_column(2, "ts", pa.array([2, 2])))
    assert (done.rows_updated, done.rows_inserted) == (2, 0)
    assert table.scan(["at", "ts"]).to_arrow()["ts"].to_pylist() == [2, 2]
    found = table.scan(["at"]).to_arrow()["at"].cast(pa.int64()).to_pylist()
    assert set(found) == set(moments.cast(pa.int64()).to_pylist())


def test_the_column_of_operations_hides_no_row(tmp_path: Path) -> None:
    """A sixth meta column has I, U or D for each row; Apache Hudi's snapshot reader ignores it, and so does PyHudi's."""
    table = Table.create(str(tmp_path), record_key="id", ordering="ts", table_type="mor", options=QUIET)
    table.upsert(pa.table({"id": ["a", "b"], "ts": [1, 1]}))
    (path,) = tmp_path.glob("*.parquet")
    stored = pq.read_table(path)
    assert stored.column_names[4] == "_hoodie_file_name"
    changed = stored.add_column(5, "_hoodie_operation", pa.array(["D", "-U"]))
    pq.write_table(changed.replace_schema_metadata(pq.read_schema(path).metadata), path)
    found = Table(str(tmp_path)).scan("*", options={"hoodie.metadata.enable": False}).to_arrow()
    assert sorted(found["id"].to_pylist()) == ["a", "b"]
    assert "_hoodie_operation" not in found.column_names


def test_log_block_headers_contain_what_hudi_requires(tmp_path: Path) -> None:
    """No identifier of attempts, which the real reader does not heed; one instant a file; no bytes between blocks."""
    options = {**QUIET, "hoodie.logfile.data.block.max.size": 200}
    table = Table.create(str(tmp_path), record_key="id", ordering="ts", table_type="mor", options=options)
    table.insert(pa.table({"id": [f"k{n:03}" for n in range(60)], "ts": [1] * 60}))
    done = table.upsert(pa.table({"id": [f"k{n:03}" for n in range(40)], "ts": [2] * 40}))
    deleted = table.delete(pa.table({"id": ["k050"]}))
    written = [block for block, _ in blocks(table)]
    assert len(written) > 3
    assert all(block.header(HeaderKey.BLOCK_IDENTIFIER) is None for block in written)
    assert {block.instant_time for block in written} == {done.instant, deleted.instant}


def test_partial_updates_in_incremental_queries(tmp_path: Path) -> None:
    """Apache Hudi reads garbage there, or its process dies: the range has log files alone, and they hold some columns."""
    table = Table.create(str(tmp_path), record_key="id", ordering="ts", table_type="mor", options=QUIET)
    table.upsert(pa.table({"id": ["a", "b"], "ts": [1, 1], "note": ["x", "y"], "fare": [1.5, 2.5]}))
    done = table.upsert(pa.table({"id": ["a"], "ts": [2], "fare": [9.5]}), partial=True)
    assert any(block.is_partial for block, _ in blocks(table))
    (row,) = table.incremental(str(done.completion_time)).to_arrow().to_pylist()
    assert (row["id"], row["ts"], row["fare"]) == ("a", 2, 9.5)
    assert row["note"] == "x"
    assert sorted(table.scan(["id", "note"]).to_arrow().to_pylist(), key=str) == [
        {"id": "a", "note": "x"},
        {"id": "b", "note": "y"},
    ]
    table.compact()
    table.upsert(pa.table({"id": ["a"], "ts": [3], "note": ["later"], "fare": [0.0]}))
    (row,) = table.incremental(str(done.completion_time), str(done.completion_time)).to_arrow().to_pylist()
    assert (row["id"], row["ts"], row["note"], row["fare"]) == ("a", 2, "x", 9.5)


def test_rolled_back_clustering_leaves_no_plan(tmp_path: Path) -> None:
    """Apache Hudi leaves its plan behind, which then looks pending; PyHudi leaves nothing, and repairs what that one left."""
    table = Table.create(str(tmp_path), record_key="id", ordering="ts", options={**QUIET, "hoodie.clean.automatic": False})
    table.insert(pa.table({"id": ["a"], "ts": [1]}))
    target = str(table.insert(pa.table({"id": ["b"], "ts": [1]})).instant)
    clustered = table.cluster(order_by="id")
    assert clustered.completion_time is not None
    folder = tmp_path / ".hoodie" / "timeline"
    plans = sorted(path for path in folder.iterdir() if path.name.startswith(f"{clustered.instant}.clustering"))
    assert len(plans) == 2
    left = {path.name: path.read_bytes() for path in plans}
    table.restore(target)
    assert not [path for path in folder.iterdir() if path.name.startswith(str(clustered.instant))]

    for name, data in left.items():
        (folder / name).write_bytes(data)
    table = Table(str(tmp_path), options=QUIET)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["a", "b"]
    changes = pa.table({"id": ["a", "c"], "ts": [2, 2]})
    # Another process without a heartbeat may be running it.
    with pytest.raises(TableState, match=r"pending clustering.*unschedule_clustering"):
        table.upsert(changes)
    with pytest.raises(TableState, match=r"may be running it.*pyhudi.service.expiry.ms"):
        table.unschedule_clustering(str(clustered.instant))
    table.unschedule_clustering(str(clustered.instant), options=dict(SERVICES_ARE_DEAD))
    table.upsert(changes)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_no_data_file_comes_before_its_marker(kind: str) -> None:
    """A file without one outlives Apache Hudi's rollback of a dead write, and counts as committed later on."""
    world = World(kind, {"pyhudi.threads": 1, **QUIET})
    world.upsert({f"k{n}": n for n in range(8)})
    context, storage = world.context()
    options = parse_options({**world.options, "hoodie.parquet.small.file.limit": 0})
    rows = world.table.scan().to_arrow()
    more = pa.concat_tables([rows, rows.set_column(0, "id", pa.array([f"new{n}" for n in range(rows.num_rows)]))])
    run_write(context, LocalEngine(1), more, WriteSettings.of(options, WriteOperation.UPSERT))
    marked: set[str] = set()
    data = 0
    for call in storage.calls:
        name = call.path.rsplit("/", 1)[-1]
        if not call.writes:
            continue
        if ".marker." in name:
            marked.add(name.split(".marker.")[0])
        elif "/.hoodie/" not in call.path and (name.endswith(".parquet") or ".log." in name):
            assert name in marked or call.operation == "delete", f"{call} without a marker"
            data += 1
    assert data >= 2


@pytest.mark.parametrize("kind", ["partition_stats", "column_stats"])
def test_statistics_that_are_not_there_hide_nothing(tmp_path: Path, kind: str) -> None:
    """Apache Hudi drops files and whole partitions that are missing in an index which its options name."""
    options = {**QUIET, "hoodie.metadata.index.column.stats.enable": True}
    table = Table.create(str(tmp_path), record_key="id", partition_by="part", ordering="ts", options=options)
    rows = pa.table({"id": ["a", "b"], "part": ["x", "y"], "ts": [1, 5], "long": ["v" * 9, "w" * 100_000]})
    table.upsert(rows)
    assert sorted(table.scan(filter="ts >= 1").to_arrow()["id"].to_pylist()) == ["a", "b"]
    assert table.scan(filter=f"long = '{'w' * 100_000}'").to_arrow()["id"].to_pylist() == ["b"]
    # The records of one kind go: the log and base files of its folder hold none any more.
    folder = tmp_path / ".hoodie" / "metadata" / kind
    assert folder.is_dir()
    shutil.rmtree(folder)
    with pytest.warns(RuntimeWarning, match="all files are read"):
        found = Table(str(tmp_path)).scan(filter="ts >= 1 and long like 'w%'").to_arrow()
    assert found["id"].to_pylist() == ["b"]


def test_statistics_of_a_column_that_came_later_hide_nothing(tmp_path: Path) -> None:
    """A partition and a file without statistics of a column may hold any value of it, null as well."""
    options = {**QUIET, "hoodie.metadata.index.column.stats.enable": True}
    table = Table.create(str(tmp_path), record_key="id", partition_by="part", ordering="ts", options=options)
    table.upsert(pa.table({"id": ["a"], "part": ["x"], "ts": [1]}))
    table.upsert(pa.table({"id": ["b"], "part": ["y"], "ts": [1], "v": [5]}))
    for text, keys in (("v is null", ["a"]), ("v >= 1", ["b"]), ("ts = 1 and (v is null or v = 5)", ["a", "b"]), ("v = 6", [])):
        assert sorted(table.scan(filter=text).to_arrow()["id"].to_pylist()) == keys


def test_dates_in_a_secondary_index(tmp_path: Path) -> None:
    """Apache Hudi looks up a number of days in such an index, which holds texts."""
    options = {**QUIET, "hoodie.metadata.record.index.enable": True}
    table = Table.create(str(tmp_path), record_key="id", ordering="ts", options=options)
    days = pa.array([datetime.date(2026, 1, day) for day in (1, 2, 2)], pa.date32())
    table.upsert(pa.table({"id": ["a", "b", "c"], "ts": [1, 1, 1], "day": days}))
    table.index.create("secondary_index", "day")
    found = table.scan(filter="day = date '2026-01-02'")
    assert "secondary index secondary_index_day" in str(found.explain())
    assert sorted(found.to_arrow()["id"].to_pylist()) == ["b", "c"]
    assert table.validate().ok


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_null_in_a_tuple_of_ordering_values_is_refused(kind: str, tmp_path: Path) -> None:
    """Hudi 1.1.1 accepts the row, and then neither writes to its file again (copy on write) nor reads it (merge on read)."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("qty", pa.int64())])
    table = Table.create(tmp_path / "t", record_key="id", table_type=kind, options={**NINE, ORDERING: "ts,qty"})
    table.upsert(pa.Table.from_pylist([{"id": "a", "ts": 1, "qty": 5}], schema))
    with pytest.raises(InvalidRequest, match="'qty' is null"):
        table.upsert(pa.Table.from_pylist([{"id": "a", "ts": 1, "qty": None}], schema))
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "ts": 1, "qty": 5}]


@pytest.mark.parametrize("ordering", ["day,qty", "day"])
def test_deletes_with_dates_as_ordering_values(ordering: str, tmp_path: Path) -> None:
    """Hudi 1.1.1 cannot read the log of a tuple, and cannot write a single date."""
    schema = pa.schema([("id", pa.string()), ("day", pa.date32()), ("qty", pa.int32()), ("_hoodie_is_deleted", pa.bool_())])
    table = Table.create(tmp_path / "t", record_key="id", table_type="mor", options={**NINE, ORDERING: ordering})

    def write(*rows: tuple[str, int, bool]) -> None:
        made = [{"id": key, "day": datetime.date(2026, 1, day), "qty": 1, "_hoodie_is_deleted": gone} for key, day, gone in rows]
        table.upsert(pa.Table.from_pylist(made, schema))

    write(("a", 5, False), ("b", 5, False), ("c", 5, False))
    write(("a", 6, True), ("b", 4, True))
    write(("a", 4, False), ("c", 4, False))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["b", "c"]
    table.compact()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["b", "c"]


@pytest.mark.parametrize("version", [8, 9])
def test_a_deleted_key_that_is_written_again_is_in_the_record_index(version: int) -> None:
    options = {**QUIET, "hoodie.metadata.record.index.enable": True, "hoodie.write.table.version": version}
    table = Table.create(f"memory://again-{version}", record_key="id", ordering="ts", table_type="mor", options=options)
    table.upsert(pa.table({"id": ["a", "b"], "ts": [1, 1]}))
    table.delete(pa.table({"id": ["b"], "ts": [2]}))
    table.upsert(pa.table({"id": ["b"], "ts": [3]}))
    assert table.lookup(["b"]).to_arrow()["ts"].to_pylist() == [3]
    assert table.validate().ok
    table.compact()
    assert table.lookup(["b"]).to_arrow()["ts"].to_pylist() == [3]
    assert table.validate().ok
