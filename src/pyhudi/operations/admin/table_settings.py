"""Options that define a table and are stored in `hoodie.properties`.

Source: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.names import BASE_EXTENSIONS
from pyhudi.format.table_versions import TableVersion, parse_table_version
from pyhudi.operations.commit.commit_settings import DELETE_FIELD, DELETE_MARKER, delete_marker_setting
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.records.keys.key_spec import CONSISTENT_TIMESTAMPS, SLASH_DATES, KeySpec
from pyhudi.records.keys.timestamp_key_rule import TIME_PREFIXES, TimeRule
from pyhudi.records.merge_mode import MergeMode, MergeSettings, infer_merge_settings, infer_modes
from pyhudi.records.timestamp_coercion import ZONE_OPTION, ZonelessTimestamps
from pyhudi.table.table_config import (
    FORMAT,
    NATIVE,
    OMIT_COLUMNS,
    ORDERING_FIELDS,
    PRECOMBINE_FIELD,
    SEVERAL_FORMATS,
    TableType,
)
from pyhudi.tasks.base_file_writer import WRITE_FORMAT

_TABLE_TYPES = {"cow": TableType.COPY_ON_WRITE, "mor": TableType.MERGE_ON_READ}

NAME = Option("hoodie.table.name", str, None, "the table's name; unset: that of its folder", stored_as="hoodie.table.name")
TABLE_TYPE = Option(
    "hoodie.datasource.write.table.type",
    ("COPY_ON_WRITE", "MERGE_ON_READ"),
    None,
    "copy-on-write or merge-on-read; unset: copy-on-write",
    aliases=("hoodie.table.type", "type"),
    stored_as="hoodie.table.type",
)
RECORD_KEY_FIELDS = Option(
    "hoodie.datasource.write.recordkey.field",
    str,
    None,
    "columns that identify a record; unset: keys are generated",
    aliases=("hoodie.table.recordkey.fields", "primaryKey"),
    stored_as="hoodie.table.recordkey.fields",
)
PARTITION_FIELDS = Option(
    "hoodie.datasource.write.partitionpath.field",
    str,
    None,
    "columns that determine a record's partition",
    aliases=("hoodie.table.partition.fields",),
    stored_as="hoodie.table.partition.fields",
)
ORDERING = Option(
    "hoodie.datasource.write.precombine.field",
    str,
    None,
    "column whose larger value marks the newer record; in a table of version 9 several, comma-separated",
    aliases=(PRECOMBINE_FIELD, ORDERING_FIELDS, "preCombineField", "orderingFields"),
    stored_as=PRECOMBINE_FIELD,
)
GENERATOR_CLASS = Option(
    "hoodie.datasource.write.keygenerator.class",
    str,
    None,
    "class that generates keys and partition paths; unset: by the columns",
    aliases=("hoodie.table.keygenerator.class",),
)
GENERATOR_TYPE = Option(
    "hoodie.datasource.write.keygenerator.type",
    str,
    None,
    "the key generator by its short name",
    aliases=("hoodie.table.keygenerator.type",),
)
_CONSISTENT = Option(
    CONSISTENT_TIMESTAMPS, bool, "false", "timestamps in keys are formatted as dates and times", stored_as=CONSISTENT_TIMESTAMPS
)
_HIVE_STYLE = Option(
    "hoodie.datasource.write.hive_style_partitioning",
    bool,
    "false",
    "partition paths are column=value",
    stored_as="hoodie.datasource.write.hive_style_partitioning",
)
_SLASH_DATES = Option(
    SLASH_DATES,
    bool,
    "false",
    "the partition path is the value of the one partition column with a slash for each dash: 2024/03/15",
    stored_as=SLASH_DATES,
)
_URL_ENCODE = Option(
    "hoodie.datasource.write.partitionpath.urlencode",
    bool,
    "false",
    "values in partition paths are URL-encoded",
    stored_as="hoodie.datasource.write.partitionpath.urlencode",
)
_PAYLOAD = Option(
    "hoodie.datasource.write.payload.class",
    str,
    None,
    "payload class that merges records, unless a merge mode does; in version 9 the equivalent merge modes replace eight of them",
    aliases=("hoodie.compaction.payload.class",),
    stored_as="hoodie.compaction.payload.class",
)
MERGE_MODE = Option(
    "hoodie.write.record.merge.mode",
    str,
    None,
    "which of two records of one key wins; unset: by event time where there is an ordering column, else by commit time",
    aliases=("hoodie.record.merge.mode",),
    stored_as="hoodie.record.merge.mode",
)
_STRATEGY_ID = Option(
    "hoodie.write.record.merge.strategy.id",
    str,
    None,
    "id of a registered merger, for the merge mode CUSTOM",
    aliases=(
        "hoodie.record.merge.strategy.id",
        "hoodie.datasource.write.record.merger.strategy",
        "hoodie.compaction.record.merger.strategy",
    ),
    stored_as="hoodie.record.merge.strategy.id",
)
VERSION = Option(
    "hoodie.write.table.version",
    ("8", "9"),
    "8",
    "version of the table",
    aliases=("hoodie.table.version",),
    stored_as="hoodie.table.version",
)
_TIME_ZONE = Option(
    "hoodie.table.timeline.timezone",
    ("LOCAL", "UTC"),
    "LOCAL",
    "time zone of instant times",
    stored_as="hoodie.table.timeline.timezone",
)
OMIT = Option(
    OMIT_COLUMNS,
    bool,
    "false",
    "files of a copy-on-write table omit the partition columns, which are read from the path as text (or "
    "as the type that the table was created with)",
    stored_as=OMIT_COLUMNS,
)
BASE_FORMAT = Option(
    "hoodie.table.base.file.format",
    ("PARQUET", "ORC", "HFILE"),
    "PARQUET",
    "format of the base files; HFILE is not supported",
    aliases=("hoodie.table.ro.file.format",),
    stored_as="hoodie.table.base.file.format",
)
_SEVERAL_FORMATS = Option(
    SEVERAL_FORMATS,
    bool,
    "false",
    "writes and services choose the format of new base files with hoodie.base.file.format",
    stored_as=SEVERAL_FORMATS,
)
_CHANGES = Option(
    "hoodie.table.cdc.enabled", bool, "false", "writes record every change (CDC)", stored_as="hoodie.table.cdc.enabled"
)
CHANGES_MODE = Option(
    "hoodie.table.cdc.supplemental.logging.mode",
    ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"),
    "DATA_BEFORE_AFTER",
    "what the writes of a table with hoodie.table.cdc.enabled record of a change",
    stored_as="hoodie.table.cdc.supplemental.logging.mode",
)


def _fixed(key: str, kind: type | tuple[str, ...], default: str | None, *aliases: str) -> Option:
    meaning = "a property that cannot be chosen; if set, it must equal the table's value"
    return Option(key, kind, default, meaning, aliases=aliases, stored_as=key, fixed=True)


BOOTSTRAP_BASE_PATH = _fixed("hoodie.bootstrap.base.path", str, None)
BOOTSTRAP_INDEX_TYPE = _fixed("hoodie.bootstrap.index.type", str, None)
"""Property of bootstrapped tables, see `features.bootstrap.bootstrap_operation`."""

_FIXED = (
    _fixed("hoodie.table.log.file.format", ("HOODIE_LOG",), "HOODIE_LOG", "hoodie.table.rt.file.format"),
    _fixed("hoodie.partition.metafile.use.base.format", bool, "false"),
    _fixed("hoodie.table.create.schema", str, None),
    _fixed("hoodie.table.initial.version", str, "8"),
    _fixed("hoodie.table.checksum", str, None),
    _fixed("hoodie.timeline.layout.version", str, "2"),
    _fixed("hoodie.timeline.path", str, "timeline"),
    _fixed("hoodie.timeline.history.path", str, "history"),
    _fixed("hoodie.archivelog.folder", str, "history"),
    _fixed("hoodie.table.metadata.partitions", str, None),
    _fixed("hoodie.table.metadata.partitions.inflight", str, None),
    _fixed("hoodie.table.index.defs.path", str, None),
    _fixed("hoodie.table.secondary.indexes.metadata", str, None),
    _fixed("hoodie.bootstrap.index.enable", bool, "true"),
    BOOTSTRAP_BASE_PATH,
    BOOTSTRAP_INDEX_TYPE,
    _fixed("hoodie.bootstrap.index.class", str, None),
    _fixed("hoodie.keygen.datetime.parser.class", str, None),
    _fixed(FORMAT, str, NATIVE),
)

FIXED = tuple(option.key for option in _FIXED)
"""Options for properties that cannot be chosen: a new table has the values that PyHudi writes."""

FORCE = Option(
    "pyhudi.create.force",
    bool,
    "false",
    "create a table in a folder that contains another table, or data files of other programs",
)

WITHOUT_ZONE = Option(
    ZONE_OPTION,
    tuple(ZonelessTimestamps),
    None,
    "timestamps without a zone: refused, instants in UTC, or columns without one; unset: local in table version 9, else refuse",
    verbs=("upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table", "delete"),
)


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Options that define a table: stored in its properties at creation, and compared with them afterwards. ``fixed``
    are options for properties that cannot be chosen, by key.
    """

    name: Annotated[str | None, NAME]
    database: Annotated[
        str | None,
        Option("hoodie.database.name", str, None, "database of the table", stored_as="hoodie.database.name"),
    ]
    version: Annotated[TableVersion, VERSION]
    table_type: Annotated[TableType, TABLE_TYPE]
    keys: Annotated[
        KeySpec,
        RECORD_KEY_FIELDS,
        PARTITION_FIELDS,
        GENERATOR_CLASS,
        GENERATOR_TYPE,
        _CONSISTENT,
        _HIVE_STYLE,
        _SLASH_DATES,
        _URL_ENCODE,
    ]
    merge: Annotated[MergeSettings, MERGE_MODE, _PAYLOAD, _STRATEGY_ID, ORDERING, DELETE_FIELD, DELETE_MARKER]
    populate_meta_fields: Annotated[
        bool,
        Option(
            "hoodie.populate.meta.fields",
            bool,
            "true",
            "records have the _hoodie_ columns",
            stored_as="hoodie.populate.meta.fields",
        ),
    ]
    time_zone: Annotated[str, _TIME_ZONE]
    omits_partition_columns: Annotated[bool, OMIT]
    base_file_format: Annotated[str, BASE_FORMAT, WRITE_FORMAT]
    several_formats: Annotated[bool, _SEVERAL_FORMATS]
    logs_changes: Annotated[bool, _CHANGES]
    changes_mode: Annotated[str, CHANGES_MODE]
    force: Annotated[bool, FORCE]
    fixed: Annotated[tuple[tuple[str, str], ...], *_FIXED]

    @classmethod
    def of(cls, options: Options) -> TableSettings:
        """Build the settings from checked options. Raises InvalidRequest for contradictory settings."""
        version = parse_table_version(options.value_or_default(VERSION))
        merge = _merge_settings(options, version)
        if merge.mode is MergeMode.EVENT_TIME_ORDERING and not merge.ordering:
            raise InvalidRequest(
                f"merge mode {MergeMode.EVENT_TIME_ORDERING} requires an ordering column: set ordering= or "
                f"{ORDERING}, or use {MergeMode.COMMIT_TIME_ORDERING}"
            )
        explicit = ((option.key, options.explicit(option)) for option in _FIXED)
        return read_settings(
            cls,
            options,
            version=version,
            table_type=_table_type(options),
            keys=_key_spec(options),
            merge=merge,
            base_file_format=_base_format(options),
            fixed=tuple((key, value) for key, value in explicit if value is not None),
        )


