"""Validate consistent hashing metadata against the file groups of its partitions.  A part of `validate`.

    damage       unreadable metadata, nodes that are not ascending, a marker without metadata, metadata of which none is
                 valid
    lost groups  a file group without node: writes do not find its keys, and write them a second time
    lost nodes   a node whose file group was replaced: rows written there are invisible

A node without files is valid: no key was written to it yet.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.errors import CorruptData, TableState
from pyhudi.features.consistent_hashing.hashing_metadata import hashing_folder
from pyhudi.features.consistent_hashing.hashing_store import (
    file_id_prefixes,
    load_hashing_metadata,
    partitions_with_consistent_hashing,
)
from pyhudi.metadata_table.indexes.index_validation import MISSING_ROWS, IndexFindings
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext


def check_consistent_hashing(context: TableContext, snapshot: Snapshot, slices: Sequence[FileSlice]) -> IndexFindings:
    """Check all partitions; a table without consistent hashing metadata passes.  slices: the current ones."""
    findings = IndexFindings()
    ringed = sorted(partitions_with_consistent_hashing(context))
    for partition in ringed:
        groups = {s.file_id for s in slices if s.partition == partition}
        present = file_id_prefixes(s.file_id for s in slices if s.partition == partition and s.base is not None)
        where = hashing_folder(partition)
        try:
            ring = load_hashing_metadata(context, snapshot.timeline, partition, present)
        except (CorruptData, TableState) as error:
            findings.add_error(where, str(error), MISSING_ROWS)
            continue
        nodes = set(ring.file_ids) if ring is not None else set()
        for file_id in sorted(groups - nodes):
            findings.add_error(
                where, f"file group {file_id} belongs to no consistent hashing node; writes do not find its keys", MISSING_ROWS
            )
        for file_id in sorted(nodes):
            by = snapshot.slicing.replaced.get((partition, file_id))
            if by is not None:
                findings.add_error(
                    where, f"file group {file_id} of a node was replaced by {by}: rows written there are invisible", REWRITE
                )
    findings.checked = f"{len(ringed):,} partitions" if ringed else ""
    return findings


REWRITE = "rings: overwrite the partition, which gives it a ring of new file groups"
"""The remedy for nodes whose groups were replaced by a writer that did not update the metadata."""
