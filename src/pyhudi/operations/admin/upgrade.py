"""Table versions 6 and 8: a table's upgrade, and its downgrade.

    6 -> 8   1. failed writes are taken back; the metadata table is dropped, as the next write builds it anew
             2. the archive becomes a history, the instant files of `.hoodie` those of `.hoodie/timeline`; as long as the
                properties say version 6, nobody looks there
             3. the properties say version 8: from this write on the table is one of version 8
             4. the instant files of `.hoodie` are removed
             5. a merge-on-read table is compacted, so that log files named after their base file fall out of use
    8 -> 6   1. failed writes are rolled back; a merge-on-read table is compacted until no slice has a log file
             2. - 4. as above, the other way round

A crash before 3 leaves the table of the version that it had, and the next attempt begins anew; after it, one of the new version,
and the next attempt removes what is left.  Instants that stand where their version does not look do no harm.

    instant file            version 6                         version 8
    name when completed     `t.commit`, time: the file's      `t_c.commit`
    commit metadata         JSON                              Avro
    pending clustering      `t.replacecommit.requested`       `t.clustering.requested`

Completion times of an upgraded table are the modification times of its files, one millisecond apart at least; a downgrade gives
the files their completion times back, where the store lets it.

Source: docs/formats/timeline.md, "Version 6".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from functools import partial

from pyhudi.errors import CorruptData, InvalidRequest, TableState, Unsupported
from pyhudi.execute.engine import Engine
from pyhudi.execute.log_scan import read_headers
from pyhudi.format.actions.archived import ArchivedEntry
from pyhudi.format.actions.commit import CommitMetadata
from pyhudi.format.actions.replace import RequestedReplaceMetadata
from pyhudi.format.history import HistoryRow
from pyhudi.format.instants import (
    Action,
    Instant,
    State,
    format_instant_time,
    parse_action,
    parse_instant_file,
    parse_instant_time,
    shift_instant_time,
)
from pyhudi.format.legacy_archive import decode_archive_block, encode_archive_block, entries_of_row, rows_of_entries
from pyhudi.format.log.commands import RollbackCommand
from pyhudi.format.log.framing import CorruptBlock, HeaderKey, LogBlock, scan_blocks
from pyhudi.format.names import ArchiveFileName, parse_archive_file, parse_base_file, parse_data_file_instant, parse_log_file
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
from pyhudi.format.versions import TableVersion, TimelineLayout
from pyhudi.operations.action.gate import check_writable
from pyhudi.operations.action.observe import observed
from pyhudi.operations.action.rollback import rollback_failed_writes
from pyhudi.operations.action.settings import CommitSettings
from pyhudi.operations.metadata.store import drop_store
from pyhudi.operations.services.compact import CompactSettings, run_compaction, unschedule
from pyhudi.records.keys.spec import GENERATOR_CLASS, GENERATOR_TYPE, PartitionKind
from pyhudi.records.merge_mode import PAYLOAD_STRATEGY, MergeMode
from pyhudi.storage import liveness
from pyhudi.storage.base import Storage
from pyhudi.storage.markers import Markers
from pyhudi.table.closed import check_open
from pyhudi.table.config import merge_properties, store_table_config
from pyhudi.table.context import TableContext
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.slices import LogFile
from pyhudi.table.snapshot import load_snapshot
from pyhudi.timeline.history import HistoryStore
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline

_ROWS_A_FILE = 1000
_V1, _V2 = TimelineLayout.V1, TimelineLayout.V2


@dataclass(frozen=True, slots=True)
class VersionChange:
    """What an upgrade or downgrade did.  instants, archived: how many were taken over; rolled_back: failed writes that were taken
    back; compaction: its instant, None without one.
    """

    before: int
    after: int
    instants: int = 0
    archived: int = 0
    rolled_back: tuple[str, ...] = ()
    compaction: str | None = None

    def __str__(self) -> str:
        if self.before == self.after:
            return f"the table has version {self.after} already"
        return (
            f"version {self.before} -> {self.after}: {self.instants} instants, {self.archived} archived ones"
            + (f", {len(self.rolled_back)} failed writes rolled back" if self.rolled_back else "")
            + (f", compacted by {self.compaction}" if self.compaction else "")
        )


@observed("upgrade")
def run_upgrade(context: TableContext, engine: Engine, settings: CompactSettings, compression: str) -> VersionChange:
    """Make a table of version 6 one of version 8.  compression: of the history's files, as Arrow calls it.

    Nobody else may write meanwhile: writers of version 6 know no lock of ours.
    Raises TableState while a restore is pending or a writer lives, Unsupported for other versions, CorruptData for instants or an
    archive that cannot be read; the table is then as it was.
    """
    _check_upgradable(context.reloaded())
    with context.locked(settings.commit.lock_wait_ms) as held:
        held = held.reloaded()
        _check_upgradable(held)
        version = held.config.version
        if version is TableVersion.EIGHT:
            _remove_instants(held.storage, META_FOLDER, _V1)
            return VersionChange(int(version), int(version))
        timeline = held.timeline.load()
        _refuse_restore(held, timeline)
        taken_back = _take_back_failed_writes(held, settings.commit, timeline)
        if held.config.property("hoodie.table.metadata.partitions") or held.storage.child(METADATA_FOLDER).stat(PROPERTIES_FILE):
            held = drop_store(held)
        files = [i for i in held.timeline.load_files() if i.request_time not in taken_back]
        files = [i for i in files if not (i.action is Action.ROLLBACK and _is_pending(i, files))]
        target = TIMELINE_FOLDER
        held.storage.delete_folder(target)
        held.storage.make_folder(target)
        held.storage.make_folder(f"{target}/history")
        archived = _archive_to_history(held, HistoryStore(held.storage, f"{target}/history"), files, compression)
        count = _store_layout_2(held, target, files)
        store_table_config(held.storage, _properties_of_8(held), held.env)
        _remove_instants(held.storage, META_FOLDER, _V1)
    compaction = None
    if not context.config.is_cow:
        compaction = run_compaction(context.reloaded(), engine, _unlimited(settings)).instant
    return VersionChange(6, 8, count, archived, tuple(sorted(taken_back)), compaction)


@observed("downgrade")
def run_downgrade(context: TableContext, engine: Engine, settings: CompactSettings) -> VersionChange:
    """Make a table of version 8 one of version 6, which PyHudi only reads.

    Raises TableState while a restore or a clustering of a merge-on-read table is pending, or another process writes; Unsupported
    for other versions, and for a table whose records a merger without a payload class merges.
    """
    context = context.reloaded()
    version = context.config.version
    if version is TableVersion.SIX:
        with context.locked(settings.commit.lock_wait_ms) as held:
            held.storage.delete_folder(TIMELINE_FOLDER)
        return VersionChange(6, 6)
    if version is not TableVersion.EIGHT:
        raise Unsupported(f"tables of version {int(version)} are not downgraded; version 8 is")
    check_writable(context, keeps_indexes=False)
    merge = context.config.merge
    if merge.mode is MergeMode.CUSTOM and merge.strategy_id != PAYLOAD_STRATEGY:
        raise Unsupported(f"version 6 knows no record merger ({merge.strategy_id}); only payload classes")
    _refuse_restore(context, context.timeline.load())
    eager = replace(settings.commit, failed_writes="EAGER")
    rolled_back = tuple(result.rolled_back for result in rollback_failed_writes(context, eager))
    compaction = _merge_all_logs(context, engine, settings)
    with context.locked(settings.commit.lock_wait_ms) as held:
        context = held.reloaded()
        timeline = context.timeline.load()
        _refuse_restore(context, timeline)
        writing = timeline.pending_writes()
        if writing:
            raise TableState(
                f"{writing[0].action} {writing[0].request_time} of {context.storage.uri} is under way; let it end first"
            )
        if not context.config.is_cow:
            _check_no_logs(context)
        if context.config.metadata_partitions or context.config.metadata_partitions_inflight:
            context = drop_store(context)
        files = context.timeline.load_files()
        _remove_instants(context.storage, META_FOLDER, _V1)
        context.storage.delete_folder(ARCHIVE_FOLDER)
        archived = _history_to_archive(context)
        count = _store_layout_1(context, files)
        store_table_config(context.storage, _properties_of_6(context), context.env)
        context.storage.delete_folder(context.config.timeline_path)
        context.storage.delete_folder(INDEX_DEFINITIONS_FOLDER)
    return VersionChange(8, 6, count, archived, rolled_back, compaction)


def _check_upgradable(context: TableContext) -> None:
    """Raises Unsupported, before anything of the table is changed."""
    config = context.config
    if config.version not in (TableVersion.SIX, TableVersion.EIGHT):
        raise Unsupported(f"tables of version {int(config.version)} are not upgraded; version 6 is")
    check_open(context)
    if len(config.ordering_fields) > 1:
        raise Unsupported(f"the table orders records by several fields ({', '.join(config.ordering_fields)}); it is not upgraded")
    if config.version is TableVersion.SIX and any(field.kind is PartitionKind.UNKNOWN for field in config.keys.partition_fields):
        raise Unsupported(
            "the table has a custom key generator and does not say how its partition fields become paths; set "
            "hoodie.table.partition.fields to field:TYPE first"
        )


# Instants


def _store_layout_2(context: TableContext, folder: str, files: Sequence[Instant]) -> int:
    """Write the files of layout 2 that stand for those of layout 1; returns how many instants that were."""
    times = _completion_times(files, context)
    for instant in files:
        data = context.storage.read(f"{META_FOLDER}/{instant.file_name(_V1)}") or b""
        moved = replace(instant, completion_time=times[instant.step]) if instant.is_completed else instant
        if instant.action is Action.REPLACECOMMIT and not instant.is_completed and _plans_clustering(context, instant, files):
            moved = replace(moved, action=Action.CLUSTERING)
        if data and instant.action.is_write and (instant.is_completed or instant.state is State.INFLIGHT):
            data = _commit(context, instant, data).encode(context.env.token_bytes(16))
        context.storage.put(f"{folder}/{moved.file_name(_V2)}", data)
    return len({instant.step for instant in files})


def _store_layout_1(context: TableContext, files: Sequence[Instant]) -> int:
    """Write the files of layout 1 that stand for those of layout 2, completed ones last, in the order of completion."""
    storage, zone = context.storage, context.config.zone
    ordered = sorted(files, key=lambda i: (i.is_completed, i.completion_time or i.request_time, i.state))
    for instant in ordered:
        data = storage.read(context.timeline.path(instant)) or b""
        moved = replace(instant, completion_time=None, is_legacy=False) if instant.is_completed else instant
        if moved.action is Action.CLUSTERING:
            moved = replace(moved, action=Action.REPLACECOMMIT)
        if instant.action.is_write:
            if instant.is_completed or (data and instant.state is State.INFLIGHT):
                data = _commit(context, instant, data).encode_json()
            elif instant.action is not Action.REPLACECOMMIT:
                # An upgrade by real Hudi leaves documents in requested files, which are empty in version 6.
                data = b""
        path = f"{META_FOLDER}/{moved.file_name(_V1)}"
        storage.put(path, data)
        if instant.completion_time is not None:
            storage.set_modified(path, parse_instant_time(instant.completion_time, zone))
    return len({instant.step for instant in files})


def _commit(context: TableContext, instant: Instant, data: bytes) -> CommitMetadata:
    try:
        found = CommitMetadata.decode(data)
    except CorruptData as error:
        raise error.with_path(f"{context.storage.uri}, instant {instant}") from error
    if instant.action is Action.REPLACECOMMIT and instant.is_completed and found.partition_to_replace_file_ids is None:
        return replace(found, partition_to_replace_file_ids={})
    return found


def _completion_times(files: Iterable[Instant], context: TableContext) -> dict[tuple[str, Action], str]:
    """Completion times of layout 2 by step: the files' times, later than the request and each larger than the one before."""
    completed = sorted((i for i in files if i.is_completed), key=lambda i: (i.completion_time or "", i.request_time))
    times: dict[tuple[str, Action], str] = {}
    last = ""
    for instant in completed:
        time = max(instant.completion_time or "", shift_instant_time(instant.request_time, 1, UTC))
        if time <= last:
            time = shift_instant_time(last, 1, UTC)
        times[instant.step] = last = time
    return times


