"""Upgrade and downgrade of the table version, as a chain of steps between adjacent versions.

`versions` implements the steps. Before the first change, all steps check that they can convert the table. A crash
leaves a valid table of one of the intermediate versions, with all rows, and the next attempt continues from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.hudi_types import HUDI_TYPE
from pyhudi.format.table_versions import TableVersion
from pyhudi.operations.admin.versions import STEPS, steps_between, versions
from pyhudi.operations.admin.versions.version_step import Direction, StepContext, VersionChange
from pyhudi.operations.commit.check_writable import check_no_schema_on_read
from pyhudi.operations.commit.events import observed
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.table.feature_support import check_not_bootstrapped, check_open
from pyhudi.table.snapshot import check_no_external_files, load_schema
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine


@observed("upgrade")
def run_upgrade(
    context: TableContext, engine: Engine, settings: CompactSettings, compression: str, to: TableVersion | None = None
) -> VersionChange:
    """Upgrade a table to a later version. No other process may write concurrently.

    Args:
        settings: Settings of compactions.
        compression: Compression codec of history files, by its Arrow name.
        to: Target version; None for the version of new tables, or the table's own if that is later.

    Raises:
        TableState: A restore is pending, or a writer is alive. The table is unchanged.
        Unsupported: The target version cannot represent the table. The table is unchanged.
        InvalidRequest: The target is below the table's version.
        CorruptData: Instants or the archive are unreadable. The table is unchanged.
    """
    context = context.reloaded()
    version = context.config.version
    target = max(version, TableVersion.current()) if to is None else _known(to)
    if target < version:
        raise InvalidRequest(
            f"the table at {context.storage.uri} has version {int(version)}; use a downgrade for version {int(target)}"
        )
    check_open(context)
    check_no_schema_on_read(context)
    check_not_bootstrapped(context)
    directions = [step.upward for step in steps_between(version, target)]
    if directions:
        check_no_external_files(context)
    return _run_steps(context, StepContext(engine, settings, compression), directions, [step.upward for step in STEPS])


@observed("downgrade")
def run_downgrade(
    context: TableContext, engine: Engine, settings: CompactSettings, to: TableVersion | None = None
) -> VersionChange:
    """Downgrade a table to an earlier version.

    Args:
        settings: Settings of compactions.
        to: Target version, None for the next lower one.

    Raises:
        TableState: A restore, an index build or a clustering of a merge-on-read table is pending, or another process
            writes.
        Unsupported: The target version cannot represent the table.
        InvalidRequest: The target is above the table's version.
    """
    context = context.reloaded()
    version = context.config.version
    target = lower_version(version) if to is None else _known(to)
    if target > version:
        raise InvalidRequest(
            f"the table at {context.storage.uri} has version {int(version)}; use an upgrade for version {int(target)}"
        )
    directions = [step.downward for step in reversed(steps_between(version, target))]
    if directions:
        check_no_schema_on_read(context)
        check_no_external_files(context)
    if not target.has_hudi_types:
        _check_no_hudi_types(context, target)
    return _run_steps(context, StepContext(engine, settings, ""), directions, [step.downward for step in STEPS])


def _check_no_hudi_types(context: TableContext, target: TableVersion) -> None:
    """Raise Unsupported for a column of a type that no release for table version 6 knows."""
    schema = load_schema(context.timeline, context.timeline.load(), context.config)
    for field in schema.arrow if schema is not None else ():
        name = (field.metadata or {}).get(HUDI_TYPE)
        if name is not None:
            raise Unsupported(
                f"the table at {context.storage.uri} cannot have version {int(target)}: column {field.name!r} has the "
                f"type {name.decode()}, which releases for that version read as bytes"
            )


def lower_version(version: TableVersion) -> TableVersion:
    """Return the default target of a downgrade: the next lower version, or the version itself if it is the lowest."""
    return max((known for known in versions() if known < version), default=version)


def _run_steps(
    context: TableContext, step_context: StepContext, directions: Sequence[Direction], every: Iterable[Direction]
) -> VersionChange:
    """Run some steps in order, after all of them have checked the table.

    Args:
        step_context: Inputs of the steps.
        directions: The steps to run.
        every: All steps in this direction. The one that ends in the table's version may have died before its cleanup.
    """
    for direction in directions:
        direction.check(context)
    with context.locked(step_context.lock_wait_ms) as locked:
        locked = locked.reloaded()
        for direction in every:
            if direction.end is locked.config.version:
                direction.finish(locked)
    version = int(context.config.version)
    done = VersionChange(version, version)
    for direction in directions:
        done = done.combine(direction.run(context.reloaded(), step_context))
    return done


def _known(version: TableVersion) -> TableVersion:
    if version not in versions():
        raise Unsupported(
            f"version {int(version)} is not a possible target; use one of {', '.join(str(int(known)) for known in versions())}"
        )
    return version
