"""NaN and both zeros in filters: on rows, on statistics, on partition values, in scans and in deletes."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.records.column_ranges import RangeColumn, may_match
from pyhudi.records.column_statistics import batch_ranges, may_omit_nan
from pyhudi.records.filters.arrow_expressions import to_arrow
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.filters.range_pruning import prune_ranges, prune_values
from pyhudi.table.snapshot import load_snapshot
from pyhudi.tasks.base_file_reader import open_base_file
from tests.support.float_filters import CASES, VALUES, Case, expected

_names = itertools.count()
SCHEMA = pa.schema([("x", pa.float64())])
BATCH = pa.record_batch({"x": pa.array(VALUES, pa.float64()), "place": list(range(len(VALUES)))})


def rows() -> pa.Table:
    places = range(len(VALUES))
    return pa.table(
        {"id": [f"k{n}" for n in places], "p": [f"p{n // 3}" for n in places], "x": pa.array(VALUES, pa.float64()), "ts": places}
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0])[:60])
def test_rows_values_and_ranges(case: Case) -> None:
    chosen = expected(case)
    assert pa.Table.from_batches([BATCH]).filter(to_arrow(parse_filter(case[0]), SCHEMA))["place"].to_pylist() == chosen
    bound = bind(parse_filter(case[0]), SCHEMA)
    assert [place for place, value in enumerate(VALUES) if prune_values(bound, {"x": value})] == chosen
    pairs = list(itertools.combinations_with_replacement(range(len(VALUES)), 2))
    found = [batch_ranges(BATCH.take(pa.array(pair)), ["x"])["x"] for pair in pairs]
    kept = np.array([prune_ranges(bound, {"x": one}) for one in found])
    assert all(keep or not set(pair) & set(chosen) for keep, pair in zip(kept, pairs, strict=True))
    column = RangeColumn(
        pa.array([one.min for one in found], pa.float64()),
        pa.array([one.max for one in found], pa.float64()),
        pa.array([one.null_count for one in found], pa.int64()),
        pa.array([one.value_count for one in found], pa.int64()),
    )
    assert (may_match(bound, {"x": column}, len(pairs)) == kept).all()


def made(table_type: str, **options: object) -> Table:
    table = Table.create(
        f"memory://floats-{next(_names)}",
        name="t",
        record_key="id",
        partition_by=str(options.pop("by", "p")),
        ordering="ts",
        table_type=table_type,
        options={
            "hoodie.index.bloom.num_entries": 100,
            "hoodie.compact.inline": False,
            "hoodie.metadata.index.column.stats.enable": True,
            **options,
        },
    )
    table.upsert(rows())
    return table


def ids(table: Table, case: Case | None = None) -> list[str]:
    return sorted(table.scan(["id"], filter=None if case is None else case[0]).to_arrow()["id"].to_pylist())


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["files", "logs", "partitions"])
def test_scans(how: str) -> None:
    if how == "partitions":
        table = made("cow", by="x")
    else:
        table = made("mor" if how == "logs" else "cow")
    if how == "logs":
        table.upsert(rows())
    for case in CASES:
        assert ids(table, case) == [f"k{place}" for place in expected(case)], case[0]


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_deletes(table_type: str) -> None:
    chosen = [case for case in CASES if case[0] in ([("x", ">", 7.5)], [("x", "=", -0.0)], "x = 'NaN'")]
    assert chosen
    for case in chosen:
        table = made(table_type)
        table.delete(where=case[0])
        assert ids(table) == sorted({f"k{n}" for n in range(len(VALUES))} - {f"k{n}" for n in expected(case)})


def test_footers_state_no_bounds_of_columns_that_hold_nan() -> None:
    """Spark and Apache Hudi prune row groups by these bounds, and treat NaN as the largest value."""
    table = made("cow", **{"hoodie.parquet.small.file.limit": 0})
    bounds = {}
    for partition in load_snapshot(table.context).slices(None).values():
        for slice_ in partition:
            assert slice_.base is not None
            with open_base_file(table.context.storage, slice_.base.path) as file:
                assert not may_omit_nan(file.metadata)
                chunks = [file.metadata.row_group(0).column(place) for place in range(file.metadata.num_columns)]
                found = {chunk.path_in_schema: chunk.statistics for chunk in chunks if chunk.statistics is not None}
                bounds[slice_.partition] = found["x"].has_min_max
                assert found["x"].null_count == (1 if slice_.partition == "p2" else 0)
                assert found["ts"].has_min_max
                assert file.read().num_rows == 3
    assert bounds == {"p0": True, "p1": True, "p2": False}
