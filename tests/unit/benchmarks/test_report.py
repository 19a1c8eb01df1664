from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import report
from benchmarks.report import Cells
from benchmarks.runner import Measurement, Results

HEADER: dict[str, Any] = {
    "scenario": "steps",
    "profile": "quick",
    "made": "2026-11-26 10:00 UTC",
    "commit": "abc1234",
    "machine": {"cores": 2},
    "cores": 2,
    "driver_memory": "2g",
    "load_before": 0.5,
    "load_after": 7.25,
    "minutes": 3.0,
    "versions": {"pyhudi": {"pyhudi": "0.1.0"}},
    "missing": {"hudi": "no network"},
}


def one(step: str, system: str, cpu: float | None, number: int = 0, **more: Any) -> Measurement:
    facts: dict[str, Any] = {"scenario": "steps", "size": 0.25, "kind": "cow", "status": "ok", "seconds": cpu and 2 * cpu}
    facts |= {"peak_rss_bytes": 300 << 20, "written_bytes": 5_000_000, **more}
    return Measurement(round=number, step=step, system=system, cpu_seconds=cpu, **facts)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    found = Results(tmp_path / "results.jsonl")
    found.append({"header": HEADER})
    return found


def store(results: Results, *measurements: Measurement) -> None:
    for measurement in measurements:
        results.append(asdict(measurement))


def test_a_wrong_round_makes_its_cell_wrong_and_a_failed_one_is_left_out() -> None:
    wrong = one("small", "hudi", 9.0, 1, status="wrong")
    failed = one("small", "delta-rs", None, 1, status="failed")
    cells = Cells([one("small", "hudi", 1.0), wrong, one("small", "delta-rs", 3.0), failed])
    assert cells.shown("small", "hudi", report.seconds, "cpu_seconds") == "**wrong**"
    assert cells.shown("small", "delta-rs", report.seconds, "cpu_seconds") == "3.00"
    assert cells.shown("small", "pyhudi", report.seconds, "cpu_seconds") == "-"


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    ours = [one("small", "pyhudi", value, number) for number, value in enumerate((1.0, 10.0, 3.0))]
    theirs = [one("small", "delta-rs", value, number) for number, value in enumerate((2.0, 10.0, 6.0))]
    assert Cells([*ours, *theirs]).ratio("small", "delta-rs", "pyhudi", "cpu_seconds") == 2.0
    assert Cells([*ours, theirs[1]]).ratio("small", "delta-rs", "pyhudi", "cpu_seconds") == 1.0
    assert Cells(ours).ratio("small", "delta-rs", "pyhudi", "cpu_seconds") is None


def test_results_as_markdown(results: Results) -> None:
    store(results, one("full-read", "pyhudi", 0.5), one("full-read", "delta-rs", 0.25))
    store(
        results,
        one("full-read", "hudi-rs", 1.0, read_from="pyhudi"),
        one("small", "pyhudi", None, status="failed", message="a | b"),
    )
    store(results, one("to-arrow", "pyhudi", 0.3, scenario="reads"), one("to-arrow", "delta-rs", 0.2, scenario="reads"))
    store(results, one("to-arrow", "pyhudi", 0.6, scenario="reads", kind="mor"))
    store(results, one("small", "pyhudi", 0.05, scenario="commits"), one("small", "delta-rs", 0.02, scenario="commits"))
    text = report.render(results)
    assert "| Writes, reads and services | 2026-11-26 10:00 UTC | abc1234 | quick | 3.0 | 0.5 to 7.2 |" in text
    assert "| full read (`full-read`) | 0.50x | 2.00x |" in text, "ratios of CPU time in one process"
    assert "| full read (`full-read`) | 1.00 | 0.50 | 2.00 |" in text, "wall seconds"
    assert "| `scan().to_arrow()` | 0.30 | 0.20 | 1.50x |" in text
    assert "| `scan().to_arrow()` | 0.60 | 2.00x |" in text, "merge on read divided by copy on write"
    assert "| PyHudi embedded | upsert of 10 rows | 0.050 | 0.10 | 300 | 2.50x |" in text
    assert "- Hudi 1.0.2, zstd did not run: no network" in text
    assert "- PyHudi embedded, steps, failed: `cow` `small`: a | b" in text
    assert "- hudi-rs reads the table of PyHudi embedded." in text


