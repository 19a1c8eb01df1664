"""Indexes that read base files also find the keys that only a log file holds."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.format.actions.commit_metadata import CommitMetadata

BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1}
NODES = {**BUCKET, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}


def rows(*keys: int, ts: int, part: str = "p") -> pa.Table:
    return pa.table({"id": keys, "part": [part] * len(keys), "ts": [ts] * len(keys)})


def table_with_inserts_in_logs(path: Path, writer: str) -> hp.Table:
    """A table with key 0 in the base file of its group, and keys 1 and 2 in a log file."""
    options = BUCKET if writer == "buckets" else NODES
    table = hp.Table.create(path, record_key="id", partition_by="part", ordering="ts", table_type="mor")
    table.upsert(rows(0, ts=1), options=options)
    table.compact()
    table.upsert(rows(1, 2, ts=1), options=options)
    if writer == "reported inserts":
        # Flink, Hudi's Java client and the index INMEMORY of Hudi write so: ids say nothing, and the commit reports inserts.
        shutil.rmtree(path / ".hoodie" / ".bucket_index")
        (file,) = sorted((path / ".hoodie" / "timeline").glob("*.deltacommit"))[-1:]
        metadata = CommitMetadata.decode(file.read_bytes())
        stats = {
            partition: tuple(replace(stat, num_inserts=stat.num_update_writes, num_update_writes=0) for stat in written)
            for partition, written in metadata.partition_to_write_stats.items()
        }
        file.write_bytes(replace(metadata, partition_to_write_stats=stats).encode())
    return hp.Table(path)


@pytest.mark.sample(6)
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "INMEMORY"])
@pytest.mark.parametrize("writer", ["buckets", "nodes", "reported inserts"])
def test_keys_of_logs_are_updated_and_deleted(tmp_path: Path, writer: str, index: str) -> None:
    table = table_with_inserts_in_logs(tmp_path, writer)
    options = {"hoodie.index.type": index}
    assert table.upsert(rows(0, 2, 3, ts=2), options=options).rows_inserted == 1
    assert table.delete(rows(1, ts=0).select(["id", "part"]), options=options).rows_deleted == 1
    for _ in range(2):
        found = table.scan(["id", "ts"]).to_arrow().to_pylist()
        assert sorted((row["id"], row["ts"]) for row in found) == [(0, 2), (2, 2), (3, 2)]
        table.compact()
    if index.startswith("GLOBAL"):
        table.upsert(rows(2, ts=3, part="q"), options=options)
        moved = table.scan(filter="id = 2").to_arrow().to_pylist()
        assert [(row["part"], row["ts"]) for row in moved] == [("q", 3)]
