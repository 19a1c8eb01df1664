"""Creating a table: options become `hoodie.properties`; and checking that later options agree with it.

Source: timeline document, "Keys a version-8 table carries"; writing and services, "Data source rules around the call".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.options import HONOURED, Options
from pyhudi.records.keys import CONSISTENT_TIMESTAMPS, TIME_PREFIXES, KeySpec, TimeRule, parse_key_generator, partition_columns
from pyhudi.records.merge_mode import infer_merge_settings
from pyhudi.records.schema import arrow_to_avro, normalise, sanitized_name
from pyhudi.storage.base import Storage
from pyhudi.storage.clock import Environment
from pyhudi.table.config import TableConfig, TableType, create_table_files, merge_properties

_TABLE_TYPES = {"cow": TableType.COPY_ON_WRITE, "mor": TableType.MERGE_ON_READ}


def create_table(storage: Storage, env: Environment, options: Options, schema: pa.Schema | None) -> TableConfig:
    """Create a table with the settings that the options name.  schema: its columns, None to take those of the first write.

    Raises TableExists, InvalidRequest for settings that contradict each other or name columns that the schema lacks.
    """
    return create_table_files(storage, new_table_properties(options, schema), env)


def new_table_properties(options: Options, schema: pa.Schema | None) -> dict[str, str]:
    """`hoodie.properties` of a new table."""
    name = options.text("hoodie.table.name")
    if not name:
        raise InvalidRequest("a table needs a name: set name= or hoodie.table.name")
    keys = _key_spec(options)
    ordering = options.text("hoodie.datasource.write.precombine.field")
    if ordering and "," in ordering:
        raise InvalidRequest(f"a table of version 8 has one ordering field, not several ({ordering})")
    merge = infer_merge_settings(
        mode=options.text("hoodie.write.record.merge.mode"),
        payload_class=options.text("hoodie.datasource.write.payload.class"),
        strategy_id=options.text("hoodie.write.record.merge.strategy.id"),
        ordering_field=ordering,
    )
    values = {
        "hoodie.table.name": name,
        "hoodie.table.type": str(table_type(options)),
        "hoodie.table.version": "8",
        "hoodie.table.initial.version": "8",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.populate.meta.fields": options.word("hoodie.populate.meta.fields"),
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.table.cdc.enabled": options.word("hoodie.table.cdc.enabled"),
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.table.timeline.timezone": options.word("hoodie.table.timeline.timezone"),
        **keys.to_properties(),
        **merge_properties(merge),
    }
    database = options.text("hoodie.database.name")
    if database:
        values["hoodie.database.name"] = database
    if ordering:
        values["hoodie.table.precombine.field"] = ordering
    if options.flag("hoodie.table.cdc.enabled"):
        values[_CDC_MODE] = options.word(_CDC_MODE)
    if schema is not None:
        columns = normalise(schema)
        check_columns(keys, ordering, columns)
        values["hoodie.table.create.schema"] = arrow_to_avro(columns, name)
    for option in FIXED:
        given, made = options.given(option), values.get(option, Options(()).text(option) or "")
        if given is not None and _plain(option, given) != _plain(option, made):
            raise Unsupported(f"option {option}={given} is refused: PyHudi creates tables whose {option} is {made or 'not set'}")
    return values


def table_type(options: Options) -> TableType:
    """The table type that the options ask for, copy on write by default."""
    return TableType(options.text("hoodie.datasource.write.table.type") or TableType.COPY_ON_WRITE)


def parse_table_type(text: str) -> str:
    """`cow`, `mor` or Hudi's own word as Hudi's word."""
    lowered = text.strip().lower()
    if lowered in _TABLE_TYPES:
        return str(_TABLE_TYPES[lowered])
    try:
        return str(TableType(text.strip().upper()))
    except ValueError:
        raise InvalidRequest(f"table type {text!r} is neither cow nor mor") from None


def check_columns(keys: KeySpec, ordering: str | None, schema: pa.Schema) -> None:
    """Raises InvalidRequest when a key, partition or ordering field is no column of the schema."""
    roles = [("record key", name) for name in keys.record_fields]
    roles += [("partition", name) for name in partition_columns(keys)]
    roles += [("ordering", ordering)] if ordering else []
    for role, name in roles:
        if not _has_column(schema, name):
            raise InvalidRequest(f"{role} field {name!r} is no column of the data; its columns are: {', '.join(schema.names)}")


def check_against_table(options: Options, config: TableConfig) -> None:
    """Raises InvalidRequest for each given option that contradicts the table's own settings."""
    stored = {**_in_effect(config), **dict(config.properties)}
    for option, key in COMPARED.items():
        given, present = options.given(option), stored.get(key, "")
        if given is None or _plain(option, given) == _plain(option, present):
            continue
        if option == _PARTITION_OPTION and ":" not in given and _plain(option, given) == _without_kinds(_plain(option, present)):
            continue
        raise InvalidRequest(f"option {option}={given} contradicts the table, whose {key} is {present or 'not set'}")
    for option in ("hoodie.datasource.write.keygenerator.class", "hoodie.datasource.write.keygenerator.type"):
        named = options.given(option)
        if named and parse_key_generator(named) not in (None, config.keys.generator):
            raise InvalidRequest(f"option {option}={named} contradicts the table, whose key generator is {config.keys.generator}")
    _check_time_rule(options.with_prefix(*TIME_PREFIXES), config)
    if options.given("hoodie.datasource.write.recordkey.field") and config.keys.generates_keys:
        raise InvalidRequest("the table generates its record keys; it takes no record key field")


