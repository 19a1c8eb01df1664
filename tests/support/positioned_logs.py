"""A file group whose logs name the positions of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pyhudi.format.log.framing import HeaderKey, LogBlock, encode_block
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import WriteToken, parse_base_file, parse_log_file
from pyhudi.format.paths import join_path
from pyhudi.records.record_merge import IS_DELETED, EventTimeRule, RecordMergeRule
from pyhudi.storage import Storage
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile
from pyhudi.tasks.append_log import AppendTask, run_append
from pyhudi.tasks.log_scan import InstantValidity, LogScan, read_headers
from pyhudi.tasks.read_slice import ReadSpec, merge_columns, merge_slice, run_read
from tests.support.base_writer import create, incoming, new_storage, spec

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string()), (IS_DELETED, pa.bool_())])
BASE_TIME = "20260101000000000"
# A few bytes are enough for a row group of its own, so that positions count across row groups.
SMALL_GROUPS = {"hoodie.parquet.block.size": 2000}


def rows(numbers: list[int], ts: int, deleted: frozenset[int] = frozenset()) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n:04}", "ts": ts, "v": f"v{ts}-{n}", IS_DELETED: n in deleted} for n in numbers], SCHEMA
    )


@dataclass
class Group:
    """A file group: its base file and the logs that were appended."""

    storage: Storage
    rule: RecordMergeRule
    slice: FileSlice
    instants: list[str] = field(default_factory=lambda: [BASE_TIME])

    @classmethod
    def of(
        cls,
        numbers: list[int],
        rule: RecordMergeRule | None = None,
        schema_rows: pa.Table | None = None,
        storage: Storage | None = None,
    ) -> Group:
        storage = storage or new_storage()
        rule = rule or EventTimeRule("ts")
        data = rows(numbers, 10) if schema_rows is None else schema_rows
        (status,) = create(spec(storage, SCHEMA, BASE_TIME, rule=rule, options=SMALL_GROUPS), data, "p", step=7)
        name = parse_base_file(str(status.stat.path).rsplit("/", 1)[-1])
        assert name is not None
        base = BaseFile(str(status.stat.path), name, 1)
        return cls(storage, rule, FileSlice("p", name.file_id, BASE_TIME, base, ()))

    @property
    def validity(self) -> InstantValidity:
        return InstantValidity(frozenset(self.instants), frozenset(), BASE_TIME, self.instants[-1])

    def append(self, data: pa.Table, deletes: list[bool] | None = None, options: Mapping[str, object] | None = None) -> LogFile:
        instant = f"202601010000{len(self.instants):02}000"
        made = spec(self.storage, SCHEMA, instant, rule=self.rule, options=options)
        task = AppendTask(self.slice, WriteToken(0, 0, 0), self.validity)
        (status,) = run_append(made, task, incoming(data, "p", deletes), self.rule)
        name = parse_log_file(str(status.stat.path).rsplit("/", 1)[-1])
        assert name is not None
        log = LogFile(str(status.stat.path), name, int(status.stat.file_size_in_bytes or 0))
        self.slice = replace(self.slice, logs=(*self.slice.logs, log))
        self.instants.append(instant)
        return log

    def blocks(self, log: LogFile) -> list[LogBlock]:
        found = read_headers(self.storage, log)
        return [block for block in found if isinstance(block, LogBlock)]

    def rewrite(self, log: LogFile, **headers: str | None) -> None:
        """The log file again, with other headers; None takes a header away."""
        content = b""
        for block in self.blocks(log):
            own = dict(block.headers)
            for name, text in headers.items():
                own.pop(HeaderKey[name], None)
                if text is not None:
                    own[HeaderKey[name]] = text
            held = block.read_content(lambda offset, size: self.storage.read_range(log.path, offset, size))
            content += encode_block(block.kind, own, held)
        self.storage.put(join_path("p", log.name.text), content)
        changed = replace(log, size_bytes=len(content))
        self.slice = replace(self.slice, logs=tuple(changed if old.path == log.path else old for old in self.slice.logs))

    def reader(self, columns: list[str] | None = None, use_positions: bool = True) -> ReadSpec:
        stored = with_meta_fields(SCHEMA)
        output = stored if columns is None else pa.schema([stored.field(name) for name in columns])
        made = spec(self.storage, SCHEMA)
        return ReadSpec(made.storage, stored, output, None, made.keys, self.rule, self.validity, use_positions=use_positions)

    def read(self, columns: list[str] | None = None, use_positions: bool = True) -> list[tuple[object, ...]]:
        tables = run_read(self.reader(columns, use_positions), self.slice)
        return sorted((tuple(row.values()) for table in tables for row in table.to_pylist()), key=str)

    def scan(self) -> LogScan:
        reader = self.reader()
        return merge_slice(self.storage, reader, self.slice, merge_columns(reader))[0]
