"""Interruptions (Ctrl-C) at chosen steps of chosen modules: KeyboardInterrupt, raised by a trace function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any


def count_steps(call: Callable[[], object], files: Iterable[str], *, opcodes: bool = False) -> int:
    """Number of steps that a call makes in files with these endings: lines, or bytecodes."""
    steps = _Steps(tuple(files), opcodes=opcodes, at=frozenset())
    steps.run(call)
    return steps.count


def interrupt(
    call: Callable[[], object], files: Iterable[str], *steps: int, opcodes: bool = False, where: list[str] | None = None
) -> bool:
    """Make a call and interrupt it before each of these steps, numbered from 1.  Whether KeyboardInterrupt reached the caller.

    where: takes the places of the interruptions, for messages.
    """
    watched = _Steps(tuple(files), opcodes=opcodes, at=frozenset(steps))
    try:
        watched.run(call)
    except KeyboardInterrupt:
        return True
    finally:
        if where is not None:
            where.extend(watched.places)
    return False


class _Steps:
    def __init__(self, files: tuple[str, ...], *, opcodes: bool, at: frozenset[int]) -> None:
        self.count = 0
        self.places: list[str] = []
        self._files = files
        self._opcodes = opcodes
        self._interrupted = at

    def run(self, call: Callable[[], object]) -> None:
        """Make a call and count its steps."""
        previous = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(previous)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith(self._files):
            return None
        frame.f_trace_opcodes = self._opcodes
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == ("opcode" if self._opcodes else "line"):
            self.count += 1
            if self.count in self._interrupted:
                self.places.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}")
                raise KeyboardInterrupt
        return self._step
