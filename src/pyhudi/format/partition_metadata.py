"""Partition metadata: the file `.hoodie_partition_metadata` that marks a folder as a partition.

    #partition metadata
    #Sat Nov 21 04:46:52 UTC 2026
    commitTime=20261121044645518       request time of the instant that created the partition
    partitionDepth=1                   number of folders below the table, 0 for a non-partitioned table

It is written before the first data file, only if it does not exist. Some tables store the two values in the footer of a
Parquet or ORC file instead; readers check the text file first. Not done here: opening that footer.

Specification: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyhudi.errors import CorruptData
from pyhudi.format.paths import PARTITION_METADATA_FILE
from pyhudi.format.properties import format_java_date, format_properties, parse_properties
from pyhudi.format.stored_numbers import parse_digits

PARTITION_METADATA_FILES = (PARTITION_METADATA_FILE, f"{PARTITION_METADATA_FILE}.parquet", f"{PARTITION_METADATA_FILE}.orc")
"""Possible file names, in the order in which readers check them."""

_COMMIT_TIME = "commitTime"
_DEPTH = "partitionDepth"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Content of the file.

    Attributes:
        instant_time: Request time of the instant that created the partition.
        depth: Number of folders below the table.
    """

    instant_time: str
    depth: int

    def encode(self, epoch_ms: int) -> bytes:
        """Return the text file.

        Args:
            epoch_ms: Milliseconds since 1970 UTC, for the comment.
        """
        values = {_COMMIT_TIME: self.instant_time, _DEPTH: str(self.depth)}
        return format_properties(values, ("partition metadata", format_java_date(epoch_ms)))

    @classmethod
    def decode(cls, data: bytes) -> PartitionMetadata:
        """Decode the text file. Raises CorruptData."""
        return cls.from_pairs(parse_properties(data))

    @classmethod
    def from_pairs(cls, pairs: Mapping[str, str]) -> PartitionMetadata:
        """Build from the text file's pairs or a footer's key-values; other keys are ignored. Raises CorruptData."""
        instant_time = pairs.get(_COMMIT_TIME)
        text = pairs.get(_DEPTH, "").strip()
        depth = parse_digits(text, 6)
        if not instant_time:
            raise CorruptData("a partition metadata file has no commit time", expected=_COMMIT_TIME)
        if depth is None:
            raise CorruptData("invalid partition depth", found=text[:100])
        return cls(instant_time, depth)


def partition_depth(partition_path: str) -> int:
    """Return the number of folders of a partition below the table; 0 for the table itself."""
    return partition_path.count("/") + 1 if partition_path else 0
