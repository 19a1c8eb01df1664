"""Partition-level bucket counts of a table with the simple bucket index.

    first     `00000000000000.hashing_config`: the counts at table creation
    others    `<instant>.hashing_config`, stored before the replacecommit of that instant completes, which rewrites the
              partitions whose counts change; they are valid from its completion on

The newest file whose instant is not pending is valid, also after that instant was archived. Rollbacks and restores
remove the files of their instants. Apache Hudi 1.1 applies the same rule; 1.0 ignores these files.

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
    """Load the bucket counts of a table; None if all partitions have the same count.

    Raises:
        TableState: The file was removed since it was listed.
        CorruptData: The file is damaged.
    """
    stored = sorted(_instants(context))
    pending = {instant.request_time for instant in timeline.pending()}
    counting = [instant for instant in stored if instant not in pending]
    if not counting:
        return None
    path = counts_path(counting[-1])
    data = context.storage.read(path)
    if data is None:
        raise TableState(f"{context.storage.absolute(path)} is missing: another process has rolled its instant back")
    try:
        return BucketCounts.decode(data)
    except CorruptData as error:
        raise error.with_path(context.storage.absolute(path)) from error


def store_first(context: TableContext, counts: BucketCounts) -> None:
    """Store the initial counts of a table, unless another writer has stored them already."""
    context.storage.put_if_absent(counts_path(counts.instant), counts.encode())


def remove_counts(context: TableContext, instants: Collection[str]) -> None:
    """Delete the counts of instants that are being rolled back or restored."""
    context.storage.delete([counts_path(instant) for instant in _instants(context) if instant in instants])


def _instants(context: TableContext) -> list[str]:
    files = context.storage.list(BUCKET_COUNTS_FOLDER).files
    return [instant for info in files if (instant := parse_counts_file(info.path)) is not None]
