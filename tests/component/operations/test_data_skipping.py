"""Data skipping loses no row: filtered reads of Apache Hudi's tables with and without it, against all rows."""

from __future__ import annotations

import shutil
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyhudi.api.table import Table
from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.metadata_table.codecs.value_wrappers import unwrap
from pyhudi.metadata_table.reader.index_lookups import find_column_stats, find_partition_stats
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.records.filters.arrow_expressions import to_arrow
from pyhudi.records.filters.filter_ast import And, Compare, Expr, In, IsNull, Like, Not, Or
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.table.table_config import store_table_config
from tests.support.golden_tables import golden_cases, open_golden
from tests.support.needs import WIDE
from tests.support.rows import assert_same_rows

OFF = {"hoodie.enable.data.skipping": False}
WITH_METADATA = golden_cases(with_traits={"mdt"}, without_traits={"types", "no_partitions"})
PAST = ("fare > 20", "ts = 1", "id = 't004'", "rider is null", "ts = 4 or fare < 15", "_hoodie_record_key = 't001'")
COLUMNS = ("_hoodie_commit_time", "_hoodie_record_key", "id", "ts", "rider", "fare", "city")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    folder = tmp_path_factory.mktemp("golden")
    return {name: Table(open_golden(name, folder).path) for name in WITH_METADATA}


@cache
def everything(uri: str) -> tuple[pa.Table, pa.Table]:
    """All rows of a table, and those of its base files."""
    return Table(uri).scan(["*"]).to_arrow(), Table(uri).read_optimized(["*"]).to_arrow()


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


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", WITH_METADATA)
@settings(
    max_examples=20 if WIDE else 6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_no_filter_loses_a_row(name: str, tables: dict[str, Table], data: st.DataObject) -> None:
    table = tables[name]
    rows, optimized = everything(table.uri)
    condition = data.draw(filters(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_rows(table.scan(["*"], condition).to_arrow(), rows.filter(to_arrow(condition, rows.schema)))
        found = table.read_optimized(["*"], condition).to_arrow()
    assert_same_rows(found, optimized.filter(to_arrow(condition, rows.schema)))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", WITH_METADATA)
def test_the_past_is_not_pruned_by_the_present(name: str, tables: dict[str, Table]) -> None:
    table = tables[name]
    for number, instant in enumerate(table.timeline().completed_writes()):
        try:
            rows = table.scan(["*"], as_of=instant.request_time).to_arrow()
        except Exception as error:
            assert "clean" in str(error)
            continue
        # Every filter meets each table, at one of its times or the other.
        for text in PAST if WIDE else PAST[number % 2 :: 2]:
            found = table.scan(["*"], text, as_of=instant.request_time)
            assert_same_rows(found.to_arrow(), rows.filter(to_arrow(_parsed(text), rows.schema)))
            assert not {"record index", "partition statistics"} & {step.step for step in found.explain().prunings}


def _parsed(text: str) -> Expr:

    return parse_filter(text)


def steps(table: Table, text: str, **options: Any) -> dict[str, tuple[int, int]]:
    plan = table.scan(filter=text, options=options or None).explain()
    assert "file slices" in str(plan)
    return {step.step: (step.remaining, step.total) for step in plan.prunings}


def test_explain_reports_which_index_pruned(tables: dict[str, Table]) -> None:
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
        assert_same_rows(found.to_arrow(), rows.filter(pc.equal(rows["id"], key)))
        assert len({s.file_id[:8] for s in found.explain().slices}) <= 1
    assert "buckets" not in steps(table, "id > 't'", **options)
    for wrong in ({"hoodie.bucket.index.num.buckets": "0"}, {"hoodie.bucket.index.hash.field": "ts"}):
        with pytest.raises(InvalidRequest):
            table.scan(filter="id = 'a'", options={**options, **wrong})


def _bucket_count(rows: pa.Table) -> int:
    """The number of buckets for which each key is in the file group of its bucket."""
    from pyhudi.records.hashing import bucket_ids

    keys = rows["_hoodie_record_key"].combine_chunks()
    numbers = [int(name.split("_")[0].lstrip(".")[:8]) for name in rows["_hoodie_file_name"].to_pylist()]
    return next(n for n in range(1, 100) if bucket_ids(keys, n, ("id",)).tolist() == numbers)


def test_infinite_upper_bound_may_include_nan(tmp_path: Path) -> None:
    """Apache Hudi finds nothing in files whose upper bound is NaN, so that is not written; and NaN is above +Infinity."""
    data = pa.table(
        {
            "id": ["a", "b", "c", "d", "e"],
            "part": ["numbers", "numbers", "mixed", "mixed", "none"],
            "x": [1.0, 2.0, 1.0, float("nan"), float("nan")],
        }
    )
    table = Table.create(tmp_path, record_key="id", partition_by="part", options=INDEXES)
    table.upsert(data)
    metadata = MetadataTable(table.context.reloaded(), table.timeline())
    for rows in (find_column_stats(metadata, ["x"]), find_partition_stats(metadata, ["x"])):
        for bound in ("min", "max"):
            values, known = unwrap(rows[bound].combine_chunks(), pa.float64())
            assert known.all() and not pc.any(pc.is_nan(values)).as_py()
    expected = {
        "x = 'NaN'": "de",
        "x > 'Infinity'": "de",
        "x >= 'Infinity'": "de",
        "x > 13.5": "de",
        "x < 1.5": "ac",
        "x = 2": "b",
    }
    for condition, ids in expected.items():
        assert sorted(table.scan(["id"], condition).to_arrow()["id"].to_pylist()) == list(ids), condition
    assert {slice_.partition for slice_ in table.scan(filter="x > 13.5").explain().slices} == {"mixed", "none"}
    assert table.validate().ok


NUMBERS = st.integers(-20, 20) | st.none()
FLOATS = st.sampled_from([-1.5, -0.0, 0.0, 0.25, 7.5, 1e30, float("nan"), float("inf")]) | st.none()
TEXTS = st.sampled_from(["", "a", "ab", "b$", "c\\", "zz", "ü", "😀"]) | st.none()
ROW = st.fixed_dictionaries({"id": st.sampled_from([f"k{n}" for n in range(24)]), "n": NUMBERS, "x": FLOATS, "t": TEXTS})
OURS = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("n", pa.int32()), ("x", pa.float64()), ("t", pa.string()), ("city", pa.string())]
)
INDEXES: dict[str, Any] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.metadata.index.partition.stats.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.clean.automatic": False,
}


