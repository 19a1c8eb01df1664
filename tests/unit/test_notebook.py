"""What notebooks show of tables, scans and results."""

from __future__ import annotations

import pickle
from dataclasses import is_dataclass
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import doctor
from pyhudi.errors import visible
from pyhudi.notebook import ShownInNotebooks
from pyhudi.operations.action import results

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


def test_a_table_shows_its_facts_and_nothing_of_it_is_markup(table: hp.Table) -> None:
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
    assert found and all(issubclass(one, ShownInNotebooks) for one in found if "__str__" in vars(one))
    result = results.WriteResult("upsert", None, None)
    assert not hasattr(result, "__dict__") and pickle.loads(pickle.dumps(result)) == result
