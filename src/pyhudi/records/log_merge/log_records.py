"""Merged log records of a file slice, and merging them with the rows of the base file.

`merge_log_blocks` describes how log entries are folded into one record per key.

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
from pyhudi.options import file_options
from pyhudi.records.ordering import BoolMask, Ints, newer_or_equal
from pyhudi.records.pair_merge import PairSide, merge_pairs, overlaid
from pyhudi.records.record_merge import MissingValues, RecordMergeRule, choose_column
from pyhudi.records.schema_cast import relabel, relabel_column

_PIECE_ROWS = 65_536
"""Rows of a base file merged at a time."""


@dataclass(frozen=True, slots=True)
class LogRecords:
    """Merged log records of a file slice, one per key.

    Attributes:
        keys: Distinct record keys, strings.
        rows: Record of each key in the reader's columns; nulls for deleted keys.
        deleted: True if the last change of the key is a delete.
        barrier: True if the base row is ignored.
        ordering: Ordering value that competes with that of the base row; None if there is none.
        present: For each column, which rows have it; None if all rows are complete.
        rule: Merge rule.
        positions: Base file row that each record replaces, ascending; None if base rows are matched by key.
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
        """Merge a batch of base rows with the log records; yields chunks in the base's columns, without deleted rows.

        Args:
            base: Rows of the base file.
            keys: Record key of each base row; None if records have positions.
            visited: Set to True for the log records that match a row; those still False at the end are inserts.
            first_row: Row number in the file of the batch's first row; positions count from it.

        Raises:
            CorruptData: The batch has the key column, and a position names a row of another key.
        """
        base_rows, source = self._match_rows(base.num_rows, keys, first_row)
        for start in range(0, base.num_rows, _PIECE_ROWS):
            first, last = np.searchsorted(base_rows, [start, start + _PIECE_ROWS]).tolist()
            piece = base.slice(start, _PIECE_ROWS)
            visited_before = int(np.count_nonzero(visited))
            visited[source[first:last]] = True
            matched = int(np.count_nonzero(visited)) - visited_before
            rows = self._merged(piece, base_rows[first:last] - start, source[first:last], first_row + start)
            yield MergedRows(rows, piece.num_rows, matched)

    def replaced_rows(
        self, base: pa.Table, keys: pa.ChunkedArray | None, visited: BoolMask, first_row: int = 0
    ) -> tuple[Ints, Ints]:
        """Return which rows of a batch the log records replace or delete, by row numbers in the file, and these records.

        For complete records of a rule that selects one of the two sides.

        Args:
            base: Rows of the base file in the columns of the ordering value; without columns if every record wins.
            keys: As in `merge_base`.
            visited: As in `merge_base`.
            first_row: As in `merge_base`.
        """
        base_rows, source = self._match_rows(base.num_rows, keys, first_row)
        visited[source] = True
        if not len(source):
            return base_rows, source
        if not base.num_columns:
            return base_rows + first_row, source
        wins = self._log_wins(base.take(pa.array(base_rows)), source)
        return base_rows[wins] + first_row, source[wins]

    def _merged(self, base: pa.Table, at: Ints, source: Ints, first_row: int) -> pa.Table:
        """Merge base rows with log records; `at` and `source` are the matched pairs, ordered by base row."""
        if not len(at):
            return base
        older = base.take(pa.array(at))
        if self.positions is not None:
            self._check_keys(older, source, first_row + at)
        wins = self._log_wins(older, source)
        deleted = wins & self.deleted[source]
        filling = self._filling
        # A record that loses still fills missing values of the winner.
        changed = wins & ~deleted if filling is None else ~self.deleted[source]
        keep_mask = np.ones(base.num_rows, dtype=np.bool_)
        keep_mask[at[deleted]] = False
        replaced = at[changed]
        if not len(replaced):
            return base.filter(pa.array(keep_mask)) if deleted.any() else base
        newer = self._changed_log_rows(source, changed)
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
            keep_mask[replaced[~outcome.is_live]] = False
        elif self.present is not None:
            newer = self._fill_missing_columns(older.filter(pa.array(changed)), newer, source[changed])
        newer = newer.select(base.column_names)
        merged = relabel(newer, base.schema) if len(replaced) == base.num_rows else overlaid(base, newer, replaced)
        return merged.filter(pa.array(keep_mask)) if not keep_mask.all() else merged

    @property
    def _filling(self) -> MissingValues | None:
        """Return how missing values are filled; None for partial updates, whose column lists define what they change."""
        return self.rule.filling if self.present is None else None

    @property
    def has_partial_records(self) -> bool:
        """True if a record lacks columns."""
        return self.present is not None and not all(mask.all() for mask in self.present.values())

    def inserts(self, visited: BoolMask) -> pa.Table:
        """Return the records that match no base row and are not deleted."""
        return self.rows.filter(pa.array(~visited & ~self.deleted))

    def _match_rows(self, row_count: int, keys: pa.ChunkedArray | None, first_row: int) -> tuple[Ints, Ints]:
        """Match base rows with log records; returns row numbers in the batch and records, ordered by row."""
        if self.positions is not None:
            first, last = np.searchsorted(self.positions, [first_row, first_row + row_count]).tolist()
            return self.positions[first:last] - first_row, np.arange(first, last, dtype=np.int64)
        assert keys is not None, "records without positions match base rows by key"
        matches = pc.index_in(keys, value_set=self.keys).combine_chunks()
        return np.flatnonzero(np.asarray(matches.is_valid(), dtype=np.bool_)), np.asarray(matches.drop_null(), dtype=np.int64)

    def _orderings(self, source: Ints) -> pa.ChunkedArray:
        assert self.ordering is not None
        if self.positions is None:
            return self.ordering.take(pa.array(source))
        # Records matched by position are contiguous.
        return self.ordering.slice(int(source[0]), len(source))

    def _changed_log_rows(self, source: Ints, changed: BoolMask) -> pa.Table:
        if self.positions is None:
            return self.rows.take(pa.array(source[changed]))
        rows = self.rows.slice(int(source[0]), len(source))
        return rows if changed.all() else rows.filter(pa.array(changed))

    def _check_keys(self, older: pa.Table, source: Ints, rows: Ints) -> None:
        if RECORD_KEY not in older.column_names:
            return
        log_keys = self.keys.take(pa.array(source))
        # A table without meta columns stores no keys, so there is nothing to compare.
        differs = pc.fill_null(pc.not_equal(older.column(RECORD_KEY), log_keys), False)
        if pc.any(differs, min_count=0).as_py():
            first_mismatch = int(np.flatnonzero(np.asarray(differs))[0])
            raise CorruptData(
                f"record positions in the logs do not match the base file: row {int(rows[first_mismatch])} has another key; "
                f"read with {file_options.MERGE_USE_RECORD_POSITIONS}=false to merge by key",
                expected=log_keys[first_mismatch].as_py(),
                found=older.column(RECORD_KEY)[first_mismatch].as_py(),
            )

    def _log_wins(self, older: pa.Table, source: Ints) -> BoolMask:
        """Return where the log record, row or delete, wins over the base row."""
        if self.ordering is None or not self.rule.ordering:
            return np.ones(len(source), dtype=np.bool_)
        wins = newer_or_equal(self.rule.ordering.values(older), self._orderings(source))
        if self.rule.custom_merge:
            # A custom rule decides between two rows; only deletes compare ordering values.
            wins |= ~self.deleted[source]
        elif self.present is not None:
            # Among partial updates a delete wins regardless of its ordering value.
            wins |= self.deleted[source]
        return wins | self.barrier[source]

    def _fill_missing_columns(self, older: pa.Table, newer: pa.Table, source: Ints) -> pa.Table:
        assert self.present is not None
        columns = []
        for field in newer.schema:
            # Values of a base row that was deleted are not used.
            has_value = self.present[field.name][source] | self.barrier[source]
            newer_column = newer.column(field.name)
            columns.append(
                newer_column
                if has_value.all()
                else choose_column(relabel_column(older.column(field.name), field), newer_column, has_value)
            )
        return pa.table(columns, schema=newer.schema)


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Some rows of a base file after merging.

    Attributes:
        rows: Rows after merging.
        base_count: Number of rows before merging.
        matched: Number of log records that matched their first base row here.
    """

    rows: pa.Table
    base_count: int
    matched: int
