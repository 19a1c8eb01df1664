"""File slices as a Spark DataFrame.

    base file alone, columns as in the table          Spark's own Parquet scan, with its pruning, pushdown and
                                                      statistics
    the same, some columns with a narrower type       the same scan, one per older schema, with the columns cast
    anything else                                     tasks that read the slice into Arrow (`tasks.read_slice`), through
                                                      `mapInArrow`

"Anything else": slices with log files; nested columns whose type was widened; columns that exist only in the partition
path, or have another name or type in the file according to their ids; files whose name Spark would parse as a glob
pattern. All parts are united. The filter is applied to each, and Spark pushes it down into its own scans.

The schema of a file comes from the commit that wrote it. Footers are read only for files of commits that left the
timeline, and only if the table's schema has changed since.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import expr

from pyhudi.engines.spark.base_file_scan import scan_base_files
from pyhudi.engines.spark.jobs import parallelism, run_tasks, task_rows
from pyhudi.engines.spark.type_conversion import (
    DataFrame,
    SparkSession,
    column,
    quote_spark_name,
    to_spark_schema,
)
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.actions.commit_metadata import SCHEMA_KEY
from pyhudi.format.avro_to_arrow import MILLIS, UNIT, column_default
from pyhudi.format.hudi_types import is_vector
from pyhudi.format.instants import Instant, State
from pyhudi.format.meta_columns import META_COLUMNS, PARTITION_PATH
from pyhudi.format.names import is_orc
from pyhudi.format.parquet.page_checks import ChecksumMode
from pyhudi.format.paths import split_path
from pyhudi.format.timestamp_units import has_wrong_unit, may_have_wrong_unit
from pyhudi.operations.read.change_queries import ChangeQuery, chosen_change_columns, plan_change_query
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.query import SnapshotQuery, incremental_range, plan_incremental_query, plan_snapshot_query, read_spec
from pyhudi.operations.read.stream_queries import reads_changes
from pyhudi.options.declaration import Options
from pyhudi.options.read_options import (
    AS_OF,
    COLUMNS,
    FILTER,
    QUERY_TYPE,
    READ_BEGIN_INSTANTTIME,
    READ_END_INSTANTTIME,
    READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE,
    VALUES_FROM_PATH,
)
from pyhudi.planning.incremental_query import RequestRange
from pyhudi.planning.partition_pruning import ReadPlan
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.filters.filter_visitor import columns as filter_columns
from pyhudi.records.filters.spark_sql import to_spark_sql
from pyhudi.records.keys.key_spec import partition_columns, path_valued_columns
from pyhudi.records.schema_cast import relabel, same_type
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.table.file_slices import BaseFile, FileSlice
from pyhudi.table.snapshot import Snapshot, TableSchema, load_snapshot, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.base_file_reader import open_base_file
from pyhudi.tasks.read_changes import change_schema
from pyhudi.tasks.read_slice import ReadSpec, run_read, values_of_folder

_GLOB_CHARACTERS = frozenset("{}[]*?\\")
"""Spark parses a path with one of these as a glob pattern."""

_FOOTERS_A_TASK = 64


def to_dataframe(session: SparkSession, snapshot: Snapshot, spec: ReadSpec, plan: ReadPlan) -> DataFrame:
    """The rows of a plan with the columns of `spec.output`, filtered.  Planning reads only the table's metadata.

    Raises:
        Unsupported: Spark cannot access the table, or lacks a type for a column.
    """
    _check_reachable(spec.storage)
    native, task_slices = _divided(session, snapshot, spec, plan.slices)
    folders = sorted({slice_.partition for slice_ in plan.slices})
    from_path = folder_columns(spec, _needed(spec), folders) or {}
    frames = [_scanned(session, spec, schema, paths, from_path) for schema, paths in native]
    if task_slices:
        frames.append(_through_tasks(session, spec, task_slices))
    if not frames:
        return session.createDataFrame([], to_spark_schema(spec.output))
    return functools.reduce(DataFrame.unionByName, frames)


def query_dataframe(session: SparkSession, query: SnapshotQuery | ChangeQuery) -> DataFrame:
    """The rows of a query.  Raises as `to_dataframe`."""
    if isinstance(query, SnapshotQuery):
        return to_dataframe(session, query.snapshot, query.spec, query.plan)
    _check_reachable(query.spec.reader.storage)
    if not query.tasks:
        return session.createDataFrame([], to_spark_schema(query.schema))
    return _through_reader(session, query.reader, query.tasks, query.schema)


def plan_query(
    context: TableContext, options: Options, columns: Sequence[str] | None, condition: Filter | None
) -> SnapshotQuery | ChangeQuery:
    """Plan the query that Hudi's read options describe.

    columns, condition: None for those of `pyhudi.columns` and `pyhudi.filter`; by default all columns, including the
    `_hoodie_` ones, and all rows.
    """
    selected: Sequence[str] = columns if columns is not None else (options.names(COLUMNS) or ["*"])
    filter_ = condition if condition is not None else options.text(FILTER)
    from_path = options.flag(VALUES_FROM_PATH)
    kind = options.value_or_default(QUERY_TYPE)
    reads_changes(options)
    _check_query_type_options(options, kind)
    if kind == "incremental":
        start, end = options.text(READ_BEGIN_INSTANTTIME), options.text(READ_END_INSTANTTIME)
        if start is None:
            raise InvalidRequest(f"an incremental query requires the option {READ_BEGIN_INSTANTTIME}")
        if reads_changes(options):
            return plan_change_query(
                context, RequestRange.parse(start, end), selected, filter_, settings=ReadSettings.of(options)
            )
        range_ = incremental_range(options, context.config.version, start, end)
        fall_back = options.flag(READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE)
        return plan_incremental_query(
            context,
            range_,
            selected,
            filter_,
            fall_back=fall_back,
            values_from_path=from_path,
            settings=ReadSettings.of(options),
        )
    return plan_snapshot_query(
        context,
        selected,
        filter_,
        as_of=options.text(AS_OF),
        base_files_only=kind == "read_optimized",
        values_from_path=from_path,
        settings=ReadSettings.of(options),
    )


def _check_query_type_options(options: Options, kind: str) -> None:
    """Refuse options of another query type, which would be ignored."""
    for option in (AS_OF,) if kind == "incremental" else (READ_BEGIN_INSTANTTIME, READ_END_INSTANTTIME):
        if options.text(option) is not None:
            raise InvalidRequest(f"option {option}={options.text(option)} does not apply to {QUERY_TYPE}={kind}")


def streamed_schema(context: TableContext, options: Options) -> pa.Schema:
    """Columns of a stream, or of an incremental query of any range: those of `pyhudi.columns`, else all."""
    chosen = options.names(COLUMNS) or ["*"]
    if reads_changes(options):
        stored = read_spec(load_snapshot(context), ["*"]).table_schema
        return chosen_change_columns(change_schema(stored, typed=False), chosen)
    return read_spec(load_snapshot(context), chosen).output


def _divided(
    session: SparkSession, snapshot: Snapshot, spec: ReadSpec, slices: Sequence[FileSlice]
) -> tuple[list[tuple[pa.Schema, list[str]]], list[FileSlice]]:
    """Base files by the schema to scan them with, and the slices that tasks must read."""
    needed = _needed(spec)
    storage = open_storage(spec.storage)
    task_slices: list[FileSlice] = []
    plain: list[FileSlice] = []
    from_path = {*spec.path_columns, *(path_valued_columns(spec.keys) if spec.values_from_path else ())}
    # Spark's scan returns the bytes of a vector.
    by_task = not from_path.isdisjoint(needed.names) or any(is_vector(field.type) for field in needed)
    by_task = by_task or folder_columns(spec, needed, sorted({slice_.partition for slice_ in slices})) is None
    partition_by_task: dict[str, bool] = {}
    for slice_ in slices:
        if slice_.partition not in partition_by_task:
            partition_by_task[slice_.partition] = not _has_one_value_each(spec, slice_.partition, needed)
        # Spark's ORC scan interprets times in its own zone, not the writer's.
        to_task = by_task or partition_by_task[slice_.partition] or (slice_.base is not None and is_orc(slice_.base.path))
        base = None if to_task or slice_.logs or slice_.source is not None else slice_.base
        (task_slices if base is None or _is_hidden_from_spark(spec, needed, storage, base) else plain).append(slice_)
    by_schema: dict[pa.Schema | None, list[str]] = {}
    known = _schemas_of(session, snapshot, spec, plain)
    for slice_ in plain:
        assert slice_.base is not None, "slices without a base file were set apart"
        physical = _scan_schema(needed, known[slice_.base.path])
        if physical is None:
            task_slices.append(slice_)
        else:
            by_schema.setdefault(physical, []).append(slice_.base.path)
    return [(schema, paths) for schema, paths in by_schema.items() if schema is not None], task_slices


def _is_hidden_from_spark(spec: ReadSpec, needed: pa.Schema, storage: Storage, base: BaseFile) -> bool:
    """Whether Spark's scan cannot find the file by its path, or its columns by their names."""
    moved = spec.ids is not None and not spec.ids.moved(base.name.instant_time).isdisjoint(needed.names)
    return moved or bool(_GLOB_CHARACTERS.intersection(storage.absolute(base.path)))


