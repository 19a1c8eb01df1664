"""Opening a table by its place and options, and making one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pyarrow as pa

from pyhudi.operations.admin.create_table import check_new_table, create_table, name_from_uri
from pyhudi.operations.admin.option_consistency import check_against_table
from pyhudi.operations.admin.table_settings import NAME
from pyhudi.options.declaration import Options
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment, SystemEnvironment
from pyhudi.storage.locks import LockSettings, open_lock
from pyhudi.table.table_config import load_table_config
from pyhudi.table.table_context import TableContext


def open_context(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
    options: Options,
    environment: Environment | None = None,
) -> TableContext:
    """The table at a URI.  Reads `hoodie.properties` only.

    Raises TableNotFound; Unsupported for a version that cannot be read; InvalidRequest for options that contradict the table.
    """
    storage = open_storage(uri, storage_options)
    env = environment or SystemEnvironment()
    config = load_table_config(storage, env)
    check_against_table(options, config)
    return TableContext(storage, env, config, open_lock(LockSettings.of(options, config.name), storage, env))


def named_settings(storage: Storage, settings: Options) -> Options:
    """The settings of a new table with its name: the folder's, where they have none."""
    return settings if settings.given(NAME) is not None else settings.merged({NAME.key: name_from_uri(storage.uri)})


def make_table(storage: Storage, env: Environment, given: Options, settings: Options, schema: pa.Schema | None = None) -> None:
    """Make a table of `settings`: the options that were given, with what the arguments of the call add, and a name.

    Raises TableExists, InvalidRequest for settings that contradict each other, before anything is written.
    """
    check_new_table(given, settings, schema)
    open_lock(LockSettings.of(given, settings.word(NAME)), storage, env)
    create_table(storage, env, settings, schema)
