"""Accept the loss of committed files: part of a repair.

    1. lock; find the lost files again
    2. drop the metadata table, which lists them
    3. a commit without files, whose extra metadata records the lost files (`table.committed_files`)
    4. delete damaged files that cannot be read; the others keep what readers find in them
    5. rebuild the metadata table with its indexes; unlock

After a crash in between the loss is either not recorded, and every rebuild refuses it again, or recorded.

Source: docs/formats/timeline.md, "Commit metadata".
"""

from __future__ import annotations

from dataclasses import replace

from pyhudi.errors import CorruptData, TableState
from pyhudi.format.actions.commit_metadata import LOST_FILES_KEY, CommitMetadata, Operation
from pyhudi.format.instants import Action
from pyhudi.format.names import parse_log_file
from pyhudi.format.paths import file_name
from pyhudi.metadata_table.codecs.metadata_partitions import FILES
from pyhudi.metadata_table.indexes import in_build_order, is_defined
from pyhudi.metadata_table.lost_files import find_lost, find_undone
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.metadata_table.writer.initialize_partitions import build_partitions
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import drop_store
from pyhudi.operations.admin.validate_data import LogCount, count_log
from pyhudi.operations.commit.action_attempt import rollback_on_error
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.planned_commit import PlannedCommit, commit_metadata
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.table.committed_files import LostFile, encode_lost_files
from pyhudi.table.file_slices import LogFile
from pyhudi.table.listing import table_folders
from pyhudi.table.snapshot import Snapshot, directory_listing, load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.base_file_reader import open_base_file
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.log_scan import InstantValidity

_LONGEST_MS = 600_000


def accept_lost_files(context: TableContext, engine: Engine, commit: CommitSettings, metadata: MetadataSettings) -> None:
    """Record the lost files of a table in a commit, and rebuild its metadata table without them."""
    check_writable(context)
    with context.exclusive(commit.lock_wait_ms, _LONGEST_MS) as held:
        held = held.reloaded()
        snapshot = load_snapshot(held, directory_listing)
        sizes = {info.path: info.size_bytes for _, listing in table_folders(held.storage) for info in listing.files}
        lost = find_lost(snapshot, sizes)
        if not lost:
            return
        deleted = [one.file.path for one in lost if one.found_bytes is not None and not _is_readable(snapshot, one)]
        lost = tuple(replace(one, found_bytes=None) if one.file.path in deleted else one for one in lost)
        indexes = {*held.config.metadata_partitions, *(d for d in load_index_definitions(held) if is_defined(d))}
        has_metadata_table = held.config.has_metadata_table
        if has_metadata_table:
            with held.locked() as locked:
                drop_store(locked)
            held = held.reloaded()
        _commit(held, commit, lost)
        with held.locked() as locked:
            # Without the metadata table, which may list files that cleans have deleted if its own files were lost.
            snapshot = load_snapshot(locked, directory_listing)
            locked.storage.delete([*deleted, *find_undone(snapshot, sizes)])
            schema = snapshot.schema
            if has_metadata_table and schema is not None:
                ordered = in_build_order(sorted({FILES, *indexes}))
                build_partitions(locked, engine, metadata, ordered, schema.arrow, schema.arrow)


def _is_readable(snapshot: Snapshot, lost: LostFile) -> bool:
    """Return True if readers accept what remains of a damaged file."""
    context, path = snapshot.context, lost.file.path
    log = parse_log_file(file_name(path))
    try:
        if log is not None:
            validity = InstantValidity.of(snapshot.timeline)
            count_log(LogCount(context.storage.spec(), LogFile(path, log, lost.found_bytes or 0), validity))
            return True
        with open_base_file(context.storage, path):
            return True
    except (CorruptData, TableState):
        return False


def _commit(context: TableContext, settings: CommitSettings, lost: tuple[LostFile, ...]) -> None:
    """Publish the commit that records lost files."""
    action = Action.COMMIT if context.config.is_cow else Action.DELTACOMMIT
    transaction = Transaction.begin(context, action, settings)
    with rollback_on_error(transaction):
        snapshot = load_snapshot(context, directory_listing, timeline=transaction.requested_on)
        transaction.planned_on(snapshot)
        transaction.start(CommitMetadata(operation_type=Operation.UNKNOWN.value).encode(context.env.token_bytes(16)))
        text = "" if snapshot.schema is None else snapshot.schema.stored_avro(context.config.name)
        extra = {LOST_FILES_KEY: encode_lost_files(lost)}
        transaction.commit(PlannedCommit(commit_metadata(Operation.UNKNOWN, (), text, extra)))
