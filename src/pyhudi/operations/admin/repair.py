"""Repair damage around a table's data, or report what a repair would do.

    timeline             the folder is missing or empty, and there are data files: rebuild it from their names
                         (`rebuild`), and report what is unknown
    properties           hoodie.properties is missing or damaged, and its backup is intact: restore it from the backup
    pending              roll back or complete failed writes and rollbacks; complete cleans and restores; roll back dead
                         attempts at compactions and clusterings, but keep compaction plans; drop clusterings that no
                         process will run
    partition metadata   a folder with base files lacks .hoodie_partition_metadata, so listings ignore it: write the
                         file
    lost files           committed files are missing, or have another size than their commit records: the repair stops with
                         an error that lists them, unless it accepts the loss (`operations.admin.accept_loss`)
    orphans              delete data files of instants that are neither on the timeline nor possibly in the history,
                         and files that cleans have deleted and a power failure has brought back;
                         files of another table, in a folder below this one or behind a symbolic link, are not orphans
    metadata table       it is unreadable, or lists other files than the directories: drop and rebuild it

Steps are detected and executed in this order, each on the state that the previous one left. Files are listed before the
timeline is read: the instant of every listed file is then on that timeline, so no file of an active writer looks like
an orphan. Findings are verified not to be side effects of concurrent processes, see `stable_check`. Data rows never
change. Lost data files cannot be restored, and no rebuild hides them.

Source: docs/formats/writing.md, "Rollback"; docs/formats/timeline.md, "Other files of a table";
docs/formats/metadata-table.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pyhudi import features
from pyhudi.errors import CorruptData
from pyhudi.format.instants import Action, Instant, State, parse_instant_file
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.partition_metadata import PARTITION_METADATA_FILES
from pyhudi.format.paths import METADATA_FOLDER, PROPERTIES_BACKUP, PROPERTIES_FILE, REBUILD_MARKER_FILE, join_path, parent_folder
from pyhudi.format.properties import check_checksum, parse_properties
from pyhudi.metadata_table.lost_files import find_lost, find_undone, is_completed_data_file, listed_sizes
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.admin.accept_loss import accept_lost_files
from pyhudi.operations.admin.restore import finish_restore
from pyhudi.operations.admin.stable_check import repeat_until_stable
from pyhudi.operations.commit.action_liveness import is_action_dead, is_plan_orphaned
from pyhudi.operations.commit.begin_checks import check_same_version
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.results import OperationResult
from pyhudi.operations.commit.rollback import rollback_failed_attempt, rollback_failed_writes
from pyhudi.operations.services.async_indexing import IndexSettings
from pyhudi.operations.services.clean import finish_clean
from pyhudi.operations.services.cluster import drop_orphaned_clusterings
from pyhudi.operations.services.clustering_plans import never_runnable_reason
from pyhudi.operations.services.index_admin import rebuild_index
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.table_options import CHECKSUM
from pyhudi.options.write_options import FAILED_WRITES
from pyhudi.storage.base import FileInfo
from pyhudi.storage.markers import files_being_written
from pyhudi.table.committed_files import lost_files_error
from pyhudi.table.listing import DirectoryListing, table_folders
from pyhudi.table.snapshot import directory_listing, load_snapshot, retry_on_stale_files
from pyhudi.table.table_config import missing_property, store_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import SERVICE_ACTIONS, Timeline
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.write_base_files import ensure_partition


class RepairKind(StrEnum):
    """What can be repaired, in execution order."""

    TIMELINE = "timeline"
    PROPERTIES = "properties"
    PENDING = "pending"
    PARTITIONS = "partition-metadata"
    LOST = "lost-files"
    ORPHANS = "orphans"
    METADATA = "metadata-table"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One defect.

    Attributes:
        kind: Kind of the repair.
        path: Path relative to the table, '' for the table.
        finding: What is wrong.
        remedy: What is, or would be, done about it.
    """

    kind: RepairKind
    path: str
    finding: str
    remedy: str


@dataclass(frozen=True, slots=True)
class RepairResult(OperationResult):
    """The outcome of a repair.

    Attributes:
        uri: Location of the table.
        dry_run: True if nothing was changed.
        steps: The defects.
    """

    uri: str
    dry_run: bool
    steps: tuple[RepairStep, ...]

    def __str__(self) -> str:
        head = "repair (dry run)" if self.dry_run else "repair"
        if not self.steps:
            return f"{head} {self.uri}\n  nothing to repair"
        lines = [f"{head} {self.uri}"]
        lines += [f"  {step.kind.value:<20}{step.path or 'table'}: {step.finding}; {step.remedy}" for step in self.steps]
        if self.dry_run:
            lines.append("  run it with         dry_run=False")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """Settings of a repair; `kinds` lists the checks to run, in order. accept_loss: accept the loss of files."""

    kinds: tuple[RepairKind, ...]
    commit: CommitSettings
    metadata: MetadataSettings
    accept_loss: bool = False

    @classmethod
    def of(
        cls, options: Options, kinds: Sequence[RepairKind] = tuple(RepairKind), *, accept_loss: bool = False
    ) -> RepairSettings:
        """Build the settings from checked options. A repair that would hide lost files looks for them, too."""
        chosen = {*kinds}
        if chosen & {RepairKind.ORPHANS, RepairKind.METADATA} or accept_loss:
            chosen.add(RepairKind.LOST)
        return read_settings(cls, options, kinds=tuple(kind for kind in RepairKind if kind in chosen), accept_loss=accept_loss)


