"""Data blocks: the three formats, bytes of Apache Hudi, damaged bytes."""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.avro_columns import CHUNK_BYTES, CHUNK_ROWS, avro_records
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.log.data_blocks import decode_avro, decode_content, decode_hfile, decode_parquet, encode_avro, encode_parquet
from pyhudi.format.log.framing import BlockType
from pyhudi.format.meta_columns import with_meta_fields

SCHEMA = with_meta_fields(
    pa.schema(
        [
            pa.field("id", pa.int64(), False),
            ("price", pa.decimal128(10, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("tags", pa.list_(pa.field("element", pa.string()))),
            ("raw", pa.binary()),
        ]
    )
)
TEXT = arrow_to_avro(SCHEMA, "t")
ARROW = avro_to_arrow(TEXT)


def batch(count: int, first: int = 0) -> pa.RecordBatch:
    rows = [
        {
            "_hoodie_commit_time": "20261121044645518",
            "_hoodie_record_key": f"k{n}",
            "_hoodie_partition_path": "",
            "id": n,
            "price": None if n % 3 == 0 else decimal.Decimal(n).scaleb(-2),
            "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=n),
            "tags": [f"t{i}" if i else None for i in range(n % 3)],
            "raw": b"\xff" * (n % 5),
        }
        for n in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ARROW)


def table(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, ARROW)


@pytest.mark.parametrize("count", [0, 1, 100])
def test_avro_and_parquet_round_trip(count: int) -> None:
    rows = batch(count)
    for kind, content in ((BlockType.AVRO, encode_avro(TEXT, [rows])), (BlockType.PARQUET, encode_parquet(TEXT, [rows]))):
        assert table(decode_content(kind, TEXT, content)).equals(pa.Table.from_batches([rows]))


def test_content_of_the_reference() -> None:
    op_key_only = (
        '{"type":"record","name":"Record","fields":[{"name":"op","type":["string","null"]},'
        '{"name":"record_key","type":["string","null"]}]}'
    )
    content = bytes.fromhex("000000030000000200000007000264" + "00046b32" + "00000007000264" + "00046b33")
    (rows,) = decode_content(BlockType.CDC, op_key_only, content)
    assert rows.to_pylist() == [{"op": "d", "record_key": "k2"}, {"op": "d", "record_key": "k3"}]
    assert encode_avro(op_key_only, [rows]) == content


def test_several_batches_in_chunks() -> None:
    first, second = batch(CHUNK_ROWS + 5), batch(3, 1_000_000)
    content = encode_avro(TEXT, [first, batch(0), second])
    found = list(decode_avro(TEXT, content))
    assert [b.num_rows for b in found] == [CHUNK_ROWS, 8]
    assert table(iter(found)).equals(pa.Table.from_batches([first, second]))


def test_large_rows_are_decoded_a_few_at_a_time() -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"b","type":"bytes"}]}'
    rows = pa.RecordBatch.from_arrays([pa.array([bytes([n]) * CHUNK_BYTES for n in range(5)])], schema=avro_to_arrow(text))
    found = list(decode_avro(text, encode_avro(text, [rows])))
    assert len(found) == 5
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([rows]))


@pytest.mark.parametrize("kind", [BlockType.AVRO, BlockType.PARQUET])
def test_chosen_columns(kind: BlockType) -> None:
    content = encode_avro(TEXT, [batch(50)]) if kind is BlockType.AVRO else encode_parquet(TEXT, [batch(50)])
    (found,) = decode_content(kind, TEXT, content, ["raw", "id"])
    assert found.schema.names == ["id", "raw"]
    assert found.equals(batch(50).select(["id", "raw"]))


def test_parquet_of_other_writers_is_brought_to_the_schema() -> None:
    # Apache Hudi's Avro writer makes lists of two levels, here as Arrow types that differ from the schema's.
    sink = io.BytesIO()
    columns = {
        "id": pa.array([1, 2], pa.int32()),
        "at": pa.array([1, 2], pa.timestamp("ms", "UTC")),
        "extra": pa.array(["x", "y"]),
    }
    pq.write_table(pa.table(columns), sink)
    (found,) = decode_parquet(TEXT, sink.getvalue())
    assert found.schema.equals(ARROW)
    assert found.column("id").to_pylist() == [1, 2]
    assert found.column("raw").null_count == 2
    with pytest.raises(CorruptData, match="id"):
        sink = io.BytesIO()
        pq.write_table(pa.table({"raw": pa.array([b""])}), sink)
        list(decode_parquet(TEXT, sink.getvalue()))


