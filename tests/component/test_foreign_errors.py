"""Errors of any input or table content are HudiErrors that name the location."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, HudiError, InvalidRequest, Unsupported
from pyhudi.format.actions.rollback_metadata import InstantInfo, RollbackPlan
from pyhudi.format.avro.schema import parse_schema
from pyhudi.format.avro_columns import avro_records
from pyhudi.format.instants import Action, Instant, State
from pyhudi.table.snapshot import TableSchema

HALF = "\ud800"
"""Half a character, which Python's text may hold and UTF-8 may not."""


def rows(*keys: str) -> pa.Table:
    size = len(keys)
    return pa.table({"id": list(keys), "part": ["x"] * size, "ts": [1] * size, "v": ["p"] * size})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "t"
    options = {"hoodie.metadata.record.index.enable": True, "hoodie.metadata.record.index.min.filegroup.count": 2}
    table = Table.create(path, record_key="id", partition_by="part", ordering="ts", options=options)
    table.upsert(rows("a", "b"))
    return path


@pytest.fixture
def path(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "t"))


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": ["a"], "part": ["x"], "ts": [1], "v": ["p"], **columns})


@pytest.mark.parametrize(
    "act",
    [
        lambda table: table.scan(filter=f"v = '{HALF}'"),
        lambda table: table.scan(filter=f"v in ('p', '{HALF}')"),
        lambda table: table.scan(filter=f"v like '{HALF}%'"),
        lambda table: table.scan(filter=[("v", "=", HALF)]),
        lambda table: table.scan(filter=[("v", "in", [HALF])]),
        lambda table: table.scan(filter=[("v", "like", HALF)]),
        lambda table: table.delete(where=f"id = '{HALF}'"),
        lambda table: table.lookup([HALF]),
        lambda table: table.upsert(frame(v=[HALF])),
        lambda table: table.upsert(frame(**{HALF: ["p"]})),
        lambda table: table.delete([HALF]),
        lambda table: Table(f"{table.uri}/{HALF}"),
        lambda table: Table.exists(f"{table.uri}/{HALF}"),
        lambda table: Table.create(f"{table.uri}-2", record_key=HALF),
        lambda table: Table.create(f"{table.uri}-2", record_key="id", name=HALF),
        lambda table: Table.create(f"{table.uri}-2", record_key="id", partition_by=HALF),
    ],
)
def test_half_a_character_is_no_text(path: Path, act: Callable[[Table], Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        act(Table(path))
    str(caught.value).encode()
    assert not path.with_name("t-2").exists()


def test_half_a_character_in_a_document(path: Path) -> None:
    definitions = path / ".hoodie/.index_defs/index.json"
    definitions.write_text(definitions.read_text().replace('"v"', '"\\ud800"'))
    definitions.with_name(".index.json.crc").unlink(missing_ok=True)
    with pytest.raises(CorruptData, match=r"index\.json"):
        Table(path).upsert(rows("a"))
    with pytest.warns(RuntimeWarning, match=r"index\.json"):
        assert Table(path).scan(filter="v = 'p'").count() == 2


def test_names_that_are_no_text_are_no_part_of_a_table(path: Path) -> None:
    strange = os.fsencode(path) + b"/\xff\xfe"
    os.makedirs(strange)
    shutil.copy(os.fsencode(path / "x/.hoodie_partition_metadata"), strange)
    Path(os.fsdecode(os.fsencode(path / "x") + b"/\xff.parquet")).write_bytes(b"x")
    table = Table(path)
    assert table.validate().ok
    table.index.rebuild()
    table.upsert(rows("c"))
    assert table.scan().count() == 3 and table.partitions() == ("x",)


FULL: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "a", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["p", "q"]}},
        {"name": "n", "type": ["null", "E"], "default": None},
        {"name": "m", "type": {"type": "map", "values": {"type": "fixed", "name": "X", "size": 4}}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    ],
}
WRONG: tuple[Any, ...] = (None, 5, -1, "", [], {}, "x", ["null"], True, 1e400, HALF, {"type": "enum", "name": "Q"}, "GONE")


def mutants(value: Any) -> list[Any]:
    """The value with each of its parts replaced by each wrong one, or removed."""
    found: list[Any] = list(WRONG)
    if isinstance(value, dict):
        for key, part in value.items():
            rest = {name: held for name, held in value.items() if name != key}
            found += [rest if mutant == "GONE" else {**rest, key: mutant} for mutant in mutants(part)]
    if isinstance(value, list):
        for place, part in enumerate(value):
            found += [[*value[:place], mutant, *value[place + 1 :]] for mutant in mutants(part)]
    return found


@pytest.mark.parametrize("read", [avro_records, parse_schema, TableSchema.from_avro])
def test_schemas_that_are_none(read: Callable[[str], object]) -> None:
    refused = 0
    for schema in mutants(FULL):
        try:
            read(json.dumps(schema))
        except (CorruptData, Unsupported):
            refused += 1
        except Exception as error:
            error.add_note(json.dumps(schema))
            raise
    assert refused > 300


@pytest.mark.parametrize("inflight", [False, True])
def test_a_plan_with_an_unknown_action(path: Path, inflight: bool) -> None:
    table = Table(path)
    store = table.context.timeline
    last = table.timeline().last_completed_write()
    assert last is not None
    pending = Instant("29990101000000000", Action.ROLLBACK, State.REQUESTED)
    written = RollbackPlan(InstantInfo(last.request_time, "commit")).encode(bytes(16))
    store.request(pending.request_time, Action.ROLLBACK, written.replace(b"\x0ccommit", b"\x0ckommit"))
    if not inflight:
        # Nothing was done by it.
        table.upsert(rows("c"))
        assert table.scan().count() == 3
        return
    store.start(pending)
    with pytest.raises(CorruptData, match=rf"kommit.*{pending.request_time}\.rollback\.requested"):
        table.upsert(rows("c"))


def test_a_footer_that_is_no_text(path: Path) -> None:
    (file,) = (path / "x").glob("[!.]*.parquet")
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    # As another writer does it, without a checksum.
    pq.write_table(pq.read_table(file, partitioning=None).replace_schema_metadata(None), file, store_schema=False)
    data = file.read_bytes()
    at = data.index(b"_hoodie_commit_time", len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    file.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    for act in (
        lambda: Table(path).scan().to_arrow(),
        lambda: Table(path).upsert(rows("a")),
        lambda: Table(path).index.rebuild(),
    ):
        with pytest.raises(HudiError, match=file.name):
            act()
    assert not Table(path).validate().ok


def test_a_partitioned_record_index(path: Path) -> None:
    folder = path / ".hoodie/metadata/record_index"
    for file in folder.iterdir():
        name = file.name.replace("record-index-0000", "record-index-x-0000").replace("record-index-0001", "record-index-y-0000")
        file.rename(folder / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Table(path).scan(filter="id = 'a'").count() == 1
    assert "record_index" in str(Table(path).validate())
    with pytest.raises(Unsupported, match=r"record index is partitioned.*index\.drop"):
        Table(path).upsert(rows("a"))
    Table(path).index.drop("record_index")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Table(path).upsert(rows("c"))
        assert Table(path).validate().ok
