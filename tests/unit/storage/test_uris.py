from __future__ import annotations

import os

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.storage.uris import parse_uri


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
def test_what_parses(text: str, uri: str) -> None:
    assert parse_uri(text).uri == uri
    assert parse_uri(uri).uri == uri


@pytest.mark.parametrize(
    "text", ["", "a\x00b", "file://host/data", "s3:///path", "s3:/path", "s3://bucket/a/../b", "file:/a/./b"]
)
def test_what_must_not_parse(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_uri(text)


def test_a_relative_path_is_taken_from_the_working_directory() -> None:
    assert parse_uri("some/table").uri == "file:" + os.path.join(os.getcwd(), "some/table")


def test_spellings_of_one_place_have_one_key() -> None:
    assert parse_uri("s3a://b/t").key == parse_uri("s3://b/t/").key != parse_uri("s3://b/t2").key
