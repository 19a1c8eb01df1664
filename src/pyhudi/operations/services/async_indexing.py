"""Asynchronous indexing: build indexes of the metadata table while writers continue.

    schedule    lock: `<t>.indexing.requested` records the partitions to build, and the instant to build from
    run         lock: write `<t>.indexing.inflight`; store the definitions; create the file groups of all partitions,
                each with its first log file; record the partitions as inflight, so that every later commit updates
                them; load the snapshot
                no lock: write the base files from that snapshot
                lock: one delta commit of the metadata table; record all partitions as ready; write
                `<t>_<completion>.indexing`
    catch up    a write that was pending when they were recorded may have completed without updating them: then the base
                files are written again from a newer snapshot. PyHudi writers never do that, because they reload the
                properties under the lock
    abort       remove the partitions from the properties, delete their folders and definitions, remove the instant

Writers continue throughout. The metadata table's compaction skips a partition that is being built: its base file is
written after its log files, and must not be older than another base file. A crash leaves a partition that is maintained
and not read; running the instant again deletes and rebuilds it.

Source: docs/formats/metadata-table.md, "Building an index while others write".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.actions.index_plan import IndexCommitMetadata, IndexPartitionInfo, IndexPlan
from pyhudi.format.index_definitions import IndexDefinition, declared_layout, format_index_definitions, parse_index_definitions
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import parse_data_file_instant
from pyhudi.format.paths import METADATA_FOLDER
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, FILES, PARTITION_STATS
from pyhudi.metadata_table.file_tasks import MetadataFile
from pyhudi.metadata_table.indexes import in_build_order, index_for_partition, is_defined
from pyhudi.metadata_table.indexes.column_stats_index import columns_to_index, store_definition
from pyhudi.metadata_table.indexes.index_events import IndexBuild
from pyhudi.metadata_table.lost_files import check_no_lost_files
from pyhudi.metadata_table.reader.stored_index_definitions import add_definition, load_index_definitions, put_index_definitions
from pyhudi.metadata_table.writer.initialize_partitions import PartitionBuilder, build_partitions, planned_partitions
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import MetadataStore, build_commit_metadata, drop_partitions, set_partitions
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.instant_times import new_instant_time
from pyhudi.operations.commit.scheduled_action import ScheduledAction
from pyhudi.operations.commit.service_result import NotDue
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options import index_options, table_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.records.dotted_columns import field_at
from pyhudi.storage import liveness
from pyhudi.table.schema_on_read_history import load_column_history
from pyhudi.table.snapshot import Snapshot, directory_listing, load_snapshot, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine

_DEFINITION_KEY = "pyhudi.index.definition"
"""Key in the extra metadata of a plan: the index definition to store when the index is built."""

_REBUILDS = 3
_WAIT_MS = 200


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of index builds.

    Attributes:
        commit: Commit settings.
        metadata: Metadata table settings.
        wait_ms: How long to wait for writes that were pending when the partition was recorded as inflight.
    """

    commit: CommitSettings
    metadata: MetadataSettings
    wait_ms: Annotated[int, index_options.METADATA_INDEX_CHECK_TIMEOUT_SECONDS]

    @classmethod
    def of(cls, options: Options) -> IndexSettings:
        """Build the settings from checked options."""
        return read_settings(cls, options, wait_ms=1000 * options.integer(index_options.METADATA_INDEX_CHECK_TIMEOUT_SECONDS))


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index to build.

    Attributes:
        partition: Its partition of the metadata table.
        definition: Its definition, None for an index without one.
    """

    partition: str
    definition: IndexDefinition | None = None


@dataclass(frozen=True, slots=True)
class Indexing(ScheduledAction[Instant]):
    """The scheduled action that builds indexes concurrently with writes.

    Attributes:
        requests: Indexes to plan; empty when it only runs existing plans.
    """

    engine: Engine
    settings: IndexSettings
    requests: tuple[IndexRequest, ...] = ()

    action = Action.INDEXING
    description = "building an index"
    resumes = True

    @property
    def commit(self) -> CommitSettings:
        return self.settings.commit

    def check(self) -> None:
        check_writable(self.context)

    def load_context(self, locked_context: TableContext) -> Snapshot:
        return load_snapshot(locked_context.reloaded(), directory_listing)

    def plan(self, snapshot: Snapshot, time: str, *, if_due: bool) -> bytes | NotDue:
        context, requests = snapshot.context, {request.partition: request for request in self.requests}
        assert requests, "an action that plans indexes has requests"
        schema = table_columns(snapshot)
        _check_columns_by_name(context, requests)
        if not context.config.has_metadata_table:
            context = build_partitions(context, self.engine, self.settings.metadata, (FILES,), schema, schema)
        upto = _last_contiguous(snapshot.timeline)
        infos = []
        for partition in in_build_order(requests):
            _check(context, schema, requests[partition], requests)
            definition = _definition_of(context, requests[partition])
            extra = {} if definition is None else {_DEFINITION_KEY: format_index_definitions([definition]).decode()}
            infos.append(IndexPartitionInfo(1, partition, upto, extra))
        return IndexPlan(1, tuple(infos)).encode(context.env.token_bytes(16))

    def run(self, transaction: Transaction) -> Instant:
        context, time = self.context, transaction.instant_time
        try:
            done = _Build(context, self.engine, self.settings, time).run()
        except Exception:
            try:
                abort_index(context, self.settings, time, missing_ok=True)
            finally:
                transaction.heartbeat.stop(delete=True)
            raise
        except BaseException:
            transaction.heartbeat.stop(delete=False)
            raise
        transaction.heartbeat.stop(delete=True)
        return done


def abort_index(context: TableContext, settings: IndexSettings, instant_time: str, *, missing_ok: bool = False) -> None:
    """Abort a pending indexing action: remove what it has built, its definitions and its instant."""
    check_writable(context, retains_indexes=False)
    with context.locked(settings.commit.lock_wait_ms) as locked:
        locked = locked.reloaded()
        pending = [i for i in locked.timeline.load().pending(Action.INDEXING) if i.request_time == instant_time]
        if not pending:
            if missing_ok:
                return
            raise TableState(f"indexing {instant_time} of {locked.storage.uri} is not pending: it is complete, or was aborted")
        for info in index_plan(locked, instant_time).index_partition_infos or ():
            partition = info.metadata_partition_path or ""
            if partition in locked.config.metadata_partitions:
                continue
            remove_definition(locked, partition)
            locked = drop_partitions(locked, (partition,))
        locked.timeline.remove_pending(instant_time, Action.INDEXING)
    liveness.remove_heartbeat(context.storage, instant_time)


@dataclass(frozen=True, slots=True)
class _StartedPartitions:
    """Partitions recorded as inflight, with the base files that each gets from ``snapshot``."""

    builder: PartitionBuilder
    snapshot: Snapshot
    files: Mapping[str, list[MetadataFile]]
    time: str

    def fill(self) -> list[WriteStat]:
        return [stat for partition, files in self.files.items() for stat in self.builder.fill(partition, files, self.time)]


class _Build:
    """One run of an indexing action, whose instant this process has claimed."""

    def __init__(self, context: TableContext, engine: Engine, settings: IndexSettings, instant_time: str) -> None:
        self._context = context
        self._engine = engine
        self._settings = settings
        self._time = instant_time
        planned = {
            info.metadata_partition_path or "": info for info in index_plan(context, instant_time).index_partition_infos or ()
        }
        if not planned:
            raise TableState(
                f"indexing {instant_time} of {context.storage.uri} has an empty plan; abort it with Table.index.abort"
            )
        self._infos = {partition: planned[partition] for partition in in_build_order(planned)}

    def run(self) -> Instant:
        for _ in range(_REBUILDS):
            with self._locked() as context:
                begun = self._begin(context)
            stats = begun.fill()
            self._wait_for(begun.snapshot)
            with self._locked() as context:
                if not self._missed(context, begun.snapshot):
                    return self._finish(context, stats, begun.time)
        with self._locked() as context:
            # Writers other than PyHudi may keep committing without the partitions: wait for their pending writes once.
            begun = self._begin(context)
            return self._finish(context, begun.fill(), begun.time)

    @contextmanager
    def _locked(self) -> Iterator[TableContext]:
        with self._context.locked(self._settings.commit.lock_wait_ms) as locked:
            context = locked.reloaded()
            pending = {i.request_time for i in context.timeline.load().pending(Action.INDEXING)}
            if self._time not in pending:
                raise _aborted_error(context, self._time)
            if not context.config.has_metadata_table:
                raise TableState(
                    f"the metadata table of {context.storage.uri} was dropped by another process while indexing "
                    f"{self._time} was running; build the index again"
                )
            # Columns may have been changed by id since the plan was made; once this run holds its first lock, such
            # changes are refused.
            _check_columns_by_name(context, self._infos)
            yield context

    def _begin(self, context: TableContext) -> _StartedPartitions:
        """Record the partitions as inflight, with their file groups created, and load the snapshot that they are built from."""
        snapshot = load_snapshot(context, directory_listing)
        check_no_lost_files(snapshot)
        schema = table_columns(snapshot)
        columns: tuple[str, ...] = ()
        for partition, info in self._infos.items():
            definition = planned_definition(info)
            if partition not in (COLUMN_STATS, PARTITION_STATS):
                context = context if definition is None else add_definition(context, definition)
            elif not columns:
                # Both cover the same columns.
                columns = self._columns(context, definition, schema)
                context = store_definition(context, columns)
        store = MetadataStore.open(context)
        store.roll_back_pending()
        for partition in self._infos:
            store.storage.delete_folder(partition)
        state = IndexBuild(store.table, self._engine, snapshot, columns, with_meta_fields(schema))
        builder = PartitionBuilder(store, self._settings.metadata, state)
        time = builder.free_instant()
        files = {partition: builder.seed(partition, time) for partition in self._infos}
        config = context.config
        inflight = (*(p for p in config.metadata_partitions_inflight if p not in self._infos), *self._infos)
        set_partitions(context, [p for p in config.metadata_partitions if p not in self._infos], inflight)
        return _StartedPartitions(builder.unlocked(self._context), snapshot, files, time)

    def _columns(self, context: TableContext, definition: IndexDefinition | None, schema: pa.Schema) -> tuple[str, ...]:
        settings = self._settings.metadata
        if definition is not None:
            settings = replace(settings, columns=definition.source_fields)
        return columns_to_index(context, settings, schema, schema)

    def _wait_for(self, snapshot: Snapshot) -> None:
        """Wait for writes that were pending when the snapshot was loaded: they may not know of the partition."""
        env, heartbeats = self._context.env, self._settings.commit.heartbeats
        deadline = env.now_ms() + self._settings.wait_ms
        waited = {i.request_time for i in snapshot.timeline.pending_writes()}
        while waited and env.now_ms() < deadline:
            pending = {i.request_time for i in self._context.timeline.load().pending_writes()}
            waited = {time for time in waited & pending if liveness.is_alive(self._context.storage, env, time, heartbeats)}
            if waited:
                env.sleep_ms(_WAIT_MS)

    def _missed(self, context: TableContext, snapshot: Snapshot) -> bool:
        """Return True if a write that was pending completed without updating the partitions."""
        for partition in self._infos:
            if partition not in context.config.metadata_partitions_inflight:
                raise TableState(f"{partition} of {context.storage.uri} is not inflight any more: another process has dropped it")
        before = {i.request_time for i in snapshot.timeline.pending_writes()}
        done = [i for i in context.timeline.load().completed_writes() if i.request_time in before]
        if not done:
            return False
        storage = context.storage.child(METADATA_FOLDER)
        wrote = {i.request_time for i in done}
        return any(
            not wrote <= {parse_data_file_instant(info.name) for info in storage.list(partition).files}
            for partition in self._infos
        )

    def _finish(self, context: TableContext, stats: list[WriteStat], time: str) -> Instant:
        store = MetadataStore.open(context)
        requested = store.context.timeline.request(time, Action.DELTACOMMIT)
        store.context.timeline.start(requested)
        now = context.timeline.load()
        store.complete(requested, build_commit_metadata(stats, "BULK_INSERT"), now)
        config = context.config
        set_partitions(
            context,
            (*config.metadata_partitions, *self._infos),
            [p for p in config.metadata_partitions_inflight if p not in self._infos],
        )
        upto = _last_contiguous(now)
        infos = tuple(replace(info, index_upto_instant=upto) for info in self._infos.values())
        completion = new_instant_time(context, now, self._settings.commit)
        document = IndexCommitMetadata(1, None, infos).encode(context.env.token_bytes(16))
        inflight = Instant(self._time, Action.INDEXING, State.INFLIGHT)
        return context.timeline.complete(inflight, Action.INDEXING, completion, document)


def _check_columns_by_name(context: TableContext, partitions: Iterable[str]) -> None:
    """Raise Unsupported for an index that resolves columns by name, in a table that resolves them by id."""
    by_names = [partition for partition in partitions if is_defined(partition)]
    if by_names and load_column_history(context, None, read_commit) is not None:
        raise Unsupported(
            f"cannot build {', '.join(by_names)}: it resolves columns by name, and {context.storage.uri} uses "
            f"schema on read ({table_options.SCHEMA_ON_READ}), so the table could not be written any more"
        )


def _check(context: TableContext, schema: pa.Schema, request: IndexRequest, concurrent_partitions: Collection[str]) -> None:
    """Raise InvalidRequest for an index that exists or is not possible. ``concurrent_partitions`` are built with it."""
    config, partition = context.config, request.partition
    existing = (*config.metadata_partitions, *config.metadata_partitions_inflight, *planned_partitions(context))
    if partition in existing:
        raise InvalidRequest(f"the table at {context.storage.uri} has the index {partition} already, or it is being built")
    index_class = index_for_partition(partition)
    if index_class is None:
        raise InvalidRequest(f"{partition!r} is not the partition of any index type")
    if index_class.needs is not None and index_class.needs.partition not in (*config.metadata_partitions, *concurrent_partitions):
        raise InvalidRequest(f"{index_class.needs.reason}: create {index_class.needs.required_for} first")
    needed = None if index_class.needs is None else load_index_definitions(context).get(index_class.needs.partition)
    if needed is not None and needed.by_partition:
        raise Unsupported(
            f"{partition} identifies records by keys of the whole table, which a partitioned {needed.name} does not support"
        )
    refusal = index_class.refusal(config)
    if refusal is not None:
        raise InvalidRequest(refusal)
    definition = request.definition
    if definition is None:
        return
    index_class.open(partition, definition).check_columns(schema)
    for name in definition.source_fields:
        field_at(with_meta_fields(schema), name)


def _definition_of(context: TableContext, request: IndexRequest) -> IndexDefinition | None:
    """Return the definition of a new index, with its layout if the table's version records layouts."""
    index_class, config = index_for_partition(request.partition), context.config
    assert index_class is not None, "the request has been checked"
    definition = request.definition or index_class.implicit_definition(config)
    if definition is None or definition.names_layout or not config.version.has_index_versions:
        return definition
    return replace(definition, other=(*definition.other, *declared_layout(max(index_class.layouts))))


