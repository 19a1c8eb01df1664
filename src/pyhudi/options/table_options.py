"""Table properties, and the options that set them at creation.

A property of `hoodie.properties` is the option of its name, or of the name of Hudi's write option. Config parsing, table
creation, the comparison of options with a table, upgrades and the recovery of lost properties take the names from here.
"""

from __future__ import annotations

from pyhudi.options.declaration import OLDEST_VERSION, Option

_FIXED_MEANING = "a property that cannot be chosen; if set, it must equal the table's value"

STRATEGY_ALIAS = "hoodie.compaction.record.merger.strategy"
"""The property of the strategy id in releases before 1.0."""
ORDERING_FIELDS = "hoodie.table.ordering.fields"
"""The property of the ordering fields in version 9, where there may be several; see `TableVersion.has_ordering_fields`."""
MERGE_PROPERTY = "hoodie.record.merge.property."
"""Prefix of the merge properties of tables with merge modes."""
OPTION_PREFIX = "pyhudi.table.options."
DEFAULT_PREFIX = "pyhudi.table.defaults."
CONSTRAINT_PREFIX = "pyhudi.table.constraints."
USER_PREFIX = "pyhudi.table.properties."
STORED_PREFIXES = (OPTION_PREFIX, DEFAULT_PREFIX, USER_PREFIX)
"""Prefixes of stored settings, see `operations.admin.stored_settings`."""
SCHEMA_ON_READ = "hoodie.schema.on.read.enable"
"""Hudi's switch of a schema history with column ids; PyHudi follows the history wherever a table has one."""
TIME_PREFIXES = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
"""Prefixes of the options of timestamp key generators: that of the properties, and an older one."""


def _stored(
    key: str,
    kind: type | tuple[str, ...],
    default: str | None,
    description: str,
    *,
    option: str = "",
    aliases: tuple[str, ...] = (),
    since: int = OLDEST_VERSION,
) -> Option:
    """An option that is stored as the property ``key``. option: its name, if that differs."""
    names = (key, *aliases) if option else aliases
    return Option(option or key, kind, default, description, aliases=names, stored_as=key, since=since, origin="table")


def _fixed(key: str, kind: type | tuple[str, ...], default: str | None, *aliases: str, since: int = OLDEST_VERSION) -> Option:
    return Option(key, kind, default, _FIXED_MEANING, aliases=aliases, stored_as=key, fixed=True, since=since, origin="table")


NAME = _stored(
    "hoodie.table.name", str, None, "the table's name; unset: that of its folder", aliases=("hoodie.datasource.write.table.name",)
)
DATABASE = _stored("hoodie.database.name", str, None, "database of the table")
VERSION = _stored("hoodie.table.version", ("8", "9"), "8", "version of the table", option="hoodie.write.table.version")
TABLE_TYPE = _stored(
    "hoodie.table.type",
    ("COPY_ON_WRITE", "MERGE_ON_READ"),
    None,
    "copy-on-write or merge-on-read; unset: copy-on-write",
    option="hoodie.datasource.write.table.type",
    aliases=("hoodie.datasource.write.storage.type", "type"),
)
RECORD_KEY_FIELDS = _stored(
    "hoodie.table.recordkey.fields",
    str,
    None,
    "columns that identify a record; unset: keys are generated",
    option="hoodie.datasource.write.recordkey.field",
    aliases=("primaryKey",),
)
PARTITION_FIELDS = _stored(
    "hoodie.table.partition.fields",
    str,
    None,
    "columns that determine a record's partition",
    option="hoodie.datasource.write.partitionpath.field",
)
ORDERING = _stored(
    "hoodie.table.precombine.field",
    str,
    None,
    "column whose larger value marks the newer record; in a table of version 9 several, comma-separated",
    option="hoodie.datasource.write.precombine.field",
    aliases=(ORDERING_FIELDS, "preCombineField", "orderingFields"),
)
GENERATOR_CLASS = _stored(
    "hoodie.table.keygenerator.class",
    str,
    None,
    "class that generates keys and partition paths; unset: by the columns",
    option="hoodie.datasource.write.keygenerator.class",
)
GENERATOR_TYPE = _stored(
    "hoodie.table.keygenerator.type",
    str,
    None,
    "the key generator by its short name",
    option="hoodie.datasource.write.keygenerator.type",
    since=8,
)
CONSISTENT_TIMESTAMPS = _stored(
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled",
    bool,
    "false",
    "timestamps in keys are formatted as dates and times",
)
HIVE_STYLE = _stored("hoodie.datasource.write.hive_style_partitioning", bool, "false", "partition paths are column=value")
SLASH_DATES = _stored(
    "hoodie.datasource.write.slash.separated.date.partitioning",
    bool,
    "false",
    "the partition path is the value of the one partition column with a slash for each dash: 2024/03/15",
)
URL_ENCODE = _stored(
    "hoodie.datasource.write.partitionpath.urlencode", bool, "false", "values in partition paths are URL-encoded"
)
PAYLOAD = _stored(
    "hoodie.compaction.payload.class",
    str,
    None,
    "payload class that merges records, unless a merge mode does; in version 9 the equivalent merge modes replace eight of them",
    option="hoodie.datasource.write.payload.class",
)
MERGE_MODE = _stored(
    "hoodie.record.merge.mode",
    str,
    None,
    "which of two records of one key wins; unset: by event time where there is an ordering column, else by commit time",
    option="hoodie.write.record.merge.mode",
    since=8,
)
STRATEGY_ID = _stored(
    "hoodie.record.merge.strategy.id",
    str,
    None,
    "id of a registered merger, for the merge mode CUSTOM",
    option="hoodie.write.record.merge.strategy.id",
    aliases=("hoodie.datasource.write.record.merger.strategy", STRATEGY_ALIAS),
    since=8,
)
META_COLUMNS = _stored("hoodie.populate.meta.fields", bool, "true", "records have the _hoodie_ columns")
TIME_ZONE = _stored("hoodie.table.timeline.timezone", ("LOCAL", "UTC"), "LOCAL", "time zone of instant times")
OMIT = _stored(
    "hoodie.datasource.write.drop.partition.columns",
    bool,
    "false",
    "files of a copy-on-write table omit the partition columns, which are read from the path as text (or "
    "as the type that the table was created with)",
)
BASE_FORMAT = _stored(
    "hoodie.table.base.file.format",
    ("PARQUET", "ORC", "HFILE"),
    "PARQUET",
    "format of the base files; HFILE is not supported",
    aliases=("hoodie.table.ro.file.format",),
)
SEVERAL_FORMATS = _stored(
    "hoodie.table.multiple.base.file.formats.enable",
    bool,
    "false",
    "writes and services choose the format of new base files with hoodie.base.file.format",
)
CHANGES = _stored("hoodie.table.cdc.enabled", bool, "false", "writes record every change (CDC)")
CHANGES_MODE = _stored(
    "hoodie.table.cdc.supplemental.logging.mode",
    ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"),
    "DATA_BEFORE_AFTER",
    "what the writes of a table with hoodie.table.cdc.enabled record of a change",
)

