"""Save modes of Spark's DataFrame writers: rows, a path, a save mode and one mapping of options, for a table that may not exist.

    append           writes with the operation of the options; creates the table from the options if there is none
    overwrite        replaces the rows and columns of the table in one commit, and retains its configuration; with a
                     predicate, the rows of the partitions that match it
    errorifexists    fails if the table exists
    ignore           writes nothing if the table exists

The name of an operation that writes rows is mode append with that operation. A first write that fails, for example because
of invalid rows, leaves no table.

Source: docs/formats/writing.md, "Options against the table".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableExists, TableNotFound
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.operations.admin.create_table import discard_after_error, discard_new_table
from pyhudi.operations.admin.open_table import (
    existing_table_error,
    make_table,
    open_context,
    resolve_location,
    settings_with_name,
)
from pyhudi.operations.admin.option_consistency import check_against_table
from pyhudi.operations.admin.stored_settings import with_new_options, with_stored_options
from pyhudi.operations.catalog_sync.sync_table import check_sync
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.distributed_bulk_insert import DetachedWrite, supports_detached
from pyhudi.operations.write.micro_batches import StreamBatch
from pyhudi.operations.write.write_once import skip_if_committed
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings, check_first_write
from pyhudi.options.declaration import Options
from pyhudi.options.scope import check_table_options, spark_write_operation
from pyhudi.options.table_options import RECORD_KEY_FIELDS
from pyhudi.options.write_options import ONCE, OPERATION, PARTITIONS_TO_DELETE, SAVE_MODE
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.storage import open_storage
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.table.table_config import TableConfig, load_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.write_tasks import WriteStatus

_SAVE_MODES = {
    "append": "append",
    "overwrite": "overwrite",
    "error": "errorifexists",
    "errorifexists": "errorifexists",
    "ignore": "ignore",
}
_OPERATIONS = {
    str(operation): operation
    for operation in WriteOperation
    if operation not in (WriteOperation.DELETE, WriteOperation.DELETE_PARTITION)
}
MODES = (*_SAVE_MODES, *_OPERATIONS)
"""Save modes, and the operations that can be passed in their place."""

_RACES = 5
"""Attempts to open or create a table that other writers create or remove."""

PartitionPaths = Callable[[KeySpec], list[str]]
"""Returns the partition paths of the input rows, for a table configuration."""


@dataclass(frozen=True, slots=True)
class Save:
    """A save whose options, mode and columns have been checked.

    Attributes:
        uri: Location of the table.
        storage_options: Options of the storage.
        options: The options.
        context: The existing table; None if this save creates it.
        settings: Settings of the write.
        skipped: True for mode ignore and an existing table.
        mode: The save mode.
        call_options: Options of the call.
        columns: Columns of the rows.
        where: Predicate of the partitions that mode overwrite replaces; None for the whole table.
    """

    uri: str | os.PathLike[str]
    storage_options: Mapping[str, str] | None = field(repr=False)
    options: Options
    context: TableContext | None
    settings: WriteSettings
    skipped: bool
    mode: str
    call_options: Options
    columns: pa.Schema
    where: Filter | None = None

    @classmethod
    def planned(
        cls,
        uri: str | os.PathLike[str],
        mode: str,
        options: Options,
        storage_options: Mapping[str, str] | None,
        columns: pa.Schema,
        where: Filter | None = None,
    ) -> Save:
        """Check everything that can be refused before a table is created or a row is read.

        Args:
            uri: Location of the table.
            mode: Save mode, or the name of an operation.
            columns: Columns of the rows.
            where: Predicate of the partitions that mode overwrite replaces.

        Raises:
            TableExists: The table exists, and the mode is errorifexists.
            InvalidRequest: Options or columns are invalid for the table.
        """
        call = (mode, options, columns, where)
        mode, options = _save_mode(mode, options, where)
        uri, storage_options = resolve_location(uri, storage_options)
        existing: TableConfig | None = None
        with suppress(TableNotFound):
            existing = load_table_config(storage := open_storage(uri, storage_options))
        call_options = options
        options = with_new_options(options) if existing is None else with_stored_options(options, existing, storage.uri)
        if existing is not None and mode == "errorifexists":
            raise existing_table_error(uri, storage_options, options, "mode append adds to it")
        operation = _operation(options, columns, existing)
        check_table_options(spark_write_operation(operation), options)
        settings = replace(WriteSettings.of(options, operation), overwrite_where=where)
        if existing is not None and mode == "ignore":
            return cls(uri, storage_options, options, None, settings, True, *call)
        check_sync(settings.sync)
        if mode != "append" and operation in (WriteOperation.DELETE, WriteOperation.DELETE_PARTITION):
            raise InvalidRequest(f"{operation} requires mode append, not {mode}")
        if existing is None:
            check_first_write(os.fspath(uri), options, settings, columns)
            return cls(uri, storage_options, options, None, settings, False, *call)
        if mode == "overwrite" and operation is not WriteOperation.INSERT_OVERWRITE_TABLE:
            _check_same_table(uri, options, existing)
            settings = settings.overwriting()
        return cls(uri, storage_options, options, open_context(uri, storage_options, call_options), settings, False, *call)

    def run(self, engine: Engine, data: Any, partition_paths: PartitionPaths, batch: StreamBatch | None = None) -> WriteResult:
        """Write the rows.

        Args:
            data: The rows.
            partition_paths: Returns the partition paths of the rows.
            batch: The micro-batch of a stream that the rows belong to. A committed batch is not written again.

        Raises:
            WriteConflict: Other writers won.
            InvalidRequest: Rows are invalid for the table.
        """
        save, context = self._open_or_create()
        if context is None:
            return WriteResult(str(save.settings.operation), None, None)
        settings = save.settings if batch is None else replace(save.settings, once=batch)
        once, operation = settings.once, str(settings.operation)
        try:
            if settings.operation is WriteOperation.DELETE_PARTITION:
                paths = save.options.names(PARTITIONS_TO_DELETE) or partition_paths(context.config.keys)
                return skip_if_committed(context, once, operation, lambda: run_delete_partitions(context, paths, settings))
            return skip_if_committed(context, once, operation, lambda: run_write(context, engine, data, settings))
        except Exception as error:
            if save.context is None:
                _discard(context, settings, error)
            raise

    @property
    def supports_detached(self) -> bool:
        """True if another process can complete the write, see `begin`."""
        return not self.skipped and supports_detached(self.settings)

    def begin(self, engine: Engine, columns: pa.Schema) -> PendingSave:
        """Begin the write. Tasks of other processes supply rows with these columns and write them."""
        save, context = self._open_or_create()
        assert context is not None, "a bulk insert that skips existing tables is not detached"
        try:
            return PendingSave(DetachedWrite.begin(context, engine, columns, save.settings), save.context is None)
        except Exception as error:
            if save.context is None:
                _discard(context, save.settings, error)
            raise

    def _open_or_create(self) -> tuple[Save, TableContext | None]:
        """The table, which another writer may have created or removed since the save was planned, and the save for it;
        no table if the save is skipped.
        """
        save, failure = self, None
        for _ in range(_RACES):
            if save.skipped:
                return save, None
            try:
                return save, save._create_table() if save.context is None else save.context.reloaded()
            except (TableExists, TableNotFound) as error:
                failure = error
            save = Save.planned(save.uri, save.mode, save.call_options, save.storage_options, save.columns, save.where)
        assert failure is not None, "each attempt has failed"
        raise failure

    def _create_table(self) -> TableContext:
        storage, env = open_storage(self.uri, self.storage_options), SystemEnvironment()
        make_table(storage, env, self.options, settings_with_name(storage, self.options))
        return open_context(self.uri, self.storage_options, self.options, env)


@dataclass(frozen=True, slots=True)
class PendingSave:
    """A started save, see `Save.begin`.

    Attributes:
        write: The distributed bulk insert.
        creates_table: True if the table was created for it; a failure then removes the table.
    """

    write: DetachedWrite
    creates_table: bool

    def complete(self, engine: Engine, statuses: Sequence[WriteStatus]) -> WriteResult:
        """Commit what the tasks have written."""
        try:
            return self.write.complete(engine, statuses)
        except Exception as error:
            if self.creates_table:
                _discard(self.write.context, self.write.settings, error)
            raise

    def roll_back(self, engine: Engine) -> None:
        """Roll the write back, with all files that tasks have written."""
        self.write.roll_back(engine)
        if self.creates_table:
            discard_new_table(self.write.context, self.write.settings.commit.lock_wait_ms)


def stream_operation(options: Options, output_mode: str) -> WriteOperation | None:
    """Return the operation of each batch of a stream; None selects the table's default: upsert, or bulk_insert with
    generated keys.

    Raises:
        InvalidRequest: Streams do not support the operation or an option, or the output mode excludes it.
    """
    if options.explicit(ONCE) is not None:
        raise InvalidRequest(f"option {ONCE} identifies one write; each batch of a stream is committed once by its number")
    mode = output_mode.strip().lower()
    if mode not in ("append", "update", "complete"):
        raise InvalidRequest(f"output mode {output_mode!r} is not supported; use append, update or complete")
    explicit = options.explicit(OPERATION)
    operation = WriteOperation(explicit) if explicit is not None else None
    if operation is WriteOperation.DELETE_PARTITION:
        raise InvalidRequest("a stream cannot delete partitions; use Table.delete_partitions")
    if mode == "complete":
        if operation not in (None, WriteOperation.INSERT_OVERWRITE_TABLE):
            raise InvalidRequest(f"output mode complete replaces the table with each batch, which excludes operation {operation}")
        return WriteOperation.INSERT_OVERWRITE_TABLE
    return operation


def _discard(context: TableContext, settings: WriteSettings, error: Exception) -> None:
    """Remove the table that was created for a failed write."""
    discard_after_error(context, settings.commit.lock_wait_ms, error)


def mode_operation(mode: str) -> WriteOperation | None:
    """Return the operation that a mode names, None for a save mode. Raises InvalidRequest for an unknown mode."""
    word = mode.strip().lower()
    if word not in MODES:
        raise InvalidRequest(f"mode {mode!r} is unknown: choose from {', '.join(MODES)}")
    return _OPERATIONS.get(word)


def _save_mode(mode: str, options: Options, where: Filter | None) -> tuple[str, Options]:
    """Return the save mode, and the options with the operation that the mode or the predicate selects.

    Mode append, the default of Spark's writers, leaves the choice to the option.
    """
    operation, save_mode = mode_operation(mode), _SAVE_MODES.get(mode.strip().lower(), "append")
    named, explicit = options.explicit(SAVE_MODE), options.explicit(OPERATION)
    if named not in (None, save_mode) and (save_mode != "append" or operation is not None):
        raise InvalidRequest(f"mode {mode} contradicts option {SAVE_MODE}={named}")
    save_mode = named or save_mode
    if where is not None:
        if save_mode != "overwrite" and operation is not WriteOperation.INSERT_OVERWRITE:
            raise InvalidRequest(f"where= selects the partitions to replace and requires mode overwrite, not {mode}")
        save_mode, operation = "append", WriteOperation.INSERT_OVERWRITE
    if operation is None:
        return save_mode, options
    if explicit not in (None, str(operation)):
        by = f"mode {mode}" if where is None else f"mode {mode} with where="
        raise InvalidRequest(f"{by} contradicts option {OPERATION}={explicit}")
    return save_mode, options.merged({OPERATION.key: str(operation)})


def _check_same_table(uri: str | os.PathLike[str], options: Options, existing: TableConfig) -> None:
    try:
        check_against_table(options, existing)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"{error}; mode overwrite replaces the rows and columns of a table, not its configuration. For a "
            f"different table, delete the folder {open_storage(uri).uri} first, or write to another path."
        ) from error


def _operation(options: Options, columns: pa.Schema, existing: TableConfig | None) -> WriteOperation:
    explicit = options.explicit(OPERATION)
    if explicit is not None:
        return WriteOperation(explicit)
    named = options.text(RECORD_KEY_FIELDS) is not None or RECORD_KEY in columns.names
    if existing is not None:
        # Rows that carry the columns of a read update the rows that they name, as in Hudi.
        named = not existing.keys.generates_keys or {RECORD_KEY, PARTITION_PATH} <= set(columns.names)
    return WriteOperation.UPSERT if named else WriteOperation.BULK_INSERT
