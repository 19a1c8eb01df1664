"""Which index a write uses, what it reads, and when it refuses."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.operations.write.index_lookup import IndexType, _refuse_groups_of_logs
from pyhudi.storage.memory import forget_memory
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks import tag_location
from pyhudi.tasks.base_file_reader import open_base_file

_names = itertools.count()
RECORD_INDEX = {"hoodie.index.type": "RECORD_INDEX", "hoodie.metadata.record.index.min.filegroup.count": 2}
BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"index-options-{next(_names)}"
    yield f"memory://{name}"
    forget_memory(name)


def create(uri: str, table_type: str = "cow", /, **options: Any) -> hp.Table:
    return hp.Table.create(uri, record_key="id", partition_by="part", ordering="ts", table_type=table_type, options=options)


def rows(*keys: int, ts: int = 1, part: str = "p") -> pa.Table:
    return pa.table({"id": [f"k{key}" for key in keys], "part": [part] * len(keys), "ts": pa.array([ts] * len(keys), pa.int64())})


HBASE = {
    "hoodie.index.type": "HBASE",
    "hoodie.index.hbase.table": "t",
    "pyhudi.index.hbase.thrift.uris": "thrift://127.0.0.1:1",
}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hoodie.index.type": "HBASE"}, InvalidRequest, "index HBASE needs the option pyhudi.index.hbase.thrift.uris"),
        ({**HBASE, "pyhudi.index.hbase.thrift.uris": "there:9090"}, InvalidRequest, "expected thrift://host:port"),
        ({**HBASE, "hoodie.index.hbase.dynamic_qps": True}, Unsupported, "requests to HBase are limited by"),
        ({**HBASE, "hoodie.index.hbase.security.authentication": "kerberos"}, Unsupported, "Kerberos is not supported"),
        ({**BUCKET, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}, InvalidRequest, "copy-on-write"),
        ({**BUCKET, "hoodie.bucket.index.num.buckets": 0}, InvalidRequest, "num.buckets=0"),
        ({**BUCKET, "hoodie.bucket.index.hash.field": "ts"}, InvalidRequest, "cannot hash ts"),
        ({**BUCKET, "hoodie.bucket.index.partition.expressions": "(?=p),2"}, Unsupported, "regular expression '(?=p)'"),
        ({**RECORD_INDEX, "hoodie.metadata.record.index.enable": False}, InvalidRequest, "record.index.enable=false disables"),
        ({**RECORD_INDEX, "hoodie.metadata.enable": False}, InvalidRequest, "hoodie.metadata.enable=false disables"),
    ],
)
def test_refused(uri: str, options: dict[str, Any], error: type[Exception], message: str) -> None:
    table = create(uri)
    with pytest.raises(error, match=re.escape(message)):
        table.upsert(rows(1), options=options)
    assert table.timeline().last_completed_write() is None


def test_record_index_is_built_by_the_first_write_that_uses_it(uri: str) -> None:
    table = create(uri, **{"hoodie.metadata.record.index.min.filegroup.count": 2})
    assert table.upsert(rows(1, 2)).index == "SIMPLE"
    result = table.upsert(rows(2, 3, part="q"), options={**RECORD_INDEX, "hoodie.record.index.update.partition.path": True})
    assert (result.index, result.index_source) == ("RECORD_INDEX", "record_index")
    found = table.scan(["id", "_hoodie_partition_path"]).to_arrow().sort_by("id")
    assert found["_hoodie_partition_path"].to_pylist() == ["p", "q", "q"]
    assert "RECORD_INDEX (record_index)" in str(result)


def test_a_table_is_written_with_the_buckets_that_it_has(uri: str) -> None:
    table = create(uri, **BUCKET)
    table.upsert(rows(*range(8)))
    before = table.timeline().instants
    with pytest.raises(TableState, match="has no such bucket"):
        table.upsert(rows(1), options={"hoodie.bucket.index.num.buckets": 1})
    with pytest.raises(InvalidRequest, match="record key fields are id"):
        table.upsert(rows(1), options={"hoodie.bucket.index.hash.field": "ts"})
    for count in (3, 4, 5):
        for operation in ("upsert", "insert", "bulk_insert", "delete"):
            with pytest.raises(TableState, match=rf"is stored in bucket \d .*num\.buckets={count}"):
                getattr(table, operation)(rows(*range(8)), options={"hoodie.bucket.index.num.buckets": count})
    # A refused write was never started, so no rollback names it either.
    assert table.timeline().instants == before
    other = create(f"{uri}-plain")
    other.bulk_insert(rows(1))
    ids = other.inspect.file_slices()["file_id"].to_pylist()
    before = other.timeline().instants
    if not ids[0][:8].isdigit():
        with pytest.raises(TableState, match="names no bucket"):
            other.upsert(rows(1), options=BUCKET)
    assert other.timeline().instants == before


def test_an_index_of_base_files_leaves_no_trace_of_its_refusal_on_buckets_of_logs(uri: str) -> None:
    table = create(uri, "mor", **{**BUCKET, "hoodie.compact.inline": False})
    table.upsert(rows(*range(8)), options={"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"})
    before = table.timeline().instants
    with pytest.raises(TableState, match="only log files"):
        table.upsert(rows(1), options={"hoodie.index.type": "SIMPLE"})
    assert table.timeline().instants == before


@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "RECORD_INDEX"])
def test_inserts_skip_keys_that_exist(uri: str, index: str) -> None:
    options = {"hoodie.index.type": index, "hoodie.metadata.record.index.enable": index == "RECORD_INDEX"}
    table = create(uri, "cow", **options)
    table.insert(rows(0, 1))
    result = table.insert(rows(1, 2, ts=5), options={"hoodie.datasource.insert.dup.policy": "drop"})
    assert (result.rows_inserted, result.rows_updated) == (1, 0)
    found = table.scan(["id", "ts"]).to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == {"k0": 1, "k1": 1, "k2": 5}


@pytest.mark.parametrize(
    ("operation", "combine", "expected"), [("insert", None, [2]), ("upsert", None, [2]), ("insert", "false", [1, 2])]
)
def test_dropping_duplicates_also_combines_the_rows_of_the_batch(
    uri: str, operation: str, combine: str | None, expected: list[int]
) -> None:
    table = create(uri)
    table.upsert(rows(2, ts=0))
    options = {"hoodie.datasource.write.insert.drop.duplicates": "true", "hoodie.combine.before.insert": combine}
    batch = pa.concat_tables([rows(1, ts=2), rows(1, 2, ts=1)])
    assert getattr(table, operation)(batch, options=options).rows_inserted == len(expected)
    assert sorted(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == [0, *expected]


def test_buckets_know_no_keys(uri: str) -> None:
    table = create(uri, **BUCKET)
    with pytest.raises(Unsupported, match="looks up no keys"):
        table.insert(rows(1), options={"hoodie.datasource.insert.dup.policy": "drop"})


@pytest.mark.sample(2)
@pytest.mark.parametrize("is_explicit", [True, False])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_clustering_leaves_records_in_their_buckets(uri: str, table_type: str, is_explicit: bool) -> None:
    """Also if no option names the bucketing of the table, and through a plan of a writer that combines buckets."""
    table = create(uri, table_type, **BUCKET)
    table.bulk_insert(rows(*range(8)))
    table.upsert(rows(2, 5, ts=2))
    order = {"hoodie.clustering.plan.strategy.sort.columns": "ts"}
    clustering = hp.Table(uri, options={**order, **(BUCKET if is_explicit else {})})
    planned = clustering.schedule_clustering()
    with pytest.raises(TableState, match="pending clustering"):
        table.upsert(rows(2, ts=3))
    assert planned.instant is not None
    done = clustering.cluster(planned.instant)
    assert (done.file_groups_read, done.file_groups_written, done.rows) == (2, 2, 8)
    slices = table.inspect.file_slices().to_pylist()
    assert sorted(row["file_id"][:9] for row in slices) == ["00000000-", "00000001-"]
    table.upsert(rows(*range(4), ts=3))
    table.delete(["k7"])
    found = table.scan(["id", "ts"]).to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["ts"]) for row in found] == [
        ("k0", 3), ("k1", 3), ("k2", 3), ("k3", 3), ("k4", 1), ("k5", 2), ("k6", 1)
    ]  # fmt: skip
    assert table.scan(["id"], filter="id = 'k3'").to_arrow()["id"].to_pylist() == ["k3"]
    assert table.validate().ok


def test_a_table_that_is_called_bucketed_and_is_not_is_not_clustered(uri: str) -> None:
    table = create(uri)
    table.bulk_insert(rows(*range(8)))
    if not table.inspect.file_slices()["file_id"][0].as_py()[:8].isdigit():
        with pytest.raises(TableState, match="names no bucket"):
            table.cluster(options=BUCKET)
    assert not table.timeline().pending()


def test_a_filter_on_the_key_reads_one_bucket_of_a_partition(uri: str) -> None:
    table = create(uri, **BUCKET, **{"hoodie.metadata.index.column.stats.enable": False})
    table.upsert(rows(*range(8)))
    scan = table.scan(["id"], filter="id = 'k3'")
    explained = str(scan.explain())
    assert re.search(r"buckets\W.*1 .*2", explained), explained
    assert scan.to_arrow()["id"].to_pylist() == ["k3"]
    without = table.scan(["id"], filter="id = 'k3'", options={"hoodie.bucket.index.query.pruning": False})
    assert "buckets" not in str(without.explain())


def test_two_writers_that_begin_one_bucket_conflict(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(uri, **BUCKET)
    other = hp.Table(uri, options=BUCKET)
    original = tag_location.FileGroupCandidate
    raced: list[str] = []

    def racing(*args: Any, **kwargs: Any) -> tag_location.FileGroupCandidate:
        if not raced:
            raced.append("now")
            other.upsert(rows(1, ts=1))
        return original(*args, **kwargs)

    monkeypatch.setattr("pyhudi.tasks.bucket_assignment.FileGroupCandidate", racing)
    options = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL", "hoodie.clean.failed.writes.policy": "LAZY"}
    with pytest.raises(WriteConflict, match="new file group of bucket"):
        table.upsert(rows(1, ts=2), options={**options, "hoodie.write.num.retries.on.conflict.failures": 0})
    raced.clear()
    raced.append("done")
    assert table.upsert(rows(1, ts=3), options=options).rows_updated == 1


def test_memory_holds_the_keys_of_files(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(uri, **{"hoodie.index.type": "INMEMORY"})
    read: list[str] = []
    original = tag_location.read_keys

    def noting(storage: Any, path: str, *rest: Any, **flags: Any) -> Any:
        read.append(path)
        return original(storage, path, *rest, **flags)

    monkeypatch.setattr(tag_location, "read_keys", noting)
    table.upsert(rows(1))
    table.upsert(rows(2, part="q"))
    for number in range(3):
        table.upsert(rows(1, part="p", ts=number + 2))
    # Each write of p made a new file; that of q was never requested.
    assert len(read) == len(set(read)) == 3
    assert all(path.startswith("p/") for path in read)
    assert len(tag_location._CACHED_KEYS[uri]) == 1


def test_bloom_goes_by_the_metadata_table(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(
        uri,
        **{
            "hoodie.index.type": "BLOOM",
            "hoodie.bloom.index.use.metadata": True,
            "hoodie.metadata.index.bloom.filter.enable": True,
            "hoodie.parquet.small.file.limit": 0,
            "hoodie.index.bloom.num_entries": 100,
        },
    )
    table.upsert(rows(1, 3))
    table.upsert(rows(5, 7))
    opened: list[str] = []
    original = open_base_file

    def noting(storage: Any, path: str) -> Any:
        opened.append(path)
        return original(storage, path)

    monkeypatch.setattr(tag_location, "open_base_file", noting)
    result = table.upsert(rows(6, 9))
    assert (result.index_source, opened) == ("column_stats and bloom_filters", [])
    table.upsert(rows(5))
    assert len(opened) == 1
    result = table.upsert(rows(8), options={"hoodie.bloom.index.prune.by.ranges": False})
    assert result.index_source == "bloom_filters"
    assert table.upsert(rows(8), options={"hoodie.bloom.index.use.metadata": False}).index_source == "footers"


def test_file_groups_with_only_logs_are_refused() -> None:
    with pytest.raises(TableState, match="only log files"):
        _refuse_groups_of_logs(IndexType.SIMPLE, [FileSlice("p", "g-0", "1", None)])


@pytest.mark.parametrize("kind", ["SIMPLE", "BLOOM", "INMEMORY"])
def test_keys_of_logs_are_computed_without_meta_columns(uri: str, kind: str) -> None:
    options = {"hoodie.index.type": kind, "hoodie.compact.inline": False, "hoodie.populate.meta.fields": False}
    table = create(uri, "mor", **options)
    table.upsert(rows(1, 2))
    table.delete(rows(2).select(["id", "part"]))
    planned = table.schedule_compaction().planned
    table.upsert(rows(2, ts=2))
    table.compact(planned)
    assert table.upsert(rows(2, ts=3)).rows_inserted == 0
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == ["k1", "k2"]
