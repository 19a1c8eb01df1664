"""Commands for table services and administration. Destructive commands only report unless `--yes` is passed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from typing import Annotated

import typer

from pyhudi.cli.arguments import (
    FINDINGS,
    OptionsOption,
    OutputOption,
    StorageOption,
    TableArgument,
    YesOption,
    open_for_call,
    open_table,
    split_names,
)
from pyhudi.cli.output import Format, print_rows, print_text, print_value
from pyhudi.errors import InstantNotFound
from pyhudi.format.table_versions import TableVersion, parse_table_version
from pyhudi.operations.admin.upgrade import lower_version
from pyhudi.operations.admin.validate import ValidationSeverity
from pyhudi.operations.admin.validate_data import ChecksumScope
from pyhudi.operations.commit.rollback import find_rollback_target
from pyhudi.table.tags import resolve_tag

InstantArgument = Annotated[str, typer.Argument(help="Request time of the instant.")]
InstantOption = Annotated[
    str | None, typer.Option("--instant", help="Execute the plan of this instant instead of scheduling one.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (compact, cluster, clean, archive, sync, serve, rollback, savepoint, restore, upgrade, downgrade, validate):
        app.command()(command)


def compact(
    table: TableArgument,
    instant: InstantOption = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Compact: merge log files into base files."""
    opened, given = open_for_call(table, storage, options)
    print_value(opened.compact(instant, options=given), output)


