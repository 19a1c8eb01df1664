"""Pre-commit validators on each engine.

A test class inherits `ValidatorSuite` and supplies `write`, which writes rows with options on its engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi as hp

VALIDATORS = "hoodie.precommit.validators"
PACKAGE = "org.apache.hudi.client.validator."
_numbers = itertools.count()


class Write(Protocol):
    def __call__(self, table: hp.Table, rows: pa.Table, /, **options: Any) -> object: ...


def rows(*records: tuple[int, str, float | None], ts: int = 1) -> pa.Table:
    ids, parts, values = zip(*records, strict=True)
    return pa.table({"id": list(ids), "part": list(parts), "ts": [ts] * len(ids), "value": pa.array(values, pa.float64())})


def new_table(uri: str, kind: str = "cow") -> hp.Table:
    """Ids 1 to 3 in partition a, 4 and 5 in b, each with the value 1."""
    table = hp.Table.create(uri, record_key="id", partition_by="part", ordering="ts", table_type=kind)
    table.upsert(rows(*((n, "a", 1.0) for n in (1, 2, 3)), (4, "b", 1.0), (5, "b", 1.0)))
    return table


def equality(*queries: str) -> dict[str, str]:
    return {
        VALIDATORS: f"{PACKAGE}SqlQueryEqualityPreCommitValidator",
        f"{VALIDATORS}.equality.sql.queries": ";".join(queries),
    }


def inequality(*queries: str) -> dict[str, str]:
    return {
        VALIDATORS: f"{PACKAGE}SqlQueryInequalityPreCommitValidator",
        f"{VALIDATORS}.inequality.sql.queries": ";".join(queries),
    }


def single_value(*queries: str) -> dict[str, str]:
    return {
        VALIDATORS: f"{PACKAGE}SqlQuerySingleResultPreCommitValidator",
        f"{VALIDATORS}.single.value.sql.queries": ";".join(queries),
    }


def registered(function: Callable[[hp.Scan, hp.Scan], Any]) -> dict[str, str]:
    """Register a function as a validator; the options that name it."""
    name = f"test-{next(_numbers)}"
    hp.register_validator(hp.Validator(name, function))
    return {VALIDATORS: name}


def files(folder: Path) -> set[str]:
    """Data files and instants of a table in a folder."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name for name in found if ".crc" not in name and "/metadata/" not in name and "rollback" not in name}


