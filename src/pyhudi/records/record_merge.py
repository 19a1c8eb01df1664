"""Merging records of one key, whole columns at a time.

Records travel as Arrow tables in the *incoming layout* or the *stored layout*: the meta columns first, then the data columns of
the table.  A rule never looks at one row: it is given aligned columns of the older and the newer record and answers with masks.

    COMMIT_TIME_ORDERING   the newer record wins
    EVENT_TIME_ORDERING    the newer record wins unless the older one has the larger ordering value; ties go to the newer one;
                           a null ordering value on the stored side loses
    deletes                a record with `_hoodie_is_deleted` true takes part with its ordering value and removes the row when it
                           wins; a delete without an ordering value always wins; the caller may name another column and the text
                           in it that makes a record a delete (`DeleteMarker`)

Not here: partial updates and log scans (see `records.log_merge.merge_log_blocks`), payload classes and custom mergers (see
`records.payloads`).

Source: docs/reference/mergers.md; docs/formats/reading.md, "Merging".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.records.merge_mode import MergeMode, MergeSettings, UpdateMode
from pyhudi.records.ordering import NO_ORDERING, BoolMask, Ordering, newer_or_equal
from pyhudi.records.row_grouping import run_starts
from pyhudi.records.schema_cast import conform_table, relabel

IS_DELETED = "_hoodie_is_deleted"


@dataclass(frozen=True, slots=True)
class DeleteMarker:
    """The column, and the text in it, that make a row a delete.  Source: docs/formats/reading.md, "Deletes".

    field: a column of strings, whole numbers or booleans, whose values are compared as text; a null is not a delete.
    combines_with_flag: rows with `_hoodie_is_deleted` are deletes too, as in reads; False: that column is not looked at, as in
    writes.
    """

    field: str
    text: str
    combines_with_flag: bool

    def check(self, schema: pa.Schema) -> None:
        """Raises InvalidRequest when the schema lacks the column, Unsupported when its values are not compared as text."""
        if self.field not in schema.names:
            raise InvalidRequest(
                f"hoodie.payload.delete.field={self.field} is not a column of the table; columns: {', '.join(schema.names)}"
            )
        kind = schema.field(self.field).type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise Unsupported(
                f"hoodie.payload.delete.field={self.field} is a column of type {kind}; a delete marker is looked for in strings, "
                "whole numbers and booleans"
            )

    def flags(self, rows: pa.Table) -> BoolMask | None:
        """True where the row is a delete; None when no row is."""
        marked = pc.equal(rows.column(self.field).cast(pa.string()), self.text)
        flags = np.asarray(pc.fill_null(marked, False).combine_chunks(), dtype=np.bool_)
        soft = delete_flags(rows) if self.combines_with_flag else None
        flags = flags if soft is None else flags | soft
        return flags if flags.any() else None


class MissingValues(Protocol):
    """Which values of a record stand for none, and are taken from the other record."""

    @property
    def mode(self) -> UpdateMode: ...

    def missing(self, name: str, column: pa.ChunkedArray) -> BoolMask | None:
        """Where the values of a column stand for none; None when nowhere."""
        ...

    def fill_missing(self, older: pa.Table, newer: pa.Table, newer_wins: BoolMask) -> pa.Table:
        """The winner of each pair with its gaps filled from the other.  Columns and their order are the newer's."""
        ...


class RecordMergeRule(Protocol):
    """How two versions of a record become one.

    selects_one_side: True when the result is always one of the two versions unchanged; then `newer_wins` answers, else `merge`
    does. custom_merge: pairs of records are handed to `merge`, whatever their order; False: one of the two wins by commit time or
    ordering value, and at most its gaps are filled.
    by_commit_time: the later record wins whatever it holds.
    filling: how gaps are filled; None when they are left.
    ordering: the columns whose larger values are newer; none when the rule looks at none.
    delete_is_barrier: a delete without an ordering value ends with itself: a record that follows meets the base row again, by its
    ordering value; False: nothing from before such a delete counts any more.
    marker: what makes a row a delete in place of, or beside, `_hoodie_is_deleted`; None: that column alone.
    custom_delete_marker: the same where the caller names it, so that no other reader knows of it.
    """

    @property
    def selects_one_side(self) -> bool: ...

    @property
    def custom_merge(self) -> bool: ...

    @property
    def by_commit_time(self) -> bool: ...

    @property
    def filling(self) -> MissingValues | None: ...

    @property
    def ordering(self) -> Ordering: ...

    @property
    def delete_is_barrier(self) -> bool: ...

    @property
    def marker(self) -> DeleteMarker | None: ...

    @property
    def custom_delete_marker(self) -> DeleteMarker | None: ...

    def with_marker(self, marker: DeleteMarker | None) -> RecordMergeRule:
        """The same rule with another marker."""
        ...

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """For aligned rows: True where the newer version wins.

        older, newer: same number of rows, each with the table's data columns.  newer_is_plain_delete: True where the newer
        version is a delete that carries no row and no ordering value; None when there is none.
        """
        ...

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        """True where a row deletes its key instead of being stored; None when no row does."""
        ...

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        """For aligned rows: what becomes of each pair."""
        ...

    def combine(self, older: pa.Table, newer: pa.Table) -> Merged:
        """As `merge`, for two records of one batch before they meet the table."""
        ...


