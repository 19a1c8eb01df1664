"""Each option of an operation takes effect, is compared with the table, or is refused."""

from __future__ import annotations

import inspect
import itertools
import re
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
import pyhudi.api.services
import pyhudi.operations.admin.open_table
import pyhudi.spark
from pyhudi import Table
from pyhudi.api.alter import Alter
from pyhudi.api.table import Indexes
from pyhudi.errors import HudiError, InvalidRequest, StorageUnavailable, Unsupported
from pyhudi.operations.admin.alter_columns import AlterSettings
from pyhudi.operations.admin.repair import RepairSettings
from pyhudi.operations.catalog_sync.sync_settings import SyncSettings
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.services.async_indexing import IndexSettings
from pyhudi.operations.services.run_services import ServiceRunSettings
from pyhudi.operations.write.micro_batches import SinkSettings, StreamBatch
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.declaration import Option, Options, settings_options
from pyhudi.options.no_effect_options import NO_OP
from pyhudi.options.refused_options import REFUSED
from pyhudi.options.scope import (
    TABLE_OPERATIONS,
    TABLE_OPTIONS,
    check_call_options,
    check_table_options,
    operation_for,
    spark_write_operation,
)
from pyhudi.options.supported import FLINK, SUPPORTED, canonical_name, parse_options
from pyhudi.planning.stream_batches import BatchLimits
from pyhudi.storage import open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.locks import LockProvider, LockSettings, open_lock, register_lock_provider
from pyhudi.storage.locks.lock_registry import _FACTORIES
from pyhudi.table.table_config import load_table_config

QUIET = {"hoodie.metadata.enable": False, "hoodie.table.services.enabled": False, "pyhudi.threads": 1}
_names = itertools.count()


def rows(**changes: Any) -> pa.Table:
    columns: dict[str, Any] = {"id": ["a", "b"], "ts": [1, 1], "city": ["oslo", "rome"], "fare": [1.5, 2.5]}
    return pa.table(columns | changes)


def new_uri() -> str:
    return f"memory://operations-{next(_names)}/t"


def new_table(**settings: Any) -> Table:
    env = ReplayEnvironment(5)
    named = {"record_key": "id", "partition_by": "city", "ordering": "ts", "options": QUIET, "environment": env, **settings}
    return Table.create(new_uri(), **named)


def files(table: Table) -> set[str]:
    return {info.path for info in table.context.storage.walk("")}


@pytest.fixture(scope="module")
def table() -> Table:
    """A table of two commits, which tests that share it do not change."""
    table = new_table(table_type="mor")
    table.upsert(rows())
    table.upsert(rows(fare=[3.0, 4.0], ts=[2, 2]))
    return table


# Every operation and every option


def taking_options(owner: type) -> dict[str, Callable[..., Any]]:
    found = inspect.getmembers(owner, lambda member: inspect.isfunction(member))
    parameters = {name: inspect.signature(member).parameters for name, member in found}
    return {
        name: member
        for name, member in found
        if not name.startswith("_")
        and name != "with_options"
        and "options" in parameters[name]
        and parameters[name]["options"].default is None
    }


ARGUMENTS: dict[str, Any] = {
    "properties": {},
    "data": rows(),
    "source": rows(),
    "on": "id",
    "set": {"fare": 1.5},
    "keys": ["a"],
    "partitions": "oslo",
    "operation": WriteOperation.UPSERT,
    "batch": StreamBatch("s", 0),
    "instant": "20200101000000000",
    "start": "earliest",
    "index_type": "record_index",
    "name": "record_index",
    "stop": threading.Event(),
    "column": "fare",
    "type": pa.string(),
    "after": "id",
    "text": "what it costs",
    "condition": "fare > 0",
}


