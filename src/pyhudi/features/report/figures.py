"""Data of the report and the plots, from the Arrow tables of `Table.inspect`.

    spans               instants as time ranges, in the lane of their type of action
    size_buckets        histogram of base file sizes, in buckets whose bounds double
    storage_shares      bytes per partition: base and log files that queries read, and other files
    amplifications      write amplification: rows written per changed row, by write

Pure functions without IO or clock. Instant times are used as digits, in the table's time zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Action, parse_instant_time

LANES = ("writes", "compaction", "clustering", "clean", "rollback", "savepoint", "indexing")
"""Lanes of a timeline, top to bottom."""


@dataclass(frozen=True, slots=True)
class Span:
    """One instant as a time range.

    Attributes:
        lane: Lane of its type of action.
        label: Description of the operation.
        request_time: Request time, as stored.
        start_ms: Request time, as milliseconds of the digits interpreted as UTC.
        end_ms: Completion time, likewise; None while it is pending.
    """

    lane: str
    label: str
    request_time: str
    start_ms: int
    end_ms: int | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """Files of at least `low_bytes` and less than `high_bytes`."""

    low_bytes: int
    high_bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes of a partition. base, log: files that a snapshot query reads; other: older versions, and uncommitted files."""

    partition: str
    base_bytes: int
    log_bytes: int
    other_bytes: int

    @property
    def total_bytes(self) -> int:
        """Sum of all bytes."""
        return self.base_bytes + self.log_bytes + self.other_bytes


@dataclass(frozen=True, slots=True)
class Amplification:
    """Write amplification of one write. rows_changed: inserted, updated and deleted; rows_written: including copied rows."""

    request_time: str
    operation: str
    is_service: bool
    rows_changed: int
    rows_written: int
    bytes_written: int

    @property
    def factor(self) -> float | None:
        """Rows written per changed row; None for a service, and if no row changed."""
        return None if self.is_service or not self.rows_changed else self.rows_written / self.rows_changed


def spans(timeline: pa.Table, commits: pa.Table) -> tuple[Span, ...]:
    """Instants as time ranges, by request time. Instants whose digits are not a date (those of bootstraps) are omitted.

    timeline: TIMELINE_SCHEMA; commits: COMMITS_SCHEMA, which distinguishes a compaction from a write.
    """
    operations = dict(zip(commits["request_time"].to_pylist(), commits["operation"].to_pylist(), strict=True))
    result = []
    for row in timeline.to_pylist():
        # A savepoint has the request time of the commit that it names.
        is_savepoint = row["action"] == Action.SAVEPOINT
        operation = "" if is_savepoint else operations.get(row["request_time"], "")
        start = _parse_time(row["request_time"])
        if start is None:
            continue
        end = _parse_time(row["completion_time"] or "") if row["state"] == "COMPLETED" else None
        if row["state"] == "COMPLETED" and end is None:
            end = start
        start = end if is_savepoint and end is not None else start
        label = operation.lower() or row["action"]
        result.append(Span(_lane(row["action"], operation), label, row["request_time"], start, end))
    return tuple(result)


def size_buckets(slices: pa.Table, most: int = 12) -> tuple[Bucket, ...]:
    """Histogram of the sizes of the base files that queries read; smallest first, without gaps, at most `most` buckets.

    slices: FILE_SLICES_SCHEMA. Bounds are powers of two, or of four and so on if the sizes span too many powers.
    """
    sizes = slices.filter(pc.is_valid(slices["base_path"]))["base_size_bytes"].to_numpy().astype(np.int64)
    if not len(sizes):
        return ()
    exponents = np.array([max(0, int(size).bit_length() - 1) for size in np.unique(sizes)])
    step = 1
    while exponents.max() // step - exponents.min() // step + 1 > most:
        step += 1
    bounds = [1 << (step * k) for k in range(int(exponents.min()) // step, int(exponents.max()) // step + 2)]
    counts = np.histogram(np.maximum(sizes, 1), bins=np.array(bounds, dtype=np.float64))[0]
    return tuple(Bucket(low, high, int(n)) for low, high, n in zip(bounds[:-1], bounds[1:], counts, strict=True))


def storage_shares(partitions: pa.Table, slices: pa.Table) -> tuple[Share, ...]:
    """Bytes of each partition, largest first. partitions: PARTITIONS_SCHEMA; slices: FILE_SLICES_SCHEMA."""
    sums = slices.group_by("partition").aggregate([("base_size_bytes", "sum"), ("log_size_bytes", "sum")])
    current = {
        partition: (base, log)
        for partition, base, log in zip(
            sums["partition"].to_pylist(),
            sums["base_size_bytes_sum"].to_pylist(),
            sums["log_size_bytes_sum"].to_pylist(),
            strict=True,
        )
    }
    shares = []
    for partition, total in zip(partitions["partition"].to_pylist(), partitions["all_bytes"].to_pylist(), strict=True):
        base, log = current.get(partition, (0, 0))
        shares.append(Share(partition, base, log, max(0, total - base - log)))
    return tuple(sorted(shares, key=lambda share: (-share.total_bytes, share.partition)))


def oldest_first(rows: pa.Table) -> pa.Table:
    """Reverse the rows of an inspection, which come newest first."""
    return rows.take(pa.array(range(rows.num_rows - 1, -1, -1), pa.int64()))


def amplifications(commits: pa.Table) -> tuple[Amplification, ...]:
    """Write amplification of each write, by request time. commits: COMMITS_SCHEMA."""
    return tuple(
        Amplification(
            row["request_time"],
            row["operation"].lower(),
            row["is_service"],
            row["rows_inserted"] + row["rows_updated"] + row["rows_deleted"],
            row["rows_written"],
            row["bytes_written"],
        )
        for row in commits.to_pylist()
    )


def overall_factor(writes: tuple[Amplification, ...]) -> float | None:
    """Rows written by writes and services per row changed by writes; None if no row changed."""
    changed = sum(write.rows_changed for write in writes)
    return sum(write.rows_written for write in writes) / changed if changed else None


def readable_bytes(size_bytes: float) -> str:
    """A size such as 1.3 MiB: at most three digits before the unit."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}".replace(".0 ", " ")
        size /= 1024
    return f"{size:,.1f} TiB"


_LANE_OF_ACTION = {
    Action.COMPACTION: "compaction",
    Action.LOGCOMPACTION: "compaction",
    Action.CLUSTERING: "clustering",
    Action.CLEAN: "clean",
    Action.ROLLBACK: "rollback",
    Action.RESTORE: "rollback",
    Action.SAVEPOINT: "savepoint",
    Action.INDEXING: "indexing",
}
_LANE_OF_OPERATION = {"COMPACT": "compaction", "LOG_COMPACT": "compaction", "CLUSTER": "clustering"}


def _lane(action: str, operation: str) -> str:
    return _LANE_OF_OPERATION.get(operation) or _LANE_OF_ACTION.get(Action(action), "writes")


def _parse_time(digits: str) -> int | None:
    try:
        return parse_instant_time(digits, UTC)
    except InvalidRequest:
        return None
