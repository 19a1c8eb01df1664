"""Updates, deletes and merges whose rows Spark finds and changes: native joins and expressions, in Spark's own meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyhudi.engines.spark.convert import Column, DataFrame, SparkSession
from pyhudi.errors import Unsupported
from pyhudi.operations.action.results import WriteResult
from pyhudi.operations.write.change import Clause
from pyhudi.operations.write.settings import WriteSettings
from pyhudi.table.context import TableContext


@dataclass(frozen=True, slots=True)
class SparkUpdate:
    """An update.  values: by column, SQL text, Columns or literals.  where: None for all rows.  alias: of the table's columns."""

    session: SparkSession
    values: Mapping[str, Any]
    where: str | Column | None = None
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class SparkDelete:
    """A delete, as `SparkUpdate`."""

    session: SparkSession
    where: str | Column | None = None
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class SparkMerge:
    """A merge.  on: names of columns, or a condition."""

    source: DataFrame
    on: str | tuple[str, ...] | Column
    clauses: tuple[Clause, ...]
    target_alias: str
    source_alias: str


def run_spark_update(context: TableContext, update: SparkUpdate, settings: WriteSettings) -> WriteResult:
    """Give the rows for which a condition is true other values."""
    raise Unsupported(f"an update of {context.storage.uri} on Spark")


def run_spark_delete(context: TableContext, delete: SparkDelete, settings: WriteSettings) -> WriteResult:
    """Delete the rows for which a condition is true."""
    raise Unsupported(f"a delete of {context.storage.uri} on Spark")


def run_spark_merge(context: TableContext, merge: SparkMerge, settings: WriteSettings) -> WriteResult:
    """Let the rows of a source meet those of the table."""
    raise Unsupported(f"a merge of {context.storage.uri} on Spark")
