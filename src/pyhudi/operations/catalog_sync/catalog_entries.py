"""Catalog entries of a table: one for a copy-on-write table, up to three for a merge-on-read table.

    copy-on-write                                       t
    merge-on-read, ALL                                  t_ro read-optimized, t_rt real-time, t as t_rt
    the same with skip_ro_suffix                        t read-optimized, t_rt
    merge-on-read, RO / RT                              t

Source: docs/catalog-sync.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.operations.catalog_sync.catalog_types import hive_type, spark_schema
from pyhudi.operations.catalog_sync.sync_settings import SyncSettings
from pyhudi.operations.read.query import table_schema
from pyhudi.options import sync_options
from pyhudi.storage.catalogs import CatalogColumn, CatalogTable
from pyhudi.storage.process_identity import user_name
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_config import TableConfig

PROVIDER = "spark.sql.sources.provider"
AS_READ_OPTIMIZED = sync_options.READ_OPTIMIZED_PROPERTY
"""Parameters that identify a catalog entry as a Hudi table."""

_BASE_FILES = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
_WITH_LOGS = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
_OUTPUT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_SCHEMA = "spark.sql.sources.schema."


@dataclass(frozen=True, slots=True)
class View:
    """One entry.

    Attributes:
        name: Table name in the catalog.
        merges_logs: The entry reads log files.
        read_optimized: The entry reads only the base files of a merge-on-read table.
    """

    name: str
    merges_logs: bool = False
    read_optimized: bool = False


def catalog_views(config: TableConfig, settings: SyncSettings) -> tuple[View, ...]:
    """Return the entries of a table, in the order of registration."""
    name = (settings.table or config.name).lower()
    if config.is_cow:
        return (View(name),)
    optimized, real_time = View(name, read_optimized=True), View(name, merges_logs=True)
    if settings.strategy == "RO":
        return (optimized,)
    if settings.strategy == "RT":
        return (real_time,)
    if settings.skip_ro_suffix:
        # The table's name refers to one view, and this option selects the read-optimized one.
        return optimized, View(f"{name}_rt", merges_logs=True)
    views = (View(f"{name}_ro", read_optimized=True), View(f"{name}_rt", merges_logs=True))
    return (*views, real_time) if settings.snapshot_by_name else views


def catalog_database(config: TableConfig, settings: SyncSettings) -> str:
    """Return the catalog database of the table, in lower case: from the settings, else the table's own, else `default`."""
    return (settings.database or config.database or "default").lower()


def synced_partition_columns(config: TableConfig, settings: SyncSettings) -> tuple[str, ...]:
    """Return the partition columns in the catalog."""
    if settings.partition_fields is not None:
        return settings.partition_fields
    return tuple(field.name for field in config.keys.partition_fields)


def catalog_table(snapshot: Snapshot, settings: SyncSettings, view: View, location: str) -> CatalogTable:
    """Build the catalog entry of a view.

    Raises:
        TableState: The table has no columns yet.
        Unsupported: The catalog does not support a type.
        InvalidRequest: Two column names differ only in case.
    """
    config, schema = snapshot.config, table_schema(snapshot, meta_columns=False)
    partitioned = synced_partition_columns(config, settings)
    shown = schema if settings.omits_meta_columns else with_meta_fields(schema)
    data = [field for field in shown if field.name not in partitioned]
    columns = tuple(_column(field, settings) for field in data)
    keys = tuple(
        _column(schema.field(name), settings) if name in schema.names else CatalogColumn(name.lower(), "string")
        for name in partitioned
    )
    names = [column.name for column in (*columns, *keys)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(
            f"{snapshot.context.storage.uri}: catalogs ignore case, and column {twice[0]} would occur twice; rename one of them"
        )
    parameters: dict[str, str] = {} if settings.managed else {"EXTERNAL": "TRUE"}
    serde: dict[str, str] = {"serialization.format": "1"}
    if settings.for_spark:
        fields = [*data, *(schema.field(name) if name in schema.names else pa.field(name, pa.string()) for name in partitioned)]
        parameters.update(_of_spark(fields, partitioned, settings))
        serde |= {"path": location, AS_READ_OPTIMIZED: "true" if view.read_optimized else "false"}
    return CatalogTable(
        database=catalog_database(config, settings),
        name=view.name,
        location=location,
        columns=columns,
        partition_columns=keys,
        input_format=_WITH_LOGS if view.merges_logs else _BASE_FILES,
        output_format=_OUTPUT,
        serde=_SERDE,
        is_external=not settings.managed,
        owner=user_name(),
        serde_parameters={**serde, **dict(settings.serde_properties)},
        parameters={**parameters, **dict(settings.table_properties)},
    )


def is_hudi_entry(table: CatalogTable) -> bool:
    """Return True if a catalog entry is a Hudi table, whichever program registered it."""
    formats = ("org.apache.hudi.", "com.uber.hoodie.")
    return table.input_format.startswith(formats) or table.parameters.get(PROVIDER, "").lower() == "hudi"


def _column(field: pa.Field, settings: SyncSettings) -> CatalogColumn:
    comment = (field.metadata or {}).get(b"comment", b"").decode() if settings.comments else ""
    return CatalogColumn(field.name.lower(), hive_type(field.type, timestamps=settings.timestamps), comment)


def _of_spark(fields: list[pa.Field], partitioned: tuple[str, ...], settings: SyncSettings) -> Mapping[str, str]:
    parameters = {PROVIDER: "hudi"}
    if settings.spark_version is not None:
        parameters["spark.sql.create.version"] = settings.spark_version
    parts = list(_cut(spark_schema(fields), settings.schema_part_length))
    parameters[f"{_SCHEMA}numParts"] = str(len(parts))
    parameters.update((f"{_SCHEMA}part.{number}", part) for number, part in enumerate(parts))
    if partitioned:
        parameters[f"{_SCHEMA}numPartCols"] = str(len(partitioned))
        parameters.update((f"{_SCHEMA}partCol.{number}", name) for number, name in enumerate(partitioned))
    return parameters


def _cut(text: str, length: int) -> Iterator[str]:
    for start in range(0, len(text), length):
        yield text[start : start + length]
