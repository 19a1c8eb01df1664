"""Writes that are killed at each call, and the state that the next writer must find."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.format.names import parse_base_file
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import CountedCalls, Fault, FaultOutcome, FaultPoint, FaultyStorage
from tests.simulation.tables import IN_PARTS, Rows, World, crash_points, partition_of, sampled

OPTIONS = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "pyhudi.threads": 1}
Act = Callable[[World, Table], object]


def data(world: World, rows: Rows) -> pa.Table:
    keys = sorted(rows)
    stamp = world.environment.now_ms()
    return pa.table(
        {
            "id": keys,
            "part": [partition_of(key) for key in keys],
            "ts": pa.array([stamp] * len(keys), pa.int64()),
            "value": pa.array([rows[key] for key in keys], pa.int64()),
        }
    )


def overwrite(table: Table, rows: pa.Table) -> object:
    options = parse_options({**dict(table._open.options.values), "pyhudi.schema.mode": "evolve"})
    settings = WriteSettings.of(options, WriteOperation.UPSERT).overwriting()
    return run_write(table.context.reloaded(), LocalEngine(1), rows, settings)


def of_int32(rows: pa.Table) -> pa.Table:
    return rows.set_column(3, "value", rows["value"].cast(pa.int32()))


UPSERTED = {"k1": 101, "k2": 102, "k8": 108, "k9": 109}
OVERWRITTEN = {"k1": 201, "k7": 207}
LOADED = {"k20": 320, "k21": 321}
ACTS: dict[str, tuple[Act, Callable[[Rows], Rows]]] = {
    "upsert": (lambda world, table: table.upsert(data(world, UPSERTED)), lambda rows: {**rows, **UPSERTED}),
    "insert": (lambda world, table: table.insert(data(world, LOADED)), lambda rows: {**rows, **LOADED}),
    "bulk_insert": (lambda world, table: table.bulk_insert(data(world, LOADED)), lambda rows: {**rows, **LOADED}),
    "delete": (
        lambda world, table: table.delete(pa.table({"id": ["k0", "k3", "k77"]})),
        lambda rows: {key: value for key, value in rows.items() if key not in ("k0", "k3")},
    ),
    "insert_overwrite": (
        lambda world, table: table.insert_overwrite(data(world, OVERWRITTEN)),
        lambda rows: {**{key: value for key, value in rows.items() if partition_of(key) != "b"}, **OVERWRITTEN},
    ),
    "insert_overwrite_table": (lambda world, table: table.insert_overwrite_table(data(world, LOADED)), lambda rows: dict(LOADED)),
    "overwriting": (lambda world, table: overwrite(table, data(world, LOADED)), lambda rows: dict(LOADED)),
    # The indexes of the old column cannot stay, so the metadata table goes first.
    "overwriting with a column of another type": (
        lambda world, table: overwrite(table, of_int32(data(world, LOADED))),
        lambda rows: dict(LOADED),
    ),
    "delete_partitions": (
        lambda world, table: table.delete_partitions("a"),
        lambda rows: {key: value for key, value in rows.items() if partition_of(key) != "a"},
    ),
}


def faulty(world: World, fault: Fault | None = None) -> FaultyStorage:
    return FaultyStorage(open_storage(world.uri), fault)


def through(world: World, storage: FaultyStorage) -> Table:
    """The table opened by a writer that meets the storage's fault, lock and all."""
    options = dict(storage.spec().options)
    return Table(world.uri, storage_options=options, options=world.options, environment=world.environment)


def faults_of(storage: FaultyStorage, outcome: FaultOutcome) -> list[Fault]:
    """For a crash its points; lost answers before and after every writing call, and at every reading one; `sampled`."""
    if outcome is FaultOutcome.CRASH:
        return sampled(crash_points(storage.calls), storage.calls)
    found = []
    writes = [call for call in storage.calls if call.writes]
    for number, call in enumerate(writes, 1):
        moments = FaultPoint if call.operation in IN_PARTS else (FaultPoint.BEFORE, FaultPoint.AFTER)
        found += [Fault(number, moment, outcome) for moment in moments]
    reads = len(storage.calls) - len(writes)
    found += [Fault(number, FaultPoint.BEFORE, outcome, CountedCalls.READS) for number in range(1, reads + 1)]
    return sampled(found, storage.calls)


def check_next_writer(world: World) -> None:
    """The next writer lands, and the dead one has left nothing: no pending instant, no file, no marker, no heartbeat."""
    world.upsert({"k4": 44, "k40": 40})
    assert world.scanned() == world.rows
    timeline = world.table.timeline()
    assert not timeline.pending()
    storage = open_storage(world.uri)
    assert not storage.list(".hoodie/.temp").folders
    assert not storage.list(".hoodie/.heartbeat").files
    for path in world.files():
        base = parse_base_file(path.rsplit("/", 1)[-1])
        assert base is None or timeline.is_completed(base.instant_time), path
    # And again, from what the next writer has left.
    world.upsert({"k5": 55})
    assert world.scanned() == world.rows
