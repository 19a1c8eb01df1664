"""What kind of table a run is about: drawn from its seed, so that every property meets every other one sooner or later."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.attack.random_tables.codes import KEYED, MORE, ORDERS, PARTS, Code
from tests.simulation.attack.random_tables.rules import RULES, Rule, options_of

PARTITIONS = ("a", "b", "c")
KEYS = tuple(f"k{number}" for number in range(8))
ANYWHERE = ("GLOBAL_SIMPLE", "GLOBAL_BLOOM", "RECORD_INDEX")
_PLAIN: dict[str, Any] = {
    "pyhudi.threads": 1,
    "hoodie.index.bloom.num_entries": 20,
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.write.set.null.for.missing.columns": True,
    "hoodie.log.compaction.blocks.threshold": 2,
    "hoodie.compact.inline.max.delta.commits": 2,
    "hoodie.clustering.inline.max.commits": 3,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
    "hoodie.timeline.compaction.batch.size": 2,
    "hoodie.metadata.compact.max.delta.commits": 3,
    "hoodie.write.lock.wait_time_ms": 90_000,
}


@dataclass(frozen=True)
class Drawn:
    """One kind of table.  options: of every writer and of the table.  keyed: key columns.  ordered: by event time, else by the
    order of commits.  moves: a record may come in another partition than it is in.  partitioned: by the column `part`.
    soft: rows may say that they are deleted.  late: rows may come that are older by event time than what is there.  merges: by
    which rule.  bootstrapped: it began as Parquet files of others, where its first rows still are.  codes: columns of other types
    than those that a run counts with.  more: further columns, whose batches may have other types that mean the same.
    """

    kind: str
    version: int
    keyed: tuple[str, ...]
    partitioned: bool
    ordered: bool
    index: str
    soft: bool
    moves: bool
    late: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    merges: str = "by commit"
    bootstrapped: bool = False
    codes: dict[str, Code] = field(default_factory=dict)
    more: tuple[str, ...] = ()

    @property
    def rule(self) -> Rule:
        return RULES[self.merges]

    @property
    def is_mor(self) -> bool:
        return self.kind == "mor"

    @property
    def is_global(self) -> bool:
        return self.index in ANYWHERE

    @property
    def has_buckets(self) -> bool:
        return self.index == "BUCKET"

    @property
    def has_cdc(self) -> bool:
        return bool(self.options.get("hoodie.table.cdc.enabled"))

    @property
    def has_metadata(self) -> bool:
        return bool(self.options["hoodie.metadata.enable"])


def over_files(drawn: Drawn) -> Drawn:
    """The same kind of table, bootstrapped over files."""
    options = {**drawn.options, "hoodie.datasource.write.hive_style_partitioning": True}
    for name in (
        "hoodie.populate.meta.fields",
        "hoodie.datasource.write.drop.partition.columns",
        "hoodie.table.base.file.format",
    ):
        options.pop(name, None)
    index = drawn.index
    if drawn.has_buckets:
        # Files that a bootstrap makes have ids that name no bucket.
        index = options["hoodie.index.type"] = "SIMPLE"
        options = {name: value for name, value in options.items() if "bucket" not in name}
    return replace(drawn, options=options, index=index, bootstrapped=True)


def of_types(drawn: Drawn, rng: random.Random) -> Drawn:
    """The same kind of table, with columns of many types."""
    codes = {}
    if rng.random() < 0.8 and drawn.merges != "postgres":
        # A log sequence number is a whole number.
        codes["ts"] = rng.choice(list(ORDERS.values()))
        if drawn.rule.ordering != "ts":
            codes[drawn.rule.ordering] = codes["ts"]
    if rng.random() < 0.4 and drawn.partitioned and not drawn.bootstrapped:
        codes["part"] = rng.choice(list(PARTS.values()))
    if rng.random() < 0.4:
        codes["id"] = rng.choice(list(KEYED.values()))
    options = {**drawn.options, "pyhudi.timestamps.without.zone": "local"}
    if "part" in codes:
        options["hoodie.datasource.write.partitionpath.urlencode"] = True
    return replace(drawn, options=options, codes=codes, more=tuple(rng.sample(list(MORE), 5)))


def without_waiting(drawn: Drawn, rng: random.Random) -> Drawn:
    """A table whose writers do not wait for each other: merge on read, by event time, index BUCKET."""
    names = ("hoodie.metadata.record.index.enable", "hoodie.populate.meta.fields", "hoodie.clustering.inline")
    options = {name: value for name, value in drawn.options.items() if name not in names}
    for name in options_of(drawn.rule):
        options.pop(name)
    options.update(options_of(RULES["by event"]))
    options.update(
        {
            "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
            "hoodie.clean.failed.writes.policy": "LAZY",
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": rng.choice((1, 2)),
            "hoodie.logfile.data.block.format": "avro",
        }
    )
    for name in ("engine", "max.num.buckets", "min.num.buckets"):
        options.pop(f"hoodie.{'index.bucket' if name == 'engine' else 'bucket.index'}.{name}", None)
    options.pop("hoodie.datasource.write.drop.partition.columns", None)
    return replace(drawn, kind="mor", ordered=True, index="BUCKET", moves=False, late=True, options=options, merges="by event")


def draw_table(rng: random.Random) -> Drawn:
    """A kind of table that PyHudi makes."""
    kind = rng.choice(("cow", "mor", "mor"))
    mor = kind == "mor"
    version = rng.choice((8, 8, 9))
    rules = [name for name, rule in RULES.items() if not (rule.only_8 and version == 9)]
    merges = rng.choice(["by commit", "by event"] if rng.random() < 0.4 else rules)
    rule = RULES[merges]
    partitioned = rng.random() < 0.85
    indexes = ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "RECORD_INDEX", "BUCKET", "INMEMORY"]
    if version == 9 and partitioned:
        indexes += ["RECORD_LEVEL_INDEX"]
    index = rng.choice(indexes)
    options = dict(_PLAIN)
    metadata = index.startswith("RECORD") or rng.random() < 0.6
    options["hoodie.metadata.enable"] = metadata
    options["hoodie.index.type"] = index
    if version == 9:
        options["hoodie.write.table.version"] = 9
    options.update(options_of(rule))
    if metadata:
        options["hoodie.metadata.index.column.stats.enable"] = rng.random() < 0.7
        options["hoodie.metadata.index.bloom.filter.enable"] = rng.random() < 0.3
        if index != "RECORD_LEVEL_INDEX":
            options["hoodie.metadata.record.index.enable"] = index == "RECORD_INDEX" or rng.random() < 0.3
        options["hoodie.bloom.index.use.metadata"] = rng.random() < 0.5
    if index == "BUCKET":
        options["hoodie.bucket.index.num.buckets"] = 2
        if mor and rng.random() < 0.4:
            options["hoodie.index.bucket.engine"] = "CONSISTENT_HASHING"
            options["hoodie.bucket.index.max.num.buckets"] = 8
            options["hoodie.bucket.index.min.num.buckets"] = 1
    moves = index in ANYWHERE and rng.random() < 0.4
    for name in ("bloom", "simple", "record"):
        options[f"hoodie.{name}.index.update.partition.path"] = moves
    if rng.random() < 0.35:
        options["hoodie.table.cdc.enabled"] = True
        options["hoodie.table.cdc.supplemental.logging.mode"] = rng.choice(("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"))
    elif rng.random() < 0.12:
        options["hoodie.populate.meta.fields"] = False
    if mor:
        options["hoodie.logfile.data.block.format"] = rng.choice(("avro", "avro", "parquet", "hfile"))
        options["pyhudi.small.file.always.rewritten"] = 0
        options["pyhudi.small.file.growth"] = rng.choice((0.0, 0.5))
    else:
        options["hoodie.datasource.write.drop.partition.columns"] = (
            "hoodie.populate.meta.fields" not in options and rng.random() < 0.12
        )
    if rng.random() < 0.15:
        options["hoodie.table.base.file.format"] = "ORC"
    options["hoodie.parquet.small.file.limit"] = rng.choice((0, 104857600))
    options["hoodie.copyonwrite.insert.auto.split"] = False
    options["hoodie.copyonwrite.insert.split.size"] = rng.choice((2, 1000))
    for service in ("clean.automatic", "archive.automatic"):
        options[f"hoodie.{service}"] = rng.random() < 0.3
    options["hoodie.compact.inline"] = mor and rng.random() < 0.25
    options["hoodie.clustering.inline"] = index != "BUCKET" and rng.random() < 0.15
    options["hoodie.clean.failed.writes.policy"] = rng.choice(("EAGER", "LAZY"))
    options["hoodie.datasource.write.hive_style_partitioning"] = rng.random() < 0.3
    return Drawn(
        kind,
        version,
        ("id", "no") if rng.random() < 0.2 else ("id",),
        partitioned,
        rule.ordered,
        index,
        rng.random() < 0.4,
        moves,
        not (mor and (rule.ordered or not rule.associative)) or (rule.associative and rng.random() < 0.5),
        {name: value for name, value in options.items() if value is not False or name in _OFF},
        merges,
    )


_OFF = {"hoodie.metadata.enable", "hoodie.clean.automatic", "hoodie.archive.automatic", "hoodie.populate.meta.fields"} | {
    "hoodie.compact.inline",
    "hoodie.copyonwrite.insert.auto.split",
    "hoodie.metadata.index.column.stats.enable",
}


def seeds_of_pairs(seeds: Sequence[int], count: int) -> list[int]:
    """Of the seeds those whose tables have the most pairs of properties that meet in none of the tables before them."""
    pairs = {seed: set(itertools.combinations(_properties(draw_table(random.Random(seed))), 2)) for seed in seeds}
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(max(pairs, key=lambda seed: len(pairs[seed])))
        seen = pairs.pop(chosen[-1])
        pairs = {seed: others - seen for seed, others in pairs.items()}
    return chosen


def _properties(drawn: Drawn) -> tuple[tuple[str, Any], ...]:
    options = ("hoodie.populate.meta.fields", "hoodie.logfile.data.block.format", "hoodie.parquet.small.file.limit")
    omits = "hoodie.datasource.write.drop.partition.columns" in drawn.options
    names = ("kind", "version", "index", "soft", "moves", "has_metadata", "ordered")
    values = {name: getattr(drawn, name) for name in names}
    return *values.items(), ("omits", omits), *((name, drawn.options.get(name)) for name in options)
