"""Merging by the modes of table version 9, which are a payload class, a delete marker and an update mode in one.

    a record is a delete   `_hoodie_is_deleted` is true, `_hoodie_operation` is D or -U, or the delete field holds the marker
    by commit time         the later record wins
    by event time          the one with the larger ordering value wins, the later one on a tie; a delete without an ordering
                           value wins over what was before it and loses to what comes after
    with an update mode    the values of the winner that stand for none are taken from the other record, in both directions,
                           where neither of the two is a delete

Source: docs/formats/reading.md, "Table version 9".  The folding of log records is in `records.log_merge.merge_log_blocks`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Unsupported
from pyhudi.records.merge_mode import MARKER_FIELD, MARKER_TEXT, UNAVAILABLE_TEXT, MergeMode, MergeSettings, UpdateMode
from pyhudi.records.ordering import NO_ORDERING, BoolMask, Ordering, newer_or_equal
from pyhudi.records.record_merge import DeleteMarker, Merged, choose_column, choose_rows, delete_flags
from pyhudi.records.schema_cast import relabel_column

OPERATION = "_hoodie_operation"
"""A sixth meta column, which some writers fill: what the change was."""

Defaults = tuple[tuple[str, Any], ...]
"""Columns and their defaults, where these are not null."""

_DELETING = pa.array(["D", "-U"])


@dataclass(frozen=True, slots=True)
class PartialUpdateFill:
    """Which values stand for none.

    mode: IGNORE_DEFAULTS compares by reference in Java, so that beside null only booleans and whole numbers from -128 to 127 are
    ever found equal to their default; a column with a default that is not null keeps its nulls.
    defaults: those that are not null.  unavailable: the text of FILLUNAVAILABLE_TEXT; None: nothing is filled.
    """

    mode: UpdateMode
    defaults: Defaults = ()
    unavailable: str | None = None

    def missing(self, name: str, column: pa.ChunkedArray) -> BoolMask | None:
        """Where the values of a column stand for none; None when nowhere."""
        if self.mode is UpdateMode.IGNORE_DEFAULTS:
            found = self._defaults_in(name, column)
        elif self.unavailable is None:
            return None
        elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            text = self.unavailable if pa.types.is_string(column.type) else self.unavailable.encode()
            found = pc.fill_null(pc.equal(column, pa.scalar(text, column.type)), False)
        else:
            return None
        mask = None if found is None else np.asarray(found.combine_chunks(), dtype=np.bool_)
        return mask if mask is not None and mask.any() else None

    def fill_missing(self, older: pa.Table, newer: pa.Table, newer_wins: BoolMask) -> pa.Table:
        """The winner of each pair with its gaps filled from the other.  Columns and their order are the newer's."""
        columns = []
        for field in newer.schema:
            first, second = relabel_column(older.column(field.name), field), newer.column(field.name)
            take_newer = newer_wins.copy()
            in_older, in_newer = self.missing(field.name, first), self.missing(field.name, second)
            if in_newer is not None:
                take_newer &= ~in_newer
            if in_older is not None:
                take_newer |= ~newer_wins & in_older
            columns.append(choose_column(first, second, take_newer))
        return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in newer.schema]))

    def _defaults_in(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        default = dict(self.defaults).get(name)
        if default is None:
            return pc.is_null(column) if column.null_count else None
        small = isinstance(default, bool) or (isinstance(default, int) and -128 <= default <= 127)
        if not small or not (pa.types.is_boolean(column.type) or pa.types.is_integer(column.type)):
            return None
        return pc.fill_null(pc.equal(column, pa.scalar(default, column.type)), False)


@dataclass(frozen=True, slots=True)
class UpdateModeRule:
    """The rule of a table of version 9 without a merger of its own.

    ordering: none by commit time, whatever the table names.  default_delete_marker: the table's, which holds for stored records
    too.
    """

    ordering: Ordering
    filling: PartialUpdateFill | None = None
    default_delete_marker: DeleteMarker | None = None
    custom_delete_marker: DeleteMarker | None = None

    @property
    def selects_one_side(self) -> bool:
        """Without an update mode the result is one of the two records."""
        return self.filling is None

    @property
    def custom_merge(self) -> bool:
        """Commit time or ordering value tells the winner, whose gaps are filled."""
        return False

    @property
    def by_commit_time(self) -> bool:
        """Whether it looks at no ordering value."""
        return not self.ordering

    @property
    def delete_is_barrier(self) -> bool:
        """A delete without an ordering value is forgotten by what follows it."""
        return True

    @property
    def marker(self) -> DeleteMarker | None:
        """The caller's, else the table's."""
        return self.custom_delete_marker or self.default_delete_marker

    def with_marker(self, marker: DeleteMarker | None) -> UpdateModeRule:
        """The same rule with a caller's marker; None: with that of the table, if any."""
        return replace(self, custom_delete_marker=marker)

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """Where the newer record wins."""
        if not self.ordering:
            return np.ones(newer.num_rows, dtype=np.bool_)
        wins = newer_or_equal(self.ordering.values(older), self.ordering.values(newer))
        for rows in (older, newer):
            gone = self.deletes(rows)
            if gone is not None:
                wins |= gone & self.ordering.are_zero(rows)
        return wins if newer_is_plain_delete is None else wins | newer_is_plain_delete

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        """Rows that delete their key, by any of the three signs."""
        found = [delete_flags(rows)]
        if self.marker is not None and self.marker.field in rows.column_names:
            found.append(replace(self.marker, combines_with_flag=False).flags(rows))
        if OPERATION in rows.column_names:
            found.append(np.asarray(pc.is_in(rows.column(OPERATION).cast(pa.string()), value_set=_DELETING), dtype=np.bool_))
        masks = [mask for mask in found if mask is not None and mask.any()]
        return np.logical_or.reduce(masks) if masks else None

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        """older: stored records; newer: incoming ones."""
        merged = self.combine(older, newer)
        gone = self.deletes(newer)
        if gone is None:
            return merged
        wins = self.newer_wins(older, newer, None)
        return replace(merged, is_live=~(gone & wins))

    def combine(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Two records of one batch, of which a delete stays one."""
        wins = self.newer_wins(older, newer, None)
        every = np.ones(newer.num_rows, dtype=np.bool_)
        if self.filling is None:
            return Merged(choose_rows(older, newer, wins), every, wins)
        gone = [np.zeros(newer.num_rows, dtype=np.bool_) if mask is None else mask for mask in map(self.deletes, (older, newer))]
        rows = self.filling.fill_missing(older, newer, wins)
        whole = gone[0] | gone[1]
        if whole.any():
            rows = choose_rows(rows, choose_rows(older, newer, wins), whole)
        return Merged(rows, every, wins | ~whole)


def mode_rule(settings: MergeSettings, defaults: Defaults = ()) -> UpdateModeRule | None:
    """The rule of a built-in merge mode of version 9; None for CUSTOM.  Raises Unsupported as `check_merge_properties`."""
    if settings.mode is MergeMode.CUSTOM:
        return None
    check_merge_properties(settings)
    properties = dict(settings.properties)
    field, text = properties.get(MARKER_FIELD), properties.get(MARKER_TEXT)
    filling = None
    if settings.update_mode is not None:
        filling = PartialUpdateFill(settings.update_mode, defaults, properties.get(UNAVAILABLE_TEXT))
    return UpdateModeRule(
        settings.ordering if settings.mode is MergeMode.EVENT_TIME_ORDERING else NO_ORDERING,
        filling,
        DeleteMarker(field, text, combines_with_flag=True) if field and text is not None else None,
    )


def check_merge_properties(settings: MergeSettings) -> None:
    """Raises Unsupported for properties of a built-in mode that nothing here reads: rows might be others by them."""
    if settings.mode is MergeMode.CUSTOM:
        return
    known = (MARKER_FIELD, MARKER_TEXT, UNAVAILABLE_TEXT)
    unknown = [f"hoodie.record.merge.property.{name}={value}" for name, value in settings.properties if name not in known]
    if unknown:
        raise Unsupported(f"the table merges its records by {', '.join(unknown)}, which is not known")
