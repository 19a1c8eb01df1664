"""What all tests share: markers by folder, Hypothesis profiles, and what to do where Java or the real Hudi is missing."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# Timing of a busy machine must not fail a property test; what a failure found is printed as a line to paste.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

_TESTS = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test in spark/ or interop/ carries the marker of its folder; the slow JVMs come last, so that quick failures show first."""
    ranks = {}
    for item in items:
        folder = item.path.relative_to(_TESTS).parts[0] if item.path.is_relative_to(_TESTS) else ""
        if folder in {"spark", "interop"}:
            item.add_marker(folder)
        ranks[item] = 2 if item.get_closest_marker("interop") else 1 if item.get_closest_marker("spark") else 0
    items.sort(key=lambda item: ranks[item])


def unavailable(kind: str, reason: str) -> None:
    """Skips the test, or fails it where the environment says that `kind` must be there (PYHUDI_REQUIRE=spark,interop)."""
    if kind in os.environ.get("PYHUDI_REQUIRE", "").split(","):
        pytest.fail(f"{kind}: {reason}")
    pytest.skip(f"{kind}: {reason}")
