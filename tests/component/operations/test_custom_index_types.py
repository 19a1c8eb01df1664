"""A new index type needs one module and a codec.

The index of this test stores the rows of each base file. It is built, updated by commits, cleans and rollbacks, merged
by metadata compaction, used by filtered reads and key lookups, validated and dropped. Only the list of index types
names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.format.paths import file_name
from pyhudi.metadata_table.file_group_merge import BLOOM_FILTERS_BY_FILE, CellMergeRule
from pyhudi.metadata_table.file_tasks import LogTask, run_metadata_log
from pyhudi.metadata_table.indexes import INDEX_TYPES
from pyhudi.metadata_table.indexes.index_events import CommitPublishing, FilesCleaned, IndexBuild
from pyhudi.metadata_table.indexes.index_pruning import BaseFilePruner, FileT, Filter
from pyhudi.metadata_table.indexes.index_validation import CheckedTable, IndexFindings
from pyhudi.metadata_table.indexes.metadata_index import Index, IndexUpdate
from pyhudi.metadata_table.metadata_keys import bloom_filter_keys, file_hashes
from pyhudi.metadata_table.metadata_records import FileFilter, MetadataRecords, bloom_deletes, bloom_records, by_shard
from pyhudi.metadata_table.reader.index_lookups import find_bloom_filters, find_files
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import MetadataStore
from pyhudi.table.snapshot import load_snapshot
from pyhudi.tasks.file_stats import FileIndexing

# The codec -----------------------------------------------------------------------------------------------------------


def encode_counts(counts: Iterable[tuple[str, str, int]], time: str) -> MetadataRecords:
    """(partition, name, rows) of base files -> records, which borrow the payload of Bloom filters."""
    return bloom_records([FileFilter(partition, name, "ROWS", str(count)) for partition, name, count in counts], time)


def find_counts(metadata: MetadataTable, names: Mapping[str, list[str]]) -> dict[tuple[str, str], int]:
    rows = find_bloom_filters(metadata, names, RowCounts.partition_type)
    stored = dict(zip(rows["key"].to_pylist(), rows["bloom_filter"].to_pylist(), strict=True))
    keys = {(p, name): bloom_filter_keys(p, file_hashes([name]))[0].as_py() for p, found in names.items() for name in found}
    return {place: int(stored[key]) for place, key in keys.items() if key in stored}


# The kind ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowCounts(Index):
    partition_type: ClassVar[str] = "row_counts"
    merge: ClassVar[CellMergeRule] = BLOOM_FILTERS_BY_FILE

    @classmethod
    def file_ids(cls, partition: str, count: int) -> tuple[str, ...]:
        return tuple(f"row-counts-{number:04d}-0" for number in range(count))

    def group_count(self, settings: MetadataSettings, row_count: Callable[[], int]) -> int:
        return 2

    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        written = [(p, name, s.stat.num_writes) for p, name, s in commit.reported if not name.startswith(".")]
        return IndexUpdate(encode_counts(written, commit.time))

    def updates_for_clean(self, clean: FilesCleaned) -> MetadataRecords:
        return bloom_deletes(clean.deleted_bases)

    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        found = state.read_files(FileIndexing(), logs=False)
        return IndexUpdate(encode_counts([(f.partition, f.name, f.row_count) for f in found], time))

    @classmethod
    def prune_base_files(cls, partition: str, metadata: MetadataTable, asked: Filter) -> BaseFilePruner | None:
        """Nothing matches in a file without rows, for any filter."""

        def without_rows(files: Sequence[FileT]) -> set[str]:
            names: dict[str, list[str]] = {}
            for of, base in files:
                names.setdefault(of, []).append(base.name.text)
            counts = find_counts(metadata, names)
            return {base.path for of, base in files if counts.get((of, base.name.text)) == 0}

        return without_rows

    @classmethod
    def key_ranges(
        cls, partition: str, metadata: MetadataTable, partitions: Sequence[str]
    ) -> Mapping[tuple[str, str], tuple[str, str]]:
        """No key is in a file without rows."""
        found = find_files(metadata, partitions)
        names: dict[str, list[str]] = {}
        for of, name in zip(found["partition"].to_pylist(), found["name"].to_pylist(), strict=True):
            names.setdefault(of, []).append(name)
        return {place: ("", "") for place, count in find_counts(metadata, names).items() if count == 0}

    def check(self, table: CheckedTable) -> IndexFindings:
        found = IndexFindings()
        state = IndexBuild(table.context, table.engine, table.snapshot, (), table.schema)
        for file in state.read_files(FileIndexing(), logs=False):
            said = find_counts(table.metadata, {file.partition: [file.name]}).get((file.partition, file.name))
            if said != file.row_count:
                found.add_error(file.name, f"holds {file.row_count} rows, and row_counts says {said}")
        found.checked = f"{len(table.slices)} files"
        return found


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    INDEX_TYPES.append(RowCounts)
    try:
        yield
    finally:
        INDEX_TYPES.remove(RowCounts)


def rows(first: int, count: int, ts: int) -> pa.Table:
    keys = range(first, first + count)
    return pa.table(
        {
            "id": [f"k{key:03d}" for key in keys],
            "part": ["ab"[key % 2] for key in keys],
            "ts": pa.array([ts] * count, pa.int64()),
        }
    )


def stored(table: Table, names: Iterable[str]) -> dict[str, int]:
    """What the index records of some files, by path."""
    context = table.context.reloaded()
    metadata = MetadataTable(context, context.timeline.load())
    by_partition: dict[str, list[str]] = {}
    for path in names:
        by_partition.setdefault(path.rpartition("/")[0], []).append(file_name(path))
    return {f"{partition}/{name}": count for (partition, name), count in find_counts(metadata, by_partition).items()}


def base_files(path: Path) -> set[str]:
    return {f"{file.parent.name}/{file.name}" for file in path.glob("*/*.parquet")}


def add_index_log(table: Table, records: MetadataRecords) -> None:
    """Add a log file with these records to the index, under the instant of the last write."""
    store = MetadataStore.open(table.context.reloaded())
    last = table.timeline().last_completed_write()
    assert last is not None
    for shard, piece in by_shard(records, store.groups.count(RowCounts.partition_type)).items():
        run_metadata_log(
            LogTask(
                replace(
                    store.file(RowCounts.partition_type, store.groups.of(RowCounts.partition_type)[shard], last.request_time),
                    token="9-9-9",
                ),
                piece,
            )
        )


def assert_true(table: Table, path: Path) -> None:
    """It has an entry for every existing base file, with the number of rows of the newest ones; `validate` checks it."""
    assert set(stored(table, base_files(path))) == base_files(path)
    found = table.validate()
    assert found.ok and RowCounts.partition_type in dict(found.checks), str(found)


def test_registered_index_type_is_built_and_maintained(tmp_path: Path) -> None:
    options = {
        "hoodie.metadata.compact.max.delta.commits": 9,
        "hoodie.clean.commits.retained": 1,
        "hoodie.clean.automatic": False,
    }
    table = Table.create(tmp_path, record_key="id", partition_by="part", ordering="ts", options=options)
    table.upsert(rows(0, 8, 1))
    made = table.index.create("row_counts")
    assert (made.name, made.kind, made.state) == ("row_counts", "row_counts", "ready")
    assert sorted(stored(table, base_files(tmp_path)).values()) == [4, 4]

    table.upsert(rows(6, 6, 2))
    assert_true(table, tmp_path)
    table.delete(rows(0, 1, 3))
    assert_true(table, tmp_path)

    last = table.timeline().completed_writes()[-1]
    before = base_files(tmp_path)
    table.rollback(last.request_time)
    gone = before - base_files(tmp_path)
    assert gone and not stored(table, gone)
    assert_true(table, tmp_path)

    # Long enough for the metadata table to be compacted: the index type defines how its records are merged.
    for ts in (3, 4, 5):
        table.upsert(rows(0, 2, ts))
    assert len({file.name.split("_")[-1] for file in (tmp_path / ".hoodie/metadata/row_counts").glob("*.hfile")}) > 1
    assert_true(table, tmp_path)

    before = base_files(tmp_path)
    table.clean(dry_run=False)
    gone = before - base_files(tmp_path)
    assert gone and not stored(table, gone)
    assert_true(table, tmp_path)

    table.upsert(rows(0, 2, 6))
    slices = load_snapshot(table.context.reloaded()).slices(["b"])["b"]
    assert slices[0].base is not None
    add_index_log(table, encode_counts([("b", slices[0].base.name.text, 99)], "0"))
    found = table.validate()
    assert not found.ok and "row_counts says 99" in str(found)
    table.index.rebuild("row_counts")
    assert table.validate().ok

    table.index.drop("row_counts")
    assert "row_counts" not in [info.name for info in table.index.list()]
    assert not (tmp_path / ".hoodie/metadata/row_counts").exists()
    table.upsert(rows(0, 2, 9))
    assert table.validate().ok


def test_filtered_read_uses_the_registered_index_type(tmp_path: Path) -> None:
    table = Table.create(tmp_path, record_key="id", partition_by="part", ordering="ts")
    table.upsert(rows(0, 8, 1))
    table.index.create("row_counts")
    scan = table.scan(filter="ts = 1")
    assert "row_counts: 2 of 2 file slices" in str(scan.explain()) and scan.count() == 8
    # Wrong entries are believed: so the index is used, and no other one decides.
    (file,) = (path for path in base_files(tmp_path) if path.startswith("b/"))
    add_index_log(table, encode_counts([("b", file_name(file), 0)], "0"))
    # No writer adds a file to an instant that has completed, so `table` may go by what it has read.
    scan = Table(tmp_path).scan(filter="ts = 1")
    assert "row_counts: 1 of 2 file slices" in str(scan.explain()) and scan.count() == 4
    assert table.scan().count() == 8
    table.index.drop("row_counts")
    assert "row_counts" not in str(table.scan(filter="ts = 1").explain())


def test_key_lookup_of_a_write_uses_the_registered_index_type(tmp_path: Path) -> None:
    options = {
        "hoodie.index.type": "BLOOM",
        "hoodie.bloom.index.use.metadata": True,
        "hoodie.metadata.index.column.stats.enable": False,
        "hoodie.parquet.small.file.limit": 0,
    }
    table = Table.create(tmp_path, record_key="id", partition_by="part", ordering="ts", options=options)
    table.upsert(rows(0, 8, 1))
    assert table.upsert(rows(0, 2, 2)).index_source == "footers"
    table.index.create("row_counts")
    result = table.upsert(rows(0, 2, 3))
    assert (result.index_source, result.rows_updated, result.rows_inserted) == ("row_counts and footers", 2, 0)
    # Wrong entries are believed: in files without rows no key is looked up.
    add_index_log(table, encode_counts([(path[0], file_name(path), 0) for path in base_files(tmp_path)], "0"))
    result = table.upsert(rows(0, 2, 4))
    assert (result.rows_updated, result.rows_inserted) == (0, 2)


def test_rollback_of_an_indexed_commit_drops_the_index(tmp_path: Path) -> None:
    table = Table.create(tmp_path, record_key="id", partition_by="part", ordering="ts")
    table.upsert(rows(0, 8, 1))
    table.upsert(rows(0, 2, 2))
    last = table.timeline().completed_writes()[-1]
    table.index.create("row_counts")
    table.rollback(last.request_time)
    assert "row_counts" not in [info.name for info in table.index.list()]
    assert table.validate().ok


def test_table_with_an_unknown_index_type_is_not_written(tmp_path: Path) -> None:
    table = Table.create(tmp_path, record_key="id", partition_by="part", ordering="ts")
    table.upsert(rows(0, 8, 1))
    table.index.create("row_counts")
    INDEX_TYPES.remove(RowCounts)
    try:
        with pytest.raises(Unsupported, match="row_counts"):
            table.upsert(rows(0, 2, 2))
        with pytest.raises(InvalidRequest, match="index kind 'row_counts' does not exist"):
            table.index.create("row_counts")
        assert "row_counts" in str(table.validate())
    finally:
        INDEX_TYPES.append(RowCounts)


@pytest.mark.parametrize("kind", INDEX_TYPES)
def test_index_type_decides_which_definition_versions_it_writes(kind: type[Index]) -> None:
    for version, is_written in ((None, True), ('"V1"', True), ('"V2"', 2 in kind.layouts)):
        other = () if version is None else (("version", version),)
        definition = IndexDefinition(f"{kind.partition_type}_note", "any", "identity", ("note",), other=other)
        if is_written:
            kind.check_writable(definition)
        else:
            with pytest.raises(Unsupported, match="reads layout 2 of its records, but does not write it"):
                kind.check_writable(definition)


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_empty_text_under_a_bloom_filter_of_an_expression(tmp_path: Path, table_type: str) -> None:
    options = {"hoodie.parquet.small.file.limit": 0}
    table = Table.create(str(tmp_path / "t"), record_key="id", table_type=table_type, options=options)
    table.insert(pa.table({"id": ["1"], "city": ["x"]}))
    table.index.create("bloom_filters", "city", function="lower", name="of_city")
    table.insert(pa.table({"id": ["2", "3"], "city": ["", None]}))
    table.insert(pa.table({"id": ["4"], "city": [""]}))
    table.insert(pa.table({"id": ["5"], "city": ["y"]}))

    def ids(condition: str) -> list[str]:
        return sorted(table.scan(filter=condition).to_arrow()["id"].to_pylist())

    for _ in range(2):
        assert ids("lower(city) = ''") == ["2", "4"]
        assert ids("lower(city) = 'x'") == ["1"]
        assert ids("lower(city) IN ('', 'y')") == ["2", "4", "5"]
        assert ids("city IS NULL") == ["3"]
        assert table.validate().ok
        # Built over files with the empty text.
        table.index.rebuild("expr_index_of_city")


def test_filters_on_an_empty_key_find_nothing(tmp_path: Path) -> None:
    indexed = {"hoodie.metadata.index.bloom.filter.enable": True, "hoodie.metadata.record.index.enable": True}
    table = Table.create(str(tmp_path / "t"), record_key="id", options=indexed)
    table.insert(pa.table({"id": ["1", "2"], "city": ["", None]}))
    table.index.create("secondary_index", "city")
    table.upsert(pa.table({"id": ["2", "3"], "city": ["", "z"]}))
    assert sorted(table.scan(filter="city = ''").to_arrow()["id"].to_pylist()) == ["1", "2"]
    assert table.scan(filter="id = ''").count() == 0
    assert table.validate().ok
