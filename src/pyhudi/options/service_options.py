"""Options of table services: cleaning, archival, compaction, clustering, partition TTL."""

from __future__ import annotations

from pyhudi.options.declaration import Option

BUCKET_INDEX_MAX_NUM_BUCKETS = Option(
    "hoodie.bucket.index.max.num.buckets",
    int,
    None,
    "maximum number of nodes of a partition; unset: the initial number",
    origin="table",
)
BUCKET_INDEX_MIN_NUM_BUCKETS = Option(
    "hoodie.bucket.index.min.num.buckets",
    int,
    None,
    "minimum number of nodes of a partition; unset: the initial number",
    origin="table",
)
BUCKET_INDEX_SPLIT_THRESHOLD = Option(
    "hoodie.bucket.index.split.threshold",
    float,
    "2.0",
    "the part of the greatest file size beyond which a consistent hashing node splits",
    origin="table",
)
BUCKET_INDEX_MERGE_THRESHOLD = Option(
    "hoodie.bucket.index.merge.threshold",
    float,
    "0.2",
    "the part of the greatest file size up to which consistent hashing nodes merge",
    origin="table",
)

CLUSTERING_EXECUTION_STRATEGY_CLASS = Option(
    "hoodie.clustering.execution.strategy.class",
    str,
    "SparkSortAndSizeExecutionStrategy",
    "class that decides whether a group becomes files of the target size or one file, and whether row groups are copied",
    origin="table",
)
CLUSTERING_COPY = Option(
    "pyhudi.clustering.copy",
    ("auto", "always", "never"),
    "auto",
    "a clustering without sort columns copies encoded row groups: large ones with the codec of the options, all that can "
    "be copied (as the binary copy strategies do), or none",
    origin="table",
)
CLUSTERING_BINARY_COPY_SCHEMA_EVOLUTION = Option(
    "hoodie.clustering.plan.strategy.binary.copy.schema.evolution.enable",
    bool,
    "false",
    "row groups of files that lack columns of the table are copied too, with nulls in these columns",
    origin="table",
)
CLUSTERING_INLINE = Option(
    "hoodie.clustering.inline",
    bool,
    "false",
    "a write plans and runs a clustering when one is due",
    aliases=("hoodie.datasource.clustering.inline.enable",),
    origin="table",
)
CLUSTERING_INLINE_MAX_COMMITS = Option(
    "hoodie.clustering.inline.max.commits", int, "4", "commits that make an inline clustering due", at_least=1, origin="table"
)
CLUSTERING_ASYNC_MAX_COMMITS = Option(
    "hoodie.clustering.async.max.commits", int, "4", "commits that make a clustering of others due", at_least=1, origin="table"
)

PARTITION_TTL_STRATEGY_DAYS_RETAIN = Option(
    "hoodie.partition.ttl.strategy.days.retain", int, "-1", "days after which a partition expires; below 1: never", origin="table"
)
PARTITION_TTL_STRATEGY_PARTITION_SELECTED = Option(
    "hoodie.partition.ttl.strategy.partition.selected",
    str,
    None,
    "partitions that may expire; unset: all of them",
    origin="table",
)
PARTITION_TTL_MANAGEMENT_STRATEGY_TYPE = Option(
    "hoodie.partition.ttl.management.strategy.type",
    ("KEEP_BY_TIME", "KEEP_BY_CREATION_TIME"),
    "KEEP_BY_TIME",
    "whether a partition's age starts at its last write or at its creation",
    origin="table",
)
PARTITION_TTL_STRATEGY_MAX_DELETE_PARTITIONS = Option(
    "hoodie.partition.ttl.strategy.max.delete.partitions",
    int,
    "1000",
    "expired partitions that are deleted at once",
    origin="table",
)

