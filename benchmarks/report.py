"""From measurements to RESULTS.md: medians, ratios, memory, bytes.  Pure: takes the JSON of a run and returns text.

The JSON of a run (`results.json`, the whole truth; RESULTS.md is a view of it):
    {"made": ..., "machine": {...}, "settings": {...}, "versions": {system: {...}}, "missing": {system: reason},
     "measurements": [run.Measurement as an object, ...], "growth": what growth.py says,
     "planning": {"made", "machine", "commit", "points": what curve.py says}}
Each of the three, measurements with what belongs to them, growth and planning, may be absent.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.steps import CHAINS, KINDS, STEPS, Step
from benchmarks.systems import BY_NAME, SYSTEMS

KIND_TITLES = {"cow": "Copy on Write", "mor": "Merge on Read"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One system in one step, over all rounds: medians of the good rounds, or the status that stands in their place."""

    status: str
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_rss_bytes: float | None = None
    written_bytes: float | None = None
    removed_bytes: float | None = None


Cells = dict[tuple[str, str], Cell]


def medians(measurements: Iterable[Mapping[str, Any]]) -> Cells:
    """(step, system) -> Cell. A single wrong answer makes the cell wrong; otherwise rounds that failed are left out."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in measurements:
        groups.setdefault((one["step"], one["system"]), []).append(one)
    return {key: _cell(group) for key, group in groups.items()}


def render(result: Mapping[str, Any]) -> str:
    """RESULTS.md. Each part of the result, the steps, the growth and the planning, may be missing."""
    parts = ["# Benchmark results"]
    if result.get("measurements"):
        cells = medians(result["measurements"])
        systems = [system.name for system in SYSTEMS if any(name == system.name for _, name in cells)]
        steps = [step for step in STEPS if any(name == step.name for name, _ in cells)]
        parts += [_head(result), "![Seconds per step](results.svg)", _how(result)]
        for kind in KINDS:
            chain = [step for step in steps if step.kind == kind]
            if chain:
                parts.append(_tables(KIND_TITLES[kind], chain, systems, cells))
        parts.append(_notes(result, cells))
    if result.get("growth"):
        parts.append(_growth(result["growth"]))
    if result.get("planning"):
        parts.append(_planning(result["planning"]))
    return "\n\n".join(part for part in parts if part) + "\n"


def format_seconds(value: float | None) -> str:
    """Three significant figures; below 10 ms in milliseconds' precision."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _cell(group: Sequence[Mapping[str, Any]]) -> Cell:
    statuses = [one["status"] for one in group]
    if "wrong" in statuses:
        return Cell("wrong")
    good = [one for one in group if one["status"] == "ok"]
    if not good:
        return Cell("failed" if "failed" in statuses else statuses[0])

    def middle(name: str) -> float:
        return float(statistics.median(one[name] for one in good))

    return Cell(
        "ok", middle("seconds"), middle("cpu_seconds"), middle("peak_rss_bytes"), middle("written_bytes"), middle("removed_bytes")
    )


def _head(result: Mapping[str, Any]) -> str:
    settings = result["settings"]
    facts = [
        ("Date", result["made"]),
        ("Machine", _listed(result["machine"])),
        ("PyHudi", f"commit {settings['commit'] or 'unknown'}"),
        ("Data", f"TPC-H lineitem, scale {settings['scale']:g}: {settings['row_count']:,} rows in 7 partitions"),
        ("Same for all", f"{settings['cores']} cores, {settings['driver_memory']} of driver memory for each Spark"),
        (
            "Rounds",
            f"{settings['rounds']}, medians" + (f"; {took} minutes in all" if (took := settings.get("minutes_taken")) else ""),
        ),
    ]
    return "\n\n".join([_table(("", ""), facts), _versions(result["versions"])])


def _versions(versions: Mapping[str, Mapping[str, str]]) -> str:
    return _table(("system", "versions"), [(BY_NAME[name].title, _listed(parts)) for name, parts in versions.items()])


def _listed(parts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts.items())


