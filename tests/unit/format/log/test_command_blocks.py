"""COMMAND blocks and valid blocks of a slice, for sequences measured on Apache Hudi."""

from __future__ import annotations

import pytest

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.log.command_blocks import RollbackCommand, decode_command, surviving_blocks
from pyhudi.format.log.framing import BlockType, CorruptBlock, HeaderKey, LogBlock, encode_block, scan_blocks


def blocks(data: bytes) -> list[LogBlock | CorruptBlock]:
    return list(scan_blocks(lambda offset, size: data[offset : offset + size], len(data)))


def data_block(instant: str, kind: BlockType = BlockType.AVRO) -> bytes:
    return encode_block(kind, {HeaderKey.INSTANT_TIME: instant}, b"x")


def test_rollback_command_round_trips() -> None:
    command = RollbackCommand("20261121052509886", "20261121052508467")
    assert len(command.encode()) == 105
    (block,) = blocks(command.encode())
    assert isinstance(block, LogBlock)
    assert decode_command(block) == command


def survivors(*files: bytes, seen: str = "123456789") -> list[tuple[int, str]]:
    listed = [(number, block) for number, data in enumerate(files) for block in blocks(data)]
    return [(number, block.instant_time) for number, block in surviving_blocks(listed, lambda instant: instant in seen)]


def rollback(target: str) -> bytes:
    # The instant of the rollback itself is not looked at.
    return RollbackCommand("unknown", target).encode()


def test_rollbacks() -> None:
    one, two, deletes = data_block("1"), data_block("2"), data_block("2", BlockType.DELETE)
    assert survivors(one + two + deletes) == [(0, "1"), (0, "2"), (0, "2")]
    assert survivors(one + two + deletes + rollback("2")) == [(0, "1")]
    assert survivors(one + two, rollback("1") + one) == [(0, "2"), (1, "1")]
    assert survivors(rollback("1"), one) == [(1, "1")]
    assert survivors(one, two, rollback("1") + rollback("2")) == []


def test_instants_that_do_not_count_and_damage() -> None:
    one, two = data_block("1"), data_block("2")
    assert survivors(one + two, one, seen="2") == [(0, "2")]
    assert survivors(one[:-3] + two) == [(0, "2")]
    assert survivors(b"", one) == [(1, "1")]


def test_unsupported_log_block_is_rejected() -> None:
    with pytest.raises(Unsupported, match="CDC"):
        survivors(data_block("1", BlockType.CDC))
    unknown = encode_block(BlockType.COMMAND, {HeaderKey.INSTANT_TIME: "1", HeaderKey.COMMAND_BLOCK_TYPE: "1"})
    with pytest.raises(Unsupported, match="command"):
        survivors(unknown)
    for headers in ({}, {HeaderKey.COMMAND_BLOCK_TYPE: "0"}):
        with pytest.raises(CorruptData):
            survivors(encode_block(BlockType.COMMAND, {HeaderKey.INSTANT_TIME: "1", **headers}))
    (block,) = blocks(data_block("1"))
    assert isinstance(block, LogBlock)
    with pytest.raises(CorruptData):
        decode_command(block)
