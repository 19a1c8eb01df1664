"""Bucket counts per partition are stored by the first write and used by every later write and read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest, TableState, WriteConflict
from pyhudi.features import procedures
from pyhudi.format.instants import Action
from pyhudi.format.partition_bucket_config import BucketCounts, counts_path
from pyhudi.format.paths import BUCKET_COUNTS_FOLDER
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.write.index_lookup import BucketRescale
from pyhudi.options.supported import parse_options
from pyhudi.records.hashing import bucket_ids
from pyhudi.storage.memory import forget_memory
from pyhudi.table.snapshot import read_commit
from pyhudi.tasks import tag_location

RULES = "^p,3;q,5"
COUNTS = {"p": 3, "q": 5, "r": 2}
BUCKET: dict[str, Any] = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
BY_RULES: dict[str, Any] = {**BUCKET, "hoodie.bucket.index.partition.expressions": RULES}
OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL", "hoodie.clean.failed.writes.policy": "LAZY"}
_names = itertools.count()


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"bucket-counts-{next(_names)}"
    yield f"memory://{name}"
    forget_memory(name)


def create(uri: str, table_type: str = "mor", **options: Any) -> hp.Table:
    given = {**BUCKET, "hoodie.compact.inline": False, **options}
    return hp.Table.create(uri, record_key="id", partition_by="part", ordering="ts", table_type=table_type, options=given)


def rows(*keys: int, ts: int = 1, parts: tuple[str, ...] = ("p", "q", "r")) -> pa.Table:
    made = [{"id": f"k{key}", "part": part, "ts": ts} for part in parts for key in keys]
    return pa.Table.from_pylist(made, pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())]))


def values(table: hp.Table, counts: dict[str, int] = COUNTS) -> dict[tuple[str, str], int]:
    """(partition, key) -> ts of the rows, each of which exists once, in the bucket of its key."""
    found = table.scan(["_hoodie_file_name", "id", "part", "ts"]).to_arrow().to_pylist()
    for row in found:
        bucket = bucket_ids(pa.array([row["id"]]), counts[row["part"]], ["id"])[0]
        assert int(row["_hoodie_file_name"].lstrip(".")[:8]) == bucket, row
    stored = {(row["part"], row["id"]): row["ts"] for row in found}
    assert len(stored) == len(found)
    return stored


def stored_count_files(table: hp.Table) -> list[str]:
    return sorted(info.path.rpartition("/")[2] for info in table.context.storage.list(BUCKET_COUNTS_FOLDER).files)


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_first_write_stores_the_bucket_rules_and_later_writes_use_them(uri: str, table_type: str) -> None:
    table = create(uri, table_type)
    table.upsert(rows(*range(12)), options=BY_RULES)
    assert stored_count_files(table) == ["00000000000000.hashing_config"]
    assert table.context.storage.read(counts_path("00000000000000")) == BucketCounts(RULES, 2).encode()
    # Neither these nor the services get the rules again.
    table.upsert(rows(*range(6, 18), ts=2))
    table.delete(["k0", "k17"])
    table.bulk_insert(rows(20, 21, ts=3))
    table.cluster(order_by=["ts"])
    table.upsert(rows(1, 20, ts=4))
    expected = {(part, f"k{key}"): 1 for part in COUNTS for key in range(1, 6)}
    expected |= {(part, f"k{key}"): 2 for part in COUNTS for key in range(6, 17)}
    expected |= {(part, f"k{key}"): 4 for part in COUNTS for key in (1, 20)} | {(part, "k21"): 3 for part in COUNTS}
    assert values(table) == expected
    table.insert_overwrite(rows(1, 2, 3, ts=5, parts=("p",)))
    table.insert_overwrite(rows(7, ts=5, parts=("r",)), options={"hoodie.static.overwrite.partition.paths": "q,r"})
    table.upsert(rows(1, 2, 4, ts=6))
    assert values(table) == {
        **{("p", "k1"): 6, ("p", "k2"): 6, ("p", "k3"): 5, ("p", "k4"): 6, ("r", "k7"): 5},
        **{(part, key): 6 for part in ("q", "r") for key in ("k1", "k2", "k4")},
    }
    table.delete_partitions(["q"])
    table.insert_overwrite_table(rows(*range(9), ts=7, parts=("q", "r")))
    table.upsert(rows(*range(9), ts=8, parts=("q",)))
    assert values(table) == {(part, f"k{key}"): 8 if part == "q" else 7 for part in ("q", "r") for key in range(9)}
    assert table.validate().ok and len(stored_count_files(table)) == 1


def test_filters_on_the_key_read_one_bucket_of_each_partition(uri: str) -> None:
    plain = {"hoodie.metadata.index.column.stats.enable": False, "hoodie.compact.inline": False}
    table = create(uri, "cow", **plain)
    table.upsert(rows(*range(20)), options=BY_RULES)
    for options in (BUCKET, {"hoodie.index.type": "BUCKET"}, BY_RULES):
        scan = hp.Table(uri, options=plain).scan(["part"], filter="id = 'k3'", options=options)
        assert re.search(r"buckets\W.*3 .*10", str(scan.explain())), str(scan.explain())
        assert sorted(scan.to_arrow()["part"].to_pylist()) == ["p", "q", "r"]
    # File groups of before the counts of an instant are not looked for by them.
    early = table.timeline().completed_writes()[-1].request_time
    table.context.storage.put(counts_path("99990101000000000"), BucketCounts("p,7", 2, "99990101000000000").encode())
    assert "buckets" not in str(table.scan(["part"], filter="id = 'k3'", as_of=early).explain())


def test_options_that_contradict_the_bucket_rules_are_refused(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(1), options=BY_RULES)
    before = table.timeline().completed_writes()
    for wrong in ({"hoodie.bucket.index.num.buckets": 4}, {"hoodie.bucket.index.partition.expressions": "p,4"}):
        with pytest.raises(InvalidRequest, match="the table stores"):
            table.upsert(rows(1, ts=2), options=wrong)
        with pytest.raises(InvalidRequest, match="the table stores"):
            table.scan(filter="id = 'k1'", options={**BUCKET, **wrong}).to_arrow()
    with pytest.raises(InvalidRequest, match=r"requires hoodie\.index\.bucket\.engine=SIMPLE"):
        table.upsert(rows(1), options={**BY_RULES, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"})
    with pytest.raises(InvalidRequest, match="none of regex"):
        table.upsert(rows(1), options={"hoodie.bucket.index.partition.rule.type": "range"})
    assert table.timeline().completed_writes() == before


def test_table_with_bucket_rules_only_in_writer_options_is_written_by_them(uri: str) -> None:
    """So Apache Hudi 1.1 leaves it where its options named rules."""
    table = create(uri)
    table.upsert(rows(*range(9)), options=BY_RULES)
    table.context.storage.delete([counts_path("00000000000000")])
    table.upsert(rows(*range(4, 12), ts=2), options=BY_RULES)
    assert values(table) == {(part, f"k{key}"): 2 if key > 3 else 1 for part in COUNTS for key in range(12)}
    assert stored_count_files(table) == []
    with pytest.raises(TableState, match="has no such bucket"):
        table.upsert(rows(1))


def test_records_in_wrong_buckets_are_noticed(uri: str) -> None:
    """As a release of Hudi puts them there that knows no such counts."""
    table = create(uri, "cow")
    table.upsert(rows(*range(9)), options=BY_RULES)
    path, keeps = counts_path("00000000000000"), BucketCounts(RULES, 2).encode()
    table.context.storage.delete([path])
    table.upsert(rows(*range(9), ts=2, parts=("s",)))
    table.context.storage.put(path, BucketCounts("^p,3;q,5;s,1", 2).encode())
    report = table.validate()
    assert [(found.check, found.path) for found in report.findings] == [("buckets", "s")]
    assert "no such bucket" in report.findings[0].detail
    table.context.storage.put(path, BucketCounts("^p,3;q,5;s,9", 2).encode())
    with pytest.raises(TableState, match=r"is stored in bucket \d .*partition\.expressions"):
        table.upsert(rows(1, parts=("s",)), options={"hoodie.index.type": "BUCKET"})
    table.context.storage.put(path, keeps[:-5])
    assert [(found.check, found.path) for found in table.validate().findings] == [("buckets", BUCKET_COUNTS_FOLDER)]
    table.context.storage.put(path, keeps)
    assert table.validate().ok


def test_bucket_counts_of_an_uncompleted_instant_are_ignored_and_rolled_back(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(*range(9)), options=BY_RULES)
    settings = CommitSettings.of(parse_options({}))
    rescaling = Transaction.begin(table.context, Action.REPLACECOMMIT, settings, b"")
    later = BucketCounts("p,7", 4, rescaling.instant_time)
    table.context.storage.put(counts_path(later.instant), later.encode())
    hp.Table(uri, options={**BUCKET, **OCC}).upsert(rows(*range(9), ts=2))
    assert values(table) == {(part, f"k{key}"): 2 for part in COUNTS for key in range(9)}
    rescaling.stop_heartbeat()
    table.rollback(later.instant)
    assert stored_count_files(table) == ["00000000000000.hashing_config"]


def test_restore_removes_later_bucket_counts(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(1), options=BY_RULES)
    saved = table.savepoint()
    replaced = table.insert_overwrite(rows(1, parts=("p",)))
    table.context.storage.put(counts_path(str(replaced.instant)), BucketCounts("p,7", 2, str(replaced.instant)).encode())
    table.restore(saved.instant)
    assert stored_count_files(table) == ["00000000000000.hashing_config"]


def test_write_concurrent_with_a_bucket_count_change_is_planned_again(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes to a bucket of a partition whose bucket count another writer changes concurrently, so that no file group is
    common.
    """
    table = create(uri)
    table.upsert(rows(1, 2, parts=("p", "q")), options=BY_RULES)
    original, raced = tag_location.FileGroupCandidate, list[str]()

    def racing(*args: Any, **kwargs: Any) -> tag_location.FileGroupCandidate:
        if not raced:
            raced.append("now")
            other = hp.Table(uri, options=BUCKET).insert_overwrite(rows(1, 2, ts=2, parts=("p",)))
            counts = BucketCounts("^p,3;q,5;r,1", 2, str(other.instant))
            table.context.storage.put(counts_path(counts.instant), counts.encode())
        return original(*args, **kwargs)

    monkeypatch.setattr("pyhudi.tasks.bucket_assignment.FileGroupCandidate", racing)
    with pytest.raises(WriteConflict, match="changed concurrently"):
        table.upsert(rows(*range(9), parts=("r",)), options={**OCC, "hoodie.write.num.retries.on.conflict.failures": 0})
    raced.clear()
    result = table.upsert(rows(*range(9), parts=("r",)), options=OCC)
    assert result.conflict_retries == 0 or result.rows_inserted
    found = table.scan(["_hoodie_file_name"], filter="part = 'r'").to_arrow()["_hoodie_file_name"].to_pylist()
    assert {name.lstrip(".")[:8] for name in found} == {"00000000"}


