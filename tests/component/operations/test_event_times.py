"""Commits record the event times of their files (`hoodie.payload.event.time.field`)."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.table.snapshot import read_commit

FIELD = "hoodie.payload.event.time.field"
WATERMARK = "hoodie.write.track.event.time.watermark"
START = 1_700_000_000_000
_names = itertools.count()


def created(kind: str, **options: object) -> Table:
    return Table.create(
        f"memory://events-{next(_names)}",
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=kind,
        options={
            "hoodie.metadata.enable": False,
            "hoodie.compact.inline": False,
            "hoodie.parquet.small.file.limit": 0,
            **options,
        },
        environment=ReplayEnvironment(1),
    )


def rows(**seconds: int | None) -> pa.Table:
    times = [None if s is None else START + 1000 * s for s in seconds.values()]
    return pa.table(
        {
            "id": list(seconds),
            "part": [key[0] for key in seconds],
            "ts": pa.array([1] * len(seconds), pa.int64()),
            "at": pa.array(times, pa.int64()),
        }
    )


def watermarks(table: Table) -> dict[str, tuple[int | None, int | None]]:
    """Of each partition, in seconds since START."""
    last = table.timeline().completed_writes()[-1]
    stats = read_commit(table.context.timeline, last).write_stats
    bounds = {str(stat.partition_path): (stat.min_event_time, stat.max_event_time) for stat in stats}
    assert len(bounds) == len(stats)
    return {part: tuple(None if t is None else (t - START) // 1000 for t in pair) for part, pair in bounds.items()}  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_bounds_of_files(kind: str, log_format: str) -> None:
    table = created(kind, **{FIELD: "at", "hoodie.logfile.data.block.format": log_format})
    table.insert(rows(a1=1, a2=9, b1=5))
    assert watermarks(table) == {"a": (1, 9), "b": (5, 5)}
    table.upsert(rows(a1=4))
    # A base file records it for all its rows, as in Apache Hudi 1.1; a log file for the rows that it holds.
    assert watermarks(table) == ({"a": (4, 9)} if kind == "cow" else {"a": (4, 4)})
    table.upsert(rows(b1=None))
    assert watermarks(table) == {"b": (None, None)}
    table.bulk_insert(rows(c1=7, c2=8))
    assert watermarks(table) == {"c": (7, 8)}
    if kind == "mor":
        table.compact()
        assert set(watermarks(table).values()) == {(None, None)}, "a service says nothing of events"


def test_no_watermark_without_the_field_or_with_the_option_off() -> None:
    for options in ({}, {FIELD: "at", WATERMARK: False}):
        table = created("cow", **options)
        table.insert(rows(a1=1))
        assert watermarks(table) == {"a": (None, None)}


@pytest.mark.parametrize(("field", "error"), [("when", InvalidRequest), ("flag", Unsupported)])
def test_event_time_field_without_a_time_is_refused_before_writing(field: str, error: Any) -> None:
    table = created("cow", **{FIELD: field})
    with pytest.raises(error, match=f"event.time.field={field}"):
        table.insert(rows(a1=1).append_column("flag", pa.array([True])))
    assert not table.timeline().completed_writes()
