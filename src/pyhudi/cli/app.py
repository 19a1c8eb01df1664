"""The Typer application: commands, common options, exit codes.

Exit codes: 0 success; 1 the table does not allow the operation or is damaged; 2 invalid arguments; 3 conflict with another writer
or storage unavailable, retry; 4 findings (validate, doctor, and repair without --yes).
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from pyhudi.cli import (
    data_commands,
    index_commands,
    ingest_command,
    inspect_commands,
    repair_commands,
    service_commands,
)
from pyhudi.cli.output import in_commands, print_text
from pyhudi.errors import CommitUnknown, EngineFailed, HudiError, InvalidRequest, StorageUnavailable, WriteConflict
from pyhudi.options.plugins import load_plugin

EXIT_CODES = (
    "Exit codes: 0 success; 1 the table does not allow the operation or is damaged; 2 invalid arguments; 3 conflict with another "
    "writer or storage unavailable: retry; 4 findings (validate, doctor, repair without --yes)."
)

app = typer.Typer(
    name="pyhudi",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Inspect and maintain Apache Hudi tables. TABLE is a path or an object store URI.",
    epilog=EXIT_CODES,
)
inspect_commands.add_to(app)
data_commands.add_to(app)
service_commands.add_to(app)
repair_commands.add_to(app)
index_commands.add_to(app)
ingest_command.add_to(app)


def _print_version(requested: bool) -> None:  # noqa: FBT001 - signature required by Typer
    if requested:
        from pyhudi import __version__

        print_text(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Import a module that registers mergers, payloads or strategies; may be repeated."),
    ] = None,
) -> None:
    """Inspect and maintain Apache Hudi tables."""
    for module in plugin or ():
        load_plugin(module)


def run() -> None:
    """Run the command line; a HudiError is printed as one message and sets the exit code."""
    # Clients log errors that the command reports itself; without a handler Python prints them to standard error.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    try:
        app()
    except HudiError as error:
        print_text(f"{type(error).__name__}: {in_commands(str(error))}", error=True)
        sys.exit(_exit_code(error))


def _exit_code(error: HudiError) -> int:
    if isinstance(error, InvalidRequest):
        return 2
    if isinstance(error, (WriteConflict, StorageUnavailable, CommitUnknown, EngineFailed)):
        return 3
    return 1
