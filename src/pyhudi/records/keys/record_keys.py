"""Record keys: computed from key fields or generated from the instant, and split into their parts.

In a composite key null is `__null__` and the empty string `__empty__`; values are not escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.options import table_options
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.keys.key_values import column_text

NULL_KEY_PART = "__null__"
EMPTY_KEY_PART = "__empty__"
"""Placeholders of null and the empty string in a composite key."""


def record_keys(spec: KeySpec, batch: pa.RecordBatch) -> pa.StringArray:
    """Compute the record key of each row, never null or empty.

    Source: docs/formats/record-keys.md, "Record keys" and "Values as text".

    Raises:
        InvalidRequest: A null or empty key (a composite key: all parts are), or a key column that is missing or has no
            string form. Names field and row.
        Unsupported: A class of the user computes the keys.
    """
    if spec.generates_keys:
        raise InvalidRequest(
            f"the table has no record key fields: its keys are generated; set {table_options.RECORD_KEY_FIELDS.stored_as}"
        )
    if spec.is_user_provided:
        raise Unsupported(
            "the table's keys are computed by a key generator class of its owner, which PyHudi does not have: use the stored "
            "record keys, _hoodie_record_key"
        )
    texts = [column_text(spec, batch, name, "record key") for name in spec.record_fields]
    if not spec.is_composite:
        _check_keys_present(texts, spec.record_fields)
        return texts[0]
    parts: list[str | pa.Array] = []
    has_missing = False
    for index, (name, text) in enumerate(zip(spec.record_fields, texts, strict=True)):
        key_part, part_has_missing = _key_part(text)
        has_missing = has_missing or part_has_missing
        parts += [("," if index else "") + name + ":", key_part]
    if has_missing:
        _check_keys_present(texts, spec.record_fields)
    return pc.binary_join_element_wise(*parts, "")


def auto_record_keys(instant_time: str, task_partition: int, first_row_index: int, row_count: int) -> pa.StringArray:
    """Generate keys for rows without key fields: `{instant}_{task partition}_{row index}`, the index counted from 0
    within a task.
    """
    rows = pa.array(np.arange(first_row_index, first_row_index + row_count, dtype=np.int64))
    return pc.binary_join_element_wise(f"{instant_time}_{task_partition}_", pc.cast(rows, pa.string()), "")


def split_record_keys(keys: pa.StringArray) -> pa.ListArray:
    """Split composite keys into parts: list<struct<name: string, value: string>>, one list per key, in key order.

    A key without both `,` and `:` is one part with a null name. Otherwise a value ends at the last comma before the
    next `name:`, so it may contain commas and colons. `__null__` becomes null and `__empty__` the empty string; null
    remains null.

    Source: docs/formats/record-keys.md, "Record keys"; docs/formats/writing.md, "Bucket index".
    """
    simple = _split_simple_keys(keys)
    if simple is not None:
        return simple
    plain = pc.invert(pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":")))
    separator = next((separator for separator in _split_marks() if not pc.any(pc.match_substring(keys, separator)).as_py()), None)
    if separator is None:
        raise Unsupported("the record keys contain every character that could separate their parts")
    # The first name ends at the first colon and may contain commas; only after it does a comma separate parts.
    first = pc.extract_regex(keys, r"(?s)^(?P<name>[^:]*):(?P<rest>.*)$")
    other_parts = pc.replace_substring_regex(first.field("rest"), r",([^,:]*):", separator + r"\1:")
    marked = pc.if_else(plain, keys, pc.binary_join_element_wise(first.field("name"), other_parts, ":"))
    pieces = pc.split_pattern(marked, separator)
    flat = pieces.values.slice(pieces.offsets[0].as_py() if len(pieces) else 0, len(pieces.flatten()))
    counts = pc.fill_null(pc.list_value_length(pieces), 0).to_numpy(zero_copy_only=False)
    is_plain = pa.array(np.repeat(pc.fill_null(plain, True).to_numpy(zero_copy_only=False), counts))
    named = pc.extract_regex(flat, r"(?s)^(?P<name>[^:]*):(?P<value>.*)$")
    value = pc.if_else(is_plain, flat, named.field("value"))
    value = pc.if_else(pc.and_(pc.equal(value, NULL_KEY_PART), pc.invert(is_plain)), pa.scalar(None, pa.string()), value)
    value = pc.if_else(pc.and_(pc.equal(value, EMPTY_KEY_PART), pc.invert(is_plain)), "", value)
    name = pc.if_else(is_plain, pa.scalar(None, pa.string()), named.field("name"))
    parts = pa.StructArray.from_arrays([name, value], names=["name", "value"])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    mask = keys.is_null() if keys.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), parts, mask=mask)


def _key_part(text: pa.StringArray) -> tuple[pa.StringArray, bool]:
    """Return the part of a composite key, and whether any value is null or empty."""
    has_missing = text.null_count > 0
    if has_missing:
        text = pc.fill_null(text, NULL_KEY_PART)
    empty = pc.equal(pc.binary_length(text), 0)
    if pc.any(empty).as_py():
        return pc.if_else(empty, EMPTY_KEY_PART, text), True
    return text, has_missing


def _check_keys_present(texts: Sequence[pa.StringArray], names: Sequence[str]) -> None:
    is_missing, *others = (pc.fill_null(pc.equal(pc.binary_length(text), 0), True) for text in texts)
    for missing in others:
        is_missing = pc.and_(is_missing, missing)
    row = pc.index(is_missing, True).as_py()
    if row >= 0:
        value = "null" if texts[0][row].as_py() is None else "empty"
        fields = ", ".join(repr(name) for name in names)
        problem = (
            f"the record key field {fields} is {value}"
            if len(names) == 1
            else f"the record key fields {fields} are all null or empty"
        )
        raise InvalidRequest(f"{problem} in row {row} (counted from 0): every row needs a key")


def _split_simple_keys(keys: pa.StringArray) -> pa.ListArray | None:
    """Fast path of `split_record_keys`: every key is composite and no value contains a comma or colon."""
    if keys.null_count or not len(keys):
        return None
    pieces = pc.split_pattern(keys, ",")
    counts = pc.list_value_length(pieces)
    flat = pieces.flatten()
    if pc.min(counts).as_py() < 2 or not pc.all(pc.equal(pc.count_substring(flat, ":"), 1)).as_py():
        return None
    pairs = pc.split_pattern(flat, ":").flatten()
    value = pairs.take(pa.array(np.arange(1, len(pairs), 2)))
    value = pc.if_else(pc.equal(value, NULL_KEY_PART), pa.scalar(None, pa.string()), value)
    value = pc.if_else(pc.equal(value, EMPTY_KEY_PART), "", value)
    name = pairs.take(pa.array(np.arange(0, len(pairs), 2)))
    offsets = np.concatenate([[0], np.cumsum(counts.to_numpy())]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays([name, value], names=["name", "value"]))


def _split_marks() -> list[str]:
    return ["\x00", "\x01", "\x02", "\x1e", "\x1f", "\ufdd0", "\ufdd1", "\U0010fffe", "\U0010ffff"]
