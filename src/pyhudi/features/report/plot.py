"""Charts of table health with matplotlib: `Table.plot` (`pip install "pyhudi[plot]"`).

    t.plot.sizes()            histogram of base file sizes
    t.plot.storage()          bytes per partition
    t.plot.timeline()         instants in lanes, one per type of action
    t.plot.amplification()    write amplification: rows written per changed row, by write

Each method draws on the axes passed, or on new ones, and returns them for display in a notebook or for further changes:
`t.plot.sizes().figure.savefig("sizes.png")`. Text and background follow matplotlib's style sheet. `pyhudi report` shows
the same charts on a page, without matplotlib.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyhudi.api.argument_types import checked_class
from pyhudi.api.inspect import Inspection
from pyhudi.errors import InvalidRequest
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PARTITIONS = 20
"""Maximum partitions in a chart, the largest; the others are one bar."""
MAX_WRITES = 100
"""Maximum writes and instants in a chart, the latest."""


@checked_class
class Plots:
    """Charts of one table. Every method loads its data when it is called; no data file is opened."""

    def __init__(self, inspection: Inspection, name: str) -> None:
        self._look = inspection
        self._name = name

    def sizes(self, axes: Axes | None = None) -> Axes:
        """Histogram of the base files that a snapshot query reads, in buckets whose bounds double.

        Args:
            axes: Axes of Matplotlib to draw on; None creates a figure.

        Returns:
            The axes.
        """
        drawn = _axes(axes)
        buckets = size_buckets(self._look.file_slices())
        drawn.bar(range(len(buckets)), [bucket.files for bucket in buckets], width=0.9, color=_COLOURS["base"])
        labels = [f"{readable_bytes(bucket.low_bytes)}–\n{readable_bytes(bucket.high_bytes)}" for bucket in buckets]
        drawn.set_xticks(range(len(buckets)), labels)
        drawn.set_ylim(0, max((bucket.files for bucket in buckets), default=1) * 1.05)
        drawn.set(title=f"{self._name}: base files by size", xlabel="size", ylabel="files")
        return drawn

    def storage(self, axes: Axes | None = None) -> Axes:
        """Bytes of each partition: base files and log files that a snapshot query reads, and other files.

        Args:
            axes: Axes of Matplotlib to draw on; None creates a figure.

        Returns:
            The axes.
        """
        drawn = _axes(axes)
        slices = self._look.file_slices()
        shares = list(storage_shares(self._look.partitions(on_storage=True), slices))
        rest = shares[MAX_PARTITIONS:]
        names = [share.partition or "(not partitioned)" for share in shares[:MAX_PARTITIONS]]
        rows = [(share.base_bytes, share.log_bytes, share.other_bytes) for share in shares[:MAX_PARTITIONS]]
        if rest:
            names.append(f"{len(rest):,} others")
            rows.append(
                (sum(s.base_bytes for s in rest), sum(s.log_bytes for s in rest), sum(s.other_bytes for s in rest)),
            )
        unit, name = _unit(max((sum(row) for row in rows), default=0))
        left = [0.0] * len(rows)
        for number, (share, label) in enumerate((("base", "base files"), ("log", "log files"), ("other", "older versions"))):
            widths = [row[number] / unit for row in rows]
            drawn.barh(names, widths, left=left, color=_COLOURS[share], label=label)
            left = [done + width for done, width in zip(left, widths, strict=True)]
        drawn.invert_yaxis()
        drawn.set(title=f"{self._name}: bytes by partition", xlabel=name)
        _legend(drawn)
        return drawn

    def timeline(self, axes: Axes | None = None) -> Axes:
        """The latest instants in lanes; pending ones are outlined and extend to the right edge.

        Args:
            axes: Axes of Matplotlib to draw on; None creates a figure.

        Returns:
            The axes.
        """
        drawn = _axes(axes)
        timeline = oldest_first(self._look.timeline())
        shown = spans(timeline.slice(max(0, timeline.num_rows - MAX_WRITES)), oldest_first(self._look.commits(MAX_WRITES)))
        used = [lane for lane in LANES if any(span.lane == lane for span in shown)]
        last = max((span.start_ms if span.end_ms is None else span.end_ms for span in shown), default=0)
        first = min((span.start_ms for span in shown), default=0)
        least = max(1, (last - first) // 200)  # minimum visible width of a mark
        for span in shown:
            width = max(least, (last if span.end_ms is None else span.end_ms) - span.start_ms)
            colour = _COLOURS[span.lane]
            drawn.barh(
                used.index(span.lane),
                width / 86_400_000,
                left=span.start_ms / 86_400_000,
                height=0.6,
                color="none" if span.end_ms is None else colour,
                edgecolor=colour,
                linestyle="--" if span.end_ms is None else "-",
            )
        drawn.set_yticks(range(len(used)), used)
        drawn.invert_yaxis()
        drawn.xaxis_date()
        drawn.xaxis.set_major_formatter(lambda days, _: _tick(days, last - first))
        drawn.set(title=f"{self._name}: timeline")
        return drawn

    def amplification(self, axes: Axes | None = None) -> Axes:
        """Write amplification: rows that each write changed, and rows that it copied; services only copy.

        Args:
            axes: Axes of Matplotlib to draw on; None creates a figure.

        Returns:
            The axes.
        """
        drawn = _axes(axes)
        writes = amplifications(oldest_first(self._look.commits(MAX_WRITES)))
        places = range(len(writes))
        changed = [min(write.rows_changed, write.rows_written) for write in writes]
        copied = [write.rows_written - rows for write, rows in zip(writes, changed, strict=True)]
        drawn.bar(places, changed, color=_COLOURS["changed"], label="changed")
        drawn.bar(places, copied, bottom=changed, color=_COLOURS["copied"], label="copied along")
        every = max(1, len(writes) // 10)
        drawn.set_xticks(list(places)[::every], [write.operation for write in writes][::every], rotation=30, ha="right")
        factor = overall_factor(writes)
        summary = "nothing changed" if factor is None else f"{factor:,.1f} rows written for each row changed"
        drawn.set(title=f"{self._name}: {summary}", ylabel="rows written")
        _legend(drawn)
        return drawn


_COLOURS = {
    "base": "#3b6fb6",
    "log": "#c96a12",
    "other": "#9aa3ad",
    "changed": "#1f8a70",
    "copied": "#b4bcc6",
    "writes": "#3b6fb6",
    "compaction": "#c96a12",
    "clustering": "#7a4fb5",
    "clean": "#1f8a70",
    "rollback": "#b3362f",
    "savepoint": "#8a7300",
    "indexing": "#56707d",
}


def _axes(axes: Axes | None) -> Axes:
    if axes is not None:
        return axes
    try:
        from matplotlib.figure import Figure
        from matplotlib.pyplot import figure
    except ImportError:
        raise InvalidRequest('plots need matplotlib: pip install "pyhudi[plot]"') from None
    new_figure: Figure = figure(figsize=(9, 4), layout="constrained")
    return new_figure.add_subplot()


def _unit(size_bytes: int) -> tuple[int, str]:
    """Unit of an axis up to `size_bytes`."""
    power = min(4, max(0, size_bytes.bit_length() - 1) // 10)
    return 1 << (10 * power), ("bytes", "KiB", "MiB", "GiB", "TiB")[power]


def _legend(artists: Any) -> None:
    if artists.get_legend_handles_labels()[0]:
        artists.legend(frameon=False)


def _tick(days: float, length_ms: int) -> str:
    moment = datetime.fromtimestamp(days * 86_400, UTC)
    if length_ms < 10 * 60_000:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%m-%d %H:%M" if length_ms < 30 * 86_400_000 else "%Y-%m-%d")
