"""Convert values of key and partition fields to strings, as Hudi's upsert does (`records.java_strings`).

Hudi's bulk insert converts timestamps differently: to `2024-05-06 07:08:09.123` instead of microseconds since the epoch.
"""

from __future__ import annotations

from datetime import tzinfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.records.dotted_columns import column_at
from pyhudi.records.java_strings import has_text, timestamp_micros, value_text
from pyhudi.records.joda_timestamps import local_ms, time_zone
from pyhudi.records.keys.key_spec import KeySpec


def column_text(spec: KeySpec, batch: pa.RecordBatch, name: str, role: str) -> pa.StringArray:
    """Convert the values of a key or partition field to strings.

    Args:
        spec: Key configuration.
        batch: Rows.
        name: Dotted column name.
        role: Role of the field, for the error.

    Raises:
        InvalidRequest: The column is missing, or its type has no string form.
    """
    array = column_at(batch, name)
    if not has_text(array.type):
        raise InvalidRequest(f"column {name!r} of type {array.type} cannot be a {role} field")
    return key_text(spec, array)


def key_text(spec: KeySpec, array: pa.Array) -> pa.StringArray:
    """Convert values to strings; timestamps in Java's format if the table requires it."""
    if spec.consistent_timestamps and pa.types.is_timestamp(array.type):
        return _java_timestamps(array, time_zone(spec.timestamp_zone))
    return value_text(array)


def _java_timestamps(array: pa.Array, zone: tzinfo) -> pa.StringArray:
    """Convert instants with `java.sql.Timestamp.toString`, truncated to milliseconds (towards zero) as in Hudi."""
    micros = timestamp_micros(array)
    quotient = pc.fill_null(pc.divide(micros, 1000), 0).to_numpy(zero_copy_only=False)
    local = pa.array(local_ms(quotient, zone)).cast(pa.timestamp("ms"))
    text = pc.utf8_rtrim(pc.strftime(local, "%Y-%m-%d %H:%M:%S"), characters="0")
    text = pc.if_else(pc.ends_with(text, "."), pc.binary_join_element_wise(text, "0", ""), text)
    return pc.if_else(pc.is_valid(array), text, pa.scalar(None, pa.string()))


def value_codes(indices: pa.Array, null_code: int) -> np.ndarray:
    """Return dictionary indices as 64-bit integers, null as `null_code`."""
    codes: np.ndarray = pc.fill_null(pc.cast(indices, pa.int64()), null_code).to_numpy(zero_copy_only=False)
    return codes


def check_key_argument(name: str, input_type: pa.DataType, stored: pa.DataType) -> None:
    """Reject key values that have more than one string form (`1`, `1.0`, `true`, bytes) for a string key column.

    Args:
        name: Key column.
        input_type: Type of the caller's key values.
        stored: Type of the column.

    Raises:
        InvalidRequest: The key values must be cast to strings.
    """
    types = pa.types
    ambiguous_types = (
        types.is_integer,
        types.is_floating,
        types.is_decimal,
        types.is_boolean,
        types.is_binary,
        types.is_large_binary,
    )
    if types.is_string(stored) and any(is_kind(input_type) for is_kind in ambiguous_types):
        raise InvalidRequest(f"keys of column {name!r} must be strings, not {input_type}: cast them")
