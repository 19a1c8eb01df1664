"""Parquet files with checksums: of each page, which the format has, and of the footer, which it has not.

A page's CRC-32 stands in its header and is compared when the page is read.  The footer says where columns lie, between which
values (so which row groups are passed over), and holds Bloom filters and key ranges; one bit of it can hide rows.  So one of its
key-values is

    pyhudi.footer.crc32   eight hexadecimal digits: CRC-32 of the footer, its length and the magic after it, these digits taken
                          as zeros; ten more: where the footer begins

Other readers pass over a key that they do not know, and files of others have none: of those it is checked that the footer holds
what the format says, for Arrow ends the process on some that do not.  So it is of files of others that copied the key-values of
one of ours, whose footer begins elsewhere.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptData
from pyhudi.format.parquet.decimals import decimal_chunks, read_decimals
from pyhudi.format.parquet.footer import check_footer, closing_with_text
from pyhudi.format.parquet.key_value_metadata import text_spans
from pyhudi.format.parquet.pages import PAGE_ROWS, ColumnPages, column_pages, read_pages
from pyhudi.format.tail_buffer import Sink, TailBufferSink

_KEY: Final = b"pyhudi.footer.crc32"
_NO_SUM: Final = b"0" * 8
_NO_PLACE: Final = b"0" * 10
# In the compact protocol of Thrift a text follows its field's header and its length.
_SEAL: Final = re.compile(re.escape(_KEY) + rb"\x18\x12([0-9a-f]{18})", re.DOTALL)
_END: Final = struct.Struct("<i4s")
_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 64 << 10
_LEAST_BYTES: Final = 12
# What Arrow makes of a footer's byte takes about so many.
_PARSED: Final = 10


class ParquetWriter:
    """As `pyarrow.parquet.ParquetWriter`, for a sink that somebody else opens and closes; use as a context manager.

    settings: those of pyarrow's.  After an error nothing more is written.
    """

    def __init__(self, sink: Sink, schema: pa.Schema, **settings: Any) -> None:
        self._closed = False
        self._sink = TailBufferSink(sink)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"), schema, store_schema=False, write_page_checksum=True, **settings
        )

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write rows as one or more row groups."""
        self._writer.write_table(table, row_group_size=row_group_size)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write rows as a row group."""
        self._writer.write_batch(batch)

    def close(self, metadata: Mapping[str, str] | None = None, edit: Callable[[bytes], bytes] | None = None) -> None:
        """Write the footer, once.  metadata: more key-values; edit: makes another one of it, its length and magic included."""
        if self._closed:
            return
        self._closed = True
        self._writer.add_key_value_metadata({**(metadata or {}), _KEY.decode(): (_NO_SUM + _NO_PLACE).decode()})
        self._sink.start_buffering()
        self._finish()
        held = self._sink.buffered
        length, _ = _END.unpack(held[-_END.size :])
        start = len(held) - length - _END.size
        footer = held[start:] if edit is None else edit(held[start:])
        self._sink.release(held[:start] + _sealed(footer, self._sink.tell() - len(held) + start))

    def discard(self) -> None:
        """Give up: whatever pyarrow still writes, now or when it is collected, goes nowhere."""
        self._closed = True
        self._sink.start_buffering()
        with suppress(Exception):
            self._finish()

    def _finish(self) -> None:
        """Close pyarrow's writer, once: it would try again when it is collected, and print a traceback when it fails again."""
        try:
            self._writer.close()
        finally:
            self._writer.is_open = False


