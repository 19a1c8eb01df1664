"""Engine interface of operations: prepare incoming rows, look up their keys in the table, and run writing tasks.

Operations use these protocols only; the embedded engine implements them with threads on Arrow tables, the Spark engine
with DataFrames.

    engine.prepare(data, request)  -> Incoming    columns cast, keys and partition paths added, duplicates combined
    incoming.tag(request)          -> Tagged      each row knows the file group that holds its key, if any
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
    """How to prepare incoming rows.

    Attributes:
        data_schema: The table's columns after this write; rows are cast to them.
        combine: Deduplicate to one row for each key by `rule`.
        global_keys: The key alone identifies a record.
        keys_only: Rows are deletes that need only key and partition fields.
        instant_time: Part of auto-generated keys.
        required_ordering: The ordering fields that must not be null.
        by_partition: The rows will be written partition by partition, so an engine may sort them on arrival.
        lookup_columns: The keys will be looked up in the table, so an engine may extract them while it counts the rows.
        partition_columns: Partition columns of the rows that files omit: keys and paths are built from them, then they
            are dropped.
        constraints: Names and conditions that each row has to satisfy.
        marks_deletes: The rows have DELETE_COLUMN, which marks rows that only delete their key.
        driver_batch_bytes: Maximum size of rows that a distributed engine may collect on the driver; 0 for none.
        driver_work_bytes: Maximum size of the table data that it may then read and write on the driver.
        truncate_nanoseconds: Truncate timestamps to microseconds; rejected otherwise.
        stored_keys: The rows have RECORD_KEY and PARTITION_PATH of stored records, in a table that generates its keys.
        has_new_rows: Rows with a null RECORD_KEY are new, and get generated keys; rejected otherwise.
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
    constraints: tuple[tuple[str, str], ...] = ()
    driver_batch_bytes: int = 0
    driver_work_bytes: int = 0
    stored_keys: bool = False
    has_new_rows: bool = False

    @property
    def input_schema(self) -> pa.Schema:
        """The columns that are read from the rows, partition-only columns last."""
        return pa.schema([*self.data_schema, *self.partition_columns])


@dataclass(frozen=True, slots=True)
class TagRequest:
    """Where to look up incoming keys, and how.

    Attributes:
        candidates: The file groups that may hold keys, all with a base file if key columns are read.
        global_keys: The key alone identifies a record.
        update_partition_path: Under a global index, a record whose partition changed moves (True) or stays where it is
            (False).
    """

    spec: WriterSpec
    candidates: tuple[FileGroupCandidate, ...]
    lookup: Lookup
    global_keys: bool
    update_partition_path: bool
    rule: RecordMergeRule
    validity: InstantValidity

    def task(self, numbers: Iterable[int]) -> TagTask:
        """Return the task that looks up keys in the candidates of some numbers; for lookups that read files."""
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
        """The numbers of the candidates that may hold keys of each partition path; under global keys all of them, under None."""
        numbers: dict[str | None, list[int]] = {}
        for number, place in enumerate(self.candidates):
            numbers.setdefault(None if self.global_keys else place.partition, []).append(number)
        return numbers

    @property
    def log_reader(self) -> ReadSpec:
        """Reader for the keys of `FileGroupCandidate.log_slice`."""
        return log_key_reader(self.spec, self.validity)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Plan of the tasks of one write.

    Attributes:
        slices: (partition, file id) -> current slice of every group that may be updated.
        inserts: Partition -> targets for its inserts, in order.
        match_keys: False appends inserts to small files without looking up their keys.
        append_updates: File groups without inserts get a log file instead of a new base file (merge-on-read).
        unknown_keys: Rows whose key was not looked up may go to any group, so a log file may add new keys (bucket
            index).
        copies: File groups whose rows are also written to others.
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
        """The writer of the plan's groups, for tasks."""
        return GroupWriter(self.spec, self.rule, self.match_keys, self.validity, self.unknown_keys)

    def target(self, partition: str, file_id: str) -> GroupTarget:
        """Return a file group as its task sees it."""
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
    """Plan of the tasks of a bulk insert. sort: none, within each partition path, or over the whole input by partition
    path and key.
    """

    spec: WriterSpec
    sort: str
    new_file_id: Callable[[], str]
    parallelism: int


class Tagged(Protocol):
    """Incoming rows with the locations of their keys."""

    def profile(self) -> WorkloadProfile:
        """Count how many rows go where."""
        ...

    def without_existing(self) -> Tagged:
        """Return only the rows whose keys exist nowhere (anti join)."""
        ...

    def write(self, plan: WritePlan) -> list[WriteStatus]:
        """Execute the plan; one task writes one file group."""
        ...


class Incoming(Protocol):
    """The prepared rows of a write; they may be tagged again when a conflict makes the write start over."""

    def partitions(self) -> dict[str, int]:
        """Row counts by partition path."""
        ...

    def row_counts(self) -> tuple[int | None, int | None]:
        """Return the number of rows that the caller gave, and of those dropped for another row of their key; None for a
        number that is not known: before the rows are written, or without more work.
        """
        ...

    def tag(self, request: TagRequest) -> Tagged:
        """Look up the keys."""
        ...

    def untagged(self) -> Tagged:
        """Return all rows as inserts, without a lookup."""
        ...

    def write_bulk(self, plan: BulkPlan) -> list[WriteStatus]:
        """Write all rows to new file groups."""
        ...

    def refit(self, request: PrepareRequest) -> None:
        """Cast the same rows to a table schema that another writer changed.

        request: the original one, except for the columns.  Raises WriteConflict if the original rows are unavailable,
        and the prepared ones would differ from a fresh preparation.
        """
        ...

    def release(self) -> None:
        """Release memory, caches and spilled files."""
        ...


class Engine(Protocol):
    """Runs tasks.

    may_leave_attempts: a task attempt may still run after its job has ended.
    """

    name: str
    may_leave_attempts: bool

    def prepare(self, data: Any, request: PrepareRequest) -> Incoming:
        """Prepare the caller's data."""
        ...

    def input_schema(self, data: Any) -> pa.Schema:
        """Return the Arrow schema of the caller's data, before anything is read from it."""
        ...

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> list[R]:
        """Run independent tasks, results in order. function and tasks are picklable. The first error stops the others
        and is raised.
        """
        ...

    def run_tasks(self, function: Callable[[T], R], tasks: Iterable[T], size_bytes: Sequence[int]) -> list[R]:
        """As `map`; a distributed engine runs small jobs in this process.

        size_bytes: approximate size of what each task reads and writes.
        """
        ...
