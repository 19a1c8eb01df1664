"""Hudi's stored procedures under their own names: `CALL show_commits(...)`, without Hudi's bundle.

    from pyhudi.features import procedures
    procedures.call("show_commits", path="/data/trips", limit=10)            # an Arrow table
    hs.call(spark, "show_commits", path="/data/trips", limit=10)             # a DataFrame

Names, arguments, defaults and columns are those of Hudi 1.0.2, or of 1.1.1 or 1.2.0 for procedures that 1.0.2 lacks.
`procedures.NAMES` lists the supported procedures; docs/procedures.md lists the intended differences.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from pyhudi.api.argument_types import checked
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.features.procedures import (
    bootstrap_procedures,
    file_procedures,
    lock_procedures,
    pending_procedures,
    repair_procedures,
    service_procedures,
    table_procedures,
    timeline_procedures,
    view_procedures,
)
from pyhudi.features.procedures.procedure import Procedure, ProcedureCall, procedures_in, schema
from pyhudi.records.filters.arrow_expressions import row_filter
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.table.snapshot import retry_on_stale_files

__all__ = ["NAMES", "PROCEDURES", "call", "describe", "positions", "second_table"]

_FILTER = "filter"
_HELP, _COMMAND = "help", "cmd"

PROCEDURES: Mapping[str, Procedure] = MappingProxyType(
    procedures_in(
        timeline_procedures,
        pending_procedures,
        service_procedures,
        file_procedures,
        view_procedures,
        table_procedures,
        repair_procedures,
        lock_procedures,
        bootstrap_procedures,
    )
)

NAMES = tuple(sorted(PROCEDURES))
"""Names of the supported procedures."""


@checked
def call(
    procedure: str,
    /,
    *,
    path: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: Any = None,
    session_options: Mapping[str, object] | None = None,
    name: str | None = None,
    **arguments: object,
) -> pa.Table:
    """Run a procedure on a table. The result has the columns, types and order of Hudi's.

    Args:
        procedure: Name of the procedure.
        path: Location of the table.
        storage_options: Credentials and settings of the object store, see `docs/object-stores.md`.
        spark: Session that runs the tasks of compactions and clusterings; None for this process.
        session_options: `hoodie.*` options that arguments of the procedure override, such as those of SET.
        name: Name of the table, which some results repeat; None to repeat the path.
        arguments: Arguments of the procedure. `filter`, SQL text on the columns of the result, works for each of them.

    Returns:
        The rows of the procedure.

    Raises:
        InvalidRequest: The name or an argument is unknown or invalid. Errors of the operation itself are raised as they
            are.
    """
    if procedure.strip().lower() == _HELP:
        return _help(arguments)
    definition = _find(procedure)
    if path is None:
        hint = "; `table=` needs a Spark session: hs.call(spark, ...)" if "table" in arguments else ""
        raise InvalidRequest(f"procedure {procedure} requires path=, the location of the table{hint}")
    condition = arguments.pop(_FILTER, None)
    checked = definition.check(arguments)
    keep = None if condition in (None, "") else row_filter(parse_filter(str(condition)), definition.output)
    table = None if definition.creates_table else Table(path, storage_options, session_options)
    request = ProcedureCall(os.fspath(path), storage_options, table, checked, spark, session_options, name)
    run = retry_on_stale_files(definition.run) if definition.is_read_only else definition.run
    result = run(request)
    return result if keep is None else keep.select(result)


def positions(procedure: str) -> tuple[str, ...] | None:
    """Return the names of a procedure's arguments by position; None if it does not exist.

    Args:
        procedure: Name of a procedure.
    """
    if procedure.strip().lower() == _HELP:
        return (_COMMAND,)
    definition = PROCEDURES.get(procedure.strip().lower())
    return None if definition is None else definition.positions


def second_table(procedure: str) -> str | None:
    """Return the argument for a second table, which a statement calls `path` next to `table`.

    Args:
        procedure: Name of a procedure.

    Returns:
        The name of the argument; None if the procedure has none, or does not exist.
    """
    definition = PROCEDURES.get(procedure.strip().lower())
    names = {parameter.name for parameter in definition.parameters} if definition else set()
    return table_procedures.OTHER_PATH if table_procedures.OTHER_PATH in names else None


@checked
def describe(procedure: str) -> str:
    """Describe a procedure as text: summary, arguments with defaults, and columns.

    Args:
        procedure: Name of the procedure.

    Raises:
        InvalidRequest: The procedure does not exist.
    """
    definition = _find(procedure)
    lines = [f"{definition.name}: {definition.summary}", "  path string (required)"]
    for parameter in definition.parameters:
        state = "(required)" if parameter.required else f"= {parameter.default!r}"
        lines.append(f"  {parameter.name} {parameter.kind.__name__} {state}")
    lines.append("  returns " + ", ".join(f"{field.name} {field.type}" for field in definition.output))
    return "\n".join(lines)


def _help(arguments: Mapping[str, object]) -> pa.Table:
    """All procedures with their summaries, or the description of the procedure `cmd`."""
    unknown = sorted(set(arguments) - {_COMMAND})
    if unknown:
        raise InvalidRequest(f"procedure {_HELP} has no argument {unknown[0]!r}; it takes {_COMMAND}")
    command = arguments.get(_COMMAND)
    text = "\n".join(f"{name}: {PROCEDURES[name].summary}" for name in NAMES) if command is None else describe(str(command))
    return pa.table({"result": [text]}, schema=schema("result string"))


_UNAVAILABLE = {
    "repair_clustering_plan": "call Table.unschedule_clustering, and schedule the clustering again",
    "repair_deduplicate": "Table.validate finds duplicate keys; delete their rows and insert one of each",
    "repair_migrate_partition_meta": "both forms of partition metadata are read",
    "hdfs_parquet_import": "use run_bootstrap",
    "sync_validate": "hive_sync brings the catalog up to date",
}
"""Procedures of Hudi that PyHudi lacks, and what to do instead."""


def _find(name: str) -> Procedure:
    definition = PROCEDURES.get(name.strip().lower())
    if name.strip().lower() in _UNAVAILABLE:
        raise Unsupported(f"procedure {name!r} of Hudi is not available: {_UNAVAILABLE[name.strip().lower()]}")
    if definition is None:
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidRequest(f"procedure {name!r} does not exist{hint} ({', '.join(NAMES)})")
    return definition
