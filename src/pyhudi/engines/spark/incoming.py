"""The rows of a write on the cluster: prepared, cached, measured and looked up."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyhudi import features
from pyhudi.engines.spark.dataframe_cache import CacheSettingGuard
from pyhudi.engines.spark.distributed_lookup import (
    FEW_KEY_BYTES,
    FEW_KEYS,
    KeyTable,
    check_index_groups,
    lookup_distributed,
    lookup_on_driver,
    lookup_record_index_distributed,
    lookup_record_index_on_driver,
)
from pyhudi.engines.spark.input_frames import without_variants
from pyhudi.engines.spark.job_progress import spark_stage
from pyhudi.engines.spark.jobs import parallelism, translated_errors
from pyhudi.engines.spark.prepare_rows import prepared_rows
from pyhudi.engines.spark.resolve_hits import resolve_live_hits
from pyhudi.engines.spark.routing import TASKS_A_CORE, check_reachable
from pyhudi.engines.spark.tagged import DistributedTagged, DriverTagged
from pyhudi.engines.spark.type_conversion import (
    DataFrame,
    SparkSession,
    column,
    quote_spark_name,
    select_expressions,
    to_arrow_schema,
    to_spark_schema,
)
from pyhudi.engines.spark.worker_tasks import (
    FILE,
    ORDER,
    STATUS_SCHEMA,
    AttemptGuard,
    CombineKeys,
    WritePartitions,
    decode_statuses,
    wire_schema,
)
from pyhudi.errors import Unsupported
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.records.record_merge import RecordMergeRule
from pyhudi.records.schema_cast import conform_table
from pyhudi.tasks.engine_protocol import BulkPlan, PrepareRequest, TagRequest
from pyhudi.tasks.hbase_lookup import LookupInHbaseIndex
from pyhudi.tasks.incoming_rows import incoming_schema
from pyhudi.tasks.tag_location import LookupByBuckets, LookupByKeyColumns, LookupByRecordIndex
from pyhudi.tasks.write_tasks import WriteStatus

_LONGEST_FEW_KEY = 256
"""Maximum size of a key in bytes for collecting keys on the driver: a longer key makes the keys count as many."""

_FEWEST_ROWS_A_TASK = 20_000
_MOST_ROWS_A_TASK = 1_000_000

_MAX_ROWS_COLLECTED_UNMEASURED = 4096
_USUAL_WIDTH = 64
"""Estimated bytes of a row's variable-width columns, half of what is allowed when few rows are collected before being measured.
"""

_FITS = "`#fits`"
_AT = "`#at`"

_TASKS_SHARING_A_BUDGET = 4
"""Assumed concurrent tasks of an executor process; each gets its share of the memory budget."""


class FrameIncoming:
    """Prepared rows: the incoming layout, and ORDER until duplicates are combined."""

    def __init__(self, session: SparkSession, frame: DataFrame, request: PrepareRequest) -> None:
        """frame: the caller's rows."""
        self._session = session
        self._frame = frame
        self._persisted: list[DataFrame] = []
        self._plain = CacheSettingGuard(session)
        self._start(request)

    def _start(self, request: PrepareRequest) -> None:
        """Start from the caller's rows, prepared by a request."""
        self._request = request
        self._counts: dict[str, int] | None = None
        self._few: KeyTable | None = None
        self._measure: tuple[int, int] | None = None
        self._kept = False
        self._given: int | None = None
        self._combined: int | None = None if request.combine else 0
        self.rows = prepared_rows(self._frame, to_arrow_schema(self._frame.schema), request)
        self.schema = incoming_schema(request)
        self.combine = request.combine

    @property
    def session(self) -> SparkSession:
        """The session of the rows."""
        return self._session

    @property
    def rule(self) -> RecordMergeRule:
        """The merge rule between incoming records of one key."""
        return self._request.rule

    @property
    def budget_bytes(self) -> int:
        """Bytes of incoming rows that one task may buffer in memory."""
        return task_budget(self._request)

    def measured(self) -> tuple[int, int]:
        """Number of rows, and their approximate size in bytes as Arrow. Computes the rows and caches them until `release`."""
        if self._measure is None:
            self._keep_rows()
            wide, per_row = _row_bytes(self.schema)
            counted = self.rows.agg(F.count(F.lit(1)).alias("n"), F.expr(f"sum({wide})").alias("wide"))
            with translated_errors(), spark_stage(self.session, "prepare rows"):
                (row,) = counted.collect()
            self._measure = int(row["n"]), int(row["wide"] or 0) + per_row * int(row["n"])
        return self._measure

    def collect_if_small(self) -> pa.Table | None:
        """All rows in order, if one bounded query can collect them; None if they are too many or too wide.

        Computes the rows and caches them until `release`, so that a subsequent measurement uses the cache.
        """
        wide, per_row = _row_bytes(self.schema)
        most, widest = _few_rows(self._request.driver_batch_bytes, per_row)
        if not most:
            return None
        self._keep_rows()
        numbered = self.rows.selectExpr("*", f"{wide} <= {widest} AS {_FITS}", f"monotonically_increasing_id() AS {_AT}")
        columns = [_null_if_too_wide(field, part) for field, part in zip(self.schema, _optional_parts(self.schema), strict=True)]
        with translated_errors(), spark_stage(self.session, "take rows"):
            collected = without_variants(select_expressions(numbered, [*columns, _FITS, _AT]).limit(most + 1)).toArrow()
        *values, fits, at = collected.columns
        if collected.num_rows > most or not pc.all(fits, min_count=0).as_py():
            return None
        # A limit may return partitions in any order.
        rows = pa.table(values, names=self.schema.names).take(pc.sort_indices(at))
        return conform_table(rows, wire_schema(self.schema))

    def collect(self) -> pa.Table:
        """All rows in order; `measured` returns the size that the driver receives."""
        with translated_errors(), spark_stage(self.session, "take rows"):
            collected = without_variants(self.rows.select(*_optional_parts(self.schema))).toArrow()
        return conform_table(collected, wire_schema(self.schema))

    def partitions(self) -> dict[str, int]:
        """Rows by partition path, before duplicates are combined.  Computes the rows and caches them until `release`."""
        if self._counts is None:
            row_count, _ = self.measured()
            if self._request.lookup_columns and row_count <= FEW_KEYS:
                self._counts = self._collect_few_keys()
        if self._counts is None:
            grouped = self.rows.groupBy(PARTITION_PATH).agg(F.count(F.lit(1)).alias("n"))
            with translated_errors(), spark_stage(self.session, "prepare rows"):
                path_counts = grouped.collect()
            self._counts = {row[PARTITION_PATH]: int(row["n"]) for row in path_counts}
        if self._given is None:
            self._given = sum(self._counts.values())
        return dict(self._counts)

    def given_count(self) -> int:
        """Number of rows before duplicates are combined.  Computes the rows and caches them until `release`."""
        if self._given is None:
            self.partitions()
        assert self._given is not None, "counting the partitions counts the rows"
        return self._given

    def row_counts(self) -> tuple[int | None, int | None]:
        """Return the numbers of rows given, and of rows dropped for another one of their key; None if not known."""
        return self._given, self._combined

    def key_count(self) -> int:
        """Number of different keys of the cached rows."""
        columns = [RECORD_KEY] if self._request.global_keys else [RECORD_KEY, PARTITION_PATH]
        with translated_errors(), spark_stage(self.session, "count keys"):
            return self.rows.select(*columns).distinct().count()

    def count_combined(self, dropped: int) -> None:
        """Record how many rows were dropped for another one of their key."""
        self._combined = dropped

    def _collect_few_keys(self) -> dict[str, int] | None:
        """Collect the keys on the driver and count rows by partition path; None if there are too many."""
        short = F.when(F.octet_length(RECORD_KEY) <= _LONGEST_FEW_KEY, column(RECORD_KEY)).alias(RECORD_KEY)
        with translated_errors(), spark_stage(self.session, "prepare rows"):
            collected = self.rows.select(short, PARTITION_PATH).toArrow()
        keys = collected.column(RECORD_KEY)
        if keys.nbytes > FEW_KEY_BYTES or keys.null_count:
            return None
        self._few = KeyTable.of(collected)
        return {entry["values"]: entry["counts"] for entry in pc.value_counts(collected.column(PARTITION_PATH)).to_pylist()}

    def tag(self, request: TagRequest) -> DriverTagged | DistributedTagged:
        """Look up the keys; with a global index also resolve records whose partition changed."""
        check_reachable(request.spec)
        lookup = request.lookup
        if isinstance(lookup, LookupByBuckets):
            return DistributedTagged.of_buckets(self, request, lookup)
        self.partitions()
        uses_cache = isinstance(lookup, LookupByKeyColumns) and lookup.use_cache
        if self._few is None and not uses_cache:
            if request.global_keys:
                self._combine_now()
            if isinstance(lookup, LookupByRecordIndex):
                hits = check_index_groups(self.persist(lookup_record_index_distributed(self.session, self.rows, request, lookup)))
            elif isinstance(lookup, LookupInHbaseIndex):
                hbase_hits = self.persist(
                    features.load("hbase_index", "index HBASE").lookup_hbase_distributed(
                        self.session, self.rows, request, lookup, self.persist
                    )
                )
                hits = resolve_live_hits(self.session, hbase_hits, request, self.persist)
            else:
                hits = resolve_live_hits(
                    self.session, self.persist(lookup_distributed(self.session, self.rows, request)), request, self.persist
                )
            return DistributedTagged.of(self, request, hits)
        keys = self._few or KeyTable.collect(self.rows)
        if request.global_keys and self.combine and (keys.has_duplicates or not keys.keys_are_unique):
            self._combine_now()
            keys = KeyTable.collect(self.rows)
        if isinstance(lookup, LookupByRecordIndex):
            pair_row, pair_place = lookup_record_index_on_driver(self.session, keys, request, lookup)
        elif isinstance(lookup, LookupInHbaseIndex):
            pair_row, pair_place = features.load("hbase_index", "index HBASE").lookup_hbase_on_driver(
                self.session, keys, request, lookup
            )
        else:
            pair_row, pair_place = lookup_on_driver(self.session, keys, request)
        return DriverTagged.of(self, request, keys, pair_row, pair_place)

    def untagged(self) -> DistributedTagged:
        """All rows as inserts."""
        return DistributedTagged(
            self, (), self.rows.withColumn(FILE, F.lit(None).cast("int")), self.partitions(), {}, not self.combine
        )

    def write_bulk(self, plan: BulkPlan) -> list[WriteStatus]:
        """Write all rows to new file groups."""
        check_reachable(plan.spec)
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
            answers = rows.mapInArrow(AttemptGuard(job, plan.spec), STATUS_SCHEMA).toArrow()
        if self._given is None:
            self._given = sum(answers.column("rows").to_pylist())
        if self.combine:
            self._combined = sum(answers.column("combined").to_pylist())
        return decode_statuses(answers)

    def refit(self, request: PrepareRequest) -> None:
        """Prepare the caller's rows again."""
        self.release()
        self._start(request)

    def release(self) -> None:
        """Release the cached rows in Spark."""
        for frame in self._persisted:
            frame.unpersist()
        self._persisted.clear()
        self._plain.release()

    def persist(self, frame: DataFrame) -> DataFrame:
        """The same rows, computed once and cached until `release`."""
        # On Connect this already plans the query, and constant folding may encounter a refused row.
        with translated_errors():
            # The default level caches columns in memory, and spills to disk what does not fit.
            self._plain.enter()
            cached = frame.persist()
        self._persisted.append(cached)
        return cached

    def task_count(self) -> int:
        """Number of tasks for a shuffle of all rows with a cached result, where Spark does not coalesce small partitions."""
        rows = sum(self.partitions().values())
        return max(
            1, -(-rows // _MOST_ROWS_A_TASK), min(TASKS_A_CORE * parallelism(self.session), -(-rows // _FEWEST_ROWS_A_TASK))
        )

    def _keep_rows(self) -> None:
        if not self._kept:
            self.rows = self.persist(self.rows)
            self._kept = True

    def _combine_now(self) -> None:
        """Combine to one row per key, regardless of the partition."""
        if not self.combine:
            return
        given = self.given_count()
        job = CombineKeys(self.schema, self._request.rule)
        sorted_rows = self.rows.repartition(self.task_count(), RECORD_KEY).sortWithinPartitions(RECORD_KEY, ORDER)
        self.rows = self.persist(sorted_rows.mapInArrow(job, to_spark_schema(wire_schema(self.schema))))
        self.combine = False
        self._counts = None
        self._few = None
        self._measure = None
        with translated_errors(), spark_stage(self.session, "prepare rows"):
            self._combined = given - self.rows.count()

    def _raw_for_bulk(self, plan: BulkPlan) -> DataFrame | None:
        """The caller's unprepared rows, if only the writing tasks need their keys; else None."""
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


def task_budget(request: PrepareRequest) -> int:
    """Bytes of incoming rows that one task may buffer in memory."""
    return max(1 << 20, request.memory_budget_bytes // _TASKS_SHARING_A_BUDGET)


def _few_rows(limit_bytes: int, per_row: int) -> tuple[int, int]:
    """How many rows are collected before being measured, and the maximum of each in variable-width columns."""
    # One more than that many such rows fit in `limit_bytes`.
    most = min(_MAX_ROWS_COLLECTED_UNMEASURED, limit_bytes // (2 * (per_row + _USUAL_WIDTH)))
    return (most, limit_bytes // (most + 1) - per_row) if most > 0 else (0, 0)


def _null_if_too_wide(field: pa.Field, part: Column | str) -> Column | str:
    """A variable-width column, null if its row is too wide."""
    if not _is_wide(field.type):
        return part
    if isinstance(part, Column):
        return F.when(F.expr(_FITS), part).alias(field.name)
    return f"IF({_FITS}, {part}, NULL) AS {part}"


def _optional_parts(schema: pa.Schema) -> list[Column | str]:
    """The columns with nullable nested fields: Spark's conversion to Arrow refuses null structs with non-nullable fields."""
    columns: list[Column | str] = []
    for name, field in zip(schema.names, to_spark_schema(schema).fields, strict=True):
        loose = _optional(field.dataType)
        columns.append(quote_spark_name(name) if loose == field.dataType else column(name).cast(loose).alias(name))
    return columns


def _optional(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _optional(field.dataType)) for field in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_optional(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(_optional(kind.keyType), _optional(kind.valueType))
    return kind


def _row_bytes(schema: pa.Schema) -> tuple[str, int]:
    """Approximate size of a row as Arrow: of its variable-width columns as SQL, and of the others."""
    wide, per_row = ["0L"], 0
    for field in schema:
        if not _is_wide(field.type):
            per_row += 1 + field.type.bit_width // 8
            continue
        per_row += 5
        # The JSON text of nested values is longer than they are, except for the shortest.
        value = (
            f"to_json(struct({quote_spark_name(field.name)}))" if pa.types.is_nested(field.type) else quote_spark_name(field.name)
        )
        wide.append(f"coalesce(octet_length({value}), 0)")
    return " + ".join(wide), per_row


def _is_wide(kind: pa.DataType) -> bool:
    """Whether a type has no fixed width."""
    try:
        return bool(kind.bit_width < 0)
    except ValueError:
        return True
