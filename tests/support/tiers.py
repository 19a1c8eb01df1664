"""Test tiers: which tests a run selects.  The directory of a test decides its tier, so there is no list of slow tests.

The environment variable PYHUDI_TIER selects the tier of a run:

    smoke   `make test`: everything but combination runs; of spark/ and interop/ only what is below their folder smoke/
    rest    what smoke leaves out and full contains
    full    `make test-full`, and the default of a plain `pytest`: smoke and rest
    wide    `make test-wide`: full, every combination of parameters, and more seeds
"""

from __future__ import annotations

import os
from collections.abc import Collection
from enum import StrEnum
from pathlib import PurePosixPath
from zlib import crc32

# The first folder below tests/ to the markers of its tests.
MARKERS = {
    "unit": "unit",
    "component": "component",
    "golden": "component",
    "conformance": "component",
    "simulation": "simulation",
    "spark": "spark",
    "interop": "interop",
    "servers": "servers",
}
# Modules directly below tests/ that `make check` runs in addition to tests/unit.
CHECKS = frozenset({"test_layers.py", "test_module_imports.py"})
# Tests in these folders need a JVM; they are in the smoke tier only below <folder>/smoke/.
JVM_FOLDERS = frozenset({"spark", "interop", "servers"})


class Tier(StrEnum):
    """A value of PYHUDI_TIER."""

    SMOKE = "smoke"
    REST = "rest"
    FULL = "full"
    WIDE = "wide"


def tier_of(value: str) -> Tier:
    """The tier that a value of PYHUDI_TIER names; FULL if the value is empty."""
    try:
        return Tier(value) if value else Tier.FULL
    except ValueError:
        raise ValueError(f"PYHUDI_TIER is {value!r}: unknown tier. Use one of {', '.join(Tier)}.") from None


TIER = tier_of(os.environ.get("PYHUDI_TIER", ""))


def markers_of_path(path: str) -> tuple[str, ...]:
    """The markers that a test module gets from its path relative to tests/, for example `spark/smoke/test_read.py`."""
    folders = PurePosixPath(path).parts[:-1]
    if path in CHECKS:
        return ("unit",)
    if not folders or folders[0] not in MARKERS:
        return ()
    markers = [MARKERS[folders[0]]]
    if folders[0] in JVM_FOLDERS and folders[1:2] != ("smoke",):
        markers.append("full")
    return tuple(markers)


def beyond_sample(test: str, count: int, size: int) -> set[int]:
    """Of the cases 0 to `count` - 1 of a test those that the smoke tier leaves out; it takes `size` of them, evenly spaced.

    A single case depends on the name of the test, so that not every test takes its first one, a copy-on-write table for example.
    """
    if size >= count:
        return set()
    taken = {crc32(test.encode()) % count} if size == 1 else {round(number * (count - 1) / (size - 1)) for number in range(size)}
    return set(range(count)) - taken


def may_hold_selected(path: str, tier: Tier) -> bool:
    """Whether a run of `tier` includes tests of the module with this path relative to tests/."""
    return tier is not Tier.SMOKE or "full" not in markers_of_path(path)


def is_selected(markers: Collection[str], tier: Tier) -> bool:
    """Whether a run of `tier` includes a test with these markers."""
    if "wide" in markers:
        return tier is Tier.WIDE
    if "full" in markers:
        return tier is not Tier.SMOKE
    return tier is not Tier.REST
