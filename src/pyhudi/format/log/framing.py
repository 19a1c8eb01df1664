"""Log file framing: blocks with headers, content and lengths.

A log file is a sequence of blocks. One block, big-endian:

    off  size  field
    0    6     magic "#HUDI#"
    6    8     L, the bytes after this field, the last one included
    14   4     log format version, 1
    18   4     block type
    22   ..    headers: int count, then per entry int key, int size, UTF-8 text
    ..   8     C, the size of the content
    ..   C     content
    ..   4     footer: as the headers, always without entries
    ..   8     T = L + 6, the distance back to the magic

A file system that makes bytes visible while they are written leaves torn blocks when a writer dies. Each block is
therefore verified: its last field is inside the file, T and L agree, and the magic or the end of the file follows. A
block that fails is returned as `CorruptBlock`, up to the next magic; `log_corruption.py` defines when readers may skip
it. Object stores show a file completely or not at all; for them these checks are omitted (`skip_checks`), and
corruption is an error.

The format has no checksums, unknown headers make Hudi's readers fail, and footers must be empty. Readers use the header
COMMAND_BLOCK_TYPE of command blocks only. PyHudi therefore stores a check in it in all other blocks that it writes:

    pyhudi crc32 <of the head> <of the content> <number of the block in its file> more|last

The head is everything before the content, with its own checksum as eight zeros. A changed bit, a repeated or reordered
block, and a file truncated between two blocks are therefore detected on every store. Blocks of other writers, which
have no check, are verified by their lengths only.

Scanning reads headers and block ends in windows and does not read contents, so that the cost of selecting blocks does
not depend on the amount of data in them.

Not done here: block contents (the other modules of this package), and the selection of visible blocks
(`command_blocks.py`).

Specification: docs/formats/log-file.md.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.byte_cursor import ByteCursor

MAGIC: Final = b"#HUDI#"
LOG_FORMAT_VERSION: Final = 1
_PARQUET_MAGIC: Final = b"PAR1"

# Hudi reads both lengths of a block as 32-bit numbers.
MAX_BLOCK_BYTES: Final = 2**31 - 1

ReadRange = Callable[[int, int], bytes]
"""read_range(offset, size) -> exactly those bytes of the file; the caller owns the file."""


class BlockType(IntEnum):
    """Block types by their stored number. CORRUPT is never written."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO = 3
    HFILE = 4
    PARQUET = 5
    CDC = 6


class HeaderKey(IntEnum):
    """Block headers by their stored number. Values are text; Hudi fails on any other number."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class BlockCheck:
    """The check in a block's header.

    Attributes:
        content_crc: CRC-32 of the content.
        number: Number of the block in its file, from 0.
        is_last: No other block of PyHudi follows.
    """

    content_crc: int
    number: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class LogBlock:
    """A valid block, without its content.

    Attributes:
        offset: Position of the magic.
        size_bytes: Size of the block, from the magic on.
        kind: Block type.
        headers: Without the header that holds the check.
        content_offset: Position of the content in the file.
        content_size_bytes: Size of the content.
        check: None for blocks of other writers.
    """

    offset: int
    size_bytes: int
    kind: BlockType
    headers: tuple[tuple[HeaderKey, str], ...]
    content_offset: int
    content_size_bytes: int
    check: BlockCheck | None = None

    @property
    def end(self) -> int:
        """The offset after the block."""
        return self.offset + self.size_bytes

    def header(self, key: HeaderKey) -> str | None:
        """Return the text of a header; None if the block does not have it."""
        return next((text for name, text in self.headers if name is key), None)

    @property
    def instant_time(self) -> str:
        """Request time of the action that wrote the block. Raises CorruptData without it, because every block has one."""
        return self.required(HeaderKey.INSTANT_TIME)

    @property
    def schema(self) -> str | None:
        """The writer's Avro schema, as JSON text."""
        return self.header(HeaderKey.SCHEMA)

    @property
    def is_partial(self) -> bool:
        """Partial update: the records hold only the columns of the block's schema; the others keep their older values."""
        return (self.header(HeaderKey.IS_PARTIAL) or "").lower() == "true"

    @property
    def compacted_block_times(self) -> tuple[str, ...]:
        """Instants that a log compaction merged into this block, as written; () for an ordinary block."""
        text = self.header(HeaderKey.COMPACTED_BLOCK_TIMES)
        return tuple(text.split(",")) if text else ()

    def required(self, key: HeaderKey) -> str:
        """Return the text of a mandatory header. Raises CorruptData if it is missing."""
        text = self.header(key)
        if text is None:
            raise CorruptData(f"a {self.kind.name} block is missing its header {key.name}", offset=self.offset)
        return text

    def read_content(self, read_range: ReadRange) -> bytes:
        """Read the content from the block's file. Raises CorruptData if its checksum differs."""
        content = _read(read_range, self.content_offset, self.content_size_bytes)
        if self.check is not None:
            checksum = zlib.crc32(content)
            if checksum != self.check.content_crc:
                raise CorruptData(
                    "checksum mismatch in the content of a log block",
                    offset=self.content_offset,
                    expected=self.check.content_crc,
                    found=checksum,
                )
        return content


