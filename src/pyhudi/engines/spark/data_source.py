"""`spark.read.format("pyhudi")`: a table as a Python data source of Spark.

For SQL, temporary views and jobs that specify a format. `pyhudi.spark.read` is faster, because it reads base files with
Spark's own Parquet scan.

Reading: one input partition contains some file slices. Spark prunes no columns for such sources; use `.schema(...)` or
the option `pyhudi.columns`. The option `pyhudi.filter` prunes files, with every applicable index, and row groups.
Filters that Spark would push down are not accepted: Spark keeps the pruned reader with the DataFrame and uses it for
other queries of that DataFrame too, which then lack rows.

Streams: see stream_source.py.  Writing: see data_sink.py.

Tables of Spark's catalog: Spark does not pass their path and options to a read. So CREATE TABLE ... LOCATION, which
requests the columns, returns both in the metadata of the first column, and a read finds them there. A write cannot use
that: it receives the columns of its rows, which may come from another such table.

Options are Hudi's and PyHudi's; those with the prefix `pyhudi.storage.` are passed to the storage without the prefix.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructField, StructType

from pyhudi.engines.spark.data_sink import HudiStreamWriter, HudiWriter, SinkTarget
from pyhudi.engines.spark.jobs import set_worker_python
from pyhudi.engines.spark.read_dataframe import plan_query, streamed_schema
from pyhudi.engines.spark.stream_source import HudiStreamReader, arrow_batches
from pyhudi.engines.spark.type_conversion import CATALOG_OPTIONS, catalog_options, to_arrow_schema, to_spark_schema
from pyhudi.errors import InvalidRequest
from pyhudi.operations.admin.open_table import open_context, resolve_location
from pyhudi.operations.admin.stored_settings import with_stored_options
from pyhudi.operations.read.change_queries import ChangeQuery
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.options.declaration import Options
from pyhudi.options.read_options import QUERY_TYPE, READ_BEGIN_INSTANTTIME
from pyhudi.options.scope import TABLE_OPERATIONS, check_table_options
from pyhudi.options.supported import canonical_name, parse_options
from pyhudi.planning.change_data import ChangeSource
from pyhudi.records.schema_cast import same_type
from pyhudi.records.vectors import list_layout
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.table_context import TableContext

FORMAT = "pyhudi"

_CHECKPOINT = "checkpointlocation"
_OF_CATALOG = frozenset({"owner", "location", "provider", "comment", "external", "is_managed_location", "collation"})
"""Options that Spark adds for a table of its catalog, in addition to copies with the prefix `option.`."""

_OPTION_OF_CATALOG = "option."

_STORAGE_PREFIX = "pyhudi.storage."
_PARTITION_BYTES = 64 << 20


def register(spark: SparkSession, aliases: Iterable[str]) -> None:
    """Register the source in a session as `pyhudi` and under aliases."""
    set_worker_python(spark)
    spark.dataSource.register(HudiSource)
    for alias in dict.fromkeys(aliases):
        if alias != FORMAT:
            name = {"name": classmethod(lambda cls, alias=alias: alias)}
            spark.dataSource.register(type("AliasedHudiSource", (HudiSource,), name))


class HudiSource(DataSource):
    """A table at the option `path`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of a read without an explicit schema."""
        catalog_stored = _options_for_catalog(self.options) if _is_of_catalog(self.options) else None
        columns = self._columns(*_open_table(self.options))
        return columns if catalog_stored is None else _with_options(columns, catalog_stored)

    def _columns(self, context: TableContext, options: Options) -> StructType:
        if options.value_or_default(QUERY_TYPE) == "incremental" and not _begins(options):
            # The columns of a stream do not depend on the range; a batch query reports a missing range later.
            return to_spark_schema(streamed_schema(context, options))
        return to_spark_schema(plan_query(context, options, None, None).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of `schema`, a subset of the table's."""
        expected = to_arrow_schema(schema)
        entry = catalog_options(schema)
        context, options = _open_table({**entry, **self.options})
        check_table_options(TABLE_OPERATIONS["pyhudi.spark.read"], options)
        if entry:
            _check_entry(expected, plan_query(context, options, None, None).schema)
        query = plan_query(context, options, expected.names, None)
        for field, stored in zip(expected, list_layout(query.schema), strict=True):
            if not same_type(field.type, stored.type):
                raise InvalidRequest(f"column {field.name!r} is requested as {field.type}, but the table has {stored.type}")
        return HudiReader(query, expected)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of rows with the columns of `schema`."""
        return HudiWriter(_target(self.options, schema, "overwrite" if overwrite else "append"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A writer of the batches of a stream.  overwrite: each replaces the table."""
        return HudiStreamWriter(_target(self.options, schema, "append"), self.options.get(_CHECKPOINT), complete=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of the columns of `schema`."""
        return HudiStreamReader(partial(_open_table, dict(self.options)), to_arrow_schema(schema), _packed_tasks)


@dataclass(frozen=True)
class TasksPartition(InputPartition):
    """File slices, or sources of changes, that one Spark task reads."""

    tasks: tuple[FileSlice | ChangeSource, ...]

    def __init__(self, tasks: tuple[FileSlice | ChangeSource, ...]) -> None:
        object.__setattr__(self, "tasks", tasks)
        object.__setattr__(self, "value", None)


class HudiReader(DataSourceReader):
    """Reads the tasks of a query.  expected_schema: the columns as Spark expects them."""

    def __init__(self, query: SnapshotQuery | ChangeQuery, expected_schema: pa.Schema) -> None:
        self._read: Callable[[Any], Iterator[pa.Table]] = query.reader
        self._tasks: tuple[FileSlice | ChangeSource, ...] = query.tasks
        self._wanted = expected_schema

    def partitions(self) -> Sequence[InputPartition]:
        """Tasks grouped up to a size; at least one partition, because Spark reads an empty list as one unnamed partition."""
        return packed(self._tasks) or [TasksPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the partition's tasks."""
        assert isinstance(partition, TasksPartition)
        return arrow_rows(self._read, partition, self._wanted)


def packed(tasks: Iterable[FileSlice | ChangeSource]) -> list[TasksPartition]:
    """Group tasks up to a size."""
    partitions: list[TasksPartition] = []
    pending: list[FileSlice | ChangeSource] = []
    size = 0
    for task in tasks:
        pending.append(task)
        size += task.size_bytes
        if size >= _PARTITION_BYTES:
            partitions.append(TasksPartition(tuple(pending)))
            pending, size = [], 0
    if pending:
        partitions.append(TasksPartition(tuple(pending)))
    return partitions


def arrow_rows(
    read: Callable[[Any], Iterator[pa.Table]], partition: TasksPartition, expected_schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in exactly the types that Spark expects."""
    for task in partition.tasks:
        yield from arrow_batches(read(task), expected_schema)


def _packed_tasks(tasks: Sequence[FileSlice | ChangeSource]) -> Sequence[tuple[Any, ...]]:
    return [partition.tasks for partition in packed(tasks)]


def _begins(options: Options) -> bool:
    return options.text(READ_BEGIN_INSTANTTIME) is not None


def _open_table(user_options: Mapping[str, str]) -> tuple[TableContext, Options]:
    """The table of a source's options, and the options of Hudi and PyHudi among them."""
    options, storage_options, path = _divided_options(user_options)
    context = open_context(path, storage_options, options)
    return context, with_stored_options(options, context.config, context.storage.uri)


def _target(user_options: Mapping[str, str], schema: StructType, mode: str) -> SinkTarget:
    """The write target of rows with these columns."""
    if not user_options.get("path"):
        raise InvalidRequest(
            "Spark does not pass the catalog table of a write to a Python source. Use hs.sql(spark, 'INSERT INTO ...') "
            "(pyhudi.spark.sql) or pyhudi.spark.save_as_table, or specify the location, by .option('path', ...) or INSERT INTO "
            "t WITH (path = '...')"
        )
    options, storage_options, path = _divided_options(user_options)
    uri, stored_options = resolve_location(path, storage_options)
    return SinkTarget(os.fspath(uri), mode, options, stored_options or {}, to_arrow_schema(schema))


def _check_entry(entry: pa.Schema, table: pa.Schema) -> None:
    """Raise InvalidRequest if an entry of Spark's catalog has columns that the table lacks."""
    missing = [name for name in entry.names if name not in table.names]
    if missing:
        raise InvalidRequest(
            f"the entry of Spark's catalog has column {missing[0]}, which the Hudi table lacks: ALTER TABLE in spark.sql changes "
            "the entry only. Change the table with hs.sql(spark, 'ALTER TABLE ...') (pyhudi.spark.sql), and create the entry "
            "again"
        )


def _is_of_catalog(user_options: Mapping[str, str]) -> bool:
    """Whether these are the options of a table that CREATE TABLE creates."""
    return "provider" in user_options and "location" in user_options


def _own(user_options: Mapping[str, str]) -> dict[str, str]:
    """The options without those that Spark adds."""
    added = {_CHECKPOINT, *(_OF_CATALOG if _is_of_catalog(user_options) else ())}
    return {key: value for key, value in user_options.items() if key not in added and not key.startswith(_OPTION_OF_CATALOG)}


def _options_for_catalog(user_options: Mapping[str, str]) -> dict[str, str]:
    """The path and the options of a table for the catalog; rejects storage options, which all its users could read."""
    own_options = _own(user_options)
    secrets = sorted(key for key in own_options if key.startswith(_STORAGE_PREFIX))
    if secrets:
        raise InvalidRequest(
            f"storage options ({', '.join(secrets)}) are not stored in Spark's catalog: set them in the environment, or "
            "read the table by its path"
        )
    return own_options


def _with_options(columns: StructType, retained_options: Mapping[str, str]) -> StructType:
    """The columns, with the path and options of the table in the metadata of the first one."""
    first, *others = columns.fields
    carrying = StructField(
        first.name, first.dataType, first.nullable, {**first.metadata, CATALOG_OPTIONS: json.dumps(retained_options)}
    )
    return StructType([carrying, *others])


def _divided_options(user_options: Mapping[str, str]) -> tuple[Options, dict[str, str], str]:
    """Options of Hudi and PyHudi, storage options, and the path."""
    path = user_options.get("path")
    if not path:
        raise InvalidRequest(
            "the source needs a path: .load(path). Spark executes CREATE TABLE with columns itself, and makes an entry of its "
            "catalog without a Hudi table. Create the table with hs.sql(spark, 'CREATE TABLE ...') (pyhudi.spark.sql) or "
            "pyhudi.spark.save_as_table; an entry over an existing table is CREATE TABLE t USING pyhudi LOCATION '...' without "
            "columns"
        )
    storage = {key[len(_STORAGE_PREFIX) :]: value for key, value in user_options.items() if key.startswith(_STORAGE_PREFIX)}
    # Spark passes the keys in lower case.
    other_options = {
        canonical_name(key): value
        for key, value in _own(user_options).items()
        if key != "path" and not key.startswith(_STORAGE_PREFIX)
    }
    return parse_options(other_options), storage, path
