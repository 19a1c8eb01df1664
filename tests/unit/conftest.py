"""Unit tests are pure: a test that creates or opens a table belongs in tests/component."""

from __future__ import annotations

from typing import NoReturn

import pytest

from pyhudi import Table
from pyhudi.api.table_handle import TableHandle


@pytest.fixture(autouse=True)
def no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a unit test that creates or opens a table."""

    def refuse(*arguments: object, **named: object) -> NoReturn:
        pytest.fail("a unit test opened a table: move the test to the same path below tests/component")

    monkeypatch.setattr(TableHandle, "__init__", refuse)
    monkeypatch.setattr(Table, "create", refuse)
