"""A schedule: which table, which operations of which actors, and what happens at which place.

    Schedule("cow kept", {"A": "upsert a1", "B": "upsert a1; upsert a2"}, ["A 1: put_if_absent .hoodie/timeline/T.inflight 1: B"])

A decision names the actor and the number of its operation, a place (see `actors`), how often the operation has come to it, and
what happens then; operations of an actor are parted by `; `. Its `repr` can be pasted into a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Schedule:
    """See the module.  seed: of ids; which world of another seed it is does not matter.  takes_back: whether the newest write is
    rolled back at the end.
    """

    world: str
    actors: Mapping[str, str]
    turns: Sequence[str] = field(default=())
    seed: int = 0
    takes_back: bool = False

    def __repr__(self) -> str:
        turns = "".join(f"        {turn!r},\n" for turn in self.turns)
        taken = "    takes_back=True,\n" if self.takes_back else ""
        actors = "".join(f"        {name!r}: {text!r},\n" for name, text in self.actors.items())
        return f"Schedule(\n    {self.world!r},\n    {{\n{actors}    }},\n    [\n{turns}    ],\n    seed={self.seed},\n{taken})"

    @property
    def operations(self) -> dict[str, tuple[str, ...]]:
        """The operations of each actor."""
        return {name: tuple(text.split("; ")) for name, text in self.actors.items()}


def format_decision(actor: str, operation: int, place: str, count: int, act: str) -> str:
    """A decision in the text form of a schedule."""
    return f"{actor} {operation}: {place} {count}: {act}"


def decisions(turns: Sequence[str]) -> dict[tuple[str, int, str, int], str]:
    """(actor, operation, place, count) -> what happens there."""
    found = {}
    for turn in turns:
        who, where, act = turn.split(": ")
        actor, operation = who.split(" ")
        place, _, count = where.rpartition(" ")
        found[actor, int(operation), place, int(count)] = act
    return found
