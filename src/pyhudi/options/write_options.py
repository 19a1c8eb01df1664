"""Options of writes: commits, concurrency, sizing of files, streams."""

from __future__ import annotations

from pyhudi.options.declaration import Option

WITH_ROWS = ("upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")
"""Writes with rows of the caller."""

OVERWRITE_MODE = "hoodie.datasource.overwrite.mode"
INSERT_OPERATION = "hoodie.spark.sql.insert.into.operation"
INSERT_MODE = "hoodie.sql.insert.mode"
BULK_INSERT_ENABLED = "hoodie.sql.bulk.insert.enable"
"""Options of SQL sessions: which partitions INSERT OVERWRITE replaces, and the operation of INSERT INTO."""
UNAVAILABLE_VALUE = "hoodie.write.partial.update.unavailable.value"
"""Merge property: the placeholder for a value that a change did not include."""
OVERWRITE_OPERATIONS = ("insert_overwrite", "insert_overwrite_table")


CONCURRENCY = Option(
    "hoodie.write.concurrency.mode",
    ("SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL", "NON_BLOCKING_CONCURRENCY_CONTROL"),
    "SINGLE_WRITER",
    "whether other processes write concurrently, and to the same file groups; if they do, cleans roll failed writes back",
    origin="table",
)
FAILED_WRITES = Option(
    "hoodie.clean.failed.writes.policy",
    ("EAGER", "LAZY", "NEVER"),
    None,
    "when failed writes are rolled back: by the next writer, by a clean, or never; unset: by the concurrency mode",
    aliases=("hoodie.cleaner.policy.failed.writes",),
    origin="table",
)
PREWRITE_CLEANER = Option(
    "hoodie.prewrite.cleaner.policy",
    ("NONE", "CLEAN", "ROLLBACK_FAILED_WRITES"),
    "NONE",
    "what a write does before it takes its instant: clean the table, or roll back failed writes",
    origin="table",
)
CLOCK_SKEW = Option(
    "hoodie.time.generator.max_expected_clock_skew_ms",
    int,
    None,
    "maximum clock difference between writers in milliseconds; each new instant time waits that long",
    origin="table",
)
TIME_GENERATOR = Option(
    "hoodie.time.generator.type",
    str,
    "WAIT_TO_ADJUST_SKEW",
    "source of instant times: the clock, or a registered time generator",
    origin="table",
)
ROLLING_METADATA_KEYS = Option(
    "hoodie.write.rolling.metadata.keys",
    str,
    None,
    "keys of extra metadata that commits without them copy from earlier commits",
    origin="table",
)
ROLLING_METADATA_LOOKBACK = Option(
    "hoodie.write.rolling.metadata.timeline.lookback.commits",
    int,
    "10",
    "commits in which hoodie.write.rolling.metadata.keys are searched, from the newest on",
    at_least=1,
    origin="table",
)
METADATA_PREFIX = Option(
    "hoodie.datasource.write.commitmeta.key.prefix", str, "_", "options with this prefix are stored in the commit metadata"
)
COMMIT_METADATA = Option(
    "pyhudi.commit.metadata", str, None, "entries stored in the metadata of the commit, as a JSON object whose values are texts"
)
DELETE_FIELD = Option("hoodie.payload.delete.field", str, None, "column whose value marks a row as a delete", origin="table")
DELETE_MARKER = Option(
    "hoodie.payload.delete.marker",
    str,
    None,
    "value that marks a delete in the column of hoodie.payload.delete.field",
    origin="table",
)
INDEX_TYPE = Option(
    "hoodie.index.type",
    (
        "SIMPLE",
        "GLOBAL_SIMPLE",
        "BLOOM",
        "GLOBAL_BLOOM",
        "INMEMORY",
        "RECORD_INDEX",
        "BUCKET",
        "HBASE",
        "RECORD_LEVEL_INDEX",
        "GLOBAL_RECORD_LEVEL_INDEX",
    ),
    "SIMPLE",
    "how a write locates existing records",
    origin="table",
)
ONCE = Option(
    "pyhudi.write.once",
    str,
    None,
    "application:version of this write; if that version or a later one of the application is committed, nothing is written",
    chooses="write",
)
GROUP = Option(
    "pyhudi.write.group",
    ("never", "auto", "always"),
    "never",
    "small batches of several writers become one commit: never; auto: where possible; always: other writes are refused",
    operations=("upsert", "insert", "bulk_insert", "delete"),
    origin="table",
)
MEMORY_BUDGET = Option(
    "pyhudi.memory.budget.bytes", int, str(1 << 30), "bytes of rows in memory before they spill to local disk", at_least=1
)
THREADS = Option("pyhudi.threads", int, "0", "threads of the embedded engine; 0: as many as there are cores")
NUM_RETRIES_ON_CONFLICT_FAILURES = Option(
    "hoodie.write.num.retries.on.conflict.failures",
    int,
    "10",
    "maximum number of times that a write is planned again after a conflict",
    at_least=0,
    origin="table",
)
CONFLICT_RESOLUTION = Option(
    "hoodie.write.lock.conflict.resolution.strategy",
    str,
    "SimpleConcurrentFileWritesConflictResolutionStrategy",
    "class that decides between a write and a pending clustering of the same file groups: "
    "SimpleConcurrentFileWritesConflictResolutionStrategy (the write is planned again) or "
    "PreferWriterConflictResolutionStrategy (the clustering backs off)",
    origin="table",
)
EXCLUSIVE_AFTER_CONFLICTS = Option(
    "pyhudi.write.exclusive.after.conflicts",
    int,
    "3",
    "conflicts after which a write holds the table lock from planning to commit; more than the number of retries: never",
    at_least=0,
    origin="table",
)

