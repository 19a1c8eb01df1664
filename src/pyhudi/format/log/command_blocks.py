"""COMMAND blocks, and which blocks of a file slice count.  Source: docs/formats/log-file.md, COMMAND block.

A COMMAND block has no content.  Its one command, COMMAND_BLOCK_TYPE 0, takes back what an instant that failed has written:

    INSTANT_TIME         the instant of the rollback
    TARGET_INSTANT_TIME  the instant that is rolled back

Tables of version 8 delete the log files of failed instants instead, so such blocks stand in upgraded tables only.
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
    """Take back the blocks of `target_instant_time` that come before this one in the slice."""

    instant_time: str
    target_instant_time: str

    def encode(self) -> bytes:
        """The whole block."""
        return encode_block(
            BlockType.COMMAND,
            {
                HeaderKey.INSTANT_TIME: self.instant_time,
                HeaderKey.TARGET_INSTANT_TIME: self.target_instant_time,
                HeaderKey.COMMAND_BLOCK_TYPE: _ROLLBACK,
            },
        )


def decode_command(block: LogBlock) -> RollbackCommand:
    """The command of a COMMAND block; CorruptData without its headers, Unsupported for another command."""
    if block.kind is not BlockType.COMMAND:
        raise CorruptData("not a COMMAND block", offset=block.offset, expected="COMMAND", found=block.kind.name)
    kind = block.required(HeaderKey.COMMAND_BLOCK_TYPE)
    if kind != _ROLLBACK:
        raise Unsupported(f"the command {kind!r} in the log block at byte {block.offset}; {_ROLLBACK} is known")
    return RollbackCommand(block.instant_time, block.required(HeaderKey.TARGET_INSTANT_TIME))


def surviving_blocks(
    blocks: Iterable[tuple[Source, LogBlock | CorruptBlock]], counts: Callable[[str], bool]
) -> list[tuple[Source, LogBlock]]:
    """The data and delete blocks that a reader merges, in the order in which they came.

    blocks: all blocks of a slice, its files in their order, each with what the caller needs to find its content.
    counts: whether the blocks of an instant (its request time) are to be seen, as its timeline says; asked for data and
    delete blocks alone.  A rollback drops the blocks of its target that came before it, in this or an earlier file; blocks
    of the same instant after it stay.  Damage is dropped, and what a task wrote that was tried again (see
    `deduplicate_attempts`). Raises Unsupported for CDC blocks, which have no place in an ordinary log file.
    """
    kept: list[tuple[Source, LogBlock]] = []
    for source, block in blocks:
        if isinstance(block, CorruptBlock):
            continue
        if block.kind is BlockType.COMMAND:
            target = decode_command(block).target_instant_time
            kept = [entry for entry in kept if entry[1].instant_time != target]
        elif block.kind is BlockType.CDC:
            raise Unsupported(f"a CDC block in an ordinary log file, at byte {block.offset}")
        elif counts(block.instant_time):
            kept.append((source, block))
    return deduplicate_attempts(kept, lambda entry: entry[1])


def deduplicate_attempts(blocks: Sequence[Source], block_getter: Callable[[Source], LogBlock]) -> list[Source]:
    """The blocks that are left when a task that was tried again, and whose attempts all left their blocks, is read once.

    kept: the blocks that count, of one slice, in whatever form `block_getter` understands.  Releases before 1.0 say in a block's
    identifier which attempt wrote it, as `<attempt>,<number of the block>`.  Of the attempts of an instant the one with the most
    blocks came furthest; of several such, the last one.  Blocks without such an identifier all stay.  The real Hudi 1.0.2 means
    to do this and leaves all of them.
    """
    attempts: dict[str, Counter[int]] = {}
    for found in blocks:
        attempt = _attempt_of(block_getter(found))
        if attempt is not None:
            attempts.setdefault(block_getter(found).instant_time, Counter())[attempt] += 1
    counted = {instant: max(counts, key=lambda n: (counts[n], n)) for instant, counts in attempts.items() if len(counts) > 1}
    if not counted:
        return list(blocks)

    def is_read(block: LogBlock) -> bool:
        attempt = _attempt_of(block)
        return attempt is None or counted.get(block.instant_time, attempt) == attempt

    return [found for found in blocks if is_read(block_getter(found))]


def _attempt_of(block: LogBlock) -> int | None:
    matched = _IDENTIFIER.fullmatch(block.header(HeaderKey.BLOCK_IDENTIFIER) or "")
    return int(matched[1]) if matched else None


def without_compacted(
    counted_blocks: Sequence[Source], block_getter: Callable[[Source], LogBlock], *, only_marked: bool = False
) -> list[Source]:
    """The blocks that are left when a log compaction's own blocks stand for those that it merged.

    kept: the blocks that count, in merge order, in whatever form `block_getter` understands.  The blocks of a log compaction take
    the place of the newest block that it merged, so that what was requested before it and completed after it still comes later.

    A log compaction of the real Hudi 1.0.2 passes over partial updates, and still says that it merged them.  So one without a
    partial block stands for nothing where it names an instant that has some: then all blocks are left, and its own come last.
    only_marked: so does one without the mark of PyHudi's, a block of deletes before the others.  It is asked for where a payload
    class or a merger decides: the real Hudi merges by ordering value for a log compaction, whatever the class is, and its readers
    read the old blocks.
    """
    partial = {block_getter(found).instant_time for found in counted_blocks if block_getter(found).is_partial}
    blocks = [block_getter(found) for found in counted_blocks]
    first = {block.instant_time: block for block in reversed(blocks)}
    several = {block.instant_time for block in blocks if block is not first[block.instant_time]}
    covering: dict[str, str] = {}
    for found in counted_blocks:
        own = block_getter(found).instant_time
        if only_marked and not (own in several and first[own].kind is BlockType.DELETE):
            continue
        if own not in partial and not partial.isdisjoint(block_getter(found).compacted_block_times):
            continue
        for instant in block_getter(found).compacted_block_times:
            # A log compaction is younger than what it merged; anything else in the list says nothing.
            if instant < own:
                covering[instant] = max(covering.get(instant, ""), own)
    if not covering:
        return list(counted_blocks)
    places: dict[str, int] = {}
    for place, found in enumerate(counted_blocks):
        final = block_getter(found).instant_time
        while final in covering:
            final = covering[final]
        if final != block_getter(found).instant_time:
            places[final] = place
    moved: dict[int, list[Source]] = {}
    staying: list[tuple[int, Source]] = []
    for place, found in enumerate(counted_blocks):
        instant = block_getter(found).instant_time
        if instant in covering:
            continue
        if instant in places:
            moved.setdefault(places[instant], []).append(found)
        else:
            staying.append((place, found))
    ordered = [*staying, *((place, found) for place, group in moved.items() for found in group)]
    return [found for _, found in sorted(ordered, key=lambda entry: entry[0])]


_ROLLBACK: Final = "0"
_IDENTIFIER = re.compile(r"([0-9]{1,18}),([0-9]{1,18})")