def _plans_clustering(context: TableContext, instant: Instant, files: Iterable[Instant]) -> bool:
    """Whether a replace commit of layout 1 is a clustering."""
    requested = Instant(instant.request_time, Action.REPLACECOMMIT, State.REQUESTED)
    if requested not in set(files):
        return False
    data = context.storage.read(f"{META_FOLDER}/{requested.file_name(_V1)}")
    return bool(data) and RequestedReplaceMetadata.decode(data or b"").clustering_plan is not None


def _is_pending(instant: Instant, files: Iterable[Instant]) -> bool:
    return not any(other.is_completed for other in files if other.step == instant.step)


def _remove_instants(storage: Storage, folder: str, layout: TimelineLayout) -> None:
    names = [info.path for info in storage.list(folder).files if parse_instant_file(info.name, layout) is not None]
    if names:
        storage.delete(names)


def _refuse_restore(context: TableContext, timeline: Timeline) -> None:
    pending = timeline.pending(Action.RESTORE)
    if pending:
        raise TableState(f"restore {pending[0].request_time} of {context.storage.uri} did not finish; run it to its end first")


# The archive of layout 1 and the history of layout 2


def _archive_to_history(context: TableContext, history: HistoryStore, files: Iterable[Instant], compression: str) -> int:
    active = {instant.step for instant in files}
    rows: dict[tuple[str, str], HistoryRow] = {}
    for row in rows_of_entries(_archived_entries(context)):
        if (row.instant_time, parse_action(row.action)) not in active:
            done = row.completion_time or shift_instant_time(row.instant_time, 1, UTC)
            rows[row.instant_time, row.action] = replace(row, completion_time=done)
    ordered = [rows[key] for key in sorted(rows)]
    for start in range(0, len(ordered), _ROWS_A_FILE):
        history.append(ordered[start : start + _ROWS_A_FILE], compression)
    return len(ordered)


