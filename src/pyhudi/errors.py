"""Exception hierarchy. A separate class exists only where the caller has to react differently.

    HudiError
      InvalidRequest       the call or an option is wrong: fix the call
        Unsupported        the request is valid in Hudi, but PyHudi does not implement it: it is refused, never ignored
        ValidationFailed   a pre-commit validator rejected the write, which was rolled back
      TableState           the current state of the table forbids the operation
        TableNotFound      no table at the URI
        TableExists        a table already exists at the URI
        InstantNotFound    the timeline has no such instant
      CorruptData          bytes violate their format; with path, offset, expected and found value
      WriteConflict        another writer won; this write is not committed and may be planned again
        SnapshotOutdated   files or instants of the loaded state were removed: load the table again
      CommitUnknown        the store did not confirm the commit: reload the table and check, delete nothing
      ServiceFailed        the write is committed; a table service that it triggered failed
      StorageUnavailable   a store or a lock did not respond: the same step may be retried
        StorageFull        the store is full: free space first
      EngineFailed         the cluster lost a worker or failed by itself: the same step may be retried
      Internal             an invariant of PyHudi is broken: report it

Messages contain what failed, where (path, instant, value) and what to do. Every error survives pickling, because tasks
raise them on Spark workers.
"""

from __future__ import annotations

import logging
import re
from typing import Any

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Escape characters that control a terminal or change the writing direction, for terminals and logs.

    Line ends and tabs stay. Keys, paths and values come from untrusted writers.
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def get_logger(name: str) -> logging.Logger:
    """Return a logger whose messages are one line without control characters, so that a text of a table cannot forge one."""
    logger = logging.getLogger(name)
    logger.addFilter(_escape_record)
    return logger


def _escape_record(record: logging.LogRecord) -> bool:
    record.__dict__.update(msg=visible(record.getMessage()).replace("\n", "\\n"), args=None)
    return True


class HudiError(Exception):
    """Base class of all errors that PyHudi raises on purpose. Its text has no control characters (see `visible`)."""

    def __str__(self) -> str:
        return visible(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class InvalidRequest(HudiError):
    """The call or an option is wrong. Nothing was written."""


class Unsupported(InvalidRequest):
    """A valid request that PyHudi does not implement. Nothing was written."""


class ValidationFailed(InvalidRequest):
    """A pre-commit validator rejected a write or a clustering, which was rolled back.

    Attributes:
        validator: Name of the validator.
        query: Its query, "" for a validator in Python.
        before: First rows of the query's result before the write.
        after: First rows of its result after the write.
        rows: The first offending rows: those in only one of both results, or those that the validator returned.
    """

    def __init__(
        self,
        message: str,
        *,
        validator: str = "",
        query: str = "",
        before: tuple[dict[str, Any], ...] = (),
        after: tuple[dict[str, Any], ...] = (),
        rows: tuple[dict[str, Any], ...] = (),
    ) -> None:
        super().__init__(message)
        self.validator = validator
        self.query = query
        self.before = before
        self.after = after
        self.rows = rows

    def of_commit(self, validator: str, commit: str, *, is_published: bool = False) -> ValidationFailed:
        """Return this error as the rejection of a commit, with its results in the message."""
        parts = [f"validator {validator} rejects {commit}: {self.args[0]}"]
        if self.query:
            parts += [f"  before: {_shown(self.before)}", f"  after: {_shown(self.after)}"]
        if self.rows and self.rows != self.after:
            parts.append(f"  rows: {_shown(self.rows)}")
        outcome = "It is published nevertheless." if is_published else "It was rolled back."
        parts.append(f"{outcome} Correct the rows, or change the validator.")
        return ValidationFailed(
            "\n".join(parts), validator=validator, query=self.query, before=self.before, after=self.after, rows=self.rows
        )


class TableState(HudiError):
    """The current state of the table forbids the operation."""


class TableNotFound(TableState):
    """No Hudi table exists at the URI."""


class TableExists(TableState):
    """A Hudi table already exists at the URI."""


class InstantNotFound(TableState):
    """The timeline has no such instant."""


class CorruptData(HudiError):
    """Bytes that violate their format.

    Codecs do not know the path: the caller that opened the file adds it with `with_path`.

    Attributes:
        offset: Position in bytes from the start of the file or value, if known.
        expected: The value that the format requires.
        found: The value in the data.
        path: The file, if known.
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
        """Set the path of the file unless it is already set, and return this error."""
        if self.path is None:
            self.path = path
        return self

    def __str__(self) -> str:
        text = str(self.args[0]) if self.args else "corrupt data"
        if self.expected is not None or self.found is not None:
            text += f" (expected {self.expected!r}, found {self.found!r})"
        location = []
        if self.path is not None:
            location.append(self.path)
        if self.offset is not None:
            location.append(f"byte {self.offset}")
        return visible(f"{text} [{', '.join(location)}]" if location else text)


class WriteConflict(HudiError):
    """Another writer changed the same file groups first. This write left nothing behind and may be planned again.

    Attributes:
        instants: Request times of the conflicting instants.
        in_progress: Those of them that are not completed; a retry before their completion conflicts again.
    """

    def __init__(self, message: str, *, instants: tuple[str, ...] = (), in_progress: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.instants = instants
        self.in_progress = in_progress


class IndexStarted(WriteConflict):
    """An index was created during this write, and the write tasks did not collect what it needs.

    Rows do not conflict: PyHudi plans its writes again automatically, independent of the allowed number of retries.
    """


class SnapshotOutdated(WriteConflict):
    """The loaded state of the table is outdated: files or instants that it refers to were cleaned, rolled back or archived since.

    Nothing was written, and no row was returned. Load the table again; PyHudi's own operations do so automatically a few times.
    """


class CommitUnknown(HudiError):
    """The store did not confirm whether the commit was written. Reload the table and look for `instant`; delete nothing."""

    def __init__(self, message: str, *, instant: str | None = None) -> None:
        super().__init__(message)
        self.instant = instant


class ServiceFailed(HudiError):
    """The write is committed and must not be repeated; a table service that it triggered failed.

    The cause is the service's own error.

    Attributes:
        instant: Request time of the commit.
        service: Name of the service.
    """

    def __init__(self, message: str, *, instant: str | None = None, service: str | None = None) -> None:
        super().__init__(message)
        self.instant = instant
        self.service = service


class StorageUnavailable(HudiError):
    """A store or a lock did not respond. The same step may be retried."""


class StorageFull(StorageUnavailable):
    """The store is full. The same step may be retried after space is freed; waiting alone does not help."""


class EngineFailed(HudiError):
    """Spark failed while it ran tasks, for example because a Python worker ended. The attempt has no effect; retry it."""


class Internal(HudiError):
    """An invariant of PyHudi is broken. Please report it with the message."""


_MAX_SHOWN_ROW = 300


def _shown(rows: tuple[dict[str, Any], ...]) -> str:
    texts = [", ".join(f"{name}={value!r}" for name, value in row.items()) for row in rows]
    return "; ".join(text if len(text) <= _MAX_SHOWN_ROW else f"{text[:_MAX_SHOWN_ROW]}..." for text in texts) or "no rows"


def _rebuild(kind: type[HudiError], args: tuple[Any, ...], state: dict[str, Any]) -> HudiError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error
