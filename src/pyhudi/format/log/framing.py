"""Blocks of a log file.  Source: docs/formats/log-file.md.

A log file is a row of blocks and nothing else.  One block, big-endian:

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

A file system that makes bytes visible while they are written leaves torn blocks behind when a writer dies.  So each block is
tested before it is believed: its last field lies inside the file, T and L agree, and the magic or the end of the file
follows.  What fails comes back as a `CorruptBlock`, up to the next magic; `whole.py` says when readers may pass it over.  Object
stores show a file whole or not at all; there these tests are left out (`skip_checks`), and damage is an error.

The format has no checksums, unknown headers make real readers fail, and footers must be empty.  Readers look at the header
COMMAND_BLOCK_TYPE of command blocks alone, so in all other blocks that PyHudi writes it holds a check:

    pyhudi crc32 <of the head> <of the content> <number of the block in its file> more|last

The head is everything before the content, its own checksum taken as eight zeros.  So no bit of a block can change, no block can
come twice or change places, and a file that was cut off between two blocks shows it, whatever the store.  Blocks of other
writers, which have no check, are believed as far as their lengths go.

Scanning reads headers and the ends of blocks in windows and leaves contents where they are, so that the cost of finding out
which blocks count does not depend on how much data they hold.

What this does not do: contents (the modules beside this one), and which blocks count for a reader (commands.py).
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

# Real Hudi reads both lengths of a block as 32-bit numbers.
MAX_BLOCK_BYTES: Final = 2**31 - 1

ReadRange = Callable[[int, int], bytes]
"""read_range(offset, size) -> exactly those bytes of the file; the caller owns the file."""


class BlockType(IntEnum):
    """What a block holds, by the number in its bytes.  CORRUPT is never written."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO = 3
    HFILE = 4
    PARQUET = 5
    CDC = 6


class HeaderKey(IntEnum):
    """The headers of a block, by the number in its bytes.  Values are text; real Hudi fails on any other number."""

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
    """What a block says of itself.

    content_crc: CRC-32 of its content; number: of the block in its file, from 0; is_last: no other one of PyHudi's follows.
    """

    content_crc: int
    number: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class LogBlock:
    """A whole block, without its content.

    offset: where the magic stands; size_bytes: from there to the end of the block; content_offset, content_size_bytes:
    where the content lies in the file.  headers: without the one that holds the check.
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
        """The offset just after the block."""
        return self.offset + self.size_bytes

    def header(self, key: HeaderKey) -> str | None:
        """The text of a header, None when the block does not have it."""
        return next((text for name, text in self.headers if name is key), None)

    @property
    def instant_time(self) -> str:
        """The request time of the action that wrote the block; CorruptData without it, since every block has one."""
        return self.required(HeaderKey.INSTANT_TIME)

    @property
    def schema(self) -> str | None:
        """The writer's Avro schema, as JSON text."""
        return self.header(HeaderKey.SCHEMA)

    @property
    def is_partial(self) -> bool:
        """The records hold only the columns of the block's schema; the others keep their older values."""
        return (self.header(HeaderKey.IS_PARTIAL) or "").lower() == "true"

    @property
    def compacted_block_times(self) -> tuple[str, ...]:
        """The instants that a log compaction merged into this block, as written; () for an ordinary block."""
        text = self.header(HeaderKey.COMPACTED_BLOCK_TIMES)
        return tuple(text.split(",")) if text else ()

    def required(self, key: HeaderKey) -> str:
        """The text of a header that a block of this type must have; CorruptData when it is missing."""
        text = self.header(key)
        if text is None:
            raise CorruptData(f"a {self.kind.name} block without its header {key.name}", offset=self.offset)
        return text

    def read_content(self, read_range: ReadRange) -> bytes:
        """The content, read from the file that the block was found in.  Raises CorruptData when it is not what was written."""
        content = _read(read_range, self.content_offset, self.content_size_bytes)
        if self.check is not None:
            found = zlib.crc32(content)
            if found != self.check.content_crc:
                raise CorruptData(
                    "checksum of a log block's content", offset=self.content_offset, expected=self.check.content_crc, found=found
                )
        return content


@dataclass(frozen=True, slots=True)
class CorruptBlock:
    """Damage: from the magic of a block that is not whole up to the next magic or the end of the file, the bytes of a tail that
    are too few for a magic, or, of no size, the end of a file in which another block was to follow.
    """

    offset: int
    size_bytes: int
    reason: str

    @property
    def end(self) -> int:
        """The offset just after the damage."""
        return self.offset + self.size_bytes


