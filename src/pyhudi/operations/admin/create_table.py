"""Create a table: convert options to `hoodie.properties`.

Source: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pyhudi.errors import HudiError, InvalidRequest, Unsupported
from pyhudi.format.arrow_to_avro import arrow_to_avro, sanitized_name
from pyhudi.format.hudi_types import stated_hudi_type
from pyhudi.format.instants import Action
from pyhudi.format.paths import (
    GROUP_FOLDER,
    LOCK_FOLDER,
    META_FOLDER,
    PROPERTIES_BACKUP,
    PROPERTIES_FILE,
    STAGED_FOLDER,
    file_name,
)
from pyhudi.format.table_versions import TableVersion
from pyhudi.operations.admin.option_consistency import check_against_table, comparison_value
from pyhudi.operations.admin.stored_settings import new_stored_properties
from pyhudi.operations.admin.table_settings import TableSettings, check_base_format, zone_mode
from pyhudi.options import table_options as props
from pyhudi.options.declaration import REGISTRY, Options
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.keys.key_spec import KeySpec, partition_columns
from pyhudi.records.timestamp_coercion import ZonelessTimestamps, with_zones
from pyhudi.records.type_normalization import normalize_types
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.table.feature_support import check_omission
from pyhudi.table.table_config import (
    NATIVE,
    TableConfig,
    TableType,
    create_table_files,
    merge_properties,
    mode_properties,
    new_table_config,
)
from pyhudi.table.table_context import TableContext


def create_table(storage: Storage, env: Environment, options: Options, schema: pa.Schema | None) -> TableConfig:
    """Create a table from options.

    Args:
        storage: The storage of the table.
        options: Options that define the table.
        schema: Its columns, None to use those of the first write.

    Raises:
        TableExists: There is a table.
        InvalidRequest: Options contradict each other, or name columns that the schema lacks.
    """
    return create_table_files(storage, new_table_properties(options, schema), env)


def discard_new_table(context: TableContext, wait_ms: int) -> bool:
    """Remove a table that this process has just created for a failed write, unless another process writes to it.

    The write has been rolled back, so only its rollback may be on the timeline. Removing the properties removes the
    table; the remains after a crash are not a table, and the next creation reuses them.

    Returns:
        True if the table was removed.
    """
    with context.locked(wait_ms) as locked:
        if any(instant.action is not Action.ROLLBACK or instant.is_pending for instant in locked.timeline.load().instants):
            return False
        locked.storage.delete([PROPERTIES_FILE, PROPERTIES_BACKUP])
        for folder in locked.storage.list(META_FOLDER).folders:
            if folder not in (GROUP_FOLDER, LOCK_FOLDER, STAGED_FOLDER):
                locked.storage.delete_folder(folder)
    return True


def discard_after_error(context: TableContext, wait_ms: int, error: Exception) -> None:
    """Remove a table that this process has just created for a failed write; if the table stays, ``error`` gets a note."""
    description = f"the table at {context.storage.uri} that was created for this write"
    try:
        if not discard_new_table(context, wait_ms):
            error.add_note(f"{description} stays: another writer has begun to use it")
    except HudiError as failure:
        error.add_note(
            f"{description} exists without rows, because its removal failed ({failure}). Delete its folder .hoodie "
            "before the next attempt."
        )


def new_table_properties(options: Options, schema: pa.Schema | None) -> dict[str, str]:
    """Return `hoodie.properties` of a new table."""
    settings = TableSettings.of(options)
    name = settings.name
    if not name:
        raise InvalidRequest(f"a new table requires a name: set name= or {props.NAME}")
    values = {
        props.NAME.stored_as: name,
        props.TABLE_TYPE.stored_as: str(settings.table_type),
        props.VERSION.stored_as: str(int(settings.version)),
        props.INITIAL_VERSION.stored_as: str(int(settings.version)),
        props.LAYOUT.stored_as: str(int(settings.version.layout)),
        **props.FOLDERS,
        props.BASE_FORMAT.stored_as: settings.base_file_format,
        props.META_COLUMNS.stored_as: _text(settings.populate_meta_fields),
        props.OMIT.key: _text(settings.omits_partition_columns),
        props.CHANGES.stored_as: _text(settings.logs_changes),
        props.SEVERAL_FORMATS.stored_as: _text(settings.several_formats),
        props.METAFILE_AS_BASE.stored_as: "false",
        props.TIME_ZONE.stored_as: settings.time_zone,
        **settings.keys.to_properties(),
        **(mode_properties if settings.version.merges_by_modes else merge_properties)(settings.merge),
    }
    values |= new_stored_properties(dict(options.extra))
    if settings.version.names_format:
        values[props.FORMAT.stored_as] = NATIVE
    if settings.database:
        values[props.DATABASE.stored_as] = settings.database
    if settings.merge.ordering:
        values[props.ORDERING_FIELDS] = ",".join(settings.merge.ordering.fields)
        if not settings.version.has_ordering_fields:
            values[props.ORDERING.stored_as] = values[props.ORDERING_FIELDS]
    if settings.logs_changes:
        values[props.CHANGES_MODE.key] = settings.changes_mode
    if schema is not None:
        if not isinstance(schema, pa.Schema):
            raise InvalidRequest(
                f'schema= requires a pyarrow.Schema, such as pa.schema({{"id": pa.int64()}}), not {type(schema).__name__}'
            )
        columns = stored_columns(options, schema, settings.version)
        check_columns(settings.keys, settings.merge.ordering.fields, columns)
        values[props.CREATE_SCHEMA.stored_as] = arrow_to_avro(columns, name)
    check_base_format(settings.base_file_format)
    for key, value in settings.fixed:
        default = values.get(key, REGISTRY[key].default or "")
        if comparison_value(key, value) != comparison_value(key, default):
            raise Unsupported(
                f"option {key}={value} is not supported: PyHudi creates tables whose {key} is {default or 'not set'}"
            )
    if settings.omits_partition_columns:
        if settings.table_type is not TableType.COPY_ON_WRITE:
            raise Unsupported(
                f"{props.OMIT.stored_as}=true is not supported in a new merge-on-read table: only copy-on-write tables omit "
                "partition columns (Hudi ignores the option for merge-on-read tables)"
            )
        check_omission(new_table_config(values))
    return values


def check_new_table(user_options: Options, settings: Options, schema: pa.Schema | None) -> None:
    """Raise the errors that creating a table with these settings, and opening it with the caller's options, would raise."""
    check_against_table(user_options, new_table_config(new_table_properties(settings, schema)))


