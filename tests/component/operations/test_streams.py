"""Embedded streaming reads deliver every row once."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.instants import Action
from pyhudi.operations.read.stream_queries import (
    check_stream_options,
    initial_position,
    latest_position,
    next_position,
    plan_batch,
    reads_changes,
)
from pyhudi.options.supported import parse_options
from pyhudi.planning.stream_batches import BEGINNING, BatchLimits

CDC = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc"}
START = "hoodie.datasource.streaming.startOffset"


def rows(keys: str, ts: int) -> pa.Table:
    return pa.table({"id": list(keys), "ts": pa.array([ts] * len(keys), pa.int32())})


def make(path: Path, kind: str) -> Table:
    quiet = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False, "hoodie.metadata.enable": False}
    given = {"hoodie.table.cdc.enabled": True, **quiet}
    return Table.create(path, name="t", record_key="id", ordering="ts", table_type=kind, options=given)


def batches(
    table: Table, start: str, limits: BatchLimits, options: dict[str, object], until: str | None = None
) -> list[list[dict[str, object]]]:
    """The rows of each batch until there are no more."""
    parsed, found = parse_options(options), []
    while (end := next_position(table.context, start, limits, until)) != start:
        query = plan_batch(table.context, parsed, start, end, None, None)
        found.append([row for task in query.tasks for part in query.reader(task) for row in part.to_pylist()])  # type: ignore[arg-type]
        start = end
    return found


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_records_and_changes(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    for ts, keys in enumerate(["ab", "bc", "a", "d"]):
        table.upsert(rows(keys, ts))
    table.delete(rows("d", 9))
    if kind == "mor":
        table.compact()
    table.upsert(rows("c", 9))

    found = batches(table, BEGINNING, BatchLimits(instants=1), {})
    assert [sorted(str(row["id"]) for row in batch) for batch in found] == [["a", "b"], ["b", "c"], ["a"], ["d"], [], ["c"]]
    state = {row["id"]: row["ts"] for batch in found for row in batch}
    assert state == {**{row["id"]: row["ts"] for row in table.scan().to_arrow().to_pylist()}, "d": 3}
    (whole,) = batches(table, BEGINNING, BatchLimits(), {})
    assert sorted(str(row["id"]) for row in whole) == ["a", "b", "c"]

    changes = batches(table, BEGINNING, BatchLimits(instants=2), dict(CDC))
    assert [len(batch) for batch in changes] == [4, 2, 2]
    told = [row for batch in changes for row in batch]
    assert sorted(map(str, told)) == sorted(map(str, table.changes().to_arrow().to_pylist()))
    assert [json.loads(str(row["before"]))["id"] for row in told if row["op"] == "d"] == ["d"]


def test_where_it_begins_and_ends(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow")
    assert latest_position(table.context) == BEGINNING
    results = [table.upsert(rows("a", ts)) for ts in range(3)]
    times = [str(result.completion_time) for result in results]
    assert initial_position(table.context, parse_options({})) == BEGINNING
    assert initial_position(table.context, parse_options({START: "latest"})) == latest_position(table.context) == times[-1]
    assert initial_position(table.context, parse_options({START: times[0]})) == times[0]
    assert len(batches(table, times[0], BatchLimits(instants=1), {})) == 2
    assert len(batches(table, BEGINNING, BatchLimits(instants=1), {}, until=times[1])) == 2
    assert batches(table, times[-1], BatchLimits(), {}) == []
    table.cluster()
    assert latest_position(table.context) == times[-1], "a service changes no record"


def test_positions_if_only_services_are_active(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow")
    for ts, keys in enumerate(["ab", "bc"]):
        table.upsert(rows(keys, ts))
    retained = {"hoodie.clean.commits.retained": 1}
    for _ in range(6):
        table.cluster(options={"hoodie.table.services.incremental.enabled": False})
        table.clean(options=retained)
        table.archive(options={**retained, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    assert not any(instant.action == Action.COMMIT for instant in table.context.timeline.load().completed_writes())
    latest = latest_position(table.context)
    (whole,) = batches(table, BEGINNING, BatchLimits(), {}, until=latest)
    assert sorted(str(row["id"]) for row in whole) == ["a", "b", "c"]
    assert [row for batch in batches(table, latest, BatchLimits(), {}) for row in batch] == []
    table.upsert(rows("d", 9))
    assert [row["id"] for batch in batches(table, latest, BatchLimits(), {}) for row in batch] == ["d"]


def test_stream_start_in_the_archived_timeline(tmp_path: Path) -> None:
    """Records come in their latest state, from archived instants in one batch; of change data nothing is made up."""
    table = make(tmp_path / "t", "cow")
    for ts in range(8):
        table.upsert(rows("ab" if ts % 2 else "ac", ts))
    table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 2})
    few = {"hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 5, "hoodie.clean.commits.retained": 2}
    assert table.archive(options=few).instants
    found = batches(table, BEGINNING, BatchLimits(instants=1), {})
    assert found[0] == [] and len(found) == 5
    assert {str(row["id"]): row["ts"] for batch in found for row in batch} == {"a": 7, "b": 7, "c": 6}
    with pytest.raises(TableState, match=r"are (?:not |un)available"):
        batches(table, BEGINNING, BatchLimits(), dict(CDC))
    strict: dict[str, object] = {"hoodie.datasource.read.incr.fallback.fulltablescan.enable": False}
    with pytest.raises(TableState, match="cleaned"):
        batches(table, BEGINNING, BatchLimits(), strict)


def test_options_of_other_queries() -> None:
    for options in ({"as.of.instant": "2026-11-21"}, {"hoodie.datasource.read.begin.instanttime": "0"}, {START: "soon"}):
        with pytest.raises(InvalidRequest):
            check_stream_options(parse_options(options))
    with pytest.raises(Unsupported):
        check_stream_options(parse_options({"hoodie.datasource.query.type": "read_optimized"}))
    with pytest.raises(InvalidRequest, match="requires"):
        reads_changes(parse_options({"hoodie.datasource.query.incremental.format": "cdc"}))
    check_stream_options(parse_options(CDC))
