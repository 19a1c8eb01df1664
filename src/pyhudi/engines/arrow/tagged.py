"""Tagged Arrow rows (with their file groups), and the tasks that write them."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.meta_columns import PARTITION_PATH
from pyhudi.format.names import WriteToken
from pyhudi.planning.record_placement import WorkloadProfile, assign_inserts
from pyhudi.records.row_grouping import group_rows
from pyhudi.tasks.engine_protocol import WritePlan
from pyhudi.tasks.spill import store_rows
from pyhudi.tasks.tag_location import FileGroupCandidate
from pyhudi.tasks.write_file_group import GroupTarget, GroupWriter
from pyhudi.tasks.write_tasks import WriteStatus

Ints = npt.NDArray[np.int64]
T = TypeVar("T")
R = TypeVar("R")

_FEWEST_ROWS_A_BATCH = 1 << 14
"""Minimum average size of the batches from which tasks select their rows; smaller ones are combined."""

_MAX_SELECTIONS = 1 << 12
"""Maximum number of selections of rows from single batches; with more, all rows are sorted by task at once."""


class Workers(Protocol):
    """Executor of the tasks on the Arrow rows of a write.

    threads: number of concurrent tasks.
    """

    threads: int

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> list[R]:
        """Run tasks in this process; results in order.  The first error stops the others and is raised."""
        ...

    def run_tasks(self, function: Callable[[T], R], tasks: Iterable[T], size_bytes: Sequence[int]) -> list[R]:
        """Run tasks in this process or on a cluster; results in order.  function, tasks and results are picklable.

        size_bytes: approximate bytes of the table that each task reads and writes.
        """
        ...

    def lanes(self, size_bytes: int) -> int:
        """Number of concurrent tasks for work of a size in bytes."""
        ...

    @property
    def token(self) -> Callable[[int], WriteToken]:
        """Picklable function that creates the write token of an attempt, called in the task."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Rows of a table, which a task copies when it runs: copying those of all tasks first would double the memory of a batch.

    numbers: of the selected rows, ascending and distinct; None for all rows.
    """

    table: pa.Table
    numbers: Ints | None = None

    def load(self) -> pa.Table:
        """Return the rows."""
        numbers = self.numbers
        if numbers is None or len(numbers) == self.table.num_rows:
            return self.table
        # Arrow would concatenate all chunks of a column to select rows of several.
        batches = self.table.to_batches()
        starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        cuts = np.searchsorted(numbers, starts).tolist()
        selected = [
            batch.take(pa.array(numbers[begin:end] - start))
            for batch, start, begin, end in zip(batches, starts.tolist(), cuts, cuts[1:], strict=False)
            if end > begin
        ]
        return pa.Table.from_batches(selected, self.table.schema).combine_chunks()


@dataclass(frozen=True, slots=True, eq=False)
class GroupRows:
    """A writing task: a file group and its rows.  number: of the task in its write.  row_bytes: approximate size of the rows."""

    number: int
    target: GroupTarget
    selections: tuple[Selection, ...]
    row_bytes: int

    def load_rows(self) -> pa.Table:
        """Return the rows of all selections."""
        # Only some tables have the delete column.
        return pa.concat_tables([selection.load() for selection in self.selections], promote_options="default")

    @property
    def size_bytes(self) -> int:
        """Approximate bytes to write: those of the rows, and of a base file that is rewritten."""
        slice_ = self.target.slice
        if self.target.appends or slice_ is None or slice_.base is None:
            return self.row_bytes
        return self.row_bytes + slice_.base.size_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _first, (TaskBundle((self,)),)


@dataclass(frozen=True, slots=True)
class TaskBundle:
    """Tasks that are pickled together: their rows as one stream, with the row count of each task.

    Separate streams would add bytes for each column, and pickling a slice includes the table that it was cut from.
    """

    tasks: tuple[GroupRows, ...]

    def __iter__(self) -> Iterator[GroupRows]:
        return iter(self.tasks)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = []
        loaded = ((task, task.load_rows()) for task in self.tasks)
        for schema, run in itertools.groupby(loaded, key=lambda pair: pair[1].schema):
            tasks = list(run)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, schema) as writer:
                writer.write_table(pa.concat_tables([rows for _, rows in tasks]).combine_chunks())
            headers = tuple((task.number, task.target, rows.num_rows, task.row_bytes) for task, rows in tasks)
            parts.append((headers, sink.getvalue().to_pybytes()))
        return _unpack_tasks, (tuple(parts),)


def _unpack_tasks(parts: tuple[tuple[tuple[tuple[int, GroupTarget, int, int], ...], bytes], ...]) -> TaskBundle:
    tasks = []
    for headers, stream in parts:
        with pa.ipc.open_stream(stream) as reader:
            rows = reader.read_all()
        start = 0
        for number, target, count, row_bytes in headers:
            tasks.append(GroupRows(number, target, (Selection(rows.slice(start, count)),), row_bytes))
            start += count
    return TaskBundle(tuple(tasks))


def _first(together: TaskBundle) -> GroupRows:
    return together.tasks[0]


@dataclass(frozen=True, slots=True)
class WriteGroup:
    """Writes the rows of a group.  token: see `Workers`."""

    writer: GroupWriter
    token: Callable[[int], WriteToken]

    def __call__(self, group: GroupRows) -> tuple[WriteStatus, ...]:
        token = self.token(group.number)
        if group.target.slice is None:
            return self.writer.create(group.target, token, [group.load_rows()])
        return self.writer.change(group.target, token, group.load_rows())


@dataclass(frozen=True, slots=True)
class TaggedRows:
    """Rows of one bucket; pairs of a row and the candidate that has its key; rows without a match."""

    rows: pa.Table
    pairs_row: Ints
    pairs_candidate: Ints
    inserts: Ints


class LocalTagged:
    """Incoming rows with their file groups."""

    def __init__(
        self, workers: Workers, parts: list[TaggedRows], candidates: tuple[FileGroupCandidate, ...], *, spilled: bool
    ) -> None:
        self._workers = workers
        self._parts = parts
        self._places = candidates
        self._spilled = spilled

    def profile(self) -> WorkloadProfile:
        """Exact counts."""
        updates: Counter[int] = Counter()
        inserts: Counter[str] = Counter()
        for part in self._parts:
            numbers, counts = np.unique(part.pairs_candidate, return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                updates[number] += count
            paths = part.rows.column(PARTITION_PATH).take(pa.array(part.inserts))
            for entry in pc.value_counts(paths).to_pylist():
                inserts[entry["values"]] += entry["counts"]
        return WorkloadProfile(
            {(self._places[n].partition, self._places[n].file_id): c for n, c in updates.items()}, dict(inserts)
        )

    def without_existing(self) -> LocalTagged:
        """Only rows whose key does not exist in the table."""
        nothing = np.zeros(0, dtype=np.int64)
        parts = [TaggedRows(p.rows, nothing, nothing, p.inserts) for p in self._parts]
        return LocalTagged(self._workers, parts, self._places, spilled=self._spilled)

    def write(self, plan: WritePlan) -> list[WriteStatus]:
        """Run one task for each file group that receives updates or inserts."""
        with tempfile.TemporaryDirectory(prefix="pyhudi-route-") if self._spilled else nullcontext() as folder:
            routed = _Routed(plan, self._places, self._parts, folder)

            tasks = [
                GroupRows(number, plan.target(*group), tuple(routed.groups[group]), routed.row_bytes[group])
                for number, group in enumerate(sorted(routed.groups))
            ]
            work = WriteGroup(plan.writer, self._workers.token)
            written = self._workers.run_tasks(work, tasks, [task.size_bytes for task in tasks])
            tasks.clear()
            routed.close()
        return [status for statuses in written for status in statuses]


class _Routed:
    """Rows grouped by their target file group."""

    def __init__(
        self, plan: WritePlan, candidates: tuple[FileGroupCandidate, ...], parts: Sequence[TaggedRows], folder: str | None
    ) -> None:
        self.groups: dict[tuple[str, str], list[Selection]] = {}
        self.row_bytes: Counter[tuple[str, str]] = Counter()
        fill = _InsertFill(plan)
        for number, part in enumerate(parts):
            names: dict[tuple[str, str], int] = {}
            rows = [part.pairs_row]
            codes = [_group_codes(part.pairs_candidate, candidates, names)]
            placed_rows, placed_codes = fill.assign(part, names)
            rows.append(placed_rows)
            codes.append(placed_codes)
            all_rows = np.concatenate(rows)
            order, bounds = group_rows(np.concatenate(codes), len(names))
            numbers = all_rows[order]
            if folder is not None:
                table = store_rows(os.path.join(folder, f"{number}.arrow"), part.rows.schema, [part.rows.take(pa.array(numbers))])
                is_sorted = True
            else:
                table = _in_large_batches(part.rows)
                is_sorted = len(names) * len(table.to_batches()) > _MAX_SELECTIONS
                table = table.take(pa.array(numbers)) if is_sorted else table
            table_bytes = int(table.nbytes)
            for name, code in names.items():
                start, end = int(bounds[code]), int(bounds[code + 1])
                if start == end:
                    continue
                rows_of_group = (table.slice(start, end - start), None) if is_sorted else (table, np.sort(numbers[start:end]))
                self.groups.setdefault(name, []).append(Selection(*rows_of_group))
                self.row_bytes[name] += table_bytes * (end - start) // table.num_rows

    def close(self) -> None:
        """Drop the rows, so that memory-mapped files can be deleted."""
        self.groups.clear()


def _in_large_batches(rows: pa.Table) -> pa.Table:
    """Return the rows as one batch if their batches are small: selecting rows takes a fixed time for each batch."""
    batch_count = len(rows.to_batches())
    return rows.combine_chunks() if batch_count > 1 and rows.num_rows < _FEWEST_ROWS_A_BATCH * batch_count else rows


class _InsertFill:
    """Distributes the inserts of each partition over its targets, in order of arrival."""

    def __init__(self, plan: WritePlan) -> None:
        self._targets = plan.inserts
        self._placed: Counter[str] = Counter()

    def assign(self, part: TaggedRows, names: dict[tuple[str, str], int]) -> tuple[Ints, Ints]:
        """Rows that have a target, and the code of the group of each; new groups are added to `names`."""
        rows: list[Ints] = []
        codes: list[Ints] = []
        if not len(part.inserts):
            return part.inserts, part.inserts
        encoded = pc.dictionary_encode(part.rows.column(PARTITION_PATH).take(pa.array(part.inserts)).combine_chunks())
        partition_codes = np.asarray(encoded.indices, dtype=np.int64)
        for number, partition in enumerate(encoded.dictionary.to_pylist()):
            targets = self._targets.get(partition, ())
            partition_rows = part.inserts[partition_codes == number]
            if not targets or not len(partition_rows):
                continue
            which = assign_inserts([target.row_count for target in targets], self._placed[partition], len(partition_rows))
            self._placed[partition] += len(partition_rows)
            lookup = np.array([names.setdefault((partition, t.file_id), len(names)) for t in targets], dtype=np.int64)
            rows.append(partition_rows)
            codes.append(lookup[which])
        if not rows:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing, nothing
        return np.concatenate(rows), np.concatenate(codes)


def _group_codes(pairs_candidate: Ints, candidates: tuple[FileGroupCandidate, ...], names: dict[tuple[str, str], int]) -> Ints:
    if not len(pairs_candidate):
        return pairs_candidate
    used = np.unique(pairs_candidate)
    lookup = np.zeros(int(used[-1]) + 1, dtype=np.int64)
    for number in used.tolist():
        lookup[number] = names.setdefault((candidates[number].partition, candidates[number].file_id), len(names))
    return lookup[pairs_candidate]
