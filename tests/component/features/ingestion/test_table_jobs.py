"""Jobs whose source is another Hudi table, or a SQL database, or several tables at once."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest, StorageUnavailable, TableState, Unsupported
from pyhudi.features.ingestion.checkpoints import KEY_V1, KEY_V2, RESET_KEY_V2
from pyhudi.features.ingestion.source_protocol import Batch
from pyhudi.operations.write.write_once import CommitMark
from pyhudi.operations.write.write_settings import WriteOperation
from pyhudi.storage.environment import ReplayEnvironment
from tests.support.ingestion import ListSource, checkpoints, counted, new_uri

PLAIN = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}


class Pair:
    """A source table, its target, and one clock."""

    def __init__(self, kind: str = "cow", options: dict[str, Any] | None = None) -> None:
        self.environment = ReplayEnvironment(5)
        self.source = Table.create(
            new_uri(),
            record_key="id",
            ordering="ts",
            table_type=kind,
            options={**PLAIN, **(options or {})},
            environment=self.environment,
        )
        self.target = new_uri()
        self._ts = itertools.count()

    def upsert(self, *ids: int) -> str:
        self.environment.advance_ms(1000)
        ts = next(self._ts)
        done = self.source.upsert(pa.table({"id": ids, "ts": [ts] * len(ids), "v": [f"{key}-{ts}" for key in ids]}))
        assert done.completion_time is not None
        return done.completion_time

    def run(self, **settings: Any) -> Any:
        source = {"kind": "table", "path": self.source.uri, **settings.pop("source", {})}
        config = {"path": self.target, "record_key": "id", "ordering": "ts", "retries": 0, "source": source, **settings}
        return hp.Ingest(config, environment=self.environment).run()[0]

    @property
    def table(self) -> Table:
        return Table(self.target, environment=self.environment)

    def check_equal(self) -> None:
        assert counted(self.table, "id", "ts", "v") == counted(self.source, "id", "ts", "v")


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_snapshot_is_followed_by_the_changes_of_commits(kind: str) -> None:
    pair = Pair(kind)
    pair.upsert(1, 2, 3)
    first = pair.upsert(2)
    assert pair.run().rows == 3
    assert checkpoints(pair.table) == [first]
    assert pair.run().batches == 0
    pair.upsert(3, 4)
    pair.upsert(4)
    last = pair.upsert(5)
    result = pair.run(source={"max_commits": 2})
    assert (result.batches, result.checkpoint) == (2, last)
    pair.check_equal()


@pytest.mark.full
def test_starts_without_a_checkpoint() -> None:
    pair = Pair()
    pair.upsert(1)
    latest = pair.upsert(2)
    assert pair.run(source={"start": "earliest", "max_commits": 1}).batches == 2
    pair.check_equal()
    pair.target = new_uri()
    assert pair.run(source={"start": "latest"}).rows == 0
    assert checkpoints(pair.table) == [latest]
    pair.upsert(3)
    assert pair.run(source={"start": "latest"}).rows == 1
    assert counted(pair.table, "id") == Counter({(3,): 1})


@pytest.mark.full
def test_services_of_the_source_change_nothing() -> None:
    pair = Pair("mor")
    for key in range(4):
        pair.upsert(key, 9)
        assert pair.run().batches == 1
    options = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    pair.environment.advance_ms(1000)
    pair.source.compact()
    pair.environment.advance_ms(1000)
    pair.source.clean(options={"hoodie.clean.commits.retained": 1})
    pair.source.archive(options=options)
    assert pair.run().rows == 0
    pair.upsert(7)
    assert pair.run().rows == 1
    pair.check_equal()


@pytest.mark.full
def test_change_data_that_was_cleaned_is_an_error() -> None:
    pair = Pair(options={"hoodie.table.cdc.enabled": True})
    pair.upsert(1, 2)
    settings = {"source": {"changes": True, "start": "earliest"}}
    pair.run(**settings)
    for _ in range(4):
        pair.upsert(1)
    pair.environment.advance_ms(1000)
    pair.source.clean(options={"hoodie.clean.commits.retained": 1})
    with pytest.raises(TableState, match="clean"):
        pair.run(**settings)
    nulls = {"hoodie.write.set.null.for.missing.columns": True}
    pair.run(ignore_checkpoint="cleaned", source={"start": "snapshot"}, options=nulls)
    pair.check_equal()


@pytest.mark.full
def test_a_restore_of_the_source_behind_the_checkpoint_is_reported() -> None:
    pair = Pair()
    pair.upsert(1)
    pair.environment.advance_ms(1000)
    saved = pair.source.savepoint()
    pair.upsert(2)
    pair.run()
    pair.environment.advance_ms(1000)
    pair.source.restore(saved)
    pair.upsert(3)
    with pytest.raises(TableState, match="rolled back"):
        pair.run()
    pair.run(ignore_checkpoint="after the restore", mode="insert_overwrite_table")
    pair.check_equal()


@pytest.mark.full
def test_change_data_ingestion_applies_deletes() -> None:
    pair = Pair(options={"hoodie.table.cdc.enabled": True})
    pair.upsert(1, 2, 3)
    pair.environment.advance_ms(1000)
    pair.source.delete({"id": [2]})
    pair.upsert(3)
    settings = {"source": {"changes": True, "start": "earliest"}}
    pair.run(**settings)
    pair.check_equal()
    pair.environment.advance_ms(1000)
    pair.source.delete({"id": [1]})
    pair.upsert(4)
    pair.run(**settings)
    pair.check_equal()
    with pytest.raises(Unsupported, match="reads whole records"):
        pair.run(source={"changes": True, "filter": "id > 1"})


@pytest.mark.full
def test_columns_and_filter() -> None:
    pair = Pair()
    pair.upsert(1, 2, 3)
    pair.run(source={"columns": ["id", "ts"], "filter": "id > 1"})
    assert pair.table.schema().names == ["id", "ts"]
    assert counted(pair.table, "id") == Counter({(2,): 1, (3,): 1})


@pytest.mark.full
def test_a_checkpoint_under_the_old_key_is_a_request_time() -> None:
    pair = Pair()
    pair.upsert(1)
    pair.run()
    pair.environment.advance_ms(1000)
    done = pair.source.upsert(pa.table({"id": [2], "ts": [5], "v": ["x"]}))
    pair.upsert(3)
    # As Hudi Streamer stored it before the target was upgraded to version 8.
    commit(pair.table, {KEY_V1: str(done.instant)})
    assert pair.run().rows == 1
    assert counted(pair.table, "id") == Counter({(1,): 1, (3,): 1})


def commit(table: Table, entries: dict[str, str]) -> None:
    """A commit without rows that has entries of Hudi Streamer."""

    class Entries(CommitMark):
        def check(self, context: object, timeline: object) -> dict[str, str]:
            return entries

    table.write_batch(table.schema().empty_table(), WriteOperation.UPSERT, Entries())


@pytest.mark.full
def test_new_checkpoint_key_takes_precedence_and_a_reset_key_without_checkpoint_fails() -> None:
    target = Table.create(new_uri(), record_key="id", schema=pa.schema([("id", pa.int64())]))
    commit(target, {KEY_V1: "1", KEY_V2: "2"})
    source = ListSource([[{"id": number}] for number in range(4)])
    assert hp.Ingest({"path": target.uri, "source": source}).run()[0].rows == 2
    assert source.reads == ["2", "3", "4"]
    commit(target, {RESET_KEY_V2: "1"})
    with pytest.raises(TableState, match="reset key and no checkpoint"):
        hp.Ingest({"path": target.uri, "source": source}).run()
    # It is the one that the job prescribes: it was used before.
    with pytest.raises(TableState, match="reset key and no checkpoint"):
        hp.Ingest({"path": target.uri, "source": source, "checkpoint": "1"}).run()
    assert hp.Ingest({"path": target.uri, "source": source, "checkpoint": "3"}).run()[0].rows == 1


# ---------------------------------------------------------------------------------------------------------------------
# SQL


class Shop:
    """A SQLite database."""

    def __init__(self, path: Path) -> None:
        self.file = path / "shop.db"
        self.execute("CREATE TABLE orders (id INTEGER, changed TEXT, amount REAL)")
        self.target = new_uri()

    def execute(self, sql: str, *rows: tuple[Any, ...]) -> None:
        with sqlite3.connect(self.file) as connection:
            connection.executemany(sql, rows) if rows else connection.execute(sql)

    def insert(self, *rows: tuple[Any, ...]) -> None:
        self.execute("INSERT INTO orders VALUES (?, ?, ?)", *rows)

    def run(self, source: dict[str, Any] | None = None, **settings: Any) -> Any:
        given = {"kind": "sql", "uri": f"sqlite:///{self.file}", "table": "orders", "column": "changed", **(source or {})}
        if "query" in given:
            del given["table"]
        return hp.Ingest({"path": self.target, "record_key": "id", "retries": 0, "source": given, **settings}).run()[0]

    def rows(self) -> Counter[tuple[Any, ...]]:
        return counted(Table(self.target), "id", "amount")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_rows_of_a_database_by_an_increasing_column(shop: Shop) -> None:
    shop.insert((1, "2026-01-01 00:00:00", 1.0), (2, "2026-01-01 00:00:00", 2.0), (3, "2026-01-02 00:00:00", 3.0))
    result = shop.run()
    assert (result.rows, result.checkpoint) == (3, "2026-01-02 00:00:00")
    shop.execute("UPDATE orders SET amount = 9, changed = '2026-01-03 00:00:00' WHERE id = 1")
    assert shop.run().rows == 1
    assert shop.run().batches == 0
    assert shop.rows() == Counter({(1, 9.0): 1, (2, 2.0): 1, (3, 3.0): 1})


@pytest.mark.full
def test_a_limit_separates_no_rows_with_equal_values(shop: Shop) -> None:
    shop.insert(*((number, f"2026-01-0{1 + number // 3}", 1.0) for number in range(9)))
    result = shop.run(max_rows=2)
    assert (result.batches, result.rows) == (3, 9)
    assert checkpoints(Table(shop.target)) == ["2026-01-01", "2026-01-02", "2026-01-03"]


@pytest.mark.full
def test_a_numeric_column_and_a_query_with_a_start(shop: Shop) -> None:
    shop.insert(*((number, "it's", number / 2) for number in range(1, 13)))
    result = shop.run({"query": "SELECT * FROM orders WHERE amount > 1", "column": "id", "start": "9"}, max_rows=2)
    assert (result.rows, result.checkpoint, result.batches) == (3, "12", 2)
    # Compared as numbers: 2 is not behind 12.
    shop.insert((13, "x", 50.0))
    assert shop.run({"query": "SELECT * FROM orders WHERE amount > 1", "column": "id"}).rows == 1


@pytest.mark.full
def test_texts_with_quotes_are_no_sql(shop: Shop) -> None:
    shop.insert((1, "a' OR '1'='1", 1.0))
    assert shop.run().rows == 1
    assert shop.run().batches == 0


@pytest.mark.full
def test_rows_that_would_never_be_read_stop_the_job(shop: Shop) -> None:
    shop.insert((1, None, 1.0), (2, "a", 2.0))
    with pytest.raises(InvalidRequest, match="no value in the incremental column changed"):
        shop.run()
    assert shop.run({"nulls": "skip"}).rows == 1


@pytest.mark.full
def test_errors_of_a_database_show_no_password(shop: Shop) -> None:
    with pytest.raises(InvalidRequest, match="cannot read from the database") as found:
        shop.run({"table": "no_such_table"})
    assert "shop.db" not in str(found.value)
    with pytest.raises(Unsupported, match="set max_rows, not max_bytes"):
        shop.run(max_bytes=10)
    with pytest.raises(Unsupported, match="incremental column amount is double"):
        shop.insert((1, "a", 1.5))
        shop.run({"column": "amount"})
    postgres = {"uri": "postgresql://reader:hunter-two@127.0.0.1:1/db", "table": "t"}
    with pytest.raises((StorageUnavailable, InvalidRequest)) as refused:
        shop.run(postgres)
    assert "hunter-two" not in f"{refused.value!r} {refused.value.__cause__!r}"


# ---------------------------------------------------------------------------------------------------------------------
# Jobs


def test_a_failed_table_does_not_stop_the_others() -> None:
    class Broken:
        def read(self, checkpoint: str | None, limit: object) -> None:
            raise StorageUnavailable("the source is down")

    good, bad = new_uri(), new_uri()
    tables = [{"path": bad, "source": Broken()}, {"path": good, "source": ListSource([[{"id": 1}], [{"id": 2}]])}]
    with pytest.raises(StorageUnavailable, match="the source is down"):
        hp.Ingest({"table": tables, "retries": 2, "retry_seconds": 0, "threads": 1}).run()
    assert counted(Table(good), "id") == Counter({(1,): 1, (2,): 1})


@pytest.mark.full
def test_errors_of_a_python_source_are_named() -> None:
    class Wrong:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def read(self, checkpoint: str | None, limit: object) -> None:
            raise self.error

    for error, kind in ((ValueError("no way"), InvalidRequest), (ConnectionError("no way"), StorageUnavailable)):
        with pytest.raises(kind, match=f"source python of .* failed: {type(error).__name__}: no way"):
            hp.Ingest({"path": new_uri(), "source": Wrong(error), "retries": 0}).run()


@pytest.mark.full
def test_a_failure_that_passes_is_retried() -> None:
    class Flaky(ListSource):
        def read(self, checkpoint: str | None, limit: Any) -> Any:
            found = super().read(checkpoint, limit)
            if len(self.reads) % 2:
                raise StorageUnavailable("later")
            return found

    uri = new_uri()
    source = Flaky([[{"id": 1}], [{"id": 2}]])
    assert hp.Ingest({"path": uri, "source": source, "retries": 1, "retry_seconds": 0}).run()[0].batches == 2


@pytest.mark.full
def test_a_continuous_job_stops_after_the_batch_that_it_writes() -> None:
    uri = new_uri()

    class Endless:
        def read(self, checkpoint: str | None, limit: object) -> tuple[pa.Table, str]:
            number = int(checkpoint or 0) + 1
            if number == 3:
                job.stop()
            return pa.table({"id": [number]}), str(number)

    job = hp.Ingest({"path": uri, "continuous": True, "source": Endless()})
    result = job.run()[0]
    assert (result.batches, result.checkpoint) == (3, "3")
    assert checkpoints(Table(uri)) == ["1", "2", "3"]


@pytest.mark.full
def test_services_in_the_background_are_finished_at_the_end() -> None:
    uri = new_uri()
    source = ListSource([[{"id": 1, "ts": number}] for number in range(4)])
    options = {"hoodie.compact.inline.max.delta.commits": 2}
    hp.Ingest(
        {
            "path": uri,
            "record_key": "id",
            "ordering": "ts",
            "table_type": "mor",
            "source": source,
            "services": "background",
            "options": options,
        }
    ).run()
    assert not Table(uri).timeline().pending()
    assert counted(Table(uri), "id", "ts") == Counter({(1, 3): 1})


@pytest.mark.full
def test_services_can_be_left_to_another_process() -> None:
    uri = new_uri()
    source = ListSource([[{"id": 1, "ts": number}] for number in range(14)])
    options = {"hoodie.clean.commits.retained": 1, "hoodie.clean.max.commits": 1}
    hp.Ingest({"path": uri, "record_key": "id", "source": source, "services": "none", "options": options}).run()
    assert len(Table(uri).inspect.commits()) == 14
    assert not [instant for instant in Table(uri).timeline().completed() if str(instant.action) == "clean"]


@pytest.mark.parametrize(
    "found", [7, ("rows",), (pa.table({"id": [1]}), 5), (pa.table({"id": [1]}), ""), Batch(pa.table({"id": [1]}), "")]
)
@pytest.mark.full
def test_source_with_wrong_result_is_rejected(found: object) -> None:
    class Odd:
        def read(self, checkpoint: str | None, limit: object) -> object:
            return found

    with pytest.raises(InvalidRequest, match="source python returned"):
        hp.Ingest({"path": new_uri(), "source": Odd()}).run()
