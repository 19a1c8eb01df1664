"""Read file slices into Arrow.

For a slice without log files only the base file's requested columns are read, row groups are pruned by statistics, and
the filter is applied to the remaining rows. A slice with log files is merged: the logs are reduced to one record for
each key, the base file is streamed in batches, and log records without a base row come last; the filter is applied
after merging, except that entries and rows of keys that it excludes are dropped before. Missing columns of a file are
null; columns whose type was widened since are cast.

Memory: the merged log records of one slice in the requested columns, and one batch of base rows; with a filter, one row
group.

Source: docs/formats/reading.md, "One slice" and "Schema".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, Internal, Unsupported
from pyhudi.format.instants import METADATA_BOOTSTRAP_INSTANT_TIME
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.format.names import parse_base_file
from pyhudi.format.parquet.page_checks import ChecksumMode
from pyhudi.format.parquet.parquet_file import take_rows
from pyhudi.format.paths import file_name
from pyhudi.format.timestamp_units import in_declared_units
from pyhudi.options import file_options
from pyhudi.planning.data_skipping import record_key_texts, with_alternative_key_forms
from pyhudi.records.column_statistics import Value, footer_ranges, may_omit_nan, stored_value
from pyhudi.records.filters.arrow_expressions import row_filter
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import And, Expr, In
from pyhudi.records.filters.filter_visitor import columns
from pyhudi.records.filters.range_pruning import prune_ranges
from pyhudi.records.keys.key_spec import KeySpec, path_valued_columns
from pyhudi.records.keys.partition_paths import folder_values, values_from_path, with_folder_values
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.log_merge.log_records import LogRecords
from pyhudi.records.record_merge import IS_DELETED, RecordMergeRule
from pyhudi.records.schema_cast import conform_table, missing_column, relabel
from pyhudi.records.schema_on_read.column_ids import ColumnIds, ColumnOrigin, by_ids, names_in_file
from pyhudi.records.update_modes import OPERATION
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.footer_cache import FooterCache
from pyhudi.tasks.base_file_reader import BATCH_ROWS, OpenFile, open_base_rows, row_group_batches
from pyhudi.tasks.bootstrap_join import JoinedColumns, joined_rows
from pyhudi.tasks.dictionary_columns import CODED, decode_dictionaries
from pyhudi.tasks.incoming_layout import as_batch, rows_without_columns
from pyhudi.tasks.log_scan import InstantValidity, LogScan, LogScanRequest, scan_logs
from pyhudi.tasks.row_selection import RowNumbers, candidate_rows, matching_rows, rows_at


class RecordLayout(Protocol):
    """How a table names its records, from its properties and write options."""

    @property
    def keys(self) -> KeySpec:
        """The fields that record keys and partition paths are built from."""
        ...

    @property
    def populate_meta_fields(self) -> bool:
        """Whether rows hold their meta columns."""
        ...


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """Settings shared by all tasks of one read.

    Attributes:
        table_schema: Meta columns and data columns of the table.
        output: The requested columns, in order.
        condition: Row filter bound to table_schema, None for all rows.
        rule: How logs are merged.
        validity: Which log blocks are valid.
        values_from_path: Partition columns are read from the path even if the file has them; an invalid path is an error.
        folder_values: A partition column has the value of its folder where a file stores another one, as in Hudi.
        use_positions: Merge by record positions if the logs have them for the slice's base file, by key otherwise.
        historical_columns: Which blocks are valid in the whole slice when a part of it is read.
        base_condition: Rows of base files that logs are merged with, bound to table_schema; None for all rows. Without
            effect where logs hold partial updates, whose other columns may be in any base row.
        path_columns: Columns of table_schema that no file stores, or whose stored values are ignored: the path
            determines them.
        ids: Column ids, if files are read by these; None if they are read by column names.
        footers: Cache of base file footers, None for no cache.
        checksums: When page checksums of base files are verified.
        keeps_rows: The caller keeps all rows, so that batches save no memory: row groups are decoded at once.
    """

    storage: StorageSpec
    table_schema: pa.Schema
    output: pa.Schema
    condition: Expr | None
    keys: KeySpec
    rule: RecordMergeRule
    validity: InstantValidity
    populate_meta_fields: bool = True
    values_from_path: bool = False
    folder_values: bool = False
    use_positions: bool = True
    historical_columns: InstantValidity | None = None
    base_condition: Expr | None = None
    path_columns: tuple[str, ...] = ()
    ids: ColumnIds | None = None
    footers: FooterCache | None = field(default=None, repr=False, compare=False)
    checksums: ChecksumMode = ChecksumMode.ALWAYS
    keeps_rows: bool = False
    _key_texts: list[pa.StringArray | None] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        storage: StorageSpec,
        layout: RecordLayout,
        stored: pa.Schema,
        validity: InstantValidity,
        *,
        rule: RecordMergeRule,
        ids: ColumnIds | None,
        columns: Iterable[str] | None = None,
        use_positions: bool = True,
    ) -> ReadSpec:
        """Spec that reads all rows of a table.

        Args:
            storage: Storage of the table.
            layout: How it names its records.
            stored: Its meta columns and data columns.
            validity: Which log blocks are valid.
            rule: How logs are merged.
            ids: As in `ReadSpec`.
            columns: The requested columns, in order, each once; None for all.
            use_positions: As in `ReadSpec`.
        """
        return cls(
            storage=storage,
            table_schema=stored,
            output=stored if columns is None else pa.schema([stored.field(name) for name in dict.fromkeys(columns)]),
            condition=None,
            keys=layout.keys,
            rule=rule,
            validity=validity,
            populate_meta_fields=layout.populate_meta_fields,
            use_positions=use_positions,
            ids=ids,
        )

    def matching_keys(self) -> pa.StringArray | None:
        """The only record keys of rows that can match the condition; None when it does not determine them."""
        if self.condition is None or not self.populate_meta_fields:
            return None
        # Made once for all slices of a read.
        if not self._key_texts:
            texts = record_key_texts(self.condition, self.keys, self.table_schema, has_meta_columns=True)
            self._key_texts.append(None if texts is None else with_alternative_key_forms(texts, self.keys))
        return self._key_texts[0]

    def of_logs(self, schema: pa.Schema, only: pa.StringArray | None = None) -> LogScanRequest:
        """Return the request for a log scan.

        Args:
            schema: The columns, including those that merging needs (see `merge_columns`).
            only: As in `LogScanRequest`.
        """
        return LogScanRequest(schema, self.keys, self.rule, self.validity, self.populate_meta_fields, self.ids, only)


@dataclass(frozen=True, slots=True)
class SlicePart:
    """Rows of a slice.

    Attributes:
        from_base: True for base rows, merged or not; False for records that only the logs hold.
        matched: How many log records were merged with their first base row here.
        removed: How many base rows the logs deleted.
    """

    rows: pa.Table
    from_base: bool
    matched: int = 0
    removed: int = 0


def run_read(spec: ReadSpec, slice_: FileSlice) -> Iterator[pa.Table]:
    """Yield the rows of a slice as tables with the output's columns; at least one, maybe empty."""
    storage = open_storage(spec.storage)
    if not slice_.logs:
        if slice_.base is None:
            yield spec.output.empty_table()
        else:
            yield from read_base_file(storage, spec, slice_)
        return
    wanted = merge_columns(spec)
    constants = partition_path_values(spec, slice_.partition, wanted)
    needed = pa.schema([field for field in wanted if field.name not in constants])
    condition = None if spec.condition is None else row_filter(spec.condition, wanted)
    only = spec.matching_keys()
    scan, parts = merge_slice(storage, spec, slice_, needed, only)
    if spec.historical_columns is not None and scan.records.has_partial_records:
        # Partial updates contain some columns; the others are in the base file, or in the files before them.
        whole, every = slice_, replace(spec, base_condition=None)
        if slice_.full_slice is not None:
            whole, every = slice_.full_slice, replace(every, validity=spec.historical_columns)
        _, parts = merge_slice(storage, every, whole, needed, only)
    empty = True
    of_folder = values_of_folder(spec, slice_.partition, wanted)
    for part in parts:
        rows = with_folder_values(with_constants(part.rows, constants, wanted), of_folder)
        rows = rows if condition is None else condition.select(rows)
        if rows.num_rows:
            empty = False
            yield (
                relabel(rows.select(spec.output.names), spec.output) if spec.output.names else rows_without_columns(rows.num_rows)
            )
    if empty:
        yield spec.output.empty_table()


