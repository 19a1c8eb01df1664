"""Damage in each metadata partition is found by validation, survived by reads, and repaired by a rebuild."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi import Table
from pyhudi.errors import Unsupported
from pyhudi.format.bloom_filter import BloomFilter
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.metadata_table.codecs.secondary_index_codec import encode_secondary_values, format_secondary_keys
from pyhudi.metadata_table.file_tasks import LogTask, MetadataFile, run_metadata_log
from pyhudi.metadata_table.metadata_records import (
    FileFilter,
    MetadataRecords,
    bloom_records,
    build_records,
    by_shard,
    column_stats_deletes,
    expression_records,
    partition_stats_records,
)
from pyhudi.metadata_table.writer.metadata_store import MetadataStore
from pyhudi.records.column_statistics import ColumnRange
from pyhudi.table import retry_on_corrupt
from pyhudi.table.snapshot import load_snapshot
from tests.support.needs import WIDE

EVERY = (
    "files",
    "column_stats",
    "partition_stats",
    "bloom_filters",
    "record_index",
    "secondary_index_note",
    "expr_index_day",
    "expr_index_upper_note",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source")
    options = {
        "hoodie.metadata.record.index.enable": True,
        "hoodie.metadata.index.bloom.filter.enable": True,
        "hoodie.metadata.record.index.min.filegroup.count": 1,
        "hoodie.metadata.index.column.stats.file.group.count": 1,
        "hoodie.metadata.index.bloom.filter.file.group.count": 1,
        "hoodie.metadata.index.expression.file.group.count": 1,
        "hoodie.index.bloom.num_entries": 100,
    }
    table = Table.create(path, record_key="id", partition_by="part", ordering="ts", options=options)
    table.upsert(rows())
    table.index.create("secondary_index", "note")
    table.index.create("column_stats", "ts", function="from_unixtime", function_options={"format": "yyyy-MM-dd"}, name="day")
    small = {"numentries": "100", "fpp": "0.01"}
    table.index.create("bloom_filters", "note", function="upper", function_options=small)
    # Everything in base files: rows written to the empty table are in logs.
    table.index.rebuild()
    table.upsert(rows().slice(0, 2))
    return path


def rows() -> pa.Table:
    return pa.table(
        {
            "id": [f"k{key}" for key in range(12)],
            "part": ["ab"[key % 2] for key in range(12)],
            "ts": pa.array([key * 86_400 for key in range(12)], pa.int64()),
            "note": [f"n{key % 3}" for key in range(12)],
        }
    )


@pytest.fixture
def table(source: Path, tmp_path: Path) -> Table:
    shutil.copytree(source, tmp_path, dirs_exist_ok=True)
    return Table(tmp_path)


def add_index_log(table: Table, partition: str, records: MetadataRecords) -> None:
    """Add a log file with these records to the metadata table, under the instant of the last write."""
    store = MetadataStore.open(table.context.reloaded())
    last = table.timeline().last_completed_write()
    assert last is not None
    groups = store.groups.of(partition)
    for shard, piece in by_shard(records, len(groups)).items():
        file = MetadataFile(store.storage.spec(), partition, groups[shard].file_id, last.request_time, "9-9-9")
        run_metadata_log(LogTask(file, piece))


def base_file(table: Table, partition: str = "a") -> str:
    slices = load_snapshot(table.context.reloaded()).slices([partition])[partition]
    assert slices[0].base is not None
    return slices[0].base.name.text


def stored(table: Table) -> pa.Schema:
    return with_meta_fields(table.schema())


FILTERS = (("note = 'n1'", 4), ("id = 'k3'", 1), ("ts > 500000", 6), ("part = 'a' AND ts >= 0", 6))

NARROW = ColumnRange(1, 2, 0, 6)
TEXTS = ColumnRange("1970-01-02", "1970-01-02", 0, 6)


def wrong_partitions(table: Table) -> None:
    add_index_log(table, "partition_stats", partition_stats_records({"a": {"ts": NARROW}}, ["ts"], stored(table)))


def wrong_partitions_without_file_statistics(table: Table) -> None:
    wrong_partitions(table)
    add_index_log(table, "column_stats", column_stats_deletes({"a": [base_file(table)]}, ["ts"]))


def no_partition(table: Table) -> None:
    add_index_log(table, "partition_stats", partition_stats_records({"a": None}, ["ts"], stored(table)))


def other_filter(table: Table) -> None:
    made = BloomFilter.create("DYNAMIC_V0", 100, 0.01, 1000)
    made.add(pa.array(["something"]))
    add_index_log(table, "bloom_filters", bloom_records([FileFilter("a", base_file(table), "DYNAMIC_V0", made.to_text())], "1"))


def no_key(table: Table) -> None:
    add_index_log(table, "record_index", build_records(deletes=pa.array(["k2"])))


def no_value(table: Table) -> None:
    gone = format_secondary_keys(pa.array(["n2"]), pa.array(["k2"]))
    add_index_log(table, "secondary_index_note", build_records(deletes=gone))


def secondary_value_without_key(table: Table) -> None:
    keys = format_secondary_keys(pa.array(["n9"]), pa.array(["k2"]))
    add_index_log(table, "secondary_index_note", build_records(keys, encode_secondary_values(1)))


def wrong_results(table: Table) -> None:
    add_index_log(table, "expr_index_day", expression_records("ts", pa.string(), [("a", base_file(table), TEXTS)], {}))


def wrong_results_of_partition(table: Table) -> None:
    add_index_log(table, "expr_index_day", expression_records("ts", pa.string(), (), {"a": TEXTS}))


def other_results(table: Table) -> None:
    made = BloomFilter.create("DYNAMIC_V0", 100, 0.01, 1000)
    made.add(pa.array(["something"]))
    add_index_log(
        table, "expr_index_upper_note", bloom_records([FileFilter("a", base_file(table), "DYNAMIC_V0", made.to_text())], "1")
    )


def test_a_sound_table(table: Table) -> None:
    found = table.validate()
    assert found.ok and not found.findings, str(found)
    assert {name for name, _ in found.checks} >= set(EVERY)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("damage", "check", "message"),
    [
        (wrong_partitions, "partition_stats", "but 1 to 2 in the index"),
        (wrong_partitions_without_file_statistics, "partition_stats", "but 1 to 2 in the index"),
        (no_partition, "partition_stats", "Hudi skips this partition"),
        (other_filter, "bloom_filters", "differs from that of the file"),
        (no_key, "record_index", "1 keys are missing: 'k2'"),
        (no_value, "secondary_index_note", "1 pairs of value and record key are missing"),
        (secondary_value_without_key, "secondary_index_note", "lookups read more than necessary"),
        (wrong_results_of_partition, "expr_index_day", "but '1970-01-02'"),
        (other_results, "expr_index_upper_note", "differs from that of the file"),
    ],
)
def test_wrong_records(table: Table, damage: Callable[[Table], None], check: str, message: str) -> None:
    damage(table)
    found = table.validate()
    said = [finding for finding in found.findings if finding.check == check]
    assert said and message in said[0].detail, str(found)
    table.index.rebuild(check)
    assert not table.validate().findings


# Each partition with the damage that shows when its data are read, and half of them with each of the others.
SOONER = {("gone", name) for name in ("files", "partition_stats", "secondary_index_note", "expr_index_upper_note")}
SOONER |= {("cut", name) for name in ("files", "column_stats", "record_index", "bloom_filters")}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("how", "partition"),
    [
        pytest.param(how, name, marks=() if how == "flipped" or (how, name) in SOONER else pytest.mark.wide)
        for how in ("gone", "cut", "flipped")
        for name in EVERY
    ],
)
def test_damaged_files(table: Table, tmp_path: Path, partition: str, how: str) -> None:
    folder = tmp_path / ".hoodie/metadata" / partition
    for path in folder.iterdir():
        if path.suffix == ".hfile" and path.name[0] != ".":
            data = path.read_bytes()
            (folder / f".{path.name}.crc").unlink(missing_ok=True)
            if how == "gone":
                path.unlink()
            elif how == "cut":
                path.write_bytes(data[: len(data) // 2])
            else:
                # The first data block's magic.
                path.write_bytes(b"XX" + data[2:])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for text, count in FILTERS:
            found = Table(tmp_path).scan(filter=text).count()
            # Missing files are no damage that a reader could detect: it knows only the metadata table.
            assert found == count or how == "gone", (text, found)
    if how != "gone" and partition in ("files", "record_index", "secondary_index_note", "column_stats"):
        assert any(str(tmp_path) in str(one.message) and partition in str(one.message) for one in caught), [
            str(one.message) for one in caught
        ]
    if how != "gone":
        assert not table.validate().ok
    table.index.rebuild(partition)
    assert table.validate().ok and not table.validate().findings


def answers(path: Path, filters: Sequence[tuple[str, int]] = FILTERS) -> None:
    """Every filter finds its rows, regardless of the damage."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for text, count in filters:
            assert Table(path).scan(filter=text).count() == count, text


