"""Creating a table: options become `hoodie.properties`; and checking that later options agree with it.

Source: docs/formats/timeline.md, "Other files of a table"; docs/formats/writing.md, "Options against the
table".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableExists, Unsupported
from pyhudi.execute.base_file import WRITE_FORMAT
from pyhudi.format.arrow_to_avro import arrow_to_avro, sanitized_name
from pyhudi.format.instants import Action
from pyhudi.format.names import BASE_EXTENSIONS
from pyhudi.format.paths import (
    LOCK_FOLDER,
    META_FOLDER,
    PROPERTIES_BACKUP,
    PROPERTIES_FILE,
    STAGED_FOLDER,
    file_name_of,
)
from pyhudi.format.properties import shown
from pyhudi.format.versions import TableVersion, parse_table_version
from pyhudi.operations.action.settings import DELETE_FIELD, DELETE_MARKER, delete_marker
from pyhudi.records.columns import field_at
from pyhudi.records.keys.spec import CONSISTENT_TIMESTAMPS, KeySpec, parse_key_generator, partition_columns
from pyhudi.records.keys.time_rule import TIME_PREFIXES, TimeRule
from pyhudi.records.merge_mode import MergeMode, MergeSettings, infer_merge_settings, infer_modes
from pyhudi.records.normalise import normalise
from pyhudi.records.zones import ZONE_OPTION, WithoutZone, with_zones
from pyhudi.settings import REGISTRY, Option, Options, options_of, read_settings
from pyhudi.storage.base import Storage
from pyhudi.storage.clock import Environment
from pyhudi.table.closed import check_omission
from pyhudi.table.config import (
    FORMAT,
    NATIVE,
    OMIT_COLUMNS,
    ORDERING_FIELDS,
    PAYLOAD_PROPERTY,
    PRECOMBINE_FIELD,
    SEVERAL_FORMATS,
    TableConfig,
    TableType,
    create_table_files,
    merge_properties,
    mode_properties,
    new_table_config,
)
from pyhudi.table.context import TableContext

_TABLE_TYPES = {"cow": TableType.COPY_ON_WRITE, "mor": TableType.MERGE_ON_READ}


NAME = Option("hoodie.table.name", str, None, "the table's name; unset: that of its folder", stored_as="hoodie.table.name")
TABLE_TYPE = Option(
    "hoodie.datasource.write.table.type",
    ("COPY_ON_WRITE", "MERGE_ON_READ"),
    None,
    "copy on write or merge on read; unset: copy on write",
    aliases=("hoodie.table.type", "type"),
    stored_as="hoodie.table.type",
)
RECORD_KEY_FIELDS = Option(
    "hoodie.datasource.write.recordkey.field",
    str,
    None,
    "columns that name a record; unset: keys are generated",
    aliases=("hoodie.table.recordkey.fields", "primaryKey"),
    stored_as="hoodie.table.recordkey.fields",
)
PARTITION_FIELDS = Option(
    "hoodie.datasource.write.partitionpath.field",
    str,
    None,
    "columns that choose a record's partition",
    aliases=("hoodie.table.partition.fields",),
    stored_as="hoodie.table.partition.fields",
)
ORDERING = Option(
    "hoodie.datasource.write.precombine.field",
    str,
    None,
    "column whose larger value is the newer record; in a table of version 9 several, with commas",
    aliases=(PRECOMBINE_FIELD, ORDERING_FIELDS, "preCombineField", "orderingFields"),
    stored_as=PRECOMBINE_FIELD,
)
_GENERATOR_CLASS = Option(
    "hoodie.datasource.write.keygenerator.class",
    str,
    None,
    "class that makes keys and partition paths; unset: by the columns",
    aliases=("hoodie.table.keygenerator.class",),
)
_GENERATOR_TYPE = Option(
    "hoodie.datasource.write.keygenerator.type",
    str,
    None,
    "the key generator by its short name",
    aliases=("hoodie.table.keygenerator.type",),
)
_CONSISTENT = Option(
    CONSISTENT_TIMESTAMPS, bool, "false", "timestamps in keys are spelled as dates and times", stored_as=CONSISTENT_TIMESTAMPS
)
_HIVE_STYLE = Option(
    "hoodie.datasource.write.hive_style_partitioning",
    bool,
    "false",
    "partition paths are column=value",
    stored_as="hoodie.datasource.write.hive_style_partitioning",
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
    "payload class that merges records, where no merge mode does; in a table of version 9 the modes that eight of them stand for",
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
_VERSION = Option(
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
_OMIT = Option(
    OMIT_COLUMNS,
    bool,
    "false",
    "files of a copy-on-write table lack the partition columns, which are read from the path as text (or as the type that the "
    "table was created with)",
    stored_as=OMIT_COLUMNS,
)
BASE_FORMAT = Option(
    "hoodie.table.base.file.format",
    ("PARQUET", "ORC", "HFILE"),
    "PARQUET",
    "format of the base files; HFILE is refused",
    aliases=("hoodie.table.ro.file.format",),
    stored_as="hoodie.table.base.file.format",
)
_SEVERAL_FORMATS = Option(
    SEVERAL_FORMATS,
    bool,
    "false",
    "writes and services choose the format of the base files that they make, by hoodie.base.file.format",
    stored_as=SEVERAL_FORMATS,
)
_CHANGES = Option(
    "hoodie.table.cdc.enabled", bool, "false", "writes keep every single change", stored_as="hoodie.table.cdc.enabled"
)
_CHANGES_MODE = Option(
    "hoodie.table.cdc.supplemental.logging.mode",
    ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"),
    "DATA_BEFORE_AFTER",
    "what the writes of a table with hoodie.table.cdc.enabled keep of a change",
    stored_as="hoodie.table.cdc.supplemental.logging.mode",
)


def _fixed(key: str, kind: type | tuple[str, ...], default: str | None, *aliases: str) -> Option:
    meaning = "a property that no caller chooses; what is given has to be the table's"
    return Option(key, kind, default, meaning, aliases=aliases, stored_as=key, fixed=True)


BOOTSTRAP_BASE_PATH = _fixed("hoodie.bootstrap.base.path", str, None)
BOOTSTRAP_INDEX_TYPE = _fixed("hoodie.bootstrap.index.type", str, None)
"""What a table has that is made over files outside of it, see `operations.admin.bootstrap`."""

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


WITHOUT_ZONE = Option(
    ZONE_OPTION,
    tuple(WithoutZone),
    None,
    "timestamps without a zone: refused, moments in UTC, or columns without one; unset: local in table version 9, else refuse",
    verbs=("upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table", "delete"),
)


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What a table is, as the options name it: stored in its properties at creation, and compared with them afterwards.

    fixed: what was given of the properties that no caller chooses, by key.
    """

    name: Annotated[str | None, NAME]
    database: Annotated[
        str | None,
        Option("hoodie.database.name", str, None, "the database that the table is in", stored_as="hoodie.database.name"),
    ]
    version: Annotated[TableVersion, _VERSION]
    table_type: Annotated[TableType, TABLE_TYPE]
    keys: Annotated[
        KeySpec,
        RECORD_KEY_FIELDS,
        PARTITION_FIELDS,
        _GENERATOR_CLASS,
        _GENERATOR_TYPE,
        _CONSISTENT,
        _HIVE_STYLE,
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
    omits_partition_columns: Annotated[bool, _OMIT]
    base_file_format: Annotated[str, BASE_FORMAT, WRITE_FORMAT]
    several_formats: Annotated[bool, _SEVERAL_FORMATS]
    keeps_changes: Annotated[bool, _CHANGES]
    changes_mode: Annotated[str, _CHANGES_MODE]
    fixed: Annotated[tuple[tuple[str, str], ...], *_FIXED]

    @classmethod
    def of(cls, options: Options) -> TableSettings:
        """From checked options.  Raises InvalidRequest for settings that contradict each other."""
        version = parse_table_version(options.word(_VERSION))
        merge = _merge_settings(options, version)
        if merge.mode is MergeMode.EVENT_TIME_ORDERING and not merge.ordering:
            raise InvalidRequest(
                f"records merge by event time ({MergeMode.EVENT_TIME_ORDERING}) by the value of an ordering column, and none is "
                f"named: set ordering= or {ORDERING}, or merge by {MergeMode.COMMIT_TIME_ORDERING}"
            )
        given = ((option.key, options.given(option)) for option in _FIXED)
        return read_settings(
            cls,
            options,
            version=version,
            table_type=table_type(options),
            keys=_key_spec(options),
            merge=merge,
            base_file_format=_base_format(options),
            fixed=tuple((key, value) for key, value in given if value is not None),
        )


def zone_mode(named: WithoutZone | None, version: TableVersion) -> WithoutZone:
    """What becomes of timestamps without a zone in a table of the version.  named: what the caller says, None for nothing."""
    if named is not None:
        return named
    return WithoutZone.LOCAL if version.has_local_timestamps else WithoutZone.REFUSE


def stored_columns(options: Options, schema: pa.Schema, version: TableVersion) -> pa.Schema:
    """The columns that a new table of a version has for a schema.  Raises InvalidRequest for what Hudi cannot hold."""
    named = options.text(WITHOUT_ZONE)
    mode = zone_mode(None if named is None else WithoutZone(named), version)
    return normalise(with_zones(schema, None, mode))


def create_table(storage: Storage, env: Environment, options: Options, schema: pa.Schema | None) -> TableConfig:
    """Create a table with the settings that the options name.  schema: its columns, None to take those of the first write.

    Raises TableExists, InvalidRequest for settings that contradict each other or name columns that the schema lacks.
    """
    return create_table_files(storage, new_table_properties(options, schema), env)


def discard_new_table(context: TableContext, wait_ms: int) -> bool:
    """Remove a table that this process has just made for a write which failed, unless somebody writes to it.  Whether it is gone.

    The write took itself back, so that its rollback alone may stand on the timeline.  The table goes with its properties; what a
    crash leaves of it is not a table, and the next creation builds on that.
    """
    with context.locked(wait_ms) as held:
        if any(instant.action is not Action.ROLLBACK or instant.is_pending for instant in held.timeline.load().instants):
            return False
        held.storage.delete([PROPERTIES_FILE, PROPERTIES_BACKUP])
        for folder in held.storage.list(META_FOLDER).folders:
            if folder not in (LOCK_FOLDER, STAGED_FOLDER):
                held.storage.delete_folder(folder)
    return True


def new_table_properties(options: Options, schema: pa.Schema | None) -> dict[str, str]:
    """`hoodie.properties` of a new table."""
    settings = TableSettings.of(options)
    name = settings.name
    if not name:
        raise InvalidRequest(f"a table needs a name: set name= or {NAME}")
    values = {
        "hoodie.table.name": name,
        "hoodie.table.type": str(settings.table_type),
        "hoodie.table.version": str(int(settings.version)),
        "hoodie.table.initial.version": str(int(settings.version)),
        "hoodie.timeline.layout.version": str(int(settings.version.layout)),
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.base.file.format": settings.base_file_format,
        "hoodie.populate.meta.fields": _text(settings.populate_meta_fields),
        _OMIT.key: _text(settings.omits_partition_columns),
        "hoodie.table.cdc.enabled": _text(settings.keeps_changes),
        SEVERAL_FORMATS: _text(settings.several_formats),
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.table.timeline.timezone": settings.time_zone,
        **settings.keys.to_properties(),
        **(mode_properties if settings.version.merges_by_modes else merge_properties)(settings.merge),
    }
    if settings.version.names_format:
        values[FORMAT] = NATIVE
    if settings.database:
        values["hoodie.database.name"] = settings.database
    if settings.merge.ordering:
        values[ORDERING_FIELDS] = ",".join(settings.merge.ordering.fields)
        if not settings.version.has_ordering_fields:
            values[PRECOMBINE_FIELD] = values[ORDERING_FIELDS]
    if settings.keeps_changes:
        values[_CHANGES_MODE.key] = settings.changes_mode
    if schema is not None:
        if not isinstance(schema, pa.Schema):
            raise InvalidRequest(
                f'schema= takes a pyarrow.Schema, such as pa.schema({{"id": pa.int64()}}), not {type(schema).__name__}'
            )
        columns = stored_columns(options, schema, settings.version)
        check_columns(settings.keys, settings.merge.ordering.fields, columns)
        values["hoodie.table.create.schema"] = arrow_to_avro(columns, name)
    check_base_format(settings.base_file_format)
    for key, given in settings.fixed:
        made = values.get(key, REGISTRY[key].default or "")
        if _plain(key, given) != _plain(key, made):
            raise Unsupported(f"option {key}={given} is refused: PyHudi creates tables whose {key} is {made or 'not set'}")
    if settings.omits_partition_columns:
        if settings.table_type is not TableType.COPY_ON_WRITE:
            raise Unsupported(
                f"{OMIT_COLUMNS}=true in a new merge-on-read table: partition columns are left out of copy-on-write tables alone "
                "(the real Hudi passes the option over there)"
            )
        check_omission(new_table_config(values))
    return values


def _base_format(options: Options) -> str:
    """Of the base files of a new table.  Raises InvalidRequest where both options name one, and the table is to have one."""
    table, write = options.text(BASE_FORMAT), options.text(WRITE_FORMAT)
    named = options.given(BASE_FORMAT) is not None
    if write is None or (named and options.flag(_SEVERAL_FORMATS)):
        return str(table)
    if named and table != write:
        raise InvalidRequest(
            f"options {BASE_FORMAT}={table} and {WRITE_FORMAT}={write} disagree; a table has base files of several formats with "
            f"{SEVERAL_FORMATS}=true"
        )
    return write


def check_base_format(form: str) -> None:
    """Raises Unsupported for a format in which no table's base files are."""
    if form not in BASE_EXTENSIONS:
        raise Unsupported(f"{BASE_FORMAT}={form}: tables are made with base files in {' or '.join(BASE_EXTENSIONS)}")


def _text(flag: bool) -> str:
    return "true" if flag else "false"


def table_type(options: Options) -> TableType:
    """The table type that the options ask for, copy on write by default."""
    return TableType(options.text(TABLE_TYPE) or TableType.COPY_ON_WRITE)


def parse_table_type(text: str) -> str:
    """`cow`, `mor` or Hudi's own word as Hudi's word."""
    lowered = text.strip().lower()
    if lowered in _TABLE_TYPES:
        return str(_TABLE_TYPES[lowered])
    try:
        return str(TableType(text.strip().upper()))
    except ValueError:
        raise InvalidRequest(f"table type {text!r} is neither cow nor mor") from None


def check_columns(keys: KeySpec, ordering: Sequence[str], schema: pa.Schema) -> None:
    """Raises InvalidRequest when a key, partition or ordering field is not a column of the schema, or an ordering field cannot be
    compared.
    """
    roles = [("record key", name) for name in keys.record_fields]
    roles += [("partition", name) for name in partition_columns(keys)]
    roles += [("ordering", name) for name in ordering]
    for role, name in roles:
        if not _has_column(schema, name):
            raise InvalidRequest(f"{role} field {name!r} is not a column of the data; its columns are: {', '.join(schema.names)}")
    for name in ordering:
        type_ = field_at(schema, name).type
        if pa.types.is_nested(type_):
            raise InvalidRequest(f"ordering field {name!r} is of type {type_}, which has no order: choose a plain column")


def check_against_table(options: Options, config: TableConfig) -> None:
    """Raises InvalidRequest for each given option that contradicts the table's own settings."""
    stored = {**_in_effect(config), **dict(config.properties), **_said_by_other_keys(config)}
    for option, key in COMPARED.items():
        given, present = options.given(option), stored.get(key, "")
        if given is None or _plain(option, given) == _plain(option, present):
            continue
        if (
            option == PARTITION_FIELDS.key
            and ":" not in given
            and _plain(option, given) == _without_kinds(_plain(option, present))
        ):
            continue
        raise InvalidRequest(f"option {option}={given} contradicts the table, whose {key} is {present or 'not set'}")
    for generator in (_GENERATOR_CLASS, _GENERATOR_TYPE):
        named = options.given(generator)
        if named and parse_key_generator(named) not in (None, config.keys.generator):
            raise InvalidRequest(
                f"option {generator}={named} contradicts the table, whose key generator is {config.keys.generator}"
            )
    form = options.text(WRITE_FORMAT)
    if form is not None and form != config.base_file_format:
        if not config.several_formats:
            raise InvalidRequest(
                f"option {WRITE_FORMAT}={form} contradicts the table, whose hoodie.table.base.file.format is "
                f"{config.base_file_format}, and which has files of one format alone ({SEVERAL_FORMATS}=false)"
            )
        check_base_format(form)
    _check_time_rule(options.with_prefix(*TIME_PREFIXES), config)
    if options.given(RECORD_KEY_FIELDS) and config.keys.generates_keys:
        raise InvalidRequest("the table generates its record keys; it takes no record key field")


def _check_time_rule(given: Mapping[str, str], config: TableConfig) -> None:
    """The rule that the table stores is the one that writes go by, so what is given has to say the same."""
    if not given:
        return
    said = ", ".join(f"{key}={shown(key, value)}" for key, value in sorted(given.items()))
    rule = config.keys.time
    if rule is None:
        raise InvalidRequest(f"option {said} contradicts the table, whose key generator has no rule for times")
    # Hudi's old prefix and its new one mean the same.
    bare = {key.removeprefix(TIME_PREFIXES[1]).removeprefix(TIME_PREFIXES[0]): value for key, value in given.items()}
    stored = rule.to_properties()
    for part, others in _TIME_PARTS.items():
        if part in bare:
            for name in others:
                stored.pop(TIME_PREFIXES[0] + name, None)
    whole = TimeRule.from_properties({**stored, **{TIME_PREFIXES[0] + name: value for name, value in bare.items()}})
    if whole is None or whole.to_properties() != rule.to_properties():
        raise InvalidRequest(f"option {said} contradicts the table, whose rule for times is {rule.to_properties()}")


_TIME_PARTS = {
    "input.dateformat": ("input.dateformat.list.delimiter.regex",),
    "timezone": ("input.timezone", "output.timezone"),
}
"""Parts of the rule for times that replace others."""

FIXED = tuple(option.key for option in _FIXED)
"""Options that are properties no caller chooses: a new table has what PyHudi writes."""

COMPARED = {option.key: option.stored_as for option in sorted(options_of(TableSettings), key=str) if option.stored_as is not None}
"""Options that have to agree with a property of the table, and that property."""


def _in_effect(config: TableConfig) -> dict[str, str]:
    """Settings that a table has without naming them."""
    return {
        "hoodie.table.type": str(config.table_type),
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.populate.meta.fields": "true",
        CONSISTENT_TIMESTAMPS: "false",
        "hoodie.table.timeline.timezone": "LOCAL",
        "hoodie.table.cdc.enabled": "false",
        _CHANGES_MODE.key: str(config.cdc_mode),
        "hoodie.table.version": str(int(config.version)),
        "hoodie.table.initial.version": str(int(config.version)),
        "hoodie.table.base.file.format": config.base_file_format,
        "hoodie.table.log.file.format": "HOODIE_LOG",
        OMIT_COLUMNS: "false",
        SEVERAL_FORMATS: "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "archived",
        "hoodie.bootstrap.index.enable": "true",
        FORMAT: NATIVE,
        **merge_properties(config.merge),
    }


def _said_by_other_keys(config: TableConfig) -> dict[str, str]:
    """Settings that stand in other properties than those that options are compared with, or beside which those mean nothing."""
    said = {PRECOMBINE_FIELD: ",".join(config.ordering_fields)} if config.ordering_fields else {}
    if config.version.merges_by_modes:
        said |= merge_properties(config.merge)
        if config.merge.translated:
            said[PAYLOAD_PROPERTY] = config.merge.translated
    return said


def _plain(option: str, value: str) -> str:
    """The value as it is compared: names letter for letter, words in any case."""
    tight = value.replace(" ", "")
    if option == PARTITION_FIELDS.key:
        named = (field.partition(":") for field in tight.split(","))
        return ",".join(name + colon + kind.upper() for name, colon, kind in named)
    return tight if REGISTRY[option].kind is str and option != MERGE_MODE.key else tight.lower()


def _without_kinds(fields: str) -> str:
    return ",".join(field.partition(":")[0] for field in fields.split(","))


def _merge_settings(options: Options, version: TableVersion) -> MergeSettings:
    ordering = tuple(options.names(ORDERING))
    mode, payload, strategy = options.text(MERGE_MODE), options.text(_PAYLOAD), options.text(_STRATEGY_ID)
    if version.merges_by_modes:
        marker = delete_marker(options, beside_flag=True)
        return infer_modes(
            mode=mode,
            payload_class=payload,
            strategy_id=strategy,
            ordering=ordering,
            marker=None if marker is None else (marker.field, marker.text),
        )
    if len(ordering) > 1:
        raise InvalidRequest(
            f"a table of version {int(version)} has one ordering field, not several ({','.join(ordering)}); one of version 9 may"
        )
    field = ordering[0] if ordering else None
    return infer_merge_settings(mode=mode, payload_class=payload, strategy_id=strategy, ordering_field=field)


def _key_spec(options: Options) -> KeySpec:
    generator = options.text(_GENERATOR_CLASS) or options.text(_GENERATOR_TYPE)
    spec = KeySpec.for_fields(
        options.names(RECORD_KEY_FIELDS),
        options.names(PARTITION_FIELDS),
        generator,
        hive_style=options.flag(_HIVE_STYLE),
        url_encode=options.flag(_URL_ENCODE),
        time=TimeRule.from_properties(options.with_prefix(*TIME_PREFIXES)),
    )
    return replace(spec, consistent_timestamps=options.flag(_CONSISTENT))


def _has_column(schema: pa.Schema, name: str) -> bool:
    head, *rest = name.split(".")
    position = schema.get_field_index(head)
    if position < 0:
        return False
    kind = schema.field(position).type
    for part in rest:
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return False
        kind = kind.field(part).type
    return True


def name_from_uri(uri: str) -> str:
    """A table name from the last folder of its URI."""
    return sanitized_name(file_name_of(uri.rstrip("/"))) or "table"


def check_new_table(given: Options, settings: Options, schema: pa.Schema | None) -> None:
    """Raises what creating a table with these settings, and opening it with the options as given, would raise of them."""
    check_against_table(given, new_table_config(new_table_properties(settings, schema)))


def check_same_table(named: Options, asked: TableConfig, there: TableConfig, uri: str) -> None:
    """Raises TableExists where a table is not the one that a creation asks for, with all that differs.

    named: what the caller names, all of which is compared; asked: the table as it would be made, of which the record key and the
    partition fields are.
    """
    differing = [
        f"its {what} is {found}, not {wanted}"
        for what, found, wanted in (
            ("type", str(there.table_type), str(asked.table_type if named.given(TABLE_TYPE) else there.table_type)),
            ("record key", _listed(there.keys.record_fields), _listed(asked.keys.record_fields)),
            ("partitioning", _listed(_fields_of(there)), _listed(_fields_of(asked))),
            ("version", int(there.version), int(asked.version) if named.given(_VERSION) else int(there.version)),
            ("name", there.name, asked.name if named.given(NAME) else there.name),
        )
        if found != wanted
    ]
    if not differing:
        try:
            check_against_table(named, there)
        except InvalidRequest as error:
            differing.append(str(error))
    if differing:
        raise TableExists(f"there is another Hudi table at {uri}: {'; '.join(differing)}")


def check_same_columns(asked: pa.Schema, there: pa.Schema, uri: str) -> None:
    """Raises TableExists where a table lacks one of the columns that a creation asks for, or has it with another type."""
    for column in asked:
        index = there.get_field_index(column.name)
        found = "not there" if index < 0 else str(there.field(index).type)
        if found != str(column.type):
            raise TableExists(f"there is another Hudi table at {uri}: its column {column.name!r} is {found}, not {column.type}")


def _fields_of(config: TableConfig) -> list[str]:
    return [field.name for field in config.keys.partition_fields]


def _listed(names: Sequence[str]) -> str:
    return ",".join(names) or "none"


def with_table_settings(options: Options, values: Mapping[Option, str | None]) -> Options:
    """Options with keyword arguments laid over them; raises InvalidRequest where both are given and disagree."""
    added: dict[str, str] = {}
    for option, value in values.items():
        if value is None:
            continue
        given = options.given(option)
        if given is not None and given.replace(" ", "") != value.replace(" ", ""):
            raise InvalidRequest(f"option {option}={given} and the argument that means the same ({value}) disagree")
        added[option.key] = value
    return options.merged(added)
