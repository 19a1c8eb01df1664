"""Timestamps without a time zone, and nanosecond timestamps: how writes convert or reject them.

A timestamp without a time zone is a wall clock time, not an instant. Hudi 1.0 has no column type for it: 1.0.2 rejects
Spark's timestamp_ntz on write, and reads such a column of another writer as plain numbers. Hudi 1.1 has one (local
timestamps). So a column without a time zone is accepted if the table's column has none, and as a new column of a table
of version 9. Otherwise the caller must choose the interpretation.

Source: docs/data-types.md.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import is_vector
from pyhudi.options.table_options import WITHOUT_ZONE
from pyhudi.options.write_options import TIMESTAMPS_NANOSECONDS
from pyhudi.records.type_normalization import is_list_like


class ZonelessTimestamps(StrEnum):
    """How timestamps without a time zone are interpreted.

    Attributes:
        REFUSE: Accepted only if the table's column has no time zone either.
        UTC: Instants in UTC.
        LOCAL: New columns have no time zone, which Hudi supports from release 1.1 on.
    """

    REFUSE = "refuse"
    UTC = "utc"
    LOCAL = "local"


def with_zones(incoming: pa.Schema, table: pa.Schema | None, mode: ZonelessTimestamps) -> pa.Schema:
    """Return the incoming schema with the type under which each timestamp without a time zone is accepted, at any depth.

    Args:
        incoming: Columns of the batch.
        table: Columns of the table; None for a new table.
        mode: Interpretation of timestamps without a time zone.

    Raises:
        InvalidRequest: Lists every column that is not accepted.
    """
    problems: list[str] = []
    known = {field.name: field for field in table} if table is not None else {}
    fields = [_zoned_field(field, known.get(field.name), field.name, mode, problems) for field in incoming]
    if problems:
        raise InvalidRequest(
            "timestamps without a time zone are ambiguous and not accepted in these columns:\n  "
            + "\n  ".join(problems)
            + "\nadd a time zone (Arrow: cast to timestamp('us', 'UTC'); pandas: .dt.tz_localize(zone); Polars: "
            f".dt.replace_time_zone(zone); Spark: a column of type timestamp), or set {WITHOUT_ZONE}=utc if they are in UTC, "
            f"or {WITHOUT_ZONE}=local for new columns without a time zone, which Hudi supports from release 1.1 on"
        )
    return pa.schema(fields, metadata=incoming.metadata)


def check_no_truncated_nanoseconds(rows: pa.RecordBatch | pa.Table) -> None:
    """Check that no timestamp, at any depth, is finer than microseconds.

    Raises:
        InvalidRequest: A timestamp would lose nanoseconds.
    """
    finer = [field.name for field in rows.schema if has_nanoseconds(field.type)]
    if finer:
        selected = rows.select(finer)
        for batch in selected.to_batches() if isinstance(selected, pa.Table) else [selected]:
            for name, column in zip(finer, batch.columns, strict=True):
                _check_nanoseconds(column, name)


def check_literal_nanoseconds(value: object, column: str) -> None:
    """Check that a Python, NumPy or Arrow value for a column is not finer than microseconds.

    Raises:
        InvalidRequest: The value is a timestamp that would lose nanoseconds.
    """
    if isinstance(value, np.datetime64):
        value = pa.scalar(value)
    if isinstance(value, pa.Scalar):
        is_finer = pa.types.is_timestamp(value.type) and value.type.unit == "ns" and value.is_valid and bool(value.value % 1000)
    else:
        # pandas.Timestamp has the rest in a field of its own; a Column of Spark returns another Column for any name.
        rest = getattr(value, "nanosecond", 0)
        is_finer = isinstance(rest, int) and rest != 0
    if is_finer:
        raise InvalidRequest(
            f"column {column!r}: {value!s} is not a whole number of microseconds, which Hudi stores: round the value, or set "
            f"{TIMESTAMPS_NANOSECONDS}=cut to truncate to microseconds"
        )


def _zoned_field(field: pa.Field, table: pa.Field | None, path: str, mode: ZonelessTimestamps, problems: list[str]) -> pa.Field:
    type_ = _zoned_type(field.type, None if table is None else table.type, path, mode, problems)
    return field if type_ is field.type else field.with_type(type_)


def _zoned_type(
    type_: pa.DataType, table: pa.DataType | None, path: str, mode: ZonelessTimestamps, problems: list[str]
) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return _zoned_type(type_.value_type, table, path, mode, problems)
    if types.is_timestamp(type_) and type_.tz is None:
        return _zoned_timestamp(type_, table, path, mode, problems)
    if is_vector(type_):
        return type_
    if is_list_like(type_):
        table_entry = table.value_field if table is not None and types.is_list(table) else None
        return pa.list_(_zoned_field(type_.value_field, table_entry, path + "[]", mode, problems))
    if types.is_map(type_):
        table_entry = table.item_field if table is not None and types.is_map(table) else None
        item = _zoned_field(type_.item_field, table_entry, path + "{}", mode, problems)
        return pa.map_(type_.key_field, item)
    if types.is_struct(type_):
        known = {field.name: field for field in table.fields} if table is not None and types.is_struct(table) else {}
        return pa.struct(
            [_zoned_field(field, known.get(field.name), f"{path}.{field.name}", mode, problems) for field in type_.fields]
        )
    return type_


def _zoned_timestamp(
    type_: pa.DataType, table: pa.DataType | None, path: str, mode: ZonelessTimestamps, problems: list[str]
) -> pa.DataType:
    is_time = table is not None and pa.types.is_timestamp(table)
    if table is not None and (not is_time or table.tz is None):
        # The types are equal, or the later comparison with the table's columns rejects the type.
        return type_
    if mode is ZonelessTimestamps.UTC:
        return pa.timestamp(type_.unit, "UTC")
    if mode is ZonelessTimestamps.LOCAL and table is None:
        return type_
    problems.append(f"{path}: {type_}" + (f", and the table's column is {table}" if is_time else ""))
    return type_


def _check_nanoseconds(array: pa.Array, path: str) -> None:
    types = pa.types
    type_ = array.type
    if types.is_dictionary(type_):
        _check_nanoseconds(array.dictionary, path)
    elif types.is_run_end_encoded(type_):
        _check_nanoseconds(array.values, path)
    elif types.is_struct(type_):
        for child in type_.fields:
            _check_nanoseconds(pc.struct_field(array, child.name), f"{path}.{child.name}")
    elif is_list_like(type_):
        if has_nanoseconds(type_):
            _check_nanoseconds(array.flatten(), path + "[]")
    elif types.is_map(type_):
        _check_nanoseconds(array.items, path + "{}")
    elif types.is_timestamp(type_) and type_.unit == "ns":
        truncated = pc.floor_temporal(array, unit="microsecond")
        position = pc.index(pc.not_equal(array, truncated), True).as_py()
        if position >= 0:
            raise InvalidRequest(
                f"column {path!r}: {array[position].value} nanoseconds since 1970 is not a whole number of microseconds, which "
                f"Hudi stores: round the column, or set {TIMESTAMPS_NANOSECONDS}=cut to truncate to microseconds"
            )


def has_nanoseconds(kind: pa.DataType) -> bool:
    """Return True if the type has timestamps in nanoseconds, at any depth."""
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "ns")
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return has_nanoseconds(kind.value_type)
    return any(has_nanoseconds(kind.field(index).type) for index in range(kind.num_fields))
