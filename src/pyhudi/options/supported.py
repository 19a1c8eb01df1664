"""Registry and validation of the `hoodie.*` options.

A caller's mapping is parsed once into an `Options` value; lower layers use typed settings. Options are declared on the
fields of those settings (see `pyhudi.options.declaration`); importing their modules here registers them all.

Every key belongs to one of these classes:

    supported   declared, parsed and applied (`SUPPORTED`)
    no effect   valid, but what it tunes does not exist here, so every value gives the same table (`NO_OP`, with the reason)
    refused     valid in Hudi, but not implemented in PyHudi: an error, unless the value is neutral (`REFUSED`); and names
                that only Hudi's Flink connector uses (`FLINK`)
    unknown     a warning with the nearest known key, except for keys with the prefix of commit metadata

`pyhudi.options.scope` defines which operations use a supported option. Table properties (`hoodie.table.*` and others)
are allowed among the options, as in Spark jobs; they are compared with the table.

Source: docs/reference/options.md, "Supported".
"""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Mapping

from pyhudi import features
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.properties import redact_secret
from pyhudi.operations.admin.stored_settings import OPTION_PREFIX, STORED_PREFIXES, check_storable_option
from pyhudi.operations.admin.table_settings import TableSettings
from pyhudi.operations.catalog_sync.sync_settings import SyncSettings
from pyhudi.operations.commit.commit_settings import METADATA_PREFIX, THREADS
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.query import QUERY_OPTIONS
from pyhudi.operations.read.stream_queries import START_OFFSET
from pyhudi.operations.services.async_indexing import IndexSettings
from pyhudi.operations.services.run_services import ServiceRunSettings
from pyhudi.operations.write.micro_batches import SinkSettings
from pyhudi.operations.write.write_settings import OPERATION, PARTITIONS_TO_DELETE, SAVE_MODE, WriteSettings
from pyhudi.options.declaration import Option, Options, settings_options
from pyhudi.planning.record_placement import SizingSettings
from pyhudi.planning.stream_batches import BatchLimits
from pyhudi.records.mergers import is_merger_class
from pyhudi.storage.locks import LockSettings
from pyhudi.tasks.base_file_writer import FileSettings

__all__ = [
    "FLINK",
    "SUPPORTED",
    "NO_OP",
    "FORWARDED",
    "REFUSED",
    "FileSettings",
    "Option",
    "Options",
    "SizingSettings",
    "parse_options",
    "canonical_name",
]

_BOOTSTRAP = features.find("bootstrap")

_SETTINGS = (
    TableSettings,
    LockSettings,
    WriteSettings,
    ServiceRunSettings,
    IndexSettings,
    ReadSettings,
    BatchLimits,
    SinkSettings,
    *(() if _BOOTSTRAP is None else (_BOOTSTRAP.BootstrapSettings,)),
    SyncSettings,
)
_SINGLE = (THREADS, OPERATION, PARTITIONS_TO_DELETE, SAVE_MODE, *QUERY_OPTIONS, START_OFFSET)

SUPPORTED: Mapping[str, Option] = {
    option.key: option for option in sorted({*_SINGLE, *(o for s in _SETTINGS for o in settings_options(s))}, key=str)
}
"""Supported options by canonical key."""

