"""Random tables with change data, and a consumer that applies its rows one by one, in the order in which it gets them.

`ChangingTable` writes batches that insert, update, move and delete records, overwrites, and runs services.  It remembers the rows
after each commit.  `apply_changes` fails for a row that does not fit the state before it: an insert of a record that is there, an
update or a delete of one that is not, or of another version of it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from pyhudi import Table

KEYS = "abcdef"
PARTITIONS = "xyz"
SCHEMA = pa.schema({"id": pa.string(), "ts": pa.int64(), "part": pa.string(), "v": pa.string(), "_hoodie_is_deleted": pa.bool_()})
INDEXES = ("GLOBAL_SIMPLE", "GLOBAL_BLOOM", "RECORD_INDEX")
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
GLOBAL: dict[str, Any] = {
    "hoodie.simple.index.update.partition.path": True,
    "hoodie.bloom.index.update.partition.path": True,
    "hoodie.record.index.update.partition.path": True,
}
QUIET: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.log.compaction.blocks.threshold": 2,
}

State = dict[str, str]
"""Record key to the record as JSON text."""

_names = itertools.count()


def apply_changes(state: Mapping[str, str], changes: Iterable[Mapping[str, Any]]) -> State:
    """The state after some changes, applied in their order."""
    rows = dict(state)
    for change in changes:
        op, before, after = change["op"], change["before"], change["after"]
        key = json.loads(before or after)["id"]
        assert rows.pop(key, None) == before, f"{op} of {key} does not fit what is there: {change}"
        assert (op == "i") == (before is None) and (op == "d") == (after is None), change
        if after is not None:
            assert json.loads(after)["id"] == key, change
            rows[key] = after
    return rows


@dataclass(frozen=True)
class Commit:
    """A completed commit, and the rows after it."""

    completion_time: str
    rows: State


@dataclass
class ChangingTable:
    """A table whose record keys are unique in all partitions.

    small_files: whether inserts go into existing file groups.  uri: where it is created, in memory by default.
    """

    kind: str
    mode: str
    index: str
    small_files: bool
    uri: str = ""
    commits: list[Commit] = field(default_factory=lambda: [Commit("earliest", {})])
    clock: int = 0

    def __post_init__(self) -> None:
        self.uri = self.uri or f"memory://replay-{next(_names)}/t"
        Table.create(self.uri, schema=SCHEMA, options=self.options)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[self.kind],
            "hoodie.table.cdc.enabled": True,
            "hoodie.table.cdc.supplemental.logging.mode": self.mode,
            "hoodie.index.type": self.index,
            "hoodie.metadata.enable": self.index == "RECORD_INDEX",
            "hoodie.metadata.record.index.enable": self.index == "RECORD_INDEX",
            "hoodie.parquet.small.file.limit": 100 << 20 if self.small_files else 0,
            **GLOBAL,
            **QUIET,
        }

    @property
    def table(self) -> Table:
        return Table(self.uri, options=self.options)

    def batch(self, keys: str, part: str, deleted: str = "") -> pa.Table:
        """New versions of some records, in partitions from `part` on in turn; those in `deleted` say that they are deleted."""
        self.clock += 1
        first = PARTITIONS.index(part)
        made = [
            {
                "id": key,
                "ts": self.clock,
                "part": PARTITIONS[(first + number) % len(PARTITIONS)],
                "v": f"{key}{self.clock}",
                "_hoodie_is_deleted": key in deleted,
            }
            for number, key in enumerate(keys)
        ]
        return pa.Table.from_pylist(made, SCHEMA)

    def upsert_to(self, parts: Mapping[str, str]) -> None:
        """Upserts new versions of some records, each into a partition."""
        batch = self.batch("".join(parts), "x")
        self.table.upsert(batch.set_column(2, SCHEMA.field("part"), pa.array(list(parts.values()))))
        self.remember()

    def without_doubles(self, batch: pa.Table) -> pa.Table:
        """The rows of a batch whose keys are in no partition that an overwrite with the batch leaves as it is."""
        places = {key: json.loads(text)["part"] for key, text in self.rows.items()}
        while batch.num_rows:
            parts = set(batch["part"].to_pylist())
            fits = [places.get(key) in {None, *parts} for key in batch["id"].to_pylist()]
            if all(fits):
                break
            batch = batch.filter(pa.array(fits))
        return batch

    def run(self, operation: str, keys: str, part: str) -> None:
        """One step."""
        table = self.table
        if operation == "upsert":
            table.upsert(self.batch(keys, part))
        elif operation == "soft_delete":
            table.upsert(self.batch(keys, part, deleted=keys[::2]))
        elif operation == "delete":
            table.delete(self.batch(keys, part))
        elif operation == "update":
            self.clock += 1
            table.update({"ts": self.clock, "v": f"'u{self.clock}'"}, where=f"id in ({', '.join(map(repr, keys))})")
        elif operation == "merge":
            source = self.batch(keys, part, deleted=keys[::2])
            merge = table.merge(source, on="id").when_matched_delete("source._hoodie_is_deleted")
            merge = merge.when_matched_update({"ts": "source.ts", "v": "source.v"})
            merge.when_not_matched_insert_all("source._hoodie_is_deleted = false").execute()
        elif operation == "insert_overwrite":
            batch = self.without_doubles(self.batch(keys, part))
            if batch.num_rows:
                table.insert_overwrite(batch)
        elif operation == "insert_overwrite_table":
            table.insert_overwrite_table(self.batch(keys, part))
        elif operation == "delete_partitions":
            table.delete_partitions(part)
        elif operation == "compact" and self.kind == "mor":
            table.compact()
        elif operation == "log_compact" and self.kind == "mor":
            table.log_compact()
        elif operation == "cluster":
            table.cluster(order_by="id")
        self.remember()

    @property
    def rows(self) -> State:
        return self.commits[-1].rows

    def remember(self) -> None:
        """Notes the rows after a commit."""
        last = self.table.timeline().last_completed_write()
        if last is not None and last.completion_time and last.completion_time != self.commits[-1].completion_time:
            found = self.table.scan().to_arrow().to_pylist()
            self.commits.append(Commit(last.completion_time, {row["id"]: json.dumps(row) for row in found}))

    def ranges(self) -> list[tuple[Commit, Commit]]:
        """Each commit by itself, and from each commit to the last."""
        last = self.commits[-1]
        return [*itertools.pairwise(self.commits), *((commit, last) for commit in self.commits[:-2])]


OPERATIONS = (
    "upsert",
    "upsert",
    "upsert",
    "soft_delete",
    "delete",
    "update",
    "merge",
    "insert_overwrite",
    "insert_overwrite",
    "insert_overwrite_table",
    "delete_partitions",
    "compact",
    "log_compact",
    "cluster",
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(OPERATIONS),
        st.lists(st.sampled_from(KEYS), min_size=1, max_size=5, unique=True).map("".join),
        st.sampled_from(PARTITIONS),
    ),
    min_size=3,
    max_size=8,
)
TABLES = st.tuples(st.sampled_from(["cow", "mor"]), st.sampled_from(MODES), st.sampled_from(INDEXES), st.booleans())


def changing_table(made: tuple[str, str, str, bool], steps: Iterable[tuple[str, str, str]], uri: str = "") -> ChangingTable:
    """A table after some steps."""
    world = ChangingTable(*made, uri=uri)
    world.run("upsert", KEYS, "x")
    for step in steps:
        world.run(*step)
    return world
