"""Parquet files with checksums of each page (part of the format) and of the footer (added by PyHudi).

A page's CRC-32 is in its header and is verified when the page is read (see `PageChecks`). The footer contains the
positions of columns, their bounds (which prune row groups), Bloom filters and key ranges; one flipped bit in it can
hide rows. One of its key-values is therefore

    pyhudi.footer.crc32   eight hexadecimal digits: CRC-32 of the footer, its length and the magic after it, with these
                          digits as zeros; ten more: the offset of the footer

Other readers ignore an unknown key, and files of other writers do not have it. Their footers are validated against the
format, because Arrow terminates the process on some invalid ones. The same applies to files of other writers that
copied the key-values of a PyHudi file, whose footer has another offset.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
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
from pyhudi.format.parquet.page_checks import PageChecks
from pyhudi.format.parquet.pages import PAGE_ROWS, ColumnPages, column_pages, read_pages
from pyhudi.format.tail_buffer import Sink, TailBufferSink

_KEY: Final = b"pyhudi.footer.crc32"
_NO_SUM: Final = b"0" * 8
_NO_PLACE: Final = b"0" * 10
EMPTY_SEAL: Final = {_KEY.decode(): (_NO_SUM + _NO_PLACE).decode()}
"""Key-value that `sealed` fills in."""
# In Thrift's compact protocol a text follows its field's header and its length.
_SEAL: Final = re.compile(re.escape(_KEY) + rb"\x18\x12([0-9a-f]{18})", re.DOTALL)
_END: Final = struct.Struct("<i4s")
_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 64 << 10
_LEAST_BYTES: Final = 12
# Approximate bytes in memory per byte of a footer that Arrow has parsed.
_PARSED: Final = 10


class ParquetWriter:
    """Writes like `pyarrow.parquet.ParquetWriter`, to a sink that the caller opens and closes.

    Use it as a context manager. After an error nothing more is written.

    Args:
        settings: Arguments of pyarrow's writer.
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
        self._sink.flush_pieces()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write rows as a row group."""
        self._writer.write_batch(batch)
        self._sink.flush_pieces()

    def close(self, metadata: Mapping[str, str] | None = None, edit: Callable[[bytes], bytes] | None = None) -> None:
        """Write the footer, once.

        Args:
            metadata: Additional key-values.
            edit: Replaces the footer, its length and magic included.
        """
        if self._closed:
            return
        self._closed = True
        self._writer.add_key_value_metadata({**(metadata or {}), **EMPTY_SEAL})
        self._sink.start_buffering()
        self._finish()
        buffered = self._sink.buffered
        length, _ = _END.unpack(buffered[-_END.size :])
        start = len(buffered) - length - _END.size
        footer = buffered[start:] if edit is None else edit(buffered[start:])
        self._sink.release(buffered[:start] + sealed(footer, self._sink.tell() - len(buffered) + start))

    def discard(self) -> None:
        """Abort: drop everything that pyarrow still writes, now or when it is collected."""
        self._closed = True
        self._sink.start_buffering(discards=True)
        with suppress(Exception):
            self._finish()

    def _finish(self) -> None:
        """Close pyarrow's writer once, because it would retry when collected, and print a traceback on another failure."""
        try:
            self._writer.close()
        finally:
            self._writer.is_open = False


