"""The benchmark as data: scenarios with their steps, systems, sizes and rounds in two profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.data import Inputs, load_lineitem, load_rows

PROFILES = ("quick", "full")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain; it begins with the table that the steps before it left.

    Attributes:
        method: Of `peers.base.Peer`.
        batch: Rows that it writes; the table is compared afterwards.
        answer: Query whose expected answer its result must equal.
        reported: False for a step that only prepares others.
        quick: Whether the quick profile has it.
        fresh: Executed in a new process, in the first round.
        once: Executed in the first round of a scenario that keeps its tables.
        kept: Reads reuse one opened table.
        history: Repeated until the table has as many commits as the size.
        arguments: Of the method; `axis`, `size` and `round` are replaced.
        systems: Those that execute it; all if empty.
    """

    name: str
    method: str
    title: str = ""
    batch: str = ""
    answer: str = ""
    reported: bool = True
    quick: bool = True
    fresh: bool = False
    once: bool = False
    kept: bool = False
    history: bool = False
    arguments: tuple[object, ...] = ()
    systems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Chains of steps, one for each size and table type.

    Attributes:
        sizes: Scales of lineitem, or numbers of what `axis` names.
        rounds: Of the quick and the full profile; the quick profile omits the scenario if 0.
        rebuild: Whether each round begins with new tables; otherwise only the first.
    """

    name: str
    title: str
    systems: tuple[str, ...]
    steps: Mapping[str, tuple[Step, ...]]
    rounds: tuple[int, int]
    sizes: tuple[float, ...] = (0.25,)
    axis: str = ""
    rebuild: bool = False

    @property
    def is_curve(self) -> bool:
        return self.name.startswith("curve-")

    def inputs(self, size: float) -> Inputs | None:
        """The rows of one size; None for tables of metadata alone."""
        count = int(size)
        # Rows, changed rows, partitions, columns.
        shapes = {
            "rows": (count, 1000, 7, 8),
            "commits": (100, 10, 1, 8),
            "partitions": (10 * count, 10, count, 8),
            "columns": (2000, 100, 1, count),
            "logs": (1000, 10, 1, 8),
            "keys": (count, 10, 7, 1),
            "rows of the table": (count, 10, 1, 8),
        }
        if not self.axis:
            return load_lineitem(size)
        return load_rows(*shapes[self.axis]) if self.axis in shapes else None


def _upsert(name: str, title: str, **more: Any) -> Step:
    return Step(name, "upsert", title, batch=name, **more)


def _read(name: str, title: str, answer: str = "", method: str = "", systems: tuple[str, ...] = (), **more: Any) -> Step:
    return Step(name, method or name.replace("-", "_"), title, answer=answer or name, systems=systems, **more)


BASE = Step("base", "bulk_insert", batch="base", reported=False, once=True)
TRACK = Step("track-changes", "track_changes", reported=False, once=True)
BULK_INSERT = Step("bulk-insert", "bulk_insert", "bulk insert of all rows", batch="base", once=True)
ONE_PERCENT = _upsert("upsert-1", "upsert of 1 %, 0.1 % inserts")
SMALL = _upsert("small", "upsert of 1,000 rows")
FULL_READ = _read("full-read", "full read")
FILTERED_READ = _read("filtered-read", "filtered read")
INCREMENTAL = _read("incremental", "incremental read of the last commit")
COMPACTION = Step("compaction", "compact", "compaction")


def _steps(*, cow: bool) -> tuple[Step, ...]:
    return (
        BULK_INSERT,
        replace(ONE_PERCENT, quick=cow),
        _upsert("upsert-10", "upsert of 10 %, 0.1 % inserts"),
        Step("delete", "delete", "delete of 0.1 % by key", batch="delete", quick=False),
        SMALL,
        _upsert("small-cold", "upsert of 1,000 rows, new process", quick=False, fresh=True),
        TRACK,
        _upsert("last", "", reported=False),
        _read("aggregate", "snapshot aggregate", quick=cow),
        FULL_READ,
        replace(FILTERED_READ, quick=cow),
        _read("point-lookup", "point lookup by key", quick=cow),
        INCREMENTAL,
        *(() if cow else (COMPACTION,)),
        Step("clustering", "cluster", "clustering, sorted by l_shipdate", quick=False),
        Step("cleaning", "clean", "cleaning", quick=False),
    )


_READERS = ("pyhudi", "delta-rs", "hudi-rs", "polars", "duckdb")
_READS = (
    BASE,
    TRACK,
    replace(ONE_PERCENT, reported=False, once=True),
    _read("sql-aggregate", "`hp.sql`, aggregate of 5 columns", "aggregate", systems=_READERS),
    _read("sql-filter", "`hp.sql`, filter on partition and quantity", "filtered-read", systems=_READERS),
    _read("polars-aggregate", "`hp.scan_polars`, aggregate", "aggregate", systems=_READERS),
    _read("polars-filter", "`hp.scan_polars`, filter", "filtered-read", systems=_READERS),
    _read("polars-read", "`scan().to_polars()`", "full-read", systems=_READERS),
    _read("to-arrow", "`scan().to_arrow()`", "full-read", "full_read", systems=_READERS),
    _read("to-arrow-filter", "`scan(filter=).to_arrow()`", "filtered-read", "filtered_read", systems=_READERS),
    _read("kept-filter", "the same, one open `Table`", "filtered-read", "filtered_read", systems=_READERS, kept=True),
)
_CHANGES = (
    _read("incremental", "rows of the newest commit, of 1 %", systems=("pyhudi", "delta-rs", "hudi-rs")),
    _read("changes", "`changes` with change data", "incremental", systems=("pyhudi-cdc", "delta-rs")),
)
_COMMITS = (BASE, replace(SMALL, title="upsert of 10 rows"))
_LARGE = (BULK_INSERT, SMALL, FULL_READ)
_MEMORY = (
    replace(BULK_INSERT, fresh=True),
    _upsert("upsert-10", "upsert of 10 %", fresh=True),
    replace(FULL_READ, fresh=True),
    _read("batches-read", "full read in batches", "row-count", fresh=True),
)
_COUNTED = (BULK_INSERT, SMALL, FULL_READ, FILTERED_READ)
_HISTORY = (BASE, Step("history", "upsert", batch="small", reported=False, once=True, history=True), SMALL, FULL_READ)
_BUILD = Step("build", "build_metadata", reported=False, once=True, arguments=("axis", "size"))
_COMMIT_FILES = Step("commit of ten files", "commit_files", arguments=("axis", "size", "round"))
_PLANS = (
    Step("plan of one file", "plan", arguments=([["n", "=", 31415]],)),
    Step("plan of all files", "plan", arguments=([["n", ">=", 0]],)),
)
_LOOKUP = Step("lookup of one key", "lookup_record", arguments=("size",))


def _curve(axis: str, title: str, steps: tuple[Step, ...], sizes: tuple[float, ...], kinds: str, *systems: str) -> Scenario:
    return Scenario(f"curve-{axis}", title, systems, dict.fromkeys(kinds.split(), steps), (0, 3), sizes, axis)


_COMMITTERS = ("pyhudi", "pyhudi-no-metadata", "delta-rs", "pyiceberg")
_ALL = ("pyhudi-spark", "pyhudi", "hudi", "hudi-1.1", "delta-spark", "delta-rs", "hudi-rs", "spark-parquet")
_ROWS = (300_000, 1_200_000, 3_000_000, 12_000_000)
_FILES = "100 in each partition, as metadata alone; a commit of ten files to ten partitions, plans selective and not"
SCENARIOS = (
    Scenario(
        "steps", "Writes, reads and services", _ALL, {"cow": _steps(cow=True), "mor": _steps(cow=False)}, (1, 3), rebuild=True
    ),
    Scenario(
        "reads", "Reads by embedded engines", (*_READERS, "pyhudi-cdc"), {"cow": (*_READS, *_CHANGES), "mor": _READS}, (5, 9)
    ),
    Scenario(
        "commits",
        "Commit of 10 rows into 70",
        _COMMITTERS,
        {"cow": _COMMITS, "mor": _COMMITS},
        (15, 50),
        (70,),
        "rows of the table",
    ),
    Scenario(
        "large-commits", "Bulk insert, and commits of 1,000 rows into it", _COMMITTERS, {"cow": _LARGE, "mor": _LARGE}, (3, 9)
    ),
    Scenario("memory", "Peak memory of new processes", ("pyhudi", "delta-rs"), {"cow": _MEMORY, "mor": _MEMORY}, (1, 1)),
    _curve(
        "rows",
        "7 partitions; an upsert of 1,000 neighbouring rows of one",
        _COUNTED,
        _ROWS,
        "cow mor",
        "pyhudi",
        "delta-rs",
        "delta-spark",
    ),
    _curve(
        "commits",
        "100 rows in one partition; each commit an upsert of 10",
        _HISTORY,
        (10, 100, 1000),
        "cow mor",
        "pyhudi",
        "delta-rs",
        "delta-spark",
    ),
    _curve(
        "partitions",
        "10 rows in each; an upsert of those of one",
        _COUNTED,
        (10, 100, 1000, 10_000),
        "cow mor",
        "pyhudi",
        "delta-rs",
    ),
    _curve("columns", "2,000 rows; an upsert of 100", _COUNTED, (10, 100, 500, 2000), "cow mor", "pyhudi", "delta-rs"),
    _curve("files", _FILES, (_BUILD, *_PLANS, _COMMIT_FILES), (1000, 10_000, 100_000), "metadata", "pyhudi"),
    _curve(
        "neighbours",
        "Files in each of ten partitions, as metadata alone; a commit of a file to each",
        (_BUILD, _COMMIT_FILES),
        (10, 100, 1000),
        "metadata",
        "pyhudi",
    ),
    _curve(
        "keys",
        "Keys of the record index; a key looked up",
        (BASE, _LOOKUP),
        (1_000_000, 10_000_000, 30_000_000),
        "cow",
        "pyhudi-record-index",
    ),
    _curve("logs", "Log files in one slice; an upsert of 10 of 1,000 rows", _HISTORY, (10, 50, 200), "mor", "pyhudi-logs"),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
CHECK = Scenario(
    "check",
    "Steps before and now",
    ("before", "pyhudi"),
    {
        "cow": (BULK_INSERT, ONE_PERCENT, SMALL, FULL_READ, FILTERED_READ),
        "mor": (BULK_INSERT, ONE_PERCENT, SMALL, FULL_READ, INCREMENTAL, COMPACTION),
    },
    (4, 6),
    (0.03,),
    rebuild=True,
)
"""`bench-check`: the first round warms both sides up and does not count."""


def select(scenario: Scenario, kind: str, profile: str, only: tuple[str, ...] = ()) -> tuple[Step, ...]:
    """Steps of a chain: those of the profile, or of `only`, and before them all that change rows or prepare them."""
    chain = [step for step in scenario.steps[kind] if step.quick or profile == "full"]
    wanted = [number for number, step in enumerate(chain) if step.reported and (not only or step.name in only)]
    return tuple(
        step
        for number, step in enumerate(chain)
        if number in wanted or (number < max(wanted, default=0) and (step.batch or not step.reported))
    )