class CheckedParquetFile(pq.ParquetFile):
    """As `pyarrow.parquet.ParquetFile`, of a file whose bytes stay to be had.  Made by `open_parquet`."""

    def __init__(self, source: pa.NativeFile, metadata: pq.FileMetaData, **settings: Any) -> None:
        super().__init__(source, metadata=metadata, **settings)
        self._bytes = source
        self._settings = settings
        self._walked: dict[str, ColumnPages | None] = {}
        self._walked_group = -1

    def pages(self, i: int, name: str) -> ColumnPages | None:
        """The pages of a column of a row group, None where they are not read one by one.  Those of one row group are held until
        another one is asked for, or the file is closed.
        """
        if i != self._walked_group:
            self._walked_group, self._walked = i, {}
        if name not in self._walked:
            self._walked[name] = column_pages(self._bytes, self.metadata, i, name)
        return self._walked[name]

    def read_rows(self, i: int, columns: Sequence[str], rows: npt.NDArray[np.int64] | None) -> pa.Table:
        """Some rows of a row group by their numbers, which ascend; None for all.  Columns as of `read_row_group`, at least one.

        Where few pages hold them, only these are unpacked.
        """
        is_sparse = rows is not None and _is_sparse(rows, self.metadata.row_group(i).num_rows)
        held = self._walked if i == self._walked_group else {}
        schema = self.schema_arrow
        found: dict[str, pa.ChunkedArray] = {}
        for name in columns:
            pages = self.pages(i, name) if is_sparse else held.get(name)
            if pages is None:
                continue
            chosen = np.arange(len(pages.pages)) if rows is None else pages.pages_containing(rows)
            column = read_pages(pages, chosen, self._in_memory(name)).column(0)
            if column.type == schema.field(name).type:
                found[name] = column if rows is None else take_values(column, pages.positions_in_pages(chosen, rows))
        left = [name for name in dict.fromkeys(columns) if name not in found]
        others = self.read_row_group(i, columns=left, use_threads=False) if left else None
        if others is not None and not found:
            return others if rows is None else take_rows(others, rows)
        if others is not None:
            taken = others if rows is None else take_rows(others, rows)
            found.update(zip(taken.column_names, taken.columns, strict=True))
        return pa.table([found[name] for name in columns], schema=pa.schema([schema.field(name) for name in columns]))

    def read_row_group(  # type: ignore[override]  # Flags go by their names here.
        self, i: int, columns: Sequence[str] | None = None, *, use_threads: bool = True, use_pandas_metadata: bool = False
    ) -> pa.Table:
        """As pyarrow's; decimals that can be are read as whole numbers (see `parquet_decimals`)."""
        chunks = decimal_chunks(self.metadata, i, columns)
        numbers = read_decimals(self._bytes, chunks) if chunks else None
        if numbers is None or not numbers.column_names:
            return super().read_row_group(i, columns, use_threads, use_pandas_metadata)
        names = list(dict.fromkeys(self.schema_arrow.names if columns is None else columns))
        left = [name for name in names if name not in numbers.column_names]
        found = dict(zip(numbers.schema, numbers.columns, strict=True))
        if left:
            others = super().read_row_group(i, left, use_threads, use_pandas_metadata)
            found.update(zip(others.schema, others.columns, strict=True))
        order = {name.split(".")[0]: place for place, name in enumerate(names)}
        fields = sorted(found, key=lambda field: order[field.name])
        return pa.table([found[field] for field in fields], schema=pa.schema(fields))

    def _in_memory(self, name: str) -> Callable[[pa.NativeFile], pq.ParquetFile]:
        """What opens a file in memory that holds one column of this file, to be read as here."""
        coded = [name] if name in self._settings["read_dictionary"] else []
        return partial(pq.ParquetFile, **{**self._settings, "read_dictionary": coded})


def take_rows(rows: pa.Table, positions: npt.NDArray[np.int64]) -> pa.Table:
    """Rows by their numbers."""
    return pa.table([take_values(column, positions) for column in rows.columns], schema=rows.schema)


