"""Charts of the page as HTML and SVG. Colours are classes, so that the page's style sheet defines them, light or dark.

    bars        rows of a table whose last cell holds a bar: text first, so it is readable without colours or graphics
    lanes       the timeline as SVG: one lane per type of action, one mark per instant

All text that comes from a table is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyhudi.features.report.figures import LANES, Span
from pyhudi.records.html_repr import escaped


@dataclass(frozen=True, slots=True)
class Bar:
    """One row. cells: text before the bar; parts: (class, value) from left to right, on one scale for all rows."""

    cells: tuple[str, ...]
    parts: tuple[tuple[str, float], ...]


def bars(label: str, heads: Sequence[str], rows: Sequence[Bar]) -> str:
    """A table of bars. label: accessible name; heads: headers of the cells, the bar has none."""
    widest = max((sum(value for _, value in row.parts) for row in rows), default=0) or 1
    lines = [f'<table class="bars"><caption class="unseen">{escaped(label)}</caption><thead><tr>']
    lines += [f'<th scope="col">{escaped(head)}</th>' for head in heads]
    lines.append('<th scope="col"><span class="unseen">as a bar</span></th></tr></thead><tbody>')
    for row in rows:
        first, *others = row.cells
        cells = f'<th scope="row">{escaped(first)}</th>' + "".join(f'<td class="number">{escaped(cell)}</td>' for cell in others)
        drawn = "".join(
            f'<span class="{part}" style="width:{100 * value / widest:.2f}%"></span>' for part, value in row.parts if value > 0
        )
        lines.append(f'<tr>{cells}<td class="bar" aria-hidden="true"><div>{drawn}</div></td></tr>')
    lines.append("</tbody></table>")
    return "".join(lines)


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Legend of colours. entries: (class, text)."""
    items = "".join(f'<li><span class="swatch {entry_class}"></span>{escaped(text)}</li>' for entry_class, text in entries)
    return f'<ul class="legend">{items}</ul>'


def lanes(spans: Sequence[Span]) -> str:
    """The timeline. Pending instants are outlined and extend to the right edge. '' if there are no instants."""
    if not spans:
        return ""
    used = [lane for lane in LANES if any(span.lane == lane for span in spans)]
    start = min(span.start_ms for span in spans)
    end = max(span.start_ms if span.end_ms is None else span.end_ms for span in spans)
    length = max(1, end - start)
    bottom = _TOP + len(used) * _LANE
    parts = [
        f'<svg class="lanes" viewBox="0 0 {_WIDTH} {bottom + 30}" role="img" aria-label="{escaped(_summary(spans, used))}">',
    ]

    def x(moment_ms: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (moment_ms - start) / length

    for number, lane in enumerate(used):
        top = _TOP + number * _LANE
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{top + _LANE / 2}" y2="{top + _LANE / 2}"/>')
        parts.append(f'<text x="0" y="{top + _LANE / 2 + 4}">{lane}</text>')
        for span in spans:
            if span.lane == lane:
                parts.append(_mark(span, x(span.start_ms), x(end if span.end_ms is None else span.end_ms), top))
    for k in range(_TICKS):
        moment = start + length * k / (_TICKS - 1)
        anchor = "start" if k == 0 else "end" if k == _TICKS - 1 else "middle"
        place = f'x="{x(moment):.1f}" y="{bottom + 20}" text-anchor="{anchor}"'
        parts.append(f'<line class="rule" x1="{x(moment):.1f}" x2="{x(moment):.1f}" y1="{bottom}" y2="{bottom + 6}"/>')
        parts.append(f'<text class="tick" {place}>{_time_label(moment, length)}</text>')
    parts.append("</svg>")
    return "".join(parts)


def readable_time(digits: str | None) -> str:
    """An instant time as `2026-11-21 10:55:16.551`; digits that are not a date unchanged, '' for None."""
    if digits is None:
        return ""
    if len(digits) < 14 or not digits.isdigit():
        return digits
    text = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]} {digits[8:10]}:{digits[10:12]}:{digits[12:14]}"
    return text + (f".{digits[14:17]}" if len(digits) > 14 else "")


_WIDTH, _LEFT, _RIGHT, _TOP, _LANE, _TICKS = 880, 96, 12, 6, 30, 4


def _mark(span: Span, left: float, right: float, top: float) -> str:
    pending = span.end_ms is None
    # A mark has a minimum width, to be visible and clickable, and stays inside the picture.
    width = max(5.0, right - left)
    left = min(left, _WIDTH - _RIGHT - width)
    took = "pending" if span.end_ms is None else f"{(span.end_ms - span.start_ms) / 1000:,.1f} s"
    title = f"{span.label}, {readable_time(span.request_time)}, {took}"
    mark_class = f"mark {span.lane}" + (" pending" if pending else "")
    return (
        f'<rect class="{mark_class}" x="{left:.1f}" y="{top + 6}" width="{width:.1f}" height="{_LANE - 12}" rx="2">'
        f"<title>{escaped(title)}</title></rect>"
    )


def _summary(spans: Sequence[Span], used: Sequence[str]) -> str:
    counts = ", ".join(f"{sum(span.lane == lane for span in spans)} in {lane}" for lane in used)
    pending = sum(span.end_ms is None for span in spans)
    return f"Timeline of {len(spans)} instants: {counts}; {pending} pending"


def _time_label(moment_ms: float, length_ms: int) -> str:
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    if length_ms < 10 * 60_000:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%m-%d %H:%M" if length_ms < 30 * 86_400_000 else "%Y-%m-%d")
