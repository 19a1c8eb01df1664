"""HFile data blocks in logs of user tables: sorted by key, deduplicated, read like other blocks."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock
from pyhudi.operations.commit.results import CompactionResult
from pyhudi.table.snapshot import load_snapshot
from pyhudi.tasks.log_scan import hfile_entries, read_headers
from tests.support.positioned_logs import SCHEMA, Group, rows

HFILE = {"hoodie.logfile.data.block.format": "hfile"}


def test_rows_of_any_input_order_are_read_back() -> None:
    group = Group.of(list(range(40)))
    log = group.append(rows([31, 3, 39, 0, 17, 45], 20, frozenset({17})), options=HFILE)
    data, deletes = group.blocks(log)
    assert (data.kind, deletes.kind) == (BlockType.HFILE, BlockType.DELETE)
    assert data.header(HeaderKey.RECORD_POSITIONS) is None
    found = {row[0]: row for row in group.read(["id", "ts", "v", "_hoodie_record_key"])}
    assert len(found) == 40
    assert found["k0045"] == ("k0045", 20, "v20-45", "k0045")
    assert found["k0031"] == ("k0031", 20, "v20-31", "k0031")
    assert "k0017" not in found
    assert [row for row in group.read(["v"]) if str(row[0]).startswith("v20")] == sorted(
        (f"v20-{n}",) for n in (31, 3, 39, 0, 45)
    )


def test_keys_are_in_the_order_of_their_bytes() -> None:
    names = ["zé", "Z", "z", "é", "\U0001f600", "�", "a" * 200]
    group = Group.of([], schema_rows=pa.Table.from_pylist([{"id": "x", "ts": 1, "v": "", "_hoodie_is_deleted": False}], SCHEMA))
    data = [{"id": name, "ts": 2, "v": name, "_hoodie_is_deleted": False} for name in names]
    group.append(pa.Table.from_pylist(data, SCHEMA), options=HFILE)
    assert group.read(["id", "v"]) == sorted([("x", ""), *((name, name) for name in names)])


def test_a_key_that_comes_twice_is_refused() -> None:
    group = Group.of([1, 2])
    with pytest.raises(InvalidRequest, match="is repeated"):
        group.append(rows([2, 2], 20), options=HFILE)


def test_hfile_blocks_store_keys_of_tables_without_meta_columns() -> None:
    table = Table.create(
        "memory://hfile-virtual-keys",
        name="t",
        record_key="id",
        ordering="ts",
        table_type="mor",
        options={**HFILE, "hoodie.populate.meta.fields": False, "hoodie.compact.inline": False},
    )
    table.insert(rows(list(range(20)), 10))
    table.upsert(rows([17, 3, 11], 20))
    table.upsert(rows([3, 4], 30))
    (slice_,) = load_snapshot(table.context).slices(None)[""]
    blocks = [b for log in slice_.logs for b in read_headers(table.context.storage, log) if isinstance(b, LogBlock)]
    assert [block.kind for block in blocks] == [BlockType.HFILE, BlockType.HFILE]
    content = blocks[0].read_content(lambda offset, size: table.context.storage.read_range(slice_.logs[0].path, offset, size))
    entries = pa.Table.from_batches(hfile_entries(content))
    assert entries["key"].to_pylist() == [b"k0003", b"k0011", b"k0017"]
    services: tuple[Callable[[], CompactionResult], ...] = (
        lambda: table.log_compact(options={"hoodie.log.compaction.blocks.threshold": 2}),
        table.compact,
    )
    for service in services:
        found = dict(zip(*table.scan(["id", "ts"]).to_arrow().to_pydict().values(), strict=True))
        assert [found[f"k{n:04}"] for n in (2, 3, 4, 11, 17)] == [10, 30, 30, 20, 20]
        assert len(found) == 20
        assert service().runs
    assert dict(zip(*table.scan(["id", "ts"]).to_arrow().to_pydict().values(), strict=True)) == found


def test_a_damaged_block_names_its_file() -> None:
    group = Group.of(list(range(40)))
    log = group.append(rows(list(range(30)), 20), options=HFILE)
    block = group.blocks(log)[0]
    whole = group.storage.read(log.path)
    assert whole is not None
    for at in range(block.content_offset, block.content_offset + block.content_size_bytes, 7):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        group.storage.put(log.path, bytes(damaged))
        try:
            group.read()
        except (CorruptData, Unsupported) as error:
            assert log.name.text in str(error)
