"""Object storage without a server: URIs, options, construction, and scripted HTTP answers."""

from __future__ import annotations

import hashlib
import pickle
import random
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from pyhudi import Table
from pyhudi.errors import HudiError, InvalidRequest, StorageUnavailable, TableState, Unsupported
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.base import put_if_absent_confirmed
from pyhudi.storage.deadlines import CallLimits
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.locks import StorageLock
from pyhudi.storage.object_store.object_options import store_settings
from pyhudi.storage.uris import parse_uri

S3 = parse_uri("s3a://bucket/t")


def config_of(options: dict[str, str], kind: str = "s3") -> dict[str, object]:
    config, client, limits = store_settings(kind, S3, options)
    assert client.pop("connect_timeout") == "10s"
    changed = {name: value for name, value in asdict(limits).items() if value != getattr(CallLimits(), name)}
    return {**config, **client, **changed}


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"aws_access_key_id": "a", "AWS_SECRET_ACCESS_KEY": "b"}, {"access_key_id": "a", "secret_access_key": "b"}),
            ({"access_key_id": "a", "aws_session_token": "c"}, {"access_key_id": "a", "session_token": "c"}),
            ({"region": "eu-west-1"}, {"region": "eu-west-1"}),
            ({"AWS_REGION": "x", "region": "x"}, {"region": "x"}),
            ({"anonymous": "true"}, {"skip_signature": True}),
            ({"aws_skip_signature": "False"}, {"skip_signature": False}),
            ({"AWS_ENDPOINT_URL": "https://h"}, {"endpoint": "https://h"}),
            ({"endpoint": "http://h"}, {"endpoint": "http://h", "allow_http": True}),
            ({"endpoint": "http://h", "allow_http": "false"}, {"endpoint": "http://h", "allow_http": False}),
            ({"aws_allow_http": "1"}, {"allow_http": True}),
            ({"max_retries": "3"}, {"repetitions": 3}),
            ({"call_timeout": "90s", "call_timeout_per_mib": "500ms"}, {"call_s": 90, "mib_s": 0.5}),
            ({"timeout": "20"}, {"request_s": 20}),
            # One request may not take longer than its call.
            ({"timeout": "2m"}, {"request_s": 120, "call_s": 120}),
            (
                {"fs.s3a.access.key": "a", "spark.hadoop.fs.s3a.secret.key": "b", "fs.s3a.session.token": "c"},
                {"access_key_id": "a", "secret_access_key": "b", "session_token": "c"},
            ),
            ({"fs.s3a.bucket.bucket.access.key": "a"}, {"access_key_id": "a"}),
            ({"fs.s3a.endpoint": "s3.example.com"}, {"endpoint": "https://s3.example.com"}),
            (
                {"fs.s3a.endpoint": "h:9000", "fs.s3a.connection.ssl.enabled": "false"},
                {"endpoint": "http://h:9000", "allow_http": True},
            ),
            ({"fs.s3a.path.style.access": "true"}, {"virtual_hosted_style_request": "false"}),
            ({"fs.s3a.endpoint.region": "r"}, {"region": "r"}),
            (
                {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
                {"skip_signature": True},
            ),
        ],
    )
    def test_of_s3(self, options: dict[str, str], expected: dict[str, object]) -> None:
        assert config_of(options) == expected

    @pytest.mark.parametrize(
        ("kind", "options", "expected"),
        [
            ("gcs", {"google_service_account": "/k.json"}, {"service_account": "/k.json"}),
            ("gcs", {"fs.gs.auth.service.account.json.keyfile": "/k.json"}, {"service_account": "/k.json"}),
            ("gcs", {"token": "t"}, {"bearer_token": "t"}),
            ("azure", {"azure_storage_account_name": "a", "azure_tenant_id": "t"}, {"account_name": "a", "tenant_id": "t"}),
            ("azure", {"sas_token": "s"}, {"sas_key": "s"}),
            (
                "azure",
                {"fs.azure.account.key.acc.dfs.core.windows.net": "k"},
                {"account_name": "acc", "account_key": "k"},
            ),
        ],
    )
    def test_of_others(self, kind: str, options: dict[str, str], expected: dict[str, object]) -> None:
        assert config_of(options, kind) == expected

    @pytest.mark.parametrize(
        ("options", "error", "words"),
        [
            ({"regoin": "x"}, InvalidRequest, "regoin"),
            ({"fs.s3a.fast.upload": "true"}, InvalidRequest, "fs.s3a.fast.upload.*fs.s3a.access.key"),
            ({"region": "a", "aws_region": "b"}, InvalidRequest, "region.*aws_region"),
            ({"allow_http": "perhaps"}, InvalidRequest, "true or false"),
            ({"max_retries": "many"}, InvalidRequest, "a number"),
            ({"call_timeout": "soon"}, InvalidRequest, "call_timeout='soon'.*30s"),
            ({"call_timeout": "10s", "timeout": "20s"}, InvalidRequest, "longer than call_timeout"),
            ({"fs.s3a.aws.credentials.provider": "com.example.Vault"}, Unsupported, "com.example.Vault"),
        ],
    )
    def test_that_are_refused(self, options: dict[str, str], error: type[HudiError], words: str) -> None:
        with pytest.raises(error, match=words):
            open_storage("s3://bucket/t", options)

    def test_an_account_that_the_uri_contradicts(self) -> None:
        with pytest.raises(InvalidRequest, match=r"acc.*other"):
            open_storage("abfss://c@acc.dfs.core.windows.net/t", {"account_name": "other"})


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://bucket/t", {"region": "eu-west-1", "anonymous": "true"}),
        ("s3a://bucket/t", {"aws_access_key_id": "a", "aws_secret_access_key": "b"}),
        ("s3n://bucket", {}),
        ("gs://bucket/t", {"anonymous": "true"}),
        ("gcs://bucket/t", {"google_skip_signature": "true"}),
        ("az://container/t", {"account_name": "acc", "anonymous": "true"}),
        ("abfss://container@acc.dfs.core.windows.net/t", {"sas_token": "sv=1&sig=x"}),
    ],
)
def test_every_scheme_is_built_and_travels(uri: str, options: dict[str, str]) -> None:
    storage = open_storage(uri, options)
    assert storage.uri == uri
    assert storage.absolute("p/f") == f"{uri}/p/f"
    assert storage.child("p").uri == f"{uri}/p"
    assert not storage.has_folders
    again = open_storage(pickle.loads(pickle.dumps(storage.spec())))
    assert (again.uri, again.spec()) == (uri, storage.spec())


