"""Azure, HDFS and a second S3 server: storage suite, writes, crashes, recovery and services."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest, StorageUnavailable, Unsupported
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.fault_injection import Fault, FaultPoint, FaultyStorage, SimulatedCrash
from pyhudi.storage.hdfs.webhdfs_client import HdfsClient
from pyhudi.storage.hdfs.webhdfs_http import NoResponse
from pyhudi.storage.locks import FileSystemLock, StorageLock
from pyhudi.storage.process_identity import Process
from tests.conformance.cloud_servers import Hdfs, running_azurite, running_hdfs, running_s3rver, running_versity
from tests.conformance.lock_suite import LockSuite, MakeLock
from tests.conformance.storage_suite import StorageSuite

pytestmark = pytest.mark.wide


@dataclass(frozen=True)
class Place:
    """Where tables may lie.  uri: without the table's own name."""

    uri: str
    options: dict[str, str]

    def fresh(self) -> str:
        return f"{self.uri}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def in_hdfs(hdfs: Hdfs) -> Place:
    return Place(hdfs.uri, hdfs.options)


@pytest.fixture(scope="session")
def in_webhdfs(hdfs: Hdfs) -> Place:
    return Place(f"webhdfs://{hdfs.http}", {})


@pytest.fixture(scope="session")
def in_azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running_azurite(tmp_path_factory.mktemp("azurite")) as options:
        yield Place("az://tables", options)


@pytest.fixture(scope="session")
def in_versity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running_versity(tmp_path_factory.mktemp("versity")) as options:
        yield Place("s3://tables", options)


PLACES = ("in_hdfs", "in_webhdfs", "in_azure", "in_versity")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


class TestStorage(StorageSuite):
    @pytest.fixture
    def storage(self, place: Place) -> Storage:
        return open_storage(f"{place.fresh()}/a table %20 ü", place.options)


class TestLeaseInHdfs(LockSuite):
    @pytest.fixture
    def make_lock(self, in_hdfs: Place) -> MakeLock:
        storage = open_storage(in_hdfs.fresh(), in_hdfs.options)
        return lambda env: StorageLock(storage, env, label=None)


class TestLockFileInHdfs(LockSuite):
    is_fair = False

    @pytest.fixture
    def make_lock(self, in_hdfs: Place) -> MakeLock:
        storage = open_storage(in_hdfs.fresh(), in_hdfs.options)
        return lambda env: FileSystemLock(storage, env)


def batch(ids: range, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array([ts] * len(ids), pa.int64()),
            "city": [f"city {number % 3}" for number in ids],
            "fare": [float(number + ts) for number in ids],
        }
    )


