"""Write one file group: its rows become new base files, a new version of its base file, or blocks of its log.

Shared by both engines, each of which collects the rows of a group in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import Internal
from pyhudi.format.names import WriteToken
from pyhudi.records.record_merge import RecordMergeRule
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.append_log import AppendTask, DoubleWriteTargets, run_append
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.write_base_files import run_create, run_merge
from pyhudi.tasks.write_tasks import CreateTask, MergeTask, WriterSpec, WriteStatus

CHUNK_BYTES = 16 << 20
"""Arrow bytes of rows that are written between checks of the file size."""

_PIECE_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """A file group that receives rows.

    Attributes:
        slice: Its current slice, None for a new group.
        appends: The rows go into a log file of the slice, not into a new base file.
        copies: File groups to which the rows are also written.
    """

    partition: str
    file_id: str
    slice: FileSlice | None
    appends: bool = False
    copies: DoubleWriteTargets | None = None


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """How the groups of one write are written.

    Attributes:
        rule: Merge rule between a stored and an incoming record.
        match_keys: False adds the rows to a base file without looking up their keys.
        validity: Which log blocks are valid.
        new_keys: For logs: the rows may have keys that the group lacks.
    """

    spec: WriterSpec
    rule: RecordMergeRule
    match_keys: bool
    validity: InstantValidity
    new_keys: bool = False

    def create(self, target: GroupTarget, token: WriteToken, rows: Iterable[pa.Table]) -> tuple[WriteStatus, ...]:
        """Write a new group from a stream of rows."""
        return create_files(self.spec, CreateTask(target.partition, _prefix(target.file_id), token), rows)

    def change(self, target: GroupTarget, token: WriteToken, rows: pa.Table) -> tuple[WriteStatus, ...]:
        """Write to an existing group; no status if there is nothing to append."""
        slice_ = target.slice
        if slice_ is None:
            raise Internal(f"file group {target.file_id} is new: there is nothing to change")
        if target.appends or slice_.base is None:
            append = AppendTask(slice_, token, self.validity, self.new_keys, target.copies)
            return run_append(self.spec, append, rows, self.rule)
        task = MergeTask(target.partition, target.file_id, slice_.base.path, token, self.match_keys, slice_.source)
        return (run_merge(self.spec, task, rows, self.rule),)


def create_files(spec: WriterSpec, task: CreateTask, rows: Iterable[pa.Table]) -> tuple[WriteStatus, ...]:
    """Write rows to new file groups, and begin another one whenever a file is full."""
    return run_create(spec, task, _pieces(rows, spec.files.max_file_size_bytes))


def _pieces(tables: Iterable[pa.Table], max_file_size_bytes: int) -> Iterator[pa.Table]:
    """The rows in pieces after each of which a file may be found full: small against a file, and against memory."""
    wanted = min(CHUNK_BYTES, max_file_size_bytes)
    for rows in tables:
        step = max(1, min(_PIECE_ROWS, rows.num_rows * wanted // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, step):
            yield rows.slice(start, step)


def _prefix(file_id: str) -> str:
    """A file id without its number: the task counts the files that it fills."""
    return file_id.rpartition("-")[0]
