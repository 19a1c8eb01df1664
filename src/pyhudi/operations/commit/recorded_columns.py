"""What a commit records about the table's columns: the current schema, and column ids with schema on read.

Source: docs/formats/reading.md, "Columns by ids"; docs/formats/writing.md, "Completing a commit".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyhudi.errors import WriteConflict
from pyhudi.format.actions.commit_metadata import LATEST_SCHEMA_KEY, SCHEMA_KEY, CommitMetadata
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.instants import Instant
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.schema_history import VersionedSchema, encode_schema
from pyhudi.operations.commit.planned_commit import LockedCommit
from pyhudi.planning.conflicts import WriteStart, schema_to_commit
from pyhudi.records.schema_on_read.column_ids import reconciled, same_columns
from pyhudi.table.schema_on_read_history import ColumnHistory, WrittenColumns, load_column_history
from pyhudi.table.snapshot import load_schema
from pyhudi.table.timeline.active_timeline import Timeline


@dataclass(frozen=True, slots=True)
class RecordedColumns:
    """A commit with the columns that it records.

    Attributes:
        commit: The commit with its final metadata.
        history: The schema history to write with it: None if columns have no ids, () if it does not change.
    """

    commit: LockedCommit
    history: tuple[VersionedSchema, ...] | None


def record_columns(
    commit: LockedCommit, start: WriteStart | None, columns: WrittenColumns | None, without_ids: Timeline | None
) -> RecordedColumns:
    """Complete the metadata of a commit with the table's current columns.

    Args:
        start: The state that it was planned on, see `PlannedCommit`.
        columns: Columns of the write with ids, if the table resolves columns by id.
        without_ids: A timeline on which the table was found to have no column history; None if unknown.

    Raises:
        WriteConflict: Another write changed the columns concurrently.
    """
    metadata, history = _with_ids(commit, columns, without_ids)
    if history is None and start is not None and start.schema is not None:
        metadata = _with_schema(commit, start.schema)
    return RecordedColumns(replace(commit, metadata=metadata), history)


def _with_ids(
    commit: LockedCommit, columns: WrittenColumns | None, without_ids: Timeline | None
) -> tuple[CommitMetadata, tuple[VersionedSchema, ...] | None]:
    """Return the metadata with the ids of the table's columns, and the history as in `RecordedColumns`.

    Readers resolve the files of an instant with the columns at its request time, so these must be the columns that it
    was planned with. The newest request time defines the current columns, so no later-requested write may precede a
    commit that changes them.
    """
    metadata, history = commit.metadata, _column_history(commit, without_ids)
    if history is None and columns is not None and columns.assigns_ids:
        history = _first_history(commit)
    current = None if history is None else history.at(commit.instant_time)
    if history is None or current is None:
        if columns is not None:
            raise _columns_conflict(
                commit, "were planned with column ids, and the change that assigned the ids was rolled back concurrently"
            )
        return metadata, None
    extra = dict(metadata.extra_metadata)
    if not metadata.operation.sets_schema:
        return replace(metadata, extra_metadata={**extra, LATEST_SCHEMA_KEY: encode_schema(current)}), ()
    if columns is None and current.version_id == 0:
        # The write began before the first change and uses the column names of version 0.
        if not _has_columns(metadata, current):
            raise _columns_conflict(commit, "were changed concurrently, and assigned ids")
        return metadata, ()
    if columns is None or columns.basis != current:
        raise _columns_conflict(commit, "were changed concurrently")
    if columns.changes and any(_later_setting_columns(commit)):
        raise _columns_conflict(commit, "would be changed by a write older than one that has already set them")
    extra[LATEST_SCHEMA_KEY] = encode_schema(columns.schema)
    entries = history.history_with(columns.schema)
    return replace(metadata, extra_metadata=extra), (columns.schema, *entries) if columns.changes else entries


def _column_history(commit: LockedCommit, without_ids: Timeline | None) -> ColumnHistory | None:
    """Return the table's column history, or None. The lookup is skipped if no commit since the last check can have added one."""
    timeline, store = commit.timeline, commit.context.timeline
    if without_ids is not None and without_ids.start == timeline.start:
        known = set(without_ids.completed_writes())
        since = (commit.commits.read(store, instant) for instant in timeline.completed_writes() if instant not in known)
        if not any(LATEST_SCHEMA_KEY in metadata.extra_metadata for metadata in since):
            return None
    return load_column_history(commit.context, timeline, commit.commits.read)


def _first_history(commit: LockedCommit) -> ColumnHistory | None:
    """Return the table's columns before the first change by id, or None if there are none."""
    context = commit.context
    schema = load_schema(context.timeline, commit.timeline, context.config, read=commit.commits.read)
    return None if schema is None else ColumnHistory.first(schema.arrow)


def _later_setting_columns(commit: LockedCommit) -> Iterator[Instant]:
    """Return the later-requested writes that set the columns."""
    store = commit.context.timeline
    for instant in reversed(commit.timeline.completed_writes()):
        if instant.request_time > commit.instant_time and commit.commits.read(store, instant).operation.sets_schema:
            yield instant


def _columns_conflict(commit: LockedCommit, description: str) -> WriteConflict:
    last = commit.timeline.last_completed_write()
    return WriteConflict(
        f"{commit.action} {commit.instant_time} of {commit.context.storage.uri}: the table's columns {description}; write the "
        "data again",
        instants=(last.request_time,) if last else (),
    )


def _with_schema(commit: LockedCommit, start: str) -> CommitMetadata:
    """Return the metadata with the table's current schema, if another write changed it and this one did not."""
    context, extra = commit.context, dict(commit.metadata.extra_metadata)
    current = load_schema(context.timeline, commit.timeline, context.config, read=commit.commits.read)
    schema = schema_to_commit(extra.get(SCHEMA_KEY, ""), start, current.avro if current else "")
    if schema is None:
        raise _columns_conflict(commit, "would be changed, and another write changed them concurrently")
    return replace(commit.metadata, extra_metadata={**extra, SCHEMA_KEY: schema})


def _has_columns(metadata: CommitMetadata, is_present: VersionedSchema) -> bool:
    """Return True if a commit that resolves columns by name leaves the columns unchanged."""
    text = metadata.extra_metadata.get(SCHEMA_KEY)
    return not text or same_columns(is_present, reconciled(is_present, with_meta_fields(avro_to_arrow(text)), 0))
