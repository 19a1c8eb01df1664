"""Indexes for writing on the embedded engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.incoming import LocalIncoming
from pyhudi.operations.write.delete_where import run_delete_where
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.memory import forget_memory
from pyhudi.tasks.engine_protocol import PrepareRequest
from tests.support.write_index_suite import FILE_INDEXES, INDEXES, RINGS, Checked, row, run_during_compactions, run_script


@pytest.fixture
def uri(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"indexes-{abs(hash(request.node.name))}"
    yield f"memory://{name}"
    forget_memory(name)


# Indexes that read files read logs below as well; a record index that moves keys looks up like one that leaves them.
ALREADY = {("record index", "cow"), ("bloom", "cow"), ("global bloom", "mor"), ("in memory", "mor")}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "table_type"),
    [
        pytest.param(name, table_type, marks=pytest.mark.wide if (name, table_type) in ALREADY else ())
        for name in INDEXES
        for table_type in ("cow", "mor")
    ],
)
def test_operations_keep_index_and_rows_consistent(uri: str, name: str, table_type: str) -> None:
    run_script(Checked.create(uri, table_type, INDEXES[name], lambda rows: rows))


def test_operations_with_consistent_hashing_keep_index_and_rows_consistent(uri: str) -> None:
    run_script(Checked.create(uri, "mor", RINGS, lambda rows: rows))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["record index, moving", "bucket"])
def test_rows_beyond_the_memory_budget(uri: str, name: str) -> None:
    run_script(Checked.create(uri, "cow", INDEXES[name], lambda rows: rows, **{"pyhudi.memory.budget.bytes": 1}))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.wide if name == "bloom" else ()) for name in FILE_INDEXES])
def test_keys_that_only_a_log_has_after_a_compaction(uri: str, name: str) -> None:
    options = {"hoodie.compact.inline": False}
    run_during_compactions(Checked.create(uri, "mor", FILE_INDEXES[name], lambda rows: rows, **options))


@pytest.mark.parametrize("name", ["simple", "global simple"])
def test_a_compaction_that_ends_while_rows_come_in(uri: str, name: str) -> None:
    """The write loaded the table before the compaction ended and requests its instant afterwards: it plans with the new state."""
    checked = Checked.create(uri, "mor", FILE_INDEXES[name], lambda rows: rows, **{"hoodie.compact.inline": False})
    checked.upsert(*(row(key, "p0", 1) for key in range(10)))
    checked.delete(("p0", "k0"), ("p0", "k4"))
    planned = checked.table.schedule_compaction().planned
    assert planned is not None

    def slow(rows: pa.Table) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            checked.table.compact(planned)
            yield from rows.to_batches()

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    checked.data = slow
    assert checked.upsert(row(0, "p0", 2)).rows_inserted == 1
    checked.data = lambda rows: rows
    assert checked.upsert(row(0, "p0", 3)).rows_inserted == 0
    checked.validate()


def test_delete_by_filter_concurrent_with_compaction_reads_changed_rows_again(uri: str) -> None:
    """A delete by filter selected its rows in its snapshot: it reads again what another writer changed since."""
    checked = Checked.create(uri, "mor", FILE_INDEXES["simple"], lambda rows: rows, **{"hoodie.compact.inline": False})
    checked.upsert(*(row(key, "p0", 1) for key in range(4)))
    checked.upsert(row(0, "p0", 2))
    planned = checked.table.schedule_compaction().planned
    assert planned is not None
    raced: list[str | None] = []

    class Overtaken(LocalEngine):
        def prepare(self, data: Any, request: PrepareRequest) -> LocalIncoming:
            if not raced:
                raced.append(planned)
                checked.table.compact(planned)
                checked.upsert(row(1, "p0", 9))
            return super().prepare(data, request)

    settings = WriteSettings.of(parse_options({}), WriteOperation.DELETE)
    result = run_delete_where(checked.table.context, Overtaken(1), "ts = 1", settings)
    assert raced
    assert (result.conflict_retries, result.rows_deleted) == (1, 2)
    del checked.rows["p0", "k2"], checked.rows["p0", "k3"]
    checked.check()
