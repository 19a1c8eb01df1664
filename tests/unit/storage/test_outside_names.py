"""URIs in a table's files open no store that the caller's URI does not name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhudi.errors import Unsupported
from pyhudi.storage.base import StorageSpec
from pyhudi.storage.outside_names import check_same_store, check_source


@pytest.mark.parametrize(
    ("table", "uri"),
    [("file:/lake/t", "/source/f"), ("s3a://lake/t", "s3://lake/source/f"), ("hdfs://host:9000/t", "hdfs://host:9000/f")],
)
def test_same_store(table: str, uri: str) -> None:
    check_same_store(uri, StorageSpec(table), "a source")


@pytest.mark.parametrize(
    ("table", "uri"),
    [
        ("file:/lake/t", "s3://lake/f"),
        ("s3://lake/t", "s3://other/f"),
        ("s3://lake/t", "/etc/f"),
        ("hdfs://host/t", "hdfs://other/f"),
        ("memory://a/t", "memory://b/f"),
    ],
)
def test_other_store(table: str, uri: str) -> None:
    with pytest.raises(Unsupported, match=r"a source of the table at .* in another store"):
        check_same_store(uri, StorageSpec(table), "a source")


def test_sources_are_in_the_folders_that_the_caller_allows_for_links(tmp_path: Path) -> None:
    table, source = f"file:{tmp_path}/t", f"file:{tmp_path}/source/a.parquet"
    check_source(source, StorageSpec(table), "a source")
    check_source(source, StorageSpec(table, (("link_roots", f"{tmp_path}/source"),)), "a source")
    check_source(f"{table}/a.parquet", StorageSpec(table, (("link_roots", ""),)), "a source")
    for roots in ("", f"{tmp_path}/other"):
        with pytest.raises(Unsupported, match=r"a source of the table at .* outside of the table"):
            check_source(source, StorageSpec(table, (("link_roots", roots),)), "a source")
