"""Bootstrap: create a table over existing Parquet or ORC files (`pyhudi.bootstrap`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.features.bootstrap.bootstrap_operation import BootstrapSettings, BootstrapTarget, run_bootstrap
from pyhudi.features.bootstrap.plan_bootstrap import parse_bootstrap_mode
from pyhudi.operations.admin.create_table import name_from_uri
from pyhudi.operations.admin.open_table import resolve_location
from pyhudi.operations.admin.table_settings import with_table_arguments, with_table_settings
from pyhudi.operations.commit.results import BootstrapResult
from pyhudi.options.bootstrap_options import MODE_SELECTOR
from pyhudi.options.declaration import Options
from pyhudi.options.scope import TABLE_OPERATIONS, check_call_options
from pyhudi.options.supported import parse_options
from pyhudi.options.table_options import BOOTSTRAP_BASE_PATH, NAME
from pyhudi.options.write_options import THREADS
from pyhudi.storage import open_storage
from pyhudi.storage.environment import Environment, SystemEnvironment
from pyhudi.storage.locks import LockSettings, open_lock
from pyhudi.storage.uris import absolute_path
from pyhudi.tasks.engine_protocol import Engine

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession


def bootstrap(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    record_key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    ordering: str | Sequence[str] | None = None,
    table_type: str | None = None,
    name: str | None = None,
    mode: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    spark: SparkSession | None = None,
    environment: Environment | None = None,
) -> BootstrapResult:
    """Create a table over the Parquet files below a folder, or, with `hoodie.table.base.file.format=ORC`, the ORC files.

    The files are not changed. By default they also keep holding their rows: the table has small files with keys, and
    joins both. The first change of a file group rewrites it completely. If another process changes a source file later,
    reading it raises an error. After a crash, repeat the same call.

    Args:
        source: The folder.  The folders below it are the table's partitions.
        target: Location of the table: outside of the source, and in the same store.
        record_key: Columns that identify a record.
        partition_by: Columns, one for each level of folders.  Columns that the files lack are read from the folders:
                                                               whole numbers
            if all values are written as such, text otherwise.
        ordering: The column whose larger value is the newer record.
        table_type: `cow` (default) or `mor`.
        name: The table's name; by default the target folder's.
        mode: `metadata_only` (default), or `full_record`, which writes all rows to the table.  The option
            `hoodie.bootstrap.mode.selector` chooses by partition.
        storage_options: Credentials and settings of the store, by the names that `docs/object-stores.md` lists.
        options: `hoodie.*` options: those of a new table, and of `hoodie.bootstrap.`.
        spark: A session on which the files are read and written; None for threads of this process.
        environment: Clock, identifiers and sleep; those of this machine by default.

    Returns:
        What the table was created from.

    Raises:
        TableExists: There is a table at the target.
        InvalidRequest: The files cannot become a table: keys that are null, types that Hudi cannot hold, folders that
            do not fit the partition columns.  Nothing is left at the target.
        Unsupported: There are files of another format, or the options require an unsupported feature.
    """
    storage, env = open_storage(*resolve_location(target, storage_options)), environment or SystemEnvironment()
    base_path = _absolute(source)
    given = with_table_arguments(
        parse_options(options),
        name=name,
        record_key=record_key,
        partition_by=partition_by,
        ordering=ordering,
        table_type=table_type,
    )
    given = with_table_settings(
        given, {MODE_SELECTOR: parse_bootstrap_mode(mode) if mode else None, BOOTSTRAP_BASE_PATH: base_path}
    )
    check_call_options(TABLE_OPERATIONS["pyhudi.bootstrap"], given)
    if given.explicit(NAME) is None:
        given = given.merged({NAME.key: name_from_uri(storage.uri)})
    # Only a bootstrap sets this property; a creation must not accept it from a caller.
    table = Options(tuple(pair for pair in given.values if pair[0] != BOOTSTRAP_BASE_PATH.key), given.extra)
    lock = open_lock(LockSettings.of(given, given.value_or_default(NAME)), storage, env)
    destination = BootstrapTarget(storage, env, lock, table)
    folder = open_storage(base_path, storage_options)
    return run_bootstrap(destination, folder, base_path, _engine(spark, given), BootstrapSettings.of(given))


def _engine(spark: SparkSession | None, options: Options) -> Engine:
    if spark is None:
        return LocalEngine(options.integer(THREADS))
    from pyhudi.engines.spark.engine import SparkEngine

    return SparkEngine(spark)


def _absolute(source: str | os.PathLike[str]) -> str:
    """The folder as the table names it, wherever it is read from."""
    text = os.fspath(source).rstrip("/")
    return text if "://" in text or text.startswith("file:") else absolute_path(os.path.expanduser(text))
