"""Services during an open non-blocking writer: before, between and around its steps, and with other writers.

The open writer has written nothing, or its log files and not its commit. After each step another writer appends to the
same bucket with event times out of order. The table always holds what has completed, and readers by completion time
miss nothing. Then one of the others crashes at each call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import TableState
from pyhudi.format.instants import Action
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage import Storage
from pyhudi.storage.locks import LockProvider
from pyhudi.table.pending_plans import load_compaction_plan
from pyhudi.table.table_context import TableContext
from tests.simulation.non_blocking import FIRST, OPTIONS, Batch, merged, rows
from tests.simulation.tables import World, every_file_counts, killed_everywhere

POINTS = ("begun", "written")
MORE = {**OPTIONS, "hoodie.bucket.index.num.buckets": 1, "hoodie.log.compaction.blocks.threshold": 2}
ALLOW: dict[str, object] = {"hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy"}
LATE: Batch = [("k0", 40), ("k1", 4), ("k2", 41)]
"""Of the open writer; the first of its keys is overtaken by what the others write later, and the others before."""


class _Gate:
    """A storage that stops after the inflight file was stored."""

    def __init__(self, inner: Storage, stop: Callable[[], None]) -> None:
        self._inner = inner
        self._stop = stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        done = self._inner.put_if_absent(path, data)
        if path.endswith("commit.inflight") and "/metadata/" not in path:
            self._stop()
        return done


class SecondWriter(LockProvider):
    """A lock that stops before it is taken for the second time, which is when a write publishes."""

    def __init__(self, inner: LockProvider, stop: Callable[[], None]) -> None:
        self._inner = inner
        self._stop = stop
        self._turns = 0

    def acquire(self, timeout_ms: int | None = None) -> None:
        self._turns += 1
        if self._turns == 2:
            self._stop()
        self._inner.acquire(timeout_ms)

    def release(self) -> None:
        self._inner.release()

    def check(self) -> None:
        self._inner.check()

    def renew(self) -> None:
        self._inner.renew()


class OpenWrite:
    """A write that stops at a point of its life until `finish`. Of the test and its writes one runs at a time."""

    def __init__(self, world: World, batch: Batch, point: str) -> None:
        self.result: WriteResult | None = None
        self._error: BaseException | None = None
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._has_stopped = False
        context = world.table.context
        if point == "begun":
            context = replace(context, storage=_Gate(context.storage, self._stop))
        else:
            context = replace(context, lock=SecondWriter(context.lock, self._stop))
        self._thread = threading.Thread(target=self._run, args=(world, context, batch), daemon=True)
        self._thread.start()
        self._stands.acquire()
        assert self._has_stopped, self._error

    def finish(self) -> WriteResult:
        """Let it go on to its end.  Raises what it raises."""
        self._go.release()
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self.result is not None
        return self.result

    def _stop(self) -> None:
        if not self._has_stopped:
            self._has_stopped = True
            self._stands.release()
            self._go.acquire()

    def _run(self, world: World, context: TableContext, batch: Batch) -> None:
        settings = WriteSettings.of(parse_options(world.options), WriteOperation.UPSERT)
        try:
            self.result = run_write(context, LocalEngine(1), rows(batch), settings)
        except BaseException as error:
            self._error = error
        finally:
            self._stands.release()


class Play:
    """A table, one open writer of it and one service.  landed: what has completed, in any order."""

    def __init__(self, service: str, point: str, options: Mapping[str, object] = {}, *, cleans: bool = False) -> None:
        self.world = World("mor", {**MORE, **options})
        self.service, self.point, self.cleans = service, point, cleans
        self.landed: list[Batch] = []
        self.is_open = False
        self._numbers = count(1)
        for batch in (FIRST, self._next_rows()):
            self.write(batch)

    def run(self, steps: str) -> WriteResult:
        """Each step is a letter: the writer is o(pened) and c(ompletes), the service p(lans) and e(xecutes)."""
        done: WriteResult | None = None
        for step in steps:
            if step == "o":
                self.opened, self.is_open = OpenWrite(self.world, LATE, self.point), True
            elif step == "c":
                done, self.is_open = self.opened.finish(), False
                self.landed.append(LATE)
            elif step == "p":
                self.plan()
            else:
                getattr(self.world.table, self.service)()
            self.check_rows()
            self.write(self._next_rows())
            if self.cleans:
                self.world.table.clean(dry_run=False)
                self.world.table.archive()
            self.check_rows()
        assert done is not None
        return done

    def write(self, batch: Batch) -> None:
        assert self.world.table.upsert(rows(batch)).conflict_retries == 0
        self.landed.append(batch)
        self.world.environment.advance_ms(1000)

    def plan(self) -> None:
        table = self.world.table
        if self.service == "compact":
            table.schedule_compaction()
        elif self.service == "log_compact":
            table.schedule_log_compaction()
        else:
            table.schedule_clustering()
        timeline = table.timeline()
        if self.service == "log_compact":
            # It waits until no write is under way.
            assert bool(timeline.pending(Action.LOGCOMPACTION)) != self.is_open
        elif self.service == "compact":
            (planned,) = timeline.pending(Action.COMPACTION)
            operations = load_compaction_plan(table.context.timeline, planned).operations or ()
            times = {name.split("_")[1].split(".")[0] for each in operations for name in each.delta_file_paths or ()}
            assert times and all(timeline.is_completed(time) for time in times)

    def check_rows(self) -> None:
        assert self.world.scanned() == merged(self.landed)

    def end(self) -> None:
        """Everything is there, and by completion time too; nothing else is."""
        if not self.cleans:
            held: dict[str, int] = {}
            for instant in sorted(self.world.table.timeline().completed_writes(), key=lambda i: str(i.completion_time)):
                time = str(instant.completion_time)
                for row in self.world.table.incremental(time, time, columns=["id", "value"]).to_arrow().to_pylist():
                    held[row["id"]] = max(held.get(row["id"], 0), row["value"])
            assert held == merged(self.landed)
        self.world.table.compact()
        self.check_rows()
        self.world.table.clean(dry_run=False)
        self.check_rows()
        every_file_counts(self.world)
        assert self.world.table.validate().ok

    def _next_rows(self) -> Batch:
        number = next(self._numbers)
        return [("k0", 10 * number), ("k1", 9 - number), ("k2", 50 if number == 2 else number)]


ORDERS = {
    "before": "ocpe",
    "planned in it": "opce",
    "all in it": "opec",
    "after": "peoc",
    "within it": "poce",
    "executed in it": "poec",
}
RETRIES = {"planned in it": 1, "all in it": 1, "executed in it": 1}
"""Of a write whose file groups a clustering took away."""
USUAL = {
    ("compact", "begun", "all in it"),
    ("compact", "written", "within it"),
    ("log_compact", "begun", "planned in it"),
    ("log_compact", "written", "executed in it"),
    ("cluster", "written", "all in it"),
}


@pytest.mark.parametrize(
    ("service", "point", "order"),
    [
        pytest.param(service, point, order, marks=() if (service, point, order) in USUAL else pytest.mark.wide)
        for service in ("compact", "log_compact", "cluster")
        for point in POINTS
        for order in ORDERS
    ],
)
def test_service_during_an_open_write(service: str, point: str, order: str) -> None:
    play = Play(service, point, ALLOW if service == "cluster" else {})
    done = play.run(ORDERS[order])
    assert done.conflict_retries == (RETRIES.get(order, 0) if service == "cluster" else 0)
    play.end()


@pytest.mark.parametrize("metadata", [pytest.param(False, marks=pytest.mark.wide), True])
@pytest.mark.parametrize(
    ("point", "order"),
    [
        pytest.param(point, order, marks=() if (point, order) == ("written", "all in it") else pytest.mark.wide)
        for point in POINTS
        for order in ORDERS
    ],
)
def test_cleans_and_archivals_at_every_step_keep_the_logs_of_an_open_write(point: str, order: str, metadata: bool) -> None:
    """The log of the open write belongs to the slice of a compaction whose base file may not be there yet."""
    play = Play("compact", point, {"hoodie.metadata.enable": metadata}, cleans=True)
    assert play.run(ORDERS[order]).conflict_retries == 0
    play.end()


@pytest.mark.parametrize("point", POINTS)
def test_a_clustering_that_is_planned_while_a_write_is_open_refuses_it_and_loses_nothing(point: str) -> None:
    play = Play("cluster", point)
    opened = OpenWrite(play.world, LATE, point)
    planned = play.world.table.schedule_clustering().instant
    assert planned is not None
    for write in (opened.finish, lambda: play.world.table.upsert(rows(LATE))):
        with pytest.raises(TableState, match=f"pending clustering {planned} is about to replace"):
            write()
    play.check_rows()
    every_file_counts(play.world)
    play.world.table.cluster(instant=planned)
    play.write(LATE)
    play.check_rows()
    play.end()


# Deaths of others during it


Act = Callable[[World, TableContext], object]


def upsert(run: World, context: TableContext) -> None:
    settings = WriteSettings.of(parse_options(run.options), WriteOperation.UPSERT)
    run_write(context, LocalEngine(1), rows([("k0", 70), ("k1", 7)]), settings)


def compact(run: World, context: TableContext) -> None:
    table = run.table
    table._open.context = context
    table.compact()


def clean(run: World, context: TableContext) -> None:
    table = run.table
    table._open.context = context
    table.clean(dry_run=False)


@pytest.mark.crash_points
@pytest.mark.parametrize("metadata", [False, pytest.param(True, marks=pytest.mark.wide)])
@pytest.mark.parametrize("point", [pytest.param("begun", marks=pytest.mark.wide), "written"])
@pytest.mark.parametrize("act", [upsert, compact, pytest.param(clean, marks=pytest.mark.wide)])
def test_crash_during_an_open_write_keeps_it_complete(act: Act, point: str, metadata: bool) -> None:
    play = Play("compact", point, {"hoodie.metadata.enable": metadata})
    if act is clean:
        play.world.table.compact()
        play.write([("k0", 3)])
        play.world.table.compact()
    opened: dict[int, OpenWrite] = {}

    def write_concurrently(run: World, context: TableContext) -> None:
        opened[id(run)] = OpenWrite(run, LATE, point)
        act(run, context)

    def check(run: World) -> None:
        run.environment.advance_ms(3_600_000)
        done = run.table.timeline().completed_writes()
        more: list[Batch] = [[("k0", 70), ("k1", 7)]] if act is upsert and len(done) > len(play.landed) else []
        before = merged([*play.landed, *more])
        assert run.scanned() == before
        # What the dead left is taken away while the write is open.
        run.table.upsert(rows([("k3", 1)]))
        run.table.clean(dry_run=False)
        assert run.scanned() == before | {"k3": 1}
        assert opened.pop(id(run)).finish().conflict_retries == 0
        everything = merged([*play.landed, *more, [("k3", 1)], LATE])
        assert run.scanned() == everything
        run.table.compact()
        run.table.clean(dry_run=False)
        assert run.scanned() == everything
        assert not run.table.timeline().pending()
        every_file_counts(run)

    assert killed_everywhere(play.world, write_concurrently, check) > 3
