"""Merge the records of a slice's log blocks with each other, and then with the rows of its base file.

Entries arrive in merge order: rows of data blocks (complete or partial), and deletes. A delete without an ordering
value is a *barrier*: it removes all earlier entries, the base row included, and only later entries count. (Hudi's
reader gives such deletes the ordering value 0 of type int: it fails if the column has another type, and otherwise lets
the base row reappear. A barrier implements the intended meaning of the delete.)

    commit time      the last entry of a key wins, over the base row too
    event time       of the entries after the last barrier the one with the largest ordering value wins, the later one
                     on a tie; null is smallest; the base row wins if its value is larger still and no barrier removed
                     it
    merge modes      (table version 9) as commit time or event time, but a delete without an ordering value is not a
                     barrier: a later entry replaces it and is merged with the base row by its ordering value; with an
                     update mode each column comes from the entry whose value is not missing (see
                     `records.update_modes`)
    custom rule      entries are folded in order through the rule; a delete with an ordering value wins unless the other
                     entry's is larger
    partial          from the first partial block on, columns that the winner lacks are filled from the loser; a record
                     replaces a delete, and a delete the base row, regardless of ordering values; a merger merges
                     entries that lack columns by its partial merge

Entries are matched by record key, or by record position (row number in the base file) if every log block stores
positions. Then keys are not looked up, and the reader need not read the key column of the base file.

All operations process whole columns: the fold takes as many passes as a key has entries, not as many as there are keys.

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
"""Bytes of pending entries that trigger a fold into the current records."""


class LogMerger:
    """Merges entries, added in merge order, into one record per key.

    Args:
        schema: Reader's columns, including `_hoodie_record_key`.
        rule: Merge rule of the table; its ordering fields must be among the columns. Either all entries have positions
            or none (see `LogRecords.positions`).
    """

    def __init__(self, schema: pa.Schema, rule: RecordMergeRule) -> None:
        self._schema = schema
        self._rule = rule
        self._pending: list[MergeEntries] = []
        self._pending_bytes = 0
        self._partial = False
        self._state: LogRecords | None = None

    def start_partial_block(self) -> None:
        """Start a partial block, which may be empty: this and later entries are merged as partial updates."""
        if not self._partial:
            self._fold()
            self._partial = True

    def add_rows(
        self,
        rows: pa.Table,
        is_present: Sequence[str] | None = None,
        positions: Ints | None = None,
    ) -> None:
        """Add rows of a data block in the reader's columns.

        Args:
            rows: Rows of the block.
            is_present: Columns of a partial block; None for complete rows.
            positions: Base file row of each row; None to match by key.
        """
        deleted = np.zeros(rows.num_rows, dtype=np.bool_)
        delete_mask = self._rule.deletes(rows)
        if delete_mask is not None:
            deleted |= delete_mask
        if is_present is not None:
            self.start_partial_block()
        plain_deletes = np.zeros(rows.num_rows, dtype=np.bool_)
        if self._rule.delete_is_barrier and deleted.any():
            plain_deletes = deleted & self._rule.ordering.are_zero(rows)
        columns = None if is_present is None else frozenset(is_present)
        self._add(MergeEntries(rows, deleted, plain_deletes, columns, self._ordering(rows), positions, in_data=True))

    def add_deletes(
        self, keys: pa.Array, ordering: pa.Array | None, plain_deletes: BoolMask, positions: Ints | None = None
    ) -> None:
        """Add the deletes of a delete block.

        Args:
            keys: Record keys.
            ordering: Ordering value of each delete, of the ordering column's type, or a struct for several columns;
                None if there are none.
            plain_deletes: True for deletes without an ordering value.
            positions: As in `add_rows`.
        """
        columns = {RECORD_KEY: keys.cast(pa.string())}
        rows = pa.table(
            [columns[f.name] if f.name in columns else pa.nulls(len(keys), f.type) for f in self._schema],
            schema=pa.schema([f.with_nullable(True) for f in self._schema]),
        )
        rule_ordering = self._rule.ordering
        values = rule_ordering.normalize_delete_values(ordering) if rule_ordering and ordering is not None else None
        if values is None:
            plain_deletes = np.ones(len(keys), dtype=np.bool_)
        if rule_ordering and values is None:
            values = rule_ordering.normalize_delete_values(pa.nulls(len(keys), rule_ordering.values(rows).type))
        self._add(MergeEntries(rows, np.ones(len(keys), dtype=np.bool_), plain_deletes, None, values, positions, in_data=False))

    def finish(self) -> LogRecords:
        """Return one record for each key."""
        self._fold()
        if self._state is None:
            no_rows = np.zeros(0, dtype=np.bool_)
            return LogRecords(pa.array([], pa.string()), self._schema.empty_table(), no_rows, no_rows, None, None, self._rule)
        return self._state

    def _ordering(self, rows: pa.Table) -> pa.ChunkedArray | None:
        rule_ordering = self._rule.ordering
        return rule_ordering.values(rows) if rule_ordering and set(rule_ordering.heads) <= set(rows.column_names) else None

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
        # Only the pool references the rows from here on, so that it can free them column by column.
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
