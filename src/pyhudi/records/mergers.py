"""Custom record mergers: a caller's own rule for two records of one key, known to tables by its strategy id.

A table names the strategy id; the code comes from the caller, who registers an object for it:

    class KeepHighest:
        strategy_id = "8d0c2c5e-5f5e-4e53-9f5c-2f1f2a3b4c5d"
        ordering_field = None                      # or the column that settles deletes

        def merge(self, older, newer):             # aligned Arrow tables, one row for each key
            keep = pc.greater(older["score"], newer["score"])
            return choose_rows(older, newer, ~keep.to_numpy()), None

    hp.register_merger(KeepHighest())

`merge` returns the merged rows in the newer's columns and which of them are left (a boolean array; None: all).  It must be
associative, and it is never called with a deleted record: deletes are settled by ordering value.  Among the columns is
`_hoodie_commit_time`, where the table has it: take it from the row that stays, as `choose_rows` does.  A row that bears the older
one's and has its values is no change: it keeps its commit time, and no incremental query tells it.  (Where a global index would
have moved that record, the real Hudi gives the row, as it was, the commit time of the write.)

A merger that has a say in deletes has another method:

        def deletes(self, older, newer):           # aligned Arrow tables; each newer row deletes its key
            return pc.greater(newer["score"], older["score"])      # True: the record goes; False or null: the older row stays

It is asked where a copy-on-write table is written, about rows whose `_hoodie_is_deleted` or delete marker says so, as the real
Hudi 1.0.2 asks its mergers there.  In log files deletes are settled by ordering value with it too, as the real one's readers and
compactions settle them; a delete by key always deletes.

Where the real Hudi writes such a table, its option `hoodie.write.record.merge.custom.implementation.classes` lists Java classes.
It may be given here as it is, once the Python merger is registered under the name of the class as well:

    hp.register_merger(KeepHighest(), "com.example.KeepHighest")

A merger of tables that take partial updates has a second method:

        def partial_merge(self, older, newer):     # aligned Arrow tables, each with the columns that its records hold
            keep = ...
            return rows, None                      # with every column that one of the two holds

It is called where at least one side lacks columns of the table: for a partial update and the stored row, for two partial
updates in the log, and for two rows of one key in a partial upsert.  A column that neither has is in no answer, and gets its
value when the record meets a row that has it.  Meta columns are among the columns where rows come from files; the record key and
the ordering column are always there.  What `merge` promises holds for it too, and both must agree: merging two partial updates
and then the row gives what merging one after the other into the row gives.  Without this method partial updates of the table are
refused.

For rules that think in single records, `record_by_record` wraps functions of two dictionaries; it is convenient and slow.  A
table's property never imports code.

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
    """A caller's rule.  strategy_id: `hoodie.record.merge.strategy.id` of the tables that it is for.  Picklable where Spark is to
    use it.
    """

    @property
    def strategy_id(self) -> str: ...

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask | pa.Array | None]:
        """Merge aligned rows; see the module's head."""
        ...


@runtime_checkable
class PartialMerger(RecordMerger, Protocol):
    """A rule that merges records which hold some columns each, too."""

    def partial_merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask | pa.Array | None]:
        """Merge aligned rows of some columns each into rows of all columns that either has; see the module's head."""
        ...


@runtime_checkable
class DeleteMerger(RecordMerger, Protocol):
    """A rule that says of deletes whether they count, too."""

    def deletes(self, older: pa.Table, newer: pa.Table) -> BoolMask | pa.Array:
        """Of aligned rows whose newer ones are deletes: True where the record goes; see the module's head."""
        ...


