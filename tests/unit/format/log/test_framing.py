"""Log block framing: bytes of Apache Hudi, truncated files, damaged bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.log import framing
from pyhudi.format.log.framing import (
    BlockType,
    CorruptBlock,
    HeaderKey,
    LogBlock,
    encode_block,
    encode_blocks,
    frame_block,
    scan_blocks,
)

ROLLBACK = bytes.fromhex(
    "23485544492300000000000000"
    "5b0000000100000000"
    "00000003"
    "000000030000000130"
    "0000000000000011" + b"20261121052509886".hex() + "0000000100000011" + b"20261121052508467".hex() + "0000000000000000"
    "00000000"
    "0000000000000061"
)


def scan(data: bytes, trusted: bool = False) -> list[LogBlock | CorruptBlock]:
    return list(scan_blocks(reader(data), len(data), skip_checks=trusted))


def reader(data: bytes) -> Callable[[int, int], bytes]:
    def read_range(offset: int, size: int) -> bytes:
        assert 0 <= offset <= offset + size <= len(data), (offset, size)
        return data[offset : offset + size]

    return read_range


def block(instant: str, content: bytes = b"rows") -> bytes:
    return encode_block(BlockType.AVRO, {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: '"int"'}, content)


GOOD = block("1")
OTHER = block("2", b"more rows")
TORN = block("3")[:-9]


def test_rollback_block_of_the_reference() -> None:
    (found,) = scan(ROLLBACK)
    assert isinstance(found, LogBlock)
    assert found.kind is BlockType.COMMAND
    assert dict(found.headers) == {
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
        HeaderKey.INSTANT_TIME: "20261121052509886",
        HeaderKey.TARGET_INSTANT_TIME: "20261121052508467",
    }
    assert (found.offset, found.size_bytes, found.content_size_bytes) == (0, 105, 0)
    # Apache Hudi writes headers in its own order; here they are in the order of their keys.
    ours = encode_block(BlockType.COMMAND, dict(found.headers))
    assert len(ours) == len(ROLLBACK)
    assert sorted(ours) == sorted(ROLLBACK)
    again = scan(ours)[0]
    assert isinstance(again, LogBlock)
    assert dict(again.headers) == dict(found.headers)


def test_contents_come_on_demand() -> None:
    data = block("1", bytes(500_000)) + block("2", b"x" * 700_000) + block("3", b"end")
    sizes: list[int] = []

    def read_range(offset: int, size: int) -> bytes:
        sizes.append(size)
        return data[offset : offset + size]

    found = list(scan_blocks(read_range, len(data)))
    assert [b.instant_time for b in found if isinstance(b, LogBlock)] == ["1", "2", "3"]
    assert sum(sizes) < 100_000
    assert len(sizes) <= 4
    assert isinstance(found[1], LogBlock)
    assert found[1].read_content(read_range) == b"x" * 700_000


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"", ""),
        (GOOD, "1"),
        (GOOD + OTHER, "12"),
        (GOOD + TORN, "1x"),
        (GOOD + TORN + OTHER, "1x2"),
        (GOOD + b"garbage", "x"),
        (GOOD + b"garbage" + OTHER, "x2"),
        (GOOD + b"#HUDI#", "1x"),
        (GOOD + b"#HU", "1x"),
        (GOOD + b"#HUDI#" + b"\0\0\0", "1x"),
        (GOOD[:-1] + b"\0" + OTHER, "x2"),
        (TORN + TORN + OTHER, "xx2"),
        (b"#HUDI#" * 3, "xxx"),
        (b"#HUDI#" + (2**60).to_bytes(8, "big") + OTHER, "x2"),
        (b"#HUDI#" + (-5).to_bytes(8, "big", signed=True) + OTHER, "x2"),
        (b"#HUDI#" + (0).to_bytes(8, "big") + OTHER, "x2"),
        (b"#HUD", "x"),
    ],
)
def test_torn_files(data: bytes, seen: str) -> None:
    found = scan(data)
    assert "".join("x" if isinstance(b, CorruptBlock) else b.instant_time for b in found) == seen
    # Blocks and damage cover the file without a gap.
    at = 0
    for b in found:
        assert b.offset == at
        at = b.end
    assert at == len(data)


@pytest.mark.parametrize("data", [b"garbage", b"\0" * 6, b"x" + GOOD])
@pytest.mark.parametrize("trusted", [False, True])
def test_a_file_that_begins_with_something_else_fails(data: bytes, trusted: bool) -> None:
    with pytest.raises(CorruptData, match="no log block"):
        scan(data, trusted)


@pytest.mark.parametrize("trusted", [False, True])
def test_log_file_that_is_a_parquet_file_is_refused_by_name(trusted: bool) -> None:
    with pytest.raises(Unsupported, match=r"log file that is a Parquet file .*PAR1 \(log format of RFC-103\)"):
        scan(b"PAR1" + bytes(40) + b"PAR1", trusted)
    with pytest.raises(CorruptData, match="no log block"):
        scan(GOOD + b"PAR1" + bytes(40), trusted=True)


def test_a_trusted_store_has_no_torn_blocks() -> None:
    assert len(scan(GOOD + OTHER, trusted=True)) == 2
    for data in (GOOD + TORN, GOOD + b"#HUDI#", GOOD + b"garbage", b"#HUDI#" + (2**60).to_bytes(8, "big") + OTHER):
        with pytest.raises(CorruptData):
            scan(data, trusted=True)


def test_content_may_hold_the_magic() -> None:
    data = block("1", b"#HUDI#" + GOOD) + OTHER
    assert [b.instant_time for b in scan(data) if isinstance(b, LogBlock)] == ["1", "2"]


@pytest.mark.parametrize("shift", range(-7, 8))
def test_the_search_finds_a_magic_across_windows(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "_SEARCH_BYTES", 64)
    data = b"#HUDI#" + b"#" * (64 + shift) + OTHER
    found = scan(data)
    assert isinstance(found[0], CorruptBlock)
    assert found[0].size_bytes == 70 + shift
    assert len(found) == 2


def changed(data: bytes, offset: int, value: int, size: int = 4) -> bytes:
    return data[:offset] + value.to_bytes(size, "big", signed=True) + data[offset + size :]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (changed(GOOD, 14, 0), Unsupported),
        (changed(GOOD, 14, 2), Unsupported),
        (changed(GOOD, 14, -1), CorruptData),
        (changed(GOOD, 18, 2), CorruptData),
        (changed(GOOD, 18, 7), Unsupported),
        (changed(GOOD, 18, -1), CorruptData),
        (changed(GOOD, 22, -1), CorruptData),
        (changed(GOOD, 22, 2**31 - 1), CorruptData),
        (changed(GOOD, 26, 9), Unsupported),
        (changed(GOOD, 26, -1), CorruptData),
        (changed(GOOD, 30, 2**31 - 1), CorruptData),
        (changed(GOOD, 30, -1), CorruptData),
        (changed(GOOD, len(GOOD) - 24, 3, 8), CorruptData),
        (changed(GOOD, len(GOOD) - 12, 1), CorruptData),
    ],
)
def test_damage_inside_a_block(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error, match="byte") as raised:
        scan(data)
    assert error is Unsupported or isinstance(raised.value, CorruptData)


def test_headers() -> None:
    text = "é" * 50_000
    headers = {
        HeaderKey.INSTANT_TIME: "7",
        HeaderKey.SCHEMA: text,
        HeaderKey.IS_PARTIAL: "true",
        HeaderKey.COMPACTED_BLOCK_TIMES: "6,5",
        HeaderKey.RECORD_POSITIONS: "",
    }
    (found,) = scan(encode_block(BlockType.PARQUET, headers, b"PAR1"))
    assert isinstance(found, LogBlock)
    assert (found.schema, found.is_partial, found.compacted_block_times) == (text, True, ("6", "5"))
    assert found.header(HeaderKey.RECORD_POSITIONS) == ""
    assert found.header(HeaderKey.BLOCK_IDENTIFIER) is None
    with pytest.raises(CorruptData, match="TARGET_INSTANT_TIME"):
        found.required(HeaderKey.TARGET_INSTANT_TIME)
    plain = scan(GOOD)[0]
    assert isinstance(plain, LogBlock)
    assert (plain.is_partial, plain.compacted_block_times) == (False, ())


def test_a_file_that_shrank() -> None:
    with pytest.raises(CorruptData, match="shorter"):
        list(scan_blocks(lambda offset, size: GOOD[offset : offset + size], len(GOOD) + 10))


def test_refused_blocks() -> None:
    with pytest.raises(InvalidRequest, match="INSTANT_TIME"):
        encode_block(BlockType.AVRO, {}, b"")
    with pytest.raises(InvalidRequest, match="never written"):
        encode_block(BlockType.CORRUPT, {HeaderKey.INSTANT_TIME: "1"}, b"")
    with pytest.raises(InvalidRequest, match="exceeds the format"):
        frame_block(BlockType.AVRO, {HeaderKey.INSTANT_TIME: "1"}, 2**31 - 40)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([kind for kind in BlockType if kind is not BlockType.CORRUPT]),
            st.dictionaries(st.sampled_from(list(HeaderKey)), st.text(max_size=8), max_size=4),
            st.binary(max_size=30),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_blocks_round_trip(blocks: list[tuple[BlockType, dict[HeaderKey, str], bytes]], trusted: bool) -> None:
    # In other blocks than commands this header is a check, or damage.
    def own(kind: BlockType, headers: dict[HeaderKey, str]) -> dict[HeaderKey, str]:
        return {k: v for k, v in headers.items() if k is not HeaderKey.COMMAND_BLOCK_TYPE or kind is BlockType.COMMAND}

    blocks = [(kind, {**own(kind, headers), HeaderKey.INSTANT_TIME: "1"}, content) for kind, headers, content in blocks]
    data = b"".join(encode_block(*b) for b in blocks)
    found = scan(data, trusted)
    assert all(isinstance(b, LogBlock) for b in found)
    assert [(b.kind, dict(b.headers), b.read_content(reader(data))) for b in found if isinstance(b, LogBlock)] == blocks


@pytest.mark.parametrize("trusted", [False, True])
def test_every_truncation(trusted: bool) -> None:
    data = GOOD + OTHER
    for end in range(len(data)):
        try:
            found = scan(data[:end], trusted)
        except CorruptData:
            assert trusted
            continue
        assert [b.instant_time for b in found if isinstance(b, LogBlock)] == (["1"] if end >= len(GOOD) else [])


@pytest.mark.parametrize("trusted", [False, True])
def test_flipped_bits_give_blocks_or_an_error(trusted: bool) -> None:
    data = GOOD + OTHER
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            for b in scan(bytes(damaged), trusted):
                if isinstance(b, LogBlock):
                    b.read_content(reader(bytes(damaged)))
        except (CorruptData, Unsupported):
            pass


@settings(max_examples=300)
@given(
    st.lists(st.one_of(st.binary(max_size=12), st.sampled_from([b"#HUDI#", GOOD, TORN, b"\0\0\0\0\0\0\0\x5b"]))), st.booleans()
)
def test_any_bytes_give_blocks_or_an_error(parts: list[bytes], trusted: bool) -> None:
    try:
        scan(b"".join(parts), trusted)
    except (CorruptData, Unsupported):
        pass


def test_a_check_under_another_header() -> None:
    """One bit of a header's number makes the check a schema, which readers of delete blocks do not look at."""
    data = b"".join(encode_blocks([(BlockType.DELETE, {HeaderKey.INSTANT_TIME: "1"}, b"keys")]))
    place = data.index(b"pyhudi crc32") - 8
    assert data[place : place + 4] == HeaderKey.COMMAND_BLOCK_TYPE.to_bytes(4, "big")
    for key in (HeaderKey.SCHEMA, HeaderKey.TARGET_INSTANT_TIME, HeaderKey.IS_PARTIAL):
        (found,) = scan(changed(data, place, key))
        assert isinstance(found, CorruptBlock)
