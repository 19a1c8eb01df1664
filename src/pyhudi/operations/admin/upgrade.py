"""Table versions: a table's upgrade, and its downgrade, as a chain of steps from one version to the next.

The steps, and what each does, are in `versions`.  Before the first one changes anything all are asked whether they can take the
table.  A crash leaves a table of one of the versions on the way, with all its rows, and the next attempt goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.table_versions import TableVersion
from pyhudi.operations.admin.versions import STEPS, steps_between, versions
from pyhudi.operations.admin.versions.version_step import Direction, StepContext, VersionChange
from pyhudi.operations.commit.check_writable import check_no_schema_on_read
from pyhudi.operations.commit.events import observed
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.table.feature_support import check_not_bootstrapped, check_open
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine


@observed("upgrade")
def run_upgrade(
    context: TableContext, engine: Engine, settings: CompactSettings, compression: str, to: TableVersion | None = None
) -> VersionChange:
    """Make a table one of a later version.

    to: None for the version of the tables that PyHudi makes, or the table's own where that is later.  compression: of the
    history's files, as Arrow calls it.  Nobody else may write meanwhile.
    Raises TableState while a restore is pending or a writer lives, Unsupported for tables that the version cannot hold,
    InvalidRequest for one below the table's, CorruptData for instants or an archive that cannot be read; the table is then as it
    was.
    """
    context = context.reloaded()
    version = context.config.version
    target = max(version, TableVersion.current()) if to is None else _known(to)
    if target < version:
        raise InvalidRequest(
            f"the table at {context.storage.uri} has version {int(version)}; a downgrade makes it one of {int(target)}"
        )
    check_open(context)
    check_no_schema_on_read(context)
    check_not_bootstrapped(context)
    taken = [step.upward for step in steps_between(version, target)]
    return _go(context, StepContext(engine, settings, compression), taken, [step.upward for step in STEPS])


@observed("downgrade")
def run_downgrade(
    context: TableContext, engine: Engine, settings: CompactSettings, to: TableVersion | None = None
) -> VersionChange:
    """Make a table one of an earlier version.  to: None for the one below.

    Raises TableState while a restore, an index build or a clustering of a merge-on-read table is pending, or another process
    writes; Unsupported for tables that the version cannot hold, InvalidRequest for one above the table's.
    """
    context = context.reloaded()
    version = context.config.version
    target = lower_version(version) if to is None else _known(to)
    if target > version:
        raise InvalidRequest(
            f"the table at {context.storage.uri} has version {int(version)}; an upgrade makes it one of {int(target)}"
        )
    taken = [step.downward for step in reversed(steps_between(version, target))]
    if taken:
        check_no_schema_on_read(context)
    return _go(context, StepContext(engine, settings, ""), taken, [step.downward for step in STEPS])


def lower_version(version: TableVersion) -> TableVersion:
    """The version that a downgrade ends in unless another one is asked for: the one below, itself for the lowest."""
    return max((known for known in versions() if known < version), default=version)


def _go(
    context: TableContext, step_context: StepContext, taken: Sequence[Direction], every: Iterable[Direction]
) -> VersionChange:
    """Take some ways one after the other, when all of them can be taken.  every: all in that direction, of which the one that
    ends in the table's version may have died before its end.
    """
    for way in taken:
        way.check(context)
    with context.locked(step_context.lock_wait_ms) as held:
        held = held.reloaded()
        for way in every:
            if way.end is held.config.version:
                way.finish(held)
    version = int(context.config.version)
    done = VersionChange(version, version)
    for way in taken:
        done = done.combine(way.run(context.reloaded(), step_context))
    return done


def _known(version: TableVersion) -> TableVersion:
    if version not in versions():
        raise Unsupported(
            f"no table is brought to version {int(version)}; to {', '.join(str(int(known)) for known in versions())} some are"
        )
    return version
