"""Whole HFiles round-trip by every kind of request, and a lookup reads few blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.hfile import (
    Codec,
    HFile,
    HFileEncoder,
    HFileOptions,
    decode_joined,
    encode_hfile,
    open_hfile,
    open_hfile_bytes,
    read_data_blocks,
)
from pyhudi.format.hfile.blocks import BlockKind, encode_block
from pyhudi.format.hfile.index import IndexEntry, encode_index, encode_root_index
from pyhudi.format.hfile.trailer import TRAILER_BYTES, encode_trailer
from tests.support.vectors import vector

OPTIONS = [
    HFileOptions(),
    HFileOptions(codec=Codec.NONE),
    HFileOptions(level=9, block_bytes=1),
    HFileOptions(block_bytes=200, index_block_bytes=100),
    HFileOptions(codec=Codec.NONE, block_bytes=300, index_block_bytes=400),
]
keys_strategy = st.binary(max_size=6) | st.lists(st.sampled_from(b"\x00\x01a\xff"), max_size=5).map(bytes)
content = st.dictionaries(keys_strategy, st.binary(max_size=40), max_size=60)


def binary(values: Iterable[bytes]) -> pa.BinaryArray:
    return pa.array(list(values), pa.binary())


def encoded(entries: dict[bytes, bytes], options: HFileOptions | None = None, step: int = 1 << 30) -> bytes:
    rows = sorted(entries)
    batches = (
        (binary(rows[at : at + step]), binary(entries[row] for row in rows[at : at + step])) for at in range(0, len(rows), step)
    )
    return encode_hfile(batches, options)


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple[bytes, bytes]]:
    rows: list[tuple[bytes, bytes]] = []
    for batch in batches:
        assert batch.num_rows
        rows += zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    return rows


class CountedFile:
    """A file that remembers what was read of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    def __call__(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.data[offset : offset + length]

    def open(self) -> HFile:
        return open_hfile(self, len(self.data))


def numbered(count: int) -> dict[bytes, bytes]:
    return {b"key-%06d" % number: b"value-%d" % number * 3 for number in range(count)}


@settings(max_examples=60, deadline=None)
@given(content, st.sampled_from(OPTIONS), st.integers(1, 20), st.data())
def test_every_request_agrees_with_a_dict(
    entries: dict[bytes, bytes], options: HFileOptions, step: int, draw: st.DataObject
) -> None:
    file = open_hfile_bytes(encoded(entries, options, step))
    assert file.entry_count == len(entries)
    everything = sorted(entries.items())
    assert rows_of(file.scan()) == everything
    wanted = draw.draw(st.sets(keys_strategy | st.sampled_from(sorted(entries) or [b"x"])))
    assert rows_of(file.lookup(binary(sorted(wanted)))) == [item for item in everything if item[0] in wanted]
    prefixes = draw.draw(
        st.lists(st.sampled_from(sorted(entries) or [b"x"]).map(lambda key: key[:2]) | keys_strategy, max_size=6)
    )
    assert rows_of(file.scan_prefixes(prefixes)) == [item for item in everything if item[0].startswith(tuple(prefixes))]
    start, stop = draw.draw(st.tuples(st.none() | keys_strategy, st.none() | keys_strategy))
    assert rows_of(file.scan(start, stop)) == [
        item for item in everything if (start is None or start <= item[0]) and (stop is None or item[0] < stop)
    ]


@pytest.mark.parametrize("options", OPTIONS)
def test_how_entries_arrive_does_not_change_the_bytes(options: HFileOptions) -> None:
    entries = numbered(500)
    assert encoded(entries, options, 1) == encoded(entries, options, 7) == encoded(entries, options)


@pytest.mark.parametrize("codec", [Codec.GZ, Codec.NONE])
@pytest.mark.parametrize("size_bytes", [(16 << 20) - 50, (16 << 20) + 1, 20 << 20])
def test_a_long_cell_of_equal_bytes_is_read_back(codec: Codec, size_bytes: int) -> None:
    entries = {b"a": bytes(size_bytes), b"b": b"x"}
    file = open_hfile_bytes(encoded(entries, HFileOptions(codec=codec)))
    assert rows_of(file.scan()) == sorted(entries.items())


def test_blocks_keep_to_their_size_and_levels_grow() -> None:
    entries = numbered(5000)
    sizes = {}
    for index_bytes in (128 << 10, 4000, 600, 100):
        file = open_hfile_bytes(encoded(entries, HFileOptions(codec=Codec.NONE, block_bytes=1000, index_block_bytes=index_bytes)))
        sizes[index_bytes] = file.trailer.index_levels
        assert rows_of(file.scan()) == sorted(entries.items())
    assert [sizes[index_bytes] for index_bytes in (128 << 10, 4000)] == [1, 2]
    assert sizes[600] > 2
    assert sizes[100] > sizes[600]


def test_a_larger_entry_has_a_block_of_its_own() -> None:
    entries = {b"a": b"1", b"b": b"x" * 5000, b"c": b"2"}
    file = open_hfile_bytes(encoded(entries, HFileOptions(codec=Codec.NONE, block_bytes=100)))
    assert file.root.rows.tolist() == [b"a", b"b", b"c"]
    assert rows_of(file.scan()) == sorted(entries.items())


def test_a_point_lookup_reads_the_tail_and_one_block() -> None:
    file = CountedFile(encoded(numbered(50_000), HFileOptions(codec=Codec.NONE, block_bytes=8 << 10)))
    opened = file.open()
    assert len(file.reads) == 1
    assert rows_of(opened.lookup(binary([b"key-025000"]))) == [(b"key-025000", b"value-25000" * 3)]
    assert len(file.reads) == 2
    assert file.reads[1][1] < 9 << 10
    assert rows_of(opened.lookup(binary([b"", b"key-", b"zzz"]))) == []
    assert len(file.reads) <= 3


def test_two_levels_cost_one_more_read() -> None:
    file = CountedFile(encoded(numbered(20_000), HFileOptions(codec=Codec.NONE, block_bytes=1000, index_block_bytes=5000)))
    opened = file.open()
    assert opened.trailer.index_levels == 2
    file.reads.clear()
    assert len(rows_of(opened.lookup(binary([b"key-010000"])))) == 1
    assert [length < 6000 for _, length in file.reads] == [True, True]


def test_neighbouring_blocks_are_read_at_once() -> None:
    file = CountedFile(encoded(numbered(50_000), HFileOptions(codec=Codec.NONE, block_bytes=8 << 10)))
    opened = file.open()
    file.reads.clear()
    assert len(rows_of(opened.lookup(binary(b"key-%06d" % number for number in range(10_000, 12_000, 3))))) == 667
    assert len(file.reads) == 1
    file.reads.clear()
    assert len(rows_of(opened.lookup(binary([b"key-000001", b"key-049999"])))) == 2
    assert len(file.reads) == 2
    file.reads.clear()
    assert len(rows_of(opened.scan())) == 50_000
    assert len(file.reads) == 1


def test_meta_blocks_and_file_info() -> None:
    encoder = HFileEncoder()
    data = encoder.add(pa.array(["ä", "ö"]), binary([b"1", b"2"]))
    assert (encoder.first_key, encoder.last_key, encoder.entry_count) == ("ä".encode(), "ö".encode(), 2)
    data += encoder.finish(file_info={"schema": b"{}"}, meta_blocks={"bloomFilter": b"bits", "another": b""})
    file = open_hfile_bytes(data)
    assert (file.meta_block("bloomFilter"), file.meta_block("another"), file.meta_block("none")) == (b"bits", b"", None)
    assert file.file_info == {
        "KEY_VALUE_VERSION": bytes(3) + b"\x01",
        "MAX_MEMSTORE_TS_KEY": bytes(8),
        "hfile.AVG_KEY_LEN": bytes(3) + b"\x0e",
        "hfile.AVG_VALUE_LEN": bytes(3) + b"\x01",
        "hfile.CREATE_TIME_TS": bytes(8),
        "hfile.LASTKEY": b"\x00\x02" + "ö".encode() + bytes.fromhex("007fffffffffffffff04"),
        "schema": b"{}",
    }


def test_an_empty_file() -> None:
    file = open_hfile_bytes(HFileEncoder().finish())
    assert (file.entry_count, file.trailer.first_data_block_offset, file.trailer.index_levels) == (0, None, 1)
    assert rows_of(file.scan()) == rows_of(file.lookup(binary([b"a"]))) == rows_of(file.scan_prefixes([b""])) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [([b"a", b"a"], []), ([b"b", b"a"], []), ([b"a"], [b"a"]), ([b"b"], [b"a"]), ([b"a\xff"], [b"a\x7f"])],
)
def test_keys_out_of_order_are_refused(first: list[bytes], second: list[bytes]) -> None:
    encoder = HFileEncoder()
    with pytest.raises(InvalidRequest, match="ascend"):
        for rows in (first, second):
            encoder.add(binary(rows), binary(rows))