class ValidatorSuite:
    """Requirements of validators on an engine."""

    @pytest.fixture(params=["cow", "mor"])
    def table(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[hp.Table]:
        yield new_table(str(tmp_path / "t"), request.param)

    def test_queries_read_the_changed_partitions_with_the_write_applied(self, table: hp.Table, write: Write) -> None:
        write(table, rows((6, "b", 2.0)), **single_value("select count(*) from <TABLE_NAME>#3"))
        write(table, rows((4, "b", 5.0), ts=2), **single_value("select max(value) from <TABLE_NAME>#5.0"))
        with pytest.raises(hp.ValidationFailed, match="returns 3 after the write, and 6 is expected"):
            write(table, rows((4, "b", 7.0), ts=3), **single_value("select count(*) from <TABLE_NAME>#6"))
        whole = {"pyhudi.precommit.validators.rows": "table"}
        write(table, rows((4, "b", 7.0), ts=3), **single_value("select count(*) from <TABLE_NAME>#6"), **whole)

    def test_a_rejected_write_leaves_the_table_as_it_was(self, table: hp.Table, write: Write) -> None:
        before, held = files(Path(table.uri)), table.scan().to_arrow().sort_by("id")
        with pytest.raises(hp.ValidationFailed) as failure:
            write(table, rows((1, "a", 9.0), (7, "c", 8.0), ts=2), **equality("select sum(value) s from <TABLE_NAME>"))
        error = failure.value
        assert error.query == "select sum(value) s from <TABLE_NAME>"
        assert (error.before, error.after) == (({"s": 3.0},), ({"s": 19.0},))
        assert error.rows == ({"s": 3.0}, {"s": 19.0})
        assert "before: s=3.0" in str(error) and "after: s=19.0" in str(error)
        assert table.scan().to_arrow().sort_by("id").equals(held)
        assert files(Path(table.uri)) == before

    def test_equality_compares_rows_with_duplicates_and_without_order(self, table: hp.Table, write: Write) -> None:
        write(table, rows((4, "b", 5.0), ts=2), **equality("select part from <TABLE_NAME> order by id desc"))
        with pytest.raises(hp.ValidationFailed) as failure:
            write(table, rows((6, "b", 5.0), ts=2), **equality("select part from <TABLE_NAME>"))
        assert failure.value.rows == ({"part": "b"},)

    def test_inequality_requires_other_rows(self, table: hp.Table, write: Write) -> None:
        write(table, rows((6, "b", 5.0)), **inequality("select count(*) from <TABLE_NAME>"))
        with pytest.raises(hp.ValidationFailed, match="returns the same rows before and after"):
            write(table, rows((6, "b", 6.0), ts=2), **inequality("select count(*) from <TABLE_NAME>"))

    def test_a_single_result_is_one_value(self, table: hp.Table, write: Write) -> None:
        changed = rows((4, "b", 2.5), ts=2)
        for query in ("select max(part) from <TABLE_NAME>#b", "select max(value) > 2 from <table_name> # true "):
            write(table, changed, **single_value(query))
        for query in (
            "select id from <TABLE_NAME>#4",
            "select max(id), 1 from <TABLE_NAME>#5",
            "select id from <TABLE_NAME> where id < 0#4",
            "select max(case when id < 0 then 1 end) from <TABLE_NAME>#null",
        ):
            with pytest.raises(hp.ValidationFailed):
                write(table, changed, **single_value(query))

    def test_all_queries_count_and_at_most_ten_rows_are_shown(self, table: hp.Table, write: Write) -> None:
        many = rows(*((n, "a", 1.0) for n in range(100, 130)))
        with pytest.raises(hp.ValidationFailed) as failure:
            write(table, many, **equality("select max(value) from <TABLE_NAME>", "select id from <TABLE_NAME>"))
        error = failure.value
        assert error.query == "select id from <TABLE_NAME>" and len(error.rows) == len(error.after) == 10
        assert all(row["id"] >= 100 for row in error.rows)

    def test_a_function_rejects_by_value_rows_or_exception(self, table: hp.Table, write: Write) -> None:
        def large(before: Any, after: Any) -> pa.Table:
            assert before.count() == 3
            found: pa.Table = after.to_arrow().filter(pc.field("value") > 5).select(["id", "value"])
            return found

        write(table, rows((1, "a", 5.0), ts=2), **registered(large))
        with pytest.raises(hp.ValidationFailed, match=r"id=1, value=6\.0") as failure:
            write(table, rows((1, "a", 6.0), ts=3), **registered(large))
        assert failure.value.rows == ({"id": 1, "value": 6.0},)
        write(table, rows((1, "a", 5.0), ts=3), **registered(lambda before, after: True))
        with pytest.raises(hp.ValidationFailed, match="rejects"):
            write(table, rows((1, "a", 5.0), ts=3), **registered(lambda before, after: False))
        with pytest.raises(hp.ValidationFailed, match="ZeroDivisionError"):
            write(table, rows((1, "a", 5.0), ts=3), **registered(lambda before, after: 1 / 0))

    def test_a_query_that_cannot_run_rejects_the_write(self, table: hp.Table, write: Write) -> None:
        with pytest.raises(hp.ValidationFailed, match="nothing"):
            write(table, rows((1, "a", 5.0), ts=3), **single_value("select nothing from <TABLE_NAME>#1"))

    def test_new_columns_are_null_before(self, table: hp.Table, write: Write) -> None:
        wide = rows((1, "a", 5.0), ts=2).append_column("note", pa.array(["x"]))
        with pytest.raises(hp.ValidationFailed) as failure:
            write(table, wide, **equality("select max(note) m from <TABLE_NAME>"))
        assert (failure.value.before, failure.value.after) == (({"m": None},), ({"m": "x"},))
        write(table, wide, **single_value("select max(note) from <TABLE_NAME>#x"))
