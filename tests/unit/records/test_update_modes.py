"""The merge modes of table version 9 on rows: deletes, winners, filled values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyhudi.errors import Unsupported
from pyhudi.records.log_merge.merge_log_blocks import LogMerger
from pyhudi.records.merge_mode import MergeMode, MergeSettings, UpdateMode
from pyhudi.records.ordering import Ordering, newer_or_equal, ordering_ranks
from pyhudi.records.record_merge import DeleteMarker
from pyhudi.records.update_modes import OPERATION, PartialUpdateFill, UpdateModeRule, mode_rule

BY_TS = Ordering(("ts",), null_is_zero=True)
SCHEMA = pa.schema([("_hoodie_record_key", pa.string()), ("ts", pa.int64()), ("v", pa.string())])


def rows(*values: tuple[str, int | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def settings(mode: MergeMode, **properties: str) -> MergeSettings:
    named = tuple(sorted(properties.items()))
    return MergeSettings(mode, "", "", BY_TS, by_modes=True, properties=named)


@pytest.mark.parametrize(("operation", "deletes"), [("D", True), ("-U", True), ("U", False), ("I", False), (None, False)])
def test_operation_column_marks_deletes(operation: str | None, deletes: bool) -> None:
    table = rows(("a", 1, "x")).append_column(OPERATION, pa.array([operation], pa.string()))
    flags = UpdateModeRule(BY_TS).deletes(table)
    assert (flags is not None and bool(flags.all())) is deletes


def test_delete_marker_combines_with_the_flag_if_its_column_exists() -> None:
    rule = UpdateModeRule(BY_TS, default_delete_marker=DeleteMarker("v", "DEL", combines_with_flag=True))
    table = rows(("a", 1, "DEL"), ("b", 1, "x"), ("c", 1, None)).append_column(
        "_hoodie_is_deleted", pa.array([False, True, None])
    )
    flags = rule.deletes(table)
    assert flags is not None and flags.tolist() == [True, True, False]
    assert rule.deletes(rows(("a", 1, "DEL")).drop_columns(["v"])) is None


def test_commit_time_ordering_ignores_the_ordering_field() -> None:
    rule = mode_rule(settings(MergeMode.COMMIT_TIME_ORDERING))
    assert rule is not None and not rule.ordering
    assert rule.newer_wins(rows(("a", 9, "o")), rows(("a", 1, "n")), None).tolist() == [True]


def test_an_unknown_property_is_refused_and_a_merger_has_its_own() -> None:
    with pytest.raises(Unsupported, match=r"hoodie\.record\.merge\.property\.taste=sweet"):
        mode_rule(settings(MergeMode.EVENT_TIME_ORDERING, taste="sweet"))
    assert mode_rule(settings(MergeMode.CUSTOM, taste="sweet")) is None


@pytest.mark.parametrize(
    ("kind", "default", "values", "gaps"),
    [
        (pa.int64(), None, [None, 0, 1], [True, False, False]),
        (pa.bool_(), False, [None, False, True], [False, True, False]),
        (pa.int32(), 7, [None, 7, 8], [False, True, False]),
        # Java compares by reference, which finds larger numbers, text and floats never equal.
        (pa.int64(), 300, [None, 300, 1], [False, False, False]),
        (pa.string(), "x", [None, "x", ""], [False, False, False]),
        (pa.float64(), 0.0, [None, 0.0, 1.0], [False, False, False]),
    ],
)
def test_defaults_are_missing_values_when_equal_in_java(
    kind: pa.DataType, default: Any, values: list[Any], gaps: list[bool]
) -> None:
    filling = PartialUpdateFill(UpdateMode.IGNORE_DEFAULTS, () if default is None else (("c", default),))
    found = filling.missing("c", pa.chunked_array([pa.array(values, kind)]))
    assert (np.zeros(3, np.bool_) if found is None else found).tolist() == gaps


def test_unavailable_marker_is_missing_only_in_strings_and_binary() -> None:
    filling = PartialUpdateFill(UpdateMode.FILL_UNAVAILABLE, unavailable="?")
    for column, gaps in ((pa.array(["?", "x", None]), [True, False, False]), (pa.array([b"?", None, b""]), [True, False, False])):
        found = filling.missing("c", pa.chunked_array([column]))
        assert found is not None and found.tolist() == gaps
    assert filling.missing("c", pa.chunked_array([[1, None]])) is None
    assert PartialUpdateFill(UpdateMode.FILL_UNAVAILABLE).missing("c", pa.chunked_array([["?"]])) is None


def test_late_records_fill_missing_values_and_deletes_do_not() -> None:
    rule = UpdateModeRule(BY_TS, PartialUpdateFill(UpdateMode.IGNORE_DEFAULTS))
    older = rows(("a", 5, None), ("b", 5, "old"), ("c", 5, None))
    newer = rows(("a", 3, "late"), ("b", 7, None), ("c", 7, "new"))
    merged = rule.merge(older, newer)
    assert merged.rows.select(["ts", "v"]).to_pydict() == {"ts": [5, 7, 7], "v": ["late", "old", "new"]}
    flagged = newer.append_column("_hoodie_is_deleted", pa.array([False, True, False]))
    stored = older.append_column("_hoodie_is_deleted", pa.array([None] * 3, pa.bool_()))
    assert rule.merge(stored, flagged).rows["v"].to_pylist() == ["late", None, "new"]


def test_records_revive_after_a_delete_without_an_ordering_value() -> None:
    merger = LogMerger(SCHEMA, UpdateModeRule(BY_TS))
    merger.add_deletes(pa.array(["a", "b"]), pa.array([None, 9], pa.int64()), np.array([True, False]))
    merger.add_rows(rows(("a", 1, "back"), ("b", 3, "late")))
    found = merger.finish()
    assert dict(zip(found.keys.to_pylist(), found.deleted.tolist(), strict=True)) == {"a": False, "b": True}
    base = rows(("a", 5, "base"), ("b", 5, "base"))
    (merged,) = found.merge_base(base, base["_hoodie_record_key"], np.zeros(2, np.bool_))
    # The record that follows the delete is older than the base row, which comes back.
    assert merged.rows.to_pylist() == [{"_hoodie_record_key": "a", "ts": 5, "v": "base"}]


def test_tuples_compare_place_by_place() -> None:
    table = pa.table({"x": pa.array([1, 1, 2, None], pa.int32()), "y": ["b", None, "a", "z"]})
    by = Ordering(("x", "y"), null_is_zero=True)
    values = by.values(table)
    assert ordering_ranks(values).argsort().tolist() == [3, 1, 0, 2]
    first, second = values.take(pa.array([0, 0, 2])), values.take(pa.array([1, 2, 2]))
    assert newer_or_equal(first, second).tolist() == [False, True, True]
    assert not by.are_zero(table).any()
    zeros = Ordering(("x",), null_is_zero=True).are_zero(pa.table({"x": pa.array([0, None, 1], pa.int32())}))
    assert zeros.tolist() == [True, True, False]
    assert Ordering().are_zero(table).all()
