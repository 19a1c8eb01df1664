"""Deleting partitions: their file groups are replaced with nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from pyhudi.features.consistent_hashing.ring_store import partitions_with_rings
from pyhudi.features.consistent_hashing.write_rings import renew_rings
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action
from pyhudi.metadata_table.writer.metadata_commit import indexing_of, mirror_of
from pyhudi.operations.catalog_sync.sync_table import check_sync, with_sync
from pyhudi.operations.commit.action_attempt import Phases, taken_back_on_error
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.transaction import Transaction, commit_metadata
from pyhudi.operations.services.partition_ttl import DeletePartitions
from pyhudi.operations.services.run_services import with_services
from pyhudi.operations.write.replaced_file_groups import count_replaced_rows, groups_of, live_file_ids
from pyhudi.operations.write.resolve_blockers import settle_failed_writes, settle_groups_under_service
from pyhudi.operations.write.write_attempt import start_of, until_no_conflict
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine


@observed("delete_partition")
def run_delete_partitions(
    context: TableContext, partitions: Iterable[str], settings: WriteSettings, engine: Engine | None = None
) -> WriteResult:
    """Remove all records of partitions by replacing their file groups with nothing.  `*` in a path stands for any characters.

    engine: looks the keys up that leave the record index, where the table has one; threads do when it is None.
    """
    patterns = tuple(partitions)
    return until_no_conflict(context, settings.commit, lambda now: _delete_partitions(now, patterns, settings, engine))


def _delete_partitions(
    context: TableContext, patterns: tuple[str, ...], settings: WriteSettings, engine: Engine | None
) -> WriteResult:
    phases = Phases(context.env)
    context = context.reloaded()
    check_writable(context)
    check_sync(settings.sync)
    rolled_back, _ = settle_failed_writes(context, settings.commit)
    forms = [re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL) for pattern in patterns]
    transaction = Transaction.begin(
        context, Action.REPLACECOMMIT, settings.commit, RequestedReplaceMetadata().encode(context.env.token_bytes(16))
    )
    with taken_back_on_error(transaction):
        snapshot = load_snapshot(context, timeline=transaction.begun_on)
        transaction.planned_on(snapshot)
        there = snapshot.listing.partitions()
        replaced = live_file_ids(snapshot, [path for path in there if any(form.fullmatch(path) for form in forms)])
        groups = groups_of(replaced)
        settle_groups_under_service(snapshot, groups, settings)
        ringed = partitions_with_rings(context).intersection(replaced)
        rings = renew_rings(context, snapshot, ringed, transaction.instant_time, None) if ringed else None
        transaction.start(CommitMetadata(operation_type=Operation.DELETE_PARTITION.value).encode(context.env.token_bytes(16)))
        schema_text = snapshot.schema.avro if snapshot.schema else ""
        metadata = commit_metadata(Operation.DELETE_PARTITION, (), schema_text, dict(settings.extra_metadata), replaced)
        schema = snapshot.schema.arrow if snapshot.schema else None
        indexing = indexing_of(context, settings.metadata, schema, schema) if schema is not None else None
        mirror = mirror_of(
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
        groups += rings.given_up if rings else ()
        verify = partial(rings.check_still_count, context, snapshot.timeline) if rings else None
        history = snapshot.history
        transaction.columns = None if history is None or schema is None else history.written(transaction.instant_time, schema)
        done = transaction.commit(metadata, start_of(snapshot), groups, mirror, verify)
    phases.end("commit")
    context.end_turn()
    result = WriteResult(
        operation=str(settings.operation),
        instant=done.request_time,
        completion_time=done.completion_time,
        rows_deleted=count_replaced_rows(snapshot, replaced),
        file_groups_replaced=sum(len(ids) for ids in replaced.values()),
        rolled_back=rolled_back,
        not_found=tuple(
            pattern for pattern, form in zip(patterns, forms, strict=True) if not any(form.fullmatch(path) for path in there)
        ),
        seconds=phases.seconds,
    )
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
    """Deletes partitions after a write, with its settings but without services of its own, and no catalog is told twice."""
    quiet = replace(settings, operation=WriteOperation.DELETE_PARTITION, services=settings.services.none(), sync=None)
    return lambda partitions: run_delete_partitions(context, partitions, quiet, engine)
