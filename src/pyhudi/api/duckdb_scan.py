"""The rows of a query as DuckDB SQL over its base files, for the slices that DuckDB reads itself.

`operations.read.native_scan` selects the slices; PyHudi's reader supplies the others. DuckDB interprets some characters of
a path as a glob pattern, and names without regard to case: files that this affects are left to PyHudi's reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from pyhudi.api.optional_imports import imported
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.hudi_types import VARIANT_TYPE
from pyhudi.operations.read.change_queries import ChangeQuery
from pyhudi.operations.read.native_scan import divide_query
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.native_scan import NativeColumn, NativeScan
from pyhudi.records.filters.engine_expressions import to_engine
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.sql_quoting import quote_identifier, text_literal
from pyhudi.storage import open_storage
from pyhudi.storage.local import LocalStorage
from pyhudi.table.file_slices import FileSlice

_GLOB_CHARACTERS = frozenset("*?[")

_OPTIONS = "hive_partitioning = false, union_by_name = false, can_have_nan = true"
"""The statistics of Parquet ignore NaN, so without `can_have_nan` DuckDB would skip row groups with it."""

_ROW_NUMBER, _FILE_INDEX = "file_row_number", "file_index"
_ROW_BITS = 40
"""Bits of the number of a row in its file; the number of the file is above them."""

_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    pa.time32("ms"): "TIME",
    pa.time64("us"): "TIME",
}


@dataclass(frozen=True, slots=True)
class NativeRows:
    """Rows that DuckDB reads.

    Attributes:
        sql: A query that returns them, in the columns of the scan.
        folder: The folder of the table, which contains the files that it reads.
        tables: Rows that it reads by name.
        rest: Slices that PyHudi's reader reads.
    """

    sql: str
    folder: str
    tables: Mapping[str, pa.Table]
    rest: tuple[FileSlice, ...]


def native_rows(query: SnapshotQuery, condition: Expr | None, new_name: Callable[[], str]) -> NativeRows | None:
    """Return the rows of a query that DuckDB reads; None if there are none.

    Args:
        query: The query.
        condition: Which of its rows the SQL returns.
        new_name: Returns an unused name of a table.
    """
    query = replace(query, spec=replace(query.spec, condition=condition))
    divided = divide_query(query, _can_read)
    if not divided.scans or not query.schema.names:
        return None
    tables: dict[str, pa.Table] = {}

    def named(rows: pa.Table) -> str:
        name = new_name()
        tables[name] = rows
        return name

    try:
        where = "" if condition is None else f" WHERE {to_engine(condition, _DuckDBExpressions())}"
        parts = [_select(scan, query.schema.names, where, named) for scan in divided.scans]
    except Unsupported:
        return None
    if divided.merged is not None:
        parts.append(f"SELECT * FROM {named(divided.merged)}")
    storage = open_storage(query.spec.storage)
    assert isinstance(storage, LocalStorage), "engines read local files only"
    folder = storage.full_path("")
    return NativeRows(" UNION ALL ".join(parts), folder, tables, divided.rest)


class DuckDBSource(Protocol):
    """The parts of a scan that a relation needs."""

    @property
    def query(self) -> SnapshotQuery | ChangeQuery: ...

    @property
    def limit(self) -> int | None: ...

    def of_slices(self, slices: Sequence[FileSlice]) -> Self:
        """Return the scan of some of its file slices."""
        ...


def to_relation(scan: DuckDBSource, connection: Any) -> Any:
    """Return the rows of a scan as a relation of a connection. See `Scan.to_duckdb`."""
    module = imported("duckdb", "a relation")
    if not isinstance(connection, module.DuckDBPyConnection):
        raise InvalidRequest(f"to_duckdb takes a DuckDB connection, not {type(connection).__name__}: pass duckdb.connect()")
    query = scan.query
    env = query.snapshot.context.env

    def new_name() -> str:
        return f"pyhudi_{env.uuid4().replace('-', '')}"

    native = None
    if scan.limit is None and isinstance(query, SnapshotQuery):
        native = native_rows(query, query.spec.condition, new_name)
    if native is not None:
        sql, registered = native.sql, dict[str, object](native.tables)
        if native.rest:
            rest = new_name()
            registered[rest] = scan.of_slices(native.rest)
            sql += f" UNION ALL SELECT * FROM {rest}"
        for name, rows in registered.items():
            connection.register(name, rows)
        with suppress(module.Error):
            return connection.sql(sql)
    # The connection cannot access files, or DuckDB cannot read one of them.
    name = new_name()
    connection.register(name, scan)
    return connection.sql(f"SELECT * FROM {name}")


def _can_read(path: str, schema: pa.Schema) -> bool:
    names = {name.casefold() for name in schema.names}
    # DuckDB reads a group that a file declares as Variant as its own type.
    plain = all(field.type != VARIANT_TYPE for field in schema)
    is_distinct = len(names) == len(schema.names) and names.isdisjoint((_ROW_NUMBER, _FILE_INDEX))
    return plain and is_distinct and _GLOB_CHARACTERS.isdisjoint(path)


def _select(scan: NativeScan, names: Iterable[str], where: str, named: Callable[[pa.Table], str]) -> str:
    columns = ", ".join(f"{_column(column)} AS {quote_identifier(column.field.name)}" for column in scan.columns)
    source = f"read_parquet([{', '.join(map(text_literal, scan.paths))}], {_OPTIONS}"
    rows = f"SELECT {columns} FROM {source})"
    if scan.has_hidden_rows:
        # One join for all files costs less than one for each.
        numbers = [file.hidden + (index << _ROW_BITS) for index, file in enumerate(scan.files) if file.hidden is not None]
        hidden = named(pa.table({"number": pa.array(np.concatenate(numbers), pa.int64())}))
        number = f"{_ROW_NUMBER} + (CAST({_FILE_INDEX} AS BIGINT) << {_ROW_BITS})"
        rows = f"SELECT {columns} FROM {source}, file_row_number = true) ANTI JOIN {hidden} ON {number} = {hidden}.number"
    return f"SELECT {', '.join(map(quote_identifier, names))} FROM ({rows}){where}"


def _column(column: NativeColumn) -> str:
    if column.stored_name is None:
        return _literal(pa.scalar(None, column.field.type) if column.value is None else column.value)
    name = quote_identifier(column.stored_name)
    return f"CAST({name} AS {duckdb_type(column.field.type)})" if column.is_cast else name


def duckdb_type(type_: pa.DataType) -> str:
    """Name of a type in DuckDB. Raises Unsupported for a type without one."""
    types = pa.types
    if types.is_timestamp(type_):
        return "TIMESTAMP" if type_.tz is None else "TIMESTAMPTZ"
    if types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if types.is_fixed_size_binary(type_):
        return "BLOB"
    if types.is_struct(type_):
        return f"STRUCT({', '.join(f'{quote_identifier(child.name)} {duckdb_type(child.type)}' for child in type_.fields)})"
    if types.is_list(type_):
        return f"{duckdb_type(type_.value_type)}[]"
    if types.is_map(type_):
        return f"MAP({duckdb_type(type_.key_type)}, {duckdb_type(type_.item_type)})"
    try:
        return _TYPES[type_]
    except KeyError:
        raise Unsupported(f"a column of type {type_} in DuckDB's own scan") from None


def _literal(value: pa.Scalar) -> str:
    type_ = value.type
    name = duckdb_type(type_)
    if not value.is_valid:
        return f"CAST(NULL AS {name})"
    if pa.types.is_timestamp(type_):
        micros = value.cast(pa.timestamp("us", type_.tz)).value
        return f"{'make_timestamp' if type_.tz is None else 'make_timestamptz'}({micros})"
    if pa.types.is_date32(type_):
        return f"(DATE '1970-01-01' + CAST({value.value} AS INTEGER))"
    if pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return f"from_hex('{value.as_py().hex()}')"
    if pa.types.is_time(type_):
        raise Unsupported("a constant time of day in DuckDB's own scan")
    return f"CAST({text_literal(str(value.as_py()))} AS {name})"


class _DuckDBExpressions:
    """`ExpressionBuilder` of DuckDB: SQL text."""

    def compare(self, column: str, sign: str, value: pa.Scalar) -> str:
        return f"({quote_identifier(column)} {sign} {_literal(value)})"

    def is_in(self, column: str, values: list[pa.Scalar]) -> str:
        return f"({quote_identifier(column)} IN ({', '.join(map(_literal, values))}))"

    def is_null(self, column: str) -> str:
        return f"({quote_identifier(column)} IS NULL)"

    def starts_with(self, column: str, prefix: str) -> str:
        return f"starts_with({quote_identifier(column)}, {text_literal(prefix)})"

    def constant(self, value: bool) -> str:  # noqa: FBT001
        return "TRUE" if value else "FALSE"

    def negated(self, part: str) -> str:
        return f"(NOT {part})"

    def joined(self, parts: Iterable[str], *, is_any: bool) -> str:
        return f"({(' OR ' if is_any else ' AND ').join(parts)})"
