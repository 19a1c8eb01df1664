"""Partitions of a timestamp column, whose paths are microseconds, or formatted times without the smaller units."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import Unsupported
from pyhudi.records.keys import key_values

FORMATTED = {
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
}
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


def test_write_next_to_partition_paths_of_hudi_sql_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hudi's SQL writes `2024-10-27 02%3A30%3A00`: the same record would get a second path."""
    table = create(FORMATTED)
    with monkeypatch.context() as patch:
        patch.setattr(key_values, "_java_timestamps", lambda array, zone: pa.array(["2024-10-27 02:30:00"] * len(array)))
        table.insert(rows(TIMES[:1]))
    assert table.inspect.partitions()["partition"].to_pylist() == ["2024-10-27 02%3A30%3A00"]
    for write in (table.upsert, table.insert, table.bulk_insert, table.insert_overwrite):
        with pytest.raises(Unsupported, match="Hudi's SQL wrote partition path"):
            write(rows())
    assert table.scan(["id"]).to_arrow().num_rows == 1
    assert table.delete(where="id = 0").rows_deleted == 1
    table.insert_overwrite_table(rows())
    assert table.upsert(rows()).rows_updated == 2
