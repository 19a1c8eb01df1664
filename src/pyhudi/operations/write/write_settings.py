"""What a write is asked for: its operation, and every option that it goes by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.meta_columns import without_meta_fields
from pyhudi.metadata_table.codecs.metadata_partitions import RECORD_INDEX, SECONDARY_INDEX_PREFIX
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.admin.create_table import check_columns
from pyhudi.operations.admin.table_settings import WITHOUT_ZONE, TableSettings, zone_mode
from pyhudi.operations.catalog_sync.sync_settings import HIVE_SYNC, META_SYNC, SyncSettings
from pyhudi.operations.commit.commit_settings import (
    CONCURRENCY,
    DELETE_FIELD,
    DELETE_MARKER,
    INDEX_TYPE,
    MEMORY_BUDGET,
    METADATA_PREFIX,
    NON_BLOCKING,
    CommitSettings,
    delete_marker_setting,
)
from pyhudi.operations.services.service_settings import ServiceSettings
from pyhudi.operations.write.early_conflict_settings import EarlySettings
from pyhudi.operations.write.index_lookup import LookupSettings
from pyhudi.operations.write.micro_batches import StreamBatch
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.planning.bucket_routing import BUCKET_ENGINE
from pyhudi.planning.record_placement import SizingSettings
from pyhudi.records.merge_mode import MergeMode, MergeSettings
from pyhudi.records.record_merge import DeleteMarker
from pyhudi.records.schema_evolution import SchemaMode
from pyhudi.records.timestamp_coercion import NANOSECONDS_OPTION, ZonelessTimestamps, with_zones
from pyhudi.records.type_normalization import normalise
from pyhudi.table.table_config import TableType
from pyhudi.tasks.base_file_writer import FileSettings

# Which writes may append to file groups that other writers append to at the same moment.
#
# Nobody waits for anybody and nobody's work is done again, so the result must be the same in whatever order the writes complete:
#
#     merge on read    every write is a log file of its own; a new base file would hide what others append to the old one
#     bucket index     the key alone says which file group takes a record, so that all writers name the same one
#     event time       of two records of one key the ordering field decides, not who came last
#     whole rows       a row that was completed from what stood there would undo what others write meanwhile
#     no key index     what a write brings to an index of keys depends on what others do to those keys meanwhile
#
# Compaction alone makes base files.  It takes what completed before it was planned; the rest follows its base file.
#
# Source: docs/lock-providers.md, "Non-blocking concurrency control".

_MODE = f"{CONCURRENCY}={NON_BLOCKING}"


def check_operation(operation: str, index: str, *, replaces: bool, partial: bool) -> None:
    """What the options alone tell.  operation, index: their names.  Raises InvalidRequest, Unsupported."""
    if replaces:
        raise InvalidRequest(
            f"{operation} does not go with {_MODE}: it would replace file groups to which others append; run it while nobody "
            "else writes, under another mode"
        )
    if index != "BUCKET":
        raise InvalidRequest(
            f"{_MODE} needs {INDEX_TYPE}=BUCKET, not {index}: only its bucket leads all writers of a key to one file group"
        )
    if partial:
        raise Unsupported(
            f"a partial update under {_MODE}: columns that it leaves as they are may change meanwhile; upsert whole rows"
        )


def check_table(uri: str, merge: MergeSettings, indexes: Iterable[str], *, is_cow: bool) -> None:
    """What the table tells.  indexes: partitions of its metadata table, those that are being built too.

    Raises InvalidRequest, Unsupported.
    """
    if is_cow:
        raise InvalidRequest(f"{_MODE} needs a merge-on-read table, and the one at {uri} is copy on write: it has no log files")
    if merge.mode is not MergeMode.EVENT_TIME_ORDERING or not merge.ordering:
        raise InvalidRequest(
            f"{_MODE} needs a table that merges by {MergeMode.EVENT_TIME_ORDERING} and has an ordering field, not one like "
            f"{uri} ({merge.mode}): writers complete in any order, so something else has to say which record is newer"
        )
    if merge.update_mode is not None:
        raise Unsupported(
            f"{_MODE} for the table at {uri}, whose records take values from older ones (update mode {merge.update_mode}): "
            "which ones depends on the order of the writes; use OPTIMISTIC_CONCURRENCY_CONTROL"
        )
    keyed = sorted(name for name in indexes if name == RECORD_INDEX or name.startswith(SECONDARY_INDEX_PREFIX))
    if keyed:
        raise Unsupported(
            f"{_MODE} for the table at {uri}, which has or gets the index {', '.join(keyed)}: which keys are there "
            "cannot be told while others write them; drop the index, or use OPTIMISTIC_CONCURRENCY_CONTROL"
        )


class WriteOperation(StrEnum):
    """`hoodie.datasource.write.operation`."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"

    @property
    def recorded(self) -> Operation:
        """What commits say."""
        return Operation[self.name]

    @property
    def replaces(self) -> bool:
        """True when it replaces file groups."""
        return self.recorded.replaces