class _Handler(BaseHTTPRequestHandler):
    """Answers every request with the response of the test, and records it."""

    status = 200
    body = b""
    requests: ClassVar[list[str]] = []

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        type(self).requests.append(self.command)
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def answers() -> Iterator[tuple[Storage, type[_Handler]]]:
    handler = type("Handler", (_Handler,), {"requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {
        "endpoint": f"http://127.0.0.1:{server.server_address[1]}",
        "access_key_id": "a",
        "secret_access_key": "hush",
        "max_retries": "1",
    }
    yield open_storage("s3://bucket/t", options), handler
    server.shutdown()
    server.server_close()


Answers = tuple[Storage, type[_Handler]]


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "body", "error", "words"),
        [
            (403, b"<Error><Code>AccessDenied</Code></Error>", InvalidRequest, "credentials"),
            (401, b"", InvalidRequest, "credentials"),
            (404, b"<Error><Code>NoSuchBucket</Code></Error>", InvalidRequest, "bucket does not exist"),
            (503, b"<Error><Code>SlowDown</Code></Error>", StorageUnavailable, "503"),
        ],
    )
    def test_of_every_call(self, answers: Answers, status: int, body: bytes, error: type[HudiError], words: str) -> None:
        storage, handler = answers
        handler.status, handler.body = status, body

        def write() -> None:
            with storage.open_output("f") as sink:
                sink.write(b"1")

        for call in (
            lambda: storage.read("f"),
            lambda: storage.read_range("f", 0, 1),
            lambda: storage.read_versioned("f"),
            lambda: storage.list(""),
            lambda: storage.put("f", b"1"),
            lambda: storage.put_if_absent("f", b"1"),
            lambda: storage.put_if_matches("f", b"1", '\n"tag"'),
            write,
        ):
            with pytest.raises(error, match=words) as caught:
                call()
            assert "s3://bucket/t" in str(caught.value)
            assert "hush" not in str(caught.value)
            assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(("status", "is_answer"), [(412, True), (409, False)])
    def test_conditions_that_do_not_hold(self, answers: Answers, status: int, is_answer: bool) -> None:
        storage, handler = answers
        handler.status = status
        calls: tuple[Callable[[], object], ...] = (
            lambda: storage.put_if_absent("f", b"1"),
            lambda: storage.put_if_matches("f", b"1", '\n"tag"'),
        )
        for call in calls:
            if is_answer:
                assert not call()
            else:
                with pytest.raises(StorageUnavailable):
                    call()

    def test_azure_conflict_409_is_a_failed_precondition(self, answers: Answers) -> None:
        at_s3, handler = answers
        endpoint = dict(at_s3.spec().options)["endpoint"]
        options = {"account_name": "acc", "account_key": "c2VjcmV0", "endpoint": endpoint, "max_retries": "1"}
        storage = open_storage("az://container/t", options)
        handler.status, handler.body = 409, b"<Error><Code>BlobAlreadyExists</Code></Error>"
        assert storage.put_if_absent("f", b"1") is False
        # A blob with a lease of another client, or that is being written: no writer has won yet.
        handler.body = b"<Error><Code>OperationAborted</Code></Error>"
        with pytest.raises(StorageUnavailable):
            storage.put_if_absent("f", b"1")

    def test_absence(self, answers: Answers) -> None:
        storage, handler = answers
        handler.status, handler.body = 404, b"<Error><Code>NoSuchKey</Code></Error>"
        assert storage.read("f") is None
        assert storage.stat("f") is None
        assert storage.read_versioned("f") is None
        assert storage.put_if_matches("f", b"1", '\n"tag"') is None
        with pytest.raises(TableState):
            storage.open_input("f")

    def test_unreachable_endpoint_is_storage_unavailable(self) -> None:
        options = {"endpoint": "http://127.0.0.1:1", "access_key_id": "a", "secret_access_key": "b", "max_retries": "0"}
        with pytest.raises(StorageUnavailable):
            open_storage("s3://bucket/t", options).read("f")

    def test_http_that_is_not_allowed(self) -> None:
        options = {"endpoint": "http://127.0.0.1:1", "allow_http": "false", "anonymous": "true", "max_retries": "0"}
        with pytest.raises(InvalidRequest, match="allow_http"):
            open_storage("s3://bucket/t", options).read("f")