class CheckedParquetFile(pq.ParquetFile):
    """A `pyarrow.parquet.ParquetFile` that also reads single pages. Construct it with `open_parquet`."""

    def __init__(self, source: pa.NativeFile, metadata: pq.FileMetaData, checks: PageChecks, **settings: Any) -> None:
        super().__init__(source, metadata=metadata, page_checksum_verification=True, **settings)
        self._bytes = source
        self._checks = checks
        self._settings = settings
        self._walked: dict[str, ColumnPages | None] = {}
        self._walked_group = -1

    def pages(self, i: int, name: str) -> ColumnPages | None:
        """Return the pages of a column of a row group; None if they cannot be read one by one.

        Pages of one row group are cached until another row group is requested, or the file is closed.
        """
        if i != self._walked_group:
            self._walked_group, self._walked = i, {}
        if name not in self._walked:
            self._walked[name] = column_pages(self._bytes, self.metadata, i, name)
        return self._walked[name]

    def read_rows(self, i: int, columns: Sequence[str], rows: npt.NDArray[np.int64] | None) -> pa.Table:
        """Read rows of a row group by their numbers. If few pages contain them, only these are decompressed.

        Args:
            i: Row group.
            columns: As for `read_row_group`, at least one.
            rows: Ascending row numbers; None for all.
        """
        is_sparse = rows is not None and _is_sparse(rows, self.metadata.row_group(i).num_rows)
        cached_pages = self._walked if i == self._walked_group else {}
        schema = self.schema_arrow
        columns_by_name: dict[str, pa.ChunkedArray] = {}
        for name in columns:
            pages = self.pages(i, name) if is_sparse else cached_pages.get(name)
            if pages is None:
                continue
            chosen = np.arange(len(pages.pages)) if rows is None else pages.pages_containing(rows)
            verified = self._checks.is_due(i, self._bits([name]))
            column = read_pages(pages, chosen, self._in_memory(name, verified=verified)).column(0)
            if column.type == schema.field(name).type:
                columns_by_name[name] = column if rows is None else take_values(column, pages.positions_in_pages(chosen, rows))
        other_names = [name for name in dict.fromkeys(columns) if name not in columns_by_name]
        other_columns = self.read_row_group(i, columns=other_names, use_threads=False) if other_names else None
        if other_columns is not None and not columns_by_name:
            return other_columns if rows is None else take_rows(other_columns, rows)
        if other_columns is not None:
            selected = other_columns if rows is None else take_rows(other_columns, rows)
            columns_by_name.update(zip(selected.column_names, selected.columns, strict=True))
        return pa.table([columns_by_name[name] for name in columns], schema=pa.schema([schema.field(name) for name in columns]))

    def read_row_group(  # type: ignore[override]  # Flags go by their names here.
        self, i: int, columns: Sequence[str] | None = None, *, use_threads: bool = True, use_pandas_metadata: bool = False
    ) -> pa.Table:
        """Read a row group as pyarrow does; decimals that qualify are read as integers (see `decimals`)."""
        names = list(dict.fromkeys(self.schema_arrow.names if columns is None else columns))
        bits = self._bits(names)
        verified = self._checks.is_due(i, bits)
        numbers = self._read_decimals(i, columns, verified=verified)
        other_names = [name for name in names if name not in numbers.column_names]
        if numbers.column_names and not other_names:
            rows = _in_order(names, numbers)
        else:
            wanted = other_names if numbers.column_names else columns
            read = pq.ParquetFile.read_row_group(self._pages_of(verified=verified), i, wanted, use_threads, use_pandas_metadata)
            rows = _in_order(names, numbers, read) if numbers.column_names else read
        self._checks.passed(i, bits)
        return rows

    def read_batches(self, i: int, columns: Sequence[str], batch_rows: int) -> Iterator[pa.Table]:
        """Read a row group as `read_row_group` does, in tables of at most `batch_rows` rows.

        Memory holds the pages of the row group, one batch, and the decimals that are read as integers.
        """
        names = list(dict.fromkeys(columns))
        bits = self._bits(names)
        verified = self._checks.is_due(i, bits)
        numbers = self._read_decimals(i, names, verified=verified)
        other_names = [name for name in names if name not in numbers.column_names]
        if other_names:
            first_row = 0
            pages = self._pages_of(verified=verified)
            for batch in pages.iter_batches(batch_rows, row_groups=[i], columns=other_names, use_threads=False):
                yield _in_order(names, numbers.slice(first_row, batch.num_rows), pa.Table.from_batches([batch]))
                first_row += batch.num_rows
        else:
            for first_row in range(0, numbers.num_rows, batch_rows):
                yield _in_order(names, numbers.slice(first_row, batch_rows))
        self._checks.passed(i, bits)

    def _read_decimals(self, i: int, columns: Sequence[str] | None, *, verified: bool) -> pa.Table:
        """Return the decimals of a row group that are read as integers, maybe none."""
        return read_decimals(self._bytes, decimal_chunks(self.metadata, i, columns), verified=verified)

    def _pages_of(self, *, verified: bool) -> pq.ParquetFile:
        """Return the file whose pages Arrow reads."""
        return self if verified else self._without_checks

    def _in_memory(self, name: str, *, verified: bool) -> Callable[[pa.NativeFile], pq.ParquetFile]:
        """Return the function that opens a file in memory with one column of this file, with the same options."""
        coded = [name] if name in self._settings["read_dictionary"] else []
        settings = {**self._settings, "read_dictionary": coded, "page_checksum_verification": verified}
        return partial(pq.ParquetFile, **settings)

    @cached_property
    def _without_checks(self) -> pq.ParquetFile:
        """This file, opened to read pages without verifying their checksums."""
        return pq.ParquetFile(self._bytes, metadata=self.metadata, **self._settings)

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {name: position for position, name in enumerate(self.schema_arrow.names)}

    def _bits(self, names: Sequence[str]) -> int:
        """Bits of the positions of columns; those of a field of a struct are the struct's."""
        heads = {name.split(".")[0] for name in names if name not in self._positions}
        return sum(1 << self._positions[name] for name in {*names, *heads} if name in self._positions)


