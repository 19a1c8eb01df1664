"""Base files of another table format, which Apache XTable and Delta UniForm register in commits.

A file keeps its name in storage, and commits name it `<name>_<instant>_hudiext` (`format.names`). Directories therefore do not
show which files belong to the table: it consists of the files that its commits name, archived ones included, without those that
replace commits replace. Hudi reads them by its metadata table, which holds the same names.

Source: docs/formats/reading.md, "Files of other table formats".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyhudi.errors import Unsupported
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.names import EXTERNAL_SUFFIX, check_read, parse_external_file
from pyhudi.format.paths import file_name, parent_folder
from pyhudi.storage.base import FileInfo


class CommittedListing:
    """A listing of the external files that commits name. Paths end in the name of the commit."""

    def __init__(self, files: Mapping[str, Mapping[str, FileInfo]]) -> None:
        """files: partition -> file id -> file."""
        self._files = files

    def partitions(self) -> tuple[str, ...]:
        """Return all partition paths, sorted."""
        return tuple(sorted(self._files))

    def files(self, partitions: Iterable[str]) -> dict[str, tuple[FileInfo, ...]]:
        """Return the files of each partition."""
        return {partition: tuple(self._files.get(partition, {}).values()) for partition in partitions}

    def group_files(self, groups: Mapping[str, Collection[str]]) -> dict[str, tuple[FileInfo, ...]]:
        """Return the files of some file groups."""
        return {
            partition: tuple(info for file_id, info in self._files.get(partition, {}).items() if file_id in ids)
            for partition, ids in groups.items()
        }


def find_external_file(metadata: CommitMetadata) -> str | None:
    """Return the name of an external file that a commit names. Raises Unsupported for other files that are not read."""
    found = None
    for stat in metadata.write_stats:
        name = file_name(stat.path or "")
        if name.endswith(EXTERNAL_SUFFIX):
            found = name
        else:
            check_read(name)
    return found


def list_external_files(
    uri: str, archived: Iterable[tuple[str, CommitMetadata]], active: Iterable[tuple[str, CommitMetadata]]
) -> CommittedListing:
    """Return the listing of a table with external files. Files that archived commits replaced are omitted.

    Args:
        uri: The table.
        archived: Archived commits by request time, in that order.
        active: The later completed writes.

    Raises:
        Unsupported: The table also holds files of Hudi, or commits add a file again that was replaced, which Hudi does not
            show.
    """
    files: dict[str, dict[str, FileInfo]] = {}
    replaced: set[tuple[str, str]] = set()
    for is_active, commits in ((False, archived), (True, active)):
        for instant, metadata in commits:
            for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items():
                replaced.update((partition, file_id) for file_id in file_ids)
                for file_id in () if is_active else file_ids:
                    files.get(partition, {}).pop(file_id, None)
            for partition, stats in metadata.partition_to_write_stats.items():
                for stat in stats:
                    if not stat.path:
                        continue
                    name = parse_external_file(file_name(stat.path))
                    if name is None or parent_folder(stat.path) != partition:
                        raise Unsupported(
                            f"{uri} has files of another table format, and commit {instant} wrote {stat.path}, which is not the "
                            "name of such a file: read the table in its original format"
                        )
                    if (partition, name.file_id) in replaced:
                        raise Unsupported(
                            f"commit {instant} of {uri} adds {stat.path} again, a file of another table format that was replaced "
                            "before: read the table in its original format"
                        )
                    files.setdefault(partition, {})[name.file_id] = FileInfo(stat.path, stat.file_size_in_bytes, 0)
    return CommittedListing(files)