MARKERS_TYPE = Option(
    "hoodie.write.markers.type",
    ("DIRECT", "TIMELINE_SERVER_BASED"),
    "DIRECT",
    "how a write marks its data files: by a file each, or by lines of lists, as Hudi's timeline server does",
    origin="table",
)

CLIENT_HEARTBEAT_INTERVAL_IN_MS = Option(
    "hoodie.client.heartbeat.interval_in_ms", int, "60000", "milliseconds between two heartbeats of a writer", origin="table"
)
CLIENT_HEARTBEAT_TOLERABLE_MISSES = Option(
    "hoodie.client.heartbeat.tolerable.misses",
    int,
    "2",
    "heartbeats that may fail before a writer counts as dead",
    origin="table",
)

SERVICE_EXPIRY_MS = Option(
    "pyhudi.service.expiry.ms",
    int,
    "1200000",
    "milliseconds without a new file after which a table service of Hudi, which has no heartbeat, counts as dead; "
    "0: at once, if no process of Hudi runs services on the table",
    at_least=0,
    origin="table",
)

CONCURRENCY_EARLY_CONFLICT_DETECTION_ENABLE = Option(
    "hoodie.write.concurrency.early.conflict.detection.enable",
    bool,
    "false",
    "a write stops before it writes to a file group that an older pending write is writing to",
    origin="table",
)
CONCURRENCY_EARLY_CONFLICT_DETECTION_STRATEGY = Option(
    "hoodie.write.concurrency.early.conflict.detection.strategy",
    str,
    "SimpleDirectMarkerBasedDetectionStrategy",
    "class that detects conflicts early; PyHudi treats all of Hudi's classes alike: it checks markers before each file",
    origin="table",
)
CONCURRENCY_EARLY_CONFLICT_CHECK_COMMIT_CONFLICT = Option(
    "hoodie.write.concurrency.early.conflict.check.commit.conflict",
    bool,
    "false",
    "with early conflict detection, concurrent commits stop a write before its first file too",
    origin="table",
)

