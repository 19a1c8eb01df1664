from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

from benchmarks import chart, report


def one(system: str, step: str, seconds: float | None, status: str = "ok", message: str = "", **more: Any) -> dict[str, Any]:
    found = seconds is not None
    return {
        "system": system,
        "step": step,
        "round": 0,
        "status": status,
        "message": message,
        "seconds": seconds,
        "cpu_seconds": seconds,
        "start_rss_bytes": 2**20 if found else None,
        "peak_rss_bytes": 50 * 2**20 if found else None,
        "written_bytes": 3_000_000 if found else None,
        "removed_bytes": 0 if found else None,
        "read_from": None,
        **more,
    }


def result(measurements: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    settings = {
        "scale": 0.25,
        "row_count": 1_500_000,
        "rounds": 3,
        "cores": 2,
        "driver_memory": "2g",
        "load_before": 0.5,
        "commit": "abc",
    }
    return {
        "made": "2026-11-21 10:00 UTC",
        "machine": {"cores": 2},
        "settings": settings,
        "versions": {"hudi": {"hudi": "1.0.2"}},
        "missing": {},
        "measurements": measurements,
        **more,
    }


def line(text: str, beginning: str) -> list[str]:
    """The cells of the first row of a Markdown table that begins so."""
    found = next(row for row in text.splitlines() if row.startswith(f"| {beginning}"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_the_median_of_the_good_rounds_counts() -> None:
    rounds = [one("hudi", "cow-small", seconds) for seconds in (9.0, 3.0, 4.0)]
    assert report.medians(rounds)["cow-small", "hudi"].seconds == 4.0
    rounds.append(one("hudi", "cow-small", None, "failed", "no answer"))
    assert report.medians(rounds)["cow-small", "hudi"].seconds == 4.0


def test_one_wrong_answer_spoils_the_cell() -> None:
    rounds = [one("hudi", "cow-small", 4.0), one("hudi", "cow-small", 3.0, "wrong", "rows is 1, not 2")]
    assert report.medians(rounds)["cow-small", "hudi"] == report.Cell("wrong")
    text = report.render(result(rounds))
    assert "**wrong**" in text and "rows is 1, not 2" in text


def test_a_status_stands_where_no_time_is() -> None:
    cells = report.medians([one("hudi-rs", "cow-small", None, "-"), one("pyhudi", "cow-small", None, "not built", "no deletes")])
    assert cells["cow-small", "hudi-rs"].status == "-"
    assert cells["cow-small", "pyhudi"].status == "not built"


def test_ratios_say_how_many_times_as_long_the_peer_takes() -> None:
    text = report.render(
        result([one("pyhudi-spark", "cow-small", 2.0), one("hudi", "cow-small", 15.0), one("delta-rs", "cow-small", 1.0)])
    )
    ratios = text[text.index("how many times as long") :]
    assert line(ratios, "step")[1:] == ["Apache Hudi", "delta-rs"]
    assert line(ratios, "upsert of 1,000 rows")[1:] == ["7.50x", "0.50x"]
    seconds = text[text.index("### Seconds") :]
    assert line(seconds, "upsert of 1,000 rows")[1:] == ["2.00", "15.0", "1.00"]


def test_memory_and_bytes_have_their_units() -> None:
    text = report.render(result([one("hudi", "cow-small", 2.0)]))
    assert line(text[text.index("### Peak") :], "upsert")[1] == "50"
    assert line(text[text.index("### Megabytes written") :], "upsert")[1] == "3.0"


def test_who_did_not_run_and_who_read_what_is_said() -> None:
    measurements = [one("hudi-rs", "cow-aggregate", 0.5, read_from="hudi")]
    text = report.render(result(measurements, missing={"delta-spark": "no Java"}))
    assert "Delta Lake on Spark did not run: no Java" in text
    assert "hudi-rs reads the table that Apache Hudi wrote" in text


def test_growth_stands_alone_and_beside() -> None:
    point = {
        "system": "pyhudi",
        "kind": "cow",
        "row_count": 60_000,
        "commit_count": 1000,
        "upsert_seconds": 0.5,
        "upsert_cpu_seconds": 0.7,
        "aggregate_seconds": 0.02,
        "peak_rss_bytes": 2**28,
        "written_bytes": 1_500_000,
        "metadata_files": 42,
    }
    growth = {
        "made": "today",
        "machine": {"cores": 2},
        "commit": "",
        "versions": {"pyhudi": {"pyhudi": "0.1.0"}},
        "settings": {"batch_rows": 1000},
        "rows": [],
        "commits": [point],
        "notes": ["Apache Hudi: stopped"],
        "wrong": False,
    }
    text = report.render({"growth": growth})
    assert report.render(result([one("hudi", "cow-small", 2.0)], growth=growth)).endswith(text[text.index("## Growth") :])
    assert line(text, "1,000") == ["1,000", "COW", "PyHudi embedded", "0.50", "0.70", "0.020", "256", "1.5", "42"]
    assert "- Apache Hudi: stopped" in text
    assert "### Seconds" not in text


def test_planning_is_a_section_of_its_own() -> None:
    point = {"files": 1000, "filter": "n = 1", "file_slices": 2.0, "seconds": 0.2, "cpu_seconds": 0.25, "again_seconds": 0.05}
    planning = {"made": "today", "machine": {"cores": 2}, "commit": "", "points": [{**point, "added_mib": 12.0}]}
    text = report.render({"planning": planning})
    assert line(text, "`n = 1`") == ["`n = 1`", "1,000", "2", "0.20", "0.25", "0.050", "12"]


def test_the_chart_is_xml_with_a_bar_per_time() -> None:
    cells = report.medians(
        [one("pyhudi", "cow-small", 0.5), one("delta-rs", "cow-small", 1.0), one("hudi-zstd", "cow-small", None, "failed")]
    )
    drawn = ElementTree.fromstring(chart.draw(cells, "a < b"))
    bars = drawn.findall("{http://www.w3.org/2000/svg}rect")
    assert [float(bar.attrib["width"]) for bar in bars] == [chart.BAR_WIDTH / 2, chart.BAR_WIDTH]


def test_seconds_keep_three_figures() -> None:
    assert [report.format_seconds(value) for value in (0.0123, 0.456, 1.234, 12.34, 123.4, None)] == [
        "0.012",
        "0.46",
        "1.23",
        "12.3",
        "123",
        "",
    ]
