"""Changing what `hoodie.properties` says, where no file, instant or reader goes by it.

    name, database      `hoodie.table.name`, which ALTER TABLE ... RENAME TO of the real Hudi sets too, and `hoodie.database.name`
    one's own           any key that does not begin with `hoodie.` or `pyhudi.`: whose table it is, what it holds

Every other property says how files, keys, records or the timeline are laid out, and every writer and reader goes by what it read
when the table was opened: those are refused, with the verb that changes them if there is one.  The real Hudi's
ALTER TABLE ... SET TBLPROPERTIES changes the entry of the catalog alone, where a property that contradicts the table makes the
next write fail.

Source: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.errors import InvalidRequest
from pyhudi.format.properties import redact_secret
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.transaction import check_same_version
from pyhudi.options.supported import SUPPORTED
from pyhudi.storage.locks import LockSettings
from pyhudi.table.table_config import store_table_config
from pyhudi.table.table_context import TableContext

NAME_PROPERTY = "hoodie.table.name"
_DATABASE = "hoodie.database.name"
_TABLES_OWN = ("hoodie.", "pyhudi.")
_VERBS = {
    "hoodie.table.version": "Table.upgrade and Table.downgrade change it",
    "hoodie.table.metadata.partitions": "Table.index changes it",
    "hoodie.table.metadata.partitions.inflight": "Table.index changes it",
    "hoodie.table.create.schema": "Table.alter and writes change columns",
}


@observed("set_properties")
def run_set_properties(
    context: TableContext, changes: Mapping[str, str | None], settings: CommitSettings, lock: LockSettings
) -> dict[str, str | None]:
    """Set properties, or remove those whose value is None, all of them or none.

    Returns those that are other than before, with their new values.  Raises InvalidRequest for a property that defines the table,
    and for another name where the lock of the writers is named after the table; TableState for a table that has another version
    by now.
    """
    for key, value in changes.items():
        _check(key, value)
    check_writable(context, retains_indexes=False)
    with context.locked(settings.lock_wait_ms) as held:
        check_same_version(held)
        now = dict(held.reloaded().config.properties)
        changed = {key: value for key, value in changes.items() if now.get(key) != value}
        if NAME_PROPERTY in changed and lock.uses_table_name:
            raise InvalidRequest(
                f"the lock {lock.provider} has the name of the table, {now[NAME_PROPERTY]}, and writers that know another one "
                "would not meet there: give the lock a key of its own by its options first, to every writer"
            )
        if changed:
            store_table_config(held.storage, changed, context.env)
    return changed


def _check(key: str, value: str | None) -> None:
    if not key or key != key.strip():
        raise InvalidRequest(f"{key!r} is no name of a property: it is empty, or begins or ends with blanks")
    if key in (NAME_PROPERTY, _DATABASE):
        if key == NAME_PROPERTY and not value:
            raise InvalidRequest(f"{key} cannot be empty: every table has a name")
        return
    option = next((option for option in SUPPORTED.values() if key in option.all_names), None)
    if option is None and not key.startswith(_TABLES_OWN):
        return
    said = key if value is None else f"{key}={redact_secret(key, value)}"
    if key in _VERBS:
        raise InvalidRequest(f"property {said} cannot be set: {_VERBS[key]}")
    why = (
        "it defines what the files of a table hold and where they lie, and stays as the table was made with: write the rows to "
        "another table"
        if option is None or option.stored_as is not None
        else "it says how writes, reads or services are done, which no table keeps: give it to them with options="
    )
    raise InvalidRequest(
        f"property {said} cannot be set: {why}. What can be are {NAME_PROPERTY}, {_DATABASE}, and keys of your own, which do not "
        f"begin with {' or '.join(_TABLES_OWN)}"
    )