@dataclass(frozen=True, slots=True)
class Merged:
    """The outcome of merging aligned rows.

    rows: the merged rows, in the newer's columns.  is_live: False where the record is deleted.  changed: False where the older
    row stays as it is, its commit time included.
    """

    rows: pa.Table
    is_live: BoolMask
    changed: BoolMask


class CommonRule:
    """What holds for all rules but those of table version 9: no gaps are filled, and a marker is one that the caller names."""

    __slots__ = ()

    @property
    def by_commit_time(self) -> bool:
        """No: values count."""
        return False

    @property
    def filling(self) -> MissingValues | None:
        """None."""
        return None

    @property
    def custom_delete_marker(self: RecordMergeRule) -> DeleteMarker | None:
        """The marker."""
        return self.marker


class CommitTimeRule(CommonRule):
    """COMMIT_TIME_ORDERING."""

    selects_one_side = True
    custom_merge = False
    delete_is_barrier = False
    ordering = NO_ORDERING

    def __init__(self, marker: DeleteMarker | None = None) -> None:
        self.marker = marker

    @property
    def by_commit_time(self) -> bool:
        return True

    def with_marker(self, marker: DeleteMarker | None) -> CommitTimeRule:
        return CommitTimeRule(marker)

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        return np.ones(newer.num_rows, dtype=np.bool_)

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        return deleted_rows(rows, self.marker)

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        every = np.ones(newer.num_rows, dtype=np.bool_)
        return Merged(newer, every, every)

    combine = merge


class RejectDuplicates(CommitTimeRule):
    """Between rows of one batch: there may be one of each key.  text: what is said where there are more, with {key}."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """Raises InvalidRequest."""
        raise InvalidRequest(self.text.format(key=newer.column(RECORD_KEY)[0].as_py()))


class EventTimeRule(CommonRule):
    """EVENT_TIME_ORDERING by columns.  Without an ordering field every value counts as equal, so the newer record wins."""

    selects_one_side = True
    custom_merge = False
    delete_is_barrier = False

    def __init__(self, ordering: Ordering | str | None, marker: DeleteMarker | None = None) -> None:
        self.ordering = ordering if isinstance(ordering, Ordering) else Ordering.by(ordering)
        self.marker = marker

    def with_marker(self, marker: DeleteMarker | None) -> EventTimeRule:
        return EventTimeRule(self.ordering, marker)

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        if not self.ordering:
            return np.ones(newer.num_rows, dtype=np.bool_)
        wins = newer_or_equal(self.ordering.values(older), self.ordering.values(newer))
        if newer_is_plain_delete is not None:
            wins |= newer_is_plain_delete
        return wins

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        return deleted_rows(rows, self.marker)

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        wins = self.newer_wins(older, newer, None)
        return Merged(choose_rows(older, newer, wins), np.ones(newer.num_rows, dtype=np.bool_), wins)

    combine = merge


def built_in_rule(settings: MergeSettings) -> RecordMergeRule | None:
    """The rule of a built-in merge mode; None for CUSTOM."""
    if settings.mode is MergeMode.COMMIT_TIME_ORDERING:
        return CommitTimeRule()
    if settings.mode is MergeMode.EVENT_TIME_ORDERING:
        return EventTimeRule(settings.ordering)
    return None


def delete_flags(rows: pa.Table) -> BoolMask | None:
    """True where the row is a soft delete (`_hoodie_is_deleted`); None when the table has no such column or no such row.

    Raises InvalidRequest when the column is not boolean.
    """
    if IS_DELETED not in rows.column_names:
        return None
    column = rows.column(IS_DELETED)
    if not pa.types.is_boolean(column.type):
        raise InvalidRequest(f"{IS_DELETED} has to be a boolean column, it is {column.type}")
    flags = np.asarray(pc.fill_null(column, False).combine_chunks(), dtype=np.bool_)
    return flags if flags.any() else None


def deleted_rows(rows: pa.Table, marker: DeleteMarker | None) -> BoolMask | None:
    """True where the row is a delete by the marker, or without one by `_hoodie_is_deleted`; None when no row is."""
    return delete_flags(rows) if marker is None else marker.flags(rows)


def choose_rows(older: pa.Table, newer: pa.Table, newer_wins: BoolMask) -> pa.Table:
    """Row by row the newer version where `newer_wins`, else the older one.  Columns and order are the newer's."""
    if newer_wins.all():
        return newer
    both = pa.concat_tables([conform_table(older.select(newer.column_names), newer.schema), newer])
    return both.take(interleave_positions(newer_wins))


