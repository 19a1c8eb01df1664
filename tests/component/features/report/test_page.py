"""The HTML report is complete, escapes table content, and shows damage where it is."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli.app import app
from pyhudi.features.report.page import render_report

VOID = frozenset({"meta", "link", "line"})
OPTIONS = {"hoodie.index.bloom.num_entries": "100"}


class Outline(HTMLParser):
    """Checks that elements nest, and keeps what a reader would find."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.text = ""
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if "id" in found:
            assert found["id"] not in self.ids, f"the id {found['id']} stands twice"
            self.ids.add(found["id"] or "")
        href = found.get("href") or ""
        if href.startswith("#"):
            self.links.add(href[1:])
        self.fetched += [value for name in ("src", "href") if (value := found.get(name)) and not value.startswith(("#", "data:"))]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """SVG closes its own."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data + "\n"


def read(page: str) -> Outline:
    outline = Outline()
    outline.feed(page)
    assert outline.open == [] and outline.links <= outline.ids and outline.fetched == []
    return outline


@pytest.fixture
def table(tmp_path: Path) -> hp.Table:
    made = hp.Table.create(
        tmp_path / "t", name="trips", record_key="id", partition_by="city", ordering="ts", table_type="mor", options=OPTIONS
    )
    made.upsert(pa.table({"id": ["a", "b", "c"], "city": ["sf", "<script>x", "sf"], "ts": [1, 1, 1]}), options=OPTIONS)
    made.upsert(pa.table({"id": ["a"], "city": ["sf"], "ts": [2]}), options=OPTIONS)
    return made


def test_page_is_complete_and_escapes_table_values(table: hp.Table) -> None:
    table.schedule_compaction()
    page = render_report(table)
    text = read(page).text
    assert "<script>x" in text and page.count("<script>") == 1
    for told in ("trips", table.uri, "MERGE_ON_READ", "2 file slices in 2 partitions", "1 in compaction; 1 pending"):
        assert told in text or told in page, told
    assert render_report(table).split("As of")[1][30:] == page.split("As of")[1][30:], "the same table gives the same page"


def test_a_table_without_a_write_has_a_report(tmp_path: Path) -> None:
    made = hp.Table.create(tmp_path / "empty", name="t", record_key="id")
    text = read(render_report(made)).text
    assert "No write has completed." in text and "Nothing has happened yet." in text


def test_damage_is_reported_in_its_section(table: hp.Table) -> None:
    completed = next(Path(table.uri.removeprefix("file:")).glob(".hoodie/timeline/*_*.deltacommit"))
    completed.write_bytes(b"Obj\x01nonsense")
    text = read(render_report(table)).text
    assert "This part cannot be read. CorruptData" in text and completed.name in text
    assert "MERGE_ON_READ" in text


def test_validation_result_is_reported(table: hp.Table) -> None:
    assert "Everything that was compared fits." in render_report(table, validation=table.validate())
    next(Path(table.uri.removeprefix("file:")).glob("sf/*.parquet")).write_bytes(b"PAR1")
    text = read(render_report(table, validation=table.validate())).text
    assert "Not everything fits." in text and "4 bytes" in text


def test_long_tables_are_cut_with_a_note(table: hp.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyhudi.features.report.page.MAX_ROWS", 1)
    page = render_report(table)
    assert "1 of 2 file slices, the largest. <code>pyhudi slices TABLE</code> lists all." in page


def test_the_command_writes_the_page(table: hp.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(app, ["report", table.uri], catch_exceptions=False).exit_code == 0
    read((tmp_path / "trips-report.html").read_text("utf-8"))
    assert runner.invoke(app, ["report", table.uri, "--validate", "--to", "-"]).output.startswith("<!doctype html>")
    with pytest.raises(hp.InvalidRequest, match="--to"):
        runner.invoke(app, ["report", table.uri, "--to", str(tmp_path / "no" / "x.html")], catch_exceptions=False)
