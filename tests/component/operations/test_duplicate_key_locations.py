"""Lookups of keys that are in several file groups, some of which delete them in logs."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.tasks import resolve_duplicates

_names = itertools.count()

INDEXES = ("SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM", "INMEMORY", "BUCKET", "RECORD_INDEX")


def made(index: str, **options: Any) -> Table:
    chosen: dict[str, Any] = {
        "hoodie.index.type": index,
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
        **({"hoodie.bucket.index.num.buckets": 2} if index == "BUCKET" else {}),
        **({"hoodie.metadata.record.index.enable": True} if index == "RECORD_INDEX" else {}),
        **options,
    }
    return Table.create(
        f"memory://places-of-keys-{next(_names)}",
        name="t",
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type="mor",
        options=chosen,
    )


def rows(v: int, *ids: str, ts: int = 1, part: str = "x") -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "part": [part] * len(ids),
            "ts": pa.array([ts] * len(ids), pa.int64()),
            "v": pa.array([v] * len(ids), pa.int32()),
            "w": pa.array([v] * len(ids), pa.int32()),
        }
    )


def values(table: Table) -> list[tuple[str, int]]:
    return sorted((row["id"], row["v"]) for row in table.scan().to_arrow().to_pylist())


def reinsert_keys(table: Table, insert: str) -> None:
    """Keys k and l are inserted, deleted in the log, and k is inserted again into another group; m was never away."""
    getattr(table, insert)(rows(1, "k", "l", "m"))
    table.delete(keys=rows(0, "k", "l").select(["id", "part"]))
    getattr(table, insert)(rows(2, "k"))
    assert values(table) == [("k", 2), ("m", 1)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("insert", ["insert", "bulk_insert"])
@pytest.mark.parametrize("index", INDEXES)
def test_upsert_of_a_reinserted_key_updates_only_its_live_row(index: str, insert: str) -> None:
    if (index, insert) == ("BUCKET", "bulk_insert"):
        insert = "insert"
    table = made(index)
    reinsert_keys(table, insert)
    table.upsert(rows(3, "k", "l", "m", "n"))
    assert values(table) == [("k", 3), ("l", 3), ("m", 3), ("n", 3)]
    assert table.validate(keys=True).ok
    table.compact()
    assert values(table) == [("k", 3), ("l", 3), ("m", 3), ("n", 3)]


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_BLOOM"])
def test_upsert_of_a_key_deleted_in_all_partitions_writes_one_row(index: str) -> None:
    table = made(index)
    reinsert_keys(table, "insert")
    table.delete(keys=rows(0, "k").select(["id", "part"]))
    assert values(table) == [("m", 1)]
    table.upsert(rows(3, "k", "m"))
    assert values(table) == [("k", 3), ("m", 3)]
    table.delete(keys=rows(0, "k").select(["id", "part"]))
    assert values(table) == [("m", 3)]


def test_upsert_of_a_deleted_key_returns_to_its_newest_location() -> None:
    """By event time it was deleted with 9 in the old place, and with 5 in the new one, which the row at 6 meets."""
    table = made("SIMPLE", **{"hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"})
    gone = pa.array([True])
    table.insert(rows(1, "k", ts=5).append_column("_hoodie_is_deleted", pa.array([False])))
    table.upsert(rows(0, "k", ts=9).append_column("_hoodie_is_deleted", gone))
    table.insert(rows(2, "k", ts=5).append_column("_hoodie_is_deleted", pa.array([False])))
    table.upsert(rows(0, "k", ts=5).append_column("_hoodie_is_deleted", gone))
    assert values(table) == []
    table.upsert(rows(3, "k", ts=6).append_column("_hoodie_is_deleted", pa.array([False])))
    assert values(table) == [("k", 3)]


def test_duplicates_from_inserts_are_all_updated() -> None:
    table = made("SIMPLE")
    table.insert(rows(1, "k", "m"))
    table.insert(rows(2, "k"))
    table.insert(rows(3, "k"))
    table.upsert(rows(4, "m"))
    table.upsert(rows(5, "k"))
    assert values(table) == [("k", 5), ("k", 5), ("k", 5), ("m", 4)]


def test_partial_updates_and_merges_change_the_live_row() -> None:
    table = made("SIMPLE", **{"hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"})
    reinsert_keys(table, "insert")
    table.upsert(rows(7, "k", ts=2).select(["id", "part", "ts", "v"]), partial=True)
    assert [(row["v"], row["w"]) for row in table.scan(filter="id = 'k'").to_arrow().to_pylist()] == [(7, 2)]
    merge = table.merge(rows(8, "k", "l", ts=3), ["id", "part"]).when_matched_update_all().when_not_matched_insert_all()
    merge.execute()
    assert values(table) == [("k", 8), ("l", 8), ("m", 1)]
    assert table.validate(keys=True).ok


def test_key_reinserted_in_another_partition_moves_once() -> None:
    table = made("GLOBAL_SIMPLE")
    table.insert(rows(1, "k", "m"))
    table.delete(keys=rows(0, "k").select(["id", "part"]))
    table.insert(rows(2, "k", part="y"))
    table.upsert(rows(3, "k", part="z"))
    assert [(row["part"], row["v"]) for row in table.scan(filter="id = 'k'").to_arrow().to_pylist()] == [("z", 3)]


@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM"])
def test_a_lookup_without_keys_in_several_places_reads_no_logs(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(index)
    table.insert(rows(1, "k", "m"))
    table.insert(rows(1, "n"))
    table.upsert(rows(2, "k", "n"))
    monkeypatch.setattr(resolve_duplicates, "read_live_keys", None)
    table.upsert(rows(3, "k", "m", "n", "o"))
    assert values(table) == [("k", 3), ("m", 3), ("n", 3), ("o", 3)]
