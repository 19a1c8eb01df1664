"""Base file writer: one Parquet or ORC file with meta columns, key filter and key range in its footer.

Rows arrive as tables in the stored layout except for `_hoodie_file_name`, which the writer fills in. They are split
into row groups of bounded size, so the memory of a writer is one row group regardless of the file size.

Source: docs/formats/base-file.md, "Footer".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.format.bloom_filter import BloomFilter
from pyhudi.format.hudi_types import vector_columns_entry
from pyhudi.format.meta_columns import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from pyhudi.format.names import is_orc
from pyhudi.format.orc.orc_reader import ORC_AVRO_SCHEMA_KEY
from pyhudi.format.orc.orc_writer import OrcWriter
from pyhudi.format.parquet.avro_hints import check_values, file_schema
from pyhudi.format.parquet.footer import closing_without
from pyhudi.format.parquet.parquet_file import ParquetWriter
from pyhudi.format.paths import file_name
from pyhudi.options import file_options, write_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.file_options import WRITE_FORMAT
from pyhudi.options.write_options import MAX_FILE_SIZE
from pyhudi.records.event_time_watermarks import EventTimes
from pyhudi.records.java_strings import java_order, text_in_java_order
from pyhudi.records.schema_cast import conform_table, relabel
from pyhudi.storage.arrow_memory import release_unused_memory
from pyhudi.storage.base import Storage
from pyhudi.tasks.base_file_bloom_filter import GrowingFilter
from pyhudi.tasks.base_file_reader import BLOOM_KEY, BLOOM_TYPE_KEY, MAX_KEY, MIN_KEY, Footer
from pyhudi.tasks.dictionary_columns import CODED, coded_rows, coded_schema, repeated
from pyhudi.tasks.file_stats import FileIndexing, FloatTracker, IndexedFile, base_file_ranges

AVRO_SCHEMA_KEY = "parquet.avro.schema"

_ROW_GROUP_BYTES = 32 << 20
"""Arrow bytes after which a row group is written, unless the settings ask for smaller ones."""

_LEAST_GROUP_ROWS = 100
"""Rows after which Hudi first compares a row group with its size."""

_DICTIONARY_META_COLUMNS = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
"""Meta columns with few distinct values in every file: they are kept as dictionaries."""

_SAMPLE_ROWS = 4096
"""Number of rows of a file whose distinct values decide whether a column is written as a dictionary."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Format and layout of base files and log files.  Sizes in bytes.

    base_format: of base files, None for the table's.  marker_lists: markers are stored in lists, see `storage.markers`.
    """

    max_file_size_bytes: Annotated[int, MAX_FILE_SIZE]
    block_size_bytes: Annotated[int, file_options.PARQUET_BLOCK_SIZE]
    page_size_bytes: Annotated[int, file_options.PARQUET_PAGE_SIZE]
    codec: Annotated[str, file_options.PARQUET_COMPRESSION_CODEC]
    dictionary: Annotated[bool, file_options.PARQUET_DICTIONARY_ENABLED, file_options.PARQUET_OUTPUTTIMESTAMPTYPE]
    bloom_enabled: Annotated[bool, file_options.PARQUET_BLOOM_FILTER_ENABLED]
    bloom_type: Annotated[str, file_options.BLOOM_INDEX_FILTER_TYPE]
    bloom_entries: Annotated[int, file_options.INDEX_BLOOM_NUM_ENTRIES]
    bloom_fpp: Annotated[float, file_options.INDEX_BLOOM_FPP]
    bloom_max_entries: Annotated[int, file_options.BLOOM_INDEX_FILTER_DYNAMIC_MAX_ENTRIES]
    log_format: Annotated[str, file_options.LOGFILE_DATA_BLOCK_FORMAT]
    log_block_size_bytes: Annotated[int, file_options.LOGFILE_DATA_BLOCK_MAX_SIZE]
    log_file_size_bytes: Annotated[int, file_options.LOGFILE_MAX_SIZE]
    record_positions: Annotated[bool, file_options.WRITE_RECORD_POSITIONS]
    use_positions: Annotated[bool, file_options.MERGE_USE_RECORD_POSITIONS]
    orc_codec: Annotated[str, file_options.ORC_COMPRESSION_CODEC]
    orc_stripe_bytes: Annotated[int, file_options.ORC_STRIPE_SIZE]
    base_format: Annotated[str | None, WRITE_FORMAT]
    marker_lists: Annotated[bool, write_options.MARKERS_TYPE] = False

    @classmethod
    def of(cls, options: Options) -> FileSettings:
        """Build from checked options."""
        return read_settings(cls, options, marker_lists=options.value_or_default(write_options.MARKERS_TYPE) != "DIRECT")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished base file.

    Attributes:
        metadata: Its footer.
        indexed: Statistics for the metadata table, except for the keys.
        event_times: Of its earliest and its latest row, in milliseconds.
    """

    path: str
    size_bytes: int
    row_count: int
    metadata: Footer
    indexed: IndexedFile | None = None
    event_times: tuple[int | None, int | None] = (None, None)


