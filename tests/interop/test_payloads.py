"""Payload classes on merge-on-read: PyHudi and Apache Hudi write, delete and compact in turn, in an order that a seed deals
out, with Avro and Parquet blocks in one log.

After each step we must show what the model of tests/support/payload_model.py returns, and so must Apache Hudi after plans and at
the end.

A delete by key of Apache Hudi has no ordering value.  Where the key comes back before a compaction it cannot read its own table
(see test_hudi_defects.py), so in the dealt steps such keys wait for the next compaction; the last tests do not wait.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.instants import Action
from pyhudi.table.snapshot import load_snapshot
from tests.interop.alternation import OPERATION
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.support.needs import WIDE
from tests.support.payload_model import KEYS, MODES, PAYLOADS, SCHEMA, Delete, Key, Row, deletes, drawn_row
from tests.support.rows import assert_same_rows, without_meta

READ: dict[str, Any] = {"hoodie.metadata.enable": False}


class Pair:
    """One table, its two writers and the model."""

    def __init__(self, hudi: ApacheHudi, path: Path, payload: str, seed: int) -> None:
        self.hudi, self.path, self.payload = hudi, path, payload
        self.random = random.Random(seed)
        self.keys: dict[str, Key] = {}
        self.options: dict[str, Any] = {
            "hoodie.table.name": "payloads",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.payload.class": PAYLOADS[payload],
            "hoodie.parquet.small.file.limit": 0,
            "hoodie.compact.inline": False,
            "hoodie.clean.automatic": False,
            "hoodie.index.bloom.num_entries": 100,
            **READ,
        }

    @property
    def table(self) -> Table:
        return Table(self.path, options=self.options)

    # -- steps ----------------------------------------------------------------------------------------------------------

    def upsert(self, writer: str, keys: list[str] | None = None, **fixed: Any) -> None:
        if keys is None:
            waiting = {key for key, held in self.keys.items() if held.waits(self.payload)}
            keys = self.random.sample(sorted(set(KEYS) - waiting), 6)
        rows = [{**self.row(key), **fixed} for key in keys]
        self.write(writer, "upsert", rows)
        for row in rows:
            held = self.keys.setdefault(row["id"], Key())
            gone = deletes(self.payload, row)
            if held.base is not None:
                held.log.append(Delete(row["ts"]) if gone else row)
            elif not gone:
                held.base = row

    def delete(self, writer: str, keys: list[str] | None = None) -> None:
        there = [key for key, held in sorted(self.keys.items()) if held.row(self.payload) is not None]
        keys = keys or self.random.sample(there, min(2, len(there)))
        self.write(writer, "delete", [self.row(key) for key in keys])
        for key in keys:
            held = self.keys[key]
            if writer == "theirs":
                held.log.append(Delete(None))
                continue
            # What no row of the slice is newer than: a rule may have made an older one of them.
            held.log.append(Delete(held.newest()))

    def plan(self, writer: str) -> str:
        if writer == "ours":
            planned = self.table.schedule_compaction().planned
        else:
            self.hudi.compact(self.path, "schedule")
            planned = next((i.request_time for i in self.table.timeline().pending(Action.COMPACTION)), None)
        assert planned is not None
        for held in self.keys.values():
            held.planned = len(held.log)
        return planned

    def compact(self, writer: str, planned: str) -> None:
        if writer == "ours":
            self.table.compact(planned)
        else:
            self.hudi.compact(self.path, "run", planned)
        for held in self.keys.values():
            held.compact(self.payload)

    def log_compact(self, writer: str) -> None:
        if writer == "ours":
            assert self.table.log_compact().runs
        else:
            schema = load_snapshot(self.table.context).schema
            assert schema is not None
            planned = self.hudi.log_compact(self.path, schema.avro, **self.options)
            assert self.hudi.log_compact(self.path, schema.avro, planned, **self.options) == planned is not None
        for held in self.keys.values():
            held.log_compact(self.payload)

    def write(self, writer: str, operation: str, rows: list[Row]) -> None:
        data = pa.Table.from_pylist(rows, SCHEMA)
        # One slice has blocks of both formats from both writers.
        blocks: dict[str, Any] = {"hoodie.logfile.data.block.format": self.random.choice(["avro", "parquet"])}
        if writer == "ours":
            getattr(self.table, operation)(data if operation != "delete" else data.select(["id", "part"]), options=blocks)
        else:
            self.hudi.write(data, self.path, **{**self.options, **blocks, OPERATION: operation})

    def row(self, key: str) -> Row:
        return drawn_row(self.random, self.payload, key)

    # -- reads ----------------------------------------------------------------------------------------------------------

    def expected(self) -> pa.Table:
        rows = [row for held in self.keys.values() if (row := held.row(self.payload)) is not None]
        return pa.Table.from_pylist(rows, SCHEMA)

    def read_by_us(self) -> pa.Table:
        found = self.table.scan(["*"]).to_arrow()
        assert_same_rows(without_meta(found), self.expected(), key=["id"])
        return found

    def read_by_both(self, model_knows: bool = True) -> None:
        found = self.read_by_us() if model_knows else self.table.scan(["*"]).to_arrow()
        # Meta columns too: both say the same of which commit and which file a row is.
        assert_same_rows(self.hudi.read(self.path, **READ), found)


# If a merge mode has the same rule, tests of that mode show it (test_mor_compaction.py), and `event` in test_delete_marker.py.
KNOWN_OTHERWISE = {"overwrite", "event", "postgres"}


@pytest.mark.parametrize(
    "payload", [pytest.param(name, marks=pytest.mark.wide) if name in KNOWN_OTHERWISE else name for name in PAYLOADS]
)
def test_both_write_and_compact_alternately(hudi: ApacheHudi, tmp_path: Path, payload: str) -> None:
    seed = list(PAYLOADS).index(payload)
    pair = Pair(hudi, tmp_path / f"t{seed}", payload, seed)
    creator = "ours" if seed % 2 else "theirs"
    if creator == "ours":
        Table.create(pair.path, options=pair.options)
    pair.upsert(creator, KEYS[:10], _hoodie_is_deleted=False, Op="I", _change_operation_type="c")
    assert pair.table.config.property("hoodie.record.merge.mode") == MODES.get(payload, "CUSTOM")
    # Each executes the other's plan, some steps later; before both plans there are logs of both.
    first, second = ["ours", "theirs", "our delete", "their delete"], ["ours", "theirs", "our delete"]
    pair.random.shuffle(first)
    pair.random.shuffle(second)
    plans = pair.random.sample(["our plan", "their plan"], 2)
    steps = [*first, plans[0], *second, plans[1], "theirs", "ours"] if WIDE else [*first, plans[0], "theirs", "ours"]
    planned: tuple[str, str] | None = None
    for number, step in enumerate(steps):
        writer = "ours" if step.startswith("our") else "theirs"
        try:
            if step.endswith("delete"):
                pair.delete(writer)
            elif not step.endswith("plan"):
                pair.upsert(writer)
            else:
                if planned is not None:
                    # A file group has one plan at a time.
                    pair.compact(*planned)
                planned = ("theirs" if writer == "ours" else "ours", pair.plan(writer))
            if WIDE or step.endswith("plan") or number == len(steps) - 1:
                pair.read_by_both()
            else:
                pair.read_by_us()
        except Exception as error:
            error.add_note(f"seed {seed}, step {number} of {steps}: {step}; model {pair.keys}")
            raise
    assert planned is not None
    pair.compact(*planned)
    pair.read_by_both()


@pytest.mark.parametrize("payload", [pytest.param("default", marks=pytest.mark.wide), "partial"])
def test_key_reinserted_after_a_delete_of_hudi(hudi: ApacheHudi, tmp_path: Path, payload: str) -> None:
    """It cannot read such a slice, nor compact it; we read nothing of the old row, and after our compaction it reads again."""
    pair = Pair(hudi, tmp_path / "back", payload, 1)
    pair.upsert("theirs", KEYS[:4], _hoodie_is_deleted=False, a="old", b=9)
    pair.delete("theirs", ["k1", "k2"])
    pair.upsert("theirs", ["k1"], _hoodie_is_deleted=False, ts=0, a=None, b=1)
    with pytest.raises(HudiFailure, match="ClassCastException"):
        hudi.read(pair.path, **READ)
    assert pair.keys["k1"].row(payload) == pair.keys["k1"].log[-1]
    pair.read_by_us()
    pair.compact("ours", pair.plan("ours"))
    pair.read_by_both()


@pytest.mark.parametrize(
    "payload", [name if name in ("partial", "non-defaults") else pytest.param(name, marks=pytest.mark.wide) for name in PAYLOADS]
)
def test_log_compactions_of_each_library(hudi: ApacheHudi, tmp_path: Path, payload: str) -> None:
    """A log compaction of PyHudi changes nothing for Apache Hudi, which writes on, and compacts; PyHudi reads that of Hudi as
    Hudi does.

    Hudi's log compaction merges by ordering value for every class: for classes with another rule, its readers return other rows.
    """
    seed = 20 + list(PAYLOADS).index(payload)
    pair = Pair(hudi, tmp_path / f"l{seed}", payload, seed)
    pair.options["hoodie.log.compaction.blocks.threshold"] = 1
    pair.upsert("theirs", KEYS[:10], _hoodie_is_deleted=False, Op="I", _change_operation_type="c")
    for writer in ("ours", "theirs", "ours"):
        pair.upsert(writer)
    pair.log_compact("ours")
    pair.read_by_both()
    pair.upsert("theirs")
    pair.delete("ours")
    pair.read_by_both()
    pair.log_compact("theirs")
    knows = payload not in ("overwrite", "non-defaults", "dms")
    pair.read_by_both(knows)
    pair.upsert("ours")
    pair.read_by_both(knows)
    pair.log_compact("ours")
    pair.read_by_both(knows)
    pair.compact("theirs", pair.plan("ours"))
    pair.read_by_both(knows)


@pytest.mark.wide
@pytest.mark.parametrize("payload", ["partial", "non-defaults", "postgres", "dms", "event"])
def test_log_compactions_of_each_library_in_version_9(newer_hudi: ApacheHudi, tmp_path: Path, payload: str) -> None:
    """Update modes and delete markers in place of the classes: ours changes nothing for Apache Hudi 1.1.1, which goes on; what
    its own makes of the logs we read as it does.
    """
    seed = 40 + list(PAYLOADS).index(payload)
    pair = Pair(newer_hudi, tmp_path / f"n{seed}", payload, seed)
    pair.options |= {"hoodie.log.compaction.blocks.threshold": 1, "hoodie.write.table.version": 9}
    if payload == "postgres":
        del pair.options["hoodie.datasource.write.precombine.field"]
    pair.upsert("theirs", KEYS[:10], _hoodie_is_deleted=False, Op="I", _change_operation_type="c")
    for writer in ("ours", "theirs", "ours"):
        pair.upsert(writer)
    before = pair.table.scan(["*"]).to_arrow()
    assert_same_rows(newer_hudi.read(pair.path, **READ), before)
    pair.log_compact("ours")
    assert_same_rows(pair.table.scan(["*"]).to_arrow(), before)
    pair.read_by_both(model_knows=False)
    pair.upsert("theirs")
    pair.read_by_both(model_knows=False)
    pair.log_compact("theirs")
    pair.read_by_both(model_knows=False)
    pair.upsert("ours")
    pair.log_compact("ours")
    pair.read_by_both(model_knows=False)
    pair.compact("theirs", pair.plan("ours"))
    pair.read_by_both(model_knows=False)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("payload", list(PAYLOADS))
@pytest.mark.wide
def test_records_that_move_to_another_partition(hudi: ApacheHudi, tmp_path: Path, payload: str, kind: str) -> None:
    """The same batch over the same table, written by each: what both make of a record goes where its columns say."""
    draw = random.Random(7)
    options: dict[str, Any] = {
        **Pair(hudi, tmp_path, payload, 0).options,
        "hoodie.datasource.write.table.type": kind,
        "hoodie.index.type": "GLOBAL_SIMPLE",
        "hoodie.simple.index.update.partition.path": True,
    }

    def rows(keys: list[str], **fixed: Any) -> pa.Table:
        drawn = [drawn_row(draw, payload, key) | {"part": draw.choice("ab")} | fixed for key in keys]
        return pa.Table.from_pylist(drawn, SCHEMA)

    path = tmp_path / f"moves_{payload}"
    hudi.write(
        rows(KEYS, _hoodie_is_deleted=False, Op="I", _change_operation_type="c"), path, **(options | {OPERATION: "insert"})
    )
    for step in range(3):
        batch = rows(draw.sample(KEYS, 8))
        copy = tmp_path / f"copy_{step}"
        shutil.copytree(path, copy)
        hudi.write(batch, path, **(options | {OPERATION: "upsert"}))
        Table(copy, options=options).upsert(batch)
        theirs, ours = (Table(one).scan(["*"]).to_arrow() for one in (path, copy))
        assert ours["part"].to_pylist() == ours["_hoodie_partition_path"].to_pylist()
        if payload == "partial":
            # Apache Hudi uses the partition of a late row, but not its column: the record is stored in the wrong partition.
            assert theirs["part"].to_pylist() != theirs["_hoodie_partition_path"].to_pylist()
            assert_same_rows(without_meta(ours), without_meta(theirs), key=["id"])
            path = copy
            continue
        assert_same_rows(without_meta(ours), without_meta(theirs), key=["id"])
        assert_same_rows(hudi.read(copy, **READ), ours)
    assert Table(path).validate(keys=True).ok
