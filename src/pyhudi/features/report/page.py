"""The report: one self-contained HTML page on the health of a table.

The page includes its style and one small script (sorting tables by column); without the script all content is visible.
A content security policy blocks everything else, so a name in the table's data cannot inject code. Headings, captions
and scopes are set for screen readers; wide tables scroll in a region that is focusable by keyboard; colours follow the
light or dark setting.

A section that cannot be computed, because the table is damaged, shows the error; the others are unaffected. Long tables
are truncated, with the command that prints all rows. Times are instant times, in the table's time zone.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from typing import Any

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.errors import HudiError
from pyhudi.features.report.charts import Bar, bars, lanes, legend, readable_time
from pyhudi.features.report.figures import (
    LANES,
    amplifications,
    oldest_first,
    overall_factor,
    readable_bytes,
    size_buckets,
    spans,
    storage_shares,
)
from pyhudi.operations.admin.validate import ValidationResult, ValidationSeverity
from pyhudi.records.html_repr import escaped

MAX_ROWS = 200
"""Maximum rows of a table on the page."""
MAX_BARS = 25
"""Maximum bars of a chart."""
MAX_INSTANTS = 500
"""Maximum instants in the timeline chart, the newest."""


def render_report(table: Table, *, validation: ValidationResult | None = None) -> str:
    """Render the page as text, to be stored as UTF-8. Errors of a damaged table are shown on the page instead of raised.

    Reads the timeline, the latest commits, the directory listings and the locks; no data file is opened.

    Args:
        table: The table.
        validation: Result of `Table.validate()`, to be shown on the page.
    """
    return _Report(table, validation).render()


_Rows = Sequence[Sequence[Any]]


class _Report:
    def __init__(self, table: Table, validation: ValidationResult | None) -> None:
        self._table = table
        self._validation = validation
        look = table.inspect
        self._timeline = _cached_result(lambda: oldest_first(look.timeline()))
        self._commits = _cached_result(lambda: oldest_first(look.commits(MAX_INSTANTS)))
        self._slices = _cached_result(look.file_slices)
        self._partitions = _cached_result(partial(look.partitions, on_storage=True))
        self._locks = _cached_result(look.locks)
        self._markers = _cached_result(look.markers)

    def render(self) -> str:
        name = self._table.name
        sections = [
            ("state", "State", self._state),
            *([("check", "Check", self._check)] if self._validation else []),
            ("timeline", "Timeline", self._instants),
            ("writes", "Writes", self._writes),
            ("storage", "Storage", self._storage),
            ("slices", "File slices", self._file_slices),
            ("locks", "Locks and unfinished work", self._unfinished),
            ("settings", "Settings", self._settings),
        ]
        links = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _ in sections)
        body = "".join(
            f'<section id="{key}" aria-labelledby="{key}-head"><h2 id="{key}-head">{title}</h2>{_guarded(part)}</section>'
            for key, title, part in sections
        )
        now = datetime.fromtimestamp(self._table.context.env.now_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
            f'<title>{escaped(name)}: table report</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>'
            '<a class="skip" href="#main">Skip to the report</a>'
            f'<header><h1>{escaped(name)}</h1><p class="uri">{escaped(self._table.uri)}</p><p class="made">As of {now}, '
            f"by PyHudi</p></header>"
            f'<nav aria-label="Sections"><ul>{links}</ul></nav><main id="main" tabindex="-1">{body}</main>'
            f"<script>{_SCRIPT}</script></body></html>\n"
        )

    def _state(self) -> str:
        timeline, partitions, slices, commits = self._timeline(), self._partitions(), self._slices(), self._commits()
        pending = [row for row in timeline.to_pylist() if row["state"] != "COMPLETED"]
        base = sum(slices["base_size_bytes"].to_pylist())
        logs = sum(slices["log_size_bytes"].to_pylist())
        everything = sum(partitions["all_bytes"].to_pylist())
        factor = overall_factor(amplifications(commits))
        last = commits.slice(commits.num_rows - 1).to_pylist() if commits.num_rows else []
        cards = [
            (
                "Last write",
                readable_time(last[0]["completion_time"])[:19] if last else "none",
                last[0]["operation"].lower() if last else "",
            ),
            (
                "A query reads",
                readable_bytes(base + logs),
                f"{slices.num_rows:,} file slices in {partitions.num_rows:,} partitions",
            ),
            ("Of it in logs", f"{_percent(logs, base + logs)}", f"{readable_bytes(logs)} to be merged while reading"),
            ("On disk", readable_bytes(everything), f"{_times(everything, base + logs)} what a query reads"),
            ("Rows written", _factor(factor), "for each row changed, services included"),
            ("Pending", f"{len(pending):,}", "instants running, planned or interrupted" if pending else "nothing under way"),
        ]
        return (
            '<dl class="cards">'
            + "".join(f"<div><dt>{a}</dt><dd>{escaped(b)}<small>{escaped(c)}</small></dd></div>" for a, b, c in cards)
            + "</dl>"
        )

    def _check(self) -> str:
        result = self._validation
        assert result is not None
        findings = result.to_arrow()
        fits = not any(finding.severity is ValidationSeverity.ERROR for finding in result.findings)
        lead = "Everything that was compared fits." if fits else "Not everything fits."
        lead += "" if result.ok or not fits else " Not everything could be compared."
        return f'<p class="{"good" if result.ok else "bad"}">{lead}</p>' + _table(
            "findings", "Findings of the check", findings.column_names, [list(row.values()) for row in findings.to_pylist()], ""
        )

    def _instants(self) -> str:
        timeline = self._timeline()
        drawn = spans(timeline.slice(max(0, timeline.num_rows - MAX_INSTANTS)), self._commits())
        used = [lane for lane in LANES if any(span.lane == lane for span in drawn)]
        chart = lanes(drawn)
        rows = [
            [row["request_time"], row["action"], row["state"].lower(), readable_time(row["completion_time"])]
            for row in reversed(timeline.to_pylist())
        ]
        picture = (
            f'<div class="wide" tabindex="0" role="region" aria-label="Timeline, as a picture">{chart}</div>'
            + legend([*((lane, lane) for lane in used), ("pending", "pending: outlined")])
            if chart
            else "<p>Nothing has happened yet.</p>"
        )
        return picture + _details(
            f"All {timeline.num_rows:,} instants",
            _table("instants", "Instants, newest first", ("requested", "action", "state", "completed"), rows, "timeline"),
        )

    def _writes(self) -> str:
        commits = self._commits()
        if not commits.num_rows:
            return "<p>No write has completed.</p>"
        newest = amplifications(commits)[-MAX_BARS:][::-1]
        shown = [
            Bar(
                (
                    readable_time(write.request_time)[:19],
                    write.operation,
                    f"{write.rows_changed:,}",
                    f"{write.rows_written:,}",
                    _factor(write.factor) if not write.is_service else "service",
                ),
                (
                    ("changed", float(min(write.rows_changed, write.rows_written))),
                    ("copied", float(max(0, write.rows_written - write.rows_changed))),
                ),
            )
            for write in newest
        ]
        heads = [name for name in commits.column_names if name not in ("completion_time", "action", "is_service")]
        rows = [[row[head] for head in heads] for row in reversed(commits.to_pylist())]
        return (
            "<p>What a changed row costs: a rewritten file copies its other rows along, a log file holds the changed rows alone, "
            "and a compaction or clustering writes rows again.</p>"
            + legend([("changed", "rows changed"), ("copied", "rows copied along")])
            + _scroll(
                "Rows written by each write",
                bars("Rows written", ("requested", "operation", "changed", "written", "factor"), shown),
            )
            + _cut(len(newest), commits.num_rows, "writes", "")
            + _details("All figures", _table("commits", "Completed writes, newest first", heads, rows, "commits"))
        )

    def _storage(self) -> str:
        slices, partitions = self._slices(), self._partitions()
        buckets = size_buckets(slices)
        sizes = [
            Bar((f"{readable_bytes(b.low_bytes)} to {readable_bytes(b.high_bytes)}", f"{b.files:,}"), (("base", float(b.files)),))
            for b in buckets
        ]
        shares = storage_shares(partitions, slices)
        by_partition = [
            Bar(
                (
                    share.partition or "(not partitioned)",
                    readable_bytes(share.base_bytes),
                    readable_bytes(share.log_bytes),
                    readable_bytes(share.other_bytes),
                ),
                (("base", float(share.base_bytes)), ("log", float(share.log_bytes)), ("other", float(share.other_bytes))),
            )
            for share in shares[:MAX_BARS]
        ]
        parts = ["<h3>Base files by size</h3>"]
        parts.append(
            _scroll("Base files by size", bars("Base files by size", ("size", "files"), sizes)) if sizes else "<p>None.</p>"
        )
        parts.append("<h3>Bytes by partition</h3>")
        if by_partition:
            parts.append(
                legend([("base", "base files"), ("log", "log files"), ("other", "older versions, and files of no commit")])
            )
            chart = bars("Bytes by partition", ("partition", "base", "logs", "other"), by_partition)
            parts.append(_scroll("Bytes by partition", chart))
            parts.append(_cut(len(by_partition), len(shares), "partitions, the largest", "partitions"))
        else:
            parts.append("<p>No partition yet.</p>")
        return "".join(parts)

    def _file_slices(self) -> str:
        slices = self._slices().to_pylist()
        slices.sort(key=lambda row: -(row["base_size_bytes"] + row["log_size_bytes"]))
        rows = [
            [
                row["partition"],
                row["file_id"],
                readable_time(row["base_instant"]),
                row["base_size_bytes"],
                len(row["log_paths"]),
                row["log_size_bytes"],
            ]
            for row in slices[:MAX_ROWS]
        ]
        heads = ("partition", "file_id", "base_instant", "base_size_bytes", "log_files", "log_size_bytes")
        shown = _table("file-slices", "File slices that a query reads, the largest first", heads, rows, "")
        return shown + _cut(len(rows), len(slices), "file slices, the largest", "slices")

    def _unfinished(self) -> str:
        locks, markers = self._locks(), self._markers()
        now_ms = self._table.context.env.now_ms()
        parts = []
        for lock in locks.to_pylist():
            until = lock["valid_until_ms"]
            when = f", for another {max(0, until - now_ms) / 1000:,.0f} s" if lock["is_held"] and until else ""
            state = f"held by {lock['owner'] or 'an unknown owner'}{when}" if lock["is_held"] else "free"
            parts.append(f"<li><code>{escaped(lock['path'])}</code>: {escaped(state)}</li>")
        text = f"<ul>{''.join(parts)}</ul>" if parts else "<p>No lock object is stored with the table.</p>"
        if not markers.num_rows:
            return text + "<p>No write has left markers: nothing is half done.</p>"
        rows = [list(row.values()) for row in markers.slice(0, MAX_ROWS).to_pylist()]
        table = _table("markers", "Files that unfinished writes have begun", markers.column_names, rows, "")
        return text + table + _cut(len(rows), markers.num_rows, "markers", "markers")

    def _settings(self) -> str:
        config = self._table.config
        facts = [
            ("type", str(config.table_type)),
            ("version", str(int(config.version))),
            ("record key", ",".join(config.keys.record_fields) or "(generated)"),
            ("partitioned by", ",".join(field.name for field in config.keys.partition_fields) or "(not partitioned)"),
            ("ordering field", ", ".join(config.ordering_fields) or "(none)"),
            ("merge mode", str(config.merge.mode)),
            ("metadata table", ", ".join(config.metadata_partitions) or "(off)"),
        ]
        return '<dl class="facts">' + "".join(f"<dt>{a}</dt><dd>{escaped(b)}</dd>" for a, b in facts) + "</dl>"


def _cached_result(load: Callable[[], pa.Table]) -> Callable[[], pa.Table]:
    """Cache the result of `load`; a HudiError is raised at each use, so that every section that needs the result shows it."""
    try:
        rows = load()
    except HudiError as raised:
        error = raised

        def fail() -> pa.Table:
            raise error

        return fail
    return lambda: rows


def _guarded(part: Callable[[], str]) -> str:
    try:
        return part()
    except HudiError as error:
        return f'<p class="bad">This part cannot be read. {escaped(type(error).__name__)}: {escaped(str(error))}</p>'


def _table(key: str, caption: str, heads: Iterable[str], rows: _Rows, command: str) -> str:
    """A table that scrolls and sorts. Numbers are right-aligned; command: command that prints the truncated rows."""
    if not rows:
        return f"<p>{escaped(caption)}: none.</p>"
    head = "".join(f'<th scope="col"><button type="button">{escaped(name.replace("_", " "))}</button></th>' for name in heads)
    lines = []
    for row in rows[:MAX_ROWS]:
        cells = "".join(_cell(value) for value in row)
        lines.append(f"<tr>{cells}</tr>")
    table = (
        f'<table class="sorted" id="{key}"><caption>{escaped(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )
    return _scroll(caption, table) + _cut(len(rows[:MAX_ROWS]), len(rows), "rows", command)


def _cell(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td class="number" data-v="{value}">{value:,}</td>'
    return f"<td>{escaped('' if value is None else str(value))}</td>"


def _scroll(label: str, inner: str) -> str:
    return f'<div class="wide" tabindex="0" role="region" aria-label="{escaped(label)}">{inner}</div>'


def _details(summary: str, inner: str) -> str:
    return f"<details><summary>{escaped(summary)}</summary>{inner}</details>"


def _cut(limit: int, total: int, description: str, command: str) -> str:
    if limit >= total:
        return ""
    rest = f" <code>pyhudi {command} TABLE</code> lists all." if command else ""
    return f'<p class="note">{limit:,} of {total:,} {description}.{rest}</p>'


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:.0f} %" if total else "0 %"


def _times(total: int, part: int) -> str:
    return f"{total / part:.1f} times" if part else "not"


def _factor(value: float | None) -> str:
    return "none" if value is None else f"{value:,.1f}"


_STYLE = resources.files("pyhudi.features.report").joinpath("page.css").read_text("utf-8")
_SCRIPT = resources.files("pyhudi.features.report").joinpath("page.js").read_text("utf-8")
