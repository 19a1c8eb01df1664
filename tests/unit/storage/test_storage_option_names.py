"""Storage options under other tools' names, and environment variables."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pyhudi.errors import HudiError, InvalidRequest, StorageUnavailable, Unsupported
from pyhudi.features.procedures.procedure import ProcedureCall
from pyhudi.format.properties import redact_secret
from pyhudi.operations.write.save_modes import Save
from pyhudi.options.supported import parse_options
from pyhudi.sql_engine.duckdb_session import EmbeddedStatementSession
from pyhudi.storage import open_storage
from pyhudi.storage.object_store.object_errors import store_error
from pyhudi.storage.object_store.object_options import store_settings, store_target
from pyhudi.storage.storage_option_names import OPTION_TARGETS, REFUSED
from pyhudi.storage.uris import parse_uri

URIS = {"s3": "s3://bucket/t", "gcs": "gs://bucket/t", "azure": "abfss://c@acc.dfs.core.windows.net/t"}
VALUE = "hunter-two"
ACCOUNT = "AccountName=acc;AccountKey=k=="
# Hadoop tries one after the other.
PROVIDERS = {"fs.s3a.aws.credentials.provider": "x.SimpleAWSCredentialsProvider,x.AnonymousAWSCredentialsProvider"}
KEY = "aHVudGVyLXR3bw=="


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "GOOGLE_BASE_URL", "AZURE_STORAGE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def settings(kind: str, options: dict[str, str], uri: str | None = None) -> dict[str, Any]:
    """Of the store and of its client, without the times that are always there."""
    location = parse_uri(uri or URIS[kind])
    config, client, _ = store_settings(kind, location, options)
    _, config = store_target(kind, location, config)
    return {**config, **{name: value for name, value in client.items() if not name.endswith("timeout")}}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"s3.endpoint": "https://h", "s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.session-token": "c"},
            {"endpoint": "https://h", "access_key_id": "a", "secret_access_key": "b", "session_token": "c"},
        ),
        ({"s3.region": "r", "client.region": "r"}, {"region": "r"}),
        ({"key": "a", "secret": "b", "token": "c"}, {"access_key_id": "a", "secret_access_key": "b", "session_token": "c"}),
        (
            {"client_kwargs": '{"endpoint_url": "http://h", "region_name": "r", "verify": false, "aws_session_token": null}'},
            {"endpoint": "http://h", "region": "r", "allow_invalid_certificates": True, "allow_http": True},
        ),
        ({"AWS_ENDPOINT_URL_S3": "https://h"}, {"endpoint": "https://h"}),
        (
            {"fs.s3a.path.style.access": "false", "fs.s3a.endpoint": "h:9"},
            {"virtual_hosted_style_request": "true", "endpoint": "https://bucket.h:9"},
        ),
        (
            {"s3.force-virtual-addressing": "true", "s3.endpoint": "https://bucket.h"},
            {"virtual_hosted_style_request": "true", "endpoint": "https://bucket.h"},
        ),
        # In obstore's form, the endpoint contains the bucket already; a custom host may replace it.
        (
            {"virtual_hosted_style_request": "true", "endpoint": "https://h"},
            {"virtual_hosted_style_request": "true", "endpoint": "https://h"},
        ),
        (
            {"fs.s3a.aws.credentials.provider": "x.TemporaryAWSCredentialsProvider, x.SimpleAWSCredentialsProvider"},
            {"skip_signature": False},
        ),
    ],
)
def test_of_s3(options: dict[str, str], expected: dict[str, object]) -> None:
    assert settings("s3", options) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"gcs.oauth2.token": "t"}, {"bearer_token": "t"}),
        ({"token": "anon"}, {"skip_signature": True}),
        ({"token": "/k.json"}, {"application_credentials": "/k.json"}),
        ({"token": '{"type": "service_account"}'}, {"service_account_key": '{"type": "service_account"}'}),
        ({"GOOGLE_SERVICE_ACCOUNT": '{"a": 1}'}, {"service_account_key": '{"a": 1}'}),
        ({"gcs.service.host": "http://h:1"}, {"base_url": "http://h:1", "allow_http": True}),
        ({"endpoint": "h:1"}, {"base_url": "https://h:1"}),
        ({"fs.gs.auth.type": "UNAUTHENTICATED"}, {"skip_signature": True}),
    ],
)
def test_of_google(options: dict[str, str], expected: dict[str, object]) -> None:
    assert settings("gcs", options) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"adls.account-name": "acc", "adls.account-key": "k"}, {"account_key": "k"}),
        ({"adls.sas-token.acc.dfs.core.windows.net": "s"}, {"sas_key": "s"}),
        (
            {"connection_string": f"DefaultEndpointsProtocol=https;{ACCOUNT};EndpointSuffix=core.windows.net"},
            {"account_key": "k=="},
        ),
        (
            {"adls.connection-string": "AccountName=acc;SharedAccessSignature=sv=1&sig=x;BlobEndpoint=http://h:1/acc;"},
            {"sas_key": "sv=1&sig=x", "endpoint": "http://h:1/acc", "allow_http": True},
        ),
        ({"connection_string": "UseDevelopmentStorage=true"}, {"use_emulator": True, "allow_http": True}),
        (
            {"connection_string": "BlobEndpoint=https://acc.blob.s.cn/;SharedAccessSignature=sig=x"},
            {"sas_key": "sig=x", "endpoint": "https://acc.blob.s.cn/"},
        ),
        ({"connection_string": "AccountName=acc;EndpointSuffix=s.cn"}, {"endpoint": "https://acc.blob.s.cn"}),
        ({"account_host": "acc.blob.s.cn"}, {"endpoint": "https://acc.blob.s.cn"}),
        (
            {
                "fs.azure.account.auth.type": "OAuth",
                "fs.azure.account.oauth.provider.type": "o.a.h.fs.azurebfs.oauth2.ClientCredsTokenProvider",
                "spark.hadoop.fs.azure.account.oauth2.client.id.acc.dfs.core.windows.net": "i",
                "fs.azure.account.oauth2.client.secret": "s",
                "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant/oauth2/token",
            },
            {"client_id": "i", "client_secret": "s", "tenant_id": "tenant"},
        ),
        ({"AZURE_STORAGE_ACCOUNT_KEY": "k", "fs.azure.account.auth.type": "SharedKey"}, {"account_key": "k"}),
    ],
)
def test_of_azure(options: dict[str, str], expected: dict[str, object]) -> None:
    assert settings("azure", options) == {"account_name": "acc", **expected}


def test_a_container_in_another_cloud_is_sought_there() -> None:
    expected = {"account_name": "acc", "endpoint": "https://acc.blob.core.chinacloudapi.cn"}
    assert settings("azure", {}, "abfss://c@acc.dfs.core.chinacloudapi.cn/t") == expected
    named = {"fs.azure.account.key.acc.dfs.core.chinacloudapi.cn": "k"}
    assert settings("azure", named, "az://c/t") == {**expected, "account_key": "k"}


@pytest.mark.parametrize(
    ("kind", "options", "error", "words"),
    [
        ("s3", {"s3.signer": "x"}, InvalidRequest, r"s3\.signer.*s3\.access-key-id"),
        ("s3", {"adls.account-key": VALUE}, InvalidRequest, "is for Azure.*is in S3"),
        ("gcs", {"aws_access_key_id": VALUE}, InvalidRequest, "is for S3.*is in Google"),
        ("s3", {"acces_key_id": VALUE}, InvalidRequest, "acces_key_id.*did you mean access_key_id"),
        ("azure", {"zzz": VALUE}, InvalidRequest, "zzz.*account_name"),
        ("s3", {"client_kwargs": '{"config": 1}'}, InvalidRequest, "config.*endpoint_url"),
        ("s3", {"client_kwargs": VALUE}, InvalidRequest, "client_kwargs: the value must be a dict"),
        ("s3", {"AWS_S3_LOCKING_PROVIDER": "dynamodb"}, InvalidRequest, "hoodie.write.lock.provider"),
        ("s3", {"key": "a", "fs.s3a.access.key": "b"}, InvalidRequest, "both set access_key_id"),
        ("s3", {"access_key_id": VALUE}, InvalidRequest, "set access_key_id and secret_access_key.*AWS_ACCESS_KEY_ID"),
        (
            "s3",
            PROVIDERS,
            Unsupported,
            "Anonymous only by itself",
        ),
        ("gcs", {"token": "cache"}, Unsupported, "application_credentials"),
        ("gcs", {"token": "google_default"}, InvalidRequest, "leave it out"),
        ("gcs", {"service_account_key": VALUE}, InvalidRequest, "set service_account"),
        ("gcs", {"service_account_key": f'{{"private_key": "{VALUE}"}}'}, InvalidRequest, "set service_account"),
        (
            "azure",
            {"fs.azure.account.key.other.dfs.core.windows.net": VALUE},
            InvalidRequest,
            "account 'acc', but the options contain 'other'",
        ),
        ("azure", {"connection_string": f"AccountName=acc;Odd={VALUE}"}, InvalidRequest, "other parts are not supported"),
        ("azure", {"connection_string": f"{VALUE}=="}, InvalidRequest, "other parts are not supported"),
        (
            "azure",
            {"connection_string": f"UseDevelopmentStorage=true;{VALUE}=1"},
            InvalidRequest,
            "UseDevelopmentStorage=true alone",
        ),
        ("azure", {"fs.azure.account.auth.type": "SAS"}, InvalidRequest, "also needs sas_key"),
        ("azure", {"fs.azure.account.auth.type": "Custom"}, Unsupported, "SharedKey, OAuth and SAS"),
        ("azure", {"fs.azure.account.auth.type": "SAS", "sas_key": "s=1", "account_key": KEY}, InvalidRequest, "contradict"),
        ("azure", {"account_key": VALUE}, InvalidRequest, "set account_name, and account_key"),
        ("azure", {"sas_token": VALUE}, InvalidRequest, "set account_name, and account_key"),
    ],
)
def test_that_are_refused(kind: str, options: dict[str, str], error: type[HudiError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        open_storage(URIS[kind], options)
    assert VALUE not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in REFUSED for name in REFUSED[kind]])
def test_names_without_a_meaning_of_their_own(kind: str, name: str) -> None:
    assert name not in OPTION_TARGETS[kind]
    with pytest.raises(InvalidRequest, match=name) as caught:
        open_storage(URIS[kind], {name: VALUE})
    assert VALUE not in str(caught.value)
    assert REFUSED[kind][name] in str(caught.value)


def test_an_account_that_only_an_option_names() -> None:
    with pytest.raises(InvalidRequest, match="set account_name"):
        open_storage("az://c/t", {"account_key": KEY})


def test_values_that_are_no_text() -> None:
    given: dict[str, Any] = {"anon": True, "token": None, "client_kwargs": {"endpoint_url": "https://h", "region_name": None}}
    storage = open_storage(URIS["s3"], given)
    assert dict(storage.spec().options) == {"anon": "True", "client_kwargs": json.dumps(given["client_kwargs"])}
    with pytest.raises(InvalidRequest, match="client_kwargs"):
        open_storage(URIS["s3"], {"client_kwargs": {"config": object()}})  # type: ignore[dict-item]


def test_secrets_are_recognized_by_option_name() -> None:
    for name in ("sas_key", "connection_string", "adls.connection-string", "encryption_key", "sse_customer_key_base64"):
        assert redact_secret(name, VALUE) != VALUE
    given = {"account_key": VALUE}
    for holder in (
        EmbeddedStatementSession(None, given),  # type: ignore[arg-type]
        ProcedureCall("t", given, None, {}),
        Save("t", given, parse_options({}), None, None, True, "append", parse_options({}), None),  # type: ignore[arg-type]
    ):
        assert VALUE not in repr(holder)


@pytest.mark.parametrize(
    ("kind", "name"), [("s3", "AWS_ACCESS_KEY_ID"), ("gcs", "GOOGLE_"), ("azure", "AZURE_STORAGE_ACCOUNT_KEY")]
)
def test_access_errors_name_the_option_to_set(kind: str, name: str) -> None:
    nobody = OSError("Error performing PUT http://169.254.169.254/latest/api/token in 1ms - HTTP error")
    unknown = OSError("Server returned non-2xx status code: 403 Forbidden: ")
    for where in (f"{URIS[kind]}/f", f"3 objects of {URIS[kind]}"):
        lacking, wrong = store_error(nobody, "delete", where), store_error(unknown, "delete", where)
        # A machine's role may not respond for a short time: the same step may be tried again.
        assert isinstance(lacking, StorageUnavailable)
        assert isinstance(wrong, InvalidRequest)
        assert all(name in str(error) and "storage_options" in str(error) for error in (lacking, wrong))
    assert "check storage_options" in str(store_error(unknown, "delete", "t/f"))


def test_the_examples_of_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "object-stores.md").read_text("utf-8")
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    for name in ("s3", "minio", "azure", "azure_by_signature", "azure_by_principal"):
        open_storage("az://c/t" if name.startswith("azure") else URIS["s3"], names[name])
    # The key file itself is looked for when the store is opened.
    assert settings("gcs", names["gcs"]) == names["gcs"]
    known = {name for kind in OPTION_TARGETS for name in (*OPTION_TARGETS[kind], *REFUSED[kind])}
    table = page.partition("## Names of options")[2].partition("\n## ")[0]
    for name in re.findall(r"`((?:s3|adls|gcs|fs)\.[a-z0-9.-]+)`", table):
        assert name in known, name


class _Handler(BaseHTTPRequestHandler):
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    seen: list[str] = []
    handler = type("Handler", (_Handler,), {"seen": seen})
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_address[1]}", seen
    listening.shutdown()
    listening.server_close()


class TestEnvironmentVariables:
    @pytest.fixture(autouse=True)
    def credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")

    @pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
    def test_its_endpoint_is_reached_without_tls(
        self, server: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        endpoint, seen = server
        monkeypatch.setenv(name, endpoint)
        assert open_storage(URIS["s3"]).read("f") is None
        assert seen == ["/bucket/t/f"]

    @pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
    def test_endpoint_option_overrides_the_environment(
        self, server: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        endpoint, seen = server
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        assert open_storage(URIS["s3"], {"endpoint": endpoint, "max_retries": "0"}).read("f") is None
        assert seen == ["/bucket/t/f"]
