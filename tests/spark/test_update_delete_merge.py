"""Updates, deletes and merges on Spark: shared rules, Spark's semantics, and files read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")


from pyhudi import Table
from pyhudi import spark as hs
from pyhudi.api.table import Merge
from pyhudi.engines.spark import update_delete as change_module
from pyhudi.engines.spark.column_expressions import MatchCondition, files_condition
from pyhudi.engines.spark.read_dataframe import query_dataframe
from pyhudi.errors import InvalidRequest
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.records.filters.filter_parser import parse_filter
from tests.conformance.changes_suite import (
    OPTIONS,
    SOURCE,
    ChangesSuite,
    PlainChangesSuite,
    QueryForm,
    held,
    new_table,
    rows,
    table_without_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class OnSpark(QueryForm):
    @pytest.fixture(autouse=True)
    def around(self, spark: SparkSession, tmp_path: Path) -> None:
        self.spark, self.folder, self.made = spark, tmp_path, 0

    @pytest.fixture(params=[pytest.param("cow", marks=pytest.mark.wide), "mor"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def new_table(self, kind: str = "cow", **settings: Any) -> Table:
        self.made += 1
        return new_table(kind, uri=str(self.folder / f"t{self.made}"), **settings)

    def table_without_columns(self) -> Table:
        return table_without_columns(str(self.folder / "empty"))

    def update(self, table: Table, values: Mapping[str, Any], where: Any = None, **settings: Any) -> WriteResult:
        return table.update(values, where, spark=self.spark, **settings)

    def merge(self, table: Table, source: pa.Table, on: Any, **settings: Any) -> Merge:
        return table.merge(self.spark.createDataFrame(source), on, **settings)


class TestOnSpark(OnSpark, ChangesSuite):
    """Rules of both engines."""


@pytest.mark.wide
class TestPlainChangesOnSpark(OnSpark, PlainChangesSuite):
    """What Spark's own expressions have by themselves."""


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return new_table(uri=str(tmp_path / "t"))


def merged(spark: SparkSession, table: Table, source: DataFrame, on: Any, **settings: Any) -> Merge:
    return hs.merge(spark, table.uri, source, on, target_alias="t", source_alias="s", options=settings.pop("options", OPTIONS))


# Keys and partitions


@pytest.mark.parametrize(
    ("index", "moves"),
    [
        ({"hoodie.index.type": "GLOBAL_SIMPLE"}, True),
        pytest.param({"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}, True, marks=pytest.mark.wide),
        ({"hoodie.index.type": "RECORD_INDEX", "hoodie.metadata.enable": True}, False),
    ],
    ids=["GLOBAL_SIMPLE", "BUCKET", "RECORD_INDEX"],
)
def test_other_indexes(spark: SparkSession, tmp_path: Path, index: dict[str, Any], moves: bool) -> None:
    options = {**OPTIONS, **index}
    table = new_table("mor", uri=str(tmp_path / "t"), options=options)
    source = spark.createDataFrame(SOURCE)
    merge = merged(spark, table, source, "id", options=options).when_matched_update({"fare": "s.ts"}, "s.fare > 5")
    result = merge.when_matched_delete().when_not_matched_insert_all().execute()
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 1, 1)
    if moves:
        hs.update(spark, table.uri, {"city": "'q'"}, "id = 'a'", options=options)
    else:
        with pytest.raises(InvalidRequest, match="would change its partition, and index RECORD_INDEX"):
            hs.update(spark, table.uri, {"city": "'q'"}, "id = 'a'", options=options)
    hs.delete(spark, table.uri, "id = 'z'", options=options)
    assert held(table, "city", "fare") == {"a": ("q" if moves else "x", 5.0), "c": ("x", None)}


# Files, other writers, sessions


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("id = 'a' AND fare > 1", "id = 'a'"),
        ("r.id IN ('a', 'b') AND r.ts >= 2", "id IN ('a', 'b') AND ts >= 2"),
        ("id = 'a' OR fare > 1", None),
        ("city = 'x' AND f(fare) > ts + 1 AND (ts = 1 OR ts = 2)", "city = 'x' AND (ts = 1 OR ts = 2)"),
        ("id = 'a AND b' AND f(id, 'OR')", "id = 'a AND b'"),
        ("f(fare) BETWEEN ts AND ts AND id = 'a'", None),
        ("NOT id = 'a'", "NOT id = 'a'"),
        ("NOT (id = 'a' AND fare > 1)", None),
        ("ts = '1'", None),
        ("ts < 1.5", None),
        ('id = "fare"', None),
        ("id = 'a''b'", None),
        ("id = 'a\\n'", None),
        ("upper(id) = 'A' AND city = 'x'", "city = 'x'"),
        ("city IS NULL", "city IS NULL"),
        ("'1' = '01' AND id = 'a'", "id = 'a'"),
        ("at < TIMESTAMP '2024-01-01 00:00:00'", None),
    ],
)
def test_files_are_pruned_only_by_expressions_equal_in_spark(text: str, known: str | None) -> None:
    columns = pa.schema([*SOURCE.schema, pa.field("at", pa.timestamp("us", "UTC"))])
    found = files_condition(text, "r", columns)
    assert found == (None if known is None else parse_filter(known))


