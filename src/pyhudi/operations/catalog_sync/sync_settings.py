"""Settings of catalog sync: Hudi's options of Hive sync and Glue sync."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.storage.locks.dynamodb import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN

META_SYNC = Option(
    "hoodie.datasource.meta.sync.enable",
    bool,
    "false",
    "a write registers the table in the catalogs of hoodie.meta.sync.client.tool.class",
)
HIVE_SYNC = Option("hoodie.datasource.hive_sync.enable", bool, "false", "a write registers the table in a Hive metastore")
MODE = Option(
    "hoodie.datasource.hive_sync.mode",
    ("hms", "glue", "jdbc", "hiveql"),
    "hms",
    "how the catalog is reached: hms is the metastore's own protocol, glue AWS Glue; HiveServer2 (jdbc, hiveql) is not supported",
)
HIVE_TOOL = "org.apache.hudi.hive.HiveSyncTool"
GLUE_TOOL = "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"
TOOLS = Option(
    "hoodie.meta.sync.client.tool.class",
    str,
    HIVE_TOOL,
    f"catalogs in which the table is registered: {HIVE_TOOL}, {GLUE_TOOL}, or both, comma-separated",
)
METASTORE_URIS = Option(
    "hoodie.datasource.hive_sync.metastore.uris",
    str,
    "thrift://localhost:9083",
    "Hive metastores, thrift://host:port, comma-separated: the first that responds is used",
)
DATABASE = Option(
    "hoodie.datasource.hive_sync.database", str, None, "the catalog's database; unset: hoodie.database.name, or default"
)
TABLE = Option("hoodie.datasource.hive_sync.table", str, None, "the table's name in the catalog; unset: hoodie.table.name")
PARTITION_FIELDS = Option(
    "hoodie.datasource.hive_sync.partition_fields", str, None, "the catalog's partition columns; unset: those of the table"
)
EXTRACTOR = Option(
    "hoodie.datasource.hive_sync.partition_extractor_class",
    str,
    None,
    "how partition values are read from paths: a class of Hudi; unset: by the number of partition columns and their style",
)
STRATEGY = Option(
    "hoodie.datasource.hive_sync.table.strategy",
    ("ALL", "RO", "RT"),
    "ALL",
    "which views of a merge-on-read table are registered: the read-optimized, the real-time one, or both",
)
SKIP_SUFFIX = Option(
    "hoodie.datasource.hive_sync.skip_ro_suffix", bool, "false", "the read-optimized view has the table's name, without _ro"
)
SNAPSHOT_NAME = Option(
    "hoodie.meta.sync.sync_snapshot_with_table_name",
    bool,
    "true",
    "the real-time view of a merge-on-read table is also registered under the table's name",
)
INCREMENTAL = Option(
    "hoodie.meta.sync.incremental",
    bool,
    "true",
    "only partitions of writes since the last sync are compared; false compares all of them",
)
_TABLE_PROPERTIES = Option(
    "hoodie.datasource.hive_sync.table_properties", str, None, "further parameters of the catalog's table: lines of key=value"
)
_SERDE_PROPERTIES = Option(
    "hoodie.datasource.hive_sync.serde_properties", str, None, "further parameters of its serde: lines of key=value"
)
RECREATE = Option(
    "hoodie.datasource.hive_sync.recreate_table_on_error",
    bool,
    "false",
    "a table that the catalog refuses to change, such as one with changed column types, is dropped there and created again",
)


class CatalogKind(StrEnum):
    """A type of catalog."""

    HIVE = "hive"
    GLUE = "glue"


@dataclass(frozen=True, slots=True)
class GlueSettings:
    """Connection settings of AWS Glue; ``skip_archive`` keeps no old versions of a table there."""

    region: Annotated[
        str | None, Option("hoodie.aws.glue.region", str, None, "region of AWS Glue; unset: that of the machine's configuration")
    ] = None
    endpoint: Annotated[str | None, Option("hoodie.aws.glue.endpoint", str, None, "endpoint of AWS Glue, if not Amazon's")] = None
    catalog_id: Annotated[
        str | None,
        Option("hoodie.datasource.meta.sync.glue.catalogId", str, None, "account of the catalog; unset: the caller's"),
    ] = None
    skip_archive: Annotated[
        bool,
        Option(
            "hoodie.datasource.meta.sync.glue.skip_table_archive",
            bool,
            "true",
            "changes of the table keep no old versions of it in Glue, which limits their number",
        ),
    ] = True
    lists_by_metadata: Annotated[
        bool,
        Option(
            "hoodie.datasource.meta.sync.glue.metadata_file_listing",
            bool,
            "false",
            "readers such as Athena list files with the metadata table",
        ),
    ] = False
    access_key: Annotated[str | None, ACCESS_KEY] = field(default=None, repr=False)
    secret_key: Annotated[str | None, SECRET_KEY] = field(default=None, repr=False)
    session_token: Annotated[str | None, SESSION_TOKEN] = field(default=None, repr=False)

    @classmethod
    def of(cls, options: Options) -> GlueSettings:
        """Build the settings from checked options."""
        return read_settings(cls, options)


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

    kinds: Annotated[tuple[CatalogKind, ...], TOOLS, HIVE_SYNC, MODE]
    glue: GlueSettings
    uris: Annotated[tuple[str, ...], METASTORE_URIS]
    database: Annotated[str | None, DATABASE]
    table: Annotated[str | None, TABLE]
    partition_fields: Annotated[tuple[str, ...] | None, PARTITION_FIELDS]
    extractor: Annotated[str | None, EXTRACTOR]
    strategy: Annotated[str, STRATEGY]
    skip_ro_suffix: Annotated[bool, SKIP_SUFFIX]
    snapshot_by_name: Annotated[bool, SNAPSHOT_NAME]
    incremental: Annotated[bool, INCREMENTAL]
    table_properties: Annotated[tuple[tuple[str, str], ...], _TABLE_PROPERTIES]
    serde_properties: Annotated[tuple[tuple[str, str], ...], _SERDE_PROPERTIES]
    recreate: Annotated[bool, RECREATE]
    creates_database: Annotated[
        bool,
        Option("hoodie.datasource.hive_sync.auto_create_database", bool, "true", "the database is created if it does not exist"),
    ]
    for_spark: Annotated[
        bool,
        Option(
            "hoodie.datasource.hive_sync.sync_as_datasource",
            bool,
            "true",
            "the catalog entry stores what Spark needs to read the table with its Hudi data source",
        ),
    ]
    timestamps: Annotated[
        bool,
        Option(
            "hoodie.datasource.hive_sync.support_timestamp",
            bool,
            "false",
            "timestamps have Hive's type, not long values as by default",
        ),
    ]
    omits_meta_columns: Annotated[
        bool,
        Option("hoodie.datasource.hive_sync.omit_metadata_fields", bool, "false", "the catalog entry omits the _hoodie_ columns"),
    ]
    managed: Annotated[
        bool,
        Option(
            "hoodie.datasource.hive_sync.create_managed_table",
            bool,
            "false",
            "the catalog's table is managed: dropping it there deletes the files",
        ),
    ]
    batch: Annotated[
        int, Option("hoodie.datasource.hive_sync.batch_num", int, "1000", "partitions in one request to the catalog", at_least=1)
    ]
    comments: Annotated[
        bool, Option("hoodie.datasource.hive_sync.sync_comment", bool, "false", "comments of columns are synced too")
    ]
    schema_part_length: Annotated[
        int,
        Option(
            "hoodie.datasource.hive_sync.schema_string_length_thresh",
            int,
            "4000",
            "characters of Spark's schema per parameter of the catalog entry",
            at_least=1,
        ),
    ]
    without_partitions: Annotated[
        bool, Option("hoodie.meta.sync.no_partition_metadata", bool, "false", "partitions are not synced")
    ]
    conditional: Annotated[
        bool,
        Option(
            "hoodie.datasource.meta_sync.condition.sync",
            bool,
            "false",
            "the catalog is updated after a write only if columns or partitions changed",
        ),
    ]
    spark_version: Annotated[
        str | None,
        Option("hoodie.meta_sync.spark.version", str, None, "release of Spark that the catalog entry names as its creator"),
    ]
    ignore_errors: Annotated[
        bool,
        Option(
            "hoodie.datasource.hive_sync.ignore_exceptions",
            bool,
            "false",
            "a sync that fails after a commit is recorded in the result; otherwise the write raises, and its commit is valid",
        ),
    ]

    @classmethod
    def of(cls, options: Options) -> SyncSettings:
        """Build the settings from checked options. Raises Unsupported for HiveServer2, InvalidRequest for an unknown
        tool.
        """
        return read_settings(
            cls,
            options,
            kinds=_kinds(options),
            table_properties=_lines(options, _TABLE_PROPERTIES),
            serde_properties=_lines(options, _SERDE_PROPERTIES),
        )

    @classmethod
    def after_writes(cls, options: Options) -> SyncSettings | None:
        """Return the settings of the sync that follows a write; None if the options request none."""
        return cls.of(options) if options.flag(META_SYNC) or options.flag(HIVE_SYNC) else None


def with_names(
    options: Mapping[str, object] | None, *, metastore: str | None, database: str | None, table: str | None
) -> Mapping[str, object] | None:
    """Merge the arguments of a call into its options. Raises InvalidRequest for contradictory values."""
    named = {METASTORE_URIS: metastore, DATABASE: database, TABLE: table}
    merged = dict(options or {})
    for option, value in named.items():
        if value is not None and str(merged.setdefault(option.key, value)) != value:
            raise InvalidRequest(f"the argument {value!r} contradicts option {option}={merged[option.key]}")
    return merged


def _kinds(options: Options) -> tuple[CatalogKind, ...]:
    mode = options.value_or_default(MODE)
    if mode in ("jdbc", "hiveql"):
        raise Unsupported(
            f"{MODE}={mode} is not supported: HiveServer2 is not available; use hms, with the metastore in "
            f"{METASTORE_URIS}, or glue"
        )
    tools = [HIVE_TOOL] if options.flag(HIVE_SYNC) else []
    tools += options.names(TOOLS) if options.explicit(TOOLS) is not None or not tools else ()
    kinds = []
    for name in tools:
        if name not in _OF_TOOL:
            raise InvalidRequest(f"{TOOLS}={name} is not supported; use one of {', '.join(_OF_TOOL)}")
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