@dataclass(frozen=True, slots=True)
class SliceOverlay:
    """The effect of the logs of a slice on its base file.

    Attributes:
        hidden: Base rows that the logs replace or delete, as ascending row numbers in the file.
        rows: Rows of the logs that match the condition, in the output's columns.
    """

    hidden: npt.NDArray[np.int64]
    rows: pa.Table


def overlay_slice(spec: ReadSpec, slice_: FileSlice) -> SliceOverlay | None:
    """Compute what the logs of a slice change, reading of the base file only what decides that: ordering values unless
    statistics decide, and record keys if the logs have no positions. None if merging needs other columns of base rows, or
    if positions do not fit the base file.
    """
    if not spec.rule.selects_one_side or spec.rule.custom_merge or spec.rule.filling is not None:
        return None
    if spec.base_condition is not None:
        return None
    storage = open_storage(spec.storage)
    wanted = merge_columns(spec)
    constants = partition_path_values(spec, slice_.partition, wanted)
    needed = pa.schema([field for field in wanted if field.name not in constants])
    of_folder = values_of_folder(spec, slice_.partition, wanted)
    # Rows are merged by what files store.
    spec = replace(spec, folder_values=False)
    records = merge_slice(storage, spec, slice_, needed)[0].records
    if records.present is not None:
        return None
    key_names = () if records.positions is not None else (RECORD_KEY, *(name.split(".")[0] for name in spec.keys.record_fields))
    if spec.populate_meta_fields:
        key_names = key_names[:1]
    inputs = pa.schema([field for field in needed if field.name in {*spec.rule.ordering.heads, *key_names}])
    if records.ordering is not None and not set(spec.rule.ordering.heads) <= set(inputs.names):
        return None
    visited = np.zeros(len(records.keys), dtype=np.bool_)
    hidden, sources = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    first_row = 0
    least = _least_ordering(spec, records)
    for rows in _base_rows(storage, spec, slice_, inputs, _batch_rows(records), least=least):
        keys = None if records.positions is not None else _record_keys(spec, rows)
        row_numbers, source = records.replaced_rows(rows, keys, visited, first_row)
        hidden.append(row_numbers)
        sources.append(source)
        first_row += rows.num_rows
    if records.positions is not None and not visited.all():
        return None
    replacing = np.concatenate(sources)
    replacing = replacing[~records.deleted[replacing]]
    rows = pa.concat_tables([records.rows.take(pa.array(replacing)), records.inserts(visited)])
    rows = with_folder_values(with_constants(rows, constants, wanted), of_folder)
    if spec.condition is not None:
        rows = row_filter(spec.condition, wanted).select(rows)
    output = relabel(rows.select(spec.output.names), spec.output) if spec.output.names else rows_without_columns(rows.num_rows)
    return SliceOverlay(np.concatenate(hidden), output)


