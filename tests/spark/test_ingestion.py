"""Ingestion jobs on Spark write the rows that the embedded ones write."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest, Unsupported
from tests.support.ingestion import checkpoints, counted, write_lines

OLD_MS = 1_767_225_600_000


def bad_rows(path: Path) -> Counter[tuple[Any, ...]]:
    return counted(Table(path), "record", "origin", "target", "checkpoint")


def test_files_with_bad_rows_and_transforms(spark: SparkSession, tmp_path: Path) -> None:
    incoming = tmp_path / "in"
    write_lines(incoming / "a.json", [{"id": 1, "ts": 1, "v": "a"}, {"id": 2, "ts": 1, "v": "b"}], OLD_MS)
    write_lines(incoming / "b.json", [{"id": 2, "ts": 2, "v": "bb"}, {"id": None, "ts": 2, "v": "c"}], OLD_MS + 1)
    with (incoming / "a.json").open("a") as file:
        file.write("broken\nbroken\n")
    os.utime(incoming / "a.json", ns=(OLD_MS * 1_000_000,) * 2)

    def upper(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("id", "ts", "upper(v) AS v")

    def config(name: str, transforms: list[Any]) -> dict[str, Any]:
        return {
            "path": tmp_path / name,
            "record_key": "id",
            "ordering": "ts",
            "error_table": str(tmp_path / f"{name}-errors"),
            "source": {"kind": "files", "path": str(incoming), "settle_seconds": 0},
            "transforms": transforms,
        }

    with pytest.raises(InvalidRequest, match=r"a\.json cannot be written .*set error_table"):
        hp.Ingest({**config("stopped", []), "error_table": None}, spark=spark).run()
    sql = {"sql": "SELECT id, ts, v FROM <SRC> WHERE ts < 100"}
    result = hp.Ingest(config("t", [sql, upper]), spark=spark).run()[0]
    assert (result.batches, result.rows, result.bad_rows) == (1, 2, 3)
    embedded = hp.Ingest(config("e", [sql, {"sql": "SELECT id, ts, upper(v) AS v FROM <SRC>"}])).run()[0]
    assert (embedded.rows, embedded.bad_rows, embedded.checkpoint) == (2, 3, result.checkpoint)
    assert counted(Table(tmp_path / "t"), "id", "ts", "v") == counted(Table(tmp_path / "e"), "id", "ts", "v")
    expected = {(record, origin): count for (record, origin, _, _), count in bad_rows(tmp_path / "e-errors").items()}
    assert {(record, origin): count for (record, origin, _, _), count in bad_rows(tmp_path / "t-errors").items()} == expected
    write_lines(incoming / "c.json", [{"id": 3, "ts": 3, "v": "d"}], OLD_MS + 2)
    assert hp.Ingest(config("t", [sql, upper]), spark=spark).run()[0].rows == 1
    assert hp.Ingest(config("t", [sql, upper])).run()[0].batches == 0
    assert checkpoints(Table(tmp_path / "t")) == [str(OLD_MS + 1), str(OLD_MS + 2)]


def test_types_of_csv_files_are_inferred(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, text in (("a", "id,ts,n,v\na,9,1,1\n"), ("b", "id,ts,n,v\nb,1,2.5,x\n")):
        (tmp_path / "in" / f"{name}.csv").write_text(text)
    source = {"kind": "files", "path": str(tmp_path / "in"), "order": "name"}

    def run(name: str, session: SparkSession | None) -> None:
        job: dict[str, Any] = {"path": tmp_path / name, "record_key": "id", "ordering": "ts", "source": source}
        hp.Ingest({**job, "error_table": str(tmp_path / f"{name}-errors")}, spark=session).run()

    runs = (("t", spark), ("e", None))
    for name, session in runs:
        run(name, session)
    (tmp_path / "in" / "c.csv").write_text("id,ts,n,v\na,10,3,2\nb,2,no,9\n")
    for name, session in runs:
        run(name, session)
        assert counted(Table(tmp_path / name), "id", "ts", "n", "v") == Counter({("a", 10, 3.0, "2"): 1, ("b", 1, 2.5, "x"): 1})
        assert Table(tmp_path / f"{name}-errors").count() == 1


def test_a_table_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    source = Table.create(tmp_path / "s", record_key="id", ordering="ts")
    source.upsert({"id": [1, 2], "ts": [1, 1]})
    config: dict[str, Any] = {
        "path": tmp_path / "t",
        "record_key": "id",
        "ordering": "ts",
        "source": {"kind": "table", "path": str(tmp_path / "s")},
    }
    assert hp.Ingest(config, spark=spark).run()[0].rows == 2
    source.upsert({"id": [2, 3], "ts": [2, 2]})
    assert hp.Ingest(config, spark=spark).run()[0].rows == 2
    assert hp.Ingest(config).run()[0].batches == 0
    assert counted(Table(tmp_path / "t"), "id", "ts") == counted(source, "id", "ts")


def test_a_source_that_returns_dataframes(spark: SparkSession, tmp_path: Path) -> None:
    class Frames:
        def read(self, checkpoint: str | None, limit: object) -> tuple[DataFrame, str] | None:
            number = int(checkpoint or 0)
            return (spark.range(number, number + 2), str(number + 1)) if number < 2 else None

    result = hp.Ingest({"path": tmp_path / "t", "record_key": "id", "source": Frames()}, spark=spark).run()[0]
    assert (result.batches, result.rows) == (2, 4)
    assert counted(Table(tmp_path / "t"), "id") == Counter({(number,): 1 for number in range(3)})


def test_sources_that_read_embedded_only_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    class Rows:
        def read(self, checkpoint: str | None, limit: object) -> tuple[dict[str, list[int]], str]:
            return {"id": [1]}, "1"

    with pytest.raises(Unsupported, match="source python does not read on Spark"):
        hp.Ingest({"path": tmp_path / "t", "record_key": "id", "source": Rows()}, spark=spark).run()
    with pytest.raises(InvalidRequest, match="transform not_rows returned int: on Spark it returns a DataFrame"):
        write_lines(tmp_path / "in/a.json", [{"id": 1}], OLD_MS)
        source = {"kind": "files", "path": str(tmp_path / "in")}
        hp.Ingest({"path": tmp_path / "t", "record_key": "id", "source": source, "transforms": [not_rows]}, spark=spark).run()


def not_rows(_: DataFrame) -> int:
    return 1
