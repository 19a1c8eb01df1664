"""Damaged log files of completed instants under a whole slice.

They give the rows that were written, or CorruptData or Unsupported that names the file; never other rows and never another error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.log.framing import HeaderKey
from pyhudi.storage import open_storage
from pyhudi.table.file_slices import LogFile
from tests.support.positioned_logs import Group, rows

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
    assert len(outcome(group, log, whole) or ()) == 5
    ends = {block.end for block in group.blocks(log)}
    for size in {*range(0, len(whole), len(whole) // 40), *range(len(whole) - 8, len(whole)), *ends - {len(whole)}}:
        assert outcome(group, log, whole[:size]) is None, size


def test_flipped_bits(damaged: tuple[Group, LogFile, bytes]) -> None:
    group, log, whole = damaged
    full = outcome(group, log, whole)
    for at in range(0, len(whole), len(whole) // 120):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        # Nothing but the two lengths that frame a block may differ without being seen, and they are seen, too.
        assert outcome(group, log, bytes(flipped)) in (None, full), at


@pytest.mark.parametrize("size", [1, 8, 60])
def test_zeros_and_repeated_bytes(damaged: tuple[Group, LogFile, bytes], size: int) -> None:
    group, log, whole = damaged
    full = outcome(group, log, whole)
    for at in range(0, len(whole) - size, len(whole) // 12):
        for changed in (
            replaced(at, bytes(size))(whole),
            replaced(at, whole[at // 2 : at // 2 + size])(whole),
            whole[:at] + whole[at : at + size] + whole[at:],
            whole[:at] + whole[at + size :],
        ):
            assert changed == whole or outcome(group, log, changed) in (None, full), at


def test_blocks_that_come_twice_or_in_another_order(damaged: tuple[Group, LogFile, bytes]) -> None:
    group, log, whole = damaged
    first, second = (whole[block.offset : block.end] for block in group.blocks(log))
    for data in (first + second + second, first + first + second, second + first, second, whole + whole):
        assert outcome(group, log, data) is None


def test_bytes_that_follow_the_last_block(damaged: tuple[Group, LogFile, bytes]) -> None:
    group, log, whole = damaged
    for tail in (b"#", b"#HUDI", b"#HUDI#", bytes(9), b"#HUDI#" + bytes(40)):
        assert outcome(group, log, whole + tail) is None


def replaced(at: int, data: bytes) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:at] + data + whole[at + len(data) :]


@pytest.mark.parametrize("size", [1 << 60, (1 << 63) - 1, -1, 0])
def test_a_block_of_an_impossible_size(damaged: tuple[Group, LogFile, bytes], size: int) -> None:
    group, log, whole = damaged
    assert outcome(group, log, replaced(6, struct.pack(">q", size))(whole)) is None


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
        with pytest.raises(Unsupported, match=r"log format version 0 .*Hudi 1.0.2 reads no blocks"):
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
