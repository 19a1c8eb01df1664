"""Random tables and random work on them, against dictionaries.

    python -m tests.simulation.attack.random_tables.explore --seed 1 --seconds 600

What a seed does is always the same.  A run that fails is made smaller: fewer steps, fewer options; and is printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyhudi.errors import HudiError
from tests.simulation.attack.random_tables.read_checks import Held, check_reads
from tests.simulation.attack.random_tables.run import Run, Step
from tests.simulation.attack.random_tables.steps import STEPS, WEIGHTS
from tests.simulation.attack.random_tables.table_generator import Drawn, draw_table, of_types, over_files, without_waiting
from tests.simulation.checker.quick import quickly


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    drawn: Drawn
    steps: tuple[Step, ...]
    seed: int


@dataclass(frozen=True)
class Failure:
    """What went wrong.  kind: without what differs between runs."""

    kind: str
    text: str
    did: tuple[str, ...]


# Who may be met in the midst of a step, and what may come then.  Inserts that look no keys up would bring one twice, and what
# changes columns has other rows ready than those which it would send after another such change.
_FIRST = (
    *("upsert", "delete", "delete_where", "update", "merge", "partial", "overwrite", "delete_partitions", "missing"),
    *("compact", "cluster", "run_pending_plan", "log_compact"),
)
_BESIDE = (
    *_FIRST,
    *("plan_compaction", "clean", "archive", "services", "savepoint", "restore", "roll_back"),
    *("index", "index_pending", "drop_index", "expire", "days"),
)


def with_meetings(drawn: Drawn, rng: random.Random, steps: tuple[Step, ...], share: float) -> tuple[Step, ...]:
    """Some of the steps are met by others."""
    found = []
    for step in steps:
        if step.name in _FIRST and not step.crash and rng.random() < share:
            names = rng.choices(_BESIDE, [WEIGHTS[STEPS[name]] for name in _BESIDE], k=rng.choice((1, 1, 2)))
            if drawn.moves:
                names = [name for name in names if name != "overwrite"]
            others = tuple(Step(name, rng.getrandbits(32)) for name in names)
            # What was chosen by a condition goes by event time there, also where it does not hold any more.
            chosen = step.name == "delete_where" and "NON_BLOCKING" in drawn.options.get("hoodie.write.concurrency.mode", "")
            if not (drawn.moves and step.name == "overwrite") and not chosen:
                step = replace(step, met=others, at=round(2 ** rng.uniform(0, 7.5)))
        found.append(step)
    return tuple(found)


# Parts that meet often in a run of this theme; all others come, too.
THEMES = {
    "versions": ("change_version", "compact", "cluster", "restore", "roll_back", "archive"),
    "restores": ("savepoint", "restore", "roll_back", "clean", "archive"),
    "columns": ("new_column", "wider", "evolve", "deeper", "missing", "alter", "compact", "cluster", "index"),
    "partitions": (
        *("delete_partitions", "overwrite", "expire", "plan_compaction", "cluster", "run_pending_plan", "archive", "days"),
    ),
    "types": ("upsert", "merge", "update", "partial", "compact", "cluster", "index"),
    "non-blocking": ("upsert", "delete", "compact", "plan_compaction", "run_pending_plan", "clean", "archive"),
    "bootstrap": ("update", "merge", "cluster", "compact", "restore"),
}


def plan_of(seed: int, length: int = 25, meetings: float = 0.0, theme: str | None = None) -> Plan:
    """The run of a seed.  meetings: the share of steps that others meet; theme: of THEMES, three of which make the table so."""
    rng = random.Random(seed)
    drawn = draw_table(rng)
    if theme == "bootstrap":
        drawn = over_files(drawn)
    if theme == "non-blocking":
        drawn = without_waiting(drawn, rng)
    if theme == "types":
        drawn = of_types(drawn, rng)
    often = THEMES.get(theme or "", ())
    names = [maker.__name__ for maker in WEIGHTS for _ in range(4 if maker.__name__ in often else 1)]
    weights = [WEIGHTS[STEPS[name]] for name in names]
    crashing = rng.random() < 0.5
    steps = [Step("upsert", rng.getrandbits(32))]
    for name in rng.choices(names, weights, k=length):
        dies = crashing and rng.random() < 0.2
        steps.append(
            Step(name, rng.getrandbits(32), rng.randint(1, 40) if dies else 0, rng.choice(("before", "during", "after")))
        )
    if drawn.merges == "first" and drawn.is_mor:
        # What ties with a delete that came between is older than the base row that the log had deleted.
        meetings = 0
    return Plan(drawn, with_meetings(drawn, random.Random(seed), tuple(steps), meetings), seed)


def run_plan(plan: Plan, refusals: Counter[str] | None = None) -> Failure | None:
    """Execute the plan, and return what went wrong, if anything."""
    run = None
    try:
        run = Run(plan.drawn, plan.seed)
        for step in plan.steps:
            held = Held(run, random.Random(step.seed + 2))
            run.take(step)
            held.check_reads()
            check_reads(run, random.Random(step.seed + 1))
        check_reads(run, random.Random(plan.seed), all_of_them=True)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        inner = [frame for frame in frames if "/pyhudi/" in frame.filename]
        place = f"{inner[-1].filename.rsplit('/', 1)[-1]}:{inner[-1].name}" if inner else ""
        notes = "; ".join(getattr(error, "__notes__", []))
        words = [word for word in str(error).split("\n")[0].split() if not any(c.isdigit() for c in word)]
        kind = f"{type(error).__name__} {place} {notes} {' '.join(words)[:100]}"
        text = "".join(traceback.format_exception(error)[-12:]) + notes
        return Failure(kind, text, tuple(run.did) if run else ())
    finally:
        if run is not None:
            if refusals is not None:
                refusals.update(" ".join(w for w in text.split() if not any(c.isdigit() for c in w)) for text in run.refusals)
            run.close()
    return None


def shrink(plan: Plan, failure: Failure, runs: int = 150) -> tuple[Plan, Failure]:
    """A smaller plan that fails in the same way."""
    changed = True
    while changed and runs > 0:
        changed = False
        for smaller in _smaller(plan):
            runs -= 1
            if runs <= 0:
                break
            found = run_plan(smaller)
            if found is not None and found.kind == failure.kind:
                plan, failure, changed = smaller, found, True
                break
    return plan, failure


def _smaller(plan: Plan) -> Iterator[Plan]:
    steps, size = plan.steps, (len(plan.steps) + 1) // 2
    while size >= 1:
        for at in range(len(steps) - size, 0, -size):
            yield replace(plan, steps=steps[:at] + steps[at + size :])
        size //= 2
    for at, step in enumerate(steps):
        if step.met:
            yield replace(plan, steps=(*steps[:at], replace(step, met=()), *steps[at + 1 :]))
        if step.crash:
            yield replace(plan, steps=(*steps[:at], replace(step, crash=0), *steps[at + 1 :]))
    for name in plan.drawn.options:
        left = {key: value for key, value in plan.drawn.options.items() if key != name}
        if name not in ("pyhudi.threads", "hoodie.metadata.enable", "hoodie.index.type"):
            yield replace(plan, drawn=replace(plan.drawn, options=left))


def report(plan: Plan, failure: Failure) -> str:
    """The run as text."""
    lines = [f"SEED {plan.seed}: {failure.kind}", f"  {plan.drawn}", f"  steps={plan.steps!r}"]
    return "\n".join([*lines, *(f"    {text}" for text in failure.did), failure.text])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--runs", type=int, default=10**9)
    parser.add_argument("--steps", type=int, default=25, help="of a run")
    parser.add_argument("--rule", help="only runs with this merge rule")
    parser.add_argument("--meetings", type=float, default=0.0, help="the share of steps that are met by others")
    parser.add_argument("--theme", choices=sorted(THEMES), help="what comes often")
    parser.add_argument("--no-shrink", action="store_true")
    given = parser.parse_args(arguments)
    end, seed, kinds, refusals = time.monotonic() + given.seconds, given.seed, Counter[str](), Counter[str]()
    runs = steps = 0
    while time.monotonic() < end and seed < given.seed + given.runs:
        plan = plan_of(seed, given.steps, given.meetings, given.theme)
        if given.rule not in (None, plan.drawn.merges):
            seed += 1
            continue
        runs, steps = runs + 1, steps + len(plan.steps)
        failure = run_plan(plan, refusals)
        if failure is not None:
            kinds[failure.kind] += 1
            if kinds[failure.kind] == 1:
                smaller = (plan, failure) if given.no_shrink else shrink(plan, failure)
                print(report(*smaller), flush=True)
            else:
                print(f"SEED {seed} again: {failure.kind}", flush=True)
        seed += 1
    print(f"{runs} runs of {steps} steps, {sum(kinds.values())} failed")
    for kind, count in kinds.most_common():
        print(f"{count:5} {kind}")
    print("refusals")
    for kind, count in refusals.most_common(60):
        print(f"{count:5} {kind}")
    return 1 if kinds else 0


__all__ = ["HudiError", "Plan", "run_plan", "plan_of"]

if __name__ == "__main__":
    with quickly():
        sys.exit(main())
