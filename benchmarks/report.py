"""From measurements to RESULTS.md, CURVES.md, the chart, and the figures in README and docs/performance.md."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.runner import Measurement, Results
from benchmarks.scenarios import BY_NAME, SCENARIOS, Scenario, Step
from benchmarks.systems import BY_NAME as SYSTEMS

KINDS = {"cow": "copy on write", "mor": "merge on read", "metadata": "metadata"}
MOVED, RESOLUTION_S = 1.25, 0.02
"""A step moved if its ratio is beyond this or its inverse; shorter ones are not judged."""

HOW = """Made by `make bench` and `python -m benchmarks publish`; benchmarks/README.md describes steps and measurement. Times are
seconds around the operation in processes that keep running, medians of the rounds. Every answer, and the table after every write
and service, equalled what PyArrow computed from the input; a cell shows **wrong** where it did not. Ratios compare CPU
seconds of systems in one process, and wall time of Spark, round by round. `-` the system does not offer the step;
`skipped` an earlier step is missing; `failed` see the notes."""
CURVES_HEAD = """# How cost grows

CPU seconds of one step at each size, and the power of the size with which they grow: 0 is constant, 1 is proportional. Made by
`make bench-curves`; benchmarks/README.md describes it. The smallest of three rounds counts.
"""

CHART_STEPS = (
    ("cow", ("bulk-insert", "upsert-1", "upsert-10", "small", "aggregate", "full-read")),
    ("mor", ("upsert-10", "small", "full-read", "compaction")),
)
COLOURS = {
    "pyhudi-spark": "#0b6e4f",
    "pyhudi": "#35a77c",
    "hudi": "#9c6644",
    "hudi-1.1": "#b08968",
    "delta-spark": "#3a6ea5",
    "delta-rs": "#7da7d9",
    "pyiceberg": "#9a8fc0",
    "hudi-rs": "#d4a373",
}
WIDTH, BAR_LEFT, BAR_WIDTH, BAR_HEIGHT, GROUP_GAP = 820, 330, 400, 15, 14


class Cells:
    """Measurements of one scenario, size and table type, by step and system."""

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self.by_cell: dict[tuple[str, str], list[Measurement]] = {}
        for one in measurements:
            self.by_cell.setdefault((one.step, one.system), []).append(one)

    def status(self, step: str, system: str) -> str:
        """`ok`, or what is shown instead: one wrong round makes the cell wrong."""
        found = {one.status for one in self.by_cell.get((step, system), ())}
        return next((status for status in ("wrong", "ok", "failed", "skipped") if status in found), "-")

    def values(self, step: str, system: str, name: str) -> dict[int, float]:
        """Values of the right rounds; none if one was wrong."""
        rounds = self.by_cell.get((step, system), ()) if self.status(step, system) == "ok" else ()
        return {one.round: float(getattr(one, name) or 0) for one in rounds if one.status == "ok"}

    def median(self, step: str, system: str, name: str) -> float | None:
        found = self.values(step, system, name).values()
        return statistics.median(found) if found else None

    def ratio(self, step: str, one: str, other: str, name: str) -> float | None:
        """Median of the rounds' ratios of two systems."""
        left, right = self.values(step, one, name), self.values(step, other, name)
        found = [left[number] / right[number] for number in left if right.get(number)]
        return statistics.median(found) if found else None

    def shown(self, step: str, system: str, text: Callable[[float], str], name: str) -> str:
        value, status = self.median(step, system, name), self.status(step, system)
        return text(value) if value is not None else "**wrong**" if status == "wrong" else status

    def systems(self, scenario: Scenario) -> list[str]:
        """Those that offer a step, in their order."""
        return [
            name
            for name in scenario.systems
            if any(self.status(step, other) != "-" for step, other in self.by_cell if other == name)
        ]


def documents(results: Results, curves: Results) -> dict[str, str]:
    """Text of each generated file by name."""
    found = {}
    if results.measurements:
        found["RESULTS.md"] = render(results)
        if any(header["scenario"] == "steps" for header in results.headers):
            found["results.svg"] = draw(results)
    if curves.measurements:
        found["CURVES.md"] = render_curves(curves)
    return found


