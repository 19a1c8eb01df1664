"""Log compaction: write the merged log records of a slice so that later reads have the same result.

A log compaction merges the entries of a slice from the oldest on, as a reader does, up to the end of the logs. A reader
that finds more entries afterwards continues from the same records, so no rule has to be associative. Each merged record
must be representable in log blocks:

    barred     keys whose base row is ignored although a record, or a delete with an ordering value, follows: a delete
               without an ordering value, written first
    rows       records, and deletes that their row marks as such
    restated   records whose ordering value differs from that of their row, as PartialUpdateAvroPayload leaves them when
               a late change filled missing values: the same row once more, with that value
    deletes    other deleted keys, with their ordering values, written last

Readers that ignore the list of merged blocks, such as Hudi's, read the rewritten blocks on top of the original ones. So
merging the records with themselves must not change them (idempotence). That holds for the merge modes and the payload
classes, given how they merge two equal records; for a custom merger it is checked.

Source: docs/formats/writing.md, "Compaction"; docs/decisions/0005-log-compactions.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Unsupported
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.records.log_merge.log_records import LogRecords
from pyhudi.records.log_merge.merge_log_blocks import LogMerger
from pyhudi.records.mergers import MergerRule
from pyhudi.records.ordering import BoolMask, Ints, ordering_ranks
from pyhudi.records.record_merge import IS_DELETED, combine_to_array
from pyhudi.records.schema_cast import same_values

_PIECE_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class LogEntries:
    """How each merged record is written, as masks over the records.

    Attributes:
        records: Merged records.
        behind_barrier: Keys written first as deletes without an ordering value.
        rows: Records written as rows.
        rewritten: Those of `rows` that are written once more with their ordering value.
        deletes: Records written as deletes.
        valued: Records with an ordering value; deletes without one are written without an ordering value.
    """

    records: LogRecords
    behind_barrier: BoolMask
    rows: BoolMask
    rewritten: BoolMask
    deletes: BoolMask
    valued: BoolMask

    @classmethod
    def of(cls, records: LogRecords) -> LogEntries:
        """Decide how to write the records.

        Raises:
            Unsupported: Readers would read other records than these; names the rule.
        """
        valued, has_delete_flag = _has_ordering_value(records), _has_delete_flag(records.rows)
        as_rows = ~records.deleted | has_delete_flag
        rule_deletes = records.rule.deletes(records.rows) if records.rule.custom_merge else None
        if rule_deletes is not None:
            # Written as a delete without an ordering value it would remove the base row for good; the row itself
            # expresses the delete.
            as_rows |= records.deleted & ~valued & ~records.barrier & rule_deletes
        competes = bool(valued.any()) or records.present is not None or records.rule.custom_merge
        behind_barrier = (
            records.barrier & (~records.deleted | valued | has_delete_flag) if competes else np.zeros_like(records.barrier)
        )
        entries = cls(records, behind_barrier, as_rows, _needs_rewrite(records, as_rows), records.deleted & ~as_rows, valued)
        entries._check()
        return entries

    def grouped(self, chosen: BoolMask) -> Iterator[tuple[frozenset[str], BoolMask]]:
        """Yield the chosen records grouped by the columns they have: column names and record mask."""
        present = self.records.present
        if present is None:
            yield frozenset(self.records.rows.column_names), chosen
            return
        remaining = chosen.copy()
        while remaining.any():
            first = int(np.argmax(remaining))
            same_columns = remaining.copy()
            for mask in present.values():
                same_columns &= mask == mask[first]
            yield frozenset(name for name, mask in present.items() if mask[first]), same_columns
            remaining &= ~same_columns

    def restatement(self, chosen: BoolMask) -> pa.Table:
        """Return the rows of rewritten records with the ordering values of the merged records.

        Raises:
            Unsupported: An ordering field is nested in a column.
        """
        records, rule_ordering = self.records, self.records.rule.ordering
        assert records.ordering is not None, "only a record with an ordering value is rewritten"
        rows, values = records.rows.filter(pa.array(chosen)), records.ordering.filter(pa.array(chosen))
        for index, name in enumerate(rule_ordering.fields):
            position = rows.schema.get_field_index(name)
            if position < 0:
                raise Unsupported(
                    f"log compaction is not supported if late changes fill missing values of newer records and ordering field "
                    f"{name!r} is nested in a column; compact the table instead"
                )
            field = rows.schema.field(position)
            field_values = values if len(rule_ordering.fields) == 1 else pc.struct_field(values, index)
            rows = rows.set_column(position, field, field_values.cast(field.type))
        return rows

    def _check(self) -> None:
        """Merge what would be written twice, as a reader that reads the merged blocks on top of themselves, and compare."""
        rule = self.records.rule
        to_check = np.ones(len(self.records.keys), dtype=np.bool_) if isinstance(rule, MergerRule) else self.rewritten
        for start in range(0, len(to_check), _PIECE_ROWS):
            positions = start + np.flatnonzero(to_check[start : start + _PIECE_ROWS])
            if len(positions) and not _same_records(self._read_rewritten(positions), _select_records(self.records, positions)):
                rule_name = f"merger {rule.merger.strategy_id}" if isinstance(rule, MergerRule) else "the table's rule"
                raise Unsupported(
                    f"{rule_name} is not idempotent: it changes a merged record when it merges it again, or it merged a "
                    "record to a delete without an ordering value. Log compaction cannot represent this; compact instead"
                )

    def _read_rewritten(self, positions: Ints) -> LogRecords:
        part = LogEntries(
            _select_records(self.records, positions),
            self.behind_barrier[positions],
            self.rows[positions],
            self.rewritten[positions],
            self.deletes[positions],
            self.valued[positions],
        )
        records = part.records
        merger = LogMerger(records.rows.schema, records.rule)
        if records.present is not None:
            merger.start_partial_block()
        for _ in range(2):
            merger.add_deletes(records.keys.filter(pa.array(part.behind_barrier)), None, _all_true(part.behind_barrier))
            for names, chosen in part.grouped(part.rows):
                present = None if records.present is None else sorted(names)
                merger.add_rows(records.rows.filter(pa.array(chosen)), present)
                rewritten = chosen & part.rewritten
                if rewritten.any():
                    merger.add_rows(part.restatement(rewritten), present)
            plain, valued = part.deletes & ~part.valued, part.deletes & part.valued
            merger.add_deletes(records.keys.filter(pa.array(plain)), None, _all_true(plain))
            if valued.any() and records.ordering is not None:
                delete_ordering = combine_to_array(records.ordering.filter(pa.array(valued)))
                merger.add_deletes(records.keys.filter(pa.array(valued)), delete_ordering, ~_all_true(valued))
        return merger.finish()


def _needs_rewrite(records: LogRecords, as_rows: BoolMask) -> BoolMask:
    """Return where a record's row has another ordering value than the merged record."""
    rule = records.rule
    no_records = np.zeros(len(as_rows), dtype=np.bool_)
    if rule.selects_one_side or records.ordering is None or not rule.ordering or not as_rows.any():
        return no_records
    row_values = rule.ordering.values(records.rows)
    ranks = ordering_ranks(
        pa.chunked_array([*row_values.chunks, *records.ordering.cast(row_values.type).chunks], type=row_values.type)
    )
    differs: BoolMask = ranks[: len(as_rows)] != ranks[len(as_rows) :]
    return as_rows & differs


