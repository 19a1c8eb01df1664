"""Partitions of a timestamp column, whose paths are microseconds, or formatted times without the smaller units."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import Unsupported
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.write import write_preconditions
from pyhudi.records.keys import key_values

FORMATTED = {
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
}
OMITTED = {**FORMATTED, "hoodie.datasource.write.drop.partition.columns": "true"}
SQL_PATH = "2024-10-27 02%3A30%3A00"
TIMES = (datetime(2024, 10, 27, 2, 30, tzinfo=UTC), datetime(2024, 10, 27, 2, 30, 0, 123456, tzinfo=UTC))
_numbers = itertools.count()


def rows(times: tuple[datetime, ...] = TIMES) -> pa.Table:
    return pa.table({"id": range(len(times)), "t": pa.array(times, pa.timestamp("us", "UTC"))})


def create(options: dict[str, str] | None = None) -> Table:
    return Table.create(f"memory://timestamp-partitions-{next(_numbers)}", record_key="id", partition_by="t", options=options)


@pytest.mark.parametrize("options", [None, FORMATTED])
def test_filter_matches_timestamps_truncated_in_the_partition_path(options: dict[str, str] | None) -> None:
    table = create(options)
    table.insert(rows())
    for condition in ("t > TIMESTAMP '2024-10-27 02:30:00.123'", "t = TIMESTAMP '2024-10-27 02:30:00.123456'"):
        assert table.scan(["id"], filter=condition).to_arrow()["id"].to_pylist() == [1]


def create_by_hudi_sql(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> Table:
    """A table with one row in the partition that Hudi's SQL writes."""
    table = create(options)
    insert_as_hudi_sql(monkeypatch, table)
    assert table.inspect.partitions()["partition"].to_pylist() == [SQL_PATH]
    return table


def insert_as_hudi_sql(monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(key_values, "_java_timestamps", lambda array, zone: pa.array(["2024-10-27 02:30:00"] * len(array)))
        table.insert(rows(TIMES[:1]))


@pytest.mark.parametrize("options", [FORMATTED, OMITTED])
def test_write_next_to_partition_paths_of_hudi_sql_is_refused(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    """Hudi's SQL writes `2024-10-27 02%3A30%3A00`: the same record would get a second path."""
    table = create_by_hudi_sql(monkeypatch, options)
    for write in (table.upsert, table.insert, table.bulk_insert, table.insert_overwrite, table.delete):
        with pytest.raises(Unsupported, match=r"Hudi's SQL wrote partition path .* or delete these partitions"):
            write(rows())
    assert table.scan(["id"]).to_arrow().num_rows == 1
    assert table.upsert(rows(())).rows_inserted == 0
    assert table.delete(where="id = 0").rows_deleted == 1
    table.insert_overwrite_table(rows())
    assert table.upsert(rows()).rows_updated == 2


@pytest.mark.parametrize("options", [FORMATTED, OMITTED])
def test_writes_work_after_the_partitions_of_hudi_sql_are_deleted(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    table = create_by_hudi_sql(monkeypatch, options)
    assert table.delete(pa.table({"id": [0]})).rows_deleted == 1
    with pytest.raises(Unsupported, match="or delete these partitions with `delete_partitions`"):
        table.upsert(rows())
    table.delete_partitions([SQL_PATH])
    assert table.upsert(rows()).rows_inserted == 2


@pytest.mark.parametrize("step", ["begin", "start", "commit"])
@pytest.mark.parametrize("options", [FORMATTED, OMITTED])
def test_a_partition_that_hudi_sql_adds_during_a_write_is_detected(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], step: str
) -> None:
    """The other writer commits before the instant of the write, before its data files, or before its own commit."""
    table = create(options)
    inner = getattr(Transaction, step)

    def after_other_writer(*args: Any, **kwargs: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Transaction, step, inner)
            insert_as_hudi_sql(monkeypatch, Table(table.uri))
        return inner(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, step, after_other_writer)
        with pytest.raises(Unsupported, match="Hudi's SQL wrote partition path"):
            table.upsert(rows())
    assert table.scan(["id"]).to_arrow().num_rows == 1
    assert not table.timeline().pending()


def test_timestamp_paths_are_checked_once_without_other_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(FORMATTED)
    table.insert(rows())
    match = Mock(wraps=write_preconditions._is_path_of_hudi_sql)
    monkeypatch.setattr(write_preconditions, "_is_path_of_hudi_sql", match)
    table.upsert(rows())
    assert match.call_count == len(table.inspect.partitions())
