"""The archive of timeline layout 1: whole, truncated and damaged blocks; conversion of instants in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.actions.archived_instants import ArchivedEntry
from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanMetadata
from pyhudi.format.actions.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.actions.compaction_plan import CompactionOperation, CompactionPlan
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.actions.restore_metadata import RestoreMetadata
from pyhudi.format.archive_v1 import decode_archive_block, encode_archive_block, entries_from_row, rows_from_entries
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock, encode_block, scan_blocks
from pyhudi.format.lsm_timeline import HistoryRow

COMMIT = CommitMetadata({"p": (WriteStat(file_id="f", path="p/f_1-0-1_1.parquet"),)}, extra_metadata={"schema": "{}"})
REPLACE = CommitMetadata(operation_type="CLUSTER", partition_to_replace_file_ids={"p": ("f",)})
PLAN = CompactionPlan(operations=(CompactionOperation(base_instant_time="1", file_id="f"),))
CLEAN = CleanMetadata("3", 1, 0, "", "", {})
CLEAN_PLAN = CleanerPlan(None, "", "KEEP_LATEST_COMMITS")
ROWS = (
    HistoryRow("20260101000000001", "20260101000000002", "commit", COMMIT.encode(), PLAN.encode()),
    HistoryRow("20260101000000003", "20260101000000004", "deltacommit", COMMIT.encode(), None),
    HistoryRow("20260101000000005", "20260101000000006", "clean", CLEAN.encode(), CLEAN_PLAN.encode()),
    HistoryRow("20260101000000007", "20260101000000008", "replacecommit", REPLACE.encode(), RequestedReplaceMetadata().encode()),
)
ENTRIES = tuple(entry for row in ROWS for entry in entries_from_row(row))
BLOCK = encode_archive_block(ENTRIES)


def decoded(data: bytes) -> tuple[ArchivedEntry, ...]:
    read = lambda offset, length: data[offset : offset + length]  # noqa: E731
    found: list[ArchivedEntry] = []
    for block in scan_blocks(read, len(data)):
        if isinstance(block, LogBlock):
            found += decode_archive_block(block, block.read_content(read))
    return tuple(found)


def test_rows_become_entries_and_rows_again() -> None:
    assert decoded(BLOCK) == ENTRIES
    assert tuple(rows_from_entries(ENTRIES)) == ROWS
    assert [(e.action_type, e.action_state) for e in entries_from_row(ROWS[0])] == [
        ("compaction", "REQUESTED"),
        ("compaction", "INFLIGHT"),
        ("commit", "COMPLETED"),
    ]
    assert tuple(rows_from_entries(decoded(BLOCK + BLOCK))) == ROWS


def test_entries_of_old_writers() -> None:
    old = ArchivedEntry(commit_time="20260101000000001", action_type="commit", hoodie_commit_metadata=COMMIT)
    (row,) = rows_from_entries([old])
    assert row.completion_time is None and row.metadata == COMMIT.encode()
    pending = ArchivedEntry(commit_time="20260101000000001", action_type="commit", action_state="INFLIGHT")
    assert list(rows_from_entries([pending])) == []
    without = ArchivedEntry(
        commit_time="20260101000000001",
        action_type="replacecommit",
        action_state="COMPLETED",
        hoodie_replace_commit_metadata=COMMIT,
    )
    (row,) = rows_from_entries([without])
    assert CommitMetadata.decode(row.metadata or b"").partition_to_replace_file_ids == {}


@pytest.mark.parametrize(
    "entry",
    [ArchivedEntry(action_type="commit"), ArchivedEntry(commit_time="1"), ArchivedEntry(commit_time="1", action_type="vacuum")],
)
def test_empty_archive_entries_are_corrupt(entry: ArchivedEntry) -> None:
    with pytest.raises(CorruptData):
        list(rows_from_entries([entry]))


def test_an_action_without_a_place_is_refused() -> None:
    row = HistoryRow("1", "2", "restore", RestoreMetadata("1", 1, (), {}).encode())
    with pytest.raises(Unsupported, match="restore"):
        entries_from_row(row)


def test_other_types_and_versions_of_blocks() -> None:
    headers = {HeaderKey.INSTANT_TIME: "1", HeaderKey.SCHEMA: ArchivedEntry.SCHEMA.text}
    with pytest.raises(Unsupported, match="version 9"):
        decoded(encode_block(BlockType.AVRO, headers, b"\x00\x00\x00\x09\x00\x00\x00\x00"))
    with pytest.raises(CorruptData, match="number of entries"):
        decoded(encode_block(BlockType.AVRO, headers, b"\x00\x00\x00\x03\x7f\xff\xff\xff"))
    with pytest.raises(CorruptData, match="past the end"):
        decoded(encode_block(BlockType.AVRO, headers, b"\x00\x00\x00\x03\x00\x00\x00\x01\x7f\xff\xff\xff"))
    with pytest.raises(Unsupported, match="DELETE"):
        decoded(encode_block(BlockType.DELETE, headers, b""))


def test_every_cut_gives_nothing_or_an_error() -> None:
    for end in range(0, len(BLOCK), 7):
        assert decoded(BLOCK[:end]) == ()


@given(st.integers(0, len(BLOCK) * 8 - 1))
def test_a_flipped_bit_gives_entries_or_an_error(bit: int) -> None:
    data = bytearray(BLOCK)
    data[bit // 8] ^= 1 << bit % 8
    try:
        list(rows_from_entries(decoded(bytes(data))))
    except (CorruptData, Unsupported):
        pass