@observed("repair")
def run_repair(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool = True) -> RepairResult:
    """Find defects and, unless ``dry_run``, repair them.

    Raises:
        Unsupported: PyHudi does not write the table version; nothing was changed. Errors of the steps are raised too.
        CorruptData: Committed files are lost, and the settings do not accept that. Earlier steps are done.
    """
    steps: list[RepairStep] = []
    for kind in settings.kinds:
        if kind is RepairKind.TIMELINE:
            # Without a timeline the state of the table cannot be recorded, and no other check is possible.
            steps += _repair_timeline(context, engine, settings, dry_run=dry_run)
            context = context.reloaded()
            if dry_run and steps:
                break
            continue
        if kind is RepairKind.ORPHANS and any(step.kind is RepairKind.TIMELINE for step in steps):
            # Files that the rebuilt timeline does not cover are reported by a dry run before they are deleted.
            continue
        detected = _detect(kind, context, engine, settings)
        if dry_run or not (detected or kind is RepairKind.PENDING):
            steps += detected
            continue
        done = list(_REPAIRS[kind](context.reloaded(), engine, settings, dry_run=False))
        # Each possibly dead instant is checked again under the lock before it is repaired.
        steps += detected if kind is RepairKind.PENDING else done
        context = context.reloaded()
    return RepairResult(context.storage.uri, dry_run, tuple(steps))


def _detect(kind: RepairKind, context: TableContext, engine: Engine, settings: RepairSettings) -> list[RepairStep]:
    """Return the defects of one kind."""

    def look(context: TableContext) -> list[RepairStep]:
        return list(_REPAIRS[kind](context, engine, settings, dry_run=True))

    def defects(steps: list[RepairStep]) -> frozenset[RepairStep]:
        return frozenset(steps)

    steps, lasting = repeat_until_stable(context, look, defects)
    return [step for step in steps if step in lasting]


