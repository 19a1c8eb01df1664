"""Time zones of formatted partition paths: PyHudi writes the path that Apache Hudi writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table, write
from pyhudi.format.meta_columns import PARTITION_PATH
from tests.interop.oracle import ApacheHudi
from tests.support.timestamp_paths import options_of_time_paths

pytestmark = pytest.mark.interop

ZONES = {"timezone": "Asia/Tokyo", "input.timezone": "America/Los_Angeles", "output.timezone": "Europe/Berlin"}


@pytest.mark.parametrize(
    "names",
    [
        ("timezone", "input.timezone", "output.timezone"),
        pytest.param(("timezone", "input.timezone"), marks=pytest.mark.wide),
        pytest.param(("timezone", "output.timezone"), marks=pytest.mark.wide),
    ],
)
@pytest.mark.parametrize("release", ["hudi", pytest.param("newer_hudi", marks=pytest.mark.full)])
def test_the_common_time_zone_takes_precedence(
    request: pytest.FixtureRequest, tmp_path: Path, release: str, names: tuple[str, ...]
) -> None:
    hudi: ApacheHudi = request.getfixturevalue(release)
    options = options_of_time_paths("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH.mm", {name: ZONES[name] for name in names})
    rows = pa.table({"id": ["theirs"], "day": ["2024-05-06 01:30:00"]})
    hudi.write(rows, tmp_path / "t", **options)
    table = Table(tmp_path / "t")
    table.upsert(rows.set_column(0, "id", [["ours"]]))
    write(tmp_path / "u", rows, options=options)
    paths = [row[PARTITION_PATH] for row in table.scan([PARTITION_PATH]).to_arrow().to_pylist()]
    paths += Table(tmp_path / "u").scan([PARTITION_PATH]).to_arrow()[PARTITION_PATH].to_pylist()
    assert paths == ["2024-05-06 01.30"] * 3
