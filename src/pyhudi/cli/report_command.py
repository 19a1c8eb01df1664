"""`pyhudi report`: the health of a table as one HTML page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from pyhudi import features
from pyhudi.cli.arguments import StorageOption, TableArgument, open_table
from pyhudi.cli.output import print_text
from pyhudi.errors import InvalidRequest, visible


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    table: TableArgument,
    to: Annotated[str | None, typer.Option("--to", "-t", metavar="FILE", help="Output file; - is standard output.")] = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Also validate data, metadata table and indexes; opens files.")
    ] = False,
    storage: StorageOption = None,
) -> None:
    """Write a health report as one HTML page, by default to NAME-report.html in the current directory."""
    opened = open_table(table, storage)
    page = visible(
        features.load("report", "pyhudi report").render_report(opened, validation=opened.validate() if validate else None)
    )
    if to == "-":
        sys.stdout.write(page)
        return
    # Any writer can set the table name: sanitize it, to prevent path traversal.
    path = Path(to or f"{re.sub(r'[^A-Za-z0-9_-]+', '_', opened.name).strip('_')[:100] or 'table'}-report.html")
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot write {path}: {error.strerror}; choose another file with --to") from error
    print_text(f"report of {opened.uri} written to {path}")
