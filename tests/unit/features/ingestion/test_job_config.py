"""Configurations of ingestion jobs: every key and value is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.features.ingestion.job_config import load_config
from pyhudi.features.ingestion.kafka_source import KafkaSource, format_offsets, parse_offsets
from pyhudi.features.ingestion.source_protocol import Limit
from pyhudi.features.ingestion.sql_source import SqlSource
from pyhudi.features.ingestion.transforms import SqlTransform
from pyhudi.storage.environment import SystemEnvironment

FILES = {"kind": "files", "path": "/in"}
TABLE: dict[str, Any] = {"path": "/t", "record_key": "id", "source": FILES}


def test_a_file_with_two_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter-two")
    secret = tmp_path / "secret"
    secret.write_text("hunter-three\n")
    file = tmp_path / "job.toml"
    file.write_text(f"""
continuous = true
poll_seconds = 1

[[table]]
path = "/data/trips"
record_key = ["id"]
ordering = "ts"
max_bytes = 1000
transforms = [{{ sql = "SELECT * FROM <SRC>" }}]
source = {{ kind = "files", path = "/in", order = "name", settle_seconds = 0 }}
options = {{ "hoodie.parquet.max.file.size" = 1000000 }}

[[table]]
path = "/data/orders"
[table.source]
kind = "sql"
uri = "postgresql://db/shop"
table = "orders"
column = "changed"
user = "reader"
password = {{ env = "DB_PASSWORD" }}
[table.storage_options]
secret_access_key = {{ file = "{secret}" }}
""")
    job = load_config(file)
    trips, orders = job.tables
    assert (job.continuous, job.poll_seconds) == (True, 1.0)
    assert (trips.record_key, trips.ordering, trips.limit.size_bytes) == (("id",), ("ts",), 1000)
    assert trips.transforms == (SqlTransform("SELECT * FROM <SRC>"),)
    source = orders.open_source(SystemEnvironment())
    assert isinstance(source, SqlSource)
    assert source.password == "hunter-two"
    assert orders.storage_options == {"secret_access_key": "hunter-three"}
    assert "hunter" not in repr(source)
    assert "hunter" not in repr(job)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**TABLE, "recordkey": "id"}, "unknown key 'recordkey'; did you mean record_key"),
        ({"table": [TABLE], "continuos": True}, "unknown key 'continuos'; did you mean continuous"),
        ({**TABLE, "source": {"kind": "file"}}, "kind='file'.*did you mean files"),
        ({**TABLE, "source": {"path": "/in"}}, "kind=None: choose from files, table, sql, kafka"),
        ({**TABLE, "source": {**FILES, "formt": "csv"}}, "unknown key 'formt'; did you mean format"),
        ({**TABLE, "source": {**FILES, "format": "xml"}}, "format='xml': choose from parquet, json, csv, avro"),
        ({**TABLE, "source": {**FILES, "environment": 1}}, "unknown key 'environment'"),
        ({**TABLE, "source": {"kind": "files"}}, "has no path"),
        ({**TABLE, "source": 7}, "must have a kind, or be an object with the method read"),
        ({**TABLE, "transforms": [{"sq": "SELECT"}]}, "unknown key 'sq'; did you mean sql"),
        ({**TABLE, "transforms": [{"sql": "SELECT 1"}]}, "does not contain <SRC>"),
        ({**TABLE, "transforms": [{"function": "json:nothing"}]}, "module json has no function nothing"),
        ({**TABLE, "transforms": [{"function": "no_such_module_x:f"}]}, "cannot be imported"),
        ({**TABLE, "transforms": [{"function": "json"}]}, "pass module:function"),
        ({**TABLE, "transforms": [{"sql_file": "/no/such/file.sql"}]}, "/no/such/file.sql cannot be read"),
        ({**TABLE, "mode": "merge"}, "mode='merge': choose from upsert"),
        ({**TABLE, "services": "apart"}, "services='apart': choose from inline, background, none"),
        ({**TABLE, "max_rows": 0}, "max_rows=0"),
        ({**TABLE, "max_rows": "many"}, "type str for max_rows: pass a whole number"),
        ({**TABLE, "max_rows": True}, "type bool for max_rows"),
        ({**TABLE, "record_key": [1]}, "type list for record_key"),
        ({**TABLE, "error_table": "/t/"}, "its own error_table"),
        ({**TABLE, "checkpoint": "1", "ignore_checkpoint": "x"}, "both checkpoint and ignore_checkpoint"),
        ({**TABLE, "source": {**FILES, "pattern": {"env": "NO_SUCH_VARIABLE_X"}}}, "NO_SUCH_VARIABLE_X.*is not set"),
        ({"table": [TABLE, {**TABLE, "path": "/t/"}]}, "/t twice"),
        ({"table": []}, "has no table"),
        ({"tabel": [TABLE]}, "no section .*'tabel' is unknown"),
        ({"table": [TABLE], "mode": "once"}, "unknown key 'mode'"),
        ({"table": [TABLE], "threads": 0}, "threads of 1 or more"),
    ],
)
def test_bad_configurations_are_refused_by_name(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        for table in load_config(config).tables:
            table.open_source(SystemEnvironment())


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no job file"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = ")
    with pytest.raises(InvalidRequest, match="no valid TOML"):
        load_config(tmp_path / "bad.toml")


def test_a_driver_that_is_unknown_is_refused() -> None:
    with pytest.raises(Unsupported, match="no driver for oracle://"):
        SqlSource("oracle://db", "id", table="t")
    with pytest.raises(InvalidRequest, match="either table or query"):
        SqlSource("sqlite:///x", "id")


def test_offsets_of_a_topic_have_the_form_of_hudi() -> None:
    offsets = {10: 3, 0: 123, 1: 456}
    assert format_offsets("trips.v1", offsets) == "trips.v1,0:123,1:456,10:3"
    assert parse_offsets("trips.v1,0:123,1:456,10:3", "trips.v1") == offsets
    for bad in ("1700000000000", "other,0:1", "trips.v1", "trips.v1,0", "trips.v1,0:x", "trips.v1,0:1,", ""):
        with pytest.raises(InvalidRequest, match=r"no offsets of topic trips\.v1"):
            parse_offsets(bad, "trips.v1")


def test_settings_of_kafka_are_checked() -> None:
    with pytest.raises(InvalidRequest, match="needs registry"):
        KafkaSource("t", "h:1", format="avro")
    with pytest.raises(InvalidRequest, match="start='begin'"):
        KafkaSource("t", "h:1", start="begin")
    assert "secret" not in repr(KafkaSource("t", "h:1", options={"sasl.password": "secret"}))


def test_a_checkpoint_with_a_backslash_is_no_literal_of_an_unknown_database() -> None:
    # The checkpoint is in the commits of the table, and MySQL would read a quote after a backslash as a part of the text.
    source = SqlSource("mysql://db", "name", table="t", driver="adbc_driver_mysql")
    with pytest.raises(Unsupported, match="contains a backslash"):
        source.read("x\\' OR 1=1 -- ", Limit())
    assert SqlSource("sqlite:///x", "name", table="t")._literal("\\'") == "'\\'''"
