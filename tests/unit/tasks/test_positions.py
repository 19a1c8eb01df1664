"""Record positions in log files: when they are written, and that merging by them is merging by key without looking keys up."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.log.framing import BlockType, HeaderKey
from pyhudi.format.log.record_positions import decode_positions, encode_positions
from pyhudi.records.record_merge import CommitTimeRule, EventTimeRule, RecordMergeRule
from tests.support.positioned_logs import BASE_TIME, Group, rows

OF = HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS


def test_updates_and_deletes_record_row_positions() -> None:
    group = Group.of(list(range(40)))
    keys = rows([31, 3, 39, 0, 17, 5], 20, frozenset({17}))
    log = group.append(keys, [False, False, False, False, False, True])
    data, deletes = group.blocks(log)
    assert (data.kind, deletes.kind) == (BlockType.AVRO, BlockType.DELETE)
    assert data.header(OF) == deletes.header(OF) == BASE_TIME
    assert decode_positions(data.required(HeaderKey.RECORD_POSITIONS), 4).tolist() == [0, 3, 31, 39]
    assert decode_positions(deletes.required(HeaderKey.RECORD_POSITIONS), 2).tolist() == [5, 17]
    assert group.scan().records.positions is not None
    assert group.read() == group.read(use_positions=False)
    assert group.read(["v"])[:2] == [("v10-1",), ("v10-10",)]
    assert len(group.read(["v"])) == 38


@pytest.mark.sample(5)
@pytest.mark.parametrize("rule", [EventTimeRule("ts"), CommitTimeRule()])
@pytest.mark.parametrize("seed", range(6))
def test_merging_by_position_is_merging_by_key(rule: RecordMergeRule, seed: int) -> None:
    chance = random.Random(seed)
    group = Group.of(chance.sample(range(200), 60), rule)
    present = [int(str(row[0])[1:]) for row in group.read(["id"])]
    for _ in range(4):
        chosen = chance.sample(present, 15)
        soft = frozenset(chance.sample(chosen, 3))
        plain = [chance.random() < 0.15 for _ in chosen]
        group.append(rows(chosen, chance.choice([5, 10, 15, 20]), soft), plain)
        # A delete of a missing record is omitted, so there are always positions.
        assert group.scan().records.positions is not None
        for columns in (None, ["v"], ["id", "ts"]):
            assert group.read(columns) == group.read(columns, use_positions=False)


def test_record_without_a_base_row_omits_positions_of_the_log() -> None:
    group = Group.of([1, 2, 3])
    log = group.append(rows([2, 9], 20, frozenset({2})))
    assert all(block.header(HeaderKey.RECORD_POSITIONS) is None and block.header(OF) is None for block in group.blocks(log))
    assert len(group.blocks(log)) == 2
    assert group.scan().records.positions is None
    assert [row[0] for row in group.read(["id"])] == ["k0001", "k0003", "k0009"]


def test_a_key_that_the_base_file_holds_twice_has_no_position() -> None:
    group = Group.of([], schema_rows=rows([4, 4, 5], 10))
    log = group.append(rows([4], 20))
    assert group.blocks(log)[0].header(HeaderKey.RECORD_POSITIONS) is None
    assert group.read(["id", "ts"]) == [("k0004", 20), ("k0004", 20), ("k0005", 10)]


def test_positions_are_omitted_when_disabled() -> None:
    group = Group.of([1, 2, 3])
    log = group.append(rows([2], 20), options={"hoodie.write.record.positions": False})
    assert group.blocks(log)[0].header(HeaderKey.RECORD_POSITIONS) is None


@pytest.mark.parametrize(
    "headers",
    [
        {OF.name: "20250101000000000"},
        {OF.name: None},
        {HeaderKey.RECORD_POSITIONS.name: None},
        {HeaderKey.RECORD_POSITIONS.name: encode_positions(np.arange(5, dtype=np.int64))},
        {HeaderKey.RECORD_POSITIONS.name: encode_positions(np.arange(1, dtype=np.int64))},
        {HeaderKey.RECORD_POSITIONS.name: encode_positions(np.arange(0, dtype=np.int64))},
    ],
    ids=["another base file", "no base file", "no positions", "too many", "too few", "empty"],
)
@pytest.mark.parametrize("first", [True, False])
def test_invalid_positions_fall_back_to_keys(headers: dict[str, str | None], first: bool) -> None:
    group = Group.of(list(range(20)))
    logs = [group.append(rows([7, 3], 20)), group.append(rows([3, 11], 30))]
    group.rewrite(logs[0 if first else 1], **headers)
    assert group.scan().records.positions is None
    assert group.read(["id", "ts"])[3] == ("k0003", 30)
    assert group.read() == group.read(use_positions=False)


def test_positions_of_other_rows_are_found_out_where_keys_are_read() -> None:
    group = Group.of(list(range(20)))
    log = group.append(rows([7, 3], 20))
    group.rewrite(log, RECORD_POSITIONS=encode_positions(np.array([3, 8], np.int64)))
    with pytest.raises(CorruptData, match=r"row 8 has another key.*use\.record\.positions=false") as failure:
        group.read()
    assert failure.value.path is not None
    assert failure.value.path.endswith(".parquet")
    assert len(group.read(use_positions=False)) == 20


def test_positions_beyond_the_base_file() -> None:
    group = Group.of(list(range(20)))
    log = group.append(rows([7, 3], 20))
    group.rewrite(log, RECORD_POSITIONS=encode_positions(np.array([3, 20], np.int64)))
    with pytest.raises(CorruptData, match="exceed the base file, which has 20 rows"):
        group.read(["v"])


@pytest.mark.parametrize("text", ["!", "AAAA", "AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAMAEAAAABgAMQDqAO8"])
def test_damaged_positions_name_file_and_block(text: str) -> None:
    group = Group.of(list(range(20)))
    log = group.append(rows([7, 3], 20))
    group.rewrite(log, RECORD_POSITIONS=text)
    with pytest.raises(CorruptData, match="record positions") as failure:
        group.read()
    assert failure.value.offset == 0
    assert failure.value.path is not None
    assert failure.value.path.endswith(log.name.text)
