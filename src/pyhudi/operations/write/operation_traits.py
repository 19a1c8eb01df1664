"""What a write is, said once: traits that follow from its operation and its index."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.features.consistent_hashing.ring_routing import RingSettings
from pyhudi.format.instants import Action
from pyhudi.operations.commit.commit_settings import CONCURRENCY, NON_BLOCKING
from pyhudi.operations.write.index_lookup import IndexType
from pyhudi.operations.write.write_settings import DUPLICATE_POLICY, WriteOperation, WriteSettings
from pyhudi.planning.bucket_routing import BUCKET_ENGINE
from pyhudi.table.table_config import TableConfig


@dataclass(frozen=True, slots=True)
class WriteShape:
    """The traits of a write that follow from its operation and its index; whatever a write does asks these alone.

    routes: the index says by itself which file group takes a record (buckets), so that no file is looked into.
    shares_groups: other writers append to the same file groups meanwhile; every file is a log, those of new groups too.
    has_rings: which group that is, the rings of partitions say; rows begin a group with a log file, unless they come in bulk.
    looks_up: the index is asked where incoming keys stand.
    adds: rows are added whether their keys are there or not; in_bulk: and the inflight file says nothing of where.
    passes_over: of the rows to insert those whose keys are there are left out, or refused: `duplicate_policy`.
    finds_only: what stands nowhere is not inserted: deletes, and updates of some columns.
    compares: incoming rows meet the stored ones of their keys, by their ordering values.
    places_nothing: rows go to new files, file group by file group as they come.
    replaces: file groups make way for the rows; everything: those of all partitions.
    deletes: rows name records that go.
    global_keys: the key alone names a record.  moves_records: one whose partition changed moves there.
    needs_counts: the rows are counted before anything is written.
    """

    operation: WriteOperation
    routes: bool
    shares_groups: bool
    has_rings: bool
    looks_up: bool
    adds: bool
    in_bulk: bool
    passes_over: bool
    finds_only: bool
    compares: bool
    places_nothing: bool
    replaces: bool
    everything: bool
    deletes: bool
    global_keys: bool
    moves_records: bool
    needs_counts: bool

    @classmethod
    def of(cls, settings: WriteSettings) -> WriteShape:
        """Raises Unsupported for an index that cannot answer what the operation asks."""
        operation, index = settings.operation, settings.index
        routes = index.kind is IndexType.BUCKET
        inserts, in_bulk = operation is WriteOperation.INSERT, operation is WriteOperation.BULK_INSERT
        asks_for_keys = inserts and settings.duplicate_policy != "none"
        if routes and asks_for_keys:
            raise Unsupported(
                "index BUCKET looks no keys up, so an insert cannot pass over or refuse those that are there; use upsert, or "
                f"{DUPLICATE_POLICY}=none"
            )
        placed_by_key = not (inserts or in_bulk or operation.replaces)
        deletes = operation is WriteOperation.DELETE
        has_rings = isinstance(index.buckets, RingSettings)
        if has_rings and settings.commit.is_non_blocking:
            raise InvalidRequest(
                f"{BUCKET_ENGINE}=CONSISTENT_HASHING does not go with {CONCURRENCY}={NON_BLOCKING}: a new ring leaves behind "
                "what others write by the old one; use OPTIMISTIC_CONCURRENCY_CONTROL"
            )
        return cls(
            operation=operation,
            routes=routes,
            shares_groups=settings.commit.is_non_blocking,
            has_rings=has_rings,
            looks_up=routes or placed_by_key or asks_for_keys,
            adds=inserts or in_bulk,
            in_bulk=in_bulk,
            passes_over=asks_for_keys,
            finds_only=deletes or settings.partial,
            compares=(operation is WriteOperation.UPSERT or settings.anew) and settings.combine,
            places_nothing=(in_bulk or operation.replaces) and not routes,
            replaces=operation.replaces,
            everything=operation is WriteOperation.INSERT_OVERWRITE_TABLE,
            deletes=deletes,
            global_keys=index.kind.is_global,
            # An insert looks keys up to pass over those that are there, wherever they are.
            moves_records=index.update_partition_path and not inserts,
            needs_counts=routes or not in_bulk or not settings.allow_empty,
        )

    @property
    def takes_generated_keys(self) -> bool:
        """Whether rows whose keys the table makes can be written so."""
        return self.adds or self.replaces

    def action(self, config: TableConfig) -> Action:
        """The action by which a table gets such a write."""
        if self.replaces:
            return Action.REPLACECOMMIT
        return Action.COMMIT if config.is_cow else Action.DELTACOMMIT
