"""Bootstrap tasks, one for each source file: inspect it, then write its metadata-only base file, or rewrite its rows.

    run_inspect_source       columns and row count, from the footer
    run_check_sources       whether it is unchanged since the inspection
    run_skeleton   METADATA_ONLY: a base file of meta columns alone, whose row n belongs to row n of the source file
    run_full       FULL_RECORD: new file groups with the rows

Memory: one row group of the source file, in the columns that keys and partition paths are built from, or in all.

Source: docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.errors import InvalidRequest
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.bootstrap_index import SourceFile
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_fields
from pyhudi.format.names import BaseFileName, MarkerType, WriteToken
from pyhudi.format.paths import file_name, join_path, parent_folder
from pyhudi.options import table_options
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.keys.partition_paths import partition_paths
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.timestamp_coercion import ZonelessTimestamps, with_zones
from pyhudi.records.utf8_checks import check_utf8
from pyhudi.storage import open_storage
from pyhudi.storage.base import StorageSpec
from pyhudi.storage.markers import Markers
from pyhudi.tasks.base_file_reader import open_base_file
from pyhudi.tasks.base_file_writer import BaseFileWriter
from pyhudi.tasks.bootstrap_join import JoinedColumns, check_source_unchanged, source_rows
from pyhudi.tasks.incoming_layout import as_batch
from pyhudi.tasks.row_layouts import stored_rows
from pyhudi.tasks.write_base_files import create_stat, ensure_partition
from pyhudi.tasks.write_file_group import create_files
from pyhudi.tasks.write_tasks import CreateTask, WriterSpec, WriteStatus

_SKELETON_NAME = "HoodieRecordKey"
"""Avro record name of a base file without data columns."""


@dataclass(frozen=True, slots=True)
class InspectSourceTask:
    """A source file to inspect.  table: storage of the new table, whose options open the file too."""

    table: StorageSpec
    source: SourceFile


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Content of a source file's footer."""

    row_count: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class BootstrapTask:
    """A source file to bootstrap.

    file_id: of the file group; for FULL_RECORD the prefix of the new file ids.  required: columns without nulls.  exact:
    columns whose nanoseconds may not be truncated.
    """

    partition: str
    source: SourceFile
    file_id: str
    token: WriteToken
    required: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()


def run_inspect_source(task: InspectSourceTask) -> SourceInfo:
    """Read a footer. Raises CorruptData if the file does not have the format of its extension, TableState if it is missing."""
    storage = open_storage(StorageSpec(parent_folder(task.source.uri), task.table.options))
    with open_base_file(storage, file_name(task.source.uri)) as file:
        schema = _columns_with_instants(file) if isinstance(file, pq.ParquetFile) else file.schema_arrow
        return SourceInfo(file.metadata.num_rows, schema)


def run_check_sources(task: InspectSourceTask) -> None:
    """Raises as `joined.check_source_unchanged`."""
    check_source_unchanged(task.table, task.source)


def run_skeleton(spec: WriterSpec, columns: pa.Schema, task: BootstrapTask) -> WriteStatus:
    """Write the base file of meta columns that belongs to a source file.

    columns: of all source files and folders; files of the table may lack some of them. Raises InvalidRequest for rows
    that are invalid in their partition, and as `joined.open_source`.
    """
    storage = open_storage(spec.storage)
    name = BaseFileName(task.file_id, str(task.token), spec.instant_time, spec.extension)
    path = join_path(task.partition, name.text)
    ensure_partition(storage, task.partition, spec.instant_time)
    Markers(storage, spec.instant_time, in_lists=spec.files.marker_lists).create(path, MarkerType.CREATE)
    bare = replace(spec, data_schema=pa.schema([]))
    heads = {
        field.split(".")[0] for field in (*spec.keys.record_fields, *partition_columns(spec.keys), *task.required, *task.exact)
    }
    needed = pa.schema([field for field in columns if field.name in heads])
    count = 0
    with BaseFileWriter(storage, path, bare.stored_schema, _skeleton_avro(), spec.files) as writer:
        for rows in _keyed_rows(spec, task, needed):
            writer.write(stored_rows(bare, rows.select([RECORD_KEY, PARTITION_PATH]), task.token.partition, count))
            count += rows.num_rows
    assert writer.result is not None, "the writer's block ended without an error, so there is a file"
    return WriteStatus(create_stat(task.partition, name, writer.result))


def run_full(spec: WriterSpec, columns: pa.Schema, task: BootstrapTask) -> tuple[WriteStatus, ...]:
    """Write the rows of a source file to new file groups.  Raises as `run_skeleton`."""
    rows = _keyed_rows(spec, task, columns)
    return create_files(spec, CreateTask(task.partition, task.file_id, task.token), rows)


def _keyed_rows(spec: WriterSpec, task: BootstrapTask, needed: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a source file with their keys and partition path in front, which are looked over."""
    joined = JoinedColumns(spec.storage, spec.keys, task.partition)
    for rows in source_rows(task.source, needed, joined, truncate_nanoseconds=not task.exact):
        if not rows.num_rows:
            continue
        batch = as_batch(rows)
        try:
            check_utf8(batch)
            keys, paths = record_keys(spec.keys, batch), partition_paths(spec.keys, batch)
        except InvalidRequest as error:
            raise InvalidRequest(f"{task.source.uri} cannot be bootstrapped: {error}") from error
        _check_rows(task, batch, paths)
        yield pa.table({RECORD_KEY: keys, PARTITION_PATH: paths, **{name: rows.column(name) for name in rows.column_names}})


def _check_rows(task: BootstrapTask, batch: pa.RecordBatch, paths: pa.StringArray) -> None:
    elsewhere = paths.filter(pc.not_equal(paths, task.partition))
    if len(elsewhere):
        raise InvalidRequest(
            f"{task.source.uri} is in partition {task.partition!r}, but a write of its rows would go to "
            f"{elsewhere[0].as_py()!r}, so that the records would be duplicated; configure partition paths with "
            f"{table_options.HIVE_STYLE} and {table_options.URL_ENCODE}"
        )
    for name in task.required:
        if batch.column(name).null_count:
            raise InvalidRequest(
                f"{task.source.uri} holds nulls in the ordering field {name!r}, which logs of the table are compared by"
            )


def _columns_with_instants(file: pq.ParquetFile) -> pa.Schema:
    """The columns of a file.  INT96 timestamps are read as UTC, as Spark writes them, although their type does not record it."""
    leaves: dict[str, list[bool]] = {}
    for index in range(len(file.schema)):
        column = file.schema.column(index)
        logical_type = str(column.logical_type)
        if column.physical_type == "INT96" or (logical_type.startswith("Timestamp") and "isAdjustedToUTC=false" in logical_type):
            leaves.setdefault(column.path.split(".")[0], []).append(column.physical_type == "INT96")
    schema = file.schema_arrow.remove_metadata()
    moments = with_zones(schema, None, ZonelessTimestamps.UTC)
    return pa.schema([moments.field(f.name) if all(leaves.get(f.name, [False])) else f for f in schema])


def _skeleton_avro() -> str:
    fields: Sequence[object] = json.loads(arrow_to_avro(with_meta_fields(pa.schema([])), _SKELETON_NAME))["fields"]
    return json.dumps({"type": "record", "name": _SKELETON_NAME, "doc": "", "fields": fields}, separators=(",", ":"))