_OVERWRITE_VERBS = ("insert_overwrite", "insert_overwrite_table")
_WITH_ROWS = ("upsert", "insert", "bulk_insert", *_OVERWRITE_VERBS)

OPERATION = Option(
    "hoodie.datasource.write.operation",
    tuple(WriteOperation),
    WriteOperation.UPSERT.value,
    "what a write does; unset: upsert, or bulk_insert where nothing names a record key",
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
    'the save mode, where `df.write.format("pyhudi")` is given append: Spark takes none but that and overwrite there',
    chooses="write",
)
PARTIAL_UPDATE = Option(
    "pyhudi.partial.update",
    bool,
    "false",
    "the rows of an upsert hold some columns, and the others keep their values",
    chooses="write",
    verbs=("upsert",),
)
DUPLICATE_POLICY = Option(
    "hoodie.datasource.insert.dup.policy",
    ("none", "drop", "fail"),
    "none",
    "what an insert does with rows whose keys are in the table: adds them, leaves them out, or fails",
    verbs=("insert",),
)
_DROP_DUPLICATES = Option(
    "hoodie.datasource.write.insert.drop.duplicates",
    bool,
    "false",
    "as hoodie.datasource.insert.dup.policy=drop; makes an upsert an insert",
    verbs=("upsert", "insert", "bulk_insert"),
)
_COMBINE = {
    WriteOperation.UPSERT: Option(
        "hoodie.combine.before.upsert",
        bool,
        "true",
        "of several rows of one key in an upsert the one that wins by the merge mode is written",
        verbs=("upsert",),
    ),
    WriteOperation.DELETE: Option(
        "hoodie.combine.before.delete", bool, "true", "keys that are given twice are deleted once", verbs=("delete",)
    ),
}
_COMBINE_INSERTS = Option(
    "hoodie.combine.before.insert",
    bool,
    "false",
    "of several rows of one key in an insert or overwrite one is written",
    verbs=_WITH_ROWS,
)
SCHEMA_MODE = Option(
    "pyhudi.schema.mode",
    tuple(SchemaMode),
    SchemaMode.WIDEN.value,
    "what rows may change of the table's columns: nothing, what loses nothing, or what Hudi changes by itself",
    verbs=_WITH_ROWS,
)
_NANOSECONDS = Option(
    NANOSECONDS_OPTION,
    ("refuse", "cut"),
    "refuse",
    "what becomes of timestamps finer than microseconds: refused, or what is finer is cut off",
    verbs=(*_WITH_ROWS, "delete"),
)
_NULL_FOR_MISSING = Option(
    "hoodie.write.set.null.for.missing.columns",
    bool,
    "false",
    "columns that the rows of a write lack become null; false refuses them",
    verbs=_WITH_ROWS,
)
_RECONCILE = Option(
    "hoodie.datasource.write.reconcile.schema",
    bool,
    "false",
    "the same as hoodie.write.set.null.for.missing.columns",
    verbs=_WITH_ROWS,
)
_ALLOW_DROP = Option(
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
    bool,
    "false",
    "a write whose rows lack columns drops them from the table",
    verbs=_WITH_ROWS,
)
_EVENT_TIME = Option(
    "hoodie.payload.event.time.field",
    str,
    None,
    "column that tells when events happened: commits say of each file the earliest and the latest (minEventTime, maxEventTime)",
    verbs=_WITH_ROWS,
)
_WATERMARK = Option(
    "hoodie.write.track.event.time.watermark",
    bool,
    "true",
    "commits say it; Hudi 1.1 leaves it out unless this is true, Hudi 1.0 does not know it",
    verbs=_WITH_ROWS,
)
OPERATIONS_ON_INPUT_ROWS = (PARTIAL_UPDATE, _DROP_DUPLICATES, _NULL_FOR_MISSING, _RECONCILE, _ALLOW_DROP)
"""What says of an upsert how its rows are meant: nothing to act on where the rows are made of those of the table."""
DRIVER_BATCH = Option(
    "pyhudi.spark.driver.batch.bytes",
    int,
    str(16 << 20),
    "bytes of Arrow up to which the rows of a write on Spark are taken to the driver; 0: never",
    at_least=0,
    verbs=(*_WITH_ROWS, "delete"),
)
DRIVER_WORK = Option(
    "pyhudi.spark.driver.work.bytes",
    int,
    str(256 << 20),
    "bytes of the table up to which a write whose rows are on the driver reads and rewrites them there; more: on the cluster",
    at_least=0,
    verbs=(*_WITH_ROWS, "delete"),
)
_STATIC_PARTITIONS = Option(
    "hoodie.static.overwrite.partition.paths",
    str,
    None,
    "partitions that an insert overwrite replaces beside those of its rows",
    chooses="write",
    verbs=_OVERWRITE_VERBS,
)
UPDATE_STRATEGY = Option(
    "hoodie.clustering.updates.strategy",
    str,
    "SparkRejectUpdateStrategy",
    "class that says whether a write may change files of a planned clustering",
)


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """One write, parsed.  extra_metadata: what the commit carries beside the schema.

    clustering_updates: whether writes may change file groups of a pending clustering: reject, allow, or duplicate, for resizes of
    rings; drops_clusterings: whether they drop the plan then, so that nobody works for nothing.  batch: what of a stream is
    written, so that it lands once.  partial: an upsert's rows hold some columns only, and the others keep their values.  marker:
    what makes a row a delete, in place of `_hoodie_is_deleted`.  sync: the catalogs that are told of the commit, None for none.
    replaces_schema: the columns of the rows become the table's, whatever those were.
    event_time: the column that tells when events happened.
    """

    operation: Annotated[WriteOperation, _DROP_DUPLICATES]
    index: LookupSettings
    combine: Annotated[bool, *_COMBINE.values(), _COMBINE_INSERTS]
    duplicate_policy: Annotated[str, DUPLICATE_POLICY, _DROP_DUPLICATES]
    allow_duplicates: Annotated[
        bool,
        Option(
            "hoodie.merge.allow.duplicate.on.inserts",
            bool,
            "true",
            "inserts into a small file stay records of their own when their keys are there; false merges them",
            verbs=("insert",),
        ),
    ]
    sort_mode: Annotated[
        str,
        Option(
            "hoodie.bulkinsert.sort.mode",
            ("NONE", "GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT"),
            "NONE",
            "how a bulk insert orders and deals out its rows",
            verbs=("bulk_insert",),
        ),
    ]
    bulk_parallelism: Annotated[
        int,
        Option(
            "hoodie.bulkinsert.shuffle.parallelism",
            int,
            "0",
            "tasks that a bulk insert deals its rows out to; 0: the engine chooses",
            verbs=("bulk_insert",),
        ),
    ]
    schema_mode: Annotated[SchemaMode, SCHEMA_MODE]
    without_zone: Annotated[ZonelessTimestamps | None, WITHOUT_ZONE]
    truncates_nanoseconds: Annotated[bool, _NANOSECONDS]
    null_for_missing: Annotated[bool, _NULL_FOR_MISSING, _RECONCILE]
    allow_drop: Annotated[
        bool,
        _ALLOW_DROP,
    ]
    allow_empty: Annotated[
        bool, Option("hoodie.allow.empty.commit", bool, "true", "a write that changes nothing commits all the same")
    ]
    memory_budget_bytes: Annotated[int, MEMORY_BUDGET]
    driver_batch_bytes: Annotated[int, DRIVER_BATCH]
    driver_work_bytes: Annotated[int, DRIVER_WORK]
    partitions_to_overwrite: Annotated[tuple[str, ...] | None, _STATIC_PARTITIONS]
    files: FileSettings
    sizing: SizingSettings
    commit: CommitSettings
    extra_metadata: Annotated[tuple[tuple[str, str], ...], METADATA_PREFIX]
    services: ServiceSettings
    sync: Annotated[SyncSettings | None, META_SYNC, HIVE_SYNC]
    metadata: MetadataSettings
    early: EarlySettings
    clustering_updates: Annotated[str, UPDATE_STRATEGY, BUCKET_ENGINE]
    drops_clusterings: Annotated[
        bool,
        Option(
            "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
            bool,
            "false",
            "a write to files of a planned clustering, where it is allowed, drops the plan",
        ),
    ]
    partial: Annotated[bool, PARTIAL_UPDATE]
    event_time: Annotated[str | None, _EVENT_TIME, _WATERMARK] = None
    batch: StreamBatch | None = None
    marker: Annotated[DeleteMarker | None, DELETE_FIELD, DELETE_MARKER] = None
    replaces_schema: bool = False

    @classmethod
    def of(cls, options: Options, operation: WriteOperation) -> WriteSettings:
        """From checked options.  Raises InvalidRequest for options that do not go together."""
        policy = options.value_or_default(DUPLICATE_POLICY)
        if options.flag(_DROP_DUPLICATES):
            if operation is WriteOperation.BULK_INSERT:
                raise InvalidRequest(f"{_DROP_DUPLICATES} does not go with bulk_insert; use insert")
            policy = "drop"
            if operation is WriteOperation.UPSERT:
                if options.flag(PARTIAL_UPDATE):
                    raise InvalidRequest(f"{_DROP_DUPLICATES} makes the upsert an insert, and {PARTIAL_UPDATE} needs an upsert")
                operation = WriteOperation.INSERT
        static = options.text(_STATIC_PARTITIONS)
        prefix = options.value_or_default(METADATA_PREFIX)
        settings = read_settings(
            cls,
            options,
            operation=operation,
            combine=options.flag(_COMBINE.get(operation, _COMBINE_INSERTS)),
            duplicate_policy=policy,
            schema_mode=SchemaMode(options.value_or_default(SCHEMA_MODE)),
            truncates_nanoseconds=options.value_or_default(_NANOSECONDS) == "cut",
            null_for_missing=options.flag(_NULL_FOR_MISSING) or options.flag(_RECONCILE),
            partitions_to_overwrite=tuple(part.strip() for part in static.split(",")) if static else None,
            extra_metadata=tuple((key, value) for key, value in options.extra if prefix and key.startswith(prefix)),
            clustering_updates=_update_strategy(options),
            partial=options.flag(PARTIAL_UPDATE) and operation is WriteOperation.UPSERT,
            event_time=options.text(_EVENT_TIME) if options.flag(_WATERMARK) else None,
            marker=delete_marker_setting(options, combines_with_flag=False),
            sync=SyncSettings.after_writes(options),
        )
        settings._check_mode()
        return settings

    def _check_mode(self) -> None:
        """Raises InvalidRequest, Unsupported for what does not go with writers that do not wait for each other."""
        operation = self.operation
        if self.commit.is_non_blocking and operation is not WriteOperation.DELETE_PARTITION:
            check_operation(operation, self.index.index_type, replaces=operation.replaces, partial=self.partial)

    def overwriting(self) -> WriteSettings:
        """The write that leaves these rows alone in the table, combined as they would be, and their columns as the table's.

        One commit replaces all that is there.  Raises InvalidRequest for a partial update, which needs what is there.
        """
        if self.partial:
            raise InvalidRequest("a partial update changes records that are there; overwriting the table leaves none of them")
        settings = replace(self, operation=WriteOperation.INSERT_OVERWRITE_TABLE, replaces_schema=True)
        settings._check_mode()
        return settings


