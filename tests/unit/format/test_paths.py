"""Paths below a table: joined, taken apart, and spelled in one module alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyhudi
from pyhudi.format.paths import SIDE_FOLDER, file_name_of, folder_of, join_path, parts_of

SOURCES = Path(pyhudi.__file__).parent
LAYOUT = "format/paths.py"

# Where a slash separates something else: parts of a URI, keys of a store, ZooKeeper's nodes, a file that the caller names.
OTHER_SLASHES = ("storage/uris.py", "storage/memory.py", "storage/locks/zookeeper.py", "procedures/repairs.py")


@pytest.mark.parametrize(
    ("path", "folder", "name", "parts"),
    [
        ("", "", "", []),
        ("f.parquet", "", "f.parquet", ["f.parquet"]),
        ("a=1/b=2/f.parquet", "a=1/b=2", "f.parquet", ["a=1", "b=2", "f.parquet"]),
    ],
)
def test_a_path_is_taken_apart_and_joined(path: str, folder: str, name: str, parts: list[str]) -> None:
    assert (folder_of(path), file_name_of(path), parts_of(path)) == (folder, name, parts)
    assert join_path(folder, name) == join_path(*parts) == path


def test_the_metadata_table_has_a_meta_folder_of_its_own() -> None:
    assert SIDE_FOLDER == ".hoodie/metadata/.hoodie/.temp"


def spelled(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts that name something in `.hoodie`: no sentences and no docstrings."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
        if is_text and re.search(r"(^|/)\.hoodie(/|_|$)", node.value) and not re.search(r"\s", node.value):
            yield node.lineno, node.value


def taken_apart(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Calls that split at a slash."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            first = node.args[0]
            splits = node.func.attr in ("split", "rsplit", "partition", "rpartition")
            if splits and isinstance(first, ast.Constant) and first.value == "/":
                yield node.lineno, ast.unparse(node)


def test_no_other_module_spells_a_path_of_a_table_or_takes_one_apart() -> None:
    found = []
    for file in sorted(SOURCES.rglob("*.py")):
        name = file.relative_to(SOURCES).as_posix()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if name != LAYOUT:
            found += [f"{name}:{line} {text}" for line, text in spelled(tree)]
        if name not in (LAYOUT, *OTHER_SLASHES):
            found += [f"{name}:{line} {text}" for line, text in taken_apart(tree)]
    assert not found, "use pyhudi.format.paths:\n" + "\n".join(found)


def test_the_check_sees_what_it_looks_for() -> None:
    tree = ast.parse(
        '"""In `.hoodie/x`."""\na = f".hoodie/{b}"\nc = "remove .hoodie/metadata by hand"\nd = p.rsplit("/", 1)[-1]\n'
    )
    assert list(spelled(tree)) == [(2, ".hoodie/")]
    assert list(taken_apart(tree)) == [(4, "p.rsplit('/', 1)")]