def cluster(
    table: TableArgument,
    instant: InstantOption = None,
    order_by: Annotated[str | None, typer.Option("--order-by", help="Columns to sort by, comma separated.")] = None,
    layout: Annotated[str, typer.Option("--layout", help="linear, zorder or hilbert.")] = "linear",
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Cluster: rewrite file groups to improve sort order and file sizes."""
    columns = split_names(order_by)
    opened, given = open_for_call(table, storage, options)
    print_value(opened.cluster(instant, order_by=columns, layout=layout, options=given), output)


def clean(
    table: TableArgument,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Clean: delete file slices that no query within the retention needs."""
    opened, given = open_for_call(table, storage, options)
    print_value(opened.clean(dry_run=not yes, options=given), output)


def archive(
    table: TableArgument, output: OutputOption = Format.TABLE, storage: StorageOption = None, options: OptionsOption = None
) -> None:
    """Archive: move old instants from the active to the archived timeline. No data is deleted."""
    opened, given = open_for_call(table, storage, options)
    print_value(opened.archive(options=given), output)


def sync(
    table: TableArgument,
    metastore: Annotated[str | None, typer.Option("--metastore", help="URI of the Hive metastore, thrift://host:port.")] = None,
    database: Annotated[str | None, typer.Option("--database", help="Database in the catalog.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Table name in the catalog.")] = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Catalog sync: register the table in a Hive metastore, or in AWS Glue (-O hoodie.datasource.hive_sync.mode=glue)."""
    opened, given = open_for_call(table, storage, options)
    print_value(opened.sync(metastore=metastore, database=database, table=name, options=given), output)


def serve(
    table: TableArgument,
    services: Annotated[str | None, typer.Option("--services", help="Services, comma separated; all by default.")] = None,
    pause: Annotated[float, typer.Option("--pause", min=0.0, help="Seconds between two passes.")] = 30.0,
    once: Annotated[bool, typer.Option("--once", help="Run one pass and exit.")] = False,
    plan: Annotated[bool, typer.Option("--plan/--no-plan", help="Schedule new compactions and clusterings.")] = True,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Run pending and due table services until SIGTERM or SIGINT.

    After the first signal the plan being executed is completed; a second one rolls it back and exits at once. Any number of
    such processes can serve one table.
    """
    opened, given = open_for_call(table, storage, options)
    names = split_names(services)
    stop = threading.Event()

    def on_signal(signum: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    def print_outcomes(outcomes: Mapping[str, str]) -> None:
        for name, outcome in outcomes.items():
            if not outcome.startswith(("not due:", "off:")):
                print_text(f"{name}: {outcome}")
        if once:
            stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        opened.serve(stop, names, pause_seconds=pause, plan=plan, options=given, on_run=print_outcomes)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def rollback(
    table: TableArgument,
    instant: InstantArgument,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """Roll back a write."""
    opened = open_table(table, storage)
    if not yes:
        target = find_rollback_target(opened.context, opened.timeline(), instant)
        print_text(f"would roll back the {target.action} {instant} of {opened.uri}; pass --yes to do it")
        return
    print_value(opened.rollback(instant), output)


def savepoint(
    table: TableArgument,
    instant: Annotated[str | None, typer.Argument(help="Request time of a completed write; the latest by default.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the savepoint of this instant instead.")] = False,
    comments: Annotated[str, typer.Option("--comments", help="Comments of the savepoint.")] = "",
    tag: Annotated[str | None, typer.Option("--tag", help="Tag for time travel: --as-of tag:NAME.")] = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """Create or delete a savepoint, which protects the files of a commit from cleaning."""
    opened = open_table(table, storage)
    if delete:
        if instant is None:
            raise typer.BadParameter("pass the instant whose savepoint is to be deleted")
        opened.delete_savepoint(instant)
        print_text(f"savepoint {instant} deleted")
        return
    print_value(opened.savepoint(instant, comments=comments, tag=tag), output)


def restore(
    table: TableArgument,
    instant: InstantArgument,
    yes: YesOption = False,
    force: Annotated[bool, typer.Option(help="Restore although a process of Hudi writes to the table.")] = False,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """Restore the table to a savepoint or a completed write; later writes are deleted."""
    opened = open_table(table, storage)
    instant = resolve_tag(opened.context, instant)
    if not yes:
        writes = opened.timeline().completed_writes()
        if all(write.request_time != instant for write in writes):
            raise InstantNotFound(f"the active timeline of {opened.uri} has no completed write requested at {instant}")
        later = [write for write in writes if write.request_time > instant]
        print_text(f"would undo {len(later)} writes after {instant} of {opened.uri}; pass --yes to do it")
        return
    print_value(opened.restore(instant, force=force), output)


def upgrade(
    table: TableArgument,
    to: Annotated[int | None, typer.Option(help="8 or 9; 8 by default.")] = None,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """Upgrade the table version: 8, or 9 for Hudi 1.1 and later. Stop its writers first."""
    opened = open_table(table, storage)
    version = opened.config.version
    target = max(version, TableVersion.current()) if to is None else parse_table_version(str(to))
    if not yes and target > version:
        steps = "" if opened.config.is_cow else ", after a compaction of all log files"
        print_text(f"would upgrade {opened.uri} from version {int(version)} to {int(target)}{steps}; pass --yes to do it")
        return
    print_value(opened.upgrade(to), output)


def downgrade(
    table: TableArgument,
    to: Annotated[int | None, typer.Option(help="8 or 6; by default the version below the table's.")] = None,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """Downgrade the table version: 8 for Hudi 1.0, 6 for earlier releases. Stop its writers first."""
    opened = open_table(table, storage)
    if not yes:
        target = "the version below" if to is None else f"version {to}"
        end = lower_version(opened.config.version) if to is None else parse_table_version(str(to))
        read_only = "" if end.is_writable else ", which PyHudi only reads"
        print_text(
            f"would downgrade {opened.uri}, of version {int(opened.config.version)}, to {target}{read_only}; pass --yes to do it"
        )
        return
    print_value(opened.downgrade(to), output)


def validate(
    table: TableArgument,
    keys: Annotated[bool, typer.Option(help="Check for duplicate keys in a partition; reads all keys.")] = False,
    checksums: Annotated[
        ChecksumScope, typer.Option(help="Base files whose pages are compared with their checksums; `all` reads every file.")
    ] = ChecksumScope.SAMPLE,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
) -> None:
    """Validate data, metadata table and indexes. Exit code 4 if there are mismatches, or checks that could not run."""
    result = open_table(table, storage).validate(keys=keys, checksums=checksums.value)
    if output is Format.TABLE:
        print_text(result)
    elif output is Format.CSV:
        print_rows(result.to_arrow(), output)
    else:
        counts = result.counts
        facts = {
            "uri": result.uri,
            "ok": result.ok,
            "errors": counts[ValidationSeverity.ERROR],
            "warnings": counts[ValidationSeverity.WARNING],
            "unchecked": counts[ValidationSeverity.UNCHECKED],
            "checked": [name for name, _ in result.checks],
            "skipped": list(result.skipped),
            "unverified_bytes": result.unverified_bytes,
            "findings": result.to_arrow().to_pylist(),
            "remedies": list(result.remedies),
        }
        print_value(facts, output)
    if not result.ok:
        raise typer.Exit(FINDINGS)