def _how(result: Mapping[str, Any]) -> str:
    load = result["settings"]["load_before"]
    return (
        "Made by `make bench`; `benchmarks/README.md` says what each step does. Times are seconds around the operation, in"
        " processes that stay up, so Spark is warm from the second round on; steps in a fresh process are taken once. Every"
        " answer, and the whole table after every step that may change it (in later rounds: after the last of them), was"
        " compared with what PyArrow computed from the input: a cell shows **wrong** where they differ."
        f" Before the run the load average of the machine was {load:.1f}.\n\n"
        "`-` the system has no such step; `not built` PyHudi does not do it yet; `skipped` an earlier step of the chain is"
        " missing; `failed` see the notes."
    )


def _tables(title: str, steps: Sequence[Step], systems: Sequence[str], cells: Cells) -> str:
    seen = [name for name in systems if any(cells.get((step.name, name), Cell("-")).status != "-" for step in steps)]
    parts = [f"## {title}", "### Seconds", _grid(steps, seen, cells, lambda cell: format_seconds(cell.seconds))]
    for ours in (name for name in seen if BY_NAME[name].role == "ours"):
        others = [name for name in seen if name != ours]
        if others:
            parts += [
                f"### {BY_NAME[ours].title}: how many times as long the others take",
                _grid(
                    steps,
                    others,
                    _ratios(steps, ours, others, cells),
                    lambda cell: f"{cell.seconds:.2f}x" if cell.seconds else "",
                ),
            ]
    parts += [
        "### Peak resident memory of the process tree, MiB",
        _grid(steps, seen, cells, lambda cell: _scaled(cell.peak_rss_bytes, 2**20)),
    ]
    parts += ["### CPU seconds of the process tree", _grid(steps, seen, cells, lambda cell: format_seconds(cell.cpu_seconds))]
    changing = [step for step in steps if step.answer is None]
    if changing:
        parts += ["### Megabytes written", _grid(changing, seen, cells, lambda cell: _scaled(cell.written_bytes, 1e6, ".1f"))]
    cleaning = [step for step in steps if step.method == "clean"]
    if cleaning:
        parts += ["### Megabytes removed", _grid(cleaning, seen, cells, lambda cell: _scaled(cell.removed_bytes, 1e6, ".1f"))]
    return "\n\n".join(parts)


def _ratios(steps: Sequence[Step], ours: str, others: Sequence[str], cells: Cells) -> Cells:
    """Cells whose seconds are the ratio of the other's to ours; a status where either has no time."""
    found: Cells = {}
    for step in steps:
        own = cells.get((step.name, ours), Cell("-"))
        for name in others:
            other = cells.get((step.name, name), Cell("-"))
            if own.seconds and other.seconds:
                found[step.name, name] = Cell("ok", other.seconds / own.seconds)
            else:
                found[step.name, name] = Cell("" if own.seconds is None else other.status)
    return found


def _grid(steps: Sequence[Step], systems: Sequence[str], cells: Cells, show: Callable[[Cell], str]) -> str:
    rows = []
    for step in steps:
        row = [f"{step.title} (`{step.name}`)"]
        for name in systems:
            cell = cells.get((step.name, name), Cell("-"))
            row.append(show(cell) if cell.status == "ok" else f"**{cell.status}**" if cell.status == "wrong" else cell.status)
        rows.append(row)
    return _table(("step", *(BY_NAME[name].title for name in systems)), rows, numbers=True)


def _notes(result: Mapping[str, Any], cells: Cells) -> str:
    lines = [f"- {BY_NAME[name].title} did not run: {reason}" for name, reason in result["missing"].items()]
    sources: dict[str, set[str]] = {}
    troubles: dict[tuple[str, str], str] = {}
    skipped: dict[tuple[str, str], str] = {}
    for one in result["measurements"]:
        if one["read_from"]:
            sources.setdefault(one["system"], set()).add(one["read_from"])
        if one["status"] in ("failed", "wrong", "not built"):
            troubles.setdefault((one["step"], one["system"]), one["message"])
        if one["status"] == "skipped":
            skipped.setdefault((one["system"], one["message"]), one["step"])
    for name, read in sources.items():
        titles = " or ".join(BY_NAME[other].title for other in sorted(read))
        lines.append(f"- {BY_NAME[name].title} reads the table that {titles} wrote.")
    for (step, name), message in troubles.items():
        lines.append(f"- `{step}`, {BY_NAME[name].title}, {cells[step, name].status}: {_one_line(message)}")
    for (name, reason), step in skipped.items():
        lines.append(f"- {BY_NAME[name].title}, skipped from `{step}` on: {_one_line(reason)}")
    return "## Notes\n\n" + "\n".join(lines) if lines else ""


