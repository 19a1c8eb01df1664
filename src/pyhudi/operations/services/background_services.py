"""Passes of table services, again and again: in a thread of the writer or in a process.

    loop        a pass, then a rest, until told to stop; what is being carried out is finished first
    thread      `BackgroundServices`: the loop beside a writer, woken after its commits

Errors of the table or the store end one service of one pass; any other error ends the loop.

Source: docs/formats/writing.md, "Deployment".
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from pyhudi.errors import InvalidRequest

Printed = Mapping[str, str]
"""Service -> what it came to, as users see it: `run: ...`, `not due: ...`, `off: ...` or `failed: ...`."""


def run_loop(
    run: Callable[[], Printed], stop: threading.Event, pause_seconds: float, wake_event: threading.Event | None = None
) -> None:
    """Make passes until `stop` is set, resting between them.  wake: ends a rest early; whoever sets `stop` sets it as well."""
    signal = wake_event or stop
    while not stop.is_set():
        run()
        signal.wait(pause_seconds)
        if wake_event is not None:
            wake_event.clear()


@dataclass(slots=True)
class BackgroundServices:
    """Services in a thread beside a writer, from `start` to `stop`, or for a `with` block.

    run: makes one pass; its argument is asked whether to go on.  names: the services that the thread runs.  on_stop: called when
    the thread has ended.  last: the outcomes of the newest pass that ended.

    The thread ends with the process: what it is at then is taken up by the next one that looks, as after a crash.
    """

    run: Callable[[Callable[[], bool]], Printed]
    names: frozenset[str]
    pause_seconds: float
    on_stop: Callable[[], None]
    last: Printed = field(default_factory=dict)
    runs: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _wake: threading.Event = field(default_factory=threading.Event)
    _leave: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None
    _thread: threading.Thread | None = None
    _process: int = field(default_factory=os.getpid)

    @property
    def is_own_process(self) -> bool:
        """False in a child of fork, where the thread is not."""
        return self._process == os.getpid()

    def start(self) -> Self:
        """Start the thread."""
        if self._thread is not None:
            raise InvalidRequest("these services run already")
        self._thread = threading.Thread(target=self._work, name="pyhudi-services", daemon=True)
        self._thread.start()
        return self

    def notify(self) -> None:
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

    def stop(self, *, finish: bool = True) -> Printed:
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
            run_loop(self._pass, self._stop, self.pause_seconds, self._wake)
            if not self._leave.is_set():
                self._pass()
        except BaseException as error:
            self._error = error

    def _pass(self) -> Printed:
        self.last = self.run(lambda: not self._leave.is_set())
        self.runs += 1
        return self.last
