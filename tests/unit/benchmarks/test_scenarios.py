from __future__ import annotations

import pytest

from benchmarks.peers.base import Peer
from benchmarks.peers.pyhudi_embedded import PyHudiEmbedded
from benchmarks.scenarios import CHECK, SCENARIOS, select
from benchmarks.systems import BY_NAME


@pytest.mark.parametrize("scenario", [*SCENARIOS, CHECK], ids=lambda scenario: scenario.name)
def test_every_step_has_a_method_and_every_system_exists(scenario) -> None:  # type: ignore[no-untyped-def]
    for kind, steps in scenario.steps.items():
        assert len({step.name for step in steps}) == len(steps)
        for step in steps:
            assert hasattr(PyHudiEmbedded, step.method) or hasattr(Peer, step.method)
            assert set(step.systems) <= set(scenario.systems)
        assert select(scenario, kind, "full") == steps
    assert {name for name in scenario.systems if name not in BY_NAME} <= {"before"}


def test_steps_of_interest_come_with_the_writes_before_them() -> None:
    scenario = SCENARIOS[0]
    names = [step.name for step in select(scenario, "mor", "quick", ("full-read",))]
    assert names == ["bulk-insert", "upsert-10", "small", "track-changes", "last", "full-read"]
    assert [step.name for step in select(scenario, "mor", "full", ("upsert-1",))] == ["bulk-insert", "upsert-1"]
    assert select(scenario, "mor", "quick", ("no-such",)) == ()
