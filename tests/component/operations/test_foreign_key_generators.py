"""Tables with key generators that PyHudi does not create tables with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import Unsupported
from pyhudi.table.table_config import store_table_config


def table_with(path: Path, partition_by: str | None, table_type: str, **properties: str | None) -> hp.Table:
    made = hp.Table.create(path, record_key="id", partition_by=partition_by, ordering="ts", table_type=table_type)
    made.upsert(pa.table({"id": [1, 2], "city": ["x", "y"], "ts": [1, 1]}))
    made.upsert(pa.table({"id": [1], "city": ["x"], "ts": [2]}))
    stored = {f"hoodie.table.{name.replace('_', '.')}": value for name, value in properties.items()}
    store_table_config(made.context.storage, stored, made.context.env)
    return hp.Table(path)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_simple_generator_without_partition_field(tmp_path: Path, table_type: str) -> None:
    """Hudi Streamer makes such tables."""
    table = table_with(tmp_path, None, table_type, keygenerator_type="SIMPLE", partition_fields="")
    assert table.scan(filter="id = 1").to_arrow()["ts"].to_pylist() == [2]
    table.upsert(pa.table({"id": [1, 3], "city": ["x", "z"], "ts": [3, 3]}))
    assert sorted(table.scan(["id", "ts"]).to_arrow()["ts"].to_pylist()) == [1, 3, 3]
    assert table.lookup([1]).to_arrow()["ts"].to_pylist() == [3]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_generator_class_of_the_user_is_read_and_not_written(tmp_path: Path, table_type: str) -> None:
    name = "com.example.OurKeyGenerator"
    table = table_with(tmp_path, "city", table_type, keygenerator_type="USER_PROVIDED", keygenerator_class=name)
    assert sorted(table.scan(["id", "ts"]).to_arrow()["ts"].to_pylist()) == [1, 2]
    assert table.scan(filter="id = 1 and city = 'x'").to_arrow()["ts"].to_pylist() == [2]
    assert table.lookup(["1"]).to_arrow()["ts"].to_pylist() == [2]
    with pytest.raises(Unsupported, match="_hoodie_record_key"):
        table.lookup(pa.table({"id": [1], "city": ["x"]}))
    writes: list[Callable[[], object]] = [
        lambda: table.upsert(pa.table({"id": [1], "city": ["x"], "ts": [3]})),
        lambda: table.delete(where="id = 1"),
        lambda: table.bulk_insert(pa.table({"id": [4], "city": ["x"], "ts": [3]})),
    ]
    for write in writes:
        with pytest.raises(Unsupported, match=name):
            write()
    assert table.validate().ok
