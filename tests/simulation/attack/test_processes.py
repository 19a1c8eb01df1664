"""Short runs of real processes that are killed or suspended; each module accepts other seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.attack import flaky, kills, suspensions
from tests.simulation.attack.processes import killed, suspended
from tests.simulation.checker.quick import quickly
from tests.simulation.checker.recorded_schedules import is_known
from tests.support.needs import WIDE


@pytest.mark.full
def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    assert killed(tmp_path, 1, writers=2, turns=2) == []


@pytest.mark.full
def test_suspended_writer_loses_nothing(tmp_path: Path) -> None:
    assert suspended(tmp_path, 1) == []


@pytest.mark.full
@pytest.mark.parametrize("mode", kills.MODES)
def test_successive_kills_lose_nothing(mode: str) -> None:
    # Each mode by itself; by hand some hundreds of each: PYHUDI_KILLS=300.
    in_wide = "200" if mode == "lazy" else "20"
    number = os.environ.get("PYHUDI_KILLS", in_wide if WIDE else "8")
    program = [sys.executable, "-m", "tests.simulation.attack.kills", "--seed", "1", "--kills", number, "--mode", mode]
    done = subprocess.run(program, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_a_full_disk_loses_nothing() -> None:
    program = [sys.executable, "-m", "tests.simulation.attack.full_disk", "--seed", "1", "--rounds", "2"]
    done = subprocess.run(program, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(10 if WIDE else 4))
def test_storage_with_frequent_lost_responses_loses_nothing(seed: int) -> None:
    with quickly():
        schedule, verdict = flaky.attack(seed)
    if not is_known(verdict):
        pytest.fail("\n".join((repr(schedule), *verdict.outcomes, *verdict.faults)))


@pytest.mark.full
@pytest.mark.parametrize("lock", suspensions.LOCKS)
def test_suspended_writer_blocks_others_at_most_for_the_lock_wait(lock: str) -> None:
    every = "1" if WIDE else "60"
    program = [sys.executable, "-m", "tests.simulation.attack.suspensions", "--lock", lock, "--every", every]
    done = subprocess.run(program, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stdout + done.stderr
