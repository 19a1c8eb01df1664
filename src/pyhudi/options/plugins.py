"""Plug-ins: user-defined rules (mergers, payloads, strategies, time generators), referenced by class name or id.

    by call        register_merger, register_payload, register_compaction_strategy, register_clustering_strategy,
                   register_time_generator
    installed      an entry point of the group `pyhudi.plugins` refers to a function without arguments that makes such
                   calls; it is called once per process, before an unregistered name is refused
    by module      load_plugin("my.module"), or `pyhudi --plugin my.module ...`: the module is imported, and makes the
                   calls

Table properties never import code: they refer to registered names. `pyhudi.testing` contains checks for such rules.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from pyhudi.errors import InvalidRequest

GROUP = "pyhudi.plugins"
"""The entry point group."""

T = TypeVar("T")
_mutex = threading.RLock()
_loaded: set[str] = set()


class Registry(Generic[T]):
    """Rules of one kind by name. kind: description of the rules, for messages."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._known: dict[str, T] = {}

    def register(self, name: str, rule: T) -> None:
        """Register a rule in this process; a later one replaces an earlier one. Raises InvalidRequest for an empty name."""
        if not name:
            raise InvalidRequest(f"cannot register a {self._kind}: the name is empty")
        with _mutex:
            self._known[name] = rule

    def find(self, name: str) -> T | None:
        """Return the rule of a name; None if neither a call nor an installed plug-in has registered one."""
        with _mutex:
            if name not in self._known:
                _load_installed()
            return self._known.get(name)

    def names(self) -> tuple[str, ...]:
        """Return the registered names, sorted."""
        with _mutex:
            return tuple(sorted(self._known))

    def unknown(self, option: object, name: str, built_in: Sequence[str], register: str) -> InvalidRequest:
        """Return the error for an option with an unknown name. register: the function that registers rules."""
        known = (*built_in, *self.names())
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}."
        return InvalidRequest(
            f"option {option}: no {self._kind} is named {name}; {hint} Others are registered with pyhudi.{register}."
        )


def load_plugin(module: str) -> None:
    """Import a module that registers rules.

    Args:
        module: Dotted name of the module.

    Raises:
        InvalidRequest: The module does not exist.
    """
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise InvalidRequest(f"cannot load plug-in {module}: there is no such module on the Python path") from error


def _load_installed() -> None:
    for entry in entry_points(group=GROUP):
        if entry.value not in _loaded:
            _loaded.add(entry.value)
            entry.load()()
