"""Bloom filters of base files: size by number of keys, inherited filters, no missed key."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.bloom_filter import BloomFilter
from pyhudi.table.snapshot import load_snapshot
from pyhudi.tasks.base_file_bloom_filter import GrowingFilter
from pyhudi.tasks.base_file_reader import BLOOM_KEY, footer_filter, key_filter, open_base_file, open_base_file_and_key_values


@dataclass(frozen=True)
class Sizes:
    bloom_type: str = "DYNAMIC_V0"
    bloom_entries: int = 1000
    bloom_fpp: float = 1e-9
    bloom_max_entries: int = 4000


def keys(first: int, last: int) -> pa.Array:
    return pa.array([f"key-{number}" for number in range(first, last)], pa.string())


def table_with_commits(sizes: Sizes, *counts: int) -> BloomFilter:
    building = GrowingFilter(sizes)
    first = 0
    for count in counts:
        building.add(keys(first, first + count))
        first += count
    return building.finish()


@pytest.mark.parametrize(
    ("count", "entries"), [(0, 64), (1, 64), (64, 64), (65, 128), (500, 512), (501, 1000), (1000, 1000), (1001, 1000)]
)
def test_few_keys_have_a_filter_of_their_size(count: int, entries: int) -> None:
    found = table_with_commits(Sizes(), count // 2, count - count // 2)
    of_entries = BloomFilter.create("DYNAMIC_V0", entries, 1e-9, 4000)
    if count:
        of_entries.add(keys(0, count))
        assert found.might_contain(keys(0, count)).all()
    assert found.encode() == of_entries.encode()
    assert not found.might_contain(keys(count, count + 2000)).any()


def test_simple_bloom_filter_has_the_configured_size() -> None:
    assert table_with_commits(Sizes("SIMPLE"), 3).size_bytes == BloomFilter.create("SIMPLE", 1000, 1e-9).size_bytes


def test_small_options_are_kept() -> None:
    assert table_with_commits(Sizes(bloom_entries=1), 3).row_count == 3
    assert table_with_commits(Sizes(bloom_entries=20), 3).size_bytes == BloomFilter.create("DYNAMIC_V0", 20, 1e-9).size_bytes


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_files_that_grow_and_shrink_have_the_filter_that_fits(table_type: str) -> None:
    options = {"hoodie.index.bloom.num_entries": 1000, "hoodie.compact.inline": False, "hoodie.metadata.enable": False}
    table = Table.create(f"memory://key-filter-{table_type}", record_key="id", table_type=table_type, options=options)

    def rewrite(first: int, last: int) -> BloomFilter:
        table.upsert(pa.table({"id": keys(first, last), "n": pa.array(range(first, last), pa.int64())}))
        if table_type == "mor":
            table.compact()
        found = filter_of(table)
        everything = table.scan(["id"]).to_arrow().column("id").combine_chunks()
        assert found.might_contain(everything).all()
        assert not found.might_contain(keys(5000, 7000)).any()
        return found

    def of(entries: int) -> int:
        return BloomFilter.create("DYNAMIC_V0", entries, 1e-9).size_bytes

    assert rewrite(0, 10).size_bytes == of(64)
    assert rewrite(5, 300).size_bytes == of(512)
    assert rewrite(290, 700).size_bytes == of(1000)
    assert rewrite(700, 702).size_bytes == of(1000)
    table.delete(where="n >= 20")
    assert rewrite(0, 3).size_bytes in (of(1000), of(64))
    assert rewrite(0, 3).size_bytes == of(64)


@pytest.mark.parametrize("base_format", ["PARQUET", "ORC"])
def test_key_filter_is_read_apart_from_the_metadata(base_format: str) -> None:
    options = {"hoodie.table.base.file.format": base_format}
    table = Table.create(f"memory://filter-apart-{base_format}", record_key="id", options=options)
    table.upsert(pa.table({"id": keys(0, 100)}))
    with open_base_file_and_key_values(table.context.storage, base_path(table)) as (file, key_values):
        if base_format == "PARQUET":
            assert (file.metadata.metadata or {})[BLOOM_KEY.encode()] == b""
        found = key_filter(key_values)
        assert file.metadata.num_rows == 100
    assert found is not None
    assert found.might_contain(keys(0, 100)).all()
    assert key_filter({}) is None


def base_path(table: Table) -> str:
    """The path of the table's one base file."""
    (slices,) = load_snapshot(table.context).slices(None).values()
    (slice_,) = slices
    assert slice_.base is not None
    return slice_.base.path


def filter_of(table: Table) -> BloomFilter:
    """The filter of the table's one base file."""
    with open_base_file(table.context.storage, base_path(table)) as file:
        found = footer_filter(file.metadata)
    assert found is not None
    return found
