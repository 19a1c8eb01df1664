"""Notebook display of tables, scans and results."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import is_dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.api import doctor
from pyhudi.errors import visible
from pyhudi.operations.commit import results
from pyhudi.records.html_repr import HtmlRepr
from scripts import notebook

EVIL = "<script>alert('&')</script>"


class Seen(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def table(tmp_path: Path) -> hp.Table:
    return hp.Table.create(tmp_path / "t", name=EVIL, record_key="id", partition_by="city")


def test_html_repr_of_a_table_escapes_its_values(table: hp.Table) -> None:
    seen = Seen(table._repr_html_())
    assert seen.tags == {"table", "tr", "th", "td"}
    assert all(part in seen.text for part in (EVIL, table.uri, "city", "COPY_ON_WRITE"))


def test_scans_and_results_show_what_they_print(table: hp.Table) -> None:
    written = table.upsert(pa.table({"id": ["a"], "city": [EVIL], "fare": [1.5]}))
    saved = table.savepoint(user="\x1b[2J", comments=EVIL)
    for one in (written, saved, table.scan().explain(), table.validate(), doctor.Diagnosis(((EVIL, EVIL),), ())):
        seen = Seen(one._repr_html_())
        assert (seen.tags, seen.text) == ({"pre"}, visible(str(one)))
    seen = Seen(table.scan()._repr_html_())
    assert seen.tags == {"pre", "table", "tr", "th", "td"}
    assert "double" in seen.text and repr(table.scan()) in seen.text


def test_every_result_is_shown_and_stays_a_plain_value() -> None:
    found = [one for one in vars(results).values() if is_dataclass(one) and isinstance(one, type)]
    assert found and all(issubclass(one, HtmlRepr) for one in found if "__str__" in vars(one))
    result = results.WriteResult("upsert", None, None)
    assert not hasattr(result, "__dict__") and pickle.loads(pickle.dumps(result)) == result


@pytest.mark.parametrize("path", notebook.notebooks(), ids=lambda path: path.name)
def test_the_notebooks_of_the_documents_show_what_they_store(path: Path, tmp_path: Path) -> None:
    stored = json.loads(path.read_text())
    ran = notebook.with_outputs(stored, notebook.shown_by(stored, tmp_path))
    for before, after in zip(stored["cells"], ran["cells"], strict=True):
        assert numberless(before) == numberless(after), "run `python -m scripts.notebook`"
    text = notebook.rendered(ran)
    page = path.with_name("notebook.md").read_text()
    assert [found[1] for found in notebook.PLACE.finditer(page)] == [path.name]
    assert "```python\nimport pyhudi as hp" in text and "<pre>upsert" in text and "[{'fare': 33.9}]" in text


def numberless(cell: dict[str, Any]) -> str:
    """A cell without instants, bytes and seconds."""
    data = [output["data"] for output in cell.get("outputs", [])]
    html = [re.sub(r"\d{2}[\d,.]*|\d+\.\d+", "N", one["text/html"]) for one in data if "text/html" in one]
    plain = [one["text/plain"] for one in data if "text/html" not in one]
    return repr([cell["source"], html, plain])