def _least_ordering(spec: ReadSpec, records: LogRecords) -> tuple[str, Value] | None:
    """The ordering field and its smallest value in records with positions; None if footers may lack bounds for it."""
    fields, values = spec.rule.ordering.fields, records.ordering
    if records.positions is None or values is None or values.null_count or len(fields) != 1 or "." in fields[0]:
        return None
    types = pa.types
    if not (types.is_signed_integer(values.type) or types.is_date(values.type) or types.is_timestamp(values.type)):
        return None
    least = stored_value(pc.min(values))
    return None if least is None else (fields[0], least)


def _record_keys(spec: ReadSpec, rows: pa.Table) -> pa.ChunkedArray:
    return rows.column(RECORD_KEY) if spec.populate_meta_fields else pa.chunked_array([record_keys(spec.keys, as_batch(rows))])


def read_live_keys(spec: ReadSpec, slice_: FileSlice) -> Iterator[pa.Array]:
    """Yield the record keys of a slice's rows, an array for each table of `run_read`. spec: its output holds the keys,
    or the key fields if meta fields are not populated.
    """
    for rows in run_read(spec, slice_):
        if spec.populate_meta_fields:
            yield rows.column(RECORD_KEY).combine_chunks()
        else:
            yield record_keys(spec.keys, as_batch(rows))


