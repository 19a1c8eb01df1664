"""Keyed write: look up the file groups of incoming keys, assign inserts to file groups, and write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from pyhudi.errors import InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.features.consistent_hashing.hashing_routing import ConsistentHashingSettings
from pyhudi.features.consistent_hashing.hashing_writes import (
    ConsistentHashingWrite,
    load_hashing_for_write,
    replace_hashing_metadata,
    with_double_writes,
)
from pyhudi.format.instants import Action
from pyhudi.format.names import format_bucket_prefix, format_file_id
from pyhudi.operations.write.index_lookup import PlannedLookup, plan_write_lookup
from pyhudi.operations.write.resolve_blockers import resolve_pending_services
from pyhudi.operations.write.write_attempt import Attempt, Written
from pyhudi.operations.write.write_preconditions import slices_to_search
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.options.write_options import DUPLICATE_POLICY
from pyhudi.planning.bucket_routing import shared_file_id
from pyhudi.planning.conflicts import NEW_KEYS_IN_ANY_GROUP, FileGroupId, new_keys
from pyhudi.planning.record_placement import (
    ESTIMATION_COMMITS,
    InsertTarget,
    SizingSettings,
    WorkloadProfile,
    estimate_record_size_bytes,
    plan_inserts,
    should_rewrite,
    small_files,
)
from pyhudi.records.keys.partition_paths import PLACEHOLDER_PARTITION
from pyhudi.table.file_slices import BaseFile, FileSlice
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.base_file_reader import open_base_file
from pyhudi.tasks.engine_protocol import Incoming, Tagged, TagRequest, WritePlan
from pyhudi.tasks.log_scan import InstantValidity

_SAMPLED_FILES = 4
"""Number of base files whose footers are read to estimate the bytes per row."""


def write_by_key(
    attempt: Attempt,
    incoming: Incoming,
    counts: Mapping[str, int],
    replaced: Mapping[str, tuple[str, ...]] | None,
    *,
    all_stored: bool = False,
) -> Written:
    """Write rows to the file groups that store their keys, or to which their buckets belong; the other rows are inserts.

    Args:
        incoming: The incoming rows.
        counts: Number of rows by partition path.
        replaced: File groups that the write replaces.
        all_stored: Each row carries the generated key of a stored record.

    Raises:
        InvalidRequest: The table has no record of a stored key.
        WriteConflict: The snapshot of the attempt is outdated.
    """
    settings, shape, snapshot = attempt.settings, attempt.shape, attempt.snapshot
    slices = {} if shape.replaces else attempt.loaded_metadata or slices_to_search(shape, attempt.schemas, snapshot, counts)
    by_group = {(s.partition, s.file_id): s for partition_slices in slices.values() for s in partition_slices}
    lookup: PlannedLookup | None = None
    read: tuple[FileGroupId, ...] = ()
    rings = _hashing_metadata(attempt, counts, slices, replaced)
    if not shape.needs_lookup:
        tagged = incoming.untagged()
    else:
        new_file_id = None if shape.updates_only else _new_buckets(attempt, rings)
        layout = None if rings is None else rings.layout
        lookup = plan_write_lookup(
            settings.index,
            attempt.context,
            snapshot,
            by_group.values(),
            new_file_id,
            layout,
            is_checked=attempt.loaded_metadata is not None,
        )
        tagged = _tagged(attempt, incoming, lookup)
        read = () if shape.is_bucketed else _read_only(attempt, tagged)
    if shape.skips_existing:
        tagged = _without_existing_keys(settings, tagged)
    profile = tagged.profile()
    if all_stored and (missing := sum(profile.inserts.values())):
        raise InvalidRequest(
            f"{missing} rows have the _hoodie_record_key of records that {attempt.context.storage.uri} does not have: they were "
            "deleted since they were read, or read from another table. Insert new rows without the _hoodie_ columns"
        )
    if shape.updates_only:
        # Deletes and partial updates of missing keys are not inserted.
        profile = replace(profile, inserts={})
    attempt.phases.end("index")
    inserts: dict[str, tuple[InsertTarget, ...]] = {}
    if shape.is_bucketed:
        by_ring = shape.is_consistent_hashing and not (shape.in_bulk or shape.replaces)
        routed = profile.updates
        # The first write to the file group of a hashing node is recorded as an update of that group, as in Hudi.
        profile = profile if by_ring else _with_new_groups(profile, by_group)
        if by_ring or shape.shares_groups:
            empty = {group: FileSlice(*group, attempt.spec.instant_time, None) for group in routed}
            by_group = {**empty, **by_group}
    elif not shape.updates_only:
        inserts = _place_inserts(attempt, profile, slices)
        by_group.update({(t.partition, t.file_id): t.slice for ts in inserts.values() for t in ts if t.slice is not None})
    resolve_pending_services(snapshot, profile.updates, settings)
    if rings is not None and not shape.replaces:
        rings = with_double_writes(rings, attempt.context, snapshot, profile.updates)
        if rings.copies and attempt.spec.key_shards:
            raise Unsupported(
                f"cannot write during the pending resize {min(rings.double_written_resizes)} of "
                f"{attempt.context.storage.uri}: the record index stores one location per key, and the write would "
                "need two. Run the resize first, with cluster()."
            )
    placed = [(t.partition, t.file_id) for targets in inserts.values() for t in targets if t.slice is not None]
    attempt.check_early({*profile.updates, *placed})
    attempt.begin_files(None if shape.in_bulk else profile)
    plan = WritePlan(
        spec=attempt.spec,
        slices=by_group,
        inserts=inserts,
        rule=attempt.schemas.stored_rule,
        match_keys=not shape.adds or not settings.allow_duplicates,
        append_updates=not attempt.context.config.is_cow,
        validity=InstantValidity.of(snapshot.timeline),
        unknown_keys=shape.is_bucketed,
        copies={} if rings is None else rings.copies,
    )
    return Written(tagged.write(plan), lookup, read, rings)


def _hashing_metadata(
    attempt: Attempt,
    counts: Mapping[str, int],
    slices: Mapping[str, tuple[FileSlice, ...]],
    replaced: Mapping[str, tuple[str, ...]] | None,
) -> ConsistentHashingWrite | None:
    """Return the hashing metadata for the rows, after storing what this write creates."""
    buckets = attempt.settings.index.buckets
    if not isinstance(buckets, ConsistentHashingSettings):
        return None
    context, snapshot, shape = attempt.context, attempt.snapshot, attempt.shape
    named = [partition for partition in counts if partition != PLACEHOLDER_PARTITION]
    if shape.replaces:
        partitions = {*named, *(replaced or {}), *(attempt.settings.partitions_to_overwrite or ())}
        return replace_hashing_metadata(context, snapshot, partitions, attempt.transaction.instant_time, buckets)
    existing: dict[str, tuple[FileSlice, ...]] = {partition: () for partition in named}
    existing.update((partition, partition_slices) for partition, partition_slices in slices.items() if partition_slices)
    return load_hashing_for_write(context, snapshot, existing, buckets, create_missing=not shape.updates_only)


def _new_buckets(attempt: Attempt, hashing_write: ConsistentHashingWrite | None) -> Callable[[str, int], str]:
    """Return the function that names the new file group of a partition's bucket."""
    if hashing_write is not None:
        return hashing_write.layout.node_file_id
    if attempt.shape.shares_groups:
        replaced = attempt.snapshot.slicing.replaced
        return lambda partition, bucket: shared_file_id(partition, bucket, replaced)
    new_uuid = attempt.context.env.uuid4
    return lambda partition, bucket: format_file_id(format_bucket_prefix(bucket, new_uuid()), 0)


