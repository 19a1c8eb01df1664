"""Check URIs that a table's own files contain: they open no connection that the caller's URI does not name.

Bootstrapped tables name their source files, and a table property may name a file of index definitions.
"""

from __future__ import annotations

import os
from pathlib import PurePath

from pyhudi.errors import Unsupported
from pyhudi.storage.base import StorageSpec
from pyhudi.storage.symbolic_links import parse_link_roots
from pyhudi.storage.uris import Location, parse_uri


def check_same_store(uri: str, table: StorageSpec, description: str) -> Location:
    """Return the location of a URI.

    Args:
        uri: A URI from a file of the table.
        table: Storage of the table.
        description: Names the file, for the error.

    Raises:
        Unsupported: Its scheme, host or bucket are not those of the table.
    """
    location, own = parse_uri(uri), parse_uri(table.uri)
    if _store(location) != _store(own):
        raise Unsupported(
            f"{description} of the table at {table.uri} is {uri}, in another store. PyHudi opens only the store of the URI that "
            "the caller passes"
        )
    return location


def check_admitted(location: Location, table: StorageSpec, description: str) -> None:
    """Raise Unsupported for a local file outside of the table's folder and the folders of `link_roots`."""
    roots = (parse_uri(table.uri).file_path, *(parse_link_roots(dict(table.options).get("link_roots")) or ()))
    target = PurePath(os.path.realpath(location.file_path))
    if not any(target.is_relative_to(os.path.realpath(root)) for root in roots):
        raise Unsupported(
            f"{description} of the table at {table.uri} is {target}, outside of the table. Move it into the table, or open the "
            f"table with the storage option link_roots={str(target.parent)!r}"
        )


def check_source(uri: str, table: StorageSpec, description: str) -> None:
    """Check the URI of a file that holds rows of the table, as `check_same_store` and, with `link_roots`, `check_admitted`."""
    location = check_same_store(uri, table, description)
    if location.scheme == "file" and "link_roots" in dict(table.options):
        check_admitted(location, table, description)


def _store(location: Location) -> str:
    return Location(location.scheme, location.authority, "").key