Block = tuple[BlockType, Mapping[HeaderKey, str], "bytes | memoryview"]
"""Kind, headers and content of a log block to be written."""


class LogFraming:
    """The blocks of one log file with their checks.  A block is handed out when it is known whether another one follows."""

    __slots__ = ("_held", "_number")

    def __init__(self) -> None:
        self._held: Block | None = None
        self._number = 0

    def add(self, block: Block) -> tuple[bytes | memoryview, ...]:
        """Take a block; the bytes of the one before it, in pieces.  Refuses what `frame_block` refuses, and COMMAND blocks."""
        before = self._framed(is_last=False)
        self._held = block
        return before

    def finish(self) -> tuple[bytes | memoryview, ...]:
        """The bytes of the last block, in pieces."""
        return self._framed(is_last=True)

    def _framed(self, *, is_last: bool) -> tuple[bytes | memoryview, ...]:
        if self._held is None:
            return ()
        kind, headers, content = self._held
        if kind is BlockType.COMMAND:
            raise InvalidRequest("a COMMAND block has no place for a check")
        rest = f"{zlib.crc32(content):08x} {self._number} {'last' if is_last else 'more'}"
        unsealed = f"{_CHECK_NAME} {_NO_SUM} {rest}"
        head, tail = frame_block(kind, {**headers, _CHECK_KEY: unsealed}, len(content))
        # No header that comes after this one by its key holds such a text.
        at = head.rindex(unsealed.encode()) + len(_CHECK_NAME) + 1
        self._held, self._number = None, self._number + 1
        return b"".join((head[:at], f"{zlib.crc32(head):08x}".encode(), head[at + len(_NO_SUM) :])), content, tail


def encode_blocks(blocks: Iterable[Block]) -> Iterator[bytes | memoryview]:
    """The bytes of a log file of these blocks, with their checks, in pieces.  One block is held.  See `LogFraming`."""
    framing = LogFraming()
    for block in blocks:
        yield from framing.add(block)
    yield from framing.finish()


def encode_block(kind: BlockType, headers: Mapping[HeaderKey, str], content: bytes | memoryview = b"") -> bytes:
    """The bytes of one block without a check.  See `frame_block` for what is refused."""
    head, tail = frame_block(kind, headers, len(content))
    return b"".join((head, content, tail))


def frame_block(kind: BlockType, headers: Mapping[HeaderKey, str], content_size_bytes: int) -> tuple[bytes, bytes]:
    """What stands before and after the content of a block, for writers that do not want the content copied.

    headers: INSTANT_TIME at least.  Raises InvalidRequest for a block that real Hudi could not read: no instant, a
    type that is never written, or 2 GiB and more.
    """
    if kind is BlockType.CORRUPT:
        raise InvalidRequest("a CORRUPT block stands for damage and is never written")
    if not headers.get(HeaderKey.INSTANT_TIME):
        raise InvalidRequest(f"a {kind.name} block needs the header INSTANT_TIME")
    entries = [_I32.pack(len(headers))]
    for key in sorted(headers):
        text = headers[key].encode("utf-8")
        entries += (_KEY_AND_SIZE.pack(key, len(text)), text)
    header_bytes = b"".join(entries)
    size = _TYPE_AND_VERSION.size + len(header_bytes) + _I64.size + content_size_bytes + _TAIL.size
    if _START.size + size > MAX_BLOCK_BYTES:
        raise InvalidRequest(f"a log block of {_START.size + size} bytes; the format ends at {MAX_BLOCK_BYTES}")
    head = b"".join(
        (_START.pack(MAGIC, size), _TYPE_AND_VERSION.pack(LOG_FORMAT_VERSION, kind), header_bytes, _I64.pack(content_size_bytes))
    )
    return head, _TAIL.pack(0, size + len(MAGIC))


