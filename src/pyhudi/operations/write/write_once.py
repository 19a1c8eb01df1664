"""Writes that commit once: a mark in the commit metadata makes a repeated write a no-op.

    before the write    if the table's commits contain the mark, nothing is done
    under the lock      checked again in the commit of the write, so that of two concurrent attempts one commits

An application version is one kind of mark, a micro-batch of a stream (`micro_batches`) another.

Source: docs/formats/writing.md, "Application versions".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from pyhudi.errors import CorruptData, InvalidRequest, TableState
from pyhudi.format.actions.archived_instants import decode_completed
from pyhudi.format.actions.commit_metadata import SCHEMA_KEY, CommitMetadata
from pyhudi.format.instants import Instant
from pyhudi.operations.commit.results import WriteResult
from pyhudi.options.write_options import ONCE
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.archived_timeline import Bounds
from pyhudi.table.timeline.timeline_store import TimelineStore

APPLICATIONS_KEY = "pyhudi.write.applications"
"""Key in the extra metadata of commits: newest version by application, as JSON."""

_MAX_APPLICATIONS = 1000
_MAX_VERSION = (1 << 63) - 1
_ARCHIVED_AT_ONCE = 64


class AlreadyCommitted(TableState):
    """The write is already committed. Nothing was written."""


class CommitMark(Protocol):
    """Identifies a write in the commits of a table."""

    def check(self, context: TableContext, timeline: Timeline) -> Mapping[str, str]:
        """Return the entries for the commit of the write. Raises AlreadyCommitted if it is committed."""


def skip_if_committed(
    context: TableContext, mark: CommitMark | None, operation: str, write: Callable[[], WriteResult]
) -> WriteResult:
    """Run a write, unless it is committed.

    Args:
        mark: Identifies the write; None runs it in any case.
        operation: Name of the operation, for the result of a skipped write.
        write: Runs the write; its commit checks the mark again.
    """
    if mark is None:
        return write()
    try:
        current = context.reloaded()
        mark.check(current, current.timeline.load())
        return write()
    except AlreadyCommitted:
        return WriteResult(operation, None, None, skipped=True)


@dataclass(slots=True)
class CommitSearch:
    """Extra metadata of a table's commits, newest completion first. Each commit is read once."""

    _read: dict[Instant, Mapping[str, str]] = field(default_factory=dict)
    _archived: dict[str | None, list[Instant]] = field(default_factory=dict)

    def newest_first(
        self, store: TimelineStore, timeline: Timeline, after: str = ""
    ) -> Iterator[tuple[Instant, Mapping[str, str]]]:
        """Yield completed writes with their extra metadata, of the active and then of the archived timeline.

        Args:
            store: The timeline's files.
            timeline: The active timeline.
            after: Only writes that were requested after this instant time.
        """
        active = [instant for instant in timeline.completed_writes() if instant.request_time > after]
        for instant in sorted(active, key=_completion, reverse=True):
            if instant not in self._read:
                self._read[instant] = _without_schema(read_commit(store, instant))
            yield instant, self._read[instant]
        if timeline.start is not None and timeline.start <= after:
            # Archival moves the oldest instants first.
            return
        known = {instant.step for instant in active}
        archived = [i for i in self._archived_instants(store, timeline.start) if i.step not in known and i.request_time > after]
        for first in range(0, len(archived), _ARCHIVED_AT_ONCE):
            part = archived[first : first + _ARCHIVED_AT_ONCE]
            self._load_archived(store, part)
            for instant in part:
                yield instant, self._read.get(instant, {})

    def _archived_instants(self, store: TimelineStore, start: str | None) -> list[Instant]:
        """Return the archived writes, newest completion first. They are listed again once the active timeline starts later."""
        if start not in self._archived:
            writes = [instant for instant in store.history.instants() if instant.action.is_write]
            self._archived[start] = sorted(writes, key=_completion, reverse=True)
        return self._archived[start]

    def _load_archived(self, store: TimelineStore, instants: list[Instant]) -> None:
        missing = {(i.request_time, i.action.value): i for i in instants if i not in self._read}
        if not missing:
            return
        times = [time for time, _ in missing]
        for row in store.history.all_rows(Bounds(min(times), max(times)), documents=True):
            instant = missing.get((row.instant_time, row.action))
            if instant is not None and row.metadata:
                metadata = decode_completed(instant.action, row.metadata)
                if isinstance(metadata, CommitMetadata):
                    self._read[instant] = _without_schema(metadata)


