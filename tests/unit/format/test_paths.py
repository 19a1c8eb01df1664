"""Paths below a table: joining and splitting."""

from __future__ import annotations

import pytest

from pyhudi.format.paths import SIDE_FOLDER, file_name, join_path, parent_folder, split_path


@pytest.mark.parametrize(
    ("path", "folder", "name", "parts"),
    [
        ("", "", "", []),
        ("f.parquet", "", "f.parquet", ["f.parquet"]),
        ("a=1/b=2/f.parquet", "a=1/b=2", "f.parquet", ["a=1", "b=2", "f.parquet"]),
    ],
)
def test_a_path_is_taken_apart_and_joined(path: str, folder: str, name: str, parts: list[str]) -> None:
    assert (parent_folder(path), file_name(path), split_path(path)) == (folder, name, parts)
    assert join_path(folder, name) == join_path(*parts) == path


def test_the_metadata_table_has_a_meta_folder_of_its_own() -> None:
    assert SIDE_FOLDER == ".hoodie/metadata/.hoodie/.temp"
