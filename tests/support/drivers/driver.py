"""Run a scenario through one entry point."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import HudiError
from tests.scenarios.scenario import Delete, Merge, Query, Refused, Scenario, Sql, Step, TableSpec, Update


class Driver:
    """One entry point, for one table.

    Attributes:
        name: Name of the entry point, for `Scenario.skip`.
        steps: Classes of the steps that the entry point has.
        takes_values: It takes Python values, and deletes by keys.
        error: Class of the errors that it raises.
        table: Name of the table in statements.
    """

    name: ClassVar[str]
    table: str = "t"
    steps: ClassVar[tuple[type[Any], ...]]
    takes_values: ClassVar[bool] = False
    error: ClassVar[type[Exception]] = HudiError

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "t")

    @classmethod
    def has(cls, step: Step) -> bool:
        """Return True if the entry point has the step. Statements have no Python values, and delete by predicate."""
        has_values = isinstance(step, Update) and step.values
        return isinstance(step, cls.steps) and (cls.takes_values or not (has_values or (isinstance(step, Delete) and step.keys)))

    def create(self, table: TableSpec) -> None:
        """Create the table, and write its first rows."""
        catalog = hp.Catalog()
        hp.sql(create_statement("t", self.path, table), catalog=catalog)
        if table.rows:
            hp.sql(f"INSERT INTO t VALUES {table.rows}", catalog=catalog)

    def run(self, step: Step) -> Sequence[str] | None:
        """Run a step. Returns the changes of columns that its result reports; None if the entry point reports none."""
        raise NotImplementedError

    def query(self, text: str) -> list[dict[str, Any]]:
        """The rows of a statement."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove what the steps have left in a session that other scenarios share."""

    def text(self, text: str) -> str:
        """A statement, or a text of its result, with the name of the table."""
        return text.replace("{table}", self.table).replace("{folder}", str(Path(self.path).parent))

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, without meta columns."""
        return list(hp.Table(self.path).scan().to_arrow().to_pylist())

    def check_error(self, error: Exception, expected: Refused) -> None:
        """Compare an error with the expected one."""
        assert (type(error).__name__, expected.word in str(error)) == (expected.kind, True), str(error)


def can_run(driver: type[Driver], scenario: Scenario) -> bool:
    """Return True if the driver has each step of a scenario, and the scenario applies to it."""
    names = {driver.name, driver.name.removesuffix(" expressions")}
    return scenario.skip.keys().isdisjoint(names) and all(driver.has(step) for step in scenario.steps)


def pairs(drivers: Collection[type[Driver]], scenarios: Sequence[Scenario]) -> list[Any]:
    """The combinations of drivers and scenarios that can run, as parameters of a test."""
    known = {"python", "python expressions", "python write", "sql", "command line", "spark python", "spark sql", "hudi"}
    for scenario in scenarios:
        assert known >= scenario.skip.keys(), f"{scenario.name}: unknown driver in skip"
    return [
        pytest.param(driver, scenario, id=f"{driver.name}: {scenario.name}")
        for scenario in scenarios
        for driver in drivers
        if can_run(driver, scenario)
    ]


def check(driver: Driver, scenario: Scenario) -> None:
    """Run a scenario, and compare the rows, the changed types and the error with the expected ones."""
    try:
        driver.create(scenario.table)
        _check_steps(driver, scenario)
    finally:
        driver.close()


def _check_steps(driver: Driver, scenario: Scenario) -> None:
    if scenario.expect is None:
        for step in scenario.steps:
            _run(driver, step)
        return
    before = driver.rows()
    *first_steps, last = scenario.steps
    for step in first_steps:
        _run(driver, step)
        before = driver.rows()
    if isinstance(scenario.expect, Refused):
        with pytest.raises(driver.error) as caught:
            driver.run(last)
        driver.check_error(caught.value, scenario.expect)
        assert _in_order(driver.rows()) == _in_order(before), "the refused step changed rows"
        return
    changes = _run(driver, last)
    assert _in_order(driver.rows()) == _in_order(scenario.expect)
    schema = hp.Table(driver.path).schema()
    assert {name: schema.field(name).type for name in scenario.types} == dict(scenario.types)
    if changes is not None:
        assert {change.split()[0] for change in changes} == set(scenario.types), changes


def _run(driver: Driver, step: Step) -> Sequence[str] | None:
    """Run a step, and compare the rows or the error of a query."""
    if not isinstance(step, Query):
        return driver.run(step)
    text = driver.text(step.text)
    if isinstance(step.rows, Refused):
        with pytest.raises(driver.error) as caught:
            driver.query(text)
        driver.check_error(caught.value, step.rows)
        return None
    expected = [tuple(driver.text(v) if isinstance(v, str) else v for v in row) for row in step.rows]
    found = [tuple(map(_comparable, row.values())) for row in driver.query(text)]
    assert sorted(map(repr, found)) == sorted(map(repr, expected)), text
    return None


def _in_order(rows: Any) -> list[str]:
    return sorted(repr(sorted((name, _comparable(value)) for name, value in row.items())) for row in rows)


def _comparable(value: Any) -> Any:
    """A time as text, because libraries have objects of their own for the zone UTC."""
    return value.isoformat() if isinstance(value, datetime) else value


# ---------------------------------------------------------------------------------------------------------------------
# SQL of steps


def create_statement(name: str, path: str, table: TableSpec) -> str:
    """CREATE TABLE of a table of a scenario."""
    roles = {"primaryKey": table.key, "preCombineField": table.ordering}
    properties = {key: value for key, value in {**roles, **table.properties}.items() if value}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    partitions = f" PARTITIONED BY ({table.partition_by})" if table.partition_by else ""
    stored = f" TBLPROPERTIES ({listed})" if listed else ""
    return f"CREATE TABLE {name} ({table.columns}) USING hudi{partitions} LOCATION '{path}'{stored}"


def statement(step: Sql | Update | Merge | Delete, table: str) -> str:
    """A step as a SQL statement on a table. The source of a merge is written into it as a query."""
    if isinstance(step, Sql):
        return step.text
    if isinstance(step, Update):
        assert not step.values, "a statement has no Python values"
        return f"UPDATE {table} SET {_assigned(step.set)}" + (f" WHERE {step.where}" if step.where else "")
    if isinstance(step, Delete):
        assert step.where, "a statement deletes by predicate"
        return f"DELETE FROM {table} WHERE {step.where}"
    parts = [f"MERGE INTO {table} AS target USING ({_query(step.source)}) AS source ON target.{step.on} = source.{step.on}"]
    if "delete" in step.clauses:
        parts.append("WHEN MATCHED THEN DELETE")
    if "update" in step.clauses:
        parts.append(f"WHEN MATCHED THEN UPDATE SET {'*' if step.matched is None else _assigned(step.matched)}")
    if "insert" in step.clauses:
        values = step.unmatched
        named = "*" if values is None else f"({', '.join(values)}) VALUES ({', '.join(values.values())})"
        parts.append(f"WHEN NOT MATCHED THEN INSERT {named}")
    return " ".join(parts)


def _assigned(values: Any) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _query(source: pa.Table) -> str:
    rows = [
        ", ".join(f"CAST({_literal(row[field.name])} AS {_sql_type(field.type)}) AS {field.name}" for field in source.schema)
        for row in source.to_pylist()
    ]
    return " UNION ALL ".join(f"SELECT {row}" for row in rows)


def _literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'"


def _sql_type(type_: pa.DataType) -> str:
    names = {
        "int32": "INT",
        "int64": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "STRING",
        "date32[day]": "DATE",
        "bool": "BOOLEAN",
    }
    return f"DECIMAL({type_.precision}, {type_.scale})" if pa.types.is_decimal(type_) else names[str(type_)]
