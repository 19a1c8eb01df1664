"""Refuse to rebuild a file listing or an index, or to drop the listing, if that would hide the loss of committed files.

Source: docs/formats/metadata-table.md.
"""

from __future__ import annotations

from pyhudi.errors import TableState
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.paths import join_path
from pyhudi.metadata_table.reader.index_lookups import scan_files
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.table.committed_files import LostFile, find_lost_files, lost_files_error
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

    Archived commits are read if the metadata table is missing or cannot be read.

    Args:
        snapshot: The table.
        sizes: Path -> size in bytes of all files in storage.
    """
    listed: dict[str, int] | None = None
    if snapshot.config.has_metadata_table:
        try:
            listed = listed_sizes(snapshot.context, snapshot.timeline)
        except DAMAGE:
            listed = None
    return find_lost_files(snapshot, sizes, listed=listed, archived=listed is None)


def check_no_lost_files(snapshot: Snapshot) -> None:
    """Raise if directories lack files that commits wrote, or hold them with another size.

    Args:
        snapshot: The table, with a listing of its directories.

    Raises:
        CorruptData: The error lists the files and their rows.
        TableState: The files exist, in folders without partition metadata.
    """
    if not snapshot.timeline.completed_writes():
        return
    listing = snapshot.listing
    sizes = {info.path: info.size_bytes for infos in listing.files(listing.partitions()).values() for info in infos}
    lost = find_lost(snapshot, sizes)
    if not lost:
        return
    storage = snapshot.context.storage
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
