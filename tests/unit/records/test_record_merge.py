"""The built-in merge rules on columns equal the same rules row by row."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequest
from pyhudi.records.merge_mode import infer_merge_settings
from pyhudi.records.ordering import NO_ORDERING, Ordering, newer_or_equal, ordering_values
from pyhudi.records.record_merge import (
    CommitTimeRule,
    EventTimeRule,
    Merged,
    RecordMergeRule,
    built_in_rule,
    choose_rows,
    combine_duplicates,
    delete_flags,
    row_codes,
)


def column(*values: Any, type: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type)])


def rows(*pairs: tuple[Any, ...]) -> pa.Table:
    return pa.table({"id": [p[0] for p in pairs], "ts": pa.array([p[1] for p in pairs], pa.int64()), "v": [p[2] for p in pairs]})


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (False, True),
        (1, 2),
        (1.5, 2.5),
        (-0.0, 0.0),
        (math.inf, math.nan),
        (-math.inf, -1e308),
        ("a", "b"),
        ("Z", "a"),
        ("\uffff", "😀"),  # Hudi's readers compare bytes, not Java's UTF-16 units.
        (datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)),
        (datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 0, 0, 0, 1)),
        (decimal.Decimal("1.10"), decimal.Decimal("1.20")),
        (b"\x00", b"\x01"),
    ],
)
def test_which_is_newer(small: Any, large: Any) -> None:
    pair, turned = column(small, large, large, small), column(large, small, large, small)
    assert newer_or_equal(pair, turned).tolist() == [True, False, True, True]
    # A stored null loses; an incoming null loses against a value.
    kind = pair.type
    nothing = column(None, None, type=kind)
    assert newer_or_equal(nothing, column(small, None, type=kind)).tolist() == [True, True]
    assert newer_or_equal(column(small, large, type=kind), nothing).tolist() == [False, False]


def test_ordering_values_follow_a_path() -> None:
    table = pa.table({"meta": [{"at": {"ts": 5}}, {"at": None}, None]})
    assert ordering_values(table, "meta.at.ts").to_pylist() == [5, None, None]
    with pytest.raises(InvalidRequest, match="'no' is not a field"):
        ordering_values(table, "meta.no")
    with pytest.raises(InvalidRequest, match="is not a column"):
        ordering_values(table, "ts")


@pytest.mark.parametrize("mode", ["COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"])
def test_rules(mode: str) -> None:
    rule = built_in_rule(infer_merge_settings(mode=mode, payload_class=None, strategy_id=None, ordering_field="ts"))
    assert rule is not None
    older = rows(("a", 5, "o"), ("b", 5, "o"), ("c", 5, "o"), ("d", None, "o"))
    newer = rows(("a", 3, "n"), ("b", 5, "n"), ("c", 7, "n"), ("d", 1, "n"))
    by_event = mode.startswith("EVENT")
    assert rule.ordering == Ordering(("ts",) if by_event else ())
    wins = [not by_event, True, True, True]
    assert rule.newer_wins(older, newer, None).tolist() == wins
    plain = np.array([True, False, False, False])
    assert rule.newer_wins(older, newer, plain).tolist() == [True] * 4
    merged = rule.merge(older, newer)
    assert merged.changed.tolist() == wins
    assert merged.is_live.all()
    assert merged.rows.column("v").to_pylist() == ["n" if won else "o" for won in wins]


def test_without_an_ordering_field_the_newer_wins() -> None:
    assert EventTimeRule(None).newer_wins(rows(("a", 9, 0)), rows(("a", 1, 0)), None).tolist() == [True]


def test_custom_is_not_built_in() -> None:
    settings = infer_merge_settings(mode=None, payload_class=None, strategy_id="x-y", ordering_field="ts")
    assert built_in_rule(settings) is None


def test_soft_deletes() -> None:
    assert delete_flags(rows(("a", 1, 1))) is None
    table = pa.table({"_hoodie_is_deleted": [True, None, False]})
    flags = delete_flags(table)
    assert flags is not None
    assert flags.tolist() == [True, False, False]
    assert delete_flags(table.slice(1)) is None
    with pytest.raises(InvalidRequest, match="it must be boolean"):
        delete_flags(pa.table({"_hoodie_is_deleted": ["true"]}))


def test_choose_rows_takes_the_newer_ones_columns() -> None:
    older = pa.table({"v": pa.array([1, 2], pa.int32()), "id": ["a", "b"]})
    newer = pa.table({"id": ["a", "b"], "v": pa.array([10, 20], pa.int64())})
    chosen = choose_rows(older, newer, np.array([False, True]))
    assert chosen.schema == newer.schema
    assert chosen.to_pylist() == [{"id": "a", "v": 1}, {"id": "b", "v": 20}]
    assert choose_rows(older, newer, np.array([True, True])) is newer


class Adder:
    """A rule that makes values of its own: sums, and nothing when the sum is 13."""

    selects_one_side = False
    delete_is_barrier = False
    ordering = NO_ORDERING

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        sums = [a + b for a, b in zip(older["v"].to_pylist(), newer["v"].to_pylist(), strict=True)]
        total = newer.set_column(newer.schema.get_field_index("v"), "v", pa.array(sums, newer.schema.field("v").type))
        return Merged(total, np.array([value != 13 for value in sums]), np.ones(len(sums), dtype=np.bool_))

    combine = merge

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: Any) -> Any:
        raise NotImplementedError

    def deletes(self, rows: pa.Table) -> None:
        return None


records = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xy"), st.integers(0, 3)), max_size=12)


@given(records, st.booleans(), st.booleans(), st.integers(1, 5))
def test_combining_is_reducing_in_order(given_rows: list[tuple[str, str, int]], by_event: bool, both: bool, chunk: int) -> None:
    table = pa.table(
        {
            "id": pa.array([r[0] for r in given_rows], pa.string()),
            "part": pa.array([r[1] for r in given_rows], pa.string()),
            "ts": pa.array([r[2] for r in given_rows], pa.int64()),
            "n": pa.array(range(len(given_rows)), pa.int64()),
        }
    )
    chunked = pa.concat_tables([table.slice(start, chunk) for start in range(0, len(table), chunk)] or [table])
    identity = ["id", "part"] if both else ["id"]
    expected: dict[Any, tuple[int, int]] = {}
    for number, (key, part, ts) in enumerate(given_rows):
        name = (key, part) if both else key
        held = expected.get(name)
        if held is None or not by_event or ts >= held[0]:
            expected[name] = (ts, number)
    rule: RecordMergeRule = EventTimeRule("ts") if by_event else CommitTimeRule()
    combined = combine_duplicates(chunked, identity, rule)
    assert combined.column("n").to_pylist() == sorted(number for _, number in expected.values())
    if len(expected) == len(given_rows):
        assert combined is chunked


def test_plain_deletes_among_duplicates_win() -> None:
    table = rows(("a", 5, "row"), ("a", 1, "delete"), ("b", 5, "row"))
    combined = combine_duplicates(table, ["id"], EventTimeRule("ts"), np.array([False, True, False]))
    assert combined.column("v").to_pylist() == ["delete", "row"]


def test_a_rule_with_values_of_its_own() -> None:
    table = pa.table({"id": list("abacba"), "v": [1, 6, 2, 9, 7, 3]})
    combined = combine_duplicates(table, ["id"], Adder())  # type: ignore[arg-type]
    assert sorted(zip(combined["id"].to_pylist(), combined["v"].to_pylist(), strict=True)) == [("a", 6), ("c", 9)]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y", None])), max_size=10))
def test_row_codes_name_combinations(pairs: list[tuple[str | None, str | None]]) -> None:
    table = pa.table({"p": pa.array([a for a, _ in pairs], pa.string()), "q": pa.array([b for _, b in pairs], pa.string())})
    codes = row_codes(table, ["p", "q"]).tolist()
    assert [[x == y for y in codes] for x in codes] == [[x == y for y in pairs] for x in pairs]
    assert set(codes) == set(range(len(set(pairs))))