def zone_mode(explicit_mode: ZonelessTimestamps | None, version: TableVersion) -> ZonelessTimestamps:
    """Return how a table of the version stores timestamps without a zone; ``explicit_mode`` is the caller's choice, or
    None.
    """
    if explicit_mode is not None:
        return explicit_mode
    return ZonelessTimestamps.LOCAL if version.has_local_timestamps else ZonelessTimestamps.REFUSE


def _table_type(options: Options) -> TableType:
    """Return the table type of the options, copy-on-write by default."""
    return TableType(options.text(TABLE_TYPE) or TableType.COPY_ON_WRITE)


def parse_table_type(text: str) -> str:
    """Convert `cow`, `mor` or Hudi's name to Hudi's name."""
    lowered = text.strip().lower()
    if lowered in _TABLE_TYPES:
        return str(_TABLE_TYPES[lowered])
    try:
        return str(TableType(text.strip().upper()))
    except ValueError:
        raise InvalidRequest(f"table type {text!r} is neither cow nor mor") from None


def _base_format(options: Options) -> str:
    """Return the base file format of a new table. Raises InvalidRequest if both options differ and only one format is
    allowed.
    """
    table, write = options.text(BASE_FORMAT), options.text(WRITE_FORMAT)
    named = options.explicit(BASE_FORMAT) is not None
    if write is None or (named and options.flag(_SEVERAL_FORMATS)):
        return str(table)
    if named and table != write:
        raise InvalidRequest(
            f"option {BASE_FORMAT}={table} contradicts {WRITE_FORMAT}={write}; several base file formats in one "
            f"table require {SEVERAL_FORMATS}=true"
        )
    return write


