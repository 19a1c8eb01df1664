"""Writing records: upsert, insert, bulk insert, delete, and the overwriting operations.

    1. settle what died before; load the table's state; work out the schema after this write
    2. the engine takes the rows in: conformed, keyed, duplicates combined
    3. take an instant; look keys up; place inserts; write the inflight file
    4. the engine writes file groups, one task each
    5. commit; when another writer won, take this attempt back and plan again from 3 with the same rows

Source: writing and services, sections 1 and 2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.execute.base_file import FileSettings
from pyhudi.execute.cdc import ChangeLogSpec
from pyhudi.execute.engine import BulkPlan, Engine, Incoming, PrepareRequest, Tagged, TagRequest, WritePlan
from pyhudi.execute.log_scan import InstantValidity
from pyhudi.execute.read_slice import ReadSpec, run_read
from pyhudi.execute.write_base import PartialUpdate, WriterSpec, WriteStatus
from pyhudi.format.actions.commit import CommitMetadata, Operation, WriteStat
from pyhudi.format.actions.replace import RequestedReplaceMetadata
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.instants import Action, Instant
from pyhudi.format.meta_columns import with_meta_fields, without_meta_fields
from pyhudi.format.names import format_file_id
from pyhudi.operations.action.attempt import Phases, give_way, taken_back_on_error
from pyhudi.operations.action.claim import PlanTaken, settle_plan
from pyhudi.operations.action.gate import check_writable
from pyhudi.operations.action.observe import observed
from pyhudi.operations.action.results import WriteResult
from pyhudi.operations.action.rollback import rollback_failed_writes
from pyhudi.operations.action.settings import (
    DELETE_FIELD,
    DELETE_MARKER,
    MEMORY_BUDGET,
    METADATA_PREFIX,
    CommitSettings,
    delete_marker,
)
from pyhudi.operations.action.transaction import Transaction, commit_metadata, touched_groups
from pyhudi.operations.admin.create import TableSettings, check_columns
from pyhudi.operations.metadata.defined import load_defined_indexes
from pyhudi.operations.metadata.initialise import drop_for_new_columns, ensure_metadata_table, mirror_of
from pyhudi.operations.metadata.mirror import indexing_of
from pyhudi.operations.metadata.settings import MetadataSettings
from pyhudi.operations.metadata.store import maintained_partitions
from pyhudi.operations.read.query import Filter, Query, plan_snapshot_query
from pyhudi.operations.services.cluster import drop_clustering, settle_clustering
from pyhudi.operations.services.indexes import IndexType, LookupSettings, PlannedLookup, plan_lookup
from pyhudi.operations.services.run import with_services
from pyhudi.operations.services.settings import ServiceSettings
from pyhudi.operations.services.ttl import DeletePartitions
from pyhudi.operations.write.batches import StreamBatch, check_not_landed
from pyhudi.plan.conflicts import NEW_KEYS_ANYWHERE, FileGroupId, WriteStart, new_bucket, new_keys
from pyhudi.plan.write import (
    ESTIMATION_COMMITS,
    InsertTarget,
    SizingSettings,
    WorkloadProfile,
    estimate_record_size_bytes,
    plan_inserts,
    small_files,
)
from pyhudi.records.columns import field_at
from pyhudi.records.keys.spec import KeySpec, partition_columns
from pyhudi.records.merge import IS_DELETED, DeleteMarker, MergeRule, PickByCommitTime
from pyhudi.records.mergers import PartialRows, check_partial_merge, looks_at_markers, merge_rule
from pyhudi.records.meta_fields import PARTITION_PATH, RECORD_KEY
from pyhudi.records.normalise import normalise
from pyhudi.records.schema_evolution import SchemaMode, continues, evolve, schema_changes, typed_nulls, whole_number_hint
from pyhudi.settings import Option, Options, read_settings
from pyhudi.storage.clock import Environment
from pyhudi.table.config import TableConfig
from pyhudi.table.context import TableContext
from pyhudi.table.listing import check_own_folders
from pyhudi.table.metadata.listing import choose_listing
from pyhudi.table.slices import FileSlice
from pyhudi.table.snapshot import Snapshot, load_snapshot, read_commit


class WriteOperation(StrEnum):
    """`hoodie.datasource.write.operation`."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"

    @property
    def recorded(self) -> Operation:
        """What commits say."""
        return Operation[self.name]

    @property
    def replaces(self) -> bool:
        """True when it replaces file groups."""
        return self.recorded.replaces


_OVERWRITE_VERBS = ("insert_overwrite", "insert_overwrite_table")
_WITH_ROWS = ("upsert", "insert", "bulk_insert", *_OVERWRITE_VERBS)