def calls(table: Table) -> dict[str, Callable[..., Any]]:
    """Each operation of a table with its arguments; only options are missing."""
    found: dict[str, Callable[..., Any]] = {}
    for prefix, owner in (("", table), ("index.", table.index), ("alter.", table.alter)):
        for name, function in taking_options(type(owner)).items():
            if name in ("search", "read_blobs"):
                # They need a column of their type.
                continue
            needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty and p.name != "self"]
            given = {p.name: ARGUMENTS[p.name] for p in needed}
            given |= {"delete": {"keys": ARGUMENTS["keys"]}, "update": {"set": ARGUMENTS["set"]}}.get(name, {})
            found[prefix + name] = partial(getattr(owner, name), **given)
    return found


def test_every_operation_with_options_declares_its_scope() -> None:
    of_tables = {*taking_options(Table), *(f"index.{name}" for name in taking_options(Indexes))}
    of_tables |= {f"alter.{name}" for name in taking_options(Alter)}
    doors = {
        f"pyhudi.spark.{name}"
        for name, member in inspect.getmembers(pyhudi.spark, inspect.isfunction)
        if member.__module__ == "pyhudi.spark" and not name.startswith("_") and "options" in inspect.signature(member).parameters
    }
    assert set(TABLE_OPERATIONS) | set(ALIASES) == of_tables | doors | {'readStream.format("pyhudi")', "pyhudi.bootstrap"}


def legal_value(option: Option) -> str:
    """A value that is not the default."""
    if isinstance(option.kind, tuple):
        return next((word for word in option.kind if word != option.default), option.kind[0])
    return {bool: "false" if option.default == "true" else "true", int: "7", float: "0.5"}.get(option.kind, "x")


ALIASES = {"append": "insert", "count": "scan", "search": "scan", "pyhudi.spark.save_as_table": "pyhudi.spark.write"}
"""Operations that are others by another name, with their options."""


def test_every_option_is_applied_or_refused_by_every_operation(table: Table) -> None:
    """For every operation and every known option: nothing is accepted and ignored."""
    before = files(table)
    operations = calls(table)
    assert set(operations) <= {*TABLE_OPERATIONS, *ALIASES}
    for (name, call), option in itertools.product(operations.items(), SUPPORTED.values()):
        method = operation_for(ARGUMENTS["operation"]) if name == "write_batch" else TABLE_OPERATIONS[ALIASES.get(name, name)]
        if method.accepts(option) or method.implied.get(option) == legal_value(option):
            continue
        with pytest.raises(InvalidRequest) as caught:
            call(options={option.key: legal_value(option)})
        assert option.key in str(caught.value), (name, option.key)
    assert files(table) == before


def test_every_option_applies_to_an_operation_and_other_keys_have_a_reason() -> None:
    for option in SUPPORTED.values():
        assert option in TABLE_OPTIONS or any(option in method.accepted for method in TABLE_OPERATIONS.values()), option
        assert option.description
    assert all(ours.key in SUPPORTED for ours in FLINK.values() if ours is not None)
    assert not FLINK.keys() & {*(s for o in SUPPORTED.values() for s in o.all_names), *NO_OP, *REFUSED}


@dataclass(frozen=True, slots=True, eq=False)
class Recording(Options):
    """Options that record which of them are read. Each equals only itself, so that no settings of another are reused."""

    read: set[str] = field(default_factory=set)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def explicit(self, option: Option | str) -> str | None:
        self.read.add(str(option))
        return Options(self.values).explicit(option)

    def text(self, option: Option | str) -> str | None:
        self.read.add(str(option))
        return Options(self.values).text(option)

    def value_or_default(self, option: Option | str) -> str:
        self.read.add(str(option))
        return Options(self.values).value_or_default(option)


BRANCHES: tuple[Mapping[str, object], ...] = (
    {},
    {"hoodie.index.type": "RECORD_INDEX"},
    {"hoodie.index.type": "GLOBAL_BLOOM", "hoodie.clustering.inline": True},
    {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 4},
    {"hoodie.index.type": "BUCKET", "hoodie.index.bucket.engine": "CONSISTENT_HASHING", "hoodie.clustering.inline": True},
    {
        "hoodie.index.type": "HBASE",
        "hoodie.index.hbase.table": "t",
        "pyhudi.index.hbase.thrift.uris": "thrift://127.0.0.1:1",
    },
    {"hoodie.partition.ttl.inline": True},
    {"hoodie.datasource.hive_sync.enable": True},
)


