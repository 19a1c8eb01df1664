"""Do the bucket counts that a table keeps for its partitions fit their file groups?  A part of `validate`.

    damage        counts that cannot be read, or lie there and do not count
    lost groups   a file group whose id names no bucket that its partition has: writes do not find its keys, and write them a
                  second time
    second ones   two file groups of one bucket, of which writes find one

Where a writer that knows no such counts (Hudi 1.0) has put records into buckets which the partition does have, the check of keys
finds those that stand twice.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.errors import CorruptData, InvalidRequest, TableState, Unsupported
from pyhudi.format.paths import BUCKET_COUNTS_FOLDER
from pyhudi.metadata_table.indexes.index_validation import LOST, IndexFindings
from pyhudi.planning.bucket_routing import BucketLayout, bucket_groups
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.partition_buckets import load_counts
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext


def check_bucket_counts(context: TableContext, snapshot: Snapshot, slices: Sequence[FileSlice]) -> IndexFindings:
    """Nothing is looked at in a table that keeps no counts.  slices: the present ones."""
    findings = IndexFindings()
    try:
        stored = load_counts(context, snapshot.timeline)
        if stored is None:
            return findings
        layout = BucketLayout(stored.default, rules=stored.expressions)
    except (CorruptData, TableState, InvalidRequest, Unsupported) as error:
        findings.wrong(BUCKET_COUNTS_FOLDER, str(error), LOST)
        return findings
    partitions = sorted({slice_.partition for slice_ in slices})
    for partition in partitions:
        try:
            bucket_groups((slice_ for slice_ in slices if slice_.partition == partition), layout)
        except TableState as error:
            findings.wrong(partition, str(error), LOST)
    findings.looked_at = f"{len(partitions):,} partitions"
    return findings
