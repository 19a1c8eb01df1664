"""What the table makes of two rows of one key: each merge mode, payload class and merger that a run may have, on dictionaries.

Rules that are not associative are drawn for merge-on-read tables without late rows, and so that the plain fold of all writes is
what logs and base files come to; `tests/support/payload_model.py` is the model that knows what a log merges first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi import register_merger
from pyhudi.records.record_merge import choose_rows
from tests.support.payload_model import PAYLOADS, UNAVAILABLE

DELETED = "_hoodie_is_deleted"
Values = dict[str, Any]


class Highest:
    """A merger: the row with the higher `v` stays, a null is the lowest; ties go to the newer."""

    strategy_id = "6f1e3a52-0d1c-4a44-8f5a-7f2f0f7a9d77"
    ordering_field = None

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, None]:
        first, second = (pc.fill_null(rows["v"].cast(pa.float64()), -1000.0) for rows in (older, newer))
        return choose_rows(older, newer, pc.greater_equal(second, first).to_numpy()), None


@dataclass(frozen=True)
class Rule:
    """name: a mode, a payload class or a merger.  ordering: the column that orders.  columns: beyond those of every table, and
    what a living row has there. mark: what a row has that deletes its key. ordered: whether late rows may lose. fills: the
    placeholder for no value. associative: whether late rows may come in any order in a log.
    """

    name: str
    ordered: bool = False
    ordering: str = "ts"
    columns: tuple[tuple[str, str], ...] = ()
    mark: tuple[str, Any] = (DELETED, True)
    fills: tuple[Any, ...] = ()
    associative: bool = True
    options: tuple[tuple[str, str], ...] = ()
    only_8: bool = False

    def deletes(self, row: Values) -> bool:
        field, text = self.mark
        return bool(row.get(DELETED)) or row.get(field) == text

    def deleting(self, row: Values) -> Values:
        return {**row, self.mark[0]: self.mark[1]}

    def made_whole(self, row: Values, rng: random.Random, drawn: Callable[[str, random.Random], Any]) -> Values:
        """The row with values of its own wherever it could be filled from another one."""
        whole = dict(row)
        for name in row:
            for _ in range(20):
                if not self.is_gap(whole[name]):
                    break
                whole[name] = drawn(name, rng)
        return whole

    def is_gap(self, value: Any) -> bool:
        return any(value is none or (isinstance(none, str) and value == none) for none in self.fills)

    def order(self, row: Values) -> int:
        return int(row["ts"])

    def newer(self, row: Values, held: Values) -> bool:
        """Whether the incoming row wins over the one that is there."""
        if self.name == "highest":
            return (-1000 if row["v"] is None else row["v"]) >= (-1000 if held["v"] is None else held["v"])
        if self.name == "first":
            return self.order(row) > self.order(held)
        return not self.ordered or self.order(row) >= self.order(held)

    def meet(self, row: Values, held: Values, version: int, *, in_log: bool = False) -> tuple[Values | None, bool]:
        """What becomes of an incoming row and the one that is there, None for a delete, and whether that is of the new write."""
        if self.deletes(row):
            if self.name == "highest":
                # The merger has no say in deletes: they go by the ordering value.
                return (None, True) if self.order(row) >= self.order(held) else (held, False)
            always = (version == 8 and self.name in ("event", "non-defaults", "partial", "dms", "overwrite")) or not self.ordered
            # Logs resolve deletes by ordering value, before a payload class is called.
            if always or self.newer(row, held) or (in_log and self.order(row) >= self.order(held)):
                return None, True
            return held, False
        if self.newer(row, held):
            return self.filled(row, held), True
        if self.name == "partial" or (self.fills and self.ordered and version == 9):
            return self.filled(held, row), True
        return held, False

    def filled(self, first: Values, second: Values) -> Values:
        return {name: second[name] if self.is_gap(value) else value for name, value in first.items()}


_DEBEZIUM = (("_change_operation_type", "u"),)
RULES = {
    rule.name: rule
    for rule in (
        Rule("by commit"),
        Rule("by event", ordered=True),
        Rule("overwrite"),
        Rule("default", ordered=True),
        Rule("event", ordered=True),
        Rule("non-defaults", fills=(None,), associative=False),
        Rule("partial", ordered=True, fills=(None,), associative=False),
        Rule("first", ordered=True, associative=False, only_8=True),
        Rule("dms", columns=(("Op", "U"),), mark=("Op", "D")),
        Rule(
            "postgres",
            ordered=True,
            ordering="_event_lsn",
            columns=_DEBEZIUM,
            mark=("_change_operation_type", "d"),
            fills=(UNAVAILABLE,),
            associative=False,
        ),
        Rule(
            "marker",
            ordered=True,
            columns=(("op", "u"),),
            mark=("op", "gone"),
            options=(("hoodie.payload.delete.field", "op"), ("hoodie.payload.delete.marker", "gone")),
        ),
        Rule("highest", associative=False, only_8=True),
    )
}


def options_of(rule: Rule) -> dict[str, Any]:
    """The options of a table and its writers."""
    if rule.name in ("by commit", "by event"):
        return {"hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING" if rule.ordered else "COMMIT_TIME_ORDERING"}
    if rule.name == "highest":
        register_merger(Highest())
        return {
            "hoodie.write.record.merge.mode": "CUSTOM",
            "hoodie.write.record.merge.strategy.id": Highest.strategy_id,
        }
    return {
        "hoodie.datasource.write.payload.class": PAYLOADS["default" if rule.name == "marker" else rule.name],
        **dict(rule.options),
    }


__all__ = ["RULES", "UNAVAILABLE", "Rule", "options_of"]