def scan_blocks(read_range: ReadRange, size_bytes: int, *, skip_checks: bool = False) -> Iterator[LogBlock | CorruptBlock]:
    """The blocks of a log file of `size_bytes` bytes, in file order, found while the iterator runs.

    skip_checks: the store shows a file whole or not at all, so nothing is torn and the tests for it are left out.
    A file of no bytes has no blocks.
    Raises CorruptData when no magic stands where a block must begin, or a block that passes the tests is damaged inside
    (with `skip_checks`, also when it does not fit the file); Unsupported for another log format version, and for block types
    and headers that are not known.  `read_range` may raise what it likes.
    """
    window = _Window(read_range, size_bytes)
    offset = number = 0
    follows = None
    while size_bytes - offset >= len(MAGIC):
        magic = window.get(offset, len(MAGIC))
        if magic != MAGIC:
            raise CorruptData("no log block begins here", offset=offset, expected=MAGIC, found=magic)
        reason = None if skip_checks else _torn(window, offset)
        if reason is not None:
            end = _next_magic(read_range, offset + len(MAGIC), size_bytes)
            yield CorruptBlock(offset, end - offset, reason)
            offset = end
            continue
        block, reason = _decode_block(window, offset, skip_checks=skip_checks)
        if reason is None and block.check is not None and block.check.number != number:
            reason = f"block {block.check.number} stands where block {number} was written"
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

# Version, type, two empty maps, content size, T: no block is smaller.
_MIN_SIZE: Final = 4 + 4 + 4 + 8 + 4 + 8

# One read serves the end of a block and the headers of the next one.  On object stores a request costs more than this
# many bytes.
_WINDOW_BYTES: Final = 32 * 1024
_SEARCH_BYTES: Final = 1024 * 1024