def choose_column(first: pa.ChunkedArray, second: pa.ChunkedArray, pick_second: BoolMask) -> pa.ChunkedArray:
    """Row by row the value of the second column where `pick_second`, else that of the first.  Both have one type."""
    if pick_second.all():
        return second
    if not pick_second.any():
        return first
    return pa.chunked_array([*first.chunks, *second.chunks], type=first.type).take(interleave_positions(pick_second))


def interleave_positions(pick_second: BoolMask) -> pa.Int64Array:
    """Where each chosen row stands when the second of two tables of as many rows is put below the first."""
    count = len(pick_second)
    return pa.array(np.arange(count, dtype=np.int64) + np.where(pick_second, count, 0))


def combine_duplicates(
    rows: pa.Table,
    identity: list[str],
    rule: RecordMergeRule,
    plain_deletes: BoolMask | None = None,
) -> pa.Table:
    """One row for each key of a batch, by the rule; later rows count as newer.

    identity: the columns that name a record (record key and partition path, or the record key alone under a global index).
    plain_deletes: rows that are deletes without an ordering value.  Rows of keys that occur once keep their order and come
    without a copy when no key occurs twice.
    """
    codes = row_codes(rows, identity)
    counts = np.bincount(codes) if len(codes) else np.zeros(0, dtype=np.int64)
    if not (counts > 1).any():
        return rows
    repeated = counts[codes] > 1
    members = np.flatnonzero(repeated)
    members = members[np.argsort(codes[members], kind="stable")]
    group = codes[members]
    starts = run_starts(group)
    sizes = np.diff(np.r_[starts, len(members)])
    winner = members[starts].copy()
    merged: pa.Table | None = None if rule.selects_one_side else rows.take(pa.array(winner))
    alive = np.ones(len(winner), dtype=np.bool_)
    for step in range(1, int(sizes.max())):
        active = np.flatnonzero(sizes > step)
        challenger = members[starts[active] + step]
        if merged is None:
            wins = rule.newer_wins(
                rows.take(pa.array(winner[active])),
                rows.take(pa.array(challenger)),
                None if plain_deletes is None else plain_deletes[challenger],
            )
            winner[active[wins]] = challenger[wins]
        else:
            outcome = rule.combine(merged.take(pa.array(active)), rows.take(pa.array(challenger)))
            positions = np.arange(len(winner), dtype=np.int64)
            positions[active] = len(winner) + np.arange(len(active))
            merged = pa.concat_tables([merged, relabel(outcome.rows, merged.schema)]).take(pa.array(positions))
            alive[active] = outcome.is_live
    if merged is None:
        return rows.take(pa.array(np.sort(np.r_[np.flatnonzero(~repeated), winner])))
    single = rows.take(pa.array(np.flatnonzero(~repeated)))
    return pa.concat_tables([single, merged.filter(pa.array(alive))])


def row_codes(rows: pa.Table, columns: list[str]) -> npt.NDArray[np.int64]:
    """A dense number for each distinct combination of the columns: equal rows have equal numbers."""
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in columns:
        column = rows.column(name).combine_chunks()
        encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column, null_encoding="encode")
        width = len(encoded.dictionary)
        part = np.asarray(encoded.indices, dtype=np.int64)
        if width <= 1:
            continue
        codes = codes * width + part
    if len(columns) > 1 and rows.num_rows:
        _, codes = np.unique(codes, return_inverse=True)
    return codes.astype(np.int64, copy=False)


def combine_to_array(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array; one that is a single chunk is not copied, as `combine_chunks` would."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