@pytest.mark.parametrize(
    "settings",
    [
        LockSettings,
        ServiceRunSettings,
        IndexSettings,
        AlterSettings,
        ReadSettings,
        BatchLimits,
        SinkSettings,
        RepairSettings,
        SyncSettings,
        WriteSettings,
    ],
)
def test_settings_read_what_they_declare_and_nothing_else(settings: Any) -> None:
    """An operation that lists these settings accepts exactly the options that they read."""
    read: set[str] = set()
    for branch in BRANCHES:
        recording = Recording(parse_options(branch).values)
        if settings is WriteSettings:
            for operation in WriteOperation:
                WriteSettings.of(recording, operation)
        elif settings is ServiceRunSettings:
            ServiceRunSettings.of(recording, None, plan=True)
        else:
            settings.of(recording)
        read |= recording.read
    told = {option.key for option in settings_options(settings) if not option.has_single_value}
    assert read == told


READING = ("given", "text", "word", "integer", "number", "flag", "names")


def test_no_module_names_an_option_that_it_reads() -> None:
    """Names, defaults and checks of options are only in the modules that declare them."""
    reading = re.compile(rf"""\.(?:{"|".join(READING)})\(\s*["']([^"']+)["']""")
    assert reading.findall('options.given(\n    "hoodie.a")') == ["hoodie.a"]
    for path in Path(pyhudi.__file__).parent.rglob("*.py"):
        assert not SUPPORTED.keys() & set(reading.findall(path.read_text(encoding="utf-8"))), path


# Locks and concurrency


class Refusing(LockProvider):
    """A lock that is never acquired, so that each call that needs it is detected."""

    def acquire(self, timeout_ms: int | None = None) -> None:
        raise StorageUnavailable("nobody gets the lock of this test")

    def release(self) -> None:
        raise AssertionError("nobody had it")

    def check(self) -> None:
        raise AssertionError("nobody had it")

    def renew(self) -> None:
        raise AssertionError("nobody had it")


LOCK = "tests.operations.Refusing"
register_lock_provider(LOCK, lambda settings, storage, env: Refusing())


