"""`benchmarks.reads`: different rows are detected, and ratios come from pairs of runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from benchmarks import queries
from benchmarks.peers.base import Table
from benchmarks.reads.__main__ import Reading, measured, report
from benchmarks.reads.process import CASES, peer_of, steps_of
from tests.support.benchmark_rows import lineitem


class Told:
    """A side that takes a given time."""

    def __init__(self, name: str, cpu_s: float, answer: str = "same") -> None:
        self.name = name
        self._reading = Reading(cpu_s, cpu_s, answer)
        self.taken = 0

    def take(self, case: str) -> Reading:
        self.taken += 1
        return self._reading


def test_sides_read_in_turn_and_a_first_round_does_not_count() -> None:
    sides = [Told("now", 1.0), Told("before", 4.0), Told("delta-rs", 2.0)]
    found = measured(sides, ["full-read"], 3)
    assert [side.taken for side in sides] == [4, 4, 4]
    text = report(found, "now", ["before", "delta-rs"])
    assert text.splitlines()[-1] == "| full-read | 1.000 | 4.000 | 2.000 | 0.25 | 0.50 | 2.00 |"


def test_sides_that_give_different_rows_are_found_out() -> None:
    with pytest.raises(ValueError, match="full-read: the sides give different rows"):
        measured([Told("now", 1.0), Told("delta-rs", 2.0, "other")], ["full-read"], 1)


def test_a_kept_table_gives_what_one_that_is_opened_anew_gives(tmp_path: Path) -> None:
    table = hp.Table.create(
        tmp_path / "t",
        record_key=list(queries.KEY_COLUMNS),
        partition_by=[queries.PARTITION_COLUMN],
        ordering=[queries.ORDERING_COLUMN],
    )
    rows = lineitem(60)
    table.bulk_insert(rows)
    keys = [[rows["l_orderkey"][5].as_py(), rows["l_linenumber"][5].as_py()]]
    steps = steps_of(peer_of("pyhudi"), Table(str(tmp_path / "t"), "cow"), keys)
    assert set(steps) == set(CASES)

    def answer(case: str) -> object:
        step = steps[case]()
        return step.answer(step.operation())

    for _ in range(2):
        for case in ("filtered-read", "point-lookup"):
            assert answer(f"{case}, kept") == answer(case)
        table.upsert(rows.slice(0, 20).set_column(rows.schema.get_field_index("ts"), "ts", pa.array([9] * 20, pa.int64())))
