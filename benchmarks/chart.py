"""A bar chart of the medians as SVG, written by hand: no plotting library, and the file stays small enough to read in a diff.

One group of bars per step, one bar per system; within a group the slowest bar has the full width, so that groups of 0.5 s and of
25 s can both be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.report import Cells, format_seconds
from benchmarks.steps import STEPS, Step
from benchmarks.systems import BY_NAME, SYSTEMS

STEP_NAMES = (
    "cow-bulk-insert",
    "cow-upsert-1",
    "cow-upsert-10",
    "cow-small",
    "cow-aggregate",
    "cow-full-read",
    "mor-upsert-10",
    "mor-small",
    "mor-full-read",
    "mor-compaction",
)
SYSTEM_NAMES = ("pyhudi-spark", "pyhudi", "hudi-zstd", "delta-spark", "delta-rs", "hudi-rs")
COLOURS = {
    "pyhudi-spark": "#0b6e4f",
    "pyhudi": "#35a77c",
    "hudi": "#9c6644",
    "hudi-zstd": "#b08968",
    "delta-spark": "#3a6ea5",
    "delta-rs": "#7da7d9",
    "hudi-rs": "#d4a373",
    "spark-parquet": "#8d99ae",
    "pyarrow": "#adb5bd",
}

WIDTH, BAR_LEFT, BAR_WIDTH, BAR_HEIGHT, GROUP_GAP = 820, 330, 400, 15, 14


def draw(cells: Cells, subtitle: str) -> str:
    """The chart; steps and systems without a time are left out. subtitle: one line below the heading, plain text."""
    parts: list[str] = []
    top = 58
    for step in STEPS:
        group = _group(step, cells)
        if group:
            parts += _bars(step, group, top)
            top += len(group) * BAR_HEIGHT + GROUP_GAP
    style = (
        "text{font:12px system-ui,sans-serif;fill:#333}.head{font-size:16px;font-weight:600}.step{font-weight:600}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
    )
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" role="img">',
        f"<title>Seconds per step, less is better</title><style>{style}</style>",
        '<text class="head" x="10" y="22">Seconds per step, less is better</text>',
        f'<text x="10" y="40">{escape(subtitle)}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _group(step: Step, cells: Cells) -> list[tuple[str, float]]:
    """(system, seconds), in the order of the systems; empty for a step that is not drawn."""
    if step.name not in STEP_NAMES:
        return []
    found = []
    for system in SYSTEMS:
        cell = cells.get((step.name, system.name))
        if system.name in SYSTEM_NAMES and cell is not None and cell.seconds is not None:
            found.append((system.name, cell.seconds))
    return found


def _bars(step: Step, group: Sequence[tuple[str, float]], top: int) -> list[str]:
    slowest = max(seconds for _, seconds in group)
    lines = [f'<text class="step" x="10" y="{top + 12}">{escape(step.kind.upper())} {escape(step.title)}</text>']
    for number, (name, seconds) in enumerate(group):
        y = top + number * BAR_HEIGHT
        width = max(1.0, BAR_WIDTH * seconds / slowest)
        lines += [
            f'<text x="{BAR_LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(BY_NAME[name].title)}</text>',
            f'<rect x="{BAR_LEFT}" y="{y + 2}" width="{width:.1f}" height="{BAR_HEIGHT - 3}" fill="{COLOURS[name]}"/>',
            f'<text x="{BAR_LEFT + width + 5:.1f}" y="{y + 12}">{format_seconds(seconds)}</text>',
        ]
    return lines