def check_columns(keys: KeySpec, ordering: Sequence[str], schema: pa.Schema) -> None:
    """Raise InvalidRequest if a key, partition or ordering field is missing in the schema, or an ordering field is not
    comparable.
    """
    roles = [("record key", name) for name in keys.record_fields]
    roles += [("partition", name) for name in partition_columns(keys)]
    roles += [("ordering", name) for name in ordering]
    for role, name in roles:
        if not _has_column(schema, name):
            raise InvalidRequest(f"{role} field {name!r} is not a column of the data; its columns are: {', '.join(schema.names)}")
        hudi_type = stated_hudi_type(field_at(schema, name))
        if hudi_type is not None:
            raise InvalidRequest(f"{role} field {name!r} is of type {hudi_type}: choose a column of a primitive type")
    for name in ordering:
        type_ = field_at(schema, name).type
        if pa.types.is_nested(type_):
            raise InvalidRequest(f"ordering field {name!r} is of type {type_}, which has no order: choose a primitive column")


def stored_columns(options: Options, schema: pa.Schema, version: TableVersion) -> pa.Schema:
    """Return the columns of a new table for a schema. Raises InvalidRequest for types that Hudi cannot store."""
    named = options.text(props.WITHOUT_ZONE)
    mode = zone_mode(None if named is None else ZonelessTimestamps(named), version)
    return normalize_types(with_zones(schema, None, mode))


def name_from_uri(uri: str) -> str:
    """Return a table name from the last folder of its URI."""
    return sanitized_name(file_name(uri.rstrip("/"))) or "table"


def _text(flag: bool) -> str:
    return "true" if flag else "false"


def _has_column(schema: pa.Schema, name: str) -> bool:
    head, *nested_names = name.split(".")
    position = schema.get_field_index(head)
    if position < 0:
        return False
    kind = schema.field(position).type
    for part in nested_names:
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return False
        kind = kind.field(part).type
    return True
