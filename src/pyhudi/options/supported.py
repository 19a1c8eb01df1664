"""The `hoodie.*` options that a caller may give, and how they are checked.

A caller's mapping becomes an `Options` value once, at the edge; below it travel typed settings.  Options are declared on the
fields of those settings (see `pyhudi.options.declaration`); importing their modules here makes them all known.

Every key is in one of four classes:
    honoured   declared, parsed and obeyed (`SUPPORTED`)
    moot       legal, but what it tunes does not exist here, so any value gives the same table (`NO_OP`, each with the reason)
    refused    legal Hudi that PyHudi does not do: an error, unless the value is the one that asks for nothing (`REFUSED`); and
               what Flink's connector calls by names of its own (`FLINK`)
    unknown    a warning that names the nearest known key; those with the prefix for the metadata of commits are none of them

On which verbs an honoured option acts stands in `pyhudi.options.scope`.

Table properties (`hoodie.table.*` and their like) may stand among the options too, as Spark jobs write them; they are checked
against the table.

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
"""Honoured options by canonical key."""

NO_OP: dict[str, str] = {
    "hoodie.embed.timeline.server": "PyHudi runs no timeline server",
    "hoodie.embed.timeline.server.async": "PyHudi runs no timeline server",
    "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms": "markers of others are looked through at each file",
    "hoodie.write.concurrency.async.conflict.detector.period_ms": "markers of others are looked through at each file",
    "hoodie.markers.timeline_server_based.batch.num_threads": "each marker is a list of its own, and is written at once",
    "hoodie.markers.timeline_server_based.batch.interval_ms": "each marker is a list of its own, and is written at once",
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
    "hoodie.optimized.log.blocks.scan.enable": "blocks that a log compaction merged are always passed over",
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
    "hoodie.bloom.index.use.caching": "incoming rows are kept as the engine needs them",
    "hoodie.bloom.index.input.storage.level": "incoming rows are kept as the engine needs them",
    "hoodie.simple.index.use.caching": "incoming rows are kept as the engine needs them",
    "hoodie.simple.index.input.storage.level": "incoming rows are kept as the engine needs them",
    "hoodie.record.index.use.caching": "incoming rows are kept as the engine needs them",
    "hoodie.record.index.input.storage.level": "incoming rows are kept as the engine needs them",
    "hoodie.global.index.reconcile.parallelism": "the engine chooses",
    "hoodie.upsert.shuffle.parallelism": "the engine chooses",
    "hoodie.insert.shuffle.parallelism": "the engine chooses",
    "hoodie.delete.shuffle.parallelism": "the engine chooses",
    "hoodie.simple.index.parallelism": "the engine chooses",
    "hoodie.global.simple.index.parallelism": "the engine chooses",
    "_hoodie.time.generator.reuse.enable": "a generator is kept by whoever registered it, and the clock has nothing to keep",
    "hoodie.index.hbase.zkquorum": "the Thrift server (pyhudi.index.hbase.thrift.uris) knows where HBase is",
    "hoodie.index.hbase.zkport": "the Thrift server knows where HBase is",
    "hoodie.index.hbase.zknode.path": "the Thrift server knows where HBase is",
    "hoodie.index.hbase.zk.session_timeout_ms": "the Thrift server holds the session",
    "hoodie.index.hbase.zk.connection_timeout_ms": "the Thrift server holds the session",
    "hoodie.index.hbase.qps.fraction": "acts beside hoodie.index.hbase.put.batch.size.autocompute alone",
    "hoodie.index.hbase.min.qps.fraction": "acts beside hoodie.index.hbase.dynamic_qps alone",
    "hoodie.index.hbase.max.qps.fraction": "acts beside hoodie.index.hbase.dynamic_qps alone",
    "hoodie.index.hbase.max.qps.per.region.server": "acts beside hoodie.index.hbase.put.batch.size.autocompute alone",
    "hoodie.index.hbase.desired_puts_time_in_secs": "acts beside hoodie.index.hbase.dynamic_qps alone",
    "hoodie.index.hbase.zkpath.qps_root": "acts beside hoodie.index.hbase.dynamic_qps alone",
    "hoodie.index.hbase.bucket.number": "acts in another class of index alone, which hoodie.index.class would name",
    "hoodie.datasource.read.file.index.listing.mode": "partitions are always listed as late as possible",
    "hoodie.write.lock.client.num_retries": "waiting for the lock is bounded by hoodie.write.lock.wait_time_ms",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "waiting for the lock is bounded by hoodie.write.lock.wait_time_ms",
    "hoodie.write.lock.num_retries": "a server is asked again until hoodie.write.lock.wait_time_ms is over",
    "hoodie.write.lock.wait_time_ms_between_retry": "a server is asked again until hoodie.write.lock.wait_time_ms is over",
    "hoodie.write.lock.max_wait_time_ms_between_retry": "pauses between tries grow to a second",
    "hoodie.write.lock.zookeeper.port": "the port stands in hoodie.write.lock.zookeeper.url, and Hudi reads it there too",
    "hoodie.datasource.read.incr.skip_compact": "compaction keeps commit times, so it adds nothing to an incremental query",
    "hoodie.datasource.read.incr.skip_cluster": "clustering keeps commit times, so it adds nothing to an incremental query",
    "hoodie.schema.on.read.enable": "columns go by ids wherever the table has a history of them",
    "hoodie.metrics.on": "results carry their own figures",
    "hoodie.datasource.hive_sync.username": "HiveServer2 alone asks for it, and that is refused",
    "hoodie.datasource.hive_sync.password": "HiveServer2 alone asks for it, and that is refused",
    "hoodie.datasource.meta.sync.base.path": "the table is the one of the call",
    "hoodie.meta.sync.metadata_file_listing": "partitions are listed as by every read",
    "hoodie.datasource.hive_sync.filter_pushdown_enabled": "partitions of the catalog are always listed",
    "hoodie.datasource.hive_sync.filter_pushdown_max_size": "partitions of the catalog are always listed",
    "hoodie.datasource.meta.sync.glue.all_partitions_read_parallelism": "one request at a time is sent to Glue",
    "hoodie.datasource.meta.sync.glue.changed_partitions_read_parallelism": "one request at a time is sent to Glue",
    "hoodie.datasource.meta.sync.glue.partition_change_parallelism": "one request at a time is sent to Glue",
    "path": "the path is the argument of the call",
}
"""Legal keys whose value changes nothing here, and why."""

_BUILT_IN_MERGERS = (
    "",
    "org.apache.hudi.DefaultSparkRecordMerger",
    "org.apache.hudi.HoodieSparkRecordMerger",
    "org.apache.hudi.common.model.HoodieAvroRecordMerger",
)
_REGISTERED_MERGERS = (
    "mergers of Java classes do not run here; register one in Python for the strategy id of the table, under the name of each "
    "class that is listed (pyhudi.register_merger)"
)

_NO_HIVE_SERVER = (
    "HiveServer2 is not asked: name the metastore by hoodie.datasource.hive_sync.metastore.uris, with "
    "hoodie.datasource.hive_sync.mode=hms"
)

_HBASE_PACE = (
    "requests to HBase are paced by hoodie.index.hbase.put.batch.size and hoodie.index.hbase.sleep.ms.for.put.batch, and by "
    "the like of these for get"
)

REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "hoodie.write.auto.upgrade": ("a write takes no table to another version: `Table.upgrade` does", ("false",)),
    "hoodie.write.record.merge.custom.implementation.classes": (_REGISTERED_MERGERS, _BUILT_IN_MERGERS),
    "hoodie.datasource.write.record.merger.impls": (_REGISTERED_MERGERS, _BUILT_IN_MERGERS),
    "hoodie.index.class": ("indexes of Java classes do not run here; name one by hoodie.index.type", ("",)),
    "hoodie.index.hbase.put.batch.size.autocompute": (_HBASE_PACE, ("false",)),
    "hoodie.index.hbase.dynamic_qps": (_HBASE_PACE, ("false",)),
    "hoodie.index.hbase.qps.allocator.class": (
        _HBASE_PACE,
        ("org.apache.hudi.index.hbase.DefaultHBaseQPSResourceAllocator",),
    ),
    "hoodie.index.hbase.security.authentication": ("Kerberos is not spoken with HBase's Thrift server", ("simple",)),
    "hoodie.index.hbase.kerberos.user.keytab": ("Kerberos is not spoken with HBase's Thrift server", ("",)),
    "hoodie.index.hbase.kerberos.user.principal": ("Kerberos is not spoken with HBase's Thrift server", ("",)),
    "hoodie.index.hbase.regionserver.kerberos.principal": ("Kerberos is not spoken with HBase's Thrift server", ("",)),
    "hoodie.index.hbase.master.kerberos.principal": ("Kerberos is not spoken with HBase's Thrift server", ("",)),
    "hoodie.metadata.index.async": ("indexes are built at the start of a write", ("false",)),
    "hoodie.metadata.log.compaction.enable": ("the metadata table is compacted, its logs alone are not", ("false",)),
    "hoodie.metadata.index.bloom.filter.column.list": ("Bloom filters are of record keys", ("",)),
    "hoodie.clean.async.enabled": ("cleaning runs after the commit or by a call of its own", ("false",)),
    "hoodie.clean.async": ("cleaning runs after the commit or by a call of its own", ("false",)),
    "hoodie.archive.async": ("archival runs after the commit or by a call of its own", ("false",)),
    "hoodie.clean.delete.bootstrap.base.file": ("files outside of the table are never deleted", ("false",)),
    "hoodie.cleaner.delete.bootstrap.base.file": ("files outside of the table are never deleted", ("false",)),
    "hoodie.allow.operation.metadata.field": (
        "the _hoodie_operation column is not written: Hudi's Spark writers leave it empty and lose updates of log files with it",
        ("false",),
    ),
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
    "hoodie.bootstrap.full.input.provider": (
        "a bootstrap reads the Parquet files themselves",
        ("", "org.apache.hudi.bootstrap.SparkParquetBootstrapDataProvider"),
    ),
    "hoodie.bootstrap.data.queries.only": ("rows of such a table come with their meta columns", ("false",)),
    "hoodie.datasource.hive_sync.jdbcurl": (_NO_HIVE_SERVER, ("",)),
    "hoodie.datasource.hive_sync.use_jdbc": (_NO_HIVE_SERVER, ("false",)),
    "hoodie.datasource.hive_sync.base_file_format": ("base files are Parquet", ("PARQUET", "parquet")),
    "hoodie.datasource.hive_sync.use_pre_apache_input_format": (
        "the input formats of com.uber.hoodie do not read tables of Hudi 1.0",
        ("false",),
    ),
    "hoodie.datasource.hive_sync.bucket_sync": ("the metastore is told of no buckets, as Hudi's mode hms does not", ("false",)),
    "hoodie.datasource.hive_sync.bucket_sync_spec": ("the metastore is told of no buckets, as Hudi's mode hms does not", ("",)),
    "hoodie.meta.sync.decode_partition": (
        "catalogs have partition values as paths spell them; Hudi registers them so too, and decodes them only to drop them",
        ("false",),
    ),
    "hoodie.datasource.meta.sync.glue.partition_index_fields.enable": ("partition indexes of Glue are not made", ("false",)),
    "hoodie.datasource.meta.sync.glue.partition_index_fields": ("partition indexes of Glue are not made", ("",)),
}
"""Legal keys that PyHudi does not carry out: the reason, and the values that ask for nothing and so may stand."""

FORWARDED = (
    "hoodie.keygen.timebased.",
    "hoodie.deltastreamer.keygen.timebased.",
    "spark.",
)
"""Prefixes whose keys are read by name elsewhere (key generators), or are Spark's, whose session goes by them."""

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
"""Names that options have in Hudi's Flink connector alone, and the option that says such a thing here; None for none."""