def _archived_entries(context: TableContext) -> Iterator[ArchivedEntry]:
    folder = context.config.history_path
    found = [(name.version, info) for info in context.storage.list(folder).files if (name := parse_archive_file(info.name))]
    for _, info in sorted(found, key=lambda entry: (entry[0], entry[1].path)):
        read = partial(context.storage.read_range, info.path)
        try:
            for block in scan_blocks(read, info.size_bytes):
                # What a writer was at when it died it wrote again: the instants were still active.
                if isinstance(block, LogBlock):
                    yield from decode_archive_block(block, block.read_content(read))
        except CorruptData as error:
            raise error.with_path(context.storage.absolute(info.path)) from error


def _history_to_archive(context: TableContext) -> int:
    store, count = context.timeline, 0
    active = {i.step for i in store.load().completed()}
    rows = sorted(store.history.rows(documents=True), key=lambda row: (row.instant_time, row.action))
    for number, start in enumerate(range(0, len(rows), _ROWS_A_FILE), 1):
        chunk = [row for row in rows[start : start + _ROWS_A_FILE] if (row.instant_time, parse_action(row.action)) not in active]
        entries = [entry for row in chunk for entry in entries_of_row(row)]
        count += len(chunk)
        if entries:
            context.storage.put(f"{ARCHIVE_FOLDER}/{ArchiveFileName(number, '1-0-1').text}", encode_archive_block(entries))
    return count


