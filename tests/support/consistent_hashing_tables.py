"""Tables with consistent hashing, and their metadata."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa

import pyhudi as hp
from pyhudi.features.consistent_hashing.hashing_metadata import HashRing
from pyhudi.features.consistent_hashing.hashing_store import load_hashing_metadata
from pyhudi.format.paths import HASHING_FOLDER

NODES = 2
RINGS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": NODES,
    "hoodie.compact.inline": False,
}
_names = itertools.count()


def create(uri: str, **options: Any) -> hp.Table:
    given = {**RINGS, **options}
    return hp.Table.create(uri, record_key="id", partition_by="part", ordering="ts", table_type="mor", options=given)


def rows(*keys: int, ts: int = 1, part: str = "p") -> pa.Table:
    return pa.table({"id": [f"k{key}" for key in keys], "part": [part] * len(keys), "ts": pa.array([ts] * len(keys), pa.int64())})


def hashing_of(table: hp.Table, part: str = "p") -> HashRing:
    ring = load_hashing_metadata(table.context, table.context.timeline.load(), part, ())
    assert ring is not None
    return ring


def hashing_files(table: hp.Table) -> list[str]:
    return sorted(info.path.removeprefix(f"{HASHING_FOLDER}/") for info in table.context.storage.walk(HASHING_FOLDER))
