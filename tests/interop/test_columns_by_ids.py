"""Schema on read (`hoodie.schema.on.read.enable`): Apache Hudi alters tables, and both write in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from tests.interop.oracle import RELEASE, ApacheHudi
from tests.support.hudi_shared_table import SharedTable, keyed_rows
from tests.support.rows import assert_same_rows, without_meta


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[ApacheHudi]:
    """Of Apache Hudi of the parameter, 1.0.2 without one, with the option under which ALTER TABLE changes columns by ids."""
    hudi: ApacheHudi = request.getfixturevalue(getattr(request, "param", "hudi"))
    # Its vectorized reader refuses nested columns that were changed; release 1.1 takes a renamed column for one that is missing.
    settings = {
        "hoodie.schema.on.read.enable": "true",
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
        "spark.sql.parquet.enableVectorizedReader": "false",
    }
    for key, value in settings.items():
        hudi.sql(f"SET {key} = {value}")
    yield hudi
    for key in settings:
        hudi.sql(f"RESET {key}")


def both_read(hudi: ApacheHudi, table: Table, name: str) -> pa.Table:
    """The rows that both find; of columns in the table's order."""
    found = table.scan().to_arrow()
    hudi.sql(f"REFRESH TABLE {name}")
    real = without_meta(hudi.sql(f"SELECT * FROM {name}"))
    assert_same_rows(found.select(real.column_names), real, key=["id"])
    return found


def ours(table: Table, *rows: dict[str, object]) -> None:
    schema = table.schema()
    table.upsert(pa.Table.from_pylist(list(rows), schema))


# One of merge on read has base files, too, that are read by themselves, rewritten and clustered.
@pytest.mark.parametrize(
    ("session", "kind"),
    [
        ("hudi", "mor"),
        pytest.param("hudi", "cow", marks=pytest.mark.wide),
        pytest.param("newer_hudi", "mor", marks=pytest.mark.wide),
    ],
    indirect=["session"],
)
def test_hudi_changes_columns_and_both_write(session: ApacheHudi, tmp_path: Path, kind: str) -> None:
    path, name = tmp_path / "t", f"by_ids_{kind}"
    session.sql(f"DROP TABLE IF EXISTS {name}")
    session.sql(
        f"CREATE TABLE {name} (id STRING, ts BIGINT, b STRING, n INT, f FLOAT, st STRUCT<x: INT, y: STRING>, "
        "ar ARRAY<STRUCT<k: INT, l: STRING>>, w STRING, city STRING) USING hudi PARTITIONED BY (city) "
        f"TBLPROPERTIES (type = '{kind}', primaryKey = 'id', preCombineField = 'ts') LOCATION '{path}'"
    )
    values = ", ".join(
        f"('k{n}', 1, 'b{n}', {n}, {n}.1, named_struct('x', {n}, 'y', 'y{n}'), "
        f"array(named_struct('k', {n}, 'l', 'l{n}')), 'w{n}', '{'oslo' if n % 2 else 'rome'}')"
        for n in range(4)
    )
    session.sql(f"INSERT INTO {name} VALUES {values}")
    table = Table(path)
    both_read(session, table, name)
    session.sql(f"ALTER TABLE {name} RENAME COLUMN b TO bb")
    session.sql(f"ALTER TABLE {name} RENAME COLUMN st.y TO z")
    session.sql(f"ALTER TABLE {name} RENAME COLUMN ar.element.l TO m")
    session.sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE BIGINT")
    session.sql(f"ALTER TABLE {name} DROP COLUMN f")
    session.sql(f"ALTER TABLE {name} ADD COLUMNS (f STRING)")
    rows = {row["id"]: row for row in both_read(session, table, name).to_pylist()}
    assert rows["k1"] == {
        **{"id": "k1", "ts": 1, "bb": "b1", "n": 1, "f": None, "w": "w1", "city": "oslo"},
        **{"st": {"x": 1, "z": "y1"}, "ar": [{"k": 1, "m": "l1"}]},
    }
    new = {**rows["k1"], "ts": 2, "bb": "ours", "f": "text", "n": 1 << 40, "st": {"x": 9, "z": "ours"}}
    ours(table, new, {**new, "id": "k9"})
    both_read(session, table, name)
    session.sql(f"INSERT INTO {name} SELECT id, 3 AS ts, 'theirs' AS bb, n, st, ar, w, f, city FROM {name} WHERE id = 'k9'")
    both_read(session, table, name)
    session.sql(f"ALTER TABLE {name} RENAME COLUMN bb TO bc")
    ours(table, *({**row, "ts": 4} for row in table.scan().to_arrow().to_pylist() if row["id"] == "k0"))
    both_read(session, table, name)
    if kind == "mor":
        table.compact()
        both_read(session, table, name)
    table.cluster()
    found = {row["id"]: row["bc"] for row in both_read(session, table, name).to_pylist()}
    assert found["k0"] == "b0" and found["k3"] == "b3"
    assert table.validate().ok