# Failed writes and log files


def _take_back_failed_writes(context: TableContext, settings: CommitSettings, timeline: Timeline) -> frozenset[str]:
    """Take back what pending writes of version 6 left: base files are deleted, a rollback block follows their blocks in logs.

    Their instants are then not taken over.  Returns the request times.
    """
    failed = {i.request_time for i in timeline.pending(*WRITE_ACTIONS) if not _has_plan(context, i)}
    for request_time in failed:
        if liveness.is_alive(context.storage, context.env, request_time, settings.heartbeats):
            raise TableState(f"the writer of {request_time} lives; stop it before the table is upgraded")
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


def _append_rollbacks(context: TableContext, partition: str, logs: Sequence[LogFile], failed: Iterable[str], now: str) -> None:
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
        blocks = b"".join(RollbackCommand(now, target).encode() for target in sorted(open_targets))
        context.storage.put(join_path(partition, name.text), blocks)


def _has_plan(context: TableContext, instant: Instant) -> bool:
    """Whether a pending replace commit of layout 1 is a clustering, which is carried out later."""
    if instant.action is not Action.REPLACECOMMIT:
        return False
    data = context.timeline.read_state(instant.request_time, Action.REPLACECOMMIT, State.REQUESTED)
    return bool(data) and RequestedReplaceMetadata.decode(data or b"").clustering_plan is not None


