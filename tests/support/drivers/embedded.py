"""Entry points without a JVM: Python methods, `hp.sql` and the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli.app import app
from tests.scenarios.scenario import Delete, Merge, Query, Service, Sql, Step, TableSpec, Update, Write
from tests.support.drivers.driver import Driver, statement


class PythonTable(Driver):
    """`hp.Table` on the embedded engine."""

    name = "python"
    steps: ClassVar[tuple[type[Any], ...]] = (Write, Update, Merge, Delete, Service)
    takes_values = True

    @classmethod
    def has(cls, step: Step) -> bool:
        return super().has(step) and not (isinstance(step, Write) and not hasattr(hp.Table, step.mode or "-"))

    def run(self, step: Step) -> Sequence[str] | None:
        table = hp.Table(self.path)
        if isinstance(step, Write):
            words = {"schema_mode": step.schema_mode, "missing_columns": step.missing_columns, "where": step.where}
            result = getattr(table, step.mode)(step.rows, **{word: text for word, text in words.items() if text})
        elif isinstance(step, Update):
            result = table.update(step.set, step.where or None, values=step.values)
        elif isinstance(step, Merge):
            result = with_clauses(table.merge(step.source, step.on), step).execute()
        elif isinstance(step, Delete):
            result = table.delete(where=step.where) if step.where else table.delete(list(step.keys))
        else:
            assert isinstance(step, Service)
            getattr(table, step.name)()
            return None
        return list(result.schema_changes)


class PythonWrite(Driver):
    """`hp.write`."""

    name = "python write"
    steps: ClassVar[tuple[type[Any], ...]] = (Write,)

    def run(self, step: Step) -> Sequence[str] | None:
        assert isinstance(step, Write)
        words = {"schema_mode": step.schema_mode, "missing_columns": step.missing_columns, "where": step.where}
        more: dict[str, Any] = {word: text for word, text in words.items() if text}
        return list(hp.write(self.path, step.rows, step.mode or None, **more).schema_changes)


def with_clauses(merge: Any, step: Merge) -> Any:
    """Add the clauses of a step to a merge."""
    if "delete" in step.clauses:
        merge = merge.when_matched_delete()
    if "update" in step.clauses:
        merge = merge.when_matched_update_all() if step.matched is None else merge.when_matched_update(step.matched)
    if "insert" in step.clauses:
        merge = merge.when_not_matched_insert_all() if step.unmatched is None else merge.when_not_matched_insert(step.unmatched)
    return merge


class PythonExpressions(Driver):
    """`hp.Table` with aliases and conditions of SQL, which DuckDB evaluates: they change nothing else."""

    name = "python expressions"
    steps: ClassVar[tuple[type[Any], ...]] = (Update, Merge)
    takes_values = True

    def run(self, step: Step) -> Sequence[str] | None:
        table = hp.Table(self.path)
        if isinstance(step, Update):
            condition = f"({step.where or 'TRUE'}) AND coalesce(1, 1) = 1"
            return list(table.update(step.set, condition, values=step.values).schema_changes)
        assert isinstance(step, Merge)
        on = f"t.{step.on} = s.{step.on}"
        aliased = replace(step, matched=_aliased(step.matched), unmatched=_aliased(step.unmatched))
        return list(
            with_clauses(table.merge(step.source, on, target_alias="t", source_alias="s"), aliased).execute().schema_changes
        )


def _aliased(values: Mapping[str, str] | None) -> dict[str, str] | None:
    if values is None:
        return None
    return {name: text.replace("source.", "s.").replace("target.", "t.") for name, text in values.items()}


class EmbeddedSql(Driver):
    """`hp.sql`."""

    name = "sql"
    steps: ClassVar[tuple[type[Any], ...]] = (Sql, Query, Update, Merge, Delete)

    def create(self, table: TableSpec) -> None:
        super().create(table)
        self._catalog = hp.Catalog()
        self._catalog.register(self.table, self.path)

    def run(self, step: Step) -> Sequence[str] | None:
        assert isinstance(step, (Sql, Update, Merge, Delete))
        params = step.params if isinstance(step, Sql) else None
        self.query(self.text(statement(step, self.table)), params)
        return None

    def query(self, text: str, params: Any = None) -> list[dict[str, Any]]:
        return list(hp.sql(text, params, catalog=self._catalog).to_pylist())


def _json(value: Any) -> Any:
    """A decimal as a number, other values as text."""
    return float(value) if isinstance(value, Decimal) else str(value)


class CommandLine(Driver):
    """`pyhudi load`, from Parquet for rows with declared types and from JSON lines for others, and `pyhudi delete`."""

    name = "command line"
    steps: ClassVar[tuple[type[Any], ...]] = (Write, Delete)
    takes_values = True

    def run(self, step: Step) -> Sequence[str] | None:
        if isinstance(step, Delete):
            by = ["--where", step.where] if step.where else [f"--keys={key}" for key in step.keys]
            self._run("delete", self.path, *by, "--yes")
            return None
        assert isinstance(step, Write)
        file = Path(self.path).with_name("rows.parquet" if isinstance(step.rows, pa.Table) else "rows.json")
        if isinstance(step.rows, pa.Table):
            pq.write_table(step.rows, file)
        else:
            file.write_text("".join(json.dumps(dict(row), default=_json) + "\n" for row in step.rows))
        words = {
            "--mode": step.mode,
            "--where": step.where,
            "--schema-mode": step.schema_mode,
            "--missing-columns": step.missing_columns,
        }
        self._run("load", self.path, str(file), *(part for word, text in words.items() if text for part in (word, text)))
        return None

    def _run(self, *arguments: str) -> None:
        CliRunner().invoke(app, list(arguments), catch_exceptions=False, standalone_mode=False)
