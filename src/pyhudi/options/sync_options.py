"""Options of catalog sync."""

from __future__ import annotations

from pyhudi.options.declaration import Option

READ_OPTIMIZED_PROPERTY = "hoodie.query.as.ro.table"
"""Property of catalog entries: a query reads base files only."""

META_SYNC = Option(
    "hoodie.datasource.meta.sync.enable",
    bool,
    "false",
    "a write registers the table in the catalogs of hoodie.meta.sync.client.tool.class",
)
HIVE_SYNC = Option("hoodie.datasource.hive_sync.enable", bool, "false", "a write registers the table in a Hive metastore")
HIVE_MODE = Option(
    "hoodie.datasource.hive_sync.mode",
    ("hms", "glue", "jdbc", "hiveql"),
    "hms",
    "how the catalog is reached: hms is the metastore's own protocol, glue AWS Glue; HiveServer2 (jdbc, hiveql) is not supported",
)
CLIENT_TOOL_CLASS = Option(
    "hoodie.meta.sync.client.tool.class",
    str,
    "org.apache.hudi.hive.HiveSyncTool",
    "catalogs in which the table is registered: org.apache.hudi.hive.HiveSyncTool, "
    "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool, or both, comma-separated",
)
HIVE_METASTORE_URIS = Option(
    "hoodie.datasource.hive_sync.metastore.uris",
    str,
    "thrift://localhost:9083",
    "Hive metastores, thrift://host:port, comma-separated: the first that responds is used",
)
HIVE_DATABASE = Option(
    "hoodie.datasource.hive_sync.database", str, None, "the catalog's database; unset: hoodie.database.name, or default"
)
HIVE_TABLE = Option("hoodie.datasource.hive_sync.table", str, None, "the table's name in the catalog; unset: hoodie.table.name")
HIVE_PARTITION_FIELDS = Option(
    "hoodie.datasource.hive_sync.partition_fields", str, None, "the catalog's partition columns; unset: those of the table"
)
HIVE_PARTITION_EXTRACTOR_CLASS = Option(
    "hoodie.datasource.hive_sync.partition_extractor_class",
    str,
    None,
    "how partition values are read from paths: a class of Hudi; unset: by the number of partition columns and their style",
)
HIVE_TABLE_STRATEGY = Option(
    "hoodie.datasource.hive_sync.table.strategy",
    ("ALL", "RO", "RT"),
    "ALL",
    "which views of a merge-on-read table are registered: the read-optimized, the real-time one, or both",
)
HIVE_SKIP_RO_SUFFIX = Option(
    "hoodie.datasource.hive_sync.skip_ro_suffix", bool, "false", "the read-optimized view has the table's name, without _ro"
)
SYNC_SNAPSHOT_WITH_TABLE_NAME = Option(
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
HIVE_TABLE_PROPERTIES = Option(
    "hoodie.datasource.hive_sync.table_properties", str, None, "further parameters of the catalog's table: lines of key=value"
)
HIVE_SERDE_PROPERTIES = Option(
    "hoodie.datasource.hive_sync.serde_properties", str, None, "further parameters of its serde: lines of key=value"
)
HIVE_RECREATE_TABLE_ON_ERROR = Option(
    "hoodie.datasource.hive_sync.recreate_table_on_error",
    bool,
    "false",
    "a table that the catalog refuses to change, such as one with changed column types, is dropped there and created again",
)
AWS_GLUE_REGION = Option("hoodie.aws.glue.region", str, None, "region of AWS Glue; unset: that of the machine's configuration")
AWS_GLUE_ENDPOINT = Option("hoodie.aws.glue.endpoint", str, None, "endpoint of AWS Glue, if not Amazon's")
GLUE_CATALOG_ID = Option("hoodie.datasource.meta.sync.glue.catalogId", str, None, "account of the catalog; unset: the caller's")
GLUE_SKIP_TABLE_ARCHIVE = Option(
    "hoodie.datasource.meta.sync.glue.skip_table_archive",
    bool,
    "true",
    "changes of the table keep no old versions of it in Glue, which limits their number",
)
GLUE_METADATA_FILE_LISTING = Option(
    "hoodie.datasource.meta.sync.glue.metadata_file_listing",
    bool,
    "false",
    "readers such as Athena list files with the metadata table",
)
HIVE_AUTO_CREATE_DATABASE = Option(
    "hoodie.datasource.hive_sync.auto_create_database", bool, "true", "the database is created if it does not exist"
)
HIVE_SYNC_AS_DATASOURCE = Option(
    "hoodie.datasource.hive_sync.sync_as_datasource",
    bool,
    "true",
    "the catalog entry stores what Spark needs to read the table with its Hudi data source",
)
HIVE_SUPPORT_TIMESTAMP = Option(
    "hoodie.datasource.hive_sync.support_timestamp", bool, "false", "timestamps have Hive's type, not long values as by default"
)
HIVE_OMIT_METADATA_FIELDS = Option(
    "hoodie.datasource.hive_sync.omit_metadata_fields", bool, "false", "the catalog entry omits the _hoodie_ columns"
)
HIVE_CREATE_MANAGED_TABLE = Option(
    "hoodie.datasource.hive_sync.create_managed_table",
    bool,
    "false",
    "the catalog's table is managed: dropping it there deletes the files",
)
HIVE_BATCH_NUM = Option(
    "hoodie.datasource.hive_sync.batch_num", int, "1000", "partitions in one request to the catalog", at_least=1
)
HIVE_SYNC_COMMENT = Option("hoodie.datasource.hive_sync.sync_comment", bool, "false", "comments of columns are synced too")
HIVE_SCHEMA_STRING_LENGTH_THRESH = Option(
    "hoodie.datasource.hive_sync.schema_string_length_thresh",
    int,
    "4000",
    "characters of Spark's schema per parameter of the catalog entry",
    at_least=1,
)
NO_PARTITION_METADATA = Option("hoodie.meta.sync.no_partition_metadata", bool, "false", "partitions are not synced")
CONDITION_SYNC = Option(
    "hoodie.datasource.meta_sync.condition.sync",
    bool,
    "false",
    "the catalog is updated after a write only if columns or partitions changed",
)
SPARK_VERSION = Option(
    "hoodie.meta_sync.spark.version", str, None, "release of Spark that the catalog entry names as its creator"
)
HIVE_IGNORE_EXCEPTIONS = Option(
    "hoodie.datasource.hive_sync.ignore_exceptions",
    bool,
    "false",
    "a sync that fails after a commit is recorded in the result; otherwise the write raises, and its commit is valid",
)
