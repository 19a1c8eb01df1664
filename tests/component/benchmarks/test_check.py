"""`benchmarks.check`: arithmetic, steps on a few rows, and checkout of the code to compare with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.check import HEAD, MOVED, Pair, judged, measured, published_commit
from benchmarks.check_steps import STEPS, Tables


@pytest.mark.parametrize(
    ("pairs", "ratio", "moved"),
    [
        ([(1.0, 1.2)], 1.2, ""),
        ([(1.0, 1.26)], 1.26, "slower"),
        ([(1.0, 1 / 1.26)], 1 / 1.26, "faster"),
        ([(1.0, MOVED)], MOVED, ""),
        # One pair that something disturbed decides nothing; the median is that of the ratios, not a ratio of medians.
        ([(1.0, 1.0), (1.0, 9.0), (1.0, 1.1)], 1.1, ""),
        ([(1.0, 2.0), (10.0, 10.0), (3.0, 6.0)], 2.0, "slower"),
        ([(0.001, 0.009)], 9.0, ""),
        ([(0.001, 0.02)], 20.0, "slower"),
    ],
)
def test_a_step_has_moved_by_more_than_a_quarter(pairs: list[tuple[float, float]], ratio: float, moved: str) -> None:
    verdict = judged("s", [Pair(*pair) for pair in pairs])
    assert verdict.ratio == pytest.approx(ratio) and verdict.moved == moved


def test_verdicts_as_lines() -> None:
    line = judged("cow-small", [Pair(0.5, 1.0)]).line
    assert line.split() == ["cow-small", "0.500", "1.000", "2.00", "slower"]
    assert len(HEAD) < len(line)


@pytest.mark.parametrize("pairs", [[], [Pair(0.0, 1.0)]])
def test_no_verdict_on_nothing(pairs: list[Pair]) -> None:
    with pytest.raises(ValueError, match="needs processor time"):
        judged("s", pairs)


def test_the_first_round_warms_up_and_the_order_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    class Noting:
        def __init__(self, name: str) -> None:
            self.name = name

        def take(self, step: str) -> float:
            taken.append(self.name)
            return float(len(taken))

    found = measured(Noting("before"), Noting("now"), 2)  # type: ignore[arg-type]
    assert list(found) == list(STEPS) and all(len(pairs) == 2 for pairs in found.values())
    ten = len(STEPS)
    assert taken == ["before", "now"] * ten + ["now", "before"] * ten + ["before", "now"] * ten


def test_ten_steps(tmp_path: Path) -> None:
    tables = Tables(tmp_path / "t", 200)
    assert len(STEPS) == 10
    for step in STEPS:
        assert tables.take(step) > 0


def test_the_published_commit(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"settings": {"commit": "17720f8"}}))
    assert published_commit(results) == "17720f8"
    results.write_text(json.dumps({"settings": {}}))
    with pytest.raises(ValueError, match="--base"):
        published_commit(results)
