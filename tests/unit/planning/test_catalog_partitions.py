"""Partition values in catalogs, and changes of a sync."""

from __future__ import annotations

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.planning.catalog_partitions import (
    PartitionChanges,
    Values,
    check_width,
    compare_partitions,
    extractor_class,
    find_extractor,
    without_scheme,
)

PACKAGE = "org.apache.hudi.hive."


@pytest.mark.parametrize(
    ("name", "path", "values"),
    [
        ("NonPartitionedExtractor", "", ()),
        ("SinglePartPartitionValueExtractor", "2024/01/05", ("2024-01-05",)),
        ("SinglePartPartitionValueExtractor", "a%2Fb", ("a%2Fb",)),
        ("HiveStylePartitionValueExtractor", "day=2024-01-05", ("2024-01-05",)),
        ("HiveStylePartitionValueExtractor", "day=__HIVE_DEFAULT_PARTITION__", ("__HIVE_DEFAULT_PARTITION__",)),
        ("MultiPartKeysValueExtractor", "city=oslo/7", ("oslo", "7")),
        ("SlashEncodedDayPartitionValueExtractor", "2024/1/05", ("2024-01-05",)),
        ("SlashEncodedDayPartitionValueExtractor", "year=2024/month=01/day=05", ("2024-01-05",)),
        ("SlashEncodedHourPartitionValueExtractor", "2024/01/05/7", ("2024-01-05-07",)),
    ],
)
def test_values_of_a_path(name: str, path: str, values: tuple[str, ...]) -> None:
    assert find_extractor(PACKAGE + name)(path) == values


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("HiveStylePartitionValueExtractor", "oslo"),
        ("HiveStylePartitionValueExtractor", "a=b=c"),
        ("MultiPartKeysValueExtractor", "x/a=b=c"),
        ("SlashEncodedDayPartitionValueExtractor", "2024-01-05"),
        ("SlashEncodedHourPartitionValueExtractor", "2024/01/05"),
    ],
)
def test_paths_that_are_of_another_form(name: str, path: str) -> None:
    with pytest.raises(InvalidRequest, match="name another hoodie"):
        find_extractor(PACKAGE + name)(path)


def test_the_extractor_that_hudi_chooses() -> None:
    assert extractor_class(0, hive_style=False) == f"{PACKAGE}NonPartitionedExtractor"
    assert extractor_class(1, hive_style=False) == f"{PACKAGE}SinglePartPartitionValueExtractor"
    assert extractor_class(1, hive_style=True) == f"{PACKAGE}HiveStylePartitionValueExtractor"
    assert extractor_class(2, hive_style=True) == f"{PACKAGE}MultiPartKeysValueExtractor"
    with pytest.raises(InvalidRequest, match=r"a\.b\.Own is none of"):
        find_extractor("a.b.Own")
    check_width(["a", "b"], "x/y", ("x", "y"))
    with pytest.raises(InvalidRequest, match="gives 1 values for the columns a, b"):
        check_width(["a", "b"], "x", ("x",))


def at(**places: str) -> dict[Values, str]:
    """Partitions of one value each, and where they lie."""
    return {(value,): place for value, place in places.items()}


def test_partition_changes_for_the_catalog() -> None:
    stored = at(a="s3a://b/t/a", b="s3a://b/u/b")
    known = at(a="s3://b/t/a", b="s3://b/t/b", c="s3://b/t/c")
    moved = at(b="s3a://b/u/b")
    assert compare_partitions(stored, known, all_stored=True) == PartitionChanges({}, moved, [("c",)])
    assert compare_partitions(stored, known, all_stored=False) == PartitionChanges({}, moved, [])
    gone = [("c",), ("unknown",)]
    assert compare_partitions(at(d="x"), known, gone, all_stored=False) == PartitionChanges(at(d="x"), {}, [("c",)])
    assert not compare_partitions({}, {}, all_stored=True)


def test_spellings_of_one_place() -> None:
    assert len({without_scheme(text) for text in ("/data/t", "file:/data/t", "file:///data/t/")}) == 1
    assert len({without_scheme(text) for text in ("s3://b/t", "s3a://b/t")}) == 1
    assert without_scheme("s3://b/t") != without_scheme("s3://c/t")
