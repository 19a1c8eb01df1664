"""The Engine protocol over DataFrames.

A write in jobs:

    1. prepare    columns cast to the table's, record key and partition path in front; persisted, counted by partition path.
                  Where keys are to be looked up, the driver asks for them right away, up to a number, and counts them itself
    2. look up    few keys: one small job over the files or the record index; many keys: a native join, or a shuffle by file
                  groups of the record index (lookup.py); under a bucket index nothing but a hash
    3. write      rows get the number of their file group, one shuffle brings each group into one task, sorted by group, and one
                  `mapInArrow` merges and writes group after group (tasks.py); the driver collects write statuses only

Duplicates are combined where the rows of a key meet anyway: in the writing task, after a sort by key, so that combining costs
no shuffle of its own.  Only under a global index, where rows of one key may be bound for different partitions, is there a shuffle
by key before.

Of two rows with one key and equal ordering values the later one in the DataFrame's own order wins, which Spark does not promise
to keep.

On a merge-on-read table the same task appends to the group's log where the plan says so.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyhudi.engines.spark.cache import PlainCache
from pyhudi.engines.spark.convert import (
    DataFrame,
    SparkSession,
    column,
    quoted,
    small_frame,
    to_arrow_schema,
    to_spark_schema,
)
from pyhudi.engines.spark.hbase import ask_few_of_hbase, ask_many_of_hbase
from pyhudi.engines.spark.jobs import REFUSAL, parallelism, run_tasks, translated_errors
from pyhudi.engines.spark.keys import auto_key_column, key_column, path_column
from pyhudi.engines.spark.lookup import (
    FEW_KEY_BYTES,
    FEW_KEYS,
    HOMES,
    Ints,
    KeyTable,
    ask_few,
    ask_many,
    cell_column,
    check_groups,
    look_up_few,
    look_up_many,
)
from pyhudi.engines.spark.progress import spark_stage
from pyhudi.engines.spark.tasks import (
    FILE,
    FILES,
    GROUP,
    HOME,
    ORDER,
    STATUS_SCHEMA,
    CombineKeys,
    SettleMoves,
    WriteGroups,
    WritePartitions,
    decode_statuses,
    prepared,
    task_token,
    wire_schema,
)
from pyhudi.engines.spark.worker_errors import with_error_fields
from pyhudi.engines.spark.workers import use_this_python
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.execute.bucket_places import BucketPlaces
from pyhudi.execute.engine import BulkPlan, PrepareRequest, TagRequest, WritePlan
from pyhudi.execute.hbase_index import ByHbase
from pyhudi.execute.incoming import incoming_schema
from pyhudi.execute.layout import DELETE_COLUMN
from pyhudi.execute.tag import ByBuckets, ByKeyColumns, ByRecordIndex, Place
from pyhudi.execute.write_base import WriterSpec, WriteStatus
from pyhudi.execute.write_group import GroupTarget
from pyhudi.format.avro_to_arrow import column_default
from pyhudi.plan.write import WorkloadProfile, deal_inserts
from pyhudi.records.conform import same_type
from pyhudi.records.keys.partition_paths import PLACEHOLDER_PARTITION
from pyhudi.records.keys.spec import KeySpec, partition_columns
from pyhudi.records.merge import MergeRule
from pyhudi.records.meta_fields import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from pyhudi.records.normalise import normalise
from pyhudi.records.schema_evolution import typed_nulls

R = TypeVar("R")
A = TypeVar("A")

_TASKS_A_CORE = 4
"""Writing tasks for each core: enough to even out file groups of different sizes, few enough that starting them costs little."""

_CELL = "#cell"

_LONGEST_FEW_KEY = 256
"""Bytes of one key beyond which the keys count as many, however few they are: what comes to the driver is bounded beforehand."""

_FEWEST_ROWS_A_TASK = 20_000
_MOST_ROWS_A_TASK = 1_000_000

_TASKS_SHARING_A_BUDGET = 4
"""Tasks that one executor process is taken to run at once; each takes its share of the memory budget."""


class SparkEngine:
    """Runs on the cluster of a Spark session, classic or Connect."""

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        use_this_python(session)
        self.session = session

    def input_schema(self, data: Any) -> pa.Schema:
        """The schema of a DataFrame.  Raises InvalidRequest for anything else and for types that Arrow lacks."""
        return to_arrow_schema(_frame(data).schema)

    def prepare(self, data: Any, request: PrepareRequest) -> SparkIncoming:
        """Describe the preparation of the rows; nothing runs until the rows are asked for."""
        return SparkIncoming(self, _frame(data), request)

    def partition_paths(self, data: Any, keys: KeySpec) -> list[str]:
        """The distinct partition paths of a DataFrame's rows, sorted."""
        frame = _frame(data)
        path = path_column(keys, normalise(to_arrow_schema(frame.schema)))
        with translated_errors():
            return sorted(row["path"] for row in frame.select(path.alias("path")).distinct().collect())

    def map(self, function: Callable[[A], R], tasks: Iterable[A]) -> list[R]:
        """Run tasks on the cluster; results in order.  The first error fails the job and is raised."""
        return run_tasks(self.session, function, tasks)


