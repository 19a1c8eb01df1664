"""What a service came to, as a value; it prints as the few words that results and passes show.

    Ran        it did something          run: ...
    Planned    it left a plan to others  planned: ...
    NotDue     there was nothing to do   not due: ...
    Left       it is due, and not here   due: ...
    Off        it is switched off        off: ...
    Failed     it raised                 failed: ...

Plans that were met and not carried out stand behind the first words, each with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Run = TypeVar("Run")
"""What carrying one plan out came to."""


@dataclass(frozen=True, slots=True)
class Executed:
    """Something was done.  description: in a few words; remaining: pending plans that were not carried out -> why."""

    description: str
    remaining: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return _with_left(f"run: {self.description}", self.remaining)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A plan stands on the timeline, for whoever comes first.  instant: its request time.  remaining: as of `Executed`."""

    instant: str
    remaining: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return _with_left(f"planned: {self.instant}", self.remaining)


@dataclass(frozen=True, slots=True)
class NotDue:
    """There was nothing to do.  reason: why.  remaining: as of `Executed`."""

    reason: str
    remaining: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return _with_left(f"not due: {self.reason}", self.remaining)


@dataclass(frozen=True, slots=True)
class Deferred:
    """It is due, and whoever was asked cannot do it.  handled_by: who will."""

    handled_by: str

    def __str__(self) -> str:
        return f"due: left to {self.handled_by}"


@dataclass(frozen=True, slots=True)
class Disabled:
    """It is switched off.  reason: by what."""

    reason: str

    def __str__(self) -> str:
        return f"off: {self.reason}"


@dataclass(frozen=True, slots=True)
class Failed:
    """It raised an error of the table or the store; the next attempt starts anew.  reason: which."""

    reason: str

    def __str__(self) -> str:
        return f"failed: {self.reason}"


Outcome = Executed | Scheduled | NotDue | Deferred | Disabled | Failed


@dataclass(frozen=True, slots=True)
class RunSummary(Generic[Run]):
    """What carrying out all that is pending, and what is due, came to.

    runs: what was carried out, in order.  remaining: plan -> why it was not.  planned: the new plan, None when there is none, and
    then `reason` says why.  seconds: by phase.
    """

    runs: tuple[Run, ...] = ()
    remaining: Mapping[str, str] = field(default_factory=dict)
    planned: str | None = None
    reason: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)

    def outcome(self, instants: Iterable[str], file_groups: int) -> Outcome:
        """instants, file_groups: of the runs."""
        if self.runs:
            return Executed(f"{', '.join(instants)}, {file_groups} file groups", self.remaining)
        if self.planned is not None:
            return Scheduled(self.planned, self.remaining)
        return NotDue(self.reason, self.remaining)


def _with_left(text: str, remaining: Mapping[str, str]) -> str:
    return "; ".join([text, *(f"{instant} not run, {why}" for instant, why in remaining.items())])
