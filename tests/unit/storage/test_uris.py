from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.storage.uris import parse_uri, sqlite_path, without_secrets


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("/data/t", "file:/data/t"),
        ("/data//t/", "file:/data/t"),
        ("/data/x/../t", "file:/data/t"),
        ("file:/data/t", "file:/data/t"),
        ("file:///data/t/", "file:/data/t"),
        ("file://localhost/data/t", "file:/data/t"),
        ("FILE:/data/t", "file:/data/t"),
        ("/", "file:/"),
        ("/a b%2F?#ü", "file:/a b%2F?#ü"),
        ("file:///a b%20%2F?x#ü", "file:/a b%20%2F?x#ü"),
        ("/a:b/c", "file:/a:b/c"),
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3a://bucket//a/b/", "s3a://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("gs://b/x%20y", "gs://b/x%20y"),
        ("abfss://c@acc.dfs.core.windows.net/p", "abfss://c@acc.dfs.core.windows.net/p"),
        ("memory://name/t", "memory://name/t"),
        ("memory://", "memory://"),
    ],
)
def test_valid_uris_parse(text: str, uri: str) -> None:
    assert parse_uri(text).uri == uri
    assert parse_uri(uri).uri == uri


@pytest.mark.parametrize(
    "text", ["", "a\x00b", "file://host/data", "s3:///path", "s3:/path", "s3://bucket/a/../b", "file:/a/./b"]
)
def test_invalid_uris_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_uri(text)


def test_a_relative_path_is_taken_from_the_working_directory() -> None:
    assert parse_uri("some/table").uri == "file:" + os.path.join(os.getcwd(), "some/table")


def test_a_tilde_at_the_start_of_a_path_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_uri("~/lake").uri == f"file:{tmp_path}/lake"
    assert parse_uri("/data/~/lake").uri == "file:/data/~/lake"
    assert sqlite_path("sqlite:///~/lake.db") == f"{tmp_path}/lake.db"


def test_spellings_of_one_place_have_one_key() -> None:
    assert parse_uri("s3a://b/t").key == parse_uri("s3://b/t/").key != parse_uri("s3://b/t2").key


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIAKEY:hush@bucket/t",
        "s3a://hush@bucket/t",
        "gs://user:hush@bucket/t",
        "abfss://user:hush@container/t",
        "abfss://container@account.dfs.core.windows.net/t?sv=2024&sig=hush",
        "s3://bucket/t?X-Amz-Credential=hush",
        "s3://bucket/t?AWSAccessKeyId=a&Signature=hush",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(InvalidRequest, match="storage_options") as caught:
        parse_uri(uri)
    assert "hush" not in str(caught.value)


def test_uri_without_credentials_is_accepted() -> None:
    for uri in ("s3://b/t?", "s3://b/day=2026&key=x", "abfss://container@account.dfs.core.windows.net/t", "file:/data/a?sig=1"):
        assert parse_uri(uri).uri


def test_messages_of_clients_lose_secrets() -> None:
    said = "error sending request for url (https://key:hush@host:9000/b/t?X-Amz-Signature=hush&list-type=2): refused"
    assert without_secrets(said) == "error sending request for url (https://***@host:9000/b/t?***&list-type=2): refused"


def test_a_deleted_working_directory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(InvalidRequest, match="'t' is relative, and the working directory of this process was deleted"):
        parse_uri("t")
    assert parse_uri("/t").path == "t"
