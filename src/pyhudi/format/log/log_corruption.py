"""What readers may pass over in a log file, and what is damage.  Source: docs/formats/log-file.md, "Damage".

A writer that died leaves torn blocks behind, which belong to nobody.  What a completed instant wrote belongs to the table, and
a reader that passed a part of it over would give old rows for new ones; a compaction would do so for good.  From table version 8
on a log file is written once, by one attempt of one instant, whose request time its name carries, and attempts that failed are
deleted before their instant completes.  So:

    a log file whose instant is completed   every byte of it is part of a whole block; anything else is CorruptData
    any other log file                      is not read; whoever looks into it sees damage as `CorruptBlock`

This holds for each reader and service alike, on the bytes of the file alone: no commit has to be read for it, be it active,
archived or gone from the history.  Where the size of a file is known (from the metadata table, or the commit), a file that is
shorter cannot be read to its end, which is CorruptData, too.

Before version 8 a log file bears the base file's instant, and several commits append to it, some of which failed in the middle:
there torn blocks are passed over.  The same holds for such a file in a table that was upgraded, which is known by blocks of
other instants than that of its name; the real Hudi's writes during a resizing of buckets make such files, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.errors import CorruptData
from pyhudi.format.log.framing import CorruptBlock, LogBlock


def check_log_complete(blocks: Sequence[LogBlock | CorruptBlock], instant_time: str) -> None:
    """Raises CorruptData when a log file of a completed instant is not whole.

    blocks: all of the file's; instant_time: what its name says.  The caller adds the path.
    """
    for block in blocks:
        if isinstance(block, LogBlock) and not (block.instant_time.isascii() and block.instant_time.isdigit()):
            raise CorruptData("the instant of a log block is none", offset=block.offset, found=block.instant_time[:40])
    if any(isinstance(block, LogBlock) and block.instant_time != instant_time for block in blocks):
        return
    if not blocks:
        raise CorruptData(f"the log file has no blocks, though {instant_time}, which wrote it, is completed", offset=0)
    for block in blocks:
        if isinstance(block, CorruptBlock):
            raise CorruptData(
                f"a log block cannot be read whole, though {instant_time}, which wrote it, is completed: {block.reason}",
                offset=block.offset,
            )
