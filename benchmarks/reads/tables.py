"""Makes the table of one peer: all rows, and the batches of `benchmarks.data` one after the other."""

from __future__ import annotations

import json

from benchmarks.peers.base import Settings, Table
from benchmarks.reads.process import peer_of


def make(asked: str) -> None:
    """asked: JSON with `peer`, `place`, `base` (Parquet files) and `batches` (name and Parquet file of each)."""
    said = json.loads(asked)
    peer, table = peer_of(said["peer"]), Table(said["place"], "cow")
    peer.start(Settings(2, "", ""))
    peer.bulk_insert(table, said["base"]).operation()
    for name, file in said["batches"]:
        if name == "last":
            peer.track_changes(table).operation()
        (peer.delete if name == "delete" else peer.upsert)(table, [file]).operation()
