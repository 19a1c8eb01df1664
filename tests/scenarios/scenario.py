"""Behaviour as data: a table, steps, and the rows or the error that each entry point has to give.

A scenario runs with each driver of tests/support/drivers that can do its steps. `{table}` in a statement is the table,
under the name that the driver has for it, and `{folder}` a folder for other tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of a scenario.

    Attributes:
        columns: Columns with their types, as in CREATE TABLE.
        key: Record key fields, separated by commas; "" for generated keys.
        ordering: Ordering field; "" for none.
        partition_by: Partition field; "" for none.
        properties: Further table properties.
        rows: Rows of the first commit, as the text of VALUES; "" for an empty table.
    """

    columns: str
    key: str = "id"
    ordering: str = ""
    partition_by: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    rows: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """A write of rows. An Arrow table has declared types; dictionaries have none.

    Attributes:
        rows: The rows.
        mode: Mode of `hp.write`; "" for its default.
        schema_mode: Changes of the table's columns that the write may make; "" for the default.
        where: Predicate of the partitions that mode overwrite replaces; "" for none.
        missing_columns: How columns that the rows lack are handled; "" for the default.
    """

    rows: pa.Table | Sequence[Mapping[str, Any]]
    mode: str = "upsert"
    schema_mode: str = ""
    where: str = ""
    missing_columns: str = ""


@dataclass(frozen=True, slots=True)
class Sql:
    """A SQL statement.

    Attributes:
        text: The statement.
        params: Values of its parameters.
    """

    text: str
    params: Sequence[Any] | Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A SQL statement whose result is compared.

    Attributes:
        text: The statement.
        rows: Values of the rows by position, in any order, or the error. `{table}` in a text is the name of the table.
    """

    text: str
    rows: tuple[tuple[Any, ...], ...] | Refused


@dataclass(frozen=True, slots=True)
class Update:
    """An update.

    Attributes:
        set: SQL expressions by column.
        where: The condition in SQL; "" for all rows.
        values: Python values by column.
    """

    set: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge.

    Attributes:
        source: The source rows, whose types have SQL names.
        on: Column by which rows match.
        matched: Expressions by column for matching rows, over `source.x` and `target.x`; None for all columns.
        unmatched: Expressions by column for rows to insert; None for all columns.
        clauses: Which of "update", "insert" and "delete" the merge has.
    """

    source: pa.Table
    on: str = "id"
    matched: Mapping[str, str] | None = None
    unmatched: Mapping[str, str] | None = None
    clauses: tuple[str, ...] = ("update", "insert")


@dataclass(frozen=True, slots=True)
class Delete:
    """A delete by predicate or by key.

    Attributes:
        where: The condition in SQL.
        keys: Values of the record key; used if `where` is empty.
    """

    where: str = ""
    keys: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Service:
    """A run of a table service: "compact", "cluster" or "clean"."""

    name: str


Step = Write | Sql | Query | Update | Merge | Delete | Service


@dataclass(frozen=True, slots=True)
class Refused:
    """An error of the last step.

    Attributes:
        kind: Class of the error in `pyhudi.errors`.
        word: Text that the error of PyHudi contains.
    """

    kind: str = "InvalidRequest"
    word: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps on a table, and what follows from them.

    Attributes:
        name: The behaviour, in plain words.
        table: The table.
        steps: Steps, in order; only the last one, and a query that says so, may fail.
        expect: Rows of the table afterwards, in any order, or the error of the last step; None to compare only queries.
        types: Types of columns afterwards that the last step changes; its result reports them.
        skip: Reasons by driver name why a driver does not apply.
    """

    name: str
    table: TableSpec
    steps: tuple[Step, ...]
    expect: tuple[Mapping[str, Any], ...] | Refused | None = None
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    skip: Mapping[str, str] = field(default_factory=dict)
