"""Tables of version 9 that three write in turn: PyHudi on Spark, PyHudi embedded, and the real Hudi 1.1.1.

Whoever wrote last, all three read the same rows, with a metadata table and a record index; each services what the others wrote.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyhudi import spark as hs
from tests.interop.oracle import RealHudi
from tests.interop.test_writing_version_9 import BY_RECORD_INDEX, CLUSTER, COMPACT, KEPT, UNAVAILABLE, WAYS, Turns
from tests.spark.conftest import spark as spark
from tests.support.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Given = tuple[str, int, str, str | None, int | None]


class ThreeTurns(Turns):
    """Beside `ours` and `theirs` a third writer."""

    session: SparkSession

    def on_spark(self, *given: Given, operation: str = "upsert") -> None:
        frame = self.session.createDataFrame(self.rows(*given))
        hs.write(frame, str(self.path), options={**self.options, "hoodie.datasource.write.operation": operation})

    def read_by_both(self) -> None:
        super().read_by_both()
        assert_same_rows(hs.read(self.session, str(self.path)).toArrow(), self.table.scan(["*"]).to_arrow())


@pytest.fixture
def turns(newer_hudi: RealHudi, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> ThreeTurns:
    """By the parameter: the way in which records are merged, and the type of the table."""
    way, kind = request.param
    turns = ThreeTurns(newer_hudi, tmp_path / "t", WAYS[way], kind)
    turns.session = spark
    return turns


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param(("two_fields", "mor"), id="two_fields", marks=pytest.mark.wide),
        pytest.param(("Postgres", "mor"), id="Postgres"),
    ],
    indirect=True,
)
def test_merge_on_read(turns: ThreeTurns) -> None:
    turns.on_spark(("a", 11, "c", "a11", 1), ("b", 11, "c", "b11", 2), ("c", 11, "c", "c11", 3), ("d", 11, "c", "d11", 4))
    turns.theirs(("a", 12, "u", UNAVAILABLE, None), ("b", 9, "u", "late", 9), ("e", 11, "c", "e11", 5))
    turns.on_spark(("c", 20, "u", None, 7), ("d", 9, "u", UNAVAILABLE, None), ("a", 13, "d", "gone", 0), ("e", 2, "d", "late", 0))
    turns.ours(("d", 12, "u", None, None), ("f", 11, "c", "f11", 6))
    turns.read_by_both()
    turns.theirs(("a", 12, "u", "after", 1), ("d", 30, "u", "d30", None), **COMPACT, **KEPT)
    turns.on_spark(("b", 0, "", None, None), operation="delete")
    turns.theirs(("b", 12, "u", "back", 1), ("c", 21, "d", "gone", 0), **BY_RECORD_INDEX)
    turns.read_by_both()
    turns.table.compact(spark=turns.session)
    turns.on_spark(("c", 15, "u", "early", 2), ("d", 31, "u", None, 9), ("f", 12, "u", UNAVAILABLE, None))
    turns.read_by_both()
    turns.checked()


@pytest.mark.parametrize("turns", [pytest.param(("two_fields", "cow"), id="two_fields")], indirect=True)
def test_copy_on_write(turns: ThreeTurns) -> None:
    turns.theirs(("a", 11, "c", "a11", 1), ("b", 11, "c", "b11", 2), ("c", 11, "c", "c11", 3), ("d", 11, "c", "d11", 4))
    turns.on_spark(("a", 12, "u", "a12", None), ("b", 9, "u", "late", 9), ("e", 1, "c", "e1", 0))
    turns.read_by_both()
    turns.theirs(("c", 1, "u", "late", 1), ("d", 25, "u", None, 4), **CLUSTER)
    turns.on_spark(("f", 11, "c", "f11", 6), operation="insert")
    turns.read_by_both()
    turns.table.cluster(spark=turns.session)
    turns.table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1}, spark=turns.session)
    turns.read_by_both()
    turns.theirs(("e", 12, "u", "e12", None), **KEPT)
    turns.table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    turns.read_by_both()
    turns.on_spark(("g", 11, "c", "g11", 5), operation="insert_overwrite")
    turns.on_spark(("a", 0, "", None, None), operation="delete")
    turns.read_by_both()
    turns.checked()
