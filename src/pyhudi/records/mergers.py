"""Custom record mergers: merge functions that the caller registers for a table's merge strategy id.

A table stores the strategy id; the caller registers an object with that id:

    class KeepHighest:
        strategy_id = "8d0c2c5e-5f5e-4e53-9f5c-2f1f2a3b4c5d"
        ordering_field = None                      # or the column that orders deletes

        def merge(self, older, newer):             # aligned Arrow tables, one row for each key
            keep = pc.greater(older["score"], newer["score"])
            return choose_rows(older, newer, ~keep.to_numpy()), None

    hp.register_merger(KeepHighest())

`merge` returns the merged rows in the newer table's columns and a boolean array of the rows that remain (None: all). It
must be associative. It never receives deleted records: deletes are resolved by ordering value. If the table has
`_hoodie_commit_time`, it is among the columns: copy it from the selected row, as `choose_rows` does. A row with the
older row's commit time and values is unchanged: it keeps its commit time, and incremental queries do not return it. (If
a global index would have moved that record, Hudi writes the unchanged row with the commit time of the write.)

A merger that decides about deletes has another method:

        def deletes(self, older, newer):           # aligned Arrow tables; each newer row deletes its key
            return pc.greater(newer["score"], older["score"])      # True: delete; False or null: keep the older row

PyHudi calls it when it writes a copy-on-write table, for rows that `_hoodie_is_deleted` or a delete marker marks as
deletes, as Hudi 1.0.2 does. In log files deletes are resolved by ordering value, as in Hudi's readers and compactions.
A delete by key always deletes.

When Hudi writes such a table, its option `hoodie.write.record.merge.custom.implementation.classes` lists Java classes.
PyHudi accepts the option once the Python merger is registered under the class name as well:

    hp.register_merger(KeepHighest(), "com.example.KeepHighest")

A merger of tables with partial updates has a second method:

        def partial_merge(self, older, newer):     # aligned Arrow tables, each with the columns of its records
            keep = ...
            return rows, None                      # with every column of either side

It is called if at least one side lacks columns of the table: for a partial update and the stored row, for two partial
updates in the log, and for two rows of one key in a partial upsert. A column that both sides lack is not in the result;
it gets its value when the record is merged with a row that has it. Meta columns are included if rows come from files;
the record key and the ordering column are always included. The contract of `merge` applies to it too, and the two
methods must agree: merging two partial updates and then the row must give the same result as merging one after the
other into the row. Without this method, partial updates of the table are rejected.

`record_by_record` wraps functions of two dictionaries; it is convenient and slow. A table property never imports code.

Source: docs/reference/mergers.md; docs/formats/reading.md, "Merging".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.options import table_options, write_options
from pyhudi.options.plugins import Registry
from pyhudi.records.merge_mode import DEFAULT_PAYLOAD, MergeMode, MergeSettings
from pyhudi.records.ordering import BoolMask, Ordering, newer_or_equal
from pyhudi.records.payloads import MARKER_PAYLOADS, payload_rule, supported_payloads
from pyhudi.records.record_merge import CommonRule, DeleteMarker, Merged, RecordMergeRule, built_in_rule, deleted_rows
from pyhudi.records.schema_cast import conform_table
from pyhudi.records.update_modes import Defaults, mode_rule

_registered: Registry[RecordMerger] = Registry("merger")
_classes: Registry[RecordMerger] = Registry("merger's class")
_payloads: Registry[RecordMerger] = Registry("payload")


class RecordMerger(Protocol):
    """Custom merge rule of the caller; must be picklable to be used on Spark.

    Attributes:
        strategy_id: `hoodie.record.merge.strategy.id` of the tables that the merger applies to.
    """

    @property
    def strategy_id(self) -> str: ...

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask | pa.Array | None]:
        """Merge aligned rows; the module docstring defines the contract.

        Args:
            older: Older versions of some records.
            newer: Newer versions of the same records, in the same order.

        Returns:
            The merged rows in the columns of the newer ones, and a mask of the rows that remain; None keeps all.
        """
        ...


@runtime_checkable
class PartialMerger(RecordMerger, Protocol):
    """Custom merge rule that also merges partial updates."""

    def partial_merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask | pa.Array | None]:
        """Merge aligned rows that have some of the columns; the module docstring defines the contract.

        Args:
            older: Older versions of some records.
            newer: Newer versions of the same records, in the same order.

        Returns:
            Rows with the columns of both sides, and a mask of the rows that remain; None keeps all.
        """
        ...


@runtime_checkable
class DeleteMerger(RecordMerger, Protocol):
    """Custom merge rule that also decides whether a delete wins."""

    def deletes(self, older: pa.Table, newer: pa.Table) -> BoolMask | pa.Array:
        """Decide which deletes win.

        Args:
            older: Older versions of some records.
            newer: Deletes of the same records, in the same order.

        Returns:
            A mask of the deletes that win.
        """
        ...


@dataclass(frozen=True, slots=True)
class MergerRule(CommonRule):
    """Adapter from a registered custom merger to `RecordMergeRule`."""

    merger: RecordMerger
    ordering: Ordering
    delete_is_barrier: bool = False
    marker: DeleteMarker | None = None

    @property
    def partial_merger(self) -> PartialMerger:
        """The merger as `PartialMerger`.

        Raises:
            Unsupported: The merger has no partial merge.
        """
        if isinstance(self.merger, PartialMerger):
            return self.merger
        raise Unsupported(
            f"merger {self.merger.strategy_id} has no method partial_merge, so it cannot merge partial updates; add one, or "
            "write whole rows"
        )

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """Order deletes by ordering value."""
        if not self.ordering:
            return np.ones(newer.num_rows, dtype=np.bool_)
        wins = newer_or_equal(self.ordering.values(older), self.ordering.values(newer))
        return wins if newer_is_plain_delete is None else wins | newer_is_plain_delete

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        """Return a mask of the rows that delete their key."""
        return deleted_rows(rows, self.marker)

    def with_marker(self, marker: DeleteMarker | None) -> MergerRule:
        """Return the same rule with another delete marker."""
        return replace(self, marker=marker)

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Call the merger. A soft delete removes the record if it wins by ordering value or by the merger's `deletes`."""
        return self._resolve_deletes(
            older, newer, self._check_result(self.merger.merge(older, newer), newer.schema, newer.num_rows)
        )

    def merge_partial(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Merge rows with some columns each; the result has the columns of both.

        Raises:
            Unsupported: The merger has no partial merge.
        """
        merger = self.partial_merger
        older_only = [field for field in older.schema if field.name not in newer.column_names]
        schema = pa.schema([*newer.schema, *older_only])
        return self._resolve_deletes(older, newer, self._check_result(merger.partial_merge(older, newer), schema, newer.num_rows))

    def combine(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Merge two records of one batch, by the same rule."""
        return self.merge(older, newer)

    def _resolve_deletes(self, older: pa.Table, newer: pa.Table, result: tuple[pa.Table, BoolMask]) -> Merged:
        rows, alive = result
        deletes = self.deletes(newer)
        changed = np.ones(newer.num_rows, dtype=np.bool_)
        if deletes is not None:
            wins = self._winning_deletes(older, newer, deletes)
            alive = np.where(deletes, ~wins, alive)
            changed = ~(deletes & ~wins)
        return Merged(rows, alive, changed)

    def _winning_deletes(self, older: pa.Table, newer: pa.Table, deleted: BoolMask) -> BoolMask:
        """Return the deletes that win; rows that are not deletes are False."""
        if not isinstance(self.merger, DeleteMerger):
            return self.newer_wins(older, newer, None)
        delete_mask = pa.array(deleted)
        result = self.merger.deletes(older.filter(delete_mask), newer.filter(delete_mask))
        decisions = np.asarray(pc.fill_null(_to_array(result), False), dtype=np.bool_)
        if len(decisions) != deleted.sum():
            raise InvalidRequest(
                f"merger {self.merger.strategy_id}: method deletes returned {len(decisions)} values for {deleted.sum()} rows; "
                "return one value for each row"
            )
        wins = np.zeros(len(deleted), dtype=np.bool_)
        wins[deleted] = decisions
        return wins

    def _check_result(
        self, result: tuple[pa.Table, BoolMask | pa.Array | None], schema: pa.Schema, count: int
    ) -> tuple[pa.Table, BoolMask]:
        rows, is_live = result
        if rows.num_rows != count or not set(schema.names) <= set(rows.column_names):
            raise InvalidRequest(
                f"merger {self.merger.strategy_id} returned {rows.num_rows} rows with columns {', '.join(rows.column_names)}; "
                f"expected {count} rows with columns {', '.join(schema.names)}"
            )
        alive = np.ones(count, dtype=np.bool_) if is_live is None else np.asarray(is_live, dtype=np.bool_)
        return conform_table(rows.select(schema.names), schema), alive


def _to_array(result: BoolMask | pa.Array | pa.ChunkedArray) -> pa.Array:
    return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else pa.array(result)


@dataclass(frozen=True, slots=True)
class PartialRows(CommonRule):
    """Rule for two rows of one batch that both have the same subset of the columns: the merger's partial merge."""

    rule: RecordMergeRule

    @property
    def ordering(self) -> Ordering:
        """Return the ordering of the wrapped rule."""
        return self.rule.ordering

    @property
    def delete_is_barrier(self) -> bool:
        """Return `delete_is_barrier` of the wrapped rule."""
        return self.rule.delete_is_barrier

    @property
    def marker(self) -> DeleteMarker | None:
        """Return the delete marker of the wrapped rule."""
        return self.rule.marker

    def with_marker(self, marker: DeleteMarker | None) -> PartialRows:
        """Return the same rule with another delete marker."""
        return PartialRows(self.rule.with_marker(marker))

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """Delegate to the wrapped rule."""
        return self.rule.newer_wins(older, newer, newer_is_plain_delete)

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        """Delegate to the wrapped rule."""
        return self.rule.deletes(rows)

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Call the wrapped rule's partial merge."""
        return partial_merge(self.rule, older, newer)

    combine = merge


def check_partial_merge(rule: RecordMergeRule) -> None:
    """Check that a rule can merge partial updates.

    Under an update mode a partial update is completed from the stored record and becomes a complete row.

    Raises:
        Unsupported: The rule merges complete records only: a payload class, or a merger without partial merge.
    """
    if isinstance(rule, MergerRule):
        _ = rule.partial_merger
    elif rule.filling is None and not rule.selects_one_side:
        raise Unsupported(
            "partial updates are not supported in a table whose records are merged by a payload class, which needs "
            "complete records; Hudi 1.0.2 rejects such a MERGE INTO too (MergeIntoFieldResolutionException): upsert complete rows"
        )


def partial_merge(rule: RecordMergeRule, older: pa.Table, newer: pa.Table) -> Merged:
    """Merge aligned rows with some columns each by a custom merger; the result has the columns of both.

    Raises:
        Unsupported: As `check_partial_merge`.
    """
    check_partial_merge(rule)
    assert isinstance(rule, MergerRule), "a rule that selects one side has no partial merge"
    return rule.merge_partial(older, newer)


def register_merger(merger: RecordMerger, class_name: str = "") -> None:
    """Register a merger in this process for the tables with its strategy id; it replaces one registered earlier.

    Args:
        class_name: Name of the equivalent Java class, which Hudi's list of merger classes may then contain; '' for
            none.
    """
    _registered.register(merger.strategy_id, merger)
    if class_name:
        _classes.register(class_name, merger)


def is_merger_class(class_name: str) -> bool:
    """Return True if a merger is registered under the name of this Java class."""
    return _classes.find(class_name) is not None


def register_payload(class_name: str, merger: RecordMerger) -> None:
    """Register a rule for a payload class in this process; it replaces one registered earlier.

    Args:
        class_name: Fully qualified class name, as in `hoodie.compaction.payload.class`.
        merger: The rule.

    Raises:
        InvalidRequest: PyHudi already implements this payload class of Hudi.
    """
    if class_name in supported_payloads():
        raise InvalidRequest(
            f"payload class {class_name} is implemented by PyHudi and cannot be replaced; register another class name"
        )
    _payloads.register(class_name, merger)


def merge_rule(settings: MergeSettings, defaults: Defaults = ()) -> RecordMergeRule:
    """Return the merge rule of a table.

    Args:
        settings: Merge settings of the table.
        defaults: Column defaults in the table's Avro schema that are not null.

    Raises:
        Unsupported: A payload class without a rule, a strategy id that is not registered, or an unknown merge property.
    """
    rule = mode_rule(settings, defaults) if settings.by_modes else built_in_rule(settings)
    if rule is not None:
        return rule
    if settings.by_payload:
        built_in_payload_rule = payload_rule(settings.payload_class, settings.ordering, delete_is_barrier=settings.by_modes)
        if built_in_payload_rule is not None:
            return built_in_payload_rule
        payload_merger = _payloads.find(settings.payload_class)
        if payload_merger is None:
            raise Unsupported(
                f"payload class {settings.payload_class} is not supported; supported are {', '.join(supported_payloads())} and "
                "classes registered with pyhudi.register_payload"
            )
        return MergerRule(payload_merger, settings.ordering, delete_is_barrier=settings.by_modes)
    merger = _registered.find(settings.strategy_id)
    if merger is None:
        raise Unsupported(
            f"the table merges records with strategy {settings.strategy_id} (mode {MergeMode.CUSTOM}), and no merger "
            "is registered for it; register one with pyhudi.register_merger"
        )
    return MergerRule(merger, settings.ordering, delete_is_barrier=settings.by_modes)


def honors_delete_markers(settings: MergeSettings) -> bool:
    """Return True if writes to a table apply delete markers: the payload class is the default one or
    FirstValueAvroPayload.

    Reads apply delete markers in the log files of any table.
    """
    return settings.payload_class == DEFAULT_PAYLOAD or settings.payload_class in MARKER_PAYLOADS


def marked_rule(rule: RecordMergeRule, marker: DeleteMarker | None, schema: pa.Schema) -> RecordMergeRule:
    """Return the rule with a delete marker, checked against the columns; the rule unchanged if there is no marker.

    Raises:
        InvalidRequest: The marker differs from the table's own.
    """
    table_marker = rule.marker
    if table_marker is not None and table_marker.field in schema.names:
        table_marker.check(schema)
    if marker is None:
        return rule
    if table_marker is not None and (table_marker.field, table_marker.text) != (marker.field, marker.text):
        raise InvalidRequest(
            f"{write_options.DELETE_MARKER}={marker.text!r} of {marker.field!r} differs from the table's own delete marker, "
            f"{table_marker.text!r} in {table_marker.field!r} ({table_options.MERGE_PROPERTY}*); leave "
            f"{write_options.DELETE_FIELD} and {write_options.DELETE_MARKER} out"
        )
    marker.check(schema)
    return rule.with_marker(marker) if table_marker is None else rule


_Function = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None]


