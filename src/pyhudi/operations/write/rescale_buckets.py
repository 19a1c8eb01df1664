"""Change the bucket counts of partitions: rewrite the partitions whose count changes, in one replacecommit.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyhudi.errors import InvalidRequest
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.operations.write.index_lookup import BucketRescale, IndexType, LookupSettings
from pyhudi.operations.write.write_attempt import raise_stale_on_missing_file, retry_on_conflict
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.planning.bucket_routing import BucketLayout
from pyhudi.planning.partition_pruning import ReadPlan
from pyhudi.table.partition_buckets import load_counts
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine


def plan_rescale(
    context: TableContext, snapshot: Snapshot, rules: str, count: int | None, hash_fields: tuple[str, ...], *, add: bool
) -> BucketRescale:
    """Plan new bucket counts.

    Args:
        rules: The rules, in the syntax of `hoodie.bucket.index.partition.expressions`.
        count: Buckets of the partitions that match no rule; None keeps the stored count. For a table that stores no
            counts, the current count of all partitions.
        hash_fields: Hashed fields; () for all record key fields.
        add: The rules come before the stored ones, instead of replacing them.

    Raises:
        InvalidRequest: The rules or the count are invalid, or the table stores no counts and `count` is None.
        TableState: The records of the table are not stored by its counts.
    """
    stored = load_counts(context, snapshot.timeline)
    default = count if count is not None or stored is None else stored.default
    if default is None or (add and stored is None):
        raise InvalidRequest(
            f"{context.storage.uri} stores no bucket counts of partitions: overwrite them, with bucket_number, the count that "
            "its partitions have"
        )
    before = (
        BucketLayout(default, hash_fields) if stored is None else BucketLayout(stored.default, hash_fields, stored.expressions)
    )
    after = BucketLayout(default, hash_fields, f"{rules};{stored.expressions}" if add and stored is not None else rules)
    return BucketRescale.plan(context, snapshot, before, after)


def run_rescale(
    context: TableContext,
    engine: Engine,
    plan: Callable[[TableContext, Snapshot], BucketRescale],
    settings: WriteSettings,
    read: Callable[[SnapshotQuery], Any],
) -> WriteResult:
    """Rewrite the partitions whose bucket count changes, and store the new counts with the commit.

    Args:
        engine: Reads and writes the rows.
        plan: Plans the new counts on a snapshot; called again after a conflict.
        settings: Settings of an insert_overwrite.
        read: Returns the rows of a query as input of the engine.

    Raises:
        WriteConflict: Conflicts with other writers exhausted the retries.
    """

    def attempt(context: TableContext) -> WriteResult:
        query = plan_snapshot_query(context.reloaded())
        rescale = plan(context, query.snapshot)
        query = replace(query, plan=ReadPlan(tuple(s for s in query.plan.slices if s.partition in rescale.partitions), ()))
        chosen = replace(
            settings,
            index=LookupSettings(IndexType.BUCKET, buckets=rescale.after, rescale=rescale),
            partitions_to_overwrite=rescale.partitions,
            allow_empty=True,
        )
        with raise_stale_on_missing_file(query.snapshot):
            return run_write(context, engine, read(query), chosen, base_snapshot=query.snapshot)

    return retry_on_conflict(context, settings.commit, attempt)
