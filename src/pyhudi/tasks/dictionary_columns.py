"""Dictionary encoding of text columns with few values, preserved from one base file to the next.

Parquet stores such a column as its distinct values and a number per row. Read as an Arrow dictionary it stays encoded:
no text is built for each row, replacing rows moves numbers, and the writer stores the dictionary instead of hashing
every row again. Rows with some columns in this form are called coded; all other code sees plain text.

    coded_columns   which columns of a file benefit
    coded_schema    the layout with these columns as dictionaries
    coded_rows      plain rows, or rows coded otherwise, in that layout
    decode_dictionaries      the inverse
    replace_coded   some rows of a column replaced

Nested columns are not coded.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.records.ordering import BoolMask

CODED = pa.dictionary(pa.int32(), pa.string())

_MOST_BYTES_A_ROW = 3
"""Maximum uncompressed bytes a row, of dictionary and indices, of a column that counts as one with few values."""

_NUMBERS_OF_WIDTH = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""Whole numbers that have as many bytes as a text."""

_MOST_TEXT_BYTES = 2**31 - 1
"""Maximum bytes of the texts of one array, whose offsets have 32 bits."""

_TOLERATED_VALUES = 32
"""Dictionaries up to this size are not compacted when rows no longer use all values."""


def coded_columns(metadata: pq.FileMetaData, schema: pa.Schema, columns: Collection[str]) -> tuple[str, ...]:
    """Return those of some columns that are text and stored as few values in every row group of a file.

    schema: the file's columns as Arrow; columns: their names, of which missing ones are ignored.
    """
    coded = []
    if not metadata.num_rows:
        return ()
    places = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    for name in columns:
        number = places.get(name)
        position = schema.get_field_index(name)
        if number is None or position < 0 or not pa.types.is_string(schema.field(position).type):
            continue
        chunks = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
        if all(c.has_dictionary_page and c.total_uncompressed_size <= _MOST_BYTES_A_ROW * c.num_values for c in chunks):
            coded.append(name)
    return tuple(coded)


def coded_schema(schema: pa.Schema, coded: Collection[str]) -> pa.Schema:
    """Return the schema with some text columns as dictionaries."""
    return pa.schema([field.with_type(CODED) if field.name in coded else field for field in schema])


def coded_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert rows to the schema, whose columns are plain or coded."""
    for position, field in enumerate(schema):
        given = rows.schema.field(position).type
        if given == field.type:
            continue
        column = rows.column(position)
        column = column.dictionary_encode() if field.type == CODED else pc.cast(column, field.type)
        rows = rows.set_column(position, field, column)
    return rows


def decode_dictionaries(rows: pa.Table) -> pa.Table:
    """Return rows without coded columns."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            plain = field.with_type(field.type.value_type)
            chunks = [_plain(chunk) for chunk in rows.column(position).chunks]
            rows = rows.set_column(position, plain, pa.chunked_array(chunks, plain.type))
    return rows


def _plain(column: pa.DictionaryArray) -> pa.Array:
    """Decode a dictionary-encoded column."""
    # Arrow copies text value by value. Where all have the same few bytes, as flags and years have, they are taken as whole
    # numbers are.
    texts, count = column.dictionary, len(column)
    if not count or not len(texts) or column.null_count or texts.null_count or not pa.types.is_string(texts.type):
        return pc.cast(column, texts.type)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    width = int(ends[1] - ends[0])
    number = _NUMBERS_OF_WIDTH.get(width)
    if data is None or number is None or width * count > _MOST_TEXT_BYTES or (np.diff(ends) != width).any():
        return pc.cast(column, texts.type)
    kinds = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]].view(number)
    values = kinds[column.indices.to_numpy()]
    starts = np.arange(0, width * count + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(starts), pa.py_buffer(values))


def repeated(value: str, row_count: int) -> pa.DictionaryArray:
    """Return a coded column of one value."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(row_count, dtype=np.int32)), pa.array([value], pa.string()))


def replace_coded(column: pa.DictionaryArray, mask: BoolMask, values: pa.StringArray) -> pa.DictionaryArray:
    """Return the column with the rows under the mask replaced, in order, by `values`; a null among them is null."""
    fresh = values.dictionary_encode()
    place = np.asarray(pc.fill_null(pc.index_in(fresh.dictionary, value_set=column.dictionary), -1), dtype=np.int64)
    missing = place < 0
    place[missing] = len(column.dictionary) + np.arange(int(missing.sum()))
    numbers = pa.array(place.astype(np.int32)).take(fresh.indices)
    dictionary = pa.concat_arrays([column.dictionary, fresh.dictionary.filter(pa.array(missing))])
    indices = pc.replace_with_mask(column.indices, pa.array(mask), numbers)
    return _without_idle_values(pa.DictionaryArray.from_arrays(indices, dictionary))


def _without_idle_values(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Remove dictionary values without rows: they would accumulate in a file that is rewritten often."""
    if len(column.dictionary) <= _TOLERATED_VALUES:
        return column
    used = np.asarray(pc.unique(column.indices.drop_null()), dtype=np.int64)
    if len(used) == len(column.dictionary):
        return column
    used.sort()
    moved = np.zeros(len(column.dictionary), dtype=np.int32)
    moved[used] = np.arange(len(used), dtype=np.int32)
    indices = pa.array(moved).take(column.indices)
    return pa.DictionaryArray.from_arrays(indices, column.dictionary.take(pa.array(used)))
