"""The axes of the curves, their sizes, and the slope of a curve."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that a table may have much of.

    unit: for the report; what: what is held and what is measured; sizes: those of a full run, ascending; kinds: of tables, or of
    what is measured where there are no rows; peers: systems beside PyHudi that can take part.
    """

    name: str
    unit: str
    what: str
    sizes: tuple[int, ...]
    kinds: tuple[str, ...] = ("cow", "mor")
    peers: tuple[str, ...] = ("delta-rs",)


AXES = (
    Axis(
        "rows",
        "rows",
        "7 partitions; an upsert of 1,000 neighbouring rows of one",
        (300_000, 1_200_000, 3_000_000, 12_000_000),
        peers=("delta-rs", "delta-spark"),
    ),
    Axis(
        "commits",
        "commits",
        "100 rows in one partition; each commit an upsert of 10 of them",
        (10, 100, 1000),
        peers=("delta-rs", "delta-spark"),
    ),
    Axis("partitions", "partitions", "10 rows in each; an upsert of those of one", (10, 100, 1000, 10_000)),
    Axis("columns", "columns", "2,000 rows; an upsert of 100 of them", (10, 100, 500, 2000)),
    Axis(
        "files",
        "files",
        "100 in each partition, as metadata alone; a commit of ten files to ten partitions, plans selective and not",
        (1000, 10_000, 100_000),
        ("metadata",),
        (),
    ),
    Axis(
        "neighbours",
        "files in each touched partition",
        "ten partitions, as metadata alone; a commit of a file to each",
        (10, 100, 1000),
        ("metadata",),
        (),
    ),
    Axis("keys", "keys in the record index", "a key looked up", (1_000_000, 10_000_000, 30_000_000), ("metadata",), ()),
    Axis("logs", "log files in one slice", "1,000 rows; an upsert of 10 of them", (10, 50, 200), ("mor",), ()),
)
BY_NAME = {axis.name: axis for axis in AXES}


@dataclass(frozen=True, slots=True)
class Point:
    """One step on one size: seconds of the clock and of the processor, and the peak memory of the process by then.

    commit: of the code that was measured; empty where nobody wrote it down.
    """

    axis: str
    kind: str
    system: str
    step: str
    size: int
    seconds: float
    cpu_seconds: float
    peak_mib: float
    commit: str = ""

    @classmethod
    def of(cls, document: dict[str, Any]) -> Point:
        return cls(**document)


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one step of one system, by size."""

    axis: str
    kind: str
    system: str
    step: str
    points: tuple[Point, ...]

    @property
    def slope(self) -> float | None:
        """With which power of the size processor time grows: 0 not at all, 1 in proportion; None for less than two sizes.

        The line through the logarithms of sizes and seconds that is nearest to all of them.
        """
        if len(self.points) < 2:
            return None
        sizes = [math.log(point.size) for point in self.points]
        times = [math.log(max(point.cpu_seconds, 1e-6)) for point in self.points]
        return statistics.linear_regression(sizes, times).slope


def curves_of(points: Sequence[Point]) -> list[Curve]:
    """The curves that points make, in their order; of two points of one size the later one counts."""
    found: dict[tuple[str, str, str, str], dict[int, Point]] = {}
    for point in points:
        found.setdefault((point.axis, point.kind, point.step, point.system), {})[point.size] = point
    order = list(BY_NAME)
    return [
        Curve(axis, kind, system, step, tuple(by_size[size] for size in sorted(by_size)))
        for (axis, kind, step, system), by_size in sorted(found.items(), key=lambda item: (order.index(item[0][0]), item[0][1:]))
    ]
