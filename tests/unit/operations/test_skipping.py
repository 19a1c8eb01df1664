"""Data skipping never loses a row: filtered reads of the real Hudi's tables, with and without it, against every row."""

from __future__ import annotations

import shutil
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyhudi.api import Table
from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.records.predicates import And, Compare, Expr, In, IsNull, Like, Not, Or, to_arrow
from tests.golden_tables import golden_cases, open_golden
from tests.rows import assert_same_rows

OFF = {"hoodie.enable.data.skipping": False}
WITH_METADATA = golden_cases(with_traits={"mdt"})
COLUMNS = ("_hoodie_commit_time", "_hoodie_record_key", "id", "ts", "rider", "fare", "city")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    folder = tmp_path_factory.mktemp("golden")
    return {name: Table(open_golden(name, folder).path) for name in WITH_METADATA}


@cache
def everything(uri: str) -> pa.Table:
    return Table(uri).scan(["*"]).to_arrow()


def leaves(rows: pa.Table) -> st.SearchStrategy[Expr]:
    """Comparisons with values that are there, and some that are not."""
    ops = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])

    def of_column(name: str) -> st.SearchStrategy[Expr]:
        values = [value for value in rows[name].unique().to_pylist() if value is not None]
        strange: list[Any] = [-1, 10**6] if pa.types.is_integer(rows.schema.field(name).type) else [-0.5, 1e9]
        if pa.types.is_string(rows.schema.field(name).type):
            strange = ["", "zz", "2"]
        literals = st.sampled_from([*values, *strange])
        choices: list[st.SearchStrategy[Expr]] = [
            st.builds(Compare, st.just(name), ops, literals),
            st.builds(In, st.just(name), st.lists(literals, max_size=3).map(tuple), st.booleans()),
            st.just(IsNull(name)),
        ]
        if pa.types.is_string(rows.schema.field(name).type):
            choices.append(st.builds(Like, st.just(name), literals.map(lambda text: text[:3] + "%")))
        return st.one_of(choices)

    return st.sampled_from(COLUMNS).flatmap(of_column)


