"""Keys as a caller gives them, to find records by or to delete them.

values     of the record key field; tuples of values where there are several fields
rows       with the record key fields, and the partition fields too where a key is only looked for in its partition
strings    record keys as `_hoodie_record_key` has them, for lookups
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import pyarrow as pa

from pyhudi.engines.arrow.input_rows import arrow_reader, is_frame
from pyhudi.errors import InvalidRequest
from pyhudi.format.byte_cursor import checked_text
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.records.keys.key_spec import KeySpec


def parse_keys_argument(keys: Any, spec: KeySpec) -> pa.Table | pa.StringArray:
    """Record keys as strings, or rows with the key fields.  Raises InvalidRequest for what is neither."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if isinstance(keys, _COLLECTIONS) and all(isinstance(key, str) for key in keys):
        return pa.array([checked_text(str(key), "the key") for key in keys], pa.string())
    if isinstance(keys, pa.Array):
        kind = keys.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return keys.cast(pa.string())
    if _holds_nothing(keys, spec):
        return pa.array([], pa.string())
    rows = keys_to_delete(keys, spec)
    if isinstance(rows, (Mapping, list, tuple)):
        return arrow_reader(rows).read_all()
    try:
        return arrow_reader(pa.table(rows)).read_all()
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise InvalidRequest(
            f"keys of type {type(keys).__module__}.{type(keys).__name__} are neither record keys nor rows: {error}"
        ) from error


def keys_to_delete(keys: Any, spec: KeySpec) -> Any:
    """Values as rows with the key fields; rows as they are.  Raises InvalidRequest for values that cannot be the table's keys."""
    if isinstance(keys, (str, bytes, int, float, date)):
        raise InvalidRequest(
            f"keys= takes a list of values, such as [{keys!r:.80}], or rows; a condition on the rows to delete is where="
        )
    if _holds_nothing(keys, spec):
        return pa.schema([(RECORD_KEY, pa.string()), (PARTITION_PATH, pa.string())]).empty_table()
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        return _columns([keys], spec)
    if not isinstance(keys, _COLLECTIONS) or any(isinstance(key, Mapping) or is_frame(key) for key in keys):
        return keys
    given = list(keys)
    count = len(spec.record_fields)
    if count == 1 or spec.generates_keys:
        return _columns([given], spec)
    wrong = next((key for key in given if not isinstance(key, tuple) or len(key) != count), None)
    if wrong is not None:
        raise InvalidRequest(
            f"the record key has {count} fields ({', '.join(spec.record_fields)}), so a key is a tuple of as many values, and "
            f"{wrong!r} is none; rows with these columns do as well"
        )
    return _columns([[key[place] for key in given] for place in range(count)], spec)


def _holds_nothing(keys: Any, spec: KeySpec) -> bool:
    """Whether it is known, before anything is read, that there are no keys: their types do not matter then.

    Rows whose columns are others than the key fields are not nothing: they are refused by the names of their columns.
    """
    if isinstance(keys, (pa.Array, pa.ChunkedArray, *_COLLECTIONS)):
        return not len(keys)
    if not is_frame(keys) or not hasattr(keys, "__len__") or len(keys):
        return False
    names = set(arrow_reader(keys).schema.names)
    return not names or {field.split(".")[0] for field in spec.record_fields} <= names


_COLLECTIONS = (list, tuple, set, frozenset, range)


def _columns(values: list[Any], spec: KeySpec) -> pa.Table:
    fields = spec.record_fields
    if spec.generates_keys or any("." in name for name in fields) or len(fields) != len(values):
        wanted = "_hoodie_record_key and _hoodie_partition_path" if spec.generates_keys else ", ".join(fields)
        raise InvalidRequest(f"the keys of this table are given as rows with the columns {wanted}, not as values")
    return arrow_reader(dict(zip(fields, values, strict=True))).read_all()
