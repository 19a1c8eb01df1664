"""Arguments and options shared by commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from pyhudi.api.table import Table
from pyhudi.cli.output import Format
from pyhudi.errors import InvalidRequest
from pyhudi.options.table_options import STORED_OPTIONS
from pyhudi.sql_engine.sql_ast import TableName
from pyhudi.sql_engine.sql_catalog import stored_table

FINDINGS = 4
"""Exit code of a check with findings."""

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="Path or URI of the table, or its name in a catalog: lake.sales.trips.")
]
OutputOption = Annotated[Format, typer.Option("--output", "-o", help="Output format.")]
OptionsOption = Annotated[
    list[str] | None, typer.Option("--option", "-O", metavar="KEY=VALUE", help="A hoodie.* option; may be repeated.")
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option("--storage", "-S", metavar="KEY=VALUE", help="A storage option (credentials, endpoint); may be repeated."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Execute. Without it the command only reports what it would do.")]


def open_table(uri: str, storage: list[str] | None = None, options: Mapping[str, str] | None = None) -> Table:
    """Open the table of a command."""
    stored = stored_table(table_name(uri))
    table: Table = Table(uri, parse_pairs(storage), options) if stored is None else stored.open(parse_pairs(storage), options)
    return table


def split_names(text: str | None) -> list[str] | None:
    """Return names with commas between them; None if there is no text."""
    return [name.strip() for name in text.split(",")] if text else None


def table_name(text: str) -> TableName:
    """The name that an argument may be."""
    return TableName(tuple(text.split(".")))


def open_for_call(uri: str, storage: list[str] | None, options: list[str] | None) -> tuple[Table, dict[str, str]]:
    """Open the table of a command, and parse the options, which are passed with the call and validated there.

    The use of stored options is one of the table.
    """
    parsed = parse_pairs(options)
    of_table = {key: parsed.pop(key) for key in (STORED_OPTIONS.key,) if key in parsed}
    return open_table(uri, storage, of_table), parsed


def parse_pairs(pairs: list[str] | None) -> dict[str, str]:
    """Parse `KEY=VALUE` strings.  Raises InvalidRequest for a string without `=`."""
    values: dict[str, str] = {}
    for number, pair in enumerate(pairs or [], 1):
        key, separator, value = pair.partition("=")
        if not separator or not key:
            # The text can be a secret, so it is not shown.
            raise InvalidRequest(f"setting {number} of {len(pairs or ())} is not KEY=VALUE")
        values[key] = value
    return values
