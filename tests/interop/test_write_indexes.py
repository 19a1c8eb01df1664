"""Tables written in turn, where each finds records by the other's index: RECORD_INDEX and BUCKET."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.format.instants import Action
from pyhudi.records.hashing import bucket_ids
from tests.interop.alternation import OPERATION, Alternation, Row
from tests.interop.oracle import ApacheHudi
from tests.support.hudi_shared_table import BLOOMS, SharedTable, keyed_rows

SCHEMA = pa.schema([("id", pa.string()), ("code", pa.int32()), ("ts", pa.int64()), ("city", pa.string())])
CITIES = ("oslo", "rome", "são paulo")
TABLE = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
}
RECORD_INDEX = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
    "hoodie.index.type": "RECORD_INDEX",
}
BUCKETS = 3
BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": BUCKETS}


def rows(numbers: Iterable[int], ts: int, move: int = 0) -> pa.Table:
    """Rows k000, k001, ...  move: by how much their partitions are shifted."""
    made = [{"id": f"k{n:03d}", "code": n * 7, "ts": ts, "city": CITIES[(n + move) % 3]} for n in numbers]
    return pa.Table.from_pylist(made, SCHEMA)


class WithLogs(Alternation):
    """Rows of log files name their file group, not a file; a write may be followed by a compaction."""

    def theirs(self, operation: str, data: pa.Table, **options: Any) -> None:
        self.hudi.write(data, self.path, **{**self.options, OPERATION: operation, **options})
        self._apply(operation, data, self.table.timeline().completed(Action.DELTACOMMIT)[-1].request_time)

    def _check_meta(self, row: Row) -> None:
        key, folder = row["id"], row["_hoodie_partition_path"]
        assert row["_hoodie_commit_time"] == self.times[key], key
        place = (row["_hoodie_record_key"], folder)
        assert self.places.setdefault(key, place) == place


def alternation(hudi: ApacheHudi, path: Path, table_type: str, options: dict[str, Any]) -> Alternation:
    given = {"hoodie.datasource.write.table.type": table_type, **TABLE, **options}
    kind = WithLogs if table_type == "MERGE_ON_READ" else Alternation
    return kind(hudi, path / "t", given, partition=lambda row: row["city"], ordering="ts")


def check_records(both: Alternation, expected_places: dict[str, str]) -> None:
    """Both read the same; the record index is right about every key; records are where they should be."""
    both.read_by_both()
    report = both.table.validate()
    assert report.ok, str(report)
    found = both.table.scan(["id", "_hoodie_partition_path"]).to_arrow()
    places = dict(zip(found["id"].to_pylist(), found["_hoodie_partition_path"].to_pylist(), strict=True))
    assert {key: places.get(key) for key in expected_places} == expected_places


def with_stored_city(both: Alternation, real: pa.Table) -> pa.Table:
    """Apache Hudi shows the folder's value of a partition column; of a record that stayed in its folder that is the old one."""
    cities = [both.rows[key]["city"] for key in real["id"].to_pylist()]
    return real.set_column(real.schema.get_field_index("city"), "city", pa.array(cities, pa.string()))


@pytest.mark.parametrize(
    ("table_type", "moves"), [("COPY_ON_WRITE", True), pytest.param("MERGE_ON_READ", False, marks=pytest.mark.wide)]
)
def test_record_index(hudi: ApacheHudi, tmp_path: Path, table_type: str, moves: bool) -> None:
    both = alternation(hudi, tmp_path, table_type, {**RECORD_INDEX, "hoodie.record.index.update.partition.path": moves})
    if moves:
        both.create()
        both.ours("upsert", rows(range(12), 1))
    else:
        both.fix = lambda real: with_stored_city(both, real)
        both.theirs("upsert", rows(range(12), 1))
    check_records(both, {"k000": CITIES[0], "k001": CITIES[1]})
    # Each finds what the other wrote, in another partition too.
    both.theirs("upsert", rows((0, 1, 20), 2, move=1))
    both.ours("upsert", rows((0, 2, 3, 20, 21), 3, move=2))
    check_records(both, {"k000": CITIES[2 if moves else 0], "k001": CITIES[2 if moves else 1]})
    both.ours("delete", rows((4, 5), 4))
    both.theirs("delete", rows((6, 21), 4, move=0 if moves else 2))
    both.theirs("upsert", rows((4, 22), 5, move=1))
    both.ours("upsert", rows((6, 22, 23), 6))
    check_records(both, {"k004": CITIES[(4 + 1) % 3], "k006": CITIES[0], "k022": CITIES[(22 + (0 if moves else 1)) % 3]})


