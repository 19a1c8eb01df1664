"""Notices of messages that are not delivered yet: one file for each commit, with the process that writes it."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.errors import HudiError
from pyhudi.format.paths import CALLBACK_FOLDER, file_name, join_path
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.storage.process_identity import Process
from pyhudi.table.table_context import TableContext


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice.

    Attributes:
        instant: Request time of the commit.
        modified_ms: When it was stored, by the clock of the store.
    """

    instant: str
    modified_ms: int


def store_notice(transaction: Transaction) -> None:
    """Store the notice of a write before its commit."""
    transaction.context.storage.put(_path(transaction.instant_time), Process.current().text.encode())


def delete_notice(context: TableContext, instant: str) -> None:
    """Delete a notice; what remains is delivered again."""
    try:
        context.storage.delete([_path(instant)])
    except HudiError:
        return


def load_notices(context: TableContext) -> tuple[Notice, ...]:
    """Return the notices, oldest commit first."""
    files = context.storage.list(CALLBACK_FOLDER).files
    return tuple(sorted((Notice(file_name(info.path), info.modified_ms) for info in files), key=lambda notice: notice.instant))


def owner_is_dead(context: TableContext, notice: Notice) -> bool:
    """True if the process that stored a notice is known to have ended."""
    content = context.storage.read(_path(notice.instant))
    process = None if content is None else Process.parse(content.decode(errors="replace"))
    return process is not None and process.is_running() is False


def _path(instant: str) -> str:
    return join_path(CALLBACK_FOLDER, instant)
