"""Variant values whose parts a file stores in columns of their own, put together again, column by column.

    group v { metadata; value; typed_value }          typed_value: a scalar, a list, or a group of fields
    a field or element is a group { value; typed_value } of its own

A value is in `typed_value` if that is not null, else in `value`; a field that has neither is missing. An object may have
both: the fields in columns, and the other ones in `value`. The metadata names all of them.

Specification: Parquet, "Variant Shredding".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.avro_columns.buffers import (
    Bools,
    Longs,
    Octets,
    binary_column,
    binary_parts,
    fixed_column,
    fixed_values,
    flat,
    gather_ranges,
    join,
    octet_column,
)
from pyhudi.format.hudi_types import VARIANT_TYPE
from pyhudi.records.variants.variant_scalars import BINARY, DECIMALS, NUMBERS, STRING, UUID
from pyhudi.records.variants.variant_values import ARRAY, OBJECT, VariantNames, VariantValues, padded

_VALUE: Final = "value"
_TYPED: Final = "typed_value"
_NULL_VALUE: Final = pa.scalar(b"\x00", pa.binary())
_NUMBER_TYPE_IDS: Final[Mapping[pa.DataType, int]] = {type_: kind for kind, type_ in NUMBERS.items()}


def is_shredded(type_: pa.DataType) -> bool:
    """Return whether a file stores a variant column with some parts in columns of their own."""
    return bool(pa.types.is_struct(type_) and type_.get_field_index("metadata") >= 0 and type_.get_field_index(_TYPED) >= 0)


def unshredded(variants: pa.StructArray) -> pa.StructArray:
    """Return the values of a shredded column as canonical VARIANT values.

    Raises:
        CorruptData: The columns contradict each other, or a value is invalid.
        Unsupported: A column has a type that variants do not have.
    """
    rows = np.flatnonzero(np.asarray(variants.is_valid(), dtype=np.bool_))
    chosen = variants.take(pa.array(rows))
    metadata = pc.struct_field(chosen, "metadata").cast(pa.binary())
    distinct = metadata.dictionary_encode()
    names = VariantNames.decode(distinct.dictionary)
    values = _values(_Group(names, np.asarray(distinct.indices, dtype=np.int64), rows), chosen)
    present = pc.coalesce(values, _NULL_VALUE)
    columns = pa.StructArray.from_arrays([metadata, present], fields=list(VARIANT_TYPE.fields))
    if len(rows) == len(variants):
        return columns
    absent = np.ones(len(variants), np.bool_)
    absent[rows] = False
    return columns.take(pa.array(np.cumsum(~absent) - 1, mask=absent))


@dataclass(frozen=True, slots=True)
class _Group:
    """The metadata and the row of each value of a group of columns."""

    names: VariantNames
    metadata: Longs
    rows: Longs

    def take(self, chosen: Longs | Bools) -> _Group:
        return _Group(self.names, self.metadata[chosen], self.rows[chosen])


def _values(group: _Group, columns: pa.StructArray) -> pa.BinaryArray:
    """Return the encoded value of each row of a group of columns; null where it is missing."""
    count = len(columns)
    type_ = columns.type
    untyped = (
        pc.struct_field(columns, _VALUE).cast(pa.binary()) if type_.get_field_index(_VALUE) >= 0 else pa.nulls(count, pa.binary())
    )
    if type_.get_field_index(_TYPED) < 0:
        return untyped
    typed = pc.struct_field(columns, _TYPED)
    present = np.flatnonzero(np.asarray(typed.is_valid(), dtype=np.bool_))
    if not len(present):
        return untyped
    chosen, inside = typed.take(pa.array(present)), group.take(present)
    rest = untyped.take(pa.array(present))
    if pa.types.is_struct(chosen.type):
        encoded = _objects(inside, chosen, rest)
    else:
        if rest.null_count < len(rest):
            row = inside.rows[pc.index(rest.is_valid(), True).as_py()]
            raise CorruptData(f"row {int(row)}: a shredded variant has two values")
        encoded = _arrays(inside, chosen) if _is_list(chosen.type) else _scalars(chosen)
    places = np.zeros(count, np.int64)
    places[present] = np.arange(len(present))
    missing = np.ones(count, np.bool_)
    missing[present] = False
    return pc.coalesce(encoded.take(pa.array(places, mask=missing)), untyped)


def _objects(group: _Group, fields: pa.StructArray, rest: pa.BinaryArray) -> pa.BinaryArray:
    texts, first = group.names.texts, group.names.first
    owners: list[Longs] = []
    names: list[Longs] = []
    contents: list[pa.BinaryArray] = []
    for number, field in enumerate(fields.type):
        values = _values(group, fields.field(number))
        present = np.flatnonzero(np.asarray(values.is_valid(), dtype=np.bool_))
        owners.append(present)
        contents.append(values.take(pa.array(present)))
        names.append(_name_positions(group.take(present), field.name))
    with_rest = np.flatnonzero(np.asarray(rest.is_valid(), dtype=np.bool_))
    if len(with_rest):
        other = _decoded(group.take(with_rest), rest.take(pa.array(with_rest)))
        other.check(other.basic_types == OBJECT, "a shredded variant has fields and a value that is no object")
        parts = other.parts()
        owners.append(with_rest[parts.owners])
        names.append(parts.names)
        contents.append(_contents(parts.values, parts.owners))
    rank = np.empty(len(texts), np.int64)
    rank[np.asarray(pc.sort_indices(texts.cast(pa.binary())), dtype=np.int64)] = np.arange(len(texts))
    owner, name = np.concatenate(owners), np.concatenate(names)
    order = np.lexsort((rank[name], owner))
    owner, name = owner[order], name[order]
    # Names of one metadata are distinct, so those of one row are equal only where their positions are.
    twice = np.flatnonzero((owner[1:] == owner[:-1]) & (name[1:] == name[:-1]))
    if len(twice):
        row = int(group.rows[owner[twice[0]]])
        raise CorruptData(f"row {row}: a shredded variant has the field {texts[int(name[twice[0]])].as_py()!r} twice")
    ids = name - first[group.metadata[owner]]
    return _container(len(fields), owner, pa.concat_arrays(contents).take(pa.array(order)), ids)


def _name_positions(group: _Group, name: str) -> Longs:
    """Return the position of a name in the names of each row's metadata."""
    names = group.names
    matching = np.flatnonzero(np.asarray(pc.equal(names.texts, name), dtype=np.bool_))
    of_metadata = np.full(len(names.counts), -1, np.int64)
    of_metadata[np.searchsorted(names.first, matching, side="right") - 1] = matching
    found: Longs = of_metadata[group.metadata]
    wrong = np.flatnonzero(found < 0)
    if len(wrong):
        raise CorruptData(f"row {int(group.rows[wrong[0]])}: the metadata of a shredded variant lacks the name {name!r}")
    return found