@dataclass(frozen=True, slots=True)
class MergerRule(CommonRule):
    """A registered merger as a rule of this package."""

    merger: RecordMerger
    ordering: Ordering
    delete_is_barrier: bool = False
    marker: DeleteMarker | None = None

    @property
    def selects_one_side(self) -> bool:
        """Rows are merged, not picked."""
        return False

    @property
    def custom_merge(self) -> bool:
        """The merger does."""
        return True

    @property
    def partial_merger(self) -> PartialMerger:
        """The merger, where it has partial merges; else raises Unsupported."""
        if isinstance(self.merger, PartialMerger):
            return self.merger
        raise Unsupported(
            f"merger {self.merger.strategy_id} has no method partial_merge, so it cannot merge partial updates; add one, or "
            "write whole rows"
        )

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """Deletes compete by ordering value."""
        if not self.ordering:
            return np.ones(newer.num_rows, dtype=np.bool_)
        wins = newer_or_equal(self.ordering.values(older), self.ordering.values(newer))
        return wins if newer_is_plain_delete is None else wins | newer_is_plain_delete

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        """Rows that delete their key."""
        return deleted_rows(rows, self.marker)

    def with_marker(self, marker: DeleteMarker | None) -> MergerRule:
        """The same rule with another marker."""
        return replace(self, marker=marker)

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Ask the merger; a soft delete removes the record where it wins by ordering value, or where the merger says so."""
        return self._settled(older, newer, self._checked(self.merger.merge(older, newer), newer.schema, newer.num_rows))

    def merge_partial(self, older: pa.Table, newer: pa.Table) -> Merged:
        """As `merge`, of rows that hold some columns each; the outcome has those of both.

        Raises Unsupported for a merger without partial merges.
        """
        merger = self.partial_merger
        more = [field for field in older.schema if field.name not in newer.column_names]
        schema = pa.schema([*newer.schema, *more])
        return self._settled(older, newer, self._checked(merger.partial_merge(older, newer), schema, newer.num_rows))

    def combine(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Two records of one batch: the same rule."""
        return self.merge(older, newer)

    def _settled(self, older: pa.Table, newer: pa.Table, result: tuple[pa.Table, BoolMask]) -> Merged:
        rows, alive = result
        dead = self.deletes(newer)
        changed = np.ones(newer.num_rows, dtype=np.bool_)
        if dead is not None:
            wins = self._deletes_that_count(older, newer, dead)
            alive = np.where(dead, ~wins, alive)
            changed = ~(dead & ~wins)
        return Merged(rows, alive, changed)

    def _deletes_that_count(self, older: pa.Table, newer: pa.Table, deleted: BoolMask) -> BoolMask:
        """Among the rows that are deletes; of the others nothing is said."""
        if not isinstance(self.merger, DeleteMerger):
            return self.newer_wins(older, newer, None)
        asked = pa.array(deleted)
        answer = self.merger.deletes(older.filter(asked), newer.filter(asked))
        told = np.asarray(pc.fill_null(_flat(answer), False), dtype=np.bool_)
        if len(told) != deleted.sum():
            raise InvalidRequest(
                f"merger {self.merger.strategy_id} was asked about {deleted.sum()} deletes, and answered with {len(told)} marks; "
                "one for each is wanted"
            )
        wins = np.zeros(len(deleted), dtype=np.bool_)
        wins[deleted] = told
        return wins

    def _checked(
        self, result: tuple[pa.Table, BoolMask | pa.Array | None], schema: pa.Schema, count: int
    ) -> tuple[pa.Table, BoolMask]:
        rows, left = result
        if rows.num_rows != count or not set(schema.names) <= set(rows.column_names):
            raise InvalidRequest(
                f"merger {self.merger.strategy_id} returned {rows.num_rows} rows with columns {', '.join(rows.column_names)}; "
                f"{count} rows with columns {', '.join(schema.names)} are wanted"
            )
        alive = np.ones(count, dtype=np.bool_) if left is None else np.asarray(left, dtype=np.bool_)
        return conform_table(rows.select(schema.names), schema), alive


def _flat(result: BoolMask | pa.Array | pa.ChunkedArray) -> pa.Array:
    return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else pa.array(result)


@dataclass(frozen=True, slots=True)
class PartialRows(CommonRule):
    """The rule for two rows of one batch that hold the same columns, and not all: a merger's partial merge."""

    rule: RecordMergeRule

    @property
    def selects_one_side(self) -> bool:
        """Rows are merged, not picked."""
        return False

    @property
    def custom_merge(self) -> bool:
        """The merger does."""
        return True

    @property
    def ordering(self) -> Ordering:
        """That of the rule."""
        return self.rule.ordering

    @property
    def delete_is_barrier(self) -> bool:
        """As by the rule."""
        return self.rule.delete_is_barrier

    @property
    def marker(self) -> DeleteMarker | None:
        """That of the rule."""
        return self.rule.marker

    def with_marker(self, marker: DeleteMarker | None) -> PartialRows:
        """The same for the rule with another marker."""
        return PartialRows(self.rule.with_marker(marker))

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """As by the rule."""
        return self.rule.newer_wins(older, newer, newer_is_plain_delete)

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        """As by the rule."""
        return self.rule.deletes(rows)

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        """The rule's partial merge."""
        return partial_merge(self.rule, older, newer)

    combine = merge


def check_partial_merge(rule: RecordMergeRule) -> None:
    """Raises Unsupported for a rule that merges whole records alone: a payload class, or a merger without partial merges.

    Under an update mode a partial update is completed from what is stored, and becomes a whole row.
    """
    if isinstance(rule, MergerRule):
        _ = rule.partial_merger
    elif rule.filling is None and not rule.selects_one_side:
        raise Unsupported(
            "partial updates in a table whose records are merged by a payload class, as those know whole records alone; the real "
            "Hudi 1.0.2 refuses a MERGE INTO that leaves columns out there (MergeIntoFieldResolutionException): upsert whole rows"
        )


def partial_merge(rule: RecordMergeRule, older: pa.Table, newer: pa.Table) -> Merged:
    """Merge aligned rows that hold some columns each, by a rule that merges; the outcome has the columns of both.

    Raises Unsupported as `check_partial_merge` does.
    """
    check_partial_merge(rule)
    assert isinstance(rule, MergerRule), "a rule that picks is not asked to merge"
    return rule.merge_partial(older, newer)


