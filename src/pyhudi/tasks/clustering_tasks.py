"""Clustering tasks: read ranges of file slices for planning, and rewrite one group of slices in a new order, or into
the new nodes of a consistent hashing resize.

A group that is not sorted is copied without decoding if possible (see `copy_row_groups`). Rows keep their meta columns
except the file name. Beyond the memory budget they are spilled to an Arrow file on local disk and memory-mapped; in
memory are the ranks of the sort columns and one row group of output.

Source: docs/formats/writing.md, "Clustering".
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import TableState
from pyhudi.features.consistent_hashing.hashing_metadata import HashRing
from pyhudi.features.consistent_hashing.hashing_routing import ConsistentHashingLayout
from pyhudi.format.names import WriteToken, format_file_id
from pyhudi.options.index_options import BUCKET_INDEX_HASH_FIELD
from pyhudi.planning.clustering import SliceRange
from pyhudi.records.column_statistics import footer_ranges
from pyhudi.records.dotted_columns import column_at
from pyhudi.records.schema_cast import relabel
from pyhudi.records.space_filling_curves import dense_ranks, hilbert_keys, linear_order, z_order_keys
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.base_file_reader import MAX_KEY, MIN_KEY, footer_text, open_base_file
from pyhudi.tasks.copy_row_groups import DEFAULT_COPY_RULES, CopyPlan, CopyRules, CopyTarget, plan_copy, run_copy
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.read_slice import merge_slice
from pyhudi.tasks.row_layouts import stored_keys
from pyhudi.tasks.spill import store_rows
from pyhudi.tasks.write_base_files import NewFile
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus

_CHUNK_ROWS = 65536


@dataclass(frozen=True, slots=True)
class RangeTask:
    """Read the ranges of one slice's base file from its footer. current_columns: the sort columns that the file stores
    under their current names.
    """

    storage: StorageSpec
    slice: FileSlice
    schema: pa.Schema
    sort_columns: tuple[str, ...]
    current_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """Rewrite one group.  output_prefixes: file id prefixes of the new file groups, as many as planned.

    sort_columns: () keeps the order of reading; layout: LINEAR, ZORDER or HILBERT. copy: when row groups are copied.
    """

    spec: WriterSpec
    partition: str
    slices: tuple[FileSlice, ...]
    output_prefixes: tuple[str, ...]
    sort_columns: tuple[str, ...]
    layout: str
    validity: InstantValidity
    token: WriteToken
    memory_budget_bytes: int
    copy: CopyRules = DEFAULT_COPY_RULES


@dataclass(frozen=True, slots=True)
class ResizeTask:
    """Rewrite the slices of some nodes into the nodes that replace them.

    Rows are routed by the consistent hashing metadata after the resize.

    Attributes:
        rewrite: Its output prefixes are those of the new nodes.
        hash_fields: As in `ConsistentHashingSettings`.
    """

    rewrite: ClusterTask
    ring: HashRing
    hash_fields: tuple[str, ...]


def run_range(task: RangeTask) -> SliceRange:
    """Return the ranges of a slice; unknown without base file, or with logs that may hold any key."""
    if task.slice.base is None or task.slice.logs:
        return SliceRange(tuple(None for _ in task.sort_columns))
    with open_base_file(open_storage(task.storage), task.slice.base.path) as file:
        ranges = footer_ranges(file.metadata, task.schema, task.current_columns)
        low, high = footer_text(file.metadata, MIN_KEY), footer_text(file.metadata, MAX_KEY)
    columns = []
    for name in task.sort_columns:
        known = ranges.get(name)
        columns.append(None if known is None or known.min is None or known.max is None else (known.min, known.max))
    return SliceRange(tuple(columns), None if low is None or high is None else (low, high))


def run_cluster(task: ClusterTask) -> tuple[WriteStatus, ...]:
    """Write the rows of a group's slices, in the new order, to new file groups.  Returns one status per file."""
    storage = open_storage(task.spec.storage)
    plan = "rows are sorted" if task.sort_columns else plan_copy(storage, task.spec, task.slices, task.copy)
    if isinstance(plan, CopyPlan):
        return tuple(run_copy(storage, task.spec, CopyTarget(task.partition, task.output_prefixes, task.token), plan))
    with tempfile.TemporaryDirectory(prefix="pyhudi-cluster-") as folder:
        rows = _gathered(storage, task, folder)
        order = _order(rows, task)
        statuses: list[WriteStatus] = []
        outputs = len(task.output_prefixes)
        for number, prefix in enumerate(task.output_prefixes):
            start, end = rows.num_rows * number // outputs, rows.num_rows * (number + 1) // outputs
            statuses.extend(_write_output(storage, task, prefix, rows, order, start=start, end=end))
        del rows
    return tuple(replace(status, decoded_reason=plan) for status in statuses)


