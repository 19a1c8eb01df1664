"""File listing index: the partitions of the table and their files with sizes.

A commit adds its files. A clean removes the files it deleted, and partitions that no longer exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyhudi.format.paths import file_name, join_path, parent_folder
from pyhudi.metadata_table.codecs.metadata_partitions import FILES
from pyhudi.metadata_table.file_group_merge import FILE_LISTS, CellMergeRule
from pyhudi.metadata_table.indexes.index_events import CommitPublishing, FilesCleaned, IndexBuild
from pyhudi.metadata_table.indexes.index_validation import MISSING_ROWS, CheckedTable, IndexFindings
from pyhudi.metadata_table.indexes.metadata_index import Index, IndexUpdate
from pyhudi.metadata_table.metadata_records import MetadataRecords, files_records
from pyhudi.metadata_table.reader.index_lookups import find_partitions, scan_files


@dataclass(frozen=True, slots=True)
class FilesIndex(Index):
    """The partition `files`, required in every metadata table."""

    partition_type: ClassVar[str] = FILES
    merge: ClassVar[CellMergeRule] = FILE_LISTS

    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        return IndexUpdate(files_records(commit.added_files()))

    def updates_for_clean(self, clean: FilesCleaned) -> MetadataRecords:
        return files_records({}, clean.deleted, clean.deleted_partitions)

    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        return IndexUpdate(files_records(state.listed()))

    def check(self, table: CheckedTable) -> IndexFindings:
        """Compare the stored listing with the directories."""
        result = IndexFindings()
        listed = scan_files(table.metadata)
        names = zip(*(listed.column(name).to_pylist() for name in ("partition", "name", "size_bytes")), strict=True)
        stored_sizes = {join_path(partition, name): size for partition, name, size in names}
        partitions = set(find_partitions(table.metadata))
        # A rolled back write may leave empty directories, which need no listing.
        non_empty = {parent_folder(f.info.path) for f in table.data_files if table.timeline.is_completed(f.instant_time)}
        for partition in sorted((set(table.partitions) & non_empty) - partitions):
            result.add_error(partition, "partition is missing in the metadata table")
        existing_paths: set[str] = set()
        for info, instant_time in table.data_files:
            path = info.path
            existing_paths.add(path)
            if not table.timeline.is_completed(instant_time) and path not in table.snapshot.copies:
                if path in stored_sizes:
                    result.add_error(path, f"listed in the metadata table, but instant {instant_time} is not completed")
            elif path not in stored_sizes:
                result.add_error(path, "missing in the metadata table: readers do not see this file")
            elif stored_sizes[path] != info.size_bytes:
                message = f"has {info.size_bytes} bytes, but {stored_sizes[path]} in the metadata table"
                result.add_error(path, message, MISSING_ROWS if info.size_bytes < stored_sizes[path] else None)
        being_cleaned = table.pending_clean_files()
        for path in sorted(stored_sizes.keys() - existing_paths):
            clean = being_cleaned.get(file_name(path))
            if clean is None:
                result.add_error(path, "listed in the metadata table, but the file does not exist")
            else:
                result.add_warning(path, f"deleted by the pending clean {clean}; the next clean completes it")
        result.checked = f"{len(stored_sizes):,} files in {len(partitions):,} partitions"
        return result
