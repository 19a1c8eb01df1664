"""Page checksums of Parquet files: compatibility with pyarrow in both directions, and damage anywhere."""

from __future__ import annotations

import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.parquet.page_checks import ChecksumMode, PageChecks
from pyhudi.format.parquet.parquet_file import ParquetWriter, SplitFooter, open_parquet, read_footer, read_parted_footer

ROWS = pa.table({"key": [f"k{n}" for n in range(300)], "v": [n if n % 7 else None for n in range(300)], "t": ["x", "y"] * 150})


def written(rows: pa.Table = ROWS, **metadata: str) -> bytes:
    sink = pa.BufferOutputStream()
    with ParquetWriter(sink, rows.schema, compression="gzip", data_page_size=500) as writer:
        writer.write_table(rows, row_group_size=200)
        for batch in rows.slice(0, 3).to_batches():
            writer.write_batch(batch)
        writer.close(metadata)
    return bytes(sink.getvalue())


def read(data: bytes) -> pa.Table:
    with open_parquet(pa.BufferReader(data)) as file:
        return file.read()


def expected() -> pa.Table:
    return pa.concat_tables([ROWS, ROWS.slice(0, 3)])


def test_files_are_interchangeable_with_pyarrow() -> None:
    data = written(schema="text")
    assert pq.read_table(io.BytesIO(data)).equals(expected())
    assert read(data).equals(expected())
    with open_parquet(pa.BufferReader(data)) as file:
        assert (file.metadata.metadata or {})[b"schema"] == b"text"
    sink = io.BytesIO()
    pq.write_table(ROWS, sink)
    assert read(sink.getvalue()).equals(ROWS)


def test_a_file_of_others_with_our_key_values() -> None:
    """As pyarrow copies them when it reads a file of ours and writes what it read."""
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(written())).slice(0, 9), sink)
    assert b"pyhudi.footer.crc32" in sink.getvalue()
    assert read(sink.getvalue()).num_rows == 9


def test_bytes_that_were_left_out_or_put_in_before_the_footer() -> None:
    """Arrow may interpret the bytes in the place of a page as the end of its column, and return fewer rows without an error."""
    data = written()
    for at in range(4, len(data) - 2000, 7):
        for damaged in (data[:at] + data[at + 2 :], data[:at] + data[at : at + 3] + data[at:]):
            with pytest.raises(CorruptData, match="before its footer"):
                open_parquet(pa.BufferReader(damaged))


def test_a_large_footer() -> None:
    rows = pa.table({f"column_{n:04}": pa.array([n]) for n in range(1500)})
    sink = pa.BufferOutputStream()
    with ParquetWriter(sink, rows.schema) as writer:
        writer.write_table(rows)
    data = bytes(sink.getvalue())
    assert int.from_bytes(data[-8:-4], "little") > 64 << 10
    assert read(data).equals(rows)
    with pytest.raises(CorruptData, match="footer"):
        read(data[:-1000] + b"\0\0" + data[-998:])


def test_any_damage_is_seen() -> None:
    data = written(bounds="a-z")
    for at in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        try:
            assert read(bytes(damaged)).equals(expected()), at
        except (CorruptData, OSError, pa.ArrowInvalid):
            pass


@pytest.mark.parametrize("size", [0, 3, 11, 40])
def test_a_file_that_is_cut_short(size: int) -> None:
    with pytest.raises(CorruptData):
        read(written()[:size])


