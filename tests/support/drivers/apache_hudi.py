"""Apache Hudi, which decides what steps mean."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.scenarios.scenario import Delete, Merge, Refused, Sql, Step, TableSpec, Update
from tests.support.drivers.driver import Driver, create_statement, statement

_names = itertools.count()


class HudiSql(Driver):
    """Statements of Apache Hudi. A step that it refuses may have any error."""

    name = "hudi"
    steps: ClassVar[tuple[type[Any], ...]] = (Sql, Update, Merge, Delete)
    error = HudiFailure

    def __init__(self, folder: Path, hudi: ApacheHudi) -> None:
        super().__init__(folder)
        self._hudi, self._table = hudi, f"scenario_{next(_names)}"

    def create(self, table: TableSpec) -> None:
        self._hudi.sql(create_statement(self._table, self.path, table))
        if table.rows:
            self._hudi.sql(f"INSERT INTO {self._table} VALUES {table.rows}")

    def run(self, step: Step) -> Sequence[str] | None:
        assert isinstance(step, (Sql, Update, Merge, Delete))
        self._hudi.sql(statement(step, self._table))
        return None

    def check_error(self, error: Exception, expected: Refused) -> None:
        assert isinstance(error, HudiFailure)