NO_OP: dict[str, str] = {
    "hoodie.embed.timeline.server": "PyHudi runs no timeline server",
    "hoodie.embed.timeline.server.async": "PyHudi runs no timeline server",
    "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms": "each file is checked against other writers' markers",
    "hoodie.write.concurrency.async.conflict.detector.period_ms": "each file is checked against other writers' markers",
    "hoodie.markers.timeline_server_based.batch.num_threads": "each marker is a separate file, written immediately",
    "hoodie.markers.timeline_server_based.batch.interval_ms": "each marker is a separate file, written immediately",
    "hoodie.datasource.write.row.writer.enable": "there is one writer, and it works on Arrow columns",
    "hoodie.bootstrap.parallelism": "the engine chooses",
    "hoodie.rollback.parallelism": "deletions of a rollback run on a fixed pool",
    "hoodie.clean.parallelism": "deletions of a clean run on a fixed pool",
    "hoodie.cleaner.parallelism": "deletions of a clean run on a fixed pool",
    "hoodie.archive.delete.parallelism": "instants are removed one after the other, oldest first",
    "hoodie.archive.merge.enable": "files of the history are always merged",
    "hoodie.commits.archival.batch": "all instants of one archival go into one file",
    "hoodie.rollback.using.markers": "rollbacks use markers where they exist and listings otherwise",
    "hoodie.auto.adjust.lock.configs": "a storage lock is the default, no adjustment is needed",
    "hoodie.file.group.reader.enabled": "there is one reader",
    "hoodie.optimized.log.blocks.scan.enable": "blocks that a log compaction merged are always skipped",
    "hoodie.compaction.lazy.block.read": "log blocks are always read one at a time",
    "hoodie.compaction.reverse.log.read": "log files are always read forward",
    "hoodie.parquet.compression.ratio": "file sizes are measured while writing",
    "hoodie.avro.schema.validate": "schemas are always validated",
    "hoodie.datasource.write.drop.partition.columns.default": "reserved",
    "hoodie.bloom.index.use.treebased.filter": "key ranges are compared as columns",
    "hoodie.bloom.index.bucketized.checking": "lookups are split by file",
    "hoodie.bloom.index.keys.per.bucket": "lookups are split by file",
    "hoodie.bloom.index.parallelism": "lookups are split by file",
    "hoodie.bloom.index.fileid.key.sorting.enable": "lookups are split by file",
    "hoodie.bloom.index.use.caching": "the engine decides how incoming rows are cached",
    "hoodie.bloom.index.input.storage.level": "the engine decides how incoming rows are cached",
    "hoodie.simple.index.use.caching": "the engine decides how incoming rows are cached",
    "hoodie.simple.index.input.storage.level": "the engine decides how incoming rows are cached",
    "hoodie.record.index.use.caching": "the engine decides how incoming rows are cached",
    "hoodie.record.index.input.storage.level": "the engine decides how incoming rows are cached",
    "hoodie.global.index.reconcile.parallelism": "the engine chooses",
    "hoodie.upsert.shuffle.parallelism": "the engine chooses",
    "hoodie.insert.shuffle.parallelism": "the engine chooses",
    "hoodie.delete.shuffle.parallelism": "the engine chooses",
    "hoodie.simple.index.parallelism": "the engine chooses",
    "hoodie.global.simple.index.parallelism": "the engine chooses",
    "_hoodie.time.generator.reuse.enable": "registered generators are always reused, and the clock holds no state",
    "hoodie.index.hbase.zkquorum": "the Thrift server (pyhudi.index.hbase.thrift.uris) locates HBase",
    "hoodie.index.hbase.zkport": "the Thrift server locates HBase",
    "hoodie.index.hbase.zknode.path": "the Thrift server locates HBase",
    "hoodie.index.hbase.zk.session_timeout_ms": "the Thrift server holds the session",
    "hoodie.index.hbase.zk.connection_timeout_ms": "the Thrift server holds the session",
    "hoodie.index.hbase.qps.fraction": "used only with hoodie.index.hbase.put.batch.size.autocompute",
    "hoodie.index.hbase.min.qps.fraction": "used only with hoodie.index.hbase.dynamic_qps",
    "hoodie.index.hbase.max.qps.fraction": "used only with hoodie.index.hbase.dynamic_qps",
    "hoodie.index.hbase.max.qps.per.region.server": "used only with hoodie.index.hbase.put.batch.size.autocompute",
    "hoodie.index.hbase.desired_puts_time_in_secs": "used only with hoodie.index.hbase.dynamic_qps",
    "hoodie.index.hbase.zkpath.qps_root": "used only with hoodie.index.hbase.dynamic_qps",
    "hoodie.index.hbase.bucket.number": "used only by another index class, which hoodie.index.class would select",
    "hoodie.datasource.read.file.index.listing.mode": "partitions are always listed lazily",
    "hoodie.write.lock.client.num_retries": "waiting for the lock is bounded by hoodie.write.lock.wait_time_ms",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "waiting for the lock is bounded by hoodie.write.lock.wait_time_ms",
    "hoodie.write.lock.num_retries": "a lock request is retried until hoodie.write.lock.wait_time_ms has passed",
    "hoodie.write.lock.wait_time_ms_between_retry": "a lock request is retried until hoodie.write.lock.wait_time_ms has passed",
    "hoodie.write.lock.max_wait_time_ms_between_retry": "pauses between retries grow to one second",
    "hoodie.write.lock.zookeeper.port": "the port is part of hoodie.write.lock.zookeeper.url, where Hudi reads it too",
    "hoodie.datasource.read.incr.skip_compact": "compaction keeps commit times, so it adds nothing to an incremental query",
    "hoodie.datasource.read.incr.skip_cluster": "clustering keeps commit times, so it adds nothing to an incremental query",
    "hoodie.schema.on.read.enable": "columns are resolved by id wherever the table has a schema history",
    "hoodie.metrics.on": "results contain their own metrics",
    "hoodie.datasource.hive_sync.username": "used only by HiveServer2, which is refused",
    "hoodie.datasource.hive_sync.password": "used only by HiveServer2, which is refused",
    "hoodie.datasource.meta.sync.base.path": "the table is that of the call",
    "hoodie.meta.sync.metadata_file_listing": "partitions are listed as in every read",
    "hoodie.datasource.hive_sync.filter_pushdown_enabled": "partitions of the catalog are always listed",
    "hoodie.datasource.hive_sync.filter_pushdown_max_size": "partitions of the catalog are always listed",
    "hoodie.datasource.meta.sync.glue.all_partitions_read_parallelism": "one request at a time is sent to Glue",
    "hoodie.datasource.meta.sync.glue.changed_partitions_read_parallelism": "one request at a time is sent to Glue",
    "hoodie.datasource.meta.sync.glue.partition_change_parallelism": "one request at a time is sent to Glue",
    "path": "the path is the argument of the call",
}
"""Valid keys without effect, with the reason."""

