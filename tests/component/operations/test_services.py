"""Services after a commit: reports, no cost when not due, and a commit that survives their failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from pyhudi import ServiceFailed, Table
from pyhudi.errors import InstantNotFound, TableState
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.services.run_services import run_services
from pyhudi.operations.services.service_settings import ServiceSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage
from pyhudi.storage.memory import forget_memory

SMALL = {"hoodie.index.bloom.num_entries": 100, "hoodie.bloom.index.filter.type": "SIMPLE", "hoodie.index.bloom.fpp": 0.01}
DAY_MS = 86_400_000


@pytest.fixture
def environment() -> ReplayEnvironment:
    return ReplayEnvironment(3)


def new_table(environment: ReplayEnvironment, **options: object) -> Table:
    forget_memory("services")
    return Table.create(
        "memory://services",
        name="t",
        record_key="id",
        partition_by="part",
        ordering="ts",
        environment=environment,
        options={**SMALL, **options},
    )


def upsert(
    table: Table, environment: ReplayEnvironment, part: str = "a", options: Mapping[str, object] | None = None
) -> Mapping[str, str]:
    environment.advance_ms(1000)
    rows = pa.table({"id": ["k"], "part": [part], "ts": [environment.now_ms()]})
    return table.upsert(rows, options=options).services


def test_write_result_reports_executed_services_and_reasons(environment: ReplayEnvironment) -> None:
    table = new_table(environment, **{"hoodie.clean.commits.retained": 1})
    assert upsert(table, environment)["clean"] == "not due: 1 commits, 1 are retained"
    upsert(table, environment)
    services = upsert(table, environment)
    assert services["clean"] == "run: 1 files deleted"
    assert services["archive"] == "not due: 3 completed writes, up to 30 are kept"
    off = upsert(table, environment, options={"hoodie.clean.automatic": False, "hoodie.archive.automatic": "false"})
    assert off["clean"].startswith("off:") and off["archive"].startswith("off:")
    few = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    assert upsert(table, environment, options=few)["archive"] == "run: 3 instants archived"
    assert table.timeline().completed(Action.CLEAN)


def test_nothing_is_read_when_nothing_is_due(environment: ReplayEnvironment) -> None:
    table = new_table(environment)
    upsert(table, environment)
    timeline = table.timeline()
    context = table.context
    storage = FaultyStorage(context.storage)
    settings = ServiceSettings.of(parse_options({}))
    run_services(
        replace(context, storage=storage), None, settings, timeline, timeline.completed_writes()[-1], table.delete_partitions
    )
    assert storage.calls == ()


def test_a_service_that_fails_leaves_the_commit(environment: ReplayEnvironment) -> None:
    table = new_table(environment, **{"hoodie.clean.commits.retained": 1})
    upsert(table, environment)
    upsert(table, environment)
    store = table.context.timeline
    time = f"{int(table.timeline().latest_time()) + 1}"
    store.request(time, Action.CLEAN, b"damaged")
    store.start(Instant(time, Action.CLEAN, State.REQUESTED), b"damaged")
    count = len(table.timeline().completed_writes())
    with pytest.raises(ServiceFailed, match="is committed; the clean service that followed") as failure:
        upsert(table, environment)
    assert failure.value.service == "clean"
    writes = table.timeline().completed_writes()
    assert len(writes) == count + 1 and writes[-1].request_time == failure.value.instant
    quiet = {"hoodie.fail.writes.on.inline.table.service.exception": False}
    assert upsert(table, environment, options=quiet)["clean"].startswith("failed:")
    assert table.scan().count() == 1


def test_clean_rolls_back_failed_writes_under_the_lazy_policy(environment: ReplayEnvironment) -> None:
    lazy = {"hoodie.clean.failed.writes.policy": "LAZY"}
    table = new_table(environment, **lazy)
    upsert(table, environment)
    store = table.context.timeline
    time = f"{int(table.timeline().latest_time()) + 1}"
    store.start(store.request(time, Action.COMMIT))
    assert table.clean(dry_run=True).rolled_back == ()
    assert table.timeline().pending_writes()
    assert table.clean(dry_run=False).rolled_back == (time,)
    assert not table.timeline().pending_writes()
    store.start(store.request(f"{int(table.timeline().latest_time()) + 1}", Action.COMMIT))
    upsert(table, environment)
    assert not table.timeline().pending_writes()


def test_savepoint_and_restore_of_cleaned_instants_are_rejected(environment: ReplayEnvironment) -> None:
    table = new_table(environment, **{"hoodie.clean.commits.retained": 1})
    for _ in range(4):
        upsert(table, environment)
    first, *_, last = (i.request_time for i in table.timeline().completed_writes())
    with pytest.raises(TableState, match="may be missing"):
        table.savepoint(first)
    with pytest.raises(TableState, match="may be missing"):
        table.restore(first)
    with pytest.raises(InstantNotFound):
        table.savepoint("19990101000000000")
    with pytest.raises(InstantNotFound):
        table.delete_savepoint(last)
    kept = table.savepoint(last, user="u", comments="c")
    assert kept.instant == last and kept.files == 1 and "u: c" in str(kept)
    with pytest.raises(TableState, match="already"):
        table.savepoint(last)
    upsert(table, environment)
    newest = table.savepoint().instant
    with pytest.raises(TableState, match="delete its savepoint first"):
        table.restore(last)
    table.delete_savepoint(newest)
    assert table.restore(last).rolled_back == (newest,)


def test_partitions_without_writes_expire(environment: ReplayEnvironment) -> None:
    table = new_table(environment)
    for part in ("old", "older", "new"):
        upsert(table, environment, part)
        environment.advance_ms(2 * DAY_MS)
    days = {"hoodie.partition.ttl.strategy.days.retain": 3}
    assert table.expired_partitions(options=days) == ("old", "older")
    assert table.expired_partitions(options={**days, "hoodie.partition.ttl.strategy.partition.selected": "old,new"}) == ("old",)
    result = table.run_ttl(options=days)
    assert result.operation == "delete_partition" and result.file_groups_replaced == 2
    assert table.scan(["part"]).to_arrow()["part"].to_pylist() == ["new"]
    nothing = table.run_ttl(options=days)
    assert nothing.instant is None and "no partition is older than 3 days since its last write" in str(nothing)
    by_creation = {**days, "hoodie.partition.ttl.management.strategy.type": "KEEP_BY_CREATION_TIME"}
    assert "3 days since its creation" in table.run_ttl(options=by_creation).reason
    selected = {**days, "hoodie.partition.ttl.strategy.partition.selected": "new"}
    assert "no selected partition is older" in table.run_ttl(options=selected).reason
    for value in (-1, 0):
        never = table.run_ttl(options={"hoodie.partition.ttl.strategy.days.retain": value})
        assert f"hoodie.partition.ttl.strategy.days.retain is {value}; set it to 1 or more days" in never.reason
    assert table.expired_partitions() == () and "days.retain is -1" in table.run_ttl().reason


def test_partitions_expire_by_the_time_of_their_creation(environment: ReplayEnvironment) -> None:
    table = new_table(environment)
    for part in ("old", "new"):
        upsert(table, environment, part)
        environment.advance_ms(2 * DAY_MS)
    upsert(table, environment, "old")
    days = {"hoodie.partition.ttl.strategy.days.retain": 3}
    assert table.expired_partitions(options=days) == ()
    by_creation = {**days, "hoodie.partition.ttl.management.strategy.type": "KEEP_BY_CREATION_TIME"}
    assert table.expired_partitions(options=by_creation) == ("old",)


def test_partitions_expire_after_a_commit(environment: ReplayEnvironment) -> None:
    table = new_table(environment)
    upsert(table, environment, "old")
    environment.advance_ms(5 * DAY_MS)
    inline = {"hoodie.partition.ttl.inline": True, "hoodie.partition.ttl.strategy.days.retain": 3}
    assert upsert(table, environment, "new", options=inline)["ttl"].startswith("run: ")
    assert table.scan(["part"]).to_arrow()["part"].to_pylist() == ["new"]
    assert upsert(table, environment, "new", options=inline)["ttl"] == "not due: no partition has expired"
