"""The message of a commit, and its JSON as Hudi's callbacks send it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyhudi.format.actions.commit_metadata import CommitMetadata

_STAT_FIELDS = (
    "numInserts",
    "numUpdates",
    "numDeletes",
    "totalLogReadTimeMs",
    "totalLogRecords",
    "totalLogFilesCompacted",
    "totalLogSizeCompacted",
    "totalUpdatedRecordsCompacted",
    "totalLogBlocks",
    "totalCorruptLogBlock",
    "totalRollbackBlocks",
    "fileId",
    "path",
    "cdcStats",
    "prevCommit",
    "numWrites",
    "numUpdateWrites",
    "totalWriteBytes",
    "totalWriteErrors",
    "tempPath",
    "partitionPath",
    "fileSizeInBytes",
    "minEventTime",
    "maxEventTime",
    "prevBaseFile",
    "runtimeStats",
)
_LOG_FIELDS = ("logVersion", "logOffset", "baseFile", "logFiles")
_TIMES = ("totalScanTime", "totalUpsertTime", "totalCreateTime")
_TEXTS = frozenset({"fileId", "path", "cdcStats", "prevCommit", "tempPath", "partitionPath", "minEventTime", "maxEventTime"})
_NULLABLE = _TEXTS | {"prevBaseFile", "runtimeStats"}


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """What a callback receives after a commit.

    Attributes:
        instant: Request time of the commit.
        table: Name of the table.
        uri: Location of the table.
        action: commit, deltacommit or replacecommit.
        operation: Operation of the commit in its metadata, such as UPSERT.
        write_stats: Statistics of each written file, with the field names of Hudi's commit metadata.
        extra_metadata: Extra metadata of the commit, without the schema.
    """

    instant: str
    table: str
    uri: str
    action: str
    operation: str
    write_stats: Sequence[Mapping[str, Any]]
    extra_metadata: Mapping[str, str]

    def to_json(self) -> str:
        """Return the JSON that Hudi's callbacks send.

        Hudi serializes the action and the extra metadata without their values; here `value` holds them.
        """
        return json.dumps(
            {
                "commitTime": self.instant,
                "tableName": self.table,
                "basePath": self.uri,
                "hoodieWriteStat": [_stat(stat) for stat in self.write_stats],
                "commitActionType": _optional(self.action),
                "extraMetadata": _optional(dict(self.extra_metadata)),
            },
            separators=(",", ":"),
        )


def stats_of(metadata: CommitMetadata) -> tuple[dict[str, Any], ...]:
    """Return the statistics of each written file, with Hudi's field names."""
    document = json.loads(metadata.encode_json())
    return tuple(stat for stats in (document.get("partitionToWriteStats") or {}).values() for stat in stats)


def _optional(value: object) -> dict[str, object]:
    return {"empty": False, "present": True, "value": value}


def _stat(stat: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: stat.get(name) if name in _NULLABLE else stat.get(name) or 0 for name in _STAT_FIELDS}
    fields["runtimeStats"] = {name: (stat.get("runtimeStats") or {}).get(name) or 0 for name in _TIMES}
    if stat.get("logVersion") is not None:
        fields.update({name: stat.get(name) for name in _LOG_FIELDS})
    return {**fields, "columnStats": {"empty": True, "present": False}}
