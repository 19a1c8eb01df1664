"""Merging the records of a slice's log blocks with each other, and then with the rows of its base file.

Entries arrive in merge order: rows of data blocks (whole or partial), and deletes.  A delete without an ordering value is a
*barrier*: it removes whatever stood
before it, the base row included, and only entries after it count.  (The real reader gives such deletes the ordering value 0 of
type int, fails where the column has another type, and lets the base row come back where it has; a barrier is what the delete
meant.)

    by commit time   the last entry of a key wins, over the base row too
    by event time    of the entries after the last barrier the one with the largest ordering value wins, the later one on a tie;
                     null is smallest; the base row stays when its value is larger still and no barrier removed it
    by modes         (table version 9) as by commit time or event time, but a delete without an ordering value is not a barrier:
                     what follows it replaces it and meets the base row by its ordering value; with an update mode each column
                     comes from the entry whose value there is no gap (see `records.mode_rule`)
    by a rule        entries are folded one after the other through the rule; a delete with an ordering value wins unless the
                     other one's is larger
    partial          from the first partial block on, columns that the winner lacks are taken from the loser; a record replaces a
                     delete, and a delete the base row, whatever their ordering values are; a merger merges what lacks columns
                     by its partial merge

Entries meet by their record key, or by the row of the base file that they stand for where every block of the logs names those
rows (its record positions): then no key is looked up, and the reader may leave the key column of the base file alone.

Whole columns throughout: the fold takes as many passes as a key has entries, not as many as there are keys.

Source: docs/formats/reading.md, "Merging", "Deletes" and "Partial updates"; docs/formats/log-file.md, "Positions".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.records.conform import relabel, relabel_column
from pyhudi.records.merge import Gaps, MergeRule, choose_column, places_of_two, row_codes, whole
from pyhudi.records.mergers import partial_merge
from pyhudi.records.ordering import BoolMask, Ints, newer_or_equal, ordering_ranks
from pyhudi.records.runs import run_starts

_FOLD_BYTES = 256 << 20
"""Bytes of entries that are collected before they are merged with what is there."""

_PIECE_ROWS = 65_536
"""Rows of a base file that are merged at a time."""

_KEY = "_hoodie_record_key"


@dataclass(frozen=True, slots=True)
class LogRecords:
    """What the logs of a slice say, one record for each key.

    keys: strings, distinct.  rows: the record of each key in the reader's columns; nulls where it is deleted.  deleted: the key's
    last word is a delete.
    barrier: the base row does not count.  ordering: the ordering value that competes with the base row's, None when none does.
    present: for each column which rows have it, None when all rows are whole.
    positions: the row of the base file that each record stands for, rising; None when they meet base rows by key.
    """

    keys: pa.Array
    rows: pa.Table
    deleted: BoolMask
    barrier: BoolMask
    ordering: pa.ChunkedArray | None
    present: dict[str, BoolMask] | None
    rule: MergeRule
    positions: Ints | None = None

    def merge_base(
        self, base: pa.Table, keys: pa.ChunkedArray | None, seen: BoolMask, first_row: int = 0
    ) -> Iterator[MergedRows]:
        """The rows of a base batch after merging, piece by piece, in the base's columns; rows that the logs delete are left out.

        keys: the record key of each base row; None when records have positions, which count from `first_row`, the number of the
        batch's first row in the file.  seen: set to True for the log records that met a row; what is left at the end are
        inserts.  Raises CorruptData where the batch has the key column and a position names the row of another key.
        """
        at, source = self._meet(base.num_rows, keys, first_row)
        for start in range(0, base.num_rows, _PIECE_ROWS):
            first, last = np.searchsorted(at, [start, start + _PIECE_ROWS]).tolist()
            piece = base.slice(start, _PIECE_ROWS)
            before = int(np.count_nonzero(seen))
            seen[source[first:last]] = True
            matched = int(np.count_nonzero(seen)) - before
            rows = self._merged(piece, at[first:last] - start, source[first:last], first_row + start)
            yield MergedRows(rows, piece.num_rows, matched)

    def _merged(self, base: pa.Table, at: Ints, source: Ints, first_row: int) -> pa.Table:
        """base: some rows; at, source: pairs of one of them and the log record that stands for it, by row."""
        if not len(at):
            return base
        older = base.take(pa.array(at))
        if self.positions is not None:
            self._check_keys(older, source, first_row + at)
        wins = self._beats(older, source)
        gone = wins & self.deleted[source]
        filling = self._filling
        # A record that loses still fills gaps of the one that it loses to.
        changed = wins & ~gone if filling is None else ~self.deleted[source]
        keep = np.ones(base.num_rows, dtype=np.bool_)
        keep[at[gone]] = False
        replaced = at[changed]
        if not len(replaced):
            return base.filter(pa.array(keep)) if gone.any() else base
        newer = self._newer(source, changed)
        if filling is not None:
            newer = filling.filled(older.filter(pa.array(changed)), newer, wins[changed])
        elif self.rule.decides:
            records = source[changed]
            masks = None if self.present is None else {name: mask[records] for name, mask in self.present.items()}
            outcome = _merge_by_rule(
                self.rule,
                _Side(older.filter(pa.array(changed)).select(newer.column_names), None),
                _Side(newer, masks),
                ~self.barrier[records],
                np.ones(len(records), dtype=np.bool_),
            )
            newer = outcome.rows
            keep[replaced[~outcome.alive]] = False
        elif self.present is not None:
            newer = self._completed(older.filter(pa.array(changed)), newer, source[changed])
        newer = newer.select(base.column_names)
        merged = relabel(newer, base.schema) if len(replaced) == base.num_rows else _overlaid(base, newer, replaced)
        return merged.filter(pa.array(keep)) if not keep.all() else merged

    @property
    def _filling(self) -> Gaps | None:
        """How gaps are filled; a partial update tells by its columns what it leaves alone."""
        return self.rule.filling if self.present is None else None

    @property
    def lacks_columns(self) -> bool:
        """Whether some record is known in some of its columns alone."""
        return self.present is not None and not all(mask.all() for mask in self.present.values())

    def inserts(self, seen: BoolMask) -> pa.Table:
        """The records that met no base row and are not deleted."""
        return self.rows.filter(pa.array(~seen & ~self.deleted))

    def _meet(self, row_count: int, keys: pa.ChunkedArray | None, first_row: int) -> tuple[Ints, Ints]:
        """Pairs of a base row (its number in the batch) and the log record that stands for it, by base row."""
        if self.positions is not None:
            first, last = np.searchsorted(self.positions, [first_row, first_row + row_count]).tolist()
            return self.positions[first:last] - first_row, np.arange(first, last, dtype=np.int64)
        assert keys is not None, "records without positions meet base rows by key"
        found = pc.index_in(keys, value_set=self.keys).combine_chunks()
        return np.flatnonzero(np.asarray(found.is_valid(), dtype=np.bool_)), np.asarray(found.drop_null(), dtype=np.int64)

    def _orderings(self, source: Ints) -> pa.ChunkedArray:
        assert self.ordering is not None
        if self.positions is None:
            return self.ordering.take(pa.array(source))
        # By position they stand together.
        return self.ordering.slice(int(source[0]), len(source))

    def _newer(self, source: Ints, changed: BoolMask) -> pa.Table:
        if self.positions is None:
            return self.rows.take(pa.array(source[changed]))
        rows = self.rows.slice(int(source[0]), len(source))
        return rows if changed.all() else rows.filter(pa.array(changed))

    def _check_keys(self, older: pa.Table, source: Ints, rows: Ints) -> None:
        if _KEY not in older.column_names:
            return
        own = self.keys.take(pa.array(source))
        # A table without meta columns stores no keys: there is nothing to compare.
        differs = pc.fill_null(pc.not_equal(older.column(_KEY), own), False)
        if pc.any(differs, min_count=0).as_py():
            wrong = int(np.flatnonzero(np.asarray(differs))[0])
            raise CorruptData(
                f"record positions of the logs do not fit the base file: row {int(rows[wrong])} has another key; read with "
                "hoodie.merge.use.record.positions=false to merge by key",
                expected=own[wrong].as_py(),
                found=older.column(_KEY)[wrong].as_py(),
            )

    def _beats(self, older: pa.Table, source: Ints) -> BoolMask:
        """Where the log record, be it row or delete, wins over the base row."""
        if self.ordering is None or not self.rule.ordering:
            return np.ones(len(source), dtype=np.bool_)
        wins = newer_or_equal(self.rule.ordering.values(older), self._orderings(source))
        if self.rule.decides:
            # A rule decides between two rows by itself; only deletes compare ordering values.
            wins |= ~self.deleted[source]
        elif self.present is not None:
            # Among partial updates a delete wins whatever its ordering value is.
            wins |= self.deleted[source]
        return wins | self.barrier[source]

    def _completed(self, older: pa.Table, newer: pa.Table, source: Ints) -> pa.Table:
        assert self.present is not None
        columns = []
        for field in newer.schema:
            # Of a base row that was deleted before nothing is taken.
            has = self.present[field.name][source] | self.barrier[source]
            own = newer.column(field.name)
            columns.append(own if has.all() else choose_column(relabel_column(older.column(field.name), field), own, has))
        return pa.table(columns, schema=newer.schema)


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Some rows of a base file after merging.

    base_count: how many they were before; matched: how many log records met their first base row here.
    """

    rows: pa.Table
    base_count: int
    matched: int


