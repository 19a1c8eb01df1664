"""Delete a table with all of its files.

The properties are removed first, under the lock: from then on there is no table, and writers that have it open fail
when they reload it. The rest of `.hoodie` follows, then the data and the empty folder. A crash leaves files without a
table, which the next creation at the location removes or refuses. After an error in the data the properties are stored
again: the table then has no rows and no commits, and the call can be repeated.
"""

from __future__ import annotations

from pyhudi.errors import HudiError, TableState
from pyhudi.format.paths import META_FOLDER, PROPERTIES_BACKUP, PROPERTIES_FILE, TIMELINE_FOLDER
from pyhudi.operations.commit.begin_checks import check_same_version
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.options import table_options as props
from pyhudi.table.table_config import create_table_files
from pyhudi.table.table_context import TableContext

_TIMELINE_FOLDERS = (META_FOLDER, TIMELINE_FOLDER)
_OF_METADATA_TABLE = frozenset(
    option.stored_as for option in (props.METADATA_PARTITIONS, props.METADATA_INFLIGHT, props.INDEX_DEFINITIONS_PATH)
)


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
    storage = context.storage
    try:
        storage.delete_folder(META_FOLDER)
        listing = storage.list("")
        for folder in listing.folders:
            storage.delete_folder(folder)
        storage.delete([file.path for file in listing.files])
        remaining = storage.list("")
        if storage.has_folders and not remaining.files and not remaining.folders:
            storage.delete_folder("")
    except HudiError as error:
        error.add_note(_keep_as_empty_table(context))
        raise


def _keep_as_empty_table(context: TableContext) -> str:
    """Store the properties again, so that the call can be repeated, and return advice."""
    storage = context.storage
    try:
        if not any(storage.list(folder).files for folder in {context.config.timeline_path, *_TIMELINE_FOLDERS}):
            values = {key: value for key, value in context.config.properties if key not in _OF_METADATA_TABLE}
            create_table_files(storage, values, context.env)
            return f"the table at {storage.uri} has no rows left, but some of its files exist: drop it again"
    except HudiError as error:
        return f"the table at {storage.uri} is partly deleted; delete its folder to remove the rest ({error})"
    return f"the table at {storage.uri} is partly deleted; delete its folder to remove the rest"
