"""Names of temporary files, for file systems where an incomplete file is visible.

A temporary file `.pyhudi-<process>-<uuid>.tmp` is stored in the folder of its final file. Hudi treats such a name
neither as a data file nor as a timeline file, and PyHudi's listings skip it. The process in the name determines when it
is orphaned.
"""

from __future__ import annotations

from pyhudi.errors import WriteConflict
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.process_identity import Process

_PREFIX = ".pyhudi-"
_SUFFIX = ".tmp"
_UUID_LENGTH = 36


def temporary_name() -> str:
    """Return a new temporary file name of this process."""
    # The name has no influence on the table, so it need not come from the injected environment.
    return f"{_PREFIX}{Process.current().text}-{SystemEnvironment().uuid4()}{_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Return True if a file name is a temporary name."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def is_owner_dead(name: str) -> bool:
    """Return True if the process that created a temporary file is known to have ended."""
    return _is_process_alive(name) is False


def is_temporary_orphaned(name: str, modified_ms: int, before_ms: int) -> bool:
    """Return True if a temporary file may be deleted.

    On the same machine the liveness of its process decides, regardless of the file's age: a writer may be suspended, or
    wait for rows. A file of a process on another machine must be older than ``before_ms``.
    """
    lives = _is_process_alive(name)
    return modified_ms < before_ms if lives is None else not lives


def temporary_file_missing_error(uri: str) -> WriteConflict:
    """The error of a write whose temporary file is missing: nothing was stored under the final name."""
    return WriteConflict(
        f"cannot write {uri}: its temporary file was deleted by another process, which considered this writer failed after a "
        "long silence. Retry the write"
    )


def _is_process_alive(name: str) -> bool | None:
    process = Process.parse(name[len(_PREFIX) : -len(_SUFFIX) - _UUID_LENGTH - 1])
    return None if process is None else process.is_running()