def _decoded(group: _Group, values: pa.BinaryArray) -> VariantValues:
    offsets, data = binary_parts(values)
    decoded = VariantValues(padded(data), offsets[:-1], offsets[1:], group.names, group.metadata, group.rows)
    decoded.check(decoded.at < decoded.ends)
    return decoded


def _contents(values: VariantValues, owners: Longs) -> pa.BinaryArray:
    """Return the bytes of parts, each of which ends where the next one of its value begins."""
    order = np.lexsort((values.at, owners))
    at, last = values.at[order], values.ends[order]
    follows = np.flatnonzero(owners[order][1:] == owners[order][:-1])
    last[follows] = at[follows + 1]
    ends = np.empty(len(order), np.int64)
    ends[order] = last
    return gather_ranges(pa.py_buffer(values.octets), values.at, ends - values.at)


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _arrays(group: _Group, lists: pa.Array) -> pa.BinaryArray:
    counts = np.asarray(pc.list_value_length(lists), dtype=np.int64)
    owners, _ = flat(counts)
    values = _values(group.take(owners), lists.flatten())
    # An element cannot be missing.
    return _container(len(lists), owners, pc.coalesce(values, _NULL_VALUE), None)


def _container(count: int, owners: Longs, contents: pa.BinaryArray, ids: Longs | None) -> pa.BinaryArray:
    """Encode objects, or arrays if there are no ids, from their parts, which are in order."""
    counts = np.bincount(owners, minlength=count).astype(np.int64)
    sizes = np.asarray(pc.binary_length(contents), dtype=np.int64)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    totals = ends[firsts[1:]] - ends[firsts[:-1]]
    width = _width(int(totals.max(initial=0)))
    is_large = int(counts.max(initial=0)) > 255
    id_width = 0 if ids is None else _width(int(ids.max(initial=0)))
    if ids is None:
        header = (width - 1 | is_large << 2) << 2 | ARRAY
    else:
        header = (width - 1 | (id_width - 1) << 2 | is_large << 4) << 2 | OBJECT
    pieces = [octet_column(np.full(count, header, np.uint8)), fixed_column(_little_endian(counts, 4 if is_large else 1))]
    if ids is not None:
        pieces.append(binary_column(firsts * id_width, _little_endian(ids, id_width).reshape(-1)))
    groups, numbers = flat(counts + 1)
    relative = ends[firsts[groups] + numbers] - ends[firsts[groups]]
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts + 1)])
    pieces.append(binary_column(bounds * width, _little_endian(relative, width).reshape(-1)))
    pieces.append(binary_column(ends[firsts], binary_parts(contents)[1]))
    return join(pieces, count)


