"""Null in a partition column of formatted times: PyHudi writes the path that Apache Hudi writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.meta_columns import PARTITION_PATH
from tests.interop.oracle import ApacheHudi
from tests.support.timestamp_paths import options_of_time_paths

pytestmark = pytest.mark.interop

MILLIS = "yyyy-MM-dd HH:mm:ss.SSS"


@pytest.mark.parametrize(
    ("pattern", "zones"),
    [
        (MILLIS, {"input.timezone": "UTC", "output.timezone": "UTC"}),
        ("yyyy-MM-dd", {"input.timezone": "America/Los_Angeles", "output.timezone": "UTC"}),
        pytest.param(f"yyyy-MM-dd,{MILLIS}", {"timezone": "America/Los_Angeles"}, marks=pytest.mark.wide),
        pytest.param("yyyy-MM-dd HH", {"output.timezone": "America/Los_Angeles"}, marks=pytest.mark.wide),
    ],
)
def test_path_of_a_null_text(hudi: ApacheHudi, tmp_path: Path, pattern: str, zones: dict[str, str]) -> None:
    options = options_of_time_paths(pattern, "yyyy-MM-dd HH.mm.ss.SSS", zones)
    rows = pa.table({"id": ["theirs"], "day": pa.array([None], pa.string())})
    hudi.write(rows, tmp_path / "t", **options)
    table = Table(tmp_path / "t")
    table.upsert(rows.set_column(0, "id", [["ours"]]))
    found = table.scan(["id", PARTITION_PATH]).to_arrow().to_pylist()
    assert len(found) == 2
    assert len({row[PARTITION_PATH] for row in found}) == 1, found
