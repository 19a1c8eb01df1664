"""Indexes of the metadata table as the caller asks for them: create, drop, rebuild, list; and the indexing action behind them.

    schedule    lock: `<t>.indexing.requested` says which partition is to be built, and from which instant on
    run         lock: `<t>.indexing.inflight`; the definition stored; the partition's file groups made, each with its first log;
                the partition named as being built, from which on every commit says its part in it; the table's state taken
                no lock: the base files written from that state
                lock: the delta commit of the metadata table; the partition named as ready; `<t>_<completion>.indexing`
    catch up    a write that was under way when the partition was named may have completed without it: then the base files are
                written again from a newer state.  Writers of ours never do, they look at the properties under the lock
    abort       the partition named no more, its folder and definition removed, the instant taken back

Writers go on all the while.  While a partition is being built the metadata table's compaction leaves it out: a base file that
comes later than its logs must not be older than another one.  A crash leaves a partition that is kept up to date and not read;
running the instant again wipes it and builds it anew.

What dropping does first: the table's properties forget a partition before its folder goes, so readers are never sent to what is
not there; the definition of a secondary or expression index goes before both, or real Hudi's next writer would build it again.

Source: storage format, "Metadata table", async indexing protocol, index definitions, and when real writers rebuild it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.execute.engine import Engine
from pyhudi.execute.metadata_records import MetadataFile
from pyhudi.format.actions.commit import WriteStat
from pyhudi.format.actions.indexing import IndexCommitMetadata, IndexPartitionInfo, IndexPlan
from pyhudi.format.index_definitions import (
    IndexDefinition,
    column_stats_definition,
    format_index_definitions,
    parse_index_definitions,
)
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.metadata.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_INDEX_PREFIX,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_INDEX_PREFIX,
    PartitionKind,
    parse_partition,
)
from pyhudi.format.names import parse_data_file_instant
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE, METADATA_FOLDER
from pyhudi.operations.action.claim import claim
from pyhudi.operations.action.gate import check_writable
from pyhudi.operations.action.settings import CommitSettings
from pyhudi.operations.action.transaction import new_instant_time
from pyhudi.operations.metadata.defined import (
    check_secondary_column,
    expression_index,
    is_defined,
    result_type,
)
from pyhudi.operations.metadata.initialise import PartitionBuilder, build_partitions, planned_partitions
from pyhudi.operations.metadata.mirror import columns_to_index, store_definition
from pyhudi.operations.metadata.settings import BUILD_ORDER, MetadataSettings
from pyhudi.operations.metadata.store import (
    MetadataStore,
    commit_of,
    drop_partitions,
    drop_store,
    set_partitions,
)
from pyhudi.records.columns import field_at
from pyhudi.settings import Option, Options, read_settings
from pyhudi.storage import liveness
from pyhudi.table.config import store_table_config
from pyhudi.table.context import TableContext
from pyhudi.table.metadata.records import load_index_definitions
from pyhudi.table.snapshot import Snapshot, directory_listing, load_snapshot
from pyhudi.timeline.timeline import Timeline

_DEFINITION_KEY = "pyhudi.index.definition"
"""In the extra metadata of a plan: the definition to store when the index is built."""

_REBUILDS = 3
_WAIT_MS = 200

_WAIT = Option(
    "hoodie.metadata.index.check.timeout.seconds",
    int,
    "900",
    "seconds to wait for writes that were under way when an index was begun",
)


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """How indexes are built.  wait_ms: for writes that were under way when a partition was named as being built."""

    commit: CommitSettings
    metadata: MetadataSettings
    wait_ms: Annotated[int, _WAIT]

    @classmethod
    def of(cls, options: Options) -> IndexSettings:
        """From checked options."""
        return read_settings(cls, options, wait_ms=1000 * options.integer(_WAIT))


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index to be made.  partition: of the metadata table; definition: None for one that needs none."""

    partition: str
    definition: IndexDefinition | None = None


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """An index of a table.

    name: its partition of the metadata table.  kind: record_index, column_stats, partition_stats, bloom_filters, secondary_index
    or expr_index.  columns: those it is over.  function, options: of an expression index.  state: ready, building or planned.
    instant: of the indexing action, when it is not ready.
    """

    name: str
    kind: str
    columns: tuple[str, ...] = ()
    function: str = ""
    options: tuple[tuple[str, str], ...] = ()
    state: str = "ready"
    instant: str | None = None


