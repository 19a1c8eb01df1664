"""Several processes of which one runs at a time; which one runs next is decided at storage calls.

An `Actor` is a process of its own: its thread runs nothing but its operations, its environment, its lock and its storage are its
own, and what it shares with others is the store and the clock.  A `Stage` lets one actor run at a time.  Before each storage call
of the running actor its `Decide` chooses whether something happens there:

    "B"             actor B runs from here on
    "kill before"   the process dies, and others on its machine know it; also `kill during` and `kill after` the call
    "lost"          the machine dies: no process knows until the heartbeat has expired
    "freeze 70000"  the process is suspended for so many milliseconds of the clock, with its heartbeats and renewals
    "fail before"   the store does not respond, and the call has had no effect; `fail after` it has had it

Otherwise an actor runs until it has ended or sleeps; then the first one in order that can run goes on.  Only when all sleep does
the clock move, to the first that wakes.  So a run is a function of what was decided.

Calls that touch the lock or a heartbeat are no such places: the mutexes of those may not be held while another actor runs.
Before the lock is acquired there is a separate place, as at the end of each operation.
"""

from __future__ import annotations

import itertools
import random
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence

from pyhudi.storage.fault_injection import Fault, FaultOutcome, FaultPoint, SimulatedCrash, StorageCall

_QUIET = ("/.hoodie/.locks/", "/.hoodie/.heartbeat/", "/.hoodie/.locks", "/.hoodie/.heartbeat")
_PATIENCE_S = 600
_LIMIT = 50_000
"""Calls of one run; a run that makes more goes round in circles."""

_OUTCOMES = {"kill": FaultOutcome.CRASH, "fail": FaultOutcome.LOST_RESPONSE}

END = "end"
"""The place after the last call of an operation."""

LOCK = "lock"
"""The place before the table's lock is taken."""

Decide = Callable[["Actor", str, int], str | None]
"""From the running actor, the place that it stands at and how often its operation has stood there, from 1, to what happens."""


class Stuck(Exception):
    """A run that does not end."""


class Actor:
    """One process.  work: what it does; it calls `begin` before each of its operations."""

    def __init__(self, name: str, work: Callable[[Actor], None], seed: int) -> None:
        self.name = name
        self.work = work
        self.operation = 0
        self.random = random.Random(f"{seed}/{name}")
        self.fenced = False
        self.wakes_ms = 0
        self.frozen = False
        self.dead = False
        self.lost = False
        self.ended = False
        self.error: BaseException | None = None
        self.places: Counter[str] = Counter()
        self.requested: list[str] = []
        self.staged: list[str] = []
        self.stage: Stage | None = None
        self.baton = threading.Semaphore(0)
        self.thread: threading.Thread | None = None

    @property
    def beats(self) -> bool:
        """Whether its heartbeats and renewals run."""
        return not (self.dead or self.lost or self.frozen)

    def begin(self) -> None:
        """The next operation begins; `requested` lists from here on the instants of its writes, `staged` its tickets."""
        self.operation += 1
        self.places.clear()
        self.requested, self.staged = [], []

    def watch(self, number: int, call: StorageCall) -> Fault | None:
        """To be called before each storage call of this actor."""
        stage = self.stage
        if stage is None:
            return None
        self.crash_if_dead()
        if stage.running is not self or threading.current_thread() is not self.thread or stage.beating:
            return None
        if any(part in call.path for part in _QUIET):
            return None
        found = _REQUESTED.fullmatch(call.path.removeprefix(stage.prefix))
        if found is not None and call.operation == "put_if_absent":
            self.requested.append(found[1])
        ticket = _STAGED.fullmatch(call.path.removeprefix(stage.prefix))
        if ticket is not None and call.operation == "put":
            self.staged.append(ticket[1])
        return stage.arrive(self, place_of(call, stage.prefix))

    def crash_if_dead(self) -> None:
        if self.dead:
            raise SimulatedCrash("the process died earlier")