def rescale(uri: str, **arguments: Any) -> list[Any]:
    """(operation, details) of the procedure."""
    result = procedures.call("partition_bucket_index_manager", path=uri, **arguments).to_pylist()
    return [(row["operation"], row["details"]) for row in result]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("table_type", "version"), [("mor", 9), ("cow", 8), ("cow", 9), ("mor", 8)])
def test_rescaling_rewrites_the_partitions_whose_count_changes(uri: str, table_type: str, version: int) -> None:
    table = create(uri, table_type, **{"hoodie.write.table.version": version})
    table.upsert(rows(*range(12)))
    table.upsert(rows(*range(6), ts=2))
    table.delete(["k11"])
    expected = {(part, f"k{key}"): 2 if key < 6 else 1 for part in COUNTS for key in range(11)}
    before = table.timeline().last_visible
    with pytest.raises(InvalidRequest, match="bucket_number"):
        rescale(uri, add="q,5")
    with pytest.raises(TableState, match="bucket"):
        rescale(uri, overwrite="^p,3", bucket_number=5)
    assert rescale(uri, overwrite="^p,3", bucket_number=2) == [("DRY_RUN_OVERWRITE", "p => 3")]
    assert table.timeline().last_visible == before and stored_count_files(table) == []
    rescale(uri, overwrite="^p,3", bucket_number=2, dry_run=False)
    assert values(table, {"p": 3, "q": 2, "r": 2}) == expected
    first = table.timeline().completed(Action.REPLACECOMMIT)[-1]
    recorded = read_commit(table.context.timeline, first)
    assert recorded.operation_type == ("BUCKET_RESCALE" if version == 9 else "INSERT_OVERWRITE")
    assert set(recorded.partition_to_replace_file_ids or {}) == {"p"}
    rescale(uri, add="q,5", dry_run=False)
    assert values(table) == expected and table.validate(keys=True).ok
    table.upsert(rows(*range(9), ts=3))
    assert rescale(uri, show_config=True)[0][1].count("expressions") == 2
    second = table.timeline().completed(Action.REPLACECOMMIT)[-1]
    with pytest.raises(TableState):
        rescale(uri, rollback=second.request_time)
    with pytest.raises(InvalidRequest, match="have that instant"):
        rescale(uri, rollback=before)
    assert values(table) == {key: 3 if int(key[1][1:]) < 9 else value for key, value in expected.items()}
    assert table.validate(keys=True).ok


