"""Truth tables of payload classes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import pyhudi as hp
from pyhudi.records.record_merge import choose_rows

MODEL = "org.apache.hudi.common.model."
PAYLOADS = {
    "OwL": MODEL + "OverwriteWithLatestAvroPayload",
    "Def": MODEL + "DefaultHoodieRecordPayload",
    "EvT": MODEL + "EventTimeAvroPayload",
    "OND": MODEL + "OverwriteNonDefaultsWithLatestAvroPayload",
    "PU": MODEL + "PartialUpdateAvroPayload",
    "FV": MODEL + "FirstValueAvroPayload",
    "Dms": MODEL + "AWSDmsAvroPayload",
    "My": MODEL + "debezium.MySqlDebeziumAvroPayload",
    "Pg": MODEL + "debezium.PostgresDebeziumAvroPayload",
}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
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
UNAVAILABLE = "__debezium_unavailable_value"
OLD = (5, "old", 1)
GONE = None
# Case -> incoming rows (ts, a, b, Op, change type, deleted), and what each payload leaves: one value, or one for each table type.
CASES: dict[str, tuple[list[tuple[Any, ...]], dict[str, Any]]] = {
    "earlier": (
        [(3, "new", 2)],
        {
            "OwL": (3, "new", 2),
            "Def": OLD,
            "EvT": OLD,
            "OND": (3, "new", 2),
            "PU": OLD,
            "FV": OLD,
            "Dms": (3, "new", 2),
            "My": OLD,
            "Pg": OLD,
        },
    ),
    "tie": ([(5, "new", 2)], dict.fromkeys(PAYLOADS, (5, "new", 2)) | {"FV": OLD, "My": OLD}),
    "later": ([(7, "new", 2)], dict.fromkeys(PAYLOADS, (7, "new", 2))),
    "later with a null": ([(7, None, 2)], dict.fromkeys(PAYLOADS, (7, None, 2)) | {"OND": (7, "old", 2), "PU": (7, "old", 2)}),
    "earlier with a null": (
        [(3, None, 2)],
        {
            "OwL": (3, None, 2),
            "Def": OLD,
            "EvT": OLD,
            "OND": (3, "old", 2),
            "PU": OLD,
            "FV": OLD,
            "Dms": (3, None, 2),
            "My": OLD,
            "Pg": OLD,
        },
    ),
    "earlier delete": (
        [(3, "new", 2, "U", "u", True)],
        dict.fromkeys(PAYLOADS, OLD) | {"OwL": GONE} | dict.fromkeys(("EvT", "OND", "PU", "Dms"), (GONE, OLD)),
    ),
    "delete at a tie": (
        [(5, "new", 2, "U", "u", True)],
        dict.fromkeys(PAYLOADS, GONE) | dict.fromkeys(("FV", "My"), (OLD, GONE)),
    ),
    "later delete": ([(7, "new", 2, "U", "u", True)], dict.fromkeys(PAYLOADS, GONE)),
    "later Op=D": ([(7, "new", 2, "D")], dict.fromkeys(PAYLOADS, (7, "new", 2)) | {"Dms": GONE}),
    "earlier Op=D": (
        [(3, "new", 2, "D")],
        dict.fromkeys(PAYLOADS, OLD) | dict.fromkeys(("OwL", "OND"), (3, "new", 2)) | {"Dms": (GONE, OLD)},
    ),
    "later change d": ([(7, "new", 2, "U", "d")], dict.fromkeys(PAYLOADS, (7, "new", 2)) | {"My": GONE, "Pg": GONE}),
    "earlier change d": (
        [(3, "new", 2, "U", "d")],
        dict.fromkeys(PAYLOADS, OLD) | dict.fromkeys(("OwL", "OND", "Dms"), (3, "new", 2)),
    ),
    "batch": ([(7, "n7", 2), (6, "n6", 3)], dict.fromkeys(PAYLOADS, (7, "n7", 2)) | {"OwL": (6, "n6", 3)}),
    "batch with a tie": ([(7, "nA", 1), (7, "nB", 1)], dict.fromkeys(PAYLOADS, (7, "nB", 1)) | {"FV": (7, "nA", 1)}),
    "batch with a delete": (
        [(7, "n7", 2, "U", "u", True), (6, "n6", 3)],
        dict.fromkeys(PAYLOADS, GONE) | dict.fromkeys(("OwL", "PU"), (6, "n6", 3)),
    ),
    "batch with nulls": (
        [(7, "n7", None), (6, None, 3)],
        dict.fromkeys(PAYLOADS, (7, "n7", None)) | {"OwL": (6, None, 3), "OND": (7, "n7", 1), "PU": (7, "n7", 3)},
    ),
    "unavailable": ([(7, UNAVAILABLE, 2)], dict.fromkeys(PAYLOADS, (7, UNAVAILABLE, 2)) | {"Pg": (7, "old", 2)}),
    "new key": ([(7, "new", 2)], dict.fromkeys(PAYLOADS, (7, "new", 2))),
    "new key deleted": ([(7, "new", 2, "U", "u", True)], dict.fromkeys(PAYLOADS, GONE)),
    "new key Op=D": ([(7, "new", 2, "D")], dict.fromkeys(PAYLOADS, (7, "new", 2)) | {"Dms": GONE}),
    "new key change d": ([(7, "new", 2, "U", "d")], dict.fromkeys(PAYLOADS, (7, "new", 2)) | {"My": GONE, "Pg": GONE}),
}


def record(
    key: str, ts: int, a: str | None, b: int | None, op: str = "U", change: str = "u", deleted: bool = False
) -> dict[str, Any]:
    return dict(zip(SCHEMA.names, [key, ts, a, b, op, change, f"1.{ts}", ts, deleted], strict=True))


def values(table: hp.Table) -> list[tuple[Any, ...]]:
    return [(row["ts"], row["a"]) for row in table.scan().to_arrow().to_pylist()]


class KeepHighest:
    """The record with the larger score stays; equal scores keep the older one."""

    strategy_id = "0b2fbb1c-6a8b-4b5b-9d3e-2f3a53d1f001"

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, None]:
        return choose_rows(older, newer, pc.greater(newer["score"], older["score"]).to_numpy()), None


def scores(**values: int) -> pa.Table:
    return pa.table({"id": list(values), "score": list(values.values())})
