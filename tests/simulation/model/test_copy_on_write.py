"""A copy-on-write table holds the rows of a dictionary after the same operations.

The dictionary maps a record's identity (key and partition path, or the key alone under a global index) to its copies,
because plain inserts may store a key twice. Each copy carries its instant.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from pyhudi import Table
from pyhudi.format.meta_columns import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from pyhudi.operations.commit.results import WriteResult
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.memory import MemoryStorage, forget_memory
from pyhudi.table.snapshot import load_snapshot
from tests.support.needs import WIDE
from tests.support.shares import EACH_SHARE, Share, of_share

DELETED = "_hoodie_is_deleted"
PARTITIONS = ("p", "q", "r")
_names = itertools.count()

Identity = tuple[str, str] | str
Values = dict[str, Any]


@dataclass(frozen=True)
class Copy:
    """A stored row.  instant: the one that wrote it."""

    values: Values
    instant: str


@dataclass
class Model:
    """The rows that the table should have, and its columns with their types."""

    records: dict[Identity, list[Copy]] = field(default_factory=dict)
    columns: dict[str, pa.DataType] = field(default_factory=dict)

    def copy(self) -> Model:
        return Model({name: list(copies) for name, copies in self.records.items()}, dict(self.columns))


row_values = st.fixed_dictionaries(
    {
        "id": st.sampled_from([f"k{number}" for number in range(8)]),
        "ts": st.integers(0, 4),
        "v": st.integers(-3, 3),
        "part": st.sampled_from(PARTITIONS),
        DELETED: st.sampled_from([None, False, False, False, True]),
        "extra0": st.one_of(st.none(), st.integers(0, 9)),
        "extra1": st.one_of(st.none(), st.integers(0, 9)),
    }
)
batches = st.lists(row_values, min_size=1, max_size=8)


class CopyOnWriteTable(RuleBasedStateMachine):
    before_column: Model | None = None

    @initialize(
        by_event_time=st.booleans(),
        partitioned=st.booleans(),
        index=st.sampled_from(["SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM"]),
        rows_per_file=st.sampled_from([2, 1000]),
        small_file_limit=st.sampled_from([0, 104857600]),
        moves=st.booleans(),
        clean=st.booleans(),
        kind=st.sampled_from(["SIMPLE", "DYNAMIC_V0"]),
    )
    def create(
        self,
        by_event_time: bool,
        partitioned: bool,
        index: str,
        rows_per_file: int,
        small_file_limit: int,
        moves: bool,
        clean: bool,
        kind: str,
    ) -> None:
        self.name = f"model-{next(_names)}"
        self.env = ReplayEnvironment(11)
        MemoryStorage(f"memory://{self.name}", self.env)
        self.by_event_time = by_event_time
        self.partitioned = partitioned
        self.is_global = index.startswith("GLOBAL_")
        self.moves = moves
        self.clean = clean
        self.options = {
            "hoodie.index.type": index,
            "hoodie.index.bloom.num_entries": 100,
            "hoodie.index.bloom.fpp": 0.01,
            "hoodie.bloom.index.filter.type": kind,
            "hoodie.parquet.small.file.limit": small_file_limit,
            "hoodie.copyonwrite.insert.auto.split": False,
            "hoodie.copyonwrite.insert.split.size": rows_per_file,
            "hoodie.simple.index.update.partition.path": moves,
            "hoodie.bloom.index.update.partition.path": moves,
            "hoodie.clean.automatic": clean,
            "hoodie.clean.commits.retained": 2,
            "pyhudi.threads": 1,
        }
        mode = "EVENT_TIME_ORDERING" if by_event_time else "COMMIT_TIME_ORDERING"
        self.table = Table.create(
            f"memory://{self.name}",
            record_key="id",
            partition_by="part" if partitioned else None,
            ordering="ts",
            options={"hoodie.write.record.merge.mode": mode, **self.options},
            environment=self.env,
        )
        self.model = Model(
            columns={"id": pa.string(), "ts": pa.int64(), "v": pa.int32(), "part": pa.string(), DELETED: pa.bool_()}
        )
        self.undo: list[tuple[str, Model]] = []
        self.only_upserts = True

    def teardown(self) -> None:
        if hasattr(self, "name"):
            forget_memory(self.name)

    # What the rules need

    def path(self, values: Values) -> str:
        return values["part"] if self.partitioned else ""

    def identity(self, values: Values) -> Identity:
        return values["id"] if self.is_global else (self.path(values), values["id"])

    def frame(self, rows: list[Values], missing: str | None = None) -> pa.Table:
        columns = {name: kind for name, kind in self.model.columns.items() if name != missing}
        return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in columns.items()})

    def stored(self, values: Values, missing: str | None = None) -> Values:
        return {name: None if name == missing else values[name] for name in self.model.columns}

    def is_newer(self, newer: Values, older: Values) -> bool:
        return not self.by_event_time or newer["ts"] >= older["ts"]

    def combined(self, rows: list[Values]) -> list[Values]:
        chosen: dict[Identity, Values] = {}
        for row in rows:
            held = chosen.get(self.identity(row))
            if held is None or self.is_newer(row, held):
                chosen[self.identity(row)] = row
        return list(chosen.values())

    def commit(self, write: Callable[[], WriteResult], change: Callable[[str], None]) -> WriteResult:
        before = self.model.copy()
        self.env.advance_ms(1000)
        result = write()
        assert result.instant is not None
        change(result.instant)
        self.undo.append((result.instant, before))
        return result

    def add(self, rows: list[Values], instant: str) -> None:
        for row in rows:
            if row[DELETED] is not True:
                self.model.records.setdefault(self.identity(row), []).append(Copy(self.stored(row), instant))

    def without_known_keys(self, rows: list[Values]) -> list[Values]:
        """Under a global index a key that is stored twice in two partitions is another story; none of these rows makes one."""
        if not self.is_global:
            return rows
        fresh: dict[Identity, Values] = {}
        for row in rows:
            if self.identity(row) not in self.model.records:
                fresh.setdefault(self.identity(row), row)
        return list(fresh.values())

    # What is done

    @rule(rows=batches, missing=st.sampled_from([None, None, None, "extra0"]))
    def upsert(self, rows: list[Values], missing: str | None) -> None:
        missing = missing if missing in self.model.columns else None
        options = {"hoodie.write.set.null.for.missing.columns": True} if missing else {}

        def change(instant: str) -> None:
            for row in self.combined(rows):
                name = self.identity(row)
                copies = self.model.records.pop(name, [])
                self.upsert_record(name, {**row, missing: None} if missing else row, copies, instant)

        self.commit(lambda: self.table.upsert(self.frame(rows, missing), options=options), change)

    def upsert_record(self, name: Identity, row: Values, copies: list[Copy], instant: str) -> None:
        if not copies:
            self.add([row], instant)
            return
        if self.is_global and not self.moves:
            row = {**row, "_path": self.path_of(copies[0])}
        fresh = Copy({**self.stored(row), **({"_path": row["_path"]} if "_path" in row else {})}, instant)
        after = [(fresh if self.is_newer(row, old.values) else old) for old in copies]
        if row[DELETED] is True:
            after = [copy for copy in after if copy is not fresh]
        if after:
            self.model.records[name] = after

    def path_of(self, copy: Copy) -> str:
        return str(copy.values.get("_path", self.path(copy.values)))

    @rule(rows=batches, bulk=st.booleans(), sort=st.sampled_from(["NONE", "GLOBAL_SORT"]))
    def insert(self, rows: list[Values], bulk: bool, sort: str) -> None:
        rows = self.without_known_keys(rows)
        if not rows:
            return
        self.only_upserts = False
        write = self.table.bulk_insert if bulk else self.table.insert
        options = {"hoodie.bulkinsert.sort.mode": sort} if bulk else {}
        self.commit(lambda: write(self.frame(rows), options=options), lambda instant: self.add(rows, instant))

    @precondition(lambda self: self.undo)
    @rule(rows=st.lists(row_values, min_size=1, max_size=3), with_partition=st.booleans())
    def delete_keys(self, rows: list[Values], with_partition: bool) -> None:
        named = ["id", "part"] if with_partition or not self.partitioned else ["id"]

        def change(instant: str) -> None:
            for row in rows:
                if with_partition or not self.partitioned or self.is_global:
                    self.model.records.pop(self.identity(row), None)
                else:
                    for part in PARTITIONS:
                        self.model.records.pop((part, row["id"]), None)

        self.commit(lambda: self.table.delete(self.frame(rows).select(named)), change)

    @precondition(lambda self: self.undo)
    @rule(least=st.integers(-3, 3))
    def delete_where(self, least: int) -> None:
        def change(instant: str) -> None:
            for name, copies in list(self.model.records.items()):
                if any(copy.values["v"] >= least for copy in copies):
                    del self.model.records[name]

        self.commit(lambda: self.table.delete(where=f"v >= {least}"), change)

    @rule(rows=batches, whole_table=st.booleans())
    def overwrite(self, rows: list[Values], whole_table: bool) -> None:
        if not whole_table:
            rows = self.without_known_keys(rows)
        if not rows:
            return
        self.only_upserts = False
        paths = {self.path(row) for row in rows}
        write = self.table.insert_overwrite_table if whole_table else self.table.insert_overwrite

        def change(instant: str) -> None:
            for name, copies in list(self.model.records.items()):
                kept = [copy for copy in copies if not whole_table and self.path_of(copy) not in paths]
                if kept:
                    self.model.records[name] = kept
                else:
                    del self.model.records[name]
            self.add(rows, instant)

        if self.is_global and whole_table:
            rows = list({row["id"]: row for row in rows}.values())
            paths = {self.path(row) for row in rows}
        self.commit(lambda: write(self.frame(rows)), change)

    @precondition(lambda self: self.partitioned and self.undo)
    @rule(parts=st.lists(st.sampled_from([*PARTITIONS, "nowhere", "*"]), min_size=1, max_size=2))
    def delete_partitions(self, parts: list[str]) -> None:
        def change(instant: str) -> None:
            for name, copies in list(self.model.records.items()):
                kept = [copy for copy in copies if "*" not in parts and self.path_of(copy) not in parts]
                if kept:
                    self.model.records[name] = kept
                else:
                    del self.model.records[name]

        self.commit(lambda: self.table.delete_partitions(parts), change)

    @rule(rows=batches, name=st.sampled_from(["extra0", "extra1"]))
    def upsert_with_a_new_column(self, rows: list[Values], name: str) -> None:
        if name in self.model.columns:
            return
        known = list(self.model.columns)
        self.add_column(name, pa.int64())
        # New columns come last, regardless of their position in the data.
        frame = self.frame(rows).select([name, *known])
        self.upsert_frame(rows, frame)

    @rule(rows=batches)
    def upsert_with_a_wider_column(self, rows: list[Values]) -> None:
        self.add_column("v", pa.int64())
        self.upsert_frame(rows, self.frame(rows))

    @rule(rows=batches)
    def upsert_with_a_narrower_column(self, rows: list[Values]) -> None:
        frame = self.frame(rows)
        position = frame.schema.get_field_index("v")
        self.upsert_frame(rows, frame.set_column(position, "v", frame.column("v").cast(pa.int32())))

    def add_column(self, name: str, kind: pa.DataType) -> None:
        self.before_column = self.model.copy()
        self.model.columns[name] = kind
        for copies in self.model.records.values():
            for number, copy in enumerate(copies):
                copies[number] = replace(copy, values={name: None, **copy.values})

    def upsert_frame(self, rows: list[Values], frame: pa.Table) -> None:
        def change(instant: str) -> None:
            for row in self.combined(rows):
                name = self.identity(row)
                self.upsert_record(name, row, self.model.records.pop(name, []), instant)

        before = self.before_column
        self.commit(lambda: self.table.upsert(frame), change)
        if before is not None:
            self.undo[-1] = (self.undo[-1][0], before)
            self.before_column = None

    @precondition(lambda self: self.undo)
    @rule()
    def roll_back(self) -> None:
        instant, before = self.undo.pop()
        self.env.advance_ms(1000)
        self.table.rollback(instant)
        self.model = before
        if self.clean:
            # The versions before that may be deleted.
            self.undo.clear()

    @rule()
    def reopen(self) -> None:
        self.table = Table(f"memory://{self.name}", options=self.options, environment=self.env)

    # What holds after each

    @invariant()
    def same_rows(self) -> None:
        if not self.undo and not self.model.records:
            return
        found = self.table.scan("*").to_arrow()
        names = [name for name in found.column_names if name not in META_COLUMNS]
        assert set(names) == set(self.model.columns)
        assert {name: found.schema.field(name).type for name in names} == self.model.columns
        actual = Counter(
            (row[RECORD_KEY], row[PARTITION_PATH], row[COMMIT_TIME], *(row[name] for name in sorted(names)))
            for row in found.to_pylist()
        )
        expected = Counter(
            (c.values["id"], self.path_of(c), c.instant, *(c.values[name] for name in sorted(names)))
            for copies in self.model.records.values()
            for c in copies
        )
        assert actual == expected

    @invariant()
    def sound_meta_columns(self) -> None:
        if not self.undo:
            return
        found = self.table.scan(list(META_COLUMNS)).to_arrow()
        rows = found.to_pylist()
        slices = load_snapshot(self.table.context.reloaded()).slices()
        files = {(partition, s.base.name.text) for partition, each in slices.items() for s in each if s.base is not None}
        assert {(row[PARTITION_PATH], row[FILE_NAME]) for row in rows} <= files
        assert len({row[COMMIT_SEQNO] for row in rows}) == len(rows)
        assert all(row[COMMIT_SEQNO].startswith(row[COMMIT_TIME] + "_") for row in rows)
        names = Counter(row[RECORD_KEY] if self.is_global else (row[PARTITION_PATH], row[RECORD_KEY]) for row in rows)
        if self.only_upserts:
            assert all(count == 1 for count in names.values())

    @invariant()
    def nothing_left_behind(self) -> None:
        if hasattr(self, "table"):
            assert not self.table.timeline().pending()
            assert not MemoryStorage(f"memory://{self.name}").list(".hoodie/.temp").folders
            assert not MemoryStorage(f"memory://{self.name}").list(".hoodie/.heartbeat").files


@EACH_SHARE
def test_a_copy_on_write_table_holds_the_rows_of_the_model(share: Share) -> None:
    count = 5 if share is Share.SMOKE else 55 if WIDE else 15
    run_state_machine_as_test(of_share(CopyOnWriteTable, share), settings=settings(max_examples=count, stateful_step_count=14))
