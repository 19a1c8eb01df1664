"""Each payload class on both table types: merges with stored records and within a batch.

The expected results were measured on Apache Hudi 1.0.2.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest, Unsupported
from tests.support.payload_cases import CASES, OLD, PAYLOADS, SCHEMA, KeepHighest, record, scores, values

MOVING = {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "true"}
OPTIONS = {"hoodie.index.bloom.num_entries": "100", "hoodie.parquet.small.file.limit": "0"}


@pytest.mark.sample(9)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_truth_table(payload: str, table_type: str) -> None:
    uri = f"memory://payload-{payload}-{table_type}"
    table = hp.Table.create(
        uri,
        name="p",
        record_key="id",
        ordering="ts",
        table_type=table_type,
        options={"hoodie.datasource.write.payload.class": PAYLOADS[payload]},
    )
    stored = [record(case, *OLD) for case in CASES if not case.startswith("new key")]
    table.insert(pa.Table.from_pylist(stored, schema=SCHEMA), options=OPTIONS)
    incoming = [record(case, *row) for case, (rows, _) in CASES.items() for row in rows]
    table.upsert(pa.Table.from_pylist(incoming, schema=SCHEMA), options=OPTIONS)
    found = {row["id"]: (row["ts"], row["a"], row["b"]) for row in table.scan().to_arrow().to_pylist()}
    for case, (_, expected) in CASES.items():
        wanted = expected[payload]
        if wanted is not None and len(wanted) == 2:
            wanted = wanted[table_type == "mor"]
        assert found.get(case) == wanted, case


@pytest.mark.sample(10)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_truth_table_of_records_that_move(payload: str, table_type: str) -> None:
    """A merged record has the same values as without a move, and is stored where its columns say it belongs."""
    table = hp.Table.create(
        f"memory://payload-{uuid.uuid4()}",
        name="p",
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=table_type,
        options={"hoodie.datasource.write.payload.class": PAYLOADS[payload]},
    )
    stored = pa.Table.from_pylist([record(case, *OLD) for case in CASES if not case.startswith("new key")], schema=SCHEMA)
    table.insert(stored.append_column("part", pa.repeat("old", stored.num_rows)), options=OPTIONS)
    incoming = pa.Table.from_pylist([record(case, *row) for case, (rows, _) in CASES.items() for row in rows], schema=SCHEMA)
    table.upsert(incoming.append_column("part", pa.repeat("new", incoming.num_rows)), options={**OPTIONS, **MOVING})
    rows = table.scan(["*"]).to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    found = {row["id"]: (row["ts"], row["a"], row["b"]) for row in rows}
    for row in rows:
        newer = row["ts"] != OLD[0] or row["id"].startswith("new key") or row["a"] != OLD[1]
        assert (row["_hoodie_partition_path"], row["part"]) == (("new", "new") if newer else ("old", "old")), row
    for case, (_, expected) in CASES.items():
        wanted = expected[payload]
        if wanted is not None and len(wanted) == 2:
            wanted = wanted[table_type == "mor"]
        assert found.get(case) == wanted, case


def of_payload(payload: str) -> hp.Table:
    """A table with one record in a base file, key `x`, and logs for all that follows."""
    options = {"hoodie.datasource.write.payload.class": PAYLOADS[payload], "hoodie.compact.inline": "false", **OPTIONS}
    uri = f"memory://payload-{uuid.uuid4()}"
    table = hp.Table.create(uri, name="p", record_key="id", ordering="ts", table_type="mor", options=options)
    upsert(table, record("x", 5, "old", 1))
    return table


def upsert(table: hp.Table, *records: dict[str, Any]) -> None:
    table.upsert(pa.Table.from_pylist(list(records), schema=SCHEMA), options=OPTIONS)


KEY = pa.table({"id": ["x"]})


@pytest.mark.sample(1)
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_delete_by_key_outranks_every_row_that_the_record_was_made_of(payload: str) -> None:
    """A rule may make a record with a smaller ordering value than the base row's, or than that of a log record."""
    table = of_payload(payload)
    later = record("x", 9, "unwanted", 2) | {"_event_seq": "1.1", "_event_lsn": 1}
    earlier = record("x", 2, "wanted", 3) | {"_event_seq": "1.8", "_event_lsn": 8}
    for records in ([earlier], [later], [earlier, later], [later, earlier]):
        copy = of_payload(payload)
        for one in records:
            upsert(copy, one)
        copy.delete(KEY, options=OPTIONS)
        assert values(copy) == [], records
        copy.compact()
        assert values(copy) == [], records
    # Also where a compaction takes the records before a plan apart from those after it.
    upsert(table, earlier)
    planned = table.schedule_compaction().planned
    upsert(table, later)
    table.delete(KEY, options=OPTIONS)
    assert values(table) == []
    table.compact(planned)
    assert values(table) == []