def _needed(spec: ReadSpec) -> pa.Schema:
    """The columns to read: the output's and the filter's."""
    names = list(spec.output.names)
    if spec.condition is not None:
        names += [name.split(".")[0] for name in filter_columns(spec.condition)]
    return pa.schema([spec.table_schema.field(name).with_nullable(True) for name in dict.fromkeys(names)])


def _scan_schema(needed: pa.Schema, stored: pa.Schema | None) -> pa.Schema | None:
    """Columns to read, with the types in the files; None if one needs more than a cast, or has a default and is missing."""
    if stored is None:
        return needed
    fields = []
    for field in needed:
        position = stored.get_field_index(field.name)
        if position >= 0 and has_wrong_unit(stored.field(position), field):
            return None
        if position < 0 and column_default(field) is not None:
            # Spark does not apply Hudi's defaults.
            return None
        if position < 0 or field.name in META_COLUMNS or same_type(stored.field(position).type, field.type):
            fields.append(field)
        elif pa.types.is_nested(field.type) or spark_cast(column(field.name), stored.field(position).type, field.type) is None:
            return None
        else:
            fields.append(field.with_type(stored.field(position).type))
    return pa.schema(fields)


def folder_columns(spec: ReadSpec, needed: pa.Schema, partitions: Sequence[str]) -> dict[str, str] | None:
    """The partition columns among the needed ones as Spark SQL over `_hoodie_partition_path`, which is the folder of a row.

    None if Spark cannot compute one of them as PyHudi does, or rows do not store the path: tasks read the files.
    """
    if not spec.folder_values:
        return {}
    fields = partition_columns(spec.keys)
    wanted = [name for name in path_valued_columns(spec.keys) if needed.get_field_index(name) >= 0]
    wanted = [name for name in wanted if name not in spec.path_columns]
    if not wanted:
        return {}
    hive_style = spec.keys.hive_style
    is_plain = not spec.keys.slash_dates and not any("%" in path or ("=" in path and not hive_style) for path in partitions)
    folders = [split_path(path) if len(fields) > 1 else [path] for path in partitions]
    one_folder_each = all(
        len(names) == len(fields)
        and (not hive_style or all(name.startswith(f"{field}=") for name, field in zip(names, fields, strict=True)))
        for names in folders
    )
    if not (spec.populate_meta_fields and is_plain and one_folder_each):
        return None
    result = {}
    for name in wanted:
        type_ = needed.field(name).type
        if not (pa.types.is_string(type_) or pa.types.is_integer(type_) or pa.types.is_date32(type_)):
            return None
        text = f"trim(BOTH '/' FROM {PARTITION_PATH})"
        if len(fields) > 1:
            text = f"split_part({text}, '/', {fields.index(name) + 1})"
        if spec.keys.hive_style:
            text = f"substring({text}, {len(name) + 2})"
        (field,) = to_spark_schema(pa.schema([needed.field(name)])).fields
        result[name] = f"try_cast({text} AS {field.dataType.simpleString()})"
    return result


