"""Decoders take little memory for small inputs that claim much."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.bombs import BOMBS, SLOW


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")
def test_small_inputs_do_not_fill_memory() -> None:
    run = subprocess.run([sys.executable, "-m", "tests.support.bombs"], capture_output=True, text=True, check=True)
    outcomes = json.loads(run.stdout)
    assert {name: outcome for name, outcome in outcomes.items() if not outcome.startswith("HudiError")} == dict.fromkeys(
        SLOW, "no error"
    )
    assert len(outcomes) == len(BOMBS) + len(SLOW)
