"""hoodie.properties is restored from data files; what the files do not show must be given by the user."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, TableExists, TableNotFound
from pyhudi.features.recovery.restore_lost_properties import restore_properties
from pyhudi.format.paths import METADATA_FOLDER, PROPERTIES_BACKUP, PROPERTIES_FILE
from pyhudi.format.properties import parse_properties
from pyhudi.options.supported import parse_options
from pyhudi.options.table_options import OPTION_PREFIX
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import Fault, FaultPoint, FaultyStorage, SimulatedCrash
from pyhudi.storage.memory import forget_memory
from pyhudi.table.table_config import load_table_config

_names = itertools.count()
QUIET = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.compact.inline": False}
ORDERING = "hoodie.table.precombine.field"
MODE = "hoodie.record.merge.mode"
ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
MERGING = {ORDERING: "ts", MODE: "EVENT_TIME_ORDERING"}
GIVEN = {**MERGING, ENCODE: "false"}

WRITTEN_AT_DEFAULT = {
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.partition.metafile.use.base.format": "false",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.table.cdc.supplemental.logging.mode": "DATA_BEFORE_AFTER",
    "hoodie.table.initial.version": None,
    "hoodie.table.metadata.partitions.inflight": "",
    "hoodie.table.multiple.base.file.formats.enable": "false",
    "hoodie.table.timeline.timezone": "LOCAL",
}
"""What creation writes and no file shows; None for what nobody reads."""


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"restored-{next(_names)}"
    yield f"memory://{name}"
    forget_memory(name)


def create(
    uri: str, kind: str = "cow", options: Mapping[str, object] | None = None, *, key: str = "id", by: str = "part"
) -> hp.Table:
    given = {**QUIET, **(options or {})}
    return hp.Table.create(uri, name="trips", record_key=key, partition_by=by, ordering="ts", table_type=kind, options=given)


def rows(*keys: int, ts: int = 1) -> pa.Table:
    values = [
        {"id": f"k{n}", "part": "ab"[n % 2], "ts": ts, "day": f"2024/0{1 + n % 2}", "at": f"{n % 2}:x y", "n": n % 3}
        for n in keys
    ]
    return pa.Table.from_pylist(values)


def properties(uri: str) -> dict[str, str]:
    return parse_properties(open_storage(uri).read(PROPERTIES_FILE) or b"")


def lose(table: hp.Table) -> dict[str, str]:
    """The properties, which are missing then."""
    was = properties(table.uri)
    open_storage(table.uri).delete([PROPERTIES_FILE])
    return was


def check_restored(table: hp.Table, given: Mapping[str, str]) -> hp.Table:
    """A dry run changes nothing; then everything reported or passed is restored, and writes succeed."""
    before = sorted(map(str, table.scan().to_arrow().to_pylist()))
    was = lose(table)
    told = hp.restore_properties(table.uri, given, dry_run=True)
    assert told.dry_run and open_storage(table.uri).stat(PROPERTIES_FILE) is None
    assert hp.restore_properties(table.uri, given, dry_run=False).steps == told.steps
    now = properties(table.uri)
    stored_options = {key for key in was if key.startswith(OPTION_PREFIX)}
    for key in {*was, *now} - {"hoodie.table.checksum", *stored_options}:
        assert now.get(key, WRITTEN_AT_DEFAULT.get(key, "")) in (was.get(key, ""), None), key
    again = hp.Table(table.uri, options=QUIET)
    assert again.repair(dry_run=True).steps == () and again.validate(keys=True).ok
    assert sorted(map(str, again.scan().to_arrow().to_pylist())) == before
    again.upsert(rows(0, 1, 30, ts=9))
    assert again.validate(keys=True).ok
    assert {row["id"] for row in again.scan().to_arrow().to_pylist() if row["ts"] == 9} == {"k0", "k1", "k30"}
    return again


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_properties_are_inferred_from_files(uri: str, kind: str) -> None:
    table = create(uri, kind)
    table.bulk_insert(rows(*range(8)))
    table.upsert(rows(2, 3, ts=2))
    table.index.create("record_index")
    table.index.create("secondary_index", "n")
    again = check_restored(table, GIVEN)
    assert {"record_index", "secondary_index_n"} <= set(again.config.metadata_partitions)


@pytest.mark.parametrize(
    ("by", "options", "given"),
    [
        pytest.param("part", {"hoodie.datasource.write.hive_style_partitioning": True}, GIVEN, marks=pytest.mark.wide),
        ("day", {}, GIVEN),
        ("at", {ENCODE: True}, MERGING),
        ("part,day", {ENCODE: True, "hoodie.datasource.write.hive_style_partitioning": True}, MERGING),
        pytest.param("part,n", {}, GIVEN, marks=pytest.mark.wide),
        ("", {}, MERGING),
    ],
)
def test_partitions_of_each_form(uri: str, by: str, options: dict[str, Any], given: dict[str, str]) -> None:
    table = create(uri, "cow", options, by=by)
    table.bulk_insert(rows(*range(8)))
    # A day of two folders could be that of two columns, and a value with a slash shows that it is not encoded.
    check_restored(table, MERGING if by == "day" else given)


def test_restored_properties_name_the_fields_of_complex_keys(uri: str) -> None:
    table = create(uri, "mor", key="id,n")
    table.bulk_insert(rows(*range(8)))
    table.upsert(rows(2, 3, ts=2))
    check_restored(table, GIVEN)


@pytest.mark.parametrize(
    ("kind", "options", "given"),
    [
        pytest.param("cow", {"hoodie.table.base.file.format": "ORC"}, GIVEN, marks=pytest.mark.wide),
        ("cow", {"hoodie.table.cdc.enabled": True, "hoodie.table.cdc.supplemental.logging.mode": "DATA_BEFORE"}, GIVEN),
        ("cow", {"hoodie.datasource.write.drop.partition.columns": True, "hoodie.datasource.write.hive_style_partitioning": True},
         GIVEN),
        ("mor", {"hoodie.write.table.version": 9}, {"hoodie.table.ordering.fields": "ts", MODE: "EVENT_TIME_ORDERING",
         ENCODE: "false"}),
        pytest.param(
            "mor", {MODE: "COMMIT_TIME_ORDERING"}, {**GIVEN, MODE: "COMMIT_TIME_ORDERING"}, marks=pytest.mark.wide
        ),
    ],
)  # fmt: skip
def test_properties_of_other_table_layouts(uri: str, kind: str, options: dict[str, Any], given: dict[str, str]) -> None:
    table = create(uri, kind, options)
    table.bulk_insert(rows(*range(8)))
    table.upsert(rows(2, 3, ts=2))
    check_restored(table, given)


def test_key_fields_are_required_without_meta_columns(uri: str) -> None:
    table = create(uri, "cow", {"hoodie.populate.meta.fields": False})
    table.bulk_insert(rows(*range(4)))
    was = lose(table)
    with pytest.raises(InvalidRequest, match=r"recordkey\.fields: no column is the key"):
        hp.restore_properties(uri, GIVEN, dry_run=True)
    hp.restore_properties(uri, {**GIVEN, "hoodie.table.recordkey.fields": "id"}, dry_run=False)
    now = properties(uri)
    assert all(now[key] == was[key] for key in ("hoodie.populate.meta.fields", "hoodie.table.partition.fields"))
    assert hp.Table(uri).scan().to_arrow().num_rows == 4


def test_without_a_metadata_table_version_and_type_and_name_may_have_to_be_given(uri: str) -> None:
    table = create(uri, "cow", {"hoodie.metadata.enable": False})
    table.bulk_insert(rows(*range(4)))
    lose(table)
    open_storage(uri).delete_folder(".hoodie/timeline")
    with pytest.raises(InvalidRequest) as refused:
        hp.restore_properties(uri, dry_run=True)
    asked = {line.split(":")[0].strip() for line in str(refused.value).splitlines()[1:]}
    assert asked == {"hoodie.table.version", "hoodie.table.type", MODE, ENCODE, ORDERING}
    more = {**GIVEN, "hoodie.table.version": "8", "hoodie.table.type": "COPY_ON_WRITE"}
    hp.restore_properties(uri, more, dry_run=False)
    assert properties(uri)["hoodie.table.name"] == "trips"
    hp.Table(uri).repair(dry_run=False)
    again = hp.Table(uri)
    assert again.scan().to_arrow().num_rows == 4 and again.validate(keys=True).ok


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"hoodie.table.recordkey.fields": "n"}, "which have id"),
        ({"hoodie.table.type": "MERGE_ON_READ"}, "which have COPY_ON_WRITE"),
        ({"hoodie.table.version": "6"}, "8"),
        ({MODE: "SOMETIMES"}, "SOMETIMES"),
        ({"hoodie.table.keygenerator.type": "GLOBAL_DELETE"}, "key generator"),
    ],
)
def test_given_properties_must_not_contradict_files(uri: str, given: dict[str, str], why: str) -> None:
    table = create(uri)
    table.bulk_insert(rows(*range(4)))
    lose(table)
    with pytest.raises(InvalidRequest, match=why):
        hp.restore_properties(uri, {**GIVEN, **given}, dry_run=False)
    assert open_storage(uri).stat(PROPERTIES_FILE) is None


def test_ambiguous_key_columns_must_be_given(uri: str) -> None:
    table = create(uri)
    data = rows(*range(4))
    table.bulk_insert(data.append_column("twin", data["id"]).append_column("side", data["part"]))
    lose(table)
    with pytest.raises(InvalidRequest, match=r"id, twin are all the key(.|\n)*partition\.fields: several columns"):
        hp.restore_properties(uri, GIVEN, dry_run=True)
    more = {
        **GIVEN,
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "part",
        "hoodie.datasource.write.hive_style_partitioning": "false",
    }
    with pytest.raises(InvalidRequest, match="has no column nosuch"):
        hp.restore_properties(uri, {**more, "hoodie.table.recordkey.fields": "nosuch"}, dry_run=True)
    with pytest.raises(InvalidRequest, match="the folder of a row"):
        hp.restore_properties(uri, {**more, "hoodie.table.partition.fields": "n"}, dry_run=True)
    hp.restore_properties(uri, more, dry_run=False)
    assert hp.Table(uri).validate(keys=True).ok


def test_readable_table_is_not_changed(uri: str) -> None:
    with pytest.raises(TableNotFound, match="no data files"):
        hp.restore_properties(uri, dry_run=True)
    table = create(uri)
    table.bulk_insert(rows(1))
    with pytest.raises(TableExists):
        hp.restore_properties(uri, GIVEN, dry_run=True)
    storage = open_storage(uri)
    storage.put(PROPERTIES_BACKUP, storage.read(PROPERTIES_FILE) or b"")
    storage.put(PROPERTIES_FILE, b"hoodie.table.na")
    with pytest.raises(TableExists, match="backup"):
        hp.restore_properties(uri, GIVEN, dry_run=True)
    storage.delete([PROPERTIES_BACKUP])
    # The metadata table's own properties are damaged, too: nothing can be inferred from them.
    storage.put(f"{METADATA_FOLDER}/{PROPERTIES_FILE}", b"hoodie.table.na")
    with pytest.raises(InvalidRequest, match=r"hoodie\.table\.version"):
        hp.restore_properties(uri, GIVEN, dry_run=True)
    hp.restore_properties(uri, {**GIVEN, "hoodie.table.version": "8"}, dry_run=False)
    hp.Table(uri).repair(dry_run=False)
    assert hp.Table(uri).validate(keys=True).ok


def test_crash_at_every_call_leaves_no_or_complete_properties(uri: str) -> None:
    table = create(uri, "cow", {"hoodie.metadata.enable": False})
    table.bulk_insert(rows(*range(4)))
    options, engine, inner = parse_options({}), LocalEngine(1), open_storage(uri)
    given = {**GIVEN, "hoodie.table.version": "8"}

    def restore(storage: Storage, env: ReplayEnvironment) -> None:
        restore_properties(storage, env, engine, options, given, dry_run=False)

    was, number = lose(table), 0
    while True:
        number += 1
        for moment in FaultPoint:
            inner.delete([PROPERTIES_FILE, PROPERTIES_BACKUP])
            env = ReplayEnvironment(number)
            faulty = FaultyStorage(inner, Fault(number, moment))
            with suppress(SimulatedCrash):
                restore(faulty, env)
            with suppress(TableExists):
                restore(inner, env)
            assert load_table_config(inner).keys.record_fields == ("id",)
            assert parse_properties(inner.read(PROPERTIES_FILE) or inner.read(PROPERTIES_BACKUP) or b"").items() <= was.items()
            if not faulty.triggered:
                return