def test_arguments_that_are_refused() -> None:
    encoder = HFileEncoder()
    for keys, values in (
        (binary([b"a"]), binary([])),
        (pa.array([None], pa.binary()), binary([b""])),
        (binary([b"a"]), pa.array([None], pa.binary())),
        (pa.array([1]), binary([b""])),
        (binary([b"a"]), pa.array(["text"])),
        (binary([b"k" * 32768]), binary([b""])),
    ):
        with pytest.raises(InvalidRequest):
            encoder.add(keys, values)
    file = open_hfile_bytes(encoder.finish())
    late: tuple[Callable[[], object], ...] = (lambda: encoder.add(binary([b"a"]), binary([b""])), encoder.finish)
    for finished in late:
        with pytest.raises(InvalidRequest):
            finished()
    for keys in (binary([b"b", b"a"]), binary([b"a", b"a"]), pa.array([None], pa.binary()), pa.array([1])):
        with pytest.raises(InvalidRequest):
            list(file.lookup(keys))
    wrong: tuple[dict[str, Any], ...] = (
        {"codec": Codec.ZSTD}, {"level": 0}, {"block_bytes": 0}, {"block_bytes": 2 << 20}, {"index_block_bytes": 0}
    )  # fmt: skip
    for bad in wrong:
        with pytest.raises(InvalidRequest):
            HFileOptions(**bad)