OPERATION = Option(
    "hoodie.datasource.write.operation",
    ("upsert", "insert", "bulk_insert", "delete", "insert_overwrite", "insert_overwrite_table", "delete_partition"),
    "upsert",
    "operation of a write; unset: upsert, or bulk_insert without a record key",
    chooses="write",
)
PARTITIONS_TO_DELETE = Option(
    "hoodie.datasource.write.partitions.to.delete",
    str,
    None,
    "partitions that delete_partition deletes; unset: those of the rows",
    chooses="write",
)
SAVE_MODE = Option(
    "pyhudi.save.mode",
    ("append", "overwrite", "errorifexists", "ignore"),
    None,
    'the save mode, where `df.write.format("pyhudi")` has mode append: Spark supports only append and overwrite there',
    chooses="write",
)
PARTIAL_UPDATE = Option(
    "pyhudi.partial.update",
    bool,
    "false",
    "the rows of an upsert have some of the columns, and the others retain their values",
    chooses="write",
    operations=("upsert",),
)
DUPLICATE_POLICY = Option(
    "hoodie.datasource.insert.dup.policy",
    ("none", "drop", "fail"),
    "none",
    "what an insert does with rows whose keys exist in the table: adds them, skips them, or fails",
    operations=("insert",),
    origin="table",
)
INSERT_DROP_DUPLICATES = Option(
    "hoodie.datasource.write.insert.drop.duplicates",
    bool,
    "false",
    "same as hoodie.datasource.insert.dup.policy=drop and hoodie.combine.before.insert=true; turns an upsert into an insert, "
    "so that hoodie.combine.before.upsert has no effect",
    operations=("upsert", "insert", "bulk_insert"),
    origin="table",
)
COMBINE_BEFORE_UPSERT = Option(
    "hoodie.combine.before.upsert",
    bool,
    "true",
    "an upsert combines rows of one key into the one that wins by the merge mode",
    operations=("upsert",),
    origin="table",
)
COMBINE_BEFORE_DELETE = Option(
    "hoodie.combine.before.delete", bool, "true", "a delete ignores repeated keys", operations=("delete",), origin="table"
)
COMBINE_BEFORE_INSERT = Option(
    "hoodie.combine.before.insert",
    bool,
    "false",
    "an insert or overwrite combines rows of one key",
    operations=WITH_ROWS,
    origin="table",
)
SCHEMA_MODE = Option(
    "pyhudi.schema.mode",
    ("strict", "merge", "widen", "evolve"),
    "merge",
    "which changes of the table's columns the rows may make: none, lossless ones (merge), also nulls in required columns "
    "(widen), or those that Hudi makes by default",
    operations=WITH_ROWS,
    origin="table",
)
TIMESTAMPS_NANOSECONDS = Option(
    "pyhudi.timestamps.nanoseconds",
    ("refuse", "cut"),
    "refuse",
    "how timestamps finer than microseconds are handled: refused, or truncated",
    operations=(*WITH_ROWS, "delete"),
    origin="table",
)
SET_NULL_FOR_MISSING_COLUMNS = Option(
    "hoodie.write.set.null.for.missing.columns",
    bool,
    "false",
    "columns that the rows of a write lack become null; false refuses such rows",
    operations=WITH_ROWS,
    origin="table",
)
RECONCILE_SCHEMA = Option(
    "hoodie.datasource.write.reconcile.schema",
    bool,
    "false",
    "the same as hoodie.write.set.null.for.missing.columns",
    operations=WITH_ROWS,
    origin="table",
)
SCHEMA_ALLOW_AUTO_EVOLUTION_COLUMN_DROP = Option(
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
    bool,
    "false",
    "a write whose rows lack columns drops them from the table",
    operations=WITH_ROWS,
    origin="table",
)
PAYLOAD_EVENT_TIME_FIELD = Option(
    "hoodie.payload.event.time.field",
    str,
    None,
    "event time column: commits record the earliest and latest value of each file (minEventTime, maxEventTime)",
    operations=WITH_ROWS,
    origin="table",
)
TRACK_EVENT_TIME_WATERMARK = Option(
    "hoodie.write.track.event.time.watermark",
    bool,
    "true",
    "record the event time in commits; Hudi 1.1 records it only if this is true, Hudi 1.0 does not know the option",
    operations=WITH_ROWS,
    origin="table",
)
DRIVER_BATCH = Option(
    "pyhudi.spark.driver.batch.bytes",
    int,
    str(64 << 20),
    "bytes of Arrow data up to which the rows of a write on Spark are collected on the driver; 0: never",
    at_least=0,
    operations=(*WITH_ROWS, "delete"),
)
DRIVER_WORK = Option(
    "pyhudi.spark.driver.work.bytes",
    int,
    str(256 << 20),
    "bytes of the table up to which a write whose rows are on the driver reads and rewrites them there; more: on the cluster",
    at_least=0,
    operations=(*WITH_ROWS, "delete"),
)
STAGED_BYTES = Option(
    "pyhudi.spark.staged.bytes",
    int,
    str(4 << 30),
    'bytes of Arrow data that a write through `format("pyhudi")` may pass to the process that commits it; more is refused, and '
    "`pyhudi.spark.write` writes it; 0: no limit",
    at_least=0,
    operations=(*WITH_ROWS, "delete"),
)
STATIC_PARTITIONS = Option(
    "hoodie.static.overwrite.partition.paths",
    str,
    None,
    "partitions that an insert overwrite replaces in addition to those of its rows",
    chooses="write",
    operations=OVERWRITE_OPERATIONS,
)
CLUSTERING_UPDATES_STRATEGY = Option(
    "hoodie.clustering.updates.strategy",
    str,
    "SparkRejectUpdateStrategy",
    "class that decides whether a write may change files of a pending clustering",
    origin="table",
)
MERGE_ALLOW_DUPLICATE_ON_INSERTS = Option(
    "hoodie.merge.allow.duplicate.on.inserts",
    bool,
    "true",
    "inserts into a small file stay records of their own if their keys exist; false merges them",
    operations=("insert",),
    origin="table",
)
BULKINSERT_SORT_MODE = Option(
    "hoodie.bulkinsert.sort.mode",
    ("NONE", "GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT"),
    "NONE",
    "how a bulk insert sorts and distributes its rows",
    operations=("bulk_insert",),
    origin="table",
)
BULKINSERT_SHUFFLE_PARALLELISM = Option(
    "hoodie.bulkinsert.shuffle.parallelism",
    int,
    "0",
    "number of tasks of a bulk insert; 0: the engine decides",
    operations=("bulk_insert",),
    origin="table",
)
ALLOW_EMPTY_COMMIT = Option("hoodie.allow.empty.commit", bool, "true", "a write without changes creates a commit", origin="table")
CLUSTERING_ROLLBACK_PENDING_REPLACECOMMIT_ON_CONFLICT = Option(
    "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
    bool,
    "false",
    "a write to files of a pending clustering, if it is allowed, drops the plan",
    origin="table",
)
CLUSTERING_EXPIRATIONS = Option(
    "hoodie.clustering.enable.expirations",
    bool,
    "false",
    "under the LAZY policy, cleans, clusterings and writes that they block drop pending clusterings that no live process runs",
    origin="table",
)
CLUSTERING_EXPIRATION_THRESHOLD = Option(
    "hoodie.clustering.expiration.threshold.mins",
    int,
    "60",
    "minutes since its request after which a clustering can expire",
    at_least=0,
    origin="table",
)