def _repair_properties(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    storage = context.storage
    data = storage.read(PROPERTIES_FILE)
    backup = storage.stat(PROPERTIES_BACKUP) is not None
    damage = "is missing" if data is None else _damage(data, backed_up=backup)
    if damage is None:
        if backup:
            yield RepairStep(RepairKind.PROPERTIES, PROPERTIES_BACKUP, "an interrupted change left it", "it is deleted")
            if not dry_run:
                with context.locked(settings.commit.lock_wait_ms) as locked:
                    locked.storage.delete([PROPERTIES_BACKUP])
        return
    yield RepairStep(RepairKind.PROPERTIES, PROPERTIES_FILE, damage, "it is restored from its backup")
    if not dry_run:
        with context.locked(settings.commit.lock_wait_ms) as locked:
            store_table_config(locked.storage, {}, context.env)


def _damage(data: bytes, *, backed_up: bool) -> str | None:
    """Return the damage of a properties file that readers ignored in favour of its backup, if there is one."""
    try:
        values = parse_properties(data)
        check_checksum(data)
    except CorruptData as error:
        return str(error)
    missing = missing_property(values) or (CHECKSUM.stored_as if backed_up and CHECKSUM.stored_as not in values else None)
    return f"has no {missing}" if missing else None


def _repair_timeline(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    recovery = features.find("recovery")
    if recovery is None:
        if _lacks_timeline(context):
            features.load("recovery", f"the timeline of {context.storage.uri}, which is missing,")
        return
    rebuild = recovery.plan_rebuild(context, engine)
    if rebuild is None:
        return
    finding = f"is missing, and there are {rebuild.file_count:,} data files"
    remedy = f"{len(rebuild.instants):,} commits are rebuilt from data files"
    yield RepairStep(RepairKind.TIMELINE, context.config.timeline_path, finding, remedy)
    for path, unknown, remedy in rebuild.notes:
        yield RepairStep(RepairKind.TIMELINE, path, unknown, remedy)
    for one in rebuild.lost:
        # The notes list the files that cannot be read.
        if one.found_bytes is not None:
            continue
        yield RepairStep(RepairKind.LOST, one.file.path, one.finding, _loss_remedy(settings))
    if not dry_run:
        if rebuild.lost and not settings.accept_loss:
            raise lost_files_error(context.storage.uri, rebuild.lost)
        recovery.run_rebuild(context, engine, rebuild, settings.commit, settings.metadata)


def _lacks_timeline(context: TableContext) -> bool:
    """Return True if there are data files and no instants, or an unfinished rebuild of the timeline."""
    layout, storage = context.config.version.layout, context.storage
    if not layout.has_timeline_folder:
        return False
    listed = storage.list(context.config.timeline_path).files
    if any(parse_instant_file(info.name, layout) is not None for info in listed):
        return storage.stat(REBUILD_MARKER_FILE) is not None
    return any(True for _ in _data_files(context))


def _repair_pending(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    timeline = context.timeline.load()
    # An unfinished restore owns the instants that it removes, and nothing else may begin before it has completed.
    restoring = timeline.pending(Action.RESTORE)
    for instant in restoring or timeline.pending():
        step = _pending_step(context, settings, instant)
        if step is not None:
            yield step
    if dry_run:
        return
    for instant in restoring:
        if not is_action_dead(context, instant, settings.commit) or not finish_restore(context, settings.commit, instant):
            return
    rollback_failed_writes(context, settings.commit)
    for instant in timeline.pending(Action.CLEAN):
        finish_clean(context, settings.commit, instant, engine)
    for instant in context.timeline.load().pending(*SERVICE_ACTIONS):
        if instant.state is State.INFLIGHT and is_action_dead(context, instant, settings.commit):
            rollback_failed_attempt(context, instant.request_time, instant.action, settings.commit)
    drop_orphaned_clusterings(context, settings.commit)


def _pending_step(context: TableContext, settings: RepairSettings, instant: Instant) -> RepairStep | None:
    path = context.timeline.path(instant)
    if instant.action is Action.RESTORE:
        if is_action_dead(context, instant, settings.commit):
            return RepairStep(RepairKind.PENDING, path, "a restore failed", "it is completed")
        # Hudi's have no heartbeat.
        finding = "a restore is running, or failed recently"
        return RepairStep(
            RepairKind.PENDING, path, finding, "if it failed, run `restore` again: the table cannot be written until then"
        )
    if instant.action is Action.ROLLBACK:
        failed = is_action_dead(context, instant, settings.commit)
        return RepairStep(RepairKind.PENDING, path, "a rollback failed", "it is completed") if failed else None
    if instant.action is Action.CLEAN:
        failed = is_action_dead(context, instant, settings.commit)
        return RepairStep(RepairKind.PENDING, path, "a clean failed", "it is completed") if failed else None
    waits = instant.action.is_service and instant.state is State.REQUESTED
    if not waits and not is_action_dead(context, instant, settings.commit):
        return None
    if instant.action is Action.CLUSTERING:
        never = never_runnable_reason(context, context.timeline.load(), instant)
        if never is not None:
            return RepairStep(RepairKind.PENDING, path, f"a clustering can never run: {never}", "it is dropped")
        if is_plan_orphaned(context, instant, settings.commit):
            return RepairStep(
                RepairKind.PENDING, path, "a clustering failed", "it is dropped; the next clustering creates a new plan"
            )
        return None
    if instant.action.is_service:
        if instant.state is not State.INFLIGHT:
            return None
        return RepairStep(
            RepairKind.PENDING, path, f"a {instant.action} failed", "its attempt is rolled back, and its plan stays"
        )
    if instant.action.is_write:
        if settings.commit.failed_writes == "NEVER":
            return RepairStep(RepairKind.PENDING, path, "a write failed", f"{FAILED_WRITES}=NEVER leaves it")
        return RepairStep(RepairKind.PENDING, path, "a write failed", "it is rolled back")
    return None


def _repair_partitions(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    for partition, instant_time in sorted(find_unmarked_partitions(context).items()):
        path = join_path(partition, PARTITION_METADATA_FILES[0])
        yield RepairStep(RepairKind.PARTITIONS, path, "is missing, so listings ignore the folder", "it is written")
        if not dry_run:
            ensure_partition(context.storage, partition, instant_time)


def find_unmarked_partitions(context: TableContext) -> dict[str, str]:
    """Return folders with committed base files and without partition metadata, with the oldest instant of those files."""
    files = tuple(_data_files(context))
    timeline = context.timeline.load()
    marked = {parent_folder(info.path) for info in files if info.name in PARTITION_METADATA_FILES}
    oldest_instants: dict[str, str] = {}
    for info in files:
        base, folder = parse_base_file(info.name), parent_folder(info.path)
        if base is not None and folder not in marked and timeline.is_completed(base.instant_time):
            oldest_instants[folder] = min(oldest_instants.get(folder, base.instant_time), base.instant_time)
    return oldest_instants


def _loss_remedy(settings: RepairSettings) -> str:
    return "its loss is accepted" if settings.accept_loss else "restore it from a copy, or pass accept_loss=True (--accept-loss)"


def _repair_lost(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    sizes = {info.path: info.size_bytes for info in _data_files(context)}
    lost = find_lost(load_snapshot(context, directory_listing), sizes)
    remedy = (
        "its loss is accepted" if settings.accept_loss else "restore it from a copy, or pass accept_loss=True (--accept-loss)"
    )
    for one in lost:
        yield RepairStep(RepairKind.LOST, one.file.path, one.finding, remedy)
    if dry_run or not lost:
        return
    if not settings.accept_loss:
        raise lost_files_error(context.storage.uri, lost)
    accept_lost_files(context, engine, settings.commit, settings.metadata)


def _repair_orphans(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    if context.storage.stat(REBUILD_MARKER_FILE) is not None:
        # Files of instants that are still to be rebuilt would look like orphans.
        return
    files = tuple(_data_files(context))
    timeline = context.timeline.load()
    known = {instant.request_time for instant in timeline.instants}
    doomed = []
    for info in files:
        named = parse_base_file(info.name) or parse_log_file(info.name)
        if named is None or named.instant_time in known or not _is_on_no_timeline(timeline, named.instant_time):
            continue
        doomed.append((info.path, named.instant_time))
        finding = f"{info.size_bytes:,} bytes of instant {named.instant_time}, which is on no timeline"
        yield RepairStep(RepairKind.ORPHANS, info.path, finding, "it is deleted")
    undone = find_undone(load_snapshot(context, directory_listing), [info.path for info in files])
    for path, clean in sorted(undone.items()):
        yield RepairStep(RepairKind.ORPHANS, path, f"clean {clean} has deleted it, and it is back", "it is deleted")
    if (doomed or undone) and not dry_run:
        with context.locked(settings.commit.lock_wait_ms) as locked:
            check_same_version(locked)
            locked.storage.delete(sorted(undone))
            # A file whose instant was added to the timeline since, by a recovery or a copy, is not an orphan.
            timeline = locked.timeline.load()
            known = {instant.request_time for instant in timeline.instants}
            locked.storage.delete(path for path, time in doomed if time not in known and _is_on_no_timeline(timeline, time))


def _is_on_no_timeline(timeline: Timeline, instant_time: str) -> bool:
    """Return True if an instant is neither on the active nor the archived timeline, so that readers ignore its files."""
    return timeline.start is not None and not timeline.is_completed(instant_time) and not timeline.completion_time(instant_time)


def _data_files(context: TableContext) -> Iterator[FileInfo]:
    """Return every file in the table's directory tree, without those of nested tables."""
    return (info for _, listing in table_folders(context.storage) for info in listing.files)


def _repair_metadata(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    if not context.config.has_metadata_table:
        return
    finding = _metadata_damage(context)
    if finding is None:
        return
    yield RepairStep(RepairKind.METADATA, METADATA_FOLDER, finding, "it is rebuilt, with all its indexes")
    if dry_run:
        return
    rebuild_index(context, engine, IndexSettings(settings.commit, settings.metadata, 0), None)


@retry_on_stale_files
def _metadata_damage(context: TableContext) -> str | None:
    """Return how the metadata table's file listing differs from the directories, or None."""
    timeline = context.timeline.load()
    try:
        listed = listed_sizes(context, timeline)
    except DAMAGE as error:
        return f"it cannot be read: {error}"
    directories = DirectoryListing(context.storage)
    groups = directories.files(directories.partitions()).values()
    # Files that a pending write double-writes for a resize carry the instant time of the resize, which may have
    # completed.
    pending_files = files_being_written(context.storage, (i.request_time for i in timeline.pending_writes()))
    infos_on_storage = (info for infos in groups for info in infos if info.path not in pending_files)
    sizes_on_storage = {info.path: info.size_bytes for info in infos_on_storage if is_completed_data_file(timeline, info.name)}
    if listed == sizes_on_storage:
        return None
    wrong = sorted(path for path in {*listed, *sizes_on_storage} if listed.get(path) != sizes_on_storage.get(path))
    return f"its file listing differs from the directories in {len(wrong):,} files, such as {wrong[0]}"


class _Repair(Protocol):
    """Finds the defects of one kind and, unless ``dry_run``, repairs them."""

    def __call__(
        self, context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool
    ) -> Iterator[RepairStep]: ...


_REPAIRS: dict[RepairKind, _Repair] = {
    RepairKind.TIMELINE: _repair_timeline,
    RepairKind.PROPERTIES: _repair_properties,
    RepairKind.PENDING: _repair_pending,
    RepairKind.PARTITIONS: _repair_partitions,
    RepairKind.LOST: _repair_lost,
    RepairKind.ORPHANS: _repair_orphans,
    RepairKind.METADATA: _repair_metadata,
}
