"""Refuse to rebuild a file listing or an index, or to drop the listing, if that would hide the loss of committed files.

So are rebuilds that would list files which cleans have deleted, and which a power failure has brought back.

Source: docs/formats/metadata-table.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.errors import TableState
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.paths import file_name, join_path
from pyhudi.metadata_table.reader.index_lookups import scan_files
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.table.committed_files import LostFile, find_lost_files, find_undone_deletions, lost_files_error
from pyhudi.table.snapshot import Snapshot, directory_listing, load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline


def is_completed_data_file(timeline: Timeline, name: str) -> bool:
    """Return True if a file name is that of a data file of a completed instant."""
    named = parse_base_file(name) or parse_log_file(name)
    return named is not None and timeline.is_completed(named.instant_time)


def listed_sizes(context: TableContext, timeline: Timeline) -> dict[str, int]:
    """Return path -> size in bytes of the committed files in the metadata table. Raises the errors of DAMAGE."""
    rows = scan_files(MetadataTable(context, timeline))
    columns = (rows.column(name).to_pylist() for name in ("partition", "name", "size_bytes"))
    return {
        join_path(partition, name): size
        for partition, name, size in zip(*columns, strict=True)
        if is_completed_data_file(timeline, name)
    }


def find_lost(snapshot: Snapshot, sizes: dict[str, int]) -> tuple[LostFile, ...]:
    """Return the committed files that are missing or damaged, by the metadata table and by commits.

    Archived commits are read if the metadata table is missing, cannot be read, or lists no files, as if its own were lost.

    Args:
        snapshot: The table.
        sizes: Path -> size in bytes of all files in storage.
    """
    listed = _listed_if_readable(snapshot)
    return find_lost_files(snapshot, sizes, listed=listed, archived=not listed)


def find_undone(snapshot: Snapshot, paths: Iterable[str]) -> dict[str, str]:
    """Return files in storage that a completed clean has deleted, with the clean, without those in the metadata table.

    Args:
        snapshot: The table.
        paths: All files in storage.
    """
    if not snapshot.config.version.has_one_log_file_per_commit:
        return {}
    listed = _listed_if_readable(snapshot) or {}
    timeline = snapshot.timeline
    doubtful = [path for path in paths if path not in listed and is_completed_data_file(timeline, file_name(path))]
    return find_undone_deletions(snapshot.context, timeline, doubtful)


def _listed_if_readable(snapshot: Snapshot) -> dict[str, int] | None:
    if not snapshot.config.has_metadata_table:
        return None
    try:
        return listed_sizes(snapshot.context, snapshot.timeline)
    except DAMAGE:
        return None


def check_no_lost_files(snapshot: Snapshot) -> None:
    """Raise if directories lack files that commits wrote, or hold them with another size.

    Args:
        snapshot: The table, with a listing of its directories.

    Raises:
        CorruptData: The error lists the files and their rows.
        TableState: The files exist, in folders without partition metadata. Or there are files that cleans have deleted.
    """
    if not snapshot.timeline.completed_writes():
        return
    listing = snapshot.listing
    sizes = {info.path: info.size_bytes for infos in listing.files(listing.partitions()).values() for info in infos}
    lost = find_lost(snapshot, sizes)
    storage = snapshot.context.storage
    if not lost:
        undone = find_undone(snapshot, sizes)
        if undone:
            path, clean = min(undone.items())
            raise TableState(
                f"{len(undone):,} files of {storage.uri} that cleans have deleted are back, such as {path}, deleted by {clean}: "
                "Table.repair(['orphans']) deletes them"
            )
        return
    if all(one.found_bytes is None and storage.stat(one.file.path) is not None for one in lost):
        raise TableState(
            f"partition {lost[0].partition!r} of {storage.uri} has no .hoodie_partition_metadata, so listings ignore its files: "
            "Table.repair(['partition-metadata']) writes it"
        )
    raise lost_files_error(storage.uri, lost)


def check_listing_may_be_dropped(context: TableContext) -> None:
    """Raise as `check_no_lost_files` if readers that list directories would not notice lost files."""
    if context.config.has_metadata_table:
        check_no_lost_files(load_snapshot(context, directory_listing))
