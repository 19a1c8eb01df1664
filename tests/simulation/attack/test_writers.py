"""A short run of the stress program: writers that count in one table during services, and its check for lost writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.writers.embedded import TURN_AFTER
from benchmarks.writers.run import Plan, run
from benchmarks.writers.violations import Figures, WriterOutput, violations


@pytest.mark.full
@pytest.mark.parametrize("after", [1, pytest.param(0, marks=pytest.mark.wide)])
def test_three_writers_lose_nothing_within_the_retry_limit(tmp_path: Path, after: int) -> None:
    options = {TURN_AFTER: after}
    outcome = run(Plan({"pyhudi": 3}, 6, "mor", "overlapping", options=options), tmp_path, timeout_s=3_600)
    assert outcome.wrong == ()
    assert outcome.figures.commits == 18
    # A writer that has lost so often writes exclusively, and no writer overtakes it.
    assert outcome.figures.lost <= after * 18


def output(*commits: tuple[str, dict[str, int]], lost: str = "") -> WriterOutput:
    """Commits (row, values) that a writer reported; `lost` was started and never acknowledged."""
    found = WriterOutput()
    for row, values in commits:
        found.add_lines([json.dumps({"begun": row, "keys": list(values)})])
        found.add_lines([json.dumps({"acknowledged": row, "values": values, "lost": 1, "seconds": 2.0, "last": 1.0})])
    if lost:
        found.add_lines([json.dumps({"begun": lost, "keys": ["a"]})])
    return found


TWO = (("row w0 0", {"a": 1, "b": 1}), ("row w1 0", {"a": 2}))
ROWS = [("a", 2), ("b", 1), ("row w0 0", 2), ("row w1 0", 1)]


def test_a_serial_order_is_right() -> None:
    assert violations(output(*TWO), ROWS) == []
    assert violations(output(*TWO, lost="row w2 0"), ROWS) == []
    assert violations(output(*TWO, lost="row w2 0"), [("a", 3), *ROWS[1:], ("row w2 0", 1)]) == []


@pytest.mark.parametrize(
    ("said", "rows", "complaint"),
    [
        (output(*TWO), [("a", 1), *ROWS[1:]], "counter 'a' is 1 after 2 commits"),
        (output(*TWO), ROWS[:-1], "1 acknowledged commits are not there"),
        (output(*TWO), [*ROWS, ("a", 2)], "1 keys stand twice"),
        (output(*TWO), [*ROWS, ("row w9 0", 1)], "1 rows were never written"),
        (output(TWO[0], ("row w1 0", {"a": 1})), ROWS, "a value that two commits were given"),
        (output(*TWO, lost="row w2 0"), [*ROWS, ("row w2 0", 1)], "counter 'a' is 2 after 3 commits"),
    ],
)
def test_checker_detects_lost_updates(said: WriterOutput, rows: list[tuple[str, int]], complaint: str) -> None:
    assert any(complaint in text for text in violations(said, rows))


def test_figures_count_commits_and_conflicts() -> None:
    found = Figures.of(output(*TWO), 4.0)
    assert (found.commits, found.lost, found.per_second, found.longest_wait) == (2, 2, 0.5, 2.0)
