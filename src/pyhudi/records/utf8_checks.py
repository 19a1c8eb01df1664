"""Check that text of incoming rows is UTF-8. Arrow does not: a file or buffer can hold any bytes as strings."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.records.java_strings import is_string_like


def check_utf8(rows: pa.RecordBatch) -> None:
    """Check all text of a batch in canonical types, at any depth.

    Raises:
        InvalidRequest: Names the first column and row with other bytes.
    """
    for field, column in zip(rows.schema, rows.columns, strict=True):
        wrong = _first_invalid(column)
        if wrong is not None:
            raise InvalidRequest(
                f"column {field.name!r}: row {wrong} (counted from 0) has text that is not UTF-8: decode it with its encoding, "
                "or store the bytes in a binary column"
            )


def _first_invalid(array: pa.Array) -> int | None:
    """Return the position of the first value with text that is not UTF-8; None if there is none."""
    types, type_ = pa.types, array.type
    if is_string_like(type_):
        return _first_invalid_text(array)
    if types.is_struct(type_):
        found = [_first_invalid(pc.struct_field(array, [index])) for index in range(type_.num_fields)]
        return min((position for position in found if position is not None), default=None)
    if types.is_list(type_):
        item = _first_invalid(array.flatten())
        return None if item is None else int(pc.list_parent_indices(array)[item].as_py())
    if types.is_map(type_):
        entries = pa.ListArray.from_arrays(array.offsets, array.keys), pa.ListArray.from_arrays(array.offsets, array.items)
        found = [_first_invalid(lists) for lists in entries]
        return min((position for position in found if position is not None), default=None)
    return None


def _first_invalid_text(array: pa.Array) -> int | None:
    if _is_utf8(array):
        return None
    first, end = 0, len(array)
    while end - first > 1:
        middle = (first + end) // 2
        if _is_utf8(array.slice(first, middle - first)):
            first = middle
        else:
            end = middle
    return first


def _is_utf8(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
