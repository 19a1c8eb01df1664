"""Configuration of all tests: markers from paths, the tier of a run, the distribution over workers, profiles of Hypothesis.

tests/support/tiers.py describes the tiers.  A test that goes through many combinations marks the cases that show no rule and no
pair of parts for the first time as `wide`.  Of the cases of a test with the marker `sample(size)` the smoke tier takes `size`,
evenly spaced; the rest carry the marker `full`, as does a test that `make test` has no time for.

Property tests draw the same examples in every run.  To draw others:

    HYPOTHESIS_PROFILE=random .venv/bin/python -m pytest tests/unit     the same number of random examples
    HYPOTHESIS_PROFILE=thorough ...                                     2,000 for each test that states no number
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support import needs
from tests.support.needs import is_unavailable
from tests.support.tiers import JVM_FOLDERS, TIER, beyond_sample, is_selected, markers_of_path, may_hold_selected

# The workers of a run and what the tests start hash texts alike, so that sets have the same order in every run; others by hand:
# PYTHONHASHSEED=random.
os.environ.setdefault("PYTHONHASHSEED", "0")

# Timing of a busy machine must not fail a property test; what a failure found is printed as a line to paste.
_BUSY = hypothesis.settings(deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow])
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "same")
hypothesis.settings.register_profile("same", _BUSY, derandomize=True)
hypothesis.settings.register_profile("random", _BUSY)
hypothesis.settings.register_profile("thorough", _BUSY, max_examples=2000)
hypothesis.settings.load_profile(_PROFILE)
if _PROFILE == "same":
    # Constants in the sources of what is loaded are drawn too, and what is loaded hangs on the tests that ran before.
    patch.object(providers, "_get_local_constants", Constants).start()

_TESTS = Path(__file__).resolve().parent

# Tests make hundreds of thousands of small files, which cost less in memory than on a disk.  PYTEST_DEBUG_TEMPROOT names another
# folder.  A JVM loads native libraries from there.
_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= 4 << 30 and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """Files of this process reach the disk when the system thinks fit: no test cuts the power, and on a busy disk a small write
    spends half of its time in waiting.  What a storage would wait for, tests/unit/storage/test_local.py counts.
    """
    with patch.object(os, "fsync", lambda descriptor: None):
        yield


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules without a test of this tier are not imported."""
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(_TESTS):
        return None
    return None if may_hold_selected(collection_path.relative_to(_TESTS).as_posix(), TIER) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Half a million objects of modules and tests stay until the end: the garbage collector need not look through them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by its path, deselect the tests of other tiers, and put the tests that need a JVM last, so that quick
    failures show first; in a worker of `pytest -n` they come first.
    """
    for path, of_module in itertools.groupby(items, lambda item: item.path):
        markers = markers_of_path(path.relative_to(_TESTS).as_posix()) if path.is_relative_to(_TESTS) else ()
        for item, marker in itertools.product(of_module, markers):
            item.add_marker(marker)
    _mark_beyond_samples(items)
    selected = [item for item in items if is_selected({marker.name for marker in item.iter_markers()}, TIER)]
    if len(selected) < len(items):
        chosen = set(selected)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = sorted(selected, key=_jvms, reverse="PYTEST_XDIST_WORKER" in os.environ)


def _mark_beyond_samples(items: list[pytest.Item]) -> None:
    """Mark the cases of a test with `sample(size)` as `full` that are not in the sample."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") and not (item.get_closest_marker("wide") or item.get_closest_marker("full")):
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    for test, of_test in cases.items():
        marker = of_test[0].get_closest_marker("sample")
        assert marker is not None
        for number in beyond_sample(test, len(of_test), marker.args[0]):
            of_test[number].add_marker("full")


def _jvms(item: pytest.Item) -> int:
    return 2 if item.get_closest_marker("interop") else 1 if item.get_closest_marker("spark") else 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the tests that lack the same Java, Hudi or server as one line of the summary."""
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and is_unavailable(report.longrepr[2].removeprefix("Skipped: ")):
            report.longrepr = (needs.__file__, None, report.longrepr[2])


class JvmsTogether(LoadScopeScheduling):
    """Deals the tests out to workers module by module, so that the fixtures of a module are made once, but those of spark/ to one
    worker, and so those of interop/ and of servers/, at the start: a JVM starts once, and no long group is left to the end.
    """

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        # The base class recounts its records of a worker after each test, which takes longer from test to test.
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]

    def _split_scope(self, nodeid: str) -> str:
        folder = nodeid.split("/")[1]
        return folder if folder in JVM_FOLDERS else nodeid.split("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Callable[..., None]) -> JvmsTogether:
    """For `pytest -n 2`, which `make test` runs."""
    config.option.loadscopereorder = False
    return JvmsTogether(config, log)
