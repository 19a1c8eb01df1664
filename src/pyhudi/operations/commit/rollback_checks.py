"""Check that a completed instant may be rolled back: no savepoint, later write, pending plan or clean may depend on it.

    savepoint            the instant is savepointed
    later writes         they build on its files
    pending services     plans that name its files could not run
    cleans               files that it replaced are deleted, or about to be, and no version would remain to read

Source: docs/formats/writing.md, "Rollback".
"""

from __future__ import annotations

from contextlib import suppress

from pyhudi.errors import CorruptData, TableState
from pyhudi.format.actions.clean_metadata import CleanerPlan
from pyhudi.format.actions.commit_metadata import NO_PREVIOUS_COMMIT
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.names import check_read, parse_base_file, parse_data_file_group, parse_data_file_instant
from pyhudi.format.paths import file_name
from pyhudi.table.external_files import find_external_file
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.pending_plans import load_plan_files
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline


def check_can_roll_back(context: TableContext, timeline: Timeline, instant: Instant, *, unseen: bool = False) -> None:
    """Raise TableState if anything depends on a completed instant.

    Args:
        context: The table.
        timeline: The timeline, loaded under the lock.
        instant: The completed instant.
        unseen: No later write has seen it (see `late_commit`).
    """
    if any(i.request_time == instant.request_time for i in timeline.completed(Action.SAVEPOINT)):
        raise TableState(f"instant {instant.request_time} is savepointed; delete the savepoint before rolling it back")
    later = [i for i in (*timeline.completed_writes(), *timeline.pending_writes()) if i.request_time > instant.request_time]
    if later and not unseen:
        raise TableState(
            f"instant {instant.request_time} cannot be rolled back: {len(later)} later writes build on it "
            f"(such as {later[0].request_time}); roll the later ones back first"
        )
    for service in timeline.pending(Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING):
        named = load_plan_files(context.timeline, service)
        if any(parse_data_file_instant(file_name(path)) == instant.request_time for path in named):
            method = "unschedule_clustering" if service.action is Action.CLUSTERING else "unschedule_compaction"
            raise TableState(
                f"instant {instant.request_time} cannot be rolled back: {service.action} {service.request_time} is "
                f"planned to rewrite its files; drop that plan first, with {method}({service.request_time!r})"
            )
    _check_slices_remain(context, instant)
    _check_predecessors_remain(context, timeline, instant)


def _check_slices_remain(context: TableContext, instant: Instant) -> None:
    """Raise TableState if a completed compaction wrote files whose predecessors were cleaned: no file slice would remain."""
    requested = Instant(instant.request_time, Action.COMPACTION, State.REQUESTED)
    if instant.action is not Action.COMMIT or context.storage.stat(context.timeline.path(requested)) is None:
        return
    for path in sorted(load_plan_files(context.timeline, requested)):
        if context.storage.stat(path) is None:
            raise TableState(
                f"compaction {instant.request_time} cannot be rolled back: {context.storage.absolute(path)}, which it "
                "replaced, was cleaned"
            )


def _check_predecessors_remain(context: TableContext, timeline: Timeline, instant: Instant) -> None:
    """Raise TableState if a clean deleted, or is about to delete, files that readers would need after the rollback.

    Those are the base files that the write superseded, and the file groups that it replaced. Raise Unsupported if it
    registered files of another table format.
    """
    metadata = read_commit(context.timeline, instant)
    check_read(find_external_file(metadata) or "")
    replaced = metadata.partition_to_replace_file_ids or {}
    needed = {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
    previous = {
        (partition, stat.file_id or ""): stat.prev_commit
        for partition, stats in metadata.partition_to_write_stats.items()
        for stat in stats
        if stat.prev_commit not in (NO_PREVIOUS_COMMIT, None) and parse_base_file(file_name(stat.path or ""))
    }
    partitions = {partition for partition, _ in (*needed, *previous)}
    if not partitions:
        return
    files_to_delete = _files_of_pending_cleans(context, timeline)
    existing = {
        (partition, file_id_from_name(info.path), parse_data_file_instant(info.name))
        for partition, infos in DirectoryListing(context.storage).files(sorted(partitions)).items()
        for info in infos
        if info.name not in files_to_delete
    }
    groups = {(partition, file_id) for partition, file_id, _ in existing}
    lost = [group for group in needed if group not in groups]
    lost += [group for group, time in previous.items() if (*group, time) not in existing]
    if lost:
        partition, file_id = min(lost)
        raise TableState(
            f"instant {instant.request_time} of {context.storage.uri} cannot be rolled back: files that it "
            "replaced were "
            f"cleaned, such as those of file group {file_id} in partition {partition!r}. Write the rows again "
            "instead."
        )


def _files_of_pending_cleans(context: TableContext, timeline: Timeline) -> frozenset[str]:
    """Return the names of files that pending cleans will delete. A clean with an unreadable plan has deleted nothing."""
    names: set[str] = set()
    for clean in timeline.pending(Action.CLEAN):
        with suppress(CorruptData):
            plan = CleanerPlan.decode(context.timeline.read_state(clean.request_time, Action.CLEAN, State.REQUESTED) or b"")
            for infos in (plan.file_paths_to_be_deleted_per_partition or {}).values():
                names.update(file_name(info.file_path or "") for info in infos)
    return frozenset(names)


def file_id_from_name(path: str) -> str:
    """Return the file group id in the name of a data file, or '' for other names."""
    return parse_data_file_group(file_name(path)) or ""
