"""Merge rules for two versions of one record, vectorized over whole columns.

Records travel as Arrow tables in the *incoming layout* or the *stored layout*: the meta columns first, then the data
columns of the table. A rule receives aligned columns of the older and the newer records and returns masks.

    COMMIT_TIME_ORDERING   the newer record wins
    EVENT_TIME_ORDERING    the newer record wins unless the older one has the larger ordering value; ties go to the
                           newer one; a null ordering value on the stored side loses
    deletes                a record with `_hoodie_is_deleted` true competes with its ordering value and removes the row
                           when it wins; a delete without an ordering value always wins; the caller may name another
                           column and the value in it that makes a record a delete (`DeleteMarker`)

Partial updates and log scans are in `records.log_merge.merge_log_blocks`, payload classes in `records.payloads`, custom
mergers in `records.mergers`.

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
from pyhudi.format.meta_columns import META_COLUMNS, RECORD_KEY
from pyhudi.options import write_options
from pyhudi.records.merge_mode import MergeMode, MergeSettings, UpdateMode
from pyhudi.records.ordering import NO_ORDERING, BoolMask, Ordering, newer_or_equal
from pyhudi.records.row_grouping import run_starts
from pyhudi.records.schema_cast import conform_table, relabel

IS_DELETED = "_hoodie_is_deleted"


@dataclass(frozen=True, slots=True)
class DeleteMarker:
    """The column and the value in it that mark a row as a delete.

    Source: docs/formats/reading.md, "Deletes".

    Attributes:
        field: Column of strings, whole numbers or booleans. Its values are compared as text; a null is not a delete.
        text: Value that marks a delete.
        combines_with_flag: True if rows with `_hoodie_is_deleted` are deletes too, as in reads. False ignores that
            column, as in writes.
    """

    field: str
    text: str
    combines_with_flag: bool

    def check(self, schema: pa.Schema) -> None:
        """Check that the schema has the column and that its type is supported.

        Raises:
            InvalidRequest: The schema lacks the column.
            Unsupported: The column's type cannot be compared as text.
        """
        if self.field not in schema.names:
            raise InvalidRequest(
                f"{write_options.DELETE_FIELD}={self.field} is not a column of the table; columns: {', '.join(schema.names)}"
            )
        type_ = schema.field(self.field).type
        if not (pa.types.is_string(type_) or pa.types.is_integer(type_) or pa.types.is_boolean(type_)):
            raise Unsupported(
                f"{write_options.DELETE_FIELD}={self.field} is a column of type {type_}; a delete marker must be a column of "
                "strings, whole numbers or booleans"
            )

    def flags(self, rows: pa.Table) -> BoolMask | None:
        """Return a mask of the rows that are deletes; None if there are none."""
        marked = pc.equal(rows.column(self.field).cast(pa.string()), self.text)
        flags = np.asarray(pc.fill_null(marked, False).combine_chunks(), dtype=np.bool_)
        soft_deletes = delete_flags(rows) if self.combines_with_flag else None
        flags = flags if soft_deletes is None else flags | soft_deletes
        return flags if flags.any() else None


class MissingValues(Protocol):
    """Update mode of partial updates: which values count as missing and are filled from the other record."""

    @property
    def mode(self) -> UpdateMode: ...

    def missing(self, name: str, column: pa.ChunkedArray) -> BoolMask | None:
        """Return a mask of the values of a column that count as missing; None if there are none."""
        ...

    def fill_missing(self, older: pa.Table, newer: pa.Table, newer_wins: BoolMask) -> pa.Table:
        """Return the winner of each pair with its missing values filled from the other record, in the newer table's columns."""
        ...


