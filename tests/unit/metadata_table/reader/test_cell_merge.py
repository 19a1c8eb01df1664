"""Merge of metadata cells: the newest counts, file lists are united, column ranges widen."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData
from pyhudi.metadata_table.codecs.column_stats_codec import (
    COLUMN_STATS_SCHEMA,
    encode_column_stats,
)
from pyhudi.metadata_table.codecs.files_codec import FILES_SCHEMA, encode_files
from pyhudi.metadata_table.codecs.metadata_schema import RECORD_SCHEMA, MetadataRecordType
from pyhudi.metadata_table.codecs.value_wrappers import unwrap, wrap_values
from pyhudi.metadata_table.reader import cell_merge
from pyhudi.metadata_table.reader.cell_merge import STATS_SCHEMA, Cells, Deletes, GroupCells, merge_files, newest_cells
from tests.support.merged_metadata import ColumnStatsRecord, FileEntry, merge_column_stats, merge_file_lists

_LONG = pa.int64()
KEYS = ["a", "b", "c", "d"]


def cells(entries: dict[str, bytes]) -> Cells:
    ordered = sorted(entries)
    return Cells(
        pa.array([key.encode() for key in ordered], pa.binary()), pa.array([entries[k] for k in ordered], pa.binary()), "s"
    )


def deletes(keys: list[str]) -> Deletes:
    return Deletes(pa.array([key.encode() for key in keys], pa.binary()))


LAYERS = st.lists(
    st.dictionaries(st.sampled_from(KEYS), st.binary(max_size=2), max_size=4).map(cells)
    | st.lists(st.sampled_from(KEYS), max_size=3).map(deletes),
    max_size=4,
).map(tuple)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), st.binary(max_size=2), max_size=3), max_size=2), LAYERS)
def test_the_newest_cell_counts(base: list[dict[str, bytes]], layers: tuple[Cells | Deletes, ...]) -> None:
    expected: dict[str, bytes] = {}
    batches = []
    for entries in base:
        fresh = {key: value for key, value in entries.items() if key not in expected}
        expected.update(fresh)
        batches.append(cells(fresh))
    for layer in layers:
        if isinstance(layer, Deletes):
            for key in layer.keys.to_pylist():
                expected.pop(key.decode(), None)
        else:
            expected.update(zip((key.decode() for key in layer.keys.to_pylist()), layer.values.to_pylist(), strict=True))
    found = [
        (key.decode(), value)
        for part in newest_cells(GroupCells(iter(batches), layers))
        for key, value in zip(part.keys.to_pylist(), part.values.to_pylist(), strict=True)
    ]
    assert sorted(found) == sorted(expected.items())


ENTRIES = st.dictionaries(
    st.sampled_from(["f", "g", "h"]), st.integers(1, 9).map(FileEntry) | st.just(FileEntry(0, True)), min_size=1, max_size=3
)
LISTS = st.dictionaries(st.sampled_from(["p", "q"]), ENTRIES, max_size=2)


def listed(lists: dict[str, dict[str, FileEntry]]) -> Cells:
    rows = [
        {"partition": partition, "name": name, "size_bytes": entry.size_bytes, "is_deleted": entry.is_deleted}
        for partition, entries in lists.items()
        for name, entry in entries.items()
    ]
    keys, values = encode_files(pa.RecordBatch.from_pylist(rows, schema=FILES_SCHEMA))
    return Cells(keys.cast(pa.binary()), values, RECORD_SCHEMA)


@given(LISTS, st.lists(LISTS | st.lists(st.sampled_from(["p", "q"]), max_size=1), max_size=4))
def test_lists_of_files(base: dict[str, dict[str, FileEntry]], layers: list[Any]) -> None:
    merged = {partition: dict(entries) for partition, entries in base.items()}
    for layer in layers:
        if isinstance(layer, list):
            for key in layer:
                merged.pop(key, None)
        else:
            for partition, entries in layer.items():
                merged[partition] = merge_file_lists(merged.get(partition, {}), entries)
    expected = [
        (partition, name, entry.size_bytes)
        for partition in sorted(merged)
        for name, entry in sorted(merged[partition].items())
        if not entry.is_deleted
    ]
    newer = tuple(deletes(layer) if isinstance(layer, list) else listed(layer) for layer in layers)
    found = merge_files(GroupCells([listed(base)], newer))
    assert found.schema == FILES_SCHEMA
    assert [(r["partition"], r["name"], r["size_bytes"]) for r in found.to_pylist()] == expected


def stats_cells(records: dict[str, ColumnStatsRecord], kind: pa.DataType = _LONG) -> Cells:
    ordered = sorted(records)
    rows = [records[key] for key in ordered]
    columns = {
        "file_name": [row.file_name for row in rows],
        "column_name": [row.column_name for row in rows],
        "min": wrap_values(pa.array([row.min for row in rows], kind)),
        "max": wrap_values(pa.array([row.max for row in rows], kind)),
        "value_count": [row.value_count for row in rows],
        "null_count": [row.null_count for row in rows],
        "total_size_bytes": [row.total_size_bytes for row in rows],
        "total_uncompressed_size_bytes": [row.total_uncompressed_size_bytes for row in rows],
        "is_deleted": [row.is_deleted for row in rows],
        "is_tight": [row.is_tight for row in rows],
        "value_type": [None] * len(rows),
        "type_info": [None] * len(rows),
    }
    arrays = [
        c if isinstance(c, pa.Array) else pa.array(c, f.type) for c, f in zip(columns.values(), COLUMN_STATS_SCHEMA, strict=True)
    ]
    values = encode_column_stats(pa.RecordBatch.from_arrays(arrays, schema=COLUMN_STATS_SCHEMA), MetadataRecordType.COLUMN_STATS)
    return Cells(pa.array([key.encode() for key in ordered], pa.binary()), values, RECORD_SCHEMA)


def record(low: float | None, high: float | None, *, deleted: bool = False, tight: bool = False) -> ColumnStatsRecord:
    return ColumnStatsRecord("f", "n", low, high, 3, 1, 10, 20, deleted, tight)


BOUNDS = st.one_of(st.just((None, None)), st.tuples(st.integers(-5, 5), st.integers(0, 5)).map(lambda b: (b[0], b[0] + b[1])))
RECORDS = st.builds(lambda b, d, t: record(*b, deleted=d, tight=t), BOUNDS, st.booleans(), st.booleans())
STATS = st.dictionaries(st.sampled_from(KEYS), RECORDS, max_size=3)


@given(STATS, st.lists(STATS | st.lists(st.sampled_from(KEYS), max_size=2), max_size=4))
def test_column_ranges(base: dict[str, ColumnStatsRecord], layers: list[Any]) -> None:
    merged = dict(base)
    for layer in layers:
        if isinstance(layer, list):
            for key in layer:
                merged.pop(key, None)
        else:
            for key, new in layer.items():
                merged[key] = merge_column_stats(merged[key], new) if key in merged else new
    newer = tuple(deletes(layer) if isinstance(layer, list) else stats_cells(layer) for layer in layers)
    found = pa.Table.from_batches(cell_merge.merge_column_stats_cells(GroupCells([stats_cells(base)], newer)), STATS_SCHEMA)
    found = found.combine_chunks()
    bounds = [unwrap(found.column(name).combine_chunks(), pa.int64())[0].to_pylist() for name in ("min", "max")]
    counts = [found[name].to_pylist() for name in ("value_count", "null_count")]
    seen = {key.decode(): told for key, *told in zip(found["key"].to_pylist(), *bounds, *counts, strict=True)}
    expected = {key: [r.min, r.max, r.value_count, r.null_count] for key, r in merged.items() if not r.is_deleted}
    assert seen == expected


def test_column_stats_of_different_types_merge_to_none() -> None:
    whole = stats_cells({"a": record(1, 2)})
    columns = pa.table({"n": [1.5]})
    text = cell_merge._decoded(whole)
    other = text.set_column(3, text.schema.field(3), wrap_values(columns["n"].combine_chunks()))
    other = other.set_column(4, other.schema.field(4), wrap_values(columns["n"].combine_chunks()))
    values = encode_column_stats(
        pa.RecordBatch.from_arrays(other.columns[1:], schema=COLUMN_STATS_SCHEMA), MetadataRecordType.COLUMN_STATS
    )
    newer = Cells(whole.keys, values, RECORD_SCHEMA)
    assert sum(batch.num_rows for batch in cell_merge.merge_column_stats_cells(GroupCells([whole], (newer,)))) == 0


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_zeros_have_the_order_of_java(kind: pa.DataType) -> None:
    """-0.0 is below 0.0, in any order; ranges that begin with the wrong one are damage to `Table.validate`."""
    said = [(0.0, 0.0), (-0.0, -0.0), (0.0, -0.0), (None, None), (-0.0, 0.0)]
    for first, second in itertools.product(said, said):
        layers = tuple(stats_cells({"a": record(*bounds)}, kind) for bounds in (first, second))
        found = pa.Table.from_batches(cell_merge.merge_column_stats_cells(GroupCells([], layers)), STATS_SCHEMA)
        low, high = (unwrap(found[name].combine_chunks(), kind)[0][0].as_py() for name in ("min", "max"))
        lows, highs = ([bound for bound in bounds if bound is not None] for bounds in zip(first, second, strict=True))
        assert str(low) == str(min(lows, key=lambda bound: math.copysign(1, bound), default=None))
        assert str(high) == str(max(highs, key=lambda bound: math.copysign(1, bound), default=None))


def test_two_columns_under_one_key() -> None:
    one = stats_cells({"a": record(1, 2)})
    two = stats_cells({"a": ColumnStatsRecord("f", "m", 1, 2, 3, 1, 10, 20)})
    with pytest.raises(CorruptData, match="two columns"):
        list(cell_merge.merge_column_stats_cells(GroupCells([one], (two,))))


def test_merging_no_cells_gives_no_rows() -> None:
    assert merge_files(GroupCells([])).num_rows == 0
    assert list(newest_cells(GroupCells([], (deletes(["a"]),)))) == []
    assert list(cell_merge.merge_column_stats_cells(GroupCells([], (deletes([]),)))) == []


def test_layers_of_several_schemas_keep_their_order() -> None:
    layers: list[Cells | Deletes] = [deletes(["a"])]
    for number in range(6):
        said = stats_cells({"a": record(number, number + 1), "b": record(0, number, tight=number == 3)})
        # The same schema as another text.
        layers.append(Cells(said.keys, said.values, said.schema + " " * (number % 2)))
    layers.insert(3, deletes(["a"]))
    found = pa.Table.from_batches(cell_merge.merge_column_stats_cells(GroupCells([], tuple(layers))), STATS_SCHEMA)
    ranges = dict(zip(found["key"].to_pylist(), zip(*(_longs(found, name) for name in ("min", "max")), strict=True), strict=True))
    assert ranges == {b"a": (2, 6), b"b": (0, 5)}
    names = [f"f{number}" for number in range(6)]
    lists = [listed({"p": {name: FileEntry(1)}}) for name in names]
    lists = [Cells(one.keys, one.values, one.schema + " " * (place % 2)) for place, one in enumerate(lists)]
    files = merge_files(GroupCells(lists[:1], (lists[1], deletes(["p"]), *lists[2:])))
    assert files["name"].to_pylist() == names[2:]


def _longs(rows: pa.Table, name: str) -> list[int]:
    found: list[int] = unwrap(rows[name].combine_chunks(), pa.int64())[0].to_pylist()
    return found
