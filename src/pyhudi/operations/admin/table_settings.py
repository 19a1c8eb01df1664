"""Options that define a table and are stored in `hoodie.properties`.

Source: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.names import BASE_EXTENSIONS
from pyhudi.format.table_versions import TableVersion, parse_table_version
from pyhudi.operations.commit.commit_settings import delete_marker_setting
from pyhudi.options import table_options as props
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.options.file_options import WRITE_FORMAT
from pyhudi.options.write_options import DELETE_FIELD, DELETE_MARKER
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.keys.timestamp_key_rule import TimeRule
from pyhudi.records.merge_mode import MergeMode, MergeSettings, infer_merge_settings, infer_modes
from pyhudi.records.timestamp_coercion import ZonelessTimestamps
from pyhudi.table.table_config import TableType

_TABLE_TYPES = {"cow": TableType.COPY_ON_WRITE, "mor": TableType.MERGE_ON_READ}


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Options that define a table: stored in its properties at creation, and compared with them afterwards. ``fixed``
    are options for properties that cannot be chosen, by key.
    """

    name: Annotated[str | None, props.NAME]
    database: Annotated[
        str | None,
        props.DATABASE,
    ]
    version: Annotated[TableVersion, props.VERSION]
    table_type: Annotated[TableType, props.TABLE_TYPE]
    keys: Annotated[
        KeySpec,
        props.RECORD_KEY_FIELDS,
        props.PARTITION_FIELDS,
        props.GENERATOR_CLASS,
        props.GENERATOR_TYPE,
        props.CONSISTENT_TIMESTAMPS,
        props.HIVE_STYLE,
        props.SLASH_DATES,
        props.URL_ENCODE,
    ]
    merge: Annotated[
        MergeSettings, props.MERGE_MODE, props.PAYLOAD, props.STRATEGY_ID, props.ORDERING, DELETE_FIELD, DELETE_MARKER
    ]
    populate_meta_fields: Annotated[
        bool,
        props.META_COLUMNS,
    ]
    time_zone: Annotated[str, props.TIME_ZONE]
    omits_partition_columns: Annotated[bool, props.OMIT]
    base_file_format: Annotated[str, props.BASE_FORMAT, WRITE_FORMAT]
    several_formats: Annotated[bool, props.SEVERAL_FORMATS]
    logs_changes: Annotated[bool, props.CHANGES]
    changes_mode: Annotated[str, props.CHANGES_MODE]
    force: Annotated[bool, props.FORCE]
    fixed: Annotated[tuple[tuple[str, str], ...], *props.FIXED]

    @classmethod
    def of(cls, options: Options) -> TableSettings:
        """Build the settings from checked options. Raises InvalidRequest for contradictory settings."""
        version = parse_table_version(options.value_or_default(props.VERSION))
        merge = _merge_settings(options, version)
        if merge.mode is MergeMode.EVENT_TIME_ORDERING and not merge.ordering:
            raise InvalidRequest(
                f"merge mode {MergeMode.EVENT_TIME_ORDERING} requires an ordering column: set ordering= or "
                f"{props.ORDERING}, or use {MergeMode.COMMIT_TIME_ORDERING}"
            )
        explicit = ((option.key, options.explicit(option)) for option in props.FIXED)
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
    """Return how a table of the version stores timestamps without a zone; ``explicit_mode`` is the caller's choice, or None."""
    if explicit_mode is not None:
        return explicit_mode
    return ZonelessTimestamps.LOCAL if version.has_local_timestamps else ZonelessTimestamps.REFUSE


def _table_type(options: Options) -> TableType:
    """Return the table type of the options, copy-on-write by default."""
    return TableType(options.text(props.TABLE_TYPE) or TableType.COPY_ON_WRITE)


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
    """Return the base file format of a new table. Raises InvalidRequest if both options differ and only one format is allowed."""
    table, write = options.text(props.BASE_FORMAT), options.text(WRITE_FORMAT)
    named = options.explicit(props.BASE_FORMAT) is not None
    if write is None or (named and options.flag(props.SEVERAL_FORMATS)):
        return str(table)
    if named and table != write:
        raise InvalidRequest(
            f"option {props.BASE_FORMAT}={table} contradicts {WRITE_FORMAT}={write}; several base file formats in one "
            f"table require {props.SEVERAL_FORMATS}=true"
        )
    return write


def check_base_format(form: str) -> None:
    """Raise Unsupported for a base file format that PyHudi does not write."""
    if form not in BASE_EXTENSIONS:
        raise Unsupported(
            f"{props.BASE_FORMAT}={form} is not supported: new tables have base files in {' or '.join(BASE_EXTENSIONS)}"
        )


def _merge_settings(options: Options, version: TableVersion) -> MergeSettings:
    ordering = tuple(options.names(props.ORDERING))
    mode, payload, strategy = options.text(props.MERGE_MODE), options.text(props.PAYLOAD), options.text(props.STRATEGY_ID)
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
    generator = options.text(props.GENERATOR_CLASS) or options.text(props.GENERATOR_TYPE)
    spec = KeySpec.for_fields(
        options.names(props.RECORD_KEY_FIELDS),
        options.names(props.PARTITION_FIELDS),
        generator,
        hive_style=options.flag(props.HIVE_STYLE),
        url_encode=options.flag(props.URL_ENCODE),
        time=TimeRule.from_properties(options.with_prefix(*props.TIME_PREFIXES)),
    )
    return replace(
        spec, consistent_timestamps=options.flag(props.CONSISTENT_TIMESTAMPS), slash_dates=options.flag(props.SLASH_DATES)
    )


def with_table_arguments(
    options: Options,
    *,
    name: str | None,
    record_key: str | Sequence[str] | None,
    partition_by: str | Sequence[str] | None,
    ordering: str | Sequence[str] | None,
    table_type: str | None,
) -> Options:
    """Merge the arguments of `Table.create` into options. Raises InvalidRequest for contradictory values."""
    fields = {props.RECORD_KEY_FIELDS: record_key, props.PARTITION_FIELDS: partition_by, props.ORDERING: ordering}
    joined = {option: names if names is None or isinstance(names, str) else ",".join(names) for option, names in fields.items()}
    type_name = parse_table_type(table_type) if table_type else None
    return with_table_settings(options, {props.NAME: name, **joined, props.TABLE_TYPE: type_name})


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
