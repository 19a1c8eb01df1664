"""Restore hoodie.properties from data files when both it and its backup are missing or damaged.

    inspect  names of files and instants, the metadata table, footers, and all rows of the base files, by tasks
    infer    the properties, and those that the caller must pass (`features.recovery.infer_properties`)
    verify   the keys and folders that the properties produce, against all rows
    write    under the lock, if the file is still missing or damaged: first its backup, then the file

Properties that files do not show are not assumed: the caller passes them, or the call fails with a list of those
required.

Source: docs/formats/timeline.md, "Inferring properties from files".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyhudi.errors import CorruptData, InvalidRequest, TableExists, TableNotFound
from pyhudi.features.recovery.infer_keys import KeysTask, run_keys
from pyhudi.features.recovery.infer_properties import Inferred, TableFacts, infer, table_types
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.instants import BOOTSTRAP_INSTANT_TIMES, INIT_INSTANT_TIME, Action, parse_instant_file
from pyhudi.format.log.cdc_blocks import CdcMode
from pyhudi.format.log.framing import CorruptBlock, HeaderKey
from pyhudi.format.names import LogFileName, is_orc, parse_base_file, parse_data_file_instant, parse_log_file
from pyhudi.format.paths import (
    INDEX_DEFINITIONS_FILE,
    META_FOLDER,
    METADATA_FOLDER,
    PROPERTIES_BACKUP,
    PROPERTIES_FILE,
    TIMELINE_FOLDER,
    file_name,
    parent_folder,
)
from pyhudi.format.properties import check_checksum, format_checksummed_properties, format_updated_comments, parse_properties
from pyhudi.format.table_versions import TimelineLayout
from pyhudi.operations.admin.repair import RepairKind, RepairResult, RepairStep
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.options.declaration import Options
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks import LockSettings, open_lock
from pyhudi.table.file_slices import LogFile
from pyhudi.table.listing import table_folders
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_config import TableConfig, load_table_config, local_zone, new_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.archived_timeline import HistoryStore
from pyhudi.table.timeline.timeline_store import TimelineStore
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.log_scan import read_headers


@dataclass(frozen=True, slots=True)
class _TimelineLocation:
    """Where a timeline may be."""

    path: str
    layout: TimelineLayout


_TIMELINE_LOCATIONS = (_TimelineLocation(TIMELINE_FOLDER, TimelineLayout.V2), _TimelineLocation(META_FOLDER, TimelineLayout.V1))


def restore_properties(
    storage: Storage, env: Environment, engine: Engine, options: Options, user_options: Mapping[str, str], *, dry_run: bool
) -> RepairResult:
    """Infer the properties from files and, unless `dry_run`, store them.

    Raises:
        TableExists: The table is readable as it is.
        TableNotFound: There are no data files.
        InvalidRequest: Properties that the caller passed contradict files, or required ones are missing; one message
            lists all.
    """
    _check_missing(storage, env)
    evidence = _inspect_files(storage, engine)
    inference = infer(evidence, user_options)
    if inference.required_input:
        lines = "".join(f"\n  {key}: {why}" for key, why in inference.required_input.items())
        raise InvalidRequest(f"files of {storage.uri} do not determine all properties; set these too:{lines}")
    try:
        config = new_table_config(inference.values)
    except CorruptData as error:
        raise InvalidRequest(f"the given properties are invalid: {error}") from error
    _check_rows(storage, engine, evidence, config)
    if not dry_run:
        _store(storage, env, options, config)
    return RepairResult(storage.uri, dry_run, tuple(_steps(inference, evidence)))


def _check_missing(storage: Storage, env: Environment) -> None:
    try:
        load_table_config(storage, env)
    except (TableNotFound, CorruptData):
        return
    raise TableExists(f"{PROPERTIES_FILE} of {storage.uri}, or its backup, is intact: open it with Table(uri)")


def _inspect_files(storage: Storage, engine: Engine) -> TableFacts:
    infos = [info for _, listing in table_folders(storage) for info in listing.files if _instant_of(info) is not None]
    if not infos:
        raise TableNotFound(f"there are no data files at {storage.uri}: create a table with Table.create, or check the path")
    logs = [(info, name) for info in infos if (name := parse_log_file(info.name)) is not None]
    bases = [info for info in infos if parse_base_file(info.name) is not None]
    spec = storage.spec()
    facts = tuple(engine.map(run_keys, [KeysTask(spec, info.path) for info in bases]))
    stores = [(location, store) for location in _TIMELINE_LOCATIONS if (store := _open_timeline(storage, location)) is not None]
    metadata = storage.child(METADATA_FOLDER)
    data = metadata.read(PROPERTIES_FILE)
    return TableFacts(
        metadata=_metadata_properties(data),
        indexes=() if data is None else tuple(_complete_indexes(metadata)),
        has_definitions=storage.stat(INDEX_DEFINITIONS_FILE) is not None,
        schema_names=frozenset(fact.schema_name for fact in facts if fact.schema_name),
        has_timeline_folder=stores[0][0].layout.has_timeline_folder if stores else None,
        types=table_types(
            ((info.path, True, name.is_cdc) for info, name in logs),
            deltas=any(i.action is Action.DELTACOMMIT for _, store in stores for i in store.load_files()),
            commits=any(_has_plain_commit(store) for _, store in stores),
        ),
        formats=frozenset("ORC" if is_orc(info.path) else "PARQUET" for info in bases),
        folders=frozenset(parent_folder(info.path) for info in infos),
        cdc=_cdc_mode(storage, logs),
        is_bootstrapped=any(_instant_of(info) in BOOTSTRAP_INSTANT_TIMES for info in bases),
        facts=facts,
    )


def _metadata_properties(data: bytes | None) -> Mapping[str, str]:
    """The metadata table's properties; {} if they are missing or damaged."""
    try:
        if data is not None:
            check_checksum(data)
        return {} if data is None else parse_properties(data)
    except CorruptData:
        return {}