@dataclass(frozen=True, slots=True)
class CorruptBlock:
    """A range of corrupt bytes.

    It is an incomplete block from its magic up to the next magic or the end of the file, or a tail shorter than a
    magic. With size 0 it is the end of a file in which another block must follow.
    """

    offset: int
    size_bytes: int
    reason: str

    @property
    def end(self) -> int:
        """The offset after the corrupt bytes."""
        return self.offset + self.size_bytes


Block = tuple[BlockType, Mapping[HeaderKey, str], "bytes | memoryview"]
"""Type, headers and content of a log block to write."""


class LogFraming:
    """Encodes the blocks of one log file with their checks.

    A block is returned only when it is known whether another one follows.
    """

    __slots__ = ("_held", "_number")

    def __init__(self) -> None:
        self._held: Block | None = None
        self._number = 0

    def add(self, block: Block) -> tuple[bytes | memoryview, ...]:
        """Add a block and return the bytes of the previous one, in parts.

        Raises:
            InvalidRequest: As `frame_block`, and for COMMAND blocks.
        """
        before = self._framed(is_last=False)
        self._held = block
        return before

    def finish(self) -> tuple[bytes | memoryview, ...]:
        """Return the bytes of the last block, in parts."""
        return self._framed(is_last=True)

    def _framed(self, *, is_last: bool) -> tuple[bytes | memoryview, ...]:
        if self._held is None:
            return ()
        kind, headers, content = self._held
        if kind is BlockType.COMMAND:
            raise InvalidRequest("a COMMAND block cannot hold a check")
        check_fields = f"{zlib.crc32(content):08x} {self._number} {'last' if is_last else 'more'}"
        unsealed = f"{_CHECK_NAME} {_NO_SUM} {check_fields}"
        head, tail = frame_block(kind, {**headers, _CHECK_KEY: unsealed}, len(content))
        # No header after this one, in the order of keys, contains such a text.
        at = head.rindex(unsealed.encode()) + len(_CHECK_NAME) + 1
        self._held, self._number = None, self._number + 1
        return b"".join((head[:at], f"{zlib.crc32(head):08x}".encode(), head[at + len(_NO_SUM) :])), content, tail


