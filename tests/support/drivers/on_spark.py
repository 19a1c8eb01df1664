"""Entry points on Spark: Python methods, and `hs.sql`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

import pyhudi as hp
from pyhudi import spark as hs
from tests.scenarios.scenario import Delete, Merge, Query, Sql, Step, TableSpec, Update, Write
from tests.support.drivers.driver import Driver, statement
from tests.support.drivers.embedded import with_clauses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_names = itertools.count()
_FEW_FILES = {"hoodie.metadata.enable": False, "hoodie.table.services.enabled": False}


class SparkDriver(Driver):
    """An entry point with a session."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        super().__init__(folder)
        self.session = session


class SparkPython(SparkDriver):
    """DataFrames for rows with declared types, `hs.write` of dictionaries for others, `hs.update` and `hs.delete`."""

    name = "spark python"
    steps: ClassVar[tuple[type[Any], ...]] = (Write, Update, Merge, Delete)
    takes_values = True

    def run(self, step: Step) -> Sequence[str] | None:
        table = hp.Table(self.path)
        if isinstance(step, Write):
            given: Any = step.rows
            typed = isinstance(given, pa.Table)
            rows = self.session.createDataFrame(given) if typed else [dict(row) for row in given]
            words = {"schema_mode": step.schema_mode, "missing_columns": step.missing_columns, "where": step.where}
            more: dict[str, Any] = {word: text for word, text in words.items() if text}
            result = hs.write(rows, self.path, step.mode or "append", **more)
        elif isinstance(step, Update):
            result = hs.update(self.session, self.path, step.set, step.where or None, values=step.values, options=_FEW_FILES)
        elif isinstance(step, Merge):
            result = with_clauses(table.merge(self.session.createDataFrame(step.source), step.on), step).execute()
        else:
            assert isinstance(step, Delete) and step.where, "keys of a delete have no session"
            result = hs.delete(self.session, self.path, step.where, options=_FEW_FILES)
        return list(result.schema_changes)


class SparkSql(SparkDriver):
    """`hs.sql`."""

    name = "spark sql"
    steps: ClassVar[tuple[type[Any], ...]] = (Sql, Query, Update, Merge, Delete)

    def __init__(self, folder: Path, session: SparkSession) -> None:
        super().__init__(folder, session)
        self.table = f"scenario_{next(_names)}"

    def create(self, table: TableSpec) -> None:
        super().create(table)
        hs.register(self.session, self.table, self.path)

    def run(self, step: Step) -> Sequence[str] | None:
        assert isinstance(step, (Sql, Update, Merge, Delete))
        params = step.params if isinstance(step, Sql) else None
        self.query(self.text(statement(step, self.table)), params)
        return None

    def query(self, text: str, params: Any = None) -> list[dict[str, Any]]:
        options = _FEW_FILES if text.split()[0] in ("INSERT", "UPDATE", "DELETE", "MERGE") else None
        return list(hs.sql(self.session, text, params, options=options).toArrow().to_pylist())

    def close(self) -> None:
        hs.sql(self.session, "RESET")
        hs.sql(self.session, f"DROP TABLE IF EXISTS {self.table}")