def _tagged(attempt: Attempt, incoming: Incoming, lookup: PlannedLookup) -> Tagged:
    spec, timeline, unplaced = attempt.spec, attempt.snapshot.timeline, attempt.schemas.unplaced
    request = TagRequest(
        spec=spec,
        candidates=lookup.candidates,
        lookup=lookup.lookup,
        global_keys=attempt.shape.global_keys or unplaced,
        update_partition_path=attempt.shape.moves_records and not unplaced,
        rule=attempt.schemas.stored_rule,
        validity=InstantValidity.of(timeline),
    )
    try:
        return incoming.tag(request)
    except TableState as error:
        # The index may contain commits newer than the snapshot, or its files may have been cleaned concurrently.
        known = set(timeline.instants)
        now = attempt.context.timeline.load()
        if any(instant not in known and instant.request_time != spec.instant_time for instant in now.instants):
            raise WriteConflict(f"the table was written during the index lookup ({error}); plan the write again") from error
        raise


def _read_only(attempt: Attempt, tagged: Tagged) -> tuple[FileGroupId, ...]:
    """Return the read set of keys for which nothing is written."""
    # Those are keys that an insert skips because a file group has them, and keys to delete or partially update that no file group
    # has.
    if attempt.shape.skips_existing:
        return tuple(tagged.profile().updates)
    if not attempt.shape.updates_only:
        return ()
    nowhere = [partition for partition, count in tagged.profile().inserts.items() if count]
    everywhere = [NEW_KEYS_IN_ANY_GROUP] if nowhere and (attempt.shape.global_keys or attempt.schemas.unplaced) else []
    return (*map(new_keys, nowhere), *everywhere)


