"""`benchmarks.curves`: slopes, order of steps, report, and the steps of each axis on a few rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.curves import __main__ as command
from benchmarks.curves.axes import AXES, BY_NAME, Point, curves_of
from benchmarks.curves.pyhudi_process import steps_of
from benchmarks.curves.report import report, seconds
from benchmarks.curves.rows import all_rows, neighbours


def point(size: int, cpu_seconds: float, axis: str = "rows", step: str = "upsert", system: str = "pyhudi") -> Point:
    return Point(axis, "cow", system, step, size, 1.0, cpu_seconds, 100.0)


@pytest.mark.parametrize(
    ("seconds_by_size", "slope"),
    [
        ({10: 0.5, 100: 0.5, 1000: 0.5}, 0.0),
        ({10: 0.1, 100: 1.0, 1000: 10.0}, 1.0),
        ({10: 1.0, 1000: 100.0}, 1.0),
        ({100: 4.0, 10: 1.0}, 0.602),
        ({10: 1.0, 100: 1.0, 1000: 10.0}, 0.5),
    ],
)
def test_slope(seconds_by_size: dict[int, float], slope: float) -> None:
    (curve,) = curves_of([point(size, cpu) for size, cpu in seconds_by_size.items()])
    assert curve.slope == pytest.approx(slope, abs=0.001)
    assert [one.size for one in curve.points] == sorted(seconds_by_size)


def test_one_size_has_no_slope_and_the_later_point_of_a_size_counts() -> None:
    (curve,) = curves_of([point(10, 1.0), point(10, 2.0)])
    assert curve.slope is None and [one.cpu_seconds for one in curve.points] == [2.0]


def test_report_has_a_table_for_each_axis_and_says_what_is_missing() -> None:
    points = [
        point(10, 0.5),
        point(100, 5.0),
        point(10, 0.25, system="delta-rs"),
        point(1000, 0.004, "keys", "lookup of one key"),
    ]
    text = report(points, ["rows 1,000: the run ended before it"], "cores 2")
    assert "| cow | upsert | pyhudi | 0.50 | 5.0 | 1.00 | 100 |" in text
    assert "| cow | upsert | delta-rs | 0.25 | - | - | 100 |" in text
    assert text.index("## Rows") < text.index("## Keys") < text.index("- rows 1,000: the run ended before it")
    assert "- columns: 10, 100, 500, 2,000\n" in text
    assert [seconds(value) for value in (12.34, 0.123, 0.0123, 0.00123)] == ["12.3", "0.12", "0.012", "0.0012"]


def test_small_sizes_of_all_axes_come_first_and_peers_have_one_kind() -> None:
    runs = command.runs_of(AXES, 10_000, ("pyhudi", "delta-rs"))
    places = [run.axis.sizes.index(run.size) for run in runs]
    assert places == sorted(places) and max(run.size for run in runs) == 10_000
    assert {run.kind for run in runs if run.system == "delta-rs"} == {"cow"}
    assert {run.axis.name for run in runs if run.system == "delta-rs"} == {"commits", "partitions", "columns"}


def test_neighbours_are_of_one_partition() -> None:
    assert neighbours(4, 100) == [49, 56, 63, 70]
    assert neighbours(10, 100, partitions=10) == [50, 60, 70, 80, 90]
    assert all_rows(30, partitions=3, columns=2).read_all().num_rows == 30


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("axis", "kind", "size", "steps"),
    [
        ("rows", "cow", 100, ["bulk insert", "upsert", "full read", "filtered read"]),
        ("commits", "mor", 4, ["upsert", "full read"]),
        ("logs", "mor", 5, ["upsert", "full read"]),
        ("files", "metadata", 20, ["plan of one file", "plan of all files", "commit of ten files"]),
        ("neighbours", "metadata", 2, ["commit of ten files"]),
        ("keys", "metadata", 400, ["lookup of one key"]),
    ],
)
def test_steps_of_an_axis(tmp_path: Path, axis: str, kind: str, size: int, steps: list[str]) -> None:
    found = list(steps_of(axis, kind, size, tmp_path / "t"))
    assert [one.step for one in found] == steps and all(one.cpu_seconds >= 0 for one in found)
    if axis == "logs":
        assert len(list((tmp_path / "t").rglob(".*.log.*"))) >= size


def test_unknown_axes_are_refused() -> None:
    with pytest.raises(ValueError, match="no axis with rows"):
        list(steps_of("colours", "cow", 1, Path("nowhere")))
    with pytest.raises(SystemExit):
        command.main(["--axes", "colours"])


def test_a_run_adds_to_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def carried_out(run: command.Run, python: Path, timeout_s: float) -> list[Point]:
        return [Point(run.axis.name, run.kind, run.system, "upsert", run.size, 1.0, 0.5, 100.0)]

    monkeypatch.setattr(command, "carried_out", carried_out)
    for axis in ("commits", "logs"):
        assert command.main(["--axes", axis, "--systems", "pyhudi", "--most", "100", "--output", str(tmp_path)]) == 0
    points = [Point.of(one) for one in json.loads((tmp_path / "curves.json").read_text())["points"]]
    assert {one.axis for one in points} == {"commits", "logs"}
    text = (tmp_path / "CURVES.md").read_text()
    assert "| mor | upsert | pyhudi | 0.50 | 0.50 | 0.00 | 100 |" in text and BY_NAME["logs"].what[1:] in text