_BUILT_IN_MERGERS = (
    "",
    "org.apache.hudi.DefaultSparkRecordMerger",
    "org.apache.hudi.HoodieSparkRecordMerger",
    "org.apache.hudi.common.model.HoodieAvroRecordMerger",
)
_REGISTERED_MERGERS = (
    "mergers are Java classes, which do not run here; register one in Python for the strategy id of the table, under the name of "
    "each listed class (pyhudi.register_merger)"
)

_NO_HIVE_SERVER = (
    "HiveServer2 is not supported: set the metastore with hoodie.datasource.hive_sync.metastore.uris and "
    "hoodie.datasource.hive_sync.mode=hms"
)

_HBASE_PACE = (
    "requests to HBase are limited by hoodie.index.hbase.put.batch.size and hoodie.index.hbase.sleep.ms.for.put.batch, and by "
    "the corresponding options for get"
)

REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "hoodie.write.auto.upgrade": ("a write does not change the table version; call `Table.upgrade`", ("false",)),
    "hoodie.write.record.merge.custom.implementation.classes": (_REGISTERED_MERGERS, _BUILT_IN_MERGERS),
    "hoodie.datasource.write.record.merger.impls": (_REGISTERED_MERGERS, _BUILT_IN_MERGERS),
    "hoodie.index.class": ("indexes of Java classes do not run here; select one with hoodie.index.type", ("",)),
    "hoodie.index.hbase.put.batch.size.autocompute": (_HBASE_PACE, ("false",)),
    "hoodie.index.hbase.dynamic_qps": (_HBASE_PACE, ("false",)),
    "hoodie.index.hbase.qps.allocator.class": (
        _HBASE_PACE,
        ("org.apache.hudi.index.hbase.DefaultHBaseQPSResourceAllocator",),
    ),
    "hoodie.index.hbase.security.authentication": ("Kerberos is not supported for HBase's Thrift server", ("simple",)),
    "hoodie.index.hbase.kerberos.user.keytab": ("Kerberos is not supported for HBase's Thrift server", ("",)),
    "hoodie.index.hbase.kerberos.user.principal": ("Kerberos is not supported for HBase's Thrift server", ("",)),
    "hoodie.index.hbase.regionserver.kerberos.principal": ("Kerberos is not supported for HBase's Thrift server", ("",)),
    "hoodie.index.hbase.master.kerberos.principal": ("Kerberos is not supported for HBase's Thrift server", ("",)),
    "hoodie.metadata.index.async": ("indexes are built at the start of a write", ("false",)),
    "hoodie.metadata.log.compaction.enable": ("the metadata table has compaction, but no log compaction", ("false",)),
    "hoodie.metadata.index.bloom.filter.column.list": ("Bloom filters contain record keys only", ("",)),
    "hoodie.clean.async.enabled": ("cleaning runs after the commit or in a separate call", ("false",)),
    "hoodie.clean.async": ("cleaning runs after the commit or in a separate call", ("false",)),
    "hoodie.archive.async": ("archival runs after the commit or in a separate call", ("false",)),
    "hoodie.clean.delete.bootstrap.base.file": ("files outside of the table are never deleted", ("false",)),
    "hoodie.cleaner.delete.bootstrap.base.file": ("files outside of the table are never deleted", ("false",)),
    "hoodie.allow.operation.metadata.field": (
        "the _hoodie_operation column is not written: Hudi's Spark writers leave it empty and lose updates of log files with it",
        ("false",),
    ),
    "hoodie.precommit.validators": ("pre-commit validators are not supported", ("",)),
    "hoodie.bulkinsert.user.defined.partitioner.class": (
        "user-defined partitioner classes are Java classes; sort the data instead",
        ("",),
    ),
    "hoodie.datasource.overwrite.mode": (
        "it selects between two SQL operations; use insert_overwrite or insert_overwrite_table",
        ("DYNAMIC",),
    ),
    "hoodie.datasource.read.streaming.table.version": ("streams are ordered by completion time", ("8",)),
    "hoodie.datasource.read.incr.path.glob": ("use a filter on the partition columns", ("",)),
    "hoodie.datasource.read.incr.filters": ("use a filter", ("",)),
    "hoodie.bootstrap.full.input.provider": (
        "a bootstrap reads the Parquet files themselves",
        ("", "org.apache.hudi.bootstrap.SparkParquetBootstrapDataProvider"),
    ),
    "hoodie.bootstrap.data.queries.only": ("rows of bootstrapped tables include their meta columns", ("false",)),
    "hoodie.datasource.hive_sync.jdbcurl": (_NO_HIVE_SERVER, ("",)),
    "hoodie.datasource.hive_sync.use_jdbc": (_NO_HIVE_SERVER, ("false",)),
    "hoodie.datasource.hive_sync.base_file_format": ("base files are Parquet", ("PARQUET", "parquet")),
    "hoodie.datasource.hive_sync.use_pre_apache_input_format": (
        "the input formats of com.uber.hoodie do not read tables of Hudi 1.0",
        ("false",),
    ),
    "hoodie.datasource.hive_sync.bucket_sync": ("buckets are not registered in the metastore, as in Hudi's mode hms", ("false",)),
    "hoodie.datasource.hive_sync.bucket_sync_spec": ("buckets are not registered in the metastore, as in Hudi's mode hms", ("",)),
    "hoodie.meta.sync.decode_partition": (
        "partition values are registered as encoded in paths, as in Hudi, which decodes them only to drop partitions",
        ("false",),
    ),
    "hoodie.datasource.meta.sync.glue.partition_index_fields.enable": ("Glue partition indexes are not supported", ("false",)),
    "hoodie.datasource.meta.sync.glue.partition_index_fields": ("Glue partition indexes are not supported", ("",)),
}
"""Valid keys that PyHudi does not implement: the reason, and the neutral values that are accepted."""