def merge_slice(
    storage: Storage, spec: ReadSpec, slice_: FileSlice, needed: pa.Schema, only: pa.StringArray | None = None
) -> tuple[LogScan, Iterator[SlicePart]]:
    """Scan the logs at once and return their records, and an iterator over the slice's rows that merges lazily.

    needed: the columns of the rows, including those that merging needs (see `merge_columns`). only: the requested
    record keys, None for all; of a table that stores keys.
    """
    # Rows are merged by what files store.
    spec = replace(spec, folder_values=False)
    by_position = slice_.base is not None and spec.use_positions and only is None and spec.base_condition is None
    base_instant = slice_.base.name.instant_time if slice_.base is not None and by_position else None
    scan = scan_logs(storage, slice_.logs, spec.of_logs(needed, only), base_instant=base_instant)
    return scan, _merged_parts(storage, spec, slice_, needed, scan.records, only)


def merge_columns(spec: ReadSpec) -> pa.Schema:
    """Return the columns to read when logs are merged: output, filter, and inputs of the merge rule, in the table's order."""
    if not spec.rule.selects_one_side:
        return spec.table_schema
    heads = {name.split(".")[0] for name in spec.output.names}
    if spec.condition is not None:
        heads |= {name.split(".")[0] for name in columns(spec.condition)}
    heads.add(RECORD_KEY)
    if not spec.populate_meta_fields:
        heads |= {name.split(".")[0] for name in spec.keys.record_fields}
    heads |= {*spec.rule.ordering.heads, IS_DELETED}
    if spec.rule.delete_is_barrier:
        heads.add(OPERATION)
    if spec.rule.marker is not None:
        heads.add(spec.rule.marker.field)
    return pa.schema([field for field in spec.table_schema if field.name in heads])


def read_base_file(storage: Storage, spec: ReadSpec, slice_: FileSlice) -> Iterator[pa.Table]:
    """Yield the rows of a slice's base file, a table for each row group that may hold some."""
    heads = list(dict.fromkeys(name.split(".")[0] for name in spec.output.names))
    if spec.condition is not None:
        heads = list(dict.fromkeys([*heads, *(name.split(".")[0] for name in sorted(columns(spec.condition)))]))
    needed = pa.schema([spec.table_schema.field(name) for name in heads])
    empty = True
    for rows in _chosen_rows(storage, spec, slice_, needed):
        empty = False
        yield rows.select(spec.output.names) if spec.output.names else rows_without_columns(rows.num_rows)
    if empty:
        yield spec.output.empty_table()


def _merged_parts(
    storage: Storage, spec: ReadSpec, slice_: FileSlice, needed: pa.Schema, records: LogRecords, only: pa.StringArray | None
) -> Iterator[SlicePart]:
    seen = np.zeros(len(records.keys), dtype=np.bool_)
    if slice_.base is not None:
        path = slice_.base.path
        by_position = records.positions is not None
        read = _columns_by_position(spec, needed) if by_position else needed
        first_row = 0
        merged_with = spec.base_condition
        if only is not None:
            by_key = bind(In(RECORD_KEY, tuple(only.to_pylist())), spec.table_schema)
            merged_with = by_key if merged_with is None else And((by_key, merged_with))
        for rows in _chosen_rows(storage, replace(spec, condition=merged_with), slice_, read, _batch_rows(records)):
            keys = None if by_position else _record_keys(spec, rows)
            try:
                for merged in records.merge_base(rows, keys, seen, first_row):
                    yield SlicePart(merged.rows, True, merged.matched, merged.base_count - merged.rows.num_rows)
            except CorruptData as error:
                raise error.with_path(storage.absolute(path)) from error
            first_row += rows.num_rows
        if by_position and not seen.all():
            raise CorruptData(
                f"record positions of the logs exceed the base file, which has {first_row} rows; read with "
                f"{file_options.MERGE_USE_RECORD_POSITIONS}=false to merge by key"
            ).with_path(storage.absolute(path))
    yield SlicePart(records.inserts(seen), False)


