"""Where the definitions of a table's indexes stand: read, and put back to the same place.

The property is relative to the table.  A writer that follows the public specification stores it with the table's own path, which
is another one once the table was moved: what ends as the usual place does is the usual place.  Definitions may also lie elsewhere
in the table or outside of it; the latter are read and not changed.

Source: docs/formats/metadata-table.md, "Index definitions".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.index_definitions import IndexDefinition, check_named_layout, format_index_definitions, parse_index_definitions
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE, file_name_of, folder_of
from pyhudi.storage.base import Storage
from pyhudi.storage.opening import open_storage
from pyhudi.storage.uris import Location, parse_uri
from pyhudi.table.config import INDEX_DEFINITIONS_PATH, store_table_config
from pyhudi.table.context import TableContext
from pyhudi.table.rewritten import read_when_whole


def load_index_definitions(context: TableContext) -> dict[str, IndexDefinition]:
    """The index definitions that the table's properties name; none without the property or the document.

    They are read once for each context: a step of an action goes by one state of them, as it does by one of the properties, and a
    lookup in an object store takes longer than all that is made of it.
    Raises CorruptData naming the file.
    """
    named = context.config.index_definitions_path
    if named is None:
        return {}
    known = context.known_definitions
    if named not in known:
        known[named] = read_when_whole(lambda: _read_definitions(context, named), context.env)
    return dict(known[named])


def _read_definitions(context: TableContext, named: str) -> dict[str, IndexDefinition]:
    storage, path = _place(context, named)
    data = storage.read(path)
    if data is None:
        return {}
    try:
        definitions = parse_index_definitions(data)
        if context.config.version.has_index_versions:
            for definition in definitions.values():
                check_named_layout(definition)
        return definitions
    except CorruptData as error:
        raise error.with_path(storage.absolute(path)) from error


def put_index_definitions(context: TableContext, definitions: Iterable[IndexDefinition]) -> None:
    """Store the definitions in place of what is there.  The caller holds the lock, and sees to the property.

    Raises Unsupported where they lie outside of the table.
    """
    storage, path = _place(context, context.config.index_definitions_path or INDEX_DEFINITIONS_FILE)
    if storage is not context.storage:
        raise Unsupported(
            f"{INDEX_DEFINITIONS_PATH} of {context.storage.uri} names {storage.absolute(path)}, outside of the table, and PyHudi "
            f"does not change definitions there; copy the file to {INDEX_DEFINITIONS_FILE} and let the property name that"
        )
    try:
        storage.put(path, format_index_definitions(definitions))
    finally:
        context.known_definitions.clear()


def store_definitions(context: TableContext, definitions: Mapping[str, IndexDefinition]) -> TableContext:
    """Store the index definitions, and name them in the properties.  The caller holds the lock."""
    put_index_definitions(context, definitions.values())
    return named_in_properties(context)


def named_in_properties(context: TableContext) -> TableContext:
    """The table with the property that names the definitions, which readers do not look for without it."""
    if context.config.index_definitions_path is not None:
        return context
    changes = {INDEX_DEFINITIONS_PATH: INDEX_DEFINITIONS_FILE}
    return replace(context, config=store_table_config(context.storage, changes, context.env))


def _place(context: TableContext, named: str) -> tuple[Storage, str]:
    """The storage that holds the document, and its path there."""
    storage = context.storage
    if named.endswith(INDEX_DEFINITIONS_FILE):
        return storage, INDEX_DEFINITIONS_FILE
    own = parse_uri(storage.uri)
    if named.startswith("/"):
        # A path without a scheme is one of the store in which the table lies.
        place = Location(own.scheme, own.authority, named.strip("/"))
    elif ":/" in named:
        place = parse_uri(named)
    else:
        return storage, named
    if place.key.startswith(f"{own.key}/"):
        return storage, place.key.removeprefix(f"{own.key}/")
    folder = replace(place, path=folder_of(place.path))
    return open_storage(replace(storage.spec(), uri=folder.uri)), file_name_of(place.path)
