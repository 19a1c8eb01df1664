"""Readers of files with damaged bytes: `python -m tests.simulation.attack.mutants` runs any number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.attack.mutants import KINDS, attack, subject
from tests.support.needs import WIDE


@pytest.mark.sample(4)
@pytest.mark.parametrize("place", ["memory", "local"])
@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files_give_correct_rows_or_an_error(kind: str, place: str, tmp_path: Path) -> None:
    folder = str(tmp_path) if place == "local" else f"memory://mutants-{kind.replace(' ', '-')}"
    found = list(attack([subject(kind, folder)], seed=1, first=0, count=40 if WIDE else 15))
    assert [(mutant, became) for mutant, became in found if became.startswith("WRONG")] == []
    assert "CorruptData" in {became for _, became in found}
