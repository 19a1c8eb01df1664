"""Schema evolution by column id (schema on read): a commit without rows that changes columns, as Hudi's ALTER TABLE creates it.

    plan        the columns after the change, with ids (`records.schema_on_read.column_changes`); a table without a
                column history is assigned ids first
    begin       lock: write `<t>.commit.requested`; unlock; write `<t>.inflight`
    commit      lock: check that the columns are those of the plan; update the metadata table; write the history to
                `.hoodie/.schema`; then the completed file, with `latest_schema` and `schema`; unlock

Data files do not change, and are read with the ids of the time at which they were written. A write that was requested
before the change commits as planned; a write that was requested later and planned without it is planned again, and so
is a change that conflicts with a write that changed columns concurrently.

Source: docs/formats/reading.md, "Columns by ids"; docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.avro.nodes import NO_DEFAULT, Array, Map, Node, Record, Union
from pyhudi.format.avro.schema import parse_schema
from pyhudi.format.avro_to_arrow import TIMESTAMP
from pyhudi.format.hudi_types import stated_hudi_type
from pyhudi.format.instants import Action
from pyhudi.format.meta_columns import with_meta_fields, without_meta_fields
from pyhudi.format.schema_history import ArrayType, ColumnType, MapType, StructType, VersionedSchema, all_ids
from pyhudi.metadata_table.writer.metadata_commit import indexing_requirements, prepare_metadata_commit
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.admin.stored_settings import column_defaults, table_constraints
from pyhudi.operations.commit.action_attempt import Phases, rollback_on_error
from pyhudi.operations.commit.begin_checks import check_same_version
from pyhudi.operations.commit.check_writable import check_schema_on_read_supported, check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.planned_commit import PlannedCommit, commit_metadata
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.write.resolve_blockers import rollback_failed_if_eager
from pyhudi.operations.write.write_attempt import retry_on_conflict, write_start
from pyhudi.operations.write.write_schemas import fixed_columns
from pyhudi.options import table_options
from pyhudi.options.declaration import OptionSettings
from pyhudi.options.table_options import CREATE_SCHEMA, DEFAULT_PREFIX
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.filters.filter_visitor import columns as filter_columns
from pyhudi.records.merge_mode import MARKER_FIELD, MergeMode
from pyhudi.records.record_merge import IS_DELETED
from pyhudi.records.schema_on_read.column_changes import (
    Add,
    AllowNulls,
    ColumnChange,
    Comment,
    Drop,
    Move,
    Rename,
    Retype,
    changed_columns,
)
from pyhudi.records.schema_on_read.column_ids import ELEMENT, VALUE
from pyhudi.table.schema_on_read_history import ColumnHistory, WrittenColumns
from pyhudi.table.snapshot import Snapshot, TableSchema, load_snapshot
from pyhudi.table.table_config import TableConfig, store_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline


@dataclass(frozen=True, slots=True)
class AlterSettings(OptionSettings):
    """Settings of a column change: those of its commit and of the metadata table."""

    commit: CommitSettings
    metadata: MetadataSettings


@observed("alter_schema")
def run_alter(context: TableContext, change: ColumnChange, settings: AlterSettings) -> WriteResult:
    """Change the table's columns.

    Raises:
        InvalidRequest: The columns do not allow the change.
        Unsupported: The table cannot resolve columns by id.
        TableState: The table has no columns.
    """
    return retry_on_conflict(context, settings.commit, lambda now: _alter(now, change, settings))


def _alter(context: TableContext, change: ColumnChange, settings: AlterSettings) -> WriteResult:
    phases = Phases(context.env)
    context = context.reloaded()
    check_writable(context)
    _check_open_to_changes(context)
    rolled_back, _ = rollback_failed_if_eager(context, settings.commit)
    # A refused change leaves nothing on the timeline.
    begun = load_snapshot(context)
    planned = _planned(begun, change, "0")
    if begun.timeline.last_completed_write() is None:
        created = context.config.create_schema
        if created is None or TableSchema.from_avro(created).arrow != planned.before.arrow:
            raise TableState(f"cannot change columns of the table at {context.storage.uri} before its next write: write first")
        _store_create_schema(context, planned, settings)
        phases.end("commit")
        return WriteResult("alter_schema", None, None, rolled_back=rolled_back, schema_changes=(_describe_change(change),))
    action = Action.COMMIT if context.config.is_cow else Action.DELTACOMMIT
    transaction = Transaction.begin(context, action, settings.commit)
    with rollback_on_error(transaction):
        snapshot = load_snapshot(context, timeline=transaction.requested_on)
        transaction.planned_on(snapshot)
        planned = _planned(snapshot, change, transaction.instant_time)
        transaction.columns = planned.written
        inflight = CommitMetadata(operation_type=Operation.ALTER_SCHEMA.value)
        transaction.start(inflight.encode(context.env.token_bytes(16)))
        metadata = commit_metadata(Operation.ALTER_SCHEMA, (), planned.after.stored_avro(context.config.name), {})
        columns = planned.after.arrow
        mirror = prepare_metadata_commit(
            context,
            None,
            indexing_requirements(context, settings.metadata, columns, planned.before.arrow, keys=False),
            columns,
            (),
            snapshot,
            time=transaction.instant_time,
            operation=Operation.ALTER_SCHEMA,
        )
        verify = partial(_check_still_open, context)
        done = transaction.commit(PlannedCommit(metadata, write_start(snapshot), (), mirror, verify))
    phases.end("commit")
    return WriteResult(
        operation="alter_schema",
        instant=done.request_time,
        completion_time=done.completion_time,
        rolled_back=rolled_back,
        schema_changes=(_describe_change(change),),
        seconds=phases.seconds,
    )


@dataclass(frozen=True, slots=True)
class _AlterPlan:
    """Columns before and after the change, and how the commit records them."""

    before: TableSchema
    after: TableSchema
    written: WrittenColumns


def _planned(snapshot: Snapshot, change: ColumnChange, instant_time: str) -> _AlterPlan:
    """Return the columns after a change by an instant."""
    context, before = snapshot.context, snapshot.schema
    if before is None:
        raise TableState(
            f"cannot change columns of the table at {context.storage.uri}: it has none before its first write. Create it with "
            "a schema, or write first."
        )
    _check_free_to_change(context.config, change, before.arrow)
    _check_no_constraint(context.config, change)
    _check_no_hudi_types(before.arrow)
    history = snapshot.history or ColumnHistory.first(before.arrow)
    if history.by_names:
        raise Unsupported(
            f"the newest write to {context.storage.uri} resolved columns by name "
            f"({table_options.SCHEMA_ON_READ}=false), so its columns have no ids until the next write by PyHudi, or "
            "with the option: write anything first, then change columns"
        )
    if history.is_new:
        _check_types_with_ids(before.arrow)
    history_with_ids = history.numbered(instant_time, before.arrow)
    changed = changed_columns(history_with_ids, with_meta_fields(before.arrow), change, int(instant_time))
    columns = without_meta_fields(changed.arrow)
    after = TableSchema(columns, arrow_to_avro(columns, context.config.name, before.avro))
    _check_defaults_stay(change, history_with_ids, before, changed.schema, after)
    return _AlterPlan(before, after, history.changed(instant_time, changed.schema))


def _store_create_schema(context: TableContext, planned: _AlterPlan, settings: AlterSettings) -> None:
    """Change the columns of a table without commits: those of its creation."""
    # A first write that planned with other columns detects the change when it commits, and is planned again.
    with context.locked(settings.commit.lock_wait_ms) as locked:
        check_same_version(locked)
        now = locked.reloaded()
        if now.timeline.load().last_completed_write() is not None or now.config.create_schema != context.config.create_schema:
            raise WriteConflict(f"the columns of {context.storage.uri} were changed by another writer")
        store_table_config(locked.storage, {CREATE_SCHEMA.stored_as: planned.after.avro}, context.env)


def _describe_change(change: ColumnChange) -> str:
    match change:
        case Add():
            return f"{change.path} added as {change.type}"
        case Drop():
            return f"{change.path} dropped"
        case Rename():
            return f"{change.path} renamed to {change.name}"
        case Retype():
            return f"{change.path} changed to {change.type}"
        case Move():
            return f"{change.path} moved {f'after {change.after}' if change.after else 'to the first position'}"
        case Comment():
            return f"{change.path} has another comment"
        case AllowNulls():
            return f"{change.path} may be null"


def _check_still_open(context: TableContext, current_timeline: Timeline) -> None:
    """Check again under the lock: an index that resolves columns by name may have been created since."""
    _check_open_to_changes(context.reloaded())


def _check_open_to_changes(context: TableContext) -> None:
    config, uri = context.config, context.storage.uri
    check_schema_on_read_supported(context)
    if config.cdc_enabled:
        raise Unsupported(
            f"changing columns by id of {uri} is not supported: its change data stores rows with the columns of their time"
        )
    if config.merge.mode is MergeMode.CUSTOM:
        raise Unsupported(
            f"changing columns by id of {uri} is not supported: {config.merge.payload_class or 'a merger'} merges "
            "its records, and may access columns by name"
        )


def _check_no_constraint(config: TableConfig, change: ColumnChange) -> None:
    """Raise InvalidRequest if a constraint reads the column, or a part of it, and the change is more than a comment."""
    if not isinstance(change, (Drop, Rename, Retype)):
        return
    for name, condition in table_constraints(config):
        for column in filter_columns(parse_filter(condition)):
            if f"{column}.".startswith(f"{change.path}.") or f"{change.path}.".startswith(f"{column}."):
                raise InvalidRequest(
                    f"column {change.path} is read by constraint {name!r} ({condition}): drop the constraint first"
                )


def _check_free_to_change(config: TableConfig, change: ColumnChange, schema: pa.Schema) -> None:
    """Check that no key, partition or ordering uses a column, and that column ids can represent its change.

    Integers that identify or order records may become larger ones: the texts of keys and paths, and the order, stay.
    """
    names = {change.path, change.name} if isinstance(change, Rename) else {change.path}
    if IS_DELETED in names:
        raise Unsupported(f"column {IS_DELETED!r} marks deletes, and cannot be changed by id; a write may add it")
    if not isinstance(change, Drop | Rename | Retype):
        return
    doing = {Drop: "dropped", Rename: "renamed"}.get(type(change), "given another type")
    marker = dict(config.merge.properties).get(MARKER_FIELD)
    fixed = {**({marker: "the delete field"} if marker else {}), **fixed_columns(config)}
    for name, role in fixed.items():
        if name != marker and name == change.path and isinstance(change, Retype) and _is_larger_integer(schema, change):
            continue
        if f"{name}.".startswith(f"{change.path}.") or f"{change.path}.".startswith(f"{name}."):
            raise InvalidRequest(f"column {change.path!r} cannot be {doing}: {name} is {role}, which identifies records")
    if change.path in column_defaults(config):
        raise InvalidRequest(
            f"column {change.path!r} cannot be {doing}: it has a default, property {DEFAULT_PREFIX}{change.path}. Remove "
            "that first"
        )


def _is_larger_integer(schema: pa.Schema, change: Retype) -> bool:
    position = schema.get_field_index(change.path)
    known = schema.field(position).type if position >= 0 else None
    return known == pa.int32() and change.type == pa.int64()


def _check_defaults_stay(
    change: ColumnChange,
    history_with_ids: VersionedSchema,
    before: TableSchema,
    changed_schema: VersionedSchema,
    after: TableSchema,
) -> None:
    """Check that each remaining column keeps its default, which older files without the column are read with."""
    remaining = set(all_ids(StructType(changed_schema.columns)))
    defaults_after = {column_id: default for column_id, _, default in _defaults(changed_schema, after)}
    for column_id, path, default in _defaults(history_with_ids, before):
        if column_id in remaining and defaults_after.get(column_id) != default:
            raise Unsupported(
                f"column {change.path!r} cannot be changed in this way: {path} has a default in the table's schema, which "
                "column ids do not store"
            )


def _defaults(schema: VersionedSchema, stored: TableSchema) -> Iterator[tuple[int, str, Any]]:
    """Yield id, dotted path and default of each column with a default other than null in a table's schema."""
    return _defaults_below(StructType(schema.columns), parse_schema(stored.avro).root, "")


