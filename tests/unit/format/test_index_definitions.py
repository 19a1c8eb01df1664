"""The document of index definitions."""

from __future__ import annotations

import pytest

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.index_definitions import (
    IndexDefinition,
    column_stats_definition,
    format_index_definitions,
    parse_index_definitions,
)

TEXT = """{
  "indexDefinitions" : {
    "column_stats" : {
      "indexName" : "column_stats",
      "indexType" : "column_stats",
      "indexFunction" : "column_stats",
      "sourceFields" : [ "_hoodie_commit_time", "id" ],
      "indexOptions" : { }
    },
    "expr_index_idx_day" : {
      "indexName" : "expr_index_idx_day",
      "indexType" : "column_stats",
      "indexFunction" : "from_unixtime",
      "sourceFields" : [ "l" ],
      "indexOptions" : {
        "expr" : "from_unixtime",
        "format" : "yyyy-MM-dd"
      }
    }
  }
}"""


def test_the_text_that_java_writes() -> None:
    found = parse_index_definitions(TEXT.encode())
    assert list(found) == ["column_stats", "expr_index_idx_day"]
    assert found["column_stats"] == column_stats_definition(["_hoodie_commit_time", "id"])
    assert found["expr_index_idx_day"].option("format") == "yyyy-MM-dd"
    assert found["expr_index_idx_day"].option("none") is None
    assert format_index_definitions(found.values()).decode() == TEXT


def test_fields_of_later_versions_are_kept() -> None:
    later = TEXT.replace('"sourceFields" : [ "l" ],', '"sourceFields" : [ "é" ], "version" : "V2", "more" : {"a": [1, null]},')
    found = parse_index_definitions(later.encode())
    assert parse_index_definitions(format_index_definitions(found.values())) == found
    assert dict(found["expr_index_idx_day"].other) == {"version": '"V2"', "more": '{"a": [1, null]}'}


def test_no_definitions() -> None:
    assert parse_index_definitions(format_index_definitions([])) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"indexDefinitions": []}',
        '{"indexDefinitions": {"a": 1}}',
        '{"indexDefinitions": {"a": {}}}',
        '{"indexDefinitions": {"": {"indexType": "t"}}}',
        '{"indexDefinitions": {"a": {"indexType": "t", "sourceFields": "x"}}}',
        '{"indexDefinitions": {"a": {"indexType": "t", "sourceFields": [1]}}}',
        '{"indexDefinitions": {"a": {"indexType": "t", "indexOptions": [1]}}}',
        "[" * 100_000,
    ],
)
def test_texts_that_are_no_definitions(text: str) -> None:
    with pytest.raises(CorruptData):
        parse_index_definitions(text.encode())


def test_invalid_index_definition_is_rejected() -> None:
    with pytest.raises(InvalidRequest):
        format_index_definitions([column_stats_definition(["a"]), column_stats_definition(["b"])])
    with pytest.raises(InvalidRequest):
        IndexDefinition("", "column_stats", "", ())
