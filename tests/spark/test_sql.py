"""SQL on a session without Hudi's jar: the SQL suite, and Spark's own semantics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import spark as hs
from tests.conformance.sql_suite import CASES, Case, check, check_metadata_rows, check_steps, check_stored_defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session, without the names that a test gives."""
    yield spark
    for row in hs.sql(spark, "SHOW TABLES").collect():
        hs.sql(spark, f"DROP TABLE {row['tableName']}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_on_spark(session: SparkSession, case: Case, tmp_path: Path) -> None:
    def run(text: str) -> pa.Table:
        found = hs.sql(session, text)
        return found.toArrow() if found.columns else pa.table({})

    check(case, run, str(tmp_path), hp.InvalidRequest)


def test_statements_of_a_session(session: SparkSession, tmp_path: Path) -> None:
    def run(text: str) -> pa.Table:
        found = hs.sql(session, text)
        return found.toArrow() if found.columns else pa.table({})

    check_steps(run, str(tmp_path))


def test_metadata_rows(session: SparkSession, tmp_path: Path) -> None:
    def run(text: str) -> pa.Table:
        found = hs.sql(session, text)
        return found.toArrow() if found.columns else pa.table({})

    check_metadata_rows(run, str(tmp_path))


def test_stored_defaults(session: SparkSession, tmp_path: Path) -> None:
    def run(text: str) -> pa.Table:
        found = hs.sql(session, text)
        return found.toArrow() if found.columns else pa.table({})

    check_stored_defaults(run, str(tmp_path))
