"""The tables that schedules begin with: made once, and copied into memory for each run.

A key's first letter is its partition.  Values identify their writers: those of a world are below 100.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa

from pyhudi import Table
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.memory import MemoryStorage, forget_memory

URI = "memory://checker"
WIDE = "w"
"""A column that tables do not begin with."""

_PLAIN: dict[str, object] = {
    "pyhudi.threads": 1,
    "hoodie.parquet.bloom.filter.enabled": False,
    "hoodie.parquet.compression.codec": "uncompressed",
    "hoodie.parquet.dictionary.enabled": False,
    "hoodie.metadata.enable": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.write.set.null.for.missing.columns": True,
    # Longer than a lease lasts: a writer that waits for a dead one acquires the lock.
    "hoodie.write.lock.wait_time_ms": 90_000,
}
_UPKEEP: dict[str, object] = {
    "hoodie.clean.automatic": True,
    "hoodie.archive.automatic": True,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.timeline.compaction.batch.size": 2,
}
_METADATA: dict[str, object] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.column.list": "v",
}
_FILES_ONLY = {
    **_METADATA,
    "hoodie.metadata.index.column.stats.enable": False,
    "hoodie.metadata.index.partition.stats.enable": False,
}
_RECORD_INDEX = {
    **_FILES_ONLY,
    "hoodie.metadata.record.index.enable": True,
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.metadata.record.index.min.filegroup.count": 1,
}
_METADATA_UPKEEP = {**_UPKEEP, "hoodie.metadata.compact.max.delta.commits": 2}
_COMPACTED: dict[str, object] = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 2}
_GROUPED: dict[str, object] = {"pyhudi.write.group": "auto"}
_GROUPS = ("a1 a2", "a3", "b1")
_OLD = (*_GROUPS, *["a1"] * 22)
"""So many commits that the next one archives instants of the metadata table, which keeps 21 at least."""
_NOT_WAITING: dict[str, object] = {
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.log.compaction.blocks.threshold": 2,
}


@dataclass(frozen=True)
class World:
    """How a table begins.  options: of every actor.  groups: the keys of its first commits, one upsert each, and a file group of
    its own for each that brings new ones.  ordering: the field by which records are newer; None for the order of commits.
    """

    name: str
    kind: str
    options: Mapping[str, object] = field(default_factory=dict)
    ordering: str | None = None
    groups: tuple[str, ...] = _GROUPS

    @property
    def has_metadata(self) -> bool:
        return self.settings["hoodie.metadata.enable"] is True

    @property
    def has_buckets(self) -> bool:
        return self.options.get("hoodie.index.type") == "BUCKET"

    @property
    def waits(self) -> bool:
        """Whether writes that change the same file groups are made one after the other."""
        return self.options.get("hoodie.write.concurrency.mode") != "NON_BLOCKING_CONCURRENCY_CONTROL"

    @property
    def groups_writes(self) -> bool:
        """Whether one commit may contain the writes of several actors."""
        return self.options.get("pyhudi.write.group") is not None

    @property
    def settings(self) -> dict[str, object]:
        return {**_PLAIN, **self.options}


WORLDS = {
    world.name: world
    for world in (
        World("cow", "cow"),
        World("cow kept", "cow", _UPKEEP),
        World("cow cleaned", "cow", {**_UPKEEP, "hoodie.archive.automatic": False}),
        World("mor", "mor"),
        World("mor kept", "mor", {**_UPKEEP, **_COMPACTED}),
        World("cow metadata", "cow", _FILES_ONLY),
        World("mor metadata", "mor", _FILES_ONLY),
        World("cow statistics", "cow", _METADATA),
        World("mor statistics", "mor", _METADATA),
        World("cow metadata kept", "cow", {**_FILES_ONLY, **_UPKEEP, "hoodie.metadata.compact.max.delta.commits": 3}),
        World("cow record index", "cow", _RECORD_INDEX),
        World("cow record index kept", "cow", {**_RECORD_INDEX, **_METADATA_UPKEEP}, groups=_OLD),
        World("mor record index kept", "mor", {**_RECORD_INDEX, **_METADATA_UPKEEP, **_COMPACTED}, groups=_OLD),
        World("mor buckets", "mor", {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}),
        World("cow global", "cow", {"hoodie.index.type": "GLOBAL_SIMPLE"}),
        World("cow event time", "cow", ordering="v"),
        World("mor event time", "mor", {**_UPKEEP, "hoodie.compact.inline": True}, ordering="v"),
        World("cow grouped", "cow", _GROUPED),
        World("cow grouped kept", "cow", {**_UPKEEP, **_GROUPED}),
        World("mor grouped kept", "mor", {**_UPKEEP, **_COMPACTED, **_GROUPED}),
        World("mor grouped event time", "mor", {**_UPKEEP, **_GROUPED}, ordering="v"),
        World("cow grouped record index", "cow", {**_RECORD_INDEX, **_GROUPED}),
        World("mor not waiting", "mor", _NOT_WAITING, ordering="v"),
        World(
            "mor not waiting kept",
            "mor",
            {**_NOT_WAITING, **_UPKEEP, **_COMPACTED},
            ordering="v",
        ),
    )
}


@dataclass(frozen=True)
class Image:
    """A table at rest.  files: path -> bytes.  rows: what it holds.  now_ms: when.  completed: its last write."""

    files: tuple[tuple[str, bytes], ...]
    rows: Mapping[str, int]
    now_ms: int
    instants: tuple[str, ...]
    completed: str


@cache
def image_of(name: str) -> Image:
    """The beginning of a world, made once."""
    world = WORLDS[name]
    env = ReplayEnvironment(1)
    forget_memory("checker")
    storage = MemoryStorage(URI, env)
    options = {**world.settings, "hoodie.parquet.small.file.limit": 0}
    table = Table.create(
        URI,
        name="t",
        record_key="id",
        partition_by="part",
        ordering=world.ordering,
        table_type=world.kind,
        options=options,
        environment=env,
    )
    rows: dict[str, int] = {}
    instants = []
    completed = ""
    for number, keys in enumerate(world.groups):
        env.advance_ms(1000)
        values = {key: 10 * number % 100 + place for place, key in enumerate(keys.split())}
        done = table.upsert(rows_of(values))
        instants.append(str(done.instant))
        rows.update(values)
        completed = str(done.completion_time)
    files = tuple((info.path, storage.read(info.path) or b"") for info in storage.walk(""))
    return Image(files, rows, env.now_ms() + 1000, tuple(instants), completed)


def rows_of(values: Mapping[str, int], wide: pa.DataType | None = None) -> pa.Table:
    """Rows with these keys and values.  wide: type of one more column, which repeats the values."""
    keys, numbers = list(values), list(values.values())
    columns = {"id": keys, "part": [key[0] for key in keys], "v": pa.array(numbers, pa.int64())}
    return pa.table(columns if wide is None else {**columns, WIDE: pa.array(numbers, wide)})
