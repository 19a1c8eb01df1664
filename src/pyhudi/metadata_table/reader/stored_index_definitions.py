"""Where the definitions of a table's indexes stand: read, and put back to the same place.

The property is relative to the table.  A writer that follows the public specification stores it with the table's own path, which
is another one once the table was moved: what ends as the usual place does is the usual place.  Definitions may also lie elsewhere
in the table or outside of it: in a store of the same kind, which is opened with the table's storage options, or in one of another
kind, opened with those of the environment.  There the table's lock keeps nobody away, so they are changed only where they still
are what this process has read.

Source: docs/formats/metadata-table.md, "Index definitions".
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
from pyhudi.storage.base import Storage
from pyhudi.storage.factory import open_storage
from pyhudi.storage.fault_injection import FAULT_OPTION
from pyhudi.storage.uris import Location, parse_uri
from pyhudi.table.retry_on_corrupt import retry_while_corrupt
from pyhudi.table.table_config import INDEX_DEFINITIONS_PATH, store_table_config
from pyhudi.table.table_context import TableContext


def load_index_definitions(context: TableContext) -> dict[str, IndexDefinition]:
    """The index definitions that the table's properties name; none without the property or the document.

    They are read once for each context: a step of an action goes by one state of them, as it does by one of the properties, and a
    lookup in an object store takes longer than all that is made of it.
    Raises CorruptData naming the file.
    """
    named = context.config.index_definitions_path
    if named is None:
        return {}
    known = context.index_definitions
    if named not in known:
        known[named] = retry_while_corrupt(lambda: _read_definitions(context, named), context.env)
    return dict(known[named])


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
    """Store the definitions in place of what is there.  The caller holds the lock, and sees to the property.

    Raises WriteConflict where they lie outside of the table and are not what `load_index_definitions` gave any more.
    """
    named = context.config.index_definitions_path or INDEX_DEFINITIONS_FILE
    storage, path = _place(context, named)
    content = format_index_definitions(definitions)
    try:
        if storage is context.storage:
            storage.put(path, content)
        else:
            _put_outside(context, storage, path, named, content)
    finally:
        context.index_definitions.clear()


def _put_outside(context: TableContext, storage: Storage, path: str, definitions_path: str, content: bytes) -> None:
    read = load_index_definitions(context)
    found = storage.read_versioned(path)
    # Another table that names the same file has a lock of its own.
    unchanged = (parse_index_definitions(found[0]) if found is not None else {}) == read
    landed = unchanged and (
        storage.put_if_absent(path, content) if found is None else storage.put_if_matches(path, content, found[1]) is not None
    )
    if not landed:
        raise WriteConflict(
            f"the index definitions at {storage.absolute(path)}, outside of {context.storage.uri} ({INDEX_DEFINITIONS_PATH}="
            f"{definitions_path}), were changed meanwhile by somebody who does not hold the table's lock; try again"
        )


def store_definitions(context: TableContext, definitions: Mapping[str, IndexDefinition]) -> TableContext:
    """Store the index definitions, and name them in the properties.  The caller holds the lock."""
    put_index_definitions(context, definitions.values())
    return with_definitions_property(context)


def with_definitions_property(context: TableContext) -> TableContext:
    """The table with the property that names the definitions, which readers do not look for without it."""
    if context.config.index_definitions_path is not None:
        return context
    changes = {INDEX_DEFINITIONS_PATH: INDEX_DEFINITIONS_FILE}
    return replace(context, config=store_table_config(context.storage, changes, context.env))


def _place(context: TableContext, definitions_path: str) -> tuple[Storage, str]:
    """The storage that holds the document, and its path there."""
    storage = context.storage
    if definitions_path.endswith(INDEX_DEFINITIONS_FILE):
        return storage, INDEX_DEFINITIONS_FILE
    own = parse_uri(storage.uri)
    if definitions_path.startswith("/"):
        # A path without a scheme is one of the store in which the table lies.
        place = Location(own.scheme, own.authority, definitions_path.strip("/"))
    elif ":/" in definitions_path:
        place = parse_uri(definitions_path)
    else:
        return storage, definitions_path
    if place.key.startswith(f"{own.key}/"):
        return storage, place.key.removeprefix(f"{own.key}/")
    folder = replace(place, path=parent_folder(place.path))
    spec = storage.spec()
    # Another kind of store has other options, and is not to be told the secrets of this one.
    options = spec.options if place.scheme == own.scheme else tuple(o for o in spec.options if o[0] == FAULT_OPTION)
    return open_storage(replace(spec, uri=folder.uri, options=options)), file_name(place.path)