def _has_one_value_each(spec: ReadSpec, partition: str, needed: pa.Schema) -> bool:
    """Whether the folder of a partition determines the value of each needed partition column."""
    if not spec.folder_values:
        return True
    wanted = [name for name in path_valued_columns(spec.keys) if needed.get_field_index(name) >= 0]
    of_folder = values_of_folder(spec, partition, needed)
    return all(name in spec.path_columns or len(of_folder.get(name, ())) == 1 for name in wanted)


def _scanned(
    session: SparkSession, spec: ReadSpec, schema: pa.Schema, paths: Sequence[str], from_path: Mapping[str, str]
) -> DataFrame:
    replaced = {name: text for name, text in from_path.items() if name in schema.names}
    if replaced:
        stored = [field for field in schema if field.name not in replaced]
        if PARTITION_PATH not in schema.names:
            stored.append(spec.table_schema.field(PARTITION_PATH).with_nullable(True))
        schema = pa.schema(stored)
    verify_pages = spec.checksums is not ChecksumMode.NEVER
    frame = scan_base_files(session, open_storage(spec.storage), to_spark_schema(schema), paths, verify_pages=verify_pages)
    casts: dict[str, Column] = {}
    for field in schema:
        target_type = spec.table_schema.field(field.name).type
        if not same_type(field.type, target_type):
            cast = spark_cast(column(field.name), field.type, target_type)
            assert cast is not None, "columns without a cast were left to tasks"
            casts[field.name] = cast
    casts.update((name, expr(text)) for name, text in replaced.items())
    if casts:
        frame = frame.withColumns(casts)
    if spec.condition is not None:
        frame = frame.where(to_spark_sql(spec.condition, spec.table_schema))
    return frame if frame.columns == spec.output.names else frame.select(*map(quote_spark_name, spec.output.names))


