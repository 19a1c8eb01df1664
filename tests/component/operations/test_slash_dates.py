"""Slash-separated date partitions: read, pruned and written by the property, or by the class and a file."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest, TableState, Unsupported

OPTION = "hoodie.datasource.write.slash.separated.date.partitioning"
CLASS = {"hoodie.table.partition_extractor_class": "org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor"}


def rows(days: list[Any], ts: int = 1) -> pa.Table:
    return pa.table({"id": [str(n) for n in range(len(days))], "ts": [ts] * len(days), "day": days})


def create(path: Path, options: dict[str, str] | None = None, **arguments: Any) -> Table:
    return Table.create(path, record_key="id", partition_by="day", ordering="ts", options=options, **arguments)


def change_properties(path: Path, changes: Mapping[str, str | None]) -> None:
    file = path / ".hoodie" / "hoodie.properties"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#pyhudi")]
    kept = [line for line in lines if line.partition("=")[0] not in changes]
    file.write_text("\n".join([*(f"{key}={value}" for key, value in changes.items() if value is not None), *kept]) + "\n")


def folders(path: Path) -> list[str]:
    found = path.rglob(".hoodie_partition_metadata*")
    return sorted(str(file.parent.relative_to(path)) for file in found if ".hoodie/" not in str(file.relative_to(path)))


def state(table: Table, filter: str | None = None) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["ts"], row["day"]) for row in table.scan(filter=filter).to_arrow().to_pylist())


def test_sql_stores_paths_without_the_name_of_the_column(tmp_path: Path) -> None:
    create = f"CREATE TABLE hudi.`{tmp_path}/t` (id INT, day STRING) USING hudi PARTITIONED BY (day) TBLPROPERTIES "
    with pytest.raises(InvalidRequest, match="slash-separated dates have no names of columns in paths"):
        hp.sql(f"{create}('{OPTION}' = 'true', 'hoodie.datasource.write.hive_style_partitioning' = 'true')")
    hp.sql(f"{create}(primaryKey = 'id', '{OPTION}' = 'true')")
    hp.sql(f"INSERT INTO hudi.`{tmp_path}/t` VALUES (1, '2031-01-05'), (2, '2032-01-05')")
    printed = hp.sql(f"SHOW CREATE TABLE hudi.`{tmp_path}/t`").to_pylist()[0]["createtab_stmt"]
    hp.sql(printed.replace(f"{tmp_path}/t", f"{tmp_path}/copy"))
    assert hp.Table(tmp_path / "copy").config.keys == hp.Table(tmp_path / "t").config.keys
    assert hp.Table(tmp_path / "t").partitions() == ("2031/01/05", "2032/01/05")
    hp.sql(f"ALTER TABLE hudi.`{tmp_path}/t` DROP PARTITION (day = '2031-*')")
    assert hp.Table(tmp_path / "t").scan(["day"]).to_arrow().to_pylist() == [{"day": "2032-01-05"}]


@pytest.mark.sample(3)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("by", ["property", "class"])
@pytest.mark.parametrize("extension", ["PARQUET", "ORC"])
def test_slash_dates_are_read_pruned_and_upserted(tmp_path: Path, table_type: str, by: str, extension: str) -> None:
    path = tmp_path / "t"
    table = create(path, {OPTION: "true", "hoodie.table.base.file.format": extension}, table_type=table_type)
    table.upsert(rows(["2024-03-15", "2024-03-16", None, "abc"]))
    if by == "class":
        change_properties(path, {OPTION: None, **CLASS})
        table = Table(path)
    assert folders(path) == ["2024/03/15", "2024/03/16", "__HIVE_DEFAULT_PARTITION__", "abc"]
    found = table.scan(filter="day = '2024-03-16'")
    assert found.to_arrow()["id"].to_pylist() == ["1"] and "partition paths: 1 of 4" in str(found.explain())
    table.upsert(rows(["2024-03-15", "2024-03-16"], ts=2))
    assert Table(path).config.property(OPTION) == "true"
    assert state(table, "ts = 2") == [("0", 2, "2024-03-15"), ("1", 2, "2024-03-16")]
    table.delete(where="day = '2024-03-15'")
    assert table.scan().count() == 3 and len(folders(path)) == 4
    assert Table(path).validate().ok
    assert [row[0] for row in state(table, "day >= '2024-03-16' AND day < '2024-04-01'")] == ["1"]


def test_values_with_slashes_in_them_keep_their_path(tmp_path: Path) -> None:
    """The class alone is also the sign of a table whose values have the slashes."""
    path = tmp_path / "t"
    create(path).upsert(rows(["2024/03/15", "2024/03/16"]))
    change_properties(path, CLASS)
    table = Table(path)
    assert state(table, "day = '2024/03/16'") == [("1", 1, "2024/03/16")]
    table.upsert(rows(["2024/03/15", "2024-03-16"], ts=2))
    assert folders(path) == ["2024-03-16", "2024/03/15", "2024/03/16"]
    assert not Table(path).config.property(OPTION)


def test_table_with_both_spellings_is_read_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "t"
    create(path).upsert(rows(["2024-03-15"]))
    change_properties(path, {OPTION: "true"})
    table = Table(path)
    before = sorted((path / ".hoodie" / "timeline").iterdir())
    with pytest.raises(TableState, match="added the partition '2024-03-15'"):
        table.upsert(rows(["2024-03-15"], ts=2))
    assert sorted((path / ".hoodie" / "timeline").iterdir()) == before
    assert state(table, "day = '2024-03-15'") == [("0", 1, "2024-03-15")]


def test_date_column_has_slashes_in_its_paths(tmp_path: Path) -> None:
    day = datetime.date(2024, 3, 15)
    table = create(tmp_path / "t", {OPTION: "true"}, table_type="mor")
    table.upsert(rows([day, datetime.date(2024, 3, 16)]))
    assert folders(tmp_path / "t") == ["2024/03/15", "2024/03/16"]
    assert state(table, "day = DATE '2024-03-15'") == [("0", 1, day)]


def test_slash_dates_with_other_path_options(tmp_path: Path) -> None:
    table = create(tmp_path / "t", {OPTION: "true", "hoodie.datasource.write.hive_style_partitioning": "true"})
    table.upsert(rows(["2024-03-15"]))
    table.upsert(rows(["2024-03-15"], ts=2))
    assert folders(tmp_path / "t") == ["day=2024/03/15"]
    assert state(table, "day = '2024-03-15'") == [("0", 2, "2024-03-15")]
    with pytest.raises(Unsupported, match="urlencode"):
        create(tmp_path / "u", {OPTION: "true", "hoodie.datasource.write.partitionpath.urlencode": "true"})
    with pytest.raises(InvalidRequest, match="one partition field"):
        Table.create(tmp_path / "v", record_key="id", partition_by=["day", "ts"], options={OPTION: "true"})
    flat = create(tmp_path / "w")
    with pytest.raises(InvalidRequest, match="slash"):
        flat.upsert(rows(["2024-03-15"]), options={OPTION: "true"})


def test_class_without_a_file_that_holds_the_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    create(path, {OPTION: "true", "hoodie.datasource.write.drop.partition.columns": "true"}).upsert(rows(["2024-03-15"]))
    assert state(Table(path), "day = '2024-03-15'") == [("0", 1, "2024-03-15")]
    change_properties(path, {OPTION: None, **CLASS})
    with pytest.raises(Unsupported, match="no base file holds the partition column"):
        Table(path)