class BaseFileWriter:
    """Writes one base file; use as a context manager.  The file is published atomically when the block ends without an
    error.

    schema: the stored layout (meta columns, then data columns). inherited: a filter to extend (see `inherited_filter`);
    rows whose keys it holds already are written with `has_known_keys=True`. indexing: statistics to collect for the
    metadata table. coded: text columns that usually arrive as dictionaries (see `tasks.dictionary_columns`); if
    dictionaries are enabled. event_time: the column with event times, None if they are not recorded.
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        schema: pa.Schema,
        avro_schema: str,
        settings: FileSettings,
        *,
        populate_meta_fields: bool = True,
        inherited: BloomFilter | None = None,
        indexing: FileIndexing | None = None,
        coded: Collection[str] = (),
        event_time: str | None = None,
    ) -> None:
        self._storage = storage
        self._path = path
        self._name = file_name(path)
        self._schema = schema
        self._avro_schema = avro_schema
        self._settings = settings
        self._with_keys = populate_meta_fields and settings.bloom_enabled
        self._fill_name = populate_meta_fields and FILE_NAME in schema.names
        few = _DICTIONARY_META_COLUMNS if populate_meta_fields else ()
        self._is_orc = is_orc(path)
        self._layout = coded_schema(schema, {*coded, *few}) if settings.dictionary and not self._is_orc else schema
        self._stored = file_schema(self._layout, avro_schema)
        self._writer: ParquetWriter | OrcWriter | None = None
        self._filter = GrowingFilter(settings, inherited) if self._with_keys else None
        self._least: bytes | None = None
        self._greatest: bytes | None = None
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._flushed_arrow_bytes = 0
        # Arrow bytes that the writer has and the file has not: ORC is written by stripes of their size when stored.
        self._buffered_arrow_bytes = 0
        self._row_count = 0
        self._group_bytes = min(_ROW_GROUP_BYTES, settings.block_size_bytes, max(1 << 16, settings.max_file_size_bytes // 2))
        self._stack = ExitStack()
        self._collected: list[pq.FileMetaData] = []
        self._indexing = indexing
        self._floats = FloatTracker(schema)
        self._event_times = EventTimes(event_time)
        # Kind and text of the finished filter.
        self._bloom: tuple[str, str] | None = None
        self.result: WrittenFile | None = None

    def __enter__(self) -> BaseFileWriter:
        self._sink = self._stack.enter_context(self._storage.open_output(self._path))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            if self._writer is not None:
                self._writer.discard()
            self._stack.__exit__(kind, error, trace)
            return
        try:
            self._flush()
            footer = self._close(self._opened(self._stored.empty_table()))
            size_bytes = int(self._sink.tell())
        except BaseException as failure:
            if self._writer is not None:
                self._writer.discard()
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._stack.close()
        times = (self._event_times.least, self._event_times.greatest)
        self.result = WrittenFile(self._path, size_bytes, self._row_count, footer, self._indexed(footer), times)

    @property
    def row_count(self) -> int:
        """Rows written so far."""
        return self._row_count

    @property
    def estimated_size_bytes(self) -> int:
        """Estimated size of the file if it were closed now: written bytes, and pending bytes at the current compression ratio."""
        written = int(self._sink.tell())
        waiting = self._pending_bytes + self._buffered_arrow_bytes
        if self._flushed_arrow_bytes:
            return written + waiting * written // self._flushed_arrow_bytes
        return waiting // 4

    def write(self, rows: pa.Table, *, has_known_keys: bool = False, constants: Mapping[str, str] | None = None) -> None:
        """Add rows in the stored layout; `_hoodie_file_name` is filled in here.

        Args:
            rows: The rows.
            has_known_keys: Their keys are in the inherited filter, so only the key range is updated.
            constants: Values of meta columns that have the same one in all rows, which need not be searched for others.
        """
        if rows.num_rows == 0:
            return
        if self._fill_name:
            for name, value in {**(constants or {}), FILE_NAME: self._name}.items():
                position = self._schema.get_field_index(name)
                field = self._layout.field(position)
                filled = repeated(value, rows.num_rows)
                rows = rows.set_column(position, field, filled if field.type == CODED else filled.dictionary_decode())
        if self._with_keys:
            self._note_keys(rows.column(RECORD_KEY), has_known_keys=has_known_keys)
        self._floats.add(rows)
        self._event_times.add(rows)
        rows = coded_rows(rows, self._layout)
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        self._row_count += rows.num_rows
        if self._pending_bytes >= self._group_bytes:
            self._flush()

    def _note_keys(self, keys: pa.ChunkedArray, *, has_known_keys: bool) -> None:
        for chunk in keys.chunks:
            # Hudi looks keys up by these bounds in Java's string order.
            bounds = pc.min_max(java_order(chunk)).as_py()
            if bounds["min"] is None:
                continue
            self._least = bounds["min"] if self._least is None else min(self._least, bounds["min"])
            self._greatest = bounds["max"] if self._greatest is None else max(self._greatest, bounds["max"])
            if not has_known_keys and self._filter is not None:
                self._filter.add(chunk)

    def _flush(self) -> None:
        if not self._pending:
            return
        # Parquet stores one dictionary for each row group.
        table = relabel(pa.concat_tables(self._pending).unify_dictionaries(), self._layout)
        self._pending = []
        check_values(table, self._avro_schema)
        table = conform_table(table, self._stored)
        writer, before = self._opened(table), self._sink.tell()
        if isinstance(writer, OrcWriter):
            writer.write_table(table)
        else:
            groups = max(1, round(self._pending_bytes / self._group_bytes))
            writer.write_table(table, row_group_size=max(_LEAST_GROUP_ROWS, math.ceil(table.num_rows / groups)))
        self._buffered_arrow_bytes += self._pending_bytes
        if self._sink.tell() > before:
            self._flushed_arrow_bytes += self._buffered_arrow_bytes
            self._buffered_arrow_bytes = 0
        self._pending_bytes = 0
        del table
        release_unused_memory()

    def _opened(self, first: pa.Table) -> ParquetWriter | OrcWriter:
        """The writer of the format.  first: the rows that it is opened for, by which the encoding of the columns is chosen."""
        if self._writer is None and self._is_orc:
            stripe_bytes = min(self._settings.orc_stripe_bytes, self._group_bytes)
            self._writer = OrcWriter(self._sink, self._stored, codec=self._settings.orc_codec, stripe_bytes=stripe_bytes)
        elif self._writer is None:
            self._writer = ParquetWriter(
                self._sink,
                self._stored,
                compression=_arrow_codec(self._settings.codec),
                use_dictionary=_dictionary_columns(first) if self._settings.dictionary else False,
                data_page_size=self._settings.page_size_bytes,
                write_statistics=True,
                use_compliant_nested_type=True,
                version="2.6",
                metadata_collector=self._collected,
            )
        return self._writer

    def _close(self, writer: ParquetWriter | OrcWriter) -> Footer:
        if isinstance(writer, OrcWriter):
            return writer.close({ORC_AVRO_SCHEMA_KEY: self._avro_schema, **self._key_entries()})
        # Bounds omit NaN, which Spark orders above every number. Spark's Parquet reader distinguishes 0.0 and -0.0 in
        # dictionaries. In both cases a filter would skip matching rows.
        watched = self._floats
        plain = partial(closing_without, bounds=watched.columns, dictionaries=watched.zeros)
        entries = {
            AVRO_SCHEMA_KEY: self._avro_schema,
            **watched.footer,
            **vector_columns_entry(self._schema),
            **self._key_entries(),
        }
        writer.close(entries, plain if watched.columns or watched.zeros else None)
        return self._collected[0]

    def _key_entries(self) -> dict[str, str]:
        entries: dict[str, str] = {}
        if self._with_keys and self._filter is not None:
            bloom = self._filter.finish()
            text = bloom.to_text()
            self._bloom = str(bloom.filter_type), text
            entries |= bloom_entries(bloom.filter_type, text)
            if self._least is not None and self._greatest is not None:
                entries[MIN_KEY] = text_in_java_order(self._least)
                entries[MAX_KEY] = text_in_java_order(self._greatest)
        return entries

    def _indexed(self, footer: Footer) -> IndexedFile | None:
        wanted = self._indexing
        if wanted is None:
            return None
        nan = self._floats.columns
        ranges = base_file_ranges(self._storage, self._path, footer, self._schema, wanted.columns, nan_columns=nan)
        return IndexedFile(ranges, self._bloom if wanted.bloom_filters else None)


def bloom_entries(kind: str, text: str) -> dict[str, str]:
    """Return the footer entries of a key filter."""
    return {BLOOM_KEY: text, **({} if kind == "SIMPLE" else {BLOOM_TYPE_KEY: kind})}


def _arrow_codec(name: str) -> str:
    return {"uncompressed": "none", "lz4_raw": "lz4"}.get(name, name)


def _dictionary_columns(rows: pa.Table) -> list[str]:
    """The columns to store with a dictionary: those whose values repeat in some of the rows."""
    # Keys and sequence numbers are unique in a file: a dictionary of them would be built and thrown away.
    unique = {COMMIT_SEQNO, RECORD_KEY}
    is_large = rows.num_rows >= _SAMPLE_ROWS
    sample = np.linspace(0, rows.num_rows - 1, _SAMPLE_ROWS).astype(np.int64)
    paths = []
    for field in rows.schema:
        if field.name in unique:
            continue
        is_sampled = is_large and not (pa.types.is_nested(field.type) or field.type == CODED)
        # Building a dictionary of values that hardly repeat costs time, and makes the file larger.
        if is_sampled and 2 * len(pc.unique(_sampled(rows.column(field.name), sample))) > _SAMPLE_ROWS:
            continue
        paths.extend(_leaf_paths(field.name, field.type))
    return paths


def _sampled(column: pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Return some rows, in ascending order; Arrow would copy the whole column first."""
    ends = np.cumsum([len(chunk) for chunk in column.chunks])
    bounds = np.searchsorted(rows, ends)
    parts = [
        chunk.take(pa.array(rows[first:last] - (end - len(chunk))))
        for chunk, first, last, end in zip(column.chunks, [0, *bounds[:-1]], bounds, ends, strict=True)
    ]
    return pa.chunked_array(parts, column.type)


def _leaf_paths(path: str, type_: pa.DataType) -> list[str]:
    if pa.types.is_struct(type_):
        return [
            leaf for i in range(type_.num_fields) for leaf in _leaf_paths(f"{path}.{type_.field(i).name}", type_.field(i).type)
        ]
    if pa.types.is_map(type_):
        return _leaf_paths(f"{path}.key_value.key", type_.key_type) + _leaf_paths(f"{path}.key_value.value", type_.item_type)
    if pa.types.is_list(type_):
        return _leaf_paths(f"{path}.list.element", type_.value_type)
    return [path]