def _width(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _little_endian(numbers: Longs, width: int) -> Octets:
    return np.ascontiguousarray(numbers.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width])


def _scalars(array: pa.Array) -> pa.BinaryArray:
    """Encode scalars without nulls."""
    types, type_ = pa.types, array.type
    count = len(array)
    if types.is_boolean(type_):
        return octet_column(np.where(np.asarray(array, dtype=np.bool_), np.uint8(1 << 2), np.uint8(2 << 2)))
    if types.is_string(type_) or types.is_large_string(type_):
        return _long(STRING, array.cast(pa.string()).cast(pa.binary()))
    if types.is_fixed_size_binary(type_) and type_.byte_width == 16:
        return _fixed([UUID << 2], fixed_values(array, np.uint8, 16))
    if types.is_binary(type_) or types.is_large_binary(type_):
        return _long(BINARY, array.cast(pa.binary()))
    if types.is_decimal(type_):
        wide = fixed_values(array.cast(pa.decimal128(38, type_.scale)), np.uint8, 16)
        kind, width = next((kind, width) for kind, width in DECIMALS.items() if type_.precision <= _DIGITS[width])
        return _fixed([kind << 2, type_.scale], wide[:, :width])
    kind_of_number = _NUMBER_TYPE_IDS.get(type_)
    if kind_of_number is None:
        raise Unsupported(f"a shredded variant with a column of type {type_}")
    return (
        _fixed([kind_of_number << 2], fixed_values(array, np.uint8, type_.bit_width // 8)) if count else pa.array([], pa.binary())
    )


_DIGITS: Final = {4: 9, 8: 18, 16: 38}


def _fixed(lead: list[int], octets: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    table = np.empty((len(octets), len(lead) + octets.shape[1]), np.uint8)
    table[:, : len(lead)] = lead
    table[:, len(lead) :] = octets
    return fixed_column(table)


def _long(kind: int, values: pa.BinaryArray) -> pa.BinaryArray:
    sizes = np.asarray(pc.binary_length(values), dtype=np.int64)
    return join(
        [octet_column(np.full(len(values), kind << 2, np.uint8)), fixed_column(_little_endian(sizes, 4)), values], len(values)
    )
