"""The steps, in their order.  Each table kind is one chain: a step starts from the table that the steps before it left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("cow", "mor")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain.

    name: as users write it, with the table kind in front. method: of peers.base.Peer. batch: of data.py, for steps that write
    rows; `base` is bulk. answer: the key of Inputs.answers that the result must equal. state: the key of Inputs.states that the
    table must equal afterwards. fresh: in a process started for this step alone. reported: False for a step that only leads to
    others.
    """

    name: str
    kind: str
    method: str
    title: str
    batch: str | None = None
    answer: str | None = None
    state: str | None = None
    fresh: bool = False
    reported: bool = True

    @property
    def changes_rows(self) -> bool:
        return self.batch is not None


def _chain(kind: str) -> tuple[Step, ...]:
    def step(name: str, method: str, title: str, **more: object) -> Step:
        return Step(f"{kind}-{name}", kind, method, title, **more)  # type: ignore[arg-type]

    def write(name: str, method: str, title: str, **more: object) -> Step:
        batch = "base" if name == "bulk-insert" else name
        return step(name, method, title, batch=batch, state=batch, **more)

    upsert = "upsert"
    steps = [
        write("bulk-insert", "bulk_insert", "bulk insert of all rows"),
        write("upsert-1", upsert, "upsert of 1 %, 0.1 % inserts"),
        write("upsert-10", upsert, "upsert of 10 %, 0.1 % inserts"),
        write("delete", "delete", "delete of 0.1 % by key"),
        write("small", upsert, "upsert of 1,000 rows"),
        write("small-cold", upsert, "upsert of 1,000 rows, fresh process", fresh=True),
        step("track-changes", "track_changes", "", reported=False),
        write("last", upsert, "", reported=False),
        step("aggregate", "aggregate", "snapshot aggregate", answer="aggregate"),
        step("full-read", "full_read", "full read", answer="full-read"),
        step("filtered-read", "filtered_read", "filtered read", answer="filtered-read"),
        step("point-lookup", "point_lookup", "point lookup by key", answer="point-lookup"),
        step("incremental", "incremental", "incremental read of the last commit", answer="incremental"),
    ]
    if kind == "mor":
        steps.append(step("compaction", "compact", "compaction", state="last"))
    steps.append(step("clustering", "cluster", "clustering, sorted by l_shipdate", state="last"))
    steps.append(step("cleaning", "clean", "cleaning", state="last"))
    return tuple(steps)


CHAINS = {kind: _chain(kind) for kind in KINDS}
STEPS = tuple(step for chain in CHAINS.values() for step in chain)


def select(chain: Sequence[Step], patterns: Sequence[str]) -> tuple[Step, ...]:
    """The steps of a chain that a run with `--only patterns` takes: those asked for, and before them all that change rows or
    prepare them.

    A pattern names a step, or the beginning of several: `cow-upsert` is cow-upsert-1 and cow-upsert-10. No pattern: the whole
    chain.
    """
    wanted = [number for number, step in enumerate(chain) if is_wanted(step, patterns)]
    if not wanted:
        return ()
    needed = {number for number, step in enumerate(chain[: wanted[-1]]) if step.changes_rows or not step.reported}
    return tuple(step for number, step in enumerate(chain) if number in needed.union(wanted))


def is_wanted(step: Step, patterns: Sequence[str]) -> bool:
    if not step.reported:
        return False
    return not patterns or any(step.name == pattern or step.name.startswith(f"{pattern}-") for pattern in patterns)