class LogMerger:
    """Takes entries in merge order and keeps one record for each key.

    schema: the reader's columns, `_hoodie_record_key` among them.  rule: the table's; its ordering fields must be among the
    columns.  Entries come all with positions or all without (see `LogRecords.positions`).
    """

    def __init__(self, schema: pa.Schema, rule: MergeRule) -> None:
        self._schema = schema
        self._rule = rule
        self._pending: list[_Entries] = []
        self._pending_bytes = 0
        self._partial = False
        self._state: LogRecords | None = None

    def meet_partial(self) -> None:
        """A partial block comes, be it one without rows: from here on entries are merged as partial ones are."""
        if not self._partial:
            self._fold()
            self._partial = True

    def add_rows(
        self,
        rows: pa.Table,
        present: Sequence[str] | None = None,
        positions: Ints | None = None,
    ) -> None:
        """Rows of a data block in the reader's columns.  present: the columns that a partial block holds, None for whole rows.

        positions: the base row that each stands for, None to go by key.
        """
        deleted = np.zeros(rows.num_rows, dtype=np.bool_)
        flagged = self._rule.deletes(rows)
        if flagged is not None:
            deleted |= flagged
        if present is not None:
            self.meet_partial()
        plain = np.zeros(rows.num_rows, dtype=np.bool_)
        if self._rule.revives and deleted.any():
            plain = deleted & self._rule.ordering.are_zero(rows)
        columns = None if present is None else frozenset(present)
        self._add(_Entries(rows, deleted, plain, columns, self._ordering(rows), positions, in_data=True))

    def add_deletes(self, keys: pa.Array, ordering: pa.Array | None, plain: BoolMask, positions: Ints | None = None) -> None:
        """Deletes.  ordering: a value of the ordering column's type for each, of several a struct of their types, None when the
        table has none; plain: those without one; positions: as for `add_rows`.
        """
        columns = {_KEY: keys.cast(pa.string())}
        rows = pa.table(
            [columns[f.name] if f.name in columns else pa.nulls(len(keys), f.type) for f in self._schema],
            schema=pa.schema([f.with_nullable(True) for f in self._schema]),
        )
        by = self._rule.ordering
        values = by.settled(ordering) if by and ordering is not None else None
        if values is None:
            plain = np.ones(len(keys), dtype=np.bool_)
        if by and values is None:
            values = by.settled(pa.nulls(len(keys), by.values(rows).type))
        self._add(_Entries(rows, np.ones(len(keys), dtype=np.bool_), plain, None, values, positions, in_data=False))

    def finish(self) -> LogRecords:
        """One record for each key."""
        self._fold()
        if self._state is None:
            nothing = np.zeros(0, dtype=np.bool_)
            return LogRecords(pa.array([], pa.string()), self._schema.empty_table(), nothing, nothing, None, None, self._rule)
        return self._state

    def _ordering(self, rows: pa.Table) -> pa.ChunkedArray | None:
        by = self._rule.ordering
        return by.values(rows) if by and set(by.heads) <= set(rows.column_names) else None

    def _add(self, entries: _Entries) -> None:
        if entries.rows.num_rows == 0:
            return
        self._pending.append(entries)
        self._pending_bytes += entries.rows.nbytes
        if self._pending_bytes > _FOLD_BYTES:
            self._fold()

    def _fold(self) -> None:
        if not self._pending:
            return
        pool = _Pool.of(self._schema, self._state, self._pending, partial=self._partial)
        # The pool alone holds the rows from here on, so that it can let go of them column by column.
        self._pending = []
        self._pending_bytes = 0
        self._state = None
        rule = self._rule
        if self._partial or rule.decides:
            self._state = _fold_in_passes(pool, rule, partial=self._partial)
        elif rule.revives and (rule.ordering or rule.filling):
            self._state = _fold_by_modes(pool, rule)
        else:
            self._state = _pick_winners(pool, rule)