def index_request(
    kind: str,
    columns: Sequence[str] = (),
    *,
    name: str | None = None,
    function: str | None = None,
    function_options: Mapping[str, str] | None = None,
) -> IndexRequest:
    """The request for an index of a kind.

    kind: record_index, bloom_filters, partition_stats, column_stats (columns: those with statistics, () for the first of the
    table), secondary_index (one column).  With a function, column_stats and bloom_filters are kinds of expression indexes over
    one column.  name: of secondary and expression indexes, the column's (and function's) when left out.  Raises InvalidRequest.
    """
    options = dict(function_options or {})
    if function is None and options:
        raise InvalidRequest("options of a function without the function")
    if function is not None:
        if kind not in (COLUMN_STATS, BLOOM_FILTERS):
            raise InvalidRequest(f"an expression index is of kind {COLUMN_STATS} or {BLOOM_FILTERS}, not {kind!r}")
        column = _one(columns, "an expression index")
        partition = _named(EXPRESSION_INDEX_PREFIX, name or f"{function}_{column}")
        definition = IndexDefinition(partition, kind, function, (column,), (("expr", function), *options.items()))
        expression_index(definition)
        return IndexRequest(partition, definition)
    if kind == PartitionKind.SECONDARY_INDEX.value:
        column = _one(columns, "a secondary index")
        partition = _named(SECONDARY_INDEX_PREFIX, name or column)
        return IndexRequest(partition, IndexDefinition(partition, kind, "identity", (column,)))
    if name is not None:
        raise InvalidRequest(f"an index of kind {kind!r} has no name of its own")
    if kind == COLUMN_STATS:
        return IndexRequest(kind, column_stats_definition(columns) if columns else None)
    if columns:
        raise InvalidRequest(f"an index of kind {kind!r} is not over columns")
    if kind not in (RECORD_INDEX, BLOOM_FILTERS, PARTITION_STATS):
        kinds = (RECORD_INDEX, COLUMN_STATS, PARTITION_STATS, BLOOM_FILTERS, PartitionKind.SECONDARY_INDEX.value)
        raise InvalidRequest(f"no index is of kind {kind!r}; there are: {', '.join(kinds)}")
    return IndexRequest(kind)


def create_index(context: TableContext, engine: Engine, settings: IndexSettings, request: IndexRequest) -> Instant:
    """Plan an index and build it; the completed indexing instant.  One that died while it was built is built anew.

    Raises InvalidRequest when the table has the index, lacks what it needs, or cannot have it; TableState when somebody else
    builds it.
    """
    waiting = [info for info in list_indexes(context.reloaded()) if info.name == request.partition and info.instant is not None]
    instant = waiting[0].instant if waiting else None
    return run_index(context, engine, settings, instant or schedule_index(context, engine, settings, request))


def schedule_index(context: TableContext, engine: Engine, settings: IndexSettings, request: IndexRequest) -> str:
    """Put an indexing on the timeline; its instant.  Raises as `create_index`."""
    check_writable(context)
    with context.locked(settings.commit.lock_wait_ms) as held:
        context = held.reloaded()
        snapshot = load_snapshot(context, directory_listing)
        schema = _schema_of(snapshot)
        if not context.config.has_metadata_table:
            context = build_partitions(context, engine, settings.metadata, (FILES,), schema, schema)
        _check(context, schema, request)
        time = new_instant_time(context, snapshot.timeline, settings.commit)
        extra = {}
        if request.definition is not None:
            extra[_DEFINITION_KEY] = format_index_definitions([request.definition]).decode()
        upto = _last_contiguous(snapshot.timeline)
        plan = IndexPlan(1, (IndexPartitionInfo(1, request.partition, upto, extra),))
        context.timeline.request(time, Action.INDEXING, plan.encode(context.env.token_bytes(16)))
    return time


