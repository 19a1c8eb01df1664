"""Optional capabilities, one folder each.

CAPABILITIES has one line for each folder.  Removing a folder together with its line removes the capability; what needs it then
raises Unsupported and names it.  Code outside of a folder reaches it through `load` alone, and gets what the folder's `__init__`
exports: that is its one registration point.
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
    """The registration point of a capability, None where this installation lacks it."""
    return import_module(f"{__name__}.{name}") if name in CAPABILITIES else None


def load(name: str, purpose: str) -> ModuleType:
    """The registration point of a capability.

    Args:
        name: The folder.
        purpose: What needs it, as the beginning of the message.

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


def export(package: str, names: Mapping[str, str], name: str) -> Any:
    """An attribute of a capability's package: `names` maps it to the module that defines it, which is imported on first use."""
    if name not in names:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(f"{package}.{names[name]}"), name)
