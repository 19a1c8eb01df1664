"""Archived timeline of timeline layout 1: log files whose Avro blocks hold one `ArchivedEntry` per state of an instant.

    file      `.commits_.archive.<n>_<token>`, in `.hoodie/<hoodie.archivelog.folder>`
    block     headers SCHEMA (of the writer), INSTANT_TIME
    content   int 3, int count, then for each entry an int size and one Avro datum

`rows_from_entries` and `entries_from_row` convert between archived instants of layout 1 and rows of the LSM timeline of
layout 2. A row has no column for the documents of requested and inflight states that are not plans: they are dropped.

Not done here: listing the archive files, or sorting the rows.
Specification: docs/formats/timeline.md, "Version 6".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.actions.archived_instants import COMMIT_LIKE, ArchivedEntry, decode_completed, decode_plan
from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanMetadata
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.actions.compaction_plan import CompactionPlan
from pyhudi.format.actions.index_plan import IndexCommitMetadata
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.actions.rollback_metadata import RollbackMetadata
from pyhudi.format.actions.savepoint_metadata import SavepointMetadata
from pyhudi.format.avro.container import check_type, decode_datum, encode_datum
from pyhudi.format.avro.schema import parse_schema
from pyhudi.format.byte_cursor import ByteCursor
from pyhudi.format.instants import Action, State, comparable_action, parse_action
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock, encode_block
from pyhudi.format.lsm_timeline import HistoryRow

CONTENT_VERSION: Final = 3


def encode_archive_block(entries: Sequence[ArchivedEntry]) -> bytes:
    """Encode one complete archive block.

    Args:
        entries: At least one entry. The INSTANT_TIME header is that of the last entry; no reader uses it.
    """
    pieces = [_HEAD.pack(CONTENT_VERSION, len(entries))]
    for entry in entries:
        datum = encode_datum(ArchivedEntry.SCHEMA, entry)
        pieces += [_SIZE.pack(len(datum)), datum]
    headers = {HeaderKey.INSTANT_TIME: entries[-1].commit_time or "", HeaderKey.SCHEMA: ArchivedEntry.SCHEMA.text}
    return encode_block(BlockType.AVRO, headers, b"".join(pieces))


def decode_archive_block(block: LogBlock, content: bytes) -> tuple[ArchivedEntry, ...]:
    """Decode the entries of an archive block.

    Raises:
        CorruptData: A size or a count does not fit the block.
        Unsupported: Another block type, or an unknown content version.
    """
    if block.kind is not BlockType.AVRO:
        raise Unsupported(f"an archive has a {block.kind.name} block at byte {block.offset}, which is not supported")
    writer = parse_schema(block.required(HeaderKey.SCHEMA))
    cursor = ByteCursor(content)
    version, count = cursor.i32(), cursor.i32()
    if not 1 <= version <= CONTENT_VERSION:
        raise Unsupported(f"unsupported version {version} of an archive block: versions 1 to {CONTENT_VERSION} are supported")
    if not 0 <= count <= cursor.remaining // _SIZE.size:
        raise CorruptData("invalid number of entries in an archive block", offset=4, found=count)
    entries = []
    for _ in range(count):
        size = cursor.i32()
        if not 0 <= size <= cursor.remaining:
            raise CorruptData("an archived entry extends past the end of its block", expected=cursor.remaining, found=size)
        entries.append(check_type(decode_datum(writer, cursor.read(size), ArchivedEntry.SCHEMA), ArchivedEntry))
    return tuple(entries)


def rows_from_entries(entries: Iterable[ArchivedEntry]) -> Iterator[HistoryRow]:
    """Yield the completed instants among the entries as rows of the LSM timeline, in the order of their first entry.

    `completion_time` is None where the archive does not record it.

    Raises:
        CorruptData: An entry without an instant time or action.
    """
    by_instant: dict[tuple[str, Action], list[ArchivedEntry]] = {}
    for entry in entries:
        if not entry.commit_time or not entry.action_type:
            raise CorruptData("an archived entry has no instant time or no action")
        action = comparable_action(parse_action(entry.action_type))
        by_instant.setdefault((entry.commit_time, action), []).append(entry)
    for (time, action), states in by_instant.items():
        # Very old releases archived completed instants only, without a state.
        completed = [entry for entry in states if entry.action_state in (None, State.COMPLETED.name)]
        if not completed:
            continue
        row = completed[-1]
        plans = [plan for entry in states if (plan := _plan_of(action, entry)) is not None]
        yield HistoryRow(
            time,
            row.state_transition_time or None,
            action.value,
            _document_of(action, row),
            plans[-1] if plans else None,
        )


def entries_from_row(row: HistoryRow) -> tuple[ArchivedEntry, ...]:
    """Return the states of an archived instant: requested (with its plan, if any), inflight, completed.

    Raises:
        CorruptData: A document cannot be decoded.
        Unsupported: The archive of layout 1 has no field for this action.
    """
    action = parse_action(row.action)
    return (
        _entry(row, _planned_action(action, row.plan), State.REQUESTED, _plan_fields(action, row.plan)),
        _entry(row, _planned_action(action, row.plan), State.INFLIGHT, {}),
        _entry(row, action, State.COMPLETED, _completed_fields(action, row.metadata)),
    )


def _entry(row: HistoryRow, action: Action, state: State, fields: dict[str, object]) -> ArchivedEntry:
    return ArchivedEntry(
        commit_time=row.instant_time,
        action_type=action.value,
        action_state=state.name,
        state_transition_time=row.completion_time if state is State.COMPLETED else None,
        **fields,  # type: ignore[arg-type]
    )


def _planned_action(action: Action, plan: bytes | None) -> Action:
    if plan is None:
        return action
    return {Action.COMMIT: Action.COMPACTION, Action.DELTACOMMIT: Action.LOGCOMPACTION}.get(action, action)


def _plan_fields(action: Action, plan: bytes | None) -> dict[str, object]:
    if plan is None:
        return {}
    document = decode_plan(action, plan)
    if isinstance(document, CompactionPlan):
        return {"hoodie_compaction_plan": document}
    if isinstance(document, CleanerPlan):
        return {"hoodie_cleaner_plan": document}
    if isinstance(document, RequestedReplaceMetadata):
        return {"hoodie_requested_replace_metadata": document}
    return {"hoodie_inflight_replace_metadata": document}


def _completed_fields(action: Action, metadata: bytes | None) -> dict[str, object]:
    if metadata is None and action not in COMMIT_LIKE:
        return {}
    document = decode_completed(action, metadata or b"")
    if isinstance(document, CommitMetadata):
        if action is Action.REPLACECOMMIT:
            return {"hoodie_replace_commit_metadata": document}
        return {"hoodie_commit_metadata": document}
    names: dict[type, str] = {
        CleanMetadata: "hoodie_clean_metadata",
        RollbackMetadata: "hoodie_rollback_metadata",
        SavepointMetadata: "hoodie_save_point_metadata",
        IndexCommitMetadata: "hoodie_index_commit_metadata",
    }
    name = names.get(type(document))
    if name is None:
        raise Unsupported(f"the archive before table version 8 cannot store a {action.value} instant")
    return {name: document}


def _document_of(action: Action, entry: ArchivedEntry) -> bytes | None:
    if action is Action.REPLACECOMMIT:
        replaced = entry.hoodie_replace_commit_metadata
        return None if replaced is None else _as_replacing(replaced).encode()
    document = {
        Action.COMMIT: entry.hoodie_commit_metadata,
        Action.DELTACOMMIT: entry.hoodie_commit_metadata,
        Action.CLEAN: entry.hoodie_clean_metadata,
        Action.ROLLBACK: entry.hoodie_rollback_metadata,
        Action.SAVEPOINT: entry.hoodie_save_point_metadata,
        Action.INDEXING: entry.hoodie_index_commit_metadata,
    }.get(action)
    return None if document is None else document.encode()


def _as_replacing(document: CommitMetadata) -> CommitMetadata:
    if document.partition_to_replace_file_ids is not None:
        return document
    return CommitMetadata(
        document.partition_to_write_stats,
        document.compacted,
        document.extra_metadata,
        document.operation_type,
        {},
        document.version,
    )


def _plan_of(action: Action, entry: ArchivedEntry) -> bytes | None:
    if entry.action_state == State.COMPLETED.name:
        return None
    if action in (Action.COMMIT, Action.DELTACOMMIT):
        return None if entry.hoodie_compaction_plan is None else entry.hoodie_compaction_plan.encode()
    if action is Action.CLEAN:
        return None if entry.hoodie_cleaner_plan is None else entry.hoodie_cleaner_plan.encode()
    if action is Action.REPLACECOMMIT and entry.hoodie_requested_replace_metadata is not None:
        return entry.hoodie_requested_replace_metadata.encode()
    return None


_HEAD: Final = struct.Struct(">ii")
_SIZE: Final = struct.Struct(">i")