def take_values(column: pa.ChunkedArray, positions: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Values of a column by the numbers of their rows.  One array is taken from as it is: of several Arrow makes one first."""
    if column.num_chunks == 1:
        return pa.chunked_array([column.chunk(0).take(pa.array(positions))])
    return column.take(pa.array(positions))


def _is_sparse(rows: npt.NDArray[np.int64], count: int) -> bool:
    """Whether rows lie in at most half of the pages that so many rows likely have."""
    return 2 * len(np.unique(rows // PAGE_ROWS)) <= -(-count // PAGE_ROWS)


def open_parquet(
    source: pa.NativeFile, columns_to_code: Sequence[str] = (), metadata: pq.FileMetaData | None = None
) -> CheckedParquetFile:
    """A Parquet file whose pages are compared with their checksums when they are read, its footer now.

    columns_to_code: read as dictionaries.  metadata: a footer that was compared before.
    Raises CorruptData for a footer that is not what was written, and pyarrow's errors for what is not Parquet, also later.
    """
    if metadata is None:
        metadata = read_footer(source)
    return CheckedParquetFile(
        source,
        metadata=metadata,
        read_dictionary=list(columns_to_code),
        # Nanoseconds, into which such timestamps of files that Hudi did not write are read otherwise, end in the year 2262.
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
    )


@dataclass(frozen=True, slots=True)
class SplitFooter:
    """A footer of which some long texts stand apart, so that they are neither parsed nor copied with each look at the rest.

    metadata: with these texts empty.  size_bytes: of the rest in the file.  texts: by their keys; None where they were let go.
    """

    metadata: pq.FileMetaData
    size_bytes: int
    texts: Mapping[bytes, bytes] | None = field(default_factory=dict, repr=False)

    @property
    def memory_bytes(self) -> int:
        """About what it takes in memory."""
        return _PARSED * self.size_bytes + sum(map(len, (self.texts or {}).values()))

    @property
    def key_values(self) -> dict[bytes, bytes]:
        """All key-values; without the texts where these were let go."""
        return {**(self.metadata.metadata or {}), **(self.texts or {})}

    def without_texts(self) -> SplitFooter:
        """The same, its texts let go."""
        return replace(self, texts=None) if self.texts else self


def read_footer(source: pa.NativeFile) -> pq.FileMetaData:
    """The footer of a file, with one read where it has less than 64 KiB.  Raises as `open_parquet`."""
    return _parsed(_checked_footer(source)[0])


def read_parted_footer(source: pa.NativeFile, keys: Sequence[bytes]) -> SplitFooter:
    """The footer of a file, compared as by `read_footer`, with the texts of some keys apart.

    They stand apart in files of ours alone, whose footers have a checksum.
    """
    footer, is_ours = _checked_footer(source)
    places = text_spans(footer, keys) if is_ours else {}
    parts, texts, at = [], {}, 0
    for key, place in places.items():
        # An empty text in its place.
        parts += [footer[at : place.head], b"\x00"]
        texts[key], at = footer[place.start : place.end], place.end
    rest = b"".join([*parts, footer[at : -_END.size]])
    return SplitFooter(_parsed(rest + _END.pack(len(rest), _MAGIC)), len(rest), texts)


def _checked_footer(source: pa.NativeFile) -> tuple[bytes, bool]:
    """The footer of a file with what closes it, and whether it has our checksum, which was compared."""
    size = source.size()
    if size < _LEAST_BYTES:
        raise CorruptData("a Parquet file is cut short", offset=0, expected=_LEAST_BYTES, found=size)
    start = max(0, size - _TAIL_BYTES)
    source.seek(start)
    tail = source.read(size - start)
    length, magic = _END.unpack(tail[-_END.size :])
    if magic != _MAGIC:
        raise CorruptData("the end of a Parquet file", offset=size - 4, expected=_MAGIC, found=magic)
    if not 0 < length <= size - _LEAST_BYTES:
        raise CorruptData("the length of a Parquet footer", offset=size - 8, expected=size - _LEAST_BYTES, found=length)
    if length + _END.size > len(tail):
        start = size - length - _END.size
        source.seek(start)
        tail = source.read(size - start)
    footer = tail[-length - _END.size :]
    return footer, _check(footer, size - len(footer))


def _parsed(footer: bytes) -> pq.FileMetaData:
    # What Arrow reads of a footer is the footer alone.
    metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
    if any(metadata.schema.column(index).converted_type == "ENUM" for index in range(metadata.num_columns)):
        return pq.read_metadata(pa.BufferReader(_MAGIC + closing_with_text(footer)))
    return metadata


def _check(footer: bytes, offset: int) -> bool:
    """Compare a footer, which begins at `offset`, with its checksum; one of others with the format.  Whether it is ours."""
    at = _find_seal(footer)
    if at is None:
        check_footer(footer[: -_END.size], offset)
        return False
    end = at + len(_NO_SUM)
    expected, place = int(footer[at:end], 16), int(footer[end : end + len(_NO_PLACE)], 16)
    # A footer may hold a Bloom filter of megabytes: no copies of it.
    whole = memoryview(footer)
    actual = zlib.crc32(whole[end:], zlib.crc32(_NO_SUM, zlib.crc32(whole[:at])))
    if expected != actual:
        if place != offset:
            # Another writer copied the key-values of a file of ours.
            check_footer(footer[: -_END.size], offset)
            return False
        raise CorruptData("checksum of a Parquet footer", offset=offset, expected=expected, found=actual)
    if place != offset:
        raise CorruptData("a Parquet file lost or gained bytes before its footer", offset=offset, expected=place, found=offset)
    return True


def _sealed(footer: bytes, offset: int) -> bytes:
    """A footer, which begins at `offset`, with its checksum."""
    at = _find_seal(footer)
    assert at is not None, "the key was added to the footer"
    place = at + len(_NO_SUM)
    footer = footer[:place] + f"{offset:010x}".encode() + footer[place + len(_NO_PLACE) :]
    return footer[:at] + f"{zlib.crc32(footer):08x}".encode() + footer[place:]


def _find_seal(footer: bytes) -> int | None:
    """Where the checksum stands in a footer: the last text of its form, as the caller's own key-values may hold one."""
    at = footer.rfind(_KEY)
    while at >= 0:
        found = _SEAL.match(footer, at)
        if found:
            return found.start(1)
        at = footer.rfind(_KEY, 0, at)
    return None