LOG_FORMAT = _fixed("hoodie.table.log.file.format", ("HOODIE_LOG",), "HOODIE_LOG", "hoodie.table.rt.file.format")
METAFILE_AS_BASE = _fixed("hoodie.partition.metafile.use.base.format", bool, "false")
CREATE_SCHEMA = _fixed("hoodie.table.create.schema", str, None)
INITIAL_VERSION = _fixed("hoodie.table.initial.version", str, "8", since=8)
CHECKSUM = _fixed("hoodie.table.checksum", str, None)
LAYOUT = _fixed("hoodie.timeline.layout.version", str, "2")
TIMELINE_PATH = _fixed("hoodie.timeline.path", str, "timeline", since=8)
HISTORY_PATH = _fixed("hoodie.timeline.history.path", str, "history", since=8)
ARCHIVE_FOLDER = _fixed("hoodie.archivelog.folder", str, "history")
METADATA_PARTITIONS = _fixed("hoodie.table.metadata.partitions", str, None)
METADATA_INFLIGHT = _fixed("hoodie.table.metadata.partitions.inflight", str, None)
INDEX_DEFINITIONS_PATH = _fixed("hoodie.table.index.defs.path", str, None, since=8)
SECONDARY_INDEXES = _fixed("hoodie.table.secondary.indexes.metadata", str, None)
BOOTSTRAP_INDEX = _fixed("hoodie.bootstrap.index.enable", bool, "true")
BOOTSTRAP_BASE_PATH = _fixed("hoodie.bootstrap.base.path", str, None)
BOOTSTRAP_INDEX_TYPE = _fixed("hoodie.bootstrap.index.type", str, None)
BOOTSTRAP_INDEX_CLASS = _fixed("hoodie.bootstrap.index.class", str, None)
DATETIME_PARSER = _fixed("hoodie.keygen.datetime.parser.class", str, None)
FORMAT = _fixed("hoodie.table.format", str, "native", since=9)
STORAGE_LAYOUT = _fixed("hoodie.table.storage.layout", str, None, since=9)
UPDATE_MODE = _fixed("hoodie.table.partial.update.mode", str, None, since=9)
LEGACY_PAYLOAD = _fixed("hoodie.table.legacy.payload.class", str, None, since=9)
PARTITION_EXTRACTOR = _fixed("hoodie.table.partition_extractor_class", str, None, since=9)

FIXED = (
    *(LOG_FORMAT, METAFILE_AS_BASE, CREATE_SCHEMA, INITIAL_VERSION, CHECKSUM, LAYOUT, TIMELINE_PATH, HISTORY_PATH),
    *(ARCHIVE_FOLDER, METADATA_PARTITIONS, METADATA_INFLIGHT, INDEX_DEFINITIONS_PATH, SECONDARY_INDEXES, BOOTSTRAP_INDEX),
    *(BOOTSTRAP_BASE_PATH, BOOTSTRAP_INDEX_TYPE, BOOTSTRAP_INDEX_CLASS, DATETIME_PARSER, FORMAT, UPDATE_MODE, LEGACY_PAYLOAD),
    *(PARTITION_EXTRACTOR, STORAGE_LAYOUT),
)
"""Properties that cannot be chosen: a new table has the values that PyHudi writes."""

FOLDERS = {option.stored_as: str(option.default) for option in (TIMELINE_PATH, HISTORY_PATH, ARCHIVE_FOLDER)}
"""Names of the folders of the timeline and the history, in tables whose timeline has its own folder."""

FORCE = Option(
    "pyhudi.create.force",
    bool,
    "false",
    "create a table in a folder that contains another table, or data files of other programs",
)
STORED_OPTIONS = Option(
    "pyhudi.stored.options",
    ("safe", "trusted", "none"),
    "safe",
    "which options that the table stores are used: those of origin table; all of them, as if the caller had passed them; or none",
)
WITHOUT_ZONE = Option(
    "pyhudi.timestamps.without.zone",
    ("refuse", "utc", "local"),
    None,
    "timestamps without a zone: refused, instants in UTC, or columns without one; unset: local in table version 9, else refuse",
    operations=("upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table", "delete"),
    origin="table",
)
