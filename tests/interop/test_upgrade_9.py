"""Upgrade and downgrade between versions 8 and 9 leave the properties of Apache Hudi 1.1.1 and 1.0.2, and each
continues.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table, register_merger
from tests.interop.oracle import ApacheHudi
from tests.support.rows import assert_same_rows

MODEL = "org.apache.hudi.common.model."
PAYLOAD = "hoodie.compaction.payload.class"
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("name", pa.string()), ("Op", pa.string())])
OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.compact.inline": False,
    "hoodie.embed.timeline.server": False,
    "hoodie.index.bloom.num_entries": 100,
}
KINDS = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}


def rows(*values: tuple[str, int, str | None, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def options(kind: str, payload: str, **more: Any) -> dict[str, Any]:
    return {
        **OPTIONS,
        "hoodie.datasource.write.table.type": KINDS[kind],
        "hoodie.datasource.write.payload.class": f"{MODEL}{payload}",
        **more,
    }


def properties(path: Path) -> dict[str, str]:
    """Without the checksum, and the columns, which Apache Hudi adds when a table becomes known to its SQL."""
    left_out = ("hoodie.table.checksum", "hoodie.table.create.schema")
    return {key: text for key, text in Table(path).config.properties if text and key not in left_out}


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("mor", "PartialUpdateAvroPayload"),
        pytest.param("mor", "DefaultHoodieRecordPayload", marks=pytest.mark.wide),
        pytest.param("cow", "EventTimeAvroPayload", marks=pytest.mark.wide),
        pytest.param("cow", "AWSDmsAvroPayload", marks=pytest.mark.wide),
    ],
)
def test_upgrades_of_both_libraries_give_equal_tables(
    hudi: ApacheHudi, newer_hudi: ApacheHudi, kind: str, payload: str, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    given = options(kind, payload)
    hudi.write(rows(("a", 5, "x", "I"), ("b", 5, "y", "I"), ("c", 5, "z", "I")), ours, **given)
    hudi.write(rows(("a", 6, None, "U"), ("b", 5, "tie", "U")), ours, **given)
    shutil.copytree(ours, theirs)
    before = Table(ours).scan().to_arrow()
    name = f"up_{kind}_{payload}"
    newer_hudi.register(theirs, name)
    assert newer_hudi.call("upgrade_table", table=name, to_version="NINE").to_pylist() == [{"result": True}]
    assert Table(ours).upgrade(9).after == 9
    assert properties(ours) == properties(theirs)
    assert_same_rows(Table(ours).scan().to_arrow(), before)
    # Hudi 1.1.1 writes PyHudi's table, and the reverse.
    given = {**OPTIONS, "hoodie.datasource.write.table.type": KINDS[kind]}
    more = rows(("c", 7, None, "U"), ("d", 1, "new", "I"))
    newer_hudi.write(more, ours, **given)
    Table(theirs).upsert(more)
    assert_same_rows(Table(ours).scan().to_arrow(), Table(theirs).scan().to_arrow())
    for path in (ours, theirs):
        assert_same_rows(Table(path).scan(["*"]).to_arrow(), newer_hudi.read(path))
    # And back.
    assert newer_hudi.call("downgrade_table", table=name, to_version="EIGHT").to_pylist() == [{"result": True}]
    assert Table(ours).downgrade().after == 8
    assert {**properties(ours), "hoodie.table.metadata.partitions": ""} == {
        **properties(theirs),
        "hoodie.table.metadata.partitions": "",
    }
    more = rows(("a", 8, None, "U"), ("d", 0, "late", "U"))
    given = options(kind, payload)
    hudi.write(more, ours, **given)
    Table(theirs).upsert(more)
    for path in (ours, theirs):
        assert_same_rows(Table(path).scan(["*"]).to_arrow(), hudi.read(path))
        assert Table(path).validate().ok
    assert_same_rows(Table(ours).scan().to_arrow(), Table(theirs).scan().to_arrow())


def test_version_9_tables_are_downgraded_with_their_indexes(hudi: ApacheHudi, newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    """Column statistics of the second form, which Hudi 1.0.2 would not decode, are dropped, and the record index stays."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    given = {
        **OPTIONS,
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.metadata.enable": True,
        "hoodie.metadata.global.record.level.index.enable": True,
        "hoodie.metadata.record.index.min.filegroup.count": 2,
        "hoodie.metadata.record.index.max.filegroup.count": 2,
    }
    newer_hudi.write(rows(("a", 5, "x", "I"), ("b", 5, "y", "I")), ours, **given)
    newer_hudi.write(rows(("a", 6, "newer", "U"), ("b", 1, "late", "U")), ours, **given)
    shutil.copytree(ours, theirs)
    newer_hudi.register(theirs, "with_indexes")
    newer_hudi.call("downgrade_table", table="with_indexes", to_version="EIGHT")
    result = Table(ours).downgrade()
    assert result.dropped_indexes == ("column_stats",)
    found, real = properties(ours), properties(theirs)
    # Hudi omits the payload class, by which releases before 1.0 merge.
    assert found.pop(PAYLOAD) == f"{MODEL}DefaultHoodieRecordPayload" and PAYLOAD not in real
    partitions = [set(one.pop("hoodie.table.metadata.partitions").split(",")) for one in (found, real)]
    assert found == real and partitions == [{"files", "record_index"}] * 2
    late = rows(("a", 2, "late", "U"), ("b", 9, "newest", "U"))
    for path in (ours, theirs):
        before = Table(path).scan().to_arrow()
        assert_same_rows(before, hudi.read(path).select(before.column_names))
        hudi.write(
            late, path, **{**OPTIONS, "hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.metadata.enable": True}
        )
        Table(path).upsert(rows(("c", 1, "ours", "I")))
        table = Table(path).scan(["*"]).to_arrow()
        assert dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True)) == {
            "a": "newer",
            "b": "newest",
            "c": "ours",
        }
        assert_same_rows(table, hudi.read(path))
        assert Table(path).validate().ok


