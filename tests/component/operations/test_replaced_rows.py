"""Writes that replace file groups report the number of replaced rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp


def rows(*ids: int, city: str = "a") -> pa.Table:
    return pa.table({"id": list(ids), "city": [city] * len(ids)})


@pytest.fixture
def table(tmp_path: Path) -> hp.Table:
    table = hp.Table.create(tmp_path / "t", record_key="id", partition_by="city")
    table.insert(rows(1, 2, 3))
    table.insert(rows(4, 5, city="b"))
    return table


def test_deleted_partitions_count_their_records(table: hp.Table) -> None:
    table.delete([{"id": 1, "city": "a"}])
    assert table.delete_partitions(["a"]).rows_deleted == 2
    assert table.delete_partitions(["nowhere"]).rows_deleted == 0


def test_overwrites_count_the_records_that_they_replace(table: hp.Table) -> None:
    first = table.insert_overwrite(rows(7))
    assert (first.rows_inserted, first.rows_deleted) == (1, 3)
    second = table.insert_overwrite_table(rows(8, 9))
    assert (second.rows_inserted, second.rows_deleted) == (2, 3)


def test_sql_counts_the_rows_of_truncate_and_drop_partition(table: hp.Table) -> None:
    dropped = hp.sql(f"ALTER TABLE hudi.`{table.uri}` DROP PARTITION (city = 'b')").to_pylist()
    assert dropped[0]["rows_deleted"] == 2
    assert hp.sql(f"TRUNCATE TABLE hudi.`{table.uri}`").to_pylist()[0]["rows_deleted"] == 3


def test_file_groups_with_log_files_have_no_count(tmp_path: Path) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id", partition_by="city", table_type="mor")
    table.insert(rows(1, 2, 3))
    table.insert(rows(4, city="b"))
    table.upsert(rows(2))
    result = table.delete_partitions(["a"])
    assert result.rows_deleted is None
    assert "an unknown number deleted" in str(result)
    assert hp.sql(f"TRUNCATE TABLE hudi.`{table.uri}`").column("rows_deleted").to_pylist() == [1]