def test_chart_bars_are_to_scale_within_a_step(results: Results) -> None:
    store(results, one("bulk-insert", "pyhudi", 1.0), one("bulk-insert", "delta-rs", 2.0), one("small", "pyhudi", 0.1))
    root = ElementTree.fromstring(report.draw(results))
    bars = [float(bar.attrib["width"]) for bar in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert bars == [report.BAR_WIDTH / 2, report.BAR_WIDTH, report.BAR_WIDTH]


@pytest.mark.parametrize(
    ("points", "slope"),
    [
        ({10: 0.5, 100: 0.5, 1000: 0.5}, 0.0),
        ({10: 0.1, 100: 1.0, 1000: 10.0}, 1.0),
        ({100: 4.0, 10: 1.0}, 0.602),
        ({10: 1.0, 100: 1.0, 1000: 10.0}, 0.5),
        ({10: 1.0}, None),
    ],
)
def test_slope(points: dict[float, float], slope: float | None) -> None:
    assert report.slope(points) == (slope if slope is None else pytest.approx(slope, abs=0.001))


def test_curves_have_a_table_for_each_axis_with_what_is_missing(results: Results) -> None:
    curve: dict[str, Any] = {"scenario": "curve-columns", "kind": "cow"}
    store(results, one("small", "pyhudi", 0.5, size=10, **curve), one("small", "pyhudi", 0.4, 1, size=10, **curve))
    store(results, one("small", "pyhudi", 4.0, size=100, **curve))
    text = report.render_curves(results)
    assert "| cow | small | pyhudi | 0.40 | 4.0 | 1.00 | 300 |" in text
    assert "Not measured: 500, 2,000." in text and "## Keys" in text


@pytest.mark.parametrize(
    ("pairs", "ratio", "moved"),
    [
        ([(1.0, 1.2)], "1.20", ""),
        ([(1.0, 1.26)], "1.26", "slower"),
        ([(1.0, 1 / 1.26)], "0.79", "faster"),
        # The median is that of the ratios, and one disturbed pair decides nothing.
        ([(1.0, 1.0), (1.0, 9.0), (1.0, 1.1)], "1.10", ""),
        ([(0.001, 0.009)], "9.00", ""),
        ([(0.001, 0.02)], "20.00", "slower"),
    ],
)
def test_a_step_moves_by_more_than_a_quarter(pairs: list[tuple[float, float]], ratio: str, moved: str) -> None:
    warm = [one("small", "before", 9.0), one("small", "pyhudi", 1.0)]
    rounds = [
        one("small", system, cpu, number)
        for number, pair in enumerate(pairs, start=1)
        for system, cpu in zip(("before", "pyhudi"), pair, strict=True)
    ]
    (line,) = report.verdicts([*warm, *rounds])
    assert line.split()[0] == "cow-small" and line.split()[3:] == [ratio, *([moved] if moved else [])]


def test_figures_are_replaced_between_their_markers(results: Results, tmp_path: Path) -> None:
    store(results, one("upsert-1", "pyhudi", 0.5), one("bulk-insert", "delta-rs", 0.75))
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("![chart](benchmarks/results.svg)\n\nold\n[Results](benchmarks/RESULTS.md)\n")
    (tmp_path / "docs/performance.md").write_text("before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n")
    report.update_documents(results, tmp_path)
    readme, page = (tmp_path / "README.md").read_text(), (tmp_path / "docs/performance.md").read_text()
    for text in (readme, page):
        assert "old" not in text and "abc1234" in text and "1.5 million rows" in text
    assert readme.startswith("![chart](benchmarks/results.svg)\n\nTPC-H") and readme.endswith(
        "\n[Results](benchmarks/RESULTS.md)\n"
    )
    assert page.startswith("before\n<!-- figures -->\n\n") and page.endswith("\n\n<!-- end of figures -->\nafter\n")
    assert "Embedded, it takes 1.00 s" in " ".join(readme.split())
    assert "| copy on write: upsert of 1 %, 0.1 % inserts | - | - | - | - | 1.00 | - |" in page
    report.update_documents(results, tmp_path)
    assert (tmp_path / "README.md").read_text() == readme
    (tmp_path / "README.md").write_text("nothing")
    with pytest.raises(ValueError, match="no place for figures"):
        report.update_documents(results, tmp_path)
