"""Table services apart from writes: one pass over what is pending or due, repeated in a thread of the writer or in a process.

    pass        clean, the metadata table's services, archival; pending compactions, log compactions and clusterings, then those
                that are due; partition TTL
    loop        a pass, then a rest, until told to stop; what is being carried out is finished first
    thread      `BackgroundServices`: the loop beside a writer, woken after its commits

Several passes may run at once, in threads, processes and machines: a plan is claimed under the table lock, and whoever finds it
claimed takes the next one.  A pass that dies leaves what it was at; another finds that from its heartbeat and starts it anew.

Errors of the table or the store end one service of one pass and stand in its outcome; the next pass tries again.  Any other
error ends the loop.

Source: writing and services, "Deployment models".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from pyhudi.errors import HudiError, InvalidRequest
from pyhudi.execute.engine import Engine
from pyhudi.operations.services.cluster import run_clusterings
from pyhudi.operations.services.compact import run_compaction, run_log_compaction
from pyhudi.operations.services.run import ServiceSettings, describe_clusterings, describe_compactions, run_housekeeping
from pyhudi.operations.services.ttl import DeletePartitions, TtlSettings, run_ttl
from pyhudi.settings import Options, read_settings
from pyhudi.table.context import TableContext

_LOG = logging.getLogger("pyhudi.operations.services.upkeep")

SERVICES = ("clean", "metadata", "archive", "compact", "log_compact", "cluster", "ttl")
"""In the order in which a pass runs them."""

Outcomes = Mapping[str, str]
"""Service -> what it did: `run: ...`, `not due: ...`, `off: ...` or `failed: ...`."""


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """What a pass does.

    names: the services that it runs.  planned: those of compact, log_compact and cluster of which it makes new plans when they
    are due; the others are carried out where a writer planned them.
    """

    services: ServiceSettings
    ttl: TtlSettings
    names: frozenset[str]
    planned: frozenset[str]

    @classmethod
    def of(cls, options: Options, names: tuple[str, ...] | None, *, plan: bool) -> UpkeepSettings:
        """From checked options.

        names: of services; None for all, of which log compactions and clusterings are planned, and partitions expire, only where
        the options switch that on.  plan: whether new plans are made at all.
        Raises InvalidRequest for a name that is no service.
        """
        unknown = set(names or ()) - set(SERVICES)
        if unknown:
            raise InvalidRequest(f"{', '.join(sorted(unknown))}: no such table service; there are {', '.join(SERVICES)}")
        settings = ServiceSettings.of(options)
        planned = {"compact", "log_compact", "cluster"} & set(names or ("compact",))
        chosen = set(names or SERVICES)
        if names is None:
            if settings.log_compact_inline:
                planned.add("log_compact")
            if settings.cluster_inline or settings.cluster_schedule:
                planned.add("cluster")
            if settings.ttl is None:
                chosen.discard("ttl")
        return read_settings(cls, options, services=settings, names=frozenset(chosen), planned=frozenset(planned if plan else ()))


def run_pass(
    context: TableContext,
    engine: Engine,
    settings: UpkeepSettings,
    delete_partitions: DeletePartitions,
    go_on: Callable[[], bool],
) -> Outcomes:
    """Run each chosen service once.  go_on: asked before each service and each plan; False leaves the rest for another time."""
    context = context.reloaded()
    outcomes: dict[str, str] = {}
    for name in SERVICES:
        if name not in settings.names or not go_on():
            continue
        if context.config.is_cow and name in ("compact", "log_compact"):
            continue
        try:
            outcomes[name] = _run(name, context, engine, settings, delete_partitions, go_on)
        except HudiError as error:
            _LOG.warning("%s of %s failed: %s", name, context.storage.uri, error)
            outcomes[name] = f"failed: {type(error).__name__}: {error}"
    return outcomes


def run_loop(
    run: Callable[[], Outcomes], stop: threading.Event, rest_seconds: float, wake: threading.Event | None = None
) -> None:
    """Make passes until `stop` is set, resting between them.  wake: ends a rest early; whoever sets `stop` sets it as well."""
    signal = wake or stop
    while not stop.is_set():
        run()
        signal.wait(rest_seconds)
        if wake is not None:
            wake.clear()


@dataclass(slots=True)
class BackgroundServices:
    """Services in a thread beside a writer, from `start` to `stop`, or for a `with` block.

    run: makes one pass; its argument is asked whether to go on.  names: the services that the thread runs.  on_stop: called when
    the thread has ended.  last: the outcomes of the newest pass that ended.

    The thread ends with the process: what it is at then is taken up by the next one that looks, as after a crash.
    """

    run: Callable[[Callable[[], bool]], Outcomes]
    names: frozenset[str]
    rest_seconds: float
    on_stop: Callable[[], None]
    last: Outcomes = field(default_factory=dict)
    passes: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _wake: threading.Event = field(default_factory=threading.Event)
    _leave: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None
    _thread: threading.Thread | None = None

    def start(self) -> Self:
        """Start the thread."""
        if self._thread is not None:
            raise InvalidRequest("these services run already")
        self._thread = threading.Thread(target=self._work, name="pyhudi-services", daemon=True)
        self._thread.start()
        return self

    def wake(self) -> None:
        """A commit has landed: look now what is due.  Raises what ended the thread, if something did."""
        self.check()
        self._wake.set()

    def check(self) -> None:
        """Raises what ended the thread, if something did."""
        if self._error is not None:
            raise self._error

    @property
    def running(self) -> bool:
        """Whether the thread lives."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, *, finish: bool = True) -> Outcomes:
        """End the thread and wait for it; the plan that it carries out is carried to its end.

        finish: make one more pass first, so that all that is pending now is done.  Returns the outcomes of the last pass.
        Raises what ended the thread before.
        """
        if not finish:
            self._leave.set()
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self.on_stop()
        self.check()
        return self.last

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.stop()
            return
        try:
            self.stop(finish=False)
        except Exception as failure:
            error.add_note(f"the services beside it had ended as well: {failure}")

    def _work(self) -> None:
        try:
            run_loop(self._pass, self._stop, self.rest_seconds, self._wake)
            if not self._leave.is_set():
                self._pass()
        except BaseException as error:
            self._error = error

    def _pass(self) -> Outcomes:
        self.last = self.run(lambda: not self._leave.is_set())
        self.passes += 1
        return self.last