def _completion(instant: Instant) -> tuple[str, str]:
    return (instant.completion_time or instant.request_time, instant.request_time)


def _without_schema(metadata: CommitMetadata) -> Mapping[str, str]:
    return {key: value for key, value in metadata.extra_metadata.items() if key != SCHEMA_KEY}


@dataclass(frozen=True, slots=True)
class ApplicationVersion:
    """A write of an application that numbers its writes, for example by input file, batch or day.

    Attributes:
        application: Name of the application, unique in the table.
        version: Version of the write. An application's versions increase.
        search: The commits that were read for it.
    """

    application: str
    version: int
    search: CommitSearch = field(default_factory=CommitSearch, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Callers without a type checker pass anything.
        application, version = cast("tuple[object, object]", (self.application, self.version))
        if not isinstance(application, str) or not application:
            raise InvalidRequest(f"once=({self.application!r}, {self.version!r}): the application is a text that is not empty")
        if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version <= _MAX_VERSION:
            raise InvalidRequest(
                f"once=({self.application!r}, {self.version!r}): the version is a whole number from 0 to {_MAX_VERSION}"
            )

    @classmethod
    def parse(cls, text: str) -> ApplicationVersion:
        """Parse `application:version`. Raises InvalidRequest."""
        application, colon, version = text.rpartition(":")
        if not colon or not (version.isascii() and version.isdigit()) or len(version) > len(str(_MAX_VERSION)):
            raise InvalidRequest(f"{ONCE}={text}: pass application:version with a whole number, such as daily-load:17")
        return cls(application, int(version))

    def check(self, context: TableContext, timeline: Timeline) -> Mapping[str, str]:
        """Return the entry for the commit of the write: the newest version of each application, with this one.

        Raises:
            AlreadyCommitted: This version or a later one is committed.
            CorruptData: The versions in a commit are unreadable.
        """
        known, last = self._committed(context, timeline)
        if last is not None and last >= self.version:
            raise AlreadyCommitted(
                f"version {self.version} of application {self.application} is not written to {context.storage.uri}: "
                f"version {last} is committed"
            )
        versions = {name: version for name, version in known.versions.items() if name != self.application}
        versions[self.application] = self.version
        newest = list(versions.items())[-_MAX_APPLICATIONS:]
        is_complete = known.is_complete and len(newest) == len(versions)
        return {APPLICATIONS_KEY: _Versions(dict(newest), is_complete).encode()}

    def _committed(self, context: TableContext, timeline: Timeline) -> tuple[_Versions, int | None]:
        """Return the versions in the newest commit that has any, and the newest version of this application."""
        newest: _Versions | None = None
        for _, extra in self.search.newest_first(context.timeline, timeline):
            text = extra.get(APPLICATIONS_KEY)
            if not text:
                continue
            versions = _Versions.decode(text)
            newest = newest or versions
            if self.application in versions.versions or versions.is_complete:
                return newest, versions.versions.get(self.application)
        return newest or _Versions({}, True), None


@dataclass(frozen=True, slots=True)
class _Versions:
    """Newest version by application, in order of their last writes; complete unless earlier commits have more of them."""

    versions: Mapping[str, int]
    is_complete: bool

    def encode(self) -> str:
        return json.dumps({"versions": self.versions, "complete": self.is_complete}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> _Versions:
        try:
            document: dict[str, Any] = json.loads(text)
            return cls({str(name): int(number) for name, number in document["versions"].items()}, bool(document["complete"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptData(f"the application versions in commit metadata are unreadable: {text[:200]!r}") from error


def with_once(options: Mapping[str, object] | None, once: tuple[str, int] | None) -> Mapping[str, object] | None:
    """The options of a call with the application version of its argument. Raises InvalidRequest if an option contradicts it."""
    if once is None:
        return options
    if not isinstance(cast(object, once), tuple) or len(cast("tuple[object, ...]", once)) != 2:
        raise InvalidRequest(f"once={once!r}: pass a pair of application and version, such as ('daily-load', 17)")
    mark = ApplicationVersion(*once)
    text = f"{mark.application}:{mark.version}"
    if str((options or {}).get(ONCE.key, text)) != text:
        raise InvalidRequest(f"once={once!r} contradicts option {ONCE}={(options or {})[ONCE.key]}")
    return {**(options or {}), ONCE.key: text}
