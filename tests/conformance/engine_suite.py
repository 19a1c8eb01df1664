"""Requirements of every engine.

A test class inherits `EngineSuite` and supplies `engine` and `data`, which converts an Arrow table to the engine's
input. Requests are made as a write makes them, on files of their own directory, without table or timeline.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import WriteToken, format_file_id, parse_base_file, parse_log_file
from pyhudi.format.paths import file_name
from pyhudi.options.supported import parse_options
from pyhudi.planning.record_placement import InsertTarget
from pyhudi.records.keys.key_spec import KeyGenerator, KeySpec, PartitionField
from pyhudi.records.record_merge import EventTimeRule
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.heartbeats import heartbeat_path
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile
from pyhudi.tasks.base_file_writer import FileSettings
from pyhudi.tasks.engine_protocol import BulkPlan, Engine, Incoming, PrepareRequest, TagRequest, WritePlan
from pyhudi.tasks.incoming_layout import as_batch
from pyhudi.tasks.incoming_rows import incoming_rows
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.read_slice import run_read
from pyhudi.tasks.tag_location import FileGroupCandidate, LookupByKeyColumns
from pyhudi.tasks.write_file_group import create_files
from pyhudi.tasks.write_tasks import CreateTask, WriterSpec, WriteStatus

ToData = Callable[[pa.Table], Any]
Row = tuple[str, str, int, int | None]

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
KEYS = KeySpec(KeyGenerator.SIMPLE, ("id",), (PartitionField("part"),))
RULE = EventTimeRule("ts")
FIRST, SECOND = "20260101000000000", "20260102000000000"
VALIDITY = InstantValidity(frozenset({FIRST, SECOND}), frozenset(), FIRST, SECOND)
SMALL = {"hoodie.index.bloom.num_entries": 100, "hoodie.index.bloom.fpp": 0.01, "hoodie.bloom.index.filter.type": "SIMPLE"}

REQUEST = PrepareRequest(
    data_schema=SCHEMA,
    keys=KEYS,
    rule=RULE,
    combine=True,
    global_keys=False,
    keys_only=False,
    instant_time=SECOND,
    memory_budget_bytes=64 << 20,
)


def table_of(*rows: Row) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []], schema=SCHEMA)


def tenfold(number: int) -> int:
    return number * 10


def refuse_three(number: int) -> int:
    if number == 3:
        raise CorruptData("three is damaged", offset=3).with_path("a/b")
    return number


@dataclass(frozen=True)
class Folder:
    """A folder with file groups, and what a write to it requires of an engine."""

    storage: Storage
    engine: Engine
    data: ToData

    def spec(self, instant: str = SECOND) -> WriterSpec:
        # Tasks of a cluster remove what they have written for a write that does not live.
        self.storage.put(heartbeat_path(instant), b"")
        return WriterSpec(
            storage=self.storage.spec(),
            instant_time=instant,
            data_schema=SCHEMA,
            avro_schema=arrow_to_avro(with_meta_fields(SCHEMA), "t"),
            files=FileSettings.of(parse_options(SMALL)),
            keys=KEYS,
            populate_meta_fields=True,
            rule=RULE,
        )

    def stored(self, *rows: Row) -> FileSlice:
        """A file group with some rows of one partition, written by an earlier instant."""
        ready = incoming_rows(REQUEST, as_batch(table_of(*rows)))
        task = CreateTask(rows[0][1], str(uuid.uuid4()), WriteToken(0, 0, 0))
        (status,) = create_files(self.spec(FIRST), task, [ready])
        return self.slices([status])[0]

    def prepare(self, *rows: Row, request: PrepareRequest = REQUEST) -> Incoming:
        return self.engine.prepare(self.data(table_of(*rows)), request)

    def tag_request(self, *slices: FileSlice, global_keys: bool = False, moves: bool = False) -> TagRequest:
        places = tuple(FileGroupCandidate(found.partition, found.file_id, found) for found in slices)
        return TagRequest(self.spec(), places, LookupByKeyColumns(), global_keys, moves, RULE, VALIDITY)

    def plan(self, slices: Sequence[FileSlice] = (), inserts: Sequence[InsertTarget] = (), *, appends: bool = False) -> WritePlan:
        by_partition: dict[str, list[InsertTarget]] = {}
        for target in inserts:
            by_partition.setdefault(target.partition, []).append(target)
        return WritePlan(
            spec=self.spec(),
            slices={(found.partition, found.file_id): found for found in slices},
            inserts=by_partition,
            rule=RULE,
            match_keys=True,
            append_updates=appends,
            validity=VALIDITY,
        )

    def bulk(self, sort: str) -> BulkPlan:
        return BulkPlan(self.spec(), sort, lambda: str(uuid.uuid4()), 0)

    def slices(self, statuses: Sequence[WriteStatus], before: Sequence[FileSlice] = ()) -> list[FileSlice]:
        """The slices after a write; those of other groups are left as they were."""
        found = {slice_.file_id: slice_ for slice_ in before}
        for status in statuses:
            path = str(status.stat.path)
            name = file_name(path)
            base, log = parse_base_file(name), parse_log_file(name)
            if log is not None:
                old = found[log.file_id]
                found[log.file_id] = replace(old, logs=(*old.logs, LogFile(path, log, status.stat.file_size_in_bytes)))
            else:
                assert base is not None, name
                made = BaseFile(path, base, status.stat.file_size_in_bytes)
                found[base.file_id] = FileSlice(str(status.stat.partition_path), base.file_id, base.instant_time, made)
        return list(found.values())

    def rows(self, statuses: Sequence[WriteStatus], before: Sequence[FileSlice] = ()) -> list[Row]:
        """(key, partition path, ts, v) of all rows after a write, sorted."""
        reader = self.spec().reader(VALIDITY)
        names = ("_hoodie_record_key", "_hoodie_partition_path", "ts", "v")
        tables = [rows for slice_ in self.slices(statuses, before) for rows in run_read(reader, slice_)]
        return sorted(row for rows in tables for row in zip(*(rows.column(name).to_pylist() for name in names), strict=True))


def new_group(partition: str, rows: int) -> InsertTarget:
    return InsertTarget(partition, format_file_id(str(uuid.uuid4()), 0), None, rows)


class EngineSuite:
    @pytest.fixture
    def folder(self, engine: Engine, data: ToData, tmp_path: Path) -> Folder:
        return Folder(open_storage(str(tmp_path / "t")), engine, data)

    def test_results_of_tasks_come_in_their_order(self, engine: Engine) -> None:
        assert engine.map(tenfold, range(7)) == [0, 10, 20, 30, 40, 50, 60]
        assert engine.map(tenfold, iter([5])) == [50]
        assert engine.map(tenfold, []) == []

    def test_the_error_of_a_task_is_raised_with_what_it_knows(self, engine: Engine) -> None:
        with pytest.raises(CorruptData, match="three is damaged") as raised:
            engine.map(refuse_three, range(6))
        assert raised.value.offset == 3
        assert "a/b" in str(raised.value)

    def test_the_schema_of_the_data(self, engine: Engine, data: ToData) -> None:
        assert engine.input_schema(data(table_of(("a", "p", 1, None)))).equals(SCHEMA)

    def test_input_that_is_not_rows_is_rejected(self, engine: Engine) -> None:
        with pytest.raises(InvalidRequest, match="int"):
            engine.input_schema(5)
        with pytest.raises(InvalidRequest, match="int"):
            engine.prepare(5, REQUEST)

    def test_no_rows(self, folder: Folder) -> None:
        incoming = folder.prepare()
        assert incoming.partitions() == {}
        tagged = incoming.tag(folder.tag_request(folder.stored(("a", "p", 1, 1))))
        profile = tagged.profile()
        assert (dict(profile.updates), dict(profile.inserts)) == ({}, {})
        assert tagged.write(folder.plan()) == []
        assert incoming.write_bulk(folder.bulk("NONE")) == []
        incoming.release()
        incoming.release()

    def test_rows_are_counted_by_partition(self, folder: Folder) -> None:
        incoming = folder.prepare(("a", "p", 1, None), ("b", "q", 1, 2), ("c", "p", 1, 3))
        assert incoming.partitions() == {"p": 2, "q": 1}
        assert incoming.partitions() == {"p": 2, "q": 1}
        # Tasks of a cluster combine rows while they write; None is a number that is not known before.
        assert incoming.row_counts() in ((3, 0), (3, None))
        incoming.release()

    @pytest.mark.parametrize(("combine", "global_keys", "dropped"), [(True, False, 1), (True, True, 2), (False, False, 0)])
    def test_rows_of_one_key_are_counted(self, folder: Folder, combine: bool, global_keys: bool, dropped: int) -> None:
        request = replace(REQUEST, combine=combine, global_keys=global_keys)
        incoming = folder.prepare(("a", "p", 1, 1), ("a", "p", 2, 2), ("a", "q", 3, 3), ("b", "q", 1, 4), request=request)
        incoming.partitions()
        assert incoming.row_counts() in ((4, dropped), (4, None if combine else dropped))
        incoming.release()

    @pytest.mark.parametrize(
        ("column", "value", "message"),
        [
            ("id", None, "record key field 'id' is null"),
            ("id", "", "record key field 'id' is"),
            ("ts", None, "ordering field 'ts' is null"),
            ("part", "a//b", "partition path 'a//b'.* contains an empty folder name"),
            ("part", "x:y/z", "partition path 'x:y/z'.* has a colon in its first folder"),
            ("part", ".hoodie/p", "partition path '.hoodie/p'.* is reserved for Hudi's metadata"),
        ],
    )
    def test_rows_that_no_table_holds_are_refused(self, folder: Folder, column: str, value: str | None, message: str) -> None:
        given = table_of(("a", "p", 1, 1), ("b", "p", 2, 2))
        position = given.schema.get_field_index(column)
        values = [given.column(column)[0].as_py(), value]
        given = given.set_column(position, SCHEMA.field(column), pa.array(values, SCHEMA.field(column).type))
        with pytest.raises(InvalidRequest, match=message):
            folder.engine.prepare(folder.data(given), replace(REQUEST, required_ordering=("ts",))).partitions()

    def test_rows_without_a_lookup_are_inserts(self, folder: Folder) -> None:
        targets = [new_group("p", 2), new_group("p", 1), new_group("q", 1)]
        rows: list[Row] = [("a", "p", 1, None), ("b", "p", 1, 2), ("c", "p", 1, 3), ("d", "q", 1, 4), ("e", "no target", 1, 5)]
        incoming = folder.prepare(*rows, request=replace(REQUEST, combine=False))
        tagged = incoming.untagged()
        profile = tagged.profile()
        assert (dict(profile.updates), dict(profile.inserts)) == ({}, {"p": 3, "q": 1, "no target": 1})
        assert profile.exact
        statuses = tagged.write(folder.plan(inserts=targets))
        assert folder.rows(statuses) == rows[:4]
        assert {status.stat.file_id for status in statuses} <= {target.file_id for target in targets}
        assert sum(status.stat.num_inserts for status in statuses) == 4
        incoming.release()

    def test_rows_with_known_keys_are_updates(self, folder: Folder) -> None:
        before = [
            folder.stored(("a", "p", 5, 1), ("b", "p", 5, 2)),
            folder.stored(("c", "p", 5, 3)),
            folder.stored(("a", "q", 5, 4)),
        ]
        incoming = folder.prepare(("a", "p", 9, None), ("b", "p", 4, 20), ("c", "q", 9, 30), ("a", "q", 5, 40))
        tagged = incoming.tag(folder.tag_request(*before))
        profile = tagged.profile()
        assert dict(profile.updates) == {("p", before[0].file_id): 2, ("q", before[2].file_id): 1}
        assert {path: count for path, count in profile.inserts.items() if count} == {"q": 1}
        new = tagged.without_existing().profile()
        assert ({g: n for g, n in new.updates.items() if n}, {p: n for p, n in new.inserts.items() if n}) == ({}, {"q": 1})
        statuses = tagged.write(folder.plan(before, [new_group("q", 1)]))
        # An older row leaves the stored one, an equally old one takes its place; the group without updates is left alone.
        assert before[1].file_id not in {status.stat.file_id for status in statuses}
        assert folder.rows(statuses, before) == [
            ("a", "p", 9, None),
            ("a", "q", 5, 40),
            ("b", "p", 5, 2),
            ("c", "p", 5, 3),
            ("c", "q", 9, 30),
        ]
        incoming.release()

    def test_one_row_of_each_key_is_left(self, folder: Folder) -> None:
        incoming = folder.prepare(("a", "p", 1, 1), ("a", "p", 3, 2), ("a", "q", 1, 3), ("a", "p", 2, 4))
        tagged = incoming.untagged()
        statuses = tagged.write(folder.plan(inserts=[new_group("p", 1), new_group("q", 1)]))
        assert folder.rows(statuses) == [("a", "p", 3, 2), ("a", "q", 1, 3)]
        assert incoming.row_counts() == (4, 2)
        incoming.release()

    @pytest.mark.parametrize("moves", [True, False])
    def test_a_global_key_found_in_another_partition(self, folder: Folder, moves: bool) -> None:
        before = [folder.stored(("a", "p", 5, 1), ("b", "p", 5, 2))]
        incoming = folder.prepare(("a", "q", 9, 10), ("c", "q", 9, 30), request=replace(REQUEST, global_keys=True))
        tagged = incoming.tag(folder.tag_request(*before, global_keys=True, moves=moves))
        profile = tagged.profile()
        assert dict(profile.updates) == {("p", before[0].file_id): 1}
        assert {path: count for path, count in profile.inserts.items() if count} == {"q": 2 if moves else 1}
        statuses = tagged.write(folder.plan(before, [new_group("q", 2)]))
        home = "q" if moves else "p"
        assert folder.rows(statuses, before) == [("a", home, 9, 10), ("b", "p", 5, 2), ("c", "q", 9, 30)]
        incoming.release()

    def test_rows_that_only_delete(self, folder: Folder) -> None:
        before = [folder.stored(("a", "p", 5, 1), ("b", "p", 5, 2))]
        keys = pa.table({"id": ["a", "x"], "part": ["p", "p"]})
        incoming = folder.engine.prepare(folder.data(keys), replace(REQUEST, keys_only=True))
        tagged = incoming.tag(folder.tag_request(*before))
        statuses = tagged.write(folder.plan(before))
        assert folder.rows(statuses, before) == [("b", "p", 5, 2)]
        assert sum(status.stat.num_deletes for status in statuses) == 1
        incoming.release()

    def test_updates_may_go_to_logs(self, folder: Folder) -> None:
        before = [folder.stored(("a", "p", 5, 1), ("b", "p", 5, 2))]
        incoming = folder.prepare(("a", "p", 9, None), ("c", "p", 9, 3))
        tagged = incoming.tag(folder.tag_request(*before))
        statuses = tagged.write(folder.plan(before, [new_group("p", 1)], appends=True))
        written = {status.stat.file_id: status.stat for status in statuses}
        assert len(written) == 2
        assert written[before[0].file_id].log_files
        assert folder.rows(statuses, before) == [("a", "p", 9, None), ("b", "p", 5, 2), ("c", "p", 9, 3)]
        incoming.release()

    @pytest.mark.parametrize("sort", ["NONE", "GLOBAL_SORT", "PARTITION_SORT"])
    def test_rows_written_in_bulk(self, folder: Folder, sort: str) -> None:
        rows: list[Row] = [(f"k{number:02}", "pq"[number % 2], number, None) for number in range(20, 0, -1)]
        incoming = folder.prepare(*rows, request=replace(REQUEST, combine=False, by_partition=True))
        statuses = incoming.write_bulk(folder.bulk(sort))
        assert incoming.row_counts() == (20, 0)
        assert folder.rows(statuses) == sorted(rows)
        assert len({status.stat.file_id for status in statuses}) == len(statuses)
        reader = folder.spec().reader(VALIDITY, columns=["_hoodie_record_key", "_hoodie_partition_path"])
        for slice_ in folder.slices(statuses):
            found = pa.concat_tables(run_read(reader, slice_))
            assert set(found.column("_hoodie_partition_path").to_pylist()) == {slice_.partition}
            keys = found.column("_hoodie_record_key").to_pylist()
            assert sort == "NONE" or keys == sorted(keys)
        incoming.release()

    def test_the_same_rows_for_a_table_that_has_another_column_by_now(self, folder: Folder) -> None:
        rows: list[Row] = [("a", "p", 1, 1), ("b", "p", 2, None)]
        incoming = folder.prepare(*rows)
        assert incoming.partitions() == {"p": 2}
        incoming.refit(replace(REQUEST, data_schema=SCHEMA.append(pa.field("new", pa.string()))))
        assert incoming.partitions() == {"p": 2}
        wider = replace(folder.spec(), data_schema=SCHEMA.append(pa.field("new", pa.string())))
        wider = replace(wider, avro_schema=arrow_to_avro(wider.stored_schema, "t"))
        statuses = incoming.untagged().write(replace(folder.plan(inserts=[new_group("p", 2)]), spec=wider))
        assert folder.rows(statuses) == rows
        (slice_,) = folder.slices(statuses)
        assert pa.concat_tables(run_read(wider.reader(VALIDITY), slice_)).column("new").to_pylist() == [None, None]
        incoming.release()
