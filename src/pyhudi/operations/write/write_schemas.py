"""Schemas of a write: the table's columns after it, and how records are identified and merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.avro_to_arrow import check_supported
from pyhudi.format.hudi_types import stated_hudi_type
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY, without_meta_fields
from pyhudi.operations.admin.create_table import check_columns
from pyhudi.operations.admin.table_settings import zone_mode
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.write_options import DELETE_FIELD, DELETE_MARKER, SCHEMA_MODE
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.keys.key_spec import KeySpec, partition_columns
from pyhudi.records.keys.key_values import check_key_argument
from pyhudi.records.mergers import PartialRows, check_partial_merge, honors_delete_markers, marked_rule, merge_rule
from pyhudi.records.record_merge import IS_DELETED, CommitTimeRule, RecordMergeRule
from pyhudi.records.schema_evolution import (
    RECORD_KEY_ROLE,
    SchemaMode,
    continues,
    evolve,
    integer_hint,
    schema_changes,
    typed_nulls,
)
from pyhudi.records.timestamp_coercion import ZonelessTimestamps, with_zones
from pyhudi.records.type_normalization import normalize_types
from pyhudi.table.snapshot import Snapshot, TableSchema, declared_path_fields
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext

_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True, slots=True)
class WriteSchemas:
    """The table's columns after the write, and how records are identified and merged.

    Attributes:
        data_schema: Columns of the data files.
        schema_text: The table schema in Avro JSON.
        keys: Record key and partition fields.
        rule: Merge rule for duplicates among the incoming rows.
        stored_rule: Merge rule for an incoming and a stored record.
        keys_only: The rows only delete.
        unplaced: The rows have no partition, so all partitions are searched.
        input: Columns of a partial update.
        changes: Changes of the table's columns, for the result.
        partition_columns: Partition columns that data files omit.
    """

    data_schema: pa.Schema
    schema_text: str
    keys: KeySpec
    rule: RecordMergeRule
    stored_rule: RecordMergeRule
    keys_only: bool
    unplaced: bool
    input: pa.Schema | None = None
    changes: tuple[str, ...] = ()
    partition_columns: pa.Schema = _NO_COLUMNS

    @classmethod
    def of(cls, context: TableContext, snapshot: Snapshot, incoming: pa.Schema, settings: WriteSettings) -> WriteSchemas:
        """Derive the schemas of a write of ``incoming`` to the current table. Raises InvalidRequest for invalid columns."""
        config = context.config
        current = None if settings.replaces_schema else snapshot.schema
        if current is not None:
            check_supported(current.arrow, f"the table at {context.storage.uri} cannot be written")
        keys_only = settings.operation is WriteOperation.DELETE
        placing = _NO_COLUMNS
        known = pa.schema([*(current.arrow if current else ()), *snapshot.path_fields])
        zones = zone_mode(settings.without_zone, config.version)
        if keys_only:
            _check_delete_columns(config.keys, incoming)
            if current is None:
                raise TableState(f"the table at {context.storage.uri} has no commit yet; there is nothing to delete")
            _check_delete_types(config, incoming, known, zones)
            data_schema, text = current.arrow, current.avro
        else:
            columns = typed_nulls(with_zones(without_meta_fields(incoming), known, zones), known)
            brought = columns
            if config.omitted_columns:
                check_columns(config.keys, config.ordering_fields, normalize_types(brought))
                placing = _omitted_columns(snapshot, columns)
                columns = pa.schema([field for field in columns if field.name not in placing.names])
            if settings.partial and current is None:
                raise TableState(f"the table at {context.storage.uri} has no commit yet; there is nothing to update")
            data_schema = evolve(
                current.arrow if current else None,
                columns,
                settings.schema_mode,
                fixed=fixed_columns(config),
                null_for_missing=settings.null_for_missing,
                allow_drop=settings.allow_drop and not settings.partial,
                partial=settings.partial,
            )
            if settings.replaces_schema and snapshot.schema is not None and settings.schema_mode is not SchemaMode.EVOLVE:
                _check_types_continue(context, snapshot.schema.arrow, data_schema)
            check_columns(config.keys, config.ordering_fields, normalize_types(brought))
            check_columns(config.keys, config.ordering_fields, pa.schema([*data_schema, *placing]))
            _check_hudi_types(config, data_schema)
            text = arrow_to_avro(data_schema, config.name, current.avro if current else None)
            _check_delete_flag(data_schema)
        rule = merge_rule(config.merge, TableSchema(data_schema, text).defaults)
        if settings.marker is not None and not keys_only and rule.marker is None:
            _check_marker(context, settings, data_schema)
        marked = marked_rule(rule, settings.marker, data_schema)
        rule = rule if keys_only else marked
        input_columns = None
        if settings.partial:
            _check_partial(context, rule, current.arrow if current else None, data_schema)
            brought_names = set(incoming.names)
            input_columns = pa.schema([field for field in data_schema if field.name in brought_names])
        some = input_columns is not None and len(input_columns) < len(data_schema)
        unplaced = (
            keys_only and not {RECORD_KEY, PARTITION_PATH} <= set(incoming.names) and not _names_partition(config.keys, incoming)
        )
        among_rows: RecordMergeRule = rule
        if keys_only:
            among_rows = CommitTimeRule()
        elif some and not rule.selects_one_side and rule.filling is None:
            among_rows = PartialRows(rule)
        changes = schema_changes(current.arrow, data_schema) if current else ()
        return cls(data_schema, text, config.keys, among_rows, rule, keys_only, unplaced, input_columns, changes, placing)

    @property
    def partial(self) -> bool:
        """True if the rows omit columns, which retain their values."""
        return self.input is not None and len(self.input) < len(self.data_schema)


def _omitted_columns(snapshot: Snapshot, columns: pa.Schema) -> pa.Schema:
    """Return the columns that data files omit, with the types from which partition paths are built."""
    # If the table records no type, each batch uses its own: a path is text, and so is the value read from it.
    omitted = normalize_types(pa.schema([columns.field(name) for name in snapshot.config.omitted_columns]))
    declared = declared_path_fields(snapshot.config)
    typed = pa.schema([declared.field(field.name) if field.name in declared.names else field for field in omitted])
    return evolve(typed, omitted, SchemaMode.STRICT, fixed=fixed_columns(snapshot.config))


def fixed_columns(config: TableConfig) -> Mapping[str, str]:
    """Return the columns that identify and order records, with the role of each: their types must not change."""
    keys = config.keys
    role = "the ordering field" if len(config.ordering_fields) == 1 else "an ordering field"
    ordering = dict.fromkeys(config.ordering_fields, role)
    partition = dict.fromkeys(partition_columns(keys), "a partition field")
    return {**ordering, **partition, **dict.fromkeys(keys.record_fields, RECORD_KEY_ROLE)}


def _check_hudi_types(config: TableConfig, schema: pa.Schema) -> None:
    named = next((field for field in schema if stated_hudi_type(field) is not None), None)
    if named is not None and (config.base_file_format == "ORC" or config.several_formats):
        raise Unsupported(
            f"column {named.name!r} is of type {stated_hudi_type(named)}, which ORC base files of the table {config.name} cannot "
            "hold. Use Parquet"
        )


def _check_partial(context: TableContext, rule: RecordMergeRule, current: pa.Schema | None, after: pa.Schema) -> None:
    if current != after:
        raise InvalidRequest("a partial update changes no columns of the table: it has a subset of them, with their types")
    check_partial_merge(rule)
    if not context.config.populate_meta_fields:
        raise Unsupported(
            "partial updates are not supported in a table without meta columns; Hudi 1.0.2 refuses them too "
            "(`Partial updates are not supported for virtual key tables`). Upsert whole rows."
        )


def _check_marker(context: TableContext, settings: WriteSettings, schema: pa.Schema) -> None:
    config = context.config
    if not honors_delete_markers(config.merge):
        raise InvalidRequest(
            f"{DELETE_FIELD} and {DELETE_MARKER}: the table's payload class {config.merge.payload_class} ignores "
            "delete markers, so the rows would be stored; delete them by key, or mark them in _hoodie_is_deleted"
        )
    if settings.partial:
        raise Unsupported(f"{DELETE_FIELD} is not supported in a partial update: delete those records by key")
    field = config.ordering_field
    if not config.is_cow and field is not None and IS_DELETED not in schema.names and _is_decimal(schema, field):
        raise Unsupported(
            f"{DELETE_FIELD} is not supported in a merge-on-read table whose ordering field {field} is a decimal: "
            f"log files mark such a delete in column {IS_DELETED}, which the table lacks; delete those records by "
            "key"
        )


def _is_decimal(schema: pa.Schema, field: str) -> bool:
    return bool(pa.types.is_decimal(field_at(schema, field).type))


def _check_types_continue(context: TableContext, before: pa.Schema, after: pa.Schema) -> None:
    """Raise InvalidRequest for an overwrite with types that other Hudi writers cannot continue from."""
    if not continues(before, after):
        same = [field for field in after if field.name in before.names]
        changed = [f"{f.name} from {before.field(f.name).type} to {f.type}" for f in same if before.field(f.name).type != f.type]
        raise InvalidRequest(
            f"the overwrite of {context.storage.uri} would change types incompatibly ({', '.join(changed)}); Hudi "
            "could read the table but not write to it until the old files are cleaned. Cast the columns, write "
            f"to another folder, or request the change with {SCHEMA_MODE}=evolve."
        )


def _check_delete_columns(keys: KeySpec, schema: pa.Schema) -> None:
    names = set(schema.names)
    if {RECORD_KEY, PARTITION_PATH} <= names:
        return
    missing = [name for name in keys.record_fields if name.split(".")[0] not in names]
    if missing:
        raise InvalidRequest(
            f"the rows to delete lack record key field {', '.join(missing)}; their columns are: {', '.join(schema.names)}"
        )


def _check_delete_types(config: TableConfig, schema: pa.Schema, table: pa.Schema, zones: ZonelessTimestamps) -> None:
    """Check the key types of rows to delete: 1.0 and 1 are different key strings, and a delete of one does not find the other."""
    if {RECORD_KEY, PARTITION_PATH} <= set(schema.names):
        return
    keys = config.keys
    for name in (*keys.record_fields, *partition_columns(keys)):
        head = name.split(".")[0]
        if head not in schema.names:
            continue
        column = typed_nulls(with_zones(pa.schema([schema.field(head)]), table, zones), table)
        input_type, stored = field_at(normalize_types(column), name).type, field_at(table, name).type
        if name in keys.record_fields:
            check_key_argument(name, input_type, stored)
        families = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        alike = input_type == stored or any(family(input_type) and family(stored) for family in families)
        # A column that files omit is known as the text of its partition paths, unless the table declares its type.
        is_undeclared = name in config.omitted_columns and name not in declared_path_fields(config).names
        takes_any = is_undeclared or pa.types.is_integer(input_type)
        text = pa.types.is_string(input_type) or (pa.types.is_string(stored) and takes_any)
        if not alike and not text:
            raise InvalidRequest(
                f"column {name!r} of the rows to delete is {input_type}, and the table's is {stored}: cast "
                f"it{integer_hint(stored, input_type)}"
            )


def _names_partition(keys: KeySpec, schema: pa.Schema) -> bool:
    return all(name.split(".")[0] in schema.names for name in partition_columns(keys))


def _check_delete_flag(schema: pa.Schema) -> None:
    position = schema.get_field_index(IS_DELETED)
    if position >= 0 and not pa.types.is_boolean(schema.field(position).type):
        raise InvalidRequest(f"{IS_DELETED} must be a boolean column; it is {schema.field(position).type}")
