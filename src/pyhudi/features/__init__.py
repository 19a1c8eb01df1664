"""Optional capabilities, one folder each.

CAPABILITIES has one line for each folder.  Removing a folder together with its line removes the capability; code that
needs it then raises Unsupported with its name.  Code outside of a folder uses only what the folder's `__init__` exports
(its registration point), and imports it through `load`, `find` or `public_function`.  The exception is
`consistent_hashing`, which the write path imports directly (docs/decisions/0022-package-layout.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from pyhudi.errors import Unsupported

CAPABILITIES = (
    "blob_reader",
    "bootstrap",
    "catalogs",
    "commit_callbacks",
    "consistent_hashing",
    "hbase_index",
    "ingestion",
    "metrics",
    "procedures",
    "recovery",
    "report",
    "validators",
    "vector_search",
)


def find(name: str) -> ModuleType | None:
    """Return the package of a capability, its registration point; None if this installation lacks it."""
    return import_module(f"{__name__}.{name}") if name in CAPABILITIES else None


def load(name: str, purpose: str) -> ModuleType:
    """Return the package of a capability, its registration point.

    Args:
        name: The folder.
        purpose: The feature that requires it; the error message begins with this text.

    Raises:
        Unsupported: This installation lacks it.
    """
    module = find(name)
    if module is None:
        raise Unsupported(f"{purpose} needs the capability {name}, which this installation of PyHudi lacks")
    return module


def public_function(name: str, attribute: str) -> Callable[..., Any]:
    """A function that a capability adds to the package `pyhudi`; without the capability one that raises Unsupported."""
    module = find(name)
    if module is not None:
        return getattr(module, attribute)  # type: ignore[no-any-return]

    def lacking(*_: object, **__: object) -> None:
        load(name, f"pyhudi.{attribute}")

    return lacking


def exports(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a capability's package.

    Args:
        package: Name of the package.
        names: The module that defines each attribute; it is imported on first use.
    """

    def get_attribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{names[name]}"), name)

    return get_attribute
