"""The form of stored keys of the key generator COMPLEX with one key field: `value` or `field:value`, which releases of
Hudi chose differently. Stored keys decide.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import TableState
from pyhudi.table.key_form import find_key_prefix, key_forms
from pyhudi.table.table_config import store_table_config

PLACES = ["city", "day"]
BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 4}


def table_with_keys(path: Path, form: str, version: int, table_type: str = "cow", **options: object) -> hp.Table:
    """A table keyed by `id` whose stored keys are `id:a` or `a`, which were written from a column of that text."""
    table = hp.Table.create(
        path,
        record_key="k",
        partition_by=PLACES,
        ordering="ts",
        table_type=table_type,
        options={"hoodie.write.table.version": version, **options},
    )
    set_generator(table, "k", "CUSTOM", "city:SIMPLE,day:SIMPLE")
    table = hp.Table(path)
    table.upsert(rows(form, "a", "b", ts=1), options=options)
    set_generator(table, "id", "COMPLEX", "city,day")
    return hp.Table(path)


def set_generator(table: hp.Table, key: str, generator: str, partition_fields: str) -> None:
    properties = {
        "hoodie.table.recordkey.fields": key,
        "hoodie.table.keygenerator.type": generator,
        "hoodie.table.partition.fields": partition_fields,
    }
    store_table_config(table.context.storage, dict(properties), table.context.env)


def rows(form: str, *ids: str, ts: int, city: str = "x") -> pa.Table:
    keys = [name if form == "bare" else f"id:{name}" for name in ids]
    count = len(ids)
    return pa.table({"k": keys, "id": list(ids), "city": [city] * count, "day": ["d"] * count, "ts": [ts] * count})


def stored(table: hp.Table) -> list[tuple[str, str, int]]:
    found = table.scan(["*"]).to_arrow().to_pylist()
    return sorted((row["_hoodie_record_key"], row["id"], row["ts"]) for row in found)


@pytest.mark.sample(6)
@pytest.mark.parametrize("options", [{}, {"hoodie.index.type": "BLOOM"}, {"hoodie.index.type": "RECORD_INDEX"}, BUCKET])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("form", ["bare", "prefixed"])
def test_writes_and_lookups_use_the_form_of_stored_keys(
    tmp_path: Path, form: str, version: int, table_type: str, options: dict[str, object]
) -> None:
    table = table_with_keys(tmp_path, form, version, table_type, **options)
    assert table.lookup(["a"]).count() == 1
    assert table.upsert(rows("bare", "a", "c", ts=2), options=options).rows_inserted == 1
    assert table.delete(rows("bare", "b", ts=0).select(["id", "city", "day"]), options=options).rows_deleted == 1
    mark = "" if form == "bare" else "id:"
    assert stored(table) == [(f"{mark}a", "a", 2), (f"{mark}c", "c", 2)]
    for key in ("a", "c"):
        assert table.scan(filter=f"id = '{key}'", options=options).count() == table.lookup([key]).count() == 1
    assert not table.scan(filter="id = 'b'").count()


@pytest.mark.parametrize("form", ["bare", "prefixed"])
def test_upgrade_and_downgrade_keep_the_form(tmp_path: Path, form: str) -> None:
    table = table_with_keys(tmp_path, form, 8)
    before = stored(table)
    table.upgrade(9)
    table = hp.Table(tmp_path)
    table.upsert(rows("bare", "a", ts=2))
    assert stored(table) == [(key, name, 2 if name == "a" else 1) for key, name, _ in before]
    table.downgrade(8)
    table = hp.Table(tmp_path)
    table.upsert(rows("bare", "b", ts=2))
    assert [ts for *_, ts in stored(table)] == [2, 2]


@pytest.mark.parametrize("same_partition", [True, False])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("form", ["bare", "prefixed"])
def test_tables_of_two_forms_are_written_after_their_keys_are_rewritten(
    tmp_path: Path, form: str, table_type: str, same_partition: bool
) -> None:
    table = table_with_keys(tmp_path, form, 8, table_type)
    # Another release: the same record again, and another one, under the other form.
    set_generator(table, "k", "CUSTOM", "city:SIMPLE,day:SIMPLE")
    other = "prefixed" if form == "bare" else "bare"
    place = "x" if same_partition else "y"
    hp.Table(tmp_path).upsert(rows(other, "a", "e", ts=5, city=place))
    set_generator(table, "id", "COMPLEX", "city,day")
    table = hp.Table(tmp_path)
    before = stored(table)
    assert len(before) == 4
    writes: tuple[Callable[[], object], ...] = (lambda: table.upsert(rows("bare", "e", ts=6)), lambda: table.delete(["b"]))
    for write in writes:
        with pytest.raises(TableState, match=r"Table\.rewrite_record_keys"):
            write()
    assert stored(table) == before
    assert table.rewrite_record_keys()
    assert not table.rewrite_record_keys()
    names = [(name, ts) for _, name, ts in stored(table)]
    one_place, two_places = [("a", 5), ("b", 1), ("e", 5)], [("a", 1), ("a", 5), ("b", 1), ("e", 5)]
    assert sorted(names) == (one_place if same_partition else two_places)
    assert len({key.startswith("id:") for key, *_ in stored(table)}) == 1
    assert table.upsert(rows("bare", "e", ts=6, city=place)).rows_updated == 1
    assert table.validate().ok


def test_values_that_begin_with_the_name_of_the_field_are_values() -> None:
    keys = hp.Table.create("memory://key-forms", record_key="id", partition_by=PLACES).config.keys
    batch = pa.record_batch({"_hoodie_record_key": ["id:a", "b"], "id": ["id:a", "b"]})
    assert key_forms(batch, keys) == (False, True)
    batch = pa.record_batch({"_hoodie_record_key": ["id:a", "id:id:b"], "id": ["a", "id:b"]})
    assert key_forms(batch, keys) == (True, False)


def test_keys_of_logs_show_the_form(tmp_path: Path) -> None:
    table = table_with_keys(tmp_path, "prefixed", 8, "mor", **BUCKET)
    table.upsert(rows("bare", "a", ts=2), options=BUCKET)
    assert find_key_prefix(table.context.storage, table.config.keys)
    for base in tmp_path.rglob("*.parquet"):
        base.unlink()
    assert find_key_prefix(table.context.storage, table.config.keys)