def _in_order(names: Sequence[str], *tables: pa.Table) -> pa.Table:
    """Return the columns of tables as one table; order: that of the names, which may be those of fields of a column."""
    columns_by_field = {field: column for rows in tables for field, column in zip(rows.schema, rows.columns, strict=True)}
    order = {name.split(".")[0]: place for place, name in enumerate(names)}
    fields = sorted(columns_by_field, key=lambda field: order[field.name.split(".")[0]])
    return pa.table([columns_by_field[field] for field in fields], schema=pa.schema(fields))


def take_rows(rows: pa.Table, positions: npt.NDArray[np.int64]) -> pa.Table:
    """Return rows by their numbers."""
    return pa.table([take_values(column, positions) for column in rows.columns], schema=rows.schema)


def take_values(column: pa.ChunkedArray, positions: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Return values of a column by row numbers. Several chunks are combined first, a single chunk is not copied."""
    if column.num_chunks == 1:
        return pa.chunked_array([column.chunk(0).take(pa.array(positions))])
    return column.take(pa.array(positions))


def _is_sparse(rows: npt.NDArray[np.int64], count: int) -> bool:
    """Return whether rows are in at most half of the pages that `count` rows likely have."""
    return 2 * len(np.unique(rows // PAGE_ROWS)) <= -(-count // PAGE_ROWS)


def open_parquet(
    source: pa.NativeFile,
    columns_to_code: Sequence[str] = (),
    metadata: pq.FileMetaData | None = None,
    checks: PageChecks | None = None,
) -> CheckedParquetFile:
    """Open a Parquet file. Its footer is verified now, each page when it is read.

    Args:
        columns_to_code: Columns to read as dictionaries.
        metadata: A footer that was verified earlier.
        checks: Which pages are verified; None for all.

    Raises:
        CorruptData: The footer is corrupt. pyarrow's errors propagate if the file is not Parquet, also later.
    """
    if metadata is None:
        metadata = read_footer(source)
    return CheckedParquetFile(
        source,
        metadata=metadata,
        checks=checks or PageChecks(),
        read_dictionary=list(columns_to_code),
        # Arrow reads such timestamps, of files that Hudi did not write, as nanoseconds by default, which end in the
        # year 2262.
        coerce_int96_timestamp_unit="us",
    )


@dataclass(frozen=True, slots=True)
class SplitFooter:
    """A footer with some long texts stored separately, so that accesses to other fields neither parse nor copy them.

    Attributes:
        metadata: The footer with these texts empty.
        size_bytes: Size of the other fields in the file.
        texts: The texts by their keys; None after they were released.
    """

    metadata: pq.FileMetaData
    size_bytes: int
    texts: Mapping[bytes, bytes] | None = field(default_factory=dict, repr=False)

    @property
    def memory_bytes(self) -> int:
        """Approximate size in memory."""
        return _PARSED * self.size_bytes + sum(map(len, (self.texts or {}).values()))

    @property
    def key_values(self) -> dict[bytes, bytes]:
        """All key-values; without the texts if these were released."""
        return {**(self.metadata.metadata or {}), **(self.texts or {})}

    def without_texts(self) -> SplitFooter:
        """Return the same footer without its texts."""
        return replace(self, texts=None) if self.texts else self


def read_footer(source: pa.NativeFile) -> pq.FileMetaData:
    """Read the footer of a file, with one read if it is smaller than 64 KiB. Raises as `open_parquet`."""
    return parse_footer(read_raw_footer(source))


def read_raw_footer(source: pa.NativeFile) -> bytes:
    """Read and verify the footer of a file; return its bytes with its length and magic. Raises as `open_parquet`."""
    return _checked_footer(source)[0]


def read_parted_footer(source: pa.NativeFile, keys: Sequence[bytes]) -> SplitFooter:
    """Read and verify the footer of a file as `read_footer`, with the texts of some keys stored separately.

    They are separate only in files of PyHudi, whose footers have a checksum.
    """
    footer, is_ours = _checked_footer(source)
    places = text_spans(footer, keys) if is_ours else {}
    parts, texts, at = [], {}, 0
    for key, place in places.items():
        # An empty text replaces it.
        parts += [footer[at : place.head], b"\x00"]
        texts[key], at = footer[place.start : place.end], place.end
    footer_without_texts = b"".join([*parts, footer[at : -_END.size]])
    return SplitFooter(
        parse_footer(footer_without_texts + _END.pack(len(footer_without_texts), _MAGIC)), len(footer_without_texts), texts
    )


def _checked_footer(source: pa.NativeFile) -> tuple[bytes, bool]:
    """Return the footer of a file with its length and magic, and whether it has PyHudi's checksum, which is verified."""
    size = source.size()
    if size < _LEAST_BYTES:
        raise CorruptData("a Parquet file is truncated", offset=0, expected=_LEAST_BYTES, found=size)
    start = max(0, size - _TAIL_BYTES)
    source.seek(start)
    tail = source.read(size - start)
    length, magic = _END.unpack(tail[-_END.size :])
    if magic != _MAGIC:
        raise CorruptData("invalid end of a Parquet file", offset=size - 4, expected=_MAGIC, found=magic)
    if not 0 < length <= size - _LEAST_BYTES:
        raise CorruptData("invalid length of a Parquet footer", offset=size - 8, expected=size - _LEAST_BYTES, found=length)
    if length + _END.size > len(tail):
        start = size - length - _END.size
        source.seek(start)
        tail = source.read(size - start)
    footer = tail[-length - _END.size :]
    return footer, _check(footer, size - len(footer))


def parse_footer(footer: bytes) -> pq.FileMetaData:
    """Parse a verified footer with its length and magic."""
    # Arrow parses only the footer.
    metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
    if any(metadata.schema.column(index).converted_type == "ENUM" for index in range(metadata.num_columns)):
        return pq.read_metadata(pa.BufferReader(_MAGIC + closing_with_text(footer)))
    return metadata


def _check(footer: bytes, offset: int) -> bool:
    """Verify PyHudi's checksum of a footer, or validate the footer of another writer; return whether it is PyHudi's."""
    at = _find_seal(footer)
    if at is None:
        check_footer(footer[: -_END.size], offset)
        return False
    end = at + len(_NO_SUM)
    expected, place = int(footer[at:end], 16), int(footer[end : end + len(_NO_PLACE)], 16)
    # A footer may contain a Bloom filter of megabytes: avoid copies.
    view = memoryview(footer)
    actual = zlib.crc32(view[end:], zlib.crc32(_NO_SUM, zlib.crc32(view[:at])))
    if expected != actual:
        if place != offset:
            # Another writer copied the key-values of a PyHudi file.
            check_footer(footer[: -_END.size], offset)
            return False
        raise CorruptData("checksum mismatch in a Parquet footer", offset=offset, expected=expected, found=actual)
    if place != offset:
        raise CorruptData("a Parquet file lost or gained bytes before its footer", offset=offset, expected=place, found=offset)
    return True


def sealed(footer: bytes, offset: int) -> bytes:
    """Return a footer (with its length and magic) at `offset` with its checksum. Its key-values contain EMPTY_SEAL."""
    at = _find_seal(footer)
    assert at is not None, "the key was added to the footer"
    place = at + len(_NO_SUM)
    footer = footer[:place] + f"{offset:010x}".encode() + footer[place + len(_NO_PLACE) :]
    return footer[:at] + f"{zlib.crc32(footer):08x}".encode() + footer[place:]


def _find_seal(footer: bytes) -> int | None:
    """Return the position of the checksum in a footer: the last match, because user key-values may contain one."""
    at = footer.rfind(_KEY)
    while at >= 0:
        match = _SEAL.match(footer, at)
        if match:
            return match.start(1)
        at = footer.rfind(_KEY, 0, at)
    return None
