"""Traits of a write that follow from its operation and its index."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.features.consistent_hashing.hashing_routing import ConsistentHashingSettings
from pyhudi.format.instants import Action
from pyhudi.operations.commit.commit_settings import NON_BLOCKING
from pyhudi.operations.write.index_lookup import IndexType
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.index_options import BUCKET_ENGINE
from pyhudi.options.write_options import CONCURRENCY, DUPLICATE_POLICY
from pyhudi.table.table_config import TableConfig


@dataclass(frozen=True, slots=True)
class OperationTraits:
    """The traits of a write that follow from its operation and its index. All other code decides by these traits only.

    Attributes:
        operation: The write operation.
        is_bucketed: The index assigns records to file groups by hash (buckets), without reading any file.
        shares_groups: Other writers append to the same file groups concurrently. Every file is a log file, even in new
            groups.
        is_consistent_hashing: Consistent hashing metadata assigns the file groups. A group begins with a log file,
            except in bulk.
        needs_lookup: The index looks up incoming keys.
        adds: Rows are added whether or not their keys exist.
        in_bulk: Rows are added, and the inflight file does not list their file groups.
        skips_existing: Rows to insert whose keys exist are skipped or refused, see `duplicate_policy`.
        updates_only: Missing keys are not inserted (deletes and partial updates).
        compares: Incoming rows are merged with stored records by ordering value.
        is_bulk: Rows go to new files, in input order.
        replaces: The write replaces file groups.
        replaces_table: The write replaces the file groups of all partitions.
        deletes: Rows name records to delete.
        global_keys: The key alone identifies a record, across partitions.
        moves_records: A record whose partition changes moves to the new partition.
        needs_counts: Rows are counted before anything is written.
    """

    operation: WriteOperation
    is_bucketed: bool
    shares_groups: bool
    is_consistent_hashing: bool
    needs_lookup: bool
    adds: bool
    in_bulk: bool
    skips_existing: bool
    updates_only: bool
    compares: bool
    is_bulk: bool
    replaces: bool
    replaces_table: bool
    deletes: bool
    global_keys: bool
    moves_records: bool
    needs_counts: bool

    @classmethod
    def of(cls, settings: WriteSettings) -> OperationTraits:
        """Derive the traits from the settings. Raises Unsupported if the index cannot serve the operation."""
        operation, index = settings.operation, settings.index
        routes = index.index_type is IndexType.BUCKET
        inserts, in_bulk = operation is WriteOperation.INSERT, operation is WriteOperation.BULK_INSERT
        asks_for_keys = inserts and settings.duplicate_policy != "none"
        if routes and asks_for_keys:
            raise Unsupported(
                "index BUCKET looks up no keys, so an insert cannot skip or refuse existing keys; use upsert, or "
                f"{DUPLICATE_POLICY}=none"
            )
        placed_by_key = not (inserts or in_bulk or operation.replaces)
        deletes = operation is WriteOperation.DELETE
        has_consistent_hashing = isinstance(index.buckets, ConsistentHashingSettings)
        if has_consistent_hashing and settings.commit.is_non_blocking:
            raise InvalidRequest(
                f"{BUCKET_ENGINE}=CONSISTENT_HASHING is incompatible with {CONCURRENCY}={NON_BLOCKING}: a resize "
                "would miss rows that concurrent writers place by the old metadata; use OPTIMISTIC_CONCURRENCY_CONTROL"
            )
        return cls(
            operation=operation,
            is_bucketed=routes,
            shares_groups=settings.commit.is_non_blocking,
            is_consistent_hashing=has_consistent_hashing,
            needs_lookup=routes or placed_by_key or asks_for_keys,
            adds=inserts or in_bulk,
            in_bulk=in_bulk,
            skips_existing=asks_for_keys,
            updates_only=deletes or settings.partial,
            compares=(operation is WriteOperation.UPSERT or settings.replaces_schema) and settings.combine,
            is_bulk=(in_bulk or operation.replaces) and not routes,
            replaces=operation.replaces,
            replaces_table=operation is WriteOperation.INSERT_OVERWRITE_TABLE,
            deletes=deletes,
            global_keys=index.index_type.is_global,
            # An insert looks up keys to skip existing ones, in whichever partition they are.
            moves_records=index.update_partition_path and not inserts,
            needs_counts=routes or not in_bulk or not settings.allow_empty,
        )

    @property
    def supports_generated_keys(self) -> bool:
        """True if the operation can write rows with generated record keys."""
        return self.adds or self.replaces

    def action(self, config: TableConfig) -> Action:
        """The action on the timeline of such a write."""
        if self.replaces:
            return Action.REPLACECOMMIT
        return Action.COMMIT if config.is_cow else Action.DELTACOMMIT
