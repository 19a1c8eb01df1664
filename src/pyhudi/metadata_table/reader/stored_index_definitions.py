"""Loading and storing of a table's index definitions. Format: docs/formats/metadata-table.md, "Index definitions".

The property with their path is relative to the table. Writers that follow the public specification store it with the
table's own path, which is outdated after the table is moved. A path that ends like the default location is therefore
the default location.

Definitions may also be stored elsewhere in the table or outside of it, in the store of the table. A local file outside
of it must be in a folder of the storage option `link_roots`. Outside of the table its lock does not exclude other
writers, so a change requires that the content still equals what this process has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyhudi.errors import CorruptData, WriteConflict
from pyhudi.format.index_definitions import (
    IndexDefinition,
    check_declares_layout,
    format_index_definitions,
    parse_index_definitions,
)
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE, file_name, parent_folder
from pyhudi.options.table_options import INDEX_DEFINITIONS_PATH
from pyhudi.storage.base import Storage
from pyhudi.storage.factory import open_storage
from pyhudi.storage.outside_names import check_admitted, check_same_store
from pyhudi.storage.uris import Location, parse_uri
from pyhudi.table.retry_on_corrupt import retry_while_corrupt
from pyhudi.table.table_config import store_table_config
from pyhudi.table.table_context import TableContext


def load_index_definitions(context: TableContext) -> dict[str, IndexDefinition]:
    """Load the index definitions that the table's properties refer to; empty without the property or the document.

    They are read once per context: a step of an action uses one state of them, and a lookup in an object store is slow.

    Raises:
        CorruptData: The document is damaged; the error contains its path.
    """
    path = context.config.index_definitions_path
    if path is None:
        return {}
    cache = context.index_definitions
    if path not in cache:
        cache[path] = retry_while_corrupt(lambda: _read_definitions(context, path), context.env)
    return dict(cache[path])


def _read_definitions(context: TableContext, definitions_path: str) -> dict[str, IndexDefinition]:
    storage, path = _place(context, definitions_path)
    data = storage.read(path)
    if data is None:
        return {}
    try:
        definitions = parse_index_definitions(data)
        if context.config.version.has_index_versions:
            for definition in definitions.values():
                check_declares_layout(definition)
        return definitions
    except CorruptData as error:
        raise error.with_path(storage.absolute(path)) from error


def put_index_definitions(context: TableContext, definitions: Iterable[IndexDefinition]) -> None:
    """Replace the stored definitions. The caller holds the lock and updates the property.

    Raises:
        WriteConflict: They are stored outside of the table and differ from the result of `load_index_definitions`.
    """
    definitions_path = context.config.index_definitions_path or INDEX_DEFINITIONS_FILE
    storage, path = _place(context, definitions_path)
    content = format_index_definitions(definitions)
    try:
        if storage is context.storage:
            storage.put(path, content)
        else:
            _put_outside(context, storage, path, definitions_path, content)
    finally:
        context.index_definitions.clear()


def _put_outside(context: TableContext, storage: Storage, path: str, definitions_path: str, content: bytes) -> None:
    loaded = load_index_definitions(context)
    stored = storage.read_versioned(path)
    # Another table that refers to the same file has its own lock.
    unchanged = (parse_index_definitions(stored[0]) if stored is not None else {}) == loaded
    written = unchanged and (
        storage.put_if_absent(path, content) if stored is None else storage.put_if_matches(path, content, stored[1]) is not None
    )
    if not written:
        raise WriteConflict(
            f"cannot store the index definitions at {storage.absolute(path)}, outside of {context.storage.uri} "
            f"({INDEX_DEFINITIONS_PATH.stored_as}={definitions_path}): they were changed concurrently by a writer "
            "without the table's "
            f"lock; try again"
        )


def store_definitions(context: TableContext, definitions: Mapping[str, IndexDefinition]) -> TableContext:
    """Store the index definitions and set the property with their path. The caller holds the lock."""
    put_index_definitions(context, definitions.values())
    return with_definitions_property(context)


def add_definition(context: TableContext, definition: IndexDefinition) -> TableContext:
    """Store a definition with the others; one of the same name is replaced. The caller holds the lock."""
    return store_definitions(context, {**load_index_definitions(context), definition.name: definition})


def with_definitions_property(context: TableContext) -> TableContext:
    """Set the property with the path of the definitions if it is missing; readers need it to find them."""
    if context.config.index_definitions_path is not None:
        return context
    changes = {INDEX_DEFINITIONS_PATH.stored_as: INDEX_DEFINITIONS_FILE}
    return replace(context, config=store_table_config(context.storage, changes, context.env))


def _place(context: TableContext, definitions_path: str) -> tuple[Storage, str]:
    """The storage that holds the document, and its path there."""
    storage = context.storage
    if definitions_path.endswith(INDEX_DEFINITIONS_FILE):
        return storage, INDEX_DEFINITIONS_FILE
    table_location = parse_uri(storage.uri)
    if definitions_path.startswith("/"):
        # A path without a scheme belongs to the table's own store.
        location = Location(table_location.scheme, table_location.authority, definitions_path.strip("/"))
    elif ":/" in definitions_path:
        location = check_same_store(definitions_path, storage.spec(), INDEX_DEFINITIONS_PATH.stored_as)
    else:
        return storage, definitions_path
    if location.key.startswith(f"{table_location.key}/"):
        return storage, location.key.removeprefix(f"{table_location.key}/")
    folder, spec = replace(location, path=parent_folder(location.path)), storage.spec()
    if location.scheme == "file":
        check_admitted(location, spec, INDEX_DEFINITIONS_PATH.stored_as)
    return open_storage(replace(spec, uri=folder.uri)), file_name(location.path)
