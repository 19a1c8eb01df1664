"""Apache Hudi, which decides what steps mean."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.scenarios.scenario import Delete, Merge, Query, Refused, Sql, Step, TableSpec, Update
from tests.support.drivers.driver import Driver, create_statement, statement

_names = itertools.count()


class HudiSql(Driver):
    """Statements of Apache Hudi. A step that it refuses may have any error."""

    name = "hudi"
    steps: ClassVar[tuple[type[Any], ...]] = (Sql, Query, Update, Merge, Delete)
    error = HudiFailure

    def __init__(self, folder: Path, hudi: ApacheHudi) -> None:
        super().__init__(folder)
        self._hudi, self.table = hudi, f"scenario_{next(_names)}"

    def create(self, table: TableSpec) -> None:
        self._hudi.sql(create_statement(self.table, self.path, table))
        if table.rows:
            self._hudi.sql(f"INSERT INTO {self.table} VALUES {table.rows}")

    def run(self, step: Step) -> Sequence[str] | None:
        assert isinstance(step, (Sql, Update, Merge, Delete))
        self.query(self.text(statement(step, self.table)))
        return None

    def query(self, text: str) -> list[dict[str, Any]]:
        return list(self._hudi.sql(text).to_pylist())

    def close(self) -> None:
        self._hudi.sql("RESET")
        self._hudi.sql(f"DROP TABLE IF EXISTS {self.table}")

    def check_error(self, error: Exception, expected: Refused) -> None:
        assert isinstance(error, HudiFailure)
