"""`benchmarks.readers`: all readers return the same rows, and the report compares their figures."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from benchmarks import queries
from benchmarks.data import random_batch
from benchmarks.fingerprint import of_batches
from benchmarks.readers.__main__ import Reading, measured, report
from benchmarks.readers.kinds import COLUMNS, READERS, BaseFiles, answer, installed
from tests.support.benchmark_rows import lineitem

CHANGED = 9


def made(path: Path, kind: str) -> str:
    table = hp.Table.create(
        path,
        name="lineitem",
        record_key=list(queries.KEY_COLUMNS),
        partition_by=[queries.PARTITION_COLUMN],
        ordering=[queries.ORDERING_COLUMN],
        table_type=kind,
    )
    rows = lineitem(120)
    table.bulk_insert(rows)
    table.upsert(random_batch(rows, 3, CHANGED, 0))
    return str(path)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("readers") / "t", "cow")


@pytest.mark.parametrize("name", installed())
def test_each_reader_gives_the_rows(table: str, name: str) -> None:
    files = BaseFiles.of(table)
    read = READERS[name](files)
    found = {case: read(files.asked(case)) for case in COLUMNS}
    assert {case: answer(rows) for case, rows in found.items()} == {
        "full": [120, 3 * CHANGED],
        "few": [120, 3 * CHANGED],
        "commit": [CHANGED, 3 * CHANGED],
    }
    everything = hp.Table(table).scan(columns=list(queries.COLUMNS)).to_arrow()
    for case, rows in found.items():
        assert tuple(rows.column_names) == COLUMNS[case]
    # Polars and DuckDB have types of their own for text and numbers of such precision.
    plain = found["full"].cast(everything.schema)
    assert of_batches(plain.to_batches()) == of_batches(everything.to_batches())


def test_what_is_ours_and_arrows_is_always_there() -> None:
    assert {"pyhudi", "pyarrow"} <= set(installed())
    assert installed(["no_reader_of_that_name"]) == []


def test_logs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="base files alone"):
        BaseFiles.of(made(tmp_path / "t", "mor"))


class Told:
    """A reader whose figures are given."""

    def __init__(self, name: str, cpu_s: list[float], rows: int = 1) -> None:
        self.name = name
        self._readings = [Reading(seconds, seconds, 1 << 20, (rows,)) for seconds in cpu_s]

    def take(self, case: str) -> Reading:
        return self._readings.pop(0)

    def close(self) -> None:
        """Nothing is open."""


def test_medians_and_ratios_of_pairs_after_a_round_that_warms_up() -> None:
    readers = [Told("a", [9.0, 1.0, 2.0, 4.0]), Told("b", [9.0, 2.0, 2.0, 2.0])]
    lines = report(measured(readers, ["full"], 3)).splitlines()[2:]
    assert lines == ["| full | a | 2.000 | 2.000 | 1 | 1.00 |", "| full | b | 2.000 | 2.000 | 1 | 1.00 |"]


def test_other_rows_are_no_figure() -> None:
    with pytest.raises(ValueError, match=r"full: .*'b'"):
        measured([Told("a", [1.0]), Told("b", [1.0], rows=2)], ["full"], 0)


def test_rows_and_ordering_values_are_what_is_compared() -> None:
    assert answer(pa.table({"ts": pa.array([], pa.int64())})) == [0, 0]