def with_schema_mode(options: Mapping[str, object] | None, mode: str | None) -> Mapping[str, object] | None:
    """The options of a call with the schema mode that its argument names.  Raises InvalidRequest where they name another one."""
    if mode is None:
        return options
    option = (options or {}).get(SCHEMA_MODE.key, mode)
    if str(option) != mode:
        raise InvalidRequest(f"schema_mode={mode} and option {SCHEMA_MODE}={option} disagree")
    return {**(options or {}), SCHEMA_MODE.key: mode}


def check_first_write(uri: str, options: Options, settings: WriteSettings, columns: pa.Schema) -> None:
    """Raises InvalidRequest for what a table made of the options would refuse as its first write, before there is one."""
    if settings.partial or settings.operation in (WriteOperation.DELETE, WriteOperation.DELETE_PARTITION):
        wanted = "a partial update" if settings.partial else settings.operation
        raise InvalidRequest(f"there is no Hudi table at {uri}, so {wanted} has nothing to work on")
    table = TableSettings.of(options)
    if settings.commit.is_non_blocking:
        check_table(uri, table.merge, settings.metadata.enabled_partitions, is_cow=table.table_type is TableType.COPY_ON_WRITE)
    taken = with_zones(without_meta_fields(columns), None, zone_mode(settings.without_zone, table.version))
    check_columns(table.keys, table.merge.ordering.fields, normalise(taken))


def _update_strategy(options: Options) -> str:
    """`hoodie.clustering.updates.strategy` as reject, allow or duplicate."""
    name = options.value_or_default(UPDATE_STRATEGY)
    known = {
        "SparkRejectUpdateStrategy": "reject",
        "SparkAllowUpdateStrategy": "allow",
        "SparkConsistentBucketDuplicateUpdateStrategy": "duplicate",
    }
    found = known.get(name.rsplit(".", 1)[-1])
    if found is None:
        raise Unsupported(f"option {UPDATE_STRATEGY}={name} is refused: PyHudi has {', '.join(known)}")
    if found == "duplicate" and options.value_or_default(BUCKET_ENGINE) != "CONSISTENT_HASHING":
        raise InvalidRequest(f"option {UPDATE_STRATEGY}={name} goes with {BUCKET_ENGINE}=CONSISTENT_HASHING alone")
    return found
