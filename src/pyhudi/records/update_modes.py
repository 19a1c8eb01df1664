"""Merge rule of table version 9: merge mode, delete marker and partial update mode combined.

    delete                 `_hoodie_is_deleted` is true, `_hoodie_operation` is D or -U, or the delete field contains
                           the marker
    commit time ordering   the later record wins
    event time ordering    the record with the larger ordering value wins, the later one on a tie; a delete without an
                           ordering value wins over earlier records and loses to later ones
    partial update mode    missing values of the winner are filled from the other record, in both directions, if neither
                           of the two is a delete

Source: docs/formats/reading.md, "Table version 9". `records.log_merge.merge_log_blocks` folds log records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Unsupported
from pyhudi.options import table_options
from pyhudi.records.merge_mode import MARKER_FIELD, MARKER_TEXT, UNAVAILABLE_TEXT, MergeMode, MergeSettings, UpdateMode
from pyhudi.records.ordering import NO_ORDERING, BoolMask, Ordering, newer_or_equal
from pyhudi.records.record_merge import DeleteMarker, Merged, choose_column, choose_rows, delete_flags
from pyhudi.records.schema_cast import relabel_column

OPERATION = "_hoodie_operation"
"""Optional sixth meta column, which some writers fill: the kind of the change."""

Defaults = tuple[tuple[str, Any], ...]
"""Columns with their defaults, where these are not null."""

_DELETING = pa.array(["D", "-U"])


@dataclass(frozen=True, slots=True)
class PartialUpdateFill:
    """Which values count as missing in a partial update mode.

    Attributes:
        mode: Partial update mode. IGNORE_DEFAULTS compares by reference in Java, so besides null only booleans and
            whole numbers from -128 to 127 ever equal their default. A column with a default that is not null keeps its nulls.
        defaults: Column defaults that are not null.
        unavailable: Placeholder of FILL_UNAVAILABLE; None: nothing is filled.
    """

    mode: UpdateMode
    defaults: Defaults = ()
    unavailable: str | None = None

    def missing(self, name: str, column: pa.ChunkedArray) -> BoolMask | None:
        """Return a mask of the values of a column that count as missing; None if there are none."""
        if self.mode is UpdateMode.IGNORE_DEFAULTS:
            missing = self._defaults_in(name, column)
        elif self.unavailable is None:
            return None
        elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            text = self.unavailable if pa.types.is_string(column.type) else self.unavailable.encode()
            missing = pc.fill_null(pc.equal(column, pa.scalar(text, column.type)), False)
        else:
            return None
        mask = None if missing is None else np.asarray(missing.combine_chunks(), dtype=np.bool_)
        return mask if mask is not None and mask.any() else None

    def fill_missing(self, older: pa.Table, newer: pa.Table, newer_wins: BoolMask) -> pa.Table:
        """Return the winner of each pair with its missing values filled from the other record, in the newer table's columns."""
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
    """Merge rule of a table of version 9 without a custom merger.

    Attributes:
        ordering: Ordering columns; empty under commit time ordering, regardless of the table's ordering fields.
        filling: How missing values are filled; None if they are not.
        default_delete_marker: Delete marker of the table, which also applies to stored records.
        custom_delete_marker: Delete marker of the caller.
    """

    ordering: Ordering
    filling: PartialUpdateFill | None = None
    default_delete_marker: DeleteMarker | None = None
    custom_delete_marker: DeleteMarker | None = None

    @property
    def selects_one_side(self) -> bool:
        """Return True without an update mode: the result is one of the two records."""
        return self.filling is None

    @property
    def custom_merge(self) -> bool:
        """Return False: commit time or ordering value selects the winner, whose missing values are filled."""
        return False

    @property
    def by_commit_time(self) -> bool:
        """Return True if the rule uses no ordering value."""
        return not self.ordering

    @property
    def delete_is_barrier(self) -> bool:
        """Return True: a delete without an ordering value has no effect on later records."""
        return True

    @property
    def marker(self) -> DeleteMarker | None:
        """Return the caller's delete marker, else the table's."""
        return self.custom_delete_marker or self.default_delete_marker

    def with_marker(self, marker: DeleteMarker | None) -> UpdateModeRule:
        """Return the same rule with the caller's marker; None: with the table's, if any."""
        return replace(self, custom_delete_marker=marker)

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """Return a mask of the pairs in which the newer record wins."""
        if not self.ordering:
            return np.ones(newer.num_rows, dtype=np.bool_)
        wins = newer_or_equal(self.ordering.values(older), self.ordering.values(newer))
        for rows in (older, newer):
            deleted = self.deletes(rows)
            if deleted is not None:
                wins |= deleted & self.ordering.are_zero(rows)
        return wins if newer_is_plain_delete is None else wins | newer_is_plain_delete

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        """Return a mask of the rows that delete their key, by flag, marker or operation."""
        candidates = [delete_flags(rows)]
        if self.marker is not None and self.marker.field in rows.column_names:
            candidates.append(replace(self.marker, combines_with_flag=False).flags(rows))
        if OPERATION in rows.column_names:
            candidates.append(np.asarray(pc.is_in(rows.column(OPERATION).cast(pa.string()), value_set=_DELETING), dtype=np.bool_))
        masks = [mask for mask in candidates if mask is not None and mask.any()]
        return np.logical_or.reduce(masks) if masks else None

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Merge stored (older) with incoming (newer) records."""
        merged = self.combine(older, newer)
        deleted = self.deletes(newer)
        if deleted is None:
            return merged
        wins = self.newer_wins(older, newer, None)
        return replace(merged, is_live=~(deleted & wins))

    def combine(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Merge two records of one batch; a delete remains a row."""
        wins = self.newer_wins(older, newer, None)
        all_rows = np.ones(newer.num_rows, dtype=np.bool_)
        if self.filling is None:
            return Merged(choose_rows(older, newer, wins), all_rows, wins)
        deleted = [
            np.zeros(newer.num_rows, dtype=np.bool_) if mask is None else mask for mask in map(self.deletes, (older, newer))
        ]
        rows = self.filling.fill_missing(older, newer, wins)
        with_delete = deleted[0] | deleted[1]
        if with_delete.any():
            rows = choose_rows(rows, choose_rows(older, newer, wins), with_delete)
        return Merged(rows, all_rows, wins | ~with_delete)


def mode_rule(settings: MergeSettings, defaults: Defaults = ()) -> UpdateModeRule | None:
    """Return the rule of a built-in merge mode of table version 9; None for CUSTOM.

    Raises:
        Unsupported: As `check_merge_properties`.
    """
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
    """Check that PyHudi implements all merge properties of a built-in mode, because they may change the merged rows.

    Raises:
        Unsupported: An unknown merge property.
    """
    if settings.mode is MergeMode.CUSTOM:
        return
    known = (MARKER_FIELD, MARKER_TEXT, UNAVAILABLE_TEXT)
    unknown = [f"{table_options.MERGE_PROPERTY}{name}={value}" for name, value in settings.properties if name not in known]
    if unknown:
        raise Unsupported(f"the table merges records by unknown properties: {', '.join(unknown)}")
