"""Check that options, or the arguments of a creation, agree with an existing table.

Source: docs/formats/writing.md, "Options against the table".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableExists
from pyhudi.format.properties import redact_secret
from pyhudi.operations.admin.stored_settings import STORED_PREFIXES, USER_PREFIX
from pyhudi.operations.admin.table_settings import (
    CHANGES_MODE,
    GENERATOR_CLASS,
    GENERATOR_TYPE,
    MERGE_MODE,
    NAME,
    PARTITION_FIELDS,
    RECORD_KEY_FIELDS,
    TABLE_TYPE,
    VERSION,
    TableSettings,
    check_base_format,
)
from pyhudi.options.declaration import REGISTRY, Options, settings_options
from pyhudi.records.keys.key_spec import CONSISTENT_TIMESTAMPS, SLASH_DATES, parse_key_generator
from pyhudi.records.keys.timestamp_key_rule import TIME_PREFIXES, TimeRule
from pyhudi.table.table_config import (
    FORMAT,
    NATIVE,
    OMIT_COLUMNS,
    PAYLOAD_PROPERTY,
    PRECOMBINE_FIELD,
    SEVERAL_FORMATS,
    TableConfig,
    merge_properties,
)
from pyhudi.tasks.base_file_writer import WRITE_FORMAT

COMPARED = {
    option.key: option.stored_as for option in sorted(settings_options(TableSettings), key=str) if option.stored_as is not None
}
"""Options that must agree with a property of the table, and that property."""

_TIME_PARTS = {
    "input.dateformat": ("input.dateformat.list.delimiter.regex",),
    "timezone": ("input.timezone", "output.timezone"),
}
"""Parts of the timestamp key-generator rule that replace others."""


def check_against_table(options: Options, config: TableConfig) -> None:
    """Raise InvalidRequest for each option that contradicts the table's properties."""
    stored = {**_implied_settings(config), **dict(config.properties), **_settings_under_other_keys(config)}
    for option, key in COMPARED.items():
        value, stored_value = options.explicit(option), stored.get(key, "")
        if value is None or comparison_value(option, value) == comparison_value(option, stored_value):
            continue
        if (
            option == PARTITION_FIELDS.key
            and ":" not in value
            and comparison_value(option, value) == _without_kinds(comparison_value(option, stored_value))
        ):
            continue
        raise InvalidRequest(f"option {option}={value} contradicts the table, whose {key} is {stored_value or 'not set'}")
    for generator in (GENERATOR_CLASS, GENERATOR_TYPE):
        named = options.explicit(generator)
        if named and parse_key_generator(named) not in (None, config.keys.generator):
            raise InvalidRequest(
                f"option {generator}={named} contradicts the table, whose key generator is {config.keys.generator}"
            )
    form = options.text(WRITE_FORMAT)
    if form is not None and form != config.base_file_format:
        if not config.several_formats:
            raise InvalidRequest(
                f"option {WRITE_FORMAT}={form} contradicts the table, whose hoodie.table.base.file.format is "
                f"{config.base_file_format}, and which allows one file format only ({SEVERAL_FORMATS}=false)"
            )
        check_base_format(form)
    _check_time_rule(options.with_prefix(*TIME_PREFIXES), config)
    for key, value in options.with_prefix(*STORED_PREFIXES).items():
        found = config.property(key.removeprefix(USER_PREFIX))
        if found != value:
            raise InvalidRequest(
                f"option {key}={value} defines a new table, and the existing one has {found or 'no value'}; change it with "
                "Table.set_properties"
            )
    if options.explicit(RECORD_KEY_FIELDS) and config.keys.generates_keys:
        raise InvalidRequest("the table generates its record keys; omit the record key field")


