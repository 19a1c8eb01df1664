"""Random tables that PyHudi and Apache Hudi write in turn; tests/simulation/attack/random_tables/compared_with_hudi.py explores
other seeds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.oracle import ApacheHudi
from tests.simulation.attack.random_tables.compared_with_hudi import run_alternation

pytestmark = [pytest.mark.interop, pytest.mark.wide]


@pytest.mark.parametrize("seed", (300, 301, 303))
def test_random_tables_of_alternating_writers_are_read_by_both(hudi: ApacheHudi, tmp_path: Path, seed: int) -> None:
    failure, _ = run_alternation(hudi, tmp_path, seed, 14, 8)
    assert failure is None, "\n".join((failure.kind, *failure.did, failure.text))


@pytest.mark.parametrize("seed", range(200, 203))
def test_random_version_9_tables_are_read_by_both(newer_hudi: ApacheHudi, tmp_path: Path, seed: int) -> None:
    failure, _ = run_alternation(newer_hudi, tmp_path, seed, 14, 9)
    assert failure is None, "\n".join((failure.kind, *failure.did, failure.text))