def run_index(context: TableContext, engine: Engine, settings: IndexSettings, instant_time: str) -> Instant:
    """Build what an indexing plans; its completed instant.

    A build that fails is taken back, the plan with it.  Raises InstantNotFound, TableState when another process builds it or has
    taken it back.
    """
    check_writable(context)
    with _claimed(context, settings, instant_time):
        try:
            return _Indexing(context, engine, settings, instant_time).run()
        except Exception:
            abort_index(context, settings, instant_time, missing_ok=True)
            raise


def abort_index(context: TableContext, settings: IndexSettings, instant_time: str, *, missing_ok: bool = False) -> None:
    """Take an indexing back that has not completed: what it has built, its definition and its instant."""
    check_writable(context, keeps_indexes=False)
    with context.locked(settings.commit.lock_wait_ms) as held:
        held = held.reloaded()
        pending = [i for i in held.timeline.load().pending(Action.INDEXING) if i.request_time == instant_time]
        if not pending:
            if missing_ok:
                return
            raise TableState(f"indexing {instant_time} of {held.storage.uri} is not pending: it is complete, or was taken back")
        for info in _plan_of(held, instant_time).index_partition_infos or ():
            partition = info.metadata_partition_path or ""
            if partition in held.config.metadata_partitions:
                continue
            _forget_definition(held, partition)
            held = drop_partitions(held, (partition,))
        held.timeline.remove_pending(instant_time, Action.INDEXING)
    liveness.forget(context.storage, instant_time)


def drop_index(context: TableContext, name: str, lock_wait_ms: int) -> None:
    """Remove one index.  Without column statistics there are none of partitions either.

    Raises InvalidRequest when the table has no such index, or another one needs it.
    """
    check_writable(context, keeps_indexes=False)
    with context.locked(lock_wait_ms) as held:
        context = held.reloaded()
        config = context.config
        there = (*config.metadata_partitions, *config.metadata_partitions_inflight)
        definitions = load_index_definitions(context)
        if name == FILES:
            raise InvalidRequest("files is no index but the list of files: Table.drop_metadata_table() removes all")
        if name not in there and name not in definitions:
            raise InvalidRequest(f"the table at {context.storage.uri} has no index {name!r}; it has {', '.join(sorted(there))}")
        needing = [p for p in there if parse_partition(p) is PartitionKind.SECONDARY_INDEX and p in definitions]
        if name == RECORD_INDEX and needing:
            raise InvalidRequest(f"{', '.join(needing)} needs the record index: drop that first")
        if name != COLUMN_STATS:
            _forget_definition(context, name)
        gone = {name, PARTITION_STATS} if name == COLUMN_STATS else {name}
        drop_partitions(context, gone.intersection(there))
        for instant in context.timeline.load().pending(Action.INDEXING):
            planned = {
                info.metadata_partition_path for info in _plan_of(context, instant.request_time).index_partition_infos or ()
            }
            if planned <= gone:
                context.timeline.remove_pending(instant.request_time, Action.INDEXING)


def drop_metadata_table(context: TableContext, lock_wait_ms: int) -> None:
    """Remove the whole metadata table, if there is one; readers list directories from then on.

    The next write builds it anew, defined indexes included, unless its options say hoodie.metadata.enable=false.
    """
    check_writable(context, keeps_indexes=False)
    with context.locked(lock_wait_ms) as held:
        drop_store(held.reloaded())


