"""The `hoodie.*` options: names, aliases, defaults, and what each means here.

This is the only module that knows option names.  A caller's mapping becomes an `Options` value once, at the edge; below it travel
typed settings
(`WriteSettings`, `ReadSettings`) or single typed values.

Every key is in one of four classes:
    honoured   parsed and obeyed (`HONOURED`)
    moot       legal, but what it tunes does not exist here, so any value gives the same table (`MOOT`, each with the reason)
    refused    legal Hudi that PyHudi does not do yet: `Unsupported`, unless the value is the one that asks for nothing
    (`REFUSED`)
    unknown    a warning that names the nearest known key

Table properties (`hoodie.table.*` and their like) may stand among the options too, as Spark jobs write them; they are checked
against the table.

Source: writing and services, "Options a data source user really sets".
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyhudi.errors import InvalidRequest, Unsupported


@dataclass(frozen=True, slots=True)
class Option:
    """One honoured option.  kind: str, int, float, bool, or a tuple of the legal words.  default: as text, None for unset."""

    kind: type | tuple[str, ...]
    default: str | None
    aliases: tuple[str, ...] = ()


_OPERATIONS = (
    "upsert",
    "insert",
    "bulk_insert",
    "delete",
    "insert_overwrite",
    "insert_overwrite_table",
    "delete_partition",
)
_CDC_MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
_INDEX_TYPES = ("SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM", "INMEMORY", "RECORD_INDEX", "BUCKET", "HBASE")
_SORT_MODES = ("NONE", "GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT")
_CODECS = ("gzip", "zstd", "snappy", "uncompressed", "lz4_raw")

HONOURED: dict[str, Option] = {
    # What the table is.  These are written to hoodie.properties at creation and checked against it afterwards.
    "hoodie.table.name": Option(str, None),
    "hoodie.database.name": Option(str, None),
    "hoodie.datasource.write.table.type": Option(("COPY_ON_WRITE", "MERGE_ON_READ"), None, ("hoodie.table.type", "type")),
    "hoodie.datasource.write.recordkey.field": Option(str, None, ("hoodie.table.recordkey.fields", "primaryKey")),
    "hoodie.datasource.write.partitionpath.field": Option(str, None, ("hoodie.table.partition.fields",)),
    "hoodie.datasource.write.precombine.field": Option(str, None, ("hoodie.table.precombine.field", "preCombineField")),
    "hoodie.datasource.write.keygenerator.class": Option(str, None, ("hoodie.table.keygenerator.class",)),
    "hoodie.datasource.write.keygenerator.type": Option(str, None, ("hoodie.table.keygenerator.type",)),
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": Option(bool, "false"),
    "hoodie.datasource.write.hive_style_partitioning": Option(bool, "false"),
    "hoodie.datasource.write.partitionpath.urlencode": Option(bool, "false"),
    "hoodie.datasource.write.payload.class": Option(str, None, ("hoodie.compaction.payload.class",)),
    "hoodie.write.record.merge.mode": Option(str, None, ("hoodie.record.merge.mode",)),
    "hoodie.write.record.merge.strategy.id": Option(
        str,
        None,
        (
            "hoodie.record.merge.strategy.id",
            "hoodie.datasource.write.record.merger.strategy",
            "hoodie.compaction.record.merger.strategy",
        ),
    ),
    "hoodie.populate.meta.fields": Option(bool, "true"),
    "hoodie.table.timeline.timezone": Option(("LOCAL", "UTC"), "LOCAL"),
    "hoodie.table.cdc.enabled": Option(bool, "false"),
    "hoodie.table.cdc.supplemental.logging.mode": Option(_CDC_MODES, "DATA_BEFORE_AFTER"),
    "hoodie.write.table.version": Option(("8",), "8", ("hoodie.table.version",)),
    "hoodie.table.base.file.format": Option(
        ("PARQUET", "ORC", "HFILE"), "PARQUET", ("hoodie.base.file.format", "hoodie.table.ro.file.format")
    ),
    "hoodie.table.log.file.format": Option(("HOODIE_LOG",), "HOODIE_LOG", ("hoodie.table.rt.file.format",)),
    "hoodie.datasource.write.drop.partition.columns": Option(bool, "false"),
    "hoodie.table.multiple.base.file.formats.enable": Option(bool, "false"),
    "hoodie.partition.metafile.use.base.format": Option(bool, "false"),
    "hoodie.table.create.schema": Option(str, None),
    # Properties that no caller chooses; where a job gives one, it has to be the table's.
    "hoodie.table.initial.version": Option(str, "8"),
    "hoodie.table.checksum": Option(str, None),
    "hoodie.timeline.layout.version": Option(str, "2"),
    "hoodie.timeline.path": Option(str, "timeline"),
    "hoodie.timeline.history.path": Option(str, "history"),
    "hoodie.archivelog.folder": Option(str, "history"),
    "hoodie.table.metadata.partitions": Option(str, None),
    "hoodie.table.metadata.partitions.inflight": Option(str, None),
    "hoodie.table.index.defs.path": Option(str, None),
    "hoodie.table.secondary.indexes.metadata": Option(str, None),
    "hoodie.bootstrap.index.enable": Option(bool, "true"),
    "hoodie.bootstrap.index.type": Option(str, None),
    "hoodie.bootstrap.index.class": Option(str, None),
    "hoodie.keygen.datetime.parser.class": Option(str, None),
    # What a write does.
    "hoodie.datasource.write.operation": Option(_OPERATIONS, "upsert"),
    "hoodie.combine.before.upsert": Option(bool, "true"),
    "hoodie.combine.before.insert": Option(bool, "false"),
    "hoodie.combine.before.delete": Option(bool, "true"),
    "hoodie.datasource.insert.dup.policy": Option(("none", "drop", "fail"), "none"),
    "hoodie.datasource.write.insert.drop.duplicates": Option(bool, "false"),
    "hoodie.merge.allow.duplicate.on.inserts": Option(bool, "true"),
    "hoodie.datasource.write.partitions.to.delete": Option(str, None),
    "hoodie.static.overwrite.partition.paths": Option(str, None),
    "hoodie.datasource.write.streaming.checkpoint.identifier": Option(str, None),
    "hoodie.datasource.write.streaming.retry.count": Option(int, "3"),
    "hoodie.datasource.write.streaming.retry.interval.ms": Option(int, "2000"),
    "hoodie.datasource.write.streaming.ignore.failed.batch": Option(bool, "false"),
    "hoodie.datasource.write.streaming.disable.compaction": Option(bool, "false"),
    "hoodie.datasource.write.commitmeta.key.prefix": Option(str, "_"),
    "hoodie.allow.empty.commit": Option(bool, "true"),
    "hoodie.payload.delete.field": Option(str, None),
    "hoodie.payload.delete.marker": Option(str, None),
    "hoodie.write.set.null.for.missing.columns": Option(bool, "false"),
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": Option(bool, "false"),
    "hoodie.datasource.write.reconcile.schema": Option(bool, "false"),
    # How files come out.
    "hoodie.parquet.max.file.size": Option(int, "125829120"),
    "hoodie.parquet.small.file.limit": Option(int, "104857600"),
    "hoodie.parquet.block.size": Option(int, "125829120"),
    "hoodie.parquet.page.size": Option(int, "1048576"),
    "hoodie.parquet.compression.codec": Option(_CODECS, "zstd"),
    "hoodie.parquet.dictionary.enabled": Option(bool, "true"),
    "hoodie.parquet.bloom.filter.enabled": Option(bool, "true"),
    "hoodie.parquet.outputtimestamptype": Option(("TIMESTAMP_MICROS",), "TIMESTAMP_MICROS"),
    "hoodie.copyonwrite.record.size.estimate": Option(int, "1024"),
    "hoodie.record.size.estimation.threshold": Option(float, "1.0"),
    "hoodie.record.size.estimator.average.metadata.size": Option(int, "0"),
    "hoodie.copyonwrite.insert.auto.split": Option(bool, "true"),
    "hoodie.copyonwrite.insert.split.size": Option(int, "500000"),
    "hoodie.logfile.data.block.format": Option(("avro", "parquet", "hfile"), "avro"),
    "hoodie.logfile.data.block.max.size": Option(int, "268435456"),
    "hoodie.write.record.positions": Option(bool, "true"),
    "hoodie.merge.use.record.positions": Option(bool, "true"),
    "hoodie.merge.small.file.group.candidates.limit": Option(int, "1"),
    "hoodie.bulkinsert.sort.mode": Option(_SORT_MODES, "NONE"),
    "hoodie.bulkinsert.shuffle.parallelism": Option(int, "0"),
    # Indexes that find records.
    "hoodie.index.type": Option(_INDEX_TYPES, "SIMPLE"),
    "hoodie.bloom.index.filter.type": Option(("SIMPLE", "DYNAMIC_V0"), "DYNAMIC_V0"),
    "hoodie.index.bloom.num_entries": Option(int, "60000"),
    "hoodie.index.bloom.fpp": Option(float, "0.000000001"),
    "hoodie.bloom.index.filter.dynamic.max.entries": Option(int, "100000"),
    "hoodie.bloom.index.prune.by.ranges": Option(bool, "true"),
    "hoodie.bloom.index.update.partition.path": Option(bool, "true"),
    "hoodie.bloom.index.use.metadata": Option(bool, "false"),
    "hoodie.simple.index.update.partition.path": Option(bool, "true"),
    "hoodie.record.index.update.partition.path": Option(bool, "false"),
    "hoodie.index.bucket.engine": Option(("SIMPLE", "CONSISTENT_HASHING"), "SIMPLE"),
    "hoodie.bucket.index.num.buckets": Option(int, "256"),
    "hoodie.bucket.index.hash.field": Option(str, None),
    "hoodie.bucket.index.query.pruning": Option(bool, "true"),
    # Clustering.
    "hoodie.clustering.plan.strategy.sort.columns": Option(str, None),
    "hoodie.layout.optimize.strategy": Option(("LINEAR", "ZORDER", "HILBERT"), "LINEAR"),
    "hoodie.clustering.plan.strategy.target.file.max.bytes": Option(int, "1073741824"),
    "hoodie.clustering.plan.strategy.small.file.limit": Option(int, "314572800"),
    "hoodie.clustering.plan.strategy.max.bytes.per.group": Option(int, "2147483648"),
    "hoodie.clustering.plan.strategy.max.num.groups": Option(int, "30"),
    "hoodie.clustering.plan.strategy.single.group.clustering.enabled": Option(bool, "true"),
    "hoodie.clustering.plan.partition.filter.mode": Option(("NONE", "RECENT_DAYS", "SELECTED_PARTITIONS", "DAY_ROLLING"), "NONE"),
    "hoodie.clustering.plan.strategy.partition.regex.pattern": Option(str, None),
    "hoodie.clustering.plan.strategy.partition.selected": Option(str, None),
    "hoodie.clustering.plan.strategy.cluster.begin.partition": Option(str, None),
    "hoodie.clustering.plan.strategy.cluster.end.partition": Option(str, None),
    "hoodie.clustering.plan.strategy.daybased.lookback.partitions": Option(int, "2"),
    "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions": Option(int, "0"),
    "hoodie.clustering.plan.strategy.class": Option(str, "SparkSizeBasedClusteringPlanStrategy"),
    "hoodie.clustering.execution.strategy.class": Option(str, "SparkSortAndSizeExecutionStrategy"),
    "hoodie.clustering.updates.strategy": Option(str, "SparkRejectUpdateStrategy"),
    "hoodie.clustering.rollback.pending.replacecommit.on.conflict": Option(bool, "false"),
    "hoodie.clustering.inline": Option(bool, "false", ("hoodie.datasource.clustering.inline.enable",)),
    "hoodie.clustering.inline.max.commits": Option(int, "4"),
    "hoodie.clustering.schedule.inline": Option(bool, "false"),
    "hoodie.clustering.async.enabled": Option(bool, "false", ("hoodie.datasource.clustering.async.enable",)),
    "hoodie.clustering.async.max.commits": Option(int, "4"),
    "pyhudi.clustering.grouping": Option(("size", "prefer_overlap", "overlap", "record_key", "commit_time", "random"), None),
    # Concurrency.
    "hoodie.write.concurrency.mode": Option(("SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL"), "SINGLE_WRITER"),
    "hoodie.clean.failed.writes.policy": Option(("EAGER", "LAZY", "NEVER"), None, ("hoodie.cleaner.policy.failed.writes",)),
    "hoodie.write.lock.provider": Option(str, None),
    "hoodie.write.lock.wait_time_ms": Option(int, "60000"),
    "hoodie.write.lock.filesystem.path": Option(str, None),
    "hoodie.write.lock.filesystem.expire": Option(int, "0"),
    "hoodie.write.lock.storage.validity.timeout.secs": Option(int, "30"),
    "hoodie.write.lock.storage.heartbeat.poll.secs": Option(int, "5"),
    "hoodie.write.num.retries.on.conflict.failures": Option(int, "3"),
    "hoodie.client.heartbeat.interval_in_ms": Option(int, "60000"),
    "hoodie.client.heartbeat.tolerable.misses": Option(int, "2"),
    "hoodie.time.generator.max_expected_clock_skew_ms": Option(int, None),
    # Table services.
    "hoodie.clean.automatic": Option(bool, "true"),
    "hoodie.clean.policy": Option(
        ("KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS", "KEEP_LATEST_BY_HOURS"), None, ("hoodie.cleaner.policy",)
    ),
    "hoodie.clean.commits.retained": Option(int, "10", ("hoodie.cleaner.commits.retained",)),
    "hoodie.clean.fileversions.retained": Option(int, "3", ("hoodie.cleaner.fileversions.retained",)),
    "hoodie.clean.hours.retained": Option(int, "24", ("hoodie.cleaner.hours.retained",)),
    "hoodie.clean.trigger.strategy": Option(("NUM_COMMITS",), "NUM_COMMITS"),
    "hoodie.clean.trigger.max.commits": Option(int, "1", ("hoodie.clean.max.commits",)),
    "hoodie.clean.incremental.enabled": Option(bool, "true", ("hoodie.cleaner.incremental.mode",)),
    "hoodie.clean.multiple.enabled": Option(bool, "false", ("hoodie.clean.allow.multiple",)),
    "hoodie.archive.automatic": Option(bool, "true"),
    "hoodie.keep.min.commits": Option(int, "20"),
    "hoodie.keep.max.commits": Option(int, "30"),
    "hoodie.archive.beyond.savepoint": Option(bool, "false"),
    "hoodie.timeline.compaction.batch.size": Option(int, "10"),
    "hoodie.fail.writes.on.inline.table.service.exception": Option(bool, "true"),
    "hoodie.partition.ttl.inline": Option(bool, "false"),
    "hoodie.partition.ttl.management.strategy.type": Option(("KEEP_BY_TIME", "KEEP_BY_CREATION_TIME"), "KEEP_BY_TIME"),
    "hoodie.partition.ttl.strategy.days.retain": Option(int, "-1"),
    "hoodie.partition.ttl.strategy.partition.selected": Option(str, None),
    "hoodie.partition.ttl.strategy.max.delete.partitions": Option(int, "1000"),
    "hoodie.compact.inline.trigger.strategy": Option(
        ("NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME"), "NUM_COMMITS"
    ),
    "hoodie.compact.inline": Option(bool, None),
    "hoodie.compact.schedule.inline": Option(bool, "false"),
    "hoodie.datasource.compaction.async.enable": Option(bool, None),
    "hoodie.compact.inline.max.delta.commits": Option(int, "5"),
    "hoodie.compact.inline.max.delta.seconds": Option(int, "3600"),
    "hoodie.compaction.strategy": Option(str, "LogFileSizeBasedCompactionStrategy"),
    "hoodie.compaction.target.io": Option(int, "512000"),
    "hoodie.compaction.logfile.size.threshold": Option(int, "0"),
    "hoodie.compaction.logfile.num.threshold": Option(int, "0"),
    "hoodie.compaction.daybased.target.partitions": Option(int, "10", ("hoodie.compaction.daybased.target",)),
    "hoodie.compaction.partition.path.regex": Option(str, None),
    "hoodie.log.compaction.inline": Option(bool, "false"),
    "hoodie.log.compaction.blocks.threshold": Option(int, "5"),
    "hoodie.table.services.enabled": Option(bool, "true"),
    "hoodie.table.services.incremental.enabled": Option(bool, "true"),
    # Reads.
    "hoodie.datasource.query.type": Option(
        ("snapshot", "read_optimized", "incremental"), "snapshot", ("hoodie.datasource.view.type",)
    ),
    "hoodie.datasource.query.incremental.format": Option(("latest_state", "cdc"), "latest_state"),
    "hoodie.datasource.streaming.startOffset": Option(str, "earliest"),
    "as.of.instant": Option(str, None),
    "hoodie.datasource.read.begin.instanttime": Option(str, None),
    "hoodie.datasource.read.end.instanttime": Option(str, None),
    "hoodie.datasource.read.incr.table.version": Option(("6", "8"), None),
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable": Option(bool, "true"),
    "hoodie.datasource.read.extract.partition.values.from.path": Option(bool, "false"),
    # The metadata table.
    "hoodie.metadata.enable": Option(bool, "true"),
    "hoodie.metadata.index.column.stats.enable": Option(bool, None),
    "hoodie.metadata.index.partition.stats.enable": Option(bool, None),
    "hoodie.metadata.index.bloom.filter.enable": Option(bool, None),
    "hoodie.metadata.record.index.enable": Option(bool, None),
    "hoodie.metadata.index.column.stats.column.list": Option(str, None),
    "hoodie.metadata.index.column.stats.max.columns.to.index": Option(int, "32"),
    "hoodie.metadata.index.column.stats.file.group.count": Option(int, "2"),
    "hoodie.metadata.index.partition.stats.file.group.count": Option(int, "1"),
    "hoodie.metadata.index.bloom.filter.file.group.count": Option(int, "4"),
    "hoodie.metadata.index.expression.file.group.count": Option(int, "2"),
    "hoodie.metadata.index.check.timeout.seconds": Option(int, "900"),
    "hoodie.metadata.record.index.min.filegroup.count": Option(int, "10"),
    "hoodie.metadata.record.index.max.filegroup.count": Option(int, "10000"),
    "hoodie.metadata.record.index.max.filegroup.size": Option(int, "1073741824"),
    "hoodie.metadata.record.index.growth.factor": Option(float, "2.0"),
    "hoodie.metadata.compact.max.delta.commits": Option(int, "10"),
    "hoodie.enable.data.skipping": Option(bool, "true"),
    "hoodie.fileIndex.dataSkippingFailureMode": Option(("fallback", "strict"), "fallback"),
    # PyHudi's own.
    "pyhudi.memory.budget.bytes": Option(int, str(1 << 30)),
    "pyhudi.threads": Option(int, "0"),
    "pyhudi.partial.update": Option(bool, "false"),
    "pyhudi.columns": Option(str, None),
    "pyhudi.filter": Option(str, None),
    "pyhudi.stream.max.instants": Option(int, None),
    "pyhudi.stream.max.files": Option(int, None),
    "pyhudi.stream.max.bytes": Option(int, None),
}
"""Honoured options by canonical key."""

MOOT: dict[str, str] = {
    "hoodie.embed.timeline.server": "PyHudi runs no timeline server",
    "hoodie.embed.timeline.server.async": "PyHudi runs no timeline server",
    "hoodie.write.markers.type": "markers are always written directly; other forms are read",
    "hoodie.markers.timeline_server_based.batch.num_threads": "PyHudi runs no timeline server",
    "hoodie.markers.timeline_server_based.batch.interval_ms": "PyHudi runs no timeline server",
    "hoodie.datasource.write.row.writer.enable": "there is one writer, and it works on Arrow columns",
    "hoodie.rollback.parallelism": "deletions of a rollback run on a fixed pool",
    "hoodie.clean.parallelism": "deletions of a clean run on a fixed pool",
    "hoodie.cleaner.parallelism": "deletions of a clean run on a fixed pool",
    "hoodie.archive.delete.parallelism": "instants are removed one after the other, oldest first",
    "hoodie.archive.merge.enable": "files of the history are always merged",
    "hoodie.commits.archival.batch": "all instants of one archival go into one file",
    "hoodie.rollback.using.markers": "rollbacks use markers where they exist and listings otherwise",
    "hoodie.auto.adjust.lock.configs": "a storage lock is the default, no adjustment is needed",
    "hoodie.file.group.reader.enabled": "there is one reader",
    "hoodie.optimized.log.blocks.scan.enable": "blocks that a log compaction merged are always passed over",
    "hoodie.compaction.lazy.block.read": "log blocks are always read one at a time",
    "hoodie.compaction.reverse.log.read": "log files are always read forward",
    "hoodie.parquet.compression.ratio": "file sizes are measured while writing",
    "hoodie.avro.schema.validate": "schemas are always validated",
    "hoodie.datasource.write.drop.partition.columns.default": "reserved",
    "hoodie.write.auto.upgrade": "tables are never upgraded unasked",
    "hoodie.bloom.index.use.treebased.filter": "key ranges are compared as columns",
    "hoodie.bloom.index.bucketized.checking": "lookups are split by file",
    "hoodie.bloom.index.keys.per.bucket": "lookups are split by file",
    "hoodie.bloom.index.parallelism": "lookups are split by file",
    "hoodie.bloom.index.fileid.key.sorting.enable": "lookups are split by file",
    "hoodie.bloom.index.use.caching": "incoming rows are kept as the engine needs them",
    "hoodie.bloom.index.input.storage.level": "incoming rows are kept as the engine needs them",
    "hoodie.simple.index.use.caching": "incoming rows are kept as the engine needs them",
    "hoodie.simple.index.input.storage.level": "incoming rows are kept as the engine needs them",
    "hoodie.record.index.use.caching": "incoming rows are kept as the engine needs them",
    "hoodie.record.index.input.storage.level": "incoming rows are kept as the engine needs them",
    "hoodie.global.index.reconcile.parallelism": "the engine chooses",
    "hoodie.bucket.index.max.num.buckets": "tables of the engine CONSISTENT_HASHING, whose buckets it bounds, are not written",
    "hoodie.bucket.index.min.num.buckets": "tables of the engine CONSISTENT_HASHING, whose buckets it bounds, are not written",
    "hoodie.bucket.index.split.threshold": "tables of the engine CONSISTENT_HASHING, whose buckets it splits, are not written",
    "hoodie.bucket.index.merge.threshold": "tables of the engine CONSISTENT_HASHING, whose buckets it merges, are not written",
    "hoodie.upsert.shuffle.parallelism": "the engine chooses",
    "hoodie.insert.shuffle.parallelism": "the engine chooses",
    "hoodie.delete.shuffle.parallelism": "the engine chooses",
    "hoodie.simple.index.parallelism": "the engine chooses",
    "hoodie.global.simple.index.parallelism": "the engine chooses",
    "hoodie.time.generator.type": "WAIT_TO_ADJUST_SKEW is the only type",
    "hoodie.datasource.read.file.index.listing.mode": "partitions are always listed as late as possible",
    "hoodie.write.lock.client.num_retries": "waiting for the lock is bounded by hoodie.write.lock.wait_time_ms",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "waiting for the lock is bounded by hoodie.write.lock.wait_time_ms",
    "hoodie.datasource.read.incr.skip_compact": "compaction keeps commit times, so it adds nothing to an incremental query",
    "hoodie.datasource.read.incr.skip_cluster": "clustering keeps commit times, so it adds nothing to an incremental query",
    "hoodie.metrics.on": "results carry their own figures",
    "path": "the path is the argument of the call",
}
"""Legal keys whose value changes nothing here, and why."""

REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "hoodie.index.class": ("indexes of Java classes do not run here; name one by hoodie.index.type", ("",)),
    "hoodie.bucket.index.partition.expressions": ("every partition has the same number of buckets, as in Hudi 1.0", ("",)),
    "hoodie.bucket.index.partition.rule.type": ("every partition has the same number of buckets, as in Hudi 1.0", ("",)),
    "hoodie.metadata.index.async": ("indexes are built at the start of a write", ("false",)),
    "hoodie.metadata.log.compaction.enable": ("the metadata table is compacted, its logs alone are not", ("false",)),
    "hoodie.metadata.index.bloom.filter.column.list": ("Bloom filters are of record keys", ("",)),
    "hoodie.clean.async.enabled": ("cleaning runs after the commit or by a call of its own", ("false",)),
    "hoodie.clean.async": ("cleaning runs after the commit or by a call of its own", ("false",)),
    "hoodie.archive.async": ("archival runs after the commit or by a call of its own", ("false",)),
    "hoodie.clean.delete.bootstrap.base.file": ("bootstrap tables are not written", ("false",)),
    "hoodie.cleaner.delete.bootstrap.base.file": ("bootstrap tables are not written", ("false",)),
    "hoodie.schema.on.read.enable": ("schema on read is not built", ("false",)),
    "hoodie.allow.operation.metadata.field": (
        "the _hoodie_operation column is not written: Hudi's Spark writers leave it empty and lose updates of log files with it",
        ("false",),
    ),
    "hoodie.write.concurrency.early.conflict.detection.enable": ("early conflict detection is not built", ("false",)),
    "hoodie.precommit.validators": ("pre-commit validators are not built", ("",)),
    "hoodie.bulkinsert.user.defined.partitioner.class": (
        "user-defined partitioner classes are Java classes; sort the data instead",
        ("",),
    ),
    "hoodie.datasource.overwrite.mode": (
        "it chooses between two operations for SQL; name insert_overwrite or insert_overwrite_table",
        ("DYNAMIC",),
    ),
    "hoodie.datasource.read.streaming.table.version": ("streams go by completion time", ("8",)),
    "hoodie.datasource.read.incr.path.glob": ("use a filter on the partition columns", ("",)),
    "hoodie.datasource.read.incr.filters": ("use a filter", ("",)),
    "hoodie.bootstrap.base.path": ("bootstrap tables are not written", ("",)),
    "hoodie.datasource.hive_sync.enable": ("catalog sync is not built yet", ("false",)),
    "hoodie.datasource.meta.sync.enable": ("catalog sync is not built yet", ("false",)),
}
"""Legal keys that PyHudi does not carry out: the reason, and the values that ask for nothing and so may stand."""

PASSED_THROUGH = (
    "hoodie.keygen.timebased.",
    "hoodie.deltastreamer.keygen.timebased.",
    "hoodie.datasource.hive_sync.",
    "hoodie.datasource.meta.sync.",
)
"""Prefixes whose keys are read by name elsewhere (key generators) or belong to a feature that is refused by its switch."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options after checking: canonical keys, each value legal.  Build with `parse_options`."""

    values: tuple[tuple[str, str], ...]
    extra: tuple[tuple[str, str], ...] = ()

    def given(self, key: str) -> str | None:
        """The caller's text for a canonical key, None when it was not given."""
        return dict(self.values).get(key)

    def text(self, key: str) -> str | None:
        """The value or the default; None when there is neither, or it is empty."""
        found = dict(self.values).get(key, HONOURED[key].default)
        return found if found else None

    def word(self, key: str) -> str:
        """A value that always has one: given or default."""
        found = dict(self.values).get(key, HONOURED[key].default)
        if found is None:
            raise InvalidRequest(f"option {key} is required")
        return found

    def integer(self, key: str) -> int:
        """A whole number."""
        return int(self.word(key))

    def positive(self, key: str) -> int:
        """A whole number above 0.  Raises InvalidRequest for another one."""
        value = self.integer(key)
        if value <= 0:
            raise InvalidRequest(f"option {key}={value} has to be positive")
        return value

    def number(self, key: str) -> float:
        """A number."""
        return float(self.word(key))

    def flag(self, key: str) -> bool:
        """A boolean."""
        return self.word(key).lower() == "true"

    def names(self, key: str) -> tuple[str, ...]:
        """A comma list, blanks around its parts dropped."""
        return tuple(part.strip() for part in (self.text(key) or "").split(",") if part.strip())

    def with_prefix(self, *prefixes: str) -> dict[str, str]:
        """Keys that pass through, by prefix."""
        return {key: value for key, value in self.extra if key.startswith(prefixes)}

    def merged(self, values: Mapping[str, str]) -> Options:
        """These options with canonical values laid over them."""
        return Options(tuple({**dict(self.values), **values}.items()), self.extra)


