"""The result of a write counts the rows that were given, and those dropped because another row has their key."""

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
