"""Hudi's stored procedures by their own names: `CALL show_commits(...)` without the bundle.

    from pyhudi.features import procedures
    procedures.call("show_commits", path="/data/trips", limit=10)            # an Arrow table
    hs.call(spark, "show_commits", path="/data/trips", limit=10)             # a DataFrame

Names, arguments, defaults and columns are those of Hudi 1.0.2; `procedures.NAMES` lists what there is.  What differs on purpose
stands in docs/procedures.md.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest
from pyhudi.features.procedures import (
    bootstrap_procedures,
    catalog_procedures,
    file_procedures,
    repair_procedures,
    service_procedures,
    timeline_procedures,
)
from pyhudi.features.procedures.procedure import Procedure, ProcedureCall
from pyhudi.table.snapshot import retry_on_stale_files

__all__ = ["NAMES", "PROCEDURES", "call", "describe"]

PROCEDURES: Mapping[str, Procedure] = MappingProxyType(
    {
        one.name: one
        for module in (
            timeline_procedures,
            service_procedures,
            file_procedures,
            repair_procedures,
            bootstrap_procedures,
            catalog_procedures,
        )
        for one in module.PROCEDURES
    }
)

NAMES = tuple(sorted(PROCEDURES))
"""The procedures that can be called."""


def call(
    procedure: str,
    /,
    *,
    path: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: Any = None,
    **arguments: object,
) -> pa.Table:
    """Run a procedure on the table at `path`; its rows have the columns, types and order of real Hudi's.

    spark: a session on which compactions and clusterings run their tasks; None for this process.
    Raises InvalidRequest for a name or argument that there is not, and what the operation itself raises.
    """
    found = _find(procedure)
    if path is None:
        hint = "; `table=` needs a Spark session: hs.call(spark, ...)" if "table" in arguments else ""
        raise InvalidRequest(f"procedure {procedure} needs the path of a table{hint}")
    checked = found.check(arguments)
    table = None if found.creates_table else Table(path, storage_options)
    asked = ProcedureCall(os.fspath(path), storage_options, table, checked, spark)

    def run() -> list[dict[str, Any]]:
        return [dict(row) for row in found.run(asked)]

    rows = retry_on_stale_files(run)() if found.is_read_only else run()
    return pa.Table.from_pylist(rows, schema=found.output)


def describe(procedure: str) -> str:
    """What a procedure does, its arguments with their defaults, and its columns, as text."""
    found = _find(procedure)
    lines = [f"{found.name}: {found.summary}", "  path string (required)"]
    for one in found.parameters:
        state = "(required)" if one.required else f"= {one.default!r}"
        lines.append(f"  {one.name} {one.kind.__name__} {state}")
    lines.append("  returns " + ", ".join(f"{field.name} {field.type}" for field in found.output))
    return "\n".join(lines)


def _find(name: str) -> Procedure:
    found = PROCEDURES.get(name.strip().lower())
    if found is None:
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidRequest(f"there is no procedure {name!r}{hint} ({', '.join(NAMES)})")
    return found