@pytest.mark.sample(6)
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_record_follows_a_delete_in_the_log(payload: str) -> None:
    """A delete has none of the columns that a payload looks at."""
    table = of_payload(payload)
    table.delete(KEY, options=OPTIONS)
    upsert(table, record("x", 6, "back", 2))
    assert values(table) == [(6, "back")]
    table.delete(KEY, options=OPTIONS)
    assert values(table) == []


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_registered_merger(table_type: str) -> None:
    hp.register_merger(KeepHighest())
    table = hp.Table.create(
        f"memory://merger-{table_type}",
        record_key="id",
        table_type=table_type,
        options={"hoodie.write.record.merge.strategy.id": KeepHighest.strategy_id},
    )
    table.insert(scores(a=5, b=5), options=OPTIONS)
    table.upsert(scores(a=3, b=8, c=1), options=OPTIONS)
    table.upsert(scores(a=9, b=2), options=OPTIONS)
    assert {row["id"]: row["score"] for row in table.scan().to_arrow().to_pylist()} == {"a": 9, "b": 8, "c": 1}


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_row_that_a_merger_keeps_as_it_was_is_no_change(table_type: str, one_by_one: bool) -> None:
    """As with Apache Hudi (tests/interop/test_mergers.py): it keeps its commit time, and no range of base files returns it."""
    merger = KeepHighest()
    if one_by_one:
        merger = hp.record_by_record(  # type: ignore[assignment]
            "0b2fbb1c-6a8b-4b5b-9d3e-2f3a53d1f004", lambda old, new: new if new["score"] > old["score"] else old
        )
    hp.register_merger(merger)
    table = hp.Table.create(
        f"memory://kept-{uuid.uuid4()}",
        record_key="id",
        table_type=table_type,
        options={"hoodie.write.record.merge.strategy.id": merger.strategy_id},
    )

    def rows(**values: int) -> pa.Table:
        made = scores(**values)
        deep = [None if number % 2 else {"x": None} for number in values.values()]
        return made.append_column("deep", pa.array(deep, pa.struct([("x", pa.float64())]))).append_column(
            "ratio", pa.array([float("nan")] * len(values))
        )

    first = table.insert(rows(a=5, b=5, c=4), options=OPTIONS).instant
    second = table.upsert(rows(a=3, b=8, c=2), options=OPTIONS)
    found = {row["id"]: row["_hoodie_commit_time"] for row in table.scan("*").to_arrow().to_pylist()}
    assert found == {"a": first, "b": second.instant, "c": first}
    # The content of a range of logs is returned as it is stored.
    told = ["b"] if table_type == "cow" else ["a", "b", "c"]
    assert sorted(table.incremental(second.completion_time).to_arrow()["id"].to_pylist()) == told


def test_record_by_record_merger_drops_records() -> None:
    merger = hp.record_by_record(
        "0b2fbb1c-6a8b-4b5b-9d3e-2f3a53d1f002",
        lambda old, new: None if new["score"] < 0 else {"score": old["score"] + new["score"]},
    )
    hp.register_merger(merger)
    table = hp.Table.create(
        "memory://row-merger", record_key="id", options={"hoodie.write.record.merge.strategy.id": merger.strategy_id}
    )
    table.insert(scores(a=1, b=1), options=OPTIONS)
    table.upsert(scores(a=2, b=-1), options=OPTIONS)
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "score": 3}]


def test_reader_without_the_merger_gets_an_error() -> None:
    table = hp.Table.create(
        "memory://unknown-merger",
        record_key="id",
        options={"hoodie.write.record.merge.strategy.id": "0b2fbb1c-6a8b-4b5b-9d3e-2f3a53d1f999"},
    )
    with pytest.raises(Unsupported, match="register_merger"):
        table.upsert(scores(a=1))


