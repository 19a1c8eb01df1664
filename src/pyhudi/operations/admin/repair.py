"""Repair: bring what is broken around a table's data back in order, or say what that would take.

    timeline             the folder is gone or empty, and there are data files: it is made anew from their names (`rebuild`), and
                         what cannot be known is said
    properties           hoodie.properties is gone or damaged, and its backup is whole: it is written from the backup
    pending              writes and rollbacks that died are rolled back and finished, cleans and restores carried out; attempts
                         at compactions and clusterings that died are undone, and plans of compactions stay; clusterings that
                         nobody will carry out are dropped
    partition metadata   a folder with base files has no .hoodie_partition_metadata, so listings pass it over: it is written
    orphans              data files of no instant at all, and of no instant that the history may have: they are deleted; those of
                         another table, in a folder below this one or behind a symbolic link, are none
    metadata table       it cannot be read, or lists other files than the directories hold: it is dropped and built anew

Steps are found and carried out in this order, each on the state that the one before left.  Files are listed before the timeline
is read: a file that is seen then belongs to an instant that is seen too, so no file of a writer at work looks like an orphan.
Whatever is found is so, and not the doing of another process at that moment, see `at_rest`.
Data rows are never changed.  What this does not do: bring lost data files back.

Source: docs/formats/writing.md, "Rollback"; docs/formats/timeline.md, "Other files of a table"; docs/formats/metadata-table.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Protocol

from pyhudi import features
from pyhudi.errors import CorruptData
from pyhudi.format.instants import Action, Instant, State, parse_instant_file
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.partition_metadata import PARTITION_METADATA_FILES
from pyhudi.format.paths import METADATA_FOLDER, PROPERTIES_BACKUP, PROPERTIES_FILE, REBUILD_MARKER_FILE, join_path, parent_folder
from pyhudi.format.properties import check_checksum, parse_properties
from pyhudi.metadata_table.reader.index_lookups import scan_files
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.admin.restore import finish_restore
from pyhudi.operations.admin.stable_check import repeat_until_stable
from pyhudi.operations.commit.commit_settings import FAILED_WRITES, CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.plan_ownership import is_plan_orphaned, is_service_dead
from pyhudi.operations.commit.rollback import rollback_failed_attempt, rollback_failed_writes
from pyhudi.operations.commit.transaction import check_same_version
from pyhudi.operations.services.async_indexing import IndexSettings
from pyhudi.operations.services.clean import finish_clean
from pyhudi.operations.services.cluster import drop_orphaned_clusterings
from pyhudi.operations.services.clustering_plans import never_runnable_reason
from pyhudi.operations.services.index_admin import rebuild_index
from pyhudi.options.declaration import Options, read_settings
from pyhudi.records.html_repr import HtmlRepr
from pyhudi.storage.base import FileInfo
from pyhudi.storage.liveness import is_alive
from pyhudi.storage.markers import files_being_written
from pyhudi.table.listing import DirectoryListing, table_folders
from pyhudi.table.snapshot import retry_on_stale_files
from pyhudi.table.table_config import CHECKSUM, missing_property, store_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import SERVICE_ACTIONS, Timeline
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.write_base_files import ensure_partition


class RepairKind(StrEnum):
    """What can be repaired, in the order in which it is."""

    TIMELINE = "timeline"
    PROPERTIES = "properties"
    PENDING = "pending"
    PARTITIONS = "partition-metadata"
    ORPHANS = "orphans"
    METADATA = "metadata-table"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One thing that is wrong.  path: relative to the table, '' for the table; remedy: what is, or would be, done about it."""

    kind: RepairKind
    path: str
    finding: str
    remedy: str


