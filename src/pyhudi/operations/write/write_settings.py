"""Settings of a write: its operation, and every option that applies to it."""

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
from pyhudi.operations.admin.table_settings import TableSettings, zone_mode
from pyhudi.operations.catalog_sync.sync_settings import SyncSettings
from pyhudi.operations.commit.commit_callbacks import CallbackSettings
from pyhudi.operations.commit.commit_settings import (
    NON_BLOCKING,
    CommitSettings,
    delete_marker_setting,
    with_commit_metadata,
)
from pyhudi.operations.commit.precommit_checks import ValidatorSettings
from pyhudi.operations.services.clean import CleanSettings
from pyhudi.operations.services.service_settings import ServiceSettings
from pyhudi.operations.write.early_conflict_settings import EarlySettings
from pyhudi.operations.write.index_lookup import LookupSettings
from pyhudi.operations.write.write_once import ApplicationVersion, CommitMark, with_once
from pyhudi.options import write_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.index_options import BUCKET_ENGINE
from pyhudi.options.sync_options import HIVE_SYNC, META_SYNC
from pyhudi.options.table_options import WITHOUT_ZONE
from pyhudi.options.write_options import (
    CONCURRENCY,
    DELETE_FIELD,
    DELETE_MARKER,
    DRIVER_BATCH,
    DRIVER_WORK,
    DUPLICATE_POLICY,
    GROUP,
    INDEX_TYPE,
    MEMORY_BUDGET,
    ONCE,
    PARTIAL_UPDATE,
    SCHEMA_MODE,
    STAGED_BYTES,
)
from pyhudi.planning.record_placement import SizingSettings
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.merge_mode import MergeMode, MergeSettings
from pyhudi.records.record_merge import DeleteMarker
from pyhudi.records.schema_evolution import SchemaMode
from pyhudi.records.timestamp_coercion import ZonelessTimestamps, with_zones
from pyhudi.records.type_normalization import normalize_types
from pyhudi.table.table_config import TableType
from pyhudi.tasks.base_file_writer import FileSettings

# Conditions for non-blocking concurrency control, in which several writers append to the same file groups concurrently.
#
# Writers do not wait for each other and do not repeat work, so the result must not depend on the order of completion:
#
#     merge on read    every write is a log file of its own; a new base file would hide concurrent appends to the old
#                      one
#     bucket index     the key alone determines the file group of a record, so that all writers use the same one
#     event time       the ordering field decides between two records of one key, not the order of commits
#     whole rows       a row completed from stored values would undo concurrent changes
#     no key index     the entries of a key index depend on what concurrent writers do to the same keys
#
# Only compaction creates base files. It merges what completed before it was scheduled; later log files follow its base
# file.
#
# Source: docs/concurrency-control.md.

_MODE = f"{CONCURRENCY}={NON_BLOCKING}"


def check_operation(operation: str, index: str, *, replaces: bool, partial: bool) -> None:
    """Check the options of a non-blocking write, without the table.

    Args:
        operation: Name of the operation.
        index: Name of the index.
        replaces: The operation replaces file groups.
        partial: The write is a partial update.

    Raises:
        InvalidRequest, Unsupported: The options are incompatible with non-blocking concurrency control.
    """
    if replaces:
        raise InvalidRequest(
            f"{operation} is incompatible with {_MODE}: it would replace file groups to which other writers "
            "append; run it without concurrent writers, under another mode"
        )
    if index != "BUCKET":
        raise InvalidRequest(
            f"{_MODE} requires {INDEX_TYPE}=BUCKET, not {index}: only buckets lead all writers of a key to one file group"
        )
    if partial:
        raise Unsupported(
            f"partial updates are incompatible with {_MODE}: unchanged columns may change concurrently; upsert whole rows"
        )