def _has_ordering_value(records: LogRecords) -> BoolMask:
    """Return where a record or delete competes with the base row by an ordering value."""
    if records.ordering is None or not records.rule.ordering:
        return np.zeros(len(records.keys), dtype=np.bool_)
    return np.asarray(pc.is_valid(records.ordering), dtype=np.bool_)


def _has_delete_flag(rows: pa.Table) -> BoolMask:
    if IS_DELETED not in rows.column_names:
        return np.zeros(rows.num_rows, dtype=np.bool_)
    return np.asarray(pc.fill_null(rows.column(IS_DELETED), False).combine_chunks(), dtype=np.bool_)


def _select_records(records: LogRecords, positions: Ints) -> LogRecords:
    at = pa.array(positions)
    return replace(
        records,
        keys=records.keys.take(at),
        rows=records.rows.take(at),
        deleted=records.deleted[positions],
        barrier=records.barrier[positions],
        ordering=None if records.ordering is None else records.ordering.take(at),
        present=None if records.present is None else {name: mask[positions] for name, mask in records.present.items()},
    )


def _same_records(found: LogRecords, expected: LogRecords) -> bool:
    indices = pc.index_in(expected.keys, value_set=found.keys)
    if len(found.keys) != len(expected.keys) or indices.null_count:
        return False
    found = _select_records(found, np.asarray(indices, dtype=np.int64))
    if not (np.array_equal(found.deleted, expected.deleted) and np.array_equal(found.barrier, expected.barrier)):
        return False
    if found.ordering is not None and expected.ordering is not None and expected.rule.ordering:
        both = pa.chunked_array([*found.ordering.chunks, *expected.ordering.cast(found.ordering.type).chunks])
        ranks = ordering_ranks(both)
        if not np.array_equal(ranks[: len(found.keys)], ranks[len(found.keys) :]):
            return False
    live = pa.array(~expected.deleted)
    columns = expected.rows.column_names if expected.present is None else sorted(expected.present)
    for name in columns:
        if name == RECORD_KEY:
            continue
        if expected.present is not None and found.present is not None:
            has_column = expected.present[name]
            if not np.array_equal(found.present[name] & ~expected.deleted, has_column & ~expected.deleted):
                return False
            live = pa.array(~expected.deleted & has_column)
        if not same_values(found.rows.column(name).filter(live), expected.rows.column(name).filter(live)):
            return False
    return True


def _all_true(mask: BoolMask) -> BoolMask:
    return np.ones(int(np.count_nonzero(mask)), dtype=np.bool_)
