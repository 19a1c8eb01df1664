"""What can go wrong, as one tree.  A kind exists only where the caller would act differently.

    HudiError
      InvalidRequest       the call or an option is wrong: fix the call
        Unsupported        the request is legal Hudi, PyHudi does not do it: it is refused, never ignored
      TableState           the table forbids the step now
        TableNotFound      no table at the URI
        TableExists        a table is there already
        InstantNotFound    the timeline has no such instant
      CorruptData          bytes break their format; says path, offset, expected and found
      WriteConflict        another writer won; this write did not land and may be planned again
        SnapshotOutdated   files or instants of the state that was loaded are gone by now: load the table again
      CommitUnknown        the store did not say whether the commit landed: reload and look, delete nothing
      ServiceFailed        the write is committed and stands; a table service that followed it by itself failed
      StorageUnavailable   a store or a lock did not answer: the same step may be tried again
        StorageFull        the store has no room: make some first
      EngineFailed         the cluster lost a worker or failed by itself: the same step may be tried again
      Internal             an invariant of PyHudi broke: report it

Messages say what failed, where (path, instant, value) and what to do.  Every error survives pickling, because tasks raise
them on Spark workers.
"""

from __future__ import annotations

import re
from typing import Any

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Text for terminals and logs: what would steer a terminal, or turn the order of letters, is written as an escape.

    Line ends and tabs stay.  Keys, paths and values come from whoever wrote the data.
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class HudiError(Exception):
    """Base of every error that PyHudi raises on purpose.  Its text has no control characters (see `visible`)."""

    def __str__(self) -> str:
        return visible(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class InvalidRequest(HudiError):
    """The call or an option is wrong.  Nothing was written."""


class Unsupported(InvalidRequest):
    """A legal request that PyHudi does not carry out.  Nothing was written."""


class TableState(HudiError):
    """The table's present state forbids the step."""


class TableNotFound(TableState):
    """There is no Hudi table at the URI."""


class TableExists(TableState):
    """There is a Hudi table at the URI already."""


class InstantNotFound(TableState):
    """The timeline has no such instant."""


class CorruptData(HudiError):
    """Bytes that break their format.

    offset: bytes from the start of the file or value, when known; expected, found: what the format asks for and what
    stands there.  Codecs know no path: the caller that opened the file adds it with `with_path`.
    """

    def __init__(
        self,
        message: str,
        *,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.expected = expected
        self.found = found
        self.path = path

    def with_path(self, path: str) -> CorruptData:
        """The same error, naming the file.  A path that is already there is kept."""
        if self.path is None:
            self.path = path
        return self

    def __str__(self) -> str:
        text = str(self.args[0]) if self.args else "corrupt data"
        if self.expected is not None or self.found is not None:
            text += f" (expected {self.expected!r}, found {self.found!r})"
        where = []
        if self.path is not None:
            where.append(self.path)
        if self.offset is not None:
            where.append(f"byte {self.offset}")
        return visible(f"{text} [{', '.join(where)}]" if where else text)


class WriteConflict(HudiError):
    """Another writer changed the same file groups first.  This write left nothing behind and may be planned again.

    instants: the request times of the instants that it conflicts with.  in_progress: of those that have not completed, and which
    it would meet again before they have.
    """

    def __init__(self, message: str, *, instants: tuple[str, ...] = (), in_progress: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.instants = instants
        self.in_progress = in_progress


class IndexStarted(WriteConflict):
    """An index was begun while this write was under way, and its tasks did not look for what that has to be told.

    No row is in doubt: our writes are planned again by themselves, whatever retries they are allowed.
    """


class SnapshotOutdated(WriteConflict):
    """The state of the table that was loaded is no longer whole: what it speaks of was cleaned, rolled back or archived since.

    Nothing was written, and no row of it was given out.  Load the table again; our verbs do so themselves, a few times.
    """


class CommitUnknown(HudiError):
    """The store did not say whether the commit landed.  Reload the table and look for `instant`; delete nothing."""

    def __init__(self, message: str, *, instant: str | None = None) -> None:
        super().__init__(message)
        self.instant = instant


class ServiceFailed(HudiError):
    """The write is committed and must not be repeated; a table service that followed it by itself failed.

    instant: request time of the commit.  service: which one.  The cause is the service's own error.
    """

    def __init__(self, message: str, *, instant: str | None = None, service: str | None = None) -> None:
        super().__init__(message)
        self.instant = instant
        self.service = service


class StorageUnavailable(HudiError):
    """A store or a lock did not answer.  The same step may be tried again."""


class StorageFull(StorageUnavailable):
    """The store has no room left.  The same step may be tried again when somebody has made some; waiting alone does not help."""


class EngineFailed(HudiError):
    """Spark failed by itself while it ran tasks, as when a Python worker dies.  What was begun does not count; try it again."""


class Internal(HudiError):
    """An invariant of PyHudi broke.  Please report it with the message."""


def _rebuild(kind: type[HudiError], args: tuple[Any, ...], state: dict[str, Any]) -> HudiError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error