SERVICES_SWITCH = Option("hoodie.table.services.enabled", bool, "true", "table services follow writes", origin="table")
CLEAN_SWITCH = Option("hoodie.clean.automatic", bool, "true", "a clean follows a write when it is due", origin="table")
ARCHIVE_SWITCH = Option("hoodie.archive.automatic", bool, "true", "an archival follows a write when it is due", origin="table")
COMPACT_INLINE = Option(
    "hoodie.compact.inline",
    bool,
    None,
    "a write to a merge-on-read table compacts it when that is due; unset: unless options configure another compaction",
    origin="table",
)
COMPACT_SCHEDULE = Option(
    "hoodie.compact.schedule.inline",
    bool,
    "false",
    "a write schedules a compaction when it is due, without running it",
    origin="table",
)
COMPACT_ASYNC = Option(
    "hoodie.datasource.compaction.async.enable",
    bool,
    None,
    "compaction runs outside of the writer: true schedules plans for it, false leaves scheduling to it too",
    origin="table",
)
LOG_COMPACT_INLINE = Option(
    "hoodie.log.compaction.inline",
    bool,
    "false",
    "a write to a merge-on-read table runs a log compaction when that is due",
    origin="table",
)
CLUSTER_SCHEDULE = Option(
    "hoodie.clustering.schedule.inline",
    bool,
    "false",
    "a write schedules a clustering when it is due, without running it",
    origin="table",
)
CLUSTER_ASYNC = Option(
    "hoodie.clustering.async.enabled",
    bool,
    "false",
    "clustering runs outside of the writer: a write schedules plans when a clustering is due",
    aliases=("hoodie.datasource.clustering.async.enable",),
    origin="table",
)
TTL_INLINE = Option("hoodie.partition.ttl.inline", bool, "false", "a write deletes partitions that have expired", origin="table")
FAIL_WRITES_ON_INLINE_TABLE_SERVICE_EXCEPTION = Option(
    "hoodie.fail.writes.on.inline.table.service.exception",
    bool,
    "true",
    "a service that fails after a commit makes the write raise; false: the failure is recorded in the result",
    origin="table",
)

KEEP_MIN_COMMITS = Option(
    "hoodie.keep.min.commits", int, "20", "commits that an archival leaves on the active timeline", origin="table"
)
TIMELINE_COMPACTION_BATCH_SIZE = Option(
    "hoodie.timeline.compaction.batch.size", int, "10", "files of one level of the history that are merged", origin="table"
)
KEEP_MAX_COMMITS = Option(
    "hoodie.keep.max.commits", int, "30", "commits on the active timeline above which an archival is due", origin="table"
)
ARCHIVE_BEYOND_SAVEPOINT = Option(
    "hoodie.archive.beyond.savepoint",
    bool,
    "false",
    "an archival skips savepointed commits instead of stopping before the first",
    origin="table",
)

CLEAN_POLICY = Option(
    "hoodie.clean.policy",
    ("KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS", "KEEP_LATEST_BY_HOURS"),
    None,
    "what a clean retains; unset: implied by the retention option that is set, else commits",
    aliases=("hoodie.cleaner.policy",),
    origin="table",
)
CLEAN_COMMITS_RETAINED = Option(
    "hoodie.clean.commits.retained",
    int,
    "10",
    "commits whose file slices a clean keeps, for the policy of commits",
    aliases=("hoodie.cleaner.commits.retained",),
    origin="table",
)
CLEAN_FILEVERSIONS_RETAINED = Option(
    "hoodie.clean.fileversions.retained",
    int,
    "3",
    "file slices that a clean keeps of each file group, for the policy of file versions",
    aliases=("hoodie.cleaner.fileversions.retained",),
    origin="table",
)
CLEAN_HOURS_RETAINED = Option(
    "hoodie.clean.hours.retained",
    int,
    "24",
    "hours whose file slices a clean keeps, for the policy of hours",
    aliases=("hoodie.cleaner.hours.retained",),
    origin="table",
)
CLEAN_TRIGGER_MAX_COMMITS = Option(
    "hoodie.clean.trigger.max.commits",
    int,
    "1",
    "commits since the last clean that make the next one due",
    aliases=("hoodie.clean.max.commits",),
    origin="table",
)
CLEAN_TRIGGER_STRATEGY = Option(
    "hoodie.clean.trigger.strategy", ("NUM_COMMITS",), "NUM_COMMITS", "what makes a clean due", origin="table"
)
CLEAN_INCREMENTAL_ENABLED = Option(
    "hoodie.clean.incremental.enabled",
    bool,
    "true",
    "a clean looks only at partitions that changed since the last one",
    aliases=("hoodie.cleaner.incremental.mode",),
    origin="table",
)
CLEAN_MULTIPLE_ENABLED = Option(
    "hoodie.clean.multiple.enabled",
    bool,
    "false",
    "a clean may be planned while another one is pending",
    aliases=("hoodie.clean.allow.multiple",),
    origin="table",
)