@pytest.mark.parametrize(
    ("text", "pairs", "alone"),
    [
        ("t.id = s.key", (("id", "key"),), True),
        ("s.`key` == T.id AND t.city=s.city", (("id", "key"), ("city", "city")), True),
        ("t.id = s.id AND t.ts < s.ts", (("id", "id"),), False),
        ("t.id = s.id OR t.x = s.x AND t.y = s.y", (), False),
        ("t.id = s.id AND (t.a = s.a OR t.b = s.b)", (("id", "id"),), False),
        ("t.id = s.id -- AND", (), False),
        ("t.id = t.city", (), False),
        ("NOT t.id = s.id AND t.ts = s.ts", (("ts", "ts"),), False),
    ],
)
def test_the_columns_that_a_condition_equates(spark: SparkSession, text: str, pairs: Any, alone: bool) -> None:
    found = MatchCondition.text(text, "t", "s")
    assert (found.pairs, found.is_equality_only) == (pairs, alone)


def test_files_beyond_the_source_are_not_read(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = rows(*((f"k{number}", f"p{number}", 1, 1.0) for number in range(4)))
    table = new_table(data=data, uri=str(tmp_path / "t"))
    read: list[int] = []

    def noting(session: SparkSession, query: SnapshotQuery) -> DataFrame:
        read.append(len(query.plan.slices))
        return query_dataframe(session, query)

    monkeypatch.setattr(change_module, "query_dataframe", noting)
    source = spark.createDataFrame(rows(("k1", "p1", 2, 2.0), ("k3", "p3", 2, 2.0), ("k2", None, 2, 2.0)))
    merged(spark, table, source, ["id", "city"]).when_matched_update_all().execute()
    merged(spark, table, source.limit(0), "id").when_matched_delete().execute()
    hs.update(spark, table.uri, {"fare": 3}, "city = 'p2' AND fare < ts + 1", options=OPTIONS)
    hs.delete(spark, table.uri, "city = 'p0' AND fare < ts + 1", options=OPTIONS)
    assert read == [2, 0, 1, 1]
    assert held(table, "fare") == {"k1": 2.0, "k2": 3.0, "k3": 2.0}


def test_concurrent_changes_are_conflicts(spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**OPTIONS, "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    options["hoodie.write.lock.provider"] = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
    others = [lambda: table.upsert(rows(("a", "x", 2, 50.0)), options=options)]

    def planned(*args: Any) -> Any:
        query = plan_snapshot_query(*args)
        if others:
            others.pop()()
        return query

    monkeypatch.setattr(change_module, "plan_snapshot_query", planned)
    result = hs.update(spark, table.uri, {"fare": "fare + 1"}, "id <> 'b'", options=options)
    assert result.conflict_retries == 1
    assert held(table, "fare") == {"a": 51.0, "b": 2.0, "c": None}


def test_cached_frames_of_the_caller_stay_cached(spark: SparkSession, table: Table) -> None:
    source = spark.createDataFrame(SOURCE).persist()
    try:
        merged(spark, table, source, "id").when_matched_update_all().execute()
        assert source.storageLevel.useMemory
    finally:
        source.unpersist()


def test_values_and_rows_of_this_process_truncate_nanoseconds_only_on_request(spark: SparkSession, tmp_path: Path) -> None:
    fine = pa.array([1_700_000_000_000_005_999], pa.timestamp("ns", "UTC"))
    data = pa.table({"id": ["a"], "at": fine.cast(pa.timestamp("us", "UTC"), safe=False)})
    table = new_table(data=data, partition_by=None, ordering=None, uri=str(tmp_path / "t"))
    finer = pa.table({"id": ["a"], "at": fine})
    writes: tuple[Callable[..., WriteResult], ...] = (
        lambda **settings: table.update({"at": fine[0]}, spark=spark, **settings),
        lambda **settings: hs.write(finer, table.uri, "append", **settings),
        lambda **settings: hs.merge(spark, table.uri, finer, "id", **settings).when_matched_update_all().execute(),
    )
    for write in writes:
        with pytest.raises(InvalidRequest, match=r"microseconds.*pyhudi.timestamps.nanoseconds=cut"):
            write(options=OPTIONS)
        write(options={**OPTIONS, "pyhudi.timestamps.nanoseconds": "cut"})
    assert table.scan(["at"]).to_arrow()["at"].equals(data["at"])