def cells_of(results: Results, scenario: str, kind: str, size: float | None = None) -> Cells:
    wanted = [one for one in results.measurements.values() if (one.scenario, one.kind) == (scenario, kind)]
    return Cells(one for one in wanted if size in (None, one.size))


def render(results: Results) -> str:
    """RESULTS.md."""
    parts = ["# Benchmark results", _head(results), "![Seconds per step](results.svg)", _wrapped(HOW)]
    for scenario in SCENARIOS:
        if scenario.is_curve or not any(one.scenario == scenario.name for one in results.measurements.values()):
            continue
        parts.append(f"## {scenario.title}")
        for kind in scenario.steps:
            cells = cells_of(results, scenario.name, kind)
            base = cells_of(results, scenario.name, "cow")
            tables = _SECTIONS.get(scenario.name, _small_table)(scenario, kind, cells, base)
            parts += [f"### {KINDS[kind].capitalize()}", *tables] if tables else []
    parts.append(_notes(results))
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(results: Results) -> str:
    rows = []
    for header in results.headers:
        rows.append(
            (
                BY_NAME[header["scenario"]].title,
                header["made"],
                header["commit"],
                header["profile"],
                header["minutes"],
                _load(header),
            )
        )
    last = results.headers[-1]
    machine = f"Machine: {_listed(last['machine'])}. Each system has {last['cores']} cores, each Spark {last['driver_memory']}."
    versions: dict[str, Mapping[str, str]] = {}
    for header in results.headers:
        versions |= header["versions"]
    scale = sorted({one.size for one in results.measurements.values() if one.scenario == "steps"})
    data = f"Data: TPC-H lineitem, scale {', '.join(f'{size:g}' for size in scale)} (1 is 6 million rows) in 7 partitions."
    titles = ("scenario", "date", "commit", "profile", "minutes", "load of the machine")
    named = [(SYSTEMS[name].title, _listed(parts)) for name, parts in versions.items()]
    return "\n\n".join([machine, data, _table(titles, rows), _table(("system", "versions"), named)])


def _steps_tables(scenario: Scenario, kind: str, cells: Cells, base: Cells) -> list[str]:
    systems, steps = cells.systems(scenario), [step for step in scenario.steps[kind] if _measured(step, cells)]
    parts = ["Seconds:", _grid(steps, systems, cells, seconds, "seconds")]
    for ours, name in (("pyhudi-spark", "seconds"), ("pyhudi", "cpu_seconds")):
        peers = [one for one in systems if SYSTEMS[one].on_spark == SYSTEMS[ours].on_spark and one != ours]
        if ours in systems and peers:
            rows = [[_title(step), *(_times(cells.ratio(step.name, peer, ours, name)) for peer in peers)] for step in steps]
            unit = "wall time" if name == "seconds" else "CPU time"
            parts += [f"{unit.capitalize()} of the others divided by that of {SYSTEMS[ours].title}:", _numbers(peers, rows)]
    parts += ["CPU seconds:", _grid(steps, systems, cells, seconds, "cpu_seconds")]
    parts += ["Peak resident memory of the process tree, MiB:", _grid(steps, systems, cells, mebibytes, "peak_rss_bytes")]
    writes = [step for step in steps if not step.answer]
    return [*parts, "Megabytes written:", _grid(writes, systems, cells, megabytes, "written_bytes")]


def _reads_table(scenario: Scenario, kind: str, cells: Cells, base: Cells) -> list[str]:
    systems = [name for name in cells.systems(scenario) if name != "pyhudi-cdc"]
    rows = []
    for step in (step for step in scenario.steps[kind] if _measured(step, cells)):
        ours = "pyhudi-cdc" if "pyhudi-cdc" in step.systems else "pyhudi"
        shown = [cells.shown(step.name, ours if name == "pyhudi" else name, seconds, "cpu_seconds") for name in systems]
        if kind == "mor":
            ratio = _quotient(cells.median(step.name, ours, "cpu_seconds"), base.median(step.name, ours, "cpu_seconds"))
        else:
            others = [cells.ratio(step.name, ours, name, "cpu_seconds") for name in ("polars", "duckdb", "delta-rs")]
            ratio = max((found for found in others if found), default=None)
        rows.append([step.title, *shown, _times(ratio)])
    last = "PyHudi / copy on write" if kind == "mor" else "PyHudi / the fastest of Polars, DuckDB, delta-rs"
    titles = ("read, CPU seconds", *(SYSTEMS[name].title for name in systems), last)
    return [_table(titles, rows, numbers=True)] if rows else []


