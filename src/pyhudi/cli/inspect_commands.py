"""Read-only commands."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from pyhudi.cli.arguments import OptionsOption, OutputOption, StorageOption, TableArgument, open_for_call, open_table, split_names
from pyhudi.cli.output import Format, print_rows, print_text, print_value
from pyhudi.format.instants import Instant

FilterOption = Annotated[str | None, typer.Option("--filter", "-f", help="Predicate, such as \"fare > 10 and city = 'sf'\".")]
ColumnsOption = Annotated[str | None, typer.Option("--columns", "-c", help="Columns to read, comma separated.")]
AsOfOption = Annotated[str | None, typer.Option("--as-of", help="An instant, a time, or tag:NAME of a savepoint.")]
OnStorageOption = Annotated[
    bool, typer.Option("--on-storage", help="List directories instead of the metadata table; includes uncommitted files.")
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", help="Maximum number, newest first.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (show, timeline, commits, schema, head, explain, files, slices, partitions, stats, log, markers, diff):
        app.command()(command)


def show(table: TableArgument, output: OutputOption = Format.TABLE, storage: StorageOption = None) -> None:
    """Show the table configuration and the latest commit."""
    opened = open_table(table, storage)
    config, line = opened.config, opened.timeline()
    last, pending = line.last_completed_write(), line.pending()
    record_key, partition_by = config.keys.record_fields, [field.name for field in config.keys.partition_fields]
    facts = {
        "name": config.name,
        "uri": opened.uri,
        "type": str(config.table_type),
        "version": int(config.version),
        "record key": list(record_key),
        "partitioned by": partition_by,
        "ordering field": list(config.ordering_fields),
        "merge mode": str(config.merge.mode),
        "metadata table": list(config.metadata_partitions),
        "last write": last and _facts(last),
        "pending": [_facts(instant) for instant in pending],
        "instants": len(line.instants),
        "partitions": len(opened.partitions()),
    }
    if output is not Format.TABLE:
        print_value(facts, output)
        return
    texts = facts | {
        "record key": ",".join(record_key) or "(generated)",
        "partitioned by": ",".join(partition_by) or "(not partitioned)",
        "ordering field": ", ".join(config.ordering_fields) or "(none)",
        "metadata table": ",".join(config.metadata_partitions) or "(off)",
        "last write": last or "(none)",
        "pending": ", ".join(map(str, pending)) or "(none)",
    }
    width = max(len(name) for name in texts)
    print_text("\n".join(f"{name:<{width}}  {value}" for name, value in texts.items()))


def _facts(instant: Instant) -> dict[str, str | None]:
    """Fields of an instant for JSON and CSV."""
    return {
        "instant": instant.request_time,
        "completed": instant.completion_time,
        "action": str(instant.action),
        "state": instant.state.name,
    }


def timeline(
    table: TableArgument, limit: LimitOption = 50, output: OutputOption = Format.TABLE, storage: StorageOption = None
) -> None:
    """Show the active timeline, newest first."""
    instants = list(reversed(open_table(table, storage).timeline().instants))[:limit]
    rows = [
        {
            "requested": i.request_time,
            "completed": i.completion_time or "",
            "action": str(i.action),
            "state": i.state.name,
        }
        for i in instants
    ]
    print_rows(pa.Table.from_pylist(rows, schema=_TIMELINE), output)


def commits(
    table: TableArgument, limit: LimitOption = 20, output: OutputOption = Format.TABLE, storage: StorageOption = None
) -> None:
    """Show completed writes and their statistics, newest first."""
    rows = open_table(table, storage).inspect.commits(limit)
    print_rows(rows.select(list(_COMMITS)).rename_columns(list(_COMMITS.values())), output)


def schema(table: TableArgument, output: OutputOption = Format.TABLE, storage: StorageOption = None) -> None:
    """Show the schema of the latest commit."""
    rows = [{"column": f.name, "type": str(f.type), "nullable": f.nullable} for f in open_table(table, storage).schema()]
    print_rows(pa.Table.from_pylist(rows), output)


def head(
    table: TableArgument,
    columns: ColumnsOption = None,
    filter: FilterOption = None,
    as_of: AsOfOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of rows.")] = 10,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Show some rows."""
    names = split_names(columns)
    opened, given = open_for_call(table, storage, options)
    print_rows(opened.scan(names, filter, as_of, options=given).head(limit), output)


def explain(
    table: TableArgument,
    filter: FilterOption = None,
    columns: ColumnsOption = None,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Explain a read: the file slices to read, and what pruned the others."""
    names = split_names(columns)
    opened, given = open_for_call(table, storage, options)
    print_text(opened.scan(names, filter, options=given).explain())


def files(
    table: TableArgument,
    on_storage: OnStorageOption = False,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """List data files."""
    print_rows(open_table(table, storage).inspect.files(on_storage=on_storage), output)


def slices(table: TableArgument, output: OutputOption = Format.TABLE, storage: StorageOption = None) -> None:
    """List the file slices that a query reads."""
    print_rows(open_table(table, storage).inspect.file_slices(), output)


def partitions(
    table: TableArgument,
    on_storage: OnStorageOption = False,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """List partitions, with files and bytes."""
    print_rows(open_table(table, storage).inspect.partitions(on_storage=on_storage), output)


def stats(table: TableArgument, output: OutputOption = Format.TABLE, storage: StorageOption = None) -> None:
    """Show column statistics of data files."""
    print_rows(open_table(table, storage).inspect.column_stats(), output)


def log(
    table: TableArgument,
    path: Annotated[str, typer.Argument(help="Path of the log file, relative to the table.")],
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """Show the blocks of a log file."""
    print_rows(open_table(table, storage).inspect.log_blocks(path), output)


def markers(table: TableArgument, output: OutputOption = Format.TABLE, storage: StorageOption = None) -> None:
    """List markers: the files that unfinished writes have started."""
    print_rows(open_table(table, storage).inspect.markers(), output)


def diff(
    table: TableArgument,
    start: Annotated[str, typer.Argument(help="Inclusive start: a completion time, or earliest.")],
    end: Annotated[str | None, typer.Argument(help="Inclusive end: a completion time; now by default.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of rows.")] = 100,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """Incremental query: records changed between two completion times."""
    rows = open_table(table, storage).incremental(start, end, ["*"]).to_arrow()
    print_rows(rows.slice(0, limit), output)


_TIMELINE = pa.schema([(name, pa.string()) for name in ("requested", "completed", "action", "state")])
_COMMITS = {
    "request_time": "instant",
    "action": "action",
    "operation": "operation",
    "rows_inserted": "inserted",
    "rows_updated": "updated",
    "rows_deleted": "deleted",
    "files_written": "files",
    "bytes_written": "bytes",
    "file_groups_replaced": "replaced",
}
"""Columns of `Table.inspect.commits` -> headers of the `commits` command."""
