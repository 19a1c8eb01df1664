"""What the logs of a slice say, and merging it with the rows of the base file.

How the logs' entries become one record for each key, and which of them wins, is in `log_merge`.

Source: docs/formats/reading.md, "Merging".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.records.ordering import BoolMask, Ints, newer_or_equal
from pyhudi.records.pair_merge import PairSide, merge_pairs, overlaid
from pyhudi.records.record_merge import MissingValues, RecordMergeRule, choose_column
from pyhudi.records.schema_cast import relabel, relabel_column

_PIECE_ROWS = 65_536
"""Rows of a base file that are merged at a time."""


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
    rule: RecordMergeRule
    positions: Ints | None = None

    def merge_base(
        self, base: pa.Table, keys: pa.ChunkedArray | None, visited: BoolMask, first_row: int = 0
    ) -> Iterator[MergedRows]:
        """The rows of a base batch after merging, piece by piece, in the base's columns; rows that the logs delete are left out.

        keys: the record key of each base row; None when records have positions, which count from `first_row`, the number of the
        batch's first row in the file.  visited: set to True for the log records that met a row; what is left at the end are
        inserts.  Raises CorruptData where the batch has the key column and a position names the row of another key.
        """
        at, source = self._meet(base.num_rows, keys, first_row)
        for start in range(0, base.num_rows, _PIECE_ROWS):
            first, last = np.searchsorted(at, [start, start + _PIECE_ROWS]).tolist()
            piece = base.slice(start, _PIECE_ROWS)
            before = int(np.count_nonzero(visited))
            visited[source[first:last]] = True
            matched = int(np.count_nonzero(visited)) - before
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
            newer = filling.fill_missing(older.filter(pa.array(changed)), newer, wins[changed])
        elif self.rule.custom_merge:
            records = source[changed]
            masks = None if self.present is None else {name: mask[records] for name, mask in self.present.items()}
            outcome = merge_pairs(
                self.rule,
                PairSide(older.filter(pa.array(changed)).select(newer.column_names), None),
                PairSide(newer, masks),
                ~self.barrier[records],
                np.ones(len(records), dtype=np.bool_),
            )
            newer = outcome.rows
            keep[replaced[~outcome.is_live]] = False
        elif self.present is not None:
            newer = self._completed(older.filter(pa.array(changed)), newer, source[changed])
        newer = newer.select(base.column_names)
        merged = relabel(newer, base.schema) if len(replaced) == base.num_rows else overlaid(base, newer, replaced)
        return merged.filter(pa.array(keep)) if not keep.all() else merged

    @property
    def _filling(self) -> MissingValues | None:
        """How gaps are filled; a partial update tells by its columns what it leaves alone."""
        return self.rule.filling if self.present is None else None

    @property
    def has_partial_records(self) -> bool:
        """Whether some record is known in some of its columns alone."""
        return self.present is not None and not all(mask.all() for mask in self.present.values())

    def inserts(self, visited: BoolMask) -> pa.Table:
        """The records that met no base row and are not deleted."""
        return self.rows.filter(pa.array(~visited & ~self.deleted))

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
        if RECORD_KEY not in older.column_names:
            return
        own = self.keys.take(pa.array(source))
        # A table without meta columns stores no keys: there is nothing to compare.
        differs = pc.fill_null(pc.not_equal(older.column(RECORD_KEY), own), False)
        if pc.any(differs, min_count=0).as_py():
            wrong = int(np.flatnonzero(np.asarray(differs))[0])
            raise CorruptData(
                f"record positions of the logs do not fit the base file: row {int(rows[wrong])} has another key; read with "
                "hoodie.merge.use.record.positions=false to merge by key",
                expected=own[wrong].as_py(),
                found=older.column(RECORD_KEY)[wrong].as_py(),
            )

    def _beats(self, older: pa.Table, source: Ints) -> BoolMask:
        """Where the log record, be it row or delete, wins over the base row."""
        if self.ordering is None or not self.rule.ordering:
            return np.ones(len(source), dtype=np.bool_)
        wins = newer_or_equal(self.rule.ordering.values(older), self._orderings(source))
        if self.rule.custom_merge:
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