def test_schema_change_defects_of_hudi(session: ApacheHudi, tmp_path: Path) -> None:
    """An id that it assigns twice returns values of a removed column; filters on a renamed column find no rows."""
    path, name = tmp_path / "t", "twice"
    session.sql(f"DROP TABLE IF EXISTS {name}")
    session.sql(
        f"CREATE TABLE {name} (id STRING, ts BIGINT, b STRING, w STRING) USING hudi "
        f"TBLPROPERTIES (type = 'cow', primaryKey = 'id', preCombineField = 'ts') LOCATION '{path}'"
    )
    session.sql(f"INSERT INTO {name} VALUES ('a', 1, 'b1', 'w1'), ('c', 1, 'b2', 'w2')")
    session.sql(f"ALTER TABLE {name} DROP COLUMN w")
    session.sql(f"ALTER TABLE {name} RENAME COLUMN b TO bb")
    session.sql(f"ALTER TABLE {name} ADD COLUMNS (v STRING)")
    table = Table(path)
    assert set(table.scan().to_arrow()["v"].to_pylist()) == {None}
    assert set(session.sql(f"SELECT v FROM {name}")["v"].to_pylist()) == {"w1", "w2"}
    assert table.scan(["id"], filter="bb = 'b2'").to_arrow().to_pylist() == [{"id": "c"}]
    # What is written now keeps the columns apart for Apache Hudi, too: the next column gets an id of its own.
    rows = table.scan().to_arrow()
    table.upsert(rows.append_column("u", pa.array(["u1", "u2"])))
    assert sorted(table.scan().to_arrow()["u"].to_pylist()) == ["u1", "u2"]
    assert set(table.scan().to_arrow()["v"].to_pylist()) == {None}


@pytest.mark.parametrize(
    ("session", "kind"),
    [
        ("hudi", "mor"),
        ("newer_hudi", "mor"),
        pytest.param("hudi", "cow", marks=pytest.mark.wide),
        pytest.param("newer_hudi", "cow", marks=pytest.mark.wide),
    ],
    indirect=["session"],
)
def test_pyhudi_changes_columns_and_hudi_writes(session: ApacheHudi, tmp_path: Path, kind: str) -> None:
    """The first change gives the ids that its own would have; it writes to the table, changes it further, and ours goes on."""
    path, name = tmp_path / "t", f"ours_by_ids_{kind}"
    session.sql(f"DROP TABLE IF EXISTS {name}")
    session.sql(
        f"CREATE TABLE {name} (id STRING, ts BIGINT, b STRING, n INT, f FLOAT, st STRUCT<x: INT, y: STRING>, w STRING) "
        f"USING hudi TBLPROPERTIES (type = '{kind}', primaryKey = 'id', preCombineField = 'ts') LOCATION '{path}'"
    )
    session.sql(f"INSERT INTO {name} VALUES ('a', 1, 'b1', 1, 1.1, named_struct('x', 1, 'y', 'y1'), 'w1')")
    table = Table(path)
    first = table.scan().to_arrow().to_pylist()[0]
    ours(table, {**first, "id": "c", "b": "b2"})
    table.alter.rename("b", "bb")
    table.alter.rename("st.y", "z")
    table.alter.retype("n", pa.int64())
    table.alter.drop("f")
    table.alter.add("f", pa.string(), after="id")
    table.alter.comment("w", "what")
    session.sql(f"REFRESH TABLE {name}")
    found = {row["id"]: row for row in both_read(session, table, name).to_pylist()}
    assert (found["c"]["bb"], found["a"]["st"], found["a"]["f"], found["a"]["n"]) == ("b2", {"x": 1, "z": "y1"}, None, 1)
    ours(table, {**found["a"], "ts": 2, "bb": "ours", "f": "text"})
    both_read(session, table, name)
    columns = ", ".join("3 AS ts" if column == "ts" else "'theirs' AS bb" if column == "bb" else column for column in found["c"])
    session.sql(f"INSERT INTO {name} SELECT {columns} FROM {name} WHERE id = 'c'")
    both_read(session, table, name)
    session.sql(f"ALTER TABLE {name} RENAME COLUMN bb TO bc")
    session.sql(f"ALTER TABLE {name} ADD COLUMNS (v STRING)")
    both_read(session, table, name)
    table.alter.rename("v", "u")
    if kind == "mor":
        table.compact(options={"hoodie.compact.inline.max.delta.commits": "1"})
    found = {row["id"]: row for row in both_read(session, table, name).to_pylist()}
    assert (found["a"]["bc"], found["c"]["bc"], found["a"]["f"], found["a"]["u"]) == ("ours", "theirs", "text", None)
    assert int(table.config.version) == (8 if session.release == RELEASE else 9)
    assert table.validate().ok