FORWARDED = (
    *STORED_PREFIXES,
    "hoodie.keygen.timebased.",
    "hoodie.deltastreamer.keygen.timebased.",
    "spark.",
)
"""Prefixes of keys that other code reads by name (key generators), or that belong to Spark's session."""

_NONE = Options(())

FLINK: dict[str, str | None] = {
    "archive.max_commits": "hoodie.keep.max.commits",
    "archive.min_commits": "hoodie.keep.min.commits",
    "cdc.enabled": "hoodie.table.cdc.enabled",
    "cdc.supplemental.logging.mode": "hoodie.table.cdc.supplemental.logging.mode",
    "changelog.enabled": None,
    "clean.async.enabled": "hoodie.clean.automatic",
    "clean.policy": "hoodie.clean.policy",
    "clean.retain_commits": "hoodie.clean.commits.retained",
    "clean.retain_file_versions": "hoodie.clean.fileversions.retained",
    "clean.retain_hours": "hoodie.clean.hours.retained",
    "clustering.async.enabled": "hoodie.clustering.async.enabled",
    "clustering.delta_commits": "hoodie.clustering.async.max.commits",
    "clustering.plan.partition.filter.mode": "hoodie.clustering.plan.partition.filter.mode",
    "clustering.plan.strategy.class": "hoodie.clustering.plan.strategy.class",
    "clustering.plan.strategy.cluster.begin.partition": "hoodie.clustering.plan.strategy.cluster.begin.partition",
    "clustering.plan.strategy.cluster.end.partition": "hoodie.clustering.plan.strategy.cluster.end.partition",
    "clustering.plan.strategy.daybased.lookback.partitions": "hoodie.clustering.plan.strategy.daybased.lookback.partitions",
    "clustering.plan.strategy.daybased.skipfromlatest.partitions": (
        "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions"
    ),
    "clustering.plan.strategy.max.num.groups": "hoodie.clustering.plan.strategy.max.num.groups",
    "clustering.plan.strategy.partition.regex.pattern": "hoodie.clustering.plan.strategy.partition.regex.pattern",
    "clustering.plan.strategy.partition.selected": "hoodie.clustering.plan.strategy.partition.selected",
    "clustering.plan.strategy.small.file.limit": "hoodie.clustering.plan.strategy.small.file.limit",
    "clustering.plan.strategy.sort.columns": "hoodie.clustering.plan.strategy.sort.columns",
    "clustering.plan.strategy.target.file.max.bytes": "hoodie.clustering.plan.strategy.target.file.max.bytes",
    "clustering.schedule.enabled": "hoodie.clustering.schedule.inline",
    "clustering.tasks": None,
    "compaction.async.enabled": "hoodie.datasource.compaction.async.enable",
    "compaction.delta_commits": "hoodie.compact.inline.max.delta.commits",
    "compaction.delta_seconds": "hoodie.compact.inline.max.delta.seconds",
    "compaction.max_memory": "pyhudi.memory.budget.bytes",
    "compaction.operation.execute.async.enabled": "hoodie.datasource.compaction.async.enable",
    "compaction.schedule.enabled": "hoodie.compact.schedule.inline",
    "compaction.target_io": "hoodie.compaction.target.io",
    "compaction.tasks": None,
    "compaction.timeout.seconds": None,
    "compaction.trigger.strategy": "hoodie.compact.inline.trigger.strategy",
    "eventtime.field": None,
    "hive_sync.enable": None,
    "hive_sync.enabled": None,
    "index.bootstrap.enabled": None,
    "index.global.enabled": "hoodie.index.type",
    "index.partition.regex": None,
    "index.state.ttl": None,
    "index.type": "hoodie.index.type",
    "metadata.compaction.delta_commits": "hoodie.metadata.compact.max.delta.commits",
    "metadata.enabled": "hoodie.metadata.enable",
    "partition.default_name": None,
    "payload.class": "hoodie.datasource.write.payload.class",
    "precombine.field": "hoodie.datasource.write.precombine.field",
    "read.cdc.from.changelog": None,
    "read.commits.limit": "pyhudi.stream.max.instants",
    "read.data.skipping.enabled": "hoodie.enable.data.skipping",
    "read.end-commit": "hoodie.datasource.read.end.instanttime",
    "read.start-commit": "hoodie.datasource.read.begin.instanttime",
    "read.streaming.check-interval": None,
    "read.streaming.enabled": None,
    "read.streaming.skip_clustering": None,
    "read.streaming.skip_compaction": None,
    "read.streaming.skip_insertoverwrite": None,
    "read.streaming.start-commit": "hoodie.datasource.streaming.startOffset",
    "read.tasks": None,
    "read.utc-timezone": None,
    "record.merge.mode": "hoodie.write.record.merge.mode",
    "record.merger.impls": None,
    "record.merger.strategy": "hoodie.write.record.merge.strategy.id",
    "source.avro-schema": None,
    "source.avro-schema.path": None,
    "table.type": "hoodie.datasource.write.table.type",
    "write.batch.size": None,
    "write.bucket_assign.tasks": None,
    "write.bulk_insert.shuffle_input": None,
    "write.bulk_insert.sort_input": "hoodie.bulkinsert.sort.mode",
    "write.bulk_insert.sort_input.by_record_key": "hoodie.bulkinsert.sort.mode",
    "write.client.id": None,
    "write.commit.ack.timeout": None,
    "write.datetime.partitioning": None,
    "write.ignore.failed": None,
    "write.index_bootstrap.tasks": None,
    "write.insert.cluster": None,
    "write.log.max.size": "hoodie.logfile.max.size",
    "write.log_block.size": "hoodie.logfile.data.block.max.size",
    "write.merge.max_memory": "pyhudi.memory.budget.bytes",
    "write.operation": "hoodie.datasource.write.operation",
    "write.parquet.block.size": "hoodie.parquet.block.size",
    "write.parquet.max.file.size": "hoodie.parquet.max.file.size",
    "write.parquet.page.size": "hoodie.parquet.page.size",
    "write.partition.format": None,
    "write.partition.overwrite.mode": "hoodie.datasource.write.operation",
    "write.payload.class": "hoodie.datasource.write.payload.class",
    "write.precombine": "hoodie.combine.before.upsert",
    "write.precombine.field": "hoodie.datasource.write.precombine.field",
    "write.rate.limit": None,
    "write.retry.interval.ms": None,
    "write.retry.times": "hoodie.write.num.retries.on.conflict.failures",
    "write.sort.memory": "pyhudi.memory.budget.bytes",
    "write.task.max.size": "pyhudi.memory.budget.bytes",
    "write.tasks": None,
    "write.utc-timezone": None,
}
"""Names used only by Hudi's Flink connector, and the corresponding option here; None if there is none."""


