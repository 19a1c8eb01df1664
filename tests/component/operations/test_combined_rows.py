"""The result of a write counts the rows that were given: combined by key, inserted, updated, deleted and unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyhudi as hp

ROWS = [{"id": 1, "ts": 1}, {"id": 1, "ts": 2}, {"id": 2, "ts": 1}]
COMBINE = {"hoodie.combine.before.insert": True}


@pytest.mark.parametrize(
    ("operation", "options", "combined"),
    [
        ("upsert", {}, 1),
        ("upsert", {"pyhudi.write.group": "always"}, 1),
        ("upsert", {"hoodie.index.type": "GLOBAL_SIMPLE"}, 1),
        ("insert", {}, 0),
        ("insert", COMBINE, 1),
        ("insert", {"hoodie.datasource.write.insert.drop.duplicates": True}, 1),
        ("bulk_insert", {}, 0),
        ("bulk_insert", COMBINE, 1),
        ("insert_overwrite", COMBINE, 1),
        ("insert_overwrite_table", COMBINE, 1),
        ("delete", {}, 1),
    ],
)
def test_rows_given_and_combined(tmp_path: Path, operation: str, options: dict[str, object], combined: int) -> None:
    table = hp.Table.create(tmp_path, record_key="id", ordering="ts")
    if operation == "delete":
        table.insert([{"id": 1, "ts": 1}])
    result = getattr(table, operation)(ROWS, options=options)
    assert (result.rows_in, result.rows_combined) == (3, combined)
    assert ("1 combined by key" in str(result)) is bool(combined)
    if operation != "delete":
        assert table.scan().count() == 3 - combined


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("way", ["alone", "group", "sql"])
def test_rows_that_change_nothing(tmp_path: Path, table_type: str, way: str) -> None:
    table = hp.Table.create(tmp_path, record_key="id", ordering="ts", table_type=table_type)
    table.insert([{"id": 1, "ts": 5}, {"id": 2, "ts": 5}])
    rows = [{"id": 1, "ts": 4}, {"id": 1, "ts": 3}, {"id": 2, "ts": 6}, {"id": 3, "ts": 1}]
    options = {"pyhudi.write.group": "always"} if way == "group" else {}
    if way == "sql":
        result = hp.sql(
            f"INSERT INTO hudi.`{tmp_path}` VALUES (1, 4), (1, 3), (2, 6), (3, 1)",
            options={"hoodie.spark.sql.insert.into.operation": "upsert"},
        ).to_pylist()[0]
    else:
        result = table.upsert(rows, options=options).to_dict()
    counted = {"in": 4, "combined": 1, "inserted": 1, "updated": 1, "unchanged": 1, "deleted": 0}
    assert {name: result[f"rows_{name}"] for name in counted} == counted


def test_rows_without_a_target_change_nothing(tmp_path: Path) -> None:
    table = hp.Table.create(tmp_path, record_key="id")
    table.insert([{"id": 1, "n": 1}, {"id": 2, "n": 1}])
    deleted = table.delete([1, 8, 9])
    assert (deleted.rows_in, deleted.rows_deleted, deleted.rows_unchanged) == (3, 1, 2)
    partial = table.upsert([{"id": 2, "n": 2}, {"id": 9, "n": 2}], partial=True)
    assert (partial.rows_in, partial.rows_updated, partial.rows_unchanged) == (2, 1, 1)
    inserted = table.insert([{"id": 2, "n": 3}, {"id": 3, "n": 3}], options={"hoodie.datasource.insert.dup.policy": "drop"})
    assert (inserted.rows_in, inserted.rows_inserted, inserted.rows_unchanged) == (2, 1, 1)
    assert "1 unchanged" in str(inserted)
    replaced = table.insert_overwrite_table([{"id": 7, "n": 1}])
    assert (replaced.rows_in, replaced.rows_inserted, replaced.rows_unchanged, replaced.rows_deleted) == (1, 1, 0, 2)


def test_moves_to_another_partition_leave_the_number_unknown(tmp_path: Path) -> None:
    options = {"hoodie.index.type": "GLOBAL_SIMPLE"}
    table = hp.Table.create(tmp_path, record_key="id", partition_by="day")
    table.insert([{"id": 1, "day": "mon"}])
    assert table.upsert([{"id": 1, "day": "mon"}], options=options).rows_unchanged == 0
    moved = table.upsert([{"id": 1, "day": "tue"}], options=options)
    assert (moved.rows_inserted, moved.rows_deleted, moved.rows_unchanged) == (1, 1, None)
