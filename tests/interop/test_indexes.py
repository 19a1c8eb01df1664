"""Secondary and expression indexes between PyHudi and the real Hudi: created, written and believed by either."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyhudi import Table
from pyhudi.format.instants import Action
from tests.interop.oracle import RealHudi
from tests.interop.pair import Pair, Row, make
from tests.support.needs import WIDE

ON = {
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.compact.max.delta.commits": 4,
}
THEIRS: dict[str, Any] = {"hoodie.index.type": "RECORD_INDEX"}
QUERIES: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("note = 'xx'", lambda row: row["note"] == "xx"),
    ("seats = 3", lambda row: row["seats"] == 3),
    ("to_date(moment) = DATE'2026-01-21'", lambda row: row["moment"].date() == datetime.date(2026, 1, 21)),
    ("from_unixtime(ts, 'yyyy-MM-dd') = '1970-01-01'", lambda row: True),
    ("length(id) = 5", lambda row: len(row["id"]) == 5),
    ("upper(city) = 'OSLO'", lambda row: row["city"] == "oslo"),
)


@pytest.fixture
def session(hudi: RealHudi) -> Iterator[RealHudi]:
    hudi.sql("SET hoodie.metadata.record.index.enable=true")
    try:
        yield hudi
    finally:
        hudi.sql("RESET hoodie.metadata.record.index.enable")


def create_theirs(hudi: RealHudi, path: Path, name: str) -> None:
    hudi.register(path, name)
    hudi.sql(f"CREATE INDEX note ON {name} (note)")
    hudi.sql(f"CREATE INDEX seats ON {name} (seats)")
    hudi.sql(f"CREATE INDEX of_moment ON {name} USING column_stats(moment) OPTIONS(expr='to_date')")
    hudi.sql(f"CREATE INDEX of_ts ON {name} USING column_stats(ts) OPTIONS(expr='from_unixtime', format='yyyy-MM-dd')")
    hudi.sql(f"CREATE INDEX of_id ON {name} USING column_stats(id) OPTIONS(expr='length')")
    hudi.sql(f"CREATE INDEX of_city ON {name} USING bloom_filters(city) OPTIONS(expr='upper')")


def create_ours(table: Table, *, filters: bool = True) -> None:
    index = table.index
    index.create("secondary_index", "note")
    index.create("secondary_index", "seats")
    index.create("column_stats", "moment", function="to_date", name="of_moment")
    index.create("column_stats", "ts", function="from_unixtime", function_options={"format": "yyyy-MM-dd"}, name="of_ts")
    index.create("column_stats", "id", function="length", name="of_id")
    if filters:
        index.create("bloom_filters", "city", function="upper", name="of_city")


def check(pair: Pair, count: int = len(QUERIES)) -> None:
    """What the metadata table says covers what there is, and the real Hudi reads the right rows by each index.

    Not more than covers: the real Hudi counts the rows of older files into the statistics of partitions.
    """
    found = pair.table.validate()
    assert found.ok, str(found)
    pair.check_filters(QUERIES[:count])
    note = pair.table.scan(filter="note = 'xx'")
    assert note.count() == sum(row["note"] == "xx" for row in pair.rows.values())
    assert "secondary index secondary_index_note" in str(note.explain())


def definitions(path: Path) -> object:
    return json.loads((path / ".hoodie/.index_defs/index.json").read_text())


@pytest.mark.parametrize("creator", ["ours", pytest.param("theirs", marks=pytest.mark.wide)])
def test_indexes_of_either(session: RealHudi, tmp_path: Path, creator: str) -> None:
    pair = Pair(session, tmp_path / "t", "cow", ON)
    pair.create()
    pair.ours("upsert", make(range(40), 1))
    if creator == "ours":
        create_ours(pair.table)
    else:
        create_theirs(session, pair.path, f"indexes_{creator}")
        other = Table.create(tmp_path / "other", options=pair.options)
        other.upsert(make(range(3), 1))
        create_ours(other)
        assert definitions(tmp_path / "other") == definitions(pair.path)
    names = set(pair.metadata.partitions)
    assert {"secondary_index_note", "expr_index_of_moment", "expr_index_of_ts", "expr_index_of_id", "expr_index_of_city"} < names
    # A write of the real Hudi to six indexes takes 10 s.  In an ordinary run it writes to indexes that we have created, and to
    # its own after we have clustered; it is asked by each of ours when they are new, and by each of anybody's at the end.
    check(pair, len(QUERIES) if WIDE or creator == "ours" else 0)
    pair.ours("upsert", make(range(30, 50), 2, note="xx"))
    if WIDE or creator == "ours":
        pair.theirs("upsert", make(range(45, 60), 3), **THEIRS)
        check(pair, len(QUERIES) if WIDE else 0)
    pair.ours("delete", make(range(0, 6), 4))
    pair.table.cluster()
    if WIDE or creator == "theirs":
        pair.theirs("upsert", make(range(38, 48), 5, seats=3), **THEIRS)
    assert pair.metadata.timeline.completed(Action.COMMIT), "the metadata table was never compacted"
    check(pair)
    assert names == set(pair.metadata.partitions)


def test_merge_on_read(session: RealHudi, tmp_path: Path) -> None:
    pair = Pair(session, tmp_path / "t", "mor", {**ON, "hoodie.compact.inline": False})
    pair.create()
    pair.ours("upsert", make(range(30), 1))
    # The real Hudi cannot write log files to a table with filters of an expression.
    create_ours(pair.table, filters=False)
    pair.ours("upsert", make(range(20, 30), 2, note="xx"))
    check(pair, 1)
    pair.table.compact()
    pair.theirs("upsert", make(range(10, 15), 3, note="xx"), **THEIRS)
    check(pair, 4)
