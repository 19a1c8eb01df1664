"""Rows that do not fit their table: values that cannot be cast, nulls in key fields, violated constraints.

Whole columns are cast. Only if a cast fails, the column is split in halves until the failing values are found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.features.ingestion.source_protocol import ReadContext, TextRules
from pyhudi.records.filters.arrow_expressions import row_filter
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.filters.filter_visitor import columns as filter_columns
from pyhudi.records.java_strings import is_string_like
from pyhudi.records.record_merge import IS_DELETED
from pyhudi.records.schema_cast import conform, same_type
from pyhudi.records.schema_evolution import SchemaMode, evolve
from pyhudi.records.type_normalization import normalize_types
from pyhudi.tasks.row_selection import matching_rows

Cast = Callable[[pa.Array], pa.Array]
_SHOWN = 60
_DEFAULT_RULES = TextRules()
_ZONE = r":.*(Z|[+-]\d\d(:?\d\d)?)$"
"""A time that ends with a zone."""


@dataclass(frozen=True, slots=True)
class RowRules:
    """What each row has to satisfy.

    Attributes:
        schema: Schema of the table; None before the first write.
        keys: Record key fields, which may not be null.
        required: Other fields that may not be null in rows that are stored: ordering and required columns.
        constraints: Names and conditions of the table's constraints.
        mode: Schema evolution that the rows may cause.
        fixed: Columns whose type must not change, with their role in the table.
    """

    schema: pa.Schema | None
    keys: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    constraints: tuple[tuple[str, str], ...] = ()
    mode: SchemaMode = SchemaMode.MERGE
    fixed: tuple[tuple[str, str], ...] = ()

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        """Return the schema of checked rows: the table's types, where the incoming values are cast to them."""
        return pa.schema([self._target(field) or field for field in incoming])

    def split(self, batch: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, list[str], list[str]]:
        """Split rows into those that fit and the others, as JSON with a reason each.

        Args:
            batch: Rows.
            schema: `output_schema` of their schema.
        """
        batch = normalized_rows(batch)
        reasons: dict[int, str] = {}
        columns = []
        for field, column in zip(schema, batch.columns, strict=True):
            cast, bad = split_cast(column, cast_to(field), field)
            reasons = {**bad, **reasons}
            columns.append(cast)
        whole = pa.RecordBatch.from_arrays(columns, schema=schema)
        for row, reason in self._violations(whole):
            reasons.setdefault(row, reason)
        if not reasons:
            return whole, [], []
        rows = sorted(reasons)
        fitting = np.setdiff1d(np.arange(batch.num_rows), rows)
        return whole.take(pa.array(fitting)), rows_as_json(batch.take(pa.array(rows))), [reasons[row] for row in rows]

    def _target(self, field: pa.Field) -> pa.Field | None:
        """The table's field, if values are cast to its type. None for a new column, and where the table is widened."""
        if self.schema is None or (position := self.schema.get_field_index(field.name)) < 0:
            return None
        own = self.schema.field(position)
        if same_type(own.type, field.type):
            return None
        before, incoming = pa.schema([own.with_nullable(True)]), pa.schema([field.with_nullable(True)])
        try:
            evolved = evolve(before, incoming, self.mode, fixed=dict(self.fixed))
        except InvalidRequest:
            return own.with_nullable(True) if is_string_like(field.type) and not pa.types.is_nested(own.type) else None
        return own.with_nullable(True) if same_type(evolved.field(0).type, own.type) else None

    def _violations(self, batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
        """Rows with nulls in required fields, or that violate a constraint. A delete has only to have its key."""
        stored = np.ones(batch.num_rows, bool)
        if (position := batch.schema.get_field_index(IS_DELETED)) >= 0 and pa.types.is_boolean(batch.schema.field(position).type):
            stored = ~pc.fill_null(batch.column(position), False).to_numpy(zero_copy_only=False)
        for name in (*self.keys, *self.required):
            position = batch.schema.get_field_index(name)
            if position >= 0 and batch.column(position).null_count:
                nulls = batch.column(position).is_null().to_numpy(zero_copy_only=False)
                for row in np.flatnonzero(nulls if name in self.keys else nulls & stored):
                    yield int(row), f"{name} is null"
        for name, condition in self.constraints:
            expression = parse_filter(condition)
            columns = list(dict.fromkeys(column.split(".")[0] for column in filter_columns(expression)))
            if not set(columns) <= set(batch.schema.names):
                continue
            rows = matching_rows(pa.table(batch).select(columns), row_filter(~expression, batch.schema))
            for row in rows[stored[rows]]:
                yield int(row), f"constraint {name} ({condition}) is violated"


def normalized_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the types that tables have."""
    schema = normalize_types(batch.schema)
    return batch if schema == batch.schema else batch.cast(schema)


def split_cast(column: pa.Array, cast: Cast, field: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """Cast a column. Values that cannot be cast are null in the result; their rows are returned with reasons."""
    if column.type == field.type:
        return column, {}
    try:
        return cast(column), {}
    except (pa.ArrowException, InvalidRequest):
        bad = {row: _reason(column, row, field) for row in _failing(column, cast, 0)}
        valid = np.ones(len(column), bool)
        valid[list(bad)] = False
        return cast(pc.if_else(pa.array(valid), column, pa.scalar(None, column.type))), bad


def _failing(column: pa.Array, cast: Cast, start: int) -> Iterator[int]:
    try:
        cast(column)
    except (pa.ArrowException, InvalidRequest):
        if len(column) == 1:
            yield start
            return
        half = len(column) // 2
        yield from _failing(column.slice(0, half), cast, start)
        yield from _failing(column.slice(half), cast, start + half)


def cast_to(field: pa.Field, texts: TextRules = _DEFAULT_RULES) -> Cast:
    """Return the cast of a column to the type of a field."""
    adds_zone = texts.without_zone_is_utc and pa.types.is_timestamp(field.type) and field.type.tz is not None

    def cast(column: pa.Array) -> pa.Array:
        if is_string_like(column.type) and not is_string_like(field.type):
            column = pc.utf8_trim_whitespace(column)
            if adds_zone:
                in_utc = pc.binary_join_element_wise(column, "Z", "")
                column = pc.if_else(pc.match_substring_regex(column, _ZONE), column, in_utc)
            return pc.cast(column, field.type)
        batch = pa.RecordBatch.from_arrays([column], [field.name])
        return conform(batch, pa.schema([field])).column(0)

    return cast


def _reason(column: pa.Array, row: int, field: pa.Field) -> str:
    value = repr(column[row].as_py())
    return f"{field.name} is not {field.type}: {value if len(value) <= _SHOWN else value[:_SHOWN] + '...'}"


def rows_as_json(rows: pa.RecordBatch) -> list[str]:
    """Return rows as JSON texts; for the few rows that do not fit."""
    return [json.dumps(row, default=str, ensure_ascii=False) for row in rows.to_pylist()]


def cast_to_schema(batch: pa.RecordBatch, schema: pa.Schema, context: ReadContext, origin: str) -> pa.RecordBatch:
    """Return rows in the columns and types of a schema. Rows with values that cannot be cast are reported and left out."""
    columns: list[pa.Array] = []
    bad: dict[int, str] = {}
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column, reasons = split_cast(batch.column(position), cast_to(field, context.texts), field)
        columns.append(column)
        bad = {**reasons, **bad}
    result = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not bad:
        return result
    rows = sorted(bad)
    context.reject(rows_as_json(batch.take(pa.array(rows))), [bad[row] for row in rows], origin)
    return result.take(pa.array([row for row in range(batch.num_rows) if row not in bad], pa.int64()))


def unified(schemas: Sequence[pa.Schema], otherwise: pa.DataType | None = None) -> pa.Schema:
    """Return one schema for rows of several. Two types without a common one become `otherwise`, by default the first one."""
    merged: pa.Schema | None = None
    for schema in schemas:
        if merged is None:
            merged = schema
            continue
        for field in schema:
            position = merged.get_field_index(field.name)
            if position < 0:
                merged = merged.append(field.with_nullable(True))
                continue
            try:
                both = pa.unify_schemas([pa.schema([merged.field(position)]), pa.schema([field])], promote_options="permissive")
                merged = merged.set(position, both.field(0))
            except pa.ArrowException:
                if otherwise is not None:
                    merged = merged.set(position, pa.field(field.name, otherwise))
    return pa.schema([]) if merged is None else merged.remove_metadata()
