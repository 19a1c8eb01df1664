"""Progress reporting: a progress bar on a terminal, and no output otherwise.

Code that runs many tasks opens a stage and reports its progress; a reporter shows it. The default reporter draws a bar
on standard error once a stage has lasted a second, if that is a terminal and PYHUDI_PROGRESS is not `off`; it removes
the bar when the stage ends. `set_reporter` replaces it, or disables reporting.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Protocol

DELAY_S = 1.0
INTERVAL_S = 0.1
_WIDTH = 30


ShowProgress = Callable[[int, int], None]


class Reporter(Protocol):
    """Shows stages.  Called from several threads."""

    def begin(self, name: str) -> ShowProgress:
        """Begin a stage; the returned function takes the numbers of completed and of all tasks, and (-1, 0) at the end."""
        ...


class TerminalReporter:
    """A bar on a terminal.  stream: output; clock: monotonic seconds."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._mutex = threading.Lock()

    def begin(self, name: str) -> ShowProgress:
        started = self._clock()
        drawn = 0.0
        is_shown = False

        def show(done: int, total: int) -> None:
            nonlocal drawn, is_shown
            with self._mutex:
                now = self._clock()
                if done < 0:
                    if is_shown:
                        self._write("\r\x1b[2K")
                    is_shown = False
                elif now - started >= DELAY_S and now - drawn >= INTERVAL_S:
                    filled = _WIDTH * min(done, total) // max(total, 1)
                    bar = "#" * filled + "-" * (_WIDTH - filled)
                    self._write(f"\r\x1b[2K{name} [{bar}] {done:,}/{total:,} {now - started:.0f} s")
                    drawn, is_shown = now, True

        return show

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # A terminal that went away must not end the work.
            pass


_chosen: Reporter | None = None
_is_chosen = False


def set_reporter(reporter: Reporter | None) -> None:
    """Set the reporter of this process.

    Args:
        reporter: Receives the progress of stages; None disables reporting.
    """
    global _chosen, _is_chosen
    _chosen, _is_chosen = reporter, True


@contextmanager
def show_stage(name: str) -> Iterator[ShowProgress | None]:
    """Begin a stage whose figures the caller knows; None without a reporter."""
    reporter = _chosen if _is_chosen else _default()
    if reporter is None:
        yield None
        return
    show = reporter.begin(name)
    try:
        yield show
    finally:
        show(-1, 0)


@contextmanager
def stage(name: str, total: int) -> Iterator[Callable[[], None]]:
    """Begin a stage of `total` tasks; call the result when one of them completes, from any thread."""
    if total < 2:
        yield _no_progress
        return
    with show_stage(name) as show:
        if show is None:
            yield _no_progress
            return
        mutex = threading.Lock()
        done = 0

        def advance() -> None:
            nonlocal done
            with mutex:
                done += 1
                count = done
            show(count, total)

        yield advance


def stage_name(function: object) -> str:
    """Return the name of a stage that runs this function: `run_log_headers` becomes `log headers`."""
    name = str(getattr(function, "__name__", "tasks"))
    return "tasks" if name.startswith("<") else name.strip("_").removeprefix("run_").replace("_", " ")


def _no_progress() -> None:
    pass


def _default() -> Reporter | None:
    stream = sys.stderr
    if stream is None or os.environ.get("PYHUDI_PROGRESS", "").lower() in ("off", "0", "false", "no"):
        return None
    try:
        return TerminalReporter(stream) if stream.isatty() else None
    except ValueError:
        # It was closed.
        return None