def _merge_all_logs(context: TableContext, engine: Engine, settings: CompactSettings) -> str | None:
    """Compact until no slice has a log file; the instant of the last compaction."""
    if context.config.is_cow:
        return None
    timeline = context.timeline.load()
    clusterings = timeline.pending(Action.CLUSTERING)
    if clusterings:
        raise TableState(
            f"clustering {clusterings[0].request_time} of {context.storage.uri} is pending, so logs of its file groups cannot be "
            "merged; run it or drop it first"
        )
    for pending in timeline.pending(Action.LOGCOMPACTION):
        unschedule(context, settings, pending.request_time)
    everything = _unlimited(settings)
    last: str | None = None
    for _ in range(3):
        if not _slices_with_logs(context):
            return last
        result = run_compaction(context, engine, everything)
        if result.left:
            raise TableState(f"compaction {min(result.left)} of {context.storage.uri} is not run: {min(result.left.values())}")
        last = result.instant or last
    return last


def _unlimited(settings: CompactSettings) -> CompactSettings:
    return replace(settings, compaction=replace(settings.compaction, strategies=(), incremental=False))


def _slices_with_logs(context: TableContext) -> int:
    return sum(1 for found in load_snapshot(context).slices().values() for slice_ in found if slice_.logs)


def _check_no_logs(context: TableContext) -> None:
    count = _slices_with_logs(context)
    if count or context.timeline.load().pending(Action.COMPACTION, Action.LOGCOMPACTION):
        raise TableState(f"{count} file slices of {context.storage.uri} have log files again; stop its writers and try again")


# Properties


def _properties_of_8(context: TableContext) -> Mapping[str, str | None]:
    config = context.config
    stored = dict(config.properties)
    generator = stored.get(GENERATOR_TYPE) or config.keys.generator.value
    return {
        "hoodie.table.version": "8",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.initial.version": stored.get("hoodie.table.initial.version", "6"),
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        GENERATOR_TYPE: generator,
        **merge_properties(config.merge),
    }


def _properties_of_6(context: TableContext) -> Mapping[str, str | None]:
    config = context.config
    fields = config.property("hoodie.table.partition.fields")
    generator = config.property(GENERATOR_CLASS) or _GENERATOR_CLASSES.get(config.property(GENERATOR_TYPE).upper())
    if generator is None:
        raise InvalidRequest(f"no key generator class of version 6 stands for {config.property(GENERATOR_TYPE)!r}")
    return {
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.archivelog.folder": ARCHIVE_NAME,
        "hoodie.table.partition.fields": ",".join(part.split(":")[0] for part in fields.split(",")) if fields else fields,
        "hoodie.compaction.payload.class": config.merge.payload_class,
        GENERATOR_CLASS: generator,
        GENERATOR_TYPE: None,
        "hoodie.table.initial.version": None,
        "hoodie.record.merge.mode": None,
        "hoodie.record.merge.strategy.id": None,
        "hoodie.compaction.record.merger.strategy": None,
        "hoodie.timeline.path": None,
        "hoodie.timeline.history.path": None,
        "hoodie.table.index.defs.path": None,
        "hoodie.table.metadata.partitions": None,
        "hoodie.table.metadata.partitions.inflight": None,
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