def _small_table(scenario: Scenario, kind: str, cells: Cells, base: Cells) -> list[str]:
    rows = []
    for step in (step for step in scenario.steps[kind] if _measured(step, cells)):
        peer = base.median(step.name, "delta-rs", "cpu_seconds")
        for name in cells.systems(scenario):
            values = [cells.shown(step.name, name, text, unit) for unit, text in _FIGURES]
            ratio = _quotient(cells.median(step.name, name, "cpu_seconds"), peer)
            rows += [[SYSTEMS[name].title, step.title, *values, _times(ratio)]] if cells.status(step.name, name) != "-" else []
    titles = ("system", "step", "CPU seconds", "wall seconds", "peak memory, MiB", "CPU / delta-rs, copy on write")
    return [_table(titles, rows, numbers=True)] if rows else []


def _quotient(value: float | None, other: float | None) -> float | None:
    return value / other if value and other else None


def seconds(value: float) -> str:
    """Three significant digits from 0.1 on, milliseconds below."""
    return (
        f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
    )


def mebibytes(value: float) -> str:
    return f"{value / 2**20:,.0f}"


def megabytes(value: float) -> str:
    return f"{value / 1e6:,.1f}"


_FIGURES: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("cpu_seconds", seconds),
    ("seconds", seconds),
    ("peak_rss_bytes", mebibytes),
)
_SECTIONS = {"steps": _steps_tables, "reads": _reads_table}


def _notes(results: Results) -> str:
    lines = [
        f"- {SYSTEMS[name].title} did not run: {text}" for header in results.headers for name, text in header["missing"].items()
    ]
    troubles: dict[tuple[str, str, str], str] = {}
    for one in results.measurements.values():
        if one.status in ("failed", "wrong"):
            troubles.setdefault(
                (one.system, one.scenario, one.status), f"`{one.kind}` `{one.step}`: {' '.join(one.message.split())[:300]}"
            )
    lines += [f"- {SYSTEMS[system].title}, {scenario}, {status}: {text}" for (system, scenario, status), text in troubles.items()]
    sources = {(one.system, one.read_from) for one in results.measurements.values() if one.read_from}
    lines += [f"- {SYSTEMS[name].title} reads the table of {SYSTEMS[source].title}." for name, source in sorted(sources)]
    return "## Notes\n\n" + "\n".join(lines) if lines else ""


def render_curves(results: Results) -> str:
    """CURVES.md: a table for each axis, sizes in columns, and the slope of each line."""
    parts = [CURVES_HEAD]
    commits = sorted({header["commit"] for header in results.headers})
    if commits:
        parts.append(f"Commit {', '.join(commits)}; {_listed(results.headers[-1]['machine'])}.\n")
    for scenario in (scenario for scenario in SCENARIOS if scenario.is_curve):
        found = [one for one in results.measurements.values() if one.scenario == scenario.name and one.status == "ok"]
        sizes = sorted({one.size for one in found})
        lines: dict[tuple[str, str, str], dict[float, Measurement]] = {}
        for one in found:
            line = lines.setdefault((one.kind, one.step, one.system), {})
            line[one.size] = min(line.get(one.size, one), one, key=lambda point: point.cpu_seconds or 0)
        rows = []
        for (kind, step, system), line in lines.items():
            points = {size: one.cpu_seconds or 0.0 for size, one in line.items()}
            peak = mebibytes(max(one.peak_rss_bytes or 0 for one in line.values()))
            shown = [_fine(points[size]) if size in points else "-" for size in sizes]
            rows.append([kind, step, system, *shown, _plain(slope(points)), peak])
        missing = [f"{size:,.0f}" for size in scenario.sizes if size not in sizes]
        note = [f"Not measured: {', '.join(missing)}.\n"] if missing else []
        titles = ("table", "step", "system", *(f"{size:,.0f}" for size in sizes), "slope", "peak MiB")
        head = f"## {scenario.axis.capitalize()}\n\n{scenario.title}.\n"
        parts += [head, *([_table(titles, rows, numbers=True) + "\n"] if rows else []), *note]
    return "\n".join(parts)


