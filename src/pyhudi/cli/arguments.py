"""Arguments that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from pyhudi.api.table import Table
from pyhudi.cli.output import Format
from pyhudi.errors import InvalidRequest

FINDINGS = 4
"""Exit code of a command that looked for what is wrong, and found something."""

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="Path or URI of the table.")]
OutputOption = Annotated[Format, typer.Option("--output", "-o", help="How to print.")]
OptionsOption = Annotated[
    list[str] | None, typer.Option("--option", "-O", metavar="KEY=VALUE", help="A hoodie.* option; may be repeated.")
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option("--storage", "-S", metavar="KEY=VALUE", help="A storage option (credentials, endpoint); may be repeated."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run/--no-dry-run", help="Only say what would be removed (the default).")]


def open_table(uri: str, storage: list[str] | None = None) -> Table:
    """The table of a command."""
    return Table(uri, parse_pairs(storage))


def open_for_call(uri: str, storage: list[str] | None, options: list[str] | None) -> tuple[Table, dict[str, str]]:
    """The table of a command, and its options: they go with the command's call, which refuses those that have no effect on it."""
    given = parse_pairs(options)
    return open_table(uri, storage), given


def parse_pairs(pairs: list[str] | None) -> dict[str, str]:
    """`KEY=VALUE` strings as a mapping.  Raises InvalidRequest for a string without `=`."""
    found: dict[str, str] = {}
    for number, pair in enumerate(pairs or [], 1):
        key, separator, value = pair.partition("=")
        if not separator or not key:
            # What stands there may be a secret.
            raise InvalidRequest(f"setting {number} of {len(pairs or ())} is not KEY=VALUE")
        found[key] = value
    return found