class _Window:
    """The two parts of the file that were read last: the head of a block and its end, with the head of the next one."""

    __slots__ = ("_parts", "_read_range", "size_bytes")

    def __init__(self, read_range: ReadRange, size_bytes: int) -> None:
        self._read_range = read_range
        self._parts: list[tuple[int, bytes]] = []
        self.size_bytes = size_bytes

    def get(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset`; the caller has compared both with the size of the file."""
        for start, data in self._parts:
            if start <= offset and offset + size <= start + len(data):
                return data[offset - start : offset - start + size]
        data = _read(self._read_range, offset, min(max(size, _WINDOW_BYTES), self.size_bytes - offset))
        self._parts = [(offset, data), *self._parts[:1]]
        return data[:size]


def _read(read_range: ReadRange, offset: int, size: int) -> bytes:
    data = read_range(offset, size)
    if len(data) != size:
        raise CorruptData("the log file is shorter than its size says", offset=offset, expected=size, found=len(data))
    return data


def _torn(window: _Window, offset: int) -> str | None:
    """Why the block whose magic stands at `offset` must not be believed; None when it may be."""
    left = window.size_bytes - offset - _START.size
    if left < 0:
        return "the file ends inside the length"
    _, size = _START.unpack(window.get(offset, _START.size))
    if size < _MIN_SIZE:
        return f"a length of {size} is too small for any block"
    if size > left:
        return f"the block says {size} bytes follow, the file has {left}"
    end = offset + _START.size + size
    after = min(len(MAGIC), window.size_bytes - end)
    close = window.get(end - _TAIL.size, _TAIL.size + after)
    _, back = _TAIL.unpack_from(close)
    if back - len(MAGIC) != size:
        return f"the lengths disagree: {size} before, {back - len(MAGIC)} after"
    if after == len(MAGIC) and close[_TAIL.size :] != MAGIC:
        return "neither a block nor the end of the file follows"
    return None


def _next_magic(read_range: ReadRange, offset: int, size_bytes: int) -> int:
    """Where the first magic at or after `offset` stands; the end of the file when there is none."""
    while size_bytes - offset >= len(MAGIC):
        size = min(_SEARCH_BYTES, size_bytes - offset)
        found = _read(read_range, offset, size).find(MAGIC)
        if found >= 0:
            return offset + found
        # The magic may lie across the border of two windows.
        offset += size - (len(MAGIC) - 1)
    return size_bytes


def _decode_block(window: _Window, offset: int, *, skip_checks: bool) -> tuple[LogBlock, str | None]:
    """The block at `offset`, and what its own check says against it."""
    left = window.size_bytes - offset - _START.size
    if left < 0:
        raise CorruptData("a log block ends inside its length", offset=offset)
    _, size = _START.unpack(window.get(offset, _START.size))
    if not _MIN_SIZE <= size <= min(left, MAX_BLOCK_BYTES):
        raise CorruptData("a log block does not fit its file", offset=offset + len(MAGIC), expected=left, found=size)
    start = offset + _START.size
    end = start + size
    version, ordinal = _TYPE_AND_VERSION.unpack(window.get(start, _TYPE_AND_VERSION.size))
    if version < 0:
        raise CorruptData("impossible log format version", offset=start, expected=LOG_FORMAT_VERSION, found=version)
    if version != LOG_FORMAT_VERSION:
        older = " (the real Hudi 1.0.2 reads no blocks of version 0 either)" if version == 0 else ""
        raise Unsupported(f"log format version {version} at byte {start}; version {LOG_FORMAT_VERSION} is read{older}")
    kind = _kind_of(ordinal, start + 4)
    # The content size, the footer and T stand after the headers whatever these hold.
    headers, places, at = _decode_headers(window, start + _TYPE_AND_VERSION.size, end - _I64.size - _TAIL.size)
    (content_size,) = _I64.unpack(window.get(at, _I64.size))
    content = at + _I64.size
    if content_size != end - _TAIL.size - content:
        raise CorruptData(
            "the content does not fill its block", offset=at, expected=end - _TAIL.size - content, found=content_size
        )
    if not skip_checks:
        (footers,) = _I32.unpack(window.get(end - _TAIL.size, _I32.size))
        if footers:
            raise CorruptData("a log block with footers, which do not exist", offset=end - _TAIL.size, expected=0, found=footers)
    text = headers.get(_CHECK_KEY)
    if kind is BlockType.COMMAND or text is None:
        lost = any(value.startswith(_CHECK_NAME) for value in headers.values())
        block = LogBlock(offset, end - offset, kind, tuple(headers.items()), content, content_size)
        return block, "its check stands under another header" if lost else None
    del headers[_CHECK_KEY]
    said = _CHECK.fullmatch(text)
    check: BlockCheck | None = None
    reason: str | None = "the check of the block is none"
    if said is not None:
        check = BlockCheck(int(said[2], 16), int(said[3]), said[4] == "last")
        head = window.get(offset, content - offset)
        at = places[_CHECK_KEY] + said.start(1) - offset
        found = zlib.crc32(head[at + len(_NO_SUM) :], zlib.crc32(_NO_SUM.encode(), zlib.crc32(head[:at])))
        reason = None if found == int(said[1], 16) else f"its head has the checksum {found:08x}, not {said[1]}"
    return LogBlock(offset, end - offset, kind, tuple(headers.items()), content, content_size, check), reason


def _kind_of(ordinal: int, offset: int) -> BlockType:
    if ordinal < 0 or ordinal == BlockType.CORRUPT:
        raise CorruptData("impossible type of a log block", offset=offset, found=ordinal)
    try:
        return BlockType(ordinal)
    except ValueError:
        raise Unsupported(f"a log block of the unknown type {ordinal} at byte {offset}") from None


def _decode_headers(window: _Window, offset: int, end: int) -> tuple[dict[HeaderKey, str], dict[HeaderKey, int], int]:
    """The headers that begin at `offset` and end before `end`, where the text of each begins, and the offset after them."""
    if end - offset < _I32.size:
        raise CorruptData("a log block ends inside its headers", offset=offset)
    (count,) = _I32.unpack(window.get(offset, _I32.size))
    at = offset + _I32.size
    if not 0 <= count <= (end - at) // _KEY_AND_SIZE.size:
        raise CorruptData("impossible number of headers", offset=offset, found=count)
    headers: dict[HeaderKey, str] = {}
    places: dict[HeaderKey, int] = {}
    for _ in range(count):
        if end - at < _KEY_AND_SIZE.size:
            raise CorruptData("a log block ends inside its headers", offset=at)
        ordinal, size = _KEY_AND_SIZE.unpack(window.get(at, _KEY_AND_SIZE.size))
        if ordinal < 0:
            raise CorruptData("impossible key of a log block header", offset=at, found=ordinal)
        if ordinal > max(HeaderKey):
            raise Unsupported(f"a log block header with the unknown key {ordinal} at byte {at}")
        at += _KEY_AND_SIZE.size
        if not 0 <= size <= end - at:
            raise CorruptData("a log block header does not fit its block", offset=at - 4, expected=end - at, found=size)
        if HeaderKey(ordinal) in headers:
            raise CorruptData("a log block has a header twice", offset=at, found=HeaderKey(ordinal).name)
        headers[HeaderKey(ordinal)] = ByteCursor(window.get(at, size), base=at).text(size)
        places[HeaderKey(ordinal)] = at
        at += size
    return headers, places, at
