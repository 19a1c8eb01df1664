"""Partition paths: computed from rows, and parsed into the values of partition fields.

Null and the empty string are `__HIVE_DEFAULT_PARTITION__` in a path. A `/` in a value creates folders unless values are
percent-encoded.

Values are dictionary-encoded first; conversion to strings, encoding and prefix run on distinct values only. So Python
code processes each distinct value once and never a row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, TableState
from pyhudi.format.paths import split_path
from pyhudi.options.table_options import URL_ENCODE
from pyhudi.records.dotted_columns import column_at
from pyhudi.records.java_strings import has_text, is_binary_like
from pyhudi.records.joda_timestamps import parse_pattern
from pyhudi.records.keys.key_spec import KeySpec, PartitionField, PartitionFieldType, partition_columns, path_valued_columns
from pyhudi.records.keys.key_values import key_text, value_codes
from pyhudi.records.keys.partition_times import time_parts

_MOST_SEPARATORS = 6
"""Limit on the slashes of a path in a table with slash-separated dates; paths with more determine no value."""
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Path of a null or empty partition value."""

PLACEHOLDER_PARTITION = "\x00?"
"""Partition path of rows whose partition must be looked up; no folder can have this name."""

ENCODED_CHARACTERS = "%" + "".join(map(chr, (*range(0x20), 0x7F))) + "\"#'*/:=?\\{[]^"
"""Characters that are percent-encoded in a value; the percent sign is first, as sequential replacement requires."""

NEEDS_ENCODING = r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
"""The same characters, as a regular expression valid in Arrow and Java."""

UNUSABLE_PATHS = (
    (r"(^|/)(\.|\.\.|)(/|$)", "contains an empty folder name, '.' or '..'"),
    (r"^[^/]*:", f"has a colon in its first folder, which Hadoop parses as a scheme: set {URL_ENCODE.stored_as}=true"),
    (r"^\.hoodie(/|$)", "is reserved for Hudi's metadata"),
)
"""Patterns of paths that storage does not support, each with the problem."""

_UNUSABLE = "|".join(f"({pattern})" for pattern, _ in UNUSABLE_PATHS)
_MICROSECONDS = re.compile(r"-?[0-9]+")
_ENCODED = {ord(character): f"%{ord(character):02X}" for character in ENCODED_CHARACTERS}


def partition_paths(spec: KeySpec, batch: pa.RecordBatch) -> pa.StringArray:
    """Compute the partition path of each row, relative to the table, never null; empty for an unpartitioned table.

    Source: docs/formats/record-keys.md, "Partition paths" and "Formatted times".

    Raises:
        InvalidRequest: A column that is missing or has no string form, a time that cannot be parsed, or a path that
            storage does not support (`..`, an empty folder name, a colon in the first folder). Names field and row.
    """
    if not spec.partition_fields:
        return pa.array([""], pa.string()).take(pa.array(np.zeros(batch.num_rows, dtype=np.int64)))
    codes: list[np.ndarray] = []
    texts: list[pa.StringArray] = []
    for field in spec.partition_fields:
        array = column_at(batch, field.name)
        indices, distinct = (
            time_parts(spec, field, array) if field.kind is not PartitionFieldType.SIMPLE else _parts(spec, field, array)
        )
        codes.append(indices)
        texts.append(_encode_and_prefix(spec, field, distinct))
    rows, combined = _combined(codes, [len(text) for text in texts])
    paths = texts[0].take(pa.array(combined[0]))
    if len(texts) > 1:
        paths = pc.binary_join_element_wise(*(text.take(pa.array(code)) for text, code in zip(texts, combined, strict=True)), "/")
    _check_paths(paths, rows)
    return paths.take(pa.array(rows))


def encode_partition_value(text: str) -> str:
    """Percent-encode one value of a path.

    Source: docs/formats/record-keys.md, "Partition paths".
    """
    return text.translate(_ENCODED)


def decode_partition_value(text: str) -> str:
    """Decode `encode_partition_value`; a percent sign without two hexadecimal digits is literal."""
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), text)


def parse_partition_path(spec: KeySpec, path: str) -> tuple[str | None, ...]:
    """Parse a partition path into the string of each partition field, in the order of the spec.

    With one field the whole path is its value, including slashes, which are dashes in a table with slash-separated
    dates. With several fields each has one folder (a timestamp field as many as its pattern has). If every field occurs
    as `field=`, all folders up to the next `field=` belong to it. A value that begins with its own field name and `=`
    is parsed as Hive style regardless of the table's setting, as in Hudi.

    Source: docs/formats/reading.md, "Partitions and path filters".

    Returns:
        One string per field, None for the default partition; `()` for an unpartitioned table.

    Raises:
        TableState: The folders do not match the fields.
    """
    fields = spec.partition_fields
    if not fields:
        if path:
            raise TableState(f"the table is not partitioned, but has the partition path {path!r}")
        return ()
    if len(fields) == 1:
        return (_parsed_value(spec, fields[0], path),)
    folders = split_path(path)
    starts = _hive_starts(fields, folders) or _counted_starts(spec, fields, folders)
    if starts is None:
        raise TableState(
            f"the partition path {path!r} has {len(folders)} folders for the {len(fields)} fields "
            f"{', '.join(field.name for field in fields)}: likely a slash in a value that was not encoded"
        )
    ends = [*starts[1:], len(folders)]
    return tuple(
        _parsed_value(spec, field, "/".join(folders[start:end])) for field, start, end in zip(fields, starts, ends, strict=True)
    )


