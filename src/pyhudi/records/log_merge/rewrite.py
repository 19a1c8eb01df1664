"""What to write of a slice's merged log records, so that readers find after it what they found before.

A log compaction merges the entries of a slice from the oldest on, as a reader does, and stops where the logs end.  Whatever the
rule is, a reader that meets more entries afterwards goes on from the same records: no rule has to be associative.  What it takes
is that each record can be written down as it stands:

    barred     keys whose base row does not count although a record, or a delete with an ordering value, follows: a delete without
               an ordering value, first of all
    rows       records, and deletes whose row says so itself
    restated   records that stand with another ordering value than that of their row, as PartialUpdateAvroPayload leaves them
               where a late change filled gaps: the same row once more, with that value
    deletes    other deleted keys, with their ordering values, last of all

Readers that pass over the list of merged blocks, such as the real Hudi's, read what was written on top of what it was made of.
So the records must also be what they are when they are merged with themselves.  That holds for the merge modes and the payload
classes, by what they do with two equal records; a merger of a user's own is asked.

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
    """Which of the records are written how; masks over them.  rewritten: among `rows`.  valued: those that have an ordering value
    to compete by; of the deletes the others are written without one.
    """

    records: LogRecords
    behind_barrier: BoolMask
    rows: BoolMask
    rewritten: BoolMask
    deletes: BoolMask
    valued: BoolMask

    @classmethod
    def of(cls, records: LogRecords) -> LogEntries:
        """Raises Unsupported, naming the rule, where readers would find other records than these."""
        valued, flagged = _valued(records), _flagged(records.rows)
        as_rows = ~records.deleted | flagged
        told = records.rule.deletes(records.rows) if records.rule.custom_merge else None
        if told is not None:
            # Without an ordering value a delete would take the base row away for good, and the row itself says as much as it did.
            as_rows |= records.deleted & ~valued & ~records.barrier & told
        competes = bool(valued.any()) or records.present is not None or records.rule.custom_merge
        barred = records.barrier & (~records.deleted | valued | flagged) if competes else np.zeros_like(records.barrier)
        entries = cls(records, barred, as_rows, _restated(records, as_rows), records.deleted & ~as_rows, valued)
        entries._check()
        return entries

    def grouped(self, chosen: BoolMask) -> Iterator[tuple[frozenset[str], BoolMask]]:
        """The chosen records, those that have the same columns together: the names of these, and which records they are."""
        present = self.records.present
        if present is None:
            yield frozenset(self.records.rows.column_names), chosen
            return
        left = chosen.copy()
        while left.any():
            first = int(np.argmax(left))
            alike = left.copy()
            for mask in present.values():
                alike &= mask == mask[first]
            yield frozenset(name for name, mask in present.items() if mask[first]), alike
            left &= ~alike

    def restatement(self, chosen: BoolMask) -> pa.Table:
        """The rows of restated records with the ordering values that these stand with.

        Raises Unsupported where an ordering field lies inside of a column.
        """
        records, by = self.records, self.records.rule.ordering
        assert records.ordering is not None, "only a record with an ordering value is restated"
        rows, values = records.rows.filter(pa.array(chosen)), records.ordering.filter(pa.array(chosen))
        for place, name in enumerate(by.fields):
            position = rows.schema.get_field_index(name)
            if position < 0:
                raise Unsupported(
                    f"log compaction where late changes fill the gaps of newer records, and {name!r}, which orders records, lies "
                    "inside of a column: compact the table instead"
                )
            field = rows.schema.field(position)
            own = values if len(by.fields) == 1 else pc.struct_field(values, place)
            rows = rows.set_column(position, field, own.cast(field.type))
        return rows

    def _check(self) -> None:
        """Read what would be written, twice, as a reader does that reads the merged blocks on top of themselves."""
        rule = self.records.rule
        asked = np.ones(len(self.records.keys), dtype=np.bool_) if isinstance(rule, MergerRule) else self.rewritten
        for start in range(0, len(asked), _PIECE_ROWS):
            places = start + np.flatnonzero(asked[start : start + _PIECE_ROWS])
            if len(places) and not _same(self._read_twice(places), _taken(self.records, places)):
                who = f"merger {rule.merger.strategy_id}" if isinstance(rule, MergerRule) else "the table's rule"
                raise Unsupported(
                    f"{who} makes something else of a record that it merged when it meets that record again, or merged one to a "
                    "delete without an ordering value; no log block can stand for what was merged then: compact the table instead"
                )

    def _read_twice(self, positions: Ints) -> LogRecords:
        part = LogEntries(
            _taken(self.records, positions),
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
            merger.add_deletes(records.keys.filter(pa.array(part.behind_barrier)), None, _every(part.behind_barrier))
            for names, chosen in part.grouped(part.rows):
                present = None if records.present is None else sorted(names)
                merger.add_rows(records.rows.filter(pa.array(chosen)), present)
                again = chosen & part.rewritten
                if again.any():
                    merger.add_rows(part.restatement(again), present)
            plain, valued = part.deletes & ~part.valued, part.deletes & part.valued
            merger.add_deletes(records.keys.filter(pa.array(plain)), None, _every(plain))
            if valued.any() and records.ordering is not None:
                competing = combine_to_array(records.ordering.filter(pa.array(valued)))
                merger.add_deletes(records.keys.filter(pa.array(valued)), competing, ~_every(valued))
        return merger.finish()


def _restated(records: LogRecords, as_rows: BoolMask) -> BoolMask:
    """Where a record's row has another ordering value than it stands with."""
    rule = records.rule
    none = np.zeros(len(as_rows), dtype=np.bool_)
    if rule.selects_one_side or records.ordering is None or not rule.ordering or not as_rows.any():
        return none
    own = rule.ordering.values(records.rows)
    ranks = ordering_ranks(pa.chunked_array([*own.chunks, *records.ordering.cast(own.type).chunks], type=own.type))
    differs: BoolMask = ranks[: len(as_rows)] != ranks[len(as_rows) :]
    return as_rows & differs


def _valued(records: LogRecords) -> BoolMask:
    """Where a record or delete competes with the base row by an ordering value."""
    if records.ordering is None or not records.rule.ordering:
        return np.zeros(len(records.keys), dtype=np.bool_)
    return np.asarray(pc.is_valid(records.ordering), dtype=np.bool_)


def _flagged(rows: pa.Table) -> BoolMask:
    if IS_DELETED not in rows.column_names:
        return np.zeros(rows.num_rows, dtype=np.bool_)
    return np.asarray(pc.fill_null(rows.column(IS_DELETED), False).combine_chunks(), dtype=np.bool_)


def _taken(records: LogRecords, positions: Ints) -> LogRecords:
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


def _same(found: LogRecords, expected: LogRecords) -> bool:
    places = pc.index_in(expected.keys, value_set=found.keys)
    if len(found.keys) != len(expected.keys) or places.null_count:
        return False
    found = _taken(found, np.asarray(places, dtype=np.int64))
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
            has = expected.present[name]
            if not np.array_equal(found.present[name] & ~expected.deleted, has & ~expected.deleted):
                return False
            live = pa.array(~expected.deleted & has)
        if not same_values(found.rows.column(name).filter(live), expected.rows.column(name).filter(live)):
            return False
    return True


def _every(mask: BoolMask) -> BoolMask:
    return np.ones(int(np.count_nonzero(mask)), dtype=np.bool_)