def _growth(growth: Mapping[str, Any]) -> str:
    settings = growth["settings"]
    parts = [
        "## Growth",
        f"Measured {growth['made']} ({_listed(growth['machine'])}; PyHudi at commit {growth['commit'] or 'unknown'}). The batch"
        f" stays the same: {settings['batch_rows']:,} rows drawn from the whole table, one in a hundred of them new.",
        _versions(growth["versions"]),
    ]
    if growth["rows"]:
        parts += ["### More rows, same batch", _growth_table(growth["rows"], "row_count", "rows")]
    if growth["commits"]:
        parts += ["### More commits, same batch", _growth_table(growth["commits"], "commit_count", "commits")]
    if growth["notes"]:
        parts.append("\n".join(f"- {note}" for note in growth["notes"]))
    return "\n\n".join(parts)


def _growth_table(points: Sequence[Mapping[str, Any]], axis: str, name: str) -> str:
    titles = (
        name,
        "table",
        "system",
        "upsert, s",
        "upsert, CPU s",
        "aggregate, s",
        "peak memory of the upsert, MiB",
        "written per upsert, MB",
        "metadata files",
    )
    order = {system.name: number for number, system in enumerate(SYSTEMS)}
    rows = []
    for one in sorted(points, key=lambda point: (point["kind"], order[point["system"]], point[axis])):
        rows.append(
            (
                f"{one[axis]:,}",
                one["kind"].upper(),
                BY_NAME[one["system"]].title,
                format_seconds(one["upsert_seconds"]),
                format_seconds(one["upsert_cpu_seconds"]),
                format_seconds(one["aggregate_seconds"]),
                _scaled(one["peak_rss_bytes"], 2**20),
                _scaled(one["written_bytes"], 1e6, ".1f"),
                f"{one['metadata_files']:,}",
            )
        )
    return _table(titles, rows, numbers=True)


def _planning(planning: Mapping[str, Any]) -> str:
    rows = [
        (
            f"`{one['filter']}`" if one["filter"] else "none",
            f"{one['files']:,}",
            f"{one['file_slices']:,.0f}",
            format_seconds(one["seconds"]),
            format_seconds(one["cpu_seconds"]),
            format_seconds(one["again_seconds"]),
            f"{one['added_mib']:,.0f}",
        )
        for one in sorted(planning["points"], key=lambda one: (-len(one["filter"]), one["filter"], one["files"]))
    ]
    titles = ("filter", "files", "left to read", "first plan, s", "first plan, CPU s", "next plan, s", "memory added, MiB")
    return "\n\n".join(
        [
            "## Planning",
            f"Measured {planning['made']} ({_listed(planning['machine'])}; PyHudi at commit {planning['commit'] or 'unknown'})."
            " Tables of metadata alone, 100 files a partition: what it takes PyHudi to plan a filtered read, first in a fresh"
            " process, then once more. Each file has numbers `n` and keys `id` that no other file has.",
            _table(titles, rows, numbers=True),
        ]
    )


def _table(titles: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: bool = False) -> str:
    """A Markdown table; with `numbers`, all columns but the first are set to the right."""
    rule = ["---", *(["---:" if numbers else "---"] * (len(titles) - 1))]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (titles, rule, *rows))


def _scaled(value: float | None, unit: float, form: str = ".0f") -> str:
    return "" if value is None else f"{value / unit:,{form}}"


def _one_line(message: str) -> str:
    """The beginning of a message, safe inside Markdown."""
    text = " ".join(message.split()).replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= 300 else text[:300] + " ..."


# Every step of every chain is in one table of the report.
assert {step.kind for chain in CHAINS.values() for step in chain} == set(KIND_TITLES)