class _Bucket(BaseHTTPRequestHandler):
    """A bucket in memory with faults.

    faults: for the next PUTs, a status with `before` or `after` the object was stored. honours: whether conditions count.
    """

    objects: ClassVar[dict[str, tuple[bytes, str | None]]] = {}
    faults: ClassVar[list[tuple[int, str]]] = []
    puts: ClassVar[list[str]] = []
    honours = True

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.puts.append(self.path)
        fault = self.faults.pop(0) if self.faults and "probe" not in self.path else None
        if fault is not None and fault[1] == "before":
            return self.reply(fault[0])
        present = self.objects.get(self.path)
        wanted = self.headers.get("If-Match")
        if self.honours and self.headers.get("If-None-Match") == "*" and present is not None:
            return self.reply(412)
        if self.honours and wanted is not None and (present is None or self.tag(present) != wanted):
            return self.reply(412)
        self.objects[self.path] = (data, self.headers.get("x-amz-meta-pyhudiput"))
        return self.reply(200, self.objects[self.path]) if fault is None else self.reply(fault[0])

    def do_GET(self) -> None:
        if "list-type=2" in self.path:
            return self.reply(200, (b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", None))
        present = self.objects.get(self.path)
        return self.reply(404 if present is None else 200, present)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        keys = re.findall(rb"<Key>(.*?)</Key>", self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        for key in keys:
            self.objects.pop(f"/bucket/{key.decode()}", None)
        deleted = b"".join(b"<Deleted><Key>%s</Key></Deleted>" % key for key in keys)
        self.reply(200, (b"<DeleteResult>%s</DeleteResult>" % deleted, None))

    def do_DELETE(self) -> None:
        self.objects.pop(self.path, None)
        self.reply(204)

    @staticmethod
    def tag(present: tuple[bytes, str | None]) -> str:
        return f'"{hashlib.md5(present[0]).hexdigest()}"'

    def reply(self, status: int, present: tuple[bytes, str | None] | None = None) -> None:
        self.send_response(status)
        body = b"" if present is None else present[0]
        if present is not None:
            self.send_header("ETag", self.tag(present))
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            if present[1] is not None:
                self.send_header("x-amz-meta-pyhudiput", present[1])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def bucket() -> Iterator[tuple[Storage, type[_Bucket]]]:
    handler = type("Bucket", (_Bucket,), {"objects": {}, "faults": [], "puts": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {"endpoint": f"http://127.0.0.1:{server.server_address[1]}", "access_key_id": "a", "secret_access_key": "b"}
    yield open_storage("s3://bucket/t", options), handler
    server.shutdown()
    server.server_close()


class TestConditionalWrites:
    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize("status", [500, 502, 503, 429])
    def test_failed_put_is_resolved_by_reading_the_object(
        self, bucket: tuple[Storage, type[_Bucket]], status: int, moment: str
    ) -> None:
        storage, handler = bucket
        for data in (b"1", b""):
            # Content does not identify the writer of an object; an empty document has none.
            handler.objects.clear()
            handler.faults[:] = [(status, moment), (status, "before")]
            assert storage.put_if_absent("f", data)
            handler.faults[:] = [(status, moment)]
            assert not storage.put_if_absent("f", data)
            found = storage.read_versioned("f")
            assert found is not None
            handler.faults[:] = [(status, moment)]
            assert storage.put_if_matches("f", b"2", found[1])
            handler.faults[:] = [(status, moment)]
            assert not storage.put_if_matches("f", b"3", found[1])
            assert storage.read("f") == b"2"

    def test_a_lock_and_a_commit_survive_a_store_that_fails_often(self, bucket: tuple[Storage, type[_Bucket]]) -> None:
        storage, handler = bucket
        chance = random.Random(5)
        env = SystemEnvironment()
        for number in range(12):
            handler.faults[:] = [
                (chance.choice((500, 503, 429)), chance.choice(("before", "after"))) for _ in range(chance.randrange(3))
            ]
            assert storage.put_if_absent(f"timeline/{number}.commit.requested", b"")
            with StorageLock(storage, env, wait_ms=0).held():
                assert put_if_absent_confirmed(storage, f"timeline/{number}.commit", str(number).encode(), env)

    def test_a_busy_name_is_tried_again(self, bucket: tuple[Storage, type[_Bucket]]) -> None:
        storage, handler = bucket
        handler.faults[:] = [(409, "before")]
        assert storage.put_if_absent("f", b"1")

    def test_an_endpoint_that_ignores_conditions_is_refused_before_anything_is_written(
        self, bucket: tuple[Storage, type[_Bucket]]
    ) -> None:
        storage, handler = bucket
        handler.honours = False
        for write in (
            lambda: storage.put_if_absent("hoodie.properties", b"2"),
            lambda: storage.put_if_matches("lock", b"2", '\n"tag"'),
            lambda: Table.create("s3://bucket/t", record_key="id", storage_options=dict(storage.spec().options)),
        ):
            with pytest.raises(Unsupported, match="If-None-Match"):
                write()
        assert handler.objects == {}

    def test_endpoint_is_probed_once(self, bucket: tuple[Storage, type[_Bucket]]) -> None:
        storage, handler = bucket
        again = open_storage(storage.spec())
        for number, one in enumerate((storage, storage.child("c"), again)):
            assert one.put_if_absent(f"f{number}", b"1")
        assert sum("probe" in path for path in handler.puts) == 2
        assert set(handler.objects) == {"/bucket/t/f0", "/bucket/t/c/f1", "/bucket/t/f2"}
