"""Semi join pushdown: use the keys of a small table to prune a scan before the join.

    one column              an IN list of the values, or their range if there are too many
    the record key fields   record keys, in addition
    several columns         each by itself, which keeps too many rows: the caller joins the result; or, for few rows,
                            row by row

Null matches nothing. Source: docs/formats/reading.md, "Data skipping".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.operations.read.key_lookup import MAX_COMBINATIONS, filter_literal
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import And, Compare, Constant, Expr, In, Or
from pyhudi.records.keys.key_spec import KeySpec, partition_columns
from pyhudi.records.keys.key_values import check_key_argument
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.schema_cast import conform, refuse_rounding

MAX_JOIN_KEYS = 100_000
"""Maximum number of rows for an IN list; with more rows, the range of each column is used."""

_NUMBER = "\x00row"
_VIEWED = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def semi_join_filter(query: SnapshotQuery, rows: pa.Table, *, exactly: bool = False) -> SnapshotQuery:
    """Restrict a query to the rows that equal one of ``rows`` in all of its columns.

    Args:
        rows: The join keys.
        exactly: If False, the result may have other rows too, with several columns or very many rows.

    Raises:
        InvalidRequest: The table lacks a column, or a column cannot have a value.
        Unsupported: ``exactly`` would require a join.
    """
    keys = matched_rows(rows, query.spec.table_schema)
    has_keys = query.spec.populate_meta_fields
    condition = (_exact if exactly else _loose)(keys, query.spec.keys, has_keys=has_keys)
    return query.narrowed(None, bind(condition, query.spec.table_schema))


def narrowed_to_ranges(query: SnapshotQuery, bounds: Mapping[str, tuple[pa.Scalar, pa.Scalar]]) -> SnapshotQuery:
    """Restrict a query to a range per column. A column that is null in all rows matches nothing."""
    parts: list[Expr] = []
    for name, (low, high) in bounds.items():
        if not low.is_valid or not high.is_valid:
            return query.narrowed(None, Constant(False))
        if not pa.types.is_floating(low.type):
            # NaN sorts above every bound.
            parts += [Compare(name, ">=", filter_literal(low)), Compare(name, "<=", filter_literal(high))]
    return query.narrowed(None, bind(And(tuple(parts)), query.spec.table_schema)) if parts else query


def matched_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the distinct rows in the types of the table's columns, without rows with a null. Raises the errors of
    `semi_join_filter`.
    """
    if not rows.column_names:
        raise InvalidRequest("the rows to match have no columns; pass at least one column of the table")
    fields = []
    for name in rows.column_names:
        field = field_at(schema, name) if "." not in name else None
        if field is None or pa.types.is_nested(field.type):
            raise InvalidRequest(f"rows can only be matched by primitive columns of the table, and {name!r} is not one")
        check_key_argument(name, rows.schema.field(name).type, field.type)
        fields.append(field.with_nullable(True))
    key_schema = pa.schema(fields)
    batches = []
    for batch in rows.combine_chunks().to_batches():
        refuse_rounding(batch, key_schema)
        batches.append(conform(batch, key_schema))
    table = pa.Table.from_batches(batches, key_schema).drop_null()
    return table.group_by(table.column_names, use_threads=False).aggregate([])


def anti_join(rows: pa.Table, existing: pa.Table) -> pa.Table:
    """Return the rows that equal none of ``found`` in all of its columns; a row with a null there equals none."""
    names = existing.column_names
    fitted = pa.Table.from_batches(
        [conform(batch, existing.schema) for batch in rows.select(names).combine_chunks().to_batches()], existing.schema
    )
    numbered = fitted.append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
    remaining = numbered.join(existing, names, join_type="left anti", use_threads=False)
    return _take_rows(rows, pa.array(np.sort(remaining.column(_NUMBER).to_numpy())))


def _take_rows(rows: pa.Table, positions: pa.Array) -> pa.Table:
    """Return the rows at these positions in the caller's types. Arrow cannot take rows of string views, which Polars exports."""
    plain = [field.with_type(_VIEWED.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(plain, rows.schema.metadata)).take(positions).cast(rows.schema)


def key_columns(spec: KeySpec, column_names: Sequence[str]) -> list[str]:
    """Return the columns to look up rows by: the record key fields, and the partition fields if all are present.

    Raises:
        InvalidRequest: Rows lack a key field, or keys are not derived from columns.
    """
    if spec.generates_keys:
        raise InvalidRequest("the table generates its record keys, so rows cannot be matched by columns")
    missing = [name for name in spec.record_fields if name not in column_names]
    if missing:
        nested = [name for name in missing if "." in name]
        raise InvalidRequest(
            f"the record key has nested fields ({', '.join(nested)}), by which rows cannot be matched"
            if nested
            else f"the rows lack the record key fields {', '.join(missing)}"
        )
    places = partition_columns(spec)
    return list(dict.fromkeys([*spec.record_fields, *(places if set(places) <= set(column_names) else ())]))


def _loose(rows: pa.Table, spec: KeySpec, *, has_keys: bool) -> Expr:
    if not rows.num_rows:
        return Constant(False)
    parts = [_listed(name, rows.column(name)) for name in rows.column_names]
    if _names_keys(rows, spec) and has_keys and len(spec.record_fields) > 1:
        parts.append(_by_keys(rows, spec))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _exact(rows: pa.Table, spec: KeySpec, *, has_keys: bool) -> Expr:
    if not rows.num_rows:
        return Constant(False)
    names = rows.column_names
    if len(names) == 1:
        return _listed(names[0], rows.column(0))
    if _names_keys(rows, spec) and has_keys and len(names) == len(spec.record_fields):
        return And((_loose(rows, spec, has_keys=has_keys), _by_keys(rows, spec)))
    if rows.num_rows > MAX_COMBINATIONS:
        raise Unsupported(
            f"matching {rows.num_rows} rows by several columns is limited to {MAX_COMBINATIONS} rows; match by "
            "one column or by the record key fields, or use Spark, which has no such limit"
        )
    each = [
        And(tuple(Compare(name, "=", filter_literal(rows.column(name)[row])) for name in names)) for row in range(rows.num_rows)
    ]
    return And((_loose(rows, spec, has_keys=has_keys), Or(tuple(each))))


def _names_keys(rows: pa.Table, spec: KeySpec) -> bool:
    return not spec.generates_keys and set(spec.record_fields) <= set(rows.column_names)


def _by_keys(rows: pa.Table, spec: KeySpec) -> Expr:
    texts = [text for batch in rows.combine_chunks().to_batches() for text in record_keys(spec, batch).to_pylist()]
    return In(RECORD_KEY, tuple(dict.fromkeys(texts)))


def _listed(name: str, values: pa.ChunkedArray) -> Expr:
    return In(name, tuple(filter_literal(value) for value in pc.unique(values)))