def filters(rows: pa.Table) -> st.SearchStrategy[Expr]:
    def grow(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        parts = st.lists(children, min_size=1, max_size=3).map(tuple)
        return st.one_of(st.builds(And, parts), st.builds(Or, parts), st.builds(Not, children))

    return st.recursive(leaves(rows), grow, max_leaves=5)


@pytest.mark.parametrize("name", WITH_METADATA)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_filter_loses_a_row(name: str, tables: dict[str, Table], data: st.DataObject) -> None:
    table = tables[name]
    rows = everything(table.uri)
    condition = data.draw(filters(rows))
    expected = rows.filter(to_arrow(condition, rows.schema))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_rows(table.scan(["*"], condition).to_arrow(), expected)
        optimized = table.read_optimized(["*"])
        found = table.read_optimized(["*"], condition).to_arrow()
    assert_same_rows(found, optimized.to_arrow().filter(to_arrow(condition, rows.schema)))


@pytest.mark.parametrize("name", WITH_METADATA)
def test_the_past_is_not_pruned_by_the_present(name: str, tables: dict[str, Table]) -> None:
    table = tables[name]
    for instant in table.timeline().completed_writes():
        try:
            rows = table.scan(["*"], as_of=instant.request_time).to_arrow()
        except Exception as error:
            assert "clean" in str(error)
            continue
        for text in ("fare > 20", "ts = 1", "id = 't004'", "rider is null", "ts = 4 or fare < 15", "_hoodie_record_key = 't001'"):
            found = table.scan(["*"], text, as_of=instant.request_time)
            assert_same_rows(found.to_arrow(), rows.filter(to_arrow(_parsed(text), rows.schema)))
            assert not {"record index", "partition statistics"} & {step.step for step in found.explain().prunings}


def _parsed(text: str) -> Expr:
    from pyhudi.records.predicates import parse_filter

    return parse_filter(text)


def steps(table: Table, text: str, **options: Any) -> dict[str, tuple[int, int]]:
    plan = table.scan(filter=text, options=options or None).explain()
    assert "file slices" in str(plan)
    return {step.step: (step.kept, step.total) for step in plan.prunings}


def test_what_pruned_what_is_told(tables: dict[str, Table]) -> None:
    mor, cow = tables["mor_record_index"], tables["cow_mdt"]
    assert steps(mor, "id = 't004'")["record index"] == (1, 1)
    assert [s.partition for s in mor.scan(filter="id in ('t004', 't009', 'x')").explain().slices] == ["berlin"]
    assert steps(mor, "_hoodie_record_key in ('t004', 'x')")["record index"] == (1, 2)
    assert mor.scan(filter="id = 'nobody'").explain().slices == ()
    assert "record index" not in steps(mor, "id = 't004' or fare > 3")
    assert steps(mor, "fare > 10000")["statistics of files"][0] < 3
    assert mor.scan(filter="fare > 10000").explain().slices == ()
    assert steps(cow, "ts > 100")["partition statistics"] == (0, 3)
    assert "partition statistics" not in steps(cow, "fare > 1000")
    for name in ("statistics of files", "record index", "partition statistics"):
        assert name not in steps(mor, "id = 't004'", **OFF)
    assert steps(mor, "ts = 3", **{"hoodie.metadata.enable": False}).keys() <= {"partition paths"}


def copied(table: Table, folder: Path) -> Path:
    target = folder / "table"
    shutil.copytree(table.uri.removeprefix("file:"), target)
    return target


@pytest.mark.parametrize("index", ["column_stats", "partition_stats", "record_index"])
def test_a_damaged_index_is_named_and_nothing_is_skipped(index: str, tables: dict[str, Table], tmp_path: Path) -> None:
    path = copied(tables["mor_record_index"], tmp_path)
    for file in (path / ".hoodie" / "metadata" / index).glob("*-000*"):
        file.write_bytes(b"#HUDI#" + file.read_bytes()[20:])
    text = {"column_stats": "fare > 100", "partition_stats": "ts = 2", "record_index": "id = 't004'"}[index]
    expected = tables["mor_record_index"].scan(["*"], text).to_arrow()
    with pytest.warns(RuntimeWarning, match=index):
        found = Table(path).scan(["*"], text)
    assert_same_rows(found.to_arrow(), expected)
    assert len(found.explain().slices) == 3
    with pytest.raises(CorruptData, match=index):
        Table(path).scan(["*"], text, options={"hoodie.fileIndex.dataSkippingFailureMode": "strict"})


def test_without_definition_statistics_are_not_used(tables: dict[str, Table], tmp_path: Path) -> None:
    path = copied(tables["mor_record_index"], tmp_path)
    (path / ".hoodie" / ".index_defs" / "index.json").unlink()
    assert steps(Table(path), "fare > 10000").keys() == {"partition paths"}


def test_buckets(tmp_path: Path) -> None:
    table = Table(open_golden("mor_bucket", tmp_path).path)
    rows = table.scan(["*"]).to_arrow()
    count = len({s.file_id[:8] for s in table.scan().explain().slices})
    options = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": str(_bucket_count(rows))}
    assert count > 1
    for key in rows["id"].to_pylist():
        found = table.scan(["*"], f"id = '{key}'", options=options)
        assert_same_rows(found.to_arrow(), rows.filter(pa.compute.equal(rows["id"], key)))
        assert len({s.file_id[:8] for s in found.explain().slices}) <= 1
    assert "buckets" not in steps(table, "id > 't'", **options)
    with pytest.raises(InvalidRequest):
        table.scan(filter="id = 'a'", options={**options, "hoodie.bucket.index.num.buckets": "0"})


def _bucket_count(rows: pa.Table) -> int:
    """The number of buckets for which each key is in the file group of its bucket."""
    from pyhudi.records.hashing import bucket_ids

    keys = rows["_hoodie_record_key"].combine_chunks()
    numbers = [int(name.split("_")[0].lstrip(".")[:8]) for name in rows["_hoodie_file_name"].to_pylist()]
    return next(n for n in range(1, 100) if bucket_ids(keys, n, ("id",)).tolist() == numbers)