def rebuild_index(context: TableContext, engine: Engine, settings: IndexSettings, name: str | None) -> tuple[str, ...]:
    """Build an index anew from the table's files, or, when the name is None or `files`, all of the metadata table.

    Nothing of what is there is believed, so this mends what is damaged.  Statistics of columns and of partitions are built
    together.  Returns what was built.  The lock is held meanwhile.  Raises InvalidRequest when the table has no such index.
    """
    check_writable(context)
    with context.locked(settings.commit.lock_wait_ms) as held:
        context = held.reloaded()
        snapshot = load_snapshot(context, directory_listing)
        schema = _schema_of(snapshot)
        there = context.config.metadata_partitions
        if name is None or name == FILES:
            if not there:
                raise InvalidRequest(f"the table at {context.storage.uri} has no metadata table; Table.index.create() makes one")
            wanted = {FILES, *there, *(d for d in load_index_definitions(context) if is_defined(d))}
        elif name in there:
            wanted = {COLUMN_STATS, PARTITION_STATS}.intersection(there) if name in (COLUMN_STATS, PARTITION_STATS) else {name}
        else:
            raise InvalidRequest(f"the table at {context.storage.uri} has no index {name!r}; it has {', '.join(sorted(there))}")
        ordered = (*(p for p in BUILD_ORDER if p in wanted), *sorted(p for p in wanted if p not in BUILD_ORDER))
        if FILES not in wanted:
            context = set_partitions(context, [p for p in there if p not in wanted])
        build_partitions(context, engine, settings.metadata, ordered, schema, schema)
    return ordered


def list_indexes(context: TableContext) -> tuple[IndexInfo, ...]:
    """The indexes of a table: ready, being built, and planned; `files` is none."""
    config = context.config
    definitions = load_index_definitions(context)
    instants: dict[str, str] = {}
    planned: dict[str, IndexDefinition] = {}
    for instant in context.timeline.load().pending(Action.INDEXING):
        for info in _plan_of(context, instant.request_time).index_partition_infos or ():
            partition = info.metadata_partition_path or ""
            instants[partition] = instant.request_time
            definition = _planned_definition(info)
            if definition is not None:
                planned[partition] = definition
    found = []
    for name in sorted({*config.metadata_partitions, *config.metadata_partitions_inflight, *instants} - {FILES}):
        ready = name in config.metadata_partitions
        state = "ready" if ready else "building" if name in config.metadata_partitions_inflight else "planned"
        kind = parse_partition(name)
        known = definitions.get(name) or planned.get(name)
        is_expression = kind is PartitionKind.EXPRESSION_INDEX
        found.append(
            IndexInfo(
                name,
                kind.value if kind is not None else "unknown",
                known.source_fields if known else (),
                known.function if known and is_expression else "",
                known.options if known and is_expression else (),
                state,
                None if ready else instants.get(name),
            )
        )
    return tuple(found)


# Private


