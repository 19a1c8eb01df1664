"""Load and store consistent hashing metadata, and decide which version of a partition is valid.

    first     stored by the first write of the partition, before its files; concurrent writers store the same one
    next      `<instant>.hashing_meta`, stored before the instant completes; valid from its completion on
    marker    `<instant>.commit`, stored by the next writer that finds the instant completed, so later loads skip the
              lookup

Loading: the newest metadata is valid when it is the first one or has the newest marker; the marker of a pending instant
is ignored. Otherwise the versions after the newest marker are checked: one whose instant is completed is valid, one
whose instant is pending is not, and one whose instant is unknown is valid when a base file of the partition has one of
its file ids. The newest valid version is used.

A write that replaces the file groups of a partition stores metadata with new file ids: a replaced group is invisible,
so no row may go to its file id again.  Rollbacks and restores remove the metadata of their instants.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from pyhudi.errors import CorruptData, TableState
from pyhudi.features.consistent_hashing.hashing_metadata import (
    FIRST_INSTANT,
    MARK_SUFFIX,
    RING_SUFFIX,
    HashingNode,
    HashRing,
    NodeTag,
    hashing_folder,
    hashing_path,
    initial_hashing_metadata,
    mark_path,
    parse_hashing_file,
)
from pyhudi.format.paths import HASHING_FOLDER, parent_folder
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline


def load_hashing_metadata(
    context: TableContext, timeline: Timeline, partition: str, is_present: Collection[str], *, marks: bool = False
) -> HashRing | None:
    """Load the consistent hashing metadata of a partition; None when it has none yet.

    timeline: decides which metadata is valid. is_present: prefixes of the file ids of the partition's base files.
    marks: create missing markers, as writers do.

    Raises:
        TableState: A marker without its metadata, or metadata of which none is valid.
        CorruptData: A file is damaged.
    """
    files = context.storage.list(hashing_folder(partition)).files
    names = [parsed for info in files if (parsed := parse_hashing_file(info.path))]
    rings = sorted(instant for instant, suffix in names if suffix == RING_SUFFIX)
    marked = sorted(instant for instant, suffix in names if suffix == MARK_SUFFIX)
    if not rings and not marked:
        return None
    lost = sorted(set(marked) - set(rings))
    if lost:
        raise TableState(
            f"{context.storage.absolute(mark_path(partition, lost[-1]))} marks consistent hashing metadata as "
            "committed, but its file is missing"
        )
    pending = {instant.request_time for instant in timeline.pending()}
    # An instant that is being rolled back is pending again, and its mark may still be there.
    marked = [instant for instant in marked if instant not in pending]
    newest = rings[-1]
    if newest == FIRST_INSTANT or (marked and marked[-1] == newest):
        return _read(context, partition, newest)
    counting = _read(context, partition, marked[-1]) if marked else None
    for instant in (i for i in rings if not marked or i > marked[-1]):
        if instant in pending:
            continue
        ring = _read(context, partition, instant)
        if _has_completed(timeline, instant) or any(node.prefix in is_present for node in ring.nodes):
            counting = ring
            if marks:
                _mark(context, partition, instant)
    if counting is None:
        raise TableState(f"no consistent hashing metadata in {context.storage.absolute(hashing_folder(partition))} is committed")
    return counting


def load_or_create_hashing_metadata(
    context: TableContext, timeline: Timeline, partition: str, is_present: Collection[str], first_count: int
) -> HashRing:
    """Load the consistent hashing metadata of a partition for a write, or store the first one.  first_count: its nodes."""
    ring = load_hashing_metadata(context, timeline, partition, is_present, marks=True)
    if ring is not None:
        return ring
    initial = initial_hashing_metadata(partition, first_count)
    if context.storage.put_if_absent(hashing_path(partition, FIRST_INSTANT), initial.encode()):
        return initial
    # Another writer was here first, perhaps with another number of nodes.
    return _read(context, partition, FIRST_INSTANT)


def renewed(ring: HashRing, instant: str, new_uuid: Callable[[], str]) -> HashRing:
    """Return metadata with the same nodes and new file groups."""
    return ring.changed(instant, tuple(HashingNode(node.value, new_uuid(), NodeTag.REPLACE) for node in ring.nodes))


def store_hashing_metadata(context: TableContext, ring: HashRing) -> None:
    """Store the metadata of an instant; the file of a failed attempt is replaced."""
    context.storage.put(hashing_path(ring.partition, ring.instant), ring.encode())


def check_hashing_groups_exist(context: TableContext, ring: HashRing, replaced: Mapping[tuple[str, str], str]) -> None:
    """Raise TableState if file groups of the metadata were replaced, as by Hudi's overwrites.

    replaced: (partition, file id) of replaced file groups -> the instant that replaced them.
    """
    by = [time for file_id in ring.file_ids if (time := replaced.get((ring.partition, file_id)))]
    if by:
        raise TableState(
            f"replacecommit {max(by)} has replaced file groups of partition {ring.partition!r} of "
            f"{context.storage.uri} without updating "
            "its consistent hashing metadata, so rows written there would be invisible; overwrite the partition to rebuild it"
        )


def partitions_with_consistent_hashing(context: TableContext) -> frozenset[str]:
    """Return the partitions that have consistent hashing metadata."""
    folders = (parent_folder(info.path) for info in context.storage.walk(HASHING_FOLDER) if parse_hashing_file(info.path))
    return frozenset(folder.removeprefix(HASHING_FOLDER).removeprefix("/") for folder in folders)


def remove_hashing_metadata(context: TableContext, instants: Collection[str]) -> None:
    """Remove the files of instants that are rolled back: markers first, as a marker without metadata stops every writer."""
    files = ((info.path, parse_hashing_file(info.path)) for info in context.storage.walk(HASHING_FOLDER))
    own = [path for path, parsed in files if parsed is not None and parsed[0] in instants]
    for suffix in (MARK_SUFFIX, RING_SUFFIX):
        context.storage.delete(path for path in own if path.endswith(suffix))


def file_id_prefixes(file_ids: Iterable[str]) -> frozenset[str]:
    """Return the prefixes of file ids, before the number of their file."""
    return frozenset(file_id.rpartition("-")[0] for file_id in file_ids)


def _read(context: TableContext, partition: str, instant: str) -> HashRing:
    path = hashing_path(partition, instant)
    data = context.storage.read(path)
    if data is None:
        raise TableState(f"{context.storage.absolute(path)} is missing: another process has rolled its instant back")
    try:
        ring = HashRing.decode(data)
    except CorruptData as error:
        raise error.with_path(context.storage.absolute(path)) from error
    # The instant is that of the file's name, by which it was chosen.
    return replace(ring, instant=instant, partition=partition)


def _mark(context: TableContext, partition: str, instant: str) -> None:
    """Under the lock, so that no rollback of the instant comes in between."""
    with context.locked() as held:
        if _has_completed(held.timeline.load(), instant):
            held.storage.put_if_absent(mark_path(partition, instant), b"")


def _has_completed(timeline: Timeline, instant: str) -> bool:
    return instant == FIRST_INSTANT or timeline.completion_time(instant) is not None
