"""Options of Hudi that have no effect in PyHudi, and the reason.

A name that ends with `*` covers all names with that beginning, except those that are supported or refused. An option that
changes rows, files that others rely on, or safety is not one of these: it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.options import table_options

METADATA_STREAMING = "hoodie.metadata.streaming.write.enabled"

REASONS: Mapping[str, tuple[str, ...]] = {
    "PyHudi runs no timeline server": (
        "hoodie.embed.timeline.server",
        "hoodie.embed.timeline.server.*",
        "hoodie.instant_state.timeline_server_based.*",
    ),
    "each file is checked against other writers' markers": (
        "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms",
        "hoodie.write.concurrency.async.conflict.detector.period_ms",
    ),
    "each marker is a separate file, written immediately": (
        "hoodie.markers.timeline_server_based.batch.num_threads",
        "hoodie.markers.timeline_server_based.batch.interval_ms",
    ),
    "there is one writer, and it works on Arrow columns": ("hoodie.datasource.write.row.writer.enable",),
    "the engine chooses": (
        "hoodie.bootstrap.parallelism",
        "hoodie.global.index.reconcile.parallelism",
        "hoodie.upsert.shuffle.parallelism",
        "hoodie.insert.shuffle.parallelism",
        "hoodie.delete.shuffle.parallelism",
        "hoodie.simple.index.parallelism",
        "hoodie.global.simple.index.parallelism",
        "hoodie.clustering.group.read.parallelism",
        "hoodie.clustering.max.parallelism",
        "hoodie.clustering.plan.generation.use.local.engine.context",
        "hoodie.clean.optimize.using.local.engine.context",
        "hoodie.bucket.index.remote.partitioner.enable",
        "hoodie.file.listing.parallelism",
        "hoodie.finalize.write.parallelism",
        "hoodie.markers.delete.parallelism",
        "hoodie.metadata.index.bloom.filter.parallelism",
        "hoodie.metadata.index.column.stats.parallelism",
        "hoodie.metadata.index.expression.parallelism",
        "hoodie.metadata.index.partition.stats.parallelism",
        "hoodie.metadata.index.secondary.parallelism",
        "hoodie.metadata.max.init.parallelism",
        "hoodie.metadata.record.preparation.parallelism",
        "hoodie.metadata.repartition.*",
        "hoodie.metadata.range.repartition.*",
        "hoodie.metadata.streaming.write.datatable.write.statuses.coalesce.divisor",
    ),
    "deletions of a rollback run on a fixed pool": ("hoodie.rollback.parallelism",),
    "deletions of a clean run on a fixed pool": ("hoodie.clean.parallelism", "hoodie.cleaner.parallelism"),
    "instants are removed one after the other, oldest first": ("hoodie.archive.delete.parallelism",),
    "files of the history are always merged": ("hoodie.archive.merge.enable",),
    "all instants of one archival go into one file": ("hoodie.commits.archival.batch",),
    "rollbacks use markers where they exist and listings otherwise": ("hoodie.rollback.using.markers",),
    "a storage lock is the default, no adjustment is needed": ("hoodie.auto.adjust.lock.configs",),
    "there is one reader": ("hoodie.file.group.reader.enabled",),
    "blocks that a log compaction merged are always skipped": (
        "hoodie.optimized.log.blocks.scan.enable",
        "hoodie.metadata.optimized.log.blocks.scan.enable",
    ),
    "log blocks are always read one at a time": ("hoodie.compaction.lazy.block.read",),
    "log files are always read forward": ("hoodie.compaction.reverse.log.read",),
    "file sizes are measured while writing": ("hoodie.parquet.compression.ratio", "hoodie.logfile.to.parquet.compression.ratio"),
    "schemas are always validated": ("hoodie.avro.schema.validate",),
    "reserved": ("hoodie.datasource.write.drop.partition.columns.default",),
    "key ranges are compared as columns": ("hoodie.bloom.index.use.treebased.filter",),
    "lookups are split by file": (
        "hoodie.bloom.index.bucketized.checking",
        "hoodie.bloom.index.keys.per.bucket",
        "hoodie.bloom.index.parallelism",
        "hoodie.bloom.index.fileid.key.sorting.enable",
        "hoodie.bloom.index.bucketized.checking.enable.dynamic.parallelism",
    ),
    "the engine decides how incoming rows are cached": (
        "hoodie.bloom.index.use.caching",
        "hoodie.bloom.index.input.storage.level",
        "hoodie.simple.index.use.caching",
        "hoodie.simple.index.input.storage.level",
        "hoodie.record.index.use.caching",
        "hoodie.record.index.input.storage.level",
        "hoodie.write.status.storage.level",
        "hoodie.write.tagged.record.storage.level",
        "hoodie.expression.index.range.metadata.storage.level",
        "hoodie.release.resource.on.completion.enable",
    ),
    "registered generators are always reused, and the clock holds no state": ("_hoodie.time.generator.reuse.enable",),
    "the Thrift server (pyhudi.index.hbase.thrift.uris) locates HBase": ("hoodie.index.hbase.zkquorum",),
    "the Thrift server locates HBase": ("hoodie.index.hbase.zkport", "hoodie.index.hbase.zknode.path"),
    "the Thrift server holds the session": (
        "hoodie.index.hbase.zk.session_timeout_ms",
        "hoodie.index.hbase.zk.connection_timeout_ms",
    ),
    "used only with hoodie.index.hbase.put.batch.size.autocompute": (
        "hoodie.index.hbase.qps.fraction",
        "hoodie.index.hbase.max.qps.per.region.server",
    ),
    "used only with hoodie.index.hbase.dynamic_qps": (
        "hoodie.index.hbase.min.qps.fraction",
        "hoodie.index.hbase.max.qps.fraction",
        "hoodie.index.hbase.desired_puts_time_in_secs",
        "hoodie.index.hbase.zkpath.qps_root",
    ),
    "used only by another index class, which hoodie.index.class would select": ("hoodie.index.hbase.bucket.number",),
    "partitions are always listed lazily": ("hoodie.datasource.read.file.index.listing.mode",),
    "waiting for the lock is bounded by hoodie.write.lock.wait_time_ms": (
        "hoodie.write.lock.client.num_retries",
        "hoodie.write.lock.client.wait_time_ms_between_retry",
    ),
    "a lock request is retried until hoodie.write.lock.wait_time_ms has passed": (
        "hoodie.write.lock.num_retries",
        "hoodie.write.lock.wait_time_ms_between_retry",
    ),
    "pauses between retries grow to one second": ("hoodie.write.lock.max_wait_time_ms_between_retry",),
    "the port is part of hoodie.write.lock.zookeeper.url, where Hudi reads it too": ("hoodie.write.lock.zookeeper.port",),
    "compaction keeps commit times, so it adds nothing to an incremental query": ("hoodie.datasource.read.incr.skip_compact",),
    "clustering keeps commit times, so it adds nothing to an incremental query": ("hoodie.datasource.read.incr.skip_cluster",),
    "columns are resolved by id wherever the table has a schema history": (table_options.SCHEMA_ON_READ,),
    "metrics are sent when an operation ends": (
        "hoodie.metrics.pushgateway.report.period.seconds",
        "hoodie.metrics.datadog.report.period.seconds",
    ),
    "the Datadog API key is checked by the requests that send metrics": ("hoodie.metrics.datadog.api.key.skip.validation",),
    "used only by reporters that are refused": (
        "hoodie.metrics.graphite.*",
        "hoodie.metrics.jmx.*",
        "hoodie.metrics.m3.*",
        "hoodie.metrics.cloudwatch.*",
    ),
    "operations of PyHudi have no executor metrics": ("hoodie.metrics.executor.enable",),
    "operations of the metadata table are part of the operations of the table": ("hoodie.metadata.metrics.enable",),
    "metrics of a compaction contain its log files": ("hoodie.metricscompaction.log.blocks.on",),
    "used only by HiveServer2, which is refused": (
        "hoodie.datasource.hive_sync.username",
        "hoodie.datasource.hive_sync.password",
    ),
    "the table is that of the call": ("hoodie.datasource.meta.sync.base.path",),
    "partitions are listed as in every read": ("hoodie.meta.sync.metadata_file_listing",),
    "partitions of the catalog are always listed": (
        "hoodie.datasource.hive_sync.filter_pushdown_enabled",
        "hoodie.datasource.hive_sync.filter_pushdown_max_size",
    ),
    "one request at a time is sent to Glue": (
        "hoodie.datasource.meta.sync.glue.all_partitions_read_parallelism",
        "hoodie.datasource.meta.sync.glue.changed_partitions_read_parallelism",
        "hoodie.datasource.meta.sync.glue.partition_change_parallelism",
    ),
    "the path is the argument of the call": ("path", "hoodie.base.path"),
    "file slices are built in memory from one listing": (
        "hoodie.filesystem.view.*",
        "hoodie.filesystem.remote.backup.view.enable",
        "hoodie.file.index.enable",
        "hoodie.file.index.cache.*",
        "hoodie.datasource.read.file.index.list.partitions.from.catalog",
        "hoodie.datasource.read.file.index.listing.partition-path-prefix.analysis.enabled",
        "hoodie.datasource.read.file.index.optimize.listing.using.path.filter",
    ),
    "memory is bounded by pyhudi.memory.budget.bytes": (
        "hoodie.memory.*",
        "hoodie.common.spillable.diskmap.type",
        "hoodie.common.diskmap.compression.enabled",
        "hoodie.cdc.file.group.iterator.memory.spill.bytes",
        "hoodie.metadata.max.reader.buffer.size",
        "hoodie.metadata.max.reader.memory",
        "hoodie.metadata.spillable.map.path",
        "hoodie.write.buffer.*",
        "hoodie.write.executor.*",
    ),
    "files of the metadata table have a fixed layout and their own cache": (
        "hoodie.hfile.block.*",
        "hoodie.hfile.compression.algorithm",
        "hoodie.hfile.max.file.size",
        "_hoodie.hfile.use.native.reader",
        "hoodie.metadata.file.cache.max.size.mb",
        "hoodie.metadata.bloom.filter.*",
    ),
    "the supported stores are consistent: a file is visible once it is written": (
        "hoodie.consistency.check.*",
        "_hoodie.optimistic.consistency.guard.enable",
        "hoodie.optimistic.consistency.guard.sleep_time_ms",
    ),
    "retries are options of the storage (storage_options)": ("hoodie.filesystem.operation.retry.*",),
    "each storage declares whether it creates files atomically": ("hoodie.fs.atomic_creation.support",),
    "the option belongs to Hudi Streamer": ("hoodie.streamer.*", "hoodie.deltastreamer.*", "hoodie.sensitive.config.keys"),
    "used only with hoodie.errortable.enable, which is refused": ("hoodie.errortable.*",),
    "used only with hoodie.metaserver.enabled, which is refused": ("hoodie.metaserver.*",),
    "used only with hoodie.table.service.manager.enabled, which is refused": (
        "hoodie.table.service.manager.*",
        "hoodie.metadata.table.service.manager.actions",
    ),
    "used only by a sync tool that hoodie.meta.sync.client.tool.class would select, which is refused": (
        "hoodie.meta.sync.datahub.*",
        "hoodie.gcp.bigquery.sync.*",
        "hoodie.datasource.adb.sync.*",
    ),
    "used only with a user-defined partitioner, which is refused": ("hoodie.bulkinsert.sort.suffix.record_key",),
    "used only with hoodie.metadata.log.compaction.enable, which is refused": (
        "hoodie.metadata.log.compaction.blocks.threshold",
    ),
    "used only with hoodie.rollback.instant.backup.enabled, which is refused": ("hoodie.rollback.instant.backup.dir",),
    "used only with hoodie.write.merge.handle.class, which is refused": ("hoodie.write.merge.handle.fallback",),
    "base files are Parquet or ORC": ("hoodie.lance.*",),
    "record sizes are estimated from recent commits": ("_hoodie.record.size.estimator.max.commits",),
    "files with older schemas are always read in the schema of the table": (
        "hoodie.avro.schema.external.transformation",
        "hoodie.avro.schema.externalTransformation",
    ),
    "files of repeated tasks are never published": ("hoodie.block.writes.on.speculative.execution",),
    "curves are built from ranks of the values": (
        "hoodie.layout.optimize.build.curve.sample.size",
        "hoodie.layout.optimize.curve.build.method",
    ),
    "Hudi ignores it too; set hoodie.layout.optimize.strategy": (
        "hoodie.layout.optimize.enable",
        "hoodie.layout.optimize.data.skipping.enable",
    ),
    "indexes are created and dropped with Table.index, and every write updates those that exist": (
        "hoodie.metadata.index.expression.enable",
        "hoodie.metadata.index.secondary.enable",
        "hoodie.metadata.auto.delete.partitions",
    ),
    "statistics are read as columns": (
        "hoodie.metadata.index.column.stats.inMemory.projection.threshold",
        "hoodie.metadata.index.column.stats.processing.mode.override",
    ),
    "the metadata table is written with each commit": (METADATA_STREAMING,),
    "ORC files have stripes only": ("hoodie.orc.block.size",),
    "files have no Parquet field ids": ("hoodie.parquet.field_id.write.enabled",),
    "rollbacks are planned under the lock": ("hoodie.rollback.avoid.duplicate.plan",),
    "it concerns upgrades from versions before 6": ("hoodie.skip.default.partition.validation",),
    "it is internal to Hudi's SQL": (
        "hoodie.internal.sql.merge.into.writes",
        "hoodie.internal.write.schema.canonicalize",
        "hoodie.spark.sql.optimized.writes.enable",
        "hoodie.spark.sql.merge.into.partial.updates",
    ),
    "Polaris catalogs are not supported": ("hoodie.spark.polaris.catalog.class",),
    "locks name their process": ("hoodie.write.application.id",),
    "a row that cannot be written fails the write": ("hoodie.write.ignore.failed",),
}
"""The options by reason."""

NO_OP = {name: reason for reason, names in REASONS.items() for name in names}
"""The reason by option."""
