"""What an engine does for an operation: hold the incoming rows, find them in the table, and carry out writing tasks.

An operation talks to these protocols only; the embedded engine answers with threads on Arrow tables, the Spark engine with
DataFrames.

    engine.prepare(data, request)  -> Incoming    columns conformed, keys and partition paths added, duplicates combined
    incoming.tag(request)          -> Tagged      each row knows the file group that holds its key, or that none does
    tagged.write(plan)             -> statuses    every file group written by one task
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from pyhudi.errors import Internal
from pyhudi.planning.record_placement import InsertTarget, WorkloadProfile
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.record_merge import RecordMergeRule
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.append_log import DoubleWriteTargets, log_key_reader
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.read_slice import ReadSpec
from pyhudi.tasks.tag_location import FileGroupCandidate, Lookup, LookupByKeyColumns, LookupByKeyFilters, TagTask
from pyhudi.tasks.write_file_group import GroupTarget, GroupWriter
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus

T = TypeVar("T")
R = TypeVar("R")

_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """How to make incoming rows ready.

    data_schema: the table's columns after this write; rows are conformed to them. combine: one row for each key by
    `rule`; global_keys: the key alone names a record. keys_only: rows are deletes that need no more than key and
    partition fields. instant_time: goes into auto-generated keys. required_ordering: the ordering fields in which no
    row may lack a value. by_partition: the rows will be written partition by partition, so an engine may put them in
    that order as they come. lookup_columns: their keys will be looked up in the table, so an engine may take them out
    as it counts the rows. partition_columns: partition columns of the rows that are left out of files: keys and paths
    are made of them, and then they go. marks_deletes: the rows have DELETE_COLUMN, which says of each whether it only
    deletes its key. driver_batch_bytes: up to so many bytes of them an engine whose workers are elsewhere may take to
    the driver; 0 for none. driver_work_bytes: what it may then read and write of the table in the driver.
    truncate_nanoseconds: what is finer than microseconds in a timestamp is cut off; refused otherwise.
    """

    data_schema: pa.Schema
    keys: KeySpec
    rule: RecordMergeRule
    combine: bool
    global_keys: bool
    keys_only: bool
    instant_time: str
    memory_budget_bytes: int
    required_ordering: tuple[str, ...] = ()
    by_partition: bool = False
    lookup_columns: bool = False
    truncate_nanoseconds: bool = False
    partition_columns: pa.Schema = _NO_COLUMNS
    marks_deletes: bool = False
    driver_batch_bytes: int = 0
    driver_work_bytes: int = 0

    @property
    def input_schema(self) -> pa.Schema:
        """The columns that are taken of the rows, those that place them last."""
        return pa.schema([*self.data_schema, *self.partition_columns])


@dataclass(frozen=True, slots=True)
class TagRequest:
    """Where to look incoming keys up, and how.

    candidates: the file groups that may hold keys, all with a base file where key columns are read.  global_keys: the key alone
    names a record.  update_partition_path: under a global index, a record whose partition changed moves (True) or stays where it
    is (False).
    """

    spec: WriterSpec
    candidates: tuple[FileGroupCandidate, ...]
    lookup: Lookup
    global_keys: bool
    update_partition_path: bool
    rule: RecordMergeRule
    validity: InstantValidity

    def task(self, numbers: Iterable[int]) -> TagTask:
        """The task that looks keys up in the places of some numbers; for lookups that read files."""
        if not isinstance(self.lookup, LookupByKeyColumns | LookupByKeyFilters):
            raise Internal("the lookup reads no files")
        places = tuple(self.candidates[number] for number in numbers)
        return TagTask(
            self.spec.storage,
            places,
            self.spec.keys,
            self.spec.populate_meta_fields,
            self.lookup,
            self.log_reader if any(place.logs for place in places) else None,
        )

    def candidates_by_partition(self) -> dict[str | None, list[int]]:
        """The numbers of the places that may hold keys of each partition path; under global keys all of them, under None."""
        numbers: dict[str | None, list[int]] = {}
        for number, place in enumerate(self.candidates):
            numbers.setdefault(None if self.global_keys else place.partition, []).append(number)
        return numbers

    @property
    def log_reader(self) -> ReadSpec:
        """Reads the keys of `FileGroupCandidate.log_slice`."""
        return log_key_reader(self.spec, self.validity)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What the tasks of one write do.

    slices: (partition, file id) -> present slice of every group that may be updated. inserts: partition -> targets for
    its inserts, in order. match_keys: False appends inserts to small files without looking for their keys.
    append_updates: file groups that take no inserts get a log file instead of a new base file (merge-on-read).
    unknown_keys: rows whose key was not looked up may go to any group, so that a log file may bring new keys (bucket
    index). copies: file groups whose rows go to others as well.
    """

    spec: WriterSpec
    slices: Mapping[tuple[str, str], FileSlice]
    inserts: Mapping[str, Sequence[InsertTarget]]
    rule: RecordMergeRule
    match_keys: bool
    append_updates: bool
    validity: InstantValidity
    unknown_keys: bool = False
    copies: Mapping[tuple[str, str], DoubleWriteTargets] = field(default_factory=dict)

    @property
    def writer(self) -> GroupWriter:
        """How tasks write groups of the plan."""
        return GroupWriter(self.spec, self.rule, self.match_keys, self.validity, self.unknown_keys)

    def target(self, partition: str, file_id: str) -> GroupTarget:
        """A file group as its task sees it."""
        group = partition, file_id
        return GroupTarget(partition, file_id, self.slices.get(group), self._appends_to(group), self.copies.get(group))

    def _appends_to(self, group: tuple[str, str]) -> bool:
        slice_ = self.slices.get(group)
        if not self.append_updates or slice_ is None:
            return False
        partition, file_id = group
        return slice_.base is None or not any(target.file_id == file_id for target in self.inserts.get(partition, ()))


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """What the tasks of a bulk insert do.  sort: none, within each partition path, or over the whole input by partition path and
    key.
    """

    spec: WriterSpec
    sort: str
    new_file_id: Callable[[], str]
    parallelism: int