def check_buckets(both: Alternation, field: str) -> None:
    """Both read the same, and every row is in the one file group of its bucket."""
    both.read_by_both()
    found = both.table.scan(["id", "code", "_hoodie_partition_path", "_hoodie_file_name"]).to_arrow()
    hashed = found[field].cast(pa.string()).combine_chunks()
    places = list(
        zip(
            found["_hoodie_partition_path"].to_pylist(),
            bucket_ids(hashed, BUCKETS, [field]).tolist(),
            [name.lstrip(".").split("_")[0] for name in found["_hoodie_file_name"].to_pylist()],
            strict=True,
        )
    )
    assert all(int(file_id[:8]) == bucket for _, bucket, file_id in places)
    assert len({(path, bucket) for path, bucket, _ in places}) == len(set(places))


# Apache Hudi is first where rows are merged on read, too.
@pytest.mark.parametrize("ours_first", [True, pytest.param(False, marks=pytest.mark.wide)])
def test_buckets_copy_on_write(hudi: ApacheHudi, tmp_path: Path, ours_first: bool) -> None:
    both = alternation(hudi, tmp_path, "COPY_ON_WRITE", BUCKET)
    if ours_first:
        both.create()
        both.ours("bulk_insert", rows(range(8), 1))
    else:
        both.theirs("bulk_insert", rows(range(8), 1))
    check_buckets(both, "id")
    both.theirs("upsert", rows((*range(4), 20, 21, 22), 2))
    both.ours("upsert", rows((*range(2, 6), 21, 23, 24), 3))
    check_buckets(both, "id")
    both.ours("insert", rows((30, 31), 1))
    both.theirs("insert", rows((32, 33), 1))
    both.ours("delete", rows((0, 30), 4))
    both.theirs("delete", rows((1, 31), 4))
    both.ours("insert_overwrite", rows((40, 43), 1))
    both.theirs("upsert", rows((40, 46), 2))
    check_buckets(both, "id")