CLEAN_MAX_COMMITS = Option(
    "hoodie.clean.max.commits.to.clean",
    int,
    "9223372036854775807",
    "commits by which one clean moves the earliest commit to retain, except the first clean of a table",
    at_least=1,
    origin="table",
)
CLEAN_PARTITION_REGEX = Option(
    "hoodie.clean.partition.filter.regex",
    str,
    None,
    "partitions that are cleaned, by a Java regular expression; requires hoodie.clean.incremental.enabled=false",
    aliases=("hoodie.cleaner.partition.filter.regex",),
    origin="table",
)
CLEAN_PARTITION_SELECTED = Option(
    "hoodie.clean.partition.filter.selected",
    str,
    None,
    "partitions that are cleaned, by name; requires hoodie.clean.incremental.enabled=false",
    aliases=("hoodie.cleaner.partition.filter.selected",),
    origin="table",
)
EMPTY_CLEAN_INTERVAL = Option(
    "hoodie.write.empty.clean.interval.hours",
    int,
    "-1",
    "hours since the last clean after which one without files is recorded, so that later cleans inspect fewer commits; -1: never",
    origin="table",
)

CLUSTERING_SORT_COLUMNS = Option(
    "hoodie.clustering.plan.strategy.sort.columns",
    str,
    None,
    "columns by which a clustering sorts; unset: it only sizes files",
    origin="table",
)
CLUSTERING_PARTITION_SELECTED = Option(
    "hoodie.clustering.plan.strategy.partition.selected", str, None, "partitions that are clustered, by name", origin="table"
)
LAYOUT_OPTIMIZE_STRATEGY = Option(
    "hoodie.layout.optimize.strategy",
    ("LINEAR", "ZORDER", "HILBERT"),
    "LINEAR",
    "order of several sort columns: one after the other, or a curve",
    origin="table",
)
CLUSTERING_TARGET_FILE_MAX_BYTES = Option(
    "hoodie.clustering.plan.strategy.target.file.max.bytes",
    int,
    "1073741824",
    "bytes of a file that a clustering writes",
    origin="table",
)
CLUSTERING_PLAN_CLASS = Option(
    "hoodie.clustering.plan.strategy.class",
    str,
    "SparkSizeBasedClusteringPlanStrategy",
    "class that groups files, and may name the filter of partitions",
    origin="table",
)
CLUSTERING_EARLIEST_COMMIT = Option(
    "hoodie.clustering.plan.strategy.earliest.commit.to.cluster",
    str,
    None,
    "CommitBasedClusteringPlanStrategy clusters the files of commits that were requested after this one, of any size",
    origin="table",
)
CLUSTERING_PLAN_PARTITION_FILTER_MODE = Option(
    "hoodie.clustering.plan.partition.filter.mode",
    ("NONE", "RECENT_DAYS", "SELECTED_PARTITIONS", "DAY_ROLLING"),
    "NONE",
    "which partitions are clustered",
    origin="table",
)
CLUSTERING_GROUPING = Option(
    "pyhudi.clustering.grouping",
    ("size", "prefer_overlap", "overlap", "record_key", "commit_time", "random"),
    None,
    "which files are clustered together; unset: those whose ranges of the sort columns overlap, or by size",
    origin="table",
)
CLUSTERING_SMALL_FILE_LIMIT = Option(
    "hoodie.clustering.plan.strategy.small.file.limit",
    int,
    "314572800",
    "bytes below which a base file is clustered",
    origin="table",
)
CLUSTERING_MAX_BYTES_PER_GROUP = Option(
    "hoodie.clustering.plan.strategy.max.bytes.per.group", int, "2147483648", "bytes that are clustered together", origin="table"
)
CLUSTERING_MAX_NUM_GROUPS = Option(
    "hoodie.clustering.plan.strategy.max.num.groups", int, "30", "groups of files of one clustering, at most", origin="table"
)
CLUSTERING_SINGLE_GROUP_CLUSTERING_ENABLED = Option(
    "hoodie.clustering.plan.strategy.single.group.clustering.enabled",
    bool,
    "true",
    "a group of one file is clustered too, where there are sort columns",
    origin="table",
)
CLUSTERING_PARTITION_REGEX_PATTERN = Option(
    "hoodie.clustering.plan.strategy.partition.regex.pattern", str, None, "partitions that may be clustered", origin="table"
)
CLUSTERING_CLUSTER_BEGIN_PARTITION = Option(
    "hoodie.clustering.plan.strategy.cluster.begin.partition",
    str,
    None,
    "the first partition of SELECTED_PARTITIONS",
    origin="table",
)
CLUSTERING_CLUSTER_END_PARTITION = Option(
    "hoodie.clustering.plan.strategy.cluster.end.partition",
    str,
    None,
    "the last partition of SELECTED_PARTITIONS",
    origin="table",
)
CLUSTERING_DAYBASED_LOOKBACK_PARTITIONS = Option(
    "hoodie.clustering.plan.strategy.daybased.lookback.partitions", int, "2", "partitions of RECENT_DAYS", origin="table"
)
CLUSTERING_DAYBASED_SKIPFROMLATEST_PARTITIONS = Option(
    "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions",
    int,
    "0",
    "newest partitions that RECENT_DAYS skips",
    origin="table",
)

