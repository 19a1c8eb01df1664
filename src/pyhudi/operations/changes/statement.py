"""The clause model of UPDATE, DELETE and MERGE, which the Python methods, Spark and SQL share.

Conditions and values are expressions of the engine that evaluates them: filters, literals and SQL text (Python methods), SQL
text and Columns (Spark), or parsed SQL with its position in the statement (`sql_engine`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ClauseAction(StrEnum):
    """What a merge clause does with its rows."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


class ClauseRows(StrEnum):
    """The rows that a merge clause applies to: matched pairs, or unmatched rows of one side."""

    MATCHED = "matched"
    OF_SOURCE = "not matched"
    OF_TARGET = "not matched by source"


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of a merge.

    Attributes:
        action: What the clause does.
        values: Assignments by table column, None for all columns of the source. In SQL, the value None is DEFAULT.
        where: Condition, None for all rows.
        rows: The rows that the clause applies to.
    """

    action: ClauseAction
    values: Mapping[str, Any] | None = None
    where: Any = None
    rows: ClauseRows = ClauseRows.MATCHED


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that the evaluator of the statement computes.

    Attributes:
        expression: SQL text, or parsed SQL.
    """

    expression: Any


@dataclass(frozen=True, slots=True)
class UpdateStatement:
    """An update.

    Attributes:
        values: Assignments by table column.
        where: Condition, None for all rows.
        alias: Qualifier of the table's columns; None for none.
    """

    values: Mapping[str, Any]
    where: Any = None
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteStatement:
    """A delete. Attributes as in `UpdateStatement`."""

    where: Any = None
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class MergeStatement:
    """A merge.

    Attributes:
        source: The source rows.
        on: Names of columns that are equal in matching rows, or a condition.
        clauses: Its clauses; for each row the first one whose condition is true applies.
        target_alias: Qualifier of the table's columns.
        source_alias: Qualifier of the source's columns.
    """

    source: Any
    on: Any
    clauses: tuple[Clause, ...]
    target_alias: str = "target"
    source_alias: str = "source"