def rows_of(table: hp.Table) -> dict[int, int]:
    found = table.scan(columns=["id", "ts"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_is_written_killed_recovered_and_serviced(place: Place, kind: str) -> None:
    uri, options = place.fresh(), place.options
    table = hp.Table.create(
        uri,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=kind,
        storage_options=options,
        options={"hoodie.compact.inline": False},
    )
    table.insert(batch(range(30), 1))
    expected = dict.fromkeys(range(30), 1)

    counting = FaultyStorage(table.context.storage)
    trial = hp.Table(uri, options)
    trial._open.context = dataclasses.replace(trial.context, storage=counting)
    trial.upsert(batch(range(10), 2))
    expected |= dict.fromkeys(range(10), 2)
    count = sum(call.writes for call in counting.calls)

    for number, at in enumerate(sorted({1, count // 3, count // 2, 2 * count // 3, count - 2})):
        dying = hp.Table(uri, options)
        dying._open.context = dataclasses.replace(
            dying.context, storage=FaultyStorage(dying.context.storage, Fault(at, FaultPoint.DURING))
        )
        with pytest.raises(SimulatedCrash):
            dying.upsert(batch(range(10, 20), 3 + number))
        # A dead process holds its lease only until the local machine reports its death; this one is alive.
        open_storage(uri, options).delete([".hoodie/.locks/table_lock.json"])
        found = rows_of(hp.Table(uri, options))
        assert {key: ts for key, ts in found.items() if key not in range(10, 20)} == {
            key: ts for key, ts in expected.items() if key not in range(10, 20)
        }
        assert len({found[key] for key in range(10, 20)}) == 1, "a commit is seen whole or not at all"
    after = hp.Table(uri, options, options={"hoodie.write.concurrency.early.conflict.detection.enable": False})
    after.upsert(batch(range(20, 40), 20))
    after.delete(keys=[0])
    found = rows_of(after)
    assert {found[key] for key in range(20, 40)} == {20} and 0 not in found and len(found) == 39
    if kind == "mor":
        after.compact()
    after.cluster()
    after.clean(dry_run=False)
    assert rows_of(hp.Table(uri, options)) == found
    assert hp.Table(uri, options).validate().ok


def test_a_server_that_ignores_conditions_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_s3rver(tmp_path_factory.mktemp("s3rver")) as options, pytest.raises(Unsupported, match="If-None-Match"):
        hp.Table.create("s3://tables/t", record_key="id", storage_options=options)


def test_hdfs_folder_of_another_owner_is_not_writable(in_hdfs: Place) -> None:
    uri = in_hdfs.fresh()
    open_storage(uri, in_hdfs.options).put("d/f", b"1")
    other = open_storage(uri, {**in_hdfs.options, "user": "somebody"})
    assert other.read("d/f") == b"1"
    for call in (lambda: other.put("d/g", b""), lambda: other.delete(["d/f"]), lambda: other.put_if_absent("g", b"")):
        with pytest.raises(InvalidRequest, match="user"):
            call()


def test_names_that_hdfs_does_not_take(in_hdfs: Place) -> None:
    with pytest.raises(InvalidRequest, match="name"):
        open_storage(in_hdfs.fresh(), in_hdfs.options).put("a:b", b"")


def test_next_name_node_is_requested(in_hdfs: Place) -> None:
    address = in_hdfs.options["http_address"]
    storage = open_storage(in_hdfs.fresh(), {"http_address": f"127.0.0.1:1,{address}"})
    storage.put("f", b"1")
    assert storage.read("f") == b"1"
    nobody = open_storage(in_hdfs.fresh(), {"http_address": "127.0.0.1:1"})
    with pytest.raises(StorageUnavailable, match="http_address"):
        nobody.read("f")


def test_claim_of_a_crashed_writer_expires(in_hdfs: Place) -> None:
    storage = open_storage(in_hdfs.fresh(), in_hdfs.options)
    storage.put("f", b"one")
    found = storage.read_versioned("f")
    assert found is not None
    dead = storage._write_temporary("f", b"dead")  # type: ignore[attr-defined]
    assert storage._claim("f", dead, found[1])  # type: ignore[attr-defined]
    assert storage.put_if_matches("f", b"two", found[1])
    # It wakes up, and cannot undo what came after it.
    assert not storage._rename(dead, "f", b"dead", replace=True)  # type: ignore[attr-defined]
    assert storage.read("f") == b"two"
    assert [info.path for info in storage.list("").files] == ["f"]


def test_unfinished_files_in_hdfs_are_swept(in_hdfs: Place) -> None:
    storage = open_storage(in_hdfs.fresh(), in_hdfs.options)
    left, own = storage._write_temporary("d/f", b"left"), Process.current()  # type: ignore[attr-defined]
    assert storage.list("d").files == ()
    # Its process runs.
    assert storage.sweep_unfinished("d", 1 << 50) == 0
    theirs = left.replace(own.text, dataclasses.replace(own, host="elsewhere").text)
    storage._client.rename(storage._full(left), storage._full(theirs), replace=False)  # type: ignore[attr-defined]
    assert storage.sweep_unfinished("d", 0) == 0
    assert storage.sweep_unfinished("d", 1 << 50) == 1
    assert storage._client.status(storage._full(theirs)) is None  # type: ignore[attr-defined]


def test_rename_with_a_lost_response(in_hdfs: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(in_hdfs.fresh(), in_hdfs.options)
    real, lost = HdfsClient.rename, iter(("after", "before") * 8)

    def rename(client: HdfsClient, path: str, target: str, *, replace: bool) -> None:
        moment = next(lost, "")
        if moment != "before":
            real(client, path, target, replace=replace)
        if moment:
            raise NoResponse("cut off")

    monkeypatch.setattr(HdfsClient, "rename", rename)
    storage.put("f", b"one")
    storage.put("f", b"two")
    assert storage.put_if_absent("g", b"mine")
    assert not storage.put_if_absent("g", b"theirs")
    found = storage.read_versioned("f")
    assert found is not None
    assert storage.put_if_matches("f", b"three", found[1])
    assert not storage.put_if_matches("f", b"four", found[1])
    with storage.open_output("h") as sink:
        sink.write(b"four")
    assert [storage.read(path) for path in ("f", "g", "h")] == [b"three", b"mine", b"four"]
    assert [info.path for info in storage.list("").files] == ["f", "g", "h"]
