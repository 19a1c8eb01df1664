"""The golden tables (tests/golden): tables written by Apache Hudi, and the rows that it read from them.

@pytest.mark.parametrize("name", golden_cases(with_traits={"mor"}, without_traits={"mdt"}))
def test_snapshot(name, tmp_path):
    table = open_golden(name, tmp_path)
    assert_same_rows(read(table.path), table.expected("snapshot"))
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.bootstrapped import write_sources

ROOT = Path(__file__).resolve().parents[1] / "golden"


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """A read of Apache Hudi: the options that it was given (none: a snapshot) and how many rows came."""

    name: str
    options: dict[str, str]
    row_count: int


@dataclass(frozen=True, slots=True)
class GoldenCase:
    name: str
    shows: str
    traits: tuple[str, ...]
    queries: tuple[GoldenQuery, ...]


@dataclass(frozen=True, slots=True)
class GoldenTable:
    """A golden table unpacked: `path` is its base path, which the test may change as it likes."""

    case: GoldenCase
    path: Path

    def expected(self, query: str = "snapshot") -> pa.Table:
        """The rows that Apache Hudi gave, in no order; strings are `string`, times us UTC, everything nullable."""
        with zipfile.ZipFile(case_folder(self.case.name) / "expected.zip") as archive:
            return pq.ParquetFile(io.BytesIO(archive.read(f"{query}.parquet"))).read()


def golden_cases(*, with_traits: Collection[str] = (), without_traits: Collection[str] = ()) -> list[str]:
    """The names of the cases that have all of the first traits and none of the second, in order."""
    names = sorted(path.parent.name for path in ROOT.glob("hudi-*/*/case.json"))
    return [
        name
        for name in names
        if set(with_traits) <= set(load_case(name).traits) and not set(without_traits) & set(load_case(name).traits)
    ]


CLOSED_TRAITS: frozenset[str] = frozenset()
"""Traits of tables that PyHudi refuses whatever is asked of them."""


def case_folder(name: str) -> Path:
    """Where the files of a case are: below the release of Hudi that wrote them."""
    (folder,) = ROOT.glob(f"hudi-*/{name}")
    return folder


@cache
def load_case(name: str) -> GoldenCase:
    """The content of case.json."""
    described = json.loads((case_folder(name) / "case.json").read_text(encoding="utf-8"))
    queries = tuple(GoldenQuery(query["name"], query["options"], query["row_count"]) for query in described["queries"])
    return GoldenCase(name, described["shows"], tuple(described["traits"]), queries)


def open_golden(name: str, folder: Path) -> GoldenTable:
    """Unpacks a case below `folder`."""
    path = folder / name
    path.mkdir()
    with zipfile.ZipFile(case_folder(name) / "table.zip") as archive:
        archive.extractall(path)
    if "bootstrap" in load_case(name).traits:
        write_sources(path, folder / f"{name}-source")
    return GoldenTable(load_case(name), path)
