"""Merge pairs of complete or partial records by a merge rule.

Source: docs/formats/reading.md, "Merging" and "Partial updates".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyhudi.records.mergers import partial_merge
from pyhudi.records.ordering import BoolMask, Ints
from pyhudi.records.record_merge import RecordMergeRule, interleave_positions
from pyhudi.records.schema_cast import relabel


@dataclass(frozen=True, slots=True)
class PairSide:
    """The older or the newer records of pairs.

    Attributes:
        rows: Records in all columns.
        present: For each column, which records have a value for it; None if all records are complete.
    """

    rows: pa.Table
    present: dict[str, BoolMask] | None


@dataclass(frozen=True, slots=True)
class MergedPairs:
    """Merge result in all columns.

    Attributes:
        rows: As in `Merged`.
        is_live: As in `Merged`.
        changed: As in `Merged`.
        present: As in `PairSide`.
    """

    rows: pa.Table
    is_live: BoolMask
    changed: BoolMask
    present: dict[str, BoolMask] | None


def merge_pairs(
    rule: RecordMergeRule, older: PairSide, newer: PairSide, requested_mask: BoolMask, newer_wins: BoolMask
) -> MergedPairs:
    """Merge the pairs in `requested_mask` by the rule; for other pairs select the newer record where `newer_wins`, else the
    older.
    """
    rows = _choose(older.rows, newer.rows, newer_wins)
    is_live, changed = np.ones(len(newer_wins), dtype=np.bool_), newer_wins.copy()
    present: dict[str, BoolMask] | None = None
    all_rows = np.ones(len(newer_wins), dtype=np.bool_)
    sides = [side.present or dict.fromkeys(rows.column_names, all_rows) for side in (older, newer)]
    if older.present is not None or newer.present is not None:
        present = {name: np.where(newer_wins, sides[1][name], sides[0][name]) for name in rows.column_names}
    values: list[pa.Table] = []
    positions: list[Ints] = []
    remaining = requested_mask.copy()
    while remaining.any():
        first = int(np.argmax(remaining))
        same_columns = remaining.copy()
        for mask in (mask for side in sides for mask in side.values()):
            same_columns &= mask == mask[first]
        remaining &= ~same_columns
        indices = np.flatnonzero(same_columns)
        columns_by_side = [[name for name in rows.column_names if side[name][first]] for side in sides]
        pair = [
            side.rows.select(names).take(pa.array(indices)) for side, names in zip((older, newer), columns_by_side, strict=True)
        ]
        is_whole = all(len(names) == rows.num_columns for names in columns_by_side)
        outcome = rule.merge(*pair) if is_whole else partial_merge(rule, *pair)
        is_live[indices], changed[indices] = outcome.is_live, outcome.changed
        for name, mask in (present or {}).items():
            mask[indices] = name in columns_by_side[0] or name in columns_by_side[1]
        merged_columns = set(outcome.rows.column_names)
        columns = [
            outcome.rows.column(f.name) if f.name in merged_columns else pa.nulls(len(indices), f.type) for f in rows.schema
        ]
        values.append(pa.table(columns, names=rows.column_names).cast(rows.schema))
        positions.append(indices)
    if values:
        rows = overlaid(rows, pa.concat_tables(values), np.concatenate(positions))
    return MergedPairs(rows, is_live, changed, present)


def _choose(first: pa.Table, second: pa.Table, pick_second: BoolMask) -> pa.Table:
    if pick_second.all():
        return second
    if not pick_second.any():
        return first
    return pa.concat_tables([first, relabel(second, first.schema)]).take(interleave_positions(pick_second))


def overlaid(rows: pa.Table, values: pa.Table, at: Ints) -> pa.Table:
    """Return the rows with those at positions `at` replaced, in order, by the rows of `values`."""
    positions = np.arange(rows.num_rows, dtype=np.int64)
    positions[at] = rows.num_rows + np.arange(len(at))
    return pa.concat_tables([rows, relabel(values, rows.schema)]).take(pa.array(positions))
