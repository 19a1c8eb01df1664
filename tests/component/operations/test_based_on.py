"""Writes with `based_on=` succeed only while the replaced rows equal those of the scan."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from pyhudi import Scan, Table
from pyhudi.errors import InvalidRequest, WriteConflict

_numbers = itertools.count()
OPTIONS = {
    "hoodie.metadata.enable": False,
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "pyhudi.threads": 1,
}


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest) -> Table:
    """Two file groups: a and b in one, c in the other."""
    made = Table.create(
        f"memory://based-on-{request.param}-{next(_numbers)}", record_key="id", table_type=request.param, options=OPTIONS
    )
    made.upsert(counters(a=1, b=1))
    made.upsert(counters(c=1))
    return made


def counters(**values: int) -> pa.Table:
    return pa.table({"id": list(values), "v": pa.array(list(values.values()), pa.int64())})


def rows(table: Table) -> dict[str, int]:
    found = table.scan().to_arrow()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def incremented(scan: Scan) -> pa.Table:
    found = scan.to_arrow()
    return counters(**{key: value + 1 for key, value in zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)})


def test_no_increment_is_lost_between_reading_and_writing(table: Table) -> None:
    ours = table.scan(filter="id = 'a'")
    theirs = table.scan(filter="id = 'a'")
    table.upsert(incremented(theirs), based_on=theirs)
    with pytest.raises(WriteConflict, match="changed concurrently"):
        table.upsert(incremented(ours), based_on=ours)
    again = table.scan(filter="id = 'a'")
    assert table.upsert(incremented(again), based_on=again).conflict_retries == 0
    assert rows(table) == {"a": 3, "b": 1, "c": 1}


def test_other_file_groups_may_change(table: Table) -> None:
    ours = table.scan(filter="id = 'a'")
    table.upsert(counters(c=7))
    table.upsert(incremented(ours), based_on=ours)
    assert rows(table) == {"a": 2, "b": 1, "c": 7}


def test_a_key_that_the_scan_did_not_find_was_inserted_since(table: Table) -> None:
    ours = table.scan(filter="id = 'd'")
    assert ours.count() == 0
    table.upsert(counters(d=5))
    with pytest.raises(WriteConflict):
        table.upsert(counters(d=1), based_on=ours)
    assert rows(table)["d"] == 5


def test_a_delete_since_the_scan(table: Table) -> None:
    ours = table.scan(filter="id = 'a'")
    table.delete(where="id = 'a'")
    with pytest.raises(WriteConflict):
        table.upsert(incremented(ours), based_on=ours)
    assert rows(table) == {"b": 1, "c": 1}


def test_based_on_conflicts_with_archived_commits() -> None:
    kept = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table = Table.create("memory://based-on-archived", record_key="id", options={**OPTIONS, **kept})
    table.upsert(counters(a=1))
    ours = table.scan()
    data = incremented(ours)
    for value in range(10, 18):
        table.upsert(counters(a=value))
    with pytest.raises(WriteConflict):
        table.upsert(data, based_on=ours)
    assert rows(table) == {"a": 17}


def test_scans_that_rows_cannot_be_based_on(table: Table) -> None:
    last = table.timeline().completed_writes()[-1]
    for scan in (
        table.scan(as_of=last.request_time),
        table.read_optimized(),
        table.incremental("0"),
    ):
        with pytest.raises(InvalidRequest, match="latest state"):
            table.upsert(counters(a=9), based_on=scan)
    other = Table.create(f"{table.uri}-another", record_key="id", options=OPTIONS)
    other.upsert(counters(a=1))
    with pytest.raises(InvalidRequest, match="-another"):
        table.upsert(counters(a=9), based_on=other.scan())
    assert rows(table)["a"] == 1
