"""NOT NULL columns with a default: older files are read with the default, and services keep it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.table.snapshot import load_snapshot
from tests.support.old_columns import EXPECTED, NEW, old, rows_of, table_with_commits, table_with_nested_defaults


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    # The metadata table has statistics of the columns, by which filters prune files.
    return table_with_commits(tmp_path, request.param)


@pytest.mark.sample(1)
def test_every_read_returns_the_default(table: Table) -> None:
    assert rows_of(table.scan().to_arrow()) == EXPECTED
    assert sorted(table.scan(["d"]).to_arrow()["d"].to_pylist()) == [7, 7, 7, 8]
    assert sorted(table.scan(["s"], filter="d = 7").to_arrow()["s"].to_pylist()) == ["none"] * 3
    for condition, found in (("d = 7", 3), ("d > 7", 1), ("d is null", 0), ("s = 'none' and part = 'y'", 2), ("d < 7", 0)):
        assert table.scan(filter=condition).to_arrow().num_rows == found, condition
    assert rows_of(table.incremental("earliest").to_arrow()) == EXPECTED
    assert rows_of(table.scan().to_dataset().to_table()) == EXPECTED
    assert rows_of(hp.scan_polars(table).collect().to_arrow()) == EXPECTED
    assert table.scan().to_arrow().schema.field("d").type == pa.int32()


@pytest.mark.sample(1)
def test_writes_and_services_keep_the_default_of_a_required_column(table: Table) -> None:
    table.upsert(pa.Table.from_pylist([{**old("x2", a="new"), "d": 9, "s": "new"}], NEW))
    expected = [("x1", "first", 8, "given"), ("x2", "new", 9, "new"), *EXPECTED[2:]]
    assert rows_of(table.scan().to_arrow()) == expected
    if table.config.is_cow:
        table.cluster()
    else:
        table.log_compact(options={"hoodie.log.compaction.blocks.threshold": 1})
        assert rows_of(table.scan().to_arrow()) == expected
        table.compact()
    assert rows_of(table.scan().to_arrow()) == expected
    table.upsert(pa.Table.from_pylist([{**old("y1", a="new"), "d": 1, "s": "new"}], NEW))
    expected[2] = ("y1", "new", 1, "new")
    assert rows_of(table.scan().to_arrow()) == expected
    if table.config.is_cow:
        # What was rewritten holds the values, for readers that know of no defaults.
        stored = [pq.ParquetFile(path).read() for path in table_files(table)]
        assert all("d" in part.column_names and part["d"].null_count == 0 for part in stored)


def table_files(table: Table) -> list[Path]:
    root = Path(table.context.storage.uri.removeprefix("file:"))
    slices = load_snapshot(table.context.reloaded()).slices(None)
    return [root / slice_.base.path for found in slices.values() for slice_ in found if slice_.base is not None]


def test_rows_without_a_value_are_refused_and_those_without_the_column_may_take_the_default(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="column 'd' may not be null"):
        table.upsert(pa.Table.from_pylist([{**old("x9"), "d": None, "s": "none"}], NEW))
    lacking = pa.Table.from_pylist([old("x9")], NEW.remove(5).remove(4))
    with pytest.raises(InvalidRequest, match=r"missing\.columns"):
        table.upsert(lacking)
    assert rows_of(table.scan().to_arrow()) == EXPECTED
    table.upsert(lacking, options={"hoodie.write.set.null.for.missing.columns": True})
    assert ("x9", "first", 7, "none") in rows_of(table.scan().to_arrow())


def test_a_wider_column_keeps_its_default(table: Table) -> None:
    wide = NEW.set(4, pa.field("d", pa.int64()))
    table.upsert(pa.Table.from_pylist([{**old("x1"), "d": 1 << 40, "s": "wide"}], wide))
    expected = [("x1", "first", 1 << 40, "wide"), *EXPECTED[1:]]
    assert rows_of(table.scan().to_arrow()) == expected
    assert table.scan(filter="d = 7").to_arrow().num_rows == 3


Change = Callable[[Table], Any]
LOSING: dict[str, Change] = {
    "allow nulls": lambda t: t.alter.allow_nulls("d"),
    "comment": lambda t: t.alter.comment("d", "text"),
    "rename": lambda t: t.alter.rename("d", "e"),
    "retype": lambda t: t.alter.retype("d", pa.int64()),
}
LOSING_NESTED: dict[str, Change] = {
    "allow nulls": lambda t: t.alter.allow_nulls("st.d"),
    "rename": lambda t: t.alter.rename("st.d", "e"),
    "retype": lambda t: t.alter.retype("st.d", pa.int64()),
    "rename the struct": lambda t: t.alter.rename("st", "su"),
    "allow nulls in a list": lambda t: t.alter.allow_nulls("li.element.d"),
    "rename the list": lambda t: t.alter.rename("li", "lj"),
}


def test_changes_that_lose_a_default_are_refused(tmp_path: Path) -> None:
    table = table_with_commits(tmp_path, "mor")
    _check_refused(table, LOSING, "d has a default in the table's schema")
    table.compact()
    assert rows_of(table.scan().to_arrow()) == EXPECTED


def test_changes_that_lose_a_nested_default_are_refused(tmp_path: Path) -> None:
    table = table_with_nested_defaults(tmp_path)
    _check_refused(table, LOSING_NESTED, r"(st|li\.element)\.d has a default in the table's schema")
    table.compact()
    assert table.scan().to_arrow().sort_by("id").to_pylist() == NESTED


def _check_refused(table: Table, changes: dict[str, Change], text: str) -> None:
    before = {info.path for info in table.context.storage.walk("")}
    for name, change in changes.items():
        with pytest.raises(Unsupported, match=text):
            change(table)
        assert {info.path for info in table.context.storage.walk("")} == before, name


NESTED: list[dict[str, Any]] = [{"id": key, "st": {"q": q, "d": 7}, "li": [{"q": q, "d": 7}]} for key, q in (("a", 1), ("b", 2))]


@pytest.mark.parametrize("parent", ["st", "li.element"])
def test_a_nested_default_outlives_changes_of_its_siblings(tmp_path: Path, parent: str) -> None:
    table = table_with_nested_defaults(tmp_path)
    table.alter.retype(f"{parent}.q", pa.int64())
    assert table.scan().to_arrow().sort_by("id").to_pylist() == NESTED
    table.alter.rename(f"{parent}.q", "p")
    expected = [
        row | ({"st": {"p": row["st"]["q"], "d": 7}} if parent == "st" else {"li": [{"p": row["st"]["q"], "d": 7}]})
        for row in NESTED
    ]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    table.compact()
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
