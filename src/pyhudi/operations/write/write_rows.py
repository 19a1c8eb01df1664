"""Write records: upsert, insert, bulk insert, delete, and the overwriting operations.

    1. roll back failed writes; load the snapshot; derive the schema after this write
    2. the engine prepares the rows: converts types, computes keys, combines duplicates
    3. take an instant; look up keys; assign inserts to file groups; write the inflight file
    4. the engine writes file groups, one task each
    5. commit; after a conflict, roll this attempt back and plan again from 3 with the same rows

Source: docs/formats/writing.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa

from pyhudi.errors import IndexStarted, InvalidRequest, SnapshotOutdated, TableState, Unsupported
from pyhudi.format.actions.commit_metadata import BOOTSTRAP_PARTS_KEY
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import BOOTSTRAP_INSTANT_TIMES, Instant
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.metadata_table.indexes import check_computable, open_indexes
from pyhudi.metadata_table.reader.metadata_listing import choose_listing
from pyhudi.metadata_table.writer.initialize_partitions import drop_for_new_columns, ensure_metadata_table
from pyhudi.metadata_table.writer.metadata_commit import prepare_metadata_commit
from pyhudi.operations.admin.stored_settings import table_constraints
from pyhudi.operations.catalog_sync.sync_table import check_sync, with_sync
from pyhudi.operations.commit.action_attempt import Phases, rollback_on_error
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_callbacks import callback_notice, with_callbacks
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.hbase_hooks import check_hbase, update_hbase_index
from pyhudi.operations.commit.planned_commit import PlannedCommit, commit_metadata
from pyhudi.operations.commit.precommit_checks import precommit_check
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.services.run_services import with_services
from pyhudi.operations.write.delete_partitions import (
    count_replaced_rows,
    file_group_pairs,
    partition_deleter,
    select_replaced_groups,
)
from pyhudi.operations.write.index_lookup import check_bucket_counts_unchanged
from pyhudi.operations.write.keyed_write import write_by_key
from pyhudi.operations.write.operation_traits import OperationTraits
from pyhudi.operations.write.resolve_blockers import run_prewrite
from pyhudi.operations.write.write_attempt import (
    Attempt,
    Written,
    raise_stale_on_missing_file,
    retry_on_conflict,
    write_result,
    write_start,
)
from pyhudi.operations.write.write_preconditions import (
    LoadedCommits,
    check_columns_by_ids,
    check_preconditions,
    check_timestamp_paths,
)
from pyhudi.operations.write.write_schemas import WriteSchemas
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings, check_table
from pyhudi.operations.write.writer_spec import writer_spec
from pyhudi.options.index_options import BUCKET_ENGINE
from pyhudi.options.service_options import COMPACT_INLINE
from pyhudi.options.table_options import OPTION_PREFIX
from pyhudi.options.write_options import GROUP
from pyhudi.planning.conflicts import NEW_KEYS_IN_ANY_GROUP, FileGroupId, WriteStart, new_bucket, new_keys
from pyhudi.planning.record_placement import WorkloadProfile
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.filters.filter_visitor import columns as filter_columns
from pyhudi.records.record_merge import OneRowPerRecord
from pyhudi.records.schema_evolution import continues
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.listing import check_no_nested_table
from pyhudi.table.schema_on_read_history import WrittenColumns
from pyhudi.table.snapshot import Snapshot, load_snapshot, read_commit, retry_on_stale_files
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import BulkPlan, Engine, Incoming, PrepareRequest
from pyhudi.tasks.incoming_layout import DELETE_COLUMN


@observed("write")
def run_write(
    context: TableContext,
    engine: Engine,
    data: Any,
    settings: WriteSettings,
    *,
    base_snapshot: Snapshot | None = None,
    marks_deletes: bool = False,
    repeated: OneRowPerRecord | None = None,
) -> WriteResult:
    """Write records.

    Args:
        data: Any input that the engine accepts.
        base_snapshot: The snapshot that the caller read the data from, if any. Changes since then are a conflict, after
            which the caller has to read again.
        marks_deletes: The column DELETE_COLUMN marks rows that delete their keys regardless of ordering values. For
            data that PyHudi computed itself.
        repeated: Rule between two rows of one record; None combines them, as the settings define.

    Returns:
        The result of the write.

    Raises:
        InvalidRequest: The data is invalid for the table. Nothing was written.
        WriteConflict: Other writers won more often than the settings allow retries.
        TableState: The table does not allow the write.
    """
    write, snapshot = planned_write(
        context, engine, data, settings, base_snapshot=base_snapshot, marks_deletes=marks_deletes, repeated=repeated
    )
    result = write.run(data, snapshot)
    # Services after the commit need the lock no longer than usual.
    context.release_lock()
    return run_followups(write, result, snapshot.timeline)


@retry_on_stale_files
def planned_write(
    context: TableContext,
    engine: Engine,
    data: Any,
    settings: WriteSettings,
    *,
    base_snapshot: Snapshot | None = None,
    marks_deletes: bool = False,
    repeated: OneRowPerRecord | None = None,
) -> tuple[Write, Snapshot]:
    """Return a write before it reads its rows and takes its instant, and the snapshot that it was planned on. See `run_write`."""
    check_writable(context)
    if settings.group == "always":
        raise Unsupported(f"{GROUP}=always: this write cannot be part of a group commit; set auto to write it alone")
    check_sync(settings.sync)
    check_hbase(context, settings.commit.hbase, has_metadata=settings.metadata.enabled)
    shape = OperationTraits.of(settings)
    if settings.services.requires_compaction and context.config.is_cow:
        raise InvalidRequest(
            f"{COMPACT_INLINE}=true: the table at {context.storage.uri} is copy-on-write, which has nothing to compact; leave it "
            f'out, and if the table stores it, remove it: set_properties({{"{OPTION_PREFIX}{COMPACT_INLINE}": None}})'
        )
    if shape.is_consistent_hashing and context.config.is_cow:
        raise InvalidRequest(
            f"{BUCKET_ENGINE}=CONSISTENT_HASHING begins file groups with log files, and {context.storage.uri} is "
            "copy-on-write; create it as merge-on-read"
        )
    phases = Phases(context.env)
    rolled_back, looked_at = run_prewrite(context, settings, engine)
    snapshot = base_snapshot or _present_state(context, looked_at)
    _check_bootstrapped(snapshot)
    phases.end("load")
    columns = engine.input_schema(data)
    if marks_deletes:
        columns = columns.remove(columns.get_field_index(DELETE_COLUMN))
    schemas = WriteSchemas.of(context, snapshot, columns, settings)
    if shape.shares_groups:
        config, metadata = context.config, settings.metadata
        indexes = {
            *config.metadata_partitions,
            *config.metadata_partitions_inflight,
        } - metadata.disabled_partitions | metadata.enabled_partitions
        check_table(context.storage.uri, config.merge, indexes, is_cow=config.is_cow)
        if base_snapshot is not None and not shape.deletes:
            raise Unsupported(
                f"cannot write rows based on a scan of {context.storage.uri} under non-blocking concurrency control: "
                "concurrent writes do not conflict there and would be overwritten; use OPTIMISTIC_CONCURRENCY_CONTROL"
            )
    context, snapshot = _with_metadata_table(context, engine, snapshot, settings, schemas)
    generates_keys = schemas.keys.generates_keys
    names_records = generates_keys and {RECORD_KEY, PARTITION_PATH} <= set(columns.names)
    if generates_keys and not shape.supports_generated_keys and not names_records:
        raise InvalidRequest(
            f"the table generates its record keys, so {settings.operation} cannot find records: pass rows with their _hoodie_ "
            "columns as read from the table, or use insert or bulk_insert"
        )
    stored_keys = names_records and settings.operation is WriteOperation.UPSERT
    if stored_keys and shape.is_bucketed:
        raise Unsupported("index BUCKET places rows by record key fields, and the table generates its keys; use another index")
    write = Write(
        context=context,
        started_from=context,
        engine=engine,
        settings=settings,
        shape=shape,
        columns=columns,
        schemas=schemas,
        phases=phases,
        rolled_back=rolled_back,
        chosen=base_snapshot is not None,
        marks_deletes=marks_deletes,
        repeated=repeated,
        stored_keys=stored_keys,
    )
    return write, snapshot


def run_followups(write: Write, result: WriteResult, before: Timeline) -> WriteResult:
    """Run the table services and the catalog sync that follow a write, and add them to the result.

    Args:
        before: The timeline that it was planned on.
    """
    context, engine, settings = write.started_from, write.engine, write.settings
    result = with_callbacks(context, settings.callbacks, result)
    result = with_services(
        context,
        engine,
        settings.services,
        result,
        before=before,
        action=write.shape.action(context.config),
        delete_partitions=partition_deleter(context, engine, settings),
        metadata_timeline=write.metadata_timeline,
    )
    return with_sync(context, settings.sync, result)


def _present_state(context: TableContext, loaded_snapshot: Timeline | None) -> Snapshot:
    """Return the snapshot to prepare the rows with. Files of the just loaded timeline may be missing already."""
    if loaded_snapshot is not None:
        with suppress(SnapshotOutdated):
            return load_snapshot(context, timeline=loaded_snapshot)
    return load_snapshot(context)


def _check_bootstrapped(snapshot: Snapshot) -> None:
    """Raise TableState if the bootstrap of the table did not complete: a write would take the place of bootstrapped rows."""
    source, timeline = snapshot.config.bootstrap_base_path, snapshot.timeline
    if source is None:
        return
    bootstrap_commits = (i for i in timeline.completed_writes() if i.request_time in BOOTSTRAP_INSTANT_TIMES)
    extras = (read_commit(snapshot.context.timeline, instant).extra_metadata for instant in bootstrap_commits)
    parts = {time for extra in extras for time in extra.get(BOOTSTRAP_PARTS_KEY, "").split(",") if time}
    if timeline.last_visible is None or not all(map(timeline.is_completed, parts)):
        raise TableState(
            f"the bootstrap of the table at {snapshot.context.storage.uri} from {source} did not complete; run "
            "the bootstrap again, which starts from scratch"
        )


def _with_metadata_table(
    context: TableContext, engine: Engine, snapshot: Snapshot, settings: WriteSettings, schemas: WriteSchemas
) -> tuple[TableContext, Snapshot]:
    """The table and its snapshot with the requested metadata table; rejects new columns that no index supports."""
    before = snapshot.schema.arrow if snapshot.schema else None
    if settings.replaces_schema:
        check_computable(open_indexes(context), schemas.data_schema)
    if before is not None and settings.replaces_schema and not continues(before, schemas.data_schema):
        return context, snapshot
    ensured = ensure_metadata_table(context, engine, settings.metadata, settings.commit.lock_wait_ms, schemas.data_schema, before)
    if ensured.config.metadata_partitions == context.config.metadata_partitions:
        return ensured, snapshot
    # The metadata table that the listing was to use may have been deleted.
    return ensured, replace(snapshot, context=ensured, listing=choose_listing(ensured, snapshot.timeline))


@dataclass(slots=True)
class Write:
    """One running write; its context and schemas are those of the current attempt.

    Attributes:
        context: The table.
        started_from: The table when the write began.
        engine: The engine.
        settings: Settings of the write.
        shape: Traits of the operation.
        columns: Columns of the input rows.
        schemas: Schemas of the write.
        phases: Timing.
        rolled_back: Failed instants that this write rolled back.
        chosen: True if the rows were read from the loaded snapshot, so that no other snapshot is valid.
        marks_deletes: See `run_write`.
        repeated: See `run_write`.
        stored_keys: The rows carry the generated keys of stored records.
        rows_in: Number of incoming rows; 0 if they were not counted.
        rows_combined: Number of them that were dropped for another row of their key.
        counts: Number of incoming rows by partition path, None if they were not counted.
        checked_on: Completed writes of the snapshot that passed the preconditions, None before.
        metadata_timeline: Timeline of the metadata table after the commit.
    """

    context: TableContext
    started_from: TableContext
    engine: Engine
    settings: WriteSettings
    shape: OperationTraits
    columns: pa.Schema
    schemas: WriteSchemas
    phases: Phases
    rolled_back: tuple[str, ...]
    chosen: bool
    marks_deletes: bool
    repeated: OneRowPerRecord | None
    stored_keys: bool = False
    rows_in: int = 0
    rows_combined: int = 0
    counts: Mapping[str, int] | None = None
    checked_on: tuple[Instant, ...] | None = None
    metadata_timeline: Timeline | None = None

    def run(self, data: Any, snapshot: Snapshot) -> WriteResult:
        """Prepare the rows, and attempt the write until it commits or the retries are exhausted."""
        incoming = self.engine.prepare(data, self.prepare_request())
        try:
            # Rows of a bulk write are neither buffered nor counted before they are written.
            counts = incoming.partitions() if self.shape.needs_counts else {}
            self.phases.end("prepare")
            if not counts and not self.settings.allow_empty and not self.shape.replaces_table:
                operation = str(self.shape.operation)
                return WriteResult(operation, None, None, rolled_back=self.rolled_back, seconds=self.phases.seconds)
            if self.chosen:
                return self._attempt_during_indexing(incoming, counts, snapshot, 0)
            attempts, current = count(), snapshot

            def reload(context: TableContext) -> None:
                nonlocal current
                self.context = context
                current = self._reload_after_conflict(incoming)

            def attempt(_: TableContext) -> WriteResult:
                return self._attempt_during_indexing(incoming, counts, current, next(attempts))

            return retry_on_conflict(self.context, self.settings.commit, attempt, reload)
        finally:
            incoming.release()

    def _attempt_during_indexing(
        self, incoming: Incoming, counts: Mapping[str, int], snapshot: Snapshot, number: int
    ) -> WriteResult:
        """Attempt the write, and repeat it if another process began an index build. That does not count as a retry."""
        for _ in range(_INDEXES_BEGUN):
            try:
                return self._attempt(incoming, counts, snapshot, number)
            except IndexStarted:
                if not self.chosen:
                    snapshot = self._reload_after_conflict(incoming)
                    continue
                # The rows were read from a snapshot, and the attempt is planned on that snapshot.
                self.context = self.context.reloaded()
                check_writable(self.context)
                snapshot = replace(snapshot, context=self.context, listing=choose_listing(self.context, snapshot.timeline))
        return self._attempt(incoming, counts, snapshot, number)

    def _reload_after_conflict(self, incoming: Incoming) -> Snapshot:
        """Load the current snapshot after a conflict, and adapt the rows to its columns."""
        self.context = self.context.reloaded()
        check_writable(self.context)
        snapshot = load_snapshot(self.context)
        previous_schemas, self.schemas = self.schemas, WriteSchemas.of(self.context, snapshot, self.columns, self.settings)
        if not previous_schemas.keys_only and self.schemas.data_schema != previous_schemas.data_schema:
            try:
                incoming.refit(self.prepare_request())
            except BaseException:
                # The rows are unchanged, and a caller that repeats the read detects this itself.
                self.schemas = previous_schemas
                raise
        # An index lookup needs the metadata table again if another process has dropped it.
        self.context, snapshot = _with_metadata_table(self.context, self.engine, snapshot, self.settings, self.schemas)
        return snapshot

    @property
    def _is_computed(self) -> bool:
        """True if an update or merge computed the rows from the snapshot that they are based on."""
        return self.marks_deletes or self.repeated is not None

    def prepare_request(self) -> PrepareRequest:
        """Return how tasks prepare the rows."""
        # Generated keys contain a time. Any value that no other write of this process uses is valid, so it is the
        # clock's time with a random suffix.
        stamp = str(self.context.env.now_ms()) + str(int.from_bytes(self.context.env.token_bytes(4), "big"))
        schemas, shape = self.schemas, self.shape
        # A null ordering value is refused if rows are merged, as in Hudi, and wherever the row can meet a log record,
        # which Hudi readers cannot compare with null.
        compares = shape.compares or not self.context.config.is_cow
        return PrepareRequest(
            data_schema=schemas.data_schema if schemas.input is None else schemas.input,
            keys=schemas.keys,
            rule=self.repeated or schemas.rule,
            combine=self.settings.combine or self.repeated is not None,
            global_keys=shape.global_keys,
            keys_only=schemas.keys_only,
            instant_time=stamp,
            memory_budget_bytes=self.settings.memory_budget_bytes,
            required_ordering=self.context.config.ordering_fields if compares else (),
            by_partition=shape.in_bulk or shape.replaces,
            lookup_columns=shape.needs_lookup and not shape.is_bucketed,
            partition_columns=schemas.partition_columns,
            truncate_nanoseconds=self.settings.truncates_nanoseconds,
            marks_deletes=self.marks_deletes,
            constraints=self._constraints(),
            stored_keys=self.stored_keys,
            has_new_rows=self._is_computed,
            driver_batch_bytes=self.settings.driver_batch_bytes,
            driver_work_bytes=self.settings.driver_work_bytes,
        )

    def _attempt(self, incoming: Incoming, counts: Mapping[str, int], snapshot: Snapshot, number: int) -> WriteResult:
        snapshot = before = self._without_stale_indexes(snapshot)
        self.counts = counts if self.shape.needs_counts else None
        loaded = None
        if number == 0:
            # A file that a concurrent clean removed shows nothing about options: the snapshot that `begin` loads is
            # checked instead.
            with suppress(SnapshotOutdated):
                loaded = self._check_preconditions(snapshot)
        requested = RequestedReplaceMetadata().encode(self.context.env.token_bytes(16)) if self.shape.replaces else b""
        transaction = Transaction.begin(self.context, self.shape.action(self.context.config), self.settings.commit, requested)
        transaction.may_have_late_attempts = self.engine.may_leave_attempts
        with rollback_on_error(transaction):
            snapshot, start = self._snapshot_to_plan_on(snapshot, transaction)
            with raise_stale_on_missing_file(snapshot):
                attempt = self._attempt_on(transaction, snapshot, start, loaded if snapshot is before else None)
                replaced = select_replaced_groups(attempt, counts) if self.shape.replaces else None
                if self.shape.is_bulk:
                    written = _write_in_bulk(attempt, incoming, counts)
                else:
                    all_stored = self.stored_keys and not self._is_computed
                    written = write_by_key(attempt, incoming, counts, replaced, all_stored=all_stored)
            given, combined = incoming.row_counts()
            self.rows_in, self.rows_combined = given or 0, combined or 0
            return self.completed(attempt, written, replaced)

    def _check_preconditions(self, snapshot: Snapshot) -> LoadedCommits | None:
        loaded = check_preconditions(
            self.context, self.settings, self.shape, self.schemas, snapshot, self.counts, columns=self.columns
        )
        self.checked_on = snapshot.timeline.completed_writes()
        return loaded

    def start_streaming_attempt(self, snapshot: Snapshot) -> Attempt:
        """Start the only attempt of a write whose rows are written by distributed tasks, with its instant and inflight file."""
        snapshot = self._without_stale_indexes(snapshot)
        self._check_preconditions(snapshot)
        transaction = Transaction.begin(self.context, self.shape.action(self.context.config), self.settings.commit)
        with rollback_on_error(transaction):
            snapshot, start = self._snapshot_to_plan_on(snapshot, transaction)
            with raise_stale_on_missing_file(snapshot):
                attempt = self._attempt_on(transaction, snapshot, start, None)
            attempt.begin_files(None)
        return attempt

    def _constraints(self) -> tuple[tuple[str, str], ...]:
        """Constraints of the rows. Raises Unsupported if a partial update has only some of the columns of one."""
        columns, constraints = self.schemas.input, table_constraints(self.started_from.config)
        if columns is None or not constraints:
            return constraints
        checked = []
        for name, condition in constraints:
            used = {column.split(".")[0] for column in filter_columns(parse_filter(condition))}
            missing = sorted(used.difference(columns.names))
            if missing and len(missing) < len(used):
                raise Unsupported(
                    f"a partial update of {self.context.storage.uri} has no column {missing[0]}, which constraint {name!r} "
                    f"({condition}) needs together with its other columns: add the column"
                )
            if not missing:
                checked.append((name, condition))
        return tuple(checked)

    def _check_same_constraints(self, transaction: Transaction) -> None:
        """Raise InvalidRequest if the table's constraints are not those that the rows were checked against."""
        config = transaction.config
        if config is not None and table_constraints(config) != table_constraints(self.started_from.config):
            raise InvalidRequest(f"the constraints of {self.context.storage.uri} changed while this write ran: run it again")

    def _attempt_on(
        self,
        transaction: Transaction,
        snapshot: Snapshot,
        start: WriteStart,
        loaded_metadata: Mapping[str, tuple[FileSlice, ...]] | None,
    ) -> Attempt:
        """Create an attempt planned on a snapshot; see `Attempt` for ``loaded_metadata``."""
        self._check_same_constraints(transaction)
        transaction.columns = self.columns_after(snapshot, transaction)
        transaction.planned_on(snapshot)
        ids = None if transaction.columns is None else transaction.columns.ids
        return Attempt(
            context=self.context,
            settings=self.settings,
            shape=self.shape,
            schemas=self.schemas,
            phases=self.phases,
            snapshot=snapshot,
            start=start,
            transaction=transaction,
            spec=writer_spec(self.context, self.settings, self.shape, self.schemas, snapshot, transaction, ids=ids),
            loaded_metadata=loaded_metadata,
        )

    def completed(self, attempt: Attempt, written: Written, replaced: Mapping[str, tuple[str, ...]] | None) -> WriteResult:
        """Commit what the tasks of an attempt have written."""
        # Tasks detect another table inside a partition folder only if the folder has no partition metadata of its own.
        stats = (status.stat for status in written.statuses)
        fresh = (s for s in stats if s.prev_base_file is None and (self.shape.is_consistent_hashing or not s.log_files))
        check_no_nested_table(self.context.storage, {stat.partition_path or "" for stat in fresh})
        self.phases.end("write")
        done = self._commit(attempt, written, replaced)
        self.metadata_timeline = attempt.transaction.metadata_timeline
        self.phases.end("commit")
        result = write_result(done, written.statuses)
        lookup = written.lookup
        replaced_rows = count_replaced_rows(attempt.snapshot, replaced)
        rows_in = self.rows_in or result.rows_in
        return replace(
            result,
            rows_unchanged=self._count_unchanged(rows_in - self.rows_combined, result),
            rows_deleted=None if replaced_rows is None or result.rows_deleted is None else result.rows_deleted + replaced_rows,
            operation=str(self.shape.operation),
            rows_in=rows_in,
            rows_combined=self.rows_combined,
            file_groups_replaced=len(file_group_pairs(replaced)),
            index=None if lookup is None else str(self.settings.index.index_type),
            index_source=None if lookup is None else lookup.source,
            rolled_back=self.rolled_back,
            schema_changes=self.schemas.changes,
            seconds=self.phases.seconds,
        )

    def _count_unchanged(self, rows: int, result: WriteResult) -> int | None:
        """Return the number of rows that changed nothing; None if records may have moved to another partition."""
        deleted = result.rows_deleted or 0
        if deleted and self.shape.moves_records and not self.shape.deletes:
            return None
        # A key that several file groups hold counts in each.
        return max(rows - result.rows_inserted - result.rows_updated - deleted, 0)

    def columns_after(self, snapshot: Snapshot, transaction: Transaction) -> WrittenColumns | None:
        """Return the columns of the write with ids, if the table resolves columns by id."""
        if snapshot.history is None:
            return None
        check_columns_by_ids(self.context, self.schemas, snapshot)
        return snapshot.history.written(transaction.instant_time, self.schemas.data_schema)

    def _commit(self, attempt: Attempt, written: Written, replaced: Mapping[str, tuple[str, ...]] | None) -> Instant:
        operation, statuses, rescale = self.settings.recorded, written.statuses, self.settings.index.rescale
        metadata = commit_metadata(operation, statuses, self.schemas.schema_text, {}, replaced)
        touched = [*file_group_pairs(replaced), *written.read, *_missing_key_claims(self.shape, written)]
        if written.hashing is not None:
            touched += written.hashing.replaced_groups
        mirror = prepare_metadata_commit(
            self.context,
            self.engine,
            attempt.spec.indexing,
            self.schemas.data_schema,
            statuses,
            attempt.snapshot,
            time=attempt.spec.instant_time,
            operation=operation,
            replaced=replaced,
            retains_keys=self.settings.commit.hbase is not None,
        )

        def verify(now: Timeline) -> Mapping[str, str]:
            if now.completed_writes() != self.checked_on:
                self._check_added_paths(now)
            if written.hashing is not None:
                written.hashing.check_hashing_unchanged(self.context, attempt.snapshot.timeline, now)
            if rescale is not None:
                rescale.check_unchanged(self.context, now, replaced or {})
            elif written.lookup is not None:
                check_bucket_counts_unchanged(self.context, attempt.snapshot.timeline, now, written.lookup.lookup)
            once = self.settings.once
            return {} if once is None else once.check(self.context, now)

        if rescale is not None:
            rescale.store_counts(self.context, attempt.spec.instant_time)
        shares = self.shape.shares_groups
        followed = frozenset[str]() if written.hashing is None else written.hashing.double_written_resizes
        with (
            callback_notice(self.settings.callbacks, attempt.transaction),
            update_hbase_index(self.context, self.engine, self.settings.commit.hbase, statuses, attempt.spec.instant_time),
        ):
            validate = precommit_check(self.settings.validators, self.engine, attempt.transaction, metadata)
            return attempt.transaction.commit(
                PlannedCommit(metadata, attempt.start, tuple(touched), mirror, verify, shares, followed, validate)
            )

    def _check_added_paths(self, now: Timeline) -> None:
        """Check the partitions that other writers have added since the preconditions were checked."""

        def load() -> Snapshot:
            return load_snapshot(self.context, timeline=now)

        check_timestamp_paths(self.context, self.shape, self.schemas, load, self.counts, columns=self.columns)

    def _without_stale_indexes(self, snapshot: Snapshot) -> Snapshot:
        """Drop the metadata table if it describes columns whose types this write changes, and return the snapshot without it."""
        # Data files are unaffected: a crash after this leaves the old table, and the next write rebuilds the metadata table.
        before = snapshot.schema
        if not self.settings.replaces_schema or before is None or continues(before.arrow, self.schemas.data_schema):
            return snapshot
        settings = self.settings
        self.context = drop_for_new_columns(self.context, settings.metadata, settings.commit.lock_wait_ms, before.arrow)
        return replace(snapshot, context=self.context, listing=choose_listing(self.context, snapshot.timeline))

    def _snapshot_to_plan_on(self, snapshot: Snapshot, transaction: Transaction) -> tuple[Snapshot, WriteStart]:
        """Return the snapshot that the attempt is planned on, and the state that conflicts are detected against.

        That is the snapshot at the time of the attempt's instant, not the one that was loaded before the rows were
        prepared, possibly hours earlier. After the request, cleans and archivals retain what that snapshot uses, and a
        later commit is a conflict if it overlaps this write. Every commit in the snapshot was requested before this
        write, so no file that this write supersedes is newer than its replacement.

        Rows that were read from a snapshot are planned on that snapshot, since another one may have other matching
        rows. If another writer changed the columns after the rows were adapted to them, that change remains a conflict.
        """
        begun_on = transaction.requested_on
        if self.chosen or begun_on is None or begun_on.instants == snapshot.timeline.instants:
            return snapshot, write_start(snapshot)
        now = load_snapshot(self.context, timeline=begun_on)
        if now.schema == snapshot.schema:
            return now, write_start(now)
        if self.schemas.keys_only:
            self.schemas = WriteSchemas.of(self.context, now, self.columns, self.settings)
            return now, write_start(now)
        return now, write_start(snapshot)


