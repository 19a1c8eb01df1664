"""An ORC file, read as `pyarrow.parquet.ParquetFile` reads a Parquet file: whoever reads base files need not tell them apart.

A stripe is what a row group is there.  Columns that are not asked for are not read; Arrow gives no statistics of stripes, so none
is passed over by a filter, and bounds of columns come from their values.  ORC has no checksums.

Source: docs/formats/base-file.md, "ORC".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.orc as po

from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.orc.calendars import gregorian
from pyhudi.format.orc.orc_columns import from_orc, holds_times, schema_of_file
from pyhudi.format.orc.orc_tail import Tail, read_tail, writer_zone
from pyhudi.format.parquet.avro_hints import file_schema

ORC_AVRO_SCHEMA_KEY: Final = "orc.avro.schema"


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: str


@dataclass(frozen=True, slots=True)
class _Leaves:
    """The columns of a file without those that nest others."""

    paths: tuple[str, ...]

    def column(self, index: int) -> _Leaf:
        return _Leaf(self.paths[index])


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column of a stripe, of which nothing is known but how many values it has."""

    num_values: int
    statistics: None = None
    has_dictionary_page: bool = False
    total_compressed_size: int = 0
    total_uncompressed_size: int = 0


@dataclass(frozen=True, slots=True)
class _StripeFooter:
    num_rows: int

    def column(self, index: int) -> _Chunk:
        """The column of that number, as all of them."""
        return _Chunk(self.num_rows)


@dataclass(frozen=True, slots=True)
class OrcFooter:
    """What is asked of `pyarrow.parquet.FileMetaData`.  metadata: the user metadata."""

    rows_of_stripes: tuple[int, ...]
    schema: _Leaves
    metadata: dict[bytes, bytes] = field(default_factory=dict)
    created_by: str = "ORC"

    @classmethod
    def of(cls, schema: pa.Schema, rows_of_stripes: tuple[int, ...], metadata: dict[bytes, bytes]) -> OrcFooter:
        """The footer of a file with these columns."""
        return cls(rows_of_stripes, _Leaves(tuple(_leaf_paths(schema))), metadata)

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
        """The stripe of that number."""
        return _StripeFooter(self.rows_of_stripes[number])


class OrcFile:
    """An open file.  Raises CorruptData for what is no ORC file, and pyarrow's errors for what it cannot read, also later.

    outside: the file was not made for a table.  Then old dates are read by the calendar that it says; Hudi counts them by the
    Gregorian one whatever its files say.
    """

    def __init__(self, source: pa.NativeFile, *, outside: bool = False) -> None:
        self._source = source
        self._tail: Tail = read_tail(source)
        self._hybrid_days = outside and self._tail.hybrid_days
        source.seek(0)
        self._file = po.ORCFile(source)
        held: pa.Schema = self._file.schema.remove_metadata()
        user = self._file.metadata
        entries = {} if user is None else {bytes(key): bytes(value) for key, value in user.items()}
        text = entries.get(ORC_AVRO_SCHEMA_KEY.encode())
        said = None if text is None else file_schema(avro_to_arrow(text.decode()), text.decode())
        self.schema_arrow = schema_of_file(held, said)
        self._held = held
        rows = tuple(stripe.row_count for stripe in self._tail.stripes)
        self.metadata = OrcFooter.of(self.schema_arrow, rows, entries)
        self._zone: str | None = None

    def read_row_group(self, number: int, columns: Sequence[str] | None = None, *, use_threads: bool = True) -> pa.Table:
        """The rows of a stripe in some columns, in the order asked for; None for all.  Threads are none of ORC's."""
        names = self._held.names if columns is None else [name for name in columns if name in self._held.names]
        if not names:
            count = self.metadata.row_group(number).num_rows
            return pa.table({"": pa.nulls(count)}).select([])
        return self._table([self._file.read_stripe(number, columns=list(names))], names)

    def read(self, columns: Sequence[str] | None = None, *, use_threads: bool = True) -> pa.Table:
        """As `read_row_group`, of all stripes."""
        numbers = range(self.metadata.num_row_groups)
        names = self.schema_arrow.names if columns is None else [name for name in columns if name in self._held.names]
        parts = [self.read_row_group(number, names) for number in numbers]
        return pa.concat_tables(parts) if parts else self._chosen(names).empty_table()

    def _table(self, batches: list[pa.RecordBatch], names: Sequence[str]) -> pa.Table:
        if self._zone is None:
            self._zone = writer_zone(self._source, self._tail) if holds_times(self._held) else "UTC"
        rows = pa.Table.from_batches(batches).select(list(names))
        return from_orc(gregorian(rows) if self._hybrid_days else rows, self._chosen(names), self._zone)

    def _chosen(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.schema_arrow.field(name) for name in names])


def _leaf_paths(schema: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """The columns that hold values by themselves, those of structs by dotted names."""
    for field_ in schema:
        if pa.types.is_struct(field_.type):
            yield from _leaf_paths(field_.type.fields, f"{above}{field_.name}.")
        elif not pa.types.is_nested(field_.type):
            yield above + field_.name
