"""Cleans of some partitions, of a limited number of commits, and without files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.instants import Action
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment

MANUAL: dict[str, Any] = {"hoodie.clean.automatic": "false"}
ONE: dict[str, Any] = {"hoodie.clean.commits.retained": 1}
FULL: dict[str, Any] = {**ONE, "hoodie.clean.incremental.enabled": "false"}
HOUR_MS = 3_600_000


def rows(ts: int, cities: tuple[str, ...] = ("sf", "ny")) -> pa.Table:
    return pa.table({"id": [f"{c}-1" for c in cities], "city": list(cities), "ts": pa.array([ts] * len(cities), pa.int64())})


def make(uri: str, commits: int = 3) -> hp.Table:
    table = hp.Table.create(uri, record_key="id", partition_by="city", ordering="ts")
    for ts in range(commits):
        table.upsert(rows(ts), options=MANUAL)
    return table


def last_clean(table: hp.Table) -> CleanMetadata:
    return CleanMetadata.decode(table.context.timeline.read(table.timeline().completed(Action.CLEAN)[-1]))


@pytest.mark.parametrize(
    "option", [{"hoodie.clean.partition.filter.selected": "sf,la"}, {"hoodie.clean.partition.filter.regex": "s."}]
)
def test_selected_partitions_are_cleaned_and_the_others_later(option: dict[str, Any]) -> None:
    table = make(f"memory://clean-{len(str(option))}")
    with pytest.raises(InvalidRequest, match="incremental"):
        table.clean(dry_run=False, options={**ONE, **option})
    done = table.clean(dry_run=False, options={**FULL, **option})
    assert set(done.files) == {"sf"}
    assert last_clean(table).earliest_commit_to_retain == done.earliest_retained
    table.upsert(rows(9, ("sf",)), options=MANUAL)
    later = table.clean(dry_run=False, options=ONE)
    assert set(later.files) == {"sf", "ny"}, "an incremental clean inspects all partitions after a partial one"
    assert table.validate().ok


def test_a_clean_moves_by_a_limited_number_of_commits_after_the_first() -> None:
    table = make("memory://clean-limit", 6)
    limited = {**ONE, "hoodie.clean.max.commits.to.clean": 2}
    writes = [i.request_time for i in table.timeline().completed_writes()]
    assert table.clean(dry_run=False, options=limited).earliest_retained == writes[5]
    for ts in range(6, 10):
        table.upsert(rows(ts), options=MANUAL)
    writes = [i.request_time for i in table.timeline().completed_writes()]
    assert table.clean(dry_run=False, options=limited).earliest_retained == writes[7]
    assert table.clean(dry_run=False, options={**ONE, "hoodie.clean.trigger.max.commits": 0}).earliest_retained == writes[9]


def test_a_clean_without_files_is_recorded_after_the_interval() -> None:
    environment = ReplayEnvironment(3)
    table = hp.Table.create("memory://clean-empty", record_key="id", partition_by="city", ordering="ts", environment=environment)
    options = {**ONE, "hoodie.write.empty.clean.interval.hours": 2}

    def insert(number: int) -> None:
        table.insert(rows(number, (f"c{number}",)), options=MANUAL)

    for number in range(3):
        insert(number)
    with pytest.raises(InvalidRequest, match="at least 1"):
        table.clean(dry_run=False, options={**ONE, "hoodie.write.empty.clean.interval.hours": 0})
    assert table.clean(dry_run=False, options=ONE).instant is None
    first = table.clean(dry_run=False, options=options)
    assert (first.instant is not None, dict(first.files)) == (True, {})
    metadata = last_clean(table)
    assert (metadata.partition_metadata, metadata.total_files_deleted) == ({}, 0)
    assert metadata.earliest_commit_to_retain == table.timeline().completed_writes()[-1].request_time
    insert(3)
    assert table.clean(dry_run=False, options=options).instant is None, "the interval has not passed"
    environment.step_ms(3 * HOUR_MS)
    insert(4)
    assert table.clean(dry_run=False, options=options).instant is not None
    assert last_clean(table).earliest_commit_to_retain == table.timeline().completed_writes()[-1].request_time
    assert table.scan().count() == 5
    assert table.validate().ok


def test_a_write_cleans_before_it_begins() -> None:
    table = make("memory://clean-prewrite")
    table.upsert(rows(7), options={**MANUAL, **ONE, "hoodie.prewrite.cleaner.policy": "CLEAN"})
    timeline = table.timeline()
    clean, write = timeline.completed(Action.CLEAN)[-1], timeline.completed_writes()[-1]
    assert clean.request_time < str(clean.completion_time) < write.request_time
    table.delete_partitions("ny", options={**MANUAL, **ONE, "hoodie.prewrite.cleaner.policy": "CLEAN"})
    assert len(table.timeline().completed(Action.CLEAN)) == 2
    with pytest.raises(InvalidRequest, match="none of NONE"):
        table.upsert(rows(8), options={"hoodie.prewrite.cleaner.policy": "SOMETIMES"})
    assert table.validate().ok


@pytest.mark.parametrize("policy", ["CLEAN", "ROLLBACK_FAILED_WRITES"])
def test_a_write_rolls_failed_writes_back_before_it_begins(policy: str) -> None:
    """Under LAZY only a clean does so otherwise."""
    table = make(f"memory://clean-prewrite-{policy}")
    lazy = {**MANUAL, "hoodie.clean.failed.writes.policy": "LAZY"}
    settings = CommitSettings.of(parse_options({}))
    dead = Transaction.begin(table.context, Action.COMMIT, settings, b"")
    dead.stop_heartbeat()
    assert not table.upsert(rows(8), options=lazy).rolled_back
    assert table.upsert(rows(9), options={**lazy, "hoodie.prewrite.cleaner.policy": policy}).rolled_back == (dead.instant_time,)
    assert not table.timeline().pending_writes()