OPERATION = Option(
    "hoodie.datasource.write.operation",
    tuple(WriteOperation),
    WriteOperation.UPSERT.value,
    "what a write does; unset: upsert, or bulk_insert where nothing names a record key",
    chooses="write",
)
PARTITIONS_TO_DELETE = Option(
    "hoodie.datasource.write.partitions.to.delete",
    str,
    None,
    "partitions that delete_partition deletes; unset: those of the rows",
    chooses="write",
)
PARTIAL_UPDATE = Option(
    "pyhudi.partial.update",
    bool,
    "false",
    "the rows of an upsert hold some columns, and the others keep their values",
    chooses="write",
    verbs=("upsert",),
)
DUPLICATE_POLICY = Option(
    "hoodie.datasource.insert.dup.policy",
    ("none", "drop", "fail"),
    "none",
    "what an insert does with rows whose keys are in the table: adds them, leaves them out, or fails",
    verbs=("insert",),
)
_DROP_DUPLICATES = Option(
    "hoodie.datasource.write.insert.drop.duplicates",
    bool,
    "false",
    "as hoodie.datasource.insert.dup.policy=drop; makes an upsert an insert",
    verbs=("upsert", "insert", "bulk_insert"),
)
_COMBINE = {
    WriteOperation.UPSERT: Option(
        "hoodie.combine.before.upsert",
        bool,
        "true",
        "of several rows of one key in an upsert the one that wins by the merge mode is written",
        verbs=("upsert",),
    ),
    WriteOperation.DELETE: Option(
        "hoodie.combine.before.delete", bool, "true", "keys that are given twice are deleted once", verbs=("delete",)
    ),
}
_COMBINE_INSERTS = Option(
    "hoodie.combine.before.insert",
    bool,
    "false",
    "of several rows of one key in an insert or overwrite one is written",
    verbs=_WITH_ROWS,
)
SCHEMA_MODE = Option(
    "pyhudi.schema.mode",
    tuple(SchemaMode),
    SchemaMode.WIDEN.value,
    "what rows may change of the table's columns: nothing, what loses nothing, or what Hudi changes by itself",
    verbs=_WITH_ROWS,
)
_NULL_FOR_MISSING = Option(
    "hoodie.write.set.null.for.missing.columns",
    bool,
    "false",
    "columns that the rows of a write lack become null; false refuses them",
    verbs=_WITH_ROWS,
)
_RECONCILE = Option(
    "hoodie.datasource.write.reconcile.schema",
    bool,
    "false",
    "the same as hoodie.write.set.null.for.missing.columns",
    verbs=_WITH_ROWS,
)
_STATIC_PARTITIONS = Option(
    "hoodie.static.overwrite.partition.paths",
    str,
    None,
    "partitions that an insert overwrite replaces beside those of its rows",
    chooses="write",
    verbs=_OVERWRITE_VERBS,
)
_UPDATE_STRATEGY = Option(
    "hoodie.clustering.updates.strategy",
    str,
    "SparkRejectUpdateStrategy",
    "class that says whether a write may change files of a planned clustering",
)


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """One write, parsed.  extra_metadata: what the commit carries beside the schema.

    clustering_updates: whether writes may change file groups of a pending clustering, reject or allow; drops_clusterings: whether
    they drop the plan then, so that nobody works for nothing.  batch: what of a stream is written, so that it lands once.
    partial: an upsert's rows hold some columns only, and the others keep their values.  marker: what makes a row a delete, in
    place of `_hoodie_is_deleted`.  anew: the columns of the rows become the table's, whatever those were.
    """

    operation: Annotated[WriteOperation, _DROP_DUPLICATES]
    index: LookupSettings
    combine: Annotated[bool, *_COMBINE.values(), _COMBINE_INSERTS]
    duplicate_policy: Annotated[str, DUPLICATE_POLICY, _DROP_DUPLICATES]
    allow_duplicates: Annotated[
        bool,
        Option(
            "hoodie.merge.allow.duplicate.on.inserts",
            bool,
            "true",
            "inserts into a small file stay records of their own when their keys are there; false merges them",
            verbs=("insert",),
        ),
    ]
    sort_mode: Annotated[
        str,
        Option(
            "hoodie.bulkinsert.sort.mode",
            ("NONE", "GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT"),
            "NONE",
            "how a bulk insert orders and deals out its rows",
            verbs=("bulk_insert",),
        ),
    ]
    bulk_parallelism: Annotated[
        int,
        Option(
            "hoodie.bulkinsert.shuffle.parallelism",
            int,
            "0",
            "tasks that a bulk insert deals its rows out to; 0: the engine chooses",
            verbs=("bulk_insert",),
        ),
    ]
    schema_mode: Annotated[SchemaMode, SCHEMA_MODE]
    null_for_missing: Annotated[bool, _NULL_FOR_MISSING, _RECONCILE]
    allow_drop: Annotated[
        bool,
        Option(
            "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
            bool,
            "false",
            "a write whose rows lack columns drops them from the table",
            verbs=_WITH_ROWS,
        ),
    ]
    allow_empty: Annotated[
        bool, Option("hoodie.allow.empty.commit", bool, "true", "a write that changes nothing commits all the same")
    ]
    memory_budget_bytes: Annotated[int, MEMORY_BUDGET]
    partitions_to_overwrite: Annotated[tuple[str, ...] | None, _STATIC_PARTITIONS]
    files: FileSettings
    sizing: SizingSettings
    commit: CommitSettings
    extra_metadata: Annotated[tuple[tuple[str, str], ...], METADATA_PREFIX]
    services: ServiceSettings
    metadata: MetadataSettings
    clustering_updates: Annotated[str, _UPDATE_STRATEGY]
    drops_clusterings: Annotated[
        bool,
        Option(
            "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
            bool,
            "false",
            "a write to files of a planned clustering, where it is allowed, drops the plan",
        ),
    ]
    partial: Annotated[bool, PARTIAL_UPDATE]
    batch: StreamBatch | None = None
    marker: Annotated[DeleteMarker | None, DELETE_FIELD, DELETE_MARKER] = None
    anew: bool = False

    @classmethod
    def of(cls, options: Options, operation: WriteOperation) -> WriteSettings:
        """From checked options.  Raises InvalidRequest for options that do not go together."""
        policy = options.word(DUPLICATE_POLICY)
        if options.flag(_DROP_DUPLICATES):
            if operation is WriteOperation.BULK_INSERT:
                raise InvalidRequest(f"{_DROP_DUPLICATES} does not go with bulk_insert; use insert")
            policy = "drop"
            if operation is WriteOperation.UPSERT:
                if options.flag(PARTIAL_UPDATE):
                    raise InvalidRequest(f"{_DROP_DUPLICATES} makes the upsert an insert, and {PARTIAL_UPDATE} needs an upsert")
                operation = WriteOperation.INSERT
        static = options.text(_STATIC_PARTITIONS)
        prefix = options.word(METADATA_PREFIX)
        return read_settings(
            cls,
            options,
            operation=operation,
            combine=options.flag(_COMBINE.get(operation, _COMBINE_INSERTS)),
            duplicate_policy=policy,
            schema_mode=SchemaMode(options.word(SCHEMA_MODE)),
            null_for_missing=options.flag(_NULL_FOR_MISSING) or options.flag(_RECONCILE),
            partitions_to_overwrite=tuple(part.strip() for part in static.split(",")) if static else None,
            extra_metadata=tuple((key, value) for key, value in options.extra if prefix and key.startswith(prefix)),
            clustering_updates=_update_strategy(options),
            partial=options.flag(PARTIAL_UPDATE) and operation is WriteOperation.UPSERT,
            marker=delete_marker(options, beside_flag=False),
        )

    def overwriting(self) -> WriteSettings:
        """The write that leaves these rows alone in the table, combined as they would be, and their columns as the table's.

        One commit replaces all that is there.  Raises InvalidRequest for a partial update, which needs what is there.
        """
        if self.partial:
            raise InvalidRequest("a partial update changes records that are there; overwriting the table leaves none of them")
        return replace(self, operation=WriteOperation.INSERT_OVERWRITE_TABLE, anew=True)

    @property
    def routes(self) -> bool:
        """True when the index alone says which file group takes a record, whatever the operation."""
        return self.index.kind is IndexType.BUCKET


