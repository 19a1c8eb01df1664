"""Change entries of `hoodie.properties` that no file, instant or reader depends on.

    name, database      `hoodie.table.name`, which Hudi's ALTER TABLE ... RENAME TO sets too, and `hoodie.database.name`
    user properties     any key that does not begin with `hoodie.` or `pyhudi.`: for example owner or description
    options             options of reads, writes and services, which the table stores as defaults (`stored_settings`)

Every other property defines the layout of files, keys, records or the timeline, and writers and readers use the values
that they read when they opened the table. Changes of those are refused; the error names the operation that makes the
change, if there is one. Hudi's ALTER TABLE ... SET TBLPROPERTIES changes only the catalog entry, where a property that
contradicts the table makes the next write fail.

Source: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.errors import InvalidRequest
from pyhudi.format.properties import redact_secret
from pyhudi.operations.admin.stored_settings import check_default
from pyhudi.operations.commit.begin_checks import check_same_version
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.options.declaration import settings_options
from pyhudi.options.scope import TABLE_OPTIONS
from pyhudi.options.supported import SUPPORTED, check_storable_option, no_effect_reason, storable_option
from pyhudi.options.table_options import (
    CREATE_SCHEMA,
    DATABASE,
    DEFAULT_PREFIX,
    METADATA_INFLIGHT,
    METADATA_PARTITIONS,
    NAME,
    OPTION_PREFIX,
    VERSION,
)
from pyhudi.storage.locks import LockSettings
from pyhudi.table.table_config import store_table_config
from pyhudi.table.table_context import TableContext

NAME_PROPERTY = NAME.stored_as
_DATABASE = DATABASE.stored_as
_RESERVED_PREFIXES = ("hoodie.", "pyhudi.")
_LOCK_OPTIONS = settings_options(LockSettings)
_METHOD_FOR_PROPERTY = {
    VERSION.stored_as: "use Table.upgrade or Table.downgrade",
    METADATA_PARTITIONS.stored_as: "Table.index changes it",
    METADATA_INFLIGHT.stored_as: "Table.index changes it",
    CREATE_SCHEMA.stored_as: "use Table.alter, or a write that changes columns",
}


@observed("set_properties")
def run_set_properties(
    context: TableContext, changes: Mapping[str, str | None], settings: CommitSettings, lock: LockSettings
) -> dict[str, str | None]:
    """Set properties, or remove those whose value is None, in one atomic change.

    Returns:
        The properties that changed, with their new values.

    Raises:
        InvalidRequest: A property defines the table, or the name of a table changes that the lock of its writers is
            named after.
        TableState: The table's version changed since it was opened.
    """
    changes = dict(_stored(key, value) for key, value in changes.items())
    check_writable(context, retains_indexes=False)
    with context.locked(settings.lock_wait_ms) as locked:
        check_same_version(locked)
        now = dict(locked.reloaded().config.properties)
        changed = {key: value for key, value in changes.items() if now.get(key) != value}
        if NAME_PROPERTY in changed and lock.uses_table_name:
            raise InvalidRequest(
                f"the lock {lock.provider} is named after the table, {now[NAME_PROPERTY]}; writers with another table "
                "name would use another lock. First set an explicit lock key in the options of every writer."
            )
        if changed:
            store_table_config(locked.storage, changed, context.env)
    return changed


def _stored(key: str, value: str | None) -> tuple[str, str | None]:
    """The property as stored: options have a prefix. Raises InvalidRequest for properties that cannot change."""
    bare = key.removeprefix(OPTION_PREFIX)
    option = next((option for option in SUPPORTED.values() if bare in option.all_names), None)
    if value is None and key.startswith(OPTION_PREFIX) and option not in _LOCK_OPTIONS:
        # A property of another program can be removed.
        return OPTION_PREFIX + (bare if option is None else option.key), None
    if option is None or option in TABLE_OPTIONS or option.stored_as:
        if not key.startswith(DEFAULT_PREFIX):
            _check(key, value)
        elif value is not None:
            check_default(key, value)
        return key, value
    if option in _LOCK_OPTIONS:
        raise InvalidRequest(
            f"property {key} cannot be set: running writers would use another lock. Pass lock options to every writer with "
            "options=, or set them when the table is created."
        )
    check_storable_option(option)
    if value is None:
        return OPTION_PREFIX + option.key, None
    name, checked = storable_option(bare, value)
    return OPTION_PREFIX + name, checked


def _check(key: str, value: str | None) -> None:
    if not key or key != key.strip():
        raise InvalidRequest(f"{key!r} is not a valid property name: it is empty, or begins or ends with blanks")
    if key in (NAME_PROPERTY, _DATABASE):
        if key == NAME_PROPERTY and not value:
            raise InvalidRequest(f"{key} cannot be empty: every table has a name")
        return
    option = next((option for option in SUPPORTED.values() if key in option.all_names), None)
    if option is None and not key.startswith(_RESERVED_PREFIXES):
        return
    assignment = key if value is None else f"{key}={redact_secret(key, value)}"
    if key in _METHOD_FOR_PROPERTY:
        raise InvalidRequest(f"property {assignment} cannot be set: {_METHOD_FOR_PROPERTY[key]}")
    if option is None and key.startswith("hoodie.") and no_effect_reason(key) is not None:
        return
    why = "it defines the content or layout of the table's files, which is fixed at creation; write the rows to another table"
    raise InvalidRequest(
        f"property {assignment} cannot be set: {why}. Allowed are options of reads, writes and services, {NAME_PROPERTY}, "
        f"{_DATABASE}, and keys that do not begin with {' or '.join(_RESERVED_PREFIXES)}."
    )
