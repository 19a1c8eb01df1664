"""Damaged log files under a whole slice: rows, or CorruptData or Unsupported that names the file; never another error."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.log.framing import HeaderKey
from pyhudi.storage import open_storage
from pyhudi.table.slices import LogFile
from tests.unit.execute.test_positions import Group, rows

Row = tuple[object, ...]
COLUMNS = ["id", "ts", "v"]


@pytest.fixture(scope="module", params=["avro", "parquet", "hfile"])
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Group, LogFile, bytes]:
    """A slice on a local disk, where torn blocks are looked for, its log file and that file's bytes."""
    folder = tmp_path_factory.mktemp("logs")
    group = Group.of(list(range(6)), storage=open_storage(str(folder)))
    log = group.append(rows([1, 3], 20, frozenset({3})), options={"hoodie.logfile.data.block.format": request.param})
    whole = group.storage.read(log.path)
    assert whole is not None
    return group, log, whole


def outcome(group: Group, log: LogFile, data: bytes) -> list[Row] | None:
    """The rows with these bytes as the log; None when it was refused, by name."""
    whole = group.storage.read(log.path) or b""
    changed = LogFile(log.path, log.name, len(data))
    group.storage.put(log.path, data)
    before = group.slice
    group.slice = type(before)(before.partition, before.file_id, before.base_instant, before.base, (changed,))
    try:
        return group.read(COLUMNS)
    except (CorruptData, Unsupported) as error:
        assert log.name.text in str(error) or (group.slice.base is not None and group.slice.base.name.text in str(error))
        return None
    finally:
        group.slice = before
        group.storage.put(log.path, whole)


def test_truncated_anywhere(damaged: tuple[Group, LogFile, bytes]) -> None:
    group, log, whole = damaged
    full = outcome(group, log, whole)
    without = outcome(group, log, b"")
    assert full is not None
    assert without is not None
    assert (len(full), len(without)) == (5, 6)
    blocks = group.blocks(log)
    for size in range(0, len(whole), 5):
        found = outcome(group, log, whole[:size])
        # A block counts when all of it is there; what a torn one was cut off from is as if it had never been.
        if size < blocks[0].end:
            assert found == without, size
        else:
            assert found is not None
            assert dict((row[0], row[1]) for row in found)["k0001"] == 20, size


def test_flipped_bits(damaged: tuple[Group, LogFile, bytes]) -> None:
    group, log, whole = damaged
    # Texts of headers and contents have no checksum, so what they say is believed where it can be read.
    lengths = [range(block.offset, block.offset + 26) for block in group.blocks(log)]
    lengths += [range(block.content_offset + block.content_size_bytes, block.end) for block in group.blocks(log)]
    full, without = outcome(group, log, whole), outcome(group, log, b"")
    for at in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        found = outcome(group, log, bytes(flipped))
        if found is not None and any(at in part for part in lengths):
            # A row is never another one: it is there or not.
            assert set(found) <= set(full or ()) | set(without or ()), at


def replaced(at: int, data: bytes) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:at] + data + whole[at + len(data) :]


@pytest.mark.parametrize("size", [1 << 60, (1 << 63) - 1, -1, 0])
def test_a_block_of_an_impossible_size_is_passed_over(damaged: tuple[Group, LogFile, bytes], size: int) -> None:
    group, log, whole = damaged
    found = outcome(group, log, replaced(6, struct.pack(">q", size))(whole))
    # The delete block that follows is found by its magic.
    assert found is None or {row[0] for row in found} == {"k0000", "k0001", "k0002", "k0004", "k0005"}


def test_a_content_of_an_impossible_size(damaged: tuple[Group, LogFile, bytes]) -> None:
    group, log, whole = damaged
    at = group.blocks(log)[0].content_offset - 8
    assert outcome(group, log, replaced(at, struct.pack(">q", 1 << 60))(whole)) is None


def test_a_log_of_a_later_version(damaged: tuple[Group, LogFile, bytes]) -> None:
    group, log, whole = damaged
    assert outcome(group, log, replaced(14, struct.pack(">i", 9))(whole)) is None


def test_a_log_of_version_0(damaged: tuple[Group, LogFile, bytes]) -> None:
    group, log, whole = damaged
    group.storage.put(log.path, replaced(14, struct.pack(">i", 0))(whole))
    try:
        with pytest.raises(Unsupported, match=r"log format version 0 .*the real Hudi 1.0.2 reads no blocks"):
            group.blocks(log)
    finally:
        group.storage.put(log.path, whole)


def test_a_schema_that_is_not_that_of_the_records(damaged: tuple[Group, LogFile, bytes]) -> None:
    group, log, whole = damaged
    group.storage.put(log.path, whole)
    text = group.blocks(log)[0].required(HeaderKey.SCHEMA)
    for other in ("{}", "no schema", '"string"', text.replace('"long"', '"strin"'), text[:-1]):
        before = group.slice
        try:
            group.storage.put(log.path, whole)
            group.rewrite(log, SCHEMA=other)
            with pytest.raises((CorruptData, Unsupported)) as failure:
                group.read(COLUMNS)
            assert log.name.text in str(failure.value)
        finally:
            group.slice = before
            group.storage.put(log.path, whole)