def test_an_unknown_payload_class_is_named() -> None:
    with pytest.raises(Unsupported, match=r"com\.example\.OwnPayload"):
        hp.Table.create(
            "memory://unknown-payload",
            record_key="id",
            ordering="score",
            options={"hoodie.datasource.write.payload.class": "com.example.OwnPayload"},
        ).upsert(scores(a=1))


class KeepsChampions(KeepHighest):
    """A record is deleted by one of at least its own score."""

    strategy_id = "0b2fbb1c-6a8b-4b5b-9d3e-2f3a53d1f003"

    def deletes(self, older: pa.Table, newer: pa.Table) -> pa.ChunkedArray:
        return pc.greater_equal(newer["score"], older["score"])


def marked(deleted: bool, **values: int) -> pa.Table:
    flags = [deleted] * len(values)
    return scores(**values).append_column("ts", pa.array([1] * len(values))).append_column("_hoodie_is_deleted", pa.array(flags))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_merger_decides_deletes_when_base_files_are_written(table_type: str) -> None:
    """In logs ordering values settle them, as in Apache Hudi (tests/interop/test_mergers.py)."""
    hp.register_merger(KeepsChampions())
    table = hp.Table.create(
        f"memory://deletes-{uuid.uuid4()}",
        record_key="id",
        ordering="ts",
        table_type=table_type,
        options={"hoodie.write.record.merge.strategy.id": KeepsChampions.strategy_id},
    )
    table.insert(marked(False, a=5, b=5, c=5, d=5), options=OPTIONS)
    table.upsert(marked(True, a=9, b=1, c=5, new=1), options=OPTIONS)
    left = ["b", "d"] if table_type == "cow" else ["d"]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == left
    table.delete(pa.table({"id": ["d"]}), options=OPTIONS)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == left[:-1]


def test_merger_returning_a_wrong_number_of_deletes_is_named() -> None:
    class Wrong(KeepsChampions):
        def deletes(self, older: pa.Table, newer: pa.Table) -> pa.ChunkedArray:
            return pa.chunked_array([[True]])

    hp.register_merger(Wrong())
    uri = f"memory://deletes-{uuid.uuid4()}"
    options = {"hoodie.write.record.merge.strategy.id": Wrong.strategy_id}
    table = hp.Table.create(uri, record_key="id", options=options)
    table.insert(marked(False, a=5, b=5), options=OPTIONS)
    with pytest.raises(InvalidRequest, match="returned 1 values for 2 rows"):
        table.upsert(marked(True, a=5, b=5), options=OPTIONS)


@pytest.mark.parametrize(
    "key", ["hoodie.write.record.merge.custom.implementation.classes", "hoodie.datasource.write.record.merger.impls"]
)
def test_java_merger_classes_map_to_registered_mergers(key: str) -> None:
    own = f"com.example.KeepHighest{uuid.uuid4().hex}"
    uri = f"memory://classes-{uuid.uuid4()}"
    listed = f"org.apache.hudi.DefaultSparkRecordMerger, {own}"
    options = {"hoodie.write.record.merge.strategy.id": KeepHighest.strategy_id, key: listed}
    with pytest.raises(Unsupported, match="register_merger"):
        hp.Table.create(uri, record_key="id", options=options)
    hp.register_merger(KeepHighest(), own)
    table = hp.Table.create(uri, record_key="id", options=options)
    table.insert(scores(a=5, b=5), options={**OPTIONS, **options})
    table.upsert(scores(a=3, b=8), options={**OPTIONS, **options})
    assert {row["id"]: row["score"] for row in table.scan().to_arrow().to_pylist()} == {"a": 5, "b": 8}
    with pytest.raises(Unsupported, match="register_merger"):
        table.upsert(scores(a=3), options={key: f"{own},com.example.Other"})


def test_log_positions_of_another_type_are_refused(tmp_path: Path) -> None:
    options = {"hoodie.datasource.write.payload.class": PAYLOADS["Pg"], "hoodie.metadata.enable": False}
    table = hp.Table.create(tmp_path, record_key="id", ordering="_event_lsn", options=options)
    rows = pa.table({"id": ["a"], "_event_lsn": [1.25], "_change_operation_type": ["u"]})
    table.upsert(rows)
    with pytest.raises(InvalidRequest, match="column _event_lsn has type double"):
        table.upsert(rows)
    assert table.scan().count() == 1
