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
associative, and it is never called
with a deleted record: deletes are settled by ordering value.  For rules that think in single records, `record_by_record` wraps a
function of two
dictionaries; it is convenient and slow.  A table's property never imports code.

Source: record mergers; reading and merging, "Record merger API".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.merge import (
    BoolMask,
    DeleteMarker,
    Merged,
    MergeRule,
    built_in_rule,
    deleted_rows,
    newer_or_equal,
    ordering_values,
)
from pyhudi.records.merge_mode import DEFAULT_PAYLOAD, MergeMode, MergeSettings
from pyhudi.records.payloads import MARKER_PAYLOADS, known_payloads, payload_rule

_registered: dict[str, RecordMerger] = {}
_mutex = threading.Lock()


class RecordMerger(Protocol):
    """A caller's rule.  strategy_id: `hoodie.record.merge.strategy.id` of the tables that it is for.  Picklable where Spark is to
    use it.
    """

    @property
    def strategy_id(self) -> str: ...

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask | pa.Array | None]:
        """Merge aligned rows; see the module's head."""
        ...


@dataclass(frozen=True, slots=True)
class MergerRule:
    """A registered merger as a rule of this package."""

    merger: RecordMerger
    ordering_field: str | None
    marker: DeleteMarker | None = None

    @property
    def picks(self) -> bool:
        """Rows are merged, not picked."""
        return False

    def pick_newer(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """Deletes compete by ordering value."""
        if self.ordering_field is None:
            return np.ones(newer.num_rows, dtype=np.bool_)
        wins = newer_or_equal(ordering_values(older, self.ordering_field), ordering_values(newer, self.ordering_field))
        return wins if newer_is_plain_delete is None else wins | newer_is_plain_delete

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        """Rows that delete their key."""
        return deleted_rows(rows, self.marker)

    def with_marker(self, marker: DeleteMarker | None) -> MergerRule:
        """The same rule with another marker."""
        return replace(self, marker=marker)

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Ask the merger; a soft delete that wins by ordering value removes the record without asking."""
        dead = self.deletes(newer)
        rows, alive = self._ask(older, newer)
        changed = np.ones(newer.num_rows, dtype=np.bool_)
        if dead is not None:
            wins = self.pick_newer(older, newer, None)
            alive = np.where(dead, ~wins, alive)
            changed = ~(dead & ~wins)
        return Merged(rows, alive, changed)

    def combine(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Two records of one batch: the same rule."""
        return self.merge(older, newer)

    def _ask(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask]:
        rows, left = self.merger.merge(older, newer)
        if rows.num_rows != newer.num_rows or set(rows.column_names) < set(newer.column_names):
            raise InvalidRequest(
                f"merger {self.merger.strategy_id} returned {rows.num_rows} rows with columns {', '.join(rows.column_names)}; "
                f"{newer.num_rows} rows with columns {', '.join(newer.column_names)} are wanted"
            )
        alive = np.ones(newer.num_rows, dtype=np.bool_) if left is None else np.asarray(left, dtype=np.bool_)
        return rows.select(newer.column_names).cast(newer.schema), alive


def register_merger(merger: RecordMerger) -> None:
    """Make a merger known in this process for the tables with its strategy id; a later one replaces an earlier one."""
    if not merger.strategy_id:
        raise InvalidRequest("a merger needs a strategy id")
    with _mutex:
        _registered[merger.strategy_id] = merger


def merge_rule(settings: MergeSettings) -> MergeRule:
    """The rule of a table.  Raises Unsupported for a payload class without a rule and for a strategy id that nobody
    registered.
    """
    rule = built_in_rule(settings)
    if rule is not None:
        return rule
    if settings.by_payload:
        by_payload = payload_rule(settings.payload_class, settings.ordering_field)
        if by_payload is None:
            raise Unsupported(
                f"payload class {settings.payload_class} is not known; known are {', '.join(known_payloads())}, and a registered "
                "merger takes any strategy id"
            )
        return by_payload
    with _mutex:
        merger = _registered.get(settings.strategy_id)
    if merger is None:
        raise Unsupported(
            f"the table merges records with strategy {settings.strategy_id} (mode {MergeMode.CUSTOM}), and no merger "
            f"is registered for it; "
            "call pyhudi.register_merger with one"
        )
    return MergerRule(merger, settings.ordering_field)


def looks_at_markers(settings: MergeSettings) -> bool:
    """Whether writes to a table honour a delete marker: those whose payload class is the default one or FirstValueAvroPayload.

    Reads honour one in the log files of any table.
    """
    return settings.payload_class == DEFAULT_PAYLOAD or settings.payload_class in MARKER_PAYLOADS


def marked_rule(rule: MergeRule, marker: DeleteMarker | None, schema: pa.Schema) -> MergeRule:
    """The rule with a marker, which is checked against the columns; as it is when there is none."""
    if marker is None:
        return rule
    marker.check(schema)
    return rule.with_marker(marker)


def record_by_record(
    strategy_id: str, function: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None]
) -> RecordMerger:
    """A merger from a function of two records, older and newer, that returns the merged record or None to drop it.  One call a
    row: slow.
    """
    return _RowWise(strategy_id, function)


@dataclass(frozen=True, slots=True)
class _RowWise:
    strategy_id: str
    function: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None]

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, BoolMask]:
        pairs = list(zip(older.to_pylist(), newer.to_pylist(), strict=True))
        results = [self.function(*pair) for pair in pairs]
        alive = np.array([result is not None for result in results], dtype=np.bool_)
        rows = [
            fallback if result is None else {**fallback, **result} for result, (_, fallback) in zip(results, pairs, strict=True)
        ]
        return pa.Table.from_pylist(rows, schema=newer.schema), alive
