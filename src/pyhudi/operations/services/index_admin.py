"""Administration of metadata-table indexes: create, drop, rebuild and list. `async_indexing` implements the action.

Dropping an index first removes its partition from the table properties and then deletes the folder, so that readers
never look for a deleted folder. The definition of a secondary or expression index is removed before both; otherwise the
next Hudi writer would build the index again.

Source: docs/formats/metadata-table.md, "Building an index while others write" and "Index definitions".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pyhudi.errors import InvalidRequest
from pyhudi.format.index_definitions import IndexDefinition, column_stats_definition
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
from pyhudi.metadata_table.lost_files import check_listing_may_be_dropped, check_no_lost_files
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.metadata_table.writer.initialize_partitions import build_partitions
from pyhudi.metadata_table.writer.metadata_store import drop_partitions, drop_store, set_partitions
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

    Attributes:
        name: Its partition of the metadata table.
        kind: record_index, column_stats, partition_stats, bloom_filters, secondary_index or expr_index.
        columns: Indexed columns.
        function: Function of an expression index.
        options: Options of that function.
        state: ready, building or planned.
        instant: Instant of the indexing action, if the index is not ready.
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
    """Build the request for an index.

    Args:
        kind: record_index, bloom_filters, partition_stats, column_stats or secondary_index.
        columns: For column_stats the columns with statistics, () for the first columns of the table; for
            secondary_index one column.
        name: Name of a secondary or expression index; by default that of the column and function.
        function: Makes column_stats and bloom_filters an expression index over one column.

    Raises:
        InvalidRequest: The arguments do not define an index.
    """
    options = dict(function_options or {})
    kinds = [
        index_type.partition_type.rstrip("_")
        for index_type in INDEX_TYPES
        if index_type is not FilesIndex and index_type is not ExpressionStatsIndex
    ]
    if kind not in kinds:
        near = get_close_matches(kind, kinds, 1, 0.5)
        hint = f"did you mean {near[0]!r}? There are" if near else "use one of"
        raise InvalidRequest(f"index kind {kind!r} does not exist; {hint} {', '.join(kinds)}")
    if function is None and options:
        raise InvalidRequest("function options require a function")
    if function is not None:
        if kind not in (COLUMN_STATS, BLOOM_FILTERS):
            raise InvalidRequest(f"an expression index is of kind {COLUMN_STATS} or {BLOOM_FILTERS}, not {kind!r}")
        column = _single_column(columns, "an expression index")
        partition = _named(EXPRESSION_INDEX_PREFIX, name or f"{function}_{column}")
        definition = IndexDefinition(partition, kind, function, (column,), (("expr", function), *options.items()))
        ExpressionStatsIndex.open(partition, definition)
        return IndexRequest(partition, definition)
    if kind == MetadataPartitionType.SECONDARY_INDEX.value:
        column = _single_column(columns, "a secondary index")
        partition = _named(SECONDARY_INDEX_PREFIX, name or column)
        return IndexRequest(partition, IndexDefinition(partition, kind, "identity", (column,)))
    if name is not None:
        raise InvalidRequest(f"an index of kind {kind!r} has a fixed name; omit name=")
    if kind == COLUMN_STATS:
        return IndexRequest(kind, column_stats_definition(columns) if columns else None)
    if columns:
        raise InvalidRequest(f"an index of kind {kind!r} does not accept columns")
    return IndexRequest(kind)


def create_index(context: TableContext, engine: Engine, settings: IndexSettings, request: IndexRequest) -> Instant:
    """Plan an index and build it. An unfinished build of a dead process is restarted.

    Returns:
        The completed indexing instant.

    Raises:
        InvalidRequest: The table has the index, lacks a prerequisite, or does not support it.
        TableState: Another process is building it.
    """
    waiting = [info for info in list_indexes(context.reloaded()) if info.name == request.partition and info.instant is not None]
    instant = waiting[0].instant if waiting else None
    return run_index(context, engine, settings, instant or schedule_index(context, engine, settings, request))


def schedule_index(context: TableContext, engine: Engine, settings: IndexSettings, *requests: IndexRequest) -> str:
    """Schedule one indexing action that builds several indexes. Raises the errors of `create_index`.

    Returns:
        Its instant.
    """
    planned = schedule(Indexing(context, engine, settings, requests))
    assert isinstance(planned, Scheduled), "a requested index is always planned"
    return planned.instant


def run_index(context: TableContext, engine: Engine, settings: IndexSettings, instant_time: str) -> Instant:
    """Build the indexes of a scheduled indexing action.

    A failed build is aborted, and its plan removed.

    Returns:
        The completed instant.

    Raises:
        InstantNotFound: The action is not on the timeline.
        TableState: Another process is building it or has aborted it.
    """
    return run_planned(Indexing(context, engine, settings), instant_time)


def drop_index(context: TableContext, name: str, lock_wait_ms: int) -> None:
    """Remove one index. Dropping column statistics also drops partition statistics.

    Raises:
        InvalidRequest: The table has no such index, or another index depends on it.
    """
    check_writable(context, retains_indexes=False)
    with context.locked(lock_wait_ms) as locked:
        context = locked.reloaded()
        config = context.config
        existing = (*config.metadata_partitions, *config.metadata_partitions_inflight)
        definitions = load_index_definitions(context)
        if name == FILES:
            raise InvalidRequest(
                "'files' is the file listing of the metadata table, not an index; Table.drop_metadata_table() "
                "removes the whole metadata table"
            )
        if name not in existing and name not in definitions:
            raise InvalidRequest(
                f"the table at {context.storage.uri} has no index {name!r}; it has {', '.join(sorted(existing))}"
            )
        dependent = dependent_partitions(name, existing)
        defined = [p for p in dependent if p in definitions]
        if defined:
            raise InvalidRequest(f"{', '.join(defined)} depends on the {name.replace('_', ' ')}: drop that first")
        dropped = {name, *(p for p in dependent if not is_defined(p))}
        over = []
        for instant in context.timeline.load().pending(Action.INDEXING):
            infos = index_plan(context, instant.request_time).index_partition_infos or ()
            planned = {info.metadata_partition_path for info in infos}
            if planned <= dropped:
                over.append(instant)
            elif planned & dropped:
                others = ", ".join(sorted(one or "" for one in planned - dropped))
                raise InvalidRequest(
                    f"indexing {instant.request_time} of {context.storage.uri} builds {name!r} together with {others}: "
                    "abort the indexing (Table.index.abort), or drop the index once it is built"
                )
        if name != COLUMN_STATS:
            remove_definition(context, name)
        drop_partitions(context, dropped.intersection(existing))
        for instant in over:
            context.timeline.remove_pending(instant.request_time, Action.INDEXING)


def drop_metadata_table(context: TableContext, lock_wait_ms: int) -> None:
    """Remove the metadata table, if there is one; readers list directories after that.

    The next write rebuilds it, defined indexes included, unless its options set hoodie.metadata.enable=false.

    Raises:
        CorruptData: Committed files are missing or damaged, which readers of directories would not notice.
    """
    check_writable(context, retains_indexes=False)
    with context.locked(lock_wait_ms) as locked:
        context = locked.reloaded()
        check_listing_may_be_dropped(context)
        drop_store(context)


def rebuild_index(context: TableContext, engine: Engine, settings: IndexSettings, name: str | None) -> tuple[str, ...]:
    """Rebuild an index from the table's files; if ``name`` is None or `files`, rebuild the whole metadata table.

    The existing contents are ignored, so this repairs damage. Column and partition statistics are built together. The
    lock is held throughout.

    Returns:
        The rebuilt partitions.

    Raises:
        InvalidRequest: The table has no such index.
        CorruptData: Committed files are missing or damaged; the error lists them and the remedy. Nothing was changed.
    """
    check_writable(context)
    with context.locked(settings.commit.lock_wait_ms) as locked:
        context = locked.reloaded()
        snapshot = load_snapshot(context, directory_listing)
        schema = table_columns(snapshot)
        existing = context.config.metadata_partitions
        if name is None or name == FILES:
            if not existing:
                raise InvalidRequest(
                    f"the table at {context.storage.uri} has no metadata table; Table.index.create() creates one"
                )
            requested = {FILES, *existing, *(d for d in load_index_definitions(context) if is_defined(d))}
        elif name in existing:
            requested = (
                {COLUMN_STATS, PARTITION_STATS}.intersection(existing) if name in (COLUMN_STATS, PARTITION_STATS) else {name}
            )
        else:
            raise InvalidRequest(
                f"the table at {context.storage.uri} has no index {name!r}; it has {', '.join(sorted(existing))}"
            )
        ordered = in_build_order(sorted(requested))
        if FILES not in requested:
            check_no_lost_files(snapshot)
            context = set_partitions(context, [p for p in existing if p not in requested])
        build_partitions(context, engine, settings.metadata, ordered, schema, schema)
    return ordered


def list_indexes(context: TableContext) -> tuple[IndexInfo, ...]:
    """List the indexes of a table: ready, being built, and planned. `files` is not an index."""
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
    indexes = []
    for name in sorted({*config.metadata_partitions, *config.metadata_partitions_inflight, *instants} - {FILES}):
        ready = name in config.metadata_partitions
        state = "ready" if ready else "building" if name in config.metadata_partitions_inflight else "planned"
        index_class = index_for_partition(name)
        known = definitions.get(name) or planned.get(name)
        is_expression = index_class is ExpressionStatsIndex
        indexes.append(
            IndexInfo(
                name,
                index_class.partition_type.rstrip("_") if index_class is not None else "unknown",
                known.source_fields if known else (),
                known.function if known and is_expression else "",
                known.options if known and is_expression else (),
                state,
                None if ready else instants.get(name),
            )
        )
    return tuple(indexes)


def _single_column(columns: Sequence[str], description: str) -> str:
    if len(columns) != 1:
        raise InvalidRequest(f"{description} takes one column, not {len(columns)}")
    return columns[0]


def _named(prefix: str, name: str) -> str:
    cleaned = name.removeprefix(prefix).replace(".", "_")
    if re.fullmatch(r"[A-Za-z0-9_]{1,100}", cleaned) is None:
        raise InvalidRequest(f"index name {name!r} is invalid: use letters, digits and _")
    return prefix + cleaned
