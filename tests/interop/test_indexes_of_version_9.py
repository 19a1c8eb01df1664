"""Secondary and expression indexes of the second form: created, written and believed by PyHudi and by the real Hudi 1.1.1."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyhudi import Table
from tests.interop.oracle import RealHudi
from tests.interop.pair import Pair, Row, make
from tests.support.needs import WIDE

ON: dict[str, Any] = {
    "hoodie.write.table.version": 9,
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.compact.max.delta.commits": 4,
}
THEIRS: dict[str, Any] = {"hoodie.index.type": "RECORD_INDEX", "hoodie.embed.timeline.server": False}
# Release 1.1 makes no index in a session that names no lock.
SESSION = {
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
QUERIES: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("note = 'x$\\\\x'", lambda row: row["note"] == "x$\\x"),
    ("day = DATE'2026-01-24'", lambda row: row["day"] == datetime.date(2026, 1, 24)),
    ("to_date(moment) = DATE'2026-01-21'", lambda row: row["moment"].date() == datetime.date(2026, 1, 21)),
    ("length(id) = 5", lambda row: len(row["id"]) == 5),
    ("price >= 25.00", lambda row: row["price"] is not None and row["price"] >= 25),
)


@pytest.fixture
def session(newer_hudi: RealHudi) -> Iterator[RealHudi]:
    for key, value in SESSION.items():
        newer_hudi.sql(f"SET {key}={value}")
    yield newer_hudi
    for key in SESSION:
        newer_hudi.sql(f"RESET {key}")


def create(table: Table) -> None:
    table.index.create("secondary_index", "note", name="by_note")
    table.index.create("secondary_index", "day", name="by_day")
    table.index.create("column_stats", "moment", function="to_date", name="of_moment")
    table.index.create("column_stats", "id", function="length", name="of_id")


def check(pair: Pair, count: int = len(QUERIES)) -> None:
    found = pair.table.validate()
    assert found.ok, str(found)
    pair.check_filters(QUERIES[:count])
    for column, value in (("note", "x$\\x"), ("day", datetime.date(2026, 1, 24))):
        scan = pair.table.scan(filter=[(column, "=", value)])
        assert scan.count() == sum(row[column] == value for row in pair.rows.values())
        assert f"secondary index secondary_index_by_{column}" in str(scan.explain())


def definitions(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((path / ".hoodie/.index_defs/index.json").read_text())["indexDefinitions"]
    return found


@pytest.mark.parametrize("creator", [pytest.param("ours", marks=pytest.mark.wide), "theirs"])
def test_indexes_of_either(session: RealHudi, tmp_path: Path, creator: str) -> None:
    pair = Pair(session, tmp_path / "t", "cow", ON)
    pair.create()
    pair.ours("upsert", make(range(24), 1))
    if creator == "ours":
        create(pair.table)
    else:
        name = "indexes_of_version_9"
        session.register(pair.path, name)
        session.sql(f"CREATE INDEX by_note ON {name} (note)")
        session.sql(f"CREATE INDEX by_day ON {name} (day)")
        session.sql(f"CREATE INDEX of_moment ON {name} USING column_stats(moment) OPTIONS(expr='to_date')")
        session.sql(f"CREATE INDEX of_id ON {name} USING column_stats(id) OPTIONS(expr='length')")
    versions = {name: definition["version"] for name, definition in definitions(pair.path).items()}
    assert versions.pop("record_index") == "V1" and set(versions.values()) == {"V2"} and len(versions) == 5
    # A write of the real Hudi to all indexes takes 10 s.  In an ordinary run it writes to indexes that we have created, and to
    # its own after we have written to them.
    if WIDE or creator == "ours":
        pair.theirs("upsert", make(range(18, 30), 2, note="x$\\x"), **THEIRS)
        check(pair, len(QUERIES) if WIDE else 0)
    pair.ours("upsert", make(range(22, 26), 3, note=None))
    if WIDE or creator == "ours":
        pair.theirs("delete", make(range(18, 20), 4), **THEIRS)
    pair.ours("delete", make(range(20, 22), 4))
    if WIDE or creator == "theirs":
        pair.theirs("upsert", make(range(2), 5, note="x$\\x", day=datetime.date(2026, 1, 24)), **THEIRS)
    assert pair.metadata_compactions(), "the metadata table was never compacted"
    check(pair)