def parse_options(*layers: Mapping[str, object] | None, base_options: Options = _NONE) -> Options:
    """Validate and canonicalize options; later layers win.

    Warns about unknown keys with the nearest known one. Keys with the prefix of commit metadata are known; the options
    may set that prefix.

    Args:
        layers: Option mappings; None is empty.
        base_options: Options of an outer scope, for the prefix of commit metadata.

    Raises:
        InvalidRequest: An illegal value, two spellings of one option with different values, or a name of the Flink
            connector.
        Unsupported: An option that PyHudi does not implement.
    """
    values: dict[str, str] = {}
    extra: dict[str, str] = {}
    for layer in layers:
        spellings: dict[str, tuple[str, str]] = {}
        for key, raw in (layer or {}).items():
            if raw is None:
                continue
            text = _to_text(raw)
            option = _BY_SPELLING.get(key)
            if option is not None:
                checked = _check_value(key, option, text)
                earlier = spellings.get(option.key)
                if earlier is not None and earlier[1] != checked:
                    raise InvalidRequest(
                        f"options {earlier[0]}={redact_secret(earlier[0], earlier[1])} and {key}={redact_secret(key, text)} are "
                        "spellings of one "
                        "option and have different values"
                    )
                spellings[option.key] = (key, checked)
                values[option.key] = checked
            elif key.startswith(OPTION_PREFIX):
                name, checked = storable_option(key.removeprefix(OPTION_PREFIX), text)
                extra[OPTION_PREFIX + name] = checked
            elif key in REFUSED:
                reason, neutral = REFUSED[key]
                if text not in neutral and not (reason is _REGISTERED_MERGERS and _are_mergers(text)):
                    raise Unsupported(f"option {key}={redact_secret(key, text)} is refused: {reason}")
            elif key in FLINK:
                ours = FLINK[key]
                hint = f"use {ours}" if ours else "it has no effect in PyHudi; leave it out"
                raise InvalidRequest(f"option {key}={redact_secret(key, text)} belongs to Hudi's Flink connector: {hint}")
            elif key not in NO_OP:
                extra[key] = text
    prefix = values.get(METADATA_PREFIX.key, base_options.value_or_default(METADATA_PREFIX))
    for key in extra:
        if not key.startswith(FORWARDED) and not (prefix and key.startswith(prefix)):
            _warn_unknown(key)
    return Options(tuple(values.items()), tuple(extra.items()))