def check_base_format(form: str) -> None:
    """Raise Unsupported for a base file format that PyHudi does not write."""
    if form not in BASE_EXTENSIONS:
        raise Unsupported(f"{BASE_FORMAT}={form} is not supported: new tables have base files in {' or '.join(BASE_EXTENSIONS)}")


def _merge_settings(options: Options, version: TableVersion) -> MergeSettings:
    ordering = tuple(options.names(ORDERING))
    mode, payload, strategy = options.text(MERGE_MODE), options.text(_PAYLOAD), options.text(_STRATEGY_ID)
    if version.merges_by_modes:
        marker = delete_marker_setting(options, combines_with_flag=True)
        return infer_modes(
            mode=mode,
            payload_class=payload,
            strategy_id=strategy,
            ordering=ordering,
            marker=None if marker is None else (marker.field, marker.text),
        )
    if len(ordering) > 1:
        raise InvalidRequest(
            f"a table of version {int(version)} has one ordering field, not several ({','.join(ordering)}); use version 9"
        )
    field = ordering[0] if ordering else None
    return infer_merge_settings(mode=mode, payload_class=payload, strategy_id=strategy, ordering_field=field)


def _key_spec(options: Options) -> KeySpec:
    generator = options.text(GENERATOR_CLASS) or options.text(GENERATOR_TYPE)
    spec = KeySpec.for_fields(
        options.names(RECORD_KEY_FIELDS),
        options.names(PARTITION_FIELDS),
        generator,
        hive_style=options.flag(_HIVE_STYLE),
        url_encode=options.flag(_URL_ENCODE),
        time=TimeRule.from_properties(options.with_prefix(*TIME_PREFIXES)),
    )
    return replace(spec, consistent_timestamps=options.flag(_CONSISTENT), slash_dates=options.flag(_SLASH_DATES))


def with_table_settings(options: Options, values: Mapping[Option, str | None]) -> Options:
    """Merge keyword arguments into options. Raises InvalidRequest for contradictory values."""
    added: dict[str, str] = {}
    for option, value in values.items():
        if value is None:
            continue
        explicit = options.explicit(option)
        if explicit is not None and explicit.replace(" ", "") != value.replace(" ", ""):
            raise InvalidRequest(f"option {option}={explicit} contradicts the equivalent argument ({value})")
        added[option.key] = value
    return options.merged(added)
