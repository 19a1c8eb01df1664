"""Check that options, or the arguments of a creation, agree with an existing table.

Source: docs/formats/writing.md, "Options against the table".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableExists
from pyhudi.format.paths import ARCHIVE_NAME
from pyhudi.format.properties import redact_secret
from pyhudi.operations.admin.table_settings import TableSettings, check_base_format
from pyhudi.options import table_options as props
from pyhudi.options.declaration import REGISTRY, Options, settings_options
from pyhudi.options.file_options import WRITE_FORMAT
from pyhudi.records.keys.key_spec import parse_key_generator
from pyhudi.records.keys.timestamp_key_rule import TimeRule
from pyhudi.table.table_config import TableConfig, merge_properties

COMPARED = {
    option.key: option.stored_as
    for option in sorted(settings_options(TableSettings), key=str)
    if option.stored_as and option not in (props.GENERATOR_CLASS, props.GENERATOR_TYPE)
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
            option == props.PARTITION_FIELDS.key
            and ":" not in value
            and comparison_value(option, value) == _without_index_types(comparison_value(option, stored_value))
        ):
            continue
        raise InvalidRequest(f"option {option}={value} contradicts the table, whose {key} is {stored_value or 'not set'}")
    for generator in (props.GENERATOR_CLASS, props.GENERATOR_TYPE):
        named = options.explicit(generator)
        if named and parse_key_generator(named) not in (None, config.keys.generator):
            raise InvalidRequest(
                f"option {generator}={named} contradicts the table, whose key generator is {config.keys.generator}"
            )
    form = options.text(WRITE_FORMAT)
    if form is not None and form != config.base_file_format:
        if not config.several_formats:
            raise InvalidRequest(
                f"option {WRITE_FORMAT}={form} contradicts the table, whose {props.BASE_FORMAT} is "
                f"{config.base_file_format}, and which allows one file format only ({props.SEVERAL_FORMATS.stored_as}=false)"
            )
        check_base_format(form)
    _check_time_rule(options.with_prefix(*props.TIME_PREFIXES), config)
    for key, value in options.with_prefix(*props.STORED_PREFIXES).items():
        found = config.property(key.removeprefix(props.USER_PREFIX))
        if found != value:
            raise InvalidRequest(
                f"option {key}={value} defines a new table, and the existing one has {found or 'no value'}; change it with "
                "Table.set_properties"
            )
    if options.explicit(props.RECORD_KEY_FIELDS) and config.keys.generates_keys:
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
    bare = {
        key.removeprefix(props.TIME_PREFIXES[1]).removeprefix(props.TIME_PREFIXES[0]): value
        for key, value in user_options.items()
    }
    stored = rule.to_properties()
    for part, others in _TIME_PARTS.items():
        if part in bare:
            for name in others:
                stored.pop(props.TIME_PREFIXES[0] + name, None)
    whole = TimeRule.from_properties({**stored, **{props.TIME_PREFIXES[0] + name: value for name, value in bare.items()}})
    if whole is None or whole.to_properties() != rule.to_properties():
        raise InvalidRequest(f"option {assignments} contradicts the table, whose timestamp rule is {rule.to_properties()}")


def _implied_settings(config: TableConfig) -> dict[str, str]:
    """Return settings that apply to a table without being stored in it."""
    return {
        **{stored: REGISTRY[option].default or "" for option, stored in COMPARED.items()},
        props.SLASH_DATES.stored_as: "true" if config.keys.slash_dates else "false",
        props.TABLE_TYPE.stored_as: str(config.table_type),
        props.CHANGES_MODE.stored_as: str(config.cdc_mode),
        props.VERSION.stored_as: str(int(config.version)),
        props.INITIAL_VERSION.stored_as: str(int(config.version)),
        props.BASE_FORMAT.stored_as: config.base_file_format,
        props.ARCHIVE_FOLDER.stored_as: ARCHIVE_NAME,
        **merge_properties(config.merge),
    }


def _settings_under_other_keys(config: TableConfig) -> dict[str, str]:
    """Return settings that are stored under other properties than the compared ones, or that make those irrelevant."""
    settings = {props.ORDERING.stored_as: ",".join(config.ordering_fields)} if config.ordering_fields else {}
    if config.version.merges_by_modes:
        settings |= merge_properties(config.merge)
        if config.merge.translated:
            settings[props.PAYLOAD.stored_as] = config.merge.translated
    return settings


def comparison_value(option: str, value: str) -> str:
    """Normalize a value for comparison: names are case-sensitive, keywords are not."""
    tight = value.replace(" ", "")
    if option == props.PARTITION_FIELDS.key:
        named = (field.partition(":") for field in tight.split(","))
        return ",".join(name + colon + kind.upper() for name, colon, kind in named)
    return tight if REGISTRY[option].kind is str and option != props.MERGE_MODE.key else tight.lower()


def _without_index_types(fields: str) -> str:
    return ",".join(field.partition(":")[0] for field in fields.split(","))


def check_same_table(explicit: Options, requested: TableConfig, existing: TableConfig, uri: str) -> None:
    """Raise TableExists with all differences if an existing table is not the requested one.

    Args:
        explicit: Options that the caller set, all of which are compared.
        requested: The table as it would be created; its record key and partition fields are compared.
    """
    differing = [
        f"its {name} is {existing_value}, not {requested_value}"
        for name, existing_value, requested_value in (
            (
                "type",
                str(existing.table_type),
                str(requested.table_type if explicit.explicit(props.TABLE_TYPE) else existing.table_type),
            ),
            ("record key", _listed(existing.keys.record_fields), _listed(requested.keys.record_fields)),
            ("partitioning", _listed(_fields_of(existing)), _listed(_fields_of(requested))),
            (
                "version",
                int(existing.version),
                int(requested.version) if explicit.explicit(props.VERSION) else int(existing.version),
            ),
            ("name", existing.name, requested.name if explicit.explicit(props.NAME) else existing.name),
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


def check_same_keys(explicit: Options, existing: TableConfig, uri: str) -> None:
    """Raise TableExists if an existing table has another record key or partitioning than the one that the caller set."""
    fields = (props.RECORD_KEY_FIELDS.key, props.PARTITION_FIELDS.key)
    try:
        check_against_table(Options(tuple(pair for pair in explicit.values if pair[0] in fields)), existing)
    except InvalidRequest as error:
        raise TableExists(f"there is another Hudi table at {uri}: {error}") from error


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
