"""Tables that generate record keys: rows are updated, merged and deleted by the key and partition that they are stored under."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi as hp
from pyhudi.format.meta_columns import RECORD_KEY

ROWS = {"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"], "city": ["x", "x", "y", "y"]}


def new_table(path: Path, table_type: str, **options: Any) -> hp.Table:
    table = hp.Table.create(path, partition_by="city", table_type=table_type, options=options)
    table.insert(ROWS)
    return table


def values(table: hp.Table) -> list[tuple[int, str, str]]:
    return sorted((row["id"], row["v"], row["city"]) for row in table.scan().to_arrow().to_pylist())


def keys(table: hp.Table) -> dict[int, str]:
    return {row["id"]: row[RECORD_KEY] for row in table.scan(["*"]).to_arrow().to_pylist()}


def changed(rows: pa.Table, value: str) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index("v"), "v", pa.array([value] * rows.num_rows))


@pytest.mark.sample(3)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "RECORD_INDEX"])
def test_upsert_of_rows_with_meta_columns_updates_them(tmp_path: Path, table_type: str, index: str) -> None:
    options = {"hoodie.index.type": index, "hoodie.metadata.record.index.enable": "true"}
    table = new_table(tmp_path, table_type)
    before = keys(table)
    read = table.scan(["*"], filter="id > 2").to_arrow()
    result = table.upsert(changed(read, "z"), options=options)
    assert (result.rows_updated, result.rows_inserted) == (2, 0)
    assert values(table) == [(1, "a", "x"), (2, "b", "x"), (3, "z", "y"), (4, "z", "y")]
    assert keys(table) == before
    table.upsert(changed(read.slice(0, 1), "w"), options=options)
    if table_type == "mor":
        table.compact()
    assert values(table)[2] == (3, "w", "y")
    assert keys(table) == before
    assert table.validate().ok


def test_rows_that_name_no_stored_row_are_refused(tmp_path: Path) -> None:
    table, other = new_table(tmp_path / "t", "cow"), new_table(tmp_path / "o", "cow")
    read = table.scan(["*"]).to_arrow()
    before = values(table)
    moved = read.set_column(read.schema.get_field_index("city"), "city", pa.array(["q"] * 4))
    without = read.set_column(read.schema.get_field_index(RECORD_KEY), RECORD_KEY, pa.nulls(4, pa.string()))
    foreign = other.scan(["*"]).to_arrow()
    for rows, text in ((moved, "keeps its partition"), (without, "is null in row 0"), (foreign, "does not have")):
        with pytest.raises(hp.InvalidRequest, match=text):
            table.upsert(rows)
    with pytest.raises(hp.InvalidRequest, match="_hoodie_ columns"):
        table.upsert(ROWS)
    table.delete(where="id = 1")
    with pytest.raises(hp.InvalidRequest, match="1 rows have"):
        table.upsert(read)
    assert values(table) == before[1:]
    table.insert(read.filter(pc.equal(read.column("id"), 2)))
    assert values(table).count((2, "b", "x")) == 2


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_updates_merges_and_deletes(tmp_path: Path, table_type: str) -> None:
    table = new_table(tmp_path, table_type)
    before = keys(table)
    assert table.update({"v": "'u'"}, "id = 1").rows_updated == 1
    source = {"id": [2, 3, 9], "v": ["m", "gone", "new"], "city": ["x", "y", "x"]}
    merge = table.merge(source, on="id").when_matched_delete("source.v = 'gone'").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()
    assert values(table) == [(1, "u", "x"), (2, "m", "x"), (4, "d", "y"), (9, "new", "x")]
    with pytest.raises(hp.InvalidRequest, match="keeps its partition"):
        table.update({"city": "'q'"}, "id = 1")
    with pytest.raises(hp.InvalidRequest, match="several rows of the source"):
        table.merge({"id": [1, 1], "v": ["p", "q"]}, on="id").when_matched_update({"v": "source.v"}).execute()
    after = keys(table)
    assert {number: after[number] for number in (1, 2, 4)} == {number: before[number] for number in (1, 2, 4)}
    assert table.validate().ok


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_statements(tmp_path: Path, table_type: str) -> None:
    table = new_table(tmp_path, table_type)
    before = keys(table)
    t = f"hudi.`{tmp_path}`"
    hp.sql(f"UPDATE {t} SET v = upper(concat(v, 'x')) WHERE id < 3")
    hp.sql(f"DELETE FROM {t} WHERE id = 2")
    hp.sql(
        f"MERGE INTO {t} t USING (SELECT * FROM VALUES (3L, 'm', 'y'), (8L, 'n', 'x'), (8L, 'o', 'x') AS s (id, v, city)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    assert values(table) == [(1, "AX", "x"), (3, "m", "y"), (4, "d", "y"), (8, "n", "x"), (8, "o", "x")]
    hp.sql(f"UPDATE {t} SET v = 'all'")
    assert {row[1] for row in values(table)} == {"all"}
    assert {number: keys(table)[number] for number in (1, 3, 4)} == {number: before[number] for number in (1, 3, 4)}
    assert table.validate().ok
