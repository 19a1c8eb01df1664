"""Making `hoodie.properties` anew from what files say: `pyhudi.restore_properties`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.features.recovery.restore_lost_properties import restore_properties as restore
from pyhudi.operations.admin.repair import RepairResult
from pyhudi.operations.commit.commit_settings import THREADS
from pyhudi.options.scope import VERBS, check_call_options
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.environment import Environment, SystemEnvironment


def restore_properties(
    uri: str | os.PathLike[str],
    properties: Mapping[str, str] | None = None,
    *,
    dry_run: bool = True,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    environment: Environment | None = None,
) -> RepairResult:
    """Restore `hoodie.properties` from what files say, where it is gone or damaged and has no backup; or say what that takes.

    Record key, partition fields, table type and more are told by base files, names, instants and the metadata table,
    each only where nothing else fits. What they do not tell, the ordering field and the merge rule among them, has to be given,
    and is checked against all rows as far as these show it. All base files are read. `Table.repair` and `Table.validate` go on
    from there.

    Args:
        uri: Where the table lies.
        properties: Properties that files do not tell, by key, `hoodie.table.precombine.field` say; an empty text says that the
            table has none.
        dry_run: Change nothing.
        storage_options: Credentials and settings of the store, by the names that `docs/object-stores.md` lists.
        options: `hoodie.*` options of this call, such as those of the lock.
        environment: Clock, identifiers and sleep; those of this machine by default.

    Returns:
        Each property, and what tells it.

    Raises:
        TableExists: The properties, or their backup, are whole.
        TableNotFound: There are no data files.
        InvalidRequest: Something has to be given, all of which is named with its reason; or what was given contradicts files.
    """
    storage, env = open_storage(uri, storage_options), environment or SystemEnvironment()
    parsed = parse_options(options)
    check_call_options(VERBS["repair"], parsed)
    return restore(storage, env, LocalEngine(parsed.integer(THREADS)), parsed, dict(properties or {}), dry_run=dry_run)
