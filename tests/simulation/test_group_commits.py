"""Group commits: leaders and followers that die or get no answer at every call, and batches that end in each way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table, WriteResult
from pyhudi.errors import CommitUnknown, HudiError, InvalidRequest, StorageUnavailable, Unsupported
from pyhudi.operations.write.group_commit import MAX_BATCH_BYTES
from pyhudi.operations.write.group_members import MemberState
from pyhudi.operations.write.group_tickets import GROUP_KEY, Claim, Ticket, list_tickets, read_claim
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import Fault, FaultOutcome, FaultyStorage, SimulatedCrash, StorageCall
from pyhudi.table.snapshot import read_commit
from tests.simulation.crashing_writes import OPTIONS, check_next_writer, data, faults_of, faulty, through
from tests.simulation.tables import Rows, World
from tests.support.group_follower import Follower

GROUPED = {**OPTIONS, "pyhudi.write.group": "auto"}
FOLLOWER = {"k30": 1, "k31": 2}
LEADER = {"k41": 3, "k40": 4}


def world_with_commits(kind: str = "cow", options: dict[str, object] | None = None) -> World:
    world = World(kind, {**GROUPED, **(options or {})})
    world.upsert({f"k{number}": number for number in range(6)})
    return world


def follow(world: World, rows: pa.Table, operation: str = "upsert", **changes: Any) -> Follower:
    """A follower in the world. changes: fields of its ticket."""
    world.environment.advance_ms(1)
    return Follower(world.table, rows, operation, **changes)


def staged_files(world: World) -> list[str]:
    files, claims = list_tickets(open_storage(world.uri))
    return [info.name for info in files] + list(claims)


def numbers(result: WriteResult) -> tuple[int, int, int, int | None]:
    return result.rows_in, result.rows_inserted, result.rows_updated, result.rows_deleted


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_leader_commits_staged_batches(kind: str) -> None:
    world = world_with_commits(kind)
    commits = len(world.table.timeline().completed_writes())
    rows = data(world, {"k1": 111, "k30": 130, "k40": 40})
    follower = follow(world, data(world, {"k1": 11, "k30": 30}))
    led = world.table.upsert(rows)
    done = follower.finish()
    assert len(world.table.timeline().completed_writes()) == commits + 1
    assert led.instant == done.instant
    assert led.grouped == done.grouped == 2
    # The leader's own batch comes first.
    assert numbers(led) == (3, 2, 1, 0)
    assert numbers(done) == (2, 0, 2, 0)
    assert "wait" in done.seconds
    assert world.scanned() == {**world.rows, "k1": 11, "k30": 30, "k40": 40}
    assert staged_files(world) == []
    assert world.table.validate().ok


def test_equal_keys_keep_the_larger_ordering_value() -> None:
    world = world_with_commits()
    newer = data(world, {"k1": 11})
    follower = follow(world, newer.set_column(2, "ts", pa.array([1], pa.int64())))
    world.table.upsert(newer)
    follower.finish()
    assert world.scanned()["k1"] == 11


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_appends_are_grouped(operation: str) -> None:
    world = world_with_commits()
    follower = follow(world, data(world, FOLLOWER), operation)
    led = getattr(world.table, operation)(data(world, LEADER))
    assert numbers(led) == numbers(follower.finish()) == (2, 2, 0, 0)
    assert led.grouped == 2
    assert world.scanned() == {**world.rows, **FOLLOWER, **LEADER}


def test_deletes_by_key_are_grouped() -> None:
    world = world_with_commits()
    follower = follow(world, pa.table({"id": ["k1", "k2", "k77"]}), "delete")
    led = world.table.delete(pa.table({"id": ["k2", "k3"]}))
    assert numbers(led) == (2, 0, 0, 2)
    assert numbers(follower.finish()) == (3, 0, 0, 1)
    assert led.grouped == 2
    assert sorted(world.scanned()) == ["k0", "k4", "k5"]


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"id": ["k1"], "part": ["b"], "ts": pa.array([9], pa.int64()), "value": ["text"]}),
        pa.table({"id": pa.array([None], pa.string()), "part": ["b"], "ts": pa.array([9], pa.int64()), "value": [1]}),
        pa.table({"id": ["k1"], "part": ["b"], "ts": pa.array([None], pa.int64()), "value": [1]}),
        pa.table({"id": ["k1"], "part": ["b"], "ts": pa.array([9], pa.int64())}),
        pa.table({"id": ["k1"], "part": ["b"], "ts": pa.array([9], pa.int64()), "value": [1], "more": [1]}),
    ],
    ids=["type", "null key", "null ordering", "missing column", "new column"],
)
def test_a_batch_that_does_not_fit_is_left_to_its_writer(rows: pa.Table) -> None:
    world = world_with_commits()
    good, bad = follow(world, data(world, FOLLOWER)), follow(world, rows)
    led = world.table.upsert(data(world, LEADER))
    assert led.grouped == 2
    assert good.finish().instant == led.instant
    bad.poll()
    assert bad.member.state is MemberState.ALONE
    assert staged_files(world) == []
    assert world.scanned() == {**world.rows, **FOLLOWER, **LEADER}


def test_the_leader_gets_its_own_error() -> None:
    world = world_with_commits()
    follower = follow(world, data(world, FOLLOWER))
    with pytest.raises(InvalidRequest, match="null"):
        world.table.upsert(data(world, LEADER).set_column(0, "id", pa.array([None, "k1"], pa.string())))
    assert follower.finish().rows_inserted == 2
    assert world.scanned() == {**world.rows, **FOLLOWER}


def test_batches_with_other_options_are_left_to_other_leaders() -> None:
    world = world_with_commits()
    follower = follow(world, data(world, FOLLOWER))
    led = world.table.upsert(data(world, LEADER), options={"hoodie.parquet.small.file.limit": 0})
    assert led.grouped == 1
    assert follower.finish().grouped == 1
    assert world.scanned() == {**world.rows, **FOLLOWER, **LEADER}


def test_shared_keys_that_the_rule_cannot_combine_take_two_commits() -> None:
    world = world_with_commits(options={"hoodie.combine.before.upsert": "false"})
    first, second = follow(world, data(world, {"k1": 11})), follow(world, data(world, {"k1": 12, "k2": 22}))
    led = world.table.upsert(data(world, LEADER))
    assert led.grouped == 2
    first.poll()
    assert first.member.state is MemberState.DONE
    second.poll()
    assert second.member.state is MemberState.WAITING
    second.finish()
    assert world.scanned() == {**world.rows, **LEADER, "k1": 12, "k2": 22}


def held(world: World) -> Any:
    """The lock, held by another writer."""
    lock = world.table.context.lock
    lock.acquire(0)
    return lock


def test_a_batch_is_withdrawn_at_the_time_limit() -> None:
    world = world_with_commits()
    lock = held(world)
    with pytest.raises(StorageUnavailable, match="lock was not free within 60000 ms"):
        world.table.upsert(data(world, FOLLOWER))
    lock.release()
    assert staged_files(world) == []
    world.table.upsert(data(world, LEADER))
    assert world.scanned() == {**world.rows, **LEADER}


def test_a_batch_that_was_taken_is_awaited_and_then_unknown() -> None:
    world = world_with_commits()
    follower = follow(world, data(world, FOLLOWER))
    open_storage(world.uri).put_if_absent(follower.ticket.claim_path, Claim.TAKEN.encode())
    lock = held(world)
    begun_ms = world.environment.monotonic_ms()
    with pytest.raises(CommitUnknown, match="outcome is not known"):
        follower.finish()
    lock.release()
    assert world.environment.monotonic_ms() - begun_ms >= 120_000


def test_a_withdrawn_batch_is_not_applied() -> None:
    world = world_with_commits()
    follower = follow(world, data(world, FOLLOWER))
    open_storage(world.uri).put_if_absent(follower.ticket.claim_path, Claim.WITHDRAWN.encode())
    assert world.table.upsert(data(world, LEADER)).grouped == 1
    assert world.scanned() == {**world.rows, **LEADER}


def test_a_batch_that_is_withdrawn_while_it_is_claimed_is_not_applied() -> None:
    world = world_with_commits()
    follower = follow(world, data(world, FOLLOWER))

    def withdraw(number: int, call: StorageCall) -> Fault | None:
        if call.operation == "put_if_absent" and call.path.endswith(".claim"):
            store = open_storage(world.uri)
            store.put_if_absent(follower.ticket.claim_path, Claim.WITHDRAWN.encode())
            store.delete([follower.ticket.batch_path])
            store.delete([follower.ticket.claim_path])
        return None

    storage = FaultyStorage(open_storage(world.uri), listener=withdraw)
    assert through(world, storage).upsert(data(world, LEADER)).grouped == 1
    assert world.scanned() == {**world.rows, **LEADER}


@pytest.mark.parametrize("change", [{"wait_ms": 1}, {"owner": "dead"}])
def test_a_batch_whose_writer_ended_is_not_applied(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with_commits()
    if "owner" in change:
        monkeypatch.setattr(Ticket, "owner_is_dead", lambda ticket: ticket.owner == "dead")
    follower = follow(world, data(world, FOLLOWER), **change)
    world.environment.advance_ms(20_000)
    assert world.table.upsert(data(world, LEADER)).grouped == 1
    assert world.scanned() == {**world.rows, **LEADER}
    assert staged_files(world) == ([] if "owner" in change else [follower.ticket.name])
    # A writer that was only slow learns it.
    with pytest.raises((StorageUnavailable, CommitUnknown)):
        follower.finish()
    assert world.scanned() == {**world.rows, **LEADER}


def test_a_damaged_batch_is_left_to_its_writer() -> None:
    world = world_with_commits()
    follower = follow(world, data(world, FOLLOWER))
    open_storage(world.uri).put(follower.ticket.batch_path, b"damaged")
    world.table.upsert(data(world, LEADER))
    follower.poll()
    assert follower.member.state is MemberState.ALONE


def test_a_committed_batch_is_found_after_archival() -> None:
    world = world_with_commits(
        options={"hoodie.archive.automatic": True, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    )
    world.options["hoodie.clean.commits.retained"] = 1
    follower = follow(world, data(world, FOLLOWER))
    # The table's own options differ, so that only this one call takes the batch.
    leader = Table(world.uri, options={**world.options}, environment=world.environment)
    follower.group.options = follower.ticket.options
    led = _lead_for(leader, world)
    for number in range(8):
        world.upsert({"k5": number})
    assert not any(i.request_time == led.instant for i in world.table.timeline().instants)
    done = follower.finish()
    assert done.instant == led.instant
    assert done.rows_inserted == 2


def _lead_for(leader: Table, world: World) -> WriteResult:
    original = leader._open.options
    led = leader.upsert(data(world, LEADER))
    assert leader._open.options is original
    return led


def test_orphaned_claims_of_a_failed_leader_are_removed_by_the_next() -> None:
    world = world_with_commits()
    path = ".hoodie/.group/0000000000000-orphan.claim"
    open_storage(world.uri).put(path, b"withdrawn")
    world.table.upsert(data(world, LEADER))
    assert read_claim(open_storage(world.uri), path) is Claim.WITHDRAWN
    world.environment.advance_ms(25 * 3_600_000)
    world.table.upsert(data(world, LEADER))
    assert staged_files(world) == []


def test_the_commit_names_its_tickets() -> None:
    world = world_with_commits()
    follower = follow(world, data(world, FOLLOWER))
    led = world.table.upsert(data(world, LEADER))
    assert led.instant is not None
    metadata = read_commit(world.table.context.timeline, world.table.timeline().find(led.instant))
    assert json.loads(metadata.extra_metadata[GROUP_KEY]) == {"writes": 2, "tickets": {follower.ticket.name: [2, 2, 0, 0]}}


def test_writes_that_cannot_be_grouped_commit_separately_or_are_refused() -> None:
    world = world_with_commits()
    seen = world.table.scan()
    rows = data(world, {"k1": 1})
    big = pa.table(
        {"id": ["k1"], "part": ["b"], "ts": pa.array([9], pa.int64()), "value": [1], "text": ["x" * (MAX_BATCH_BYTES + 1)]}
    )
    calls: list[Callable[[Table], WriteResult]] = [
        lambda table: table.upsert(rows, based_on=seen, options=only),
        lambda table: table.upsert(rows, once=("job", world.environment.now_ms()), options=only),
        lambda table: table.upsert(rows.select(["id", "part", "ts"]), partial=True, options=only),
        lambda table: table.insert(rows, options={**only, "hoodie.datasource.insert.dup.policy": "drop"}),
        lambda table: table.delete(where="id = 'k77'", options=only),
        lambda table: table.upsert(big, options=only),
    ]
    for only in ({"pyhudi.write.group": "always"}, {"pyhudi.write.group": "auto"}):
        for call in calls:
            if only["pyhudi.write.group"] == "always":
                with pytest.raises(Unsupported, match="cannot be part of a group commit"):
                    call(world.table)
            else:
                assert call(world.table).grouped == 0
            seen = world.table.scan()


# Deaths and lost answers


def check_rows(world: World, follower: bool | None, leader: bool | None) -> None:
    """The rows are there or not; None: either, but all of them once."""
    found = world.scanned()
    for rows, expected in ((FOLLOWER, follower), (LEADER, leader)):
        are_there = {key: found[key] for key in rows if key in found}
        assert are_there in ({}, rows)
        assert expected is None or bool(are_there) == expected
    world.rows = found
    assert {key: value for key, value in found.items() if key not in FOLLOWER and key not in LEADER} == {
        f"k{number}": number for number in range(6)
    }


@pytest.mark.crash_points
@pytest.mark.parametrize("outcome", [FaultOutcome.CRASH, FaultOutcome.LOST_RESPONSE])
@pytest.mark.parametrize(("kind", "operation"), [("cow", "upsert"), ("cow", "insert"), ("mor", "upsert")])
def test_a_leader_fails_at_each_call(kind: str, operation: str, outcome: FaultOutcome) -> None:
    begin = world_with_commits(kind)

    def lead(world: World, storage: FaultyStorage) -> WriteResult:
        return getattr(through(world, storage), operation)(data(world, LEADER))  # type: ignore[no-any-return]

    whole = begin.copy()
    follow(whole, data(whole, FOLLOWER), operation)
    storage = faulty(whole)
    assert lead(whole, storage).grouped == 2
    for fault in faults_of(storage, outcome):
        world = begin.copy()
        follower = follow(world, data(world, FOLLOWER), operation)
        storage = faulty(world, fault)
        error: BaseException | None = None
        try:
            lead(world, storage)
        except (SimulatedCrash, HudiError) as caught:
            error = caught
        try:
            assert storage.triggered
            done = None
            try:
                done = follower.finish()
            except CommitUnknown:
                pass
            leader = True if error is None else False if isinstance(error, StorageUnavailable) else None
            check_rows(world, None if done is None else True, leader)
            if done is not None:
                assert numbers(done) == (2, 2, 0, 0)
            else:
                assert isinstance(error, CommitUnknown)
            check_next_writer(world)
        except BaseException as failure:
            failure.add_note(f"after {fault}, which gave {error!r}")
            raise


@pytest.mark.crash_points
@pytest.mark.parametrize("outcome", [FaultOutcome.CRASH, FaultOutcome.LOST_RESPONSE])
def test_a_follower_fails_at_each_call(outcome: FaultOutcome) -> None:
    begin = world_with_commits()

    def followed(world: World, fault: Fault | None) -> tuple[FaultyStorage, WriteResult | None, BaseException | None]:
        """A follower meets a held lock; at its second look, a leader commits its batch."""
        lock = held(world)
        looks = 0

        def listener(number: int, call: StorageCall) -> Fault | None:
            nonlocal looks
            looks += call.operation == "stat" and call.path.endswith(".arrow")
            if looks == 2:
                looks += 1
                lock.release()
                world.table.upsert(data(world, LEADER))
            return None

        storage = FaultyStorage(open_storage(world.uri), fault, listener=listener)
        try:
            return storage, through(world, storage).upsert(data(world, FOLLOWER)), None
        except (SimulatedCrash, HudiError) as caught:
            return storage, None, caught
        finally:
            if looks < 2:
                lock.release()
                world.table.upsert(data(world, LEADER))

    storage, done, _ = followed(begin.copy(), None)
    assert done is not None
    assert done.grouped == 2
    for fault in faults_of(storage, outcome):
        world = begin.copy()
        storage, done, error = followed(world, fault)
        try:
            assert storage.triggered
            follower = True if done is not None else False if isinstance(error, StorageUnavailable) else None
            check_rows(world, follower, True)
            check_next_writer(world)
            check_rows_again = {key: world.scanned().get(key) for key in FOLLOWER}
            assert follower is None or (check_rows_again == FOLLOWER) == follower
        except BaseException as failure:
            failure.add_note(f"after {fault}, which gave {error!r}")
            raise


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_key_is_written_as_in_a_dictionary(kind: str) -> None:
    """Random batches of random followers against a dictionary, in the order of the tickets."""
    rng = random.Random(3)
    world = world_with_commits(kind)
    expected: Rows = dict(world.rows)
    for turn in range(25):
        operation = rng.choice(["upsert", "upsert", "delete"])
        followers = []
        batches = []
        for number in range(rng.randint(0, 4)):
            keys = rng.sample([f"k{k}" for k in range(12)], rng.randint(1, 4))
            batch = {key: 100 * turn + number for key in keys}
            rows = data(world, batch) if operation == "upsert" else pa.table({"id": sorted(batch)})
            followers.append(follow(world, rows, operation))
            batches.append(batch)
        world.environment.advance_ms(1)
        own = {f"k{rng.randrange(12)}": 100 * turn + 99}
        rows = data(world, own)
        led = world.table.upsert(rows) if operation == "upsert" else world.table.delete(pa.table({"id": sorted(own)}))
        # The leader's rows come first, and a larger ordering value wins.
        results = [led, *(follower.finish() for follower in followers)]
        before = dict(expected)
        if operation == "delete":
            for batch in (own, *batches):
                expected = {key: value for key, value in expected.items() if key not in batch}
            if kind == "cow":
                # In a merge-on-read table a deleted record is in its base file until a compaction.
                assert sum(r.rows_deleted or 0 for r in results) == len(before) - len(expected)
        else:
            for batch in (*batches, own):
                expected.update(batch)
            if kind == "cow":
                assert sum(r.rows_inserted for r in results) == len(expected) - len(before)
            assert sum(r.rows_in for r in results) == sum(map(len, (own, *batches)))
        assert world.scanned() == expected
    assert world.table.validate().ok