def check_first_write(uri: str, options: Options, settings: WriteSettings, columns: pa.Schema) -> None:
    """Raises InvalidRequest for what a table made of the options would refuse as its first write, before there is one."""
    if settings.partial or settings.operation in (WriteOperation.DELETE, WriteOperation.DELETE_PARTITION):
        wanted = "a partial update" if settings.partial else settings.operation
        raise InvalidRequest(f"there is no Hudi table at {uri}, so {wanted} has nothing to work on")
    table = TableSettings.of(options)
    check_columns(table.keys, table.ordering, normalise(without_meta_fields(columns)))


@observed("write")
def run_write(
    context: TableContext, engine: Engine, data: Any, settings: WriteSettings, *, seen: Snapshot | None = None
) -> WriteResult:
    """Write records.  data: anything the engine takes in.

    seen: the state in which the caller found the data, when there is one; what changed since then is a conflict, and the caller
    has to look again.
    Raises InvalidRequest for data that does not fit the table (nothing was written), WriteConflict when other writers won more
    often than the
    settings allow retries, TableState when the table forbids the write.
    """
    check_writable(context)
    _check_duplicate_policy(settings)
    phases = Phases(context.env)
    rolled_back = settle_failed_writes(context, settings.commit)
    snapshot = seen or load_snapshot(context)
    phases.end("load")
    columns = engine.input_schema(data)
    plan = _Schemas.of(context, snapshot, columns, settings)
    before = snapshot.schema.arrow if snapshot.schema else None
    listed_by = context.config.metadata_partitions
    if settings.anew:
        load_defined_indexes(context, maintained_partitions(context.config)).check(plan.data_schema)
    if before is None or not settings.anew or continues(before, plan.data_schema):
        wait_ms = settings.commit.lock_wait_ms
        context = ensure_metadata_table(context, engine, settings.metadata, wait_ms, plan.data_schema, before)
    if context.config.metadata_partitions != listed_by:
        # The metadata table that was to list the files may be gone now.
        snapshot = replace(snapshot, context=context, listing=choose_listing(context, snapshot.timeline))
    write = _Write(context, engine, settings, columns, plan, phases, rolled_back, chosen=seen is not None)
    adds = settings.operation in (WriteOperation.INSERT, WriteOperation.BULK_INSERT, *_OVERWRITES)
    names_records = settings.operation is WriteOperation.DELETE and {RECORD_KEY, PARTITION_PATH} <= set(columns.names)
    if plan.keys.generates_keys and not adds and not names_records:
        raise InvalidRequest(
            f"the table generates its record keys, so {settings.operation} cannot find records; use insert or bulk_insert"
        )
    result = write.run(data, snapshot, 0 if seen else settings.commit.conflict_retries)
    return with_services(
        context, engine, settings.services, result, snapshot.timeline, write.action, _deleting(context, engine, settings)
    )


@observed("delete")
def run_delete_where(
    context: TableContext,
    engine: Engine,
    where: Filter,
    settings: WriteSettings,
    read: Callable[[Query], Any] | None = None,
) -> WriteResult:
    """Delete the records for which a filter is true.  It is evaluated again when another writer changed one of their file groups
    meanwhile.

    read: the rows of a query as data that the engine takes in; None reads them into memory by tasks of the engine.
    """
    keys = context.config.keys
    fields = [name.split(".")[0] for name in (*keys.record_fields, *partition_columns(keys))]
    names = [RECORD_KEY, PARTITION_PATH] if context.config.populate_meta_fields else list(dict.fromkeys(fields))

    def into_memory(query: Query) -> pa.Table:
        found = engine.map(partial(_read_all, query.spec), query.plan.slices)
        return pa.concat_tables([query.spec.output.empty_table(), *found])

    def attempt() -> WriteResult:
        query = plan_snapshot_query(context.reloaded(), names, where)
        with _outdated_where_files_are_gone(query.snapshot):
            return run_write(context, engine, (read or into_memory)(query), settings, seen=query.snapshot)

    return _until_no_conflict(context.env, attempt, settings.commit.conflict_retries)


def _until_no_conflict(env: Environment, attempt: Callable[[], WriteResult], retries: int) -> WriteResult:
    """Attempt a write that plans itself anew each time, and `retries` times more while other writers win."""
    for number in range(retries):
        begun_ms = env.now_ms()
        try:
            return replace(attempt(), conflict_retries=number)
        except WriteConflict:
            give_way(env, env.now_ms() - begun_ms, number)
    return replace(attempt(), conflict_retries=retries)


def _read_all(spec: ReadSpec, slice_: FileSlice) -> pa.Table:
    return pa.concat_tables(list(run_read(spec, slice_)))


@observed("delete_partition")
def run_delete_partitions(
    context: TableContext, partitions: Iterable[str], settings: WriteSettings, engine: Engine | None = None
) -> WriteResult:
    """Remove all records of partitions by replacing their file groups with nothing.  `*` in a path stands for any characters.

    engine: looks the keys up that leave the record index, where the table has one; threads do when it is None.
    """
    check_writable(context)
    patterns = tuple(partitions)
    attempt = partial(_delete_partitions, context, patterns, settings, engine)
    return _until_no_conflict(context.env, attempt, settings.commit.conflict_retries)


def _delete_partitions(
    context: TableContext, patterns: tuple[str, ...], settings: WriteSettings, engine: Engine | None
) -> WriteResult:
    phases = Phases(context.env)
    context = context.reloaded()
    rolled_back = settle_failed_writes(context, settings.commit)
    wanted = re.compile("|".join(".*".join(re.escape(part) for part in pattern.split("*")) for pattern in patterns), re.DOTALL)
    transaction = Transaction.begin(
        context, Action.REPLACECOMMIT, settings.commit, RequestedReplaceMetadata().encode(context.env.token_bytes(16))
    )
    with taken_back_on_error(transaction):
        snapshot = load_snapshot(context, timeline=transaction.begun_on)
        replaced = live_file_ids(snapshot, [p for p in snapshot.listing.partitions() if patterns and wanted.fullmatch(p)])
        groups = [(p, f) for p, ids in replaced.items() for f in ids]
        _settle_groups_under_service(snapshot, groups, settings)
        transaction.start(CommitMetadata(operation_type=Operation.DELETE_PARTITION.value).encode(context.env.token_bytes(16)))
        schema_text = snapshot.schema.avro if snapshot.schema else ""
        metadata = commit_metadata(Operation.DELETE_PARTITION, (), schema_text, dict(settings.extra_metadata), replaced)
        schema = snapshot.schema.arrow if snapshot.schema else None
        indexing = indexing_of(context, settings.metadata, schema, schema) if schema is not None else None
        mirror = mirror_of(
            context, engine, indexing, schema, (), snapshot, transaction.instant_time, Operation.DELETE_PARTITION, replaced
        )
        done = transaction.commit(metadata, _start_of(snapshot), groups, mirror)
    phases.end("commit")
    result = WriteResult(
        operation=str(settings.operation),
        instant=done.request_time,
        completion_time=done.completion_time,
        file_groups_replaced=sum(len(ids) for ids in replaced.values()),
        rolled_back=rolled_back,
        seconds=phases.seconds,
    )
    return with_services(
        context, engine, settings.services, result, snapshot.timeline, Action.REPLACECOMMIT, _deleting(context, engine, settings)
    )