def use_fully(data: bytes) -> int:
    file = open_hfile_bytes(data)
    count = len(rows_of(file.scan()))
    rows_of(file.lookup(binary([b"key-000003"])))
    for name in file.meta:
        file.meta_block(name)
    return count


def damaged_file() -> bytes:
    rows = sorted(numbered(30).items())
    encoder = HFileEncoder(HFileOptions(block_bytes=200, index_block_bytes=150))
    data = encoder.add(binary(row for row, _ in rows), binary(value for _, value in rows))
    return data + encoder.finish(meta_blocks={"bloomFilter": b"bits"})


def test_a_flipped_bit_anywhere_is_a_value_or_a_known_error() -> None:
    data = damaged_file()
    for position in [*range(len(data) - 4096 + 110), *range(len(data) - 4, len(data))]:
        copy = bytearray(data)
        copy[position] ^= 1 << (position % 8)
        try:
            assert use_fully(bytes(copy)) == 30
        except (CorruptData, Unsupported):
            pass


def test_truncated_anywhere_is_corrupt() -> None:
    data = damaged_file()
    for length in [*range(0, len(data) - 1, 13), len(data) - 1]:
        with pytest.raises((CorruptData, Unsupported)):
            use_fully(data[:length])


def test_the_number_of_entries_is_checked() -> None:
    data = encoded(numbered(3))
    # Field 7 of the trailer is the number of entries.
    with pytest.raises(CorruptData, match="number of entries"):
        list(open_hfile_bytes(data.replace(b"\x38\x03\x40\x01", b"\x38\x04\x40\x01")).scan())


@pytest.mark.parametrize(
    ("name", "count", "key"),
    [
        ("hudi_1_0_hbase_2_4_9_16KB_GZ_20000", 20_000, b"hudi-key-%09d"),
        ("hudi_1_0_hbase_2_4_9_64KB_NONE_5000", 5_000, b"hudi-key-%09d"),
        ("hudi_1_0_hbase_2_4_13_16KB_GZ_20000_fake_first_key", 20_000, b"hudi-key-%09d-abcdefghij"),
    ],
)
def test_files_that_java_wrote(name: str, count: int, key: bytes) -> None:
    file = open_hfile_bytes(vector(f"hfile/{name}.hfile"))
    expected = [(key % number, b"hudi-value-%09d" % number) for number in range(count)]
    assert rows_of(file.scan()) == expected
    assert rows_of(iter([decode_joined([read_data_blocks(vector(f"hfile/{name}.hfile"))])[0]])) == expected
    assert rows_of(file.lookup(binary(row for row, _ in expected[::7]))) == expected[::7]
    assert rows_of(file.lookup(binary(row + b"\x00" for row, _ in expected[::7]))) == []
    assert rows_of(file.scan_prefixes([b"hudi-key-00000001", b"hudi-key-0000044"])) == expected[10:20] + expected[4400:4500]
    assert rows_of(file.scan(expected[277][0], expected[281][0])) == expected[277:281]
    # Index keys that are no rows: each is at most the first row of its block, and finds at most that.
    index_rows = file.root.rows.tolist()
    assert {row for row, _ in rows_of(file.lookup(binary(index_rows)))} == set(index_rows) & {row for row, _ in expected}
    assert file.file_info["hudi_hfile_testing.custom_key"] == b"hudi_custom_value"
    assert file.meta_block("bloomFilter")