def register_merger(merger: RecordMerger, class_name: str = "") -> None:
    """Make a merger known in this process for the tables with its strategy id; a later one replaces an earlier one.

    class_name: of the Java class that does the same for the real Hudi, which lists of such classes may name then; '' for none.
    """
    _registered.register(merger.strategy_id, merger)
    if class_name:
        _classes.register(class_name, merger)


def is_merger_class(class_name: str) -> bool:
    """Whether a merger is registered under the name of this Java class."""
    return _classes.find(class_name) is not None


def register_payload(class_name: str, merger: RecordMerger) -> None:
    """Make the rule of a payload class known in this process for the tables that name the class; a later one replaces an earlier
    one.

    class_name: as `hoodie.compaction.payload.class` has it, with its package.  Raises InvalidRequest for one of Hudi's classes
    that PyHudi has a rule of.
    """
    if class_name in supported_payloads():
        raise InvalidRequest(f"payload class {class_name} has a rule already, which is that of Hudi")
    _payloads.register(class_name, merger)


def merge_rule(settings: MergeSettings, defaults: Defaults = ()) -> RecordMergeRule:
    """The rule of a table.  defaults: of its columns in their Avro schema, where they are not null.

    Raises Unsupported for a payload class without a rule, for a strategy id that nobody registered, and for a merge property
    that has no meaning here.
    """
    rule = mode_rule(settings, defaults) if settings.by_modes else built_in_rule(settings)
    if rule is not None:
        return rule
    if settings.by_payload:
        by_payload = payload_rule(settings.payload_class, settings.ordering, delete_is_barrier=settings.by_modes)
        if by_payload is not None:
            return by_payload
        of_class = _payloads.find(settings.payload_class)
        if of_class is None:
            raise Unsupported(
                f"payload class {settings.payload_class} is not known; known are {', '.join(supported_payloads())}, and those "
                "that "
                "pyhudi.register_payload is called with"
            )
        return MergerRule(of_class, settings.ordering, delete_is_barrier=settings.by_modes)
    merger = _registered.find(settings.strategy_id)
    if merger is None:
        raise Unsupported(
            f"the table merges records with strategy {settings.strategy_id} (mode {MergeMode.CUSTOM}), and no merger "
            "is registered for it; call pyhudi.register_merger with one"
        )
    return MergerRule(merger, settings.ordering, delete_is_barrier=settings.by_modes)


def honors_delete_markers(settings: MergeSettings) -> bool:
    """Whether writes to a table honour a delete marker: those whose payload class is the default one or FirstValueAvroPayload.

    Reads honour one in the log files of any table.
    """
    return settings.payload_class == DEFAULT_PAYLOAD or settings.payload_class in MARKER_PAYLOADS


def marked_rule(rule: RecordMergeRule, marker: DeleteMarker | None, schema: pa.Schema) -> RecordMergeRule:
    """The rule with a marker, which is checked against the columns; as it is when there is none.

    Raises InvalidRequest for another marker than the table's own.
    """
    own = rule.marker
    if own is not None and own.field in schema.names:
        own.check(schema)
    if marker is None:
        return rule
    if own is not None and (own.field, own.text) != (marker.field, marker.text):
        raise InvalidRequest(
            f"the table's own delete marker is {own.text!r} in {own.field!r} (hoodie.record.merge.property.*), and not "
            f"{marker.text!r} in {marker.field!r}; leave hoodie.payload.delete.field and hoodie.payload.delete.marker out"
        )
    marker.check(schema)
    return rule.with_marker(marker) if own is None else rule


_Function = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None]


def record_by_record(strategy_id: str, function: _Function, partial: _Function | None = None) -> RecordMerger:
    """A merger from a function of two records, older and newer, that returns the merged record or None to drop it.  One call a
    row: slow.

    partial: the same for records of which one lacks columns at least, whose dictionaries lack them too.  Columns that the result
    lacks are those of the newer record, or else of the older.  None: partial updates are refused.
    """
    return _RowWise(strategy_id, function) if partial is None else _PartialRowWise(strategy_id, function, partial)


@dataclass(frozen=True, slots=True)
class _RowWise:
    strategy_id: str
    function: _Function

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask]:
        return _merged_one_by_one(self.function, older, newer)


@dataclass(frozen=True, slots=True)
class _PartialRowWise(_RowWise):
    partial: _Function

    def partial_merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask]:
        return _merged_one_by_one(self.partial, older, newer)


def _merged_one_by_one(function: _Function, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask]:
    pairs = list(zip(older.to_pylist(), newer.to_pylist(), strict=True))
    results = [function(*pair) for pair in pairs]
    alive = np.array([result is not None for result in results], dtype=np.bool_)
    rows = [{**first, **second, **(result or {})} for result, (first, second) in zip(results, pairs, strict=True)]
    more = [field for field in older.schema if field.name not in newer.column_names]
    return pa.Table.from_pylist(rows, schema=pa.schema([*newer.schema, *more])), alive
