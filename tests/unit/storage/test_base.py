from __future__ import annotations

import uuid

import pytest

from pyhudi.errors import InvalidRequest, StorageUnavailable
from pyhudi.format.paths import join_path
from pyhudi.storage import Storage, StorageSpec, open_storage
from pyhudi.storage.base import put_if_absent_confirmed
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import CountedCalls, Fault, FaultOutcome, FaultPoint, FaultyStorage


@pytest.fixture
def storage() -> Storage:
    return open_storage(f"memory://{uuid.uuid4().hex}")


def test_a_spec_keeps_its_secrets_to_itself() -> None:
    assert "hush" not in repr(StorageSpec("s3://b", (("aws_secret_access_key", "hush"),)))


def test_joined_paths_skip_what_is_empty() -> None:
    assert join_path("", "a/b", "", "c") == "a/b/c"
    assert join_path("", "") == ""


class TestConfirmedPut:
    def test_a_free_name_is_taken(self, storage: Storage) -> None:
        assert put_if_absent_confirmed(storage, "f", b"mine", ReplayEnvironment(1))
        assert storage.read("f") == b"mine"

    def test_name_of_another_writer_is_not_taken(self, storage: Storage) -> None:
        storage.put("f", b"theirs")
        assert not put_if_absent_confirmed(storage, "f", b"mine", ReplayEnvironment(1))
        assert storage.read("f") == b"theirs"

    @pytest.mark.parametrize("moment", [FaultPoint.BEFORE, FaultPoint.AFTER])
    def test_put_with_a_lost_response_is_confirmed_by_reading(self, storage: Storage, moment: FaultPoint) -> None:
        faulty = FaultyStorage(storage, Fault(1, moment, FaultOutcome.LOST_RESPONSE))
        assert put_if_absent_confirmed(faulty, "f", b"mine", ReplayEnvironment(1))
        assert storage.read("f") == b"mine"

    def test_put_with_a_lost_response_that_lost_the_race(self, storage: Storage) -> None:
        storage.put("f", b"theirs")
        faulty = FaultyStorage(storage, Fault(1, FaultPoint.AFTER, FaultOutcome.LOST_RESPONSE))
        assert not put_if_absent_confirmed(faulty, "f", b"mine", ReplayEnvironment(1))

    def test_lost_response_to_the_confirming_read(self, storage: Storage) -> None:
        storage.put("f", b"mine")
        faulty = FaultyStorage(storage, Fault(1, FaultPoint.AFTER, FaultOutcome.LOST_RESPONSE, CountedCalls.READS))
        assert put_if_absent_confirmed(faulty, "f", b"mine", ReplayEnvironment(1))

    def test_a_store_that_stays_silent_leaves_it_open(self, storage: Storage) -> None:
        faulty = FaultyStorage(storage, Fault(1, FaultPoint.AFTER, FaultOutcome.LOST_RESPONSE))
        with pytest.raises(StorageUnavailable):
            put_if_absent_confirmed(faulty, "f", b"mine", ReplayEnvironment(1), attempts=1)

    def test_the_pauses_double(self, storage: Storage) -> None:
        class Silent(FaultyStorage):
            def put_if_absent(self, path: str, data: bytes) -> bool:
                raise StorageUnavailable("silent")

        env = ReplayEnvironment(1, 0)
        with pytest.raises(StorageUnavailable):
            put_if_absent_confirmed(Silent(storage), "f", b"mine", env, attempts=4, pause_ms=10)
        assert env.now_ms() == 10 + 20 + 40

    def test_no_attempt_is_a_mistake(self, storage: Storage) -> None:
        with pytest.raises(InvalidRequest):
            put_if_absent_confirmed(storage, "f", b"mine", ReplayEnvironment(1), attempts=0)