class _Indexing:
    """One indexing of this process, whose instant is claimed."""

    def __init__(self, context: TableContext, engine: Engine, settings: IndexSettings, instant_time: str) -> None:
        self._context = context
        self._engine = engine
        self._settings = settings
        self._time = instant_time
        infos = _plan_of(context, instant_time).index_partition_infos or ()
        if len(infos) != 1:
            raise TableState(f"indexing {instant_time} of {context.storage.uri} plans {len(infos)} partitions, not one")
        self._info = infos[0]
        self._partition = self._info.metadata_partition_path or ""

    def run(self) -> Instant:
        for _ in range(_REBUILDS):
            with self._locked() as context:
                builder, snapshot, files, time = self._begin(context)
            stats = builder.fill(self._partition, files, time)
            self._wait_for(snapshot)
            with self._locked() as context:
                if not self._missed(context, snapshot):
                    return self._finish(context, builder, stats, time)
        with self._locked() as context:
            # Foreign writers keep committing without the partition: they have to wait for once.
            builder, _, files, time = self._begin(context)
            return self._finish(context, builder, builder.fill(self._partition, files, time), time)

    @contextmanager
    def _locked(self) -> Iterator[TableContext]:
        with self._context.locked(self._settings.commit.lock_wait_ms) as held:
            context = held.reloaded()
            pending = {i.request_time for i in context.timeline.load().pending(Action.INDEXING)}
            if self._time not in pending:
                raise TableState(f"indexing {self._time} of {context.storage.uri} was taken back by another process")
            yield context

    def _begin(self, context: TableContext) -> tuple[PartitionBuilder, Snapshot, list[MetadataFile], str]:
        """Name the partition as being built, its file groups made, and take the state that it is built from."""
        snapshot = load_snapshot(context, directory_listing)
        schema = _schema_of(snapshot)
        definition = _planned_definition(self._info)
        columns: tuple[str, ...] = ()
        if self._partition in (COLUMN_STATS, PARTITION_STATS):
            columns = self._columns(context, definition, schema)
            context = store_definition(context, columns)
        elif definition is not None:
            context = _store_defined(context, definition)
        store = MetadataStore.open(context)
        store.undo_pending()
        store.storage.delete_folder(self._partition)
        builder = PartitionBuilder(store, self._engine, self._settings.metadata, snapshot, columns, with_meta_fields(schema))
        time = builder.free_instant()
        files = builder.seed(self._partition, time)
        inflight = (*context.config.metadata_partitions_inflight, self._partition)
        set_partitions(context, [p for p in context.config.metadata_partitions if p != self._partition], inflight)
        return builder.unlocked(self._context), snapshot, files, time

    def _columns(self, context: TableContext, definition: IndexDefinition | None, schema: pa.Schema) -> tuple[str, ...]:
        settings = self._settings.metadata
        if definition is not None:
            settings = replace(settings, columns=definition.source_fields)
        return columns_to_index(context, settings, schema, schema)

    def _wait_for(self, snapshot: Snapshot) -> None:
        """Writes that were under way when the state was taken get time to complete: they may not know of the partition."""
        env, heartbeats = self._context.env, self._settings.commit.heartbeats
        deadline = env.now_ms() + self._settings.wait_ms
        waited = {i.request_time for i in snapshot.timeline.pending_writes()}
        while waited and env.now_ms() < deadline:
            pending = {i.request_time for i in self._context.timeline.load().pending_writes()}
            waited = {time for time in waited & pending if liveness.is_alive(self._context.storage, env, time, heartbeats)}
            if waited:
                env.sleep_ms(_WAIT_MS)

    def _missed(self, context: TableContext, snapshot: Snapshot) -> bool:
        """Whether a write that was under way completed without saying its part."""
        if self._partition not in context.config.metadata_partitions_inflight:
            raise TableState(f"{self._partition} of {context.storage.uri} is being built no more: another process has dropped it")
        before = {i.request_time for i in snapshot.timeline.pending_writes()}
        done = [i for i in context.timeline.load().completed_writes() if i.request_time in before]
        if not done:
            return False
        storage = context.storage.child(METADATA_FOLDER)
        said = {parse_data_file_instant(info.name) for info in storage.list(self._partition).files}
        return any(i.request_time not in said for i in done)

    def _finish(self, context: TableContext, builder: PartitionBuilder, stats: list[WriteStat], time: str) -> Instant:
        store = MetadataStore.open(context)
        requested = store.context.timeline.request(time, Action.DELTACOMMIT)
        store.context.timeline.start(requested)
        now = context.timeline.load()
        store.complete(requested, commit_of(stats, "BULK_INSERT"), now)
        config = context.config
        set_partitions(
            context,
            (*config.metadata_partitions, self._partition),
            [p for p in config.metadata_partitions_inflight if p != self._partition],
        )
        info = replace(self._info, index_upto_instant=_last_contiguous(now))
        completion = new_instant_time(context, now, self._settings.commit)
        document = IndexCommitMetadata(1, None, (info,)).encode(context.env.token_bytes(16))
        inflight = Instant(self._time, Action.INDEXING, State.INFLIGHT)
        return context.timeline.complete(inflight, Action.INDEXING, completion, document)


