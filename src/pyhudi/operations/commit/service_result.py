"""Outcomes of table services, as values. Each prints as the short text that results show.

    Executed   it ran                              run: ...
    Scheduled  it scheduled a plan                 planned: ...
    NotDue     there was nothing to do             not due: ...
    Deferred   it is due, but runs elsewhere       due: ...
    Disabled   it is disabled                      off: ...
    Failed     it raised an error                  failed: ...

The text then lists pending plans that were not run, each with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pyhudi.table.timeline.active_timeline import Timeline

Run = TypeVar("Run")
"""The result of running one plan."""


@dataclass(frozen=True, slots=True)
class Executed:
    """The service did something.

    Attributes:
        description: Short summary.
        remaining: Pending plans that were not run, with the reason for each.
        metadata_timeline: Timeline of the metadata table right after it, if known.
    """

    description: str
    remaining: Mapping[str, str] = field(default_factory=dict)
    metadata_timeline: Timeline | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return _with_remaining(f"run: {self.description}", self.remaining)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A plan was scheduled on the timeline, for any process to run.

    Attributes:
        instant: Request time of the plan.
        remaining: Pending plans that were not run, with the reason for each.
    """

    instant: str
    remaining: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return _with_remaining(f"planned: {self.instant}", self.remaining)


@dataclass(frozen=True, slots=True)
class NotDue:
    """There was nothing to do.

    Attributes:
        reason: Why nothing was due.
        remaining: Pending plans that were not run, with the reason for each.
    """

    reason: str
    remaining: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return _with_remaining(f"not due: {self.reason}", self.remaining)


@dataclass(frozen=True, slots=True)
class Deferred:
    """The service is due, but cannot run in this process.

    Attributes:
        handled_by: Component that will run it.
    """

    handled_by: str

    def __str__(self) -> str:
        return f"due: left to {self.handled_by}"


@dataclass(frozen=True, slots=True)
class Disabled:
    """The service is disabled.

    Attributes:
        reason: What disables it.
    """

    reason: str

    def __str__(self) -> str:
        return f"off: {self.reason}"


@dataclass(frozen=True, slots=True)
class Failed:
    """The service raised an error of the table or the store; the next attempt starts from scratch.

    Attributes:
        reason: The error.
    """

    reason: str

    def __str__(self) -> str:
        return f"failed: {self.reason}"


Outcome = Executed | Scheduled | NotDue | Deferred | Disabled | Failed


@dataclass(frozen=True, slots=True)
class RunSummary(Generic[Run]):
    """The outcome of running all pending plans and the plan that was due.

    Attributes:
        runs: Executed plans, in order.
        remaining: Pending plans that were not run, with the reason for each.
        planned: The newly scheduled plan, None if there is none.
        reason: Why no plan was scheduled.
        seconds: Seconds by phase.
    """

    runs: tuple[Run, ...] = ()
    remaining: Mapping[str, str] = field(default_factory=dict)
    planned: str | None = None
    reason: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)

    def outcome(self, instants: Iterable[str], file_groups: int) -> Outcome:
        """Convert to an `Outcome`; ``instants`` and ``file_groups`` describe the executed plans."""
        if self.runs:
            return Executed(f"{', '.join(instants)}, {file_groups} file groups", self.remaining)
        if self.planned is not None:
            return Scheduled(self.planned, self.remaining)
        return NotDue(self.reason, self.remaining)


def _with_remaining(text: str, remaining: Mapping[str, str]) -> str:
    return "; ".join([text, *(f"{instant} not run, {why}" for instant, why in remaining.items())])
