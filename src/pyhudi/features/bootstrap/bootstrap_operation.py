"""Bootstrap: create a table over existing Parquet or ORC files.

    1. list the source; its partitions get their modes; footers provide columns and row counts
    2. remove the remains of a failed bootstrap; create the table
    3. instant 00000000000001 for METADATA_ONLY partitions, 00000000000002 for FULL_RECORD ones; requested, inflight
    4. a task for each source file: a base file of meta columns for it, or its rows in new file groups
    5. the bootstrap index, in two HFiles; then, if the source files are unchanged since step 1, both instants complete
    6. the metadata table, from the existing files

Nothing is committed before step 5, and a crash leaves a pending instant whose rollback removes base files and index. A
crash between the two completions leaves a table with some of the partitions: the next call rolls that back and starts
again.

Source: docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import pyarrow as pa

from pyhudi.errors import HudiError, InvalidRequest, TableExists, TableNotFound, TableState, Unsupported
from pyhudi.features.bootstrap.bootstrap_tasks import (
    BootstrapTask,
    InspectSourceTask,
    SourceInfo,
    run_check_sources,
    run_full,
    run_inspect_source,
    run_skeleton,
)
from pyhudi.features.bootstrap.plan_bootstrap import BootstrapMode, BootstrapRules, is_hive_style, typed_partition_columns
from pyhudi.format.actions.commit_metadata import BOOTSTRAP_PARTS_KEY, Operation
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.bootstrap_index import INDEX_FILE_NAME, BootstrappedGroup, SourceFile, encode_file_ids, encode_partitions
from pyhudi.format.instants import FULL_BOOTSTRAP_INSTANT_TIME, METADATA_BOOTSTRAP_INSTANT_TIME, Action
from pyhudi.format.meta_columns import is_meta_field, with_meta_fields
from pyhudi.format.names import BASE_EXTENSIONS, WriteToken
from pyhudi.format.paths import BOOTSTRAP_FILE_IDS_FOLDER, BOOTSTRAP_PARTITIONS_FOLDER, META_FOLDER, file_name, join_path
from pyhudi.metadata_table.writer.initialize_partitions import ensure_metadata_table
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.admin.create_table import check_columns, discard_new_table, new_table_properties
from pyhudi.operations.admin.table_settings import TableSettings, check_base_format
from pyhudi.operations.commit.action_attempt import rollback_on_error
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.planned_commit import PlannedCommit, commit_metadata
from pyhudi.operations.commit.results import BootstrapResult
from pyhudi.operations.commit.rollback import rollback_failed_writes, rollback_instant
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options.declaration import Options, OptionSettings
from pyhudi.options.table_options import BASE_FORMAT, BOOTSTRAP_BASE_PATH, BOOTSTRAP_INDEX_TYPE, HIVE_STYLE
from pyhudi.options.write_options import TIMESTAMPS_NANOSECONDS
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.mergers import merge_rule
from pyhudi.records.schema_evolution import SchemaMode, evolve
from pyhudi.records.timestamp_coercion import ZonelessTimestamps, has_nanoseconds, with_zones
from pyhudi.storage import FileInfo, Storage
from pyhudi.storage.base import StorageSpec
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks import LockProvider
from pyhudi.table.bootstrap_sources import remove_bootstrap_index
from pyhudi.table.table_config import create_table_files, load_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.base_file_writer import FileSettings
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus

_TIMES = {
    BootstrapMode.METADATA_ONLY: METADATA_BOOTSTRAP_INSTANT_TIME,
    BootstrapMode.FULL_RECORD: FULL_BOOTSTRAP_INSTANT_TIME,
}


@dataclass(frozen=True, slots=True)
class BootstrapSettings(OptionSettings):
    """Settings of a bootstrap."""

    rules: BootstrapRules
    commit: CommitSettings
    files: FileSettings
    metadata: MetadataSettings
    nanoseconds: Annotated[str, TIMESTAMPS_NANOSECONDS]


@dataclass(frozen=True, slots=True)
class BootstrapTarget:
    """Location of the new table, and options as for table creation."""

    storage: Storage
    env: Environment
    lock: LockProvider
    options: Options


@dataclass(frozen=True, slots=True)
class _SourceEntry:
    """A source file.

    Attributes:
        folder: Relative to the source.
        partition: Partition of the table.
        mode: Mode of the folder.
    """

    folder: str
    partition: str
    mode: BootstrapMode
    source: SourceFile
    source_info: SourceInfo


@dataclass(frozen=True, slots=True)
class _BootstrapPlan:
    """What a bootstrap registers.

    Attributes:
        properties: Properties of the table.
        base_path: The source, as the properties name it.
        schema: Columns of the source files and of their folders.
        stored: Those of them in the table's files.
        files: The source files.
    """

    properties: Mapping[str, str]
    base_path: str
    schema: pa.Schema
    stored: pa.Schema
    files: tuple[_SourceEntry, ...]

    @property
    def modes(self) -> tuple[BootstrapMode, ...]:
        """Modes of the files, in the order of their instants."""
        return tuple(mode for mode in _TIMES if any(file.mode is mode for file in self.files))


def run_bootstrap(
    target: BootstrapTarget, source: Storage, base_path: str, engine: Engine, settings: BootstrapSettings
) -> BootstrapResult:
    """Create a table over the files of a folder, which have the base file format of the table.

    Args:
        source: The folder, whose files are not changed.
        base_path: Its path in the table's properties.

    Raises:
        InvalidRequest: The source cannot become a table; everything written is removed.
        TableExists: There is a table already.
        TableState: Another process is creating it.
    """
    plan = _plan(target, source, base_path, engine, settings.rules)
    _remove_interrupted(target, plan, settings)
    config = create_table_files(target.storage, plan.properties, target.env)
    context = TableContext(target.storage, target.env, config, target.lock)
    try:
        return _register_files(context, engine, plan, settings)
    except Exception as error:
        try:
            discard_new_table(context, settings.commit.lock_wait_ms)
        except HudiError as failure:
            error.add_note(f"the table that was made for this bootstrap is still there, without rows ({failure})")
        raise


def _plan(target: BootstrapTarget, source: Storage, base_path: str, engine: Engine, rules: BootstrapRules) -> _BootstrapPlan:
    _check_disjoint(target.storage, source)
    base_format = TableSettings.of(target.options).base_file_format
    check_base_format(base_format)
    listed = list(_files_below(source, "", base_format))
    tasks = [
        InspectSourceTask(target.storage.spec(), SourceFile(source.absolute(i.path), i.size_bytes, i.modified_ms))
        for _, i in listed
    ]
    source_infos = engine.map(run_inspect_source, tasks)
    files = tuple(
        _SourceEntry(folder, rules.partition_name(folder), rules.select_mode(folder), task.source, source_info)
        for (folder, _), task, source_info in zip(listed, tasks, source_infos, strict=True)
        if source_info.row_count
    )
    if not files:
        raise InvalidRequest(
            f"there are no {base_format} files with rows below {source.uri}: there is nothing to make a table over"
        )
    options = _with_hive_style(target.options, [file.partition for file in files])
    table = TableSettings.of(options)
    _check_possible(table, source)
    schema = _schema(files, table)
    check_columns(table.keys, table.merge.ordering.fields, schema)
    properties = new_table_properties(options, None)
    properties[BOOTSTRAP_BASE_PATH.key] = base_path
    properties[BOOTSTRAP_INDEX_TYPE.key] = "HFILE"
    omitted = partition_columns(table.keys) if table.omits_partition_columns else ()
    stored = pa.schema([field for field in schema if field.name not in omitted])
    return _BootstrapPlan(properties, base_path, schema, stored, files)


def _files_below(source: Storage, folder: str, base_format: str) -> Iterator[tuple[str, FileInfo]]:
    """(folder, file) of all data files below a folder, without hidden ones. Raises Unsupported for another format."""
    listing = source.list(folder)
    for info in listing.files:
        if info.name.startswith((".", "_")):
            continue
        if not info.name.endswith(BASE_EXTENSIONS[base_format]):
            raise Unsupported(_other_format(source.absolute(info.path), base_format))
        yield folder, info
    for path in listing.folders:
        if file_name(path) == META_FOLDER:
            raise InvalidRequest(f"{source.absolute(folder)} is a Hudi table already: read it, and write its rows to another one")
        if not file_name(path).startswith((".", "_")):
            yield from _files_below(source, path, base_format)


def _other_format(uri: str, base_format: str) -> str:
    formats = {extension: name for name, extension in BASE_EXTENSIONS.items()}
    own = next((name for extension, name in formats.items() if uri.endswith(extension)), None)
    return f"{uri} is no {base_format} file ({BASE_EXTENSIONS[base_format]}): " + (
        f"a table is made over {own} files with {BASE_FORMAT}={own}, and over those of one format"
        if own
        else f"a table is made over files in {' or '.join(BASE_EXTENSIONS)} alone"
    )


def _check_disjoint(table: Storage, source: Storage) -> None:
    ours, theirs = (f"{storage.uri.rstrip('/')}/" for storage in (table, source))
    if ours.startswith(theirs) or theirs.startswith(ours):
        raise InvalidRequest(
            f"the table at {table.uri} and the files at {source.uri} must not contain each other: choose another target"
        )


def _with_hive_style(options: Options, partitions: Iterable[str]) -> Options:
    """The options, with the partition path style of the source folders unless the caller sets one."""
    keys = TableSettings.of(options).keys
    if options.explicit(HIVE_STYLE.stored_as) is not None or not keys.partition_fields:
        return options
    return options.merged({HIVE_STYLE.stored_as: "true" if is_hive_style(partition_columns(keys), partitions) else "false"})


def _check_possible(table: TableSettings, source: Storage) -> None:
    if table.keys.generates_keys:
        raise InvalidRequest(
            f"a table over {source.uri} needs a record key: set record_key to the columns that identify a record"
        )
    if not table.populate_meta_fields:
        raise Unsupported("a table over files outside of it without meta columns is not made")


def _schema(files: Sequence[_SourceEntry], table: TableSettings) -> pa.Schema:
    """The columns of all source files, in the order of the first, and the partition columns that they lack."""
    schema: pa.Schema | None = None
    shared_names: set[str] | None = None
    for file in files:
        names = set(file.source_info.schema.names)
        shared_names = names if shared_names is None else shared_names & names
        own = next((name for name in file.source_info.schema.names if is_meta_field(name)), None)
        if own is not None:
            raise InvalidRequest(
                f"{file.source.uri} has the column {own}, which is one of Hudi's own: these are files of a Hudi table"
            )
        try:
            typed = with_zones(file.source_info.schema, None, ZonelessTimestamps.REFUSE)
            schema = evolve(schema, typed, SchemaMode.WIDEN, null_for_missing=True)
        except InvalidRequest as error:
            raise InvalidRequest(f"{file.source.uri} cannot be bootstrapped: {error}") from error
    assert schema is not None and shared_names is not None, "there are files"
    partition_fields = typed_partition_columns(table.keys, {file.partition for file in files}, shared_names)
    schema = pa.schema([field.with_nullable(True) for field in schema])
    return pa.schema([*schema, *(field for field in partition_fields if field.name not in schema.names)])


def _remove_interrupted(target: BootstrapTarget, plan: _BootstrapPlan, settings: BootstrapSettings) -> None:
    """Remove the files of an interrupted bootstrap of the same source. Raises TableExists for any other table."""
    try:
        config = load_table_config(target.storage)
    except TableNotFound:
        return
    exists = TableExists(f"there is a Hudi table at {target.storage.uri} already; open it with Table(uri)")
    if config.bootstrap_base_path != plan.base_path:
        raise exists
    context = TableContext(target.storage, target.env, config, target.lock)
    rollback_failed_writes(context, settings.commit)
    timeline = context.timeline.load()
    if timeline.pending_writes():
        raise TableState(f"another process is creating the table at {target.storage.uri}")
    done = timeline.completed_writes()
    times = {_TIMES[mode] for mode in plan.modes}
    if {instant.request_time for instant in done} >= times or any(instant.request_time not in times for instant in done):
        raise exists
    for instant in reversed(done):
        rollback_instant(context, instant, settings.commit)
    if not discard_new_table(context, settings.commit.lock_wait_ms):
        if timeline.pending(Action.RESTORE):
            raise TableState(
                f"a restore that rolls back a failed bootstrap of {target.storage.uri} did not finish: delete that folder, which "
                "has no rows, and call again"
            )
        raise exists


@observed("bootstrap")
def _register_files(context: TableContext, engine: Engine, plan: _BootstrapPlan, settings: BootstrapSettings) -> BootstrapResult:
    action = Action.COMMIT if context.config.is_cow else Action.DELTACOMMIT
    schema_text = arrow_to_avro(plan.stored, context.config.name)
    parts = {BOOTSTRAP_PARTS_KEY: ",".join(_TIMES.values())} if len(plan.modes) > 1 else {}
    statuses: dict[BootstrapMode, list[WriteStatus]] = {}
    transactions: dict[BootstrapMode, Transaction] = {}
    with ExitStack() as stack:
        for mode in plan.modes:
            transaction = Transaction.begin(context, action, settings.commit, at=_TIMES[mode])
            transactions[mode] = stack.enter_context(rollback_on_error(transaction))
            transaction.start()
        for mode in plan.modes:
            spec = _writer_spec(context, plan, schema_text, settings, _TIMES[mode])
            statuses[mode] = _write(context, engine, plan, spec, mode, truncates=settings.nanoseconds == "cut")
        _check_unchanged(context.storage.spec(), engine, plan.files)
        for mode, transaction in transactions.items():
            operation = Operation.BOOTSTRAP if mode is BootstrapMode.METADATA_ONLY else Operation.BULK_INSERT
            transaction.commit(PlannedCommit(commit_metadata(operation, statuses[mode], schema_text, parts)))
    wait_ms = settings.commit.lock_wait_ms
    ensure_metadata_table(context.reloaded(), engine, settings.metadata, wait_ms, plan.stored, plan.stored)
    stats = [status.stat for written in statuses.values() for status in written]
    return BootstrapResult(
        instants=tuple(_TIMES[mode] for mode in plan.modes),
        partitions=len({file.partition for file in plan.files}),
        files_metadata_only=sum(file.mode is BootstrapMode.METADATA_ONLY for file in plan.files),
        files_full_record=sum(file.mode is BootstrapMode.FULL_RECORD for file in plan.files),
        rows=sum(stat.num_writes for stat in stats),
        bytes_written=sum(stat.total_write_bytes for stat in stats),
    )


def _writer_spec(
    context: TableContext, plan: _BootstrapPlan, schema_text: str, settings: BootstrapSettings, time: str
) -> WriterSpec:
    config = context.config
    return WriterSpec(
        storage=context.storage.spec(),
        instant_time=time,
        data_schema=plan.stored,
        avro_schema=arrow_to_avro(with_meta_fields(plan.stored), config.name, schema_text),
        files=settings.files,
        keys=config.keys,
        populate_meta_fields=True,
        rule=merge_rule(config.merge),
        extension=config.base_extension(settings.files.base_format),
    )


def _write(
    context: TableContext, engine: Engine, plan: _BootstrapPlan, spec: WriterSpec, mode: BootstrapMode, *, truncates: bool
) -> list[WriteStatus]:
    required = () if context.config.is_cow else context.config.ordering_fields
    files = [file for file in plan.files if file.mode is mode]
    tasks = [
        BootstrapTask(
            file.partition,
            file.source,
            context.env.uuid4(),
            WriteToken(number, 0, number),
            required,
            () if truncates else tuple(f.name for f in file.source_info.schema if has_nanoseconds(f.type)),
        )
        for number, file in enumerate(files)
    ]
    if mode is BootstrapMode.FULL_RECORD:
        return [status for created in engine.map(partial(run_full, spec, plan.schema), tasks) for status in created]
    statuses = engine.map(partial(run_skeleton, spec, plan.schema), tasks)
    groups = [
        BootstrappedGroup(file.partition, file.folder, task.file_id, file.source) for file, task in zip(files, tasks, strict=True)
    ]
    _store_index(context, groups, plan.base_path)
    return statuses


def _check_unchanged(table: StorageSpec, engine: Engine, files: Sequence[_SourceEntry]) -> None:
    """Raise TableState if a source file changed since it was listed, because readers would refuse the table."""
    engine.map(run_check_sources, [InspectSourceTask(table, file.source) for file in files])


def _store_index(context: TableContext, groups: Sequence[BootstrappedGroup], base_path: str) -> None:
    # Files left by another writer's rollback would be read together with this bootstrap.
    remove_bootstrap_index(context.storage)
    now_ms = context.env.now_ms()
    for folder, encode in ((BOOTSTRAP_PARTITIONS_FOLDER, encode_partitions), (BOOTSTRAP_FILE_IDS_FOLDER, encode_file_ids)):
        context.storage.put(join_path(folder, INDEX_FILE_NAME), encode(groups, base_path, now_ms))