@dataclass(frozen=True, slots=True)
class RepairResult(HtmlRepr):
    """What a repair did, or would do.  dry_run: nothing was changed."""

    uri: str
    dry_run: bool
    steps: tuple[RepairStep, ...]

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

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
    """kinds: what to look at, in order."""

    kinds: tuple[RepairKind, ...]
    commit: CommitSettings
    metadata: MetadataSettings

    @classmethod
    def of(cls, options: Options, kinds: Sequence[RepairKind] = tuple(RepairKind)) -> RepairSettings:
        """From checked options."""
        return read_settings(cls, options, kinds=tuple(kind for kind in RepairKind if kind in kinds))


@observed("repair")
def run_repair(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool = True) -> RepairResult:
    """Find what is wrong and, unless `dry_run`, repair it.

    Raises Unsupported, before anything is changed, for a table version that is not written, and what the steps raise.
    """
    steps: list[RepairStep] = []
    for kind in settings.kinds:
        if kind is RepairKind.TIMELINE:
            # Without a timeline the state of the table cannot be noted, and nothing else can be looked at.
            steps += _repair_timeline(context, engine, settings, dry_run=dry_run)
            context = context.reloaded()
            if dry_run and steps and steps[-1].kind is kind:
                break
            continue
        if kind is RepairKind.ORPHANS and any(step.kind is RepairKind.TIMELINE for step in steps):
            # What the timeline made anew leaves out is named by a dry run before it is deleted.
            continue
        found = _found(kind, context, engine, settings)
        if dry_run or not (found or kind is RepairKind.PENDING):
            steps += found
            continue
        done = list(_REPAIRS[kind](context.reloaded(), engine, settings, dry_run=False))
        # Each thing that may have died is asked once more, under the lock, before anything is done about it.
        steps += found if kind is RepairKind.PENDING else done
        context = context.reloaded()
    return RepairResult(context.storage.uri, dry_run, tuple(steps))


def _found(kind: RepairKind, context: TableContext, engine: Engine, settings: RepairSettings) -> list[RepairStep]:
    """The steps of one kind that the table gives reason for."""

    def look(context: TableContext) -> list[RepairStep]:
        return list(_REPAIRS[kind](context, engine, settings, dry_run=True))

    def found(steps: list[RepairStep]) -> frozenset[RepairStep]:
        return frozenset(steps)

    steps, lasting = repeat_until_stable(context, look, found)
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
                with context.locked(settings.commit.lock_wait_ms) as held:
                    held.storage.delete([PROPERTIES_BACKUP])
        return
    yield RepairStep(RepairKind.PROPERTIES, PROPERTIES_FILE, damage, "it is written from its backup")
    if not dry_run:
        with context.locked(settings.commit.lock_wait_ms) as held:
            store_table_config(held.storage, {}, context.env)


def _damage(data: bytes, *, backed_up: bool) -> str | None:
    """What is wrong with the text of a properties file that readers passed over for its backup, where there is one."""
    try:
        values = parse_properties(data)
        check_checksum(data)
    except CorruptData as error:
        return str(error)
    missing = missing_property(values) or (CHECKSUM if backed_up and CHECKSUM not in values else None)
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
    remedy = f"{len(rebuild.instants):,} commits are made anew from what files say"
    yield RepairStep(RepairKind.TIMELINE, context.config.timeline_path, finding, remedy)
    for path, unknown, remedy in rebuild.notes:
        yield RepairStep(RepairKind.TIMELINE, path, unknown, remedy)
    if not dry_run:
        recovery.run_rebuild(context, engine, rebuild, settings.commit, settings.metadata)


def _lacks_timeline(context: TableContext) -> bool:
    """Whether there are data files and no instants, or an interrupted rebuild of the timeline."""
    layout, storage = context.config.version.layout, context.storage
    if not layout.has_timeline_folder:
        return False
    listed = storage.list(context.config.timeline_path).files
    if any(parse_instant_file(info.name, layout) is not None for info in listed):
        return storage.stat(REBUILD_MARKER_FILE) is not None
    return any(True for _ in _data_files(context))


