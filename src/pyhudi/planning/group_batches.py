"""Which batches of several writers one commit takes, and what each of them did.

The result equals that of the writes one after the other in the order of their tickets. Batches with disjoint keys
combine under every merge rule. Batches that share keys combine if the rule between two incoming rows gives the same
record as two commits; otherwise the later batch is left for the next commit.

Source: docs/decisions/0025-group-commit.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY

MAX_BATCHES = 500
MAX_BYTES = 64 << 20
"""Bounds of one commit."""


@dataclass(frozen=True, slots=True)
class GroupTraits:
    """What the operation and the merge rule of a group allow.

    Attributes:
        adds: Rows are added whether or not their keys exist.
        deletes: Rows name records to delete.
        combines: Two incoming rows of one key combine to what two commits would store.
        global_keys: The key alone identifies a record.
    """

    adds: bool
    deletes: bool
    combines: bool
    global_keys: bool


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What one write did.

    Attributes:
        rows: Its rows after duplicates were combined.
        inserted: Rows inserted.
        updated: Rows updated, including those that lost to newer records.
        deleted: Rows deleted.
    """

    rows: int
    inserted: int
    updated: int
    deleted: int


def row_identities(rows: pa.Table, *, global_keys: bool) -> pa.Array:
    """Return what identifies the record of each row, as text."""
    keys = rows.column(RECORD_KEY).cast(pa.string()).combine_chunks()
    if global_keys:
        return keys
    return pc.binary_join_element_wise(keys, rows.column(PARTITION_PATH).cast(pa.string()).combine_chunks(), "\x00")


def choose_batches(batches: Sequence[pa.Table], traits: GroupTraits) -> list[int]:
    """Return the positions of the batches that one commit takes; the first is always among them.

    Args:
        batches: Prepared rows of each write, in the order of the tickets.
        traits: Traits of the operation.
    """
    chosen: list[int] = []
    size_bytes = 0
    records = places = pa.array([], pa.string())
    for number, rows in enumerate(batches):
        if chosen and (len(chosen) >= MAX_BATCHES or size_bytes + rows.nbytes > MAX_BYTES):
            break
        if not (traits.adds or traits.deletes):
            own_records = row_identities(rows, global_keys=traits.global_keys)
            own_places = row_identities(rows, global_keys=False)
            shared = pc.is_in(own_records, value_set=records)
            if traits.combines:
                # Under a global index, two partitions for one record are no two rows of one key.
                shared = pc.and_not(shared, pc.is_in(own_places, value_set=places))
            if pc.any(shared).as_py():
                continue
            records, places = pa.concat_arrays([records, own_records]), pa.concat_arrays([places, own_places])
        chosen.append(number)
        size_bytes += rows.nbytes
    return chosen


def count_rows(batches: Sequence[pa.Table], existing: pa.Array, traits: GroupTraits) -> list[RowCounts]:
    """Return what each write of a group did, as if they had run one after the other.

    Args:
        batches: Prepared rows of each write, in order.
        existing: Identities of the rows whose records existed before the group.
        traits: Traits of the operation.
    """
    counts = []
    earlier = pa.array([], pa.string())
    for rows in batches:
        total = rows.num_rows
        if traits.adds:
            counts.append(RowCounts(total, total, 0, 0))
            continue
        identities = row_identities(rows, global_keys=traits.global_keys)
        met = pc.is_in(identities, value_set=earlier)
        existed = pc.is_in(identities, value_set=existing)
        if traits.deletes:
            counts.append(RowCounts(total, 0, 0, pc.sum(pc.and_not(existed, met)).as_py() or 0))
        else:
            known = pc.sum(pc.or_(existed, met)).as_py() or 0
            counts.append(RowCounts(total, total - known, known, 0))
        earlier = pa.concat_arrays([earlier, identities])
    return counts
