"""Restore `hoodie.properties` from data files: `pyhudi.restore_properties`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.features.recovery.restore_lost_properties import restore_properties as restore
from pyhudi.operations.admin.open_table import resolve_location
from pyhudi.operations.admin.repair import RepairResult
from pyhudi.options.scope import TABLE_OPERATIONS, check_call_options
from pyhudi.options.supported import parse_options
from pyhudi.options.write_options import THREADS
from pyhudi.storage import open_storage
from pyhudi.storage.environment import Environment, SystemEnvironment


def restore_properties(
    uri: str | os.PathLike[str],
    properties: Mapping[str, str] | None = None,
    *,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    environment: Environment | None = None,
) -> RepairResult:
    """Restore a missing or damaged `hoodie.properties` without backup from data files, or report what that requires.

    Record key, partition fields, table type and more are inferred from base files, names, instants and the metadata
    table, each only if it is unambiguous. Others, such as the ordering field and the merge rule, have to be given, and
    are verified against all rows as far as possible. All base files are read. Continue with `Table.repair` and
    `Table.validate`.

    Args:
        uri: Location of the table.
        properties: Properties that files do not determine, by key, e.g. `hoodie.table.precombine.field`; an empty text
            means that the table has none.
        dry_run: Change nothing.
        storage_options: Credentials and settings of the store, by the names that `docs/object-stores.md` lists.
        options: `hoodie.*` options of this call, such as those of the lock.
        environment: Clock, identifiers and sleep; those of this machine by default.

    Returns:
        Each property, and its evidence.

    Raises:
        TableExists: The properties, or their backup, are intact.
        TableNotFound: There are no data files.
        InvalidRequest: Required properties are missing, all of which are listed with the reason; or given ones
            contradict files.
    """
    storage, env = open_storage(*resolve_location(uri, storage_options)), environment or SystemEnvironment()
    parsed = parse_options(options)
    check_call_options(TABLE_OPERATIONS["repair"], parsed)
    return restore(storage, env, LocalEngine(parsed.integer(THREADS)), parsed, dict(properties or {}), dry_run=dry_run)
