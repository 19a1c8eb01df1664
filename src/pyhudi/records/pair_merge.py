"""Pairs of records merged by a rule that decides between them, whole ones or some columns of them.

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
    """The older or the newer records of pairs.  present: for each column which of them have it; None when all are whole."""

    rows: pa.Table
    present: dict[str, BoolMask] | None


@dataclass(frozen=True, slots=True)
class MergedPairs:
    """As `Merged`, in all columns.  present: as of `PairSide`."""

    rows: pa.Table
    is_live: BoolMask
    changed: BoolMask
    present: dict[str, BoolMask] | None


def merge_pairs(rule: RecordMergeRule, older: PairSide, newer: PairSide, requested_mask: BoolMask, wins: BoolMask) -> MergedPairs:
    """What a rule that merges makes of pairs where it is asked; of the others the newer record where it wins, else the older."""
    rows = _choose(older.rows, newer.rows, wins)
    alive, changed = np.ones(len(wins), dtype=np.bool_), wins.copy()
    present: dict[str, BoolMask] | None = None
    every = np.ones(len(wins), dtype=np.bool_)
    sides = [side.present or dict.fromkeys(rows.column_names, every) for side in (older, newer)]
    if older.present is not None or newer.present is not None:
        present = {name: np.where(wins, sides[1][name], sides[0][name]) for name in rows.column_names}
    values: list[pa.Table] = []
    places: list[Ints] = []
    left = requested_mask.copy()
    while left.any():
        first = int(np.argmax(left))
        alike = left.copy()
        for mask in (mask for side in sides for mask in side.values()):
            alike &= mask == mask[first]
        left &= ~alike
        at = np.flatnonzero(alike)
        held = [[name for name in rows.column_names if side[name][first]] for side in sides]
        pair = [side.rows.select(names).take(pa.array(at)) for side, names in zip((older, newer), held, strict=True)]
        is_whole = all(len(names) == rows.num_columns for names in held)
        outcome = rule.merge(*pair) if is_whole else partial_merge(rule, *pair)
        alive[at], changed[at] = outcome.is_live, outcome.changed
        for name, mask in (present or {}).items():
            mask[at] = name in held[0] or name in held[1]
        found = set(outcome.rows.column_names)
        columns = [outcome.rows.column(f.name) if f.name in found else pa.nulls(len(at), f.type) for f in rows.schema]
        values.append(pa.table(columns, names=rows.column_names).cast(rows.schema))
        places.append(at)
    if values:
        rows = overlaid(rows, pa.concat_tables(values), np.concatenate(places))
    return MergedPairs(rows, alive, changed, present)


def _choose(first: pa.Table, second: pa.Table, pick_second: BoolMask) -> pa.Table:
    if pick_second.all():
        return second
    if not pick_second.any():
        return first
    return pa.concat_tables([first, relabel(second, first.schema)]).take(interleave_positions(pick_second))


def overlaid(rows: pa.Table, values: pa.Table, at: Ints) -> pa.Table:
    """The rows with those at some places replaced, in order, by the rows of `values`."""
    positions = np.arange(rows.num_rows, dtype=np.int64)
    positions[at] = rows.num_rows + np.arange(len(at))
    return pa.concat_tables([rows, relabel(values, rows.schema)]).take(pa.array(positions))