def _without_existing_keys(settings: WriteSettings, tagged: Tagged) -> Tagged:
    """Return the rows with new keys. Raises InvalidRequest if the duplicate policy is to fail and other rows exist."""
    if settings.duplicate_policy == "fail":
        existing = sum(tagged.profile().updates.values())
        if existing:
            raise InvalidRequest(f"{existing} of the rows to insert have keys that exist in the table ({DUPLICATE_POLICY}=fail)")
    return tagged.without_existing()


def _place_inserts(
    attempt: Attempt, profile: WorkloadProfile, slices: Mapping[str, tuple[FileSlice, ...]]
) -> dict[str, tuple[InsertTarget, ...]]:
    if not profile.inserts:
        return {}
    sizing, snapshot, env, is_cow = attempt.settings.sizing, attempt.snapshot, attempt.context.env, attempt.context.config.is_cow
    excluded = snapshot.pending_clusterings.union(snapshot.slicing.pending_compactions)
    limit = None if is_cow else sizing.merge_candidates_limit
    candidates = {partition: small_files(slices.get(partition, ()), sizing, excluded, limit) for partition in profile.inserts}
    if not is_cow and sizing.growth:
        candidates = _small_files_to_rewrite(attempt.context, candidates, profile.inserts, sizing)
    return plan_inserts(profile.inserts, candidates, _record_size(attempt), sizing, lambda: format_file_id(env.uuid4(), 0))


def _small_files_to_rewrite(
    context: TableContext,
    candidates: Mapping[str, tuple[FileSlice, ...]],
    inserts: Mapping[str, int],
    sizing: SizingSettings,
) -> dict[str, tuple[FileSlice, ...]]:
    """Return the small files that are rewritten to take the inserts of their partitions."""
    bases = [slice_.base for partition_slices in candidates.values() for slice_ in partition_slices if slice_.base is not None]
    row_bytes = _row_bytes(context, [base for base in bases if base.size_bytes > sizing.always_rewritten_bytes])

    def is_rewrite_worth(base: BaseFile | None, row_count: int) -> bool:
        return base is not None and should_rewrite(base.size_bytes, row_count, row_bytes, sizing)

    return {
        partition: tuple(slice_ for slice_ in partition_slices if is_rewrite_worth(slice_.base, inserts[partition]))
        for partition, partition_slices in candidates.items()
    }


def _row_bytes(context: TableContext, bases: Sequence[BaseFile]) -> float:
    """Estimate the bytes per row from a sample of base files."""
    # A commit's own estimate ignores files below its threshold, and overestimates the row size many times.
    sizes = row_counts = 0
    for base in bases[:: max(1, len(bases) // _SAMPLED_FILES)][:_SAMPLED_FILES]:
        with open_base_file(context.storage, base.path) as file:
            sizes, row_counts = sizes + base.size_bytes, row_counts + file.metadata.num_rows
    return sizes / max(1, row_counts)


def _record_size(attempt: Attempt) -> int:
    """Return the bytes per record, from recent commits."""
    store = attempt.context.timeline
    completed = attempt.snapshot.timeline.completed(Action.COMMIT, Action.DELTACOMMIT)
    recent = list(reversed(completed))[:ESTIMATION_COMMITS]
    return estimate_record_size_bytes(((i.action, read_commit(store, i)) for i in recent), attempt.settings.sizing)


def _with_new_groups(profile: WorkloadProfile, existing_groups: Collection[tuple[str, str]]) -> WorkloadProfile:
    """Return the profile with rows of new file groups counted as inserts."""
    inserts = Counter(dict(profile.inserts))
    for (partition, file_id), count in profile.updates.items():
        if (partition, file_id) not in existing_groups:
            inserts[partition] += count
    updates = {group: count for group, count in profile.updates.items() if group in existing_groups}
    return replace(profile, updates=updates, inserts=dict(inserts))