def ours(rows: list[dict[str, Any]], ts: int) -> pa.Table:
    # The city belongs to the key: keys are unique in the whole table, as a record index wants them.
    full = [{**row, "ts": ts, "city": ("oslo", "rome")[int(row["id"][1:]) % 2]} for row in rows]
    return pa.Table.from_pylist(full, OURS)


@pytest.mark.full
@settings(
    max_examples=12 if WIDE else 5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), kind=st.sampled_from(["cow", "mor"]))
def test_filters_on_random_tables_lose_no_row(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: str) -> None:
    options = {
        **INDEXES,
        "hoodie.metadata.record.index.enable": data.draw(st.booleans()),
        "hoodie.metadata.index.bloom.filter.enable": data.draw(st.booleans()),
        "hoodie.parquet.small.file.limit": data.draw(st.sampled_from([0, 104857600])),
        "hoodie.compact.inline": False,
    }
    path = tmp_path_factory.mktemp("ours") / "t"
    table = Table.create(
        path, name="t", record_key="id", partition_by="city", ordering="ts", table_type=kind, schema=OURS, options=options
    )
    for ts in range(data.draw(st.integers(1, 3))):
        written = data.draw(st.lists(ROW, min_size=1, max_size=12, unique_by=lambda row: row["id"]))
        table.upsert(ours(written, ts))
        if data.draw(st.integers(0, 3)) == 0:
            table.delete(ours(written[:2], ts).select(["id", "city"]))
    rows = table.scan(["*"]).to_arrow()
    bases = table.read_optimized(["*"]).to_arrow()
    names = ("id", "ts", "n", "x", "t", "city", "_hoodie_record_key")
    for _ in range(6):
        condition = data.draw(filters_of(names))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = table.scan(["*"], condition).to_arrow()
            optimized = table.read_optimized(["*"], condition).to_arrow()
        assert_same_rows(found, rows.filter(to_arrow(condition, rows.schema)))
        assert_same_rows(optimized, bases.filter(to_arrow(condition, bases.schema)))
    assert table.validate().ok, str(table.validate())


