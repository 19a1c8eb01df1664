"""Settings of catalog sync: Hudi's options of Hive sync and Glue sync."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.options import sync_options
from pyhudi.options.declaration import Option, Options, OptionSettings, read_settings
from pyhudi.options.lock_options import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN
from pyhudi.options.sync_options import HIVE_SYNC, INCREMENTAL, META_SYNC

HIVE_TOOL = "org.apache.hudi.hive.HiveSyncTool"
GLUE_TOOL = "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"


class CatalogKind(StrEnum):
    """A type of catalog."""

    HIVE = "hive"
    GLUE = "glue"


@dataclass(frozen=True, slots=True)
class GlueSettings(OptionSettings):
    """Connection settings of AWS Glue; ``skip_archive`` keeps no old versions of a table there."""

    region: Annotated[str | None, sync_options.AWS_GLUE_REGION] = None
    endpoint: Annotated[str | None, sync_options.AWS_GLUE_ENDPOINT] = None
    catalog_id: Annotated[str | None, sync_options.GLUE_CATALOG_ID] = None
    skip_archive: Annotated[bool, sync_options.GLUE_SKIP_TABLE_ARCHIVE] = True
    lists_by_metadata: Annotated[bool, sync_options.GLUE_METADATA_FILE_LISTING] = False
    access_key: Annotated[str | None, ACCESS_KEY] = field(default=None, repr=False)
    secret_key: Annotated[str | None, SECRET_KEY] = field(default=None, repr=False)
    session_token: Annotated[str | None, SESSION_TOKEN] = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """Settings of catalog sync.

    Attributes:
        database: Database in the catalog, None for that of the table.
        table: Table name in the catalog, None for that of the table.
        partition_fields: Partition columns in the catalog, None for those of the table.
        strategy: Views of a merge-on-read table: ALL, RO or RT.
        batch: Partitions per request.
        conditional: Do not update the sync state in the catalog if neither columns nor partitions changed.
        ignore_errors: A sync that fails after a commit is recorded in the result.
    """

    kinds: Annotated[tuple[CatalogKind, ...], sync_options.CLIENT_TOOL_CLASS, HIVE_SYNC, sync_options.HIVE_MODE]
    glue: GlueSettings
    uris: Annotated[tuple[str, ...], sync_options.HIVE_METASTORE_URIS]
    database: Annotated[str | None, sync_options.HIVE_DATABASE]
    table: Annotated[str | None, sync_options.HIVE_TABLE]
    partition_fields: Annotated[tuple[str, ...] | None, sync_options.HIVE_PARTITION_FIELDS]
    extractor: Annotated[str | None, sync_options.HIVE_PARTITION_EXTRACTOR_CLASS]
    strategy: Annotated[str, sync_options.HIVE_TABLE_STRATEGY]
    skip_ro_suffix: Annotated[bool, sync_options.HIVE_SKIP_RO_SUFFIX]
    snapshot_by_name: Annotated[bool, sync_options.SYNC_SNAPSHOT_WITH_TABLE_NAME]
    incremental: Annotated[bool, INCREMENTAL]
    table_properties: Annotated[tuple[tuple[str, str], ...], sync_options.HIVE_TABLE_PROPERTIES]
    serde_properties: Annotated[tuple[tuple[str, str], ...], sync_options.HIVE_SERDE_PROPERTIES]
    recreate: Annotated[bool, sync_options.HIVE_RECREATE_TABLE_ON_ERROR]
    creates_database: Annotated[bool, sync_options.HIVE_AUTO_CREATE_DATABASE]
    for_spark: Annotated[bool, sync_options.HIVE_SYNC_AS_DATASOURCE]
    timestamps: Annotated[bool, sync_options.HIVE_SUPPORT_TIMESTAMP]
    omits_meta_columns: Annotated[bool, sync_options.HIVE_OMIT_METADATA_FIELDS]
    managed: Annotated[bool, sync_options.HIVE_CREATE_MANAGED_TABLE]
    batch: Annotated[int, sync_options.HIVE_BATCH_NUM]
    comments: Annotated[bool, sync_options.HIVE_SYNC_COMMENT]
    schema_part_length: Annotated[int, sync_options.HIVE_SCHEMA_STRING_LENGTH_THRESH]
    without_partitions: Annotated[bool, sync_options.NO_PARTITION_METADATA]
    conditional: Annotated[bool, sync_options.CONDITION_SYNC]
    spark_version: Annotated[str | None, sync_options.SPARK_VERSION]
    ignore_errors: Annotated[bool, sync_options.HIVE_IGNORE_EXCEPTIONS]

    @classmethod
    def of(cls, options: Options) -> SyncSettings:
        """Build the settings from checked options. Raises Unsupported for HiveServer2, InvalidRequest for an unknown tool."""
        return read_settings(
            cls,
            options,
            kinds=_catalog_types(options),
            table_properties=_lines(options, sync_options.HIVE_TABLE_PROPERTIES),
            serde_properties=_lines(options, sync_options.HIVE_SERDE_PROPERTIES),
        )

    @classmethod
    def after_writes(cls, options: Options) -> SyncSettings | None:
        """Return the settings of the sync that follows a write; None if the options request none."""
        return cls.of(options) if options.flag(META_SYNC) or options.flag(HIVE_SYNC) else None


def with_names(
    options: Mapping[str, object] | None, *, metastore: str | None, database: str | None, table: str | None
) -> Mapping[str, object] | None:
    """Merge the arguments of a call into its options. Raises InvalidRequest for contradictory values."""
    named = {sync_options.HIVE_METASTORE_URIS: metastore, sync_options.HIVE_DATABASE: database, sync_options.HIVE_TABLE: table}
    merged = dict(options or {})
    for option, value in named.items():
        if value is not None and str(merged.setdefault(option.key, value)) != value:
            raise InvalidRequest(f"the argument {value!r} contradicts option {option}={merged[option.key]}")
    return merged


def _catalog_types(options: Options) -> tuple[CatalogKind, ...]:
    mode = options.value_or_default(sync_options.HIVE_MODE)
    if mode in ("jdbc", "hiveql"):
        raise Unsupported(
            f"{sync_options.HIVE_MODE}={mode} is not supported: HiveServer2 is not available; use hms, with the metastore in "
            f"{sync_options.HIVE_METASTORE_URIS}, or glue"
        )
    tools = [HIVE_TOOL] if options.flag(HIVE_SYNC) else []
    tools += (
        options.names(sync_options.CLIENT_TOOL_CLASS)
        if options.explicit(sync_options.CLIENT_TOOL_CLASS) is not None or not tools
        else ()
    )
    kinds = []
    for name in tools:
        if name not in _OF_TOOL:
            raise InvalidRequest(f"{sync_options.CLIENT_TOOL_CLASS}={name} is not supported; use one of {', '.join(_OF_TOOL)}")
        kind = CatalogKind.GLUE if mode == "glue" else _OF_TOOL[name]
        if kind not in kinds:
            kinds.append(kind)
    return tuple(kinds)


_OF_TOOL: Mapping[str, CatalogKind] = {HIVE_TOOL: CatalogKind.HIVE, GLUE_TOOL: CatalogKind.GLUE}


def _lines(options: Options, option: Option) -> tuple[tuple[str, str], ...]:
    """Parse lines of `key=value`. Raises InvalidRequest for a line without '='."""
    pairs = []
    for line in filter(None, map(str.strip, (options.text(option) or "").splitlines())):
        key, separator, value = line.partition("=")
        if not separator:
            raise InvalidRequest(f"{option}: a line is not of the form key=value")
        pairs.append((key.strip(), value.strip()))
    return tuple(pairs)
