"""The values of key and partition fields as text, in the form of Hudi's upsert path (`records.java_strings`).

Its bulk insert of timestamps does not follow that form: `2024-05-06 07:08:09.123` there, microseconds since the epoch here
and on upsert.
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
    """The values of a key or partition field as text.  role: what the field is, for the error.  Raises InvalidRequest."""
    array = column_at(batch, name)
    if not has_text(array.type):
        raise InvalidRequest(f"column {name!r} of type {array.type} cannot be a {role} field")
    return key_text(spec, array)


def key_text(spec: KeySpec, array: pa.Array) -> pa.StringArray:
    """Values as text; timestamps as Java prints them where the table says so."""
    if spec.consistent_timestamps and pa.types.is_timestamp(array.type):
        return _java_timestamps(array, time_zone(spec.timestamp_zone))
    return value_text(array)


def _java_timestamps(array: pa.Array, zone: tzinfo) -> pa.StringArray:
    """`java.sql.Timestamp.toString` of each instant, cut to milliseconds as Hudi cuts it (towards zero)."""
    micros = timestamp_micros(array)
    quotient = pc.fill_null(pc.divide(micros, 1000), 0).to_numpy(zero_copy_only=False)
    local = pa.array(local_ms(quotient, zone)).cast(pa.timestamp("ms"))
    text = pc.utf8_rtrim(pc.strftime(local, "%Y-%m-%d %H:%M:%S"), characters="0")
    text = pc.if_else(pc.ends_with(text, "."), pc.binary_join_element_wise(text, "0", ""), text)
    return pc.if_else(pc.is_valid(array), text, pa.scalar(None, pa.string()))


def value_codes(indices: pa.Array, null_code: int) -> np.ndarray:
    """The numbers of dictionary entries as 64-bit integers, null as `null_code`."""
    codes: np.ndarray = pc.fill_null(pc.cast(indices, pa.int64()), null_code).to_numpy(zero_copy_only=False)
    return codes


def check_key_argument(name: str, input_type: pa.DataType, stored: pa.DataType) -> None:
    """Raises InvalidRequest for values that a caller gives for a key column of text, to find or delete records by, and that have
    more than one spelling: `1`, `1.0`, `true` and bytes.
    """
    types = pa.types
    spelled = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_binary, types.is_large_binary)
    if types.is_string(stored) and any(is_kind(input_type) for is_kind in spelled):
        raise InvalidRequest(f"the keys of column {name!r} are text, and {input_type} was given: cast it")