def _columns_by_position(spec: ReadSpec, needed: pa.Schema) -> pa.Schema:
    """The columns of the base file that are read when no key is looked up: without the key, unless it is requested."""
    asked = {name.split(".")[0] for name in spec.output.names}
    if spec.condition is not None:
        asked |= {name.split(".")[0] for name in columns(spec.condition)}
    if RECORD_KEY in asked or not spec.rule.selects_one_side:
        return needed
    others = [field for field in needed if field.name != RECORD_KEY]
    # Where only rows are counted the key stays: Arrow filters and joins rows by a column.
    return pa.schema(others) if others else needed


def _chosen_rows(
    storage: Storage, spec: ReadSpec, slice_: FileSlice, needed: pa.Schema, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.Table]:
    """The rows of a base file for which the condition is true: a table for each row group that has some, or all in batches."""
    # Late materialization: the filter's columns are read first, and the others only if a row matches.
    if spec.condition is None:
        yield from _base_rows(storage, spec, slice_, needed, batch_rows)
        return
    if is_joined(slice_):
        yield from map(row_filter(spec.condition, needed).select, _joined_rows(storage, spec, slice_, needed))
        return
    partition, path = slice_.partition, _base_path(slice_)
    heads = {name.split(".")[0] for name in columns(spec.condition)}
    first = pa.schema([field for field in needed if field.name in heads])
    others = pa.schema([field for field in needed if field.name not in heads])
    with open_base_rows(storage, path, needed.names, spec.footers, spec.matching_keys(), spec.checksums) as opened:
        if opened is None:
            return
        condition = row_filter(spec.condition, needed)
        file = _BaseFile.of(opened, spec, partition, path, needed)
        for group in range(opened.metadata.num_row_groups):
            if not _group_may_match(file, group, spec.condition, needed):
                continue
            asked = candidate_rows(opened, group, spec.condition, needed, _own_columns(file, spec.condition))
            looked = _group_rows(file, group, first, asked, keep_dictionary=True)
            chosen = matching_rows(looked, condition)
            if not len(chosen):
                continue
            rows = decode_dictionaries(looked if len(chosen) == looked.num_rows else take_rows(looked, chosen))
            if others.names:
                numbers = chosen if asked is None else asked[chosen]
                every = len(numbers) == opened.metadata.row_group(group).num_rows
                more = _group_rows(file, group, others, None if every else numbers)
                rows = pa.table([*rows.columns, *more.columns], schema=pa.schema([*first, *others]))
            yield rows.select(needed.names)


def _base_rows(
    storage: Storage,
    spec: ReadSpec,
    slice_: FileSlice,
    needed: pa.Schema,
    batch_rows: int = BATCH_ROWS,
    *,
    least: tuple[str, Value] | None = None,
) -> Iterator[pa.Table]:
    """The rows of a slice's base file in the needed columns, in batches; a row group without columns if no value of the
    ordering field is larger than `least`.
    """
    if is_joined(slice_):
        yield from _joined_rows(storage, spec, slice_, needed)
        return
    path = _base_path(slice_)
    with open_base_rows(storage, path, needed.names, spec.footers, checksums=spec.checksums) as opened:
        assert opened is not None, "no key was asked for"
        file = _BaseFile.of(opened, spec, slice_.partition, path, needed)
        stored = _stored_names(file, needed)
        for group in range(opened.metadata.num_row_groups):
            if least is not None and _has_at_most(file, group, spec, *least):
                yield _group_rows(file, group, pa.schema([]))
            elif spec.keeps_rows or not stored:
                yield _group_rows(file, group, needed)
            else:
                for rows in row_group_batches(opened, group, stored, batch_rows):
                    yield _in_layout(file, rows, needed)


def _batch_rows(records: LogRecords) -> int:
    """How many base rows are merged at a time: without positions, each batch is matched with a hash table of all records."""
    return BATCH_ROWS if records.positions is not None else max(BATCH_ROWS, len(records.keys))