class Clock:
    """The time of all actors of a stage, and what they repeat."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.repetitions: list[_Repetition] = []


class ActorEnvironment:
    """The world as one actor sees it."""

    def __init__(self, actor: Actor, clock: Clock) -> None:
        self._actor = actor
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms

    def monotonic_ms(self) -> int:
        return self._clock.now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        stage = self._actor.stage
        if stage is None:
            self._clock.now_ms += duration_ms
        else:
            stage.sleep(self._actor, duration_ms)

    def uuid4(self) -> str:
        return str(uuid.UUID(bytes=self.token_bytes(16), version=4))

    def token_bytes(self, length: int) -> bytes:
        return self._actor.random.randbytes(length)

    def every_ms(self, interval_ms: int, task: Callable[[], bool | None]) -> _Repetition:
        repetition = _Repetition(self._actor, self._clock.now_ms + interval_ms, interval_ms, task)
        self._clock.repetitions.append(repetition)
        return repetition


class _Repetition:
    def __init__(self, actor: Actor, due_ms: int, interval_ms: int, task: Callable[[], bool | None]) -> None:
        self.actor = actor
        self.due_ms = due_ms
        self.interval_ms = interval_ms
        self.task = task
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class Stage:
    """Where actors run one at a time.

    prefix: the table's URI, which places omit.
    """

    def __init__(self, actors: Sequence[Actor], clock: Clock, prefix: str, decide: Decide) -> None:
        self.actors = {actor.name: actor for actor in actors}
        self.clock = clock
        self.prefix = prefix
        self.running: Actor | None = None
        self.beating = False
        self.steps = itertools.count(1)
        self.stuck = False
        self.closing = False
        self._decide = decide
        self._done = threading.Semaphore(0)

    def run(self) -> None:
        """Until every actor has ended, died or been lost.  Raises Stuck."""
        for actor in self.actors.values():
            actor.stage = self
            actor.thread = threading.Thread(target=self._live, args=(actor,), daemon=True)
            actor.thread.start()
        self._hand_to(next(iter(self.actors.values())))
        if not self._done.acquire(timeout=_PATIENCE_S) or self.stuck:
            raise Stuck("the run does not end")

    def close(self) -> None:
        """End the threads of actors that were lost."""
        self.closing = True
        for actor in self.actors.values():
            if not actor.ended and actor.thread is not None:
                actor.dead = True
                actor.baton.release()
                actor.thread.join(_PATIENCE_S)

    def advance(self, duration_ms: int) -> None:
        """Let time pass for everybody."""
        self._advance_to(self.clock.now_ms + duration_ms)

    def arrive(self, actor: Actor, place: str) -> Fault | None:
        """The running actor has come to a place: what was decided for it happens.  The fault is to strike at the call there."""
        actor.places[place] += 1
        if next(self.steps) > _LIMIT:
            self.stuck = True
            self._done.release()
            actor.baton.acquire()
        fenced, actor.fenced = actor.fenced, False
        act = self._decide(actor, place, actor.places[place])
        if act is None:
            return None
        what, _, how = act.partition(" ")
        if what in _OUTCOMES:
            actor.dead = what == "kill"
            return Fault(1, FaultPoint(how), _OUTCOMES[what])
        if what == "lost":
            actor.lost = True
            self._pass_on(actor)
        elif what == "freeze":
            # No lease protects from a suspension between the proof of the lease and what it was proven for.
            if not fenced:
                actor.frozen = True
                actor.wakes_ms = self.clock.now_ms + int(how)
                self._pass_on(actor)
                actor.frozen = False
        elif act in self.actors and act != actor.name and self._can_run(self.actors[act]):
            self._hand_to(self.actors[act])
            self._wait(actor)
        actor.crash_if_dead()
        return None

    def sleep(self, actor: Actor, duration_ms: int) -> None:
        if self.running is not actor or threading.current_thread() is not actor.thread:
            return
        actor.wakes_ms = self.clock.now_ms + duration_ms
        self._pass_on(actor)
        actor.crash_if_dead()

    def _live(self, actor: Actor) -> None:
        actor.baton.acquire()
        try:
            if not actor.dead:
                actor.work(actor)
        except SimulatedCrash:
            pass
        except BaseException as error:
            actor.error = error
        finally:
            actor.ended = True
            if not (self.stuck or self.closing):
                self._pass_on(None)

    def _can_run(self, actor: Actor) -> bool:
        return not (actor.ended or actor.dead or actor.lost) and actor.wakes_ms <= self.clock.now_ms

    def _pass_on(self, actor: Actor | None) -> None:
        """Let the next one run; return when `actor` may go on."""
        while True:
            ready = next((other for other in self.actors.values() if self._can_run(other)), None)
            if ready is not None:
                break
            waking = [other.wakes_ms for other in self.actors.values() if not (other.ended or other.dead or other.lost)]
            if not waking:
                self.running = None
                self._done.release()
                if actor is not None:
                    self._wait(actor)
                return
            self._advance_to(min(waking))
        if ready is actor:
            return
        self._hand_to(ready)
        if actor is not None:
            self._wait(actor)

    def _hand_to(self, actor: Actor) -> None:
        self.running = actor
        actor.baton.release()

    def _wait(self, actor: Actor) -> None:
        actor.baton.acquire()
        actor.crash_if_dead()

    def _advance_to(self, end_ms: int) -> None:
        clock = self.clock
        while True:
            clock.repetitions = [r for r in clock.repetitions if not r.stopped and not r.actor.dead]
            due = min((r for r in clock.repetitions if r.due_ms <= end_ms), key=lambda r: r.due_ms, default=None)
            if due is None:
                break
            clock.now_ms = max(clock.now_ms, due.due_ms)
            due.due_ms += due.interval_ms
            if due.actor.beats:
                self.beating, before = True, self.beating
                try:
                    due.task()
                finally:
                    self.beating = before
        clock.now_ms = max(clock.now_ms, end_ms)


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(-\d+)?")
_REQUESTED = re.compile(r"/?\.hoodie/timeline/(\d{17})\.(?:delta|replace)?commit\.requested")
_STAGED = re.compile(r"/?\.hoodie/\.group/([^/]+)\.arrow")
_TIME = re.compile(r"\d{17}")
_TOKEN = re.compile(r"_\d+-\d+-\d+")


def place_of(call: StorageCall, prefix: str) -> str:
    """A call without what differs between runs: `open_output a/F_W_T.parquet`, `put_if_absent .hoodie/timeline/T.inflight`."""
    path = call.path.removeprefix(prefix).lstrip("/")
    return f"{call.operation} {_TOKEN.sub('_W', _TIME.sub('T', _UUID.sub('F', path)))}"