def run_resize(task: ResizeTask) -> tuple[WriteStatus, ...]:
    """Write the rows of nodes to the file groups of the nodes that replace them, one file each; none for a node without rows.

    Raises TableState for a row that belongs to no such node: its key was hashed by other fields.
    """
    rewrite = task.rewrite
    storage = open_storage(rewrite.spec.storage)
    layout = ConsistentHashingLayout({rewrite.partition: task.ring}, task.hash_fields)
    buckets = (layout.bucket_from_file_id(rewrite.partition, format_file_id(prefix, 0)) for prefix in rewrite.output_prefixes)
    numbers = [number for number in buckets if number is not None]
    with tempfile.TemporaryDirectory(prefix="pyhudi-cluster-") as folder:
        rows = _gathered(storage, rewrite, folder)
        order = _order(rows, rewrite)
        nodes = _nodes_of(rows, rewrite, layout)
        lost = np.flatnonzero(~np.isin(nodes, numbers))
        if len(lost):
            key = stored_keys(rewrite.spec, rows.slice(int(lost[0]), 1))[0].as_py()
            raise TableState(
                f"record {key!r} of file group {rewrite.slices[0].file_id} in {rewrite.partition or 'the table'} belongs to none "
                f"of the nodes that replace it; set {BUCKET_INDEX_HASH_FIELD} to the fields that the table was created with"
            )
        in_order = np.arange(rows.num_rows, dtype=np.int64) if order is None else order
        statuses: list[WriteStatus] = []
        for number, prefix in zip(numbers, rewrite.output_prefixes, strict=True):
            own = in_order[nodes[in_order] == number]
            statuses.extend(_write_output(storage, rewrite, prefix, rows, own, start=0, end=len(own)))
        del rows
    return tuple(statuses)


def sort_order(rows: pa.Table, sort_columns: tuple[str, ...], layout: str) -> npt.NDArray[np.int64]:
    """Return the order of rows by columns: lexicographic, or along a space-filling curve over their ranks."""
    ranks = [dense_ranks(column_at(rows, name)) for name in sort_columns]
    if layout == "LINEAR" or len(ranks) == 1:
        return linear_order(ranks)
    keys = z_order_keys(ranks) if layout == "ZORDER" else hilbert_keys(ranks)
    return np.argsort(keys, kind="stable").astype(np.int64)


def _nodes_of(rows: pa.Table, task: ClusterTask, layout: ConsistentHashingLayout) -> npt.NDArray[np.int64]:
    """The number of the node of each row."""
    nodes = []
    for start in range(0, rows.num_rows, _CHUNK_ROWS):
        keys = stored_keys(task.spec, rows.slice(start, _CHUNK_ROWS))
        nodes.append(layout.buckets_at(task.partition, layout.cells_for_keys(task.spec.keys, keys.combine_chunks())))
    return np.concatenate([np.zeros(0, dtype=np.int64), *nodes])


def _gathered(storage: Storage, task: ClusterTask, folder: str) -> pa.Table:
    spec = task.spec
    schema = spec.stored_schema
    reader = spec.reader(task.validity)
    held: list[pa.Table] = []
    held_bytes = 0
    stored: list[pa.Table] = []
    for slice_ in task.slices:
        _, parts = merge_slice(storage, reader, slice_, schema)
        for part in parts:
            if not part.rows.num_rows:
                continue
            held.append(relabel(part.rows, schema))
            held_bytes += part.rows.nbytes
            if held_bytes > task.memory_budget_bytes:
                stored.append(store_rows(os.path.join(folder, f"{len(stored)}.arrow"), schema, held))
                held, held_bytes = [], 0
    return pa.concat_tables([schema.empty_table(), *stored, *held])


def _order(rows: pa.Table, task: ClusterTask) -> npt.NDArray[np.int64] | None:
    if not task.sort_columns or not rows.num_rows:
        return None
    return sort_order(rows, task.sort_columns, task.layout)


def _write_output(
    storage: Storage, task: ClusterTask, prefix: str, rows: pa.Table, order: npt.NDArray[np.int64] | None, *, start: int, end: int
) -> Iterator[WriteStatus]:
    """Write rows `start` to `end` of the new order to file groups of one prefix, opening the next one when a file is full."""
    spec = task.spec
    index = 0
    while start < end:
        file = NewFile.begin(storage, spec, task.partition, format_file_id(prefix, index), task.token)
        with file.writer as writer:
            while start < end and writer.estimated_size_bytes < spec.files.max_file_size_bytes:
                stop = min(start + _CHUNK_ROWS, end)
                chunk = rows.slice(start, stop - start) if order is None else rows.take(pa.array(order[start:stop]))
                writer.write(chunk)
                if spec.key_shards:
                    file.changes.add(stored_keys(spec, chunk))
                start = stop
        yield file.status(storage)
        index += 1
