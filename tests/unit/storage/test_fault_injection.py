from __future__ import annotations

import dataclasses
import gc
import os
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from pyhudi.errors import InvalidRequest, StorageUnavailable
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.fault_injection import CountedCalls, Fault, FaultOutcome, FaultPoint, FaultyStorage, SimulatedCrash
from pyhudi.storage.process_identity import Process


@pytest.fixture
def inner() -> Storage:
    storage = open_storage(f"memory://{uuid.uuid4().hex}")
    storage.put("old", b"old")
    return storage


def output(storage: Storage) -> None:
    with storage.open_output("new") as sink:
        sink.write(b"new")


def replace(storage: Storage) -> None:
    found = storage.read_versioned("old")
    assert found is not None
    storage.put_if_matches("old", b"new", found[1])


WRITES: dict[str, Callable[[Storage], object]] = {
    "put": lambda storage: storage.put("new", b"new"),
    "put_if_absent": lambda storage: storage.put_if_absent("new", b"new"),
    "put_if_matches": replace,
    "delete": lambda storage: storage.delete(["old"]),
    "delete_folder": lambda storage: storage.delete_folder(""),
    "open_output": output,
}


@pytest.mark.parametrize("outcome", [FaultOutcome.CRASH, FaultOutcome.LOST_RESPONSE])
@pytest.mark.parametrize("moment", FaultPoint)
@pytest.mark.parametrize("name", WRITES)
def test_the_effect_happens_after_and_not_before(inner: Storage, name: str, moment: FaultPoint, outcome: FaultOutcome) -> None:
    before = {info.path: inner.read(info.path) for info in inner.walk("")}
    storage = FaultyStorage(inner, Fault(1, moment, outcome))
    with pytest.raises(SimulatedCrash if outcome is FaultOutcome.CRASH else StorageUnavailable):
        WRITES[name](storage)
    assert storage.triggered
    after = {info.path: inner.read(info.path) for info in inner.walk("")}
    assert (after != before) == (moment is FaultPoint.AFTER)


def test_nothing_works_after_a_crash(inner: Storage) -> None:
    storage = FaultyStorage(inner, Fault(2))
    storage.put("a", b"1")
    with pytest.raises(SimulatedCrash):
        storage.put("b", b"1")
    for call in (
        lambda: storage.read("a"),
        lambda: storage.child("x").delete(["a"]),
        lambda: open_storage(storage.spec()).list(""),
        lambda: output(storage),
    ):
        with pytest.raises(SimulatedCrash):
            call()
    assert sorted(info.path for info in inner.walk("")) == ["a", "old"]


def test_calls_work_after_a_lost_response(inner: Storage) -> None:
    storage = FaultyStorage(inner, Fault(1, FaultPoint.AFTER, FaultOutcome.LOST_RESPONSE))
    with pytest.raises(StorageUnavailable):
        storage.put("a", b"1")
    assert storage.read("a") == b"1"
    storage.put("a", b"2")


@pytest.mark.parametrize("counted", CountedCalls)
def test_each_kind_of_call_is_counted_by_itself(inner: Storage, counted: CountedCalls) -> None:
    storage = FaultyStorage(inner, Fault(2, counted=counted, outcome=FaultOutcome.LOST_RESPONSE))
    struck_at = None
    calls: tuple[Callable[[], object], ...] = (
        lambda: storage.read("old"),
        lambda: storage.put("a", b"1"),
        lambda: storage.list(""),
        lambda: storage.delete(["a"]),
    )
    for step, call in enumerate(calls):
        try:
            call()
        except StorageUnavailable:
            struck_at = step
    assert struck_at == {CountedCalls.ALL: 1, CountedCalls.READS: 2, CountedCalls.WRITES: 3}[counted]


def test_calls_are_recorded_in_order(inner: Storage) -> None:
    storage = FaultyStorage(inner)
    storage.child("d").put("f", b"1")
    open_storage(pickle.loads(pickle.dumps(storage.spec()))).read("d/f")
    output(storage)
    assert [(call.operation, call.writes) for call in storage.calls] == [
        ("put", True),
        ("read", False),
        ("open_output", True),
    ]
    assert storage.calls[0].path == f"{inner.uri}/d/f"
    assert storage.write_count == 2


def test_an_output_that_fails_by_itself_is_no_call(inner: Storage) -> None:
    storage = FaultyStorage(inner, Fault(1))
    with pytest.raises(ValueError, match="stop"), storage.open_output("f"):
        raise ValueError("stop")
    assert storage.calls == ()


def test_a_crash_inside_an_output_leaves_the_unfinished_file_of_a_dead_process(tmp_path: Path) -> None:
    storage = FaultyStorage(open_storage(tmp_path), Fault(1, FaultPoint.DURING))
    with pytest.raises(SimulatedCrash):
        output(storage)
    assert len(os.listdir(tmp_path)) == 1
    assert open_storage(tmp_path).list("").files == ()
    (left,) = tmp_path.iterdir()
    own = Process.current()
    left.rename(tmp_path / left.name.replace(own.text, dataclasses.replace(own, started=1).text))
    assert open_storage(tmp_path).sweep_unfinished("", 0) == 1


@pytest.mark.parametrize("delete", ["delete", "delete_folder"])
def test_a_crash_inside_a_deletion_has_deleted_some(inner: Storage, delete: str) -> None:
    for number in range(4):
        inner.put(f"d/{number}", b"1")
    storage = FaultyStorage(inner, Fault(1, FaultPoint.DURING))
    with pytest.raises(SimulatedCrash):
        if delete == "delete":
            storage.delete([f"d/{number}" for number in range(4)])
        else:
            storage.delete_folder("d")
    assert sorted(info.path for info in inner.walk("d")) == ["d/2", "d/3"]


def test_spec_of_a_collected_fault_plan_does_not_open(inner: Storage) -> None:
    spec = FaultyStorage(inner).spec()
    gc.collect()
    with pytest.raises(InvalidRequest, match="faulty"):
        open_storage(spec)


def test_calls_are_numbered_from_one() -> None:
    with pytest.raises(InvalidRequest):
        Fault(0)
