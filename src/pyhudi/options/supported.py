"""Registry and validation of the `hoodie.*` options.

A caller's mapping is parsed once into an `Options` value; lower layers use typed settings. The modules `*_options` of this
package declare the options, by subject; settings refer to them.

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
from pyhudi.options import (
    bootstrap_options,
    file_options,
    index_options,
    lock_options,
    read_options,
    service_options,
    sync_options,
    table_options,
    write_options,
)
from pyhudi.options.declaration import Option, Options
from pyhudi.records.mergers import is_merger_class

_MODULES = (
    *(table_options, write_options, file_options, read_options, service_options, index_options, lock_options, sync_options),
    *((bootstrap_options,) if "bootstrap" in features.CAPABILITIES else ()),
)

SUPPORTED: Mapping[str, Option] = {
    key: option
    for key, option in sorted(
        (option.key, option) for module in _MODULES for option in vars(module).values() if isinstance(option, Option)
    )
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
    table_options.SCHEMA_ON_READ: "columns are resolved by id wherever the table has a schema history",
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
    write_options.OVERWRITE_MODE: (
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

FORWARDED = (*table_options.STORED_PREFIXES, *table_options.TIME_PREFIXES, "spark.")
"""Prefixes of keys that other code reads by name (key generators), or that belong to Spark's session."""

_NONE = Options(())

