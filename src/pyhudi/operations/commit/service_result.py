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
class Ran:
    """Something was done.  what: in a few words; left: pending plans that were not carried out -> why."""

    what: str
    left: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return _with_left(f"run: {self.what}", self.left)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan stands on the timeline, for whoever comes first.  instant: its request time.  left: as of `Ran`."""

    instant: str
    left: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return _with_left(f"planned: {self.instant}", self.left)


@dataclass(frozen=True, slots=True)
class NotDue:
    """There was nothing to do.  reason: why.  left: as of `Ran`."""

    reason: str
    left: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return _with_left(f"not due: {self.reason}", self.left)


@dataclass(frozen=True, slots=True)
class Left:
    """It is due, and whoever was asked cannot do it.  to_whom: who will."""

    to_whom: str

    def __str__(self) -> str:
        return f"due: left to {self.to_whom}"


@dataclass(frozen=True, slots=True)
class Off:
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


Outcome = Ran | Planned | NotDue | Left | Off | Failed


@dataclass(frozen=True, slots=True)
class Runs(Generic[Run]):
    """What carrying out all that is pending, and what is due, came to.

    runs: what was carried out, in order.  left: plan -> why it was not.  planned: the new plan, None when there is none, and then
    `reason` says why.  seconds: by phase.
    """

    runs: tuple[Run, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    planned: str | None = None
    reason: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)

    def outcome(self, instants: Iterable[str], file_groups: int) -> Outcome:
        """instants, file_groups: of the runs."""
        if self.runs:
            return Ran(f"{', '.join(instants)}, {file_groups} file groups", self.left)
        if self.planned is not None:
            return Planned(self.planned, self.left)
        return NotDue(self.reason, self.left)


def _with_left(text: str, left: Mapping[str, str]) -> str:
    return "; ".join([text, *(f"{instant} not run, {why}" for instant, why in left.items())])