def test_a_rescale_is_rolled_back_with_its_counts(uri: str) -> None:
    indexed: dict[str, Any] = {"hoodie.metadata.record.index.enable": True}
    table = create(uri, **indexed)
    table.upsert(rows(*range(9), parts=("p",)))
    rescale(uri, overwrite="^p,3;q,5", bucket_number=2, dry_run=False)
    rescale(uri, rollback=table.timeline().completed(Action.REPLACECOMMIT)[-1].request_time)
    assert stored_count_files(table) == []
    table.upsert(rows(*range(9), ts=2, parts=("p",)))
    assert set(values(table, dict.fromkeys(COUNTS, 2)).values()) == {2}
    rescale(uri, overwrite="^p,3;q,5", bucket_number=2, dry_run=False)
    assert set(values(table).values()) == {2} and table.validate().ok
    assert table.scan(["ts"], filter="id = 'k4'").to_arrow().to_pylist() == [{"ts": 2}]


def test_rules_that_change_no_partition_are_stored_for_new_ones(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(*range(9), parts=("r",)))
    rescale(uri, overwrite=RULES, bucket_number=2, dry_run=False)
    table.upsert(rows(*range(9), ts=2))
    assert set(values(table).values()) == {2}


@pytest.mark.parametrize("rows_beside", [rows(40, parts=("p",)), rows(1, 2, ts=5, parts=("p",)), rows(1, parts=("pp",))])
def test_rescale_concurrent_with_writes_is_planned_again(
    uri: str, rows_beside: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They change a file group, add one to a partition, or add a partition whose count changes."""
    table = create(uri, **OCC)
    table.upsert(rows(1, 2))
    original, raced = BucketRescale.store_counts, list[str]()

    def racing(self: BucketRescale, context: Any, instant: str) -> None:
        if not raced:
            raced.append(instant)
            hp.Table(uri, options={**BUCKET, **OCC}).upsert(rows_beside)
        original(self, context, instant)

    monkeypatch.setattr(BucketRescale, "store_counts", racing)
    options = ",".join(f"{name}={value}" for name, value in OCC.items())
    rescale(uri, overwrite="^p,3;q,5", bucket_number=2, dry_run=False, options=options)
    found = values(table, {**COUNTS, "pp": 3})
    assert set(zip(rows_beside["part"].to_pylist(), rows_beside["id"].to_pylist(), strict=True)) <= set(found)
    assert len(stored_count_files(table)) == 1 and stored_count_files(table)[0][:17] != raced[0]


def test_a_writer_of_the_old_counts_conflicts_with_a_rescale(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(uri, **OCC)
    table.upsert(rows(1, 2, parts=("p", "r")))
    original, raced = tag_location.FileGroupCandidate, list[str]()

    def racing(*args: Any, **kwargs: Any) -> tag_location.FileGroupCandidate:
        if not raced:
            raced.append("now")
            rescale(uri, overwrite="^p,3;q,5", bucket_number=2, dry_run=False)
        return original(*args, **kwargs)

    monkeypatch.setattr("pyhudi.tasks.bucket_assignment.FileGroupCandidate", racing)
    hp.Table(uri, options={**BUCKET, **OCC}).upsert(rows(*range(9), ts=2))
    assert set(values(table).values()) == {2}
