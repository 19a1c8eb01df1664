"""Torn blocks versus corruption: which invalid bytes of a log file readers may skip.

A writer that died leaves torn blocks, which are not part of the table. The blocks of a completed instant are part of
the table. A reader that skipped one of them would return old rows for new ones, and a compaction would make the loss
permanent. From table version 8 on, one attempt of one instant writes a log file once, and the file name contains its
request time. Failed attempts are deleted before their instant completes. Therefore:

    a log file whose instant is completed   every byte is part of a valid block; anything else is CorruptData
    any other log file                      is not read; tools that inspect it get corruption as `CorruptBlock`

This rule applies to every reader and table service, based on the bytes of the file only: it needs no commit metadata,
whether the instant is active, archived or removed from the history. If the size of a file is known (from the metadata
table, or the commit), a shorter file cannot be read to its end, which is CorruptData as well.

Before version 8 a log file is named after the base instant, and several commits append to it, some of which may have
failed. There torn blocks are skipped. The same applies to such a file in an upgraded table, which is recognized by
blocks of other instants than the one in its name. Hudi's writes during a bucket resize create such files, too.

Specification: docs/formats/log-file.md, "Damage".
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.errors import CorruptData
from pyhudi.format.log.framing import CorruptBlock, LogBlock


def check_log_complete(blocks: Sequence[LogBlock | CorruptBlock], instant_time: str) -> None:
    """Raise CorruptData if a log file of a completed instant contains invalid bytes. The caller adds the path.

    Args:
        blocks: All blocks of the file.
        instant_time: The instant in its name.
    """
    for block in blocks:
        if isinstance(block, LogBlock) and not (block.instant_time.isascii() and block.instant_time.isdigit()):
            raise CorruptData("invalid instant of a log block", offset=block.offset, found=block.instant_time[:40])
    if any(isinstance(block, LogBlock) and block.instant_time != instant_time for block in blocks):
        return
    if not blocks:
        raise CorruptData(f"the log file has no blocks, but its instant {instant_time} is completed", offset=0)
    for block in blocks:
        if isinstance(block, CorruptBlock):
            raise CorruptData(
                f"a log block is corrupt, but its instant {instant_time} is completed: {block.reason}",
                offset=block.offset,
            )
