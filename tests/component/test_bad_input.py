"""Bad input gives one clear error before anything is written."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, HudiError, InvalidRequest, TableExists, TableNotFound, TableState, Unsupported
from pyhudi.format.paths import PROPERTIES_BACKUP, PROPERTIES_FILE
from pyhudi.operations.admin.create_table import new_table_properties
from pyhudi.operations.admin.option_consistency import COMPARED
from pyhudi.options.supported import SUPPORTED, parse_options
from pyhudi.options.table_options import FIXED
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.memory import MemoryStorage
from tests.support.needs import WIDE

OPTIONS = {
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.index.bloom.fpp": 0.01,
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.clean.automatic": False,
    "pyhudi.threads": 1,
}
_names = itertools.count()


class UnchangedTable:
    """A table with one commit, and all of its files as they were."""

    def __init__(self, **settings: Any) -> None:
        self.uri = f"memory://bad-input-{next(_names)}/trips"
        self.env = ReplayEnvironment(3)
        self.storage: Storage = MemoryStorage(self.uri, self.env)
        settings = {"record_key": "id", "partition_by": "city", "ordering": "ts", **settings}
        self.table = Table.create(self.uri, environment=self.env, **{"options": OPTIONS, **settings})
        self.table.upsert(rows())
        self.env.advance_ms(1000)
        self.before = self.files()

    def files(self) -> dict[str, bytes]:
        # The lock object has the time of its last use, which is no part of the table.
        found = (info.path for info in self.storage.walk("") if not info.path.startswith(".hoodie/.locks/"))
        return {path: self.storage.read(path) or b"" for path in found}

    def refuses(self, act: Callable[[], object], error: type[HudiError], *parts: str) -> None:
        with pytest.raises(error) as caught:
            act()
        for part in parts:
            assert part in str(caught.value)
        assert self.files() == self.before


@pytest.fixture(scope="module")
def sound() -> list[tuple[UnchangedTable, dict[str, bytes]]]:
    return []


@pytest.fixture
def intact(sound: list[tuple[UnchangedTable, dict[str, bytes]]]) -> UnchangedTable:
    """The same table in all tests that leave it as it was; one that changes it is followed by another table."""
    if not sound or sound[0][0].files() != sound[0][1]:
        fresh = UnchangedTable()
        sound[:] = [(fresh, fresh.before)]
    table, files = sound[0]
    table.before = files
    return table


def rows(**changes: Any) -> pa.Table:
    columns: dict[str, Any] = {"id": ["a", "b"], "ts": [1, 1], "city": ["oslo", "rome"], "fare": [1.5, 2.5]}
    columns |= changes
    return pa.table({name: values for name, values in columns.items() if values is not None})


WRITES = ("upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")


@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (rows(id=["a", None]), ("record key", "'id'", "null", "row 1")),
        (rows(id=["", "b"]), ("record key", "'id'", "empty", "row 0")),
        (rows(id=None), ("id", "missing")),
        (rows(city=None), ("city", "missing")),
        (rows(ts=None), ("ts", "missing")),
        (rows(fare=None), ("fare", "double", "missing", "hoodie.write.set.null.for.missing.columns=true")),
        (rows(fare=[b"x", b"y"]), ("fare", "double", "binary")),
        (rows(fare=[True, False], ts=[b"1", b"2"]), ("fare", "bool", "ts", "binary")),
        (rows(Fare=[1.0, 2.0]), ("Fare", "differs from fare")),
        (rows(**{"a b": [1, 2]}), ("a b", "letters, digits and underscores")),
        (rows(span=pa.array([1, 2], pa.duration("s"))), ("span", "duration")),
        (rows(city=["..", "x"]), ("partition path", "'..'", "row 0")),
        (rows(city=["x:y", "x"]), ("partition path", "colon")),
    ],
)
def test_data_that_does_not_fit(intact: UnchangedTable, operation: str, data: pa.Table, parts: tuple[str, ...]) -> None:
    intact.refuses(lambda: getattr(intact.table, operation)(data), InvalidRequest, *parts)


def test_a_null_ordering_value(intact: UnchangedTable) -> None:
    data = rows(ts=pa.array([1, None], pa.int64()))
    intact.refuses(lambda: intact.table.upsert(data), InvalidRequest, "ordering field 'ts'", "null", "row 1")
    intact.table.insert(data)
    merged_on_read = UnchangedTable(table_type="mor")
    for operation in ("upsert", "insert", "bulk_insert"):
        merged_on_read.refuses(lambda operation=operation: getattr(merged_on_read.table, operation)(data), InvalidRequest, "'ts'")  # type: ignore[misc]


def test_columns_side_by_side(intact: UnchangedTable) -> None:
    data = pa.table({"id": ["a"], "ts": [b"now"], "city": ["x"], "tip": [1]})
    with pytest.raises(InvalidRequest) as caught:
        intact.table.upsert(data)
    lines = [line.split() for line in str(caught.value).splitlines()]
    assert lines[1][:3] == ["column", "table", "incoming"]
    assert [line[:3] for line in lines[2:]] == [["ts", "int64", "binary"], ["fare", "double", "missing"]]


def test_two_columns_of_one_name(intact: UnchangedTable) -> None:
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["id", "id"])
    intact.refuses(lambda: intact.table.upsert(twice), InvalidRequest, "id", "two columns named 'id'")


def test_the_first_write_is_checked_as_well() -> None:
    for missing in ("id", "ts", "city"):
        uri = f"memory://bad-input-{next(_names)}/t"
        table = Table.create(uri, record_key="id", partition_by="city", ordering="ts", options=OPTIONS)
        with pytest.raises(InvalidRequest, match=f"field '{missing}' is not a column of the data; its columns are: "):
            table.upsert(rows(**{missing: None}))
        assert not table.timeline().instants


@pytest.mark.parametrize("data", [{"a"}, b"a", None, 7, "trips.csv", object()])
def test_data_of_no_arrow_kind(intact: UnchangedTable, data: object) -> None:
    intact.refuses(lambda: intact.table.upsert(data), InvalidRequest, "cannot be read as Arrow", type(data).__name__)


def test_deletes(intact: UnchangedTable) -> None:
    refuses, table = intact.refuses, intact.table
    refuses(table.delete, InvalidRequest, "either keys= or where=")
    refuses(lambda: table.delete(rows(), where="id = 'a'"), InvalidRequest, "either keys= or where=")
    refuses(lambda: table.delete(pa.table({"key": ["a"]})), InvalidRequest, "record key field id", "key")
    refuses(lambda: table.delete(pa.table({"id": pa.array([None], pa.string())})), InvalidRequest, "'id' is null in row 0")
    refuses(lambda: table.delete(where="nothing = 1"), InvalidRequest, "nothing")
    refuses(lambda: table.delete(where="fare >"), InvalidRequest)
    refuses(lambda: table.delete(where="fare = 'cheap'"), InvalidRequest, "fare")


def test_a_soft_delete_is_a_boolean() -> None:
    intact = UnchangedTable()
    data = rows(_hoodie_is_deleted=["true", "false"])
    intact.refuses(lambda: intact.table.upsert(data), InvalidRequest, "_hoodie_is_deleted", "boolean")


def test_reads(intact: UnchangedTable) -> None:
    intact.refuses(lambda: intact.table.scan(["fere"]), InvalidRequest, "'fere'", "did you mean 'fare'?")
    intact.refuses(lambda: intact.table.scan(filter="fare >> 1"), InvalidRequest)
    intact.refuses(lambda: intact.table.scan(filter="city > 1"), InvalidRequest)
    intact.refuses(lambda: intact.table.scan(as_of="yesterday"), InvalidRequest, "yesterday")
    intact.refuses(lambda: intact.table.rollback("19990101000000000"), TableState, "19990101000000000")
    nested = UnchangedTable()
    nested.table.upsert(rows(s=[{"x": 1}, None]))
    with pytest.raises(Unsupported, match="field of 's'"):
        nested.table.scan(["s.x"])


def test_a_table_without_commits() -> None:
    table = Table.create(f"memory://bad-input-{next(_names)}/t", record_key="id")
    for act in (table.schema, table.scan, lambda: table.delete(pa.table({"id": ["a"]}))):
        with pytest.raises(TableState, match="no commit yet"):
            act()


# Tables


def test_no_table_at_the_path(tmp_path: Path) -> None:
    for uri in (tmp_path / "nothing", str(tmp_path), "memory://bad-input-nowhere/t"):
        with pytest.raises(TableNotFound, match=r"no Hudi table at .*Table\.create"):
            Table(uri)
    assert list(tmp_path.iterdir()) == []
    assert not Table.exists(tmp_path)


def test_a_table_is_there_already(intact: UnchangedTable) -> None:
    intact.refuses(lambda: Table.create(intact.uri, record_key="other"), TableExists, intact.uri)
    assert Table(intact.uri).config.keys.record_fields == ("id",)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"table_type": "copy"}, ("'copy'", "neither cow nor mor")),
        ({"ordering": ["a", "b"]}, ("one ordering field",)),
        ({"record_key": ["a", "a"]}, ("named twice",)),
        ({"options": {"hoodie.table.precombine.field": "other"}, "ordering": "ts"}, ("other", "ts", "contradicts")),
        (
            {"options": {"hoodie.datasource.write.recordkey.field": "a,b"}, "record_key": ["a", "c"]},
            ("a,b", "a,c", "contradicts"),
        ),
        (
            {"options": {"hoodie.table.type": "MERGE_ON_READ"}, "table_type": "cow"},
            ("MERGE_ON_READ", "COPY_ON_WRITE", "contradicts"),
        ),
        ({"options": {"hoodie.table.name": "x"}, "name": "y"}, ("contradicts",)),
        ({"schema": pa.schema([("a", pa.int64())]), "record_key": "id"}, ("record key field 'id'", "columns are: a")),
        ({"schema": pa.schema([("id", pa.duration("s"))]), "record_key": "id"}, ("duration",)),
        ({"options": {"hoodie.datasource.write.keygenerator.class": "com.example.Mine"}}, ("com.example.Mine",)),
        (
            {"options": {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING", "hoodie.compaction.payload.class": "x.OwnPayload"}},
            ("EVENT_TIME_ORDERING", "OwnPayload"),
        ),
    ],
)
def test_settings_that_make_no_table(settings: dict[str, Any], parts: tuple[str, ...]) -> None:
    uri = f"memory://bad-input-{next(_names)}/t"
    with pytest.raises(InvalidRequest) as caught:
        Table.create(uri, **settings)
    for part in parts:
        assert part in str(caught.value)
    assert not list(open_storage(uri).walk(""))


# A value that the table does not have, for each spelling of an option that is a property of tables.
CONTRADICTIONS: dict[str, tuple[str, ...]] = {
    "hoodie.table.name": ("other", "TRIPS"),
    "hoodie.database.name": ("other",),
    "hoodie.datasource.write.table.type": ("MERGE_ON_READ",),
    "hoodie.datasource.write.recordkey.field": ("city", "ID", "id,city"),
    "hoodie.datasource.write.partitionpath.field": ("id", "", "city,fare", "city:TIMESTAMP"),
    "hoodie.datasource.write.precombine.field": ("fare", ""),
    "hoodie.datasource.write.hive_style_partitioning": ("true",),
    "hoodie.datasource.write.partitionpath.urlencode": ("true",),
    "hoodie.datasource.write.keygenerator.class": ("org.apache.hudi.keygen.ComplexKeyGenerator", "com.example.Mine"),
    "hoodie.datasource.write.keygenerator.type": ("TIMESTAMP", "NON_PARTITION"),
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": ("true",),
    "hoodie.datasource.write.drop.partition.columns": ("true",),
    "hoodie.populate.meta.fields": ("false",),
    "hoodie.write.record.merge.mode": ("COMMIT_TIME_ORDERING", "CUSTOM"),
    "hoodie.write.record.merge.strategy.id": ("ce9acb64-bde0-424c-9b91-f6ebba25356d", "mine"),
    "hoodie.datasource.write.payload.class": (
        "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
        "com.example.Payload",
    ),
    "hoodie.table.timeline.timezone": ("UTC",),
    "hoodie.table.cdc.enabled": ("true",),
    "hoodie.table.cdc.supplemental.logging.mode": ("OP_KEY_ONLY",),
    "hoodie.write.table.version": ("6", "9"),
    "hoodie.table.initial.version": ("6",),
    "hoodie.table.base.file.format": ("ORC", "HFILE"),
    "hoodie.table.log.file.format": ("PARQUET",),
    "hoodie.table.multiple.base.file.formats.enable": ("true",),
    "hoodie.partition.metafile.use.base.format": ("true",),
    "hoodie.table.create.schema": ('{"type":"record","name":"t","fields":[]}',),
    "hoodie.table.legacy.payload.class": ("com.example.Payload",),
    "hoodie.table.partial.update.mode": ("IGNORE_DEFAULTS",),
    "hoodie.table.partition_extractor_class": ("com.example.Extractor",),
    "hoodie.datasource.write.slash.separated.date.partitioning": ("true",),
    "hoodie.table.checksum": ("1",),
    "hoodie.timeline.layout.version": ("1",),
    "hoodie.timeline.path": ("elsewhere",),
    "hoodie.timeline.history.path": ("elsewhere",),
    "hoodie.archivelog.folder": ("archived",),
    "hoodie.table.metadata.partitions": ("record_index",),
    "hoodie.table.metadata.partitions.inflight": ("files",),
    "hoodie.table.index.defs.path": ("elsewhere",),
    "hoodie.table.secondary.indexes.metadata": ("any",),
    "hoodie.bootstrap.index.enable": ("false",),
    "hoodie.bootstrap.base.path": ("/elsewhere",),
    "hoodie.bootstrap.index.type": ("HFILE",),
    "hoodie.bootstrap.index.class": ("any",),
    "hoodie.keygen.datetime.parser.class": ("any",),
    "hoodie.table.format": ("iceberg", "com.example.Mine"),
    "hoodie.table.storage.layout": ("lsm_tree",),
}
SPELLED = [
    (option, spelling, value)
    for option, values in CONTRADICTIONS.items()
    for spelling in (option, *SUPPORTED[option].aliases)
    for value in values
]


def test_each_property_of_tables_has_a_contradiction() -> None:
    assert set(COMPARED) <= set(CONTRADICTIONS)
    known = {spelling for _, spelling, _ in SPELLED}
    # Everything that is stored in hoodie.properties under its own name is compared.
    assert {key for key in new_table_properties(parse_options({"hoodie.table.name": "t"}), rows().schema)} <= known


@pytest.mark.parametrize(("option", "spelling", "value"), SPELLED)
def test_options_that_contradict_the_table(intact: UnchangedTable, option: str, spelling: str, value: str) -> None:
    acts: list[Callable[[], object]] = [
        lambda: Table(intact.uri, options={spelling: value}),
        lambda: intact.table.scan(options={spelling: value}),
        lambda: intact.table.clean(dry_run=True, options={spelling: value}),
        lambda: intact.table.upsert(rows(), options={spelling: value}),
        lambda: intact.table.delete(rows(), options={spelling: value}),
    ]
    for act in acts:
        with pytest.raises(InvalidRequest) as caught:
            act()
        message = str(caught.value)
        assert value in message
        assert option in message or spelling in message or value == "com.example.Mine"
    assert intact.files() == intact.before


@pytest.mark.parametrize("option", sorted(CONTRADICTIONS))
def test_options_that_agree_with_the_table(intact: UnchangedTable, option: str) -> None:
    key = COMPARED.get(option, "hoodie.table.keygenerator.type")
    stored = dict(intact.table.config.properties).get(key, SUPPORTED[option].default)
    if stored is not None and not option.endswith("generator.class"):
        assert Table(intact.uri, options={option: stored}).scan().to_arrow().num_rows == 2


TIMES = {"timestamp.type": "EPOCHMILLISECONDS", "output.dateformat": "yyyy/MM/dd", "output.timezone": "UTC"}


@pytest.mark.parametrize("prefix", ["hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased."])
@pytest.mark.parametrize(
    "changed",
    [
        {"timestamp.type": "UNIX_TIMESTAMP"},
        {"output.dateformat": "yyyy-MM-dd"},
        {"timezone": "GMT+8:00"},
        {"output.timezone": "GMT+8:00"},
        {"input.dateformat": "yyyy"},
    ],
)
def test_a_rule_for_times_that_contradicts_the_table(intact: UnchangedTable, prefix: str, changed: dict[str, str]) -> None:
    options = {prefix + name: value for name, value in TIMES.items()}
    uri = f"memory://bad-input-{next(_names)}/t"
    generator = {"hoodie.datasource.write.keygenerator.type": "TIMESTAMP"}
    table = Table.create(uri, record_key="id", partition_by="ts", options={**OPTIONS, **generator, **options})
    assert table.upsert(rows(), options=options).rows_inserted == 2
    ((name, value),) = changed.items()
    with pytest.raises(InvalidRequest, match=rf"{re.escape(prefix + name)}={re.escape(value)}.* contradicts the table"):
        table.upsert(rows(), options={prefix + name: value})
    intact.refuses(lambda: intact.table.upsert(rows(), options=options), InvalidRequest, prefix, "no timestamp rule")


@pytest.mark.parametrize("option", sorted(option.key for option in FIXED))
def test_properties_that_no_new_table_has(option: str) -> None:
    for value in CONTRADICTIONS[option]:
        uri = f"memory://bad-input-{next(_names)}/t"
        with pytest.raises((Unsupported, InvalidRequest), match=re.escape(option)):
            Table.create(uri, record_key="id", options={option: value})
        assert not list(open_storage(uri).walk(""))


def test_an_option_for_what_the_table_does_not_have() -> None:
    intact = UnchangedTable(ordering=None, partition_by=None)
    for option in ("hoodie.table.precombine.field", "hoodie.table.partition.fields"):
        intact.refuses(lambda option=option: Table(intact.uri, options={option: "fare"}), InvalidRequest, "fare", "not set")  # type: ignore[misc]
    # A value that agrees may be passed.
    Table(intact.uri, options={"hoodie.table.recordkey.fields": " id ", "hoodie.populate.meta.fields": True})
    assert (
        UnchangedTable(partition_by=["city:SIMPLE"])
        .table.upsert(rows(), options={"hoodie.datasource.write.partitionpath.field": "city"})
        .instant
    )


def test_refused_and_unknown_options(intact: UnchangedTable) -> None:
    refused = {"hoodie.datasource.hive_sync.use_jdbc": True}
    intact.refuses(lambda: intact.table.upsert(rows(), options=refused), Unsupported, "hive_sync", "refused")
    intact.refuses(lambda: intact.table.upsert(rows(), options={"hoodie.index.type": "HBASE"}), InvalidRequest, "HBASE")
    for key, value in (
        ("pyhudi.memory.budget.bytes", 0),
        ("hoodie.parquet.max.file.size", -1),
        ("hoodie.write.num.retries.on.conflict.failures", -1),
    ):
        intact.refuses(lambda key=key, value=value: intact.table.upsert(rows(), options={key: value}), InvalidRequest, key)  # type: ignore[misc]
    typo = {"hoodie.combine.before.upser": False}
    intact.refuses(lambda: intact.table.upsert(rows(), options=typo), InvalidRequest, "did you mean hoodie.combine.before.upsert")
    duplicates = {"hoodie.datasource.write.insert.drop.duplicates": True}
    intact.refuses(lambda: intact.table.bulk_insert(rows(), options=duplicates), InvalidRequest, "drop.duplicates", "bulk_insert")


def test_keys_that_are_there_already(intact: UnchangedTable) -> None:
    with pytest.raises(InvalidRequest, match=r"1 of the rows to insert have keys that exist in the table"):
        intact.table.insert(rows(id=["a", "new"], city=["oslo", "oslo"]), options={"hoodie.datasource.insert.dup.policy": "fail"})
    assert intact.table.scan().to_arrow().num_rows == 2
    assert not intact.table.timeline().pending()


@pytest.mark.parametrize(("version", "error"), [("5", Unsupported), ("99", Unsupported), ("x", CorruptData)])
def test_table_versions(intact: UnchangedTable, version: str, error: type[HudiError]) -> None:
    data = intact.storage.read(PROPERTIES_FILE) or b""
    intact.storage.put(PROPERTIES_FILE, data.replace(b"hoodie.table.version=8", f"hoodie.table.version={version}".encode()))
    intact.before = intact.files()
    intact.refuses(lambda: Table(intact.uri), error, version)
    intact.refuses(lambda: intact.table.upsert(rows()), error, version)


def test_damaged_properties_and_their_backup(intact: UnchangedTable) -> None:
    whole = intact.storage.read(PROPERTIES_FILE) or b""
    last = len(whole.rstrip()) - 1
    for length in range(last + 1) if WIDE else (*range(0, last, 11), last):
        intact.storage.put(PROPERTIES_FILE, whole[:length])
        intact.before = intact.files()
        intact.refuses(lambda: Table(intact.uri, environment=intact.env), CorruptData, PROPERTIES_FILE)
    intact.refuses(lambda: intact.table.upsert(rows()), CorruptData, PROPERTIES_FILE)
    intact.storage.put(PROPERTIES_BACKUP, whole)
    assert Table(intact.uri, environment=intact.env).upsert(rows(id=["c", "d"])).rows_inserted == 2


def test_a_damaged_commit(intact: UnchangedTable) -> None:
    (path,) = (path for path in intact.before if path.endswith(".commit"))
    for content in (b"Obj\x01broken", intact.before[path][:-40], b"{"):
        intact.storage.put(path, content)
        intact.before = intact.files()
        intact.refuses(lambda: intact.table.scan().to_arrow(), CorruptData, path)
        intact.refuses(lambda: intact.table.upsert(rows()), CorruptData, path)


def test_a_damaged_base_file(intact: UnchangedTable) -> None:
    path = next(path for path in intact.before if path.endswith(".parquet"))
    intact.storage.put(path, intact.before[path][:-10])
    with pytest.raises(CorruptData, match=path):
        intact.table.scan().to_arrow()
    with pytest.raises(CorruptData, match=path):
        intact.table.upsert(rows())
    assert not intact.table.timeline().pending()


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"not a folder")
    for uri in (tmp_path / "file" / "t", tmp_path / "file"):
        with pytest.raises(HudiError, match="file") as caught:
            Table.create(uri, record_key="id")
        assert isinstance(caught.value, (InvalidRequest, TableState))
    assert (tmp_path / "file").read_bytes() == b"not a folder"


@pytest.mark.parametrize("uri", ["", "ftp://host/t", "s3:///t", "file://host/t", "memory://x/../y"])
def test_uris(uri: str) -> None:
    acts: tuple[Callable[[], Table], ...] = (lambda: Table(uri), lambda: Table.create(uri, record_key="id"))
    for act in acts:
        with pytest.raises(InvalidRequest):
            act()


@pytest.mark.parametrize(("extension", "message"), [("hfile", "HFile"), ("lance", "Lance")])
def test_base_files_of_another_format(extension: str, message: str) -> None:
    intact = UnchangedTable(options={**OPTIONS, "hoodie.metadata.enable": False})
    path = next(path for path in intact.before if path.endswith(".parquet"))
    intact.storage.put(path.replace(".parquet", f".{extension}"), b"HFile or others")
    intact.storage.delete([path])
    whole = intact.storage.read(PROPERTIES_FILE) or b""
    # A mixed table names Parquet; one of that format names it in its properties.
    for of_table in ("PARQUET", extension.upper()):
        text = whole.replace(b"hoodie.table.base.file.format=PARQUET", f"hoodie.table.base.file.format={of_table}".encode())
        assert (text != whole) == (of_table != "PARQUET")
        intact.storage.put(PROPERTIES_FILE, text)
        for read in ("scan", "read_optimized", "incremental"):
            with pytest.raises(Unsupported, match=rf"(?i){message}.* only Parquet"):
                getattr(Table(intact.uri), read)(*(["000"] if read == "incremental" else [])).to_arrow()