def slope(points: Mapping[float, float]) -> float | None:
    """Power of the size with which time grows: the regression of the logarithms; None for fewer than two sizes."""
    if len(points) < 2:
        return None
    return statistics.linear_regression(
        [math.log(size) for size in points], [math.log(max(value, 1e-6)) for value in points.values()]
    ).slope


def verdicts(measurements: Sequence[Measurement]) -> list[str]:
    """Lines of `bench-check`: seconds before and now, ratio, and whether the step moved. The first round does not count."""
    found = []
    for kind, steps in {
        one.kind: {other.step: 0 for other in measurements if other.kind == one.kind} for one in measurements
    }.items():
        cells = Cells(one for one in measurements if one.kind == kind and one.round)
        for step in steps:
            before, now = cells.median(step, "before", "cpu_seconds"), cells.median(step, "pyhudi", "cpu_seconds")
            ratio = cells.ratio(step, "pyhudi", "before", "cpu_seconds")
            if before is None or now is None or ratio is None:
                found.append(f"{kind}-{step:<20} {cells.status(step, 'before')} {cells.status(step, 'pyhudi')}")
                continue
            is_long = max(before, now) >= RESOLUTION_S
            moved = "slower" if is_long and ratio > MOVED else "faster" if is_long and ratio < 1 / MOVED else ""
            found.append(f"{f'{kind}-{step}':<24}{before:>10.3f}{now:>10.3f}{ratio:>8.2f}  {moved}".rstrip())
    return found


def draw(results: Results) -> str:
    """Bar chart as SVG: a group per step, the slowest bar of a group has the full width."""
    parts: list[str] = []
    top = 58
    for kind, names in CHART_STEPS:
        cells, steps = cells_of(results, "steps", kind), {step.name: step for step in BY_NAME["steps"].steps[kind]}
        for name in names:
            bars = [(system, cells.median(name, system, "seconds")) for system in COLOURS]
            group = [(system, value) for system, value in bars if value is not None]
            if group:
                parts += _bars(f"{kind.upper()} {steps[name].title}", group, top)
                top += len(group) * BAR_HEIGHT + GROUP_GAP
    header = next(header for header in results.headers if header["scenario"] == "steps")
    sizes = {one.size for one in results.measurements.values() if one.scenario == "steps"}
    data = f"TPC-H lineitem, {', '.join(f'{size * 6_001_215:,.0f}' for size in sorted(sizes))} rows, 2 cores"
    load = f"load {_load(header)}"
    subtitle = f"{data}; {header['made']}, commit {header['commit']}, {load}; bars are to scale within a step"
    style = "text{font:12px system-ui,sans-serif;fill:#333}.head{font-size:16px;font-weight:600}.step{font-weight:600}"
    style += "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
    size = f'width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>Seconds per step, less is better</title><style>{style}</style>",
            '<text class="head" x="10" y="22">Seconds per step, less is better</text>',
            f'<text x="10" y="40">{escape(subtitle)}</text>',
            *parts,
            "</svg>\n",
        ]
    )


def _bars(title: str, group: Sequence[tuple[str, float]], top: int) -> list[str]:
    slowest = max(value for _, value in group)
    lines = [f'<text class="step" x="10" y="{top + 12}">{escape(title)}</text>']
    for number, (name, value) in enumerate(group):
        y, width = top + number * BAR_HEIGHT, max(1.0, BAR_WIDTH * value / slowest)
        lines += [
            f'<text x="{BAR_LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(SYSTEMS[name].title)}</text>',
            f'<rect x="{BAR_LEFT}" y="{y + 2}" width="{width:.1f}" height="{BAR_HEIGHT - 3}" fill="{COLOURS[name]}"/>',
            f'<text x="{BAR_LEFT + width + 5:.1f}" y="{y + 12}">{seconds(value)}</text>',
        ]
    return lines


