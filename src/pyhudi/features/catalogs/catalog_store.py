"""Interface of the stores of catalogs, and what they store.

Names are compared without regard to case. Errors of every method: StorageUnavailable, no response or the database is
busy; InvalidRequest, the database refuses the request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pyhudi.errors import InvalidRequest
from pyhudi.sql_engine.sql_ast import FORMATS

T = TypeVar("T")
Reference = str | Mapping[str, str]
"""A text, or a reference to an environment variable: `{"env": "NAME"}`."""

_NAME = re.compile(r"\w[\w-]{0,199}")


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table of a catalog.

    Attributes:
        namespace: Namespace of the table.
        name: Name within the namespace.
        location: Path or URI of the table.
        storage_options: Options of the object store. A secret is a reference, `{"env": "NAME"}`.
        profile: Profile of the configuration with further storage options; None for that of the catalog.
        properties: Texts of your own.
    """

    namespace: str
    name: str
    location: str
    storage_options: Mapping[str, Reference] = field(default_factory=dict, repr=False)
    profile: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


class CatalogStore(Protocol):
    """Namespaces and tables."""

    def namespaces(self) -> list[str]:
        """Return all namespaces, sorted."""

    def namespace_properties(self, namespace: str) -> Mapping[str, str] | None:
        """Return the properties of a namespace; None if it does not exist."""

    def create_namespace(self, namespace: str, properties: Mapping[str, str]) -> None:
        """Create a namespace. Raises TableExists if it exists."""

    def drop_namespace(self, namespace: str) -> bool:
        """Remove a namespace, and return whether it existed. Raises InvalidRequest if it has tables."""

    def tables(self, namespace: str) -> list[str]:
        """Return the names of the tables of a namespace, sorted."""

    def entry(self, namespace: str, name: str) -> TableEntry | None:
        """Return a table; None if it does not exist."""

    def add(self, entry: TableEntry, create: Callable[[], T]) -> T:
        """Add a table, and call `create` while no other process can add the name. Without a result nothing is added.

        Raises:
            TableExists: The name exists.
            InvalidRequest: The namespace does not exist.
        """

    def remove(self, entry: TableEntry) -> bool:
        """Remove a table unless its name has another location by now, and return whether it was removed."""

    def rename(self, entry: TableEntry, namespace: str, name: str) -> None:
        """Rename a table. Raises TableExists, or TableNotFound, or InvalidRequest for a missing namespace."""


def check_name(kind: str, name: str) -> str:
    """Return a name of a catalog, namespace or table. Raises InvalidRequest for one that no statement can use."""
    if not is_name(name):
        raise InvalidRequest(
            f"{kind} {name!r} is not a name: use letters, digits, _ and -, at most 200, and none of {', '.join(FORMATS)}"
        )
    return name


def is_name(text: str) -> bool:
    """Return True for a text that a catalog, namespace or table can have as its name."""
    return _NAME.fullmatch(text) is not None and text.lower() not in FORMATS
