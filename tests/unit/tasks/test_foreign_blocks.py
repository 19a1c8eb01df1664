"""Blocks of other writers in the logs of a slice: delete blocks of older versions, commands, and what has no place there."""

from __future__ import annotations

import pytest

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.log.framing import BlockType, HeaderKey
from tests.support.kryo import class_named, kryo, text
from tests.support.log_slices import COMMIT, Block, Slice, data, delete, plain_delete, time


def old_delete(version: int, *keys: str) -> Block:
    """Keys of version 1; of version 2 records with the ordering value 6, as a long."""
    if version == 1:
        return BlockType.DELETE, {}, kryo(1, [b"\x01" + text("part") + b"\x01" + text(key) for key in keys])
    elements = []
    for number, key in enumerate(keys):
        named = class_named(2, "org.apache.hudi.common.model.HoodieKey") if number == 0 else b"\x01\x02"
        elements.append(named + b"\x01" + b"\x01" + text("part") + b"\x01" + text(key) + b"\x09\x0c")
    return BlockType.DELETE, {}, kryo(2, elements)


def command(kind: str, **headers: str) -> Block:
    named = {HeaderKey[name]: value for name, value in headers.items()}
    return BlockType.COMMAND, {HeaderKey.COMMAND_BLOCK_TYPE: kind, **named}, b""


BASE = [("kay", 5, 1), ("kbe", 5, 2), ("kce", 5, 3)]


def test_delete_blocks_of_each_version() -> None:
    updates = data(1, ("kay", 6, 10), ("kbe", 7, 11))
    # Version 1 knows no ordering values: its keys are deleted.
    assert Slice(BASE).log(1, updates).log(2, old_delete(1, "kay", "kbe")).rows() == [("kce", 5, 3)]
    # In versions 2 and 3 the row with the larger value stays.
    second = Slice(BASE).log(1, updates).log(2, old_delete(2, "kay"), old_delete(2, "kbe"), old_delete(2, "kce"))
    assert second.rows() == [("kbe", 7, 11)]
    assert Slice(BASE).log(1, updates).log(2, delete(kay=6, kbe=6, kce=6)).rows() == second.rows()
    for version in (1, 2):
        assert Slice(BASE, COMMIT).log(1, updates).log(2, old_delete(version, "kbe")).rows() == [("kay", 6, 10), ("kce", 5, 3)]


def of_attempt(block: Block, attempt: int, number: int) -> Block:
    kind, headers, content = block
    return kind, {**headers, HeaderKey.BLOCK_IDENTIFIER: f"{attempt},{number}"}, content


def test_a_task_that_was_tried_again_is_read_once() -> None:
    """The attempt that came furthest, and of several the last; a block without an attempt is no duplicate."""
    first = [of_attempt(data(1, ("kay", 6, 10)), 0, 0), of_attempt(data(1, ("kbe", 6, 11)), 0, 1)]
    short = of_attempt(data(1, ("kay", 7, 99)), 1, 0)
    assert Slice(BASE).log(1, *first, short).rows() == [("kay", 6, 10), ("kbe", 6, 11), BASE[2]]
    assert Slice(BASE).log(1, short, *first).rows() == [("kay", 6, 10), ("kbe", 6, 11), BASE[2]]
    last = [of_attempt(data(1, ("kay", 6, 20)), 1, 0), of_attempt(data(1, ("kce", 6, 21)), 1, 1)]
    slice_ = Slice(BASE).log(1, *first, *last)
    assert slice_.rows() == [("kay", 6, 20), BASE[1], ("kce", 6, 21)]
    stat, _ = slice_.compact()
    assert (stat.total_log_blocks, stat.total_log_records) == (2, 2)
    # Another instant, another count; and no identifier, no attempt.
    assert slice_.log(2, of_attempt(data(2, ("kbe", 9, 30)), 7, 0), data(2, ("kay", 9, 31))).rows() == [
        ("kay", 9, 31),
        ("kbe", 9, 30),
        ("kce", 6, 21),
    ]


def test_rollback_block_removes_earlier_blocks_of_its_target() -> None:
    slice_ = Slice(BASE).log(1, data(1, ("kay", 6, 10))).log(2, data(2, ("kay", 7, 11)), plain_delete("kbe"))
    assert slice_.rows() == [("kay", 7, 11), ("kce", 5, 3)]
    assert slice_.log(3, command("0", TARGET_INSTANT_TIME=time(2))).rows() == [("kay", 6, 10), *BASE[1:]]
    # Compactions see the same, and count it.
    stat, written = slice_.compact()
    assert written["value"].to_pylist() == [10, 2, 3]
    assert (stat.total_rollback_blocks, stat.total_log_blocks) == (1, 1)


@pytest.mark.parametrize(
    ("block", "error", "message"),
    [
        (command("1", TARGET_INSTANT_TIME=time(1)), Unsupported, "unsupported command '1'"),
        (command("0"), CorruptData, "TARGET_INSTANT_TIME"),
        ((BlockType.CDC, {}, b""), Unsupported, "change data block"),
    ],
)
def test_unsupported_block_in_a_log_is_rejected(block: Block, error: type[Exception], message: str) -> None:
    slice_ = Slice(BASE).log(1, data(1, ("kay", 6, 10))).log(2, block)
    with pytest.raises(error, match=message):
        slice_.rows()