@pytest.mark.parametrize(
    ("partition", "readers"),
    [
        ("files", FILTERS[3:]),
        ("column_stats", FILTERS[2:3]),
        ("record_index", FILTERS[1:2]),
        ("secondary_index_note", FILTERS[:1]),
    ],
)
def test_a_flipped_bit_in_each_section(table: Table, tmp_path: Path, partition: str, readers: Sequence[tuple[str, int]]) -> None:
    """readers: the filter that reads the partition most."""
    readers = FILTERS if WIDE else readers
    (path,) = (p for p in (tmp_path / ".hoodie/metadata" / partition).glob("[!.]*.hfile"))
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    data = path.read_bytes()
    trailer = len(data) - 4096
    index, info = data.index(b"IDXROOT2"), data.index(b"FILEINF2")
    places = {
        "magic of a data block": 3,
        "length of a data block": 8,
        "length without compression": 12,
        "checksum's reach": 25,
        "data": 40,
        "checksum": index - 3,
        "magic of the index": index + 2,
        "length of the index": index + 9,
        "index": index + 40,
        "file info": info + 40,
        "magic of the trailer": trailer + 1,
        "length of the trailer": trailer + 8,
        "offsets": trailer + 12,
        "version": len(data) - 1,
    }
    for number, (name, place) in enumerate(places.items()):
        for bit in (0, 7) if WIDE else (number % 2 * 7,):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            path.write_bytes(bytes(damaged))
            try:
                answers(tmp_path, readers)
            except AssertionError as error:
                error.add_note(f"{name}, bit {bit}")
                raise
    for length in (0, 10, 4096, index, info, len(data) - 1):
        path.write_bytes(data[:length])
        answers(tmp_path, readers)


