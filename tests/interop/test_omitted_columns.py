"""Tables whose files lack the partition columns, written in turn with Apache Hudi."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from tests.interop.alternation import OPERATION, Alternation
from tests.interop.oracle import ApacheHudi
from tests.support.rows import assert_same_rows, without_meta

OMIT = "hoodie.datasource.write.drop.partition.columns"
REGIONS = ("north/east", "a=b c", None)
SCHEMA = pa.schema(
    [("id", pa.string()), ("level", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("note", pa.string())]
)
OPTIONS: dict[str, Any] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "region,level",
    "hoodie.datasource.write.partitionpath.urlencode": True,
    "hoodie.embed.timeline.server": False,
    OMIT: True,
}


def rows(numbers: Iterable[int], ts: int) -> pa.Table:
    made = [{"id": f"k{n}", "level": str(n % 2), "region": REGIONS[n % 3], "ts": ts, "note": f"{n} of {ts}"} for n in numbers]
    return pa.Table.from_pylist(made, SCHEMA)


def alternation(hudi: ApacheHudi, path: Path, **more: Any) -> Alternation:
    return Alternation(hudi, path, {**OPTIONS, **more}, partition=lambda row: (row["region"], row["level"]), ordering="ts")


@pytest.mark.parametrize(
    ("release", "first", "hive", "metadata"),
    [
        pytest.param("1.0.2", "theirs", True, False, marks=pytest.mark.wide),
        ("1.1.1", "ours", False, True),
        pytest.param("1.0.2", "ours", True, True, marks=pytest.mark.wide),
        pytest.param("1.0.2", "theirs", False, False, marks=pytest.mark.wide),
    ],
)
def test_both_write_alternately(
    request: pytest.FixtureRequest, tmp_path: Path, release: str, first: str, hive: bool, metadata: bool
) -> None:
    hudi = request.getfixturevalue("hudi" if release == "1.0.2" else "newer_hudi")
    more: dict[str, Any] = {"hoodie.datasource.write.hive_style_partitioning": hive, "hoodie.metadata.enable": metadata}
    if release == "1.1.1":
        more |= {"hoodie.write.table.version": 9}
    both = alternation(hudi, tmp_path / "t", **more)
    if first == "ours":
        both.create()
        both.ours("bulk_insert", rows(range(8), 10))
    else:
        both.theirs("insert", rows(range(8), 10))
    both.read_by_both()
    both.theirs("upsert", rows((0, 3, 9, 12), 20))
    both.theirs("delete", rows((1, 2), 21))
    both.read_by_both()
    both.ours("upsert", pa.concat_tables([rows((0, 5, 14), 30), rows((3,), 15)]))
    both.ours_where("level = '0' AND id = 'k6'", lambda row: row["id"] == "k6")
    both.theirs("upsert", pa.concat_tables([rows((1, 4), 40), rows((0,), 25)]))
    both.ours("insert_overwrite", rows((7,), 41))
    both.read_by_both()
    both.theirs("insert_overwrite", rows((9,), 50))
    both.table.cluster()
    both.read_by_both()
    filters = ("level = '1'", "region IS NULL AND note <> ''", "region = 'a=b c'")
    for text, real in zip(filters, hudi.read_each(both.path, filters), strict=True):
        assert_same_rows(without_meta(real), both.table.scan(filter=text).to_arrow(), key=["id"])


def test_a_bulk_insert_of_apache_hudi_loses_its_rows(hudi: ApacheHudi, tmp_path: Path) -> None:
    """It counts them as write errors, and completes its commit all the same."""
    both = alternation(hudi, tmp_path / "t")
    both.theirs("insert", rows(range(3), 1))
    hudi.write(rows([5], 2), both.path, **{**both.options, OPERATION: "bulk_insert"})
    both.read_by_both()
    both.ours("bulk_insert", rows([5], 2))
    both.read_by_both()


def test_tables_of_sql(hudi: ApacheHudi, tmp_path: Path) -> None:
    """A DataFrame reads the columns as text, SQL with the types of the statement, and so does PyHudi, which finds them stated."""
    path = tmp_path / "t"
    hudi.sql("DROP TABLE IF EXISTS omitted")
    hudi.sql(
        "CREATE TABLE omitted (id STRING, note STRING, ts BIGINT, level INT) USING hudi PARTITIONED BY (level) "
        f"TBLPROPERTIES (type = 'cow', primaryKey = 'id', preCombineField = 'ts', '{OMIT}' = 'true') LOCATION '{path}'"
    )
    hudi.sql("INSERT INTO omitted VALUES ('a', 'x', 1, 7), ('b', 'y', 1, 8)")
    table = Table(path)
    fresh = pa.Table.from_pylist([{"id": "c", "note": "z", "ts": 2, "level": 7}, {"id": "a", "note": "new", "ts": 2, "level": 7}])
    table.upsert(fresh.set_column(3, "level", fresh["level"].cast(pa.int32())))
    found = table.scan().to_arrow()
    assert found.schema.field("level").type == pa.int32()
    assert sorted(found["level"].to_pylist()) == [7, 7, 8]
    assert_same_rows(hudi.sql("SELECT id, note, ts, level FROM omitted"), found, key=["id"])
    as_text = without_meta(hudi.read(path))
    assert pc.all(pc.is_in(as_text["level"], pa.array(["7", "8"]))).as_py()
    hudi.sql("DROP TABLE omitted")
