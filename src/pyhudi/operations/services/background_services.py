"""Background table services: repeated service runs, in a thread of the writer or in a process.

    loop        a service run, then a pause, until it is stopped; a running plan is finished first
    thread      `BackgroundServices`: the loop in a thread of a writer, notified after its commits

An error of the table or the store ends one service of one run; any other error ends the loop.

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

ServiceOutcomes = Mapping[str, str]
"""Outcome by service, as shown to users: `run: ...`, `not due: ...`, `off: ...` or `failed: ...`."""


def run_loop(
    run: Callable[[], ServiceOutcomes], stop: threading.Event, pause_seconds: float, wake_event: threading.Event | None = None
) -> None:
    """Run services until ``stop`` is set, with pauses in between.

    Args:
        run: Makes one service run.
        stop: Ends the loop.
        pause_seconds: Pause between runs.
        wake_event: Ends a pause early; set it together with ``stop``.
    """
    signal = wake_event or stop
    while not stop.is_set():
        run()
        signal.wait(pause_seconds)
        if wake_event is not None:
            wake_event.clear()


@dataclass(slots=True)
class BackgroundServices:
    """Table services in a thread of a writer, from `start` to `stop`, or for a `with` block.

    The thread ends with the process. The next process that runs services then continues its work, as after a crash.

    Attributes:
        run: Makes one service run; its argument returns False to stop early.
        names: Services that the thread runs.
        pause_seconds: Pause between runs.
        on_stop: Called when the thread has ended.
        last: Outcomes of the newest finished run.
        runs: Number of finished runs.
    """

    run: Callable[[Callable[[], bool]], ServiceOutcomes]
    names: frozenset[str]
    pause_seconds: float
    on_stop: Callable[[], None]
    last: ServiceOutcomes = field(default_factory=dict)
    runs: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _wake: threading.Event = field(default_factory=threading.Event)
    _leave: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None
    _thread: threading.Thread | None = None
    _process: int = field(default_factory=os.getpid)

    @property
    def is_own_process(self) -> bool:
        """False in a forked child, which has no such thread."""
        return self._process == os.getpid()

    def start(self) -> Self:
        """Start the thread."""
        if self._thread is not None:
            raise InvalidRequest("these services are already running")
        self._thread = threading.Thread(target=self._work, name="pyhudi-services", daemon=True)
        self._thread.start()
        return self

    def notify(self) -> None:
        """Notify the thread of a commit, so that it checks at once what is due. Raises the error that ended the thread."""
        self.check()
        self._wake.set()

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._error is not None:
            raise self._error

    @property
    def running(self) -> bool:
        """True while the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, *, finish: bool = True) -> ServiceOutcomes:
        """Stop the thread and wait for it; a running plan is finished.

        Args:
            finish: Make one more run first, so that everything that is pending now is done.

        Returns:
            The outcomes of the last run.

        Raises:
            The error that ended the thread, if any.
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
            error.add_note(f"the background services had failed as well: {failure}")

    def _work(self) -> None:
        try:
            run_loop(self._pass, self._stop, self.pause_seconds, self._wake)
            if not self._leave.is_set():
                self._pass()
        except BaseException as error:
            self._error = error

    def _pass(self) -> ServiceOutcomes:
        self.last = self.run(lambda: not self._leave.is_set())
        self.runs += 1
        return self.last