SERVICED = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("b", pa.string()),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("st", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("city", pa.string()),
    ]
)


def altered(session: ApacheHudi, path: Path, kind: str, *, nested: bool) -> Table:
    """A table of ours with files and logs from before its columns changed, known to Apache Hudi's SQL as `serviced`.

    nested: a field of a struct is renamed too.
    """
    options = {
        "hoodie.write.table.version": "8" if session.release == RELEASE else "9",
        "hoodie.compact.inline": False,
        "hoodie.clean.automatic": False,
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.index.bloom.num_entries": 100,
    }
    table = Table.create(
        path, name="serviced", record_key="id", ordering="ts", partition_by="city", table_type=kind, options=options
    )
    cities = ("oslo", "rome")
    rows = [
        {"id": f"k{n}", "ts": 1, "b": f"b{n}", "n": n, "f": n + 0.5, "st": {"x": n, "y": f"y{n}"}, "city": cities[n % 2]}
        for n in range(6)
    ]
    table.insert(pa.Table.from_pylist(rows, SERVICED))
    table.upsert(pa.Table.from_pylist([{**row, "ts": 2} for row in rows[:2]], SERVICED))
    table.alter.rename("b", "bb")
    if nested:
        table.alter.rename("st.y", "z")
    table.alter.retype("n", pa.int64())
    table.alter.drop("f")
    table.alter.add("f", pa.string())
    table = Table(path, options={key: value for key, value in options.items() if "version" not in key})
    (row,) = table.scan(filter="id = 'k2'").to_arrow().to_pylist()
    ours(table, {**row, "ts": 3, "bb": "new", "f": "text", "n": 1 << 40})
    session.register(path, "serviced")
    return table


def again(table: Table, ts: int) -> None:
    """Rows of before are rewritten as they are."""
    ours(table, *({**row, "ts": ts} for row in table.scan(filter="id in ('k3', 'k4')").to_arrow().to_pylist()))


def rows_by_id(rows: pa.Table) -> dict[str, tuple[object, ...]]:
    return {row["id"]: (row["bb"], row["n"], row["st"], row["f"]) for row in rows.to_pylist()}


@pytest.mark.parametrize(
    ("session", "kind"),
    [
        ("hudi", "mor"),
        pytest.param("hudi", "cow", marks=pytest.mark.wide),
        pytest.param("newer_hudi", "mor", marks=pytest.mark.wide),
        pytest.param("newer_hudi", "cow", marks=pytest.mark.wide),
    ],
    indirect=["session"],
)
def test_hudi_services_a_table_altered_by_pyhudi(session: ApacheHudi, tmp_path: Path, kind: str) -> None:
    """Compaction, cleaning, a savepoint, a change of columns, restore to before it, and the rollback of a change of ours; ours
    writes after each of them.
    """
    # What release 1.0 shows of a renamed field in a log is below.
    nested = kind == "cow" or session.release != RELEASE
    table = altered(session, tmp_path / "t", kind, nested=nested)
    expected = rows_by_id(both_read(session, table, "serviced"))
    name = "z" if nested else "y"
    assert expected["k2"] == ("new", 1 << 40, {"x": 2, name: "y2"}, "text")
    assert expected["k1"] == ("b1", 1, {"x": 1, name: "y1"}, None)

    def check(ts: int) -> None:
        assert rows_by_id(both_read(session, table, "serviced")) == expected
        again(table, ts)
        assert rows_by_id(both_read(session, table, "serviced")) == expected
        assert table.validate().ok

    if kind == "mor":
        given = "hoodie.compact.inline.max.delta.commits=1"
        session.call("run_compaction", table="serviced", op="scheduleAndExecute", options=given)
        assert not any(piece.logs for piece in table.scan().explain().slices)
        check(4)
    session.call("run_clean", table="serviced", clean_policy="KEEP_LATEST_FILE_VERSIONS", file_versions_retained=1)
    check(5)
    kept = table.timeline().completed_writes()[-1].request_time
    session.call("create_savepoint", table="serviced", commit_time=kept)
    again(table, 6)
    session.sql("ALTER TABLE serviced RENAME COLUMN bb TO bc")
    assert {row["bc"] for row in both_read(session, table, "serviced").to_pylist()} == {values[0] for values in expected.values()}
    session.call("rollback_to_savepoint", table="serviced", instant_time=kept)
    check(7)
    table.alter.rename("bb", "bc")
    session.call("rollback_to_instant", table="serviced", instant_time=table.timeline().completed_writes()[-1].request_time)
    check(8)
    session.sql("DROP TABLE serviced")