def _check_time_rule(user_options: Mapping[str, str], config: TableConfig) -> None:
    """Check that timestamp key-generator options equal the stored rule, which writes follow."""
    if not user_options:
        return
    assignments = ", ".join(f"{key}={redact_secret(key, value)}" for key, value in sorted(user_options.items()))
    rule = config.keys.time
    if rule is None:
        raise InvalidRequest(f"option {assignments} contradicts the table, whose key generator has no timestamp rule")
    # Hudi's old and new prefix are equivalent.
    bare = {key.removeprefix(TIME_PREFIXES[1]).removeprefix(TIME_PREFIXES[0]): value for key, value in user_options.items()}
    stored = rule.to_properties()
    for part, others in _TIME_PARTS.items():
        if part in bare:
            for name in others:
                stored.pop(TIME_PREFIXES[0] + name, None)
    whole = TimeRule.from_properties({**stored, **{TIME_PREFIXES[0] + name: value for name, value in bare.items()}})
    if whole is None or whole.to_properties() != rule.to_properties():
        raise InvalidRequest(f"option {assignments} contradicts the table, whose timestamp rule is {rule.to_properties()}")


def _implied_settings(config: TableConfig) -> dict[str, str]:
    """Return settings that apply to a table without being stored in it."""
    return {
        "hoodie.table.type": str(config.table_type),
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        SLASH_DATES: "true" if config.keys.slash_dates else "false",
        "hoodie.populate.meta.fields": "true",
        CONSISTENT_TIMESTAMPS: "false",
        "hoodie.table.timeline.timezone": "LOCAL",
        "hoodie.table.cdc.enabled": "false",
        CHANGES_MODE.key: str(config.cdc_mode),
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


def _settings_under_other_keys(config: TableConfig) -> dict[str, str]:
    """Return settings that are stored under other properties than the compared ones, or that make those irrelevant."""
    settings = {PRECOMBINE_FIELD: ",".join(config.ordering_fields)} if config.ordering_fields else {}
    if config.version.merges_by_modes:
        settings |= merge_properties(config.merge)
        if config.merge.translated:
            settings[PAYLOAD_PROPERTY] = config.merge.translated
    return settings


def comparison_value(option: str, value: str) -> str:
    """Normalize a value for comparison: names are case-sensitive, keywords are not."""
    tight = value.replace(" ", "")
    if option == PARTITION_FIELDS.key:
        named = (field.partition(":") for field in tight.split(","))
        return ",".join(name + colon + kind.upper() for name, colon, kind in named)
    return tight if REGISTRY[option].kind is str and option != MERGE_MODE.key else tight.lower()


def _without_kinds(fields: str) -> str:
    return ",".join(field.partition(":")[0] for field in fields.split(","))


def check_same_table(explicit: Options, requested: TableConfig, existing: TableConfig, uri: str) -> None:
    """Raise TableExists with all differences if an existing table is not the requested one.

    Args:
        explicit: Options that the caller set, all of which are compared.
        requested: The table as it would be created; its record key and partition fields are compared.
        existing: The existing table.
        uri: Its location.
    """
    differing = [
        f"its {name} is {existing_value}, not {requested_value}"
        for name, existing_value, requested_value in (
            (
                "type",
                str(existing.table_type),
                str(requested.table_type if explicit.explicit(TABLE_TYPE) else existing.table_type),
            ),
            ("record key", _listed(existing.keys.record_fields), _listed(requested.keys.record_fields)),
            ("partitioning", _listed(_fields_of(existing)), _listed(_fields_of(requested))),
            ("version", int(existing.version), int(requested.version) if explicit.explicit(VERSION) else int(existing.version)),
            ("name", existing.name, requested.name if explicit.explicit(NAME) else existing.name),
        )
        if existing_value != requested_value
    ]
    if not differing:
        try:
            check_against_table(explicit, existing)
        except InvalidRequest as error:
            differing.append(str(error))
    if differing:
        raise TableExists(f"there is another Hudi table at {uri}: {'; '.join(differing)}")


def check_same_columns(requested: pa.Schema, existing: pa.Schema, uri: str) -> None:
    """Raise TableExists if a table lacks a requested column, or has it with another type."""
    for column in requested:
        index = existing.get_field_index(column.name)
        existing_type = "not there" if index < 0 else str(existing.field(index).type)
        if existing_type != str(column.type):
            raise TableExists(
                f"there is another Hudi table at {uri}: its column {column.name!r} is {existing_type}, not {column.type}"
            )


def _fields_of(config: TableConfig) -> list[str]:
    return [field.name for field in config.keys.partition_fields]


def _listed(names: Sequence[str]) -> str:
    return ",".join(names) or "none"