COMPACTION_TRIGGER = Option(
    "hoodie.compact.inline.trigger.strategy",
    ("NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME"),
    "NUM_COMMITS",
    "what makes a compaction due: delta commits, time, or both",
    origin="table",
)
MAX_DELTA_COMMITS = Option(
    "hoodie.compact.inline.max.delta.commits",
    int,
    "5",
    "delta commits since the last compaction that make the next one due",
    origin="table",
)
COMPACTION_STRATEGY = Option(
    "hoodie.compaction.strategy",
    str,
    "LogFileSizeBasedCompactionStrategy",
    "strategies that select and order the file groups of a compaction; several are applied in order",
    origin="table",
)
COMPACTION_PARTITION_PATH_REGEX = Option(
    "hoodie.compaction.partition.path.regex", str, None, "partitions that the strategy of that name compacts", origin="table"
)
COMPACT_INLINE_MAX_DELTA_SECONDS = Option(
    "hoodie.compact.inline.max.delta.seconds", int, "3600", "seconds since the last compaction, for its trigger", origin="table"
)
COMPACTION_TARGET_IO = Option(
    "hoodie.compaction.target.io", int, "512000", "megabytes that one compaction reads and writes at most", origin="table"
)
COMPACTION_LOGFILE_SIZE_THRESHOLD = Option(
    "hoodie.compaction.logfile.size.threshold",
    int,
    "0",
    "bytes of log files from which a file slice is compacted",
    origin="table",
)
COMPACTION_LOGFILE_NUM_THRESHOLD = Option(
    "hoodie.compaction.logfile.num.threshold", int, "0", "log files from which a file slice is compacted", origin="table"
)
COMPACTION_DAYBASED_TARGET_PARTITIONS = Option(
    "hoodie.compaction.daybased.target.partitions",
    int,
    "10",
    "partitions that a day-based strategy compacts",
    aliases=("hoodie.compaction.daybased.target",),
    origin="table",
)
TABLE_SERVICES_INCREMENTAL_ENABLED = Option(
    "hoodie.table.services.incremental.enabled",
    bool,
    "true",
    "a compaction or clustering looks only at partitions that changed since the last one",
    origin="table",
)
LOG_COMPACTION_BLOCKS_THRESHOLD = Option(
    "hoodie.log.compaction.blocks.threshold", int, "5", "log blocks that make a file slice worth a log compaction", origin="table"
)
