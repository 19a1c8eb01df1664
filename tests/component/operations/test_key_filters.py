"""Filters on record keys read and merge only these keys, and return the rows of a filter after the merge."""

from __future__ import annotations

import itertools
import random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.records.log_merge.merge_log_blocks import LogMerger

_names = itertools.count()
PAYLOAD = "hoodie.datasource.write.payload.class"
MODE = "hoodie.write.record.merge.mode"
UPDATES = "hoodie.table.partial.update.mode"
NINE = {"hoodie.write.table.version": 9}
RULES: dict[str, dict[str, Any]] = {
    "commit time": {MODE: "COMMIT_TIME_ORDERING"},
    "event time": {MODE: "EVENT_TIME_ORDERING"},
    "positions": {MODE: "EVENT_TIME_ORDERING", "hoodie.write.record.positions": True},
    "blocks of Parquet": {MODE: "EVENT_TIME_ORDERING", "hoodie.logfile.data.block.format": "parquet"},
    "blocks of HFile": {MODE: "COMMIT_TIME_ORDERING", "hoodie.logfile.data.block.format": "hfile"},
    "a payload that merges": {PAYLOAD: "org.apache.hudi.common.model.PartialUpdateAvroPayload"},
    "version 9": {**NINE, MODE: "EVENT_TIME_ORDERING"},
    "version 9, without an order": {**NINE, MODE: "COMMIT_TIME_ORDERING"},
    "version 9, an update mode": {**NINE, PAYLOAD: "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"},
    "a key of two fields": {MODE: "EVENT_TIME_ORDERING", "hoodie.datasource.write.recordkey.field": "id,part"},
}
KEYS = [f"k{number}" for number in range(12)]


def written(rule: str, seed: int) -> Table:
    """A table with a base file and logs of upserts, deletes with an order and deletes by key."""
    draw = random.Random(seed)
    options: dict[str, Any] = {
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.compact.inline": False,
        "hoodie.index.bloom.num_entries": 10,
    }
    options |= {"hoodie.bloom.index.filter.type": "SIMPLE", **RULES[rule]}
    keys = options.pop("hoodie.datasource.write.recordkey.field", "id").split(",")
    table = Table.create(
        f"memory://some-keys-{next(_names)}",
        record_key=keys,
        partition_by="part",
        ordering="ts",
        table_type="mor",
        options=options,
    )
    table.insert(batch(draw, KEYS[:9]))
    for _ in range(4):
        table.upsert(batch(draw, draw.sample(KEYS, 5)))
    table.delete(batch(draw, draw.sample(KEYS, 2)).select(["id", "part"]))
    table.upsert(batch(draw, draw.sample(KEYS, 4)))
    return table


def batch(draw: random.Random, keys: list[str]) -> pa.Table:
    return pa.table(
        {
            "id": keys,
            "part": [f"p{int(key[1:]) % 2}" for key in keys],
            "ts": pa.array([draw.randrange(9) for _ in keys], pa.int64()),
            "a": pa.array([draw.choice([None, "", "x", "y"]) for _ in keys], pa.string()),
            "n": pa.array([draw.choice([None, 0, 1, 2]) for _ in keys], pa.int64()),
            "_hoodie_is_deleted": pa.array([draw.random() < 0.2 for _ in keys]),
        }
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("rule", RULES)
def test_rows_are_those_of_a_filter_after_the_merge(rule: str) -> None:
    table = written(rule, seed=len(rule))
    merged = table.scan().to_arrow().to_pylist()
    for chosen in (KEYS[:1], KEYS[3:5], KEYS[::3], KEYS, ["nobody"]):
        named = ", ".join(f"'{key}'" for key in chosen)
        found = table.scan(filter=f"id in ({named}) and ts >= 2").to_arrow().to_pylist()
        assert by_key(found) == by_key(row for row in merged if row["id"] in chosen and row["ts"] >= 2)


@pytest.mark.parametrize("rule", ["event time", "positions"])
def test_entries_of_other_keys_are_not_merged(rule: str) -> None:
    table = written(rule, seed=7)
    met: set[str] = set()
    add_rows, add_deletes = LogMerger.add_rows, LogMerger.add_deletes

    def rows(self: LogMerger, rows: pa.Table, *args: Any, **kwargs: Any) -> None:
        met.update(rows.column("_hoodie_record_key").to_pylist())
        add_rows(self, rows, *args, **kwargs)

    def deletes(self: LogMerger, keys: pa.Array, *args: Any, **kwargs: Any) -> None:
        met.update(keys.to_pylist())
        add_deletes(self, keys, *args, **kwargs)

    with patch.object(LogMerger, "add_rows", rows), patch.object(LogMerger, "add_deletes", deletes):
        table.scan(["n"], filter="id in ('k1', 'k4')").to_arrow()
        assert met
        assert met <= {"k1", "k4"}
        table.scan(["n"], filter="id in ('k1', 'k4') or n = 1").to_arrow()
        assert len(met) > 4


def by_key(rows: Any) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])
