"""Quoted names and texts are parsed to what they were."""

from __future__ import annotations

import pytest

import pyhudi as hp
from pyhudi.records.sql_quoting import quote_name, quote_text


@pytest.mark.parametrize("name", ["a", "a.b", "a`b", "``", "it's", '"'])
def test_a_quoted_name_is_one_name(name: str) -> None:
    assert hp.sql(f"SELECT 1 AS {quote_name(name)}").column_names == [name]


@pytest.mark.parametrize("text", ["", "it's", "a\\b", "\\'", "`"])
def test_a_quoted_text_is_that_text(text: str) -> None:
    assert hp.sql(f"SELECT {quote_text(text)} AS t").column("t").to_pylist() == [text]