class SparkIncoming:
    """Prepared rows: the incoming layout, and ORDER while duplicates are still to be combined."""

    def __init__(self, engine: SparkEngine, frame: DataFrame, request: PrepareRequest) -> None:
        """frame: the caller's rows."""
        self._engine = engine
        self._frame = frame
        self._persisted: list[DataFrame] = []
        self._plain = PlainCache(engine.session)
        self._take(request)

    def _take(self, request: PrepareRequest) -> None:
        """Begin with the caller's rows, prepared by a request."""
        self._request = request
        self._counts: dict[str, int] | None = None
        self._few: KeyTable | None = None
        self.rows = _prepared(self._frame, to_arrow_schema(self._frame.schema), request)
        self.schema = incoming_schema(request)
        self.combine = request.combine

    @property
    def session(self) -> SparkSession:
        """The session of the rows."""
        return self._engine.session

    @property
    def rule(self) -> MergeRule:
        """The rule between incoming records of one key."""
        return self._request.rule

    @property
    def budget_bytes(self) -> int:
        """Bytes of incoming rows that one task may hold in memory."""
        return max(1 << 20, self._request.memory_budget_bytes // _TASKS_SHARING_A_BUDGET)

    def partitions(self) -> dict[str, int]:
        """Rows by partition path, before duplicates are combined.  Computes the rows and keeps them until `release`."""
        if self._counts is None:
            self.rows = self.keep(self.rows)
            if self._request.looked_up:
                self._counts = self._take_few_keys()
        if self._counts is None:
            grouped = self.rows.groupBy(PARTITION_PATH).agg(F.count(F.lit(1)).alias("n"))
            with translated_errors(), spark_stage(self.session, "prepare rows"):
                found = grouped.collect()
            self._counts = {row[PARTITION_PATH]: int(row["n"]) for row in found}
        return dict(self._counts)

    def _take_few_keys(self) -> dict[str, int] | None:
        """The keys for the driver, and with them the rows by partition path; None when they are many."""
        short = F.when(F.octet_length(RECORD_KEY) <= _LONGEST_FEW_KEY, column(RECORD_KEY)).alias(RECORD_KEY)
        some = self.rows.select(short, PARTITION_PATH).limit(FEW_KEYS + 1)
        with translated_errors(), spark_stage(self.session, "prepare rows"):
            found = some.toArrow()
        keys = found.column(RECORD_KEY)
        if found.num_rows > FEW_KEYS or keys.nbytes > FEW_KEY_BYTES or keys.null_count:
            return None
        self._few = KeyTable.of(found)
        return {entry["values"]: entry["counts"] for entry in pc.value_counts(found.column(PARTITION_PATH)).to_pylist()}

    def tag(self, request: TagRequest) -> FewTagged | ManyTagged:
        """Look the keys up; under a global index also decide what becomes of records whose partition changed."""
        _check_reachable(request.spec)
        lookup = request.lookup
        if isinstance(lookup, ByBuckets):
            return ManyTagged.of_buckets(self, request, lookup)
        self.partitions()
        held = isinstance(lookup, ByKeyColumns) and lookup.held
        if self._few is None and not held:
            if request.global_keys:
                self._combine_now()
            if isinstance(lookup, ByRecordIndex):
                hits = check_groups(self.keep(ask_many(self.session, self.rows, request, lookup)))
            elif isinstance(lookup, ByHbase):
                hits = self.keep(ask_many_of_hbase(self.session, self.rows, request, lookup, self.keep))
            else:
                hits = self.keep(look_up_many(self.session, self.rows, request))
            return ManyTagged.of(self, request, hits)
        keys = self._few or KeyTable.collect(self.rows)
        if request.global_keys and self.combine and (keys.has_duplicates or not keys.keys_are_unique):
            self._combine_now()
            keys = KeyTable.collect(self.rows)
        if isinstance(lookup, ByRecordIndex):
            pair_row, pair_place = ask_few(self.session, keys, request, lookup)
        elif isinstance(lookup, ByHbase):
            pair_row, pair_place = ask_few_of_hbase(self.session, keys, request, lookup)
        else:
            pair_row, pair_place = look_up_few(self.session, keys, request)
        return FewTagged.of(self, request, keys, pair_row, pair_place)

    def untagged(self) -> ManyTagged:
        """All rows as inserts."""
        return ManyTagged(self, (), self.rows.withColumn(FILE, F.lit(None).cast("int")), self.partitions(), {}, not self.combine)

    def write_bulk(self, plan: BulkPlan) -> list[WriteStatus]:
        """Write all rows to new file groups."""
        _check_reachable(plan.spec)
        if self._request.global_keys:
            self._combine_now()
        raw = self._raw_for_bulk(plan)
        rows, ordered = self._sorted_for_bulk(plan) if raw is None else (raw, False)
        job = WritePartitions(
            plan.spec,
            wire_schema(self.schema),
            str(uuid.UUID(plan.new_file_id())),
            ordered,
            self.combine,
            self._request.rule,
            self.budget_bytes,
            None if raw is None else self._request,
        )
        with translated_errors(), spark_stage(self.session, "write"):
            return decode_statuses(rows.mapInArrow(job, STATUS_SCHEMA).toArrow())

    def refit(self, request: PrepareRequest) -> None:
        """Prepare the caller's rows once more."""
        self.release()
        self._take(request)

    def release(self) -> None:
        """Let Spark drop what was kept."""
        for frame in self._persisted:
            frame.unpersist()
        self._persisted.clear()
        self._plain.leave()

    def keep(self, frame: DataFrame) -> DataFrame:
        """The same rows, computed once and kept until `release`."""
        # On Connect this already plans the query, and folding constants may come upon a refused row.
        with translated_errors():
            # The default level keeps columns in memory as they are, and on disk what does not fit.
            self._plain.enter()
            kept = frame.persist()
        self._persisted.append(kept)
        return kept

    def task_count(self) -> int:
        """Tasks for a shuffle of all rows whose result is kept, where Spark does not put small partitions together by itself."""
        rows = sum(self.partitions().values())
        return max(
            1, -(-rows // _MOST_ROWS_A_TASK), min(_TASKS_A_CORE * parallelism(self.session), -(-rows // _FEWEST_ROWS_A_TASK))
        )

    def _combine_now(self) -> None:
        """One row for each key, whatever its partition."""
        if not self.combine:
            return
        job = CombineKeys(self.schema, self._request.rule)
        sorted_rows = self.rows.repartition(self.task_count(), RECORD_KEY).sortWithinPartitions(RECORD_KEY, ORDER)
        self.rows = self.keep(sorted_rows.mapInArrow(job, to_spark_schema(wire_schema(self.schema))))
        self.combine = False
        self._counts = None
        self._few = None

    def _raw_for_bulk(self, plan: BulkPlan) -> DataFrame | None:
        """The caller's rows as they are, where nothing but the writing tasks needs their keys; else None."""
        if plan.sort != "NONE" or self.combine or self._persisted or self._request.keys_only:
            return None
        return self._frame.coalesce(plan.parallelism) if plan.parallelism > 0 else self._frame

    def _sorted_for_bulk(self, plan: BulkPlan) -> tuple[DataFrame, bool]:
        rows = self.rows
        some = (plan.parallelism,) if plan.parallelism > 0 else ()
        if self.combine:
            return rows.repartition(*some, PARTITION_PATH, RECORD_KEY).sortWithinPartitions(
                PARTITION_PATH, RECORD_KEY, ORDER
            ), True
        match plan.sort:
            case "NONE":
                return (rows.coalesce(plan.parallelism) if some else rows), False
            case "GLOBAL_SORT":
                return rows.repartitionByRange(*some, PARTITION_PATH, RECORD_KEY).sortWithinPartitions(
                    PARTITION_PATH, RECORD_KEY
                ), True
            case "PARTITION_SORT":
                return rows.sortWithinPartitions(PARTITION_PATH, RECORD_KEY), True
            case "PARTITION_PATH_REPARTITION":
                return rows.repartition(*some, PARTITION_PATH), False
            case "PARTITION_PATH_REPARTITION_AND_SORT":
                return rows.repartition(*some, PARTITION_PATH).sortWithinPartitions(PARTITION_PATH), True
            case other:
                raise Unsupported(f"bulk insert sort mode {other}")


@dataclass(frozen=True, slots=True)
class FewTagged:
    """Rows whose keys the driver knows.

    pair_row, pair_place: a key (its number in `keys`) and the place that it goes to.  takes_home_path: such rows get the
    partition path of their place.  inserts: keys that stand nowhere.  moved: rows that changed their partition, already settled
    (see SettleMoves).
    """

    incoming: SparkIncoming
    places: tuple[Place, ...]
    keys: KeyTable
    pair_row: Ints
    pair_place: Ints
    takes_home_path: bool
    inserts: Ints
    moved: _Moved | None

    @classmethod
    def of(cls, incoming: SparkIncoming, request: TagRequest, keys: KeyTable, pair_row: Ints, pair_place: Ints) -> FewTagged:
        """From the pairs that a lookup found."""
        found = np.zeros(len(keys.keys), dtype=np.bool_)
        found[pair_row] = True
        inserts = np.flatnonzero(~found).astype(np.int64)
        if not request.global_keys or not len(pair_row):
            return cls(incoming, request.places, keys, pair_row, pair_place, False, inserts, None)
        own = np.array(keys.paths, dtype=object)[keys.path_codes[pair_row]]
        homes = np.array([place.partition for place in request.places], dtype=object)[pair_place]
        away = (homes != own) & (own != PLACEHOLDER_PARTITION)
        if not request.update_partition_path or not away.any():
            return cls(incoming, request.places, keys, pair_row, pair_place, True, inserts, None)
        # A record moves as a whole: with one copy elsewhere, all its copies are settled together.
        moving_keys = np.unique(pair_row[away])
        moving = np.isin(pair_row, moving_keys)
        table = _files_by_key(keys, pair_row[moving], pair_place[moving])
        moved = _settle(
            incoming,
            request,
            incoming.rows.join(F.broadcast(incoming.session.createDataFrame(table)), [RECORD_KEY, PARTITION_PATH]),
        )
        return cls(incoming, request.places, keys, pair_row[~moving], pair_place[~moving], True, inserts, moved)

    def profile(self) -> WorkloadProfile:
        """Counts of distinct keys, so exact also before duplicates are combined."""
        numbers, sizes = np.unique(self.pair_place, return_counts=True)
        updates = Counter(dict(zip(numbers.tolist(), sizes.tolist(), strict=True)))
        codes, sizes = np.unique(self.keys.path_codes[self.inserts], return_counts=True)
        inserts = Counter({self.keys.paths[code]: size for code, size in zip(codes.tolist(), sizes.tolist(), strict=True)})
        if self.moved is not None:
            updates.update(self.moved.updates)
            inserts.update(self.moved.inserts)
        return WorkloadProfile(_by_group(self.places, updates), dict(inserts))

    def without_existing(self) -> FewTagged:
        """Only rows that stand nowhere."""
        nothing = np.zeros(0, np.int64)
        return replace(self, pair_row=nothing, pair_place=nothing, moved=None)

    def write(self, plan: WritePlan) -> list[WriteStatus]:
        """Each file group in one task."""
        groups = _Groups(plan, self.places, parallelism(self.incoming.session))
        row, number = self._placed(groups)
        labels = groups.label(np.concatenate([number, groups.numbers_of(self.moved)]))
        rows = None
        if len(row):
            route = self._route(row, labels[number])
            joined = self.incoming.rows.join(F.broadcast(route), [c for c in route.columns if c in (RECORD_KEY, PARTITION_PATH)])
            path = column(HOME) if HOME in route.columns else column(PARTITION_PATH)
            rows = _with_path(joined, path)
        combine = self.incoming.combine and self.keys.has_duplicates
        return _write_groups(self.incoming, plan, groups, labels, rows, moved=self.moved, combine=combine)

    def _placed(self, groups: _Groups) -> tuple[Ints, Ints]:
        """Keys and the number of the group that takes each; inserts fill their targets in order."""
        rows, numbers = [self.pair_row], [groups.of_places[self.pair_place] if len(self.pair_place) else self.pair_place]
        codes = self.keys.path_codes[self.inserts]
        for code, path in enumerate(self.keys.paths):
            targets = groups.inserts.get(path)
            if targets is None:
                continue
            mine = self.inserts[codes == code]
            which = deal_inserts([count for _, count in targets], 0, len(mine))
            rows.append(mine)
            numbers.append(np.array([number for number, _ in targets], dtype=np.int64)[which])
        return np.concatenate(rows), np.concatenate(numbers)

    def _route(self, row: Ints, labels: Ints) -> DataFrame:
        at = pa.array(row)
        columns: dict[str, pa.Array] = {RECORD_KEY: self.keys.keys.take(at)}
        if not self.keys.keys_are_unique:
            columns[PARTITION_PATH] = self.keys.path_array().take(at)
        columns[GROUP] = pa.array(labels, pa.int32())
        if self.takes_home_path:
            homes = pa.array([place.partition for place in self.places], pa.string()).take(pa.array(self.pair_place))
            own = self.keys.path_array().take(pa.array(row[len(self.pair_row) :]))
            columns[HOME] = pa.concat_arrays([homes, own])
        return self.incoming.session.createDataFrame(pa.table(columns))


@dataclass(frozen=True, slots=True)
class ManyTagged:
    """Rows that carry their place: the incoming layout, ORDER, and FILE (the number of a place), null for inserts.

    insert_counts: inserts by partition path, at least as many as there are; update_counts: by number of the file.
    """

    incoming: SparkIncoming
    places: tuple[Place, ...]
    rows: DataFrame
    insert_counts: Mapping[str, int]
    update_counts: Mapping[int, int]
    exact: bool
    moved: _Moved | None = None

    @classmethod
    def of(cls, incoming: SparkIncoming, request: TagRequest, hits: DataFrame) -> ManyTagged:
        """From the hits of a lookup (see `look_up_many`)."""
        names = [RECORD_KEY] if request.global_keys else [RECORD_KEY, PARTITION_PATH]
        joined = incoming.rows.join(hits, names, "left")
        moved = None
        if request.global_keys and request.update_partition_path and request.places:
            stays = (
                column(FILES).isNull()
                | (column(PARTITION_PATH) == PLACEHOLDER_PARTITION)
                | ((F.size(HOMES) == 1) & (F.element_at(HOMES, 1) == column(PARTITION_PATH)))
            )
            moved = _settle(incoming, request, joined.where(~stays))
            joined = joined.where(stays)
        rows = joined.withColumn(FILE, F.explode_outer(FILES))
        with translated_errors(), spark_stage(incoming.session, "find keys"):
            # One job counts both: rows that go to a file under its number, those that stand nowhere under their partition path.
            path = F.when(column(FILE).isNull(), column(PARTITION_PATH)).alias(PARTITION_PATH)
            counted = rows.select(FILE, path).groupBy(FILE, PARTITION_PATH).count().collect()
        if request.global_keys:
            homes = pa.table(
                {
                    FILE: pa.array(range(len(request.places)), pa.int32()),
                    HOME: pa.array([place.partition for place in request.places], pa.string()),
                }
            )
            placed = rows.join(F.broadcast(incoming.session.createDataFrame(homes)), FILE, "left")
            rows = placed.withColumn(PARTITION_PATH, F.coalesce(HOME, PARTITION_PATH))
        return cls(
            incoming,
            request.places,
            rows,
            {row[PARTITION_PATH]: int(row["count"]) for row in counted if row[FILE] is None},
            {row[FILE]: int(row["count"]) for row in counted if row[FILE] is not None},
            not incoming.combine,
            moved,
        )

    @classmethod
    def of_buckets(cls, incoming: SparkIncoming, request: TagRequest, lookup: ByBuckets) -> ManyTagged:
        """Rows with the places of their buckets; the cells that occur are counted and come to the driver."""
        bucketed = incoming.keep(incoming.rows.withColumn(_CELL, cell_column(lookup.layout, request.spec.keys)))
        with translated_errors():
            found = bucketed.groupBy(PARTITION_PATH, _CELL).count().collect()
        known = BucketPlaces(request.places, lookup)
        numbers = [known.numbers(row[PARTITION_PATH], row[_CELL]) for row in found]
        updates: Counter[int] = Counter()
        inserts: Counter[str] = Counter()
        for row, at in zip(found, numbers, strict=True):
            updates.update(dict.fromkeys(at, int(row["count"])))
            if not at:
                inserts[row[PARTITION_PATH]] += int(row["count"])
        table = pa.table(
            {
                PARTITION_PATH: pa.array([row[PARTITION_PATH] for row in found], pa.string()),
                _CELL: pa.array([row[_CELL] for row in found], pa.int32()),
                FILES: pa.array([list(at) for at in numbers], pa.list_(pa.int32())),
            }
        )
        routes = F.broadcast(small_frame(incoming.session, table))
        rows = bucketed.join(routes, [PARTITION_PATH, _CELL], "left").withColumn(FILE, F.explode_outer(FILES)).drop(FILES)
        return cls(incoming, tuple(known.places), rows.drop(_CELL), dict(inserts), dict(updates), not incoming.combine)

    def profile(self) -> WorkloadProfile:
        """Counts of rows; upper bounds while duplicates are still to be combined."""
        updates, inserts = Counter(dict(self.update_counts)), Counter(dict(self.insert_counts))
        if self.moved is not None:
            updates.update(self.moved.updates)
            inserts.update(self.moved.inserts)
        return WorkloadProfile(_by_group(self.places, updates), dict(inserts), self.exact)

    def without_existing(self) -> ManyTagged:
        """Only rows that stand nowhere."""
        return replace(self, rows=self.rows.where(column(FILE).isNull()), update_counts={}, moved=None)

    def write(self, plan: WritePlan) -> list[WriteStatus]:
        """Each file group in one task."""
        groups = _Groups(plan, self.places, parallelism(self.incoming.session))
        used = [groups.of_places[np.array(sorted(self.update_counts), dtype=np.int64)]] if self.update_counts else []
        used += [np.array([number for path in self.insert_counts for number, _ in groups.inserts.get(path, ())], dtype=np.int64)]
        labels = groups.label(np.concatenate([*used, groups.numbers_of(self.moved)]))
        return _write_groups(
            self.incoming,
            plan,
            groups,
            labels,
            _placed(self.rows, groups, labels),
            moved=self.moved,
            combine=self.incoming.combine,
        )


@dataclass(frozen=True, slots=True)
class _Moved:
    """Settled moves: rows in the incoming layout with DELETE_COLUMN and FILE, and their counts."""

    rows: DataFrame
    updates: Mapping[int, int]
    inserts: Mapping[str, int]


class _Groups:
    """The file groups of a plan, numbered.

    of_places: for each looked-up file the number of its group.  inserts: partition path -> (group, rows) of its targets, in
    order.
    """

    def __init__(self, plan: WritePlan, places: Sequence[Place], cores: int) -> None:
        self._cores = cores
        self.targets: list[GroupTarget] = []
        self._weights: list[int] = []
        self._known: dict[tuple[str, str], int] = {}
        self._plan = plan
        self.of_places: Ints = np.array([self._number(place.partition, place.file_id, 0) for place in places], dtype=np.int64)
        self.inserts: dict[str, list[tuple[int, int]]] = {
            path: [(self._number(t.partition, t.file_id, t.row_count), t.row_count) for t in targets]
            for path, targets in plan.inserts.items()
            if targets
        }

    def numbers_of(self, moved: _Moved | None) -> Ints:
        """The groups that settled moves may go to."""
        if moved is None:
            return np.zeros(0, np.int64)
        inserts = [number for path in moved.inserts for number, _ in self.inserts.get(path, ())]
        updates = self.of_places[np.array(sorted(moved.updates), dtype=np.int64)]
        return np.concatenate([updates, np.array(inserts, dtype=np.int64)])

    def label(self, used: Ints) -> Ints:
        """For each group its label, -1 for those not used.

        The label modulo `task_count` is the task; heavy groups are spread first.
        """
        labels = np.full(len(self.targets), -1, dtype=np.int64)
        numbers = np.unique(used)
        tasks = self.task_count = max(1, min(len(numbers), _TASKS_A_CORE * self._cores))
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
        # Rewriting a byte and writing a new row of some hundred bytes cost about the same.
        self._weights.append(base.size_bytes if base is not None else row_count * 100)
        return len(self.targets) - 1


def _write_groups(
    incoming: SparkIncoming,
    plan: WritePlan,
    groups: _Groups,
    labels: Ints,
    rows: DataFrame | None,
    *,
    moved: _Moved | None,
    combine: bool,
) -> list[WriteStatus]:
    """rows: the incoming layout, GROUP (a label), and ORDER when combining."""
    _check_reachable(plan.spec)
    schema = incoming.schema
    if moved is not None:
        schema = _with_delete(schema)
        placed = _placed(moved.rows, groups, labels)
        names = [*schema.names, GROUP]
        settled = placed.select(*map(quoted, names))
        if rows is None:
            rows = settled
        else:
            flagged = rows if DELETE_COLUMN in rows.columns else rows.withColumn(DELETE_COLUMN, F.lit(False))
            rows = flagged.select(*map(quoted, names)).unionByName(settled)
        combine = False
    if rows is None:
        return []
    schema = wire_schema(schema)
    sort = [GROUP, RECORD_KEY, ORDER] if combine else [GROUP]
    kept = rows.select(*map(quoted, [*schema.names, GROUP, *([ORDER] if combine else [])]))
    routed = kept.repartitionById(groups.task_count, column(GROUP)).sortWithinPartitions(*sort)
    targets = {int(label): groups.targets[number] for number, label in enumerate(labels.tolist()) if label >= 0}
    rule = incoming.rule if combine else None
    job = WriteGroups(plan.writer, schema, targets, rule, incoming.budget_bytes)
    with translated_errors(), spark_stage(incoming.session, "write"):
        return decode_statuses(routed.mapInArrow(job, STATUS_SCHEMA).toArrow())


def _placed(rows: DataFrame, groups: _Groups, labels: Ints) -> DataFrame:
    """Rows with FILE to rows with GROUP.

    Inserts are dealt out over their targets by the hash of their key; those without a target are dropped (a delete has none).
    """
    session = rows.sparkSession
    if len(groups.of_places):
        files = pa.table(
            {
                FILE: pa.array(range(len(groups.of_places)), pa.int32()),
                "#update": pa.array(labels[groups.of_places], pa.int32()),
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


def _settle(incoming: SparkIncoming, request: TagRequest, rows: DataFrame) -> _Moved:
    """rows: the incoming layout and FILES."""
    job = SettleMoves(request, incoming.schema)
    spark_schema = to_spark_schema(wire_schema(_with_delete(incoming.schema))).add(FILE, T.IntegerType())
    first = F.element_at(FILES, 1)
    by_file = rows.repartitionById(min(len(request.places), incoming.task_count()), first).sortWithinPartitions(first)
    settled = incoming.keep(by_file.select(*map(quoted, [*incoming.schema.names, FILES])).mapInArrow(job, spark_schema))
    with translated_errors():
        counts = settled.groupBy(FILE, PARTITION_PATH).count().collect()
    updates: Counter[int] = Counter()
    inserts: Counter[str] = Counter()
    for row in counts:
        if row[FILE] is None:
            inserts[row[PARTITION_PATH]] += int(row["count"])
        else:
            updates[row[FILE]] += int(row["count"])
    return _Moved(settled, updates, inserts)


def _with_delete(schema: pa.Schema) -> pa.Schema:
    return schema if DELETE_COLUMN in schema.names else schema.append(pa.field(DELETE_COLUMN, pa.bool_()))


def _with_path(rows: DataFrame, path: Column) -> DataFrame:
    return rows.withColumn("#path", path).drop(PARTITION_PATH).withColumnRenamed("#path", PARTITION_PATH)


def _files_by_key(keys: KeyTable, pair_row: Ints, pair_place: Ints) -> pa.Table:
    order = np.lexsort((pair_place, pair_row))
    rows, starts = np.unique(pair_row[order], return_index=True)
    files = pa.ListArray.from_arrays(pa.array(np.r_[starts, len(order)], pa.int32()), pa.array(pair_place[order], pa.int32()))
    at = pa.array(rows)
    return pa.table({RECORD_KEY: keys.keys.take(at), PARTITION_PATH: keys.path_array().take(at), FILES: files})


def _by_group(places: Sequence[Place], counts: Mapping[int, int]) -> dict[tuple[str, str], int]:
    return {(places[number].partition, places[number].file_id): count for number, count in sorted(counts.items())}


# Preparation


def _prepared(frame: DataFrame, given: pa.Schema, request: PrepareRequest) -> DataFrame:
    rows = _key_rows(frame, given, request) if request.keys_only else _native_rows(frame, given, request)
    if rows is None:
        schema = to_spark_schema(incoming_schema(request))
        rows = frame.mapInArrow(_Prepare(request), schema)
    return rows.withColumn(ORDER, F.monotonically_increasing_id()) if request.combine else rows


class _Prepare:
    """Rows to the incoming layout, for columns that need a cast which Spark does otherwise than Hudi."""

    def __init__(self, request: PrepareRequest) -> None:
        self._request = request

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from prepared(self._request, batches, task_token().partition)


def _native_rows(frame: DataFrame, given: pa.Schema, request: PrepareRequest) -> DataFrame | None:
    """The incoming layout as native expressions; None when a column needs a cast that has to be Hudi's."""
    data: list[Column | str] = []
    taken = request.taken_schema
    types = to_spark_schema(taken)
    nulls = {field.name for field in given if pa.types.is_null(field.type)}
    given = typed_nulls(given, taken)
    columns = normalise(pa.schema([field for field in given if field.name not in (*META_COLUMNS, DELETE_COLUMN)]))
    held = set(columns.names)
    for field, spark in zip(taken, types.fields, strict=True):
        if field.name not in held:
            if not field.nullable and column_default(field) is not None:
                return None
            if not field.nullable:
                raise InvalidRequest(f"column {field.name!r} is missing and may not be null")
            data.append(F.lit(None).cast(spark.dataType).alias(field.name))
            continue
        raw, normal = given.field(field.name), columns.field(field.name)
        why = ""
        if not field.nullable and raw.nullable:
            why = f"column {field.name!r} may not be null, and is in a row"
        elif field.name in request.required_ordering:
            why = f"the ordering field {field.name!r} is null in a row"
        if field.name in nulls:
            value = column(field.name).cast(spark.dataType)
        elif same_type(raw.type, field.type):
            if not why:
                data.append(quoted(field.name))
                continue
            value = column(field.name)
        elif _safe_cast(raw.type, field.type) or (same_type(normal.type, field.type) and _safe_cast(raw.type, normal.type)):
            value = column(field.name).cast(spark.dataType)
        else:
            return None
        if why:
            missing = value.isNull()
            if request.marks_deletes and field.nullable:
                # What only deletes its key is compared with nothing.
                missing = missing & ~column(DELETE_COLUMN)
            value = F.when(missing, F.raise_error(F.lit(f"{REFUSAL}{why}"))).otherwise(value)
        data.append(value.alias(field.name))
    key = (
        auto_key_column(request.instant_time)
        if request.keys.generates_keys
        else key_column(request.keys, _fitting(columns, taken))
    )
    path = path_column(request.keys, _fitting(columns, taken))
    marked = [quoted(DELETE_COLUMN)] if request.marks_deletes else []
    cast = frame.select(*data, *marked)
    # Keys are made of the cast values, as the embedded engine makes them.
    return cast.select(key.alias(RECORD_KEY), path.alias(PARTITION_PATH), *map(quoted, request.data_schema.names), *marked)


def _fitting(columns: pa.Schema, data_schema: pa.Schema) -> pa.Schema:
    """The table's columns, nullable where the incoming ones are."""
    fields, held = [], set(columns.names)
    for field in data_schema:
        nullable = field.nullable if field.name not in held else columns.field(field.name).nullable and field.nullable
        fields.append(field.with_nullable(nullable))
    return pa.schema(fields)


def _key_rows(frame: DataFrame, given: pa.Schema, request: PrepareRequest) -> DataFrame:
    if {RECORD_KEY, PARTITION_PATH} <= set(given.names):
        why = F.raise_error(F.lit(f"{REFUSAL}{RECORD_KEY} is null in a row to delete"))
        key = F.when(column(RECORD_KEY).isNull(), why).otherwise(column(RECORD_KEY))
        path = F.coalesce(PARTITION_PATH, F.lit(""))
    else:
        columns = normalise(pa.schema([field for field in given if field.name not in META_COLUMNS]))
        key = key_column(request.keys, columns)
        named = all(name.split(".")[0] in given.names for name in partition_columns(request.keys))
        path = path_column(request.keys, columns) if named else F.lit(PLACEHOLDER_PARTITION)
    return frame.select(
        key.cast("string").alias(RECORD_KEY), path.cast("string").alias(PARTITION_PATH), F.lit(True).alias(DELETE_COLUMN)
    )


def _safe_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Spark's cast gives the value that `records.conform` gives, for each value and in every session."""
    types = pa.types
    if types.is_integer(source) and types.is_integer(target):
        return bool(source.bit_width <= target.bit_width)
    if types.is_integer(source) and types.is_floating(target):
        # A number that would be rounded has to be refused, which Spark's cast does not.
        return bool(source.bit_width <= 32 and types.is_float64(target))
    if types.is_integer(source) and types.is_string(target):
        return True
    if types.is_decimal(source) and types.is_decimal(target):
        return bool(source.scale <= target.scale and source.precision - source.scale <= target.precision - target.scale)
    return bool(types.is_date32(source) and types.is_string(target))


def _frame(data: Any) -> DataFrame:
    if isinstance(data, DataFrame):
        return data
    raise InvalidRequest(f"the Spark engine takes a Spark DataFrame, not {type(data).__module__}.{type(data).__name__}")


def _check_reachable(spec: WriterSpec) -> None:
    if spec.storage.uri.startswith("memory:"):
        raise Unsupported(
            f"{spec.storage.uri} lives in the memory of one process, which Spark's workers cannot reach; "
            "use a path or an object store"
        )
