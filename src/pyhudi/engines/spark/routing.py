"""Route rows to the tasks that write their file groups: number and distribute the groups, one shuffle, one `mapInArrow`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from pyhudi.engines.spark.distributed_lookup import Ints
from pyhudi.engines.spark.job_progress import spark_stage
from pyhudi.engines.spark.jobs import translated_errors
from pyhudi.engines.spark.type_conversion import DataFrame, SparkSession, column, quote_spark_name
from pyhudi.engines.spark.worker_tasks import (
    FILE,
    GROUP,
    ORDER,
    STATUS_SCHEMA,
    AttemptGuard,
    WriteGroups,
    decode_statuses,
    wire_schema,
)
from pyhudi.errors import EngineFailed, Unsupported
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.records.record_merge import RecordMergeRule
from pyhudi.tasks.engine_protocol import WritePlan
from pyhudi.tasks.incoming_layout import DELETE_COLUMN
from pyhudi.tasks.tag_location import FileGroupCandidate
from pyhudi.tasks.write_file_group import GroupTarget
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus

TASKS_A_CORE = 4
"""Writing tasks per core: enough to balance file groups of different sizes, few enough that starting them is cheap."""


class ClusterRows(Protocol):
    """The rows of one write on the cluster: the incoming layout, and ORDER if `combine`."""

    rows: DataFrame
    schema: pa.Schema
    combine: bool

    @property
    def session(self) -> SparkSession:
        """The session of the rows."""
        ...

    @property
    def rule(self) -> RecordMergeRule:
        """The merge rule between incoming records of one key."""
        ...

    @property
    def budget_bytes(self) -> int:
        """Bytes of incoming rows that one task may buffer in memory."""
        ...

    def persist(self, frame: DataFrame) -> DataFrame:
        """The same rows, computed once and cached until the write ends."""
        ...

    def task_count(self) -> int:
        """Number of tasks for a shuffle of all rows."""
        ...

    def given_count(self) -> int:
        """Number of rows before duplicates are combined."""
        ...

    def key_count(self) -> int:
        """Number of different keys of the rows."""
        ...

    def count_combined(self, dropped: int) -> None:
        """Record how many rows were dropped for another one of their key."""
        ...


@dataclass(frozen=True, slots=True)
class ResolvedMoves:
    """Resolved partition changes: rows in the incoming layout with DELETE_COLUMN and FILE, and their counts."""

    rows: DataFrame
    updates: Mapping[int, int]
    inserts: Mapping[str, int]


class Groups:
    """The numbered file groups of a plan.

    for_candidates: group number of each looked-up file.  inserts: partition path -> (group, rows) of its targets, in
    order.
    """

    def __init__(self, plan: WritePlan, candidates: Sequence[FileGroupCandidate], cores: int) -> None:
        self._cores = cores
        self.targets: list[GroupTarget] = []
        self._weights: list[int] = []
        self._known: dict[tuple[str, str], int] = {}
        self._plan = plan
        self.for_candidates: Ints = np.array(
            [self._number(place.partition, place.file_id, 0) for place in candidates], dtype=np.int64
        )
        self.inserts: dict[str, list[tuple[int, int]]] = {
            path: [(self._number(t.partition, t.file_id, t.row_count), t.row_count) for t in targets]
            for path, targets in plan.inserts.items()
            if targets
        }

    def group_numbers(self, moved: ResolvedMoves | None) -> Ints:
        """The groups that resolved moves may be written to."""
        if moved is None:
            return np.zeros(0, np.int64)
        inserts = [number for path in moved.inserts for number, _ in self.inserts.get(path, ())]
        updates = self.for_candidates[np.array(sorted(moved.updates), dtype=np.int64)]
        return np.concatenate([updates, np.array(inserts, dtype=np.int64)])

    def label(self, used: Ints) -> Ints:
        """Label of each group, -1 for unused ones.

        The label modulo `task_count` is the task; large groups are distributed first.
        """
        labels = np.full(len(self.targets), -1, dtype=np.int64)
        numbers = np.unique(used)
        tasks = self.task_count = max(1, min(len(numbers), TASKS_A_CORE * self._cores))
        load = np.zeros(tasks, dtype=np.int64)
        filled = np.zeros(tasks, dtype=np.int64)
        weights = np.array(self._weights, dtype=np.int64)[numbers] if len(numbers) else numbers
        for number in numbers[np.argsort(-weights, kind="stable")].tolist():
            task = int(np.argmin(load))
            labels[number] = task + tasks * filled[task]
            filled[task] += 1
            load[task] += self._weights[number] + 1
        return labels

    def _number(self, partition: str, file_id: str, row_count: int) -> int:
        known = self._known.get((partition, file_id))
        if known is not None:
            return known
        target = self._plan.target(partition, file_id)
        base = target.slice.base if target.slice is not None else None
        self._known[partition, file_id] = len(self.targets)
        self.targets.append(target)
        # Rewriting a byte costs about as much as writing a new row of some hundred bytes.
        self._weights.append(base.size_bytes if base is not None else row_count * 100)
        return len(self.targets) - 1


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows a lookup of keys has counted.

    Spark computes cached rows again after it lost executors. If the input then has other rows or keys, rows would have no
    group, or new ones would count as known.

    Attributes:
        total: All rows that have a target.
        updates: Rows of known keys by group label.
    """

    total: int
    updates: Mapping[int, int]

    @classmethod
    def of_files(cls, groups: Groups, labels: Ints, updates: Mapping[int, int], inserts: Mapping[str, int]) -> RowCounts:
        """From rows by number of their file, and by partition path."""
        by_label: Counter[int] = Counter()
        for number, count in updates.items():
            by_label[int(labels[groups.for_candidates[number]])] += count
        return cls(by_label.total() + sum(count for path, count in inserts.items() if path in groups.inserts), by_label)

    def plus(self, other: RowCounts) -> RowCounts:
        """The counts of both."""
        return RowCounts(self.total + other.total, Counter(self.updates) + Counter(other.updates))

    def check(self, received: Mapping[int, int]) -> None:
        """Raise EngineFailed if the writing tasks have received other rows.  received: by group label."""
        total = sum(received.values())
        if total == self.total and all(received.get(label, 0) >= count for label, count in self.updates.items()):
            return
        raise EngineFailed(
            f"Spark computed the input again with other rows or keys (a random function, a source that changes): the lookup of "
            f"keys counted {self.total} rows, and {total} reached the tasks that write them, or other ones. Nothing is "
            "committed. Write the input to files or a table first, and then those rows"
        )