def storable_option(key: str, value: str) -> tuple[str, str]:
    """Return the canonical name and the checked value of an option that a table may store.

    Raises:
        InvalidRequest: It is no option, defines the table, has an illegal value, or must be passed with each call.
    """
    option = _BY_SPELLING.get(key)
    if option is None or option.stored_as is not None:
        raise InvalidRequest(
            f"property {key} is no option of reads, writes or services{nearest_name(key)}. See docs/reference/options.md"
        )
    check_storable_option(option)
    return option.key, _check_value(key, option, value)


def check_known(key: str) -> None:
    """Raise InvalidRequest for a key that is no option of Hudi or PyHudi, with the nearest one."""
    if key not in _KNOWN_KEYS and key not in FLINK and not key.startswith(FORWARDED):
        raise InvalidRequest(f"option {key} is unknown{nearest_name(key)}")


def nearest_name(key: str) -> str:
    """Return half a sentence that suggests the known option nearest to a key; empty if there is none."""
    near = difflib.get_close_matches(key, _KNOWN, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def canonical_name(key: str) -> str:
    """Restore the capitals of a known key that was lowercased, as Spark does with the options of a source."""
    return _CAPITALS.get(key, key)


def _to_text(raw: object) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, (list, tuple)):
        return ",".join(str(part) for part in raw)
    return str(raw)