def _instant_of(info: FileInfo) -> str | None:
    return parse_data_file_instant(info.name)


def _open_timeline(storage: Storage, location: _TimelineLocation) -> TimelineStore | None:
    """The timeline at a place; None where there is no instant."""
    if not any(parse_instant_file(info.name, location.layout) for info in storage.list(location.path).files):
        return None
    return TimelineStore(storage, location.path, location.layout, local_zone(), HistoryStore(storage, ""))


def _has_plain_commit(store: TimelineStore) -> bool:
    """Whether there is a commit that no compaction made."""
    done = (i for i in store.load_files() if i.action is Action.COMMIT and i.is_completed)
    return any(not read_commit(store, instant).operation.is_service for instant in done)


def _complete_indexes(metadata: Storage) -> Iterator[str]:
    """The partitions of the metadata table whose first files were written to the end."""
    stores = [store for location in _TIMELINE_LOCATIONS if (store := _open_timeline(metadata, location)) is not None]
    if not stores:
        return
    timeline = stores[0].load()
    for folder in metadata.list("").folders:
        times = {parse_data_file_instant(info.name) or "" for info in metadata.list(folder).files}
        first = {time for time in times if time.startswith(INIT_INSTANT_TIME)}
        if file_name(folder) != META_FOLDER and times - {""} and all(timeline.is_completed(time) for time in first):
            yield file_name(folder)


def _cdc_mode(storage: Storage, logs: list[tuple[FileInfo, LogFileName]]) -> CdcMode | None:
    for info, name in logs:
        if not name.is_cdc:
            continue
        for block in read_headers(storage, LogFile(info.path, name, info.size_bytes)):
            text = None if isinstance(block, CorruptBlock) else block.header(HeaderKey.SCHEMA)
            if text:
                held = set(avro_to_arrow(text).names)
                return (
                    CdcMode.DATA_BEFORE_AFTER
                    if "after" in held
                    else CdcMode.DATA_BEFORE
                    if "before" in held
                    else CdcMode.OP_KEY_ONLY
                )
    return None


def _check_rows(storage: Storage, engine: Engine, evidence: TableFacts, config: TableConfig) -> None:
    """Raises InvalidRequest where the properties make other keys or folders than rows have."""
    spec = storage.spec()
    tasks = [KeysTask(spec, fact.path, config.keys) for fact in evidence.facts if fact.damage is None and fact.has_meta]
    for fact in engine.map(run_keys, tasks):
        if fact.mismatch is not None:
            raise InvalidRequest(
                f"the properties do not fit the rows of {fact.path}: {fact.mismatch}; set the key fields, the partition fields "
                "and the key generator that the table had"
            )


def _store(storage: Storage, env: Environment, options: Options, config: TableConfig) -> None:
    context = TableContext(storage, env, config, open_lock(LockSettings.of(options, config.name), storage, env))
    with context.locked(CommitSettings.of(options).lock_wait_ms) as held:
        _check_missing(storage, env)
        data = format_checksummed_properties(dict(config.properties), format_updated_comments(env.now_ms()))
        held.storage.put(PROPERTIES_BACKUP, data)
        held.storage.put(PROPERTIES_FILE, data)
        held.storage.delete([PROPERTIES_BACKUP])


def _steps(inferred: Inferred, evidence: TableFacts) -> Iterator[RepairStep]:
    for key in sorted(inferred.values):
        finding = f"{key}={inferred.values[key]}"
        yield RepairStep(RepairKind.PROPERTIES, PROPERTIES_FILE, finding, f"source: {inferred.sources.get(key, 'given')}")
    for what in inferred.assumed_off:
        yield RepairStep(RepairKind.PROPERTIES, PROPERTIES_FILE, f"no file shows {what}", "the table has none until it is given")
    for fact in evidence.facts:
        if fact.damage is not None:
            yield RepairStep(RepairKind.PROPERTIES, fact.path, f"it cannot be read: {fact.damage}", "it tells nothing")
