"""Combinations of merge mode, payload class and strategy id resolve as in Apache Hudi."""

from __future__ import annotations

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.format.table_versions import TableVersion
from pyhudi.records.merge_mode import (
    COMMIT_TIME_STRATEGY,
    DEFAULT_PAYLOAD,
    EVENT_TIME_STRATEGY,
    MODEL_PACKAGE,
    OVERWRITE_PAYLOAD,
    PAYLOAD_STRATEGY,
    MergeMode,
    MergeSettings,
    infer_merge_settings,
)
from pyhudi.records.ordering import Ordering

COMMIT, EVENT, CUSTOM = MergeMode.COMMIT_TIME_ORDERING, MergeMode.EVENT_TIME_ORDERING, MergeMode.CUSTOM
PARTIAL = MODEL_PACKAGE + "PartialUpdateAvroPayload"
OWN = "5c9a3d1e-0000-0000-0000-0000000000aa"


def infer(
    mode: str | None = None, payload: str | None = None, sid: str | None = None, ts: str | None = None, version: int = 8
) -> MergeSettings:
    known = TableVersion(version)
    return infer_merge_settings(mode=mode, payload_class=payload, strategy_id=sid, ordering_field=ts, version=known)


def by_commit(ts: str | None = None) -> MergeSettings:
    return MergeSettings(COMMIT, COMMIT_TIME_STRATEGY, OVERWRITE_PAYLOAD, Ordering.by(ts))


def by_event(ts: str | None = None) -> MergeSettings:
    return MergeSettings(EVENT, EVENT_TIME_STRATEGY, DEFAULT_PAYLOAD, Ordering.by(ts))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, by_commit()),
        ({"ts": "ts"}, by_event("ts")),
        ({"mode": "COMMIT_TIME_ORDERING", "ts": "ts"}, by_commit("ts")),
        ({"mode": "EVENT_TIME_ORDERING"}, by_event()),
        ({"payload": DEFAULT_PAYLOAD}, by_event()),
        ({"payload": OVERWRITE_PAYLOAD, "ts": "ts"}, by_commit("ts")),
        ({"payload": PARTIAL, "ts": "ts"}, MergeSettings(CUSTOM, PAYLOAD_STRATEGY, PARTIAL, Ordering.by("ts"))),
        ({"sid": EVENT_TIME_STRATEGY}, by_event()),
        ({"sid": COMMIT_TIME_STRATEGY}, by_commit()),
        ({"sid": OWN}, MergeSettings(CUSTOM, OWN, DEFAULT_PAYLOAD, Ordering())),
        ({"sid": OWN, "payload": DEFAULT_PAYLOAD}, MergeSettings(CUSTOM, OWN, DEFAULT_PAYLOAD, Ordering())),
        ({"sid": OWN, "payload": PARTIAL}, MergeSettings(CUSTOM, OWN, PARTIAL, Ordering())),
        ({"mode": "CUSTOM", "payload": PARTIAL}, MergeSettings(CUSTOM, PAYLOAD_STRATEGY, PARTIAL, Ordering())),
        ({"mode": "custom", "sid": OWN}, MergeSettings(CUSTOM, OWN, DEFAULT_PAYLOAD, Ordering())),
        ({"mode": "", "payload": "", "sid": "", "ts": ""}, by_commit()),
        ({"payload": "com.uber.hoodie.common.model.DefaultHoodieRecordPayload"}, by_event()),
    ],
)
def test_inference(given: dict[str, str], expected: MergeSettings) -> None:
    assert infer(**given) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sid": PAYLOAD_STRATEGY}, "requires a payload class"),
        ({"mode": "CUSTOM"}, "requires a payload class"),
        ({"mode": "EVENT_TIME_ORDERING", "payload": OVERWRITE_PAYLOAD}, "contradicts"),
        ({"mode": "COMMIT_TIME_ORDERING", "payload": DEFAULT_PAYLOAD}, "contradicts"),
        ({"mode": "CUSTOM", "payload": DEFAULT_PAYLOAD}, "contradicts"),
        ({"mode": "EVENT_TIME_ORDERING", "payload": PARTIAL}, "contradicts"),
        ({"mode": "EVENT_TIME_ORDERING", "sid": COMMIT_TIME_STRATEGY}, "contradicts"),
        ({"sid": EVENT_TIME_STRATEGY, "payload": OVERWRITE_PAYLOAD}, "contradict each other"),
        ({"sid": COMMIT_TIME_STRATEGY, "payload": PARTIAL}, "contradict each other"),
        ({"mode": "BOGUS"}, "BOGUS"),
    ],
)
def test_contradictions(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        infer(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("payload", "sid", "expected"),
    [
        # Before version 8 the payload class has the say, and the strategy id follows it.
        (OVERWRITE_PAYLOAD, EVENT_TIME_STRATEGY, by_commit()),
        (PARTIAL, COMMIT_TIME_STRATEGY, MergeSettings(CUSTOM, PAYLOAD_STRATEGY, PARTIAL, Ordering())),
        (PARTIAL, OWN, MergeSettings(CUSTOM, PAYLOAD_STRATEGY, PARTIAL, Ordering())),
        (None, OWN, MergeSettings(CUSTOM, OWN, DEFAULT_PAYLOAD, Ordering())),
    ],
)
def test_merge_mode_of_tables_before_version_8(payload: str | None, sid: str, expected: MergeSettings) -> None:
    assert infer(payload=payload, sid=sid, version=6) == expected


def test_merge_mode_by_payload_class() -> None:
    assert infer(payload=PARTIAL).by_payload
    assert not infer(sid=OWN, payload=PARTIAL).by_payload
    assert not infer(ts="ts").by_payload
