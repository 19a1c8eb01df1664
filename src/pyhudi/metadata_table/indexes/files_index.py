"""The list of the table's files: which partitions there are, and which files of what size are in them.

A commit adds its files; a clean removes those that it deleted, and partitions that no longer exist.
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
    """The partition `files`, without which there is no metadata table."""

    partition_type: ClassVar[str] = FILES
    merge: ClassVar[CellMergeRule] = FILE_LISTS

    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        return IndexUpdate(files_records(commit.added_files()))

    def updates_for_clean(self, clean: FilesCleaned) -> MetadataRecords:
        return files_records({}, clean.deleted, clean.deleted_partitions)

    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        return IndexUpdate(files_records(state.listed()))

    def check(self, table: CheckedTable) -> IndexFindings:
        """The lists against the directories."""
        result = IndexFindings()
        listed = scan_files(table.metadata)
        names = zip(*(listed.column(name).to_pylist() for name in ("partition", "name", "size_bytes")), strict=True)
        there = {join_path(partition, name): size for partition, name, size in names}
        partitions = set(find_partitions(table.metadata))
        # A write that was rolled back leaves its folders, which have nothing to be listed.
        filled = {parent_folder(f.info.path) for f in table.data_files if table.timeline.is_completed(f.instant_time)}
        for partition in sorted((set(table.partitions) & filled) - partitions):
            result.add_error(partition, "a partition that the metadata table does not list")
        present: set[str] = set()
        for info, instant_time in table.data_files:
            path = info.path
            present.add(path)
            if not table.timeline.is_completed(instant_time) and path not in table.snapshot.copies:
                if path in there:
                    result.add_error(path, f"listed by the metadata table, and {instant_time} has not completed")
            elif path not in there:
                result.add_error(path, "not listed by the metadata table: readers do not see it")
            elif there[path] != info.size_bytes:
                what = f"has {info.size_bytes} bytes, and the metadata table says {there[path]}"
                result.add_error(path, what, MISSING_ROWS if info.size_bytes < there[path] else None)
        being_cleaned = table.pending_clean_files()
        for path in sorted(there.keys() - present):
            clean = being_cleaned.get(file_name(path))
            if clean is None:
                result.add_error(path, "listed by the metadata table, and not there")
            else:
                result.add_warning(path, f"deleted by clean {clean}, which has not completed; the next clean carries it out")
        result.checked = f"{len(there):,} files in {len(partitions):,} partitions"
        return result
