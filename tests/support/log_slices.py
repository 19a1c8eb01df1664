"""File slices with hand-made log blocks."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.avro_wrappers import wrap_ordering
from pyhudi.format.log.data_blocks import encode_avro
from pyhudi.format.log.delete_blocks import deletes_batch, encode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock, encode_block
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import WriteToken, parse_base_file, parse_log_file
from pyhudi.options.supported import parse_options
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.record_merge import CommitTimeRule, EventTimeRule, RecordMergeRule
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile
from pyhudi.tasks.base_file_writer import FileSettings
from pyhudi.tasks.compaction_tasks import CompactionSpec, CompactionTask, run_compact
from pyhudi.tasks.log_compaction_tasks import run_log_compact
from pyhudi.tasks.log_scan import InstantValidity, read_headers
from pyhudi.tasks.read_slice import ReadSpec, run_read

SCHEMA = with_meta_fields(
    pa.schema([("id", pa.string()), ("ts", pa.int64()), ("value", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
)
AVRO = arrow_to_avro(SCHEMA, "t")
FILE_ID = "f-0"
BASE_TIME = "20261121100000000"
PLAN_TIME = "20261121100900000"
LATER = 99
FILES = FileSettings.of(parse_options({"hoodie.index.bloom.num_entries": 100, "hoodie.bloom.index.filter.type": "SIMPLE"}))
_names = itertools.count()
Row = tuple[str, int, int]
Block = tuple[BlockType, dict[HeaderKey, str], bytes]
EVENT, COMMIT = EventTimeRule("ts"), CommitTimeRule()


def time(number: int) -> str:
    """Before the plan, but for LATER."""
    return "20261121101000000" if number == LATER else f"202611211001{number:02}000"


def stored(instant: str, rows: list[Row], file_name: str = "", deleted: bool = False) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "_hoodie_commit_time": instant,
                "_hoodie_commit_seqno": f"{instant}_0_{number}",
                "_hoodie_record_key": key,
                "_hoodie_partition_path": "p",
                "_hoodie_file_name": file_name,
                "id": key,
                "ts": ts,
                "value": value,
                "_hoodie_is_deleted": deleted,
            }
            for number, (key, ts, value) in enumerate(rows)
        ],
        SCHEMA,
    )


class Slice:
    """One file group in memory, and the log files that are laid on it."""

    def __init__(self, base: list[Row] | None, rule: RecordMergeRule = EVENT) -> None:
        self.uri = f"memory://compact-{next(_names)}"
        self.storage: Storage = open_storage(self.uri)
        self.rule = rule
        self.base_name = None if base is None else f"{FILE_ID}_0-0-0_{BASE_TIME}.parquet"
        self.logs: list[str] = []
        self.instants = [BASE_TIME]
        if base is not None:
            sink = pa.BufferOutputStream()
            # Two row groups, to test the state kept from one to the next.
            rows = stored(BASE_TIME, base, self.base_name or "")
            pq.write_table(rows, sink, row_group_size=max(1, len(base) // 2), store_schema=False)
            self.storage.put(f"p/{self.base_name}", sink.getvalue().to_pybytes())

    def log(self, number: int, *blocks: Block) -> Slice:
        instant = time(number)
        data = b""
        for kind, headers, content in blocks:
            data += encode_block(kind, {HeaderKey.INSTANT_TIME: instant, **headers}, content)
        name = f".{FILE_ID}_{instant}.log.1_0-0-0"
        self.storage.put(f"p/{name}", data)
        self.logs.append(name)
        self.instants.append(instant)
        return self

    @property
    def spec(self) -> CompactionSpec:
        validity = InstantValidity(frozenset([*self.instants, PLAN_TIME]), frozenset(), BASE_TIME, time(LATER))
        keys = KeySpec.for_fields(("id",), (), None)
        reader = ReadSpec(self.storage.spec(), SCHEMA, SCHEMA, None, keys, self.rule, validity)
        return CompactionSpec(PLAN_TIME, "t", reader, AVRO, FILES)

    def task(self) -> CompactionTask:
        return CompactionTask("p", FILE_ID, self.base_name, tuple(self.logs), WriteToken(3, 4, 5))

    def rows(self, *more_logs: str) -> list[Row]:
        logs = tuple(self._log_file(name) for name in (*self.logs, *more_logs))
        base = None
        if self.base_name is not None:
            name = parse_base_file(self.base_name)
            assert name is not None
            base = BaseFile(f"p/{self.base_name}", name, 1)
        return read(self.spec.reader, FileSlice("p", FILE_ID, BASE_TIME, base, logs))

    def without_header(self, name: str) -> None:
        """Write a log file again with blocks that do not say what they merged, so that they are read like any other."""
        log = self._log_file(name)
        content = b""
        for block in read_headers(self.storage, log):
            assert isinstance(block, LogBlock)
            headers: dict[HeaderKey, str] = {
                key: text for key, text in block.headers if key is not HeaderKey.COMPACTED_BLOCK_TIMES
            }
            held = block.read_content(lambda offset, size: self.storage.read_range(log.path, offset, size))
            content += encode_block(block.kind, headers, held)
        self.storage.put(log.path, content)

    def _log_file(self, name: str) -> LogFile:
        parsed, info = parse_log_file(name), self.storage.stat(f"p/{name}")
        assert parsed is not None
        assert info is not None
        return LogFile(f"p/{name}", parsed, info.size_bytes)

    def compact(self) -> tuple[WriteStat, pa.Table]:
        status = run_compact(self.spec, self.task())
        assert status is not None
        assert status.stat.path is not None
        data = self.storage.read(status.stat.path)
        assert data is not None
        assert len(data) == status.stat.file_size_in_bytes
        return status.stat, pq.read_table(pa.BufferReader(data))

    def log_compact(self) -> tuple[WriteStat, str]:
        status = run_log_compact(self.spec, self.task())
        assert status is not None
        assert status.stat.path is not None
        return status.stat, status.stat.path.removeprefix("p/")


def read(spec: ReadSpec, slice_: FileSlice) -> list[Row]:
    found = [row for rows in run_read(spec, slice_) for row in rows.to_pylist()]
    return sorted(((row["id"], row["ts"], row["value"]) for row in found), key=str)


def data(number: int, *rows: Row, deleted: bool = False) -> Block:
    content = encode_avro(AVRO, stored(time(number), list(rows), FILE_ID, deleted).to_batches())
    return BlockType.AVRO, {HeaderKey.SCHEMA: AVRO}, content


def plain_delete(*keys: str) -> Block:
    return BlockType.DELETE, {}, encode_deletes([deletes_batch(pa.array(keys), "p")])


def delete(**ordering: int) -> Block:
    values = wrap_ordering(pa.array(list(ordering.values()), pa.int64()))
    return BlockType.DELETE, {}, encode_deletes([deletes_batch(pa.array(list(ordering)), "p", values)])
