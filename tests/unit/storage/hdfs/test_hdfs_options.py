"""HDFS connections: options, Hadoop's configuration files, and refusals, without a server."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.storage import open_storage
from pyhudi.storage.hdfs.hdfs_options import hdfs_settings
from pyhudi.storage.hdfs.hdfs_storage import hdfs_error
from pyhudi.storage.hdfs.webhdfs_http import NoResponse, RemoteError
from pyhudi.storage.uris import parse_uri


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_USER_NAME"):
        monkeypatch.delenv(name, raising=False)


def site(folder: Path, name: str, **values: str) -> None:
    text = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items())
    (folder / name).write_text(f"<configuration>{text}</configuration>")


def addresses(uri: str, **options: str) -> tuple[str, ...]:
    return hdfs_settings(parse_uri(uri), options).addresses


def test_where_the_http_server_is() -> None:
    assert addresses("hdfs://nn:8020/t") == addresses("hdfs://nn/t") == addresses("webhdfs://nn/t") == ("nn:9870",)
    assert addresses("webhdfs://nn:14000/t") == ("nn:14000",)
    assert addresses("hdfs://nn:8020/t", http_address="http://a:1/, b:2") == ("a:1", "b:2")
    assert addresses("hdfs://nn/t", **{"spark.hadoop.dfs.namenode.http-address": "a:1"}) == ("a:1",)


def test_hadoops_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert addresses("hdfs://nn:8020/t") == ("nn:9870",)
    site(
        tmp_path,
        "hdfs-site.xml",
        **{
            "dfs.namenode.http-address": "0.0.0.0:50070",
            "dfs.ha.namenodes.lake": "a, b",
            "dfs.namenode.http-address.lake.a": "one:1",
            "dfs.namenode.http-address.lake.b": "two:2",
            "dfs.ha.namenodes.half": "a",
        },
    )
    assert addresses("hdfs://nn:8020/t") == ("nn:50070",)
    assert addresses("hdfs://lake/t") == ("one:1", "two:2")
    assert addresses("hdfs://lake/t", http_address="c:3") == ("c:3",)
    with pytest.raises(InvalidRequest, match=r"lacks dfs\.namenode\.http-address\.half\.a"):
        addresses("hdfs://half/t")
    site(tmp_path, "core-site.xml", **{"hadoop.security.authentication": "kerberos"})
    with pytest.raises(Unsupported, match="Kerberos"):
        addresses("hdfs://nn/t")
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(InvalidRequest, match=r"core-site\.xml.*cannot be read"):
        addresses("hdfs://nn/t")


def test_a_worker_opens_what_the_driver_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    site(tmp_path, "hdfs-site.xml", **{"dfs.ha.namenodes.lake": "a", "dfs.namenode.http-address.lake.a": "one:1"})
    storage = open_storage("hdfs://lake/t", {"dfs.replication": "2"})
    monkeypatch.delenv("HADOOP_CONF_DIR")
    monkeypatch.setenv("HADOOP_USER_NAME", "yarn")
    again = pickle.loads(pickle.dumps(storage))
    assert again.spec() == storage.spec()
    assert dict(again.spec().options) == {"dfs.replication": "2", "http_address": "one:1", "user": "etl"}
    assert open_storage("webhdfs://nn:1/t").child("a").absolute("b") == "webhdfs://nn:1/t/a/b"


def test_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    location = parse_uri("hdfs://nn/t")
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    assert hdfs_settings(location, {}).user == "etl"
    assert hdfs_settings(location, {"hdfs.user": "a"}).user == hdfs_settings(location, {"user.name": "a"}).user == "a"
    with pytest.raises(InvalidRequest, match="different values"):
        hdfs_settings(location, {"user": "a", "hdfs.user": "b"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kerberos": "true"}, "Kerberos"),
        ({"kerb_ticket": "/tmp/x"}, "Kerberos"),
        ({"hdfs.kerberos_ticket": "/tmp/x"}, "Kerberos"),
        ({"token": "x"}, "tokens"),
        ({"use_https": "yes"}, "TLS"),
        ({"http_address": "https://nn:9871"}, "TLS"),
        ({"hadoop.security.authentication": "kerberos"}, "Kerberos"),
        ({"hdfs.host": "nn"}, "the URI of the table contains it"),
        ({"http_adress": "nn:1"}, "did you mean http_address"),
        ({"region": "x"}, "HDFS supports http_address, user"),
        ({"http_address": "nn"}, "host:port"),
        ({"replication": "0"}, "a number above 0"),
        ({"timeout": "soon"}, "such as 30s"),
    ],
)
def test_invalid_hdfs_options_are_rejected(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        open_storage("hdfs://nn:8020/t", options)


def test_options_without_effect_are_accepted() -> None:
    open_storage("hdfs://nn/t", {"kerberos": "false", "hadoop.security.authentication": "simple", "timeout": "500ms"})


@pytest.mark.parametrize("uri", ["hdfs:///t", "webhdfs:///t", "hdfs://user@nn/t", "swebhdfs://nn/t"])
def test_uris_that_are_none(uri: str) -> None:
    with pytest.raises(InvalidRequest):
        open_storage(uri)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NoResponse("refused"), "StorageUnavailable"),
        (RemoteError(401, "", ""), "Unsupported"),
        (RemoteError(403, "AccessControlException", "Permission denied"), "InvalidRequest"),
        (RemoteError(403, "DSQuotaExceededException", "full"), "StorageFull"),
        (RemoteError(403, "SafeModeException", "starting"), "StorageUnavailable"),
        (RemoteError(404, "FileNotFoundException", "none"), "TableState"),
        (RemoteError(400, "InvalidPathException", "a:b"), "InvalidRequest"),
    ],
)
def test_hdfs_errors_are_translated(error: NoResponse | RemoteError, kind: str) -> None:
    translated = hdfs_error(error, "write", "hdfs://nn/t")
    assert type(translated).__name__ == kind
    assert "hdfs://nn/t" in str(translated)
