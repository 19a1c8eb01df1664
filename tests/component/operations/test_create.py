"""Table settings fixed at creation, and later options that contradict them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, TableNotFound, TableState
from pyhudi.operations.admin.create_table import discard_new_table
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from tests.support.paused_write import PausedWrite

CONSISTENT = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
MOMENT = pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 120_000)], pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(("consistent", "key"), [(True, "2026-01-02 03:04:05.12"), (False, "1767323045120000")])
def test_the_form_of_timestamps_in_keys(consistent: bool, key: str) -> None:
    uri = f"memory://consistent-{consistent}"
    table = Table.create(uri, record_key="at", options={CONSISTENT: consistent, "hoodie.metadata.enable": False})
    table.insert(pa.table({"at": MOMENT}))
    assert table.scan(["_hoodie_record_key"]).to_arrow()["_hoodie_record_key"].to_pylist() == [key]
    # The table stores it from now on, and no call may contradict it.
    again = Table(uri)
    again.upsert(pa.table({"at": MOMENT}), options={CONSISTENT: consistent, "hoodie.metadata.enable": False})
    assert again.scan().count() == 1
    with pytest.raises(InvalidRequest, match="contradicts the table"):
        again.upsert(pa.table({"at": MOMENT}), options={CONSISTENT: not consistent})


@pytest.mark.parametrize("version", [8, 9])
def test_ordering_field_is_stored_under_the_key_of_each_release(version: int) -> None:
    """Release 1.0, which knows version 8, finds it under the older key alone; release 1.1 writes the newer one."""
    options = {"hoodie.write.table.version": version}
    table = Table.create(f"memory://ordered-{version}", record_key="id", ordering="ts", options=options)
    stored = dict(table.config.properties)
    older, newer = "hoodie.table.precombine.field", "hoodie.table.ordering.fields"
    assert (stored.get(older), stored[newer]) == ("ts" if version == 8 else None, "ts")
    for key in (older, newer):
        assert Table(table.uri, options={key: "ts"}).config.ordering_fields == ("ts",)
        with pytest.raises(InvalidRequest, match="contradicts the table"):
            Table(table.uri, options={key: "other"})


@pytest.mark.parametrize("schema", [{"id": "int"}, "id int", [("id", "int64")], pa.field("id", pa.int64()), object()])
def test_columns_that_are_no_schema(schema: Any) -> None:
    uri = "memory://no-schema"
    with pytest.raises(InvalidRequest, match=r"Table.create: schema=.*pa\.Schema"):
        Table.create(uri, record_key="id", schema=schema)
    assert not list(open_storage(uri).walk(""))


def test_records_with_generated_keys_are_deleted_by_a_filter() -> None:
    table = Table.create("memory://generated-keys", partition_by="city", options={"hoodie.metadata.enable": False})
    table.insert(pa.table({"n": [1, 2, 3, 4], "city": ["a", "b", "a", "b"]}))
    assert table.delete(where="n IN (2, 3)").rows_deleted == 2
    assert sorted(table.scan(["n"]).to_arrow()["n"].to_pylist()) == [1, 4]
    for write in (table.upsert, table.delete):
        with pytest.raises(InvalidRequest, match="generates its record keys"):
            write(pa.table({"n": [1], "city": ["a"]}))


DISCARDED = {"hoodie.index.bloom.num_entries": 100, "hoodie.metadata.record.index.enable": True, "pyhudi.threads": 1}
GOOD, BAD = (
    pa.table({"id": ["a"], "n": [1]}),
    pa.table({"id": [None, "a"], "n": [1, 2]}, pa.schema({"id": pa.string(), "n": pa.int64()})),
)


@pytest.mark.parametrize("operation", [WriteOperation.UPSERT, WriteOperation.BULK_INSERT])
@pytest.mark.parametrize("store", ["memory://discarded", "folder"])
def test_a_table_whose_first_write_failed_is_discarded(tmp_path: Path, store: str, operation: WriteOperation) -> None:
    uri = f"{store}-{operation}" if "://" in store else str(tmp_path / store)
    table = Table.create(uri, record_key="id", options=DISCARDED)
    settings = WriteSettings.of(parse_options(DISCARDED), operation)
    with pytest.raises(InvalidRequest, match="record key"):
        run_write(table.context, LocalEngine(1), BAD, settings)
    assert discard_new_table(table.context, 1000)
    assert not Table.exists(uri)
    assert not [info.path for info in open_storage(uri).walk("") if "/.locks/" not in f"/{info.path}"]
    # A process that opened it before does not write into a folder without a table.
    with pytest.raises((TableNotFound, TableState)):
        run_write(table.context, LocalEngine(1), GOOD, settings)
    again = Table.create(uri, record_key="id", options=DISCARDED)
    again.upsert(GOOD)
    assert Table(uri).scan().count() == 1 and Table(uri).validate().ok


@pytest.mark.parametrize("lands", [True, False])
def test_table_with_another_active_writer_is_not_discarded(lands: bool) -> None:
    uri = f"memory://not-discarded-{lands}"
    table = Table.create(uri, record_key="id", options=DISCARDED)
    settings = WriteSettings.of(parse_options(DISCARDED), WriteOperation.UPSERT)
    theirs = PausedWrite(table.context, lambda context: run_write(context, LocalEngine(1), GOOD, settings))
    if lands:
        theirs.finish()
    assert not discard_new_table(table.context, 1000)
    if not lands:
        theirs.finish()
    assert Table(uri).scan().count() == 1