def test_buckets_merge_on_read(hudi: ApacheHudi, tmp_path: Path) -> None:
    """A key of two fields, of which one is hashed; new keys in log files; compactions of both."""
    options = {
        **BUCKET,
        "hoodie.datasource.write.recordkey.field": "id,code",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
        "hoodie.bucket.index.hash.field": "code",
        "hoodie.compact.inline": False,
    }
    both = alternation(hudi, tmp_path, "MERGE_ON_READ", options)
    both.theirs("upsert", rows(range(8), 1))
    check_buckets(both, "code")
    both.ours("upsert", rows((*range(4), 20, 21, 22), 2))
    both.theirs("upsert", rows((*range(2, 6), 21, 23, 24), 3))
    check_buckets(both, "code")
    both.ours("delete", rows((0, 20), 4))
    both.theirs("insert", rows((30, 31), 1))
    both.ours("insert", rows((32, 33), 1))
    check_buckets(both, "code")
    assert both.table.compact().instant is not None
    both.theirs("upsert", rows((5, 32, 40), 6), **{"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1})
    both.ours("upsert", rows((5, 31, 40, 41), 7))
    check_buckets(both, "code")


@pytest.mark.wide
def test_every_index_that_finds_keys(newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    shared = SharedTable(newer_hudi, tmp_path / "t", "cow", {**BLOOMS, "hoodie.metadata.record.index.enable": True})
    shared.theirs(keyed_rows(("a", 1, "a1", 1), ("b", 1, "b1", 2), ("c", 1, "c1", 3)), **{"hoodie.index.type": "BLOOM"})
    expected = {"a": "a1", "b": "b1", "c": "c1"}
    turns: list[tuple[str, str, dict[str, Any]]] = [
        ("ours", "INMEMORY", {}),
        ("theirs", "GLOBAL_SIMPLE", {}),
        ("ours", "INMEMORY", {}),
        ("ours", "BLOOM", {"hoodie.bloom.index.use.metadata": True}),
        ("theirs", "RECORD_INDEX", {}),
        ("ours", "GLOBAL_BLOOM", {"hoodie.bloom.index.use.metadata": True}),
        ("ours", "GLOBAL_SIMPLE", {}),
        ("theirs", "GLOBAL_BLOOM", {}),
        ("ours", "RECORD_INDEX", {}),
    ]
    for ts, (who, index, more) in enumerate(turns, 2):
        new = f"{'abcd'[ts % 4]}{ts}"
        data = keyed_rows(("a", ts, f"a{ts}", ts), ("c", ts, f"c{ts}", ts), (new, ts, new, ts))
        expected |= {"a": f"a{ts}", "c": f"c{ts}", new: new}
        (shared.ours if who == "ours" else shared.theirs)(data, **{"hoodie.index.type": index, **more})
        found = shared.table.scan().to_arrow()
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected, index
        assert found.num_rows == len(expected), index
    assert shared.same() == expected
    shared.checked()


def placed(*given: tuple[str, str, int, str]) -> pa.Table:
    """(key, partition, ordering value, text)."""
    data = keyed_rows(*((key, ts, v, ts) for key, _, ts, v in given))
    return data.set_column(1, "city", pa.array([city for _, city, _, _ in given], pa.string()))


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_partitioned_record_index_of_alternating_writers(newer_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    """Each finds the keys of the other by it, in the partitions that either began."""
    more = {"hoodie.index.type": "RECORD_LEVEL_INDEX", "hoodie.metadata.record.level.index.enable": True}
    shared = SharedTable(newer_hudi, tmp_path / "t", kind, more)
    shared.theirs(placed(("a", "x", 1, "xa"), ("b", "x", 1, "xb"), ("a", "y-_z", 1, "ya")))
    result = shared.table.upsert(
        placed(("a", "x", 2, "xa2"), ("b", "w a", 2, "wb"), ("c", "y-_z", 2, "yc"), ("d", "w a", 2, "wd"))
    )
    assert result.index_source == "record_index"
    shared.theirs(placed(("b", "w a", 3, "wb3"), ("c", "y-_z", 3, "yc3"), ("a", "v", 3, "va"), ("g", "v", 3, "vg")))
    shared.theirs(placed(("b", "x", 4, "")), "delete")
    shared.ours(placed(("a", "v", 5, "va5"), ("b", "x", 5, "back"), ("e", "u", 5, "ue"), ("f", "u", 5, "uf")))
    shared.table.delete(pa.table({"id": ["g"], "city": ["v"]}))
    shared.ours(placed(("z", "y-_z", 5, "yz")), "insert_overwrite")
    if kind == "mor":
        shared.table.compact()
    else:
        shared.table.cluster()
    shared.theirs(placed(("a", "v", 6, "va6"), ("g", "v", 6, "vg6"), ("z", "y-_z", 6, "yz6"), ("e", "u", 6, "u")))
    shared.same()
    found = {(row["city"], row["id"]): row["v"] for row in shared.table.scan().to_arrow().to_pylist()}
    assert found == {
        **{("x", "a"): "xa2", ("x", "b"): "back", ("w a", "b"): "wb3", ("w a", "d"): "wd", ("v", "a"): "va6", ("v", "g"): "vg6"},
        **{("y-_z", "z"): "yz6", ("u", "e"): "u", ("u", "f"): "uf"},
    }
    assert "record_index" in shared.table.config.metadata_partitions
    shared.checked()


def test_apache_hudi_loses_a_key_of_two_partitions(newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    """It exists in one of them, and is in one batch with both: both rows are written to the one, where the last remains."""
    more = {"hoodie.index.type": "RECORD_LEVEL_INDEX", "hoodie.metadata.record.level.index.enable": True}
    mine, other = (SharedTable(newer_hudi, tmp_path / name, "cow", more) for name in ("mine", "other"))
    mine.create()
    for data in (placed(("a", "x", 1, "xa")), placed(("a", "x", 2, "xa2"), ("a", "y", 2, "ya2"))):
        mine.ours(data)
        other.theirs(data)
    assert sorted(mine.table.scan().to_arrow()["v"].to_pylist()) == ["xa2", "ya2"]
    assert other.table.scan().to_arrow()["v"].to_pylist() == ["ya2"]
    assert newer_hudi.read(mine.path).num_rows == 2