def index_plan(context: TableContext, instant_time: str) -> IndexPlan:
    """Load the plan of an indexing action."""
    data = context.timeline.read_state(instant_time, Action.INDEXING, State.REQUESTED)
    if data is None:
        raise _aborted_error(context, instant_time)
    return IndexPlan.decode(data)


def _aborted_error(context: TableContext, instant_time: str) -> TableState:
    return TableState(f"indexing {instant_time} of {context.storage.uri} was aborted by another process")


def planned_definition(info: IndexPartitionInfo) -> IndexDefinition | None:
    """Return the definition that a plan stores with its index, or None for an index without one."""
    text = (info.extra_metadata or {}).get(_DEFINITION_KEY)
    return next(iter(parse_index_definitions(text.encode()).values()), None) if text else None


def remove_definition(context: TableContext, name: str) -> None:
    """Remove the definition of a secondary or expression index. The caller holds the lock."""
    definitions = load_index_definitions(context)
    if is_defined(name) and name in definitions:
        del definitions[name]
        put_index_definitions(context, definitions.values())


def table_columns(snapshot: Snapshot) -> pa.Schema:
    """Return the columns of the table. Raises TableState if there are none."""
    if snapshot.schema is None:
        raise TableState(f"the table at {snapshot.context.storage.uri} has no columns yet; write to it first")
    return snapshot.schema.arrow


def _last_contiguous(timeline: Timeline) -> str:
    """Return the last completed write before the first pending one."""
    pending = min((i.request_time for i in timeline.pending_writes()), default=None)
    return max((i.request_time for i in timeline.completed_writes() if pending is None or i.request_time < pending), default="")
