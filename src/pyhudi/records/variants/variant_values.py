"""Positions in variant values, and navigation from objects and arrays to their parts, vectorized over rows.

    metadata   header (version 1), number of names, their offsets, their bytes
    value      header byte: basic type in the low 2 bits, then 6 bits that depend on it
      0        primitive: the type's number, then its bytes, little-endian
      1        short string: its length, then its bytes
      2        object: widths; count, numbers of names in alphabetical order of the names, offsets, values
      3        array: widths; count, offsets, values

Every length is compared with the end of its value before it is used.

Specification: Parquet, "Variant Binary Encoding".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.format.avro_columns.buffers import Bools, Longs, Octets, binary_parts, flat, gather_ranges

PRIMITIVE: Final = 0
SHORT_STRING: Final = 1
OBJECT: Final = 2
ARRAY: Final = 3

_PADDING: Final = 16
"""Bytes after the data, so that the longest number can be read at any position."""


@dataclass(frozen=True, slots=True)
class VariantNames:
    """Names of the objects' fields: those of each distinct metadata, one after another.

    Attributes:
        texts: The names.
        first: Position of the first name of each metadata.
        counts: Number of its names.
    """

    texts: pa.StringArray
    first: Longs
    counts: Longs

    @classmethod
    def decode(cls, metadata: pa.Array) -> VariantNames:
        """Decode distinct metadata values. Raises CorruptData for invalid ones."""
        offsets, data = binary_parts(metadata)
        octets, starts, ends = padded(data), offsets[:-1], offsets[1:]
        header = octets[starts]
        _check((ends > starts) & (header & 15 == 1), "the metadata of a variant does not have version 1", starts)
        width = (header >> 6).astype(np.int64) + 1
        _check(starts + 1 + width <= ends, _SHORT, starts)
        counts = read_numbers(octets, starts + 1, width)
        begins = starts + 1 + width * (counts + 2)
        _check(begins <= ends, _SHORT, starts)
        owners, numbers = flat(counts)
        places = starts[owners] + 1 + width[owners] * (numbers + 1)
        low = read_numbers(octets, places, width[owners])
        high = read_numbers(octets, places + width[owners], width[owners])
        _check((low <= high) & (begins[owners] + high <= ends[owners]), _SHORT, owners)
        names = gather_ranges(pa.py_buffer(data), begins[owners] + low, high - low)
        return cls(_as_text(names, "the name of a variant's field"), np.cumsum(counts) - counts, counts)


@dataclass(frozen=True, slots=True)
class VariantValues:
    """Values, each a range of bytes, with the metadata that they refer to.

    Attributes:
        octets: Bytes of all values, padded.
        at: Position of each value.
        ends: Position after it.
        names: Names of fields.
        metadata: Number of its metadata.
        rows: Number of its row, for errors.
    """

    octets: Octets
    at: Longs
    ends: Longs
    names: VariantNames
    metadata: Longs
    rows: Longs

    def __len__(self) -> int:
        return len(self.at)

    @classmethod
    def decode(cls, variants: pa.Array) -> VariantValues:
        """Return the values of a canonical VARIANT array that are not null, whose rows are numbered.

        Raises:
            CorruptData: Invalid metadata, or a value without bytes.
        """
        rows = np.flatnonzero(np.asarray(variants.is_valid(), dtype=np.bool_))
        chosen = variants.take(pa.array(rows)) if variants.null_count else variants
        metadata = pc.struct_field(chosen, "metadata").dictionary_encode()
        offsets, data = binary_parts(pc.struct_field(chosen, "value"))
        numbers = np.asarray(metadata.indices, dtype=np.int64)
        names = VariantNames.decode(metadata.dictionary)
        values = cls(padded(data), offsets[:-1], offsets[1:], names, numbers, rows)
        values.check(values.at < values.ends)
        return values

    def take(self, chosen: Longs | Bools) -> VariantValues:
        """Return some of the values."""
        picked = (self.at[chosen], self.ends[chosen], self.metadata[chosen], self.rows[chosen])
        return replace(self, at=picked[0], ends=picked[1], metadata=picked[2], rows=picked[3])

    def check(self, good: Bools, problem: str = "a variant value is shorter than its header says") -> None:
        """Raise CorruptData, with the row, if a condition is false for a value."""
        _check(good, problem, self.rows)

    @property
    def basic_types(self) -> Octets:
        """The basic type of each value."""
        return self.octets[self.at] & np.uint8(3)

    @property
    def headers(self) -> Octets:
        """The upper six bits of each header byte."""
        return self.octets[self.at] >> np.uint8(2)

    def parts(self) -> VariantParts:
        """Return the parts of the values, all of which are objects or all of which are arrays."""
        header = self.headers.astype(np.int64)
        objects = self.basic_types == OBJECT
        width = (header & 3) + 1
        id_width = np.where(objects, (header >> 2 & 3) + 1, 0)
        count_width = np.where(np.where(objects, header >> 4, header >> 2) & 1, 4, 1)
        self.check(self.at + 1 + count_width <= self.ends)
        counts = read_numbers(self.octets, self.at + 1, count_width)
        ids = self.at + 1 + count_width
        offsets = ids + counts * id_width
        begins = offsets + (counts + 1) * width
        self.check(begins <= self.ends)
        limits = begins + read_numbers(self.octets, offsets + counts * width, width)
        self.check(limits <= self.ends)
        if int(counts.sum()) > len(self.octets):
            raise CorruptData("the objects and arrays of variants overlap")
        owners, numbers = flat(counts)
        at = begins[owners] + read_numbers(self.octets, offsets[owners] + numbers * width[owners], width[owners])
        below = replace(self, at=at, ends=limits[owners], metadata=self.metadata[owners], rows=self.rows[owners])
        below.check(at < below.ends)
        names = np.zeros(0, np.int64)
        if bool(objects.any()):
            local = read_numbers(self.octets, ids[owners] + numbers * id_width[owners], id_width[owners])
            below.check(local < self.names.counts[below.metadata], "a variant refers to a name that its metadata lacks")
            names = self.names.first[below.metadata] + local
        return VariantParts(below, counts, owners, numbers, names)


@dataclass(frozen=True, slots=True)
class VariantParts:
    """Fields of objects or elements of arrays, those of each value together.

    Attributes:
        values: They.
        counts: Number of parts of each value.
        owners: The value of each part.
        numbers: Position of each part in its value.
        names: Position in `VariantNames.texts` of each field's name; empty for arrays.
    """

    values: VariantValues
    counts: Longs
    owners: Longs
    numbers: Longs
    names: Longs


def read_numbers(octets: Octets, at: Longs, width: npt.NDArray[np.int64] | int) -> Longs:
    """Return unsigned little-endian numbers of up to 4 bytes. Positions beyond the end give arbitrary numbers."""
    places = np.minimum(at, len(octets) - _PADDING)
    numbers = np.zeros(len(at), np.int64)
    for byte in range(4):
        numbers |= np.where(byte < width, octets[places + byte].astype(np.int64), 0) << (8 * byte)
    return numbers


def read_fixed(octets: Octets, at: Longs, width: int) -> Octets:
    """Return `width` bytes at each position as a table."""
    table: Octets = octets[at[:, None] + np.arange(width)]
    return table


def read_texts(values: VariantValues, at: Longs, lengths: Longs) -> pa.StringArray:
    """Return the text at each position. Raises CorruptData for bytes that are no text."""
    return _as_text(read_bytes(values, at, lengths), "a variant's string")


def read_bytes(values: VariantValues, at: Longs, lengths: Longs) -> pa.BinaryArray:
    """Return the bytes at each position."""
    values.check(at + lengths <= values.ends)
    return gather_ranges(pa.py_buffer(values.octets), at, lengths)


def _as_text(values: pa.BinaryArray, what: str) -> pa.StringArray:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptData(f"{what} is not UTF-8") from error


def padded(data: Octets) -> Octets:
    """Return bytes with padding after them, as `VariantValues` needs."""
    return np.concatenate([data, np.zeros(_PADDING, np.uint8)])


_SHORT: Final = "the metadata of a variant is shorter than its header says"


def _check(good: Bools, problem: str, rows: Longs) -> None:
    wrong = np.flatnonzero(~good)
    if len(wrong):
        raise CorruptData(f"row {int(rows[wrong[0]])}: {problem}")
