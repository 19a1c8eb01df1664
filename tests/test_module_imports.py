"""No test module imports another: shared code is in tests/support or in a module that holds no tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def imported_test_modules(source: str) -> Iterator[str]:
    """The test modules that a module imports, at any level."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("tests.") and name.rpartition(".")[2].startswith("test_"):
                yield name


def test_no_test_module_is_imported() -> None:
    found = {}
    for path in sorted(TESTS.rglob("*.py")):
        names = list(imported_test_modules(path.read_text(encoding="utf-8")))
        if names:
            found[path.relative_to(TESTS).as_posix()] = names
    assert not found, "move what is shared to tests/support"


def test_every_form_of_an_import_is_seen() -> None:
    source = """
from tests.unit.test_a import x
from tests.unit import test_c
import tests.support.a
def f():
    import tests.unit.test_b
"""
    assert set(imported_test_modules(source)) == {"tests.unit.test_a", "tests.unit.test_b", "tests.unit.test_c"}