def parse_options(*layers: Mapping[str, object] | None, base_options: Options = _NONE) -> Options:
    """Check and canonicalise options; later layers win.

    Raises InvalidRequest for an illegal value, for two spellings of one option that disagree and for an option by the name that
    it has in Flink, Unsupported for an option that PyHudi does not carry out.  Warns about unknown keys, naming the nearest known
    one; keys for the metadata of commits are known by their prefix, which may also stand in the options beside these.
    """
    values: dict[str, str] = {}
    extra: dict[str, str] = {}
    for layer in layers:
        told: dict[str, tuple[str, str]] = {}
        for key, raw in (layer or {}).items():
            if raw is None:
                continue
            text = _to_text(raw)
            option = _BY_SPELLING.get(key)
            if option is not None:
                checked = _check_value(key, option, text)
                before = told.get(option.key)
                if before is not None and before[1] != checked:
                    raise InvalidRequest(
                        f"options {before[0]}={redact_secret(before[0], before[1])} and {key}={redact_secret(key, text)} mean "
                        "the same "
                        "setting and disagree"
                    )
                told[option.key] = (key, checked)
                values[option.key] = checked
            elif key in REFUSED:
                reason, neutral = REFUSED[key]
                if text not in neutral and not (reason is _REGISTERED_MERGERS and _are_mergers(text)):
                    raise Unsupported(f"option {key}={redact_secret(key, text)} is refused: {reason}")
            elif key in FLINK:
                ours = FLINK[key]
                hint = f"say {ours}" if ours else "nothing here goes by it; leave it out"
                raise InvalidRequest(f"option {key}={redact_secret(key, text)} is one of Hudi's Flink connector: {hint}")
            elif key not in NO_OP:
                extra[key] = text
    prefix = values.get(METADATA_PREFIX.key, base_options.value_or_default(METADATA_PREFIX))
    for key in extra:
        if not key.startswith(FORWARDED) and not (prefix and key.startswith(prefix)):
            _warn_unknown(key)
    return Options(tuple(values.items()), tuple(extra.items()))