@pytest.mark.wide
def test_a_renamed_field_in_a_log_that_1_0_reads(session: ApacheHudi, tmp_path: Path) -> None:
    """It shows null for a field of a struct that was renamed since the log was written; ours shows the value."""
    table = altered(session, tmp_path / "t", "mor", nested=True)
    session.sql("REFRESH TABLE serviced")
    theirs = {row["id"]: row["st"] for row in session.sql("SELECT * FROM serviced").to_pylist()}
    found = {row["id"]: row["st"] for row in table.scan().to_arrow().to_pylist()}
    assert found == {f"k{n}": {"x": n, "z": f"y{n}"} for n in range(6)}
    assert theirs == found | {key: {**found[key], "z": None} for key in ("k0", "k1")}
    session.sql("DROP TABLE serviced")


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_alternating_writers_add_and_widen_columns(newer_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    shared = SharedTable(newer_hudi, tmp_path / "t", kind, {"hoodie.write.set.null.for.missing.columns": True})
    shared.theirs(keyed_rows(("a", 1, "a1", 1), ("c", 1, "c1", 3)))
    wider = keyed_rows(("a", 2, "a2", 2)).append_column("more", pa.array(["m2"]))
    shared.ours(wider.set_column(4, "qty", pa.array([1 << 40], pa.int64())))
    shared.same()
    third = keyed_rows(("c", 3, "c3", 3)).append_column("more", pa.array(["m3"])).append_column("last", pa.array([0.5]))
    shared.theirs(third.set_column(4, "qty", pa.array([1 << 41], pa.int64())))
    shared.same()
    shared.ours(keyed_rows(("a", 4, "a4", 4), ("b", 4, "b4", 4)))
    shared.same()
    found = {row["id"]: row for row in shared.table.scan(["id", "qty", "more", "last"]).to_arrow().to_pylist()}
    assert found["c"] == {"id": "c", "qty": 1 << 41, "more": "m3", "last": 0.5}
    assert found["a"] == {"id": "a", "qty": 4, "more": None, "last": None}
    if kind == "mor":
        shared.table.compact()
        shared.same()
    shared.checked()


@pytest.mark.parametrize(
    ("session", "kind"),
    [
        ("hudi", "mor"),
        pytest.param("hudi", "cow", marks=pytest.mark.wide),
        pytest.param("newer_hudi", "mor", marks=pytest.mark.wide),
    ],
    indirect=["session"],
)
@pytest.mark.parametrize("alters", ["ours", "theirs"])
def test_types_of_entries_and_nulls_are_changed(session: ApacheHudi, tmp_path: Path, kind: str, alters: str) -> None:
    path, name = tmp_path / "t", f"entries_{kind}_{alters}"
    session.sql(f"DROP TABLE IF EXISTS {name}")
    session.sql(
        f"CREATE TABLE {name} (id STRING, ts BIGINT, st STRUCT<x: INT>, li ARRAY<INT>, mi MAP<STRING, INT>, n INT NOT NULL) "
        f"USING hudi TBLPROPERTIES (type = '{kind}', primaryKey = 'id', preCombineField = 'ts') LOCATION '{path}'"
    )
    session.sql(
        f"INSERT INTO {name} VALUES ('a', 1, named_struct('x', 1), array(1, 2), map('p', 3), 4), "
        "('b', 1, named_struct('x', 1), array(), null, 5)"
    )
    table = Table(path)
    if kind == "mor":
        ours(table, *({**row, "ts": 2} for row in table.scan().to_arrow().to_pylist()[:1]))
    statements = (
        "ALTER COLUMN li.element TYPE BIGINT",
        "ALTER COLUMN mi.value TYPE DOUBLE",
        "ALTER COLUMN n DROP NOT NULL",
        "ADD COLUMNS (st.w STRING FIRST)",
    )
    for statement in statements:
        sql = f"ALTER TABLE {name} {statement}"
        session.sql(sql) if alters == "theirs" else hp.sql(sql, tables={name: table})
    rows = {row["id"]: row for row in both_read(session, table, name).to_pylist()}
    assert (rows["a"]["li"], rows["a"]["mi"], rows["b"]["n"]) == ([1, 2], [("p", 3.0)], 5)
    ours(table, {**rows["b"], "ts": 3, "li": [1 << 40], "mi": [("q", 0.5)], "n": None, "st": {"w": "w", "x": 7}})
    both_read(session, table, name)
    session.sql(f"INSERT INTO {name} SELECT 'c' AS id, 4 AS ts, st, li, mi, n FROM {name} WHERE id = 'b'")
    assert both_read(session, table, name).num_rows == 3
    if kind == "mor":
        table.compact(options={"hoodie.compact.inline.max.delta.commits": "1"})
        both_read(session, table, name)
    assert table.validate().ok
