"""Simulations: a test with the marker `crash_points` runs once per share of its crash points (tests/support/shares.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.support.shares import EACH_SHARE, taking


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Split the tests that kill an operation at many calls."""
    if metafunc.definition.get_closest_marker("crash_points"):
        metafunc.fixturenames.append("share")
        metafunc.parametrize(*EACH_SHARE.args, indirect=True)


@pytest.fixture(autouse=True)
def active_share(request: pytest.FixtureRequest) -> Iterator[None]:
    """The share of the crash points that a test takes."""
    share = getattr(request.node, "callspec", None) and request.node.callspec.params.get("share")
    with taking(share) if share else nullcontext():
        yield