def test_an_empty_file_that_java_wrote() -> None:
    file = open_hfile_bytes(vector("hfile/hudi_1_0_hbase_2_4_9_no_entry.hfile"))
    assert decode_joined([read_data_blocks(vector("hfile/hudi_1_0_hbase_2_4_9_no_entry.hfile"))])[0].num_rows == 0
    assert rows_of(file.scan()) == rows_of(file.lookup(binary([b"hudi-key-000000000"]))) == []
    assert b'"fields"' in file.file_info["schema"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(content, st.sampled_from(OPTIONS)), max_size=5))
def test_files_decoded_together_are_the_files(files: list[tuple[dict[bytes, bytes], HFileOptions]]) -> None:
    cells, ends = decode_joined([read_data_blocks(encoded(entries, options)) for entries, options in files])
    start = 0
    for (entries, _), end in zip(files, ends.tolist(), strict=True):
        part = cells.slice(start, end - start)
        assert list(zip(part["key"].to_pylist(), part["value"].to_pylist(), strict=True)) == sorted(entries.items())
        start = end
    assert cells.num_rows == start


@pytest.mark.parametrize("options", OPTIONS)
def test_files_decoded_together_may_be_damaged(options: HFileOptions) -> None:
    data = encoded(numbered(9), options)
    whole = decode_joined([read_data_blocks(data)])[0]
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        try:
            found = decode_joined([read_data_blocks(bytes(flipped))])[0]
        except (CorruptData, Unsupported):
            continue
        assert found.equals(whole)
    for length in range(0, len(data), 7):
        with pytest.raises(CorruptData):
            read_data_blocks(data[:length])


def test_files_decoded_together_have_the_entries_of_their_trailers() -> None:
    (blocks, count), other = read_data_blocks(encoded(numbered(4))), read_data_blocks(encoded(numbered(2)))
    assert decode_joined([(blocks, count), other])[1].tolist() == [4, 6]
    for wrong in ([(blocks, count + 1), other], [(blocks, count - 1), (other[0], 3)], [(blocks, count), (other[0], 1)]):
        with pytest.raises(CorruptData, match="number of entries"):
            decode_joined(wrong)


def nested_references(fan_out: int, levels: int) -> bytes:
    """An HFile in which each index block refers `fan_out` times to the one block below it."""
    small = encoded({b"k": b"v"}, HFileOptions(codec=Codec.NONE))
    file = open_hfile_bytes(small)
    data = file.root.entry(0)
    parts = [small[data.offset : data.offset + data.size_bytes]]
    below = IndexEntry(0, data.size_bytes, b"")
    for level in range(2, levels + 1):
        kind = BlockKind.LEAF_INDEX if level == 2 else BlockKind.INTERMEDIATE_INDEX
        rows = encode_index([replace(below, row=b"k%05d" % number) for number in range(fan_out)])
        block = encode_block(kind, rows, Codec.NONE, previous_offset=-1, level=1)
        below = IndexEntry(sum(map(len, parts)), len(block), b"")
        parts.append(block)
    root_offset = sum(map(len, parts))
    root = encode_root_index([replace(below, row=b"k%05d" % number) for number in range(fan_out)])
    for content in (root, b""):
        parts.append(encode_block(BlockKind.ROOT_INDEX, content, Codec.NONE, previous_offset=-1, level=1))
    info_offset = sum(map(len, parts))
    parts.append(small[file.trailer.file_info_offset : -TRAILER_BYTES])
    counts = {"data_index_count": fan_out, "meta_index_count": 0, "index_levels": levels, "entry_count": fan_out**levels}
    parts.append(encode_trailer(replace(file.trailer, file_info_offset=info_offset, load_on_open_offset=root_offset, **counts)))
    return b"".join(parts)


@pytest.mark.parametrize("levels", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "request_rows",
    [
        lambda file: list(file.scan()),
        lambda file: list(file.scan(b"k", None)),
        lambda file: list(file.scan_prefixes([b"k"])),
        lambda file: list(file.lookup(binary(b"k%05d" % number for number in range(100)))),
        lambda file: file.block_rows(),
    ],
    ids=["scan", "range", "prefix", "lookup", "block rows"],
)
def test_index_blocks_that_refer_to_one_block_many_times_are_corrupt(
    request_rows: Callable[[HFile], object], levels: int
) -> None:
    file = CountedFile(nested_references(100, levels))
    opened = file.open()
    with pytest.raises(CorruptData, match="blocks of an HFile index level overlap"):
        request_rows(opened)
    assert len(file.reads) <= levels + 1