def _base_path(slice_: FileSlice) -> str:
    assert slice_.base is not None, "base rows are asked of a slice that has a base file"
    return slice_.base.path


def is_joined(slice_: FileSlice) -> bool:
    """Whether the slice's base file is metadata-only: its source was looked up, or its instant is the bootstrap's."""
    return slice_.source is not None or (
        slice_.base is not None and slice_.base.name.instant_time == METADATA_BOOTSTRAP_INSTANT_TIME
    )


def _joined_rows(storage: Storage, spec: ReadSpec, slice_: FileSlice, needed: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a base file without data columns; see `joined_rows`."""
    path = _base_path(slice_)
    if spec.ids is not None:
        raise Unsupported(
            f"the rows of {storage.absolute(path)} are stored outside of the table, which was bootstrapped "
            "as METADATA_ONLY, and its columns have ids; such tables are readable only without schema on read"
        )
    usable = path_valued_columns(spec.keys)
    always = {*spec.path_columns, *(usable if spec.values_from_path else ())}
    of_folder = values_of_folder(spec, slice_.partition, needed)
    columns = JoinedColumns(spec.storage, spec.keys, slice_.partition, always)
    return (with_folder_values(rows, of_folder) for rows in joined_rows(storage, path, slice_.source, needed, columns))


@dataclass(frozen=True, slots=True)
class _BaseFile:
    """An open base file, and the table's columns in it.

    Attributes:
        opened: The file.
        origins: Place of each column in the file; None if the names are equal.
        moved: Columns with another name in the file.
        present_columns: Columns of the file.
        constants: Columns whose value is in the path.
        choices: Columns for which several values have this path.
    """

    opened: OpenFile
    origins: Mapping[str, ColumnOrigin] | None
    moved: frozenset[str]
    present_columns: frozenset[str]
    constants: dict[str, pa.Scalar]
    choices: dict[str, tuple[pa.Scalar, ...]]

    @classmethod
    def of(cls, opened: OpenFile, spec: ReadSpec, partition: str, path: str, needed: pa.Schema) -> _BaseFile:
        present = frozenset(opened.schema_arrow.names)
        constants = path_values(spec, partition, needed, present)
        of_folder = values_of_folder(spec, partition, needed)
        choices = {name: values for name, values in of_folder.items() if name not in constants}
        if spec.ids is None:
            return cls(opened, None, frozenset(), present, constants, choices)
        name = parse_base_file(file_name(path))
        if name is None:
            raise Internal(f"{path} is read as a base file, but does not have the name of one")
        origins = spec.ids.origins(name.instant_time)
        return cls(opened, origins, spec.ids.moved(name.instant_time), present, constants, choices)


def _group_rows(
    file: _BaseFile, group: int, needed: pa.Schema, chosen: RowNumbers | None = None, *, keep_dictionary: bool = False
) -> pa.Table:
    """Read the needed columns of a row group; `chosen` selects rows by number, None selects all."""
    # Texts with few distinct values are read as dictionaries, so that only chosen rows are expanded. keep_dictionary: a single
    # column of the stored type is not expanded.
    stored = _stored_names(file, needed)
    count = file.opened.metadata.row_group(group).num_rows if chosen is None else len(chosen)
    rows = rows_at(file.opened, group, stored, chosen) if stored else rows_without_columns(count)
    is_plain = file.origins is None and stored == needed.names and file.choices.keys().isdisjoint(stored)
    if keep_dictionary and is_plain and _is_coded_text(rows.schema, needed):
        return rows
    return _in_layout(file, rows, needed)


def _stored_names(file: _BaseFile, needed: pa.Schema) -> list[str]:
    """The names in the file of those needed columns that it stores."""
    wanted = names_in_file(file.origins, [name for name in needed.names if name not in file.constants])
    return [name for name in wanted if name in file.present_columns]


def _in_layout(file: _BaseFile, rows: pa.Table, needed: pa.Schema) -> pa.Table:
    """Return rows of a file's stored columns in the needed columns."""
    rows = decode_dictionaries(rows)
    if not needed.names:
        return rows
    count = rows.num_rows
    rows = in_declared_units(by_ids(rows, file.origins, needed), needed)
    for name, value in file.constants.items():
        if name in needed.names:
            rows = rows.append_column(needed.field(name), pa.repeat(value, count))
    return with_folder_values(conform_table(rows, needed), file.choices) if rows.column_names else _nulls(needed, count)


def _is_coded_text(file_schema: pa.Schema, needed: pa.Schema) -> bool:
    """True for a single column that is text in the table and a dictionary in the file."""
    return len(needed) == 1 and file_schema.field(0).type == CODED and needed.field(0).type == CODED.value_type


def _nulls(schema: pa.Schema, count: int) -> pa.Table:
    return pa.table([missing_column(field.with_nullable(True), count, field.name) for field in schema], schema=schema)


def partition_path_values(spec: ReadSpec, partition: str, needed: pa.Schema) -> dict[str, pa.Scalar]:
    """Return the needed columns that no file holds, with their values in a partition."""
    names = [name for name in needed.names if name in spec.path_columns]
    return values_from_path(spec.keys, partition, needed, names)


def with_constants(rows: pa.Table, constants: Mapping[str, pa.Scalar], schema: pa.Schema) -> pa.Table:
    """Return the rows in the order of the schema, with the named columns replaced by constants."""
    if not constants:
        return rows
    held = {*constants, *rows.column_names}
    fields = [field for field in schema if field.name in held]
    columns = [pa.repeat(constants[f.name], rows.num_rows) if f.name in constants else rows.column(f.name) for f in fields]
    return pa.table(columns, schema=pa.schema(fields))


def path_values(spec: ReadSpec, partition: str, needed: pa.Schema, is_present: Collection[str]) -> dict[str, pa.Scalar]:
    """Return the needed columns whose values come from the partition path: those that the file lacks, those whose values in
    the file are ignored, all partition columns if the spec requests it, and those with the one value of their folder.
    """
    usable = {*path_valued_columns(spec.keys), *spec.path_columns}
    always = usable if spec.values_from_path else set(spec.path_columns)
    taken = [name for name in needed.names if name in usable and (name in always or name not in is_present)]
    constants = values_from_path(spec.keys, partition, needed, taken)
    for name, values in values_of_folder(spec, partition, needed).items():
        if len(values) == 1 and name not in constants and (values[0].is_valid or needed.field(name).nullable):
            constants[name] = values[0]
    return constants


def values_of_folder(spec: ReadSpec, partition: str, needed: pa.Schema) -> dict[str, tuple[pa.Scalar, ...]]:
    """Return the needed columns that have the value of their folder, with the values that rows of the folder may have."""
    if not spec.folder_values or not spec.keys.partition_fields:
        return {}
    names = {name for name in path_valued_columns(spec.keys) if needed.get_field_index(name) >= 0} - {*spec.path_columns}
    return folder_values(spec.keys, partition, pa.schema([needed.field(name) for name in names])) if names else {}


def _own_columns(file: _BaseFile, condition: Expr) -> list[str]:
    """The columns of a condition that the file stores under their own names."""
    return [name for name in columns(condition) if not {*file.constants, *file.choices, *file.moved} & {name.split(".")[0]}]


def _has_at_most(file: _BaseFile, group: int, spec: ReadSpec, name: str, value: Value) -> bool:
    """Whether statistics show that all ordering values of a row group are at most a value."""
    if name in file.constants or name in file.choices or name in file.moved:
        return False
    known = footer_ranges(file.opened.metadata, spec.table_schema, [name], row_groups=[group]).get(name)
    if known is None or known.max is None or (spec.rule.ordering.null_is_zero and known.null_count != 0):
        return False
    return known.max <= value  # type: ignore[operator]


def _group_may_match(file: _BaseFile, group: int, condition: Expr, schema: pa.Schema) -> bool:
    metadata = file.opened.metadata
    ranges = footer_ranges(metadata, schema, _own_columns(file, condition), row_groups=[group])
    if may_omit_nan(metadata):
        ranges = {name: found.with_nan() if isinstance(found.min, float) else found for name, found in ranges.items()}
    return prune_ranges(condition, ranges)