def spark_cast(value: Column, source: pa.DataType, target: pa.DataType) -> Column | None:
    """Hudi's widening of a plain column as a Spark cast; None if Spark's result would differ."""
    types = pa.types
    spark = to_spark_schema(pa.schema([("c", target)])).fields[0].dataType
    if types.is_integer(source) and (types.is_integer(target) or types.is_floating(target) or types.is_string(target)):
        return value.cast(spark)
    if types.is_float32(source) and types.is_float64(target):
        # Via the shortest text: 0.1 as a float becomes 0.1, not 0.10000000149011612.
        return value.cast("string").cast(spark)
    if types.is_date32(source) and types.is_string(target):
        return value.cast(spark)
    return None


def _check_reachable(storage: StorageSpec) -> None:
    if storage.uri.startswith("memory:"):
        raise Unsupported(
            f"{storage.uri} is in the memory of one process, which Spark's workers cannot access; read it with to_arrow()"
        )


def _through_tasks(session: SparkSession, spec: ReadSpec, slices: Sequence[FileSlice]) -> DataFrame:
    output = replace(spec, output=pa.schema([field.with_nullable(True) for field in spec.output]))
    return _through_reader(session, functools.partial(run_read, output), slices, output.output)


def _through_reader(
    session: SparkSession, reader: Callable[[Any], Iterator[pa.Table]], tasks: Sequence[Any], schema: pa.Schema
) -> DataFrame:
    return task_rows(session, _SliceReader(reader, schema), tasks, to_spark_schema(schema))


class _SliceReader:
    """Maps a task to its rows."""

    def __init__(self, reader: Callable[[Any], Iterator[pa.Table]], schema: pa.Schema) -> None:
        self._reader = reader
        self._schema = schema

    def __call__(self, _: int, task: Any) -> Iterator[pa.RecordBatch]:
        for rows in self._reader(task):
            for part in (relabel(rows, self._schema) if rows.num_columns else rows).to_batches():
                if part.num_rows:
                    yield part


# Schemas of files


