"""Delete partitions: a replacecommit replaces their file groups with nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from pyhudi.errors import HudiError, InvalidRequest, Unsupported
from pyhudi.features.consistent_hashing.hashing_store import partitions_with_consistent_hashing
from pyhudi.features.consistent_hashing.hashing_writes import replace_hashing_metadata
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action
from pyhudi.metadata_table.writer.metadata_commit import indexing_requirements, prepare_metadata_commit
from pyhudi.operations.catalog_sync.sync_table import check_sync, with_sync
from pyhudi.operations.commit.action_attempt import Phases, rollback_on_error
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_callbacks import callback_notice, with_callbacks
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.planned_commit import PlannedCommit, commit_metadata
from pyhudi.operations.commit.precommit_checks import precommit_check
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.services.partition_ttl import DeletePartitions
from pyhudi.operations.services.run_services import with_services
from pyhudi.operations.write.resolve_blockers import (
    refuse_planned_compactions,
    resolve_pending_services,
    run_prewrite,
)
from pyhudi.operations.write.write_attempt import Attempt, retry_on_conflict, write_start
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.planning.conflicts import FileGroupId
from pyhudi.planning.partition_pruning import prune_partitions
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_parser import Filter, parse_filter
from pyhudi.records.filters.filter_visitor import columns as filter_columns
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.schema_evolution import continues
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.snapshot import Snapshot, load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.base_file_reader import open_base_file
from pyhudi.tasks.engine_protocol import Engine

# File groups that an overwriting write replaces.

_COUNTED_FILES = 1000
"""Maximum number of files whose footers are read to count replaced rows."""


def select_replaced_groups(attempt: Attempt, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the file groups that an overwriting write replaces.

    Args:
        paths: Partition paths of the incoming rows.

    Raises:
        TableState: A pending clustering rewrites some of them.
    """
    settings, snapshot = attempt.settings, attempt.snapshot
    if attempt.shape.replaces_table:
        partitions: Iterable[str] = snapshot.listing.partitions()
    elif settings.overwrite_where is not None:
        partitions = _matching_partitions(attempt, settings.overwrite_where, set(paths))
    else:
        partitions = {*paths, *(settings.partitions_to_overwrite or ())}
    replaced = live_file_ids(snapshot, partitions)
    groups = file_group_pairs(replaced)
    resolve_pending_services(snapshot, groups, settings)
    if (
        settings.replaces_schema
        and snapshot.schema is not None
        and not continues(snapshot.schema.arrow, attempt.schemas.data_schema)
    ):
        refuse_planned_compactions(snapshot, groups, settings)
    attempt.check_early(groups)
    return replaced


def _matching_partitions(attempt: Attempt, where: Filter, paths: set[str]) -> set[str]:
    """Partitions of the table and of the rows that match a predicate over the partition columns."""
    keys, uri = attempt.context.config.keys, attempt.context.storage.uri
    schema = pa.schema([*attempt.schemas.data_schema, *attempt.schemas.partition_columns])
    condition = bind(parse_filter(where), schema)
    others = [name for name in filter_columns(condition) if name not in partition_columns(keys)]
    if others:
        raise InvalidRequest(
            f"cannot overwrite {uri} where {where}: {others[0]} is no partition column. Use the partition columns "
            f"({', '.join(partition_columns(keys)) or 'the table has none'}), or merge with when_not_matched_by_source_delete"
        )
    every = {*paths, *attempt.snapshot.listing.partitions()}
    matching = set(prune_partitions(every, keys, schema, condition)[0])
    undecided = sorted(matching.intersection(prune_partitions(every, keys, schema, ~condition)[0]))
    if undecided:
        raise Unsupported(f"cannot overwrite {uri} where {where}: the path of partition {undecided[0]!r} does not decide it")
    outside = sorted(paths - matching)
    if outside:
        raise InvalidRequest(
            f"rows of partition {outside[0]!r} lie outside of the overwrite of {uri} where {where}: leave them out"
        )
    return matching


def file_group_pairs(file_ids: Mapping[str, Iterable[str]] | None) -> list[FileGroupId]:
    """Flatten file ids by partition path into pairs."""
    return [(partition, file_id) for partition, ids in (file_ids or {}).items() for file_id in ids]