class RecordMergeRule(Protocol):
    """How two versions of a record are merged into one.

    Attributes:
        selects_one_side: True if the result is always one of the two versions unchanged. `newer_wins` decides then,
            else `merge` does.
        custom_merge: True if pairs of records are passed to `merge`, in any order. False: commit time or
            ordering value selects the winner, and at most its missing values are filled.
        by_commit_time: True if the later record always wins.
        filling: How missing values are filled; None if they are not.
        ordering: Ordering columns, whose larger values are newer; empty if the rule uses none.
        delete_is_barrier: True if a delete without an ordering value has no effect on later records: a later record is
            merged with the base row again, by ordering value. False: records from before such a delete are ignored.
        marker: Delete marker used instead of, or in addition to, `_hoodie_is_deleted`; None: that column alone.
        custom_delete_marker: Delete marker set by the caller, which other readers of the table do not know.
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
        """Return the same rule with another delete marker."""
        ...

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """Return a mask of the aligned rows in which the newer version wins.

        Args:
            older: Older versions, with the table's data columns.
            newer: Newer versions: as many rows, with the table's data columns.
            newer_is_plain_delete: Mask of newer versions that are deletes without a row and without an ordering value;
                None if there are none.
        """
        ...

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        """Return a mask of the rows that delete their key instead of being stored; None if there are none."""
        ...

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Merge aligned rows of older and newer versions."""
        ...

    def combine(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Merge two records of one batch, before they are merged with stored records. Arguments as of `merge`."""
        ...


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of merging aligned rows.

    Attributes:
        rows: Merged rows, in the newer table's columns.
        is_live: False where the record is deleted.
        changed: False where the older row is unchanged, its commit time included.
    """

    rows: pa.Table
    is_live: BoolMask
    changed: BoolMask


class CommonRule:
    """Defaults of rules: pairs of records are merged, missing values are not filled, a marker comes from the caller."""

    __slots__ = ()

    @property
    def selects_one_side(self) -> bool:
        """Return False: rows are merged, not selected."""
        return False

    @property
    def custom_merge(self) -> bool:
        """Return True: every pair is merged."""
        return True

    @property
    def by_commit_time(self) -> bool:
        """Return False: the result depends on the records' values."""
        return False

    @property
    def filling(self) -> MissingValues | None:
        """Return None: missing values are not filled."""
        return None

    @property
    def custom_delete_marker(self: RecordMergeRule) -> DeleteMarker | None:
        """Return the rule's delete marker."""
        return self.marker


class CommitTimeRule(CommonRule):
    """Rule of COMMIT_TIME_ORDERING: the newer record wins."""

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
        all_rows = np.ones(newer.num_rows, dtype=np.bool_)
        return Merged(newer, all_rows, all_rows)

    combine = merge


class EventTimeRule(CommonRule):
    """Rule of EVENT_TIME_ORDERING.

    Without an ordering field all values count as equal, so the newer record wins.
    """

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


class OneRowPerRecord(EventTimeRule):
    """Rule between the changed rows of one record: the one with the largest ordering value, of which there has to be one.

    Attributes:
        text: Message of the error for rows with equal values, with the placeholders {key} and {rows}.
    """

    def __init__(self, text: str, ordering: Ordering = NO_ORDERING) -> None:
        super().__init__(ordering)
        self.text = text

    def refuse_ties(self, winners: pa.Table, others: pa.Table) -> None:
        """Raise InvalidRequest if one of the other rows, aligned with the winners, has an equal ordering value."""
        ties = np.ones(others.num_rows, dtype=np.bool_)
        if self.ordering:
            ties = newer_or_equal(self.ordering.values(winners), self.ordering.values(others))
        if ties.any():
            row = int(np.flatnonzero(ties)[0])
            data = [name for name in others.column_names if name not in META_COLUMNS and not name.startswith("#")]
            shown = [f"{rows.select(data).slice(row, 1).to_pylist()[0]!r:.100}" for rows in (winners, others)]
            raise InvalidRequest(self.text.format(key=others.column(RECORD_KEY)[row].as_py(), rows=" and ".join(shown)))


def built_in_rule(settings: MergeSettings) -> RecordMergeRule | None:
    """Return the rule of a built-in merge mode; None for CUSTOM."""
    if settings.mode is MergeMode.COMMIT_TIME_ORDERING:
        return CommitTimeRule()
    if settings.mode is MergeMode.EVENT_TIME_ORDERING:
        return EventTimeRule(settings.ordering)
    return None


def delete_flags(rows: pa.Table) -> BoolMask | None:
    """Return a mask of soft deletes (`_hoodie_is_deleted`); None if the table has no such column or no such row.

    Raises:
        InvalidRequest: The column is not boolean.
    """
    if IS_DELETED not in rows.column_names:
        return None
    column = rows.column(IS_DELETED)
    if not pa.types.is_boolean(column.type):
        raise InvalidRequest(f"column {IS_DELETED} has type {column.type}: it must be boolean")
    flags = np.asarray(pc.fill_null(column, False).combine_chunks(), dtype=np.bool_)
    return flags if flags.any() else None


def deleted_rows(rows: pa.Table, marker: DeleteMarker | None) -> BoolMask | None:
    """A mask of rows that are deletes by the marker, or by `_hoodie_is_deleted` if marker is None; None if there are none."""
    return delete_flags(rows) if marker is None else marker.flags(rows)


def choose_rows(older: pa.Table, newer: pa.Table, newer_wins: BoolMask) -> pa.Table:
    """Select per row the newer version where `newer_wins`, else the older one, in the newer table's columns."""
    if newer_wins.all():
        return newer
    both = pa.concat_tables([conform_table(older.select(newer.column_names), newer.schema), newer])
    return both.take(interleave_positions(newer_wins))


def choose_column(first: pa.ChunkedArray, second: pa.ChunkedArray, pick_second: BoolMask) -> pa.ChunkedArray:
    """Select per row the value of the second column where `pick_second`, else of the first. Both have the same type."""
    if pick_second.all():
        return second
    if not pick_second.any():
        return first
    return pa.chunked_array([*first.chunks, *second.chunks], type=first.type).take(interleave_positions(pick_second))


def interleave_positions(pick_second: BoolMask) -> pa.Int64Array:
    """Return row positions that select from two tables of equal length, the second concatenated below the first."""
    count = len(pick_second)
    return pa.array(np.arange(count, dtype=np.int64) + np.where(pick_second, count, 0))


def combine_duplicates(
    rows: pa.Table,
    identity: list[str],
    rule: RecordMergeRule,
    plain_deletes: BoolMask | None = None,
) -> pa.Table:
    """Merge rows of one batch that have the same key; later rows count as newer.

    Rows whose key occurs once keep their order. If no key occurs twice, the input is returned without a copy.

    Args:
        rows: Rows of the batch.
        identity: Columns that identify a record: record key and partition path, or the record key alone under a global
            index.
        plain_deletes: Mask of rows that are deletes without an ordering value.
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
    if isinstance(rule, OneRowPerRecord):
        winner_of_member = np.repeat(winner, sizes)
        others = members != winner_of_member
        rule.refuse_ties(rows.take(pa.array(winner_of_member[others])), rows.take(pa.array(members[others])))
    if merged is None:
        return rows.take(pa.array(np.sort(np.r_[np.flatnonzero(~repeated), winner])))
    single = rows.take(pa.array(np.flatnonzero(~repeated)))
    return pa.concat_tables([single, merged.filter(pa.array(alive))])


def row_codes(rows: pa.Table, columns: list[str]) -> npt.NDArray[np.int64]:
    """Return dense integer codes for the distinct combinations of the columns; equal rows have equal codes."""
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in columns:
        column = rows.column(name).combine_chunks()
        encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column, null_encoding="encode")
        width = len(encoded.dictionary)
        column_codes = np.asarray(encoded.indices, dtype=np.int64)
        if width <= 1:
            continue
        codes = codes * width + column_codes
    if len(columns) > 1 and rows.num_rows:
        _, codes = np.unique(codes, return_inverse=True)
    return codes.astype(np.int64, copy=False)


def combine_to_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array. A column of one chunk is not copied, unlike in `combine_chunks`."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