def record_by_record(strategy_id: str, function: _Function, partial: _Function | None = None) -> RecordMerger:
    """Create a merger from a function of two records; it makes one Python call per row, which is slow.

    Args:
        strategy_id: Merge strategy id.
        function: Function of the older and the newer record, which returns the merged record, or None to drop it.
        partial: The same for partial records, whose dictionaries lack columns. Columns missing in the result come from
            the newer record, or else the older. None: partial updates are rejected.
    """
    return _RowByRowMerger(strategy_id, function) if partial is None else _PartialRowByRowMerger(strategy_id, function, partial)


@dataclass(frozen=True, slots=True)
class _RowByRowMerger:
    strategy_id: str
    function: _Function

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask]:
        return _merge_row_by_row(self.function, older, newer)


@dataclass(frozen=True, slots=True)
class _PartialRowByRowMerger(_RowByRowMerger):
    partial: _Function

    def partial_merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask]:
        return _merge_row_by_row(self.partial, older, newer)


def _merge_row_by_row(function: _Function, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask]:
    pairs = list(zip(older.to_pylist(), newer.to_pylist(), strict=True))
    results = [function(*pair) for pair in pairs]
    alive = np.array([result is not None for result in results], dtype=np.bool_)
    rows = [{**first, **second, **(result or {})} for result, (first, second) in zip(results, pairs, strict=True)]
    older_only = [field for field in older.schema if field.name not in newer.column_names]
    return pa.Table.from_pylist(rows, schema=pa.schema([*newer.schema, *older_only])), alive
