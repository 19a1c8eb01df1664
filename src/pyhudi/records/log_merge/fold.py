"""Fold log entries, in merge order, into one record per key; `merge_log_blocks` describes the strategies.

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
    """Entries of one log block, in merge order.

    Attributes:
        rows: Rows in the reader's columns.
        deleted: True for deletes.
        has_plain_deletes: True for deletes without an ordering value.
        present: Columns of partial rows; None for complete rows.
        ordering: Ordering value of each entry.
        positions: Base file row of each entry; None to match by key.
        in_data: True if the entries come from a data block, even if they are deletes.
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
    """All entries of a fold, in merge order.

    `records` consumes the rows: they use most of the memory of merging a slice's logs, and must not exist twice.

    Attributes:
        rows: Rows in the reader's columns; empty after `records`.
        deleted: True for deletes.
        has_plain_deletes: True for deletes without an ordering value.
        behind_barrier: True for records of an earlier fold that follow a barrier.
        ordering: Ordering value of each entry.
        present: For each column, which entries have it; None if all rows are complete.
        positions: Base file row of each entry; None to match by key.
        in_data: True for entries from data blocks, even if they are deletes.
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
        nullable_schema = pa.schema([f.with_nullable(True) for f in schema])
        tables = [relabel(entry.rows, nullable_schema) for entry in entries]
        deleted = [entry.deleted for entry in entries]
        plain_deletes = [entry.has_plain_deletes for entry in entries]
        behind_barrier = [np.zeros(entry.rows.num_rows, dtype=np.bool_) for entry in entries]
        ordering = [entry.ordering for entry in entries]
        positions = [entry.positions for entry in entries]
        in_data = [np.full(entry.rows.num_rows, entry.in_data, dtype=np.bool_) for entry in entries]
        present: dict[str, list[BoolMask]] = {name: [] for name in nullable_schema.names}
        if state is not None:
            keyed = state.rows.set_column(
                state.rows.schema.get_field_index(RECORD_KEY), nullable_schema.field(RECORD_KEY), pa.chunked_array([state.keys])
            )
            tables.insert(0, relabel(keyed, nullable_schema))
            deleted.insert(0, state.deleted)
            plain_deletes.insert(0, np.zeros(len(state.deleted), dtype=np.bool_))
            behind_barrier.insert(0, state.barrier)
            ordering.insert(0, state.ordering)
            positions.insert(0, state.positions)
            in_data.insert(0, np.ones(len(state.deleted), dtype=np.bool_))
        known_positions = [part for part in positions if part is not None]
        if partial:
            for name in nullable_schema.names:
                if state is not None:
                    all_rows = np.ones(len(state.deleted), dtype=np.bool_)
                    present[name].append(all_rows if state.present is None else state.present[name])
                for entry in entries:
                    has_column = entry.present is None or name in entry.present or name == RECORD_KEY
                    present[name].append(np.full(entry.rows.num_rows, has_column, dtype=np.bool_))
        values = None
        if all(part is not None for part in ordering):
            values = pa.chunked_array([chunk for part in ordering if part is not None for chunk in part.chunks])
        return cls(
            pa.concat_tables(tables),
            np.concatenate(deleted),
            np.concatenate(plain_deletes),
            np.concatenate(behind_barrier),
            values,
            {name: np.concatenate(parts) for name, parts in present.items()} if partial else None,
            np.concatenate(known_positions) if len(known_positions) == len(positions) else None,
            np.concatenate(in_data),
        )

    def codes(self) -> Ints:
        """Return a dense code of the record of each entry; by position, codes increase with the base file row."""
        if self.positions is None:
            return row_codes(self.rows, [RECORD_KEY])
        return np.unique(self.positions, return_inverse=True)[1].astype(np.int64, copy=False)

    def records(
        self, chosen: Ints, barrier: BoolMask, deleted: BoolMask, rule: RecordMergeRule, sources: dict[str, Ints] | None = None
    ) -> LogRecords:
        """Build the records from one entry for each key. The pool has no rows afterwards.

        Args:
            chosen: Entry of each key.
            barrier: Whether the base row of each key is ignored.
            deleted: Whether each key is deleted.
            sources: Columns whose values come from other entries than `chosen`.
        """
        ordering = None if self.ordering is None else self.ordering.take(pa.array(chosen))
        # Entries of one log file whose keys occur once are already in order, so columns are only made contiguous.
        in_order = _selects_all_in_order(chosen, self.rows.num_rows)
        by_position = self.positions is not None
        schema, columns = self.rows.schema, self.rows.columns[::-1]
        self.rows, self.ordering = schema.empty_table(), None
        indices = pa.array(chosen)
        result_columns = []
        for field in schema:
            column = columns.pop()
            if sources is not None and field.name in sources:
                column = column.take(pa.array(sources[field.name]))
            elif not in_order:
                column = column.take(indices)
            elif field.name == RECORD_KEY or not by_position:
                # Records matched by key are read at random positions, which is fast only on one contiguous array.
                column = pa.chunked_array([combine_to_array(column)])
            result_columns.append(column)
        rows = pa.table(result_columns, schema=schema)
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
    """Select for each key, among the entries after its last barrier, the last one or the one with the largest ordering value."""
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
    plain_deletes = np.flatnonzero(pool.has_plain_deletes)
    barrier_at[codes[plain_deletes]] = plain_deletes
    barrier[codes[pool.behind_barrier]] = True
    barrier |= barrier_at >= 0
    after_barrier = positions > barrier_at[codes]
    winner = last.copy()
    has_several = np.bincount(codes[after_barrier], minlength=count) > 1
    if has_several.any():
        members = np.flatnonzero(after_barrier & has_several[codes])
        ranks = ordering_ranks(pool.ordering.take(pa.array(members)))
        order = np.lexsort((members, ranks, codes[members]))
        sorted_codes = codes[members][order]
        last_of_key = np.flatnonzero(np.r_[sorted_codes[1:] != sorted_codes[:-1], True])
        winner[sorted_codes[last_of_key]] = members[order][last_of_key]
    return pool.records(winner, barrier, pool.deleted[winner], rule)


def fold_by_modes(pool: EntryPool, rule: RecordMergeRule) -> LogRecords:
    """Fold the entries of each key in order, as `fold_by_position` does, on row positions instead of rows."""
    codes = pool.codes()
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = run_starts(sorted_codes)
    sizes = np.diff(np.r_[starts, len(order)])
    current = order[starts]
    is_final_delete = (pool.has_plain_deletes | pool.behind_barrier) & pool.deleted
    repeated = bool(len(sizes)) and int(sizes.max()) > 1
    ranks = ordering_ranks(pool.ordering) if repeated and pool.ordering is not None else np.zeros(len(codes), dtype=np.int64)
    missing_values: dict[str, BoolMask] = {}
    if repeated and rule.filling is not None:
        missing_by_column = {
            name: rule.filling.missing(name, pool.rows.column(name)) for name in pool.rows.column_names if name != RECORD_KEY
        }
        missing_values = {name: mask for name, mask in missing_by_column.items() if mask is not None}
    sources = {name: current.copy() for name in missing_values}
    for step in range(1, int(sizes.max()) if repeated else 0):
        active = np.flatnonzero(sizes > step)
        entry, previous = order[starts[active] + step], current[active]
        wins = (ranks[entry] >= ranks[previous]) | is_final_delete[entry] | is_final_delete[previous]
        # A delete block has no effect on a key that such a delete removed.
        wins &= pool.in_data[entry] | ~is_final_delete[previous]
        both_rows = ~pool.deleted[entry] & ~pool.deleted[previous]
        for name, mask in missing_values.items():
            current_source = sources[name][active]
            winner, loser = np.where(wins, entry, current_source), np.where(wins, current_source, entry)
            sources[name][active] = np.where(mask[winner] & both_rows, loser, winner)
        current[active[wins]] = entry[wins]
    return pool.records(current, is_final_delete[current], pool.deleted[current], rule, sources)


def fold_by_position(pool: EntryPool, rule: RecordMergeRule, *, partial: bool) -> LogRecords:
    """Fold the entries of each key in order; pass n processes the n-th entry of every key that has one."""
    codes = pool.codes()
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = run_starts(sorted_codes)
    sizes = np.diff(np.r_[starts, len(order)])
    first = order[starts]
    current = pool.rows.take(pa.array(first))
    deleted = pool.deleted[first].copy()
    barrier = (pool.has_plain_deletes | pool.behind_barrier)[first].copy()
    ordering = None if pool.ordering is None else pool.ordering.take(pa.array(first))
    present = None if pool.present is None else {name: mask[first].copy() for name, mask in pool.present.items()}
    for step in range(1, int(sizes.max()) if len(sizes) else 0):
        active = np.flatnonzero(sizes > step)
        entry = order[starts[active] + step]
        older = current.take(pa.array(active))
        newer = pool.rows.take(pa.array(entry))
        newer_deleted, newer_plain = pool.deleted[entry], pool.has_plain_deletes[entry]
        older_deleted, older_is_barrier = deleted[active], barrier[active] & deleted[active]
        wins = np.ones(len(active), dtype=np.bool_)
        if ordering is not None and pool.ordering is not None:
            older_plain = older_is_barrier
            if not rule.delete_is_barrier:
                older_plain &= np.asarray(pc.is_null(ordering.take(pa.array(active))).combine_chunks(), dtype=np.bool_)
            wins = (
                newer_or_equal(ordering.take(pa.array(active)), pool.ordering.take(pa.array(entry))) | newer_plain | older_plain
            )
        both_rows = ~newer_deleted & ~older_deleted
        merged_present: dict[str, BoolMask] | None
        if partial and not rule.custom_merge:
            assert present is not None and pool.present is not None
            older_has = {name: mask[active] for name, mask in present.items()}
            newer_has = {name: mask[entry] for name, mask in pool.present.items()}
            result, merged_present = _merge_partial(
                PairSide(older, older_has),
                PairSide(newer, newer_has),
                newer_wins=wins,
                newer_deleted=newer_deleted,
                older_deleted=older_deleted,
            )
            newer_taken = wins | older_deleted
            result_deleted = newer_deleted & newer_taken
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
            newer_taken = outcome.changed
            merged_present = outcome.present
        positions = np.arange(current.num_rows, dtype=np.int64)
        positions[active] = current.num_rows + np.arange(len(active))
        current = pa.concat_tables([current, relabel(result, current.schema)]).take(pa.array(positions))
        deleted[active] = result_deleted
        # With `delete_is_barrier`, a delete without an ordering value has effect only until another entry follows.
        barrier[active] = (
            np.where(newer_taken, newer_plain, barrier[active]) if rule.delete_is_barrier else barrier[active] | newer_plain
        )
        if ordering is not None and pool.ordering is not None:
            all_orderings = pa.chunked_array([*ordering.chunks, *pool.ordering.take(pa.array(entry)).chunks])
            index = np.arange(len(ordering), dtype=np.int64)
            index[active[newer_taken]] = len(ordering) + np.flatnonzero(newer_taken)
            ordering = all_orderings.take(pa.array(index))
        if present is not None and merged_present is not None:
            for name, mask in merged_present.items():
                present[name][active] = mask
    keys = pool.rows.column(RECORD_KEY).take(pa.array(first)).combine_chunks()
    base_positions = None if pool.positions is None else pool.positions[first]
    return LogRecords(keys, current, deleted, barrier, ordering, present, rule, base_positions)


def _merge_partial(
    older: PairSide, newer: PairSide, *, newer_wins: BoolMask, newer_deleted: BoolMask, older_deleted: BoolMask
) -> tuple[pa.Table, dict[str, BoolMask]]:
    assert older.present is not None and newer.present is not None
    columns = []
    masks: dict[str, BoolMask] = {}
    for field in newer.rows.schema:
        has_older, has_newer = older.present[field.name], newer.present[field.name]
        merged = np.where(newer_wins, has_newer, has_newer & ~has_older) & ~newer_deleted
        take_newer = merged | older_deleted | (newer_deleted & newer_wins)
        columns.append(choose_column(older.rows.column(field.name), newer.rows.column(field.name), take_newer))
        masks[field.name] = np.where(
            older_deleted | (newer_deleted & newer_wins), has_newer, np.where(newer_deleted, has_older, has_older | has_newer)
        )
    return pa.table(columns, schema=newer.rows.schema), masks


def _selects_all_in_order(chosen: Ints, count: int) -> bool:
    return len(chosen) == count and bool((chosen[1:] > chosen[:-1]).all())
