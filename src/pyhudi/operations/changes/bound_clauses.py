"""Bind the clauses of a statement to columns: which column gets which value.

    string      in Python methods: a literal in filter syntax (`'done'`, `1.5`, `DATE '2024-05-06'`, `NULL`), a column of
                a side (`fare`, `source.fare`), or an expression that the evaluator computes
    Computed    an expression that the evaluator computes
    others      Python values, and those marked by `lit`

A literal is converted to the type of its column here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.operations.admin.stored_settings import column_default, column_defaults
from pyhudi.operations.changes.statement import Clause, ClauseAction, ClauseRows, Computed
from pyhudi.operations.write.write_schemas import fixed_columns
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.records.assignments import column_literal
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters.filter_ast import ColumnRef
from pyhudi.records.filters.filter_parser import is_computed, parse_value
from pyhudi.records.java_strings import is_string_like
from pyhudi.records.merge_mode import MergeMode
from pyhudi.records.ordering import Ordering
from pyhudi.records.plain_values import Literal, plain_value
from pyhudi.records.schema_evolution import evolve
from pyhudi.records.timestamp_coercion import check_literal_nanoseconds
from pyhudi.table.table_config import TableConfig

SOURCE, TARGET = "source", "target"
"""Qualifiers of columns in bound values."""

Value: TypeAlias = ColumnRef | pa.Scalar | Computed
"""A column of a side, one value for all rows, or an expression."""


@dataclass(frozen=True, slots=True)
class BoundClause:
    """A clause with a value for each column that it assigns.

    Attributes:
        action: What the clause does.
        rows: The rows that it applies to.
        where: Its condition; None for all rows.
        values: Values by column. Those of a delete are the ordering values of the source row.
    """

    action: ClauseAction
    rows: ClauseRows
    where: Any
    values: Mapping[str, Value]


def resolve_name(name: str, names: Collection[str]) -> str | None:
    """Return the column that has a name, in this case, or else the only one that has it in another case."""
    if name in names:
        return name
    matching = [other for other in names if other.casefold() == name.casefold()]
    return matching[0] if len(matching) == 1 else None


def source_ordering(config: TableConfig, source_names: Collection[str]) -> Ordering | None:
    """Return the ordering if the values of source rows decide: between two of them that change one record, and between a
    stored row and one that deletes it. None if the source has none, or the table does not merge by event time.

    Args:
        config: Configuration of the table.
        source_names: Columns of the source.
    """
    ordering = config.merge.ordering
    decides = config.merge.mode is MergeMode.EVENT_TIME_ORDERING and ordering
    return ordering if decides and all(resolve_name(name, source_names) for name in ordering.heads) else None


def evolved_schema(table: pa.Schema, input_schema: pa.Schema, settings: WriteSettings) -> pa.Schema:
    """Return the table's columns after values with ``input_schema`` have been written."""
    known = set(table.names)
    fields = [input_schema.field(f.name) if f.name in input_schema.names else f for f in table]
    new = [field for field in input_schema if field.name not in known]
    return evolve(table, pa.schema([*fields, *new]), settings.schema_mode)


def explicit_values(
    config: TableConfig, schema: pa.Schema, clause: Clause, source: Iterable[str], of_source: Callable[[str], Any]
) -> dict[str, Any]:
    """Values of an UPDATE or INSERT clause of a statement: of `*`, DEFAULT, and defaults of columns that an INSERT omits.

    Args:
        config: Configuration of the table.
        schema: Columns of the table.
        clause: The clause.
        source: Columns of the source.
        of_source: Expression of a column of the source.

    Returns:
        Expressions and, for defaults, scalars by column of the table. `*` is the columns that the table has.

    Raises:
        InvalidRequest: `*` without such a column.
    """
    if clause.values is None:
        named = [(resolve_name(name, schema.names), of_source(name)) for name in source]
        values = {column: value for column, value in named if column is not None}
        if not values:
            raise InvalidRequest(f"`*` in a clause of MERGE: the source has none of the columns {', '.join(schema.names)}")
    else:
        values = {}
        for name, value in clause.values.items():
            column = assigned_column(name, schema)
            if column in values:
                raise InvalidRequest(f"column {column!r} is assigned twice")
            values[column] = column_default(config, schema.field(column)) if value is None else value
    if clause.action is ClauseAction.INSERT:
        omitted = [name for name in column_defaults(config) if name in schema.names and name not in values]
        values |= {name: column_default(config, schema.field(name)) for name in omitted}
    return values


def bind_clauses(
    clauses: Sequence[Clause],
    table: pa.Schema,
    source: pa.Schema | None,
    config: TableConfig,
    settings: WriteSettings,
    aliases: tuple[str, str] = (TARGET, SOURCE),
) -> tuple[BoundClause, ...]:
    """Bind clauses to the columns of a table and a source.

    Args:
        clauses: The clauses.
        table: Columns of the table.
        source: Columns of the source; None for a statement without one.
        config: Configuration of the table.
        settings: Settings of the write.
        aliases: Qualifiers of the columns of table and source in values.

    Raises:
        InvalidRequest: An unknown column, or a literal that its column cannot store.
        Unsupported: An assignment to a field of a struct, or an expression of Polars or pyarrow.
    """
    return tuple(_bound(clause, table, source, config, settings, aliases) for clause in clauses)


