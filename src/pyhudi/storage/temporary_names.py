"""Names of files that are being written, in file systems where a file is seen before it is whole.

`.pyhudi-<process>-<uuid>.tmp` stands in the folder of the file that it will become.  Real Hudi takes such a name for neither a
data file nor a timeline file, and listings of ours never show it.  The process in the name tells who may remove it.
"""

from __future__ import annotations

from pyhudi.errors import WriteConflict
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.process_identity import Process

_PREFIX = ".pyhudi-"
_SUFFIX = ".tmp"
_UUID_LENGTH = 36


def temporary_name() -> str:
    """A new one, of this process."""
    # The name decides nothing about the table, so it need not come from the run's own environment.
    return f"{_PREFIX}{Process.current().text}-{SystemEnvironment().uuid4()}{_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether a file name is one of these."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def is_owner_dead(name: str) -> bool:
    """Whether the process that began a temporary file is known to have ended."""
    return _lives(name) is False


def is_temporary_orphaned(name: str, modified_ms: int, before_ms: int) -> bool:
    """Return True if a temporary file may be deleted.

    The process that began it tells, however long the file has not changed: a writer may be suspended, or wait for rows.  Where
    that process runs on another machine, the file has to be older than ``before_ms``.
    """
    lives = _lives(name)
    return modified_ms < before_ms if lives is None else not lives


def temporary_file_missing_error(uri: str) -> WriteConflict:
    """The error of a write whose temporary file is gone: nothing was stored under the name."""
    return WriteConflict(
        f"cannot write {uri}: its temporary file was deleted, because this process gave no sign of life for so long that another "
        "one took it for dead; write again"
    )


def _lives(name: str) -> bool | None:
    process = Process.parse(name[len(_PREFIX) : -len(_SUFFIX) - _UUID_LENGTH - 1])
    return None if process is None else process.is_running()
