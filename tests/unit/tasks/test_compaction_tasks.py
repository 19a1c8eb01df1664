"""Tasks of compactions on slices made by hand, also such as only foreign writers leave behind."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import TableState
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.log.data_blocks import encode_avro
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock
from pyhudi.format.names import MarkerType, WriteToken
from pyhudi.records.ordering import Ordering
from pyhudi.records.payloads import payload_rule
from pyhudi.records.record_merge import RecordMergeRule
from pyhudi.storage.markers import Markers
from pyhudi.tasks.base_file_reader import footer_filter
from pyhudi.tasks.compaction_tasks import CompactionTask, run_compact
from pyhudi.tasks.log_compaction_tasks import run_log_compact, run_log_headers
from pyhudi.tasks.log_scan import find_blocks
from tests.support.log_slices import (
    BASE_TIME,
    COMMIT,
    EVENT,
    FILE_ID,
    LATER,
    PLAN_TIME,
    SCHEMA,
    Block,
    Slice,
    data,
    delete,
    plain_delete,
    stored,
    time,
)


def partial(number: int, *rows: tuple[Any, ...]) -> Block:
    """Rows without their value where that is not given, be it in all of them."""
    width = len(rows[0])
    whole = stored(time(number), [(*row, 0)[:3] for row in rows], FILE_ID)
    some = whole.drop_columns(["_hoodie_is_deleted", *(["value"] if width == 2 else ["id"])])
    avro = arrow_to_avro(some.schema, "t")
    return BlockType.AVRO, {HeaderKey.SCHEMA: avro, HeaderKey.IS_PARTIAL: "true"}, encode_avro(avro, some.to_batches())


def test_a_compaction_merges_and_keeps_meta_columns() -> None:
    slice_ = Slice([("a", 5, 1), ("b", 5, 2), ("c", 5, 3), ("d", 5, 4)])
    slice_.log(1, data(1, ("a", 6, 10), ("d", 1, 40), ("e", 1, 50))).log(2, delete(b=5), data(2, ("a", 5, 11)))
    assert slice_.rows() == [("a", 6, 10), ("c", 5, 3), ("d", 5, 4), ("e", 1, 50)]
    stat, written = slice_.compact()
    name = f"{FILE_ID}_3-4-5_{PLAN_TIME}.parquet"
    assert stat.path == f"p/{name}"
    assert {row["id"]: (row["_hoodie_commit_time"], row["value"]) for row in written.to_pylist()} == {
        "a": (time(1), 10),
        "c": (BASE_TIME, 3),
        "d": (BASE_TIME, 4),
        "e": (time(1), 50),
    }
    assert set(written["_hoodie_file_name"].to_pylist()) == {name}
    assert (stat.prev_commit, stat.prev_base_file) == (BASE_TIME, slice_.base_name)
    assert (stat.num_writes, stat.num_inserts, stat.num_update_writes, stat.num_deletes) == (4, 2, 2, 1)
    assert (stat.total_log_files_compacted, stat.total_log_blocks, stat.total_log_records) == (2, 3, 5)
    assert stat.total_updated_records_compacted == 4
    assert stat.total_log_size_compacted == sum(slice_._log_file(log).size_bytes for log in slice_.logs)
    assert Markers(slice_.storage, PLAN_TIME).list() == ((f"p/{name}", MarkerType.MERGE),)
    assert stat.path is not None
    with slice_.storage.open_input(stat.path) as source:
        written_filter = footer_filter(pq.ParquetFile(source).metadata)
    assert written_filter is not None
    assert written_filter.might_contain(pa.array(["a", "c", "d", "e"])).all()
    assert pickle.loads(pickle.dumps(slice_.spec)).instant_time == PLAN_TIME


def test_compaction_of_logs_alone_writes_a_base_file() -> None:
    stat, written = Slice(None).log(1, data(1, ("a", 1, 1), ("b", 1, 2))).log(2, delete(a=3)).compact()
    assert written["id"].to_pylist() == ["b"]
    assert (stat.prev_commit, stat.prev_base_file, stat.num_inserts, stat.num_update_writes) == ("null", None, 1, 0)


def test_no_file_is_written_for_a_file_group_without_rows() -> None:
    slice_ = Slice(None).log(1, data(1, ("a", 1, 1))).log(2, plain_delete("a"))
    assert run_compact(slice_.spec, slice_.task()) is None
    assert [info.path for info in slice_.storage.walk("p")] == [f"p/{log}" for log in sorted(slice_.logs)]
    assert Markers(slice_.storage, PLAN_TIME).list() == ()


def test_a_base_file_whose_rows_are_all_deleted_is_followed_by_an_empty_one() -> None:
    stat, written = Slice([("a", 1, 1), ("b", 1, 2)]).log(1, plain_delete("a", "b")).compact()
    assert (written.num_rows, stat.num_writes, stat.num_deletes) == (0, 0, 2)
    assert written.schema.names == SCHEMA.names


@pytest.mark.parametrize("task", [run_compact, run_log_compact])
def test_missing_file_of_a_plan_is_reported(task) -> None:  # type: ignore[no-untyped-def]
    slice_ = Slice([("a", 1, 1)]).log(1, data(1, ("a", 2, 2)))
    slice_.storage.delete([f"p/{slice_.logs[0]}"])
    with pytest.raises(TableState, match="but is missing"):
        task(slice_.spec, slice_.task())


LOGS = {
    "updates": lambda s: s.log(1, data(1, ("a", 6, 10))).log(2, data(2, ("a", 7, 11), ("z", 1, 1))),
    "older update": lambda s: s.log(1, data(1, ("a", 3, 10))).log(2, data(2, ("b", 4, 11))),
    "delete": lambda s: s.log(1, data(1, ("a", 6, 10))).log(2, delete(a=6, b=5)),
    "late delete": lambda s: s.log(1, data(1, ("a", 6, 10))).log(2, delete(a=5, b=4)),
    "plain delete": lambda s: s.log(1, data(1, ("a", 6, 10))).log(2, plain_delete("a", "b")),
    # What Apache Hudi cannot read back: the record is older than the base row, which the delete took away.
    "plain delete, then a record": lambda s: s.log(1, plain_delete("a")).log(2, data(2, ("a", 3, 12))),
    "plain delete, then a delete": lambda s: s.log(1, plain_delete("a")).log(2, delete(a=7)),
    "soft delete": lambda s: s.log(1, data(1, ("a", 6, 0), deleted=True)).log(2, data(2, ("b", 9, 9), deleted=True)),
    "partial updates": lambda s: s.log(1, partial(1, ("a", 6))).log(2, partial(2, ("b", 6, 11), ("a", 5, 12))),
    "older partial update": lambda s: s.log(1, partial(1, ("a", 4, 10))).log(2, partial(2, ("a", 3))),
    "partial update, then a record": lambda s: s.log(1, partial(1, ("a", 6, 10))).log(2, data(2, ("a", 7, 11))),
    "record, then a partial update": lambda s: s.log(1, data(1, ("a", 6, 10), ("z", 6, 1))).log(
        2, partial(2, ("a", 7), ("b", 4))
    ),
    "partial update and a delete": lambda s: s.log(1, partial(1, ("a", 6, 10)), partial(1, ("b", 6))).log(2, delete(a=6)),
    # No record is left, and the delete is the older one: but among partial updates it counts.
    "nothing but deletes": lambda s: s.log(1, partial(1, ("a", 6, 10))).log(2, delete(a=6, b=1)),
    "plain delete, then a partial update": lambda s: s.log(1, plain_delete("a")).log(2, partial(2, ("a", 3, 12))),
    "revived": lambda s: s.log(1, data(1, ("a", 6, 0), deleted=True)).log(2, data(2, ("a", 6, 13))),
}
AFTER = {
    "nothing": (),
    "older": (data(LATER, ("a", 4, 90), ("b", 4, 91)),),
    "between": (data(LATER, ("a", 6, 90), ("b", 6, 91)),),
    "newer part": (partial(LATER, ("a", 9, 90), ("b", 9, 91)),),
    "older part": (partial(LATER, ("a", 4, 90), ("b", 1, 91)),),
    "newer": (data(LATER, ("a", 9, 90), ("b", 9, 91)),),
    "deletes": (delete(a=6, b=5, z=0),),
}


@pytest.mark.parametrize(
    ("logs", "after", "based", "rule"),
    [
        # Each logs with each of what comes after them, and either with and without a base file by either rule.
        pytest.param(
            logs,
            after,
            based,
            rule,
            id=f"{logs}-{after}-{'based' if based else 'logs alone'}-{'event time' if rule is EVENT else 'commit time'}",
            marks=pytest.mark.wide if (place + later + 2 * based + (rule is EVENT)) % 4 else (),
        )
        for place, logs in enumerate(LOGS)
        for later, after in enumerate(AFTER)
        for based in (True, False)
        for rule in (EVENT, COMMIT)
    ],
)
@pytest.mark.sample(37)
def test_a_log_compaction_changes_nothing_for_readers(logs: str, after: str, based: bool, rule: RecordMergeRule) -> None:
    """Neither at once, nor when more follows; whether the merged blocks are skipped or read as well."""
    base = [("a", 5, 1), ("b", 5, 2)] if based else None
    raw, merged = LOGS[logs](Slice(base, rule)), LOGS[logs](Slice(base, rule))
    stat, name = merged.log_compact()
    merged.logs.append(name)
    assert stat.num_writes == stat.num_update_writes
    assert (stat.num_inserts, stat.log_files, stat.total_log_files_compacted) == (0, (name,), 2)
    expected_times = f"{time(2)},{time(1)}"
    headers = run_log_headers(merged.storage.spec(), merged.spec.reader.validity, merged._log_file(name)).blocks
    assert all(block.header(HeaderKey.COMPACTED_BLOCK_TIMES) == expected_times for block in headers)  # type: ignore[union-attr]
    for slice_ in (raw, merged):
        if AFTER[after]:
            slice_.log(LATER, *AFTER[after])
    expected = raw.rows()
    assert merged.rows() == expected
    validity = merged.spec.reader.validity
    files = [merged._log_file(log) for log in merged.logs]
    covered, _, _ = find_blocks(merged.storage, files, validity)
    every, _, _ = find_blocks(merged.storage, files, validity, skip_compacted=False)
    assert [f.block for f in covered] == [f.block for f in every if f.block.instant_time not in (time(1), time(2))]
    merged.without_header(name)
    assert merged.rows() == expected
    assert run_compact(merged.spec, merged.task()) is None or sorted(merged.compact()[1]["id"].to_pylist(), key=str) == sorted(
        (row[0] for row in expected), key=str
    )


def test_merged_block_has_the_position_of_its_newest_source() -> None:
    """A write requested before the log compaction, completed after it and not merged: its record is newer than the merged one."""
    slice_ = Slice([("a", 5, 1)], COMMIT).log(1, data(1, ("a", 6, 10)))
    _, name = slice_.log_compact()
    slice_.logs.append(name)
    slice_.log(2, data(2, ("a", 6, 20)))
    assert time(2) < PLAN_TIME
    assert slice_.rows() == [("a", 6, 20)]


def test_a_log_compaction_of_a_log_compaction() -> None:
    slice_ = Slice([("a", 5, 1)], COMMIT).log(1, data(1, ("a", 6, 10))).log(2, data(2, ("b", 6, 10)))
    first = CompactionTask("p", FILE_ID, slice_.base_name, tuple(slice_.logs), WriteToken(0, 0, 0))
    early = replace(slice_.spec, instant_time=time(3))
    status = run_log_compact(early, first)
    assert status is not None
    assert status.stat.path is not None
    slice_.logs.append(status.stat.path.removeprefix("p/"))
    slice_.instants.append(time(3))
    slice_.log(4, plain_delete("b"))
    _, name = slice_.log_compact()
    slice_.logs.append(name)
    blocks, _, _ = find_blocks(slice_.storage, [slice_._log_file(log) for log in slice_.logs], slice_.spec.reader.validity)
    assert {found.block.instant_time for found in blocks} == {PLAN_TIME}
    assert {found.block.compacted_block_times for found in blocks} == {(time(4), time(3))}
    assert slice_.rows() == [("a", 6, 10)]


def test_partial_updates_are_merged_to_partial_blocks() -> None:
    slice_ = Slice([("a", 5, 1), ("b", 5, 2), ("c", 5, 3)])
    slice_.log(1, partial(1, ("a", 6, 10), ("b", 6, 11)), data(1, ("c", 6, 12))).log(2, partial(2, ("a", 7), ("c", 7)))
    stat, name = slice_.log_compact()
    assert (stat.num_writes, stat.total_log_blocks) == (3, 3)
    blocks = run_log_headers(slice_.storage.spec(), slice_.spec.reader.validity, slice_._log_file(name)).blocks
    held = [(b.is_partial, json.loads(b.required(HeaderKey.SCHEMA))["fields"]) for b in blocks if isinstance(b, LogBlock)]
    assert [(is_partial, [field["name"] for field in fields[5:]]) for is_partial, fields in held] == [
        (True, ["id", "ts", "value"]),
        (True, ["ts", "value"]),
        (False, ["id", "ts", "value", "_hoodie_is_deleted"]),
    ]
    slice_.logs, rows = [name], slice_.rows()
    assert rows == [("a", 7, 10), ("b", 6, 11), ("c", 7, 12)]


def test_log_compaction_of_hudi_does_not_replace_partial_updates() -> None:
    """It skips their rows, writes only the complete ones, and lists all instants as merged."""
    slice_ = Slice([("a", 5, 1), ("b", 5, 2)]).log(1, partial(1, ("a", 6, 10))).log(2, data(2, ("b", 6, 11)))
    kind, headers, content = data(3, ("b", 6, 11))
    slice_.log(3, (kind, {**headers, HeaderKey.COMPACTED_BLOCK_TIMES: f"{time(2)},{time(1)}"}, content))
    assert slice_.rows() == [("a", 6, 10), ("b", 6, 11)]
    # PyHudi's merges them again, and lists only what it merged.
    _, name = slice_.log_compact()
    slice_.logs = [name]
    assert slice_.rows() == [("a", 6, 10), ("b", 6, 11)]


# What Apache Hudi 1.0.2 was seen to leave of "a"; "z" is there for its partial update.
AMONG_PARTIAL = {
    "the record before it in the log is newer": ([partial(1, ("a", 20, 2))], [delete(a=15)], ("a", 20, 2)),
    "the record before it in the log is older": ([partial(1, ("a", 20, 2))], [delete(a=25)], None),
    "the base row is newer": ([partial(1, ("z", 20, 2))], [delete(a=5)], None),
    "a newer row before the first partial update": (
        [data(1, ("a", 20, 2))],
        [delete(a=15), partial(2, ("z", 20, 2))],
        ("a", 20, 2),
    ),
    "an older row after it": ([partial(1, ("z", 20, 2))], [delete(a=25), data(2, ("a", 22, 3))], ("a", 22, 3)),
    "an older row after it, then the first partial update": (
        [delete(a=25)],
        [data(2, ("a", 22, 3)), partial(2, ("z", 20, 2))],
        None,
    ),
    "a row after it that is older than the base row": (
        [partial(1, ("a", 20, 2))],
        [delete(a=25), data(2, ("a", 7, 3))],
        ("a", 10, 1),
    ),
}


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("case", AMONG_PARTIAL)
def test_deletes_among_partial_updates(case: str, merged: bool) -> None:
    first, second, left = AMONG_PARTIAL[case]
    slice_ = Slice([("a", 10, 1), ("z", 10, 1)]).log(1, *first).log(2, *second)
    if merged:
        slice_.logs = [slice_.log_compact()[1]]
    assert [row for row in slice_.rows() if row[0] == "a"] == ([] if left is None else [left])


def test_late_partial_update_competes_by_its_own_ordering_value() -> None:
    """The merged row has the larger ordering value, and a delete between the two wins all the same: it is written twice."""
    rule = payload_rule("org.apache.hudi.common.model.PartialUpdateAvroPayload", Ordering.by("ts"))
    assert rule is not None
    for merged in (False, True):
        slice_ = Slice([("a", 1, 1), ("b", 1, 1)], rule)
        slice_.log(1, data(1, ("a", 9, 10), ("b", 9, 10))).log(2, data(2, ("a", 5, 11), ("b", 5, 11)))
        if merged:
            name = slice_.log_compact()[1]
            slice_.logs.append(name)
        assert slice_.rows() == [("a", 9, 10), ("b", 9, 10)]
        slice_.log(LATER, delete(a=7, b=4))
        assert slice_.rows() == [("b", 9, 10)]
        if merged:
            slice_.without_header(name)
            assert slice_.rows() == [("b", 9, 10)]


def test_log_compaction_of_hudi_is_ignored_with_a_payload_class() -> None:
    """It merges by the larger ordering value: under a class by which the last change wins its block holds an older one."""
    rule = payload_rule("org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload", Ordering.by("ts"))
    assert rule is not None
    slice_ = Slice([("a", 1, 1), ("b", 1, 1)], rule).log(1, data(1, ("a", 9, 10))).log(2, data(2, ("a", 5, 11), ("b", 5, 11)))
    kind, headers, content = data(3, ("b", 4, 12))
    slice_.log(3, (kind, {**headers, HeaderKey.COMPACTED_BLOCK_TIMES: f"{time(2)},{time(1)}"}, content))
    # The old blocks are read, and its own as an ordinary one, as its own readers do.
    assert slice_.rows() == [("a", 5, 11), ("b", 4, 12)]
    name = slice_.log_compact()[1]
    slice_.logs = [name]
    assert slice_.rows() == [("a", 5, 11), ("b", 4, 12)], "ours stands for all of them"
    slice_.logs, only_deletes = [], Slice([("a", 1, 1)], rule).log(1, plain_delete("a"))
    only_deletes.logs = [only_deletes.log_compact()[1]]
    blocks = run_log_headers(
        only_deletes.storage.spec(), only_deletes.spec.reader.validity, only_deletes._log_file(only_deletes.logs[0])
    )
    assert [block.kind for block in blocks.blocks if isinstance(block, LogBlock)] == [BlockType.DELETE, BlockType.DELETE]
    assert only_deletes.rows() == []
