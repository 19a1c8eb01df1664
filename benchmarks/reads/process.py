"""A process that reads one table: `python -m benchmarks.reads.process PEER TABLE KEYS`.

PEER: `pyhudi` or `delta-rs`.  KEYS: those of the point lookups, as JSON.  It answers each line, the name of a case, with a JSON
object: processor seconds of all its threads, seconds on the clock, and the hash of what was read, which is reckoned afterwards.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks import queries
from benchmarks.peers.base import Measured, Settings, Table

if TYPE_CHECKING:
    from benchmarks.peers.arrow import ArrowPeer

CASES = ("full-read", "aggregate", "filtered-read", "point-lookup", "incremental", "filtered-read, kept", "point-lookup, kept")
"""A read with `kept` goes through one table object that the process keeps, and sees the newest state all the same."""


def steps_of(peer: ArrowPeer, table: Table, keys: Sequence[Sequence[int]]) -> Mapping[str, Callable[[], Measured]]:
    """What carries each of CASES out."""
    filtered, looked_up = kept_reads(peer, table.path)

    def of_keys() -> Measured:
        step = peer.point_lookup(table, keys)
        return Measured(lambda: [looked_up(key) for key in keys], step.answer, step.share)

    return {
        "full-read": lambda: peer.full_read(table),
        "aggregate": lambda: peer.aggregate(table),
        "filtered-read": lambda: peer.filtered_read(table),
        "point-lookup": lambda: peer.point_lookup(table, keys),
        "incremental": lambda: peer.incremental(table),
        "filtered-read, kept": lambda: Measured(filtered, peer.filtered_read(table).answer),
        "point-lookup, kept": of_keys,
    }


def kept_reads(peer: ArrowPeer, path: str) -> tuple[Callable[[], pa.Table], Callable[[Sequence[int]], pa.Table]]:
    """The filtered read and the lookup of a key, of the newest state, by a table that was opened once."""
    if type(peer).__name__ == "DeltaRs":
        from deltalake import DeltaTable

        delta = DeltaTable(path)

        def read(predicate: str, columns: Sequence[str]) -> pa.Table:
            # Without it, a table object stays at the version at which it was opened.
            delta.update_incremental()
            return pa.table(delta.scan(columns=list(columns), predicate=predicate))

    else:
        from pyhudi import Table as HudiTable

        hudi = HudiTable(path)

        def read(predicate: str, columns: Sequence[str]) -> pa.Table:
            return hudi.scan(columns=list(columns), filter=predicate).to_arrow()

    return (
        lambda: read(queries.FILTER_SQL, queries.COLUMNS),
        lambda key: read(queries.lookup_sql(key), queries.LOOKUP_COLUMNS),
    )


def peer_of(name: str) -> ArrowPeer:
    """The peer of a name.  Its packages are imported here: each side has an interpreter of its own."""
    if name == "delta-rs":
        from benchmarks.peers.delta_rs import DeltaRs

        return DeltaRs()
    from benchmarks.peers.pyhudi_embedded import PyHudiEmbedded

    return PyHudiEmbedded()


def main(name: str, path: str, keys: str) -> None:
    peer = peer_of(name)
    peer.start(Settings(2, "", ""))
    steps = steps_of(peer, Table(path, "cow"), json.loads(keys))
    for line in sys.stdin:
        step = steps[line.strip()]()
        processor, clock = time.process_time(), time.perf_counter()
        found = step.operation()
        took = {"cpu_s": time.process_time() - processor, "wall_s": time.perf_counter() - clock}
        took = {side: seconds / step.share for side, seconds in took.items()}
        answer = hashlib.sha256(repr(step.answer(found)).encode()).hexdigest()
        del found
        peer.settle()
        print(json.dumps({**took, "answer": answer}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])
