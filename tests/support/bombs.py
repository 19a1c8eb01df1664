"""Small inputs of decoders that claim, or expand to, more than any memory. Run as a module: it limits its own memory."""

from __future__ import annotations

import base64
import json
import resource
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import HudiError
from pyhudi.format.avro.container import decode_container
from pyhudi.format.avro.schema import parse_schema
from pyhudi.format.avro_columns import avro_records
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.bloom_filter import BloomFilter, BloomKind
from pyhudi.format.byte_cursor import encode_varint, encode_zigzag
from pyhudi.format.hfile import Codec, read_data_blocks
from pyhudi.format.hfile.blocks import BlockKind, decode_block, encode_block
from pyhudi.format.hfile.trailer import Trailer, encode_trailer
from pyhudi.format.json_document import parse_json
from pyhudi.format.log.delete_blocks import decode_deletes
from pyhudi.format.log.framing import MAGIC, CorruptBlock, scan_blocks
from pyhudi.format.log.record_positions import decode_positions
from pyhudi.format.orc.orc_tail import read_tail
from pyhudi.format.parquet.footer import check_footer
from pyhudi.format.parquet.thrift_compact import decode_structs, each, edited
from pyhudi.format.protobuf import encode_number

LIMIT_BYTES = 400 << 20
"""Memory that all decoders together may take, in addition to the imported modules."""


def _deflated(size_bytes: int, window_bits: int) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, window_bits)
    chunk = bytes(1 << 20)
    return b"".join(stream.compress(chunk) for _ in range(size_bytes >> 20)) + stream.flush()


def hfile_block(codec: Codec, stored: bytes, plain_bytes: int) -> None:
    """A block whose header claims a size."""
    header = struct.pack(">8siiqBii", b"DATABLK*", len(stored), plain_bytes, -1, 0, 1 << 14, 33 + len(stored))
    decode_block(memoryview(header + stored), 0, codec)


def hfile_checksums() -> None:
    """A checksum for each byte."""
    stored = bytes(1 << 20)
    header = struct.pack(">8siiqBii", b"DATABLK*", 5 * len(stored), len(stored), -1, 2, 1, 33 + len(stored))
    decode_block(memoryview(header + stored + bytes(4 * len(stored))), 0, Codec.NONE)


def hfile_of_many_blocks() -> None:
    """Blocks that expand a thousandfold, each below the limit of one block."""
    block = encode_block(BlockKind.DATA, bytes(16 << 20), Codec.GZ, previous_offset=-1, level=9)
    body = block * 50
    trailer = Trailer(0, len(body), 0, 0, 50, 0, 1, 1, 0, len(body) - len(block), Codec.GZ)
    read_data_blocks(body + encode_trailer(trailer))


def avro_container() -> None:
    """A deflated block of 256 MiB."""
    schema = b'"bytes"'
    header = b"\x04" + b"\x16avro.schema" + encode_varint(2 * len(schema)) + schema + b"\x14avro.codec\x0edeflate\x00"
    block = _deflated(1 << 28, -15)
    decode_container(b"Obj\x01" + header + bytes(16) + b"\x02" + encode_varint(2 * len(block)) + block + bytes(16))


def avro_types(parse: Callable[[str], object]) -> None:
    """Each record has the one before it twice."""
    fields = [{"name": "f0", "type": {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}}]
    for n in range(1, 60):
        pair = [{"name": name, "type": f"R{n - 1}"} for name in ("a", "b")]
        fields.append({"name": f"f{n}", "type": {"type": "record", "name": f"R{n}", "fields": pair}})
    parse(json.dumps({"type": "record", "name": "T", "fields": fields}))


def avro_chain(parse: Callable[[str], object], count: int) -> None:
    """Each record has the one before it, by its name, so that the text is not nested."""
    fields: list[dict[str, Any]] = [{"name": "f0", "type": {"type": "fixed", "name": "R0", "size": 1}}]
    for n in range(1, count):
        below = [{"name": "a", "type": f"R{n - 1}"}]
        fields.append({"name": f"f{n}", "type": {"type": "record", "name": f"R{n}", "fields": below}})
    parse(json.dumps({"type": "record", "name": "T", "fields": fields}))


def avro_fixed() -> None:
    """Nulls of a type of 2 GiB."""
    kind = {"type": "fixed", "name": "F", "size": 2**31 - 1}
    text = json.dumps({"type": "record", "name": "T", "fields": [{"name": "a", "type": ["null", kind], "default": None}]})
    avro_records(text).decode(bytes(1000), np.arange(1000), np.arange(1, 1001))


def kryo_references() -> None:
    """A text of 1 MiB, and 100,000 references to it."""
    key = b"org.apache.hudi.common.model.HoodieKey"

    def text(value: bytes) -> bytes:
        return value[:-1] + bytes([value[-1] | 0x80])

    count = 100_000
    first = b"\x01\x01" + text(key) + b"\x01\x01" + text(b"p" * (1 << 20)) + b"\x00"
    reference = encode_varint(2 + 2)
    other = b"\x01\x01\x01" + reference + reference
    payload = b"\x01\x00" + text(b"[L" + key + b";") + b"\x01" + encode_varint(count + 1) + first + other * (count - 1)
    list(decode_deletes(struct.pack(">ii", 1, len(payload)) + payload))


