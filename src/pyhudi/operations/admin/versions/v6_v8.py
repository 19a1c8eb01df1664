"""Conversion between table versions 6 and 8.

    6 -> 8   1. roll failed writes back; drop the metadata table, which the next write rebuilds
             2. convert the archive to a history, and the instant files in `.hoodie` to those in `.hoodie/timeline`; no
                process reads them as long as the properties have version 6
             3. set version 8 in the properties: from this write on the table has version 8
             4. remove the instant files from `.hoodie`
             5. compact a merge-on-read table, so that log files named after their base file are not used any more
    8 -> 6   1. roll failed writes back; compact a merge-on-read table until no file slice has a log file
             2. - 4. as above, in reverse

A crash before 3 leaves the table with its old version, and the next attempt starts from scratch. A crash after it
leaves a table of the new version, and the next attempt removes the remains. Instants in the folder of the other version
have no effect.

Source: docs/formats/timeline.md, "Version 6".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, Instant, State, format_instant_time
from pyhudi.format.log.command_blocks import RollbackCommand
from pyhudi.format.log.framing import CorruptBlock, HeaderKey
from pyhudi.format.names import parse_base_file, parse_data_file_instant, parse_log_file
from pyhudi.format.paths import (
    ARCHIVE_FOLDER,
    ARCHIVE_NAME,
    INDEX_DEFINITIONS_FOLDER,
    META_FOLDER,
    METADATA_FOLDER,
    PROPERTIES_FILE,
    TIMELINE_FOLDER,
    join_path,
)
from pyhudi.format.table_versions import TableVersion, TimelineLayout
from pyhudi.metadata_table.writer.metadata_store import drop_store
from pyhudi.operations.admin.versions.timeline_layouts import (
    archive_to_history,
    history_to_archive,
    is_pending,
    remove_instants,
    store_layout_1,
    store_layout_2,
)
from pyhudi.operations.admin.versions.version_step import (
    CHANGING,
    StepContext,
    VersionChange,
    VersionStep,
    check_index_builds,
    check_prepared,
    check_version,
    prepare_version_change,
    unlimited,
)
from pyhudi.operations.commit.begin_checks import check_no_pending_restore
from pyhudi.operations.commit.check_writable import check_key_generator, check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.services.compact import run_compaction
from pyhudi.options import table_options as props
from pyhudi.records.keys.key_spec import PartitionFieldType
from pyhudi.records.merge_mode import PAYLOAD_STRATEGY, MergeMode
from pyhudi.storage import liveness
from pyhudi.storage.markers import Markers
from pyhudi.table.file_slices import LogFile
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.table_config import merge_properties, store_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import WRITE_ACTIONS, Timeline
from pyhudi.table.timeline.archived_timeline import HistoryStore
from pyhudi.tasks.log_scan import read_headers


class V6V8(VersionStep):
    """Step between version 6, which releases before 1.0 write, and version 8.

    No other process may write concurrently: writers of version 6 do not use PyHudi's locks.
    """

    lower = TableVersion.SIX
    upper = TableVersion.EIGHT

    def check_up(self, context: TableContext) -> None:
        config = context.config
        if len(config.ordering_fields) > 1:
            raise Unsupported(f"a table with several ordering fields ({', '.join(config.ordering_fields)}) cannot be upgraded")
        check_key_generator(context)
        if any(field.kind is PartitionFieldType.UNKNOWN for field in config.keys.partition_fields):
            raise Unsupported(
                "the table has a custom key generator, and does not record how its partition fields form paths; set "
                f"{props.PARTITION_FIELDS.stored_as} to field:TYPE first"
            )

    def up(self, context: TableContext, step_context: StepContext) -> VersionChange:
        with context.locked(step_context.lock_wait_ms) as locked:
            locked = locked.reloaded()
            check_version(locked, self.lower)
            self.check_up(locked)
            timeline = locked.timeline.load()
            check_no_pending_restore(locked, timeline, CHANGING)
            taken_back = _rollback_failed_writes(locked, step_context.settings.commit, timeline)
            if locked.config.property(props.METADATA_PARTITIONS.stored_as) or locked.storage.child(METADATA_FOLDER).stat(
                PROPERTIES_FILE
            ):
                locked = drop_store(locked)
            files = [i for i in locked.timeline.load_files() if i.request_time not in taken_back]
            files = [i for i in files if not (i.action is Action.ROLLBACK and is_pending(i, files))]
            locked.storage.delete_folder(TIMELINE_FOLDER)
            locked.storage.make_folder(TIMELINE_FOLDER)
            locked.storage.make_folder(f"{TIMELINE_FOLDER}/history")
            history = HistoryStore(locked.storage, f"{TIMELINE_FOLDER}/history")
            archived = archive_to_history(locked, history, files, step_context.compression)
            count = store_layout_2(locked, TIMELINE_FOLDER, files)
            store_table_config(locked.storage, _properties_of_8(locked), locked.env)
            remove_instants(locked.storage, META_FOLDER, TimelineLayout.V1)
        compaction = None
        if not context.config.is_cow:
            compaction = run_compaction(context.reloaded(), step_context.engine, unlimited(step_context.settings)).instant
        return VersionChange(6, 8, count, archived, tuple(sorted(taken_back)), compaction)

    def finish_up(self, locked_context: TableContext) -> None:
        check_writable(locked_context, retains_indexes=False)
        remove_instants(locked_context.storage, META_FOLDER, TimelineLayout.V1)

    def check_down(self, context: TableContext) -> None:
        check_writable(context, retains_indexes=False)
        check_index_builds(context)
        merge = context.config.merge
        if merge.mode is MergeMode.CUSTOM and merge.strategy_id != PAYLOAD_STRATEGY:
            raise Unsupported(f"version 6 does not support record mergers ({merge.strategy_id}), only payload classes")

    def down(self, context: TableContext, step_context: StepContext) -> VersionChange:
        rolled_back, compaction = prepare_version_change(context, step_context)
        with context.locked(step_context.lock_wait_ms) as locked:
            context = locked.reloaded()
            check_version(context, self.upper)
            self.check_down(context)
            check_prepared(context)
            if context.config.metadata_partitions or context.config.metadata_partitions_inflight:
                context = drop_store(context)
            files = context.timeline.load_files()
            remove_instants(context.storage, META_FOLDER, TimelineLayout.V1)
            context.storage.delete_folder(ARCHIVE_FOLDER)
            archived = history_to_archive(context)
            count = store_layout_1(context, files)
            store_table_config(context.storage, _properties_of_6(context), context.env)
            context.storage.delete_folder(context.config.timeline_path)
            self.finish_down(context)
        return VersionChange(8, 6, count, archived, rolled_back, compaction)

    def finish_down(self, locked_context: TableContext) -> None:
        locked_context.storage.delete_folder(TIMELINE_FOLDER)
        locked_context.storage.delete_folder(INDEX_DEFINITIONS_FOLDER)


def _rollback_failed_writes(context: TableContext, settings: CommitSettings, timeline: Timeline) -> frozenset[str]:
    """Roll back pending writes of version 6, and return their request times; their instants are not converted."""
    # Base files are deleted, and a rollback block is appended after the blocks in log files.
    failed = {i.request_time for i in timeline.pending(*WRITE_ACTIONS) if not _has_plan(context, i)}
    for request_time in failed:
        if liveness.is_alive(context.storage, context.env, request_time, settings.heartbeats):
            raise TableState(f"the writer of {request_time} is alive; stop it before upgrading the table")
    if not failed:
        return frozenset()
    now = format_instant_time(context.env.now_ms(), context.config.zone)
    listing = DirectoryListing(context.storage)
    for partition, infos in listing.files(listing.partitions()).items():
        lost = [i.path for i in infos if parse_base_file(i.name) is not None and parse_data_file_instant(i.name) in failed]
        if lost:
            context.storage.delete(lost)
        logs: dict[tuple[str, str], list[LogFile]] = {}
        for info in infos:
            name = parse_log_file(info.name)
            if name is not None and not name.is_cdc:
                logs.setdefault((name.file_id, name.instant_time), []).append(LogFile(info.path, name, info.size_bytes))
        for group in logs.values():
            _append_rollbacks(context, partition, sorted(group, key=lambda log: log.name.sort_key), failed, now)
    for request_time in failed:
        Markers(context.storage, request_time).delete()
    return frozenset(failed)


def _append_rollbacks(
    context: TableContext, partition: str, logs: Sequence[LogFile], failed: Iterable[str], current_time: str
) -> None:
    open_targets: set[str] = set()
    for log in logs:
        for block in read_headers(context.storage, log):
            if isinstance(block, CorruptBlock):
                continue
            target = block.header(HeaderKey.TARGET_INSTANT_TIME)
            if target is not None:
                open_targets.discard(target)
            elif block.instant_time in set(failed):
                open_targets.add(block.instant_time)
    if open_targets:
        last = logs[-1].name
        name = replace(last, version=last.version + 1, write_token="0-0-0")
        blocks = b"".join(RollbackCommand(current_time, target).encode() for target in sorted(open_targets))
        context.storage.put(join_path(partition, name.text), blocks)


def _has_plan(context: TableContext, instant: Instant) -> bool:
    """Return True if a pending replacecommit of layout 1 is a clustering, which runs later."""
    if instant.action is not Action.REPLACECOMMIT:
        return False
    data = context.timeline.read_state(instant.request_time, Action.REPLACECOMMIT, State.REQUESTED)
    return bool(data) and RequestedReplaceMetadata.decode(data or b"").clustering_plan is not None


def _properties_of_8(context: TableContext) -> Mapping[str, str | None]:
    config = context.config
    stored = dict(config.properties)
    generator = stored.get(props.GENERATOR_TYPE.stored_as) or config.keys.generator.value
    return {
        props.VERSION.stored_as: "8",
        props.LAYOUT.stored_as: "2",
        props.INITIAL_VERSION.stored_as: stored.get(props.INITIAL_VERSION.stored_as, "6"),
        props.TIMELINE_PATH.stored_as: "timeline",
        props.HISTORY_PATH.stored_as: "history",
        props.GENERATOR_TYPE.stored_as: generator,
        # The releases with version 8 read only this property name, which later releases do not write.
        props.ORDERING.stored_as: config.ordering_field,
        **merge_properties(config.merge),
    }


def _properties_of_6(context: TableContext) -> Mapping[str, str | None]:
    config = context.config
    fields = config.property(props.PARTITION_FIELDS.stored_as)
    generator = config.property(props.GENERATOR_CLASS.stored_as) or _GENERATOR_CLASSES.get(
        config.property(props.GENERATOR_TYPE.stored_as).upper()
    )
    if generator is None:
        raise InvalidRequest(f"version 6 has no key generator class for {config.property(props.GENERATOR_TYPE.stored_as)!r}")
    return {
        props.VERSION.stored_as: "6",
        props.LAYOUT.stored_as: "1",
        props.ARCHIVE_FOLDER.stored_as: ARCHIVE_NAME,
        props.PARTITION_FIELDS.stored_as: ",".join(part.split(":")[0] for part in fields.split(",")) if fields else fields,
        props.PAYLOAD.stored_as: config.merge.payload_class,
        props.GENERATOR_CLASS.stored_as: generator,
        props.GENERATOR_TYPE.stored_as: None,
        props.INITIAL_VERSION.stored_as: None,
        props.MERGE_MODE.stored_as: None,
        props.STRATEGY_ID.stored_as: None,
        props.STRATEGY_ALIAS: None,
        props.TIMELINE_PATH.stored_as: None,
        props.HISTORY_PATH.stored_as: None,
        props.INDEX_DEFINITIONS_PATH.stored_as: None,
        props.METADATA_PARTITIONS.stored_as: None,
        props.METADATA_INFLIGHT.stored_as: None,
    }


_KEYGEN = "org.apache.hudi.keygen."
_SQL = "org.apache.spark.sql.hudi.command."
_GENERATOR_CLASSES: Mapping[str, str] = {
    "SIMPLE": f"{_KEYGEN}SimpleKeyGenerator",
    "SIMPLE_AVRO": f"{_KEYGEN}SimpleAvroKeyGenerator",
    "COMPLEX": f"{_KEYGEN}ComplexKeyGenerator",
    "COMPLEX_AVRO": f"{_KEYGEN}ComplexAvroKeyGenerator",
    "TIMESTAMP": f"{_KEYGEN}TimestampBasedKeyGenerator",
    "TIMESTAMP_AVRO": f"{_KEYGEN}TimestampBasedAvroKeyGenerator",
    "CUSTOM": f"{_KEYGEN}CustomKeyGenerator",
    "CUSTOM_AVRO": f"{_KEYGEN}CustomAvroKeyGenerator",
    "NON_PARTITION": f"{_KEYGEN}NonpartitionedKeyGenerator",
    "NON_PARTITION_AVRO": f"{_KEYGEN}NonpartitionedAvroKeyGenerator",
    "GLOBAL_DELETE": f"{_KEYGEN}GlobalDeleteKeyGenerator",
    "GLOBAL_DELETE_AVRO": f"{_KEYGEN}GlobalAvroDeleteKeyGenerator",
    "AUTO_RECORD": f"{_KEYGEN}AutoRecordGenWrapperKeyGenerator",
    "AUTO_RECORD_AVRO": f"{_KEYGEN}AutoRecordGenWrapperAvroKeyGenerator",
    "SPARK_SQL": f"{_SQL}SqlKeyGenerator",
    "SPARK_SQL_UUID": f"{_SQL}UuidKeyGenerator",
    "SPARK_SQL_MERGE_INTO": f"{_SQL}MergeIntoKeyGenerator",
}
