"""Assets are stored as Hudi tables: modes, partitions, types of readers, and the check."""

from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyhudi_dagster import HudiIOManager, validation_check

import pyhudi as hp


def run(tmp_path: Path, *assets: Any, **arguments: Any) -> dg.ExecuteInProcessResult:
    return dg.materialize(list(assets), resources={"io_manager": HudiIOManager(base=str(tmp_path))}, **arguments)


def test_an_asset_is_upserted_and_read_as_its_annotation_says(tmp_path: Path) -> None:
    fares = iter([9.5, 4.5])
    seen = []

    @dg.asset(metadata={"hudi/mode": "upsert", "hudi/record_key": "id"})
    def trips() -> pa.Table:
        return pa.table({"id": [1], "fare": [next(fares)]})

    @dg.asset
    def by_pandas(trips: pd.DataFrame) -> pd.DataFrame:
        seen.append(float(trips["fare"].sum()))
        return trips[["id"]]

    @dg.asset
    def by_polars(trips: pl.DataFrame) -> pl.DataFrame:
        seen.append(float(trips["fare"].sum()))
        return trips.select("id")

    @dg.asset(metadata={"hudi/mode": "append"})
    def by_table(trips: hp.Table) -> pa.Table:
        return pa.table({"rows": [trips.count()]})

    for _ in range(2):
        assert run(tmp_path, trips, by_pandas, by_polars, by_table).success
    assert sorted(seen) == [4.5, 4.5, 9.5, 9.5]
    assert hp.Table(tmp_path / "by_table").count() == 2
    result = run(tmp_path, validation_check(trips, str(tmp_path)), trips, selection=dg.AssetSelection.all_asset_checks())
    assert [evaluation.passed for evaluation in result.get_asset_check_evaluations()] == [True]


def test_a_partition_replaces_its_own_rows(tmp_path: Path) -> None:
    days = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02"])
    fares = iter([1.0, 2.0, 3.0])

    @dg.asset(partitions_def=days, metadata={"hudi/partition_by": "day"})
    def trips(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"day": [context.partition_key], "fare": [next(fares)]})

    @dg.asset(partitions_def=days)
    def copies(trips: pa.Table) -> None:
        days_read.append(trips["day"].to_pylist())

    days_read: list[list[str]] = []
    for day in ("2026-01-01", "2026-01-02", "2026-01-01"):
        assert run(tmp_path, trips, partition_key=day).success
    rows = hp.Table(tmp_path / "trips").scan(["day", "fare"]).to_arrow().to_pylist()
    assert sorted((row["day"], row["fare"]) for row in rows) == [("2026-01-01", 3.0), ("2026-01-02", 2.0)]


def test_a_mode_that_is_unknown_is_refused(tmp_path: Path) -> None:
    @dg.asset(metadata={"hudi/mode": "replace"})
    def trips() -> pa.Table:
        return pa.table({"id": [1]})

    with pytest.raises(hp.InvalidRequest, match="'replace' is none of"):
        run(tmp_path, trips)