def partition_value(text: str | None, type_: pa.DataType) -> pa.Scalar:
    """Convert a partition field's string to its column's canonical type; None gives null.

    A timestamp is parsed from microseconds (written by Hudi) and from `2024-05-06 07:08:09.123`.

    Raises:
        CorruptData: The string is not a value of the type.
    """
    if text is None:
        return pa.scalar(None, type_)
    types = pa.types
    try:
        if types.is_string(type_):
            return pa.scalar(text, type_)
        if is_binary_like(type_):
            return pa.scalar(bytes.fromhex(text), type_)
        if types.is_timestamp(type_) and _MICROSECONDS.fullmatch(text):
            return pa.scalar(int(text), pa.int64()).cast(type_)
        if types.is_floating(type_):
            return pa.scalar(float(text.replace("Infinity", "inf")), type_)
        if types.is_boolean(type_):
            return pa.scalar({"true": True, "false": False}[text.lower()], type_)
        if types.is_timestamp(type_):
            return pa.scalar(text).cast(pa.timestamp(type_.unit)).cast(type_)
        return pa.scalar(text).cast(type_)
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise CorruptData(
            "a partition path contains an invalid value for its column's type", expected=str(type_), found=text
        ) from error


def is_exact(text: str | None, type_: pa.DataType) -> bool:
    """True if the string of a partition field determines the value: a formatted timestamp lacks the smaller units."""
    return text is None or not pa.types.is_timestamp(type_) or _MICROSECONDS.fullmatch(text) is not None


def values_from_path(spec: KeySpec, path: str, schema: pa.Schema, names: Collection[str]) -> dict[str, pa.Scalar]:
    """Parse the values of some partition columns from a partition path, in the types of the schema.

    Raises as `parse_partition_path` and `partition_value`.
    """
    if not names:
        return {}
    texts = dict(zip(partition_columns(spec), parse_partition_path(spec, path), strict=True))
    return {name: partition_value(texts[name], schema.field(name).type) for name in names}


def folder_values(
    spec: KeySpec, path: str, schema: pa.Schema, path_columns: Collection[str] = ()
) -> dict[str, tuple[pa.Scalar, ...]]:
    """Return the values that rows of a partition may have in the columns that its path determines.

    Several values have the same path: null and an empty text, or dates with dashes and slashes. The first is that of the
    path alone.

    Args:
        spec: The table's partition fields.
        path: Partition path.
        schema: Top-level columns; others are omitted.
        path_columns: Columns whose value is the path's text, even if a time of that text has smaller units.

    Returns:
        No columns if the path does not fit the partition fields.
    """
    try:
        texts = dict(zip(partition_columns(spec), parse_partition_path(spec, path), strict=True))
        types = {name: schema.field(name).type for name in texts if schema.get_field_index(name) >= 0}
        exact = {name for name in path_valued_columns(spec) if name in types and is_exact(texts[name], types[name])}
        values = {name: partition_value(texts[name], type_) for name, type_ in types.items() if name in {*exact, *path_columns}}
        return {name: _values_of(name, value, path, spec) for name, value in values.items()}
    except (InvalidRequest, TableState, CorruptData):
        return {}


def with_folder_values(rows: pa.Table, values: Mapping[str, tuple[pa.Scalar, ...]]) -> pa.Table:
    """Return rows of a partition with the first value of `folder_values` in place of a stored one that is none of them."""
    for name, possible in values.items():
        index = rows.schema.get_field_index(name)
        field = rows.schema.field(index) if index >= 0 else None
        if field is None or (not field.nullable and not possible[0].is_valid):
            continue
        column = rows.column(index)
        matching = pc.is_in(column, value_set=pa.array([value.as_py() for value in possible], field.type))
        if not pc.all(matching, min_count=0).as_py():
            rows = rows.set_column(index, field, pc.if_else(matching, column, possible[0].cast(field.type)))
    return rows


def _parts(spec: KeySpec, field: PartitionField, array: pa.Array) -> tuple[np.ndarray, pa.StringArray]:
    """Return the value code of each row, and the string of each distinct value (including the default partition)."""
    if not has_text(array.type):
        raise InvalidRequest(f"column {field.name!r} of type {array.type} cannot be a partition field")
    encoded = key_text(spec, array).dictionary_encode() if is_binary_like(array.type) else pc.dictionary_encode(array)
    distinct = key_text(spec, encoded.dictionary)
    distinct = pc.if_else(pc.equal(pc.binary_length(distinct), 0), DEFAULT_PARTITION, distinct)
    return value_codes(encoded.indices, len(distinct)), pa.concat_arrays([distinct, pa.array([DEFAULT_PARTITION])])