@contextmanager
def _claimed(context: TableContext, settings: IndexSettings, instant_time: str) -> Iterator[None]:
    """Hold an indexing instant as this process's own."""
    if context.timeline.load().find(instant_time, Action.INDEXING).is_completed:
        raise TableState(f"indexing {instant_time} of {context.storage.uri} is complete")
    heartbeat = claim(context, instant_time, Action.INDEXING, settings.commit, resumes=True).heartbeat
    try:
        yield
    except Exception:
        heartbeat.stop(delete=True)
        raise
    except BaseException:
        heartbeat.stop(delete=False)
        raise
    heartbeat.stop(delete=True)


def _check(context: TableContext, schema: pa.Schema, request: IndexRequest) -> None:
    config, partition = context.config, request.partition
    there = (*config.metadata_partitions, *config.metadata_partitions_inflight, *planned_partitions(context))
    if partition in there:
        raise InvalidRequest(f"the table at {context.storage.uri} has the index {partition} already, or it is being built")
    kind = parse_partition(partition)
    if kind is PartitionKind.SECONDARY_INDEX and RECORD_INDEX not in config.metadata_partitions:
        raise InvalidRequest("a secondary index needs the record index: create that first")
    if kind is PartitionKind.PARTITION_STATS:
        if COLUMN_STATS not in config.metadata_partitions:
            raise InvalidRequest("statistics of partitions need those of columns: create column_stats first")
        if not config.keys.partition_fields:
            raise InvalidRequest("the table has no partitions to have statistics of")
    if kind is PartitionKind.BLOOM_FILTERS and not config.populate_meta_fields:
        raise InvalidRequest("the table has no meta columns, so its files have no Bloom filters of record keys")
    definition = request.definition
    if definition is None:
        return
    if kind is PartitionKind.SECONDARY_INDEX:
        check_secondary_column(schema, definition.source_fields[0])
    elif kind is PartitionKind.EXPRESSION_INDEX:
        result_type(expression_index(definition), schema)
    for name in definition.source_fields:
        field_at(with_meta_fields(schema), name)


def _plan_of(context: TableContext, instant_time: str) -> IndexPlan:
    return IndexPlan.decode(context.timeline.read_state(instant_time, Action.INDEXING, State.REQUESTED) or b"")


def _planned_definition(info: IndexPartitionInfo) -> IndexDefinition | None:
    text = (info.extra_metadata or {}).get(_DEFINITION_KEY)
    return next(iter(parse_index_definitions(text.encode()).values()), None) if text else None


def _store_defined(context: TableContext, definition: IndexDefinition) -> TableContext:
    definitions = load_index_definitions(context)
    definitions[definition.name] = definition
    context.storage.put(INDEX_DEFINITIONS_FILE, format_index_definitions(definitions.values()))
    if context.config.index_definitions_path is None:
        changes = {"hoodie.table.index.defs.path": INDEX_DEFINITIONS_FILE}
        context = replace(context, config=store_table_config(context.storage, changes, context.env))
    return context


def _forget_definition(context: TableContext, name: str) -> None:
    definitions = load_index_definitions(context)
    if is_defined(name) and name in definitions:
        del definitions[name]
        context.storage.put(INDEX_DEFINITIONS_FILE, format_index_definitions(definitions.values()))


def _schema_of(snapshot: Snapshot) -> pa.Schema:
    if snapshot.schema is None:
        raise TableState(f"the table at {snapshot.context.storage.uri} has no columns yet; write to it first")
    return snapshot.schema.arrow


def _last_contiguous(timeline: Timeline) -> str:
    """The last completed write before the first one that is pending."""
    pending = min((i.request_time for i in timeline.pending_writes()), default=None)
    return max((i.request_time for i in timeline.completed_writes() if pending is None or i.request_time < pending), default="")


def _one(columns: Sequence[str], what: str) -> str:
    if len(columns) != 1:
        raise InvalidRequest(f"{what} is over one column, not {len(columns)}")
    return columns[0]


def _named(prefix: str, name: str) -> str:
    cleaned = name.removeprefix(prefix).replace(".", "_")
    if re.fullmatch(r"[A-Za-z0-9_]{1,100}", cleaned) is None:
        raise InvalidRequest(f"an index cannot be named {name!r}: letters, digits and _ make a name")
    return prefix + cleaned
