"""A plain Python model of a merge-on-read table under a payload class: the base row of each key and its log records,
merged as Apache Hudi merges them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

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
    "postgres": MODEL + "debezium.PostgresDebeziumAvroPayload",
}
MODES = {"overwrite": "COMMIT_TIME_ORDERING", "default": "EVENT_TIME_ORDERING"}
UNAVAILABLE = "__debezium_unavailable_value"
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
        ("_event_lsn", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
KEYS = [f"k{number}" for number in range(12)]
Row = dict[str, Any]


@dataclass(frozen=True)
class Delete:
    """A delete in a log.  ts: its ordering value, None for none."""

    ts: int | None


@dataclass(frozen=True)
class Held:
    """What some log entries came to.  ts: the ordering value that it competes by with a delete: that of the newest change, which
    may be a late one that filled gaps.
    """

    entry: Row | Delete
    ts: int | None


Entry = Row | Delete | Held


@dataclass
class Key:
    """base: the row of the base file; log: what came since, oldest first; planned: how many of that a compaction plan names."""

    base: Row | None = None
    log: list[Entry] = field(default_factory=list)
    planned: int = 0

    def row(self, payload: str) -> Row | None:
        return merged(payload, self.base, self.log)

    def waits(self, payload: str) -> bool:
        """Whether the key must not be written.

        Apache Hudi could not read it, or a plan that is not executed yet drops its row, and the index, which reads base files,
        would not find a row that is only in a log then.
        """
        unreadable = any(isinstance(entry, Delete) and entry.ts is None for entry in self.log)
        return unreadable or (self.base is not None and merged(payload, self.base, self.log[: self.planned]) is None)

    def compact(self, payload: str) -> None:
        self.base, self.log = merged(payload, self.base, self.log[: self.planned]), self.log[self.planned :]
        self.planned = 0

    def log_compact(self, payload: str) -> None:
        """No delete without an ordering value may be in the log."""
        if self.log:
            self.log = [held_of(payload, self.log)]

    def newest(self) -> int:
        """The ordering value that no row of the key is newer than."""
        times: list[int | None] = [] if self.base is None else [self.base["ts"]]
        for entry in self.log:
            times += [entry.ts, time_of(entry.entry)] if isinstance(entry, Held) else [time_of(entry)]
        return max(time for time in times if time is not None)


def merged(payload: str, base: Row | None, log: list[Entry]) -> Row | None:
    barriers = [place for place, entry in enumerate(log) if isinstance(entry, Delete) and entry.ts is None]
    if barriers:
        # What such a delete meant: that nothing before it counts.
        base, log = None, log[barriers[-1] + 1 :]
    if not log:
        return base
    held = held_of(payload, log)
    entry = held.entry if base is None else pair(payload, Held(base, base["ts"]), held).entry
    return None if isinstance(entry, Delete) else entry


def held_of(payload: str, log: list[Entry]) -> Held:
    held, *others = (entry if isinstance(entry, Held) else Held(entry, time_of(entry)) for entry in log)
    for entry in others:
        held = pair(payload, held, entry)
    return held


def pair(payload: str, old: Held, new: Held) -> Held:
    if payload == "overwrite":
        return new
    before, after = old.entry, new.entry
    if isinstance(before, Delete) or isinstance(after, Delete) or payload in ("default", "event"):
        return new if (new.ts or 0) >= (old.ts or 0) else old
    if payload == "non-defaults":
        return Held(filled(after, before), new.ts)
    if payload == "partial":
        return Held(filled(after, before) if after["ts"] >= before["ts"] else filled(before, after), new.ts)
    if payload == "first":
        return new if after["ts"] > before["ts"] else old
    if payload == "mysql":
        return new if position(after) > position(before) else old
    if payload == "postgres":
        if after["_event_lsn"] < before["_event_lsn"]:
            return old
        return Held({name: before[name] if value == UNAVAILABLE else value for name, value in after.items()}, new.ts)
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
    if payload in ("mysql", "postgres"):
        return bool(row["_change_operation_type"] == "d" or row["_hoodie_is_deleted"])
    return bool(row["_hoodie_is_deleted"])


def drawn_row(draw: random.Random, payload: str, key: str) -> Row:
    """A row of that key with values by chance, which the payload class may take for a delete."""
    ts = draw.randrange(10)
    gone = draw.random() < 0.15
    texts = [None, "x", "y", "z"] if payload != "postgres" else [None, "x", "y", UNAVAILABLE]
    values = [key, "ab"[int(key[1:]) % 2], ts, draw.choice(texts), draw.choice([None, 1, 2, 3])]
    marks = [
        "D" if gone else "U",
        "d" if gone else "u",
        f"{draw.randrange(3)}.{draw.randrange(20)}",
        draw.randrange(20),
        gone and draw.random() < 0.5,
    ]
    if payload not in ("dms", "mysql", "postgres"):
        marks[-1] = gone
    return dict(zip(SCHEMA.names, [*values, *marks], strict=True))
