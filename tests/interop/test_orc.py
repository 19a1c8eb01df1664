"""Tables with ORC base files in turn with Apache Hudi 1.0.2, which writes them but cannot read them on Spark 3.5.

Its files are compared with its input. Files of PyHudi are checked by Hudi's next upsert, which looks up keys in them
and merges their rows.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.support.rows import assert_same_rows

NESTED = pa.struct([("lat", pa.float64()), ("words", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("whole", pa.int32()),
        ("single", pa.float32()),
        ("huge", pa.decimal128(38, 10)),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("place", NESTED),
        ("places", pa.list_(NESTED)),
        ("named", pa.map_(pa.string(), NESTED)),
    ]
)
OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.table.base.file.format": "ORC",
    "hoodie.base.file.format": "ORC",
    "hoodie.embed.timeline.server": False,
    "hoodie.metadata.enable": False,
    "hoodie.index.bloom.num_entries": 50,
}
MOMENT = datetime.datetime(2026, 7, 1, 12, 30, 15, tzinfo=datetime.UTC)
OLD_DAYS = {
    0: datetime.date(1, 1, 1),
    2: datetime.date(1582, 10, 4),
    4: datetime.date(1500, 2, 28),
    5: datetime.date(1899, 12, 31),
}
"""It counts days by the Gregorian calendar, and says in the file that it does not."""
# Hudi writes the microseconds of a time and drops its milliseconds; before 1970 both are wrong.
OLD_MOMENTS = {
    0: datetime.datetime(1700, 2, 28, 1, 2, 3, tzinfo=datetime.UTC),
    4: datetime.datetime(1850, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    5: datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC),
}


def rows(numbers: Iterable[int], ts: int) -> pa.Table:
    made: list[dict[str, Any]] = []
    for n in numbers:
        place = {"lat": n / 4, "words": ["é", None][: n % 3]}
        whole = {
            "whole": n - 5,
            "single": n / 8,
            "huge": n * 10**20,
            "raw": bytes(range(n)),
            "flag": n % 2 == 0,
            "day": OLD_DAYS.get(n, datetime.date(2026, 1, 1 + n)),
            "moment": OLD_MOMENTS.get(n, MOMENT + datetime.timedelta(days=30 * n, microseconds=n)),
            "place": place if n % 4 else None,
            "places": [place, None][: n % 3],
            "named": [("home", place), ("none", None)][: n % 3],
        }
        made.append({"id": f"k{n}", "ts": ts, **(whole if n != 1 else {})})
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", pytest.param("MERGE_ON_READ", marks=pytest.mark.wide)])
def test_orc_table_of_alternating_writers(hudi: ApacheHudi, tmp_path: Path, table_type: str) -> None:
    path = tmp_path / "t"
    options: dict[str, Any] = {**OPTIONS, "hoodie.datasource.write.table.type": table_type}
    upsert: dict[str, Any] = {"hoodie.datasource.write.operation": "upsert"}
    hudi.write(rows(range(6), 1), path, **options, **{**upsert, "hoodie.datasource.write.operation": "insert"})
    hudi.write(rows((0, 1, 6), 2), path, **options, **upsert)
    table = Table(str(path))
    assert_same_rows(table.scan().to_arrow(), pa.concat_tables([rows((0, 1, 6), 2), rows(range(2, 6), 1)]), key=["id"])
    # A late row, an update and an insert over files of Apache Hudi.
    table.upsert(pa.concat_tables([rows((0,), 0), rows((2, 7), 3)]), options={"hoodie.index.type": "BLOOM"})
    hudi.write(rows((2, 3, 7, 8), 4), path, **options, **upsert)
    expected = pa.concat_tables([rows((0, 1, 6), 2), rows((4, 5), 1), rows((2, 3, 7, 8), 4)])
    assert_same_rows(table.scan().to_arrow(), expected, key=["id"])
    if table_type == "MERGE_ON_READ":
        # Hudi has no compaction of such a table.
        table.compact()
        assert_same_rows(table.scan().to_arrow(), expected, key=["id"])
    assert table.validate().ok


@pytest.mark.wide
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("version", [9, 8])
def test_release_1_1_reads_orc_tables_of_both_writers(
    newer_hudi: ApacheHudi, tmp_path: Path, table_type: str, version: int
) -> None:
    """It reads what either wrote, but not copy on write by Spark's vectorized reader, which is its default."""
    path = tmp_path / "t"
    options: dict[str, Any] = {
        **OPTIONS,
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.write.table.version": version,
        "hoodie.compact.inline": False,
    }
    write = "hoodie.datasource.write.operation"
    plain: dict[str, Any] = {"hoodie.metadata.enable": False}
    # Rows without the days and times of long ago, which it shows otherwise than they were given to it.
    newer_hudi.write(rows((1, 3, 6), 1), path, **(options | {write: "insert"}))
    newer_hudi.write(rows((1, 7), 2), path, **(options | {write: "upsert"}))
    table = Table(str(path))
    table.upsert(rows((3, 8), 3))
    newer_hudi.write(rows((6, 8, 9), 4), path, **(options | {write: "upsert"}))
    newer_hudi.write(rows((7,), 5), path, **(options | {write: "upsert"}))
    found = table.scan(["*"]).to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == (
        {"k1": 2, "k3": 3, "k6": 4, "k7": 5, "k8": 4, "k9": 4}
    )
    if table_type == "COPY_ON_WRITE":
        with pytest.raises(HudiFailure, match="OrcAtomicColumnVector cannot be cast"):
            newer_hudi.read(path, **plain)
        newer_hudi.sql("SET spark.sql.orc.enableVectorizedReader=false")
    kept = [name for name in SCHEMA.names if name != "moment"]
    assert_same_rows(newer_hudi.read(path, columns=kept, **plain), found.select(kept), key=["id"])
    if table_type == "MERGE_ON_READ":
        # Release 1.1.1 has no compaction of such a table, either.
        assert table.compact().runs
        assert_same_rows(table.scan(["*"]).to_arrow().select(SCHEMA.names), found.select(SCHEMA.names), key=["id"])
    with pytest.raises(HudiFailure, match=r"\.orc format not supported yet"):
        newer_hudi.write(rows((10,), 5), path, **(options | {write: "bulk_insert"}))
    assert table.validate().ok
