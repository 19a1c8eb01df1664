"""Which tests `make check` leaves to `make test`, by what each took in a run of all: tests/slow.txt, one name a line.

    .venv/bin/python -m pytest -n 2 -m 'not spark and not interop' --junit-xml=report.xml tests
    .venv/bin/python -m tests.slow report.xml

That makes the list anew.  The report of a run with `-m 'not slow'`, which takes minutes, adds to it those of the quick tests that
have become too long together; do so when `make check` has grown, on a machine that does nothing else:

    .venv/bin/python -m pytest -m 'not slow' --junit-xml=report.xml tests/unit tests/conformance tests/test_*.py
    .venv/bin/python -m tests.slow report.xml

A name is the path of a test with dots, without the values of its cases.  Tests that are not in the list are quick.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

_LIST = Path(__file__).with_suffix(".txt")
# What the quick tests may take together, in the seconds of the run that was measured: a half of it on each of two cores.
BUDGET = 60.0
# Left out as a whole.
SLOW_FOLDERS = frozenset({"simulation", "model", "checker", "servers", "attack"})


def slow_tests() -> frozenset[str]:
    """The names of the list."""
    return frozenset(_LIST.read_text().split())


def name_of(node: str) -> str:
    """The name of the test with this node id: 'tests/unit/test_a.py::TestB::test_c[1-2]' is 'tests.unit.test_a.TestB.test_c'."""
    return node.split("[")[0].replace(".py::", ".").replace("::", ".").replace("/", ".")


def slowest(seconds: Mapping[str, float], budget: float = BUDGET) -> list[str]:
    """The longest tests, so many that the others take `budget` seconds together at most, in the order of their names."""
    left, names = sum(seconds.values()), []
    for name in sorted(seconds, key=lambda name: -seconds[name]):
        if left <= budget:
            break
        left -= seconds[name]
        names.append(name)
    return sorted(names)


def renewed(listed: frozenset[str], seconds: Mapping[str, float], budget: float = BUDGET) -> list[str]:
    """The list by a new run: `slowest`, and what is in the list already when nothing of it was run."""
    kept = listed if listed.isdisjoint(seconds) else frozenset()
    return sorted({*kept, *slowest(seconds, budget)})


def taken(report: Path, leave_out: tuple[str, ...]) -> dict[str, float]:
    """Seconds of each test in a JUnit report, all of its cases together, without those below the folders `leave_out`."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{str(case.get('name')).split('[')[0]}"
        if not name.startswith(leave_out):
            seconds[name] += float(case.get("time", 0))
    return seconds


if __name__ == "__main__":
    apart = tuple(f"tests.{folder}." for folder in sorted(SLOW_FOLDERS | {"spark", "interop"}))
    names = renewed(slow_tests(), taken(Path(sys.argv[1]), apart))
    _LIST.write_text("".join(f"{name}\n" for name in names))
    print(f"{len(names)} names written to {_LIST}")