def test_physical_choices_of_parquet() -> None:
    file = pq.ParquetFile(io.BytesIO(encode_parquet(TEXT, [batch(10)])))
    price = next(file.schema.column(i) for i in range(len(file.schema)) if file.schema.column(i).name == "price")
    assert price.physical_type == "FIXED_LEN_BYTE_ARRAY"
    assert file.metadata.row_group(0).column(0).compression == "GZIP"
    footer = file.metadata.metadata or {}
    assert footer[b"parquet.avro.schema"] == TEXT.encode()
    assert b"ARROW:schema" not in footer


def test_hfile_values() -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"key","type":["null","string"]},{"name":"n","type":"int"}]}'
    rows = pa.RecordBatch.from_pylist(
        [{"key": "", "n": 1}, {"key": "own", "n": 2}, {"key": None, "n": 3}], schema=avro_to_arrow(text)
    )
    values = avro_records(text).encode(rows)

    def entries(content: bytes) -> Iterator[pa.RecordBatch]:
        assert content == b"hfile"
        yield pa.RecordBatch.from_arrays([pa.array([b"a", b"b", b"c"]), values], names=["key", "value"])

    (found,) = decode_content(BlockType.HFILE, text, b"hfile", hfile_entries=entries, key_field="key")
    assert found.to_pylist() == [{"key": "a", "n": 1}, {"key": "own", "n": 2}, {"key": "c", "n": 3}]
    (plain,) = decode_hfile(text, b"hfile", entries, ["n"])
    assert plain.to_pylist() == [{"n": 1}, {"n": 2}, {"n": 3}]
    with pytest.raises(Unsupported):
        decode_content(BlockType.HFILE, text, b"hfile")
    with pytest.raises(Unsupported):
        decode_content(BlockType.DELETE, text, b"")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", CorruptData),
        ("00000003", CorruptData),
        ("0000000000000000", Unsupported),
        ("0000000400000000", Unsupported),
        ("ffffffff00000000", CorruptData),
        ("00000003ffffffff", CorruptData),
        ("000000037fffffff", CorruptData),
        ("0000000300000001" + "00000000", CorruptData),
        ("0000000300000001" + "00000005" + "02", CorruptData),
        ("0000000300000001" + "ffffffff" + "02", CorruptData),
        ("0000000300000001" + "00000002" + "0202", CorruptData),
        ("0000000300000000" + "00", CorruptData),
    ],
)
def test_damaged_avro_contents(content: str, error: type[Exception]) -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"n","type":"int"}]}'
    with pytest.raises(error):
        list(decode_avro(text, bytes.fromhex(content)))
    assert [b.to_pylist() for b in decode_avro(text, bytes.fromhex("00000001000000010000000102"))] == [[{"n": 1}]]


def test_every_truncation_is_an_error() -> None:
    for kind, content in ((BlockType.AVRO, encode_avro(TEXT, [batch(3)])), (BlockType.PARQUET, encode_parquet(TEXT, [batch(3)]))):
        for end in range(0, len(content), 1 if kind is BlockType.AVRO else 7):
            with pytest.raises(CorruptData):
                list(decode_content(kind, TEXT, content[:end]))


def test_flipped_bits_give_rows_or_an_error() -> None:
    content = encode_avro(TEXT, [batch(4)])
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            for rows in decode_avro(TEXT, bytes(damaged)):
                rows.validate(full=True)
        except (CorruptData, Unsupported):
            pass


@given(st.binary(max_size=80))
def test_any_bytes_give_rows_or_an_error(content: bytes) -> None:
    for kind in (BlockType.AVRO, BlockType.PARQUET):
        try:
            list(decode_content(kind, TEXT, content))
        except (CorruptData, Unsupported):
            pass


def test_rows_that_do_not_fit() -> None:
    with pytest.raises(InvalidRequest):
        encode_avro(TEXT, [batch(1).select(["id"])])
    wrong = batch(2).set_column(5, ARROW.field(5), pa.array([1, None], pa.int64()))
    with pytest.raises(InvalidRequest, match="id"):
        encode_avro(TEXT, [wrong])


def test_order_is_kept() -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"n","type":"long"}]}'
    numbers = np.random.default_rng(1).permutation(3 * CHUNK_ROWS)
    rows = pa.RecordBatch.from_arrays([pa.array(numbers)], schema=avro_to_arrow(text))
    found = pa.Table.from_batches(decode_avro(text, encode_avro(text, [rows])))
    assert (found.column("n").to_numpy() == numbers).all()
