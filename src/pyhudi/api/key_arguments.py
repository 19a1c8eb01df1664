"""Parse the `keys=` argument of lookups and deletes.

values     of the record key field; tuples of values if there are several fields
rows       with the record key fields, and the partition fields if a key is only looked up in its partition
strings    record keys as in `_hoodie_record_key`, for lookups
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from pyhudi.engines.arrow.input_rows import arrow_reader, is_frame, known_length
from pyhudi.errors import InvalidRequest
from pyhudi.format.byte_cursor import checked_text
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.records.java_strings import is_string_like
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.plain_values import plain_value, plain_values


def parse_keys_argument(keys: Any, spec: KeySpec) -> pa.Table | pa.StringArray:
    """Convert keys to record key strings, or to rows with the key fields. Raises InvalidRequest for other input."""
    keys = _plain_keys(keys)
    if isinstance(keys, _COLLECTIONS) and all(isinstance(key, str) for key in keys):
        return pa.array([checked_text(str(key), "the key") for key in keys], pa.string())
    if isinstance(keys, pa.Array) and is_string_like(keys.type):
        return keys.cast(pa.string())
    if _is_empty(keys, spec):
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
    """Convert values to rows with the key fields; rows are returned as they are. Raises InvalidRequest for values that
    cannot be keys.
    """
    keys = _plain_keys(keys)
    if isinstance(keys, (str, bytes, int, float, date, Decimal)):
        raise InvalidRequest(
            f"keys= takes a list of values, such as [{keys!r:.80}], or rows; to delete by predicate, pass where="
        )
    if _is_empty(keys, spec):
        return pa.schema([(RECORD_KEY, pa.string()), (PARTITION_PATH, pa.string())]).empty_table()
    if isinstance(keys, pa.Array):
        return _columns([keys], spec)
    if not isinstance(keys, _COLLECTIONS) or any(isinstance(key, Mapping) or is_frame(key) for key in keys):
        return keys
    values = list(keys)
    count = len(spec.record_fields)
    if count == 1 or spec.generates_keys:
        return _columns([values], spec)
    wrong = next((key for key in values if not isinstance(key, tuple) or len(key) != count), None)
    if wrong is not None:
        raise InvalidRequest(
            f"the record key has {count} fields ({', '.join(spec.record_fields)}), but the key {wrong!r} is not a tuple of "
            f"{count} values; pass tuples, or rows with these columns"
        )
    return _columns([[key[place] for key in values] for place in range(count)], spec)


def _plain_keys(keys: Any) -> Any:
    """Return an array or series as an Arrow array, and values in collections as Python values."""
    array = plain_values(keys)
    if array is not None:
        return array
    if isinstance(keys, (list, tuple, set, frozenset)):
        return [tuple(map(_plain_key, key)) if isinstance(key, tuple) else _plain_key(key) for key in keys]
    return _plain_key(keys)


def _plain_key(key: Any) -> Any:
    return plain_value(key, "the key")


def _is_empty(keys: Any, spec: KeySpec) -> bool:
    """Whether the keys are known to be empty before anything is read; their types do not matter then."""
    # Rows without the key fields are not empty: they are rejected by the names of their columns.
    if isinstance(keys, (pa.Array, pa.ChunkedArray, *_COLLECTIONS)):
        return not len(keys)
    if not is_frame(keys) or known_length(keys) != 0:
        return False
    names = set(arrow_reader(keys).schema.names)
    return not names or {field.split(".")[0] for field in spec.record_fields} <= names


_COLLECTIONS = (list, tuple, set, frozenset, range)


def _columns(values: list[Any], spec: KeySpec) -> pa.Table:
    fields = spec.record_fields
    if spec.generates_keys or any("." in name for name in fields) or len(fields) != len(values):
        key_columns = "_hoodie_record_key and _hoodie_partition_path" if spec.generates_keys else ", ".join(fields)
        raise InvalidRequest(f"the keys of this table cannot be passed as values: pass rows with the columns {key_columns}")
    return arrow_reader(dict(zip(fields, values, strict=True))).read_all()