def live_file_ids(snapshot: Snapshot, partitions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the file groups of partitions that a snapshot query reads, without empty partitions."""
    slices = snapshot.slices(list(partitions))
    return {
        partition: tuple(s.file_id for s in partition_slices)
        for partition, partition_slices in slices.items()
        if partition_slices
    }


def count_replaced_rows(snapshot: Snapshot, replaced: Mapping[str, Iterable[str]] | None) -> int | None:
    """Count the records of replaced file groups, from the footers of their base files.

    Returns:
        None if the number is unknown without reading rows: a file group has log files, which may hold deletes, updates
        and inserts; more than 1,000 files are replaced; or a file or the store could not be read.
    """
    if not replaced:
        return 0
    groups = {partition: set(ids) for partition, ids in replaced.items()}
    storage = snapshot.context.storage

    def count_rows(path: str) -> int:
        with open_base_file(storage, path) as file:
            return int(file.metadata.num_rows)

    try:
        slices = [
            slice_
            for part, partition_slices in snapshot.slices(list(groups)).items()
            for slice_ in partition_slices
            if slice_.file_id in groups[part]
        ]
        if any(slice_.logs for slice_ in slices) or len(slices) > _COUNTED_FILES:
            return None
        return sum(in_threads(count_rows, [slice_.base.path for slice_ in slices if slice_.base is not None]))
    except HudiError:
        # The write is committed: neither a file that a clean has deleted nor a store that does not answer may fail it.
        return None


@observed("delete_partition")
def run_delete_partitions(
    context: TableContext, partitions: Iterable[str], settings: WriteSettings, engine: Engine | None = None
) -> WriteResult:
    """Delete all records of partitions by replacing their file groups with nothing.

    Args:
        partitions: Partition paths; `*` matches any characters.
        engine: Looks up the keys to remove from the record index, if the table has one; None uses threads.
    """
    patterns = tuple(partitions)
    return retry_on_conflict(context, settings.commit, lambda now: _delete_partitions(now, patterns, settings, engine))


def _delete_partitions(
    context: TableContext, patterns: tuple[str, ...], settings: WriteSettings, engine: Engine | None
) -> WriteResult:
    phases = Phases(context.env)
    context = context.reloaded()
    check_writable(context)
    check_sync(settings.sync)
    rolled_back, _ = run_prewrite(context, settings, engine)
    forms = [re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL) for pattern in patterns]
    transaction = Transaction.begin(
        context, Action.REPLACECOMMIT, settings.commit, RequestedReplaceMetadata().encode(context.env.token_bytes(16))
    )
    with rollback_on_error(transaction):
        snapshot = load_snapshot(context, timeline=transaction.requested_on)
        transaction.planned_on(snapshot)
        existing = snapshot.listing.partitions()
        replaced = live_file_ids(snapshot, [path for path in existing if any(form.fullmatch(path) for form in forms)])
        groups = file_group_pairs(replaced)
        resolve_pending_services(snapshot, groups, settings)
        ringed = partitions_with_consistent_hashing(context).intersection(replaced)
        rings = replace_hashing_metadata(context, snapshot, ringed, transaction.instant_time, None) if ringed else None
        transaction.start(CommitMetadata(operation_type=Operation.DELETE_PARTITION.value).encode(context.env.token_bytes(16)))
        schema_text = snapshot.schema.avro if snapshot.schema else ""
        metadata = commit_metadata(Operation.DELETE_PARTITION, (), schema_text, {}, replaced)
        schema = snapshot.schema.arrow if snapshot.schema else None
        indexing = indexing_requirements(context, settings.metadata, schema, schema) if schema is not None else None
        mirror = prepare_metadata_commit(
            context,
            engine,
            indexing,
            schema,
            (),
            snapshot,
            time=transaction.instant_time,
            operation=Operation.DELETE_PARTITION,
            replaced=replaced,
        )
        groups += rings.replaced_groups if rings else ()

        def verify(now: Timeline) -> Mapping[str, str]:
            if rings is not None:
                rings.check_hashing_unchanged(context, snapshot.timeline, now)
            return {} if settings.once is None else settings.once.check(context, now)

        history = snapshot.history
        transaction.columns = None if history is None or schema is None else history.written(transaction.instant_time, schema)
        validate = precommit_check(settings.validators, engine, transaction, metadata)
        planned = PlannedCommit(metadata, write_start(snapshot), tuple(groups), mirror, verify, validate=validate)
        with callback_notice(settings.callbacks, transaction):
            done = transaction.commit(planned)
    phases.end("commit")
    context.release_lock()
    result = WriteResult(
        operation=str(settings.operation),
        instant=done.request_time,
        completion_time=done.completion_time,
        rows_deleted=count_replaced_rows(snapshot, replaced),
        file_groups_replaced=sum(len(ids) for ids in replaced.values()),
        rolled_back=rolled_back,
        not_found=tuple(
            pattern for pattern, form in zip(patterns, forms, strict=True) if not any(form.fullmatch(path) for path in existing)
        ),
        seconds=phases.seconds,
    )
    result = with_callbacks(context, settings.callbacks, result)
    result = with_services(
        context,
        engine,
        settings.services,
        result,
        before=snapshot.timeline,
        action=Action.REPLACECOMMIT,
        delete_partitions=partition_deleter(context, engine, settings),
    )
    return with_sync(context, settings.sync, result)


def partition_deleter(context: TableContext, engine: Engine | None, settings: WriteSettings) -> DeletePartitions:
    """Return a function that deletes partitions after a write, with its settings but without table services and catalog sync."""
    quiet = replace(
        settings,
        operation=WriteOperation.DELETE_PARTITION,
        services=settings.services.none(),
        commit=settings.commit.for_services(),
        sync=None,
        once=None,
    )
    return lambda partitions: run_delete_partitions(context, partitions, quiet, engine)
