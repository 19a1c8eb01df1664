"""Log files and base-file Bloom filters of all golden tables are decoded and encoded to the same bytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.format.bloom_filter import BloomFilter, BloomKind
from pyhudi.format.log.command_blocks import decode_command
from pyhudi.format.log.data_blocks import decode_content, encode_avro
from pyhudi.format.log.delete_blocks import decode_deletes, encode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock, encode_block, scan_blocks
from pyhudi.format.log.record_positions import decode_positions, encode_positions

TABLES = sorted((Path(__file__).resolve().parents[3] / "golden").glob("*/*/table.zip"))


def members(suffix: str) -> Iterator[tuple[str, bytes]]:
    """The files whose name holds `suffix`, with the table they are from."""
    for table in TABLES:
        with zipfile.ZipFile(table) as archive:
            for name in archive.namelist():
                if suffix in name.rsplit("/", 1)[-1] and not name.endswith(".crc"):
                    yield f"{table.parent.name}:{name}", archive.read(name)


@lru_cache(maxsize=1)
def blocks() -> tuple[tuple[str, LogBlock, bytes], ...]:
    found = []
    for name, data in members(".log."):

        def read_range(offset: int, size: int, data: bytes = data) -> bytes:
            return data[offset : offset + size]

        for block in scan_blocks(read_range, len(data)):
            assert isinstance(block, LogBlock), (name, block)
            found.append((name, block, block.read_content(read_range)))
    if not found:
        pytest.skip("no golden tables")
    return tuple(found)


def of(*kinds: BlockType) -> list[tuple[str, LogBlock, bytes]]:
    return [entry for entry in blocks() if entry[1].kind in kinds]


def test_encoded_blocks_have_the_size_of_hudi_blocks() -> None:
    for name, block, content in blocks():
        assert len(encode_block(block.kind, dict(block.headers), content)) == block.size_bytes, name


def test_avro_and_cdc_rows_are_written_back_to_the_byte() -> None:
    found = of(BlockType.AVRO, BlockType.CDC)
    assert found
    for name, block, content in found:
        schema = block.required(HeaderKey.SCHEMA)
        assert encode_avro(schema, decode_content(block.kind, schema, content)) == content, name


def test_parquet_rows_are_read() -> None:
    for name, block, content in of(BlockType.PARQUET):
        rows = pa.Table.from_batches(decode_content(block.kind, block.required(HeaderKey.SCHEMA), content))
        assert rows.num_rows == pq.ParquetFile(io.BytesIO(content)).metadata.num_rows, name
        assert rows.column("_hoodie_record_key").null_count == 0, name


def test_deletes_are_written_back_to_the_byte() -> None:
    found = of(BlockType.DELETE)
    assert found
    for name, _, content in found:
        assert encode_deletes(decode_deletes(content)) == content, name


def test_positions_are_written_back_and_are_as_many_as_records() -> None:
    for name, block, content in blocks():
        text = block.header(HeaderKey.RECORD_POSITIONS)
        if text is None:
            continue
        if block.kind is BlockType.DELETE:
            count = sum(batch.num_rows for batch in decode_deletes(content))
        else:
            count = sum(batch.num_rows for batch in decode_content(block.kind, block.required(HeaderKey.SCHEMA), content))
        assert encode_positions(decode_positions(text, count)) == text, name


def test_commands_name_their_target() -> None:
    for name, block, _ in of(BlockType.COMMAND):
        assert decode_command(block).target_instant_time.isdigit(), name


def test_filters_of_base_files_hold_their_keys_and_are_written_back() -> None:
    seen = 0
    for name, data in members(".parquet"):
        if not data:
            # A write that failed before its first byte.
            continue
        file = pq.ParquetFile(io.BytesIO(data))
        footer = file.metadata.metadata or {}
        text = footer.get(b"org.apache.hudi.bloomfilter")
        if text is None:
            continue
        keys = file.read(["_hoodie_record_key"]).column(0)
        kind = BloomKind(footer.get(b"hoodie_bloom_filter_type_code", b"SIMPLE").decode())
        found = BloomFilter.from_text(text, kind)
        assert found.might_contain(keys).all(), name
        assert found.to_text().encode() == text, name
        ours = BloomFilter.create(kind)
        if ours.size_bytes == found.size_bytes:
            ours.add(keys)
            assert ours.to_text().encode() == text, name
            seen += 1
        if seen == 12:
            # Each filter has 2.6 million bits; a dozen files say what a hundred would.
            break
    if not seen:
        pytest.skip("no golden tables")
