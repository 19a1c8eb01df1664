"""Which bucket counts by partition a table of the simple bucket index has, if any.

    first     `00000000000000.hashing_config`: with these the table began
    others    `<instant>.hashing_config`, stored before the replacecommit of that instant completes, which writes the partitions
              anew whose counts change; they count from its completion on

The newest whose instant is not pending counts, also when that instant has been archived.  Rollbacks and restores remove those of
their instants.  Release 1.1 of the real Hudi goes by the same rule; 1.0 knows none of these files.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

from collections.abc import Collection

from pyhudi.errors import CorruptData, TableState
from pyhudi.format.partition_bucket_config import BucketCounts, counts_path, parse_counts_file
from pyhudi.format.paths import BUCKET_COUNTS_FOLDER
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline


def load_counts(context: TableContext, timeline: Timeline) -> BucketCounts | None:
    """The counts of a table; None where all partitions have the same.

    Raises TableState where counts lie and none counts, CorruptData for counts that are damaged.
    """
    stored = sorted(_instants(context))
    if not stored:
        return None
    pending = {instant.request_time for instant in timeline.pending()}
    counting = [instant for instant in stored if instant not in pending]
    if not counting:
        raise TableState(
            f"{context.storage.absolute(counts_path(stored[0]))} gives partitions bucket counts of their own, and its instant is "
            "still pending; let it complete, or roll it back"
        )
    path = counts_path(counting[-1])
    data = context.storage.read(path)
    if data is None:
        raise TableState(f"{context.storage.absolute(path)} is gone; another process has rolled its instant back")
    try:
        return BucketCounts.decode(data)
    except CorruptData as error:
        raise error.with_path(context.storage.absolute(path)) from error


def store_first(context: TableContext, counts: BucketCounts) -> None:
    """Put the counts with which a table begins in their place, unless another writer was here first."""
    context.storage.put_if_absent(counts_path(counts.instant), counts.encode())


def remove_counts(context: TableContext, instants: Collection[str]) -> None:
    """Remove what instants that are being undone made."""
    context.storage.delete([counts_path(instant) for instant in _instants(context) if instant in instants])


def _instants(context: TableContext) -> list[str]:
    files = context.storage.list(BUCKET_COUNTS_FOLDER).files
    return [instant for info in files if (instant := parse_counts_file(info.path)) is not None]