@dataclass(frozen=True, slots=True)
class _Entries:
    rows: pa.Table
    deleted: BoolMask
    plain: BoolMask
    present: frozenset[str] | None
    ordering: pa.ChunkedArray | None
    positions: Ints | None
    in_data: bool


@dataclass(slots=True)
class _Pool:
    """All entries in merge order.  barred: entries behind which a barrier stands already (records of an earlier fold).

    in_data: those that stood in data blocks, be they deletes.

    `records` takes the rows out, which are the most of what a slice's logs need in memory: they are not held twice.
    """

    rows: pa.Table
    deleted: BoolMask
    plain: BoolMask
    barred: BoolMask
    ordering: pa.ChunkedArray | None
    present: dict[str, BoolMask] | None
    positions: Ints | None
    in_data: BoolMask

    @classmethod
    def of(cls, schema: pa.Schema, state: LogRecords | None, entries: list[_Entries], *, partial: bool) -> _Pool:
        loose = pa.schema([f.with_nullable(True) for f in schema])
        tables = [relabel(entry.rows, loose) for entry in entries]
        deleted = [entry.deleted for entry in entries]
        plain = [entry.plain for entry in entries]
        barred = [np.zeros(entry.rows.num_rows, dtype=np.bool_) for entry in entries]
        ordering = [entry.ordering for entry in entries]
        positions = [entry.positions for entry in entries]
        in_data = [np.full(entry.rows.num_rows, entry.in_data, dtype=np.bool_) for entry in entries]
        present: dict[str, list[BoolMask]] = {name: [] for name in loose.names}
        if state is not None:
            keyed = state.rows.set_column(
                state.rows.schema.get_field_index(_KEY), loose.field(_KEY), pa.chunked_array([state.keys])
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
                    has = entry.present is None or name in entry.present or name == _KEY
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
            return row_codes(self.rows, [_KEY])
        return np.unique(self.positions, return_inverse=True)[1].astype(np.int64, copy=False)

    def records(
        self, chosen: Ints, barrier: BoolMask, deleted: BoolMask, rule: MergeRule, sources: dict[str, Ints] | None = None
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
            elif field.name == _KEY or not by_position:
                # Rows that are met by key are taken here and there, which is quick from one piece alone.
                column = pa.chunked_array([whole(column)])
            taken.append(column)
        rows = pa.table(taken, schema=schema)
        return LogRecords(
            keys=whole(rows.column(_KEY)),
            rows=rows,
            deleted=deleted,
            barrier=barrier,
            ordering=ordering,
            present=None if self.present is None else {name: mask[chosen] for name, mask in self.present.items()},
            rule=rule,
            positions=None if self.positions is None else self.positions[chosen],
        )


def _pick_winners(pool: _Pool, rule: MergeRule) -> LogRecords:
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
    plain = np.flatnonzero(pool.plain)
    barrier_at[codes[plain]] = plain
    barrier[codes[pool.barred]] = True
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


def _fold_by_modes(pool: _Pool, rule: MergeRule) -> LogRecords:
    """Fold entry after entry of each key as `_fold_in_passes` does, without moving rows: what is folded is where values stand."""
    codes = pool.codes()
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = run_starts(sorted_codes)
    sizes = np.diff(np.r_[starts, len(order)])
    held = order[starts]
    final = (pool.plain | pool.barred) & pool.deleted
    repeated = bool(len(sizes)) and int(sizes.max()) > 1
    ranks = ordering_ranks(pool.ordering) if repeated and pool.ordering is not None else np.zeros(len(codes), dtype=np.int64)
    gaps: dict[str, BoolMask] = {}
    if repeated and rule.filling is not None:
        found = {name: rule.filling.gaps(name, pool.rows.column(name)) for name in pool.rows.column_names if name != _KEY}
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


def _fold_in_passes(pool: _Pool, rule: MergeRule, *, partial: bool) -> LogRecords:
    """Fold entry after entry of each key; pass n treats the n-th entry of every key that has so many."""
    codes = pool.codes()
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = run_starts(sorted_codes)
    sizes = np.diff(np.r_[starts, len(order)])
    first = order[starts]
    held = pool.rows.take(pa.array(first))
    deleted = pool.deleted[first].copy()
    barrier = (pool.plain | pool.barred)[first].copy()
    ordering = None if pool.ordering is None else pool.ordering.take(pa.array(first))
    present = None if pool.present is None else {name: mask[first].copy() for name, mask in pool.present.items()}
    for step in range(1, int(sizes.max()) if len(sizes) else 0):
        active = np.flatnonzero(sizes > step)
        entry = order[starts[active] + step]
        older = held.take(pa.array(active))
        newer = pool.rows.take(pa.array(entry))
        newer_deleted, newer_plain = pool.deleted[entry], pool.plain[entry]
        older_deleted, older_barred = deleted[active], barrier[active] & deleted[active]
        wins = np.ones(len(active), dtype=np.bool_)
        if ordering is not None and pool.ordering is not None:
            older_plain = older_barred
            if not rule.revives:
                older_plain &= np.asarray(pc.is_null(ordering.take(pa.array(active))).combine_chunks(), dtype=np.bool_)
            wins = (
                newer_or_equal(ordering.take(pa.array(active)), pool.ordering.take(pa.array(entry))) | newer_plain | older_plain
            )
        both_rows = ~newer_deleted & ~older_deleted
        held_present: dict[str, BoolMask] | None
        if partial and not rule.decides:
            result, held_present = _merge_partial(
                older, newer, active, entry, present, pool, wins=wins, newer_deleted=newer_deleted, older_deleted=older_deleted
            )
            taken = wins | older_deleted
            result_deleted = newer_deleted & taken
        else:
            outcome = _merge_by_rule(
                rule,
                _Side(older, None if present is None else {name: mask[active] for name, mask in present.items()}),
                _Side(newer, None if pool.present is None else {name: mask[entry] for name, mask in pool.present.items()}),
                both_rows,
                wins,
            )
            result = outcome.rows
            result_deleted = np.where(both_rows, ~outcome.alive, np.where(wins, newer_deleted, older_deleted))
            taken = outcome.changed
            held_present = outcome.present
        positions = np.arange(held.num_rows, dtype=np.int64)
        positions[active] = held.num_rows + np.arange(len(active))
        held = pa.concat_tables([held, relabel(result, held.schema)]).take(pa.array(positions))
        deleted[active] = result_deleted
        # Where records revive, a delete without an ordering value stands as long as nothing follows it.
        barrier[active] = np.where(taken, newer_plain, barrier[active]) if rule.revives else barrier[active] | newer_plain
        if ordering is not None and pool.ordering is not None:
            both = pa.chunked_array([*ordering.chunks, *pool.ordering.take(pa.array(entry)).chunks])
            index = np.arange(len(ordering), dtype=np.int64)
            index[active[taken]] = len(ordering) + np.flatnonzero(taken)
            ordering = both.take(pa.array(index))
        if present is not None and held_present is not None:
            for name, mask in held_present.items():
                present[name][active] = mask
    keys = pool.rows.column(_KEY).take(pa.array(first)).combine_chunks()
    places = None if pool.positions is None else pool.positions[first]
    return LogRecords(keys, held, deleted, barrier, ordering, present, rule, places)


def _merge_partial(
    older: pa.Table,
    newer: pa.Table,
    active: Ints,
    entry: Ints,
    present: dict[str, BoolMask] | None,
    pool: _Pool,
    *,
    wins: BoolMask,
    newer_deleted: BoolMask,
    older_deleted: BoolMask,
) -> tuple[pa.Table, dict[str, BoolMask]]:
    assert present is not None and pool.present is not None
    columns = []
    masks: dict[str, BoolMask] = {}
    for field in newer.schema:
        has_older, has_newer = present[field.name][active], pool.present[field.name][entry]
        merged = np.where(wins, has_newer, has_newer & ~has_older) & ~newer_deleted
        take_newer = merged | older_deleted | (newer_deleted & wins)
        columns.append(choose_column(older.column(field.name), newer.column(field.name), take_newer))
        masks[field.name] = np.where(
            older_deleted | (newer_deleted & wins), has_newer, np.where(newer_deleted, has_older, has_older | has_newer)
        )
    return pa.table(columns, schema=newer.schema), masks


@dataclass(frozen=True, slots=True)
class _Side:
    """The older or the newer records of pairs.  present: for each column which of them have it; None when all are whole."""

    rows: pa.Table
    present: dict[str, BoolMask] | None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """As `Merged`, in all columns.  present: as of `_Side`."""

    rows: pa.Table
    alive: BoolMask
    changed: BoolMask
    present: dict[str, BoolMask] | None


def _merge_by_rule(rule: MergeRule, older: _Side, newer: _Side, asked: BoolMask, wins: BoolMask) -> _Outcome:
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
    left = asked.copy()
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
        alive[at], changed[at] = outcome.alive, outcome.changed
        for name, mask in (present or {}).items():
            mask[at] = name in held[0] or name in held[1]
        found = set(outcome.rows.column_names)
        columns = [outcome.rows.column(f.name) if f.name in found else pa.nulls(len(at), f.type) for f in rows.schema]
        values.append(pa.table(columns, names=rows.column_names).cast(rows.schema))
        places.append(at)
    if values:
        rows = _overlaid(rows, pa.concat_tables(values), np.concatenate(places))
    return _Outcome(rows, alive, changed, present)


def _is_whole(chosen: Ints, count: int) -> bool:
    return len(chosen) == count and bool((chosen[1:] > chosen[:-1]).all())


def _choose(first: pa.Table, second: pa.Table, take_second: BoolMask) -> pa.Table:
    if take_second.all():
        return second
    if not take_second.any():
        return first
    return pa.concat_tables([first, relabel(second, first.schema)]).take(places_of_two(take_second))


def _overlaid(rows: pa.Table, values: pa.Table, at: Ints) -> pa.Table:
    positions = np.arange(rows.num_rows, dtype=np.int64)
    positions[at] = rows.num_rows + np.arange(len(at))
    return pa.concat_tables([rows, relabel(values, rows.schema)]).take(pa.array(positions))
