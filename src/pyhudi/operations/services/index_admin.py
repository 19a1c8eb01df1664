"""Indexes of the metadata table as the caller asks for them: create, drop, rebuild, list.  `indexing` has the action behind them.

What dropping does first: the table's properties forget a partition before its folder goes, so readers are never sent to what is
not there; the definition of a secondary or expression index goes before both, or real Hudi's next writer would build it again.

Source: docs/formats/metadata-table.md, "Building an index while others write" and "Index definitions".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyhudi.errors import InvalidRequest
from pyhudi.format.index_definitions import (
    IndexDefinition,
    column_stats_definition,
)
from pyhudi.format.instants import Action, Instant
from pyhudi.metadata_table.codecs.metadata_partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_INDEX_PREFIX,
    FILES,
    PARTITION_STATS,
    SECONDARY_INDEX_PREFIX,
    MetadataPartitionType,
)
from pyhudi.metadata_table.indexes import INDEX_TYPES, dependent_partitions, in_build_order, index_for_partition, is_defined
from pyhudi.metadata_table.indexes.expression_index import ExpressionStatsIndex
from pyhudi.metadata_table.indexes.files_index import FilesIndex
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.metadata_table.writer.initialize_partitions import build_partitions
from pyhudi.metadata_table.writer.metadata_store import (
    drop_partitions,
    drop_store,
    set_partitions,
)
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.scheduled_action import run_planned, schedule
from pyhudi.operations.commit.service_result import Scheduled
from pyhudi.operations.services.async_indexing import (
    Indexing,
    IndexRequest,
    IndexSettings,
    index_plan,
    planned_definition,
    remove_definition,
    table_columns,
)
from pyhudi.table.snapshot import directory_listing, load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine


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
        ExpressionStatsIndex.open(partition, definition)
        return IndexRequest(partition, definition)
    if kind == MetadataPartitionType.SECONDARY_INDEX.value:
        column = _one(columns, "a secondary index")
        partition = _named(SECONDARY_INDEX_PREFIX, name or column)
        return IndexRequest(partition, IndexDefinition(partition, kind, "identity", (column,)))
    if name is not None:
        raise InvalidRequest(f"an index of kind {kind!r} has no name of its own")
    if kind == COLUMN_STATS:
        return IndexRequest(kind, column_stats_definition(columns) if columns else None)
    if columns:
        raise InvalidRequest(f"an index of kind {kind!r} is not over columns")
    kinds = [one.partition_type.rstrip("_") for one in INDEX_TYPES if one is not FilesIndex and one is not ExpressionStatsIndex]
    if kind not in kinds:
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


def schedule_index(context: TableContext, engine: Engine, settings: IndexSettings, *requests: IndexRequest) -> str:
    """Put an indexing on the timeline, which builds several indexes at once; its instant.  Raises as `create_index`."""
    planned = schedule(Indexing(context, engine, settings, requests))
    assert isinstance(planned, Scheduled), "an index that is asked for is planned"
    return planned.instant


def run_index(context: TableContext, engine: Engine, settings: IndexSettings, instant_time: str) -> Instant:
    """Build what an indexing plans; its completed instant.

    A build that fails is taken back, the plan with it.  Raises InstantNotFound, TableState when another process builds it or has
    taken it back.
    """
    return run_planned(Indexing(context, engine, settings), instant_time)


def drop_index(context: TableContext, name: str, lock_wait_ms: int) -> None:
    """Remove one index.  Without column statistics there are none of partitions either.

    Raises InvalidRequest when the table has no such index, or another one needs it.
    """
    check_writable(context, retains_indexes=False)
    with context.locked(lock_wait_ms) as held:
        context = held.reloaded()
        config = context.config
        there = (*config.metadata_partitions, *config.metadata_partitions_inflight)
        definitions = load_index_definitions(context)
        if name == FILES:
            raise InvalidRequest("files is not an index but the list of files: Table.drop_metadata_table() removes all")
        if name not in there and name not in definitions:
            raise InvalidRequest(f"the table at {context.storage.uri} has no index {name!r}; it has {', '.join(sorted(there))}")
        dependent = dependent_partitions(name, there)
        defined = [p for p in dependent if p in definitions]
        if defined:
            raise InvalidRequest(f"{', '.join(defined)} needs the {name.replace('_', ' ')}: drop that first")
        gone = {name, *(p for p in dependent if not is_defined(p))}
        over = []
        for instant in context.timeline.load().pending(Action.INDEXING):
            infos = index_plan(context, instant.request_time).index_partition_infos or ()
            planned = {info.metadata_partition_path for info in infos}
            if planned <= gone:
                over.append(instant)
            elif planned & gone:
                others = ", ".join(sorted(one or "" for one in planned - gone))
                raise InvalidRequest(
                    f"indexing {instant.request_time} of {context.storage.uri} builds {name!r} together with {others}: take the "
                    "indexing back (Table.index.abort), or drop the index once it is built"
                )
        if name != COLUMN_STATS:
            remove_definition(context, name)
        drop_partitions(context, gone.intersection(there))
        for instant in over:
            context.timeline.remove_pending(instant.request_time, Action.INDEXING)


def drop_metadata_table(context: TableContext, lock_wait_ms: int) -> None:
    """Remove the whole metadata table, if there is one; readers list directories from then on.

    The next write builds it anew, defined indexes included, unless its options say hoodie.metadata.enable=false.
    """
    check_writable(context, retains_indexes=False)
    with context.locked(lock_wait_ms) as held:
        drop_store(held.reloaded())


def rebuild_index(context: TableContext, engine: Engine, settings: IndexSettings, name: str | None) -> tuple[str, ...]:
    """Build an index anew from the table's files, or, when the name is None or `files`, all of the metadata table.

    Nothing of what is there is believed, so this repairs what is damaged.  Statistics of columns and of partitions are built
    together.  Returns what was built.  The lock is held meanwhile.  Raises InvalidRequest when the table has no such index.
    """
    check_writable(context)
    with context.locked(settings.commit.lock_wait_ms) as held:
        context = held.reloaded()
        snapshot = load_snapshot(context, directory_listing)
        schema = table_columns(snapshot)
        there = context.config.metadata_partitions
        if name is None or name == FILES:
            if not there:
                raise InvalidRequest(f"the table at {context.storage.uri} has no metadata table; Table.index.create() makes one")
            wanted = {FILES, *there, *(d for d in load_index_definitions(context) if is_defined(d))}
        elif name in there:
            wanted = {COLUMN_STATS, PARTITION_STATS}.intersection(there) if name in (COLUMN_STATS, PARTITION_STATS) else {name}
        else:
            raise InvalidRequest(f"the table at {context.storage.uri} has no index {name!r}; it has {', '.join(sorted(there))}")
        ordered = in_build_order(sorted(wanted))
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
        for info in index_plan(context, instant.request_time).index_partition_infos or ():
            partition = info.metadata_partition_path or ""
            instants[partition] = instant.request_time
            definition = planned_definition(info)
            if definition is not None:
                planned[partition] = definition
    found = []
    for name in sorted({*config.metadata_partitions, *config.metadata_partitions_inflight, *instants} - {FILES}):
        ready = name in config.metadata_partitions
        state = "ready" if ready else "building" if name in config.metadata_partitions_inflight else "planned"
        kind = index_for_partition(name)
        known = definitions.get(name) or planned.get(name)
        is_expression = kind is ExpressionStatsIndex
        found.append(
            IndexInfo(
                name,
                kind.partition_type.rstrip("_") if kind is not None else "unknown",
                known.source_fields if known else (),
                known.function if known and is_expression else "",
                known.options if known and is_expression else (),
                state,
                None if ready else instants.get(name),
            )
        )
    return tuple(found)


def _one(columns: Sequence[str], description: str) -> str:
    if len(columns) != 1:
        raise InvalidRequest(f"{description} is over one column, not {len(columns)}")
    return columns[0]


def _named(prefix: str, name: str) -> str:
    cleaned = name.removeprefix(prefix).replace(".", "_")
    if re.fullmatch(r"[A-Za-z0-9_]{1,100}", cleaned) is None:
        raise InvalidRequest(f"an index cannot be named {name!r}: letters, digits and _ make a name")
    return prefix + cleaned
