"""Ingestion jobs that are killed at each storage call, run twice at once, or meet other writers: each row is written once.

The jobs insert into a table that generates its keys, so that a row that is written twice is there twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Ingest, Table
from pyhudi.errors import HudiError
from pyhudi.storage import open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import Fault, FaultOutcome, FaultyStorage, SimulatedCrash, StorageCall
from pyhudi.storage.memory import MemoryStorage
from tests.simulation.tables import crash_points, sampled
from tests.support.ingestion import ListSource, Rows, checkpoints, counted, new_uri

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64())])
BATCHES: list[Rows] = [
    [{"id": "a", "value": 1}, {"id": "b", "value": 2}],
    [{"id": "c", "value": 3}, {"id": None, "value": 4}, {"id": None, "value": 4}],
    [{"id": "a", "value": 1}],
]
GOOD: Counter[tuple[Any, ...]] = Counter({("a", 1): 2, ("b", 2): 1, ("c", 3): 1})
BAD: Counter[tuple[Any, ...]] = Counter({('{"id": null, "value": 4}', "id is null"): 2})


class Place:
    """A target and its error table in memory, with one clock."""

    def __init__(self) -> None:
        self.environment = ReplayEnvironment(7)
        self.target, self.errors = new_uri(), new_uri()
        for uri in (self.target, self.errors):
            MemoryStorage(uri, self.environment)

    def job(self, source: object, storage_options: Mapping[str, str] | None = None, **settings: Any) -> Ingest:
        return Ingest(
            {
                "path": self.target,
                "source": source,
                "mode": "insert",
                "error_table": self.errors,
                "options": {"pyhudi.threads": 1, "hoodie.archive.automatic": False},
                "retries": 0,
                "storage_options": storage_options or {},
                **settings,
            },
            environment=self.environment,
        )

    @property
    def table(self) -> Table:
        return Table(self.target, environment=self.environment)

    def prepare(self) -> None:
        """The target has a required column, so that a null does not fit."""
        schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("value", pa.int64())])
        Table.create(self.target, schema=schema, environment=self.environment)

    def check(self, good: Counter[tuple[Any, ...]] = GOOD) -> None:
        assert counted(self.table, "id", "value") == good
        assert counted(Table(self.errors, environment=self.environment), "record", "reason") == BAD


def run_faulty(place: Place, fault: Fault | None) -> FaultyStorage:
    """Run a job whose calls to both tables are counted together, and fail as planned."""
    storage = FaultyStorage(open_storage(place.target), fault)
    try:
        place.job(ListSource(BATCHES, SCHEMA), dict(storage.spec().options)).run()
    except SimulatedCrash:
        pass
    return storage


@pytest.mark.crash_points
def test_a_job_killed_at_any_call_writes_each_row_once() -> None:
    whole = Place()
    whole.prepare()
    calls = run_faulty(whole, None).calls
    whole.check()
    assert checkpoints(whole.table) == ["1", "2", "3"]
    for fault in sampled(crash_points(calls), calls):
        place = Place()
        place.prepare()
        storage = run_faulty(place, fault)
        assert storage.triggered, fault
        # The dead writer's heartbeat expires.
        place.environment.advance_ms(3_600_000)
        try:
            place.job(ListSource(BATCHES, SCHEMA)).run()
            place.check()
        except BaseException as error:
            error.add_note(f"after {fault}: {storage.calls[-1]}")
            raise


@pytest.mark.crash_points
def test_a_first_job_killed_at_any_call_of_the_creation_is_repeated() -> None:
    calls = run_faulty(Place(), None).calls
    first: list[StorageCall] = []
    for call in calls:
        first.append(call)
        if call.writes and ".commit" in call.path:
            break
    rows: Counter[tuple[Any, ...]] = Counter({**GOOD, (None, 4): 2})
    for fault in sampled(crash_points(first), first):
        place = Place()
        assert run_faulty(place, fault).triggered
        place.environment.advance_ms(3_600_000)
        place.job(ListSource(BATCHES, SCHEMA)).run()
        assert counted(place.table, "id", "value") == rows, fault


@pytest.mark.crash_points
def test_lost_response_at_any_call_neither_loses_nor_repeats_rows() -> None:
    """After an unknown commit the job ends with an error, and the next run finds out."""
    whole = Place()
    whole.prepare()
    calls = run_faulty(whole, None).calls

    for fault in sampled(crash_points(calls, FaultOutcome.LOST_RESPONSE), calls):
        place = Place()
        place.prepare()
        try:
            run_faulty(place, fault)
        except HudiError:
            pass
        place.environment.advance_ms(3_600_000)
        place.job(ListSource(BATCHES, SCHEMA)).run()
        place.check()


class Interrupting(ListSource):
    """Something happens after a batch was read and before it is written."""

    def __init__(self, act: Callable[[], object], at: int) -> None:
        super().__init__(BATCHES, SCHEMA)
        self.act, self.at = act, at

    def read(self, checkpoint: str | None, limit: Any) -> tuple[pa.Table, str] | None:
        found = super().read(checkpoint, limit)
        if len(self.reads) == self.at:
            self.act()
        return found


@pytest.mark.parametrize("at", [1, 2, 3])
def test_of_two_instances_one_writes_each_batch(at: int) -> None:
    place = Place()
    place.prepare()
    source = Interrupting(lambda: place.job(ListSource(BATCHES, SCHEMA)).run(), at)
    place.job(source).run()
    place.check()
    assert checkpoints(place.table) == ["1", "2", "3"]


def test_the_instance_that_lost_a_batch_continues_at_the_checkpoint_of_the_other() -> None:
    place = Place()
    place.prepare()
    source = Interrupting(lambda: place.job(ListSource(BATCHES[:1], SCHEMA)).run(), 1)
    place.job(source).run()
    place.check()
    assert source.reads == [None, "1", "2", "3"]


def test_commits_of_other_writers_are_skipped() -> None:
    place = Place()
    place.prepare()
    other = {"id": ["other"], "value": [9]}
    source = Interrupting(lambda: place.table.insert(other), 2)
    place.job(source).run()
    place.table.insert(other)
    again = ListSource(BATCHES, SCHEMA)
    place.job(again).run()
    place.check(GOOD + Counter({("other", 9): 2}))
    assert again.reads == ["3"]


def test_a_checkpoint_in_the_archived_timeline_is_found() -> None:
    place = Place()
    place.prepare()
    place.job(ListSource(BATCHES, SCHEMA)).run()
    for number in range(12):
        place.environment.advance_ms(1000)
        place.table.insert({"id": [f"n{number}"], "value": [number]})
    place.table.clean(options={"hoodie.clean.commits.retained": 1})
    keep = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4}
    assert place.table.archive(options=keep).instants
    assert not any(checkpoints(place.table))
    source = ListSource(BATCHES, SCHEMA)
    place.job(source).run()
    assert source.reads == ["3"]


def test_ingestion_reads_rows_again_that_a_restore_removed() -> None:
    place = Place()
    place.prepare()
    place.job(ListSource(BATCHES[:1], SCHEMA)).run()
    place.environment.advance_ms(1000)
    saved = place.table.savepoint()
    place.job(ListSource(BATCHES, SCHEMA)).run()
    place.check()
    place.environment.advance_ms(1000)
    place.table.restore(saved)
    source = ListSource(BATCHES, SCHEMA)
    place.job(source).run()
    assert source.reads[0] == "1"
    place.check()


def test_services_follow_the_batches_of_a_merge_on_read_table() -> None:
    place = Place()
    batches: list[Rows] = [[{"id": "a", "value": number}] for number in range(6)]
    options = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 2, "pyhudi.threads": 1}
    place.job(ListSource(batches, SCHEMA), mode="upsert", record_key="id", table_type="mor", options=options).run()
    actions = [row["action"] for row in place.table.inspect.commits().to_pylist()]
    assert actions.count("deltacommit") == 6
    assert actions.count("commit") >= 2
    again = ListSource(batches, SCHEMA)
    place.job(again, mode="upsert").run()
    assert again.reads == ["6"]
    assert counted(place.table, "id", "value") == Counter({("a", 5): 1})
