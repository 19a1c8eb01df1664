"""Delete a table with all of its files.

The properties are removed first, under the lock: from then on there is no table, and writers that have it open fail
when they reload it. A crash leaves files without a table, which the next creation at the location removes or refuses.
"""

from __future__ import annotations

from pyhudi.errors import TableState
from pyhudi.format.paths import META_FOLDER, PROPERTIES_BACKUP, PROPERTIES_FILE
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.transaction import check_same_version
from pyhudi.table.table_context import TableContext


@observed("drop_table")
def run_drop_table(context: TableContext, settings: CommitSettings) -> None:
    """Delete the folder of a table.

    Raises:
        TableState: A write or a table service is in progress.
    """
    check_writable(context, retains_indexes=False)
    with context.locked(settings.lock_wait_ms) as locked:
        check_same_version(locked)
        pending = [instant for instant in locked.timeline.load().instants if instant.is_pending]
        if pending:
            raise TableState(
                f"cannot drop the table at {context.storage.uri}: {pending[0].action} {pending[0].request_time} is in progress. "
                "Wait for it, or roll it back with Table.rollback"
            )
        locked.storage.delete([PROPERTIES_FILE, PROPERTIES_BACKUP])
    listing = context.storage.list("")
    for folder in listing.folders:
        if folder != META_FOLDER:
            context.storage.delete_folder(folder)
    context.storage.delete([file.path for file in listing.files])
    context.storage.delete_folder(META_FOLDER)
