"""Queries and procedures of tables of version 9 beside the real Hudi 1.1.1: ranges of changes, states of before, what base files
hold, what procedures show, partitions that have lived their time.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table, procedures
from pyhudi.format.instants import Action
from pyhudi.storage.clock import ReplayEnvironment
from tests.interop.oracle import HudiFailure, RealHudi
from tests.interop.test_daily_work_of_version_9 import Day, rows
from tests.interop.test_incremental import BEGIN, END, KIND
from tests.interop.test_procedures import READS, same
from tests.support.needs import WIDE
from tests.support.rows import assert_same_rows

KEEPING: dict[str, Any] = {"hoodie.clean.automatic": False, "hoodie.parquet.small.file.limit": 0}


def worked_on(day: Day) -> None:
    """Writes of both, a delete, what rewrites and what replaces."""
    day.theirs(rows(("a", 1, "a1", 1), ("b", 1, "b1", 1), ("c", 1, "c1", 1), ("d", 1, "d1", 1)))
    day.ours(rows(("a", 2, "a2", 2), ("e", 2, "e2", 2)))
    day.theirs(rows(("b", 3, "b3", 3), ("c", 3, "c3", 3)))
    day.ours(rows(("d", 4, "", 0)), "delete")
    if day.kind == "mor":
        day.table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    else:
        day.table.cluster()
    day.theirs(rows(("a", 5, "a5", 5), ("f", 5, "f5", 5)))
    day.ours(rows(("g", 6, "g6", 6)), "insert_overwrite")


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_queries_and_what_procedures_show(newer_hudi: RealHudi, tmp_path: Path, kind: str) -> None:
    day = Day(newer_hudi, tmp_path / "t", kind, KEEPING)
    worked_on(day)
    table = day.table

    def both(ours: pa.Table, **options: Any) -> None:
        """The real one gives the same rows, meta columns included."""
        assert_same_rows(ours, day.hudi.read(day.path, **options))

    writes = table.timeline().completed_writes()
    times = [str(instant.completion_time) for instant in writes]
    ranges = [*itertools.combinations([*times, None], 2)] if WIDE else [(times[1], times[4]), (times[3], None)]
    for begin, end in [("000", None), *ranges]:
        assert begin is not None
        found = table.incremental(begin, end, ["*"]).to_arrow()
        both(found, **{KIND: "incremental", BEGIN: begin, **({} if end is None else {END: end})})
    for instant in writes if WIDE else [writes[3]]:
        both(table.scan(["*"], as_of=instant.request_time).to_arrow(), **{"as.of.instant": instant.request_time})
    both(table.read_optimized(["*"]).to_arrow(), **{KIND: "read_optimized"})

    table.savepoint(user="somebody", comments="to keep")
    table.rollback(day.ours(rows(("g", 7, "g7", 7))))
    day.hudi.register(day.path, day.name)
    asked = [(name, {**given, "partition": "x"} if given.get("partition") == "a" else given) for name, given in READS]
    asked += [
        (name, {"instant_time": instant.request_time})
        for name in ("show_commit_files", "show_commit_partitions", "show_commit_write_stats")
        for instant in (writes if WIDE else writes[-2:])
    ]
    asked += [("show_rollback_detail", {"instant_time": i.request_time}) for i in table.timeline().completed(Action.ROLLBACK)]
    for name, given in asked:
        if name != "show_compaction" or kind == "mor":
            same(name, procedures.call(name, path=day.path, **given), day.hudi.call(name, table=day.name, **given))


@pytest.mark.wide
def test_partitions_that_have_lived_their_time(newer_hudi: RealHudi, tmp_path: Path) -> None:
    """Ours deletes them, also where the real procedure has found one and died of it; the real one writes them anew."""
    mine = Day(newer_hudi, tmp_path / "mine", "mor", KEEPING)
    old = Table.create(mine.path, options=mine.options, environment=ReplayEnvironment(1, 1_600_000_000_000))
    old.upsert(rows(("a", 1, "a1", 1), ("c", 1, "c1", 1)))
    mine.ours(rows(("c", 2, "c2", 2)))
    theirs = Day(newer_hudi, tmp_path / "theirs", "mor", KEEPING)
    shutil.copytree(mine.path, theirs.path)
    with pytest.raises(HudiFailure, match=r"replacecommit\.inflight does not exist"):
        theirs.call("run_ttl", retain_days=30)
    for day in (mine, theirs):
        assert day.same() == {"a": "a1", "c": "c2"}
        assert procedures.call("run_ttl", path=day.path, retain_days=30).to_pylist() == [{"deleted_partitions": "x"}]
        assert day.same() == {"c": "c2"}
    theirs.theirs(rows(("a", 3, "a3", 3)))
    assert theirs.same() == {"a": "a3", "c": "c2"}
    theirs.checked()
