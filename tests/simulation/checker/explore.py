"""Random schedules, and small ones from those that fail.

    python -m tests.simulation.checker.explore --seed 1 --seconds 600 [--worlds "cow,mor kept"]

The schedule of a seed is always the same: which table, which operations, and what happens at which place are drawn from it, and
what was decided is kept as a list of decisions, so that the run can be repeated without the seed and made smaller.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.simulation.checker.actors import END, LOCK, Actor
from tests.simulation.checker.quick import quickly
from tests.simulation.checker.run import Verdict, replay, run
from tests.simulation.checker.schedules import Schedule, format_decision
from tests.simulation.checker.worlds import WORLDS

_KEYS = ("a1", "a2", "a3", "b1", "a7", "b7")
_FAULTS = (
    "kill before",
    "kill during",
    "kill after",
    "lost",
    "fail before",
    "fail after",
    "freeze 62000",
    "freeze 130000",
    "freeze 400000",
)
_LIMITS = (0, 1, 10, 20, 1000, 1101, 2000, 2101, 3000)


@dataclass(frozen=True)
class Found:
    """A schedule that fails, and how."""

    schedule: Schedule
    verdict: Verdict


def explore_one(seed: int, worlds: Sequence[str]) -> Found:
    """Draw the schedule of a seed, run it, and return the result; the schedule has the decisions of the run."""
    rng = random.Random(seed)
    world = worlds[seed % len(worlds)]
    schedule = Schedule(
        world, draw_actors(rng, world), (), seed, takes_back=rng.random() < 0.2 and not WORLDS[world].groups_writes
    )
    turns: list[str] = []
    verdict = run(schedule, _drawing(rng, schedule, turns), thorough=seed % 4 == 0)
    return Found(replace(schedule, turns=turns), verdict)


def shrink(found: Found, *, runs: int = 300) -> Found:
    """A schedule with fewer decisions and operations that still fails in the same way, found with so many runs at most."""
    best, kind = found, kind_of(found.verdict)
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(best.schedule):
            if runs <= 0:
                return best
            runs -= 1
            try:
                verdict = replay(smaller)
            except (KeyError, ValueError, AssertionError):
                continue
            if not verdict.good and kind_of(verdict) == kind:
                best, changed = Found(smaller, verdict), True
                break
    return best


def kind_of(verdict: Verdict) -> str:
    """The first fault without what differs between runs: two failures of one kind are taken for one."""
    text = (verdict.faults[0] if verdict.faults else "").partition(" [")[0]
    words = [word for word in text.replace("\n", " ").split(" ") if not any(character.isdigit() for character in word)]
    return " ".join(words)[:200]


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    turns = list(schedule.turns)
    size = (len(turns) + 1) // 2
    while size >= 1:
        for at in range(0, len(turns), size):
            yield replace(schedule, turns=turns[:at] + turns[at + size :])
        size //= 2
    operations = schedule.operations
    for name in operations:
        if len(operations) > 1:
            yield replace(
                schedule,
                actors={n: text for n, text in schedule.actors.items() if n != name},
                turns=[t for t in turns if not t.startswith(f"{name} ") and not t.endswith(f": {name}")],
            )
        for number in range(len(operations[name]), 0, -1):
            if len(operations[name]) > 1:
                yield _without(schedule, name, number)
    for name, texts in operations.items():
        for number, text in enumerate(texts):
            for simpler in _simpler(text):
                changed = "; ".join([*texts[:number], simpler, *texts[number + 1 :]])
                yield replace(schedule, actors={**schedule.actors, name: changed})


def _without(schedule: Schedule, name: str, number: int) -> Schedule:
    texts = schedule.operations[name]
    turns = []
    for turn in schedule.turns:
        head, _, rest = turn.partition(": ")
        who, _, which = head.partition(" ")
        if who == name and int(which) == number:
            continue
        turns.append(f"{who} {int(which) - 1}: {rest}" if who == name and int(which) > number else turn)
    left = "; ".join(texts[: number - 1] + texts[number:])
    return replace(schedule, actors={**schedule.actors, name: left}, turns=turns)


def _simpler(text: str) -> Iterator[str]:
    body, _, extra = text.partition(" | ")
    words = extra.split()
    for at, word in enumerate(words):
        # Without it the operation would mean something else.
        if word != "drop":
            left = " ".join([*words[:at], *words[at + 1 :]])
            yield f"{body} | {left}" if left else body
    method, *keys = body.split()
    if method == "widen" and len(keys) > 2:
        for at in range(len(keys) - 1):
            yield " ".join([method, *keys[:at], *keys[at + 1 :]])
    if method in ("upsert", "insert", "bulk_insert", "insert_overwrite", "delete") and len(keys) > 1:
        for at in range(len(keys)):
            left = " ".join([method, *keys[:at], *keys[at + 1 :]])
            yield f"{left} | {extra}" if extra else left


def draw_actors(rng: random.Random, world: str) -> dict[str, str]:
    """The operations of two or three actors."""
    count = rng.choice((3, 3, 4) if WORLDS[world].groups_writes else (2, 2, 2, 3))
    long = rng.random() < 0.3
    actors = {}
    for name in "ABCD"[:count]:
        # Many operations during one slow operation make its snapshot old.
        length = rng.randint(3, 6) if long and name == "B" else rng.randint(1, 2)
        actors[name] = "; ".join(_draw_operation(rng, world, name, number) for number in range(1, length + 1))
    return actors


def _draw_operation(rng: random.Random, world: str, actor: str, number: int) -> str:
    mor = WORLDS[world].kind == "mor"
    buckets, waits = WORLDS[world].has_buckets, WORLDS[world].waits
    fresh = " ".join(f"{rng.choice('ab')}{actor}{number}{place}" for place in range(rng.randint(1, 2)))
    some = " ".join(sorted(rng.sample(_KEYS, rng.choice((1, 1, 2, 3)))))
    choices: list[tuple[int, str]] = [
        (30, f"upsert {some}"),
        (4, f"insert {fresh}"),
        (3, f"bulk_insert {fresh}"),
        (6, f"delete {some}"),
        (5, f"delete_where v {rng.choice(('>=', '<='))} {rng.choice(_LIMITS)}"),
        (3, f"delete_partitions {rng.choice('ab')}"),
        (3, f"insert_overwrite {some}"),
        (8, f"scan v >= {rng.choice(_LIMITS)}" if rng.random() < 0.5 else "scan"),
        (4, "rollback"),
        (3, "clean"),
        (3, "archive"),
        (5, "services"),
        (3, "travel"),
        (3, "poll"),
        (3, "savepoint"),
        (2, "restore"),
        (4, f"widen {some} {rng.choice(('int', 'long'))}"),
    ]
    if mor and WORLDS[world].ordering is not None:
        # A delete without an ordering value has no place among records that have one.
        kept = () if waits else ("delete_partitions",)
        choices = [(weight, text) for weight, text in choices if not text.startswith("delete") or text.startswith(kept)]
    if WORLDS[world].groups_writes:
        # A rollback of a commit rolls back every write in it, and the history of a run has one instant for each write.
        choices = [
            (weight, text)
            for weight, text in choices
            if not text.startswith(("rollback", "travel", "poll", "savepoint", "restore"))
        ]
        choices += [(40, f"upsert {some}"), (6, f"insert {fresh}")]
        if not (mor and WORLDS[world].ordering is not None):
            choices.append((10, f"delete {some}"))
    if not waits:
        choices = [(weight, text) for weight, text in choices if not text.startswith("insert_overwrite")]
    if not buckets:
        choices += [(6, "cluster"), (3, "schedule_clustering"), (3, "services cluster")]
        if not mor:
            choices.append((4, f"insert {some} | drop"))
    if mor:
        choices += [(6, "compact"), (4, "schedule_compaction"), (2, "log_compact"), (3, "services compact")]
    if "metadata" in world:
        choices += [(4, "index column_stats v"), (3, "index record_index"), (2, "index bloom_filters")]
    text = rng.choices([text for _, text in choices], [weight for weight, _ in choices])[0]
    extra = []
    apart = 0.1 if WORLDS[world].groups_writes else 0.5
    if text.startswith(("upsert", "insert ")) and not buckets and rng.random() < apart:
        extra.append("apart")
    if text.startswith(("upsert", "delete", "insert_overwrite")) and rng.random() < 0.2:
        extra.append(rng.choice(("lenient", "lenient dropping")))
    if not extra:
        return text
    body, _, given = text.partition(" | ")
    return f"{body} | {' '.join([*given.split(), *extra])}"


def _drawing(rng: random.Random, schedule: Schedule, turns: list[str]) -> Callable[[Actor, str, int], str | None]:
    """Decisions drawn from a seed, and recorded."""
    rate = rng.choice((0.01, 0.03, 0.1, 0.3))
    faults = rng.choice((0, 0, 1, 1, 2, 3))
    names = list(schedule.actors)

    def decide(actor: Actor, place: str, count: int) -> str | None:
        nonlocal faults
        # What others see of an operation changes at the timeline, and what it sees of them is read there.
        weight = (
            4.0 if "timeline/" in place and not place.startswith("read") else 2.0 if place == "list .hoodie/timeline" else 1.0
        )
        if rng.random() >= rate * weight:
            return None
        act: str | None = rng.choice(names)
        if faults and rng.random() < 0.3:
            act = rng.choice(_FAULTS)
            if place in (END, LOCK) and act.startswith(("kill", "fail")):
                act = None
        if act is None or act == actor.name:
            return None
        faults -= act in _FAULTS
        turns.append(format_decision(actor.name, actor.operation, place, count, act))
        return act

    return decide


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule; the next ones count on")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--keep-all", action="store_true", help="show every failure, not the first of each kind")
    options = parser.parse_args()
    worlds = options.worlds.split(",")
    with quickly():
        sys.exit(_explore(options, worlds))


def _explore(options: argparse.Namespace, worlds: Sequence[str]) -> int:
    end, seed = time.monotonic() + options.seconds, options.seed
    kinds: dict[str, int] = {}
    while time.monotonic() < end:
        found = explore_one(seed, worlds)
        if not found.verdict.good:
            kind = kind_of(found.verdict)
            kinds[kind] = kinds.get(kind, 0) + 1
            if kinds[kind] == 1 or options.keep_all:
                small = shrink(found)
                print(f"seed {seed}\n{small.schedule!r}")
                for text in (*small.verdict.outcomes, *(f"FAULT {fault}" for fault in small.verdict.faults)):
                    print(f"  {text}")
                print(flush=True)
        seed += 1
    print(f"{seed - options.seed} schedules, seeds {options.seed} to {seed - 1}")
    for kind, count in sorted(kinds.items(), key=lambda item: -item[1]):
        print(f"{count:6} {kind}")
    return 1 if kinds else 0


if __name__ == "__main__":
    main()
