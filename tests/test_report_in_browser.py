"""The report in a real browser: colours of both settings, narrow screens, the keyboard, and no complaint in the console.

Needs Playwright and a Chromium: `make test-browser` installs the first, and takes the second from PATH or from Playwright.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.features.report.page import render_report

playwright = pytest.importorskip("playwright.sync_api", reason="the browser test needs Playwright: make test-browser")

OPTIONS = {"hoodie.index.bloom.num_entries": "100"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or None
        try:
            # Chromium's sandbox refuses to run as root, and the page is our own.
            opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no Chromium can be started: {str(error).splitlines()[0]}")
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    table = hp.Table.create(
        folder / "t", name="trips", record_key="id", partition_by="city", ordering="ts", table_type="mor", options=OPTIONS
    )
    for n in range(4):
        rows = {"id": [f"k{k}" for k in range(n, 60)], "city": [["sf", "ny", "<i>la"][k % 3] for k in range(n, 60)]}
        table.upsert(pa.table({**rows, "ts": [n] * (60 - n)}), options=OPTIONS)
    table.schedule_compaction()
    page = folder / "report.html"
    page.write_text(render_report(table), encoding="utf-8")
    return page


def open_page(browser: Any, report: Path, width: int = 1200, scheme: str = "light") -> tuple[Any, list[str]]:
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else complaints.append(request.url))
    page.goto(report.as_uri())
    return page, complaints


def contrast(page: Any, selector: str) -> float:
    """Of the text of an element against the ground of the page, by the rule of WCAG."""
    colours = page.evaluate(
        "s => [getComputedStyle(document.querySelector(s)).color, getComputedStyle(document.body).backgroundColor]", selector
    )

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour[4:-1].split(",")]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    bright, dark = sorted((luminance(colour) for colour in colours), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(browser: Any, report: Path, scheme: str) -> None:
    page, complaints = open_page(browser, report, scheme=scheme)
    for selector in ("h1", ".made", "nav a", ".cards small", "th button", "summary"):
        assert contrast(page, selector) >= 4.5, selector
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    assert complaints == []


def test_a_narrow_screen_scrolls_tables_and_not_the_page(browser: Any, report: Path) -> None:
    page, complaints = open_page(browser, report, width=360)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate("[...document.querySelectorAll('.wide')].some(part => part.scrollWidth > part.clientWidth)")
    assert complaints == []


def test_the_keyboard_reaches_everything(browser: Any, report: Path) -> None:
    page, complaints = open_page(browser, report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate("document.activeElement.tagName + ' ' + (document.activeElement.getAttribute('aria-label') || '')")
        )
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or page.evaluate("document.activeElement === document.body"), "the focus cannot be seen"
    assert {"SUMMARY ", "BUTTON ", "DIV Timeline, as a picture"} <= seen
    assert complaints == []


def test_tables_sort_by_their_heads_and_details_open(browser: Any, report: Path) -> None:
    page, complaints = open_page(browser, report)
    page.focus("summary")
    page.keyboard.press("Enter")
    assert page.is_visible("#instants")
    page.focus("#file-slices th:nth-child(4) button")
    for order, reverse in (("ascending", False), ("descending", True)):
        page.keyboard.press("Enter")
        shown = page.evaluate(
            "[...document.querySelectorAll('#file-slices td:nth-child(4)')].map(cell => Number(cell.dataset.v))"
        )
        assert shown == sorted(shown, reverse=reverse) and len(shown) == 3
        assert page.get_attribute("#file-slices th:nth-child(4)", "aria-sort") == order
    assert page.inner_text("#file-slices tbody").count("<i>la") == 1
    assert page.locator("rect.pending title").count() == 1
    assert complaints == []
