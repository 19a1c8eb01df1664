"""Payload classes on merge-on-read: PyHudi and the real Hudi write, delete and compact in turn, in an order that a seed deals
out, with Avro and Parquet blocks in one log.

A model in plain Python holds, for each key, the row of the base file and what the logs say since, and merges them as Hudi does:
the log entries with each other, then with the base row.  After each step we must show what it says, and so must the real Hudi
after plans and at the end.  That is more than the fold of all writes: with rules that are not associative a compaction decides
what meets what first.

A delete by key of the real Hudi has no ordering value.  Where the key comes back before a compaction it cannot read its own table
(see test_real_defects.py), so in the dealt steps such keys wait for the next compaction; the last tests do not wait.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.instants import Action
from tests.interop.alternation import OPERATION
from tests.interop.oracle import HudiFailure, RealHudi
from tests.needs import WIDE
from tests.rows import assert_same_rows, without_meta

MODEL = "org.apache.hudi.common.model."
PAYLOADS = {
    "overwrite": MODEL + "OverwriteWithLatestAvroPayload",
    "default": MODEL + "DefaultHoodieRecordPayload",
    "event": MODEL + "EventTimeAvroPayload",
    "non-defaults": MODEL + "OverwriteNonDefaultsWithLatestAvroPayload",
    "partial": MODEL + "PartialUpdateAvroPayload",
    "first": MODEL + "FirstValueAvroPayload",
    "dms": MODEL + "AWSDmsAvroPayload",
    "mysql": MODEL + "debezium.MySqlDebeziumAvroPayload",
}
MODES = {"overwrite": "COMMIT_TIME_ORDERING", "default": "EVENT_TIME_ORDERING"}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("a", pa.string()),
        ("b", pa.int64()),
        ("Op", pa.string()),
        ("_change_operation_type", pa.string()),
        ("_event_seq", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
KEYS = [f"k{number}" for number in range(12)]
READ: dict[str, Any] = {"hoodie.metadata.enable": False}
Row = dict[str, Any]


@dataclass(frozen=True)
class Delete:
    """A delete in a log.  ts: its ordering value, None for none."""

    ts: int | None


@dataclass
class Key:
    """base: the row of the base file; log: what came since, oldest first; planned: how many of that a compaction plan names."""

    base: Row | None = None
    log: list[Row | Delete] = field(default_factory=list)
    planned: int = 0

    def row(self, payload: str) -> Row | None:
        return merged(payload, self.base, self.log)

    def waits(self, payload: str) -> bool:
        """Whether the key must not be written: the real Hudi could not read it, or a plan that is not carried out yet drops its
        row, and the index, which looks into base files, would not find a row that only a log has then.
        """
        unreadable = any(isinstance(entry, Delete) and entry.ts is None for entry in self.log)
        return unreadable or (self.base is not None and merged(payload, self.base, self.log[: self.planned]) is None)

    def compact(self, payload: str) -> None:
        self.base, self.log = merged(payload, self.base, self.log[: self.planned]), self.log[self.planned :]
        self.planned = 0


def merged(payload: str, base: Row | None, log: list[Row | Delete]) -> Row | None:
    barriers = [place for place, entry in enumerate(log) if isinstance(entry, Delete) and entry.ts is None]
    if barriers:
        # What such a delete meant: that nothing before it counts.
        base, log = None, log[barriers[-1] + 1 :]
    held: Row | Delete | None = None
    for entry in log:
        held = entry if held is None else pair(payload, held, entry)
    if held is not None:
        held = held if base is None else pair(payload, base, held)
    return base if held is None else None if isinstance(held, Delete) else held


def pair(payload: str, old: Row | Delete, new: Row | Delete) -> Row | Delete:
    if payload == "overwrite":
        return new
    if isinstance(old, Delete) or isinstance(new, Delete) or payload in ("default", "event"):
        return new if time_of(new) >= time_of(old) else old
    later = new["ts"] >= old["ts"]
    if payload == "non-defaults":
        return filled(new, old)
    if payload == "partial":
        return filled(new, old) if later else filled(old, new)
    if payload == "first":
        return new if new["ts"] > old["ts"] else old
    if payload == "mysql":
        return new if position(new) > position(old) else old
    assert payload == "dms"
    return new


def time_of(entry: Row | Delete) -> int:
    return int(entry["ts"] if not isinstance(entry, Delete) else entry.ts or 0)


def filled(first: Row, second: Row) -> Row:
    return {name: second[name] if value is None else value for name, value in first.items()}


def position(row: Row) -> tuple[int, ...]:
    return tuple(int(part) for part in row["_event_seq"].split("."))


def deletes(payload: str, row: Row) -> bool:
    if payload == "dms":
        return bool(row["Op"] == "D" or row["_hoodie_is_deleted"])
    if payload == "mysql":
        return bool(row["_change_operation_type"] == "d" or row["_hoodie_is_deleted"])
    return bool(row["_hoodie_is_deleted"])


class Pair:
    """One table, its two writers and the model."""

    def __init__(self, hudi: RealHudi, path: Path, payload: str, seed: int) -> None:
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
            newest = merged("default", held.base, held.log)
            assert newest is not None
            held.log.append(Delete(newest["ts"]))

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

    def write(self, writer: str, operation: str, rows: list[Row]) -> None:
        data = pa.Table.from_pylist(rows, SCHEMA)
        # One slice has blocks of both formats from both writers.
        blocks: dict[str, Any] = {"hoodie.logfile.data.block.format": self.random.choice(["avro", "parquet"])}
        if writer == "ours":
            getattr(self.table, operation)(data if operation != "delete" else data.select(["id", "part"]), options=blocks)
        else:
            self.hudi.write(data, self.path, **{**self.options, **blocks, OPERATION: operation})

    def row(self, key: str) -> Row:
        draw = self.random
        ts = draw.randrange(10)
        gone = draw.random() < 0.15
        values = [key, "ab"[int(key[1:]) % 2], ts, draw.choice([None, "x", "y", "z"]), draw.choice([None, 1, 2, 3])]
        marks = [
            "D" if gone else "U",
            "d" if gone else "u",
            f"{draw.randrange(3)}.{draw.randrange(20)}",
            gone and draw.random() < 0.5,
        ]
        if self.payload not in ("dms", "mysql"):
            marks[-1] = gone
        return dict(zip(SCHEMA.names, [*values, *marks], strict=True))

    # -- reads ----------------------------------------------------------------------------------------------------------

    def expected(self) -> pa.Table:
        rows = [row for held in self.keys.values() if (row := held.row(self.payload)) is not None]
        return pa.Table.from_pylist(rows, SCHEMA)

    def read_by_us(self) -> pa.Table:
        found = self.table.scan(["*"]).to_arrow()
        assert_same_rows(without_meta(found), self.expected(), key=["id"])
        return found

    def read_by_both(self) -> None:
        found = self.read_by_us()
        # Meta columns too: both say the same of which commit and which file a row is.
        assert_same_rows(self.hudi.read(self.path, **READ), found)


# Where a merge mode says the same, tests of that mode show it (test_mor_compaction.py), and `event` in test_delete_marker.py.
KNOWN_OTHERWISE = {"overwrite", "event"}


@pytest.mark.parametrize(
    "payload", [pytest.param(name, marks=pytest.mark.wide) if name in KNOWN_OTHERWISE else name for name in PAYLOADS]
)
def test_both_write_and_compact_in_turn(hudi: RealHudi, tmp_path: Path, payload: str) -> None:
    seed = list(PAYLOADS).index(payload)
    pair = Pair(hudi, tmp_path / f"t{seed}", payload, seed)
    creator = "ours" if seed % 2 else "theirs"
    if creator == "ours":
        Table.create(pair.path, options=pair.options)
    pair.upsert(creator, KEYS[:10], _hoodie_is_deleted=False, Op="I", _change_operation_type="c")
    assert pair.table.config.property("hoodie.record.merge.mode") == MODES.get(payload, "CUSTOM")
    # Each carries out the other's plan, some steps on; before both plans there are logs of both.
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
def test_a_key_that_comes_back_after_a_delete_of_the_real_hudi(hudi: RealHudi, tmp_path: Path, payload: str) -> None:
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