def _bound(
    clause: Clause,
    table: pa.Schema,
    source: pa.Schema | None,
    config: TableConfig,
    settings: WriteSettings,
    aliases: tuple[str, str],
) -> BoundClause:
    source_names = () if source is None else source.names
    values: dict[str, Value] = {}
    if clause.action is ClauseAction.DELETE:
        ordering = source_ordering(config, source_names) if clause.rows is ClauseRows.MATCHED else None
        values = {head: _source_column(resolve_name(head, source_names) or head) for head in (ordering.heads if ordering else ())}
    elif clause.values is None:
        values = {resolve_name(name, table.names) or name: _source_column(name) for name in source_names}
        if len(values) < len(source_names):
            raise InvalidRequest(f"two columns of the source have the same name in the table: {', '.join(source_names)}")
    else:
        sides = {
            qualifier: (side, schema)
            for qualifier, side, schema, absent in zip(
                aliases, (TARGET, SOURCE), (table, source), (ClauseRows.OF_SOURCE, ClauseRows.OF_TARGET), strict=True
            )
            if schema is not None and clause.rows is not absent
        }
        for column, value in assigned_values(clause.values, table, settings).items():
            values[column] = _value(table.field(column), value, sides, exact=column in fixed_columns(config))
    return BoundClause(clause.action, clause.rows, clause.where, values)


def _source_column(name: str) -> ColumnRef:
    return ColumnRef(f"{SOURCE}.{name}")


def assigned_values(
    values: Any, table: pa.Schema, settings: WriteSettings, resolve: Callable[[str, Collection[str]], str | None] = resolve_name
) -> dict[str, Any]:
    """Return assigned values by column of the table.

    Args:
        values: Values by the caller's names of columns.
        table: Columns of the table.
        settings: Settings of the write.
        resolve: Returns the column that a name means.

    Raises:
        InvalidRequest: No mapping, an unknown column or one that is assigned twice, or a value with nanoseconds.
        Unsupported: A field of a struct.
    """
    if not isinstance(values, Mapping) or not values:
        raise InvalidRequest(f"assignments must be a mapping of column names to values, such as {{'fare': 1.5}}, not {values!r}")
    assigned: dict[str, Any] = {}
    for name, value in values.items():
        column = assigned_column(name, table, resolve)
        if column in assigned:
            raise InvalidRequest(f"column {column!r} is assigned twice")
        if not settings.truncates_nanoseconds:
            check_literal_nanoseconds(value.value if isinstance(value, Literal) else value, column)
        assigned[column] = value
    return assigned


def assigned_column(name: str, table: pa.Schema, resolve: Callable[[str, Collection[str]], str | None] = resolve_name) -> str:
    """Return the column of the table that an assignment names. Arguments as in `assigned_values`.

    Raises:
        InvalidRequest: There is no such column.
        Unsupported: It is a field of a struct.
    """
    column = resolve(name, table.names)
    if column is not None:
        return column
    outer = resolve(name.split(".")[0], table.names)
    if outer is not None:
        raise Unsupported(f"cannot assign {name!r}, a field of a struct: assign the whole column {outer!r}")
    raise InvalidRequest(f"cannot assign {name!r}: the columns of the table are {', '.join(table.names)}")


def _value(column: pa.Field, value: Any, sides: Mapping[str, tuple[str, pa.Schema]], *, exact: bool) -> Value:
    if isinstance(value, Computed) or (isinstance(value, str) and is_computed(value)):
        return value if isinstance(value, Computed) else Computed(value)
    if not isinstance(value, str):
        return column_literal(column, value.value if isinstance(value, Literal) else value, exact=exact)
    literal = parse_value(plain_value(value, f"column {column.name!r}"))
    if isinstance(literal, ColumnRef):
        return _reference(column.name, literal.name, sides)
    if literal is not None and pa.types.is_string(column.type):
        check_text(column, pa.scalar(literal).type, value)
    return column_literal(column, literal, exact=exact)


def check_text(column: pa.Field, type_: pa.DataType, expression: object) -> None:
    """Raise InvalidRequest if SQL in a Python method computes something else than text for a column of text.

    Args:
        column: The column.
        type_: Type of the value.
        expression: The SQL.
    """
    if pa.types.is_string(column.type) and not (is_string_like(type_) or pa.types.is_null(type_)):
        raise InvalidRequest(
            f"column {column.name!r} is text, and the SQL {expression!r:.80} computes a value of type {type_}: pass text as "
            f"values={{{column.name!r}: ...}} or hp.lit(...), write it in single quotes, or cast it: CAST(... AS STRING)"
        )


def _reference(column: str, name: str, sides: Mapping[str, tuple[str, pa.Schema]]) -> ColumnRef:
    """A column of a side. In a statement without a source, the qualifier can be omitted."""
    qualifier, _, rest = name.partition(".")
    side, schema = sides.get(qualifier, ("", None))
    if (schema is None or not rest) and [known for known, _ in sides.values()] == [TARGET]:
        ((side, schema),), rest = sides.values(), name
    try:
        if schema is None:
            raise InvalidRequest(f"there is no column {name!r}; write {' or '.join(f'{known}.column' for known in sides)}")
        field_at(schema, rest)
    except InvalidRequest as error:
        raise InvalidRequest(f"the value of column {column!r}: {error} (string literals need single quotes)") from error
    return ColumnRef(f"{side}.{rest}")