FLINK: dict[str, Option | None] = {
    "archive.max_commits": service_options.KEEP_MAX_COMMITS,
    "archive.min_commits": service_options.KEEP_MIN_COMMITS,
    "cdc.enabled": table_options.CHANGES,
    "cdc.supplemental.logging.mode": table_options.CHANGES_MODE,
    "changelog.enabled": None,
    "clean.async.enabled": service_options.CLEAN_SWITCH,
    "clean.policy": service_options.CLEAN_POLICY,
    "clean.retain_commits": service_options.CLEAN_COMMITS_RETAINED,
    "clean.retain_file_versions": service_options.CLEAN_FILEVERSIONS_RETAINED,
    "clean.retain_hours": service_options.CLEAN_HOURS_RETAINED,
    "clustering.async.enabled": service_options.CLUSTER_ASYNC,
    "clustering.delta_commits": service_options.CLUSTERING_ASYNC_MAX_COMMITS,
    "clustering.plan.partition.filter.mode": service_options.CLUSTERING_PLAN_PARTITION_FILTER_MODE,
    "clustering.plan.strategy.class": service_options.CLUSTERING_PLAN_CLASS,
    "clustering.plan.strategy.cluster.begin.partition": service_options.CLUSTERING_CLUSTER_BEGIN_PARTITION,
    "clustering.plan.strategy.cluster.end.partition": service_options.CLUSTERING_CLUSTER_END_PARTITION,
    "clustering.plan.strategy.daybased.lookback.partitions": service_options.CLUSTERING_DAYBASED_LOOKBACK_PARTITIONS,
    "clustering.plan.strategy.daybased.skipfromlatest.partitions": service_options.CLUSTERING_DAYBASED_SKIPFROMLATEST_PARTITIONS,
    "clustering.plan.strategy.max.num.groups": service_options.CLUSTERING_MAX_NUM_GROUPS,
    "clustering.plan.strategy.partition.regex.pattern": service_options.CLUSTERING_PARTITION_REGEX_PATTERN,
    "clustering.plan.strategy.partition.selected": service_options.CLUSTERING_PARTITION_SELECTED,
    "clustering.plan.strategy.small.file.limit": service_options.CLUSTERING_SMALL_FILE_LIMIT,
    "clustering.plan.strategy.sort.columns": service_options.CLUSTERING_SORT_COLUMNS,
    "clustering.plan.strategy.target.file.max.bytes": service_options.CLUSTERING_TARGET_FILE_MAX_BYTES,
    "clustering.schedule.enabled": service_options.CLUSTER_SCHEDULE,
    "clustering.tasks": None,
    "compaction.async.enabled": service_options.COMPACT_ASYNC,
    "compaction.delta_commits": service_options.MAX_DELTA_COMMITS,
    "compaction.delta_seconds": service_options.COMPACT_INLINE_MAX_DELTA_SECONDS,
    "compaction.max_memory": write_options.MEMORY_BUDGET,
    "compaction.operation.execute.async.enabled": service_options.COMPACT_ASYNC,
    "compaction.schedule.enabled": service_options.COMPACT_SCHEDULE,
    "compaction.target_io": service_options.COMPACTION_TARGET_IO,
    "compaction.tasks": None,
    "compaction.timeout.seconds": None,
    "compaction.trigger.strategy": service_options.COMPACTION_TRIGGER,
    "eventtime.field": None,
    "hive_sync.enable": None,
    "hive_sync.enabled": None,
    "index.bootstrap.enabled": None,
    "index.global.enabled": write_options.INDEX_TYPE,
    "index.partition.regex": None,
    "index.state.ttl": None,
    "index.type": write_options.INDEX_TYPE,
    "metadata.compaction.delta_commits": index_options.METADATA_COMPACT_MAX_DELTA_COMMITS,
    "metadata.enabled": index_options.METADATA_TABLE,
    "partition.default_name": None,
    "payload.class": table_options.PAYLOAD,
    "precombine.field": table_options.ORDERING,
    "read.cdc.from.changelog": None,
    "read.commits.limit": read_options.STREAM_MAX_INSTANTS,
    "read.data.skipping.enabled": read_options.ENABLE_DATA_SKIPPING,
    "read.end-commit": read_options.READ_END_INSTANTTIME,
    "read.start-commit": read_options.READ_BEGIN_INSTANTTIME,
    "read.streaming.check-interval": None,
    "read.streaming.enabled": None,
    "read.streaming.skip_clustering": None,
    "read.streaming.skip_compaction": None,
    "read.streaming.skip_insertoverwrite": None,
    "read.streaming.start-commit": read_options.START_OFFSET,
    "read.tasks": None,
    "read.utc-timezone": None,
    "record.merge.mode": table_options.MERGE_MODE,
    "record.merger.impls": None,
    "record.merger.strategy": table_options.STRATEGY_ID,
    "source.avro-schema": None,
    "source.avro-schema.path": None,
    "table.type": table_options.TABLE_TYPE,
    "write.batch.size": None,
    "write.bucket_assign.tasks": None,
    "write.bulk_insert.shuffle_input": None,
    "write.bulk_insert.sort_input": write_options.BULKINSERT_SORT_MODE,
    "write.bulk_insert.sort_input.by_record_key": write_options.BULKINSERT_SORT_MODE,
    "write.client.id": None,
    "write.commit.ack.timeout": None,
    "write.datetime.partitioning": None,
    "write.ignore.failed": None,
    "write.index_bootstrap.tasks": None,
    "write.insert.cluster": None,
    "write.log.max.size": file_options.LOGFILE_MAX_SIZE,
    "write.log_block.size": file_options.LOGFILE_DATA_BLOCK_MAX_SIZE,
    "write.merge.max_memory": write_options.MEMORY_BUDGET,
    "write.operation": write_options.OPERATION,
    "write.parquet.block.size": file_options.PARQUET_BLOCK_SIZE,
    "write.parquet.max.file.size": write_options.MAX_FILE_SIZE,
    "write.parquet.page.size": file_options.PARQUET_PAGE_SIZE,
    "write.partition.format": None,
    "write.partition.overwrite.mode": write_options.OPERATION,
    "write.payload.class": table_options.PAYLOAD,
    "write.precombine": write_options.COMBINE_BEFORE_UPSERT,
    "write.precombine.field": table_options.ORDERING,
    "write.rate.limit": None,
    "write.retry.interval.ms": None,
    "write.retry.times": write_options.NUM_RETRIES_ON_CONFLICT_FAILURES,
    "write.sort.memory": write_options.MEMORY_BUDGET,
    "write.task.max.size": write_options.MEMORY_BUDGET,
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
            elif key.startswith(table_options.OPTION_PREFIX):
                name, checked = storable_option(key.removeprefix(table_options.OPTION_PREFIX), text)
                extra[table_options.OPTION_PREFIX + name] = checked
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
    prefix = values.get(write_options.METADATA_PREFIX.key, base_options.value_or_default(write_options.METADATA_PREFIX))
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
    if option is None or option.stored_as:
        raise InvalidRequest(
            f"property {key} is no option of reads, writes or services{nearest_name(key)}. See docs/reference/options.md"
        )
    check_storable_option(option)
    return option.key, _check_value(key, option, value)


def check_storable_option(option: Option) -> None:
    """Raise InvalidRequest for an option that a table must not store."""
    if option.chooses:
        raise InvalidRequest(
            f"option {option} selects what one call reads or writes, and is not stored in tables; pass it with options="
        )
    if redact_secret(option.key, "x") != "x":
        raise InvalidRequest(f"option {option} holds a secret, and is not stored in tables; pass it with options=")


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