def _check_time_rule(given: Mapping[str, str], config: TableConfig) -> None:
    """The rule that the table stores is the one that writes go by, so what is given has to say the same."""
    if not given:
        return
    said = ", ".join(f"{key}={value}" for key, value in sorted(given.items()))
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

_PARTITION_OPTION = "hoodie.datasource.write.partitionpath.field"
_MERGE_MODE = "hoodie.write.record.merge.mode"
_CDC_MODE = "hoodie.table.cdc.supplemental.logging.mode"

FIXED = (
    "hoodie.table.base.file.format",
    "hoodie.table.log.file.format",
    "hoodie.datasource.write.drop.partition.columns",
    "hoodie.table.multiple.base.file.formats.enable",
    "hoodie.partition.metafile.use.base.format",
    "hoodie.table.create.schema",
    "hoodie.table.initial.version",
    "hoodie.table.checksum",
    "hoodie.timeline.layout.version",
    "hoodie.timeline.path",
    "hoodie.timeline.history.path",
    "hoodie.archivelog.folder",
    "hoodie.table.metadata.partitions",
    "hoodie.table.metadata.partitions.inflight",
    "hoodie.table.index.defs.path",
    "hoodie.table.secondary.indexes.metadata",
    "hoodie.bootstrap.index.enable",
    "hoodie.bootstrap.index.type",
    "hoodie.bootstrap.index.class",
    "hoodie.keygen.datetime.parser.class",
)
"""Options that are properties no caller chooses: a new table has what PyHudi writes."""

COMPARED = {
    **{name: name for name in FIXED},
    "hoodie.table.name": "hoodie.table.name",
    "hoodie.database.name": "hoodie.database.name",
    "hoodie.write.table.version": "hoodie.table.version",
    "hoodie.datasource.write.table.type": "hoodie.table.type",
    "hoodie.datasource.write.recordkey.field": "hoodie.table.recordkey.fields",
    "hoodie.datasource.write.partitionpath.field": "hoodie.table.partition.fields",
    "hoodie.datasource.write.precombine.field": "hoodie.table.precombine.field",
    "hoodie.datasource.write.hive_style_partitioning": "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode": "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.populate.meta.fields": "hoodie.populate.meta.fields",
    CONSISTENT_TIMESTAMPS: CONSISTENT_TIMESTAMPS,
    _MERGE_MODE: "hoodie.record.merge.mode",
    "hoodie.write.record.merge.strategy.id": "hoodie.record.merge.strategy.id",
    "hoodie.datasource.write.payload.class": "hoodie.compaction.payload.class",
    "hoodie.table.timeline.timezone": "hoodie.table.timeline.timezone",
    "hoodie.table.cdc.enabled": "hoodie.table.cdc.enabled",
    _CDC_MODE: _CDC_MODE,
}


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
        _CDC_MODE: str(config.cdc_mode),
        "hoodie.table.version": str(int(config.version)),
        "hoodie.table.initial.version": str(int(config.version)),
        "hoodie.table.base.file.format": config.base_file_format,
        "hoodie.table.log.file.format": "HOODIE_LOG",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "archived",
        "hoodie.bootstrap.index.enable": "true",
        **merge_properties(config.merge),
    }


def _plain(option: str, value: str) -> str:
    """The value as it is compared: names letter for letter, words in any case."""
    tight = value.replace(" ", "")
    if option == _PARTITION_OPTION:
        named = (field.partition(":") for field in tight.split(","))
        return ",".join(name + colon + kind.upper() for name, colon, kind in named)
    return tight if HONOURED[option].kind is str and option != _MERGE_MODE else tight.lower()


def _without_kinds(fields: str) -> str:
    return ",".join(field.partition(":")[0] for field in fields.split(","))


def _key_spec(options: Options) -> KeySpec:
    generator = options.text("hoodie.datasource.write.keygenerator.class") or options.text(
        "hoodie.datasource.write.keygenerator.type"
    )
    spec = KeySpec.for_fields(
        options.names("hoodie.datasource.write.recordkey.field"),
        options.names("hoodie.datasource.write.partitionpath.field"),
        generator,
        hive_style=options.flag("hoodie.datasource.write.hive_style_partitioning"),
        url_encode=options.flag("hoodie.datasource.write.partitionpath.urlencode"),
        time=TimeRule.from_properties(options.with_prefix(*TIME_PREFIXES)),
    )
    return replace(spec, consistent_timestamps=options.flag(CONSISTENT_TIMESTAMPS))


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
    return sanitized_name(uri.rstrip("/").rsplit("/", 1)[-1]) or "table"


def with_table_settings(options: Options, values: Mapping[str, str | None]) -> Options:
    """Options with keyword arguments laid over them; raises InvalidRequest where both are given and disagree."""
    added: dict[str, str] = {}
    for key, value in values.items():
        if value is None:
            continue
        given = options.given(key)
        if given is not None and given.replace(" ", "") != value.replace(" ", ""):
            raise InvalidRequest(f"option {key}={given} and the argument that means the same ({value}) disagree")
        added[key] = value
    return options.merged(added)