def check_table(uri: str, merge: MergeSettings, indexes: Iterable[str], *, is_cow: bool) -> None:
    """Check the table of a non-blocking write.

    Args:
        uri: Location of the table.
        merge: Merge settings of the table.
        indexes: Partitions of its metadata table, those under construction included.
        is_cow: The table is copy-on-write.

    Raises:
        InvalidRequest, Unsupported: The table is incompatible with non-blocking concurrency control.
    """
    if is_cow:
        raise InvalidRequest(
            f"{_MODE} requires a merge-on-read table, and the one at {uri} is copy-on-write: it has no log files"
        )
    if merge.mode is not MergeMode.EVENT_TIME_ORDERING or not merge.ordering:
        raise InvalidRequest(
            f"{_MODE} requires a table with merge mode {MergeMode.EVENT_TIME_ORDERING} and an ordering field, "
            f"unlike {uri} ({merge.mode}): writers complete in any order, so the ordering field has to decide "
            "which record is newer"
        )
    if merge.update_mode is not None:
        raise Unsupported(
            f"{_MODE} is incompatible with the table at {uri}, whose records take values from older ones (update "
            f"mode {merge.update_mode}), depending on the order of writes; use OPTIMISTIC_CONCURRENCY_CONTROL"
        )
    keyed = sorted(name for name in indexes if name == RECORD_INDEX or name.startswith(SECONDARY_INDEX_PREFIX))
    if keyed:
        raise Unsupported(
            f"{_MODE} is incompatible with the table at {uri}, which has the index {', '.join(keyed)}: its "
            "entries cannot be determined while others write the same keys; drop the index, or use "
            "OPTIMISTIC_CONCURRENCY_CONTROL"
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
        """The operation type in commit metadata."""
        return Operation[self.name]

    @property
    def replaces(self) -> bool:
        """True if it replaces file groups."""
        return self.recorded.replaces


KEEP = "keep"
MISSING_COLUMNS = ("error", "null", KEEP)
"""How columns that the rows of a write lack are handled."""

_OVERWRITE_OPERATIONS = ("insert_overwrite", "insert_overwrite_table")
_WITH_ROWS = ("upsert", "insert", "bulk_insert", *_OVERWRITE_OPERATIONS)

_COMBINE = {
    WriteOperation.UPSERT: write_options.COMBINE_BEFORE_UPSERT,
    WriteOperation.DELETE: write_options.COMBINE_BEFORE_DELETE,
}
OPERATIONS_ON_INPUT_ROWS = (
    PARTIAL_UPDATE,
    write_options.INSERT_DROP_DUPLICATES,
    write_options.SET_NULL_FOR_MISSING_COLUMNS,
    write_options.RECONCILE_SCHEMA,
    write_options.SCHEMA_ALLOW_AUTO_EVOLUTION_COLUMN_DROP,
)
"""Options that define how the input rows of an upsert are interpreted. They do not apply to rows computed from the table."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Settings of one write, parsed.

    Attributes:
        clustering_updates: Whether writes may change file groups of a pending clustering: reject, allow, or duplicate
            (write rows twice during a bucket resize).
        drops_clusterings: Whether such writes drop the clustering plan, so that it is not run in vain.
        group: Whether small batches of several writers become one commit.
        once: Application version or micro-batch of the write, so that it is committed once.
        partial: Rows of an upsert have some of the columns; the others retain their values.
        marker: Marks a row as a delete, instead of `_hoodie_is_deleted`.
        sync: Catalogs to sync after the commit, None for none.
        replaces_schema: The columns of the rows become the table's columns.
        event_time: The event time column.
        overwrite_where: Predicate of the partitions that an insert_overwrite replaces; None for those of the rows.
        validators: Pre-commit validators, None for none.
        prewrite: Policy of what the write does before it takes its instant: NONE, CLEAN or ROLLBACK_FAILED_WRITES.
        prewrite_clean: Settings of the clean before the write.
        callbacks: Commit callbacks, None for none.
    """

    operation: Annotated[WriteOperation, write_options.INSERT_DROP_DUPLICATES]
    index: LookupSettings
    combine: Annotated[bool, *_COMBINE.values(), write_options.COMBINE_BEFORE_INSERT]
    duplicate_policy: Annotated[str, DUPLICATE_POLICY, write_options.INSERT_DROP_DUPLICATES]
    allow_duplicates: Annotated[bool, write_options.MERGE_ALLOW_DUPLICATE_ON_INSERTS]
    sort_mode: Annotated[str, write_options.BULKINSERT_SORT_MODE]
    bulk_parallelism: Annotated[int, write_options.BULKINSERT_SHUFFLE_PARALLELISM]
    schema_mode: Annotated[SchemaMode, SCHEMA_MODE]
    without_zone: Annotated[ZonelessTimestamps | None, WITHOUT_ZONE]
    truncates_nanoseconds: Annotated[bool, write_options.TIMESTAMPS_NANOSECONDS]
    null_for_missing: Annotated[bool, write_options.SET_NULL_FOR_MISSING_COLUMNS, write_options.RECONCILE_SCHEMA]
    allow_drop: Annotated[bool, write_options.SCHEMA_ALLOW_AUTO_EVOLUTION_COLUMN_DROP]
    allow_empty: Annotated[bool, write_options.ALLOW_EMPTY_COMMIT]
    memory_budget_bytes: Annotated[int, MEMORY_BUDGET]
    driver_batch_bytes: Annotated[int, DRIVER_BATCH]
    driver_work_bytes: Annotated[int, DRIVER_WORK]
    staged_bytes: Annotated[int, STAGED_BYTES]
    partitions_to_overwrite: Annotated[tuple[str, ...] | None, write_options.STATIC_PARTITIONS]
    files: FileSettings
    sizing: SizingSettings
    commit: CommitSettings
    services: ServiceSettings
    sync: Annotated[SyncSettings | None, META_SYNC, HIVE_SYNC]
    metadata: MetadataSettings
    early: EarlySettings
    clustering_updates: Annotated[str, write_options.CLUSTERING_UPDATES_STRATEGY, BUCKET_ENGINE]
    prewrite: Annotated[str, write_options.PREWRITE_CLEANER]
    prewrite_clean: CleanSettings
    drops_clusterings: Annotated[bool, write_options.CLUSTERING_ROLLBACK_PENDING_REPLACECOMMIT_ON_CONFLICT]
    partial: Annotated[bool, PARTIAL_UPDATE]
    event_time: Annotated[str | None, write_options.PAYLOAD_EVENT_TIME_FIELD, write_options.TRACK_EVENT_TIME_WATERMARK] = None
    once: Annotated[CommitMark | None, ONCE] = None
    group: Annotated[str, GROUP] = "never"
    marker: Annotated[DeleteMarker | None, DELETE_FIELD, DELETE_MARKER] = None
    replaces_schema: bool = False
    overwrite_where: Filter | None = None
    validators: ValidatorSettings | None = None
    callbacks: CallbackSettings | None = None

    @classmethod
    def of(cls, options: Options, operation: WriteOperation) -> WriteSettings:
        """Build the settings from checked options. Raises InvalidRequest for incompatible options."""
        policy = options.value_or_default(DUPLICATE_POLICY)
        drops_duplicates = options.flag(write_options.INSERT_DROP_DUPLICATES)
        if drops_duplicates:
            if operation is WriteOperation.BULK_INSERT:
                raise InvalidRequest(f"{write_options.INSERT_DROP_DUPLICATES} is incompatible with bulk_insert; use insert")
            policy = "drop"
            if operation is WriteOperation.UPSERT:
                if options.flag(PARTIAL_UPDATE):
                    raise InvalidRequest(
                        f"{write_options.INSERT_DROP_DUPLICATES} turns the upsert into an insert, and "
                        f"{PARTIAL_UPDATE} requires an upsert"
                    )
                operation = WriteOperation.INSERT
        combine = _COMBINE.get(operation, write_options.COMBINE_BEFORE_INSERT)
        static = options.text(write_options.STATIC_PARTITIONS)
        settings = read_settings(
            cls,
            options,
            operation=operation,
            combine=options.flag(combine) or (drops_duplicates and options.explicit(combine) is None),
            duplicate_policy=policy,
            schema_mode=SchemaMode(options.value_or_default(SCHEMA_MODE)),
            truncates_nanoseconds=options.value_or_default(write_options.TIMESTAMPS_NANOSECONDS) == "cut",
            null_for_missing=options.flag(write_options.SET_NULL_FOR_MISSING_COLUMNS)
            or options.flag(write_options.RECONCILE_SCHEMA)
            or _fills_missing_columns(options, operation),
            partitions_to_overwrite=tuple(part.strip() for part in static.split(",")) if static else None,
            clustering_updates=_update_strategy(options),
            partial=options.flag(PARTIAL_UPDATE) and operation is WriteOperation.UPSERT,
            event_time=options.text(write_options.PAYLOAD_EVENT_TIME_FIELD)
            if options.flag(write_options.TRACK_EVENT_TIME_WATERMARK)
            else None,
            marker=delete_marker_setting(options, combines_with_flag=False),
            sync=SyncSettings.after_writes(options),
            validators=ValidatorSettings.of(options),
            callbacks=CallbackSettings.of(options),
            once=None if (once := options.text(ONCE)) is None else ApplicationVersion.parse(once),
        )
        settings._check_mode()
        return replace(settings, services=settings.services.without_commit_metadata())

    @property
    def recorded(self) -> Operation:
        """The operation type in commit metadata."""
        return self.operation.recorded if self.index.rescale is None else self.index.rescale.operation

    def _check_mode(self) -> None:
        """Raise InvalidRequest or Unsupported for settings that are incompatible with non-blocking concurrency control."""
        operation = self.operation
        if self.commit.is_non_blocking and operation is not WriteOperation.DELETE_PARTITION:
            check_operation(operation, self.index.index_type, replaces=operation.replaces, partial=self.partial)

    def overwriting(self) -> WriteSettings:
        """Return the settings that replace all rows and columns of the table in one commit; duplicates are combined as before.

        Raises:
            InvalidRequest: The write is a partial update, which needs existing records.
        """
        if self.partial:
            raise InvalidRequest(
                "a partial update changes existing records, and overwriting the table leaves none; upsert whole rows instead"
            )
        settings = replace(self, operation=WriteOperation.INSERT_OVERWRITE_TABLE, replaces_schema=True)
        settings._check_mode()
        return settings


def _fills_missing_columns(options: Options, operation: WriteOperation) -> bool:
    """Return True for an insert that asks for schema evolution: columns that its rows lack are null, as in Delta Lake.

    An upsert would overwrite stored values with nulls.
    """
    evolves = options.explicit(SCHEMA_MODE) in (SchemaMode.MERGE, SchemaMode.WIDEN, SchemaMode.EVOLVE)
    decided = options.flag(write_options.SCHEMA_ALLOW_AUTO_EVOLUTION_COLUMN_DROP) or (
        options.explicit(write_options.SET_NULL_FOR_MISSING_COLUMNS) is not None
    )
    return evolves and not decided and operation in (WriteOperation.INSERT, WriteOperation.BULK_INSERT)


def with_arguments(
    options: Mapping[str, object] | None,
    *,
    schema_mode: str | None = None,
    missing_columns: str | None = None,
    once: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
) -> Mapping[str, object] | None:
    """Return the options of a call with its arguments that are options. Raises InvalidRequest if an option contradicts one."""
    options = _with_missing_columns(with_schema_mode(options, schema_mode), missing_columns)
    return with_commit_metadata(with_once(options, once), commit_metadata)


def _with_missing_columns(options: Mapping[str, object] | None, missing_columns: str | None) -> Mapping[str, object] | None:
    if missing_columns is None:
        return options
    if missing_columns == KEEP:
        raise InvalidRequest(f"missing_columns={KEEP!r} retains values of stored records: it requires an upsert of whole columns")
    if missing_columns not in MISSING_COLUMNS:
        raise InvalidRequest(f"missing_columns={missing_columns!r} is unknown: choose from {', '.join(MISSING_COLUMNS)}")
    option, text = write_options.SET_NULL_FOR_MISSING_COLUMNS, str(missing_columns == "null").lower()
    if str((options or {}).get(option.key, text)).lower() != text:
        raise InvalidRequest(f"missing_columns={missing_columns!r} contradicts option {option}={(options or {})[option.key]}")
    return {**(options or {}), option.key: text}


def with_schema_mode(options: Mapping[str, object] | None, mode: str | None) -> Mapping[str, object] | None:
    """Return the options of a call with the schema mode of its argument. Raises InvalidRequest if an option contradicts it."""
    if mode is None:
        return options
    option = (options or {}).get(SCHEMA_MODE.key, mode)
    if str(option) != mode:
        raise InvalidRequest(f"schema_mode={mode} contradicts option {SCHEMA_MODE}={option}")
    return {**(options or {}), SCHEMA_MODE.key: mode}


def check_first_write(uri: str, options: Options, settings: WriteSettings, columns: pa.Schema) -> None:
    """Raise InvalidRequest before the table is created if its first write would be refused."""
    if settings.partial or settings.operation in (WriteOperation.DELETE, WriteOperation.DELETE_PARTITION):
        operation_name = "a partial update" if settings.partial else settings.operation
        raise InvalidRequest(f"there is no Hudi table at {uri}, which {operation_name} requires")
    table = TableSettings.of(options)
    if settings.commit.is_non_blocking:
        check_table(uri, table.merge, settings.metadata.enabled_partitions, is_cow=table.table_type is TableType.COPY_ON_WRITE)
    input_columns = with_zones(without_meta_fields(columns), None, zone_mode(settings.without_zone, table.version))
    check_columns(table.keys, table.merge.ordering.fields, normalize_types(input_columns))


def _update_strategy(options: Options) -> str:
    """Parse `hoodie.clustering.updates.strategy` as reject, allow or duplicate."""
    name = options.value_or_default(write_options.CLUSTERING_UPDATES_STRATEGY)
    known = {
        "SparkRejectUpdateStrategy": "reject",
        "SparkAllowUpdateStrategy": "allow",
        "SparkConsistentBucketDuplicateUpdateStrategy": "duplicate",
    }
    strategy = known.get(name.rsplit(".", 1)[-1])
    if strategy is None:
        raise Unsupported(
            f"option {write_options.CLUSTERING_UPDATES_STRATEGY}={name} is not supported; use one of {', '.join(known)}"
        )
    if strategy == "duplicate" and options.value_or_default(BUCKET_ENGINE) != "CONSISTENT_HASHING":
        raise InvalidRequest(
            f"option {write_options.CLUSTERING_UPDATES_STRATEGY}={name} requires {BUCKET_ENGINE}=CONSISTENT_HASHING"
        )
    return strategy