def test_missing_index_folder_that_is_still_listed(table: Table, tmp_path: Path) -> None:
    table.context.storage.delete_folder(".hoodie/metadata")
    with pytest.warns(RuntimeWarning, match=str(tmp_path)):
        assert Table(tmp_path).scan(filter="note = 'n1'").count() == 4
    answers(tmp_path)
    assert not table.validate().ok
    table.index.rebuild()
    assert table.validate().ok


@pytest.mark.parametrize("text", ["", "{", "[]", '{"indexDefinitions": {"column_stats": 1}}'])
def test_definitions_that_are_damaged(table: Table, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # No other process writes them anew meanwhile.
    monkeypatch.setattr(retry_on_corrupt, "PAUSES_MS", ())
    path = tmp_path / ".hoodie/.index_defs/index.json"
    path.write_text(text)
    (path.parent / ".index.json.crc").unlink(missing_ok=True)
    answers(tmp_path)
    with pytest.warns(RuntimeWarning, match=r"index\.json"):
        Table(tmp_path).scan(filter="note = 'n1'").count()
    assert not table.validate().ok


def test_index_definition_of_a_missing_column(table: Table, tmp_path: Path) -> None:
    path = tmp_path / ".hoodie/.index_defs/index.json"
    path.write_text(path.read_text().replace('"note"', '"gone"'))
    (path.parent / ".index.json.crc").unlink(missing_ok=True)
    answers(tmp_path)
    with pytest.raises(Unsupported, match=r"secondary_index_note.*gone.*index\.drop"):
        table.upsert(rows())
    found = table.validate()
    assert not found.ok and "unchecked secondary_index_note" in str(found)


def test_bounds_of_decimals_of_every_width(tmp_path: Path) -> None:
    """In the second layout every decimal has bounds, of files and of partitions; a file with others is reported."""
    kinds = {"d7": pa.decimal128(7, 2), "d18": pa.decimal128(18, 4), "d38": pa.decimal128(38, 8)}
    options = {"hoodie.write.table.version": 9, "hoodie.metadata.index.column.stats.enable": True}
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", partition_by="city", options=options)

    def decimals(upper: str) -> list[pa.Array]:
        return [pa.array([Decimal("-1.5"), Decimal(upper)], kind) for kind in kinds.values()]

    keys = {"id": ["a", "b"], "ts": [1, 1], "city": ["x", "x"]}
    table.upsert(pa.table({**keys, **dict(zip(kinds, decimals("25"), strict=True))}))
    assert table.validate().ok
    (file,) = (tmp_path / "t" / "x").glob("*.parquet")
    rows = pq.ParquetFile(file).read()
    for name, values in zip(kinds, decimals("26"), strict=True):
        position = rows.schema.get_field_index(name)
        rows = rows.set_column(position, rows.schema.field(position), values)
    pq.write_table(rows, file, store_schema=False)
    told = str(table.validate())
    for name, kind in kinds.items():
        # Once for the file, once for the partition.
        assert told.count(f": {name} is") == 2, told
        assert told.count(f"{Decimal(25).quantize(Decimal(1).scaleb(-kind.scale))!r}") >= 2, told