@pytest.mark.parametrize(
    "name", sorted(name for name, method in TABLE_OPERATIONS.items() if method.accepts(SUPPORTED["hoodie.write.lock.provider"]))
)
def test_the_lock_that_a_call_names_is_the_one_it_takes(table: Table, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in calls(table):
        pytest.skip("an entry point of Spark: see tests/spark")
    wanted: list[str | None] = []
    opened = open_lock

    def noting(settings: LockSettings, *others: Any) -> LockProvider:
        wanted.append(settings.provider)
        return opened(settings, *others)

    monkeypatch.setattr(pyhudi.operations.admin.open_table, "open_lock", noting)
    before = files(table)
    if name == "serve":
        monkeypatch.setattr(pyhudi.api.services, "run_loop", lambda once, stop, rest_seconds: once())
    try:
        result = calls(table)[name](options={"hoodie.write.lock.provider": LOCK})
        if name == "merge":
            result.when_matched_delete().execute()
    except (HudiError, pa.ArrowInvalid):
        pass
    else:
        if name == "background_services":
            result.stop()
    assert set(wanted) == {LOCK}
    assert files(table) == before


@pytest.mark.parametrize("method", ["upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table"])
def test_a_write_without_its_lock_writes_nothing(table: Table, method: str) -> None:
    before = files(table)
    with pytest.raises(StorageUnavailable, match="nobody gets the lock"):
        getattr(table, method)(rows(id=["new", "newer"]), options={"hoodie.write.lock.provider": LOCK})
    assert files(table) == before
    # The lock of the table is as it was.
    assert new_table().upsert(rows()).rows_inserted == 2


def test_the_concurrency_mode_of_a_call_acts() -> None:
    table = new_table()
    table.upsert(rows())
    dead = "20200101000000000"
    table.context.storage.put(f".hoodie/timeline/{dead}.commit.requested", b"")
    table.upsert(rows(), options={"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"})
    assert [i.request_time for i in table.timeline().pending()] == [dead]
    table.upsert(rows())
    assert not table.timeline().pending()


def test_a_lock_is_refused_where_none_is_taken(table: Table) -> None:
    for method in ("scan", "read_optimized", "changes"):
        with pytest.raises(InvalidRequest, match=r"hoodie\.write\.lock\.provider.* no effect on .*it is used by upsert, "):
            getattr(table, method)(options={"hoodie.write.lock.provider": LOCK})


# What chooses the rows of a read


@pytest.fixture(scope="module")
def history() -> tuple[Table, str]:
    """A copy-on-write table of two commits, and the instant of the first."""
    table = new_table()
    first = table.upsert(rows()).instant
    table.upsert(rows(fare=[3.0, 4.0], ts=[2, 2]))
    assert first is not None
    return table, first


AS_OF = "as.of.instant"
SNAPSHOTS: dict[str, Callable[..., Any]] = {
    "scan": Table.scan,
    "read_optimized": Table.read_optimized,
    "lookup": lambda table, **more: table.lookup(["a", "b"], **more),
}


@pytest.mark.parametrize("method", sorted(SNAPSHOTS))
def test_time_travel_by_option(history: tuple[Table, str], method: str) -> None:
    table, first = history

    def fares(of: Table, options: Mapping[str, object] | None) -> list[float]:
        return sorted(SNAPSHOTS[method](of, options=options).to_arrow().column("fare").to_pylist())

    assert fares(table, None) == [3.0, 4.0]
    assert fares(table, {AS_OF: first}) == [1.5, 2.5]
    assert fares(Table(table.uri, options={AS_OF: first}), None) == [1.5, 2.5]


def test_keys_given_as_rows_are_looked_up_as_of_a_time(history: tuple[Table, str]) -> None:
    table, first = history
    found = table.lookup(pa.table({"id": ["a"], "city": ["oslo"]}), options={AS_OF: first})
    assert found.to_arrow().column("fare").to_pylist() == [1.5]


def test_two_times_that_disagree(history: tuple[Table, str]) -> None:
    table, first = history
    with pytest.raises(InvalidRequest, match=r"as_of=2030.* contradicts"):
        table.scan(as_of="2030-01-01", options={AS_OF: first})
    assert table.scan(as_of=first, options={AS_OF: first}).count() == 2


@pytest.mark.parametrize(
    ("method", "option", "value", "hint"),
    [
        ("incremental", AS_OF, "20200101000000000", "scan, read_optimized, lookup"),
        ("changes", AS_OF, "20200101000000000", "scan, read_optimized, lookup"),
        ("scan", "hoodie.datasource.query.type", "incremental", "call incremental"),
        ("scan", "hoodie.datasource.query.type", "read_optimized", "call read_optimized"),
        ("read_optimized", "hoodie.datasource.query.type", "incremental", "call incremental"),
        ("incremental", "hoodie.datasource.query.type", "read_optimized", "call read_optimized"),
        ("scan", "hoodie.datasource.query.incremental.format", "cdc", "call changes"),
        ("scan", "pyhudi.filter", "id = 'a'", "pyhudi.spark.read"),
        ("lookup", "pyhudi.columns", "id", "pyhudi.spark.read"),
        ("scan", "hoodie.datasource.read.begin.instanttime", "2020", "pyhudi.spark.read"),
        ("incremental", "hoodie.datasource.read.begin.instanttime", "2020", "pyhudi.spark.read"),
        ("upsert", AS_OF, "20200101000000000", "scan, read_optimized, lookup"),
        ("delete", "pyhudi.filter", "id = 'a'", "pyhudi.spark.read"),
    ],
)
def test_option_that_selects_other_rows_is_refused(table: Table, method: str, option: str, value: str, hint: str) -> None:
    """Passed to the call or stored with the table, it would select other rows than the caller requested."""
    for given, call in ((True, calls(table)), (False, calls(Table(table.uri, options={**QUIET, option: value})))):
        with pytest.raises(InvalidRequest, match=f"{re.escape(option)}={re.escape(value)}.*{hint}"):
            call[method](**({"options": {option: value}} if given else {}))


def test_table_options_of_other_operations_are_accepted() -> None:
    """One mapping for reads, writes and services: what does not choose rows waits for the operations on which it acts."""
    standing = {
        **QUIET,
        "hoodie.datasource.write.operation": "bulk_insert",
        "hoodie.write.lock.wait_time_ms": 5,
        "hoodie.parquet.compression.codec": "gzip",
        "hoodie.datasource.query.type": "snapshot",
    }
    table = new_table(options=standing)
    assert table.bulk_insert(rows()).rows_inserted == 2
    assert table.scan().count() == 2
    assert table.incremental("earliest").count() == 2
    table.clean(dry_run=True)
    table.archive()


def test_option_that_names_the_called_operation_is_accepted(table: Table) -> None:
    kind = "hoodie.datasource.query.type"
    assert table.scan(options={kind: "snapshot"}).count() == 2
    assert table.read_optimized(options={kind: "read_optimized"}).count() == 2
    assert table.incremental("earliest", options={kind: "incremental"}).count() == 2


# What chooses what a write does


OPERATIONS = [operation for operation in WriteOperation if operation is not WriteOperation.DELETE_PARTITION]


@pytest.mark.parametrize("method", [str(operation) for operation in OPERATIONS])
def test_write_operation_option_that_contradicts_the_method_is_refused(table: Table, method: str) -> None:
    key = "hoodie.datasource.write.operation"
    before = files(table)
    for other in WriteOperation:
        if str(other) == method:
            continue
        called = "delete_partitions" if other is WriteOperation.DELETE_PARTITION else str(other)
        with pytest.raises(InvalidRequest, match=f"{key}={other} contradicts {method}.*call {called}"):
            calls(table)[method](options={key: str(other)})
        if other is not WriteOperation.UPSERT:
            with pytest.raises(InvalidRequest, match=f"{key}={other} contradicts {method}"):
                calls(Table(table.uri, options={**QUIET, key: str(other)}))[method]()
    assert files(table) == before
    check_call_options(TABLE_OPERATIONS[method], parse_options({key: method}))


def test_options_of_one_operation_are_refused_by_others(table: Table) -> None:
    for method, option, value in (
        ("insert", "pyhudi.partial.update", True),
        ("upsert", "hoodie.datasource.write.partitions.to.delete", "oslo"),
        ("delete_partitions", "hoodie.datasource.write.partitions.to.delete", "rome"),
        ("upsert", "hoodie.static.overwrite.partition.paths", "oslo"),
        ("insert", "hoodie.combine.before.upsert", False),
        ("upsert", "hoodie.bulkinsert.sort.mode", "GLOBAL_SORT"),
    ):
        with pytest.raises(InvalidRequest, match=re.escape(option)):
            calls(table)[method](options={option: value})
    with pytest.raises(InvalidRequest, match=r"insert\.drop\.duplicates turns the upsert into an insert"):
        table.upsert(rows(), partial=True, options={"hoodie.datasource.write.insert.drop.duplicates": True})


def test_one_mapping_of_a_job_that_writes_through_spark() -> None:
    upsert = spark_write_operation(WriteOperation.UPSERT)
    job = {
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.combine.before.insert": True,
        "hoodie.datasource.write.streaming.retry.count": 1,
        "hoodie.datasource.query.type": "snapshot",
        "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
    }
    check_table_options(upsert, parse_options(job))
    check_table_options(
        TABLE_OPERATIONS["pyhudi.spark.read"], parse_options({**job, "hoodie.datasource.write.operation": "insert"})
    )
    for option, value in (
        (AS_OF, "2020"),
        ("hoodie.datasource.query.type", "incremental"),
        ("pyhudi.filter", "id = 1"),
        ("hoodie.datasource.write.partitions.to.delete", "oslo"),
        ("hoodie.static.overwrite.partition.paths", "oslo"),
    ):
        with pytest.raises(InvalidRequest, match=re.escape(option)):
            check_table_options(upsert, parse_options({option: value}))
    check_table_options(
        spark_write_operation(WriteOperation.DELETE_PARTITION),
        parse_options({"hoodie.datasource.write.partitions.to.delete": "oslo"}),
    )


# Names that options have elsewhere


@pytest.mark.parametrize("key", sorted(FLINK))
def test_names_of_flink_are_refused_and_translated(key: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(key)) as caught:
        parse_options({key: "1"})
    assert (str(FLINK[key] or "leave it out")) in str(caught.value)


def test_a_table_is_not_made_with_names_of_flink() -> None:
    for key in ("payload.class", "archive.max_commits", "archive.min_commits", "write.operation"):
        uri = new_uri()
        with pytest.raises(InvalidRequest, match=re.escape(key)):
            Table.create(uri, record_key="id", options={key: "x"})
        assert not list(open_storage(uri).walk(""))


def test_the_table_name_of_the_data_source_names_the_table() -> None:
    table = new_table(options={**QUIET, "hoodie.datasource.write.table.name": "rides"})
    assert table.config.name == "rides"
    with pytest.raises(InvalidRequest, match="spellings of one option"):
        new_table(options={"hoodie.table.name": "trips", "hoodie.datasource.write.table.name": "rides"})
    with pytest.raises(InvalidRequest, match=r"contradicts the table, whose hoodie\.table\.name is rides"):
        table.upsert(rows(), options={"hoodie.datasource.write.table.name": "trips"})


def test_lowercase_option_keys_are_recognized() -> None:
    """Spark hands the keys of a source's options over in lower case."""
    known = [*(spelling for option in SUPPORTED.values() for spelling in option.all_names), *NO_OP, *REFUSED]
    assert [canonical_name(key.lower()) for key in known] == known
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = parse_options({canonical_name("hoodie.fileindex.dataskippingfailuremode"): "strict"})
    assert ReadSettings.of(found).strict


# A refused creation leaves no table


CONTRADICTING: list[dict[str, Any]] = [
    {"options": {"hoodie.write.lock.provider": "com.example.NoSuchLock"}},
    {"options": {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"}},
    {"options": {"hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"}},
    {"options": {"hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload"}},
    {"options": {"hoodie.write.record.merge.strategy.id": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"}},
    {"options": {"hoodie.datasource.write.keygenerator.type": "NON_PARTITION"}, "partition_by": "city"},
    {"options": {"hoodie.datasource.write.keygenerator.type": "NO_SUCH_GENERATOR"}},
    {"options": {"hoodie.datasource.write.recordkey.field": "other"}},
    {"options": {"hoodie.timeline.path": "elsewhere"}},
    {"options": {"hoodie.keygen.timebased.output.dateformat": "yyyy"}},
    {"options": {"hoodie.index.class": "com.example.Index"}},
    {"schema": pa.schema([("other", pa.string())])},
]


@pytest.mark.parametrize("settings", CONTRADICTING, ids=str)
def test_a_refused_creation_leaves_no_table(settings: dict[str, Any], tmp_path: Path) -> None:
    for uri in (new_uri(), str(tmp_path / "t")):
        with pytest.raises((InvalidRequest, Unsupported)):
            Table.create(uri, record_key="id", **settings)
        assert not Table.exists(uri)
        assert not list(open_storage(uri).walk(""))
    assert not list(tmp_path.iterdir())


def test_event_time_ordering_needs_an_ordering_field() -> None:
    mode = {"hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"}
    with pytest.raises(InvalidRequest, match=r"EVENT_TIME_ORDERING.*ordering= or hoodie\.datasource\.write\.precombine\.field"):
        Table.create(new_uri(), record_key="id", options=mode)
    uri = new_uri()
    Table.create(uri, record_key="id", ordering="ts", options=mode)
    assert load_table_config(open_storage(uri)).ordering_field == "ts"


HUDI = "org.apache.hudi.client.transaction.lock."
PROVIDERS: dict[str, tuple[dict[str, Any], str]] = {
    "file system": ({"hoodie.write.lock.provider": f"{HUDI}FileSystemBasedLockProvider"}, ""),
    "storage": ({"hoodie.write.lock.provider": f"{HUDI}StorageBasedLockProvider"}, ""),
    "in process": ({"hoodie.write.lock.provider": f"{HUDI}InProcessLockProvider"}, ""),
    "zookeeper": (
        {
            "hoodie.write.lock.provider": f"{HUDI}ZookeeperBasedLockProvider",
            "hoodie.write.lock.zookeeper.url": "h:1",
            "hoodie.write.lock.zookeeper.base_path": "/l",
        },
        "kazoo",
    ),
    "zookeeper implicit": (
        {
            "hoodie.write.lock.provider": f"{HUDI}ZookeeperBasedImplicitBasePathLockProvider",
            "hoodie.write.lock.zookeeper.url": "h:1",
        },
        "kazoo",
    ),
    "dynamodb": (
        {
            "hoodie.write.lock.provider": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
            "hoodie.write.lock.dynamodb.table": "locks",
            "hoodie.write.lock.dynamodb.region": "eu-west-1",
        },
        "boto3",
    ),
    "dynamodb implicit": (
        {
            "hoodie.write.lock.provider": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedImplicitPartitionKeyLockProvider",
            "hoodie.write.lock.dynamodb.table": "locks",
            "hoodie.write.lock.dynamodb.region": "eu-west-1",
        },
        "boto3",
    ),
    "hive": (
        {
            "hoodie.write.lock.provider": "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
            "hoodie.write.lock.hivemetastore.uris": "thrift://h:1",
            "hoodie.write.lock.hivemetastore.database": "d",
            "hoodie.write.lock.hivemetastore.table": "t",
        },
        "thriftpy2",
    ),
}


def test_every_lock_provider_is_tested() -> None:
    tried = {options["hoodie.write.lock.provider"] for options, _ in PROVIDERS.values()}
    assert {name for name in _FACTORIES if name.startswith("org.apache.hudi.")} <= tried


@pytest.mark.parametrize("name", PROVIDERS)
def test_lock_provider_is_the_same_by_every_option_name(name: str) -> None:
    options, package = PROVIDERS[name]
    if package:
        pytest.importorskip(package)
    uri, env = new_uri(), ReplayEnvironment(5)
    made = Table.create(uri, record_key="id", options={**QUIET, **options}, environment=env)
    opened = Table(uri, options={**QUIET, **options}, environment=env)
    plain = Table(uri, options=QUIET, environment=env)

    def seen(lock: LockProvider) -> list[tuple[type, Any]]:
        parts = getattr(lock, "_locks", (lock,))
        return [(type(part), getattr(part, "_where", None)) for part in parts]

    wanted = seen(made.context.lock)
    assert seen(opened.context.lock) == wanted
    for method, known in TABLE_OPERATIONS.items():
        if known.accepts(SUPPORTED["hoodie.write.lock.provider"]):
            assert seen(plain._open.load_context(plain._open.parse(known, options)).lock) == wanted, method
    for method in ("upsert", "delete_partitions"):
        with pytest.raises(Unsupported, match=r"lock provider com\.example\.NoSuchLock is not available"):
            calls(plain)[method](options={"hoodie.write.lock.provider": "com.example.NoSuchLock"})
    assert not [path for path in files(plain) if path.endswith((".requested", ".inflight", ".parquet"))]