def canonical_name(key: str) -> str:
    """A key whose capitals were lost, as Spark loses those of a source's options, with those of the known key that it is."""
    return _CAPITALS.get(key, key)


def _to_text(raw: object) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, (list, tuple)):
        return ",".join(str(part) for part in raw)
    return str(raw)


def _are_mergers(names: str) -> bool:
    """Whether each class of a list is one of Hudi's own, or has a merger registered under its name."""
    return all(name in _BUILT_IN_MERGERS or is_merger_class(name) for name in names.replace(" ", "").split(","))


def _check_value(key: str, option: Option, text: str) -> str:
    kind, said = option.kind, redact_secret(key, text)
    if isinstance(kind, tuple):
        for word in kind:
            if text.strip().lower() == word.lower():
                return word
        raise InvalidRequest(f"option {key}={said!r} is none of {', '.join(kind)}")
    if kind is bool:
        if text.strip().lower() not in ("true", "false"):
            raise InvalidRequest(f"option {key}={said!r} is neither true nor false")
        return text.strip().lower()
    if kind in (int, float):
        wanted = _WHOLE_NUMBER if kind is int else _NUMBER
        if not wanted.fullmatch(text.strip()):
            raise InvalidRequest(f"option {key}={said!r} is not a {'whole number' if kind is int else 'number'}")
        smallest = option.at_least
        if smallest is not None and float(text) < smallest:
            raise InvalidRequest(f"option {key}={said} has to be {'positive' if smallest == 1 else f'{smallest} or more'}")
        return text.strip()
    return text


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def _warn_unknown(key: str) -> None:
    near = difflib.get_close_matches(key, _KNOWN, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    warnings.warn(f"option {key} is unknown and has no effect{hint}", UserWarning, stacklevel=_depth_of_caller())


def _depth_of_caller() -> int:
    """How many calls up, seen from the caller of this, the code stands that called PyHudi: the line that a warning is about."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "pyhudi":
        frame, depth = frame.f_back, depth + 1
    return depth


_BY_SPELLING = {spelling: option for option in SUPPORTED.values() for spelling in option.all_names}
_KNOWN = (*_BY_SPELLING, *NO_OP, *REFUSED)
_CAPITALS = {key.lower(): key for key in _KNOWN if key != key.lower()}