STREAMING_CHECKPOINT_IDENTIFIER = Option(
    "hoodie.datasource.write.streaming.checkpoint.identifier",
    str,
    None,
    "the stream's name in commits; unset: the id of the query in its checkpoint, and the operation",
    origin="table",
)
STREAMING_RETRY_COUNT = Option(
    "hoodie.datasource.write.streaming.retry.count", int, "3", "retries of a failed batch", at_least=0, origin="table"
)
STREAMING_RETRY_INTERVAL_MS = Option(
    "hoodie.datasource.write.streaming.retry.interval.ms",
    int,
    "2000",
    "milliseconds before the first retry of a failed batch; doubles with each retry",
    origin="table",
)
STREAMING_IGNORE_FAILED_BATCH = Option(
    "hoodie.datasource.write.streaming.ignore.failed.batch",
    bool,
    "false",
    "a batch whose last retry failed is dropped, and the stream continues",
)
STREAMING_DISABLE_COMPACTION = Option(
    "hoodie.datasource.write.streaming.disable.compaction", bool, "false", "no compaction runs in the stream", origin="table"
)

MAX_FILE_SIZE = Option(
    "hoodie.parquet.max.file.size",
    int,
    "125829120",
    "the size in bytes at which a base file is closed",
    at_least=1,
    origin="table",
)
SMALL_FILE_LIMIT = Option(
    "hoodie.parquet.small.file.limit",
    int,
    "104857600",
    "base files below this size in bytes take inserts before new files are begun; 0 or less: none does",
    origin="table",
)
COPYONWRITE_RECORD_SIZE_ESTIMATE = Option(
    "hoodie.copyonwrite.record.size.estimate",
    int,
    "1024",
    "assumed bytes of a record while no commit records them",
    at_least=1,
    origin="table",
)
RECORD_SIZE_ESTIMATION_THRESHOLD = Option(
    "hoodie.record.size.estimation.threshold",
    float,
    "1.0",
    "commits of more bytes than this part of the small file limit are used to estimate the size of a record",
    origin="table",
)
RECORD_SIZE_ESTIMATOR_AVERAGE_METADATA_SIZE = Option(
    "hoodie.record.size.estimator.average.metadata.size",
    int,
    "0",
    "bytes of a base file that are not records, for the estimate of a record's size",
    origin="table",
)
COPYONWRITE_INSERT_AUTO_SPLIT = Option(
    "hoodie.copyonwrite.insert.auto.split",
    bool,
    "true",
    "new files take as many inserts as fit by the estimated size",
    origin="table",
)
COPYONWRITE_INSERT_SPLIT_SIZE = Option(
    "hoodie.copyonwrite.insert.split.size",
    int,
    "500000",
    "inserts of a new file when hoodie.copyonwrite.insert.auto.split is off",
    at_least=1,
    origin="table",
)
MERGE_SMALL_FILE_GROUP_CANDIDATES_LIMIT = Option(
    "hoodie.merge.small.file.group.candidates.limit",
    int,
    "1",
    "file slices of a merge-on-read partition that take inserts as small files",
    origin="table",
)
SMALL_FILE_GROWTH = Option(
    "pyhudi.small.file.growth",
    float,
    "0.1",
    "a base file of a merge-on-read table takes inserts that are at least this part of it; fewer inserts start a "
    "small file; 0: always take them, as in Hudi",
    at_least=0,
    origin="table",
)
SMALL_FILE_ALWAYS_REWRITTEN = Option(
    "pyhudi.small.file.always.rewritten",
    int,
    "262144",
    "base files of a merge-on-read table up to this size in bytes take inserts however few",
    at_least=0,
    origin="table",
)
