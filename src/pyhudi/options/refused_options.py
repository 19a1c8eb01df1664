"""Options of Hudi that PyHudi does not implement: the reason, and the neutral values that are accepted.

A name that ends with `*` covers all names with that beginning, except those that are supported.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.options import write_options


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why options are refused.

    Attributes:
        reason: Half a sentence for the message.
        neutral: Values that PyHudi behaves by, which are accepted, in any case.
        names: The options.
    """

    reason: str
    neutral: tuple[str, ...]
    names: tuple[str, ...]

    def accepts(self, text: str) -> bool:
        """Return True if PyHudi behaves as the value demands."""
        return text.strip().lower() in (value.lower() for value in self.neutral)


_BUILT_IN_MERGERS = (
    "",
    "org.apache.hudi.DefaultSparkRecordMerger",
    "org.apache.hudi.HoodieSparkRecordMerger",
    "org.apache.hudi.common.model.HoodieAvroRecordMerger",
)
MERGER_LISTS = Refusal(
    "mergers are Java classes, which do not run here; register one in Python for the strategy "
    "id of the table, under the name of each listed class (pyhudi.register_merger)",
    _BUILT_IN_MERGERS,
    ("hoodie.write.record.merge.custom.implementation.classes", "hoodie.datasource.write.record.merger.impls"),
)
"""Lists of merger classes, which are accepted where each class is registered."""

_OLD_INSERT_MODE = "it is deprecated: set hoodie.spark.sql.insert.into.operation in SQL, else hoodie.datasource.write.operation"

AUTO_UPGRADE = "hoodie.write.auto.upgrade"

