"""ORC reader with the interface of `pyarrow.parquet.ParquetFile`, so that readers of base files need no distinction.

A stripe corresponds to a row group. Only requested columns are read. Arrow exposes no statistics of stripes, so no
stripe is pruned by a filter, and column bounds are computed from the values. ORC has no checksums.

Specification: docs/formats/base-file.md, "ORC".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as po

from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.orc.orc_columns import from_orc, has_timestamps, schema_from_file
from pyhudi.format.orc.orc_tail import Tail, read_tail, writer_zone
from pyhudi.format.parquet.avro_hints import file_schema

# Hybrid calendar of dates: the Julian calendar up to 1582-10-04, the Gregorian calendar from 1582-10-15 on.
#
# A date denotes its year, month and day, so the same date has different day numbers in the two calendars. A date that
# the Gregorian calendar does not have (1500-02-29) becomes the next one, as in Spark.
#
# Specification: ORC, version 1, "calendar"; docs/formats/base-file.md, "ORC".

FIRST_GREGORIAN_DAY: Final = -141_427
"""1582-10-15, in days since 1970-01-01."""

_EPOCH: Final = 2_440_588
"""The Julian day number of 1970-01-01."""


def gregorian(rows: pa.Table) -> pa.Table:
    """Return the rows with each date, at any depth, converted to the proleptic Gregorian calendar."""
    columns = [
        pa.chunked_array([_rebased(chunk) for chunk in column.chunks], column.type) if _holds_days(column.type) else column
        for column in rows.columns
    ]
    return pa.table(columns, schema=rows.schema)


def _holds_days(type_: pa.DataType) -> bool:
    return pa.types.is_date32(type_) or any(_holds_days(type_.field(index).type) for index in range(type_.num_fields))


def _rebased(array: pa.Array) -> pa.Array:
    type_ = array.type
    if not _holds_days(type_):
        return array
    if pa.types.is_date32(type_):
        return _rebased_days(array)
    if pa.types.is_struct(type_):
        below = [_rebased(array.field(field.name)) for field in type_.fields]
        return pa.StructArray.from_arrays(below, fields=type_.fields, mask=array.is_null())
    if pa.types.is_map(type_):
        return pa.MapArray.from_arrays(array.offsets, _rebased(array.keys), _rebased(array.items), type_, mask=array.is_null())
    return pa.ListArray.from_arrays(array.offsets, _rebased(array.values), type_, mask=array.is_null())


def _rebased_days(array: pa.Array) -> pa.Array:
    days = array.cast(pa.int32())
    first = pc.min(days).as_py()
    if first is None or first >= FIRST_GREGORIAN_DAY:
        return array
    day_numbers = np.asarray(days.fill_null(0)).astype(np.int64)
    moved = np.where(day_numbers < FIRST_GREGORIAN_DAY, _gregorian_days(day_numbers), day_numbers).astype(np.int32)
    return pa.array(moved, pa.int32(), mask=np.asarray(array.is_null())).cast(array.type)


def _gregorian_days(days: Any) -> Any:
    """Convert day numbers of the Julian calendar to those of the same dates in the Gregorian calendar."""
    # Years begin in March, so that the leap day comes last.
    since = days + _EPOCH + 32_082
    year = (4 * since + 3) // 1461
    of_year = since - 1461 * year // 4
    return of_year + 365 * year + year // 4 - year // 100 + year // 400 - 32_044 - _EPOCH


ORC_AVRO_SCHEMA_KEY: Final = "orc.avro.schema"


@dataclass(frozen=True, slots=True)
class _OrcLeaf:
    path: str


@dataclass(frozen=True, slots=True)
class _OrcLeaves:
    """Leaf columns of a file."""

    paths: tuple[str, ...]

    def column(self, index: int) -> _OrcLeaf:
        return _OrcLeaf(self.paths[index])


@dataclass(frozen=True, slots=True)
class _OrcChunk:
    """A column of a stripe, of which only the number of values is known."""

    num_values: int
    statistics: None = None
    has_dictionary_page: bool = False
    total_compressed_size: int = 0
    total_uncompressed_size: int = 0


@dataclass(frozen=True, slots=True)
class _StripeFooter:
    num_rows: int

    def column(self, index: int) -> _OrcChunk:
        """Return the column with that number; all are equal."""
        return _OrcChunk(self.num_rows)


@dataclass(frozen=True, slots=True)
class OrcFooter:
    """The subset of `pyarrow.parquet.FileMetaData` that readers use; `metadata` is the user metadata."""

    rows_of_stripes: tuple[int, ...]
    schema: _OrcLeaves
    metadata: dict[bytes, bytes] = field(default_factory=dict)
    created_by: str = "ORC"

    @classmethod
    def of(cls, schema: pa.Schema, rows_of_stripes: tuple[int, ...], metadata: dict[bytes, bytes]) -> OrcFooter:
        """Return the footer of a file with these columns."""
        return cls(rows_of_stripes, _OrcLeaves(tuple(_leaf_paths(schema))), metadata)

    @property
    def num_rows(self) -> int:
        return sum(self.rows_of_stripes)

    @property
    def num_row_groups(self) -> int:
        return len(self.rows_of_stripes)

    @property
    def num_columns(self) -> int:
        return len(self.schema.paths)

    def row_group(self, number: int) -> _StripeFooter:
        """Return the stripe with that number."""
        return _StripeFooter(self.rows_of_stripes[number])


class OrcFile:
    """An open ORC file.

    Raises CorruptData for an invalid file, and pyarrow's errors for unsupported content, also later.

    Args:
        is_bootstrapped: The file was not written for a table. Then old dates use the calendar that the file declares;
            Hudi itself uses the Gregorian calendar, regardless of what its files declare.
    """

    def __init__(self, source: pa.NativeFile, *, is_bootstrapped: bool = False) -> None:
        self._source = source
        self._tail: Tail = read_tail(source)
        self._hybrid_days = is_bootstrapped and self._tail.hybrid_days
        source.seek(0)
        self._file = po.ORCFile(source)
        stored_schema: pa.Schema = self._file.schema.remove_metadata()
        user = self._file.metadata
        entries = {} if user is None else {bytes(key): bytes(value) for key, value in user.items()}
        text = entries.get(ORC_AVRO_SCHEMA_KEY.encode())
        declared_schema = None if text is None else file_schema(avro_to_arrow(text.decode()), text.decode())
        self.schema_arrow = schema_from_file(stored_schema, declared_schema)
        self._held = stored_schema
        rows = tuple(stripe.row_count for stripe in self._tail.stripes)
        self.metadata = OrcFooter.of(self.schema_arrow, rows, entries)
        self._zone: str | None = None

    def read_row_group(self, number: int, columns: Sequence[str] | None = None, *, use_threads: bool = True) -> pa.Table:
        """Return the rows of a stripe in some columns, in the requested order; None for all.

        `use_threads` has no effect.
        """
        names = self._held.names if columns is None else [name for name in columns if name in self._held.names]
        if not names:
            count = self.metadata.row_group(number).num_rows
            return pa.table({"": pa.nulls(count)}).select([])
        return self._table([self._file.read_stripe(number, columns=list(names))], names)

    def read(self, columns: Sequence[str] | None = None, *, use_threads: bool = True) -> pa.Table:
        """Return the rows of all stripes, as `read_row_group`."""
        numbers = range(self.metadata.num_row_groups)
        names = self.schema_arrow.names if columns is None else [name for name in columns if name in self._held.names]
        parts = [self.read_row_group(number, names) for number in numbers]
        return pa.concat_tables(parts) if parts else self._chosen(names).empty_table()

    def _table(self, batches: list[pa.RecordBatch], names: Sequence[str]) -> pa.Table:
        if self._zone is None:
            self._zone = writer_zone(self._source, self._tail) if has_timestamps(self._held) else "UTC"
        rows = pa.Table.from_batches(batches).select(list(names))
        return from_orc(gregorian(rows) if self._hybrid_days else rows, self._chosen(names), self._zone)

    def _chosen(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.schema_arrow.field(name) for name in names])


def _leaf_paths(schema: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Yield the leaf columns; those of structs by dotted names."""
    for field_ in schema:
        if pa.types.is_struct(field_.type):
            yield from _leaf_paths(field_.type.fields, f"{above}{field_.name}.")
        elif not pa.types.is_nested(field_.type):
            yield above + field_.name