def write_routed(
    incoming: ClusterRows,
    plan: WritePlan,
    groups: Groups,
    labels: Ints,
    rows: DataFrame | None,
    *,
    expected: RowCounts,
    moved: ResolvedMoves | None,
    combine: bool,
) -> tuple[list[WriteStatus], int]:
    """Write rows that have a group label; return the statuses, and how many rows the tasks dropped for others of their key.

    rows: the incoming layout, GROUP (a label), and ORDER when combining. expected: counts of those rows.

    Raises:
        EngineFailed: The tasks received other rows.
    """
    check_reachable(plan.spec)
    schema = incoming.schema
    if moved is not None:
        schema = with_delete(schema)
        placed = with_groups(moved.rows, groups, labels)
        names = [*schema.names, GROUP]
        settled = placed.select(*map(quote_spark_name, names))
        if rows is None:
            rows = settled
        else:
            flagged = rows if DELETE_COLUMN in rows.columns else rows.withColumn(DELETE_COLUMN, F.lit(False))
            rows = flagged.select(*map(quote_spark_name, names)).unionByName(settled)
        combine = False
    if rows is None:
        return [], 0
    schema = wire_schema(schema)
    sort = [GROUP, RECORD_KEY, ORDER] if combine else [GROUP]
    selected = rows.select(*map(quote_spark_name, [*schema.names, GROUP, *([ORDER] if combine else [])]))
    routed = selected.repartitionById(groups.task_count, column(GROUP)).sortWithinPartitions(*sort)
    targets = {int(label): groups.targets[number] for number, label in enumerate(labels.tolist()) if label >= 0}
    rule = incoming.rule if combine else None
    job = WriteGroups(plan.writer, schema, targets, rule, incoming.budget_bytes)
    with translated_errors(), spark_stage(incoming.session, "write"):
        answers = routed.mapInArrow(AttemptGuard(job, plan.spec), STATUS_SCHEMA).toArrow()
    if moved is not None:
        expected = expected.plus(RowCounts.of_files(groups, labels, moved.updates, moved.inserts))
    expected.check(dict(zip(answers.column("group").to_pylist(), answers.column("rows").to_pylist(), strict=True)))
    return decode_statuses(answers), sum(answers.column("combined").to_pylist())


def with_groups(rows: DataFrame, groups: Groups, labels: Ints) -> DataFrame:
    """Replace FILE by GROUP.

    Inserts are distributed over their targets by the hash of their key; rows without a target are dropped (deletes of
    missing keys).
    """
    session = rows.sparkSession
    if len(groups.for_candidates):
        files = pa.table(
            {
                FILE: pa.array(range(len(groups.for_candidates)), pa.int32()),
                "#update": pa.array(labels[groups.for_candidates], pa.int32()),
            }
        )
        rows = rows.join(F.broadcast(session.createDataFrame(files)), FILE, "left")
        group = column("#update")
    else:
        group = F.lit(None).cast("int")
    if groups.inserts:
        ends = [np.cumsum([count for _, count in targets]) for targets in groups.inserts.values()]
        places = pa.table(
            {
                PARTITION_PATH: pa.array(list(groups.inserts), pa.string()),
                "#ends": pa.array([(end[:-1] / max(1, end[-1])).tolist() for end in ends], pa.list_(pa.float64())),
                "#inserts": pa.array(
                    [labels[[n for n, _ in targets]].tolist() for targets in groups.inserts.values()], pa.list_(pa.int32())
                ),
            }
        )
        rows = rows.join(F.broadcast(session.createDataFrame(places)), PARTITION_PATH, "left")
        share = F.xxhash64(RECORD_KEY).bitwiseAND(F.lit((1 << 52) - 1)) / F.lit(float(1 << 52))
        passed = F.size(F.filter("#ends", lambda end: end <= share))
        insert = F.when(column(FILE).isNull() & column("#inserts").isNotNull(), F.element_at("#inserts", passed + 1))
        group = F.coalesce(group, insert)
    return rows.withColumn(GROUP, group).where(column(GROUP).isNotNull())


def with_delete(schema: pa.Schema) -> pa.Schema:
    """A layout with DELETE_COLUMN."""
    return schema if DELETE_COLUMN in schema.names else schema.append(pa.field(DELETE_COLUMN, pa.bool_()))


def check_reachable(spec: WriterSpec) -> None:
    """Raise Unsupported for a table that workers cannot access."""
    if spec.storage.uri.startswith("memory:"):
        raise Unsupported(
            f"{spec.storage.uri} is in the memory of one process, which Spark's workers cannot access; "
            "use a path or an object store"
        )
