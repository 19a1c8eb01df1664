"""Partition pruning by paths alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyhudi.planning.partition_pruning import prune_partitions
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.keys.timestamp_key_rule import TimeRule, TimeType

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("level", pa.int32()), ("day", pa.string())])
DEFAULT = "__HIVE_DEFAULT_PARTITION__"


def remaining_partitions(spec: KeySpec, partitions: list[str], text: str) -> list[str]:
    found, pruning = prune_partitions(partitions, spec, SCHEMA, bind(parse_filter(text), SCHEMA))
    assert pruning is not None
    assert (pruning.remaining, pruning.total) == (len(found), len(partitions))
    return list(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("city = 'oslo'", ["oslo"]),
        ("city <> 'oslo'", [DEFAULT, "rome"]),
        ("city IN ('oslo', 'bonn') AND id = 'x'", ["oslo"]),
        ("city = 'oslo' OR id = 'x'", [DEFAULT, "oslo", "rome"]),
        ("city IS NULL", [DEFAULT]),
        ("city IS NOT NULL", [DEFAULT, "oslo", "rome"]),
        ("city = ''", [DEFAULT]),
        (f"city = '{DEFAULT}'", [DEFAULT]),
        ("city < 'a'", [DEFAULT]),
        ("city LIKE 'r%'", ["rome"]),
        ("id = 'x'", [DEFAULT, "oslo", "rome"]),
    ],
)
def test_one_field(text: str, expected: list[str]) -> None:
    """The default partition holds rows with null, with an empty text and with its own name; a path may begin with the field's."""
    assert remaining_partitions(KeySpec.for_fields(["id"], ["city"]), [DEFAULT, "oslo", "rome"], text) == expected


def test_value_containing_an_equals_sign() -> None:
    spec = KeySpec.for_fields(["id"], ["city"])
    assert remaining_partitions(spec, ["city=oslo", "oslo"], "city = 'city=oslo'") == ["city=oslo"]
    assert remaining_partitions(spec, ["city=oslo", "oslo"], "city = 'oslo'") == ["city=oslo", "oslo"]


def test_several_fields() -> None:
    spec = KeySpec.for_fields(["id"], ["city", "level"])
    paths = ["oslo/1", "oslo/2", f"oslo/{DEFAULT}", f"{DEFAULT}/1"]
    assert remaining_partitions(spec, paths, "level = 1") == ["oslo/1", f"{DEFAULT}/1"]
    assert remaining_partitions(spec, paths, "level IS NULL") == [f"oslo/{DEFAULT}"]
    assert remaining_partitions(spec, paths, "city = '' AND level < 5") == [f"{DEFAULT}/1"]


def test_paths_that_do_not_parse_are_kept() -> None:
    # More folders than fields, a value that is no number, and the time of a key generator.
    assert remaining_partitions(KeySpec.for_fields(["id"], ["city", "level"]), ["a/b/c", "a/x", "a/1"], "level = 2") == [
        "a/b/c",
        "a/x",
    ]
    time = TimeRule(TimeType.DATE_STRING, "yyyy/MM", input_patterns=("yyyy-MM-dd",))
    spec = KeySpec.for_fields(["id"], ["day"], "TIMESTAMP", time=time)
    assert remaining_partitions(spec, ["2026/11", "2026/12"], "day = '2026-11-21'") == ["2026/11", "2026/12"]


def test_no_pruning_without_filter_or_partitions() -> None:
    condition = bind(parse_filter("id = 'x'"), SCHEMA)
    assert prune_partitions(["a"], KeySpec.for_fields(["id"], ["city"]), SCHEMA, None) == (("a",), None)
    assert prune_partitions([""], KeySpec.for_fields(["id"], []), SCHEMA, condition) == (("",), None)
