"""Open a table by its location and options, or create one from them."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pyarrow as pa

from pyhudi.errors import TableExists, TableNotFound
from pyhudi.format.instants import Action
from pyhudi.format.paths import PROPERTIES_FILE
from pyhudi.operations.admin.create_table import check_new_table, create_table, name_from_uri
from pyhudi.operations.admin.foreign import check_no_foreign, describe_foreign
from pyhudi.operations.admin.option_consistency import check_against_table
from pyhudi.operations.admin.stored_settings import with_stored_options
from pyhudi.options.declaration import Options
from pyhudi.options.table_options import FORCE, NAME
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment, SystemEnvironment
from pyhudi.storage.locks import LockSettings, open_lock
from pyhudi.table.table_config import TableConfig, load_table_config
from pyhudi.table.table_context import TableContext


def open_context(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
    options: Options,
    environment: Environment | None = None,
) -> TableContext:
    """Open the table at a URI. Reads `hoodie.properties` only.

    The lock is that of the options, or of the options that the table stores.

    Raises:
        TableNotFound: There is no table.
        Unsupported: The table version is not supported.
        InvalidRequest: Options contradict the table.
    """
    storage = open_storage(uri, storage_options)
    env = environment or SystemEnvironment()
    config = load_config_or_describe(storage, env)
    check_against_table(options, config)
    lock_settings = LockSettings.of(with_stored_options(options, config), config.name)
    return TableContext(storage, env, config, open_lock(lock_settings, storage, env))


def load_config_or_describe(storage: Storage, env: Environment) -> TableConfig:
    """Load the properties of the table. Raises TableNotFound, which describes foreign content of the folder."""
    try:
        return load_table_config(storage, env)
    except TableNotFound as error:
        foreign_content = describe_foreign(storage)
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
        env: The environment.
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
        check_no_foreign(storage)
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
        storage_options: Options of the storage.
        options: Options of the call.
        instead: What to do with a table that has commits.
    """
    storage, env = open_storage(uri, storage_options), SystemEnvironment()
    config = load_table_config(storage, env)
    context = TableContext(storage, env, config, open_lock(LockSettings.of(options, config.name), storage, env))
    message = f"there is a Hudi table at {storage.uri} already"
    if any(instant.action is not Action.ROLLBACK for instant in context.timeline.load().instants):
        return TableExists(f"{message}; {instead}")
    return TableExists(
        f"{message}, without any commit: another process is about to write to it, or the process that created it "
        f"was stopped. If none is running, delete its folder .hoodie and call again; or, {instead}"
    )
