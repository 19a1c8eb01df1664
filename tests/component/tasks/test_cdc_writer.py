"""Change logs of writes: files, statistics and rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.log.cdc_blocks import CdcMode
from pyhudi.format.log.data_blocks import decode_content
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock, scan_blocks
from pyhudi.format.names import LogFileName, parse_log_file
from pyhudi.storage import open_storage
from pyhudi.storage.markers import Markers
from pyhudi.table.snapshot import read_commit
from pyhudi.tasks.cdc_writer import ChangeLog, ChangeLogSpec

CDC, MODE = "hoodie.table.cdc.enabled", "hoodie.table.cdc.supplemental.logging.mode"
MODES = [str(mode) for mode in CdcMode]


def rows(keys: str, ts: int, fare: float = 1.0) -> pa.Table:
    """A row for each letter."""
    return pa.table(
        {
            "id": list(keys),
            "ts": pa.array([ts] * len(keys), pa.int32()),
            "fare": [fare] * len(keys),
            "day": pa.array([7] * len(keys), pa.date32()),
        }
    )


def make(path: Path, kind: str = "cow", mode: str = "DATA_BEFORE_AFTER", options: Mapping[str, object] | None = None) -> Table:
    return Table.create(
        path / "t", name="t", record_key="id", ordering="ts", table_type=kind, options={CDC: True, MODE: mode, **(options or {})}
    )


def last_stats(table: Table) -> tuple[WriteStat, ...]:
    instant = table.timeline().completed_writes()[-1]
    return read_commit(table.context.timeline, instant).write_stats


def logged(table: Table) -> list[dict[str, object]]:
    """The rows of the change logs of the last commit."""
    found: list[dict[str, object]] = []
    storage = table.context.storage
    for stat in last_stats(table):
        for path, size in (stat.cdc_stats or {}).items():
            info = storage.stat(path)
            name = parse_log_file(path.rsplit("/", 1)[-1])
            assert info is not None and info.size_bytes == size
            assert name is not None and name.is_cdc and name.file_id == stat.file_id
            read = partial(storage.read_range, path)
            for block in scan_blocks(read, size):
                assert isinstance(block, LogBlock) and block.kind is BlockType.CDC
                assert [key for key, _ in block.headers] == [HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA]
                content = block.read_content(read)
                for batch in decode_content(BlockType.CDC, block.required(HeaderKey.SCHEMA), content):
                    found.extend(batch.to_pylist())
    return sorted(found, key=lambda row: str(row))


def data(key: str, ts: int, fare: float = 1.0) -> dict[str, object]:
    return dict(rows(key, ts, fare).to_pylist()[0])


@pytest.mark.parametrize("mode", MODES)
def test_each_mode(tmp_path: Path, mode: str) -> None:
    table = make(tmp_path, mode=mode.lower())
    assert table.config.property(MODE) == mode
    table.upsert(rows("abc", 1))
    assert all(stat.cdc_stats is None for stat in last_stats(table))

    result = table.upsert(rows("bd", 2, 9.0))
    found = logged(table)
    if mode == "OP_KEY_ONLY":
        assert found == [{"op": "i", "record_key": "d"}, {"op": "u", "record_key": "b"}]
    elif mode == "DATA_BEFORE":
        assert found == [
            {"op": "i", "record_key": "d", "before": None},
            {"op": "u", "record_key": "b", "before": data("b", 1)},
        ]
    else:
        instant = result.instant
        assert found == [
            {"op": "i", "ts_ms": instant, "before": None, "after": data("d", 2, 9.0)},
            {"op": "u", "ts_ms": instant, "before": data("b", 1), "after": data("b", 2, 9.0)},
        ]
    table.delete(keys=rows("a", 0))
    (row,) = logged(table)
    assert row["op"] == "d" and row.get("after") is None and row.get("before", data("a", 1)) == data("a", 1)
    assert not Markers(table.context.storage, str(result.instant)).list()


def test_when_a_change_log_is_written(tmp_path: Path) -> None:
    """In all cases in which readers cannot infer the changes from the base files."""
    table = make(tmp_path, options={"hoodie.merge.allow.duplicate.on.inserts": False})
    table.upsert(rows("ab", 5))
    table.upsert(rows("a", 1))
    (stat,) = last_stats(table)
    assert stat.num_update_writes == 0 and stat.cdc_stats and logged(table) == []
    table.insert(rows("c", 5))
    assert [row["op"] for row in logged(table)] == ["i"]
    table.delete(keys=rows("abc", 0))
    (stat,) = last_stats(table)
    assert (stat.num_writes, stat.num_deletes, stat.cdc_stats) == (0, 3, None)
    table.insert(rows("d", 5))
    (stat,) = last_stats(table)
    assert (stat.num_writes, stat.num_inserts, stat.cdc_stats) == (1, 1, None)


def test_an_upsert_that_only_deletes_and_inserts(tmp_path: Path) -> None:
    """The real writer keeps no change log where a file has but new rows, and so loses the deletes."""
    table = make(tmp_path)
    flagged = rows("a", 1).append_column("_hoodie_is_deleted", pa.array([False]))
    table.upsert(flagged)
    both = pa.concat_tables([rows("a", 2), rows("b", 2)]).append_column("_hoodie_is_deleted", pa.array([True, False]))
    table.upsert(both)
    (stat,) = last_stats(table)
    assert (stat.num_writes, stat.num_inserts, stat.num_deletes) == (1, 1, 1)
    assert [row["op"] for row in logged(table)] == ["d", "i"]
    table.upsert(pa.concat_tables([rows("b", 3)]).append_column("_hoodie_is_deleted", pa.array([True])))
    (stat,) = last_stats(table)
    assert stat.num_writes == 0 and [row["op"] for row in logged(table)] == ["d"]


def test_merge_on_read(tmp_path: Path) -> None:
    """Log files name the slice that they were appended to; a base file that is rewritten for inserts has a change log."""
    table = make(tmp_path, "mor", options={"hoodie.compact.inline": False})
    first = table.upsert(rows("abc", 1))
    table.upsert(rows("a", 2))
    (one,) = last_stats(table)
    assert one.prev_commit == first.instant and one.cdc_stats is None
    assert one.base_file and one.base_file.endswith(f"{first.instant}.parquet")
    assert one.log_files == (str(one.path),)
    table.delete(keys=rows("b", 0))
    (two,) = last_stats(table)
    assert two.base_file == one.base_file and two.log_files == (str(one.path), str(two.path))
    table.compact()
    table.upsert(rows("ad", 3))
    assert [row["op"] for row in logged(table)] == ["i", "u"]


def test_an_unfinished_change_log_leaves_nothing(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "t"))
    schema = rows("a", 1).schema
    spec = ChangeLogSpec(CdcMode.DATA_BEFORE, arrow_to_avro(schema, "t"), False)
    name = LogFileName("f-0", "20261121000000000", 1, "0-0-0", is_cdc=True)
    with pytest.raises(CorruptData), ChangeLog(storage, spec, name, name.text) as log:
        log.delete(pa.array(["a"]), rows("a", 1))
        log._flush()
        raise CorruptData("torn")
    assert storage.stat(name.text) is None
    with ChangeLog(storage, spec, name, name.text) as log:
        log.insert(pa.array(["a"]), rows("a", 1))
        log._flush()
        assert log.finish(1, 1, 0) is None
    assert storage.stat(name.text) is None
    with ChangeLog(storage, spec, name, name.text) as log:
        for key in "abc":
            log.delete(pa.array([key]), rows(key, 1))
            log._flush()
        stats = log.finish(3, 0, 3)
    info = storage.stat(name.text)
    assert info is not None and stats == {name.text: info.size_bytes}


def test_options_that_contradict_the_table(tmp_path: Path) -> None:
    table = make(tmp_path)
    with pytest.raises(InvalidRequest, match=r"cdc\.enabled"):
        Table(table.uri, options={CDC: False})
    with pytest.raises(InvalidRequest, match=r"logging\.mode"):
        Table(table.uri, options={MODE: "OP_KEY_ONLY"})
    with pytest.raises(InvalidRequest, match="none of"):
        Table.create(tmp_path / "u", record_key="id", options={CDC: True, MODE: "EVERYTHING"})
    Table(table.uri, options={CDC: True, MODE: "data_before_after"})
