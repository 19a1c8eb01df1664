"""Keeping a table in order: table services, savepoints, rollback, restore, repair, validation and versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pyhudi.api.services import Services
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InstantNotFound, InvalidRequest
from pyhudi.format.instants import Instant
from pyhudi.format.table_versions import parse_table_version
from pyhudi.operations.admin.alter_properties import run_set_properties
from pyhudi.operations.admin.repair import RepairKind, RepairResult, RepairSettings, run_repair
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.admin.savepoint import run_delete_savepoint, run_savepoint
from pyhudi.operations.admin.upgrade import run_downgrade, run_upgrade
from pyhudi.operations.admin.validate import ValidationResult, run_validate
from pyhudi.operations.admin.versions.version_step import VersionChange
from pyhudi.operations.commit.commit_settings import THREADS, CommitSettings
from pyhudi.operations.commit.results import (
    RestoreResult,
    SavepointResult,
)
from pyhudi.operations.commit.rollback import RollbackResult, rollback_instant
from pyhudi.operations.services.archive import ArchiveSettings
from pyhudi.operations.services.compact import (
    CompactSettings,
)
from pyhudi.operations.services.index_admin import (
    drop_metadata_table,
)
from pyhudi.options.scope import VERBS
from pyhudi.storage.locks import LockSettings
from pyhudi.table.tags import load_tags

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession

from pyhudi.api.opened_table import OpenedTable

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _service(
    method: Callable[Concatenate[Services, _Arguments], _Result],
) -> Callable[Concatenate[TableServices, _Arguments], _Result]:
    """A verb of `Table` that is a method of its services, with the same arguments and documentation."""

    @wraps(method)
    def verb(self: TableServices, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return method(self.services, *args, **kwargs)

    return verb


class TableServices(OpenedTable):
    """The services and the administration of `Table`."""

    def rollback(self, instant: str, *, options: Mapping[str, object] | None = None) -> RollbackResult:
        """Undo the write requested at `instant`, completed or not.

        Plans of compactions and clusterings are not writes: `unschedule_compaction` and `unschedule_clustering` drop those.

        Args:
            instant: The request time.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: The active timeline has no such write.
            TableState: Later writes build on it.
        """
        parsed = self._open.parse(VERBS["rollback"], options)
        context = self._open.writable(parsed, retains_indexes=False)
        return rollback_instant(context, self._find_write(instant), CommitSettings.of(parsed))

    @property
    def services(self) -> Services:
        """The table services: compaction, clustering, cleaning, archiving, and passes of all of them."""
        return Services(self._open)

    clean = _service(Services.clean)
    archive = _service(Services.archive)
    cluster = _service(Services.cluster)
    schedule_clustering = _service(Services.schedule_clustering)
    unschedule_clustering = _service(Services.unschedule_clustering)
    compact = _service(Services.compact)
    schedule_compaction = _service(Services.schedule_compaction)
    log_compact = _service(Services.log_compact)
    schedule_log_compaction = _service(Services.schedule_log_compaction)
    unschedule_compaction = _service(Services.unschedule_compaction)
    run_services = _service(Services.run)
    serve = _service(Services.serve)
    background_services = _service(Services.background)
    expired_partitions = _service(Services.expired_partitions)
    run_ttl = _service(Services.expire_partitions)
    sync = _service(Services.sync)

    def savepoint(
        self,
        instant: str | None = None,
        *,
        user: str = "",
        comments: str = "",
        tag: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> SavepointResult:
        """Keep the files of a completed write from being cleaned, so that the table can be restored to it.

        Args:
            instant: The request time of the write; None for the newest.
            user: Who makes it, for the savepoint's file.
            comments: Anything, for the savepoint's file.
            tag: A name for this state, which is then read by `scan(as_of="tag:NAME")`; the first line of its comments.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: There is no such completed write.
            TableState: It has a savepoint, its files are gone or about to go, or another savepoint has the tag.
            InvalidRequest: The tag is empty, of several lines, longer than 200 characters, or ends in a space.
        """
        parsed = self._open.parse(VERBS["savepoint"], options)
        settings = CommitSettings.of(parsed)
        return run_savepoint(self._open.load_context(parsed), settings, instant=instant, user=user, comments=comments, tag=tag)

    def tags(self) -> dict[str, str]:
        """The names that savepoints have, oldest first, and for each the request time of the write that it names.

        `scan(as_of="tag:NAME")`, `restore("tag:NAME")` and `delete_savepoint("tag:NAME")` take them.  One file is read for each
        savepoint.
        """
        context = self._open.context.reloaded()
        return load_tags(context, context.timeline.load())

    def delete_savepoint(self, instant: str, *, options: Mapping[str, object] | None = None) -> None:
        """Remove a savepoint; later cleans may delete what it kept.

        Args:
            instant: The request time of the write that it keeps, or `tag:NAME`.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: There is no such savepoint.
        """
        parsed = self._open.parse(VERBS["delete_savepoint"], options)
        run_delete_savepoint(self._open.load_context(parsed), CommitSettings.of(parsed), instant)

    def set_properties(
        self, properties: Mapping[str, object], *, options: Mapping[str, object] | None = None
    ) -> dict[str, str | None]:
        """Set properties of the table that no file goes by, under its lock: its name, its database, and keys of your own.

        The others say how files are laid out, and are refused with the verb that changes them, if there is one.  Every reader
        and writer finds the properties in `config.properties`, and the real Hudi keeps them.

        Args:
            properties: Values by key, such as `{"owner": "fares"}` or `{"hoodie.table.name": "rides"}`; None removes a key.
            options: `hoodie.*` options of this call.

        Returns:
            The properties that are other than before, with their new values.

        Raises:
            InvalidRequest: A property defines the table or how writes are done, or the name is that of the writers' lock.
        """
        parsed = self._open.parse(VERBS["set_properties"], options)
        changes = {key: _property_text(key, value) for key, value in properties.items()}
        context = self._open.load_context(parsed)
        changed = run_set_properties(context, changes, CommitSettings.of(parsed), LockSettings.of(parsed, self.name))
        self._open.context = self._open.context.reloaded()
        return changed

    def drop_metadata_table(self, *, options: Mapping[str, object] | None = None) -> None:
        """Remove the metadata table.

        Readers list directories from then on, and the next write builds it anew, unless its options say
        `hoodie.metadata.enable=false`.

        Args:
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["drop_metadata_table"], options)
        drop_metadata_table(self._open.load_context(parsed), CommitSettings.of(parsed).lock_wait_ms)

    def restore(self, instant: str, *, options: Mapping[str, object] | None = None) -> RestoreResult:
        """Take the table back to a savepoint, or to any completed write whose files are all there; later writes are deleted.

        A restore that died blocks writing until it is run again.

        Args:
            instant: The request time of that write, or `tag:NAME` of its savepoint.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: There is no such completed write, or tag.
            TableState: Another restore did not finish, files that this one needs are gone, or later writes are kept or archived.
        """
        parsed = self._open.parse(VERBS["restore"], options)
        return run_restore(self._open.load_context(parsed), CommitSettings.of(parsed), instant)

    def upgrade(
        self, to: int | None = None, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> VersionChange:
        """Make the table one of a later table version; nothing happens to one that has it.  Nobody else may write meanwhile.

        A merge-on-read table is compacted.  From version 6 the metadata table is dropped, and built anew by the next write; from
        8 to 9 it stays with all its indexes, and a payload class becomes a merge mode.  A crash leaves a table of a version on
        the way, and another call goes on.

        Args:
            to: 8 or 9; None for 8, the version of the tables that PyHudi makes.
            spark: A session on which the compaction runs its tasks; None for this process.
            options: `hoodie.*` options of this call.  `hoodie.payload.delete.field` and `.marker`, which version 8 takes with
                every write, become the table's own in version 9.

        Raises:
            TableState: A restore is pending, or a writer lives.
            Unsupported: Tables of the version cannot be what this one is.
            InvalidRequest: The table has a later version.
            CorruptData: Instants or an archive cannot be read.
        """
        parsed = self._open.parse(VERBS["upgrade"], options)
        settings, codec = CompactSettings.of(parsed), ArchiveSettings.of(parsed).compression
        target = None if to is None else parse_table_version(str(to))
        result = run_upgrade(self._open.load_context(parsed), self._open.engine(spark, parsed), settings, codec, target)
        self._open.context = self._open.context.reloaded()
        return result

    def downgrade(
        self, to: int | None = None, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> VersionChange:
        """Make the table one of an earlier version: 8 for releases 1.0 of Hudi, 6 for those before, which PyHudi only reads then.

        A merge-on-read table is compacted until no log file is left to merge.  From version 9 to 8 indexes of a later layout are
        dropped (the result says which), to 6 the metadata table.  Otherwise as `upgrade`.

        Args:
            to: 8 or 6; None for the version below the table's.
            spark: A session on which the compaction runs its tasks; None for this process.
            options: `hoodie.*` options of this call.

        Raises:
            TableState: A restore, an index build or a clustering of a merge-on-read table is pending, or another process writes.
            Unsupported: The version cannot hold the table: several ordering fields, a partitioned record index, a record merger.
            InvalidRequest: The table has an earlier version.
        """
        parsed = self._open.parse(VERBS["downgrade"], options)
        settings = CompactSettings.of(parsed)
        target = None if to is None else parse_table_version(str(to))
        result = run_downgrade(self._open.load_context(parsed), self._open.engine(spark, parsed), settings, target)
        self._open.context = self._open.context.reloaded()
        return result

    def validate(self, *, sample: int | None = None, keys: bool = False) -> ValidationResult:
        """Compare the timeline, the data files, the metadata table and its indexes with one another.  Nothing is changed.

        Args:
            sample: How many base files to open for their footers; None for all.
            keys: Look for keys that stand twice in a partition too, which reads the keys of all rows.

        Returns:
            What was compared, what was found, and what was passed over.
        """
        engine = LocalEngine(self._open.options.integer(THREADS))
        return run_validate(self._open.context.reloaded(), engine, sample=sample, keys=keys)

    def repair(
        self,
        kinds: Iterable[str] | None = None,
        *,
        dry_run: bool = True,
        options: Mapping[str, object] | None = None,
    ) -> RepairResult:
        """Repair what is broken around the data, or say what that would take.

        Args:
            kinds: Any of timeline, properties, pending (what died), partition-metadata, orphans, metadata-table; None for all.
            dry_run: Change nothing.
            options: `hoodie.*` options of this call.

        Raises:
            InvalidRequest: There is no such kind.
        """
        known = [kind.value for kind in RepairKind]
        chosen = known if kinds is None else list(kinds)
        unknown = [kind for kind in chosen if kind not in known]
        if unknown:
            raise InvalidRequest(f"{unknown[0]!r} is not something that can be repaired; there are {', '.join(known)}")
        parsed = self._open.parse(VERBS["repair"], options)
        context = self._open.writable(parsed)
        settings = RepairSettings.of(parsed, [RepairKind(kind) for kind in chosen])
        return run_repair(context, LocalEngine(parsed.integer(THREADS)), settings, dry_run=dry_run)

    def _find_write(self, request_time: str) -> Instant:
        timeline = self.timeline()
        for instant in (*timeline.completed_writes(), *timeline.pending_writes()):
            if instant.request_time == request_time:
                return instant
        raise InstantNotFound(f"the active timeline of {self._open.uri} has no write requested at {request_time}")


def _property_text(key: str, value: object) -> str | None:
    """A property as it is stored.  Raises InvalidRequest for what is neither text, a number nor true or false."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, (bool, int, float)):
        raise InvalidRequest(f"property {key} is given as {type(value).__name__}, and properties are text: {value!r:.80}")
    return str(value).lower() if isinstance(value, bool) else str(value)