def parse_options(*layers: Mapping[str, object] | None, stacklevel: int = 3) -> Options:
    """Check and canonicalise options; later layers win.

    Raises InvalidRequest for an illegal value or for two spellings of one option that disagree, Unsupported for an option that
    PyHudi does not
    carry out.  Warns about unknown `hoodie.*` keys, naming the nearest known one.
    """
    values: dict[str, str] = {}
    extra: dict[str, str] = {}
    for layer in layers:
        spelled: dict[str, tuple[str, str]] = {}
        for key, raw in (layer or {}).items():
            if raw is None:
                continue
            text = _to_text(raw)
            canonical = _CANONICAL.get(key)
            if canonical is not None:
                checked = _check_value(key, HONOURED[canonical], text)
                before = spelled.get(canonical)
                if before is not None and before[1] != checked:
                    raise InvalidRequest(f"options {before[0]}={before[1]} and {key}={text} mean the same setting and disagree")
                spelled[canonical] = (key, checked)
                values[canonical] = checked
            elif key in REFUSED:
                reason, neutral = REFUSED[key]
                if text not in neutral:
                    raise Unsupported(f"option {key}={text} is refused: {reason}")
            elif key not in MOOT:
                extra[key] = text
                if key.startswith(("hoodie.", "pyhudi.")) and not key.startswith(PASSED_THROUGH):
                    _warn_unknown(key, stacklevel)
    return Options(tuple(values.items()), tuple(extra.items()))


