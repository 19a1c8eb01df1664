"""Timestamps without zone: Hudi 1.1.1 has such columns, Hudi 1.0.2 reads them as numbers."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.support.rows import assert_same_rows, without_meta

NOON = datetime(2026, 7, 1, 12)
BY_LISTING: dict[str, Any] = {"hoodie.metadata.enable": False}
BY_METADATA: dict[str, Any] = {"hoodie.metadata.enable": True, "hoodie.enable.data.skipping": True}


def rows(ids: str, ts: int, hours: int) -> pa.Table:
    times = [NOON + timedelta(hours=hours, microseconds=number) for number in range(len(ids))]
    return pa.table({"id": list(ids), "ts": [ts] * len(ids), "at": pa.array(times, pa.timestamp("us"))})


def options(kind: str, **more: Any) -> dict[str, Any]:
    return {
        "hoodie.table.name": "local",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.metadata.enable": True,
        "hoodie.metadata.index.column.stats.enable": True,
        "hoodie.index.bloom.num_entries": 100,
        **more,
    }


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("COPY_ON_WRITE", 9),
        ("MERGE_ON_READ", 8),
        pytest.param("COPY_ON_WRITE", 8, marks=pytest.mark.wide),
        pytest.param("MERGE_ON_READ", 9, marks=pytest.mark.wide),
    ],
)
def test_local_timestamps_are_written_and_read_by_both(newer_hudi: ApacheHudi, tmp_path: Path, kind: str, version: int) -> None:
    settings = options(kind, **{"hoodie.write.table.version": version})
    if version == 8:
        settings["pyhudi.timestamps.without.zone"] = "local"
    theirs = {key: value for key, value in settings.items() if not key.startswith("pyhudi.")}
    Table.create(tmp_path, options=settings)
    expected: dict[str, dict[str, Any]] = {}
    for ts, (ids, real) in enumerate([("abc", False), ("bcd", True), ("ade", False)]):
        data = rows(ids, ts, ts)
        if real:
            newer_hudi.write(data, tmp_path, **theirs)
        else:
            Table(tmp_path, options=settings).upsert(data)
        expected.update((row["id"], row) for row in data.to_pylist())
        wanted = pa.Table.from_pylist(list(expected.values()), data.schema)
        assert_same_rows(Table(tmp_path).scan().to_arrow(), wanted, key=["id"])
        if ts > 0:
            # From here on with rows of both.
            assert_same_rows(without_meta(newer_hudi.read(tmp_path, **BY_METADATA)), wanted, key=["id"])
    # Both skip files by statistics of such columns.
    for literal, found in (("2026-07-01 14:00:00", 3), ("2026-07-02 00:00:00", 0)):
        where = f"at >= TIMESTAMP_NTZ'{literal}'"
        assert newer_hudi.read(tmp_path, where=where, **BY_METADATA).num_rows == found
        assert Table(tmp_path).scan(filter=f"at >= TIMESTAMP '{literal}'").count() == found
    assert Table(tmp_path).validate().ok


def test_release_1_0_refuses_local_timestamps(hudi: ApacheHudi, tmp_path: Path) -> None:
    with pytest.raises(HudiFailure, match="Unexpected type TimestampNTZType"):
        hudi.write(rows("a", 1, 0), tmp_path / "theirs", **options("COPY_ON_WRITE"))
    table = Table.create(tmp_path / "ours", options=options("MERGE_ON_READ"))
    table.upsert(rows("a", 1, 0), options={"pyhudi.timestamps.without.zone": "local"})
    assert pa.types.is_int64(hudi.read(tmp_path / "ours", **BY_LISTING).schema.field("at").type)


@pytest.mark.wide
def test_release_1_1_reads_local_timestamps_in_the_unit_of_the_file(newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    """It mends files of older releases so, and times of before a column was given milliseconds; ours goes by the file."""
    noon_ms = 1_782_907_200_000
    kind = {"hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.metadata.enable": False}
    for ts, (key, unit, value) in enumerate([("a", "micros", noon_ms * 1000), ("b", "millis", noon_ms)], 1 << 31):
        at = {"type": "long", "logicalType": f"timestamp-{unit}"}
        fields = [{"name": "id", "type": "string"}, {"name": "ts", "type": "long"}, {"name": "at", "type": at}]
        rows_of_it = [{"id": one, "ts": ts, "at": value} for one in ("ab" if key == "a" else "b")]
        newer_hudi.write_avro(tmp_path, {"type": "record", "name": "r", "fields": fields}, rows_of_it, **kind)
    ours, theirs = (
        dict(zip(found["id"].to_pylist(), found["at"].cast(pa.int64()).to_pylist(), strict=True))
        for found in (Table(tmp_path).scan().to_arrow(), newer_hudi.read(tmp_path))
    )
    assert ours == {"a": noon_ms * 1000, "b": noon_ms * 1000}
    assert theirs == {"a": noon_ms * 1000 * 1000, "b": noon_ms * 1000}
