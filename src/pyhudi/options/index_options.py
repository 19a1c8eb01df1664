"""Options of indexes and of the metadata table."""

from __future__ import annotations

from pyhudi.options.declaration import Option

METADATA_TABLE = Option(
    "hoodie.metadata.enable",
    bool,
    "true",
    "reads use the metadata table, and writes maintain it; a write with false drops it",
    origin="table",
)
RECORD_INDEX_SWITCH = Option(
    "hoodie.metadata.record.index.enable",
    bool,
    None,
    "build or drop a record index; unset: unchanged, or as the index type requires",
    aliases=("hoodie.metadata.global.record.level.index.enable",),
    origin="table",
)
PARTITIONED_SWITCH = Option(
    "hoodie.metadata.record.level.index.enable",
    bool,
    None,
    "build or drop a partitioned record index, in which keys are unique within a partition; unset: unchanged, or as "
    "the index type requires",
    origin="table",
)
METADATA_INDEX_COLUMN_STATS_ENABLE = Option(
    "hoodie.metadata.index.column.stats.enable", bool, None, "build or drop column statistics; unset: build", origin="table"
)
METADATA_INDEX_PARTITION_STATS_ENABLE = Option(
    "hoodie.metadata.index.partition.stats.enable",
    bool,
    None,
    "build or drop partition statistics; unset: as column statistics",
    origin="table",
)
METADATA_INDEX_BLOOM_FILTER_ENABLE = Option(
    "hoodie.metadata.index.bloom.filter.enable",
    bool,
    None,
    "build or drop an index of Bloom filters; unset: unchanged",
    origin="table",
)
METADATA_INDEX_COLUMN_STATS_FILE_GROUP_COUNT = Option(
    "hoodie.metadata.index.column.stats.file.group.count", int, "2", "file groups of new column statistics", origin="table"
)
METADATA_INDEX_PARTITION_STATS_FILE_GROUP_COUNT = Option(
    "hoodie.metadata.index.partition.stats.file.group.count", int, "1", "file groups of new partition statistics", origin="table"
)
METADATA_INDEX_BLOOM_FILTER_FILE_GROUP_COUNT = Option(
    "hoodie.metadata.index.bloom.filter.file.group.count", int, "4", "file groups of a new index of Bloom filters", origin="table"
)
METADATA_INDEX_EXPRESSION_FILE_GROUP_COUNT = Option(
    "hoodie.metadata.index.expression.file.group.count", int, "2", "file groups of a new expression index", origin="table"
)
METADATA_INDEX_COLUMN_STATS_COLUMN_LIST = Option(
    "hoodie.metadata.index.column.stats.column.list",
    str,
    None,
    "columns with statistics; unset: the first columns of the table",
    origin="table",
)
METADATA_INDEX_COLUMN_STATS_MAX_COLUMNS_TO_INDEX = Option(
    "hoodie.metadata.index.column.stats.max.columns.to.index",
    int,
    "32",
    "number of first columns of the table with statistics, if none are listed",
    origin="table",
)
METADATA_RECORD_INDEX_MIN_FILEGROUP_COUNT = Option(
    "hoodie.metadata.record.index.min.filegroup.count",
    int,
    "10",
    "minimum number of file groups of a new record index",
    aliases=("hoodie.metadata.global.record.level.index.min.filegroup.count",),
    origin="table",
)
METADATA_RECORD_INDEX_MAX_FILEGROUP_COUNT = Option(
    "hoodie.metadata.record.index.max.filegroup.count",
    int,
    "10000",
    "maximum number of file groups of a new record index",
    aliases=("hoodie.metadata.global.record.level.index.max.filegroup.count",),
    origin="table",
)
METADATA_RECORD_INDEX_GROWTH_FACTOR = Option(
    "hoodie.metadata.record.index.growth.factor",
    float,
    "2.0",
    "expected growth factor for the size of a new record index",
    origin="table",
)
METADATA_RECORD_INDEX_MAX_FILEGROUP_SIZE = Option(
    "hoodie.metadata.record.index.max.filegroup.size",
    int,
    "1073741824",
    "maximum bytes of a file group of a record index",
    origin="table",
)
METADATA_COMPACT_MAX_DELTA_COMMITS = Option(
    "hoodie.metadata.compact.max.delta.commits",
    int,
    "10",
    "delta commits after which the metadata table is compacted",
    origin="table",
)

METADATA_COMPACT_TRIGGER = Option(
    "hoodie.metadata.compact.trigger.strategy",
    ("NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME"),
    "NUM_COMMITS",
    "what makes a compaction of the metadata table due: delta commits, time, or both",
    origin="table",
)
METADATA_COMPACT_MAX_DELTA_SECONDS = Option(
    "hoodie.metadata.compact.max.delta.seconds",
    int,
    "7200",
    "seconds since the last compaction of the metadata table, for its trigger",
    at_least=1,
    origin="table",
)