def encode_blocks(blocks: Iterable[Block]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a log file of these blocks, with their checks, in parts. Buffers one block. See `LogFraming`."""
    framing = LogFraming()
    for block in blocks:
        yield from framing.add(block)
    yield from framing.finish()


def encode_block(kind: BlockType, headers: Mapping[HeaderKey, str], content: bytes | memoryview = b"") -> bytes:
    """Return the bytes of one block without a check. Raises as `frame_block`."""
    head, tail = frame_block(kind, headers, len(content))
    return b"".join((head, content, tail))


def frame_block(kind: BlockType, headers: Mapping[HeaderKey, str], content_size_bytes: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after the content of a block, for writers that avoid a copy of the content.

    Args:
        headers: INSTANT_TIME at least.

    Raises:
        InvalidRequest: A block that Hudi could not read: no instant, a type that is never written, or 2 GiB and more.
    """
    if kind is BlockType.CORRUPT:
        raise InvalidRequest("a CORRUPT block represents corruption and is never written")
    if not headers.get(HeaderKey.INSTANT_TIME):
        raise InvalidRequest(f"a {kind.name} block needs the header INSTANT_TIME")
    entries = [_I32.pack(len(headers))]
    for key in sorted(headers):
        text = headers[key].encode("utf-8")
        entries += (_KEY_AND_SIZE.pack(key, len(text)), text)
    header_bytes = b"".join(entries)
    size = _TYPE_AND_VERSION.size + len(header_bytes) + _I64.size + content_size_bytes + _TAIL.size
    if _START.size + size > MAX_BLOCK_BYTES:
        raise InvalidRequest(f"a log block of {_START.size + size} bytes exceeds the format's maximum of {MAX_BLOCK_BYTES}")
    head = b"".join(
        (_START.pack(MAGIC, size), _TYPE_AND_VERSION.pack(LOG_FORMAT_VERSION, kind), header_bytes, _I64.pack(content_size_bytes))
    )
    return head, _TAIL.pack(0, size + len(MAGIC))


def scan_blocks(read_range: ReadRange, size_bytes: int, *, skip_checks: bool = False) -> Iterator[LogBlock | CorruptBlock]:
    """Yield the blocks of a log file, in file order, lazily. A file of no bytes has no blocks.

    Args:
        read_range: Reads the file; its errors propagate.
        size_bytes: Size of the file.
        skip_checks: The store shows a file completely or not at all, so there are no torn blocks and no checks for
            them.

    Raises:
        CorruptData: No magic where a block must begin, or a block that passes the checks is corrupt inside (with
            `skip_checks`, also if it does not fit the file).
        Unsupported: An unknown log format version, block type or header, or a file that is a Parquet file.
    """
    window = _Window(read_range, size_bytes)
    offset = number = 0
    follows = None
    while size_bytes - offset >= len(MAGIC):
        magic = window.get(offset, len(MAGIC))
        if offset == 0 and magic.startswith(_PARQUET_MAGIC):
            raise Unsupported(
                "a log file that is a Parquet file is not supported: its first bytes are PAR1 (log format of RFC-103). "
                "Compact the table with the Hudi release that wrote it"
            )
        if magic != MAGIC:
            raise CorruptData("no log block begins here", offset=offset, expected=MAGIC, found=magic)
        reason = None if skip_checks else _torn(window, offset)
        if reason is not None:
            end = _next_magic(window, offset + len(MAGIC))
            yield CorruptBlock(offset, end - offset, reason)
            offset = end
            continue
        block, reason = _decode_block(window, offset, skip_checks=skip_checks)
        if reason is None and block.check is not None and block.check.number != number:
            reason = f"block {block.check.number} is stored where block {number} was written"
        if block.check is not None:
            number += 1
            follows = None if block.check.is_last else number
        yield block if reason is None else CorruptBlock(offset, block.size_bytes, reason)
        offset = block.end
    if offset < size_bytes:
        yield CorruptBlock(offset, size_bytes - offset, "the file ends inside a magic")
    elif follows is not None:
        yield CorruptBlock(offset, 0, f"the file ends where block {follows} was to follow")


_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_START: Final = struct.Struct(">6sq")
_TYPE_AND_VERSION: Final = struct.Struct(">ii")
_KEY_AND_SIZE: Final = struct.Struct(">ii")
_TAIL: Final = struct.Struct(">iq")

_CHECK_KEY: Final = HeaderKey.COMMAND_BLOCK_TYPE
_CHECK_NAME: Final = "pyhudi crc32"
_NO_SUM: Final = "0" * 8
_CHECK: Final = re.compile(rf"{_CHECK_NAME} ([0-9a-f]{{8}}) ([0-9a-f]{{8}}) ([0-9]{{1,9}}) (more|last)")

# Version, type, two empty maps, content size, T: the minimum size of a block.
_MIN_SIZE: Final = 4 + 4 + 4 + 8 + 4 + 8

# One read covers the end of a block and the headers of the next one. On object stores a request costs more than this
# many bytes.
_WINDOW_BYTES: Final = 32 * 1024
_SEARCH_BYTES: Final = 1024 * 1024
_FIRST_SEARCH_BYTES: Final = 64


class _Window:
    """The two parts of the file that were read last: the head of a block, and its end with the head of the next one."""

    __slots__ = ("_parts", "_read_range", "size_bytes")

    def __init__(self, read_range: ReadRange, size_bytes: int) -> None:
        self._read_range = read_range
        self._parts: list[tuple[int, bytes]] = []
        self.size_bytes = size_bytes

    def get(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`; the caller has compared both with the size of the file."""
        for start, data in self._parts:
            if start <= offset and offset + size <= start + len(data):
                return data[offset - start : offset - start + size]
        data = _read(self._read_range, offset, min(max(size, _WINDOW_BYTES), self.size_bytes - offset))
        self._parts = [(offset, data), *self._parts[:1]]
        return data[:size]


def _read(read_range: ReadRange, offset: int, size: int) -> bytes:
    data = read_range(offset, size)
    if len(data) != size:
        raise CorruptData("the log file is shorter than its recorded size", offset=offset, expected=size, found=len(data))
    return data


def _torn(window: _Window, offset: int) -> str | None:
    """Return why the block whose magic is at `offset` is invalid; None if it is valid."""
    remaining = window.size_bytes - offset - _START.size
    if remaining < 0:
        return "the file ends inside the length"
    _, size = _START.unpack(window.get(offset, _START.size))
    if size < _MIN_SIZE:
        return f"a length of {size} is too small for any block"
    if size > remaining:
        return f"the block's length is {size} bytes, but the file has {remaining}"
    end = offset + _START.size + size
    after = min(len(MAGIC), window.size_bytes - end)
    close = window.get(end - _TAIL.size, _TAIL.size + after)
    _, back = _TAIL.unpack_from(close)
    if back - len(MAGIC) != size:
        return f"the lengths differ: {size} before, {back - len(MAGIC)} after"
    if after == len(MAGIC) and close[_TAIL.size :] != MAGIC:
        return "neither a block nor the end of the file follows"
    return None


def _next_magic(window: _Window, offset: int) -> int:
    """Return the offset of the first magic at or after `offset`; the end of the file if there is none."""
    # The first reads are small, because a corrupt file may have a magic every few bytes.
    size = _FIRST_SEARCH_BYTES
    while window.size_bytes - offset >= len(MAGIC):
        size = min(size, window.size_bytes - offset)
        position = window.get(offset, size).find(MAGIC)
        if position >= 0:
            return offset + position
        # The magic may span the border of two windows.
        offset += size - (len(MAGIC) - 1)
        size = min(8 * size, _SEARCH_BYTES)
    return window.size_bytes


def _decode_block(window: _Window, offset: int, *, skip_checks: bool) -> tuple[LogBlock, str | None]:
    """Return the block at `offset`, and the reason if its check fails."""
    remaining = window.size_bytes - offset - _START.size
    if remaining < 0:
        raise CorruptData("a log block is truncated inside its length", offset=offset)
    _, size = _START.unpack(window.get(offset, _START.size))
    if not _MIN_SIZE <= size <= min(remaining, MAX_BLOCK_BYTES):
        raise CorruptData(
            "a log block extends past the end of its file", offset=offset + len(MAGIC), expected=remaining, found=size
        )
    start = offset + _START.size
    end = start + size
    version, ordinal = _TYPE_AND_VERSION.unpack(window.get(start, _TYPE_AND_VERSION.size))
    if version < 0:
        raise CorruptData("invalid log format version", offset=start, expected=LOG_FORMAT_VERSION, found=version)
    if version != LOG_FORMAT_VERSION:
        older = " (Hudi 1.0.2 reads no blocks of version 0 either)" if version == 0 else ""
        raise Unsupported(
            f"log format version {version} at byte {start} is not supported: only version {LOG_FORMAT_VERSION} is{older}"
        )
    kind = _kind_of(ordinal, start + 4)
    # The content size, the footer and T follow the headers, regardless of their content.
    headers, places, at = _decode_headers(window, start + _TYPE_AND_VERSION.size, end - _I64.size - _TAIL.size)
    (content_size,) = _I64.unpack(window.get(at, _I64.size))
    content = at + _I64.size
    if content_size != end - _TAIL.size - content:
        raise CorruptData(
            "the content size of a log block does not match the block",
            offset=at,
            expected=end - _TAIL.size - content,
            found=content_size,
        )
    if not skip_checks:
        (footers,) = _I32.unpack(window.get(end - _TAIL.size, _I32.size))
        if footers:
            raise CorruptData("a log block has footers, which must be empty", offset=end - _TAIL.size, expected=0, found=footers)
    text = headers.get(_CHECK_KEY)
    if kind is BlockType.COMMAND or text is None:
        lost = any(value.startswith(_CHECK_NAME) for value in headers.values())
        block = LogBlock(offset, end - offset, kind, tuple(headers.items()), content, content_size)
        return block, "its check is stored under another header" if lost else None
    del headers[_CHECK_KEY]
    check_match = _CHECK.fullmatch(text)
    check: BlockCheck | None = None
    reason: str | None = "the check of the block is invalid"
    if check_match is not None:
        check = BlockCheck(int(check_match[2], 16), int(check_match[3]), check_match[4] == "last")
        head = window.get(offset, content - offset)
        at = places[_CHECK_KEY] + check_match.start(1) - offset
        checksum = zlib.crc32(head[at + len(_NO_SUM) :], zlib.crc32(_NO_SUM.encode(), zlib.crc32(head[:at])))
        reason = (
            None if checksum == int(check_match[1], 16) else f"its head has the checksum {checksum:08x}, not {check_match[1]}"
        )
    return LogBlock(offset, end - offset, kind, tuple(headers.items()), content, content_size, check), reason


def _kind_of(ordinal: int, offset: int) -> BlockType:
    if ordinal < 0 or ordinal == BlockType.CORRUPT:
        raise CorruptData("invalid type of a log block", offset=offset, found=ordinal)
    try:
        return BlockType(ordinal)
    except ValueError:
        raise Unsupported(f"unknown type {ordinal} of the log block at byte {offset}") from None


def _decode_headers(window: _Window, offset: int, end: int) -> tuple[dict[HeaderKey, str], dict[HeaderKey, int], int]:
    """Return the headers between `offset` and `end`, the offset of each text, and the offset after them."""
    if end - offset < _I32.size:
        raise CorruptData("a log block is truncated inside its headers", offset=offset)
    (count,) = _I32.unpack(window.get(offset, _I32.size))
    at = offset + _I32.size
    if not 0 <= count <= (end - at) // _KEY_AND_SIZE.size:
        raise CorruptData("invalid number of headers", offset=offset, found=count)
    headers: dict[HeaderKey, str] = {}
    places: dict[HeaderKey, int] = {}
    for _ in range(count):
        if end - at < _KEY_AND_SIZE.size:
            raise CorruptData("a log block is truncated inside its headers", offset=at)
        ordinal, size = _KEY_AND_SIZE.unpack(window.get(at, _KEY_AND_SIZE.size))
        if ordinal < 0:
            raise CorruptData("invalid key of a log block header", offset=at, found=ordinal)
        if ordinal > max(HeaderKey):
            raise Unsupported(f"unknown key {ordinal} of a log block header at byte {at}")
        at += _KEY_AND_SIZE.size
        if not 0 <= size <= end - at:
            raise CorruptData(
                "a log block header extends past the end of its block", offset=at - 4, expected=end - at, found=size
            )
        if HeaderKey(ordinal) in headers:
            raise CorruptData("a log block has a duplicate header", offset=at, found=HeaderKey(ordinal).name)
        headers[HeaderKey(ordinal)] = ByteCursor(window.get(at, size), base=at).text(size)
        places[HeaderKey(ordinal)] = at
        at += size
    return headers, places, at
