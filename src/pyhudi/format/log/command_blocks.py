"""COMMAND blocks, and the selection of the blocks of a file slice that a reader merges.

A COMMAND block has no content. Its only command, COMMAND_BLOCK_TYPE 0, rolls back the blocks of a failed instant:

    INSTANT_TIME         the instant of the rollback
    TARGET_INSTANT_TIME  the instant that is rolled back

Tables of version 8 delete the log files of failed instants instead, so such blocks occur in upgraded tables only.

Specification: docs/formats/log-file.md, COMMAND block.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.log.framing import BlockType, CorruptBlock, HeaderKey, LogBlock, encode_block

Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class RollbackCommand:
    """Roll back the blocks of `target_instant_time` that precede this block in the slice."""

    instant_time: str
    target_instant_time: str

    def encode(self) -> bytes:
        """Return the complete block."""
        return encode_block(
            BlockType.COMMAND,
            {
                HeaderKey.INSTANT_TIME: self.instant_time,
                HeaderKey.TARGET_INSTANT_TIME: self.target_instant_time,
                HeaderKey.COMMAND_BLOCK_TYPE: _ROLLBACK,
            },
        )


def decode_command(block: LogBlock) -> RollbackCommand:
    """Decode the command of a COMMAND block.

    Raises:
        CorruptData: A header is missing.
        Unsupported: Another command.
    """
    if block.kind is not BlockType.COMMAND:
        raise CorruptData("not a COMMAND block", offset=block.offset, expected="COMMAND", found=block.kind.name)
    kind = block.required(HeaderKey.COMMAND_BLOCK_TYPE)
    if kind != _ROLLBACK:
        raise Unsupported(f"unsupported command {kind!r} in the log block at byte {block.offset}: only {_ROLLBACK} is supported")
    return RollbackCommand(block.instant_time, block.required(HeaderKey.TARGET_INSTANT_TIME))


def surviving_blocks(
    blocks: Iterable[tuple[Source, LogBlock | CorruptBlock]], counts: Callable[[str], bool]
) -> list[tuple[Source, LogBlock]]:
    """Return the data and delete blocks that a reader merges, in their order.

    A rollback drops the blocks of its target that precede it, in the same or an earlier file; later blocks of the same
    instant remain. Corrupt blocks are dropped, and so are duplicates from retried tasks (see `deduplicate_attempts`).

    Args:
        blocks: All blocks of a slice, its files in their order, each with the value that identifies its source for the
            caller.
        counts: Whether the timeline makes the blocks of an instant (its request time) visible. Called for data and
            delete blocks only.

    Raises:
        Unsupported: A CDC block, which is invalid in an ordinary log file.
    """
    surviving: list[tuple[Source, LogBlock]] = []
    for source, block in blocks:
        if isinstance(block, CorruptBlock):
            continue
        if block.kind is BlockType.COMMAND:
            target = decode_command(block).target_instant_time
            surviving = [entry for entry in surviving if entry[1].instant_time != target]
        elif block.kind is BlockType.CDC:
            raise Unsupported(f"a CDC block in an ordinary log file, at byte {block.offset}, is not supported")
        elif counts(block.instant_time):
            surviving.append((source, block))
    return deduplicate_attempts(surviving, lambda entry: entry[1])


def deduplicate_attempts(blocks: Sequence[Source], block_getter: Callable[[Source], LogBlock]) -> list[Source]:
    """Drop duplicate blocks of tasks that were retried and whose attempts all left blocks.

    Releases before 1.0 record the attempt in a block's identifier, as `<attempt>,<number of the block>`. Of the
    attempts of an instant, the one with the most blocks is the most complete; of several such, the last one counts.
    Blocks without such an identifier all remain. Hudi 1.0.2 intends to deduplicate and retains all of them.

    Args:
        blocks: The visible blocks of one slice, in any form that `block_getter` accepts.
        block_getter: Returns the block.
    """
    attempts: dict[str, Counter[int]] = {}
    for source in blocks:
        attempt = _attempt_of(block_getter(source))
        if attempt is not None:
            attempts.setdefault(block_getter(source).instant_time, Counter())[attempt] += 1
    counted = {instant: max(counts, key=lambda n: (counts[n], n)) for instant, counts in attempts.items() if len(counts) > 1}
    if not counted:
        return list(blocks)

    def is_read(block: LogBlock) -> bool:
        attempt = _attempt_of(block)
        return attempt is None or counted.get(block.instant_time, attempt) == attempt

    return [source for source in blocks if is_read(block_getter(source))]


def _attempt_of(block: LogBlock) -> int | None:
    matched = _IDENTIFIER.fullmatch(block.header(HeaderKey.BLOCK_IDENTIFIER) or "")
    return int(matched[1]) if matched else None


def without_compacted(
    counted_blocks: Sequence[Source], block_getter: Callable[[Source], LogBlock], *, only_marked: bool = False
) -> list[Source]:
    """Drop the blocks that a log compaction merged, and keep those of the log compaction.

    The blocks of a log compaction take the position of the newest block that it merged, so that blocks requested before
    it and completed after it still follow it.

    A log compaction of Hudi 1.0.2 skips partial updates, but records them as merged. A log compaction without a partial
    block is therefore ignored if it names an instant that has some: all blocks remain, and its own come last.

    Args:
        counted_blocks: The visible blocks in merge order, in any form that `block_getter` accepts.
        block_getter: Returns the block.
        only_marked: Also ignore a log compaction without PyHudi's mark, a delete block before the others. Set it if a
            payload class or a merger merges the table: Hudi merges by ordering value in a log compaction, regardless of the
            class, and its readers read the original blocks.
    """
    partial = {block_getter(source).instant_time for source in counted_blocks if block_getter(source).is_partial}
    blocks = [block_getter(source) for source in counted_blocks]
    first = {block.instant_time: block for block in reversed(blocks)}
    several = {block.instant_time for block in blocks if block is not first[block.instant_time]}
    covering: dict[str, str] = {}
    for source in counted_blocks:
        compaction_time = block_getter(source).instant_time
        if only_marked and not (compaction_time in several and first[compaction_time].kind is BlockType.DELETE):
            continue
        if compaction_time not in partial and not partial.isdisjoint(block_getter(source).compacted_block_times):
            continue
        for instant in block_getter(source).compacted_block_times:
            # A log compaction is later than the instants that it merged; ignore any other entry of the list.
            if instant < compaction_time:
                covering[instant] = max(covering.get(instant, ""), compaction_time)
    if not covering:
        return list(counted_blocks)
    positions: dict[str, int] = {}
    for position, source in enumerate(counted_blocks):
        final = block_getter(source).instant_time
        while final in covering:
            final = covering[final]
        if final != block_getter(source).instant_time:
            positions[final] = position
    moved: dict[int, list[Source]] = {}
    unmoved: list[tuple[int, Source]] = []
    for position, source in enumerate(counted_blocks):
        instant = block_getter(source).instant_time
        if instant in covering:
            continue
        if instant in positions:
            moved.setdefault(positions[instant], []).append(source)
        else:
            unmoved.append((position, source))
    ordered = [*unmoved, *((position, source) for position, group in moved.items() for source in group)]
    return [source for _, source in sorted(ordered, key=lambda entry: entry[0])]


_ROLLBACK: Final = "0"
_IDENTIFIER = re.compile(r"([0-9]{1,18}),([0-9]{1,18})")
