"""Figures of the report and plots, computed from the tables of inspection."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from pyhudi.api.inspect import COMMITS_SCHEMA, FILE_SLICES_SCHEMA, PARTITIONS_SCHEMA, TIMELINE_SCHEMA
from pyhudi.features.report.charts import readable_time
from pyhudi.features.report.figures import (
    Bucket,
    Share,
    amplifications,
    overall_factor,
    readable_bytes,
    size_buckets,
    spans,
    storage_shares,
)


def slices(*rows: tuple[str, int | None, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "partition": partition,
                "file_id": f"f{n}",
                "base_instant": "20260101000000000",
                "base_path": None if base is None else f"{partition}/f{n}",
                "base_size_bytes": base or 0,
                "log_paths": [],
                "log_size_bytes": log,
            }
            for n, (partition, base, log) in enumerate(rows)
        ],
        schema=FILE_SLICES_SCHEMA,
    )


def commit(time: str, operation: str, changed: int, written: int, *, is_service: bool = False) -> dict[str, object]:
    return {
        "request_time": time,
        "completion_time": time,
        "action": "commit",
        "operation": operation,
        "is_service": is_service,
        "partitions": 1,
        "files_written": 1,
        "file_groups_replaced": 0,
        "rows_inserted": 0,
        "rows_updated": changed,
        "rows_deleted": 0,
        "rows_written": written,
        "bytes_written": 1,
    }


def test_buckets_double_and_leave_no_gap_and_slices_without_a_base_do_not_count() -> None:
    found = size_buckets(slices(("a", 1024, 0), ("a", 2047, 0), ("a", 8192, 0), ("b", None, 50)))
    assert found == (Bucket(1024, 2048, 2), Bucket(2048, 4096, 0), Bucket(4096, 8192, 0), Bucket(8192, 16384, 1))
    assert size_buckets(slices(("b", None, 50))) == ()


@pytest.mark.parametrize("most", [1, 2, 5, 12])
def test_size_buckets_respect_the_limit_and_contain_every_file(most: int) -> None:
    sizes = [0, 1, 3, 1 << 10, (1 << 20) + 5, 1 << 33, 1 << 50]
    found = size_buckets(slices(*(("a", size, 0) for size in sizes)), most)
    assert len(found) <= most and sum(bucket.files for bucket in found) == len(sizes)
    assert all(a.high_bytes == b.low_bytes for a, b in pairwise(found))


def test_shares_report_unread_bytes() -> None:
    rows = [
        {"partition": name, "file_slices": 1, "current_files": 1, "current_bytes": 0, "all_files": 1, "all_bytes": total}
        for name, total in (("a", 100), ("b", 500), ("gone", 7))
    ]
    partitions = pa.Table.from_pylist(rows, schema=PARTITIONS_SCHEMA)
    found = storage_shares(partitions, slices(("a", 60, 10), ("b", 200, 0), ("b", 100, 5)))
    assert found == (Share("b", 300, 5, 195), Share("a", 60, 10, 30), Share("gone", 0, 0, 7))
    assert found[0].total_bytes == 500


def test_write_amplification_includes_services_only_in_the_total() -> None:
    rows = [commit("20260101000000000", "UPSERT", 10, 100), commit("20260102000000000", "COMPACT", 0, 50, is_service=True)]
    found = amplifications(pa.Table.from_pylist(rows, schema=COMMITS_SCHEMA))
    assert [write.factor for write in found] == [10.0, None]
    assert overall_factor(found) == 15.0
    assert overall_factor(found[1:]) is None


def test_spans_recognize_a_compaction_completed_as_commit() -> None:
    instants = [
        ("20260101000000000", "20260101000001500", "commit", "COMPLETED"),
        ("20260101000000000", "20260101000009000", "savepoint", "COMPLETED"),
        ("20260101000100000", None, "compaction", "REQUESTED"),
        ("00000000000000", "00000000000001", "commit", "COMPLETED"),
    ]
    timeline = pa.Table.from_pylist(
        [dict(zip(TIMELINE_SCHEMA.names, row, strict=True)) for row in instants], schema=TIMELINE_SCHEMA
    )
    commits = pa.Table.from_pylist([commit("20260101000000000", "COMPACT", 0, 1, is_service=True)], schema=COMMITS_SCHEMA)
    done, savepoint, pending = spans(timeline, commits)
    assert (done.lane, done.label) == ("compaction", "compact")
    assert done.end_ms is not None and done.end_ms - done.start_ms == 1500
    assert (savepoint.lane, savepoint.label, savepoint.start_ms) == ("savepoint", "savepoint", savepoint.end_ms)
    assert savepoint.start_ms - done.start_ms == 9000
    assert (pending.lane, pending.label, pending.end_ms) == ("compaction", "compaction", None)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1_314_045, "1.3 MiB"), (500 << 20, "500 MiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert readable_bytes(size) == text


def test_times_are_readable() -> None:
    assert readable_time("20261121105516551") == "2026-11-21 10:55:16.551"
    assert readable_time("20261121105516") == "2026-11-21 10:55:16"
    assert (readable_time("00000002"), readable_time(None)) == ("00000002", "")