def filters_of(names: tuple[str, ...]) -> st.SearchStrategy[Expr]:
    literals: dict[str, st.SearchStrategy[Any]] = {
        "id": st.sampled_from([f"k{n}" for n in range(26)]),
        "ts": st.integers(0, 4),
        "n": st.integers(-22, 22),
        "x": st.sampled_from([-2.0, 0.0, 0.25, 7.5, 8, 1e31]),
        "t": st.sampled_from(["", "a", "ab", "b$", "c\\", "zz", "ü", "😀", "q"]),
        "city": st.sampled_from(["oslo", "rome", "bern"]),
        "_hoodie_record_key": st.sampled_from([f"k{n}" for n in range(26)]),
    }
    ops = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])

    def leaf(name: str) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(Compare, st.just(name), ops, literals[name]),
            st.builds(In, st.just(name), st.lists(literals[name], max_size=3).map(tuple), st.booleans()),
            st.just(IsNull(name)),
        )

    def grow(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        parts = st.lists(children, min_size=1, max_size=3).map(tuple)
        return st.one_of(st.builds(And, parts), st.builds(Or, parts), st.builds(Not, children))

    return st.recursive(st.sampled_from(names).flatmap(leaf), grow, max_leaves=4)


def test_partition_values_not_recoverable_from_the_path() -> None:
    texts = ["__HIVE_DEFAULT_PARTITION__", "", None, "x", "p=x", "p="]
    for hive_style in (False, True):
        table = Table.create(
            f"memory://texts-{hive_style}",
            name="t",
            record_key="id",
            partition_by="p",
            options={"hoodie.datasource.write.hive_style_partitioning": hive_style, "hoodie.index.bloom.num_entries": 100},
        )
        table.upsert(pa.table({"id": [f"k{n}" for n in range(len(texts))], "p": pa.array(texts, pa.string())}))
        for n, text in enumerate(texts):
            condition = "p is null" if text is None else [("p", "=", text)]
            assert table.scan(["id"], filter=condition).to_arrow()["id"].to_pylist() == [f"k{n}"]


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "index", ["hoodie.metadata.record.index.enable", "hoodie.metadata.index.bloom.filter.enable", "hoodie.metadata.enable"]
)
@pytest.mark.parametrize(("written", "read"), [("SIMPLE", "COMPLEX"), ("COMPLEX", "SIMPLE"), ("COMPLEX", "COMPLEX")])
def test_keys_that_another_writer_spelled_otherwise_are_found(tmp_path: Path, index: str, written: str, read: str) -> None:
    """Version 9 stores with COMPLEX that keys of one field name it; an option of writers omits that."""
    options = {
        index: True,
        "hoodie.datasource.write.keygenerator.type": written,
        "hoodie.metadata.record.index.min.filegroup.count": 1,
    }
    options |= {"hoodie.write.table.version": 9}
    made = Table.create(tmp_path, record_key="id", partition_by="city", options=options)
    made.upsert(pa.table({"id": ["a", "b", "id:c"], "city": ["oslo", "rome", "oslo"]}))
    store_table_config(made.context.storage, {"hoodie.table.keygenerator.type": read}, made.context.env)
    table = Table(tmp_path)
    for key in ("a", "b", "id:c"):
        found = table.scan(filter=f"id = '{key}'")
        assert found.to_arrow()["id"].to_pylist() == [key]
    assert not table.scan(filter="id = 'c'").to_arrow().num_rows
    if read == "COMPLEX":
        for given, key in (("a", "a"), ("id:a", "a"), ("b", "b"), ("id:id:c", "id:c")):
            assert table.lookup([given], ["id"]).to_arrow()["id"].to_pylist() == [key]
            assert table.lookup(pa.table({"id": [key]}), ["id"]).count() == 1


@pytest.mark.parametrize("layout", [{}, {"hoodie.bucket.index.partition.expressions": "mon,4"}])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_filter_on_one_of_two_key_fields_that_alone_is_hashed(tmp_path: Path, table_type: str, layout: dict[str, str]) -> None:
    options = {
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.hash.field": "id",
        "hoodie.bucket.index.num.buckets": 20,
        **layout,
    }
    table = Table.create(tmp_path, record_key=["id", "item"], partition_by="day", table_type=table_type, options=options)
    keys = [(1, "pen"), (2, None), (3, ""), (4, "__null__")]
    table.insert(pa.table({"id": [n for n, _ in keys], "item": [text for _, text in keys], "day": ["mon", "tue", "mon", "tue"]}))
    for number, item in keys:
        found = table.scan(["id", "item"], filter=f"id = {number}")
        assert found.to_arrow().to_pylist() == [{"id": number, "item": item}]
        assert "buckets" in {step.step for step in found.explain().prunings}
    assert table.delete(where="id = 2").rows_deleted == 1
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == [1, 3, 4]
