"""Plug-ins: rules of a user's own, which tables and options know by the name of a class or by an id.

    by call        register_merger, register_payload, register_compaction_strategy, register_clustering_strategy,
                   register_time_generator
    installed      an entry point of the group `pyhudi.plugins` names a function without arguments that makes such calls; it is
                   called once in a process, before a name that nobody has registered is refused
    by module      load_plugin("my.module"), or `pyhudi --plugin my.module ...`: the module is imported, and makes the calls

What a table says never imports code: it names what somebody else has registered.  Functions that check such a rule are in
`pyhudi.testing`.
"""

from __future__ import annotations

import threading
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from pyhudi.errors import InvalidRequest

GROUP = "pyhudi.plugins"
"""The group of entry points."""

T = TypeVar("T")
_mutex = threading.RLock()
_loaded: set[str] = set()


class Registry(Generic[T]):
    """Rules of one kind by name.  kind: what they are, for messages."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._known: dict[str, T] = {}

    def register(self, name: str, rule: T) -> None:
        """Make a rule known in this process; a later one replaces an earlier one.  Raises InvalidRequest without a name."""
        if not name:
            raise InvalidRequest(f"a {self._kind} needs a name to be known by")
        with _mutex:
            self._known[name] = rule

    def find(self, name: str) -> T | None:
        """The rule of a name; None when neither a call nor an installed plug-in has registered one."""
        with _mutex:
            if name not in self._known:
                _load_installed()
            return self._known.get(name)


def load_plugin(module: str) -> None:
    """Import a module that registers rules.  Raises InvalidRequest when there is no such module."""
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise InvalidRequest(f"plug-in {module} is not a module that can be imported here") from error


def _load_installed() -> None:
    for entry in entry_points(group=GROUP):
        if entry.value not in _loaded:
            _loaded.add(entry.value)
            entry.load()()