def _deleting(context: TableContext, engine: Engine | None, settings: WriteSettings) -> DeletePartitions:
    """Deletes partitions after a write, with its settings but without services of its own."""
    quiet = replace(settings, operation=WriteOperation.DELETE_PARTITION, services=settings.services.none())
    return lambda partitions: run_delete_partitions(context, partitions, quiet, engine)


def settle_failed_writes(context: TableContext, settings: CommitSettings) -> tuple[str, ...]:
    """Under the EAGER policy, roll back what died before.  Returns the instants that were rolled back."""
    if settings.failed_writes != "EAGER":
        return ()
    return tuple(result.rolled_back for result in rollback_failed_writes(context, settings))


def live_file_ids(snapshot: Snapshot, partitions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The file groups of partitions that a snapshot query sees; partitions without any are left out."""
    slices = snapshot.slices(list(partitions))
    return {partition: tuple(s.file_id for s in found) for partition, found in slices.items() if found}


_NO_LIMIT_BYTES = 1 << 62

_OVERWRITES = (WriteOperation.INSERT_OVERWRITE, WriteOperation.INSERT_OVERWRITE_TABLE)


@dataclass(frozen=True, slots=True)
class _Schemas:
    """The table's columns after the write, and how records are named and merged.

    rule: for duplicates among the incoming rows; stored_rule: for an incoming and a stored record.  keys_only: rows only delete.
    unplaced: they name no partition, so all partitions are searched.  given: the columns of a partial update.  changes: of the
    table's columns, for the result.
    """

    data_schema: pa.Schema
    schema_text: str
    keys: KeySpec
    rule: MergeRule
    stored_rule: MergeRule
    keys_only: bool
    unplaced: bool
    given: pa.Schema | None = None
    changes: tuple[str, ...] = ()

    @classmethod
    def of(cls, context: TableContext, snapshot: Snapshot, incoming: pa.Schema, settings: WriteSettings) -> _Schemas:
        config = context.config
        current = None if settings.anew else snapshot.schema
        keys_only = settings.operation is WriteOperation.DELETE
        if keys_only:
            _check_delete_columns(config.keys, incoming)
            if current is None:
                raise TableState(f"the table at {context.storage.uri} has no commit yet; there is nothing to delete")
            _check_delete_types(config.keys, incoming, current.arrow)
            data_schema, text = current.arrow, current.avro
        else:
            columns = without_meta_fields(incoming)
            if settings.partial and current is None:
                raise TableState(f"the table at {context.storage.uri} has no commit yet; there is nothing to update")
            if current is not None:
                columns = typed_nulls(columns, current.arrow)
            data_schema = evolve(
                current.arrow if current else None,
                columns,
                settings.schema_mode,
                fixed=_fixed_columns(config),
                null_for_missing=settings.null_for_missing or settings.partial,
                allow_drop=settings.allow_drop and not settings.partial,
            )
            if settings.anew and snapshot.schema is not None and settings.schema_mode is not SchemaMode.EVOLVE:
                _check_goes_on(context, snapshot.schema.arrow, data_schema)
            check_columns(config.keys, config.ordering_field, normalise(columns))
            text = arrow_to_avro(data_schema, config.name, current.avro if current else None)
            _check_delete_flag(data_schema)
        rule = merge_rule(config.merge)
        if settings.marker is not None:
            settings.marker.check(data_schema)
            if not keys_only:
                _check_marker(context, settings, data_schema)
                rule = rule.with_marker(settings.marker)
        given = None
        if settings.partial:
            _check_partial(context, rule, current.arrow if current else None, data_schema)
            given = pa.schema([field for field in data_schema if field.name in incoming.names])
        some = given is not None and len(given) < len(data_schema)
        unplaced = (
            keys_only and not {RECORD_KEY, PARTITION_PATH} <= set(incoming.names) and not _names_partition(config.keys, incoming)
        )
        among_rows: MergeRule = rule
        if keys_only:
            among_rows = PickByCommitTime()
        elif some and not rule.picks:
            among_rows = PartialRows(rule)
        changes = schema_changes(current.arrow, data_schema) if current else ()
        return cls(data_schema, text, config.keys, among_rows, rule, keys_only, unplaced, given, changes)

    @property
    def partial(self) -> bool:
        """True when the rows lack columns, which keep their values."""
        return self.given is not None and len(self.given) < len(self.data_schema)


def _fixed_columns(config: TableConfig) -> Mapping[str, str]:
    """The columns by which records are found and compared, and what each is: another type would make other keys of them, and
    another order.
    """
    keys = config.keys
    ordering = {config.ordering_field: "the ordering field"} if config.ordering_field else {}
    partition = dict.fromkeys(partition_columns(keys), "a partition field")
    return {**ordering, **partition, **dict.fromkeys(keys.record_fields, "a record key field")}


def _check_partial(context: TableContext, rule: MergeRule, current: pa.Schema | None, after: pa.Schema) -> None:
    if current != after:
        raise InvalidRequest("a partial update changes no columns of the table: it holds some of them, with their types")
    check_partial_merge(rule)
    if not context.config.populate_meta_fields:
        raise Unsupported(
            "partial updates in a table without meta columns; the real Hudi 1.0.2 refuses them there too (`Partial updates are "
            "not supported for virtual key tables`): upsert whole rows"
        )


def _check_marker(context: TableContext, settings: WriteSettings, schema: pa.Schema) -> None:
    config = context.config
    if not looks_at_markers(config.merge):
        raise InvalidRequest(
            f"{DELETE_FIELD} and {DELETE_MARKER}: the table's payload class "
            f"{config.merge.payload_class} looks at no delete marker, so the rows would be stored; delete them by key, or mark "
            "them in _hoodie_is_deleted"
        )
    if settings.partial:
        raise Unsupported(f"{DELETE_FIELD} in a partial update: delete those records by key")
    field = config.ordering_field
    if not config.is_cow and field is not None and IS_DELETED not in schema.names and _is_decimal(schema, field):
        raise Unsupported(
            f"{DELETE_FIELD} in a merge-on-read table whose ordering field {field} is a decimal: log files tell "
            f"such a delete by the column {IS_DELETED}, which the table lacks; delete those records by key"
        )


def _is_decimal(schema: pa.Schema, field: str) -> bool:
    return bool(pa.types.is_decimal(field_at(schema, field).type))


class _Write:
    """One write under way."""

    def __init__(
        self,
        context: TableContext,
        engine: Engine,
        settings: WriteSettings,
        columns: pa.Schema,
        schemas: _Schemas,
        phases: Phases,
        rolled_back: tuple[str, ...],
        *,
        chosen: bool,
    ) -> None:
        """chosen: the rows were chosen by the state that was loaded, so no other state will do."""
        self.context = context
        self.engine = engine
        self.settings = settings
        self.columns = columns
        self.schemas = schemas
        self.phases = phases
        self.rolled_back = rolled_back
        self.chosen = chosen
        self.rows_in = 0
        self.operation = settings.operation
        self.global_keys = settings.index.kind.is_global
        added_as = Action.COMMIT if context.config.is_cow else Action.DELTACOMMIT
        self.action = Action.REPLACECOMMIT if settings.operation.replaces else added_as

    def run(self, data: Any, snapshot: Snapshot, retries: int) -> WriteResult:
        incoming = self.engine.prepare(data, self._prepare_request(snapshot))
        try:
            # A bulk insert places nothing, so its rows need not be held and counted before they are written.
            uncounted = self.operation is WriteOperation.BULK_INSERT and self.settings.allow_empty and not self.settings.routes
            counts = {} if uncounted else incoming.partitions()
            self.rows_in = sum(counts.values())
            self.phases.end("prepare")
            if not counts and not self.settings.allow_empty and self.operation is not WriteOperation.INSERT_OVERWRITE_TABLE:
                return WriteResult(str(self.operation), None, None, rolled_back=self.rolled_back, seconds=self.phases.seconds)
            for attempt in range(retries):
                begun_ms = self.context.env.now_ms()
                try:
                    return self._attempt(incoming, counts, snapshot, attempt)
                except WriteConflict:
                    give_way(self.context.env, self.context.env.now_ms() - begun_ms, attempt)
                    self.context = self.context.reloaded()
                    snapshot = load_snapshot(self.context)
                    fitted, self.schemas = self.schemas, _Schemas.of(self.context, snapshot, self.columns, self.settings)
                    if not fitted.keys_only and self.schemas.data_schema != fitted.data_schema:
                        # The rows were made to fit columns that another writer changed meanwhile.
                        incoming.refit(self._prepare_request(snapshot))
            return self._attempt(incoming, counts, snapshot, retries)
        finally:
            incoming.release()

    def _prepare_request(self, snapshot: Snapshot) -> PrepareRequest:
        # Generated keys carry an instant time; any that no other write of this process has will do, so the clock's is taken with
        # a random tail.
        stamp = str(self.context.env.now_ms()) + str(int.from_bytes(self.context.env.token_bytes(4), "big"))
        return PrepareRequest(
            data_schema=self.schemas.data_schema if self.schemas.given is None else self.schemas.given,
            keys=self.schemas.keys,
            rule=self.schemas.rule,
            combine=self.settings.combine,
            global_keys=self.global_keys,
            keys_only=self.schemas.keys_only,
            instant_time=stamp,
            memory_budget_bytes=self.settings.memory_budget_bytes,
            required_ordering=self.context.config.ordering_field if self._compares_ordering() else None,
            by_partition=self.operation is WriteOperation.BULK_INSERT or self.operation.replaces,
            looked_up=self._looks_keys_up() and not self.settings.routes,
        )

    def _looks_keys_up(self) -> bool:
        """Whether the index says where incoming keys stand; a bucket index does so whatever the operation."""
        if self.settings.routes:
            return True
        if self.operation is WriteOperation.BULK_INSERT or self.operation.replaces:
            return False
        return self.operation is not WriteOperation.INSERT or self.settings.duplicate_policy != "none"

    def _compares_ordering(self) -> bool:
        """Whether a null ordering value is refused: in upserts, as in real Hudi, and wherever the row can meet a log record, with
        which real readers cannot compare it.
        """
        merges = self.operation is WriteOperation.UPSERT or self.settings.anew
        return (merges and self.settings.combine) or not self.context.config.is_cow

    def _attempt(self, incoming: Incoming, counts: Mapping[str, int], snapshot: Snapshot, attempt: int) -> WriteResult:
        snapshot = self._without_stale_indexes(snapshot)
        replaces = self.operation.replaces
        requested = RequestedReplaceMetadata().encode(self.context.env.token_bytes(16)) if replaces else b""
        transaction = Transaction.begin(self.context, self.action, self.settings.commit, requested)
        with taken_back_on_error(transaction):
            snapshot, start = self._state_to_plan_on(snapshot, transaction)
            with _outdated_where_files_are_gone(snapshot):
                spec = self._writer_spec(transaction, snapshot)
                replaced = self._replaced(snapshot, counts) if replaces else None
                lookup = None
                read: list[FileGroupId] = []
                if (self.operation is WriteOperation.BULK_INSERT or replaces) and not self.settings.routes:
                    transaction.start(b"" if not replaces else self._inflight(WorkloadProfile({}, counts), snapshot))
                    statuses = incoming.write_bulk(
                        BulkPlan(spec, self.settings.sort_mode, self.context.env.uuid4, self.settings.bulk_parallelism)
                    )
                else:
                    statuses, lookup, read = self._write_by_key(incoming, counts, snapshot, transaction, spec)
            # Tasks notice another table in a partition's folder only where that has no partition metadata of its own.
            fresh = (status.stat for status in statuses if status.stat.prev_base_file is None and not status.stat.log_files)
            check_own_folders(self.context.storage, {stat.partition_path or "" for stat in fresh})
            self.phases.end("write")
            batch = self.settings.batch
            extra = dict((*self.settings.extra_metadata, *((batch.metadata,) if batch else ())))
            metadata = commit_metadata(self.operation.recorded, statuses, self.schemas.schema_text, extra, replaced)
            touched = [(p, f) for p, ids in (replaced or {}).items() for f in ids]
            touched += [*read, *self._claims(statuses, lookup)]
            mirror = mirror_of(
                self.context,
                self.engine,
                spec.indexing,
                self.schemas.data_schema,
                statuses,
                snapshot,
                spec.instant_time,
                self.operation.recorded,
                replaced,
            )
            verify = partial(check_not_landed, self.context, batch) if batch else None
            done = transaction.commit(metadata, start, touched, mirror, verify)
            self.phases.end("commit")
        return self._result(done, statuses, replaced, lookup, attempt)

    def _without_stale_indexes(self, snapshot: Snapshot) -> Snapshot:
        """The state to plan by, its metadata table dropped where that speaks of columns which are about to have other types.

        Rows are as they were without it, so a crash from here on leaves the old table; the next write builds it anew.
        """
        before = snapshot.schema
        if not self.settings.anew or before is None or continues(before.arrow, self.schemas.data_schema):
            return snapshot
        settings = self.settings
        self.context = drop_for_new_columns(self.context, settings.metadata, settings.commit.lock_wait_ms, before.arrow)
        return replace(snapshot, context=self.context, listing=choose_listing(self.context, snapshot.timeline))

    def _state_to_plan_on(self, snapshot: Snapshot, transaction: Transaction) -> tuple[Snapshot, WriteStart]:
        """The state that the attempt is planned on, and what its commit is compared with.

        That is the state in which the attempt's instant was requested, not the one that was loaded before the rows were taken in,
        perhaps hours ago.  From the request on cleans and archivals leave in place what that state counts, and what completes
        from then on is a conflict if it meets this write.  Everything that it counts was requested before this write, so that no
        file which this write puts in place of another is older than that one.

        Rows that were chosen by a state are planned on that state: another one may hold others that are to be chosen.  Where
        another writer changed the columns since the rows were made to fit them, what it wrote remains to be met.
        """
        begun_on = transaction.begun_on
        if self.chosen or begun_on is None or begun_on.instants == snapshot.timeline.instants:
            return snapshot, _start_of(snapshot)
        now = load_snapshot(self.context, timeline=begun_on)
        if now.schema == snapshot.schema:
            return now, _start_of(now)
        if self.schemas.keys_only:
            self.schemas = _Schemas.of(self.context, now, self.columns, self.settings)
            return now, _start_of(now)
        return now, _start_of(snapshot)

    def _claims(self, statuses: Iterable[WriteStatus], lookup: PlannedLookup | None) -> list[FileGroupId]:
        """What the write read of the table by finding keys nowhere: that no other group has them.

        What overwrites partitions says so of everything that it does not replace.
        """
        stats = [status.stat for status in statuses if status.stat.num_inserts]
        if not stats or (lookup is None and not self.operation.replaces):
            return []
        if self.settings.routes:
            return [group for s in stats for group in new_bucket(s.partition_path or "", s.file_id or "")]
        everywhere = [NEW_KEYS_ANYWHERE] if self.global_keys or self.operation is WriteOperation.INSERT_OVERWRITE_TABLE else []
        return [new_keys(s.partition_path or "") for s in stats] + everywhere

    def _write_by_key(
        self, incoming: Incoming, counts: Mapping[str, int], snapshot: Snapshot, transaction: Transaction, spec: WriterSpec
    ) -> tuple[list[WriteStatus], PlannedLookup | None, list[FileGroupId]]:
        """Rows to the file groups that hold their keys, or that their buckets name; the others as inserts.

        The last of the result is what the write read about keys for which it writes nothing.
        """
        routes = self.settings.routes
        slices = {} if self.operation.replaces else self._slices_to_search(snapshot, counts)
        by_group = {(s.partition, s.file_id): s for found in slices.values() for s in found}
        lookup = None
        if self._looks_keys_up():
            adds_none = self.operation is WriteOperation.DELETE or self.settings.partial
            new_uuid = None if adds_none else self.context.env.uuid4
            lookup = plan_lookup(self.settings.index, self.context, snapshot, by_group.values(), new_uuid)
            tagged = self._tagged(incoming, lookup, spec, snapshot)
        else:
            tagged = incoming.untagged()
        read = [] if lookup is None or routes else self._read_only(tagged)
        if self.operation is WriteOperation.INSERT and lookup is not None and not routes:
            tagged = self._apply_duplicate_policy(tagged)
        profile = tagged.profile()
        updates_only = self.operation is WriteOperation.DELETE or self.settings.partial
        if updates_only:
            # What is to be deleted or changed and stands nowhere is no insert.
            profile = replace(profile, inserts={})
        self.phases.end("index")
        inserts: dict[str, tuple[InsertTarget, ...]] = {}
        if routes:
            profile = _with_new_groups(profile, by_group)
        elif not updates_only:
            inserts = self._place_inserts(profile, snapshot, slices)
            by_group.update({(t.partition, t.file_id): t.slice for ts in inserts.values() for t in ts if t.slice is not None})
        _settle_groups_under_service(snapshot, profile.updates, self.settings)
        bulk = self.operation is WriteOperation.BULK_INSERT
        transaction.start(b"" if bulk else self._inflight(profile, snapshot))
        adds = bulk or self.operation is WriteOperation.INSERT
        statuses = tagged.write(
            WritePlan(
                spec,
                by_group,
                inserts,
                self.schemas.stored_rule,
                match_keys=not adds or not self.settings.allow_duplicates,
                append_updates=not self.context.config.is_cow,
                validity=InstantValidity.of(snapshot.timeline),
                unknown_keys=routes,
            )
        )
        return statuses, lookup, read

    def _read_only(self, tagged: Tagged) -> list[FileGroupId]:
        """What was read about keys for which nothing is written: that those which an insert passes over are in a file group, and
        that what is to be deleted, or changed in part, is in none.
        """
        if self.operation is WriteOperation.INSERT:
            return list(tagged.profile().updates)
        if not (self.operation is WriteOperation.DELETE or self.settings.partial):
            return []
        nowhere = [partition for partition, count in tagged.profile().inserts.items() if count]
        everywhere = [NEW_KEYS_ANYWHERE] if nowhere and (self.global_keys or self.schemas.unplaced) else []
        return [*map(new_keys, nowhere), *everywhere]

    def _tagged(self, incoming: Incoming, lookup: PlannedLookup, spec: WriterSpec, snapshot: Snapshot) -> Tagged:
        unplaced = self.schemas.unplaced
        request = TagRequest(
            spec=spec,
            places=lookup.places,
            lookup=lookup.lookup,
            global_keys=self.global_keys or unplaced,
            # An insert looks keys up to pass over those that are there, wherever they are.
            update_partition_path=self.settings.index.update_partition_path
            and not unplaced
            and self.operation is not WriteOperation.INSERT,
            rule=self.schemas.stored_rule,
            validity=InstantValidity.of(snapshot.timeline),
        )
        try:
            return incoming.tag(request)
        except TableState as error:
            # The index may speak of commits that this write has not seen, or its files may have been cleaned beside it.
            known = set(snapshot.timeline.instants)
            now = self.context.timeline.load()
            if any(instant not in known and instant.request_time != spec.instant_time for instant in now.instants):
                raise WriteConflict(f"the table was written while keys were looked up ({error}); plan the write again") from error
            raise

    def _slices_to_search(self, snapshot: Snapshot, counts: Mapping[str, int]) -> dict[str, tuple[FileSlice, ...]]:
        """Latest slices of the partitions that the write may touch."""
        return snapshot.slices(None if self.global_keys or self.schemas.unplaced else counts)

    def _apply_duplicate_policy(self, tagged: Tagged) -> Tagged:
        if self.settings.duplicate_policy == "fail":
            existing = sum(tagged.profile().updates.values())
            if existing:
                raise InvalidRequest(
                    f"{existing} of the rows to insert have keys that are in the table already ({DUPLICATE_POLICY}=fail)"
                )
        return tagged.without_existing()

    def _place_inserts(
        self, profile: WorkloadProfile, snapshot: Snapshot, slices: Mapping[str, tuple[FileSlice, ...]]
    ) -> dict[str, tuple[InsertTarget, ...]]:
        if not profile.inserts:
            return {}
        sizing = self.settings.sizing
        excluded = snapshot.pending_clusterings.union(snapshot.slicing.pending_compactions)
        limit = None if self.context.config.is_cow else sizing.merge_candidates_limit
        candidates = {partition: small_files(slices.get(partition, ()), sizing, excluded, limit) for partition in profile.inserts}
        new_id: Callable[[], str] = lambda: format_file_id(self.context.env.uuid4(), 0)  # noqa: E731 - handed on as a value
        return plan_inserts(profile.inserts, candidates, self._record_size(snapshot), sizing, new_id)

    def _record_size(self, snapshot: Snapshot) -> int:
        store = self.context.timeline
        recent = [i for i in reversed(snapshot.timeline.completed(Action.COMMIT, Action.DELTACOMMIT))][:ESTIMATION_COMMITS]
        return estimate_record_size_bytes(((i.action, read_commit(store, i)) for i in recent), self.settings.sizing)

    def _replaced(self, snapshot: Snapshot, counts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
        if self.operation is WriteOperation.INSERT_OVERWRITE_TABLE:
            partitions: Iterable[str] = snapshot.listing.partitions()
        else:
            partitions = {*counts, *(self.settings.partitions_to_overwrite or ())}
        replaced = live_file_ids(snapshot, partitions)
        _settle_groups_under_service(snapshot, [(p, f) for p, ids in replaced.items() for f in ids], self.settings)
        return replaced

    def _writer_spec(self, transaction: Transaction, snapshot: Snapshot) -> WriterSpec:
        config = self.context.config
        stored = with_meta_fields(self.schemas.data_schema)
        files = self.settings.files
        if self.settings.routes:
            # A bucket is one file group, whatever its size.
            # Nobody reads keys to find a record's bucket, so none are read to find its row.
            files = replace(files, max_file_size_bytes=_NO_LIMIT_BYTES, record_positions=False)
        return WriterSpec(
            storage=self.context.storage.spec(),
            instant_time=transaction.instant_time,
            data_schema=self.schemas.data_schema,
            avro_schema=arrow_to_avro(stored, config.name),
            files=files,
            keys=config.keys,
            populate_meta_fields=config.populate_meta_fields,
            rule=self.schemas.stored_rule,
            indexing=indexing_of(
                self.context,
                self.settings.metadata,
                self.schemas.data_schema,
                snapshot.schema.arrow if snapshot.schema else None,
            ),
            changes=self._change_log_spec(),
            partial=self._partial_update(),
        )

    def _partial_update(self) -> PartialUpdate | None:
        given = self.schemas.given
        # By bucket nobody has looked up which keys are there, so that even of whole rows those of new keys are to be passed over.
        if given is None or not (self.schemas.partial or self.settings.routes):
            return None
        return PartialUpdate(given, arrow_to_avro(with_meta_fields(given), self.context.config.name))

    def _change_log_spec(self) -> ChangeLogSpec | None:
        config = self.context.config
        if not config.cdc_enabled:
            return None
        return ChangeLogSpec(config.cdc_mode, self.schemas.schema_text, self.operation is WriteOperation.DELETE)

    def _inflight(self, profile: WorkloadProfile, snapshot: Snapshot) -> bytes:
        """The workload profile as other writers expect it: planned inserts of each partition, then each file group with
        updates.
        """
        by_partition: dict[str, list[WriteStat]] = {}
        for partition, count in sorted(profile.inserts.items()):
            by_partition.setdefault(partition, []).append(WriteStat(file_id="", partition_path=None, num_inserts=count))
        for (partition, file_id), count in sorted(profile.updates.items()):
            by_partition.setdefault(partition, []).append(WriteStat(file_id=file_id, num_update_writes=count))
        metadata = CommitMetadata(
            partition_to_write_stats={p: tuple(stats) for p, stats in by_partition.items()},
            operation_type=self.operation.recorded.value,
        )
        return metadata.encode(self.context.env.token_bytes(16))

    def _result(
        self,
        done: Instant,
        statuses: list[WriteStatus],
        replaced: Mapping[str, Iterable[str]] | None,
        index: PlannedLookup | None,
        attempt: int,
    ) -> WriteResult:
        stats = [status.stat for status in statuses]
        rewritten = [s for s in stats if s.prev_base_file is not None]
        return WriteResult(
            operation=str(self.operation),
            instant=done.request_time,
            completion_time=done.completion_time,
            rows_in=self.rows_in or sum(s.num_inserts for s in stats),
            rows_inserted=sum(s.num_inserts for s in stats),
            rows_updated=sum(s.num_update_writes for s in stats),
            rows_deleted=sum(s.num_deletes for s in stats),
            file_groups_new=sum(1 for s in stats if s.prev_base_file is None and not s.log_files),
            file_groups_rewritten=len(rewritten),
            file_groups_replaced=sum(len(tuple(ids)) for ids in (replaced or {}).values()),
            log_files=sum(1 for s in stats if s.log_files),
            bytes_written=sum(s.total_write_bytes for s in stats),
            bytes_rewritten=sum(s.total_write_bytes for s in rewritten),
            index=None if index is None else str(self.settings.index.kind),
            index_source=None if index is None else index.source,
            conflict_retries=attempt,
            rolled_back=self.rolled_back,
            schema_changes=self.schemas.changes,
            seconds=self.phases.seconds,
        )


@contextmanager
def _outdated_where_files_are_gone(snapshot: Snapshot) -> Iterator[None]:
    """A file that is gone from a state which is no longer whole is no damage: the write is planned anew."""
    try:
        yield
    except TableState:
        snapshot.check_whole()
        raise


def _start_of(snapshot: Snapshot) -> WriteStart:
    return WriteStart.of(snapshot.timeline, snapshot.schema.avro if snapshot.schema else "")


def _check_goes_on(context: TableContext, before: pa.Schema, after: pa.Schema) -> None:
    """Raises InvalidRequest for an overwrite with types that other writers of Hudi cannot go on from."""
    if not continues(before, after):
        same = [field for field in after if field.name in before.names]
        changed = [f"{f.name} from {before.field(f.name).type} to {f.type}" for f in same if before.field(f.name).type != f.type]
        raise InvalidRequest(
            f"the overwrite of {context.storage.uri} would change types as no other write may ({', '.join(changed)}), and the "
            f"real Hudi could read the table but not write to it until the old files are cleaned; cast the columns, write to "
            f"another folder, or ask for it with {SCHEMA_MODE}=evolve"
        )


def _with_new_groups(profile: WorkloadProfile, known: Collection[tuple[str, str]]) -> WorkloadProfile:
    """The profile with rows that go to groups which the write makes counted as inserts."""
    inserts = Counter(dict(profile.inserts))
    for (partition, file_id), count in profile.updates.items():
        if (partition, file_id) not in known:
            inserts[partition] += count
    updates = {group: count for group, count in profile.updates.items() if group in known}
    return replace(profile, updates=updates, inserts=dict(inserts))


def _check_duplicate_policy(settings: WriteSettings) -> None:
    if settings.routes and settings.operation is WriteOperation.INSERT and settings.duplicate_policy != "none":
        raise Unsupported(
            "index BUCKET looks no keys up, so an insert cannot pass over or refuse those that are there; use upsert, or "
            f"{DUPLICATE_POLICY}=none"
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


def _check_delete_types(keys: KeySpec, schema: pa.Schema, table: pa.Schema) -> None:
    """Keys of another type are other keys: 1.0 and 1 are two texts, and a delete of either does not find the other."""
    if {RECORD_KEY, PARTITION_PATH} <= set(schema.names):
        return
    for name in (*keys.record_fields, *partition_columns(keys)):
        head = name.split(".")[0]
        if head not in schema.names:
            continue
        given, stored = field_at(normalise(pa.schema([schema.field(head)])), name).type, field_at(table, name).type
        families = (pa.types.is_integer, pa.types.is_floating)
        alike = given == stored or any(family(given) and family(stored) for family in families)
        if not alike and not (pa.types.is_string(given) or pa.types.is_string(stored)):
            raise InvalidRequest(
                f"column {name!r} of the rows to delete is {given}, and the table's is {stored}: cast it"
                f"{whole_number_hint(stored, given)}"
            )


def _names_partition(keys: KeySpec, schema: pa.Schema) -> bool:
    return all(name.split(".")[0] in schema.names for name in partition_columns(keys))


def _check_delete_flag(schema: pa.Schema) -> None:
    position = schema.get_field_index(IS_DELETED)
    if position >= 0 and not pa.types.is_boolean(schema.field(position).type):
        raise InvalidRequest(f"{IS_DELETED} has to be a boolean column, it is {schema.field(position).type}")


def _settle_groups_under_service(snapshot: Snapshot, groups: Iterable[tuple[str, str]], settings: WriteSettings) -> None:
    """Raises TableState when the write may not change groups that a service is about to rewrite.

    A plan that nobody will carry out is dropped (see `settle_plan`) and in nobody's way.  Under the update strategy
    that allows it, the write goes on, and a pending clustering of its groups is dropped if the options say so.  One that is being
    carried out is left alone: whichever of the two commits later finds the other.
    """
    context, timeline, wanted = snapshot.context, snapshot.timeline, frozenset(groups)
    pending = [i for i in timeline.pending(Action.CLUSTERING) if wanted & touched_groups(context, i)] if wanted else []
    clustered = [i.request_time for i in pending if not settle_clustering(context, settings.commit, i)]
    if clustered and settings.clustering_updates == "reject":
        count = len(snapshot.pending_clusterings.intersection(wanted))
        raise TableState(
            f"{settings.operation} would change {count} file groups of {context.storage.uri} that pending clustering "
            f"{', '.join(clustered)} is about to replace, and one of the two would be lost; run it with "
            f"cluster({clustered[0]!r}), drop it with unschedule_clustering({clustered[0]!r}), or let writes win with "
            f"{_UPDATE_STRATEGY}=SparkAllowUpdateStrategy"
        )
    if settings.operation.replaces:
        compacted = {group: time for group, time in snapshot.slicing.pending_compactions.items() if group in wanted}
        planned = [i for i in timeline.pending(Action.COMPACTION) if i.request_time in compacted.values()]
        waiting = [i.request_time for i in planned if not settle_plan(context, settings.commit, i)]
        if waiting:
            raise TableState(
                f"{settings.operation} would drop {len(compacted)} file groups that compaction {', '.join(waiting)} rewrites; "
                f"run it first with compact({waiting[0]!r}), or drop it with unschedule_compaction({waiting[0]!r})"
            )
    if settings.drops_clusterings:
        for instant in clustered:
            with suppress(PlanTaken):
                drop_clustering(context, settings.commit, instant)


def _update_strategy(options: Options) -> str:
    """`hoodie.clustering.updates.strategy` as reject or allow."""
    name = options.word(_UPDATE_STRATEGY)
    known = {"SparkRejectUpdateStrategy": "reject", "SparkAllowUpdateStrategy": "allow"}
    found = known.get(name.rsplit(".", 1)[-1])
    if found is None:
        raise Unsupported(f"option {_UPDATE_STRATEGY}={name} is refused: PyHudi has {', '.join(known)}")
    return found
