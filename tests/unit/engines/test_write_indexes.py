"""Indexes for writing on the embedded engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyhudi.storage.memory import forget_memory
from tests.write_index_suite import FILE_INDEXES, INDEXES, Checked, run_beside_compactions, run_script


@pytest.fixture
def uri(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"indexes-{abs(hash(request.node.name))}"
    yield f"memory://{name}"
    forget_memory(name)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("name", INDEXES)
def test_script(uri: str, name: str, table_type: str) -> None:
    run_script(Checked.create(uri, table_type, INDEXES[name], lambda rows: rows))


@pytest.mark.parametrize("name", ["record index, moving", "bucket"])
def test_rows_beyond_the_memory_budget(uri: str, name: str) -> None:
    run_script(Checked.create(uri, "cow", INDEXES[name], lambda rows: rows, **{"pyhudi.memory.budget.bytes": 1}))


@pytest.mark.parametrize("name", FILE_INDEXES)
def test_keys_that_only_a_log_has_after_a_compaction(uri: str, name: str) -> None:
    options = {"hoodie.compact.inline": False}
    run_beside_compactions(Checked.create(uri, "mor", FILE_INDEXES[name], lambda rows: rows, **options))
