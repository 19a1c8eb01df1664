"""The timeline folder of one table: load it, and create, complete and remove instant files.

Every file is created by put-if-absent and never changed; the completed file is the atomic publication of an action.

Source: docs/formats/timeline.md, "Writing a state".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from functools import lru_cache

from pyhudi.errors import CorruptData, SnapshotOutdated, TableState
from pyhudi.format.actions.archived_instants import decode_completed, decode_plan
from pyhudi.format.avro.container import MAGIC, add_checksum_marker
from pyhudi.format.instants import (
    Action,
    Instant,
    State,
    completed_action,
    format_instant_time,
    parse_instant_file,
    shift_instant_time,
)
from pyhudi.format.paths import parent_folder
from pyhudi.format.table_versions import TimelineLayout
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.storage.environment import Environment
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.archived_timeline import ArchivedCompletions, HistoryStore


@dataclass(frozen=True, slots=True)
class TimelineStore:
    """Read and write the instant files of one table.

    Attributes:
        folder: Relative to the table, `.hoodie/timeline` from table version 8 on, `.hoodie` before.
        layout: How this table names the files.
        zone: The zone of the table's instant times, needed if completion times are file times.
        history: The archived timeline.
    """

    storage: Storage
    folder: str
    layout: TimelineLayout
    zone: tzinfo
    history: HistoryStore

    def load(self) -> Timeline:
        """Load the active timeline; the archived timeline is read on demand.

        Raises TableState when the folder is missing on a store that has folders.
        """
        return self.build_timeline(self.load_files())

    def build_timeline(self, files: Iterable[Instant], earlier: Timeline | None = None) -> Timeline:
        """Build the timeline of instant files that were just loaded. earlier: its archived instants are reused."""
        known = None if earlier is None else earlier.archived_completions
        return Timeline.of(files, ArchivedCompletions(self.history, known) if self.history.folder else {})

    def load_files(self) -> tuple[Instant, ...]:
        """Load every instant file: an instant has one for each state it went through.  Raises as `load`."""
        if self.layout.has_completion_time_in_names:
            names = self.storage.names(self.folder)
            self._check_folder(names)
            instants = _parse_names(names, self.layout)
            # Their completion times are the times of their files.
            if not any(instant.is_legacy for instant in instants):
                return instants
        return self.parse_instants(self.listed())

    def listed(self) -> tuple[FileInfo, ...]:
        """List the files of the folder, with sizes and times.  Raises as `load`."""
        files = self.storage.list(self.folder).files
        self._check_folder(files)
        return files

    def parse_instants(self, files: Iterable[FileInfo]) -> tuple[Instant, ...]:
        """Return the instant files in a listing."""
        instants = []
        for info in files:
            instant = parse_instant_file(info.name, self.layout)
            if instant is None:
                continue
            if instant.state is State.COMPLETED and instant.completion_time is None:
                instant = replace(instant, completion_time=format_instant_time(info.modified_ms, self.zone))
            instants.append(instant)
        return tuple(instants) if self.layout.has_completion_time_in_names else _with_likely_completions(instants)

    def path(self, instant: Instant) -> str:
        """Return the path of an instant's file in its state."""
        return f"{self.folder}/{instant.file_name(self.layout)}"

    def read(self, instant: Instant) -> bytes:
        """Read the content of an instant's file, or of its archived row if it was archived since it was listed.

        Raises:
            SnapshotOutdated: Neither exists: the instant was rolled back or dropped since it was listed.
        """
        data = self.storage.read(self.path(instant))
        if data is None:
            data = self._read_archived(instant)
        if data is None:
            raise SnapshotOutdated(
                f"instant file {self.storage.absolute(self.path(instant))} is missing, and the history does not have it either: "
                "the instant was rolled back or dropped; load the table again",
                instants=(instant.request_time,),
            )
        return data

    @contextmanager
    def errors_with_path(self, instant: Instant) -> Iterator[None]:
        """Add the path of an instant's file to a CorruptData error of the `with` block."""
        try:
            yield
        except CorruptData as error:
            raise error.with_path(self.storage.absolute(self.path(instant))) from error

    def read_state(self, request_time: str, action: Action, state: State) -> bytes | None:
        """Read the content of a requested or inflight file, None when it is absent."""
        return self.storage.read(self.path(Instant(request_time, action, state)))

    def request(self, request_time: str, action: Action, content: bytes = b"") -> Instant:
        """Create the requested file.  Raises TableState when the instant exists already."""
        return self._create(Instant(request_time, action, State.REQUESTED), content)

    def start(self, instant: Instant, content: bytes = b"") -> Instant:
        """Create the inflight file.  Raises TableState when it exists: another process executes the action."""
        return self._create(Instant(instant.request_time, instant.action, State.INFLIGHT), content)

    def start_or_join(self, instant: Instant, content: bytes = b"") -> None:
        """Create the inflight file unless it exists: for actions that several processes may execute concurrently."""
        self.storage.put_if_absent(
            self.path(Instant(instant.request_time, instant.action, State.INFLIGHT)), add_checksum_marker(content)
        )

    def complete(self, instant: Instant, completed_action: Action, completion_time: str, content: bytes) -> Instant:
        """Publish the completed file.  Raises TableState when it exists already."""
        return self._create(Instant(instant.request_time, completed_action, State.COMPLETED, completion_time), content)

    def remove_pending(self, request_time: str, action: Action, *states: State) -> None:
        """Delete the inflight and requested files of an instant, inflight first; or only the given states."""
        for state in states or (State.INFLIGHT, State.REQUESTED):
            self.storage.delete([self.path(Instant(request_time, action, state))])

    def remove_completed(self, instant: Instant) -> None:
        """Delete a completed file."""
        self.storage.delete([self.path(instant)])

    def _read_archived(self, instant: Instant) -> bytes | None:
        """The content of the file of an archived instant: its document, or its plan."""
        if not self.history.folder:
            return None
        row = self.history.find(instant.request_time, completed_action(instant.action))
        if row is None:
            return None
        data = row.metadata if instant.state is State.COMPLETED else row.plan
        if not data or data[: len(MAGIC)] == MAGIC:
            return data or b""
        decode = decode_completed if instant.state is State.COMPLETED else decode_plan
        return decode(instant.action, data).encode()

    def _create(self, instant: Instant, content: bytes) -> Instant:
        if not self.storage.put_if_absent(self.path(instant), add_checksum_marker(content)):
            raise TableState(
                f"instant file {self.storage.absolute(self.path(instant))} exists already: another process executes this action"
            )
        return instant

    def _check_folder(self, found: Sequence[object]) -> None:
        """Raise TableState if nothing was found because the folder does not exist."""
        if found or not self.layout.has_timeline_folder or not self.storage.has_folders:
            return
        if self.folder not in self.storage.list(parent_folder(self.folder)).folders:
            raise TableState(
                f"the timeline folder {self.storage.absolute(self.folder)} is missing; the table cannot be read (an "
                f"empty folder is a table without commits)"
            )