def _encode_and_prefix(spec: KeySpec, field: PartitionField, distinct: pa.StringArray) -> pa.StringArray:
    if spec.slash_dates:
        distinct = pc.replace_substring(distinct, "-", "/")
    if spec.url_encode:
        needs_encoding = pc.match_substring_regex(distinct, NEEDS_ENCODING)
        if pc.any(needs_encoding).as_py():
            encoded = [encode_partition_value(text) for text in distinct.filter(needs_encoding).to_pylist()]
            distinct = pc.replace_with_mask(distinct, needs_encoding, pa.array(encoded, pa.string()))
    return pc.binary_join_element_wise(f"{field.name}=", distinct, "") if spec.hive_style else distinct


def _combined(codes: Sequence[np.ndarray], sizes: Sequence[int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the code of each row's combination of values, and the value codes of each combination."""
    if len(codes) == 1:
        return codes[0], [np.arange(sizes[0])]
    rows, values = codes[0], [np.arange(sizes[0])]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        # Renumbering after each field keeps the product within 64 bits: rows of a batch times distinct values of a
        # field.
        encoded = pc.dictionary_encode(pa.array(rows.astype(np.int64) * size + code))
        distinct = encoded.dictionary.to_numpy()
        rows = encoded.indices.to_numpy().astype(np.int64)
        values = [value[distinct // size] for value in values] + [distinct % size]
    return rows, values


def _check_paths(paths: pa.StringArray, rows: np.ndarray) -> None:
    if not pc.any(pc.match_substring_regex(paths, _UNUSABLE)).as_py():
        return
    for pattern, problem in UNUSABLE_PATHS:
        mask = pc.match_substring_regex(paths, pattern)
        # The default partition has a code even without rows, so an invalid path is an error only if a row has it.
        for code in np.flatnonzero(mask.to_numpy(zero_copy_only=False)):
            rows_with_path = np.flatnonzero(rows == code)
            if len(rows_with_path):
                raise InvalidRequest(
                    f"the partition path {paths[int(code)].as_py()!r} of row {rows_with_path[0]} (counted from 0) {problem}"
                )


def _hive_starts(fields: Sequence[PartitionField], folders: Sequence[str]) -> list[int] | None:
    starts: list[int] = []
    for index, folder in enumerate(folders):
        if len(starts) < len(fields) and folder.startswith(fields[len(starts)].name + "="):
            starts.append(index)
    return starts if len(starts) == len(fields) and starts[0] == 0 else None


def _counted_starts(spec: KeySpec, fields: Sequence[PartitionField], folders: Sequence[str]) -> list[int] | None:
    counts = []
    for field in fields:
        is_time = field.kind is PartitionFieldType.TIMESTAMP and spec.time is not None and not spec.url_encode
        counts.append(parse_pattern(spec.time.output_pattern).level_count if is_time and spec.time is not None else 1)
    if sum(counts) != len(folders):
        return None
    return [sum(counts[:index]) for index in range(len(counts))]


def _parsed_value(spec: KeySpec, field: PartitionField, text: str) -> str | None:
    text = text.removeprefix(field.name + "=")
    if text == DEFAULT_PARTITION:
        return None
    if spec.slash_dates:
        return text.replace("/", "-")
    return decode_partition_value(text) if spec.url_encode else text


def _values_of(name: str, value: pa.Scalar, path: str, spec: KeySpec) -> tuple[pa.Scalar, ...]:
    """The values that rows of a partition may have in a column when its path is read as `value`."""
    type_ = value.type
    if pa.types.is_binary(type_) and not value.is_valid:
        return value, pa.scalar(b"", type_)
    if not pa.types.is_string(type_):
        return (value,)
    if not value.is_valid:
        # The partition of null also holds rows with an empty text, and with the name of this partition as their text.
        return value, pa.scalar("", type_), pa.scalar(DEFAULT_PARTITION, type_)
    text = str(value.as_py())
    if spec.slash_dates:
        return tuple(pa.scalar(other, type_) for other in _dashes_or_slashes(text))
    # A folder named column=value is parsed in Hive style regardless of the table's properties.
    is_hive_style = not spec.hive_style and f"/{name}=" in f"/{path}"
    return (value, pa.scalar(f"{name}={text}", type_)) if is_hive_style else (value,)


def _dashes_or_slashes(text: str) -> tuple[str, ...]:
    """The texts whose path is that of `text` in a table with slash-separated dates."""
    first, *parts = text.split("-")
    if len(parts) > _MOST_SEPARATORS:
        raise TableState(f"the partition value {text!r} has more than {_MOST_SEPARATORS} separators")
    return tuple(first + "".join(map("".join, zip(marks, parts, strict=True))) for marks in product("-/", repeat=len(parts)))
