"""`pyhudi index list|create|drop|rebuild`: the indexes of a table."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from pyhudi.cli.arguments import (
    OptionsOption,
    OutputOption,
    StorageOption,
    TableArgument,
    YesOption,
    open_for_call,
    open_table,
    parse_pairs,
    split_names,
)
from pyhudi.cli.output import Format, print_rows, print_text
from pyhudi.operations.services.index_admin import IndexInfo

NameArgument = Annotated[str, typer.Argument(help="Name of the index, such as record_index or secondary_index_by_city.")]


def add_to(app: typer.Typer) -> None:
    """Add the group of commands of this module."""
    group = typer.Typer(no_args_is_help=True, help="List, create, drop and rebuild indexes.")
    group.command("list")(list_indexes)
    for command in (create, drop, rebuild):
        group.command()(command)
    app.add_typer(group, name="index")


def list_indexes(table: TableArgument, output: OutputOption = Format.TABLE, storage: StorageOption = None) -> None:
    """List the indexes: ready, being built and scheduled."""
    print_rows(_rows(open_table(table, storage).index.list()), output)


def create(
    table: TableArgument,
    index_type: Annotated[
        str, typer.Argument(help="record_index, column_stats, partition_stats, bloom_filters or secondary_index.")
    ],
    columns: Annotated[str | None, typer.Option("--columns", "-c", help="Columns, comma separated.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of a secondary or expression index.")] = None,
    function: Annotated[str | None, typer.Option("--function", help="Makes it an expression index.")] = None,
    function_options: Annotated[
        list[str] | None, typer.Option("--function-option", metavar="KEY=VALUE", help="Such as format=yyyy-MM; may be repeated.")
    ] = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Build an index; writers can continue concurrently."""
    opened, given = open_for_call(table, storage, options)
    info = opened.index.create(
        index_type,
        split_names(columns),
        name=name,
        function=function,
        function_options=parse_pairs(function_options) or None,
        options=given,
    )
    print_rows(_rows((info,)), output)


def drop(
    table: TableArgument,
    name: NameArgument,
    yes: YesOption = False,
    storage: StorageOption = None,
) -> None:
    """Drop an index."""
    opened = open_table(table, storage)
    if not yes:
        print_text(f"would drop the index {name} of {opened.uri}; pass --yes to drop it")
        return
    opened.index.drop(name)
    print_text(f"index {name} dropped")


def rebuild(
    table: TableArgument,
    name: Annotated[str | None, typer.Argument(help="Name of the index; by default the whole metadata table.")] = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Rebuild an index, or the whole metadata table, from the table's files."""
    opened, given = open_for_call(table, storage, options)
    built = opened.index.rebuild(name, options=given)
    print_rows(pa.table({"built": pa.array(built, pa.string())}), output)


def _rows(infos: tuple[IndexInfo, ...]) -> pa.Table:
    names = ("name", "kind", "columns", "function", "state", "instant")
    rows = [
        {
            "name": info.name,
            "kind": info.kind,
            "columns": ",".join(info.columns),
            "function": info.function,
            "state": info.state,
            "instant": info.instant or "",
        }
        for info in infos
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in names]))
