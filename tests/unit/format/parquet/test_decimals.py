"""Decimals read as integers equal Arrow's, for every kind of column and page; damage is detected."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.parquet.decimals import LEAST_ROWS, decimal_chunks, read_decimals
from pyhudi.format.parquet.parquet_file import open_parquet

COUNT = LEAST_ROWS + 300
CHECKED: Mapping[str, Any] = {"write_page_checksum": True, "data_page_size": 4000, "row_group_size": LEAST_ROWS + 100}


def decimals(precision: int, scale: int, kinds: int, nulls: int = 0) -> pa.Array:
    """So many different values, the smallest and largest among them; every `nulls`-th row is null."""
    largest = 10**precision - 1
    draw = np.random.default_rng(precision * 100 + kinds)
    pool = [-largest, largest, 0, -1, *(int(n) % largest * (-1) ** i for i, n in enumerate(draw.integers(1, 2**62, kinds)))]
    values = [Decimal(pool[n % len(pool)]).scaleb(-scale) for n in range(COUNT)]
    return pa.array([None if nulls and n % nulls == 0 else v for n, v in enumerate(values)], pa.decimal128(precision, scale))


def written(rows: pa.Table, **settings: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **{**CHECKED, **settings})
    return sink.getvalue()


def read_integers(data: bytes, least_rows: int = LEAST_ROWS) -> list[pa.Table]:
    """What is read as whole numbers, of each row group."""
    metadata = pq.read_metadata(io.BytesIO(data))
    source = pa.BufferReader(data)
    return [read_decimals(source, decimal_chunks(metadata, group, None, least_rows)) for group in range(metadata.num_row_groups)]


def check(data: bytes, names: list[str], least_rows: int = LEAST_ROWS) -> None:
    """All row groups of enough rows give these columns as whole numbers, equal to what Arrow gives."""
    file = pq.ParquetFile(io.BytesIO(data))
    for group, found in enumerate(read_integers(data, least_rows)):
        if file.metadata.row_group(group).num_rows >= least_rows:
            assert found.column_names == names
            if names:
                expected = file.read_row_group(group, columns=names)
                assert found.schema.equals(expected.schema)
                assert found.equals(expected)
        else:
            assert not found.column_names


@pytest.mark.parametrize("precision", range(1, 19))
def test_every_width(precision: int) -> None:
    rows = pa.table({"few": decimals(precision, precision // 2, 9), "nulls": decimals(precision, 0, 40, nulls=3)})
    check(written(rows), ["few", "nulls"])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_every_codec_and_page(codec: str, version: str) -> None:
    required = pa.schema([pa.field("a", pa.decimal128(15, 2), nullable=False), pa.field("b", pa.decimal128(7, 3))])
    rows = pa.table([decimals(15, 2, 50), decimals(7, 3, 11, nulls=2)], schema=required)
    check(written(rows, compression=codec, data_page_version=version), ["a", "b"])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_column_that_falls_back_from_dictionary_encoding(version: str) -> None:
    """Pages of a dictionary come first, plain ones after them."""
    rows = pa.table({"many": decimals(18, 4, 6000, nulls=7), "all": decimals(12, 4, 6000)})
    data = written(rows, dictionary_pagesize_limit=2000, data_page_version=version)
    assert "PLAIN" in pq.read_metadata(io.BytesIO(data)).row_group(0).column(0).encodings
    check(data, ["many", "all"])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_without_a_dictionary_and_without_nulls(codec: str, version: str) -> None:
    names = [f"p{precision}" for precision in range(1, 19)]
    fields = [pa.field(name, pa.decimal128(n, n // 3), nullable=n % 2 == 0) for n, name in enumerate(names, start=1)]
    rows = pa.table([decimals(n, n // 3, 70) for n in range(1, 19)], schema=pa.schema(fields))
    check(written(rows, use_dictionary=False, compression=codec, data_page_version=version), names)
    some = ["p2", "p5"]
    check(written(rows, use_dictionary=some, compression=codec, data_page_version=version), names)


def test_columns_of_nulls_and_empty_ones() -> None:
    empty = pa.nulls(COUNT, pa.decimal128(9, 2))
    check(written(pa.table({"null": empty, "one": decimals(9, 2, 1)})), ["null", "one"])
    check(written(pa.table({"none": empty.slice(0, 0)})), ["none"], least_rows=0)


def test_wide_and_nested_decimals_are_left_to_arrow() -> None:
    plain = decimals(9, 2, 5)
    rows = pa.table(
        {
            "wide": decimals(18, 2, 5).cast(pa.decimal128(19, 2)),
            "within": pa.StructArray.from_arrays([plain], ["inner"]),
            "list": pa.array([[v] for v in plain.to_pylist()], pa.list_(pa.decimal128(9, 2))),
            "text": pa.array(["x"] * COUNT),
            "d.t": plain,
        }
    )
    data = written(rows)
    check(data, ["d.t"])
    check(written(pa.table({"a": decimals(9, 2, 5, nulls=3)}), use_dictionary=False), [])
    check(written(pa.table({"a": plain}), use_dictionary=False, write_statistics=False), [])
    check(written(pa.table({"a": plain}), compression="lz4"), [])
    check(written(pa.table({"a": plain}), store_decimal_as_integer=True), [])
    assert not decimal_chunks(pq.read_metadata(io.BytesIO(data)), 1, None)
    # Without checksums damage would not be seen.
    assert [found.column_names for found in read_integers(written(pa.table({"a": plain}), write_page_checksum=False))] == [[], []]


def test_columns_are_returned_in_the_requested_order() -> None:
    rows = pa.table(
        {
            "k": [f"k{n}" for n in range(COUNT)],
            "a": decimals(9, 2, 5),
            "s": pa.StructArray.from_arrays([decimals(9, 2, 5)], ["x"]),
        }
    )
    rows = rows.append_column("b", decimals(15, 2, 5, nulls=4))
    data = written(rows)
    ours, arrow = open_parquet(pa.BufferReader(data)), pq.ParquetFile(pa.BufferReader(data))
    asked: list[list[str] | None] = [
        None,
        ["b", "k", "a"],
        ["a"],
        ["s", "b"],
        ["b", "b", "absent"],
        ["s.x", "a"],
        ["k"],
        ["absent"],
    ]
    for columns in asked:
        for group in range(2):
            found, expected = ours.read_row_group(group, columns=columns), arrow.read_row_group(group, columns=columns)
            assert found.equals(expected)
            assert found.schema.equals(expected.schema)


def test_flipped_bits() -> None:
    """At any position in the pages: an error, or the same rows if the flipped bit has no meaning."""
    rows = pa.table({"a": decimals(15, 2, 60, nulls=5), "b": decimals(5, 1, 30)})
    data = written(rows, compression="snappy", dictionary_pagesize_limit=300)
    good = read_integers(data)
    end = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    found = 0
    for at in range(4, end, 79):
        for bit in (0, 4, 7):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            try:
                tables = read_integers(bytes(damaged))
            except CorruptData:
                found += 1
                continue
            for table, right in zip(tables, good, strict=True):
                # Arrow may read the page, with its own checks.
                assert table.equals(right.select(table.column_names))
    assert found > 300


def test_flipped_bits_without_a_dictionary() -> None:
    rows = pa.table({"a": decimals(15, 2, 60), "b": decimals(5, 1, 30)})
    data = written(rows, compression="snappy", use_dictionary=False)
    good = read_integers(data)
    end = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    found = 0
    for at in range(4, end, 97):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        try:
            tables = read_integers(bytes(damaged))
        except CorruptData:
            found += 1
            continue
        for table, right in zip(tables, good, strict=True):
            assert table.equals(right.select(table.column_names))
    assert found > 60


def test_columns_with_null_levels_are_read_by_arrow() -> None:
    """For every null count in the footer."""
    data = written(pa.table({"a": decimals(9, 2, 5, nulls=COUNT // 2)}), use_dictionary=False)
    metadata = pq.read_metadata(io.BytesIO(data))
    coded = decimal_chunks(pq.read_metadata(io.BytesIO(written(pa.table({"a": decimals(9, 2, 5)})))), 0, None)[0]
    told = metadata.row_group(0).column(0)
    chunk = replace(
        coded,
        has_dictionary=False,
        start=told.data_page_offset,
        size_bytes=told.total_compressed_size,
        unpacked_bytes=told.total_uncompressed_size,
    )
    assert not read_decimals(pa.BufferReader(data), [chunk]).column_names


def test_a_checksum_that_differs_names_place_and_values() -> None:
    data = bytearray(written(pa.table({"a": decimals(15, 2, 60)}), compression="none"))
    chunk = decimal_chunks(pq.read_metadata(io.BytesIO(data)), 0, None)[0]
    data[chunk.start + chunk.size_bytes - 3] ^= 1
    with pytest.raises(CorruptData, match="checksum mismatch in a page of a"):
        open_parquet(pa.BufferReader(bytes(data))).read_row_group(0)
