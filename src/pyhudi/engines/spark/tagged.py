"""Tagged rows (with their file groups): by keys on the driver, or by a column of each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyhudi.engines.spark.distributed_lookup import KEY_PARTITIONS, Ints, KeyTable, cell_column
from pyhudi.engines.spark.job_progress import spark_stage
from pyhudi.engines.spark.jobs import parallelism, translated_errors
from pyhudi.engines.spark.routing import ClusterRows, Groups, ResolvedMoves, RowCounts, with_delete, with_groups, write_routed
from pyhudi.engines.spark.type_conversion import DataFrame, column, quote_spark_name, small_frame, to_spark_schema
from pyhudi.engines.spark.worker_tasks import FILE, FILES, GROUP, KEY_PARTITION, ResolveMoves, wire_schema
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.planning.record_placement import WorkloadProfile, assign_inserts
from pyhudi.records.keys.partition_paths import PLACEHOLDER_PARTITION
from pyhudi.tasks.bucket_assignment import BucketCandidates
from pyhudi.tasks.engine_protocol import TagRequest, WritePlan
from pyhudi.tasks.tag_location import FileGroupCandidate, LookupByBuckets
from pyhudi.tasks.write_tasks import WriteStatus

_CELL = "#cell"


@dataclass(frozen=True, slots=True)
class DriverTagged:
    """Rows whose keys are known to the driver.

    Attributes:
        incoming: The rows of the write.
        candidates: The looked-up file groups.
        keys: Distinct keys.
        pair_row: A key (its number in `keys`) of each pair.
        pair_candidate: The candidate of each pair.
        uses_stored_partition: Such rows get the partition path of their candidate.
        inserts: Keys that do not exist in the table.
        moved: Rows that changed their partition, resolved (see ResolveMoves).
    """

    incoming: ClusterRows
    candidates: tuple[FileGroupCandidate, ...]
    keys: KeyTable
    pair_row: Ints
    pair_candidate: Ints
    uses_stored_partition: bool
    inserts: Ints
    moved: ResolvedMoves | None

    @classmethod
    def of(cls, incoming: ClusterRows, request: TagRequest, keys: KeyTable, pair_row: Ints, pair_candidate: Ints) -> DriverTagged:
        """From the pairs of a lookup."""
        is_found = np.zeros(len(keys.keys), dtype=np.bool_)
        is_found[pair_row] = True
        inserts = np.flatnonzero(~is_found).astype(np.int64)
        if not request.global_keys or not len(pair_row):
            return cls(incoming, request.candidates, keys, pair_row, pair_candidate, False, inserts, None)
        incoming_paths = np.array(keys.paths, dtype=object)[keys.path_codes[pair_row]]
        candidate_paths = np.array([place.partition for place in request.candidates], dtype=object)[pair_candidate]
        away = (candidate_paths != incoming_paths) & (incoming_paths != PLACEHOLDER_PARTITION)
        if not request.update_partition_path or not away.any():
            return cls(incoming, request.candidates, keys, pair_row, pair_candidate, True, inserts, None)
        # A record moves as a whole: if one copy is in another partition, all its copies are resolved together.
        moving_keys = np.unique(pair_row[away])
        moving = np.isin(pair_row, moving_keys)
        table = _files_by_key(keys, pair_row[moving], pair_candidate[moving])
        moved = _resolve(
            incoming,
            request,
            incoming.rows.join(F.broadcast(incoming.session.createDataFrame(table)), [RECORD_KEY, PARTITION_PATH]),
        )
        return cls(incoming, request.candidates, keys, pair_row[~moving], pair_candidate[~moving], True, inserts, moved)

    def profile(self) -> WorkloadProfile:
        """Counts of distinct keys, exact even before duplicates are combined."""
        numbers, sizes = np.unique(self.pair_candidate, return_counts=True)
        updates = Counter(dict(zip(numbers.tolist(), sizes.tolist(), strict=True)))
        codes, sizes = np.unique(self.keys.path_codes[self.inserts], return_counts=True)
        inserts = Counter({self.keys.paths[code]: size for code, size in zip(codes.tolist(), sizes.tolist(), strict=True)})
        if self.moved is not None:
            updates.update(self.moved.updates)
            inserts.update(self.moved.inserts)
        return WorkloadProfile(_by_group(self.candidates, updates), dict(inserts))

    def without_existing(self) -> DriverTagged:
        """Only rows whose key does not exist in the table."""
        nothing = np.zeros(0, np.int64)
        return replace(self, pair_row=nothing, pair_candidate=nothing, moved=None)

    def write(self, plan: WritePlan) -> list[WriteStatus]:
        """Write each file group in one task."""
        groups = Groups(plan, self.candidates, parallelism(self.incoming.session))
        row, number = self._placed(groups)
        labels = groups.label(np.concatenate([number, groups.group_numbers(self.moved)]))
        rows = None
        if len(row):
            route = self._route(row, labels[number])
            joined = self.incoming.rows.join(F.broadcast(route), [c for c in route.columns if c in (RECORD_KEY, PARTITION_PATH)])
            path = column(KEY_PARTITION) if KEY_PARTITION in route.columns else column(PARTITION_PATH)
            rows = _with_path(joined, path)
        combine = self.incoming.combine and self.keys.has_duplicates
        if self.incoming.combine:
            self.incoming.count_combined(int(self.keys.row_counts.sum()) - len(self.keys.keys))
        counts = np.bincount(labels[number], self.keys.row_counts[row]).astype(np.int64)
        expected = RowCounts(int(counts.sum()), dict(enumerate(counts.tolist())))
        statuses, _ = write_routed(
            self.incoming, plan, groups, labels, rows, expected=expected, moved=self.moved, combine=combine
        )
        return statuses

    def _placed(self, groups: Groups) -> tuple[Ints, Ints]:
        """Keys and the group number of each; inserts fill their targets in order."""
        rows, numbers = (
            [self.pair_row],
            [groups.for_candidates[self.pair_candidate] if len(self.pair_candidate) else self.pair_candidate],
        )
        codes = self.keys.path_codes[self.inserts]
        for code, path in enumerate(self.keys.paths):
            targets = groups.inserts.get(path)
            if targets is None:
                continue
            partition_keys = self.inserts[codes == code]
            which = assign_inserts([count for _, count in targets], 0, len(partition_keys))
            rows.append(partition_keys)
            numbers.append(np.array([number for number, _ in targets], dtype=np.int64)[which])
        return np.concatenate(rows), np.concatenate(numbers)

    def _route(self, row: Ints, labels: Ints) -> DataFrame:
        at = pa.array(row)
        columns: dict[str, pa.Array] = {RECORD_KEY: self.keys.keys.take(at)}
        if not self.keys.keys_are_unique:
            columns[PARTITION_PATH] = self.keys.path_array().take(at)
        columns[GROUP] = pa.array(labels, pa.int32())
        if self.uses_stored_partition:
            candidate_paths = pa.array([place.partition for place in self.candidates], pa.string()).take(
                pa.array(self.pair_candidate)
            )
            incoming_paths = self.keys.path_array().take(pa.array(row[len(self.pair_row) :]))
            columns[KEY_PARTITION] = pa.concat_arrays([candidate_paths, incoming_paths])
        return self.incoming.session.createDataFrame(pa.table(columns))


@dataclass(frozen=True, slots=True)
class DistributedTagged:
    """Rows with their location: the incoming layout, ORDER, and FILE (the number of a candidate), null for inserts.

    insert_counts: inserts by partition path, an upper bound.  update_counts: by number of the file.
    """

    incoming: ClusterRows
    candidates: tuple[FileGroupCandidate, ...]
    rows: DataFrame
    insert_counts: Mapping[str, int]
    update_counts: Mapping[int, int]
    exact: bool
    moved: ResolvedMoves | None = None

    @classmethod
    def of(cls, incoming: ClusterRows, request: TagRequest, hits: DataFrame) -> DistributedTagged:
        """From the hits of a lookup (see `lookup_distributed`)."""
        names = [RECORD_KEY] if request.global_keys else [RECORD_KEY, PARTITION_PATH]
        joined = incoming.rows.join(hits, names, "left")
        moved = None
        if request.global_keys and request.update_partition_path and request.candidates:
            stays = (
                column(FILES).isNull()
                | (column(PARTITION_PATH) == PLACEHOLDER_PARTITION)
                | ((F.size(KEY_PARTITIONS) == 1) & (F.element_at(KEY_PARTITIONS, 1) == column(PARTITION_PATH)))
            )
            moved = _resolve(incoming, request, joined.where(~stays))
            joined = joined.where(stays)
        rows = joined.withColumn(FILE, F.explode_outer(FILES))
        with translated_errors(), spark_stage(incoming.session, "find keys"):
            # One job counts both: updates by file number, inserts by partition path.
            path = F.when(column(FILE).isNull(), column(PARTITION_PATH)).alias(PARTITION_PATH)
            counted = rows.select(FILE, path).groupBy(FILE, PARTITION_PATH).count().collect()
        if request.global_keys:
            homes = pa.table(
                {
                    FILE: pa.array(range(len(request.candidates)), pa.int32()),
                    KEY_PARTITION: pa.array([place.partition for place in request.candidates], pa.string()),
                }
            )
            placed = rows.join(F.broadcast(incoming.session.createDataFrame(homes)), FILE, "left")
            rows = placed.withColumn(PARTITION_PATH, F.coalesce(KEY_PARTITION, PARTITION_PATH))
        return cls(
            incoming,
            request.candidates,
            rows,
            {row[PARTITION_PATH]: int(row["count"]) for row in counted if row[FILE] is None},
            {row[FILE]: int(row["count"]) for row in counted if row[FILE] is not None},
            not incoming.combine,
            moved,
        )

    @classmethod
    def of_buckets(cls, incoming: ClusterRows, request: TagRequest, lookup: LookupByBuckets) -> DistributedTagged:
        """Rows with the candidates of their buckets; the driver collects the counts of the occurring cells."""
        bucketed = incoming.persist(incoming.rows.withColumn(_CELL, cell_column(lookup.layout, request.spec.keys)))
        with translated_errors():
            cell_counts = bucketed.groupBy(PARTITION_PATH, _CELL).count().collect()
        known = BucketCandidates(request.candidates, lookup)
        numbers = [known.numbers(row[PARTITION_PATH], row[_CELL]) for row in cell_counts]
        updates: Counter[int] = Counter()
        inserts: Counter[str] = Counter()
        for row, at in zip(cell_counts, numbers, strict=True):
            updates.update(dict.fromkeys(at, int(row["count"])))
            if not at:
                inserts[row[PARTITION_PATH]] += int(row["count"])
        table = pa.table(
            {
                PARTITION_PATH: pa.array([row[PARTITION_PATH] for row in cell_counts], pa.string()),
                _CELL: pa.array([row[_CELL] for row in cell_counts], pa.int32()),
                FILES: pa.array([list(at) for at in numbers], pa.list_(pa.int32())),
            }
        )
        routes = F.broadcast(small_frame(incoming.session, table))
        rows = bucketed.join(routes, [PARTITION_PATH, _CELL], "left").withColumn(FILE, F.explode_outer(FILES)).drop(FILES)
        return cls(incoming, tuple(known.candidates), rows.drop(_CELL), dict(inserts), dict(updates), not incoming.combine)

    def profile(self) -> WorkloadProfile:
        """Counts of rows; upper bounds until duplicates are combined."""
        updates, inserts = Counter(dict(self.update_counts)), Counter(dict(self.insert_counts))
        if self.moved is not None:
            updates.update(self.moved.updates)
            inserts.update(self.moved.inserts)
        return WorkloadProfile(_by_group(self.candidates, updates), dict(inserts), self.exact)

    def without_existing(self) -> DistributedTagged:
        """Only rows whose key does not exist in the table."""
        return replace(self, rows=self.rows.where(column(FILE).isNull()), update_counts={}, moved=None)

    def write(self, plan: WritePlan) -> list[WriteStatus]:
        """Write each file group in one task."""
        groups = Groups(plan, self.candidates, parallelism(self.incoming.session))
        used = [groups.for_candidates[np.array(sorted(self.update_counts), dtype=np.int64)]] if self.update_counts else []
        used += [np.array([number for path in self.insert_counts for number, _ in groups.inserts.get(path, ())], dtype=np.int64)]
        labels = groups.label(np.concatenate([*used, groups.group_numbers(self.moved)]))
        expected = RowCounts.of_files(groups, labels, self.update_counts, self.insert_counts)
        statuses, dropped = write_routed(
            self.incoming,
            plan,
            groups,
            labels,
            with_groups(self.rows, groups, labels),
            expected=expected,
            moved=self.moved,
            combine=self.incoming.combine,
        )
        if self.incoming.combine:
            # The tasks have not received rows without a target, and those of keys in several file groups repeatedly.
            tagged = sum(self.update_counts.values()) + sum(self.insert_counts.values())
            is_exact = expected.total == tagged == self.incoming.given_count()
            self.incoming.count_combined(dropped if is_exact else self.incoming.given_count() - self.incoming.key_count())
        return statuses


def _resolve(incoming: ClusterRows, request: TagRequest, rows: DataFrame) -> ResolvedMoves:
    """Resolve partition changes.  rows: the incoming layout and FILES."""
    job = ResolveMoves(request, incoming.schema)
    spark_schema = to_spark_schema(wire_schema(with_delete(incoming.schema))).add(FILE, T.IntegerType())
    first = F.element_at(FILES, 1)
    by_file = rows.repartitionById(min(len(request.candidates), incoming.task_count()), first).sortWithinPartitions(first)
    settled = incoming.persist(
        by_file.select(*map(quote_spark_name, [*incoming.schema.names, FILES])).mapInArrow(job, spark_schema)
    )
    with translated_errors():
        counts = settled.groupBy(FILE, PARTITION_PATH).count().collect()
    updates: Counter[int] = Counter()
    inserts: Counter[str] = Counter()
    for row in counts:
        if row[FILE] is None:
            inserts[row[PARTITION_PATH]] += int(row["count"])
        else:
            updates[row[FILE]] += int(row["count"])
    return ResolvedMoves(settled, updates, inserts)


def _with_path(rows: DataFrame, path: Column) -> DataFrame:
    return rows.withColumn("#path", path).drop(PARTITION_PATH).withColumnRenamed("#path", PARTITION_PATH)


def _files_by_key(keys: KeyTable, pair_row: Ints, pair_candidate: Ints) -> pa.Table:
    order = np.lexsort((pair_candidate, pair_row))
    rows, starts = np.unique(pair_row[order], return_index=True)
    files = pa.ListArray.from_arrays(pa.array(np.r_[starts, len(order)], pa.int32()), pa.array(pair_candidate[order], pa.int32()))
    at = pa.array(rows)
    return pa.table({RECORD_KEY: keys.keys.take(at), PARTITION_PATH: keys.path_array().take(at), FILES: files})


def _by_group(candidates: Sequence[FileGroupCandidate], counts: Mapping[int, int]) -> dict[tuple[str, str], int]:
    return {(candidates[number].partition, candidates[number].file_id): count for number, count in sorted(counts.items())}