def _to_text(raw: object) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, (list, tuple)):
        return ",".join(str(part) for part in raw)
    return str(raw)


def _check_value(key: str, option: Option, text: str) -> str:
    kind = option.kind
    if isinstance(kind, tuple):
        for word in kind:
            if text.strip().lower() == word.lower():
                return word
        raise InvalidRequest(f"option {key}={text!r} is none of {', '.join(kind)}")
    if kind is bool:
        if text.strip().lower() not in ("true", "false"):
            raise InvalidRequest(f"option {key}={text!r} is neither true nor false")
        return text.strip().lower()
    if kind in (int, float):
        wanted = _WHOLE_NUMBER if kind is int else _NUMBER
        if not wanted.fullmatch(text.strip()):
            raise InvalidRequest(f"option {key}={text!r} is no {'whole number' if kind is int else 'number'}")
        return text.strip()
    return text


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def _warn_unknown(key: str, stacklevel: int) -> None:
    near = difflib.get_close_matches(key, _known_keys(), n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    warnings.warn(f"option {key} is unknown and has no effect{hint}", UserWarning, stacklevel=stacklevel + 1)


def _known_keys() -> Iterable[str]:
    return [*_CANONICAL, *MOOT, *REFUSED]


_CANONICAL = {alias: key for key, option in HONOURED.items() for alias in (key, *option.aliases)}


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How base files and log files come out, and how they are put together.  Sizes in bytes."""

    max_file_size_bytes: int
    block_size_bytes: int
    page_size_bytes: int
    codec: str
    dictionary: bool
    bloom_enabled: bool
    bloom_kind: str
    bloom_entries: int
    bloom_fpp: float
    bloom_max_entries: int
    log_format: str
    log_block_size_bytes: int
    record_positions: bool
    use_positions: bool

    @classmethod
    def of(cls, options: Options) -> FileSettings:
        """From checked options."""
        return cls(
            max_file_size_bytes=options.positive("hoodie.parquet.max.file.size"),
            block_size_bytes=options.positive("hoodie.parquet.block.size"),
            page_size_bytes=options.positive("hoodie.parquet.page.size"),
            codec=options.word("hoodie.parquet.compression.codec"),
            dictionary=options.flag("hoodie.parquet.dictionary.enabled"),
            bloom_enabled=options.flag("hoodie.parquet.bloom.filter.enabled"),
            bloom_kind=options.word("hoodie.bloom.index.filter.type"),
            bloom_entries=options.positive("hoodie.index.bloom.num_entries"),
            bloom_fpp=options.number("hoodie.index.bloom.fpp"),
            bloom_max_entries=options.positive("hoodie.bloom.index.filter.dynamic.max.entries"),
            log_format=options.word("hoodie.logfile.data.block.format"),
            log_block_size_bytes=options.positive("hoodie.logfile.data.block.max.size"),
            record_positions=options.flag("hoodie.write.record.positions"),
            use_positions=options.flag("hoodie.merge.use.record.positions"),
        )


@dataclass(frozen=True, slots=True)
class SizingSettings:
    """How inserts are packed into files.  Sizes in bytes."""

    max_file_size_bytes: int
    small_file_limit_bytes: int
    record_size_estimate_bytes: int
    estimation_threshold: float
    average_metadata_size_bytes: int
    auto_split: bool
    split_row_count: int
    merge_candidates_limit: int

    @classmethod
    def of(cls, options: Options) -> SizingSettings:
        """From checked options."""
        return cls(
            max_file_size_bytes=options.positive("hoodie.parquet.max.file.size"),
            small_file_limit_bytes=options.integer("hoodie.parquet.small.file.limit"),
            record_size_estimate_bytes=options.positive("hoodie.copyonwrite.record.size.estimate"),
            estimation_threshold=options.number("hoodie.record.size.estimation.threshold"),
            average_metadata_size_bytes=options.integer("hoodie.record.size.estimator.average.metadata.size"),
            auto_split=options.flag("hoodie.copyonwrite.insert.auto.split"),
            split_row_count=options.positive("hoodie.copyonwrite.insert.split.size"),
            merge_candidates_limit=options.integer("hoodie.merge.small.file.group.candidates.limit"),
        )
