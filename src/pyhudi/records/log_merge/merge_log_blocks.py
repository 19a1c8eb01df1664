"""Merging the records of a slice's log blocks with each other, and then with the rows of its base file.

Entries arrive in merge order: rows of data blocks (whole or partial), and deletes.  A delete without an ordering value is a
*barrier*: it removes whatever stood before it, the base row included, and only entries after it count.  (The real reader gives
such deletes the ordering value 0 of type int, fails where the column has another type, and lets the base row come back where it
has; a barrier is what the delete meant.)

    by commit time   the last entry of a key wins, over the base row too
    by event time    of the entries after the last barrier the one with the largest ordering value wins, the later one on a tie;
                     null is smallest; the base row stays when its value is larger still and no barrier removed it
    by modes         (table version 9) as by commit time or event time, but a delete without an ordering value is not a barrier:
                     what follows it replaces it and meets the base row by its ordering value; with an update mode each column
                     comes from the entry whose value there is no gap (see `records.update_modes`)
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

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.records.log_merge.fold import EntryPool, MergeEntries, fold_by_modes, fold_by_position, pick_winners
from pyhudi.records.log_merge.log_records import LogRecords
from pyhudi.records.ordering import BoolMask, Ints
from pyhudi.records.record_merge import RecordMergeRule

_FOLD_BYTES = 256 << 20
"""Bytes of entries that are collected before they are merged with what is there."""


class LogMerger:
    """Takes entries in merge order and keeps one record for each key.

    schema: the reader's columns, `_hoodie_record_key` among them.  rule: the table's; its ordering fields must be among the
    columns.  Entries come all with positions or all without (see `LogRecords.positions`).
    """

    def __init__(self, schema: pa.Schema, rule: RecordMergeRule) -> None:
        self._schema = schema
        self._rule = rule
        self._pending: list[MergeEntries] = []
        self._pending_bytes = 0
        self._partial = False
        self._state: LogRecords | None = None

    def start_partial_block(self) -> None:
        """A partial block comes, be it one without rows: from here on entries are merged as partial ones are."""
        if not self._partial:
            self._fold()
            self._partial = True

    def add_rows(
        self,
        rows: pa.Table,
        is_present: Sequence[str] | None = None,
        positions: Ints | None = None,
    ) -> None:
        """Rows of a data block in the reader's columns.  is_present: the columns that a partial block holds, None for whole rows.

        positions: the base row that each stands for, None to go by key.
        """
        deleted = np.zeros(rows.num_rows, dtype=np.bool_)
        flagged = self._rule.deletes(rows)
        if flagged is not None:
            deleted |= flagged
        if is_present is not None:
            self.start_partial_block()
        plain = np.zeros(rows.num_rows, dtype=np.bool_)
        if self._rule.delete_is_barrier and deleted.any():
            plain = deleted & self._rule.ordering.are_zero(rows)
        columns = None if is_present is None else frozenset(is_present)
        self._add(MergeEntries(rows, deleted, plain, columns, self._ordering(rows), positions, in_data=True))

    def add_deletes(
        self, keys: pa.Array, ordering: pa.Array | None, plain_deletes: BoolMask, positions: Ints | None = None
    ) -> None:
        """Deletes.  ordering: a value of the ordering column's type for each, of several a struct of their types, None when the
        table has none; plain_deletes: those without one; positions: as for `add_rows`.
        """
        columns = {RECORD_KEY: keys.cast(pa.string())}
        rows = pa.table(
            [columns[f.name] if f.name in columns else pa.nulls(len(keys), f.type) for f in self._schema],
            schema=pa.schema([f.with_nullable(True) for f in self._schema]),
        )
        by = self._rule.ordering
        values = by.normalize_delete_values(ordering) if by and ordering is not None else None
        if values is None:
            plain_deletes = np.ones(len(keys), dtype=np.bool_)
        if by and values is None:
            values = by.normalize_delete_values(pa.nulls(len(keys), by.values(rows).type))
        self._add(MergeEntries(rows, np.ones(len(keys), dtype=np.bool_), plain_deletes, None, values, positions, in_data=False))

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

    def _add(self, entries: MergeEntries) -> None:
        if entries.rows.num_rows == 0:
            return
        self._pending.append(entries)
        self._pending_bytes += entries.rows.nbytes
        if self._pending_bytes > _FOLD_BYTES:
            self._fold()

    def _fold(self) -> None:
        if not self._pending:
            return
        pool = EntryPool.of(self._schema, self._state, self._pending, partial=self._partial)
        # The pool alone holds the rows from here on, so that it can let go of them column by column.
        self._pending = []
        self._pending_bytes = 0
        self._state = None
        rule = self._rule
        if self._partial or rule.custom_merge:
            self._state = fold_by_position(pool, rule, partial=self._partial)
        elif rule.delete_is_barrier and (rule.ordering or rule.filling):
            self._state = fold_by_modes(pool, rule)
        else:
            self._state = pick_winners(pool, rule)
