"""Entries of logs, in merge order, become one record for each key: the ways of folding that `log_merge` names.

Source: docs/formats/reading.md, "Merging", "Deletes" and "Partial updates".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.records.log_merge.log_records import LogRecords
from pyhudi.records.ordering import BoolMask, Ints, newer_or_equal, ordering_ranks
from pyhudi.records.pair_merge import PairSide, merge_pairs
from pyhudi.records.record_merge import RecordMergeRule, choose_column, combine_to_array, row_codes
from pyhudi.records.row_grouping import run_starts
from pyhudi.records.schema_cast import relabel


@dataclass(frozen=True, slots=True)
class MergeEntries:
    """Entries that came together, in merge order.

    has_plain_deletes: deletes without an ordering value.  present: the columns that partial rows hold, None for whole ones.
    in_data: they stood in a data block, be they deletes.
    """

    rows: pa.Table
    deleted: BoolMask
    has_plain_deletes: BoolMask
    present: frozenset[str] | None
    ordering: pa.ChunkedArray | None
    positions: Ints | None
    in_data: bool


@dataclass(slots=True)
class EntryPool:
    """All entries in merge order.  behind_barrier: entries behind which a barrier stands already (records of an earlier fold).

    in_data: those that stood in data blocks, be they deletes.

    `records` takes the rows out, which are the most of what a slice's logs need in memory: they are not held twice.
    """

    rows: pa.Table
    deleted: BoolMask
    has_plain_deletes: BoolMask
    behind_barrier: BoolMask
    ordering: pa.ChunkedArray | None
    present: dict[str, BoolMask] | None
    positions: Ints | None
    in_data: BoolMask

    @classmethod
    def of(cls, schema: pa.Schema, state: LogRecords | None, entries: list[MergeEntries], *, partial: bool) -> EntryPool:
        loose = pa.schema([f.with_nullable(True) for f in schema])
        tables = [relabel(entry.rows, loose) for entry in entries]
        deleted = [entry.deleted for entry in entries]
        plain = [entry.has_plain_deletes for entry in entries]
        barred = [np.zeros(entry.rows.num_rows, dtype=np.bool_) for entry in entries]
        ordering = [entry.ordering for entry in entries]
        positions = [entry.positions for entry in entries]
        in_data = [np.full(entry.rows.num_rows, entry.in_data, dtype=np.bool_) for entry in entries]
        present: dict[str, list[BoolMask]] = {name: [] for name in loose.names}
        if state is not None:
            keyed = state.rows.set_column(
                state.rows.schema.get_field_index(RECORD_KEY), loose.field(RECORD_KEY), pa.chunked_array([state.keys])
            )
            tables.insert(0, relabel(keyed, loose))
            deleted.insert(0, state.deleted)
            plain.insert(0, np.zeros(len(state.deleted), dtype=np.bool_))
            barred.insert(0, state.barrier)
            ordering.insert(0, state.ordering)
            positions.insert(0, state.positions)
            in_data.insert(0, np.ones(len(state.deleted), dtype=np.bool_))
        placed = [part for part in positions if part is not None]
        if partial:
            for name in loose.names:
                if state is not None:
                    every = np.ones(len(state.deleted), dtype=np.bool_)
                    present[name].append(every if state.present is None else state.present[name])
                for entry in entries:
                    has = entry.present is None or name in entry.present or name == RECORD_KEY
                    present[name].append(np.full(entry.rows.num_rows, has, dtype=np.bool_))
        values = None
        if all(part is not None for part in ordering):
            values = pa.chunked_array([chunk for part in ordering if part is not None for chunk in part.chunks])
        return cls(
            pa.concat_tables(tables),
            np.concatenate(deleted),
            np.concatenate(plain),
            np.concatenate(barred),
            values,
            {name: np.concatenate(parts) for name, parts in present.items()} if partial else None,
            np.concatenate(placed) if len(placed) == len(positions) else None,
            np.concatenate(in_data),
        )

    def codes(self) -> Ints:
        """A dense number for the record of each entry; by position it rises with the row."""
        if self.positions is None:
            return row_codes(self.rows, [RECORD_KEY])
        return np.unique(self.positions, return_inverse=True)[1].astype(np.int64, copy=False)

    def records(
        self, chosen: Ints, barrier: BoolMask, deleted: BoolMask, rule: RecordMergeRule, sources: dict[str, Ints] | None = None
    ) -> LogRecords:
        """Records from one entry for each key.  The pool has no rows afterwards.

        sources: columns whose values come from other entries than the chosen ones.
        """
        ordering = None if self.ordering is None else self.ordering.take(pa.array(chosen))
        # One log file of keys that occur once is in order as it stands: each column is laid out in one piece.
        in_order = _is_whole(chosen, self.rows.num_rows)
        by_position = self.positions is not None
        schema, columns = self.rows.schema, self.rows.columns[::-1]
        self.rows, self.ordering = schema.empty_table(), None
        indices = pa.array(chosen)
        taken = []
        for field in schema:
            column = columns.pop()
            if sources is not None and field.name in sources:
                column = column.take(pa.array(sources[field.name]))
            elif not in_order:
                column = column.take(indices)
            elif field.name == RECORD_KEY or not by_position:
                # Rows that are met by key are taken here and there, which is quick from one piece alone.
                column = pa.chunked_array([combine_to_array(column)])
            taken.append(column)
        rows = pa.table(taken, schema=schema)
        return LogRecords(
            keys=combine_to_array(rows.column(RECORD_KEY)),
            rows=rows,
            deleted=deleted,
            barrier=barrier,
            ordering=ordering,
            present=None if self.present is None else {name: mask[chosen] for name, mask in self.present.items()},
            rule=rule,
            positions=None if self.positions is None else self.positions[chosen],
        )


def pick_winners(pool: EntryPool, rule: RecordMergeRule) -> LogRecords:
    """Of the entries of each key after its last barrier the last one, or the one with the largest ordering value."""
    codes = pool.codes()
    count = int(codes.max()) + 1 if len(codes) else 0
    positions = np.arange(len(codes), dtype=np.int64)
    last = np.zeros(count, dtype=np.int64)
    last[codes] = positions
    barrier = np.zeros(count, dtype=np.bool_)
    if pool.ordering is None:
        barrier[:] = True
        return pool.records(last, barrier, pool.deleted[last], rule)
    barrier_at = np.full(count, -1, dtype=np.int64)
    plain = np.flatnonzero(pool.has_plain_deletes)
    barrier_at[codes[plain]] = plain
    barrier[codes[pool.behind_barrier]] = True
    barrier |= barrier_at >= 0
    counted = positions > barrier_at[codes]
    winner = last.copy()
    several = np.bincount(codes[counted], minlength=count) > 1
    if several.any():
        members = np.flatnonzero(counted & several[codes])
        ranks = ordering_ranks(pool.ordering.take(pa.array(members)))
        order = np.lexsort((members, ranks, codes[members]))
        sorted_codes = codes[members][order]
        ends = np.flatnonzero(np.r_[sorted_codes[1:] != sorted_codes[:-1], True])
        winner[sorted_codes[ends]] = members[order][ends]
    return pool.records(winner, barrier, pool.deleted[winner], rule)


def fold_by_modes(pool: EntryPool, rule: RecordMergeRule) -> LogRecords:
    """Fold entry after entry of each key as `fold_by_position` does, without moving rows: what is folded is where values
    stand.
    """
    codes = pool.codes()
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = run_starts(sorted_codes)
    sizes = np.diff(np.r_[starts, len(order)])
    held = order[starts]
    final = (pool.has_plain_deletes | pool.behind_barrier) & pool.deleted
    repeated = bool(len(sizes)) and int(sizes.max()) > 1
    ranks = ordering_ranks(pool.ordering) if repeated and pool.ordering is not None else np.zeros(len(codes), dtype=np.int64)
    gaps: dict[str, BoolMask] = {}
    if repeated and rule.filling is not None:
        found = {
            name: rule.filling.missing(name, pool.rows.column(name)) for name in pool.rows.column_names if name != RECORD_KEY
        }
        gaps = {name: mask for name, mask in found.items() if mask is not None}
    sources = {name: held.copy() for name in gaps}
    for step in range(1, int(sizes.max()) if repeated else 0):
        active = np.flatnonzero(sizes > step)
        entry, before = order[starts[active] + step], held[active]
        wins = (ranks[entry] >= ranks[before]) | final[entry] | final[before]
        # A delete block leaves what such a delete removed as it is.
        wins &= pool.in_data[entry] | ~final[before]
        both_rows = ~pool.deleted[entry] & ~pool.deleted[before]
        for name, mask in gaps.items():
            stands = sources[name][active]
            winner, loser = np.where(wins, entry, stands), np.where(wins, stands, entry)
            sources[name][active] = np.where(mask[winner] & both_rows, loser, winner)
        held[active[wins]] = entry[wins]
    return pool.records(held, final[held], pool.deleted[held], rule, sources)


def fold_by_position(pool: EntryPool, rule: RecordMergeRule, *, partial: bool) -> LogRecords:
    """Fold entry after entry of each key; pass n treats the n-th entry of every key that has so many."""
    codes = pool.codes()
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = run_starts(sorted_codes)
    sizes = np.diff(np.r_[starts, len(order)])
    first = order[starts]
    held = pool.rows.take(pa.array(first))
    deleted = pool.deleted[first].copy()
    barrier = (pool.has_plain_deletes | pool.behind_barrier)[first].copy()
    ordering = None if pool.ordering is None else pool.ordering.take(pa.array(first))
    present = None if pool.present is None else {name: mask[first].copy() for name, mask in pool.present.items()}
    for step in range(1, int(sizes.max()) if len(sizes) else 0):
        active = np.flatnonzero(sizes > step)
        entry = order[starts[active] + step]
        older = held.take(pa.array(active))
        newer = pool.rows.take(pa.array(entry))
        newer_deleted, newer_plain = pool.deleted[entry], pool.has_plain_deletes[entry]
        older_deleted, older_barred = deleted[active], barrier[active] & deleted[active]
        wins = np.ones(len(active), dtype=np.bool_)
        if ordering is not None and pool.ordering is not None:
            older_plain = older_barred
            if not rule.delete_is_barrier:
                older_plain &= np.asarray(pc.is_null(ordering.take(pa.array(active))).combine_chunks(), dtype=np.bool_)
            wins = (
                newer_or_equal(ordering.take(pa.array(active)), pool.ordering.take(pa.array(entry))) | newer_plain | older_plain
            )
        both_rows = ~newer_deleted & ~older_deleted
        held_present: dict[str, BoolMask] | None
        if partial and not rule.custom_merge:
            assert present is not None and pool.present is not None
            older_has = {name: mask[active] for name, mask in present.items()}
            newer_has = {name: mask[entry] for name, mask in pool.present.items()}
            result, held_present = _merge_partial(
                PairSide(older, older_has),
                PairSide(newer, newer_has),
                wins=wins,
                newer_deleted=newer_deleted,
                older_deleted=older_deleted,
            )
            taken = wins | older_deleted
            result_deleted = newer_deleted & taken
        else:
            outcome = merge_pairs(
                rule,
                PairSide(older, None if present is None else {name: mask[active] for name, mask in present.items()}),
                PairSide(newer, None if pool.present is None else {name: mask[entry] for name, mask in pool.present.items()}),
                both_rows,
                wins,
            )
            result = outcome.rows
            result_deleted = np.where(both_rows, ~outcome.is_live, np.where(wins, newer_deleted, older_deleted))
            taken = outcome.changed
            held_present = outcome.present
        positions = np.arange(held.num_rows, dtype=np.int64)
        positions[active] = held.num_rows + np.arange(len(active))
        held = pa.concat_tables([held, relabel(result, held.schema)]).take(pa.array(positions))
        deleted[active] = result_deleted
        # Where records revive, a delete without an ordering value stands as long as nothing follows it.
        barrier[active] = (
            np.where(taken, newer_plain, barrier[active]) if rule.delete_is_barrier else barrier[active] | newer_plain
        )
        if ordering is not None and pool.ordering is not None:
            both = pa.chunked_array([*ordering.chunks, *pool.ordering.take(pa.array(entry)).chunks])
            index = np.arange(len(ordering), dtype=np.int64)
            index[active[taken]] = len(ordering) + np.flatnonzero(taken)
            ordering = both.take(pa.array(index))
        if present is not None and held_present is not None:
            for name, mask in held_present.items():
                present[name][active] = mask
    keys = pool.rows.column(RECORD_KEY).take(pa.array(first)).combine_chunks()
    places = None if pool.positions is None else pool.positions[first]
    return LogRecords(keys, held, deleted, barrier, ordering, present, rule, places)


def _merge_partial(
    older: PairSide, newer: PairSide, *, wins: BoolMask, newer_deleted: BoolMask, older_deleted: BoolMask
) -> tuple[pa.Table, dict[str, BoolMask]]:
    assert older.present is not None and newer.present is not None
    columns = []
    masks: dict[str, BoolMask] = {}
    for field in newer.rows.schema:
        has_older, has_newer = older.present[field.name], newer.present[field.name]
        merged = np.where(wins, has_newer, has_newer & ~has_older) & ~newer_deleted
        take_newer = merged | older_deleted | (newer_deleted & wins)
        columns.append(choose_column(older.rows.column(field.name), newer.rows.column(field.name), take_newer))
        masks[field.name] = np.where(
            older_deleted | (newer_deleted & wins), has_newer, np.where(newer_deleted, has_older, has_older | has_newer)
        )
    return pa.table(columns, schema=newer.rows.schema), masks


def _is_whole(chosen: Ints, count: int) -> bool:
    return len(chosen) == count and bool((chosen[1:] > chosen[:-1]).all())
