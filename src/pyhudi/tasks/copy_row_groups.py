"""Clustering by copying encoded row groups instead of decoding and encoding their rows.

A group of file slices is copied if each slice is one Parquet file with the columns of the table. Of the meta columns
only `_hoodie_file_name` changes: its column chunks are written for the new file. Footers are merged:

    key filter          combined, or built from the keys where sizes or types differ
    key range           smallest and largest key of the sources
    other key-values    those that all sources have in common; `original.created.by` lists several writers

The checksums of all pages are verified while they are copied, so that damage is not spread to a new file. Pages without
checksums are copied as they are.

Source: docs/formats/writing.md, "Clustering"; docs/decisions/0029-row-group-copy.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.format.bloom_filter import BloomFilter
from pyhudi.format.hudi_types import vector_columns_entry
from pyhudi.format.meta_columns import FILE_NAME, RECORD_KEY
from pyhudi.format.names import BaseFileName, WriteToken, format_file_id, is_orc
from pyhudi.format.parquet.avro_hints import file_schema
from pyhudi.format.parquet.parquet_file import ParquetWriter, open_parquet
from pyhudi.format.parquet.row_group_copy import CopySource, RowGroupCopier
from pyhudi.format.paths import join_path
from pyhudi.options import service_options
from pyhudi.records.column_statistics import NAN_HAS_NO_BOUNDS, NAN_KEY, may_omit_nan
from pyhudi.records.java_strings import java_order, text_in_java_order
from pyhudi.records.schema_cast import same_type
from pyhudi.storage.base import Storage
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.base_file_bloom_filter import GrowingFilter
from pyhudi.tasks.base_file_reader import (
    BLOOM_KEY,
    BLOOM_KEY_BEFORE_APACHE,
    BLOOM_TYPE_KEY,
    MAX_KEY,
    MIN_KEY,
    footer_filter,
    footer_text,
    open_base_bytes,
)
from pyhudi.tasks.base_file_writer import AVRO_SCHEMA_KEY, WrittenFile, bloom_entries
from pyhudi.tasks.dictionary_columns import repeated
from pyhudi.tasks.file_stats import IndexedFile, KeyChanges, base_file_ranges
from pyhudi.tasks.write_base_files import begin_new_file, new_file_status
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus

_LEAST_GROUP_BYTES: Final = 1 << 20
"""Average size of row groups from which they are copied without a request: many small ones make a file slow to read."""

_ORIGINAL_CREATED_BY: Final = "original.created.by"
_CODECS: Final = {"gzip": "GZIP", "zstd": "ZSTD", "snappy": "SNAPPY", "uncompressed": "UNCOMPRESSED", "lz4_raw": "LZ4"}
_OWN_KEYS: Final = (BLOOM_KEY, BLOOM_KEY_BEFORE_APACHE, BLOOM_TYPE_KEY, MIN_KEY, MAX_KEY, NAN_KEY, "ARROW:schema")


@dataclass(frozen=True, slots=True)
class CopyRules:
    """When row groups are copied.

    Attributes:
        mode: `auto` copies large row groups with the codec of the options; `always` copies all that can be copied.
        adds_columns: Files may lack columns of the table, which become null.
    """

    mode: Annotated[str, service_options.CLUSTERING_COPY, service_options.CLUSTERING_EXECUTION_STRATEGY_CLASS] = "auto"
    adds_columns: Annotated[bool, service_options.CLUSTERING_BINARY_COPY_SCHEMA_EVOLUTION] = False


DEFAULT_COPY_RULES: Final = CopyRules()


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """New file groups of a clustering group, see `ClusterTask`."""

    partition: str
    output_prefixes: tuple[str, ...]
    token: WriteToken


@dataclass(frozen=True, slots=True, eq=False)
class SourceFile:
    """A base file to copy. missing: columns of the table that it lacks."""

    path: str
    source: CopySource
    missing: tuple[str, ...]

    @property
    def group_sizes(self) -> list[int]:
        """Bytes of each row group in the file, 0 for one without rows."""
        metadata = self.source.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        return [_group_size(group) if group.num_rows else 0 for group in groups]


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Files whose row groups can be copied, in order.

    Attributes:
        files: The files.
        like: Provides the schema of the new files.
        stored: The table's columns as files store them.
        created_by: The writer of files with row groups of several writers.
    """

    files: tuple[SourceFile, ...]
    like: CopySource
    stored: pa.Schema
    created_by: str


