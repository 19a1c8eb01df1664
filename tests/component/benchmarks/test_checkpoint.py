from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.checkpoint import Checkpoint


def test_what_was_finished_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.json"
    first = Checkpoint(path, {"scale": 1, "names": ("a",)}, resume=False)
    first.add("0-cow", [{"seconds": 1.5}])
    second = Checkpoint(path, {"scale": 1, "names": ("a",)}, resume=True)
    assert "0-cow" in second and "0-mor" not in second
    assert second["0-cow"] == [{"seconds": 1.5}]
    assert "0-cow" not in Checkpoint(path, {"scale": 1, "names": ("a",)}, resume=False)
    with pytest.raises(ValueError, match="scale was different"):
        Checkpoint(path, {"scale": 2, "names": ("a",)}, resume=True)
    second.forget()
    assert "0-cow" not in Checkpoint(path, {"scale": 2}, resume=True)