def left_to_thread(settings: ServiceSettings, names: frozenset[str]) -> ServiceSettings:
    """The settings of a writer beside which a thread runs some services: it plans what the thread carries out, and no more."""
    return replace(
        settings,
        clean=None if "clean" in names else settings.clean,
        archive=None if "archive" in names else settings.archive,
        metadata=None if "metadata" in names else settings.metadata,
        compact_inline=settings.compact_inline and "compact" not in names,
        compact_schedule_inline=settings.compact_schedule_inline or (settings.compact_inline and "compact" in names),
        log_compact_inline=settings.log_compact_inline and "log_compact" not in names,
        cluster_inline=settings.cluster_inline and "cluster" not in names,
        cluster_schedule=settings.cluster_schedule or (settings.cluster_inline and "cluster" in names),
        ttl=None if "ttl" in names else settings.ttl,
    )


def _run(
    name: str,
    context: TableContext,
    engine: Engine,
    settings: UpkeepSettings,
    delete_partitions: DeletePartitions,
    go_on: Callable[[], bool],
) -> str:
    services, schedule = settings.services, name in settings.planned
    if name == "compact":
        return describe_compactions(
            run_compaction(context, engine, services.compact, if_due=True, schedule=schedule, go_on=go_on)
        )
    if name == "log_compact":
        return describe_compactions(
            run_log_compaction(context, engine, services.compact, if_due=True, schedule=schedule, go_on=go_on)
        )
    if name == "cluster":
        return describe_clusterings(run_clusterings(context, engine, services.clustering, schedule=schedule, go_on=go_on))
    if name == "ttl":
        result = run_ttl(context, settings.ttl, delete_partitions)
        return f"run: {result.instant}" if result.instant else "not due: no partition's time is over"
    return run_housekeeping(context, services, (name,), context.timeline.load())[name]