def test_nothing_is_written_after_an_error() -> None:
    sink = io.BytesIO()
    with pytest.raises(KeyError), ParquetWriter(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
        size = len(sink.getvalue())
        raise KeyError
    assert len(sink.getvalue()) == size


LONG = "base64=" * 5000
KEYS = (b"other.filter", b"filter")


def parted(data: bytes) -> SplitFooter:
    return read_parted_footer(pa.BufferReader(data), KEYS)


def test_long_footer_texts_are_stored_separately() -> None:
    data = written(filter=LONG, bounds="a-z")
    footer, whole = parted(data), read_footer(pa.BufferReader(data))
    assert footer.texts == {b"filter": LONG.encode()}
    assert footer.key_values == whole.metadata
    assert footer.metadata.metadata == {**(whole.metadata or {}), b"filter": b""}
    assert footer.metadata.schema.equals(whole.schema)
    assert [footer.metadata.row_group(n).num_rows for n in range(3)] == [200, 100, 3]
    assert footer.size_bytes < 5000 < len(LONG) < footer.memory_bytes
    assert footer.without_texts().texts is None and footer.without_texts().memory_bytes < len(LONG)
    with open_parquet(pa.BufferReader(data), (), footer.metadata) as file:
        assert file.read().equals(expected())


def test_text_that_contains_an_encoded_key_value_is_kept() -> None:
    """The bytes of a key-value within the text of another one."""
    inside = "ab\x18\x06filter\x18\x05hello"
    for more in ({}, {"filter": LONG}):
        data = written(ROWS, said=inside, **more)
        footer = parted(data)
        assert footer.texts == {key.encode(): text.encode() for key, text in more.items()}
        assert footer.key_values == read_footer(pa.BufferReader(data)).metadata


def test_footers_of_other_writers_are_not_split() -> None:
    sink = io.BytesIO()
    pq.write_table(ROWS.replace_schema_metadata({"filter": LONG}), sink)
    footer = parted(sink.getvalue())
    assert footer.texts == {} and footer.key_values[b"filter"] == LONG.encode()


def test_damage_to_a_separate_footer_text_is_detected() -> None:
    data = written(filter=LONG)
    for at in range(data.index(LONG.encode()) - 40, len(data), 997):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(CorruptData):
            parted(bytes(damaged))


def many_rows() -> bytes:
    """A file of one row group, whose decimals are read as integers."""
    numbers = range(20_000)
    columns = {
        "text": [f"t{n % 5}" if n % 11 else None for n in numbers],
        "unique": pa.array([Decimal(n) for n in numbers], pa.decimal128(15, 2)),
        "nested": [{"a": n, "b": [n % 3]} for n in numbers],
        "repeated": pa.array([Decimal(n % 7) if n % 5 else None for n in numbers], pa.decimal128(9, 1)),
    }
    return written_as_one(pa.table(columns))


def written_as_one(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with ParquetWriter(sink, rows.schema, compression="zstd", use_dictionary=["text", "repeated"], data_page_size=2000) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    "columns",
    [
        ["text", "unique", "nested", "repeated"],
        ["repeated", "nested", "text"],
        ["unique", "repeated"],
        ["nested.a", "unique"],
        ["text"],
    ],
)
@pytest.mark.parametrize("coded", [[], ["text"]])
def test_batches_contain_the_rows_of_their_row_group(columns: list[str], coded: list[str]) -> None:
    with open_parquet(pa.BufferReader(many_rows()), coded) as file:
        expected = file.read_row_group(0, columns)
        batches = list(file.read_batches(0, columns, 3000))
    assert [batch.num_rows for batch in batches] == [3000] * 6 + [2000]
    assert pa.concat_tables(batches).unify_dictionaries().equals(expected.unify_dictionaries())


def test_batches_do_not_hold_the_row_group() -> None:
    rows = pa.table({"value": [f"{n:0100d}" for n in range(50_000)]})
    data = written_as_one(rows)
    before = pa.total_allocated_bytes()
    with open_parquet(pa.BufferReader(data)) as file:
        held = [pa.total_allocated_bytes() - before for _ in file.read_batches(0, ["value"], 1000)]
    assert len(held) == 50 and max(held) < rows.nbytes // 10


def test_damage_is_found_by_batches() -> None:
    data = bytearray(many_rows())
    data[len(data) // 2] ^= 1
    with open_parquet(pa.BufferReader(bytes(data))) as file, pytest.raises((CorruptData, OSError)):
        for _ in file.read_batches(0, ["text", "unique", "nested", "repeated"], 3000):
            pass


def test_checksums_of_batches_are_verified_once_if_all_are_read() -> None:
    checks = PageChecks(ChecksumMode.ONCE)
    with open_parquet(pa.BufferReader(many_rows()), checks=checks) as file:
        next(file.read_batches(0, ["text"], 3000))
        assert checks.is_due(0, 0b1)
        list(file.read_batches(0, ["text"], 3000))
        assert not checks.is_due(0, 0b1)