def _defaults_below(type_: ColumnType, node: Node, path: str) -> Iterator[tuple[int, str, Any]]:
    if isinstance(node, Union):
        node = next(branch for branch in node.branches if branch.kind != "null")
    if isinstance(type_, StructType) and isinstance(node, Record):
        columns = {column.name: column for column in type_.columns}
        for field in node.fields:
            column, field_path = columns[field.name], path + field.name
            if field.default is not NO_DEFAULT and field.default is not None:
                yield column.column_id, field_path, field.default
            yield from _defaults_below(column.type, field.node, f"{field_path}.")
    elif isinstance(type_, ArrayType) and isinstance(node, Array):
        yield from _defaults_below(type_.element, node.items, f"{path}{ELEMENT}.")
    elif isinstance(type_, MapType) and isinstance(node, Map):
        yield from _defaults_below(type_.value, node.values, f"{path}{VALUE}.")


def _check_no_hudi_types(schema: pa.Schema) -> None:
    """Refuse the types of Hudi 1.2, with which Hudi itself cannot read a table whose columns have ids."""
    for field in schema:
        hudi_type = stated_hudi_type(field)
        if hudi_type is not None:
            raise Unsupported(
                f"columns cannot be changed by id in a table with column {field.name!r} of type {hudi_type}: Hudi 1.2.0 cannot "
                "read such a table afterwards"
            )


def _check_types_with_ids(schema: pa.Schema) -> None:
    """Refuse types that a schema with ids cannot represent: it stores no unit of a timestamp, and no lack of a time zone."""
    for field in schema:
        others = [type_ for type_ in _plain_types(field.type) if pa.types.is_timestamp(type_) and type_ != TIMESTAMP]
        if others:
            raise Unsupported(
                f"columns cannot be changed by id in a table with column {field.name!r} of type {others[0]}: ids "
                f"support only {TIMESTAMP}"
            )


def _plain_types(type_: pa.DataType) -> list[pa.DataType]:
    below = [type_.field(index).type for index in range(type_.num_fields)]
    return [plain for one in below for plain in _plain_types(one)] if below else [type_]