METADATA_INDEX_CHECK_TIMEOUT_SECONDS = Option(
    "hoodie.metadata.index.check.timeout.seconds",
    int,
    "900",
    "seconds to wait for writes that were pending when an index build began",
    origin="table",
)

BUCKET_INDEX_QUERY_PRUNING = Option(
    "hoodie.bucket.index.query.pruning", bool, "true", "filters on keys prune buckets", origin="table"
)
RECORD_INDEX_UPDATE_PARTITION_PATH = Option(
    "hoodie.record.index.update.partition.path",
    bool,
    "false",
    "under index RECORD_INDEX a record whose partition changes moves to the new partition",
    origin="table",
)
HBASE_INDEX_UPDATE_PARTITION_PATH = Option(
    "hoodie.hbase.index.update.partition.path",
    bool,
    "false",
    "under index HBASE a record whose partition changes moves to the new partition",
    origin="table",
)
BLOOM_INDEX_UPDATE_PARTITION_PATH = Option(
    "hoodie.bloom.index.update.partition.path",
    bool,
    "true",
    "under index GLOBAL_BLOOM a record whose partition changes moves to the new partition",
    origin="table",
)
SIMPLE_INDEX_UPDATE_PARTITION_PATH = Option(
    "hoodie.simple.index.update.partition.path",
    bool,
    "true",
    "under index GLOBAL_SIMPLE a record whose partition changes moves to the new partition",
    origin="table",
)
BLOOM_INDEX_PRUNE_BY_RANGES = Option(
    "hoodie.bloom.index.prune.by.ranges", bool, "true", "index BLOOM prunes files by their key ranges", origin="table"
)
BLOOM_INDEX_USE_METADATA = Option(
    "hoodie.bloom.index.use.metadata",
    bool,
    "false",
    "index BLOOM reads filters and key ranges from the metadata table",
    origin="table",
)

BUCKET_ENGINE = Option(
    "hoodie.index.bucket.engine",
    ("SIMPLE", "CONSISTENT_HASHING"),
    "SIMPLE",
    "how the buckets of index BUCKET are made",
    origin="table",
)
BUCKET_COUNT = Option(
    "hoodie.bucket.index.num.buckets", int, "256", "buckets of each partition, for index BUCKET", origin="table"
)
BUCKET_INDEX_PARTITION_EXPRESSIONS = Option(
    "hoodie.bucket.index.partition.expressions",
    str,
    None,
    "`<regular expression>,<count>`, joined by ';': buckets of the partitions in whose path one is found, the first "
    "that is; kept by the table from its first write on",
    origin="table",
)
BUCKET_INDEX_PARTITION_RULE_TYPE = Option(
    "hoodie.bucket.index.partition.rule.type",
    ("regex",),
    "regex",
    "what hoodie.bucket.index.partition.expressions are",
    origin="table",
)
BUCKET_INDEX_HASH_FIELD = Option(
    "hoodie.bucket.index.hash.field", str, None, "key fields that choose a bucket; unset: all of them", origin="table"
)

INDEX_HBASE_THRIFT_URIS = Option(
    "pyhudi.index.hbase.thrift.uris",
    str,
    None,
    "Thrift servers of HBase (its second interface, `hbase thrift2`), thrift://host:port, with commas between them",
)
INDEX_HBASE_TABLE = Option(
    "hoodie.index.hbase.table", str, None, "table of HBase that is the index; it has to be there, with the family _s"
)
INDEX_HBASE_ROLLBACK_SYNC = Option(
    "hoodie.index.hbase.rollback.sync",
    bool,
    "false",
    "a rollback removes the entries of its write from index HBASE, which it finds by a scan by time",
    origin="table",
)
INDEX_HBASE_GET_BATCH_SIZE = Option(
    "hoodie.index.hbase.get.batch.size", int, "100", "keys that one request looks up in index HBASE", at_least=1, origin="table"
)
INDEX_HBASE_PUT_BATCH_SIZE = Option(
    "hoodie.index.hbase.put.batch.size", int, "100", "entries that one request puts into index HBASE", at_least=1, origin="table"
)
INDEX_HBASE_SLEEP_MS_FOR_GET_BATCH = Option(
    "hoodie.index.hbase.sleep.ms.for.get.batch",
    int,
    "0",
    "milliseconds that a task waits after each batch of keys that it looks up in index HBASE",
    at_least=0,
    origin="table",
)
INDEX_HBASE_SLEEP_MS_FOR_PUT_BATCH = Option(
    "hoodie.index.hbase.sleep.ms.for.put.batch",
    int,
    "0",
    "milliseconds that a task waits after each batch of entries that it puts into index HBASE",
    at_least=0,
    origin="table",
)