_INDEXES_BEGUN = 5
"""Maximum number of times a write is planned again because an index build began."""


def _write_in_bulk(attempt: Attempt, incoming: Incoming, counts: Mapping[str, int]) -> Written:
    """Write all rows to new files. ``counts`` are rows by partition path, if they were counted."""
    attempt.begin_files(WorkloadProfile({}, counts) if attempt.shape.replaces else None)
    settings, env = attempt.settings, attempt.context.env
    return Written(incoming.write_bulk(BulkPlan(attempt.spec, settings.sort_mode, env.uuid4, settings.bulk_parallelism)))


def _missing_key_claims(shape: OperationTraits, written: Written) -> list[FileGroupId]:
    """Return the read set of keys that were not found: no other file group may get them concurrently."""
    # A write that overwrites partitions returns this for everything that it does not replace.
    stats = [status.stat for status in written.statuses if status.stat.num_inserts]
    if not stats or (written.lookup is None and not shape.replaces):
        return []
    if shape.is_bucketed:
        return [group for s in stats for group in new_bucket(s.partition_path or "", s.file_id or "")]
    everywhere = [NEW_KEYS_IN_ANY_GROUP] if shape.global_keys or shape.replaces_table else []
    return [new_keys(s.partition_path or "") for s in stats] + everywhere