# An operation loads the same timeline several times.
@lru_cache(maxsize=8)
def _parse_names(names: tuple[str, ...], layout: TimelineLayout) -> tuple[Instant, ...]:
    return tuple(instant for name in names if (instant := parse_instant_file(name, layout)) is not None)


def _with_likely_completions(instants: Sequence[Instant]) -> tuple[Instant, ...]:
    """Instants whose completion times are file times, with request times instead if the files were copied."""
    # In a copy every file is younger than the last request. In an original, all but the last instants completed before it. A
    # single instant is not decisive, and needs no order.
    last = max((i.request_time for i in instants), default="")
    completed = [i.completion_time or "" for i in instants if i.is_completed]
    if len(completed) < 2 or min(completed) <= last:
        return tuple(instants)
    return tuple(replace(i, completion_time=i.request_time) if i.is_completed else i for i in instants)


def next_instant_time(env: Environment, zone: tzinfo, after: str) -> str:
    """Return a new instant time: the clock's, or one millisecond after `after` if the clock is behind it.

    after: the largest time on the timeline, '' for none. Called under the table lock, so times grow over all processes,
    also in the hour that a zone has twice.
    """
    now = format_instant_time(env.now_ms(), zone)
    if now > after[:17]:
        return now
    return shift_instant_time(after[:17], 1, UTC)
