"""Behaviour of S3 servers: Hadoop's directory objects, aborted uploads, requests per read."""

from __future__ import annotations

import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.base import put_if_absent_confirmed
from pyhudi.storage.environment import SystemEnvironment
from tests.conformance.moto_server import s3_options


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def storage(s3_endpoint: str, prefix: str) -> Storage:
    return open_storage(f"s3://tables/{prefix}", s3_options(s3_endpoint))


def test_folder_objects_of_hadoop_are_folders_and_no_files(storage: Storage, s3_endpoint: str, prefix: str) -> None:
    for key in ("", "t/", "t/.hoodie/", "t/p/", "t/p/deep/"):
        url = f"{s3_endpoint}/tables/{urllib.parse.quote(f'{prefix}/{key}')}"
        urllib.request.urlopen(urllib.request.Request(url, data=b"", method="PUT"), timeout=600).close()
    storage.put("t/p/f", b"1")
    assert [info.path for info in storage.list("t/p").files] == ["t/p/f"]
    assert storage.list("t/p").folders == ("t/p/deep",)
    assert storage.list("").files == ()
    assert storage.list("t").folders == ("t/.hoodie", "t/p")
    assert [info.path for info in storage.walk("")] == ["t/p/f"]
    assert storage.stat("t/p") is None
    assert storage.read("t/p") is None


@pytest.mark.full
def test_listing_spans_several_pages(storage: Storage) -> None:
    for number in range(1_005):
        storage.put(f"many/{number:04}", b"")
    assert [info.name for info in storage.list("many").files] == [f"{number:04}" for number in range(1_005)]
    storage.delete_folder("many")
    assert storage.list("").folders == ()


def test_an_upload_that_a_dead_writer_began_is_not_there(storage: Storage) -> None:
    output = storage.open_output("d/f")
    output.__enter__().write(b"x" * (20 << 20))
    del output
    assert storage.list("").folders == ()
    assert storage.stat("d/f") is None


def test_large_documents_are_written_in_one_request(storage: Storage) -> None:
    # A document in several parts could not be written on condition that it is absent.
    data = bytes(12 << 20)
    assert storage.put_if_absent("f", data)
    assert not storage.put_if_absent("f", b"")
    storage.put("f", data + b"1")
    assert storage.read("f") == data + b"1"


def test_put_if_absent_is_confirmed_after_lost_responses(storage: Storage) -> None:
    assert put_if_absent_confirmed(storage, "f", b"mine", SystemEnvironment())
    assert put_if_absent_confirmed(storage, "f", b"mine", SystemEnvironment())
    assert not put_if_absent_confirmed(storage, "f", b"theirs", SystemEnvironment())


def test_a_small_parquet_file_costs_one_request(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": list(range(1_000))})
    with storage.open_output("f.parquet") as sink:
        pq.write_table(table, sink)
    requests: list[str] = []

    def recording(name: str) -> Callable[..., object]:
        real = getattr(obstore, name)

        def record(*args: object, **options: object) -> object:
            requests.append(name)
            return real(*args, **options)

        return record

    for name in ("get_async", "head_async", "get_range_async", "get_ranges_async"):
        monkeypatch.setattr(obstore, name, recording(name))
    with storage.open_input("f.parquet") as file:
        assert pq.read_table(file).equals(table)
    assert requests == ["get_async"]


def test_a_bucket_that_is_not_there(s3_endpoint: str) -> None:
    storage = open_storage("s3://no-such-bucket/t", s3_options(s3_endpoint))
    for call in (lambda: storage.read("f"), lambda: storage.put("f", b""), lambda: storage.list("")):
        with pytest.raises(InvalidRequest, match="bucket does not exist"):
            call()
