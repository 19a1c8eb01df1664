"""A changed column type leaves no statistics of the old type."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import TableState
from tests.support.changed_types import CHANGES, DOUBLE, INT, LONG, PLAIN, TEXT, changed, rows


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("old", "new", "table_type"),
    [
        # To text and to another number on either; other pairs of types in turns.
        pytest.param(
            old,
            new,
            table_type,
            id=f"{old} to {new}-{table_type}",
            marks=pytest.mark.wide
            if (old, new) not in ((INT, TEXT), (INT, LONG)) and (place % 2 == 0) == (table_type == "cow")
            else (),
        )
        for place, (old, new) in enumerate(CHANGES)
        for table_type in ("cow", "mor")
    ],
)
def test_statistics_have_the_current_column_type_or_are_removed(
    tmp_path: Path, table_type: str, old: pa.DataType, new: pa.DataType
) -> None:
    table = changed(tmp_path / "t", table_type, old, new)
    assert table.validate().ok, str(table.validate())
    _find_all(table)
    # The next write, of a partition again, builds what is missing.
    table.upsert(rows(new, 5, 7, ts=3))
    table = Table(table.uri)
    assert {"column_stats", "partition_stats"} <= set(table.config.metadata_partitions)
    assert table.validate().ok, str(table.validate())
    _find_all(table)


def _find_all(table: Table) -> None:
    for row in table.scan().to_arrow().to_pylist():
        found = table.scan(filter=[("n", "=", row["n"])]).to_arrow()
        assert row["id"] in found["id"].to_pylist(), row


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_write_that_is_refused_leaves_statistics_of_the_types_of_before(tmp_path: Path, partitioned: bool) -> None:
    """Statistics that a widening has dropped are built before the next write, which would give the column another type."""
    partition = "p" if partitioned else None
    table = Table.create(tmp_path, name="t", record_key="id", partition_by=partition, ordering="ts", options=PLAIN)
    table.bulk_insert(rows(INT, 0, 1, 2, 3, ts=1))
    table.schedule_clustering()
    table.upsert(rows(LONG, 4, ts=2), options={"hoodie.parquet.small.file.limit": 0})
    with pytest.raises(TableState, match="pending clustering"):
        table.upsert(rows(DOUBLE, 1, ts=3), schema_mode="evolve")
    report = table.validate()
    assert report.ok, report
    assert "column_stats" in Table(tmp_path).config.metadata_partitions
    assert table.scan(filter="n = 4").to_arrow()["n"].to_pylist() == [4]
    table.unschedule_clustering(table.timeline().pending()[0].request_time)
    table.upsert(rows(DOUBLE, 1, ts=3), schema_mode="evolve")
    table.upsert(rows(DOUBLE, 7, ts=4))
    report = table.validate()
    assert report.ok, report
    assert sorted(table.scan(filter="n >= 3").to_arrow()["n"].to_pylist()) == [3.0, 4.0, 7.0]
