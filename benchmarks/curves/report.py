"""CURVES.md from the points: a table for each axis, its sizes in columns, and the slope of each line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.curves.axes import AXES, BY_NAME, Curve, Point, curves_of

HEAD = """# How cost grows

Processor seconds of one step at each size, and the power of the size with which they grow: 0 is not at all, 1 in proportion.
Made by `make bench-curves` ({machine}); benchmarks/README.md says what is measured.
The smallest of three samples counts. A size that is missing was not run, or did not end within its time.
"""


def report(points: Sequence[Point], notes: Iterable[str], machine: str) -> str:
    """The document.  notes: what was not measured, and why."""
    parts = [HEAD.format(machine=machine)]
    by_axis: dict[str, list[Curve]] = {}
    for curve in curves_of(points):
        by_axis.setdefault(curve.axis, []).append(curve)
    for name, curves in by_axis.items():
        axis = BY_NAME[name]
        parts.append(f"## {axis.name.capitalize()}\n\n{axis.what[0].upper()}{axis.what[1:]}. Sizes: {axis.unit}.\n")
        parts.append(_table(curves))
    measured = {(point.axis, point.size) for point in points}
    told = [f"- {note}" for note in notes]
    for axis in AXES:
        left = [f"{size:,}" for size in axis.sizes if (axis.name, size) not in measured]
        told += [f"- {axis.name}: {', '.join(left)}"] if left else []
    if told:
        parts.append("## Not measured\n\n" + "\n".join(told) + "\n")
    return "\n".join(parts)


def _table(curves: Sequence[Curve]) -> str:
    sizes = sorted({point.size for curve in curves for point in curve.points})
    head = ["table", "step", "system", *(f"{size:,}" for size in sizes), "slope", "peak MiB"]
    lines = [_line(head), _line(["---", "---", "---", *("---:" for _ in sizes), "---:", "---:"])]
    for curve in curves:
        by_size: Mapping[int, Point] = {point.size: point for point in curve.points}
        cells = [seconds(by_size[size].cpu_seconds) if size in by_size else "-" for size in sizes]
        slope = "-" if curve.slope is None else f"{curve.slope:.2f}"
        peak = f"{max(point.peak_mib for point in curve.points):,.0f}"
        lines.append(_line([curve.kind, curve.step, curve.system, *cells, slope, peak]))
    return "\n".join(lines) + "\n"


def seconds(value: float) -> str:
    """Two digits that count."""
    return (
        f"{value:.1f}" if value >= 1 else f"{value:.2f}" if value >= 0.1 else f"{value:.4f}" if value < 0.01 else f"{value:.3f}"
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
