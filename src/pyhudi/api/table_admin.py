"""Administration of `Table`: table services, savepoints, rollback, restore, repair, validation, upgrade and downgrade."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Literal

from pyhudi.api.argument_types import checked_class
from pyhudi.api.services import TableServices
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InstantNotFound, InvalidRequest
from pyhudi.format.table_versions import parse_table_version
from pyhudi.operations.admin.alter_properties import run_set_properties
from pyhudi.operations.admin.drop_table import run_drop_table
from pyhudi.operations.admin.repair import RepairKind, RepairResult, RepairSettings, run_repair
from pyhudi.operations.admin.restore import run_restore
from pyhudi.operations.admin.savepoint import run_delete_savepoint, run_savepoint
from pyhudi.operations.admin.upgrade import run_downgrade, run_upgrade
from pyhudi.operations.admin.validate import ValidationResult, run_validate
from pyhudi.operations.admin.validate_data import ChecksumScope
from pyhudi.operations.admin.versions.version_step import VersionChange
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.results import RestoreResult, SavepointResult
from pyhudi.operations.commit.rollback import RollbackResult, find_rollback_target, rollback_instant
from pyhudi.operations.services.archive import ArchiveSettings
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.operations.services.index_admin import drop_metadata_table
from pyhudi.options.scope import TABLE_OPERATIONS
from pyhudi.options.write_options import THREADS
from pyhudi.planning.instant_arguments import CommittedInstant, InstantArgument, format_as_of, request_time_text
from pyhudi.storage.locks import LockSettings
from pyhudi.table.tags import load_tags

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession


@checked_class
class TableAdmin(TableServices):
    """The administration methods of `Table`."""

    def rollback(self, instant: str | CommittedInstant, *, options: Mapping[str, object] | None = None) -> RollbackResult:
        """Roll back a write, completed or not.

        Plans of compactions and clusterings are not writes: use `unschedule_compaction` and `unschedule_clustering`. A
        pending clustering whose plan is empty, which a failed planner of Hudi 1.2.0 leaves, is rolled back as a write.

        Args:
            instant: Request time of the write, or its result.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: The active timeline has no such write.
            TableState: Later writes depend on it.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["rollback"], options)
        context = self._open.writable(parsed, retains_indexes=False)
        target = find_rollback_target(context, self.timeline(), request_time_text(instant))
        return rollback_instant(context, target, CommitSettings.of(parsed))

    def savepoint(
        self,
        instant: InstantArgument | None = None,
        *,
        user: str = "",
        comments: str = "",
        tag: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> SavepointResult:
        """Create a savepoint: protect the files of a completed write from cleaning, so that the table can be restored to it.

        Args:
            instant: Request time of the write, its result, or a datetime or date: the latest write up to then. None for the
                latest.
            user: User name stored in the savepoint.
            comments: Comments stored in the savepoint.
            tag: Name of this state for `scan(as_of="tag:NAME")`. It is stored as the first line of the comments.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: No such completed write exists.
            TableState: The write has a savepoint, its files are deleted or being cleaned, or another savepoint has the
                tag.
            InvalidRequest: The tag is empty, has several lines, is longer than 200 characters, or ends in a space.

        Example:
            >>> savepoint = table.savepoint(tag="before-migration")
            >>> rows = table.scan(as_of="tag:before-migration")
        """
        parsed = self._open.parse(TABLE_OPERATIONS["savepoint"], options)
        settings, request_time = CommitSettings.of(parsed), None if instant is None else self._last_write_until(instant)
        return run_savepoint(
            self._open.load_context(parsed), settings, instant=request_time, user=user, comments=comments, tag=tag
        )

    def tags(self) -> dict[str, str]:
        """Return the tags of savepoints, oldest first, with the request time of the write that each one names.

        Use them in `scan(as_of="tag:NAME")`, `restore("tag:NAME")` and `delete_savepoint("tag:NAME")`. One file is read
        per savepoint.
        """
        context = self._open.context.reloaded()
        return load_tags(context, context.timeline.load())

    def delete_savepoint(self, instant: str | CommittedInstant, *, options: Mapping[str, object] | None = None) -> None:
        """Delete a savepoint. Later cleans can delete the files that it protected.

        Args:
            instant: Request time of the savepointed write, `tag:NAME`, or the result of `savepoint`.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: No such savepoint exists.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["delete_savepoint"], options)
        run_delete_savepoint(self._open.load_context(parsed), CommitSettings.of(parsed), request_time_text(instant))

    def set_properties(
        self, properties: Mapping[str, object], *, options: Mapping[str, object] | None = None
    ) -> dict[str, str | None]:
        """Set table properties that do not affect the file layout, under the table lock: name, database and custom keys.

        Properties that define the layout are rejected, with the method that changes them if there is one. Every reader
        and writer sees the properties in `config.properties`, and Hudi preserves them.

        The key `pyhudi.table.options.<option>` stores a default of an option for all later reads and writes of PyHudi.
        Options of origin `caller`, which name code, hosts, paths, locks or memory, apply to those who trust the table only.

        Args:
            properties: Values by key, such as `{"owner": "fares"}` or `{"hoodie.table.name": "rides"}`; None removes a
                key.
            options: `hoodie.*` options of this call.

        Returns:
            The changed properties with their new values.

        Raises:
            InvalidRequest: A property defines the table or how it is written, or the table name is part of the lock
                that writers use.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["set_properties"], options)
        changes = {key: _property_text(key, value) for key, value in properties.items()}
        context = self._open.load_context(parsed)
        changed = run_set_properties(context, changes, CommitSettings.of(parsed), LockSettings.of(parsed, self.name))
        self._open.context = self._open.context.reloaded()
        return changed

    def drop(self, *, options: Mapping[str, object] | None = None) -> None:
        """Delete the table with all files of its folder. It cannot be undone.

        Args:
            options: `hoodie.*` options of this call.

        Raises:
            TableState: A write or a table service is in progress.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["drop"], options)
        run_drop_table(self._open.load_context(parsed), CommitSettings.of(parsed))

    def drop_metadata_table(self, *, options: Mapping[str, object] | None = None) -> None:
        """Delete the metadata table.

        Readers then list directories. The next write rebuilds it, unless its options contain
        `hoodie.metadata.enable=false`.

        Args:
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["drop_metadata_table"], options)
        drop_metadata_table(self._open.load_context(parsed), CommitSettings.of(parsed).lock_wait_ms)

    def restore(
        self, instant: InstantArgument, *, force: bool = False, options: Mapping[str, object] | None = None
    ) -> RestoreResult:
        """Restore the table to a savepoint, or to any completed write whose files all exist. Later writes are deleted.

        Writers of PyHudi that are running plan their write again on the restored table. A restore that died blocks
        writes until the next writer completes it, or it is run again. The metadata table is dropped with all indexes,
        which the result lists; the next write builds them again, except those in `indexes_to_create`.

        Args:
            instant: Request time of that write, its result, `tag:NAME` of its savepoint, or a datetime or date: the latest
                write up to then.
            force: Restore although a process of Hudi writes to the table. It may fail after its commit, or publish a
                commit whose files are deleted.
            options: `hoodie.*` options of this call.

        Raises:
            InstantNotFound: No such completed write or tag exists.
            TableState: Another restore is unfinished, required files are missing, later writes are savepointed or
                archived, or a process of Hudi writes to the table: its heartbeat is alive.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["restore"], options)
        context, target = self._open.load_context(parsed), self._last_write_until(instant)
        return run_restore(context, CommitSettings.of(parsed), target, force=force)

    def upgrade(
        self, to: int | None = None, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> VersionChange:
        """Upgrade the table to a later table version. A table that has the version is unchanged. No other process may
        write concurrently.

        A merge-on-read table is compacted. From version 6, the metadata table is dropped and rebuilt by the next write.
        From 8 to 9, the metadata table keeps all indexes, and a payload class becomes a merge mode. A crash leaves a
        table at an intermediate version; another call continues.

        Args:
            to: 8 or 9; None for 8, the version in which PyHudi creates tables.
            spark: Session that runs the compaction; None for this process.
            options: `hoodie.*` options of this call. `hoodie.payload.delete.field` and `.marker`, which version 8 takes
                with every write, become table properties in version 9.

        Raises:
            TableState: A restore is pending, or a writer is active.
            Unsupported: The version cannot represent this table.
            InvalidRequest: The table has a later version.
            CorruptData: Instants or an archive file cannot be read.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["upgrade"], options)
        settings, codec = CompactSettings.of(parsed), ArchiveSettings.of(parsed).compression
        target = None if to is None else parse_table_version(str(to))
        result = run_upgrade(self._open.load_context(parsed), self._open.engine(spark, parsed), settings, codec, target)
        self._open.context = self._open.context.reloaded()
        return result

    def downgrade(
        self, to: int | None = None, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> VersionChange:
        """Downgrade the table to an earlier table version: 8 for Hudi 1.0, or 6 for earlier releases, which PyHudi can only read.

        A merge-on-read table is compacted until no log file remains to be merged. From version 9 to 8, indexes with a
        later layout are dropped (the result lists them); to 6, the metadata table is dropped. Otherwise as `upgrade`.

        Args:
            to: 8 or 6; None for the version below the table's.
            spark: Session that runs the compaction; None for this process.
            options: `hoodie.*` options of this call.

        Raises:
            TableState: A restore, an index build or a clustering of a merge-on-read table is pending, or another
                process writes.
            Unsupported: The version cannot represent the table: several ordering fields, a partitioned record index, a
                record merger.
            InvalidRequest: The table has an earlier version.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["downgrade"], options)
        settings = CompactSettings.of(parsed)
        target = None if to is None else parse_table_version(str(to))
        result = run_downgrade(self._open.load_context(parsed), self._open.engine(spark, parsed), settings, target)
        self._open.context = self._open.context.reloaded()
        return result

    def validate(
        self, *, sample: int | None = None, keys: bool = False, checksums: Literal["none", "sample", "all"] = "sample"
    ) -> ValidationResult:
        """Validate the consistency of the timeline, the data files, the metadata table and its indexes. Nothing is changed.

        With a record index, compressed keys of all rows are stored in the temporary directory (`TMPDIR`) during the call.

        Args:
            sample: Number of base files whose footers are read; None for all.
            keys: Also check for duplicate keys in a partition, which reads the keys of all rows.
            checksums: Which base files have their pages compared with the checksums: "sample" (128 MiB, all of a smaller
                table), "all", which reads every base file, or "none".

        Returns:
            What was compared, what was found, and what was skipped; `unverified_bytes` is the size of the files whose page
            checksums were not compared.

        Raises:
            InvalidRequest: Another value of `checksums`, or `sample` is negative.
        """
        if checksums not in list(ChecksumScope):
            raise InvalidRequest(f"checksums={checksums!r} is none of {', '.join(ChecksumScope)}")
        engine = LocalEngine(self._open.options.integer(THREADS))
        return run_validate(self._open.context.reloaded(), engine, sample=sample, keys=keys, checksums=ChecksumScope(checksums))

    def repair(
        self,
        kinds: Iterable[str] | None = None,
        *,
        dry_run: bool = False,
        accept_loss: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> RepairResult:
        """Repair damaged or incomplete files around the data, or report what a repair would do.

        Args:
            kinds: Any of timeline, properties, pending (dead writes), partition-metadata, lost-files, orphans,
                metadata-table; None for all.
            dry_run: Report only; change nothing.
            accept_loss: Accept the loss of committed files that are missing or damaged. A commit without rows records
                the files in its extra metadata, as `pyhudi.repair.lost.files`. Readers then find what the other files
                hold: the previous version of a file group where one exists.
            options: `hoodie.*` options of this call.

        Raises:
            InvalidRequest: An unknown name is passed.
            CorruptData: Committed files are missing, or have another size than their commits record, and `accept_loss` is
                False. The error lists them with their rows.
        """
        known = [kind.value for kind in RepairKind]
        chosen = known if kinds is None else list(kinds)
        unknown = [kind for kind in chosen if kind not in known]
        if unknown:
            raise InvalidRequest(f"{unknown[0]!r} cannot be repaired: choose from {', '.join(known)}")
        parsed = self._open.parse(TABLE_OPERATIONS["repair"], options)
        context = self._open.writable(parsed)
        settings = RepairSettings.of(parsed, [RepairKind(kind) for kind in chosen], accept_loss=accept_loss)
        return run_repair(context, LocalEngine(parsed.integer(THREADS)), settings, dry_run=dry_run)

    def _last_write_until(self, instant: InstantArgument) -> str:
        """Request time that an argument names; for a time, that of the latest completed write that was requested by then."""
        if not isinstance(instant, date):
            return request_time_text(instant)
        digits = format_as_of(instant, self._open.context.config.zone)
        times = [write.request_time for write in self.timeline().completed_writes() if write.request_time <= digits]
        if not times:
            raise InstantNotFound(f"the active timeline of {self._open.uri} has no completed write at or before {instant}")
        return max(times)


def _property_text(key: str, value: object) -> str | None:
    """A property value as text. Raises InvalidRequest unless it is text, a number or a boolean."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, (bool, int, float)):
        raise InvalidRequest(
            f"property {key} has type {type(value).__name__}: pass text, a number or a boolean, not {value!r:.80}"
        )
    return str(value).lower() if isinstance(value, bool) else str(value)
