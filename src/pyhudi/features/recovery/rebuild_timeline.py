"""Rebuild a deleted timeline: the names of data files show which instants wrote them
(`features.recovery.infer_timeline`).

    1. inspect  every data file is opened; the metadata table's own timeline, if there is one, shows which instants
                completed, and when
    2. lock: the list of instants, with the existing indexes, is stored next to the timeline; the metadata table is
    dropped
    3. each instant, newest first: its completed file, then those of its earlier states
    4. the metadata table is rebuilt with its indexes; the list is deleted; unlock

While the list exists the rebuild is incomplete, and a repair continues it. The newest instants come first, and
completed files before pending ones, so that a crash leaves nothing that a writer would roll back as failed: everything
older than the whole timeline counts as completed.

Source: docs/formats/timeline.md, "Rebuilding a timeline".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC

import pyarrow as pa

from pyhudi.errors import CorruptData
from pyhudi.features.recovery.infer_timeline import (
    DataFile,
    Group,
    RebuiltInstant,
    RecoveredColumns,
    completion_times,
    plan_instants,
    recovered_replacements,
)
from pyhudi.features.recovery.inspect_files import FileFacts, FileTask, run_file, run_identities
from pyhudi.format.actions.commit_metadata import LOST_FILES_KEY
from pyhudi.format.instants import INSTANT_TIME_LENGTH, Action, Instant, State, parse_instant_file, shift_instant_time
from pyhudi.format.json_document import parse_json
from pyhudi.format.names import BaseFileName, LogFileName, is_log_file, parse_base_file, parse_data_file_instant, parse_log_file
from pyhudi.format.paths import (
    MARKER_FOLDER,
    METADATA_FOLDER,
    REBUILD_MARKER_FILE,
    TIMELINE_FOLDER,
    file_name,
    join_path,
    parent_folder,
)
from pyhudi.metadata_table.codecs.metadata_partitions import FILES
from pyhudi.metadata_table.indexes import in_build_order
from pyhudi.metadata_table.lost_files import listed_sizes
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE
from pyhudi.metadata_table.writer.initialize_partitions import build_partitions
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import drop_store
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.storage.base import FileInfo
from pyhudi.table.committed_files import CommittedFile, LostFile, encode_lost_files
from pyhudi.table.file_slices import BaseFile, FileGroup, SlicingState, build_file_groups, visible_slice
from pyhudi.table.listing import table_folders
from pyhudi.table.schema_on_read_history import stored_schemas
from pyhudi.table.snapshot import directory_listing, load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine


@dataclass(frozen=True, slots=True)
class TimelineRebuild:
    """The planned timeline, and what cannot be recovered.

    Attributes:
        completions: Request time -> completion time.
        indexes: Partitions of the metadata table that are rebuilt.
        notes: What is unknown and the possible remedy, each with its path, '' for the table.
        lost: Files that cannot be read, and those that only the metadata table lists.
    """

    instants: tuple[RebuiltInstant, ...]
    completions: Mapping[str, str]
    indexes: tuple[str, ...]
    file_count: int
    notes: tuple[tuple[str, str, str], ...] = field(default=())
    lost: tuple[LostFile, ...] = field(default=())


def plan_rebuild(context: TableContext, engine: Engine) -> TimelineRebuild | None:
    """Plan the timeline from data files; None if there is one, and if there are no files.

    Raises Unsupported for a table of which more was lost than file names show.
    """
    config, storage = context.config, context.storage
    if not config.version.layout.has_timeline_folder:
        return None
    begun = storage.read(REBUILD_MARKER_FILE)
    listed = storage.list(config.timeline_path).files
    present = [parsed for info in listed if (parsed := parse_instant_file(info.name, config.version.layout)) is not None]
    if present and begun is None:
        return None
    infos = [info for _, listing in table_folders(storage) for info in listing.files if _named(info) is not None]
    if not infos:
        return None
    schemas, histories = stored_schemas(context)
    archived = {i.request_time for i in context.timeline.history.instants()} if config.version.layout.has_lsm_history else set()
    note = _decode(begun) if begun is not None else None
    mirrored = _completed_in_metadata_table(context)
    stored_ms: dict[str, int] = {}
    for info in infos:
        time = _instant_of(info)
        stored_ms[time] = max(stored_ms.get(time, 0), info.modified_ms)
    changes = {str(version) for version in schemas if version} - stored_ms.keys()
    if note is None:
        completions = completion_times(stored_ms, mirrored, config.zone)
        for time in changes:
            # The history is written immediately before its instant completes.
            completions[time] = mirrored.get(time) or shift_instant_time((histories.get(time) or time)[:17], 1, UTC)
        never = {time for time in completions if mirrored and time >= min(mirrored) and time not in mirrored}
    else:
        completions = note[0]
        never = set(stored_ms) - completions.keys()
    wanted = [info for info in infos if _instant_of(info) in completions.keys() - never - archived]
    spec = storage.spec()
    facts = engine.map(run_file, [FileTask(spec, info.path, info.size_bytes, config.name) for info in wanted])
    damaged = {fact.path: fact for fact in facts if fact.damage is not None}
    files = [_data_file(fact) for fact in facts if fact.damage is None]
    instant_times = {*(file.instant_time for file in files), *(changes & completions.keys() - never - archived)}
    completions = {time: completions[time] for time in sorted(instant_times)}
    replaced = _replaced(context, engine, files, completions)
    instants = plan_instants(files, completions, replaced, RecoveredColumns(schemas, config.name), is_cow=config.is_cow)
    indexes = (*config.metadata_partitions, *config.metadata_partitions_inflight) if note is None else note[1]
    notes = (
        () if note is not None else tuple(_notes(context, files, mirrored, never, damaged.values(), changes & completions.keys()))
    )
    lost = [LostFile(CommittedFile(fact.path, _time_of(fact.path), 0, None), fact.size_bytes) for fact in damaged.values()]
    timeline = Timeline.of((*(one.instant for one in instants), *(_completed(time, mirrored[time]) for time in mirrored)))
    lost += _missing(context, timeline, {info.path for info in infos})
    return TimelineRebuild(instants, completions, indexes, len(infos), notes, tuple(lost))


def _completed(time: str, completion_time: str) -> Instant:
    return Instant(time, Action.COMMIT, State.COMPLETED, completion_time)


def _time_of(path: str) -> str:
    return parse_data_file_instant(file_name(path)) or ""


def _missing(context: TableContext, timeline: Timeline, present: Collection[str]) -> list[LostFile]:
    """The files of completed instants that only the metadata table lists."""
    if not context.config.has_metadata_table:
        return []
    try:
        listed = listed_sizes(context, timeline)
    except DAMAGE:
        return []
    missing = sorted(listed.keys() - set(present))
    return [LostFile(CommittedFile(path, _time_of(path), listed[path], None), None) for path in missing]


def run_rebuild(
    context: TableContext, engine: Engine, rebuild: TimelineRebuild, commit: CommitSettings, metadata: MetadataSettings
) -> None:
    """Create the timeline, and then the metadata table, under the table's lock.

    The caller has accepted the loss of files, if any: the newest commit records them, and those that exist are deleted.

    Raises Unsupported, before any change, for a table that PyHudi does not write.
    """
    check_writable(context)
    with context.locked(commit.lock_wait_ms) as held:
        document = {"completions": dict(rebuild.completions), "indexes": list(rebuild.indexes)}
        held.storage.put_if_absent(REBUILD_MARKER_FILE, json.dumps(document, indent=2, sort_keys=True).encode())
        if held.reloaded().config.metadata_partitions:
            drop_store(held.reloaded())
        held = held.reloaded()
        held.storage.make_folder(held.config.timeline_path)
        held.storage.make_folder(held.config.history_path)
        done = {(i.request_time, i.state) for i in held.timeline.load_files()}
        held.storage.delete(one.file.path for one in rebuild.lost if one.found_bytes is not None)
        for one in reversed(_with_lost_files(rebuild)):
            _publish(held, one, done)
        if FILES in rebuild.indexes:
            snapshot = load_snapshot(held, directory_listing)
            if snapshot.schema is not None:
                schema = snapshot.schema.arrow
                build_partitions(held, engine, metadata, in_build_order(sorted(set(rebuild.indexes))), schema, schema)
        held.storage.delete([REBUILD_MARKER_FILE])


def _with_lost_files(rebuild: TimelineRebuild) -> tuple[RebuiltInstant, ...]:
    """The instants; the newest one records the lost files."""
    if not rebuild.lost or not rebuild.instants:
        return rebuild.instants
    *others, newest = rebuild.instants
    text = encode_lost_files(replace(one, found_bytes=None) for one in rebuild.lost)
    extra = {**newest.metadata.extra_metadata, LOST_FILES_KEY: text}
    return (*others, replace(newest, metadata=replace(newest.metadata, extra_metadata=extra)))


def _publish(locked_context: TableContext, step_size: RebuiltInstant, completed_states: set[tuple[str, State]]) -> None:
    time, action = step_size.instant.request_time, step_size.instant.action
    if (time, State.COMPLETED) not in completed_states:
        content = step_size.metadata.encode(locked_context.env.token_bytes(16))
        locked_context.timeline.complete(step_size.instant, action, step_size.instant.completion_time or "", content)
    for state in (State.INFLIGHT, State.REQUESTED):
        locked_context.storage.put_if_absent(locked_context.timeline.path(Instant(time, action, state)), b"")


def _named(info: FileInfo) -> BaseFileName | LogFileName | None:
    return parse_log_file(info.name) if is_log_file(info.name) else parse_base_file(info.name)


def _instant_of(info: FileInfo) -> str:
    name = _named(info)
    assert name is not None, "others were left out"
    return name.instant_time


def _data_file(fact: FileFacts) -> DataFile:
    folder, text = parent_folder(fact.path), file_name(fact.path)
    name = parse_log_file(text) if is_log_file(text) else parse_base_file(text)
    assert name is not None, "others were left out"
    return DataFile(fact.path, folder, name, fact.size_bytes, fact.rows, fact.rows_written_by_instant, fact.schema)


def _completed_in_metadata_table(context: TableContext) -> dict[str, str]:
    """Request time -> completion time of the data instants in the metadata table; empty without one."""
    # The metadata table records an instant under the lock under which it completes, immediately before.
    if not context.config.has_metadata_table:
        return {}
    completions: dict[str, str] = {}
    for info in context.storage.list(join_path(METADATA_FOLDER, TIMELINE_FOLDER)).files:
        instant = parse_instant_file(info.name, context.config.version.layout)
        if instant is None or not instant.is_completed or instant.action is not Action.DELTACOMMIT:
            continue
        if len(instant.request_time) == INSTANT_TIME_LENGTH and instant.request_time.strip("0"):
            completions[instant.request_time] = instant.completion_time or ""
    return {time: completed for time, completed in completions.items() if not time.startswith("0000")}


def _replaced(
    context: TableContext, engine: Engine, files: Iterable[DataFile], completions: Mapping[str, str]
) -> dict[Group, str]:
    """Groups whose rows a later group contains, by row identity; see `recovered_replacements`."""
    members: dict[str, list[DataFile]] = {}
    for file in files:
        members.setdefault(file.partition, []).append(file)
    timeline = Timeline.of(Instant(time, Action.COMMIT, State.COMPLETED, completed) for time, completed in completions.items())
    state = SlicingState(timeline, {}, {}, True)
    replaced: dict[Group, str] = {}
    for partition, own in sorted(members.items()):
        groups = build_file_groups(partition, (FileInfo(file.path, file.size_bytes, 0) for file in own), state)
        # A later write may have changed every row that was copied: the oldest file of a group still has them as they came.
        bases = [(group.file_id, base) for group in groups for base in _newest_and_oldest(group, state)]
        if len({file_id for file_id, _ in bases}) < 2:
            continue
        spans = {
            file.group: (
                min(f.instant_time for f in own if f.group == file.group),
                max(f.instant_time for f in own if f.group == file.group),
            )
            for file in own
        }
        tasks = [FileTask(context.storage.spec(), base.path, base.size_bytes, "") for _, base in bases]
        rows: dict[Group, list[pa.Table]] = {}
        for (file_id, _), table in zip(bases, engine.map(run_identities, tasks), strict=True):
            if table is not None:
                rows.setdefault((partition, file_id), []).append(table)
        replaced.update(recovered_replacements(spans, {group: pa.concat_tables(tables) for group, tables in rows.items()}))
    return replaced


def _newest_and_oldest(group: FileGroup, state: SlicingState) -> frozenset[BaseFile]:
    seen = visible_slice(group, state)
    bases = [slice_.base for slice_ in group.slices if slice_.base is not None]
    return frozenset(base for base in (None if seen is None else seen.base, *bases[-1:]) if base is not None)


def _notes(
    context: TableContext,
    files: Iterable[DataFile],
    metadata_times: Mapping[str, str],
    never: Iterable[str],
    damaged: Iterable[FileFacts],
    changes: Iterable[str],
) -> Iterable[tuple[str, str, str]]:
    """Path, what is not known, what follows or may be done."""
    yield (
        "",
        "cleans, rollbacks, savepoints and plans that were pending are forgotten, and with them file groups that an overwrite or "
        "the deletion of a partition replaced, or a clustering whose rows have all changed since, and that no clean had removed",
        "these count again: where there were such, delete their rows once more; Table.validate(keys=True) finds keys that stand "
        "twice",
    )
    if not metadata_times:
        times = "no metadata table records which instants had completed, and when"
        yield "", times, "all whose files can be read count, as of when their last file was stored"
        for time in sorted(changes):
            unknown = f"instant {time} changed columns, and may never have completed"
            yield "", unknown, "it counts, since the history of columns names it; change the columns back where it did not"
    under_way = {file_name(folder) for folder in context.storage.list(MARKER_FOLDER).folders}
    for time in sorted({file.instant_time for file in files} & under_way - metadata_times.keys()):
        unknown = f"instant {time} has markers, so it may never have completed"
        yield "", unknown, f"it counts; Table.rollback({time!r}) takes it back"
    for time in sorted(never):
        unknown = f"instant {time} never completed according to the metadata table"
        yield "", unknown, "its files count no more; a repair after this one deletes them"
    for fact in damaged:
        left_out = "it is left out, and with it the instant, where that has no other file"
        yield fact.path, f"it cannot be read: {fact.damage}", left_out


def _decode(data: bytes) -> tuple[dict[str, str], tuple[str, ...]]:
    document = parse_json(data, f"{REBUILD_MARKER_FILE} is")
    try:
        completions = {str(time): str(done) for time, done in document["completions"].items()}
        return completions, tuple(str(name) for name in document["indexes"])
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptData(f"{REBUILD_MARKER_FILE} is not a list of instants and indexes") from error
