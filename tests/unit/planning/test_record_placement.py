"""Average record sizes and placement of inserts, with numbers measured on Apache Hudi's tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.instants import Action
from pyhudi.format.names import BaseFileName, LogFileName
from pyhudi.options.supported import parse_options
from pyhudi.planning.record_placement import (
    SizingSettings,
    assign_inserts,
    estimate_record_size_bytes,
    plan_inserts,
    rows_per_new_file,
    should_rewrite,
    small_files,
)
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile

MEBIBYTE = 1 << 20


def sizing(**options: object) -> SizingSettings:
    names = {
        "max_file": "hoodie.parquet.max.file.size",
        "limit": "hoodie.parquet.small.file.limit",
        "estimate": "hoodie.copyonwrite.record.size.estimate",
        "threshold": "hoodie.record.size.estimation.threshold",
        "overhead": "hoodie.record.size.estimator.average.metadata.size",
        "auto": "hoodie.copyonwrite.insert.auto.split",
        "split": "hoodie.copyonwrite.insert.split.size",
        "growth": "pyhudi.small.file.growth",
        "always": "pyhudi.small.file.always.rewritten",
    }
    return SizingSettings.of(parse_options({names[name]: value for name, value in options.items()}))


def commit(*stats: tuple[Any, ...]) -> CommitMetadata:
    """Stats as (bytes, rows) of a base file, with a third entry of a log file."""
    made = [WriteStat(total_write_bytes=stat[0], num_writes=stat[1], log_files=stat[2:] or None) for stat in stats]
    return CommitMetadata(partition_to_write_stats={"p": tuple(made)})


def of_commits(*commits: CommitMetadata, action: Action = Action.COMMIT, **options: object) -> int:
    return estimate_record_size_bytes([(action, each) for each in commits], sizing(**options))


def slice_of(size: int, name: str = "a", logs: int = 0) -> FileSlice:
    base = BaseFile(f"p/{name}", BaseFileName(name, "0-0-0", "001", ".parquet"), size)
    found = tuple(LogFile(f"p/{n}", LogFileName(name, "002", n + 1, "0-0-0"), 1) for n in range(logs))
    return FileSlice("p", name, "001", base, found)


def test_average_record_size_of_a_hudi_table() -> None:
    assert of_commits(commit((2319141, 10000)), limit=MEBIBYTE) == 231
    assert rows_per_new_file(231, sizing(max_file=MEBIBYTE)) == 4540


def test_only_large_commits_count() -> None:
    assert of_commits() == 1024
    assert of_commits(commit((100, 10)), limit=1000, estimate=77) == 77
    # Exactly the threshold is not enough; a threshold of half the limit is.
    assert of_commits(commit((1000, 10)), limit=1000) == 1024
    assert of_commits(commit((501, 10)), limit=1000, threshold=0.5) == 50
    # All of a commit together, and all large ones of the last five.
    assert of_commits(commit((600, 10), (600, 20)), limit=1000) == 40
    assert of_commits(commit((2000, 10)), commit((10, 5)), commit((4000, 10)), limit=1000) == 300
    assert of_commits(*[commit((2000, 10))] * 5, commit((90000, 10)), limit=1000) == 200
    # Without rows nothing is learnt, and a limit that is off counts as none.
    assert of_commits(commit((2000, 0)), limit=1000) == 1024
    assert of_commits(commit((10, 5)), limit=-1) == 2


def test_metadata_is_taken_off_each_entry() -> None:
    assert of_commits(commit((2000, 10)), limit=1000, overhead=500) == 150
    assert of_commits(commit((2000, 10)), limit=1000, overhead=2000) == 1024


def test_of_delta_commits_each_base_file_counts() -> None:
    metadata = commit((600, 10), (2000, 10), (9000, 3, "log"))
    assert of_commits(metadata, action=Action.DELTACOMMIT, limit=1000) == 200
    assert of_commits(metadata, action=Action.REPLACECOMMIT, limit=1000) == 1024
    # Other actions do not use up the five.
    recent = [(Action.REPLACECOMMIT, metadata)] * 9 + [(Action.COMMIT, commit((3000, 10)))]
    assert estimate_record_size_bytes(recent, sizing(limit=1000)) == 300


def test_small_files() -> None:
    slices = [slice_of(50, "c"), slice_of(10, "b"), slice_of(100, "d"), slice_of(20, "e", logs=1), slice_of(10, "a")]
    slices.append(FileSlice("p", "f", "001", None))

    def names(found: Iterable[FileSlice]) -> list[str]:
        return [s.file_id for s in found]

    assert names(small_files(slices, sizing(limit=100), frozenset())) == ["a", "b", "c"]
    assert names(small_files(slices, sizing(limit=100), frozenset({("p", "a"), ("q", "b")}))) == ["b", "c"]
    assert names(small_files(slices, sizing(limit=100), frozenset(), 1)) == ["a"]
    assert small_files(slices, sizing(limit=0), frozenset()) == ()


def test_a_file_is_rewritten_where_it_grows_by_a_share_of_its_size() -> None:
    settings = sizing(growth=0.1, always=100)
    assert should_rewrite(1000, 10, 10.0, settings) and not should_rewrite(1000, 9, 10.0, settings)
    assert should_rewrite(100, 1, 0.0, settings) and not should_rewrite(101, 1, 0.0, settings)
    assert should_rewrite(10**9, 1, 1.0, sizing(growth=0, always=0))


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=200), st.sampled_from([0.05, 0.1, 0.5, 1.0]))
def test_bytes_written_and_files_are_bounded(batches: list[int], growth: float) -> None:
    """Each batch goes to the smallest file that may take it, or begins one.  What is written in all stays within a multiple of
    what was brought; batches of one size make one file for so many of them.
    """
    settings = sizing(growth=growth, always=0)
    files: list[int] = []
    written = 0
    for batch in batches:
        taking = [size for size in sorted(files) if should_rewrite(size, batch, 1.0, settings)]
        if taking:
            files.remove(taking[0])
        files.append(batch + (taking[0] if taking else 0))
        written += files[-1]
    assert sum(files) == sum(batches)
    assert written <= sum(batches) * (1 + 1 / growth)
    if len(set(batches)) == 1:
        # A file that does not take a batch any more is larger than `1 / growth` of them.
        assert len(files) <= len(batches) * growth + 1


def plan(
    inserts: dict[str, int], candidates: Iterable[FileSlice] = (), size: int = 512, **options: object
) -> list[tuple[str, int]]:
    ids = (f"new-{number}" for number in itertools.count())
    found = plan_inserts(inserts, {"p": tuple(candidates)}, size, sizing(**options), lambda: next(ids))
    assert all(target.partition == partition for partition, targets in found.items() for target in targets)
    return [(target.file_id, target.row_count) for targets in found.values() for target in targets]


def test_insert_buckets_of_a_hudi_table() -> None:
    assert plan({"p": 10000}, max_file=MEBIBYTE) == [*((f"new-{n}", 2048) for n in range(4)), ("new-4", 10000 - 4 * 2048)]
    assert len(plan({"p": 10000}, size=231, max_file=MEBIBYTE)) == 3


def test_small_files_are_filled_first() -> None:
    small = [slice_of(500, "a"), slice_of(900, "b"), slice_of(1000, "full"), slice_of(2000, "over")]
    assert plan({"p": 3}, small, size=100, max_file=1000) == [("a", 3)]
    assert plan({"p": 20}, small, size=100, max_file=1000) == [("a", 5), ("b", 1), ("new-0", 10), ("new-1", 4)]
    assert plan({"p": 6}, small, size=100, max_file=1000) == [("a", 5), ("b", 1)]


def test_fixed_split() -> None:
    assert plan({"p": 7}, auto=False, split=3) == [("new-0", 3), ("new-1", 3), ("new-2", 1)]
    assert plan({"p": 0, "q": 2}) == [("new-0", 2)]


@given(
    st.dictionaries(st.sampled_from("pq"), st.integers(0, 5000)),
    st.lists(st.integers(0, 3000), max_size=4),
    st.integers(1, 3000),
    st.integers(1, 4000),
)
def test_every_insert_has_a_place(inserts: dict[str, int], sizes: list[int], record_size: int, max_file: int) -> None:
    small = [slice_of(size, f"s{number}") for number, size in enumerate(sizes)]
    settings = sizing(max_file=max_file)
    ids = (f"new-{number}" for number in itertools.count())
    found = plan_inserts(inserts, {"p": small}, record_size, settings, lambda: next(ids))
    assert {partition: sum(t.row_count for t in targets) for partition, targets in found.items()} == {
        partition: count for partition, count in inserts.items() if count
    }
    for targets in found.values():
        assert len({t.file_id for t in targets}) == len(targets)
        for target in targets:
            assert target.row_count > 0
            used = target.slice.base.size_bytes if target.slice and target.slice.base else 0
            assert target.row_count * record_size <= max_file - used or target.slice is None
            assert target.slice is not None or (target.row_count - 1) * record_size < max_file


@pytest.mark.parametrize("key", ["hoodie.parquet.max.file.size", "hoodie.copyonwrite.record.size.estimate"])
def test_sizes_are_positive(key: str) -> None:
    with pytest.raises(InvalidRequest, match="must be positive"):
        SizingSettings.of(parse_options({key: 0}))


def test_inserts_fill_their_targets_in_order_and_the_last_takes_what_is_left() -> None:
    assert assign_inserts([2, 1, 2], 0, 7).tolist() == [0, 0, 1, 2, 2, 2, 2]
    assert assign_inserts([2, 1, 2], 1, 3).tolist() == [0, 1, 2]
    assert assign_inserts([1], 5, 2).tolist() == [0, 0]
    assert assign_inserts([1], 0, 0).tolist() == []
