"""PyHudi reads the golden tables as Apache Hudi did: every query of every case, meta columns included."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi.api.table import Scan
from pyhudi.errors import TableState, Unsupported
from tests.support.golden_known import BETTER, NOT_READ
from tests.support.golden_tables import CLOSED_TRAITS, GoldenQuery, GoldenTable, golden_cases, load_case, open_golden
from tests.support.rows import META_COLUMNS, assert_same_rows
from tests.support.vectors import vector

# A reader that cannot use the metadata table lists directories and warns: right rows alone would not show it.
pytestmark = pytest.mark.filterwarnings("error:the metadata table at:RuntimeWarning")

KIND = "hoodie.datasource.query.type"
BEGIN, END = "hoodie.datasource.read.begin.instanttime", "hoodie.datasource.read.end.instanttime"
FORMAT = "hoodie.datasource.query.incremental.format"
QUERIES = [(name, query.name) for name in golden_cases() for query in load_case(name).queries]
PARTITIONED = {
    name: {"cow_hive_style": "region", "cow_timestamp_keys": "ts"}.get(name, "city")
    for name in golden_cases(without_traits={"types", "custom", "archived", "default_bloom", "no_partitions", *CLOSED_TRAITS})
}


# A metadata table that cannot be read is ignored with a warning, and the rows are right all the same.
pytestmark = pytest.mark.filterwarnings("error:the metadata table at:RuntimeWarning")


def scan_of(table: Table, query: GoldenQuery) -> Scan:
    """The same query, executed by PyHudi."""
    # Tables without meta columns show none to the readers of Apache Hudi.
    columns = ["*"] if table.config.populate_meta_fields else None
    kind = query.options.get(KIND, "snapshot")
    if kind == "incremental":
        options = {FORMAT: query.options[FORMAT]} if FORMAT in query.options else None
        return table.incremental(query.options[BEGIN], query.options.get(END), columns, options=options)
    if kind == "read_optimized":
        return table.read_optimized(columns)
    return table.scan(columns, as_of=query.options.get("as.of.instant"))


def expected_rows(golden: GoldenTable, query: str) -> pa.Table:
    rows = golden.expected(query)
    change = BETTER.get((golden.case.name, query))
    return change(rows) if change else rows


def named(golden: GoldenTable, query: str) -> GoldenQuery:
    return next(one for one in golden.case.queries if one.name == query)


@pytest.mark.parametrize(("name", "query"), QUERIES, ids=[f"{name}-{query}" for name, query in QUERIES])
def test_a_query(request: pytest.FixtureRequest, name: str, query: str, tmp_path: Path) -> None:
    reason = NOT_READ.get((name, query))
    if reason is not None:
        request.applymarker(pytest.mark.xfail(reason=reason, raises=Unsupported, strict=True))
    golden = open_golden(name, tmp_path)
    scan = scan_of(Table(golden.path), named(golden, query))
    expected = expected_rows(golden, query)
    assert_same_rows(scan.to_arrow(), expected)
    assert scan.count() == expected.num_rows
    batches = list(scan.to_batches())
    assert all(batch.schema == scan.schema for batch in batches)
    assert_same_rows(pa.Table.from_batches(batches, scan.schema), expected)


def test_the_lists_name_queries_that_exist() -> None:
    assert set(NOT_READ) | set(BETTER) <= set(QUERIES)


@pytest.mark.sample(26)
@pytest.mark.parametrize("name", golden_cases(without_traits=CLOSED_TRAITS))
def test_columns_and_filters(name: str, tmp_path: Path) -> None:
    """Of each snapshot: each column alone, one key and two, no row at all, and the rows of the last commit."""
    golden = open_golden(name, tmp_path)
    table = Table(golden.path)
    expected = expected_rows(golden, "snapshot")
    meta = [column for column in META_COLUMNS if column in expected.column_names]
    for column in expected.column_names[len(meta) :]:
        assert_same_rows(table.scan([column]).to_arrow(), expected.select([column]))

    key = load_key_field(table) or "_hoodie_record_key"
    values = sorted(expected.column(key).to_pylist())
    wanted = values[len(values) // 2]
    equal = table.scan(expected.column_names, filter=[(key, "=", wanted)])
    assert_same_rows(equal.to_arrow(), expected.filter(pc.equal(expected.column(key), wanted)))
    among = table.scan(expected.column_names, filter=[(key, "in", values[:2])]).to_arrow()
    assert_same_rows(
        among, expected.filter(pc.is_in(expected.column(key), pa.array(values[:2], expected.schema.field(key).type)))
    )
    assert table.scan(filter=[(key, "=", wanted), (key, "!=", wanted)]).to_arrow().num_rows == 0

    if meta:
        times = expected.column("_hoodie_commit_time")
        newest = pc.max(times).as_py()
        later = table.scan(["*"], filter=f"_hoodie_commit_time >= '{newest}'").to_arrow()
        assert_same_rows(later, expected.filter(pc.greater_equal(times, newest)))


def load_key_field(table: Table) -> str | None:
    """The column of the record key, where it is one column."""
    fields = table.config.keys.record_fields
    return fields[0] if len(fields) == 1 else None


@pytest.mark.sample(25)
@pytest.mark.parametrize("name", sorted(PARTITIONED))
def test_partitions(name: str, tmp_path: Path) -> None:
    """A filter on a partition column gives its rows and reads no file of other partitions."""
    golden = open_golden(name, tmp_path)
    table = Table(golden.path)
    column = PARTITIONED[name]
    assert table.config.keys.partition_fields
    expected = expected_rows(golden, "snapshot")
    values = [value for value in pc.unique(expected.column(column)).to_pylist() if value is not None]
    for value in values:
        scan = table.scan(expected.column_names, filter=[(column, "=", value)])
        chosen = expected.filter(pc.fill_null(pc.equal(expected.column(column), value), False))
        assert_same_rows(scan.to_arrow(), chosen)
        if column != "ts":
            paths = chosen.column("_hoodie_partition_path").to_pylist() if table.config.populate_meta_fields else [value]
            assert {slice_.partition for slice_ in scan.explain().slices} == set(paths)


def test_ranges_before_and_after_the_archival(tmp_path: Path) -> None:
    """Of archived instants the rows that they left in the latest state; files of active ones are read themselves."""
    golden = open_golden("cow_archived", tmp_path)
    table = Table(golden.path)
    times = {instant.request_time: instant.completion_time for instant in table.timeline().completed_writes()}
    archived = table.context.timeline.history.instants()
    rows = {row["_hoodie_commit_time"]: row["id"] for row in golden.expected().to_pylist()}
    newest = max(times)
    assert table.incremental(times[newest] or "", columns=["id"]).to_arrow()["id"].to_pylist() == [rows[newest]]

    last = max((instant for instant in archived if instant.request_time in rows), key=lambda instant: instant.request_time)
    only = table.incremental(last.completion_time or "", last.completion_time, columns=["id"])
    assert only.to_arrow()["id"].to_pylist() == [rows[last.request_time]]
    assert "fallback to the latest state" in str(only.explain())
    assert table.incremental("000", archived[0].completion_time, columns=["id"]).count() == 0
    strictly = {"hoodie.datasource.read.incr.fallback.fulltablescan.enable": False}
    with pytest.raises(TableState, match="archived"):
        table.incremental(last.completion_time or "", columns=["id"], options=strictly)
    assert table.incremental(times[newest] or "", columns=["id"], options=strictly).count() == 1


@pytest.mark.parametrize("name", golden_cases(with_traits={"v6"}))
def test_tables_of_version_6_are_not_written(name: str, tmp_path: Path) -> None:
    golden = open_golden(name, tmp_path)
    before = {path.relative_to(golden.path): path.stat().st_mtime_ns for path in golden.path.rglob("*")}
    with pytest.raises(Unsupported):
        Table(golden.path).upsert(golden.expected().drop_columns(META_COLUMNS))
    assert before == {path.relative_to(golden.path): path.stat().st_mtime_ns for path in golden.path.rglob("*")}


VECTORS = {
    "cow_v8_nonpartitioned.zip": ("v8_nonpartitioned", {1: "", 2: "", 3: "", 4: ""}),
    "cow_v8_simplekeygen_nonhivestyle.zip": ("v8_simplekeygen_nonhivestyle", {1: "10", 2: "20", 3: "10", 4: "30"}),
    "mor_parquet_v6_nonpartitioned.zip": ("v6_nonpartitioned", {1: "", 2: "", 3: "", 4: ""}),
}


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_tables_of_other_versions_of_hudi(name: str, tmp_path: Path) -> None:
    """Three rows, then an upsert of the first and an insert of a fourth."""
    folder, partitions = VECTORS[name]
    with zipfile.ZipFile(io.BytesIO(vector(f"tables/{name}"))) as archive:
        archive.extractall(tmp_path)
    table = Table(tmp_path / folder)
    rows = {row["id"]: row for row in table.scan(["*"]).to_arrow().to_pylist()}
    assert {number: row["_hoodie_partition_path"] for number, row in rows.items()} == partitions
    assert {number: row["name"] for number, row in rows.items()} == {1: "Alice", 2: "Bob", 3: "Carol", 4: "Diana"}
    assert {number: row["isActive"] for number, row in rows.items()} == {1: False, 2: False, 3: True, 4: True}
    assert rows[1]["structField"] == {
        "field1": "Alice",
        "field2": 30,
        "child_struct": {"child_field1": 123.456, "child_field2": True},
    }
    assert [entry["arr_struct_f1"] for entry in rows[1]["arrayField"]] == ["red", "blue", "green"]
    assert dict(rows[1]["mapField"])["key2"] == {"map_field_value_struct_f1": 789.012, "map_field_value_struct_f2": False}
    times = sorted({row["_hoodie_commit_time"] for row in rows.values()})
    assert {number for number, row in rows.items() if row["_hoodie_commit_time"] == times[1]} == {1, 4}

    before = {row["id"]: row for row in table.scan(["*"], as_of=times[0]).to_arrow().to_pylist()}
    assert set(before) == {1, 2, 3}
    assert before[1]["isActive"] is True
    assert set(table.incremental("earliest", columns=["id"]).to_arrow()["id"].to_pylist()) == {1, 2, 3, 4}