def _schemas_of(
    session: SparkSession, snapshot: Snapshot, spec: ReadSpec, slices: Iterable[FileSlice]
) -> Mapping[str, pa.Schema | None]:
    """The data columns of each base file; None if equal to the table's current ones."""
    file_schemas: dict[str, pa.Schema | None] = {}
    unknown: list[str] = []
    changed = _schema_changed(snapshot)
    # Releases before 1.1 wrote times in another type than the commit's schema has; only the footer shows it.
    asks_files = snapshot.config.may_hold_files_before_nine and any(map(may_have_wrong_unit, _needed(spec)))
    for slice_ in slices:
        assert slice_.base is not None, "slices without a base file were set apart"
        if asks_files:
            unknown.append(slice_.base.path)
            continue
        if not changed:
            file_schemas[slice_.base.path] = None
            continue
        instant = _completed(snapshot, slice_.base.name.instant_time)
        text = None if instant is None else _schema_text(snapshot, instant)
        if not text:
            unknown.append(slice_.base.path)
        elif snapshot.schema is not None and text == snapshot.schema.avro:
            file_schemas[slice_.base.path] = None
        else:
            file_schemas[slice_.base.path] = TableSchema.from_avro(text).arrow
    tasks = [_FooterTask(spec.storage, tuple(unknown[i : i + _FOOTERS_A_TASK])) for i in range(0, len(unknown), _FOOTERS_A_TASK)]
    if len(tasks) < parallelism(session) and unknown:
        tasks = [_FooterTask(spec.storage, (path,)) for path in unknown]
    for task, schemas in zip(tasks, run_tasks(session, _run_footers, tasks), strict=True):
        file_schemas.update(zip(task.paths, schemas, strict=True))
    return file_schemas


def _schema_changed(snapshot: Snapshot) -> bool:
    """Whether a commit of the active timeline, or the table's creation, has another schema than the latest one."""
    # Archived instants may have another schema, so a timeline with archived instants counts as changed.
    if snapshot.schema is None:
        return False
    writes = snapshot.timeline.completed_writes()
    texts = {text for instant in writes if (text := _schema_text(snapshot, instant))}
    stated = snapshot.config.create_schema
    return (
        len(texts) > 1
        or _was_archived(snapshot)
        or (stated is not None and bool(texts) and _columns(stated) != _columns(snapshot.schema.avro))
    )


def _was_archived(snapshot: Snapshot) -> bool:
    store = snapshot.context.timeline
    return any(True for _ in store.storage.list(snapshot.config.history_path).files)


def _columns(avro: str) -> pa.Schema:
    return TableSchema.from_avro(avro).arrow


def _completed(snapshot: Snapshot, request_time: str) -> Instant | None:
    for instant in snapshot.timeline.completed_writes():
        if instant.request_time == request_time and instant.state is State.COMPLETED:
            return instant
    return None


_TEXTS: dict[tuple[str, str, str], str] = {}
_MOST_TEXTS = 4096


def _schema_text(snapshot: Snapshot, instant: Instant) -> str:
    """The schema in a commit's metadata, '' for none; cached, because a completed instant never changes."""
    known, store = snapshot.commits.get(instant), snapshot.context.timeline
    if known is not None:
        return known.extra_metadata.get(SCHEMA_KEY, "")
    key = (store.storage.uri, instant.request_time, instant.completion_time or "")
    text = _TEXTS.get(key)
    if text is None:
        text = read_commit(store, instant).extra_metadata.get(SCHEMA_KEY, "")
        if len(_TEXTS) >= _MOST_TEXTS:
            _TEXTS.clear()
        _TEXTS[key] = text
    return text


@dataclass(frozen=True, slots=True)
class _FooterTask:
    storage: StorageSpec
    paths: tuple[str, ...]


def _run_footers(task: _FooterTask) -> list[pa.Schema]:
    storage = open_storage(task.storage)
    schemas = []
    for path in task.paths:
        with open_base_file(storage, path) as file:
            schemas.append(_without_metadata(file.schema_arrow))
    return schemas


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a file; times as in the table, with the entry `unit` of those that are in milliseconds."""
    fields = []
    for field in schema:
        kind, metadata = field.type, None
        if pa.types.is_timestamp(kind):
            metadata = {UNIT: MILLIS} if kind.unit == "ms" else None
            kind = pa.timestamp("us", None if kind.tz is None else "UTC")
        fields.append(pa.field(field.name, kind, metadata=metadata))
    return pa.schema(fields)