class Tagged(Protocol):
    """Incoming rows that know where their keys stand."""

    def profile(self) -> WorkloadProfile:
        """How many rows go where."""
        ...

    def without_existing(self) -> Tagged:
        """Only the rows whose keys stand nowhere."""
        ...

    def write(self, plan: WritePlan) -> list[WriteStatus]:
        """Carry out the plan; one task writes one file group."""
        ...


class Incoming(Protocol):
    """The rows of a write, ready; may be tagged again when a conflict makes the write start over."""

    def partitions(self) -> dict[str, int]:
        """Rows by partition path."""
        ...

    def tag(self, request: TagRequest) -> Tagged:
        """Look the keys up."""
        ...

    def untagged(self) -> Tagged:
        """All rows as inserts, without a lookup."""
        ...

    def write_bulk(self, plan: BulkPlan) -> list[WriteStatus]:
        """Write all rows to new file groups."""
        ...

    def refit(self, request: PrepareRequest) -> None:
        """Make the same rows fit a table whose columns another writer changed.

        request: the one that they were prepared by, but for the columns.  Raises WriteConflict where the rows cannot be had again
        as they were given, and what was made of them would tell something else.
        """
        ...

    def release(self) -> None:
        """Give up memory, caches and spilled files."""
        ...


class Engine(Protocol):
    """Where tasks run.

    may_leave_attempts: an attempt at a task may go on when the job that it belongs to has ended.
    """

    name: str
    may_leave_attempts: bool

    def prepare(self, data: Any, request: PrepareRequest) -> Incoming:
        """Take the caller's data in."""
        ...

    def input_schema(self, data: Any) -> pa.Schema:
        """The Arrow schema of the caller's data, before anything is read from it."""
        ...

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> list[R]:
        """Run independent tasks, results in order.  function and tasks are picklable.  The first error stops the rest and is
        raised.
        """
        ...

    def run_tasks(self, function: Callable[[T], R], tasks: Iterable[T], size_bytes: Sequence[int]) -> list[R]:
        """As `map`; where the workers are elsewhere, and the tasks are little work together, in this process.

        size_bytes: what each task reads and writes, about.
        """
        ...
