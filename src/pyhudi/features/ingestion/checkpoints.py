"""Checkpoints of a source in the commit metadata of its target, under the keys of Hudi Streamer.

    streamer.checkpoint.key.v2         tables of version 8 and above
    deltastreamer.checkpoint.key       written by Hudi Streamer for tables of version 6; read, never written
    ...reset.key.v2, ...reset_key      checkpoint that the job's configuration prescribed
    deltastreamer.checkpoint.ignore_key   text with which the configuration had the checkpoint ignored

The newest commit with one of these keys is decisive: commits of other writers are skipped. A commit under version 2
keys takes precedence over version 1 keys of the same commit, as in Hudi's CheckpointUtils.

The checkpoint is part of the commit that contains its rows. `CheckpointMark` verifies under the table lock that the
checkpoint is still the one from which the rows were read, so that of two running instances of a job one commits a
batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhudi.operations.write.write_once import AlreadyCommitted, CommitMark, CommitSearch
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

KEY_V1 = "deltastreamer.checkpoint.key"
RESET_KEY_V1 = "deltastreamer.checkpoint.reset_key"
KEY_V2 = "streamer.checkpoint.key.v2"
RESET_KEY_V2 = "streamer.checkpoint.reset.key.v2"
IGNORE_KEY = "deltastreamer.checkpoint.ignore_key"
SOURCE_KEY = "pyhudi.ingestion.source"
"""Kind of the source, written by PyHudi only."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """The checkpoint in a commit.

    Attributes:
        value: The checkpoint; None if the commit has only a reset key.
        version: 1 or 2, by the key. It decides how a checkpoint of a Hudi table is read: as request or completion time.
        reset: The prescribed checkpoint with which the job ran.
        ignored: The ignore key with which the job ran.
        source: Kind of the source; None if Hudi Streamer wrote the commit.
        instant: Request time of the commit.
    """

    value: str | None
    version: int
    reset: str | None
    ignored: str | None
    source: str | None
    instant: str


def find_checkpoint(context: TableContext, timeline: Timeline, search: CommitSearch) -> StoredCheckpoint | None:
    """Return the newest checkpoint in the commits of a table, active and archived; None if no commit has one."""
    for instant, extra in search.newest_first(context.timeline, timeline):
        for version, key, reset_key in ((2, KEY_V2, RESET_KEY_V2), (1, KEY_V1, RESET_KEY_V1)):
            if extra.get(key) or extra.get(reset_key):
                return StoredCheckpoint(
                    extra.get(key) or None,
                    version,
                    extra.get(reset_key) or None,
                    extra.get(IGNORE_KEY) or None,
                    extra.get(SOURCE_KEY) or None,
                    instant.request_time,
                )
    return None


@dataclass(frozen=True, slots=True)
class CheckpointMark(CommitMark):
    """Verifies, in the commit of a batch, that no other commit has moved the checkpoint since the batch was read.

    Attributes:
        start: Instant whose checkpoint the batch was read from; None if there was none.
        checkpoint: The checkpoint after the batch.
        source: Kind of the source.
        reset: Prescribed checkpoint of the job's configuration.
        ignored: Ignore key of the job's configuration.
        search: The commits that were read for it.
    """

    start: str | None
    checkpoint: str
    source: str
    reset: str | None = None
    ignored: str | None = None
    search: CommitSearch = field(default_factory=CommitSearch, compare=False, repr=False)

    def check(self, context: TableContext, timeline: Timeline) -> Mapping[str, str]:
        """Return the entries for the commit. Raises AlreadyCommitted if the checkpoint has moved."""
        stored = find_checkpoint(context, timeline, self.search)
        instant = None if stored is None else stored.instant
        if instant != self.start:
            raise AlreadyCommitted(
                f"another instance of the job has moved the checkpoint of {context.storage.uri} since the batch was read"
            )
        entries = {KEY_V2: self.checkpoint, SOURCE_KEY: self.source, RESET_KEY_V2: self.reset, IGNORE_KEY: self.ignored}
        return {key: value for key, value in entries.items() if value is not None}
