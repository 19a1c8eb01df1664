"""Events and log lines of operations."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import HudiError, OperationEvent, Table, add_listener

ROWS = pa.table({"id": ["a", "b"], "ts": [1, 1]})


@pytest.fixture
def events() -> Iterator[list[OperationEvent]]:
    seen: list[OperationEvent] = []
    remove = add_listener(seen.append)
    yield seen
    remove()


def test_each_operation_makes_an_event(tmp_path: Path, events: list[OperationEvent]) -> None:
    table = Table.create(str(tmp_path / "t"), name="trips", record_key="id", ordering="ts")
    result = table.upsert(ROWS)
    table.clean(dry_run=False)
    assert result.rows_in == 2 and "2 in, 2 inserted" in str(result)
    names = [event.operation for event in events]
    assert names[-2:] == ["upsert", "clean"]
    written = events[-2]
    assert (written.table, written.uri, written.error, written.result) == ("trips", table.uri, None, result)
    assert written.figures()["rows_inserted"] == 2 and written.seconds > 0


def test_failed_operation_makes_an_error_event(tmp_path: Path, events: list[OperationEvent]) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id")
    with pytest.raises(HudiError) as raised:
        table.upsert(pa.table({"other": [1]}))
    assert [(event.error, event.figures()) for event in events] == [(type(raised.value).__name__, {})]


def test_listener_exceptions_do_not_fail_the_operation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: OperationEvent) -> None:
        raise RuntimeError("no")

    remove = add_listener(broken)
    try:
        with caplog.at_level(logging.INFO, "pyhudi"):
            Table.create(str(tmp_path / "t"), record_key="id").upsert(ROWS)
    finally:
        remove()
    texts = [record.getMessage() for record in caplog.records]
    assert any(text.startswith("upsert 2") and " took " in text for text in texts)
    assert any("a listener failed" in text for text in texts)


def test_results_print_as_blocks(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id", ordering="ts")
    table.upsert(ROWS)
    undone = table.rollback(table.upsert(ROWS).instant or "")
    assert str(undone).splitlines()[0] == f"rollback {undone.instant}" and undone.to_dict()["rolled_back"] == undone.rolled_back
    clustered = table.cluster()
    assert "seconds" in str(clustered) and clustered.to_dict()["groups"] == 1
