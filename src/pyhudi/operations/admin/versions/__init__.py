"""The steps between table versions, one file each, behind one interface (`base`).

six_eight.py     6 <-> 8: another timeline layout, another archive, other names of log files
eight_nine.py    8 <-> 9: payload classes become merge modes, index definitions get versions

base.py       what a step is: `VersionStep`, `Means`, `VersionChange`; what every step waits for
layouts.py    instants and archive of layout 1 as those of layout 2, and back

A new version is one more file with one more step.
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
