"""Upgrade and downgrade steps between table versions, one module each, with the common interface `VersionStep`.

v6_v8.py              6 <-> 8: another timeline layout, another archive, other names of log files
v8_v9.py              8 <-> 9: payload classes become merge modes, index definitions get versions

version_step.py       the interface: `VersionStep`, `StepContext`, `VersionChange`; preconditions of every step
timeline_layouts.py   conversion of instants and archive between timeline layouts 1 and 2

To add a table version, add a module with its step, and the step to `STEPS`.
"""

from __future__ import annotations

from pyhudi.format.table_versions import TableVersion
from pyhudi.operations.admin.versions.v6_v8 import V6V8
from pyhudi.operations.admin.versions.v8_v9 import V8V9
from pyhudi.operations.admin.versions.version_step import VersionStep

STEPS: tuple[VersionStep, ...] = (V6V8(), V8V9())
"""All steps, from the oldest version up."""


def versions() -> tuple[TableVersion, ...]:
    """The versions that a table can be brought to, oldest first."""
    return (STEPS[0].lower, *(step.upper for step in STEPS))


def steps_between(step_size: TableVersion, other: TableVersion) -> tuple[VersionStep, ...]:
    """The steps from the lower of two versions to the higher one."""
    lower, upper = sorted((step_size, other))
    return tuple(step for step in STEPS if lower <= step.lower and step.upper <= upper)