def _repair_pending(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    timeline = context.timeline.load()
    # What a restore has begun to take back is its own, and nothing else may begin before it is at its end.
    restoring = timeline.pending(Action.RESTORE)
    for instant in restoring or timeline.pending():
        step = _pending_step(context, settings, instant)
        if step is not None:
            yield step
    if dry_run:
        return
    for instant in restoring:
        if not is_service_dead(context, instant, settings.commit) or not finish_restore(context, settings.commit, instant):
            return
    rollback_failed_writes(context, settings.commit)
    for instant in timeline.pending(Action.CLEAN):
        finish_clean(context, settings.commit, instant, engine)
    for instant in context.timeline.load().pending(*SERVICE_ACTIONS):
        if instant.state is State.INFLIGHT and not _lives(context, settings, instant):
            rollback_failed_attempt(context, instant.request_time, instant.action, settings.commit)
    drop_orphaned_clusterings(context, settings.commit)


def _pending_step(context: TableContext, settings: RepairSettings, instant: Instant) -> RepairStep | None:
    path = context.timeline.path(instant)
    if instant.action is Action.RESTORE:
        if is_service_dead(context, instant, settings.commit):
            return RepairStep(RepairKind.PENDING, path, "a restore died", "it is carried out")
        # It gives no sign of life.
        found = "a restore is under way, or died a short while ago"
        return RepairStep(
            RepairKind.PENDING, path, found, "where it died, run `restore` again: until then the table is not written"
        )
    if instant.action is Action.ROLLBACK:
        return RepairStep(RepairKind.PENDING, path, "a rollback died", "it is completed")
    if instant.action is Action.CLEAN:
        died = is_service_dead(context, instant, settings.commit)
        return RepairStep(RepairKind.PENDING, path, "a clean died", "it is carried out") if died else None
    if _lives(context, settings, instant):
        return None
    if instant.action is Action.CLUSTERING:
        never = never_runnable_reason(context, context.timeline.load(), instant)
        if never is not None:
            return RepairStep(RepairKind.PENDING, path, f"a clustering can never run: {never}", "it is dropped")
        if is_plan_orphaned(context, instant, settings.commit):
            return RepairStep(RepairKind.PENDING, path, "a clustering died", "it is dropped; the next one plans anew")
        return None
    if instant.action.is_service:
        if instant.state is not State.INFLIGHT:
            return None
        return RepairStep(RepairKind.PENDING, path, f"a {instant.action} died", "its attempt is undone, and its plan stays")
    if instant.action.is_write:
        if settings.commit.failed_writes == "NEVER":
            return RepairStep(RepairKind.PENDING, path, "a write died", f"{FAILED_WRITES}=NEVER leaves it")
        return RepairStep(RepairKind.PENDING, path, "a write died", "it is rolled back")
    return None


def _lives(context: TableContext, settings: RepairSettings, instant: Instant) -> bool:
    return is_alive(context.storage, context.env, instant.request_time, settings.commit.heartbeats)


def _repair_partitions(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    for partition, instant_time in sorted(find_unmarked_partitions(context).items()):
        path = join_path(partition, PARTITION_METADATA_FILES[0])
        yield RepairStep(RepairKind.PARTITIONS, path, "is missing, so listings pass the folder over", "it is written")
        if not dry_run:
            ensure_partition(context.storage, partition, instant_time)


def find_unmarked_partitions(context: TableContext) -> dict[str, str]:
    """Folders with committed base files and without partition metadata -> the oldest instant of those files."""
    files = tuple(_data_files(context))
    timeline = context.timeline.load()
    marked = {parent_folder(info.path) for info in files if info.name in PARTITION_METADATA_FILES}
    found: dict[str, str] = {}
    for info in files:
        base, folder = parse_base_file(info.name), parent_folder(info.path)
        if base is not None and folder not in marked and timeline.is_completed(base.instant_time):
            found[folder] = min(found.get(folder, base.instant_time), base.instant_time)
    return found


def _repair_orphans(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    if context.storage.stat(REBUILD_MARKER_FILE) is not None:
        # Files of instants that are still to be made would be taken for orphans.
        return
    files = tuple(_data_files(context))
    timeline = context.timeline.load()
    known = {instant.request_time for instant in timeline.instants}
    doomed = []
    for info in files:
        named = parse_base_file(info.name) or parse_log_file(info.name)
        if named is None or named.instant_time in known or not _is_gone(timeline, named.instant_time):
            continue
        doomed.append((info.path, named.instant_time))
        finding = f"{info.size_bytes:,} bytes of instant {named.instant_time}, which is on no timeline"
        yield RepairStep(RepairKind.ORPHANS, info.path, finding, "it is deleted")
    if doomed and not dry_run:
        with context.locked(settings.commit.lock_wait_ms) as held:
            check_same_version(held)
            # What has come to the timeline since, by a rescue or a copy, is no longer an orphan.
            timeline = held.timeline.load()
            known = {instant.request_time for instant in timeline.instants}
            held.storage.delete(path for path, time in doomed if time not in known and _is_gone(timeline, time))


def _is_gone(timeline: Timeline, instant_time: str) -> bool:
    """Whether an instant that does not stand on the active timeline stands nowhere: readers do not count its files."""
    return timeline.start is not None and not timeline.is_completed(instant_time) and not timeline.completion_time(instant_time)


def _data_files(context: TableContext) -> Iterator[FileInfo]:
    """Every file of the table's tree, which ends where another table begins."""
    return (info for _, listing in table_folders(context.storage) for info in listing.files)


def _repair_metadata(context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool) -> Iterator[RepairStep]:
    if not context.config.has_metadata_table:
        return
    finding = _metadata_damage(context)
    if finding is None:
        return
    yield RepairStep(RepairKind.METADATA, METADATA_FOLDER, finding, "it is built anew, with all its indexes")
    if dry_run:
        return
    rebuild_index(context, engine, IndexSettings(settings.commit, settings.metadata, 0), None)


@retry_on_stale_files
def _metadata_damage(context: TableContext) -> str | None:
    """How the metadata table's listing differs from the directories, None when it does not."""
    timeline = context.timeline.load()
    try:
        rows = scan_files(MetadataTable(context, timeline))
    except DAMAGE as error:
        return f"it cannot be read: {error}"
    columns = (rows.column(name).to_pylist() for name in ("partition", "name", "size_bytes"))
    listed = {join_path(partition, name): size for partition, name, size in zip(*columns, strict=True) if _counts(timeline, name)}
    directories = DirectoryListing(context.storage)
    groups = directories.files(directories.partitions()).values()
    # What a write under way copies for a resize bears the time of that one, which may have completed.
    made = files_being_written(context.storage, (i.request_time for i in timeline.pending_writes()))
    found = (info for infos in groups for info in infos if info.path not in made)
    there = {info.path: info.size_bytes for info in found if _counts(timeline, info.name)}
    if listed == there:
        return None
    wrong = sorted(path for path in {*listed, *there} if listed.get(path) != there.get(path))
    return f"it disagrees with the directories on {len(wrong):,} files, such as {wrong[0]}"


def _counts(timeline: Timeline, name: str) -> bool:
    named = parse_base_file(name) or parse_log_file(name)
    return named is not None and timeline.is_completed(named.instant_time)


class _Repair(Protocol):
    """Finds the damage of one kind and, unless `dry_run`, repairs it."""

    def __call__(
        self, context: TableContext, engine: Engine, settings: RepairSettings, *, dry_run: bool
    ) -> Iterator[RepairStep]: ...


_REPAIRS: dict[RepairKind, _Repair] = {
    RepairKind.TIMELINE: _repair_timeline,
    RepairKind.PROPERTIES: _repair_properties,
    RepairKind.PENDING: _repair_pending,
    RepairKind.PARTITIONS: _repair_partitions,
    RepairKind.ORPHANS: _repair_orphans,
    RepairKind.METADATA: _repair_metadata,
}