def test_upgrade_from_version_6_to_9(hudi: ApacheHudi, newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    """As Hudi 1.1.1 does, except for names of version 6 that it leaves and that no reader uses."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    given = options("mor", "OverwriteNonDefaultsWithLatestAvroPayload")
    six = {"hoodie.write.table.version": 6, "hoodie.write.auto.upgrade": False}
    for values in (("a", 5, "x", "I"), ("a", 6, None, "U")):
        hudi.write(rows(values), ours, **{**given, **six})
    shutil.copytree(ours, theirs)
    before = Table(ours).scan().to_arrow()
    newer_hudi.register(theirs, "from_six")
    assert newer_hudi.call("upgrade_table", table="from_six", to_version="NINE").to_pylist() == [{"result": True}]
    assert (Table(ours).upgrade(9).before, int(Table(ours).config.version)) == (6, 9)
    found, real = properties(ours), properties(theirs)
    odd = ("hoodie.record.merge.strategy.id", "hoodie.table.keygenerator.class", "hoodie.table.metadata.partitions")
    assert {key: text for key, text in found.items() if key not in odd} == {
        key: text for key, text in real.items() if key not in odd
    }
    for path in (ours, theirs):
        assert_same_rows(Table(path).scan().to_arrow(), before)
        assert_same_rows(Table(path).scan(["*"]).to_arrow(), newer_hudi.read(path))


@pytest.mark.wide
def test_custom_merger_is_kept_by_an_upgrade(newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    """Up and down: the properties name it as before; every table of version 8 also names a payload class."""
    strategy = {"hoodie.write.record.merge.mode": "CUSTOM", "hoodie.write.record.merge.strategy.id": Newest.strategy_id}
    register_merger(Newest())
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    table = Table.create(ours, record_key="id", ordering="ts", options={**strategy, "hoodie.metadata.enable": False})
    table.upsert(rows(("a", 5, "x", "I")))
    shutil.copytree(ours, theirs)
    newer_hudi.register(theirs, "own_merger")
    for version, name in ((9, "NINE"), (8, "EIGHT")):
        procedure = "upgrade_table" if version == 9 else "downgrade_table"
        assert newer_hudi.call(procedure, table="own_merger", to_version=name).to_pylist() == [{"result": True}]
        change = Table(ours).upgrade if version == 9 else Table(ours).downgrade
        assert change(version).after == version
        assert properties(ours) == properties(theirs)
        assert properties(ours)["hoodie.record.merge.strategy.id"] == Newest.strategy_id
        assert_same_rows(Table(theirs).scan().to_arrow(), Table(ours).scan().to_arrow())


class Newest:
    """The newer row stays."""

    strategy_id = "6f1e3a52-0d1c-4a44-8f5a-7f2f0f7a9d10"

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, None]:
        return newer, None