def update_documents(results: Results, root: Path) -> None:
    """Replace the figures of README.md and docs/performance.md."""
    places = {
        "README.md": (r"results\.svg\)\n", r"\[Results\]\(benchmarks/", _summary(results), ""),
        "docs/performance.md": (r"<!-- figures -->\n", r"<!-- end of figures -->", _summary_table(results), "\n"),
    }
    for name, (begin, end, text, gap) in places.items():
        page = (root / name).read_text()
        found = re.search(f"({begin}).*?({end})", page, re.DOTALL)
        if found is None:
            raise ValueError(f"{name} has no place for figures between {begin} and {end}")
        (root / name).write_text(f"{page[: found.end(1)]}\n{text}\n{gap}{page[found.start(2) :]}")


def _summary_table(results: Results) -> str:
    systems = ("pyhudi-spark", "hudi", "hudi-1.1", "delta-spark", "pyhudi", "delta-rs")
    rows = []
    for kind, names in CHART_STEPS:
        cells, steps = cells_of(results, "steps", kind), {step.name: step for step in BY_NAME["steps"].steps[kind]}
        rows += [
            [f"{KINDS[kind]}: {steps[name].title}", *(cells.shown(name, system, seconds, "seconds") for system in systems)]
            for name in names
        ]
    return _setting(results) + "\n\n" + _table(("step", *(SYSTEMS[name].title for name in systems)), rows)


def _summary(results: Results) -> str:
    cells = cells_of(results, "steps", "cow")
    upsert = {name: cells.shown("upsert-1", name, seconds, "seconds") for name in COLOURS}
    bulk = {name: cells.shown("bulk-insert", name, seconds, "seconds") for name in COLOURS}
    size, header = _steps_run(results)
    return _wrapped(
        f"TPC-H lineitem, {size}, {header['cores']} cores, all results checked for equality (commit {header['commit']}, load"
        f" {_load(header)}). On Spark, an upsert of 1 % of rows takes {upsert['pyhudi-spark']} s, Hudi 1.0.2 with zstd"
        f" {upsert['hudi']} s, Delta Lake {upsert['delta-spark']} s. Embedded, it takes {upsert['pyhudi']} s (delta-rs"
        f" {upsert['delta-rs']} s), a bulk insert {bulk['pyhudi']} s (delta-rs {bulk['delta-rs']} s)."
    )


def _setting(results: Results) -> str:
    size, header = _steps_run(results)
    return _wrapped(
        f"TPC-H lineitem, {size} in 7 partitions, {header['cores']} cores of a machine with a load of {_load(header)}, commit"
        f" {header['commit']}, wall time in seconds; all results are checked for equality."
    )


def _steps_run(results: Results) -> tuple[str, Mapping[str, Any]]:
    """Rows and header of the scenario `steps`."""
    size = next(one.size for one in results.measurements.values() if one.scenario == "steps")
    rows = f"{size * 6:.1f} million rows".replace(".0", "")
    return rows, next(header for header in results.headers if header["scenario"] == "steps")


def _load(header: Mapping[str, Any]) -> str:
    """Load before and after; after an interruption that before."""
    after = header["load_after"]
    return f"{header['load_before']:.1f}" + ("" if after is None else f" to {after:.1f}")


def _wrapped(words: str) -> str:
    lines = [""]
    for word in words.split():
        lines = [*lines[:-1], f"{lines[-1]} {word}".strip()] if len(lines[-1]) + len(word) < 119 else [*lines, word]
    return "\n".join(lines)


def _measured(step: Step, cells: Cells) -> bool:
    return any(name == step.name for name, _ in cells.by_cell)


def _grid(steps: Sequence[Step], systems: Sequence[str], cells: Cells, text: Callable[[float], str], name: str) -> str:
    return _numbers(systems, [[_title(step), *(cells.shown(step.name, one, text, name) for one in systems)] for step in steps])


def _numbers(systems: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return _table(("step", *(SYSTEMS[name].title for name in systems)), rows, numbers=True)


def _title(step: Step) -> str:
    return f"{step.title} (`{step.name}`)"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _fine(value: float) -> str:
    return (
        f"{value:.1f}" if value >= 1 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}" if value >= 0.01 else f"{value:.4f}"
    )


def _listed(parts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts.items())


def _table(titles: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: bool = False) -> str:
    """A Markdown table; with `numbers`, all columns but the first are aligned to the right."""
    rule = ["---", *(["---:" if numbers else "---"] * (len(titles) - 1))]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in (titles, rule, *rows))