def _are_mergers(names: str) -> bool:
    """Whether each class of a list is one of Hudi's own, or has a registered merger."""
    return all(name in _BUILT_IN_MERGERS or is_merger_class(name) for name in names.replace(" ", "").split(","))


def _check_value(key: str, option: Option, text: str) -> str:
    kind, shown = option.kind, redact_secret(key, text)
    if isinstance(kind, tuple):
        for word in kind:
            if text.strip().lower() == word.lower():
                return word
        raise InvalidRequest(f"option {key}={shown!r} is none of {', '.join(kind)}")
    if kind is bool:
        if text.strip().lower() not in ("true", "false"):
            raise InvalidRequest(f"option {key}={shown!r} is neither true nor false")
        return text.strip().lower()
    if kind in (int, float):
        pattern = _WHOLE_NUMBER if kind is int else _NUMBER
        if not pattern.fullmatch(text.strip()):
            raise InvalidRequest(f"option {key}={shown!r} is not a {'whole number' if kind is int else 'number'}")
        smallest = option.at_least
        if smallest is not None and float(text) < smallest:
            raise InvalidRequest(f"option {key}={shown} must be {'positive' if smallest == 1 else f'{smallest} or more'}")
        return text.strip()
    return text


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def _warn_unknown(key: str) -> None:
    warnings.warn(f"option {key} is unknown and has no effect{nearest_name(key)}", UserWarning, stacklevel=_depth_of_caller())


def _depth_of_caller() -> int:
    """Number of stack frames up to the code that called PyHudi: the line that a warning refers to."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "pyhudi":
        frame, depth = frame.f_back, depth + 1
    return depth


_BY_SPELLING = {spelling: option for option in SUPPORTED.values() for spelling in option.all_names}
_KNOWN = (*_BY_SPELLING, *NO_OP, *REFUSED)
_KNOWN_KEYS = frozenset(_KNOWN)
_CAPITALS = {key.lower(): key for key in _KNOWN if key != key.lower()}
