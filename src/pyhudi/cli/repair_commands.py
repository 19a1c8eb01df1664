"""Commands for diagnosis, repair and reports, and Hudi's stored procedures."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from pyhudi import features
from pyhudi.api.doctor import diagnose
from pyhudi.cli.arguments import (
    FINDINGS,
    OptionsOption,
    OutputOption,
    StorageOption,
    TableArgument,
    YesOption,
    open_for_call,
    open_table,
    parse_pairs,
)
from pyhudi.cli.output import Format, print_rows, print_text, print_value
from pyhudi.errors import InvalidRequest, visible
from pyhudi.operations.admin.repair import RepairKind

KindOption = Annotated[list[RepairKind] | None, typer.Option("--only", help="What to repair; may be repeated. All by default.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (repair, doctor, report, call, procs):
        app.command()(command)


def repair(
    table: TableArgument,
    only: KindOption = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="KEY=VALUE", help="A lost property that cannot be inferred from files; may be repeated."
        ),
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Accept the loss of committed files that are missing or damaged.")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Repair the timeline, properties, dead writes, partition metadata, orphan files and the metadata table.

    Stops with an error that lists committed files that are missing or damaged, unless --accept-loss is passed.
    Only reports what it would do, unless --yes is passed. A dry run with findings has exit code 4. With --property, a
    missing hoodie.properties (and backup) is restored from the data files; then run the command again without it.
    """
    if properties:
        restored = features.load("recovery", "pyhudi repair --properties").restore_properties(
            table, parse_pairs(properties), dry_run=not yes, storage_options=parse_pairs(storage), options=parse_pairs(options)
        )
        print_value(restored, output)
        if not yes:
            raise typer.Exit(FINDINGS)
        return
    opened, given = open_for_call(table, storage, options)
    result = opened.repair(only or None, dry_run=not yes, accept_loss=accept_loss, options=given)
    print_value(result, output)
    if not yes and result.steps:
        raise typer.Exit(FINDINGS)


def doctor(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Path or URI of a table to diagnose.")] = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Diagnose the environment and, optionally, a table; each finding has a remedy.

    Pass the options with which the table is written. Exit code 4 if there are findings.
    """
    # The options are diagnosed, so the table is opened without them.
    result = diagnose(None if table is None else open_table(table, storage), parse_pairs(options))
    if output is Format.TABLE:
        print_text(result)
    else:
        print_rows(result.to_arrow(), output)
    if not result.ok:
        raise typer.Exit(FINDINGS)


def call(
    procedure: Annotated[str, typer.Argument(help="Name of the procedure, such as show_commits; `procs` lists them.")],
    table: TableArgument,
    arguments: Annotated[
        list[str] | None, typer.Option("--argument", "-a", metavar="KEY=VALUE", help="An argument; may be repeated.")
    ] = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """Run one of Hudi's stored procedures."""
    given: dict[str, object] = dict(parse_pairs(arguments))
    print_rows(_procedures().call(procedure, path=table, storage_options=parse_pairs(storage), **given), output)


def procs(procedure: Annotated[str | None, typer.Argument(help="Name of the procedure; all by default.")] = None) -> None:
    """List the procedures that `call` runs, with their arguments and columns."""
    procedures = _procedures()
    for name in procedures.NAMES if procedure is None else (procedure,):
        print_text(procedures.describe(name) if procedure else procedures.describe(name).splitlines()[0])


def _procedures() -> ModuleType:
    return features.load("procedures", "pyhudi call")


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
