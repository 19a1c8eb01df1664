"""Open a table by its location and options, or create one from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice

import pyarrow as pa

from pyhudi import features
from pyhudi.errors import InvalidRequest, TableExists, TableNotFound
from pyhudi.format.instants import Action
from pyhudi.format.names import BASE_EXTENSIONS, parse_base_file, parse_log_file
from pyhudi.format.paths import META_FOLDER, PROPERTIES_FILE, file_name, join_path, split_path
from pyhudi.operations.admin.create_table import check_new_table, create_table, name_from_uri
from pyhudi.operations.admin.option_consistency import check_against_table
from pyhudi.operations.admin.stored_settings import stored_options, warn_of_unused_options, with_stored_options
from pyhudi.operations.commit.metrics_settings import with_metrics
from pyhudi.options.declaration import Options
from pyhudi.options.table_options import FORCE, NAME
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment, SystemEnvironment
from pyhudi.storage.locks import LockProvider, LockSettings, RefusedLock, open_lock, unconfigured_lock_options
from pyhudi.table.table_config import TableConfig, check_properties_not_lost, load_table_config
from pyhudi.table.table_context import TableContext

_MAX_INSPECTED_FILES = 200
"""Number of files that are checked in a folder."""

_DELTA, _ICEBERG = "_delta_log", "metadata"
_REMEDIES = {
    "a Delta Lake table": "Read it with deltalake, and write its rows to a Hudi table at another path",
    "an Iceberg table": "Read it with pyiceberg, and write its rows to a Hudi table at another path",
    "data files without a table": "pyhudi.bootstrap converts them to a table",
    "data files of a Hudi table without its folder .hoodie": "Restore that folder from a copy, or rebuild it with "
    "hp.restore_properties and then Table.repair",
}


def resolve_location(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> tuple[str | os.PathLike[str], Mapping[str, str] | None]:
    """Return location and storage options of a table: those of its catalog for a name such as `lake.sales.trips`.

    Every entry point that takes a path calls this once, so that `hp.write`, `hs.read` and others resolve names as `hp.open`.

    Raises:
        TableNotFound: The configuration has the catalog, and the catalog has no such table.
    """
    catalogs = features.find("catalogs") if isinstance(uri, str) and _maybe_name(uri) else None
    return (uri, storage_options) if catalogs is None else catalogs.locate(uri, storage_options)


def _maybe_name(uri: str) -> bool:
    return uri.count(".") == 2 and "/" not in uri and ":" not in uri


def open_context(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
    options: Options,
    environment: Environment | None = None,
) -> TableContext:
    """Open the table at a URI. Reads `hoodie.properties` only.

    The lock is that of the options, or of the options that the table stores and the caller accepts. Stored options that are
    not used are named by one warning.

    Raises:
        TableNotFound: There is no table.
        Unsupported: The table version is not supported.
        InvalidRequest: Options contradict the table.
        CorruptData: The table stores an illegal option.
    """
    storage = open_storage(*resolve_location(uri, storage_options))
    env = environment or SystemEnvironment()
    config = load_config_or_describe(storage, env)
    check_against_table(options, config)
    stored = with_stored_options(options, config, storage.uri)
    warn_of_unused_options(options, config, storage.uri)
    lock = open_table_lock(stored, config, storage, env)
    return with_metrics(TableContext(storage, env, config, lock), stored)


def open_table_lock(options: Options, config: TableConfig, storage: Storage, env: Environment) -> LockProvider:
    """Open the lock of an existing table.

    Args:
        options: Options of the caller, with the stored ones that apply.

    Returns:
        The lock that the options configure. If the table stores another lock, of which the options contain no part, a lock
        that refuses: the caller would write without excluding the writers that use the stored lock.
    """
    missing = unconfigured_lock_options(options, stored_options(config))
    if missing:
        return RefusedLock(storage.uri, missing)
    return open_lock(LockSettings.of(options, config.name), storage, env)


def load_config_or_describe(storage: Storage, env: Environment) -> TableConfig:
    """Load the properties of the table.

    Raises:
        TableNotFound: There is no table; the error describes foreign content of the folder.
        TableState: The properties of a table are lost.
    """
    try:
        return load_table_config(storage, env)
    except TableNotFound as error:
        check_properties_not_lost(storage)
        foreign_content = _describe_foreign(storage)
        if foreign_content is None:
            raise
        kind, remedy = foreign_content
        raise TableNotFound(f"there is no Hudi table at {storage.uri}: the folder holds {kind}. {remedy}") from error


def settings_with_name(storage: Storage, settings: Options) -> Options:
    """Return the settings of a new table with a name: by default that of the folder."""
    return settings if settings.explicit(NAME) is not None else settings.merged({NAME.key: name_from_uri(storage.uri)})


def make_table(
    storage: Storage, env: Environment, user_options: Options, settings: Options, schema: pa.Schema | None = None
) -> None:
    """Create a table.

    Args:
        storage: The storage of the table.
        user_options: Options of the caller.
        settings: These options with the arguments of the call and a name.
        schema: Its columns.

    Raises:
        TableExists: There is a table.
        InvalidRequest: Settings contradict each other, or the folder contains a table of another format or foreign data
            files. Nothing was written.
    """
    check_new_table(user_options, settings, schema)
    # If there is a Hudi table, its creation reports that.
    if not settings.flag(FORCE) and storage.stat(PROPERTIES_FILE) is None:
        _check_no_foreign(storage)
    open_lock(LockSettings.of(user_options, settings.value_or_default(NAME)), storage, env)
    create_table(storage, env, settings, schema)


def existing_table_error(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None, options: Options, instead: str
) -> TableExists:
    """Return the error for a write that is to create a table where one exists.

    A process that was stopped between creating a table and its first commit leaves a table without commits. It cannot
    be distinguished from one that another process is about to write to, so the user has to remove it.

    Args:
        uri: Location of the table.
        options: Options of the call.
        instead: What to do with a table that has commits.
    """
    storage, env = open_storage(uri, storage_options), SystemEnvironment()
    config = load_table_config(storage, env)
    context = TableContext(storage, env, config, open_table_lock(options, config, storage, env))
    message = f"there is a Hudi table at {storage.uri} already"
    if any(instant.action is not Action.ROLLBACK for instant in context.timeline.load().instants):
        return TableExists(f"{message}; {instead}")
    return TableExists(
        f"{message}, without any commit: another process is about to write to it, or the process that created it "
        f"was stopped. If none is running, delete its folder and call again; or, {instead}"
    )


def _describe_foreign(storage: Storage) -> tuple[str, str] | None:
    """Describe a table of another format, or data files of other programs, and what to do with it; None without any."""
    foreign_file = _find_foreign(storage)
    return None if foreign_file is None else (foreign_file, _REMEDIES[foreign_file])


def _check_no_foreign(storage: Storage) -> None:
    """Raise InvalidRequest if a folder for a new table contains foreign files."""
    foreign_content = _describe_foreign(storage)
    if foreign_content is not None:
        check_properties_not_lost(storage)
        kind, remedy = foreign_content
        raise InvalidRequest(
            f"cannot create a Hudi table at {storage.uri}: the folder holds {kind}. {remedy}; or create it with {FORCE}=true"
        )


def _find_foreign(storage: Storage) -> str | None:
    folders = {file_name(folder) for folder in storage.list("").folders}
    if _DELTA in folders and any(info.name.endswith(".json") for info in storage.list(_DELTA).files):
        return "a Delta Lake table"
    if _ICEBERG in folders and any(info.name.endswith(".metadata.json") for info in storage.list(_ICEBERG).files):
        return "an Iceberg table"
    extensions = tuple(BASE_EXTENSIONS.values())
    for info in islice(storage.walk(""), _MAX_INSPECTED_FILES):
        if info.path.startswith(f"{META_FOLDER}/"):
            continue
        if parse_base_file(info.name) is not None or parse_log_file(info.name) is not None:
            if not _is_in_nested_table(storage, info.path):
                return "data files of a Hudi table without its folder .hoodie"
        elif info.name.endswith(extensions):
            return "data files without a table"
    return None


def _is_in_nested_table(storage: Storage, path: str) -> bool:
    """Return True if a folder on the way to a file is another Hudi table."""
    parts = split_path(path)[:-1]
    return any(storage.stat(join_path(*parts[:count], PROPERTIES_FILE)) is not None for count in range(1, len(parts) + 1))
