"""What a write is, said once: traits that follow from its operation and its index."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.features.consistent_hashing.ring_routing import ConsistentHashingSettings
from pyhudi.format.instants import Action
from pyhudi.operations.commit.commit_settings import CONCURRENCY, NON_BLOCKING
from pyhudi.operations.write.index_lookup import IndexType
from pyhudi.operations.write.write_settings import DUPLICATE_POLICY, WriteOperation, WriteSettings
from pyhudi.planning.bucket_routing import BUCKET_ENGINE
from pyhudi.table.table_config import TableConfig


@dataclass(frozen=True, slots=True)
class OperationTraits:
    """The traits of a write that follow from its operation and its index; whatever a write does asks these alone.

    is_bucketed: the index says by itself which file group takes a record (buckets), so that no file is looked into.
    shares_groups: other writers append to the same file groups meanwhile; every file is a log, those of new groups too.
    is_consistent_hashing: which group that is, the rings of partitions say; rows begin a group with a log file, unless they come
    in bulk. needs_lookup: the index is asked where incoming keys stand.
    adds: rows are added whether their keys are there or not; in_bulk: and the inflight file says nothing of where.
    skips_existing: of the rows to insert those whose keys are there are left out, or refused: `duplicate_policy`.
    updates_only: what stands nowhere is not inserted: deletes, and updates of some columns.
    compares: incoming rows meet the stored ones of their keys, by their ordering values.
    is_bulk: rows go to new files, file group by file group as they come.
    replaces: file groups make way for the rows; replaces_table: those of all partitions.
    deletes: rows name records that go.
    global_keys: the key alone names a record.  moves_records: one whose partition changed moves there.
    needs_counts: the rows are counted before anything is written.
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
        """Raises Unsupported for an index that cannot answer what the operation asks."""
        operation, index = settings.operation, settings.index
        routes = index.index_type is IndexType.BUCKET
        inserts, in_bulk = operation is WriteOperation.INSERT, operation is WriteOperation.BULK_INSERT
        asks_for_keys = inserts and settings.duplicate_policy != "none"
        if routes and asks_for_keys:
            raise Unsupported(
                "index BUCKET looks no keys up, so an insert cannot pass over or refuse those that are there; use upsert, or "
                f"{DUPLICATE_POLICY}=none"
            )
        placed_by_key = not (inserts or in_bulk or operation.replaces)
        deletes = operation is WriteOperation.DELETE
        has_rings = isinstance(index.buckets, ConsistentHashingSettings)
        if has_rings and settings.commit.is_non_blocking:
            raise InvalidRequest(
                f"{BUCKET_ENGINE}=CONSISTENT_HASHING does not go with {CONCURRENCY}={NON_BLOCKING}: a new ring leaves behind "
                "what others write by the old one; use OPTIMISTIC_CONCURRENCY_CONTROL"
            )
        return cls(
            operation=operation,
            is_bucketed=routes,
            shares_groups=settings.commit.is_non_blocking,
            is_consistent_hashing=has_rings,
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
            # An insert looks keys up to pass over those that are there, wherever they are.
            moves_records=index.update_partition_path and not inserts,
            needs_counts=routes or not in_bulk or not settings.allow_empty,
        )

    @property
    def supports_generated_keys(self) -> bool:
        """Whether rows whose keys the table makes can be written so."""
        return self.adds or self.replaces

    def action(self, config: TableConfig) -> Action:
        """The action by which a table gets such a write."""
        if self.replaces:
            return Action.REPLACECOMMIT
        return Action.COMMIT if config.is_cow else Action.DELTACOMMIT
