"""Table-valued functions, with Hudi's names and arguments.

    hudi_query(table[, 'snapshot' | 'read_optimized'])                       a query of a table
    hudi_table_changes(table, 'latest_state' | 'cdc', start[, end])          incremental or CDC query
    hudi_query_timeline(table[, 'true' | 'false'])                           instants, optionally of the archived timeline
    hudi_filesystem_view(table[, partition])                                 file slices
    hudi_metadata(table)                                                     records of the metadata table
    hudi_vector_search(table, column, ARRAY(...), k[, metric])               nearest vectors, with _hudi_distance

The start `earliest` is the first instant; start and end are completion times, as in `Table.incremental`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from pyhudi import features
from pyhudi.api.scan import Scan
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.actions.archived_instants import COMMIT_LIKE
from pyhudi.format.actions.commit_metadata import NO_PREVIOUS_COMMIT, WriteStat
from pyhudi.options import read_options
from pyhudi.sql_engine.metadata_rows import metadata_rows
from pyhudi.sql_engine.sql_ast import Reference, TableName, Value
from pyhudi.table.snapshot import read_commit

__all__ = ["function_rows", "table_argument"]


def table_argument(reference: Reference) -> TableName:
    """Table in the first argument of a function: a path or a name. Raises InvalidRequest if it is missing."""
    if not reference.arguments or not isinstance(reference.arguments[0], str):
        raise InvalidRequest(f"{reference.function} requires a table as first argument: pass its name or its path in quotes")
    first = reference.arguments[0]
    return TableName((first,) if "/" in first else tuple(first.split(".")))


def function_rows(reference: Reference, table: Table) -> Scan | pa.Table:
    """Rows of a table-valued function. Raises InvalidRequest for invalid arguments."""
    assert reference.function is not None, "the reference names a function"
    read, least, most = _FUNCTIONS[reference.function]
    arguments = reference.arguments[1:]
    if not least <= len(arguments) <= most:
        raise InvalidRequest(f"{reference.function} takes {least + 1} to {most + 1} arguments, not {len(arguments) + 1}")
    return read(table, arguments)


def _query(table: Table, arguments: tuple[Value, ...]) -> Scan:
    query_type = _choice("hudi_query", arguments, "snapshot", ("snapshot", "read_optimized"))
    return table.scan(["*"]) if query_type == "snapshot" else table.read_optimized(["*"])


def _changes(table: Table, arguments: tuple[Value, ...]) -> Scan:
    format_name = _choice("hudi_table_changes", arguments, "", ("latest_state", "cdc"))
    start, end = str(arguments[1]), None if len(arguments) < 3 else str(arguments[2])
    options = {read_options.INCREMENTAL_FORMAT.key: "cdc"} if format_name == "cdc" else None
    return table.incremental(start, end, None if format_name == "cdc" else ["*"], options=options)


def _timeline(table: Table, arguments: tuple[Value, ...]) -> pa.Table:
    if _choice("hudi_query_timeline", arguments, "false", ("true", "false")) == "true":
        raise Unsupported("hudi_query_timeline of the archived timeline; use CALL show_archived_commits")
    store = table.context.timeline
    rows = []
    for instant in store.load().instants:
        stats: list[WriteStat] = []
        if instant.is_completed and instant.action in COMMIT_LIKE:
            stats = [one for part in read_commit(store, instant).partition_to_write_stats.values() for one in part]
        counted = instant.is_completed and instant.action in COMMIT_LIKE
        partitions = {one.partition_path for one in stats}
        figures = (
            sum(one.total_write_bytes for one in stats),
            sum(one.prev_commit != NO_PREVIOUS_COMMIT for one in stats),
            len(partitions),
            sum(one.num_writes for one in stats),
            sum(one.num_update_writes for one in stats),
            sum(one.total_write_errors for one in stats),
        )
        named = (instant.request_time, str(instant.action), instant.state.name, instant.completion_time, instant.file_name())
        rows.append(dict(zip(_TIMELINE.names, (*named, *(figures if counted else (None,) * 6)), strict=True)))
    return pa.Table.from_pylist(rows, schema=_TIMELINE)


_TIMELINE = pa.schema(
    [(name, pa.string()) for name in ("Timestamp", "Action", "State", "Completion_Time", "File_Name")]
    + [
        (name, pa.int64())
        for name in (
            "Total_Bytes_Written",
            "Total_Files_Updated",
            "Total_Partitions_Written",
            "Total_Records_Written",
            "Total_Updated_Records_Written",
            "Total_Write_Errors",
        )
    ]
)


def _file_slices(table: Table, arguments: tuple[Value, ...]) -> pa.Table:
    procedures = features.load("procedures", "hudi_filesystem_view")
    view = procedures.PROCEDURES["show_fsview_all"]
    chosen = {"path_regex": str(arguments[0]).strip("/")} if arguments else {}
    call = procedures.ProcedureCall(table.uri, None, table, view.check({"limit": 2**31 - 1, **chosen}), None)
    rows: pa.Table = view.run(call)
    return rows.select(list(_FILE_SLICE_COLUMNS)).rename_columns(list(_FILE_SLICE_COLUMNS.values()))


_FILE_SLICE_COLUMNS = {
    "file_id": "File_ID",
    "partition": "Partition_Path",
    "base_instant": "Base_Instant_Time",
    "data_file": "Base_File_Path",
    "data_file_size": "Base_File_Size",
    "num_delta_files": "Log_File_Count",
    "total_delta_file_size": "Log_File_Size",
}
"""Columns of procedure show_fsview_all, and their names in hudi_filesystem_view."""


def _metadata(table: Table, arguments: tuple[Value, ...]) -> pa.Table:
    return metadata_rows(table)


def _vector_search(table: Table, arguments: tuple[Value, ...]) -> pa.Table:
    rows: pa.Table = features.load("vector_search", "hudi_vector_search").search_function(table, arguments)
    return rows


def _choice(function: str, arguments: tuple[Value, ...], default: str, words: tuple[str, ...]) -> str:
    """The first argument, which is one of some words."""
    choice = str(arguments[0]).lower() if arguments else default
    if choice not in words:
        raise InvalidRequest(f"{function} takes {' or '.join(map(repr, words))}, not {arguments[0]!r}")
    return choice


_FUNCTIONS: Mapping[str, tuple[Callable[[Table, tuple[Value, ...]], Scan | pa.Table], int, int]] = {
    "hudi_query": (_query, 0, 1),
    "hudi_table_changes": (_changes, 2, 3),
    "hudi_query_timeline": (_timeline, 0, 1),
    "hudi_filesystem_view": (_file_slices, 0, 1),
    "hudi_metadata": (_metadata, 0, 0),
    "hudi_vector_search": (_vector_search, 3, 4),
}