REFUSALS = (
    MERGER_LISTS,
    Refusal("a write does not change the table version; call `Table.upgrade`", ("false",), (AUTO_UPGRADE,)),
    Refusal("indexes of Java classes do not run here; select one with hoodie.index.type", ("",), ("hoodie.index.class",)),
    Refusal(
        "requests to HBase are limited by hoodie.index.hbase.put.batch.size and "
        "hoodie.index.hbase.sleep.ms.for.put.batch, and by the corresponding options for get",
        ("false",),
        ("hoodie.index.hbase.put.batch.size.autocompute", "hoodie.index.hbase.dynamic_qps"),
    ),
    Refusal(
        "requests to HBase are limited by hoodie.index.hbase.put.batch.size and "
        "hoodie.index.hbase.sleep.ms.for.put.batch, and by the corresponding options for get",
        ("org.apache.hudi.index.hbase.DefaultHBaseQPSResourceAllocator",),
        ("hoodie.index.hbase.qps.allocator.class",),
    ),
    Refusal("Kerberos is not supported for HBase's Thrift server", ("simple",), ("hoodie.index.hbase.security.authentication",)),
    Refusal(
        "Kerberos is not supported for HBase's Thrift server",
        ("",),
        (
            "hoodie.index.hbase.kerberos.user.keytab",
            "hoodie.index.hbase.kerberos.user.principal",
            "hoodie.index.hbase.regionserver.kerberos.principal",
            "hoodie.index.hbase.master.kerberos.principal",
        ),
    ),
    Refusal("indexes are built at the start of a write", ("false",), ("hoodie.metadata.index.async",)),
    Refusal("the metadata table has compaction, but no log compaction", ("false",), ("hoodie.metadata.log.compaction.enable",)),
    Refusal("Bloom filters contain record keys only", ("",), ("hoodie.metadata.index.bloom.filter.column.list",)),
    Refusal(
        "cleaning runs after the commit or in a separate call", ("false",), ("hoodie.clean.async.enabled", "hoodie.clean.async")
    ),
    Refusal("archival runs after the commit or in a separate call", ("false",), ("hoodie.archive.async",)),
    Refusal(
        "files outside of the table are never deleted",
        ("false",),
        ("hoodie.clean.delete.bootstrap.base.file", "hoodie.cleaner.delete.bootstrap.base.file"),
    ),
    Refusal(
        "the _hoodie_operation column is not written: Hudi's Spark writers leave it empty and lose updates of log files with it",
        ("false",),
        ("hoodie.allow.operation.metadata.field",),
    ),
    Refusal(
        "user-defined partitioner classes are Java classes; sort the data instead",
        ("",),
        ("hoodie.bulkinsert.user.defined.partitioner.class",),
    ),
    Refusal(
        "it selects between two SQL operations; use insert_overwrite or insert_overwrite_table",
        ("DYNAMIC",),
        (write_options.OVERWRITE_MODE,),
    ),
    Refusal("streams are ordered by completion time", ("8",), ("hoodie.datasource.read.streaming.table.version",)),
    Refusal("use a filter on the partition columns", ("",), ("hoodie.datasource.read.incr.path.glob",)),
    Refusal("use a filter", ("",), ("hoodie.datasource.read.incr.filters",)),
    Refusal(
        "a bootstrap reads the Parquet files themselves",
        ("", "org.apache.hudi.bootstrap.SparkParquetBootstrapDataProvider"),
        ("hoodie.bootstrap.full.input.provider",),
    ),
    Refusal("rows of bootstrapped tables include their meta columns", ("false",), ("hoodie.bootstrap.data.queries.only",)),
    Refusal(
        "HiveServer2 is not supported: set the metastore with "
        "hoodie.datasource.hive_sync.metastore.uris and hoodie.datasource.hive_sync.mode=hms",
        ("",),
        ("hoodie.datasource.hive_sync.jdbcurl",),
    ),
    Refusal(
        "HiveServer2 is not supported: set the metastore with "
        "hoodie.datasource.hive_sync.metastore.uris and hoodie.datasource.hive_sync.mode=hms",
        ("false",),
        ("hoodie.datasource.hive_sync.use_jdbc",),
    ),
    Refusal("base files are Parquet", ("PARQUET", "parquet"), ("hoodie.datasource.hive_sync.base_file_format",)),
    Refusal(
        "the input formats of com.uber.hoodie do not read tables of Hudi 1.0",
        ("false",),
        ("hoodie.datasource.hive_sync.use_pre_apache_input_format",),
    ),
    Refusal(
        "buckets are not registered in the metastore, as in Hudi's mode hms",
        ("false",),
        ("hoodie.datasource.hive_sync.bucket_sync",),
    ),
    Refusal(
        "buckets are not registered in the metastore, as in Hudi's mode hms",
        ("",),
        ("hoodie.datasource.hive_sync.bucket_sync_spec",),
    ),
    Refusal(
        "partition values are registered as encoded in paths, as in Hudi, which decodes them only to drop partitions",
        ("false",),
        ("hoodie.meta.sync.decode_partition",),
    ),
    Refusal(
        "Glue partition indexes are not supported",
        ("false",),
        ("hoodie.datasource.meta.sync.glue.partition_index_fields.enable",),
    ),
    Refusal("Glue partition indexes are not supported", ("",), ("hoodie.datasource.meta.sync.glue.partition_index_fields",)),
    Refusal(
        "it names a Java class, which does not run here; leave it out",
        (
            "",
            "org.apache.hudi.avro.HoodieAvroWriteSupport",
            "org.apache.hudi.io.storage.row.HoodieRowDataParquetWriteSupport",
            "org.apache.hudi.io.storage.row.HoodieRowParquetWriteSupport",
            "org.apache.hudi.io.FileGroupReaderBasedMergeHandle",
            "org.apache.hudi.io.HoodieConcatHandle",
            "org.apache.hudi.table.action.compact.plan.generators.HoodieCompactionPlanGenerator",
            "org.apache.hudi.table.RandomFileIdPrefixProvider",
            "org.apache.hudi.io.storage.hadoop.HoodieHadoopIOFactory",
            "org.apache.hudi.storage.hadoop.HoodieHadoopStorage",
            "org.apache.hudi.estimator.AverageRecordSizeEstimator",
            "org.apache.hudi.client.WriteStatus",
            "org.apache.hudi.client.transaction.SimpleConcurrentFileWritesConflictResolutionStrategy",
            "org.apache.hudi.keygen.parser.HoodieDateTimeParser",
            "org.apache.hudi.table.action.commit.SparkBucketIndexPartitioner",
        ),
        (
            "hoodie.avro.write.support.class",
            "hoodie.parquet.spark.row.write.support.class",
            "hoodie.parquet.flink.rowdata.write.support.class",
            "hoodie.parquet.write.config.injector.class",
            "hoodie.compact.merge.handle.class",
            "hoodie.write.merge.handle.class",
            "hoodie.write.concat.handle.class",
            "hoodie.compaction.plan.generator",
            "hoodie.fileid.prefix.provider.class",
            "hoodie.io.factory.class",
            "hoodie.storage.class",
            "hoodie.record.size.estimator.class",
            "hoodie.writestatus.class",
            "hoodie.client.init.callback.classes",
            "hoodie.metrics.reporter.class",
            "hoodie.metrics.configs.properties",
            "hoodie.metrics.datadog.api.key.supplier",
            "hoodie.prewrite.validators",
            "hoodie.partition.ttl.strategy.class",
            "hoodie.storage.layout.partitioner.class",
            "hoodie.deltastreamer.keygen.datetime.parser.class",
            "hoodie.datasource.partition_extractor_class",
        ),
    ),
    Refusal(
        "the AWS credentials are hoodie.aws.access.key, hoodie.aws.secret.key and "
        "hoodie.aws.session.token, or those of the machine",
        ("",),
        ("hoodie.aws.*",),
    ),
    Refusal(
        "it is not supported",
        ("false",),
        (
            "_.hoodie.allow.multi.write.on.same.instant",
            "hoodie.archive.block.on.latest.clean.ectr",
            "hoodie.clustering.fail.on.pending.ingestion.during.conflict.resolution",
            "hoodie.datasource.hive_sync.use_spark_catalog",
            "hoodie.errortable.enable",
            "hoodie.hfile.writes.allow.duplicates",
            "hoodie.merge.data.validation.enabled",
            "hoodie.meta.sync.touch.partitions.enabled",
            "hoodie.metadata.record.index.enable.validation.on.initialization",
            "hoodie.metadata.record.level.index.defer.init",
            "hoodie.metaserver.enabled",
            "hoodie.rollback.instant.backup.enabled",
            "hoodie.write.complex.keygen.new.encoding",
            "hoodie.parquet.writelegacyformat.enabled",
            "hoodie.payload.update.on.same.ordering.field",
            "hoodie.datasource.read.partition.value.extractor.enabled",
        ),
    ),
    Refusal(
        "services run in the writer or with `Table.run_services`",
        ("false",),
        ("hoodie.table.service.manager.enabled", "hoodie.metadata.table.service.manager.enabled"),
    ),
    Refusal(
        "offsets of sources are not validated",
        ("0.0", "0"),
        ("hoodie.precommit.validators.streaming.offset.tolerance.percentage",),
    ),
    Refusal(
        "files that no task reported are deleted before the commit",
        ("false",),
        ("hoodie.fail.job.on.duplicate.data.file.detection",),
    ),
    Refusal(
        "services that fail after a commit follow hoodie.fail.writes.on.inline.table.service.exception",
        ("false",),
        ("hoodie.write.can.ignore.post.commit.failures", "hoodie.post.commit.failures.ignored"),
    ),
    Refusal(
        "services that fail after a commit follow hoodie.fail.writes.on.inline.table.service.exception",
        ("true",),
        ("hoodie.fail.on.timeline.archiving", "hoodie.metadata.write.fail.on.table.service.failures"),
    ),
    Refusal("log compactions are planned with hoodie.log.compaction.inline", ("false",), ("hoodie.log.compaction.enable",)),
    Refusal(
        "only the default is supported",
        ("true",),
        (
            "_hoodie.metadata.ignore.spurious.deletes",
            "hoodie.auto.commit",
            "hoodie.metadata.auto.initialize",
            "hoodie.metadata.derive.from.datatable.clean.policy",
            "hoodie.parquet.write.utc-timezone.enabled",
            "hoodie.write.complex.keygen.validation.enable",
            "hoodie.write.concurrency.schema.conflict.resolution.enable",
        ),
    ),
    Refusal(
        "the columns are those of the rows",
        ("",),
        (
            "hoodie.avro.schema",
            "hoodie.write.schema",
            "hoodie.internal.schema",
            "hoodie.bulkinsert.schema.ddl",
            "hoodie.write.partial.update.schema",
        ),
    ),
    Refusal("sort the data instead", ("",), ("hoodie.bulkinsert.user.defined.partitioner.sort.columns",)),
    Refusal("use insert_overwrite or insert_overwrite_table", ("",), ("hoodie.bulkinsert.overwrite.operation.type",)),
    Refusal("file slices are grouped by size", ("SIZE",), ("hoodie.clustering.plan.strategy.file.slices.sort.by",)),
    Refusal(
        "log files are always merged; for base files only use a read-optimized query",
        ("payload_combine",),
        ("hoodie.datasource.merge.type",),
    ),
    Refusal(
        "use the procedures and functions of SQL that show the timeline and the files",
        ("false", ""),
        ("hoodie.datasource.read.create.filesystem.relation", "hoodie.datasource.read.table.valued.function.*"),
    ),
    Refusal("use a filter", ("",), ("hoodie.datasource.read.paths",)),
    Refusal(
        "an incremental query returns the latest columns", ("false",), ("hoodie.datasource.read.schema.use.end.instanttime",)
    ),
    Refusal(
        "create indexes with `Table.index.create` or CREATE INDEX, and drop them with `Table.index.drop`",
        ("", "COLUMN_STATS"),
        (
            "hoodie.datasource.write.secondarykey.column",
            "hoodie.expression.index.function",
            "hoodie.expression.index.type",
            "hoodie.index.name",
            "hoodie.metadata.index.drop",
            "hoodie.metadata.index.expression.column",
            "hoodie.metadata.index.expression.options",
            "hoodie.metadata.index.secondary.column",
        ),
    ),
    Refusal(
        "it sets the operation of INSERT INTO; use SET in a SQL session, or hoodie.datasource.write.operation",
        ("insert",),
        (write_options.INSERT_OPERATION,),
    ),
    Refusal(_OLD_INSERT_MODE, ("false",), (write_options.BULK_INSERT_ENABLED,)),
    Refusal(_OLD_INSERT_MODE, ("upsert",), (write_options.INSERT_MODE,)),
    Refusal("the timestamp of a replicated table is not registered", ("",), ("hoodie.meta_sync.global.replicate.timestamp",)),
    Refusal("all folders with files are partitions", ("",), ("hoodie.metadata.dir.filter.regex",)),
    Refusal("only the default is supported", ("1000",), ("hoodie.metadata.max.deltacommits.when_pending",)),
    Refusal("only the default is supported", ("2147483648",), ("hoodie.metadata.max.logfile.size",)),
    Refusal(
        "the metadata table is written under the lock of the table",
        ("SINGLE_WRITER",),
        ("hoodie.metadata.write.concurrency.mode",),
    ),
    Refusal(
        "only the default is supported",
        ("10",),
        (
            "hoodie.metadata.record.level.index.max.filegroup.count",
            "hoodie.metadata.partitioned.record.index.max.filegroup.count",
        ),
    ),
    Refusal(
        "only the default is supported",
        ("1",),
        (
            "hoodie.metadata.record.level.index.min.filegroup.count",
            "hoodie.metadata.partitioned.record.index.min.filegroup.count",
        ),
    ),
    Refusal("hoodie.parquet.max.file.size applies to all base files", ("125829120",), ("hoodie.orc.max.file.size",)),
    Refusal("set hoodie.datasource.write.precombine.field", ("",), ("hoodie.payload.ordering.field",)),
    Refusal("only the default is supported", ("DESCRIPTOR",), ("hoodie.read.blob.inline.mode",)),
    Refusal(
        "incremental queries go by completion times, so that pending commits leave no holes",
        ("FAIL",),
        ("hoodie.read.timeline.holes.resolution.policy",),
    ),
    Refusal("the index type determines how files are organized", ("DEFAULT", "BUCKET"), ("hoodie.storage.layout.type",)),
    Refusal("only the default is supported", ("1048576000",), ("hoodie.timeline.compaction.target.file.max.bytes",)),
    Refusal("only the default is supported", ("3",), ("hoodie.timeline.manifest.retained.versions",)),
)

REFUSED = {name: refusal for refusal in REFUSALS for name in refusal.names}
"""The refusals by option."""