def positions() -> None:
    """Runs of 65,536 positions, of 14 bytes each."""
    containers = 2000
    flags = bytes([0xFF]) * ((containers + 7) // 8)
    heads = b"".join(struct.pack("<HH", key, 0xFFFF) for key in range(containers))
    body = struct.pack("<I", (containers - 1) << 16 | 0x303B) + flags + heads + bytes(4 * containers)
    bitmap = struct.pack("<QI", 1, 0) + body + struct.pack("<HHH", 1, 0, 0xFFFF) * containers
    decode_positions(base64.b64encode(bitmap).decode(), content_bytes=1000)


def orc_footer(block_size: int) -> None:
    """A footer of 256 MiB; a block size of 0 is none."""
    chunk = _deflated(1 << 28, -15)
    footer = (len(chunk) << 1).to_bytes(3, "little") + chunk
    postscript = encode_number(1, len(footer)) + encode_number(2, 1) + encode_number(3, block_size) + b"\x82\xf4\x03\x03ORC"
    read_tail(pa.BufferReader(b"ORC" + footer + postscript + bytes([len(postscript)])))


def parquet_schema() -> None:
    """A schema with 200,000 levels."""
    element = b"\x48\x01a\x15\x02\x00"
    count = 200_000
    schema = bytes([0xFC]) + encode_varint(count) + element * count
    check_footer(b"\x15\x02\x19" + schema + b"\x16\x00\x19\x0c\x00", 1 << 20)


def parquet_column(codec: str) -> None:
    """A column of 100 KB that claims 2 GiB, which the codec could expand to."""
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [np.random.default_rng(1).bytes(100_000)]}), out, compression=codec, use_dictionary=False)
    data = out.getvalue().to_pybytes()
    size = int.from_bytes(data[-8:-4], "little")

    def claim(column: bytes) -> bytes:
        return edited(column, 3, lambda metadata: edited(metadata, 6, lambda _: encode_zigzag(1 << 31)))

    groups = edited(
        data[-8 - size : -8], 4, lambda rows: each(rows, lambda row: edited(row, 1, lambda chunks: each(chunks, claim)))
    )
    check_footer(groups, len(data) - 8 - size)


def bloom_filter() -> None:
    """A filter of 200,000 rows."""
    row = struct.pack(">iibi", -1, 1_000, 1, 8)
    count = 200_000
    data = row + struct.pack(">iii", 1, 1, count) + (row + b"\x00") * count
    assert BloomFilter.decode(data, BloomKind.DYNAMIC_V0).might_contain(pa.array(["a"] * 1000)).all()


def avro_blocks() -> None:
    """Items that are alone in their block."""
    kind = {"type": "array", "items": "long"}
    text = json.dumps({"type": "record", "name": "T", "fields": [{"name": "a", "type": kind}]})
    data = b"\x02\x02" * 100_000 + b"\x00"
    decoded = avro_records(text).decode(data, np.array([0]), np.array([len(data)]))
    assert len(decoded.column("a")[0]) == 100_000


def log_magics() -> None:
    """A magic every six bytes: each starts a torn block."""
    data = MAGIC * 100_000
    read_bytes = 0

    def read_range(offset: int, size: int) -> bytes:
        nonlocal read_bytes
        read_bytes += size
        return data[offset : offset + size]

    blocks = list(scan_blocks(read_range, len(data)))
    assert all(isinstance(block, CorruptBlock) for block in blocks)
    assert read_bytes < 100 * len(data), read_bytes


BOMBS: dict[str, Callable[[], object]] = {
    "hfile gzip": lambda: hfile_block(Codec.GZ, _deflated(1 << 28, 31), 1 << 30),
    "hfile gzip, another size": lambda: hfile_block(Codec.GZ, _deflated(1 << 28, 31), 1 << 20),
    "hfile zstd": lambda: hfile_block(Codec.ZSTD, bytes(pa.Codec("zstd").compress(bytes(65 << 20))), 65 << 20),
    "hfile snappy": lambda: hfile_block(Codec.SNAPPY, struct.pack(">II", 1 << 30, 8) + b"\x80\x80\x80\x80\x04abc", 1 << 30),
    "hfile checksums": hfile_checksums,
    "hfile of many blocks": hfile_of_many_blocks,
    "avro container": avro_container,
    "avro types of documents": lambda: avro_types(parse_schema),
    "avro types of rows": lambda: avro_types(avro_to_arrow),
    "avro chain of documents": lambda: avro_chain(parse_schema, 150),
    "long avro chain of documents": lambda: avro_chain(parse_schema, 5_000),
    "avro chain of rows": lambda: avro_chain(avro_to_arrow, 150),
    "long avro chain of rows": lambda: avro_chain(avro_to_arrow, 5_000),
    "avro fixed": avro_fixed,
    "json": lambda: parse_json("[" * 100_000, "it is"),
    "json of 900 levels": lambda: parse_json("[" * 900 + "]" * 900, "it is"),
    "kryo references": kryo_references,
    "record positions": positions,
    "orc footer": lambda: orc_footer(1 << 18),
    "orc footer without a limit": lambda: orc_footer(0),
    "orc footer with a large limit": lambda: orc_footer(1 << 62),
    "parquet schema": parquet_schema,
    "parquet column of zstd": lambda: parquet_column("zstd"),
    "parquet column of brotli": lambda: parquet_column("brotli"),
    "thrift list": lambda: decode_structs(b"\xfc" + encode_varint(2**63) + b"\x00" * 10),
}
"""Bombs that are errors."""

SLOW: dict[str, Callable[[], object]] = {
    "bloom filter": bloom_filter,
    "avro blocks": avro_blocks,
    "log magics": log_magics,
}
"""Inputs on which a decoder must not take many times their size."""


def main() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    outcomes: dict[str, str] = {}
    for name, run in (BOMBS | SLOW).items():
        try:
            run()
            outcomes[name] = "no error"
        except HudiError as error:
            outcomes[name] = f"HudiError: {error}"
        except BaseException as error:
            outcomes[name] = f"{type(error).__name__}: {error}"[:300]
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
