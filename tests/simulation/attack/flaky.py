"""A store that often does not respond, whether it has executed the request or not.

    python -m tests.simulation.attack.flaky --seed 1 --seconds 600

The rules and the tables are those of `tests.simulation.checker`: one or two writers whose calls
fail with the chance that the seed chooses.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable

from tests.simulation.checker.actors import END, LOCK, Actor
from tests.simulation.checker.explore import draw_actors
from tests.simulation.checker.quick import quickly
from tests.simulation.checker.run import Verdict, run
from tests.simulation.checker.schedules import Schedule
from tests.simulation.checker.worlds import WORLDS


def attack(seed: int) -> tuple[Schedule, Verdict]:
    """The run of a seed."""
    rng = random.Random(f"flaky {seed}")
    world = rng.choice(list(WORLDS))
    schedule = Schedule(world, dict(list(draw_actors(rng, world).items())[:2]), (), seed)
    return schedule, run(schedule, _failing(rng, list(schedule.actors)))


def _failing(rng: random.Random, names: list[str]) -> Callable[[Actor, str, int], str | None]:
    rate = rng.choice((0.02, 0.05, 0.1))

    def decide(actor: Actor, place: str, count: int) -> str | None:
        dice = rng.random()
        if dice >= rate:
            return rng.choice(names) if dice > 0.97 else None
        return None if place in (END, LOCK) else rng.choice(("fail before", "fail after"))

    return decide


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    end, seed, failures = time.monotonic() + options.seconds, options.seed, 0
    with quickly():
        while time.monotonic() < end:
            schedule, verdict = attack(seed)
            if not verdict.good:
                failures += 1
                print(f"seed {seed} {schedule!r}", *verdict.outcomes, *verdict.faults, sep="\n  ", flush=True)
            seed += 1
    print(f"seeds {options.seed} to {seed - 1}: {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
