"""CHECK constraints: every write of PyHudi is checked, and what cannot be checked is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.format.instants import Action
from pyhudi.operations.commit.action_attempt import rollback_on_error
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.transaction import Transaction

_numbers = itertools.count()


def made(table_type: str = "cow", **more: Any) -> hp.Table:
    uri = f"memory://constraints-{next(_numbers)}/t"
    table = hp.Table.create(uri, record_key="id", ordering="ts", table_type=table_type, **more)
    table.upsert(rows((1, 5.0, "x"), (2, None, "y")))
    return table


def rows(*records: tuple[int, float | None, str], ts: int = 1) -> pa.Table:
    ids, fares, cities = zip(*records, strict=True)
    return pa.table({"id": list(ids), "ts": [ts] * len(ids), "fare": pa.array(fares, pa.float64()), "city": list(cities)})


def held(table: hp.Table) -> dict[int, float | None]:
    return {row["id"]: row["fare"] for row in table.scan(["id", "fare"]).to_arrow().to_pylist()}


BAD = rows((3, 1.0, "x"), (4, -1.0, "y"), ts=2)
WRITES: dict[str, Callable[[hp.Table], object]] = {
    "upsert": lambda t: t.upsert(BAD),
    "insert": lambda t: t.insert(BAD),
    "bulk_insert": lambda t: t.bulk_insert(BAD),
    "insert_overwrite": lambda t: t.insert_overwrite(BAD),
    "insert_overwrite_table": lambda t: t.insert_overwrite_table(BAD),
    "update": lambda t: t.update({"fare": -1.0, "ts": 5}, where="id = 1"),
    "merge insert": lambda t: t.merge(BAD, on="id").when_not_matched_insert_all().execute(),
    "merge update": lambda t: t.merge(rows((1, -1.0, "x"), ts=9), on="id").when_matched_update_all().execute(),
    "partial": lambda t: t.upsert(pa.table({"id": [1], "ts": [3], "fare": [-1.0]}), partial=True),
    "write": lambda t: hp.write(t.uri, BAD),
    "overwrite": lambda t: hp.write(t.uri, BAD, mode="overwrite"),
    "sql": lambda t: hp.sql(f"INSERT INTO hudi.`{t.uri}` VALUES (7, 1, -2.0, 'x')"),
    "sql update": lambda t: hp.sql(f"UPDATE hudi.`{t.uri}` SET fare = fare - 100 WHERE id = 1"),
}


@pytest.mark.sample(9)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("name", WRITES)
def test_every_write_is_checked(name: str, table_type: str) -> None:
    table = made(table_type)
    table.alter.add_constraint("positive", "fare > 0")
    before, timeline = held(table), table.timeline().completed_writes()
    with pytest.raises(InvalidRequest, match=r"constraint 'positive' \(fare > 0\) is violated by row \d"):
        WRITES[name](hp.Table(table.uri))
    assert held(table) == before
    assert table.timeline().completed_writes() == timeline
    table.upsert(rows((1, 9.0, "x"), (8, None, "z"), ts=3))
    assert held(table) == {1: 9.0, 2: None, 8: None}


def test_constraints_are_listed_and_dropped() -> None:
    table = made()
    table.alter.add_constraint("positive", "fare > 0")
    table.alter.add_constraint("city_known", "city in ('x', 'y') and fare < 100")
    assert table.alter.constraints() == {"city_known": "city in ('x', 'y') and fare < 100", "positive": "fare > 0"}
    with pytest.raises(InvalidRequest, match="has a constraint 'positive'"):
        table.alter.add_constraint("positive", "fare > 1")
    with pytest.raises(InvalidRequest, match="city_known"):
        table.upsert(rows((9, 1.0, "elsewhere")))
    table.alter.drop_constraint("city_known")
    table.upsert(rows((9, 1.0, "elsewhere")))
    with pytest.raises(InvalidRequest, match="has no constraint 'city_known': it has positive"):
        table.alter.drop_constraint("city_known")
    table.upgrade(9)
    assert hp.Table(table.uri).alter.constraints() == {"positive": "fare > 0"}


def test_a_constraint_needs_rows_that_satisfy_it() -> None:
    table = made()
    for name, condition, message in (
        ("negative", "fare < 0", r"a row violates it: .*'fare': 5\.0"),
        ("a b", "fare > 0", "no name of a constraint"),
        ("c", "missing > 0", "missing"),
        ("c", "fare >", "filter|expected"),
        ("c", "1 = 1", "column"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            table.alter.add_constraint(name, condition)
    assert table.alter.constraints() == {}
    with pytest.raises(TableState, match="has no columns yet"):
        hp.Table.create(f"memory://constraints-{next(_numbers)}/t", record_key="id").alter.add_constraint("c", "id > 0")


def test_deletes_need_not_satisfy_constraints() -> None:
    table = made()
    table.alter.add_constraint("positive", "fare > 0")
    table.alter.add_constraint("has_city", "city is not null")
    table.delete([1])
    deleted = pa.table({"id": [2], "ts": [9], "fare": [-1.0], "city": ["y"], "_hoodie_is_deleted": [True]})
    table.upsert(deleted)
    assert held(table) == {}
    with pytest.raises(InvalidRequest, match="has_city"):
        table.upsert([{"id": 5, "ts": 1, "fare": 1.0, "city": None, "_hoodie_is_deleted": False}])


def test_columns_of_constraints_stay() -> None:
    table = made()
    table.alter.add_constraint("positive", "fare > 0")
    changes: tuple[Callable[[], object], ...] = (
        lambda: table.alter.drop("fare"),
        lambda: table.alter.rename("fare", "price"),
        lambda: table.alter.retype("fare", "string"),
    )
    for change in changes:
        with pytest.raises(InvalidRequest, match="column fare is read by constraint 'positive'"):
            change()
    table.alter.comment("fare", "in euro")
    with pytest.raises(InvalidRequest, match="fare"):
        hp.write(table.uri, pa.table({"id": [1], "ts": [1]}), mode="overwrite")


def test_partial_updates_have_all_columns_of_a_constraint_or_none() -> None:
    table = made()
    table.alter.add_constraint("both", "fare > 0 or city = 'free'")
    table.upsert(pa.table({"id": [1], "ts": [2]}), partial=True)
    with pytest.raises(Unsupported, match=r"a partial update of .* has no column city, which constraint 'both'"):
        table.upsert(pa.table({"id": [1], "ts": [3], "fare": [1.0]}), partial=True)


def test_a_merger_that_makes_rows_of_its_own_is_refused() -> None:
    payload = {"hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"}
    with pytest.raises(Unsupported, match="can produce rows that no write has checked"):
        made(options=payload).alter.add_constraint("positive", "fare > 0")


def test_a_constraint_waits_for_writes_in_progress() -> None:
    table = made()
    running = Transaction.begin(table.context, Action.COMMIT, CommitSettings.of(table._open.options))
    with pytest.raises(WriteConflict, match=f"write {running.instant_time} is in progress"), rollback_on_error(running):
        table.alter.add_constraint("positive", "fare > 0")
    table.alter.add_constraint("positive", "fare > 0")


def test_a_write_that_read_the_table_before_the_constraint_is_refused() -> None:
    table = made()

    def late() -> Any:
        yield pa.table({"id": [7], "ts": [1], "fare": [-5.0], "city": ["x"]})
        hp.Table(table.uri).alter.add_constraint("positive", "fare > 0")

    with pytest.raises(InvalidRequest, match=r"the constraints of .* changed while this write ran: run it again"):
        table.upsert(late())
    assert held(table) == {1: 5.0, 2: None}
    assert not table.timeline().pending()