def plan_copy(storage: Storage, spec: WriterSpec, slices: Sequence[FileSlice], rules: CopyRules) -> CopyPlan | str:
    """Return how to copy the row groups of file slices; or the reason why their rows must be decoded.

    Raises:
        CorruptData: A footer is corrupt.
        TableState: A file is missing.
    """
    reason = _reason_by_slices(spec, slices, rules)
    if reason is not None:
        return reason
    stored = file_schema(spec.stored_schema, spec.avro_schema)
    own = CopySource.read(pa.BufferReader(_encoded(stored.empty_table())))
    files = []
    for slice_ in slices:
        assert slice_.base is not None, "checked above"
        with open_base_bytes(storage, slice_.base.path) as file:
            source = CopySource.read(file)
        missing = _missing_columns(slice_.base.path, source, own, may_lack=rules.adds_columns)
        if isinstance(missing, str):
            return missing
        files.append(SourceFile(slice_.base.path, source, missing))
    whole = next((file.source for file in files if not file.missing), own)
    plan = CopyPlan(tuple(files), whole, stored, str(own.metadata.created_by))
    return _reason_by_footers(spec, plan, rules) or plan


def run_copy(storage: Storage, spec: WriterSpec, target: CopyTarget, plan: CopyPlan) -> Iterator[WriteStatus]:
    """Copy the row groups of a plan to new file groups, and yield a status of each file.

    Row groups stay in order. Each output prefix receives about as many bytes; a full file is followed by another one.

    Raises:
        CorruptData: A page of a source fails its checksum.
    """
    groups = [(file, number, size) for file in plan.files for number, size in enumerate(file.group_sizes) if size]
    total = sum(size for _, _, size in groups)
    parts: list[list[tuple[SourceFile, int]]] = [[] for _ in target.output_prefixes]
    before = 0
    for file, number, size in groups:
        parts[(2 * before + size) * len(parts) // (2 * total + 1)].append((file, number))
        before += size
    for prefix, part in zip(target.output_prefixes, parts, strict=True):
        for index, content in enumerate(_filled(part, spec.files.max_file_size_bytes)):
            name = begin_new_file(storage, spec, target.partition, format_file_id(prefix, index), target.token)
            yield _copy_file(storage, spec, target.partition, name, plan, content)


def _filled(groups: Iterable[tuple[SourceFile, int]], limit_bytes: int) -> Iterator[list[tuple[SourceFile, int]]]:
    """Split row groups into files, each closed when it reaches the limit."""
    content: list[tuple[SourceFile, int]] = []
    size = 0
    for file, number in groups:
        content.append((file, number))
        size += _group_size(file.source.metadata.row_group(number))
        if size >= limit_bytes:
            yield content
            content, size = [], 0
    if content:
        yield content


def _copy_file(
    storage: Storage,
    spec: WriterSpec,
    partition: str,
    name: BaseFileName,
    plan: CopyPlan,
    groups: Sequence[tuple[SourceFile, int]],
) -> WriteStatus:
    path = join_path(partition, name.text)
    sources = [file.source for file in dict.fromkeys(file for file, _ in groups)]
    keys = _KeySummary(spec, sources)
    with storage.open_output(path) as sink:
        copier = RowGroupCopier(sink, plan.like)
        for file, numbers in groupby(groups, itemgetter(0)):
            columns = _replaced_columns(spec, plan, file)
            replaced = partial(_constant_columns, columns, name.text) if len(columns) else None
            with open_base_bytes(storage, file.path) as opened:
                rows = open_parquet(opened, metadata=file.source.metadata)
                for _, number in numbers:
                    copier.copy(opened, file.source, number, replaced)
                    if keys.needs_keys:
                        keys.add(rows.read_row_group(number, [RECORD_KEY], use_threads=False).column(RECORD_KEY))
        knows_nan = not any(may_omit_nan(source.metadata) for source in sources)
        is_ordered = all(source.order_of_values is not None for source in (*sources, plan.like))
        entries = _footer_entries(spec, sources, keys, knows_nan=knows_nan)
        footer = copier.close(entries, is_ordered=is_ordered, created_by=plan.created_by)
        size_bytes = copier.size_bytes
    indexed = None
    if spec.indexing is not None:
        nan_columns = () if knows_nan else None
        ranges = base_file_ranges(storage, path, footer, spec.stored_schema, spec.indexing.columns, nan_columns=nan_columns)
        indexed = IndexedFile(ranges, keys.bloom if spec.indexing.bloom_filters else None)
    written = WrittenFile(path, size_bytes, footer.num_rows, footer, indexed)
    return replace(new_file_status(storage, spec, partition, name, written, keys.changes), is_copied=True)


class _KeySummary:
    """Key filter, key range and record index entries of a file, from the footers of its sources or from their keys."""

    def __init__(self, spec: WriterSpec, sources: Sequence[CopySource]) -> None:
        self.changes = KeyChanges(spec.key_shards)
        has_filter = spec.populate_meta_fields and spec.files.bloom_enabled
        merged = _merged_filter(spec, sources) if has_filter else None
        self._merged = merged
        self._growing = GrowingFilter(spec.files) if has_filter and merged is None else None
        ranges = [_footer_range(source.metadata) for source in sources if source.metadata.num_rows]
        self._bounds = [bound for bounds in ranges for bound in bounds or ()]
        self._adds_bounds = has_filter and None in ranges
        self.needs_keys = bool(spec.key_shards) or self._growing is not None or self._adds_bounds
        self.bloom: tuple[str, str] | None = None

    def add(self, keys: pa.ChunkedArray) -> None:
        """Add the keys of a row group."""
        self.changes.add(keys)
        for chunk in keys.chunks:
            if self._growing is not None:
                self._growing.add(chunk)
            if self._adds_bounds:
                self._bounds += _range_of(chunk)

    def entries(self) -> dict[str, str]:
        """Return the key-values of the footer, and set `bloom`."""
        bloom = self._merged if self._growing is None else self._growing.finish()
        if bloom is None:
            return {}
        text = bloom.to_text()
        self.bloom = str(bloom.filter_type), text
        bounds = _range_of(pa.array(self._bounds, pa.string()))
        return {**bloom_entries(bloom.filter_type, text), **dict(zip((MIN_KEY, MAX_KEY), bounds, strict=False))}


def _merged_filter(spec: WriterSpec, sources: Sequence[CopySource]) -> BloomFilter | None:
    filters = [filter_ for source in sources if (filter_ := footer_filter(source.metadata)) is not None]
    if len(filters) < len(sources) or filters[0].filter_type != spec.files.bloom_type:
        return None
    return BloomFilter.merged(filters, spec.files.bloom_max_entries)


def _footer_range(metadata: pq.FileMetaData) -> tuple[str, str] | None:
    low, high = footer_text(metadata, MIN_KEY), footer_text(metadata, MAX_KEY)
    return None if low is None or high is None else (low, high)


def _range_of(texts: pa.StringArray) -> tuple[str, ...]:
    """Smallest and largest of some texts in Java's order; () without any."""
    bounds = pc.min_max(java_order(texts)).as_py()
    return () if bounds["min"] is None else (text_in_java_order(bounds["min"]), text_in_java_order(bounds["max"]))


def _footer_entries(spec: WriterSpec, sources: Sequence[CopySource], keys: _KeySummary, *, knows_nan: bool) -> Mapping[str, str]:
    first, *others = [source.key_values for source in sources]
    common = {
        key: value for key, value in first.items() if key not in _OWN_KEYS and all(other.get(key) == value for other in others)
    }
    creators = list(dict.fromkeys(source.metadata.created_by for source in sources))
    return {
        **common,
        AVRO_SCHEMA_KEY: spec.avro_schema,
        **({NAN_KEY: NAN_HAS_NO_BOUNDS} if knows_nan else {}),
        **({_ORIGINAL_CREATED_BY: "\n".join(map(str, creators))} if len(creators) > 1 else {}),
        **vector_columns_entry(spec.stored_schema),
        **keys.entries(),
    }


def _replaced_columns(spec: WriterSpec, plan: CopyPlan, file: SourceFile) -> pa.Schema:
    """The columns of a new file that are not copied from a source."""
    names = {*file.missing, *([FILE_NAME] if spec.populate_meta_fields else [])}
    return pa.schema([field for field in plan.stored if field.name in names])


def _constant_columns(schema: pa.Schema, name: str, count: int) -> bytes:
    """Encode `_hoodie_file_name`, and nulls for the other columns, as a Parquet file of one row group."""
    arrays = [repeated(name, count) if field.name == FILE_NAME else pa.nulls(count, field.type) for field in schema]
    return _encoded(pa.table(arrays, names=schema.names))


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with ParquetWriter(sink, rows.schema, version="2.6", use_compliant_nested_type=True, write_page_index=True) as writer:
        writer.write_table(rows, row_group_size=max(1, rows.num_rows))
    return bytes(sink.getvalue())


def _reason_by_slices(spec: WriterSpec, slices: Sequence[FileSlice], rules: CopyRules) -> str | None:
    if rules.mode == "never":
        return f"{service_options.CLUSTERING_COPY}=never"
    if spec.ids is not None:
        return "columns of the table have ids"
    if spec.key_shards and not spec.populate_meta_fields:
        return "record keys are not stored, and the record index needs them"
    if any(slice_.logs for slice_ in slices):
        return "file slices have log files"
    if any(slice_.base is None or slice_.source is not None for slice_ in slices):
        return "file slices are bootstrapped, or have no base file"
    if any(slice_.base is not None and is_orc(slice_.base.path) for slice_ in slices):
        return "base files are ORC"
    return None


def _missing_columns(path: str, source: CopySource, own: CopySource, *, may_lack: bool) -> tuple[str, ...] | str:
    """The columns of the table that a file lacks; or the reason why its columns cannot be copied."""
    present, wanted = source.metadata.schema.to_arrow_schema(), own.metadata.schema.to_arrow_schema()
    missing = [name for name in wanted.names if name not in present.names]
    if present.names != [name for name in wanted.names if name in present.names]:
        return f"{path} has other columns than the table, or another order of columns"
    for field in present:
        type_ = wanted.field(field.name).type
        if not same_type(field.type, type_):
            return f"column {field.name} of {path} is {field.type}, and {type_} in the table"
    if missing and not may_lack:
        return f"{path} has no column {missing[0]}"
    if any(not wanted.field(name).nullable for name in missing):
        return f"{path} lacks a column that may not be null"
    return tuple(missing)


def _reason_by_footers(spec: WriterSpec, plan: CopyPlan, rules: CopyRules) -> str | None:
    for file in plan.files:
        columns = file.source.columns
        different = [name for name, elements in columns.items() if elements != plan.like.columns[name]]
        if different:
            return f"column {different[0]} is stored in different ways, in {file.path} and other files"
    if rules.mode == "always":
        return None
    sizes = [size for file in plan.files for size in file.group_sizes]
    if sizes and sum(sizes) < _LEAST_GROUP_BYTES * len(sizes):
        return f"row groups have {sum(sizes) // len(sizes):,} bytes on average, less than {_LEAST_GROUP_BYTES:,}"
    codec = _CODECS[spec.files.codec]
    for file in plan.files:
        if file.source.metadata.num_row_groups:
            compression = file.source.metadata.row_group(0).column(0).compression
            if compression != codec:
                return f"the codec of {file.path} is {compression}, and {spec.files.codec} for new files"
    return None


def _group_size(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(number).total_compressed_size for number in range(group.num_columns))
