"""What makes runs cheap without changing what they do: answers of pure functions are remembered, and pools of threads are none.

The same few documents are decoded thousands of times in one exploration.  A pool of threads whose tasks run one after the other
on the calling thread is one of those that pools may be, and its calls are places like others.

One thing has to be changed, not only may: up to Python 3.11 a cached property is guarded by a lock of all threads, which actors
in processes of their own would not share.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from types import ModuleType
from typing import Any
from unittest.mock import patch

from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import parse_instant_file
from pyhudi.format.properties import parse_properties
from pyhudi.options.declaration import Options, read_settings
from pyhudi.storage import thread_pool
from pyhudi.table import table_config as config_module
from pyhudi.table.table_config import TableConfig

_MOST = 20_000


class _OneThread:
    """Runs what is submitted at once."""

    def __init__(self, *arguments: object, **named: object) -> None:
        pass

    def __enter__(self) -> _OneThread:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        return iter([function(*each) for each in zip(*arguments, strict=False)])


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    answers: dict[Any, Any] = {}

    def answer(*arguments: Any) -> Any:
        try:
            return answers[arguments]
        except KeyError:
            if len(answers) > _MOST:
                answers.clear()
            found = answers[arguments] = function(*arguments)
            return found

    return answer


def _read_settings(settings: type[Any], options: Options, **computed: object) -> Any:
    try:
        return _settings(settings, options, tuple(sorted(computed.items())))
    except TypeError:
        # What was computed is no key of a dictionary.
        return read_settings(settings, options, **computed)


def _one_folder(stack: ExitStack) -> Callable[..., nullcontext[str]]:
    """A temporary folder for all callers: operations on a few rows write nothing to it, so it remains empty."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return lambda *arguments, **named: nullcontext(folder)


@contextmanager
def quickly() -> Iterator[None]:
    """For the time of a `with` block."""
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if not name.startswith("pyhudi.") or ".spark" in name:
                continue
            for found in _cached_properties(module):
                stack.enter_context(patch.object(found, "lock", nullcontext()))
            if getattr(module, "ThreadPoolExecutor", None) is ThreadPoolExecutor:
                stack.enter_context(patch.object(module, "ThreadPoolExecutor", _OneThread))
            if getattr(module, "parse_instant_file", None) is parse_instant_file:
                stack.enter_context(patch.object(module, "parse_instant_file", _instant))
            if getattr(module, "read_settings", None) is read_settings:
                stack.enter_context(patch.object(module, "read_settings", _read_settings))
        for pool in ("_pool", "_engine_pool"):
            stack.enter_context(patch.object(thread_pool, pool, _OneThread()))
        stack.enter_context(patch.object(config_module, "parse_properties", lambda data: dict(_properties(data))))
        stack.enter_context(patch.object(TableConfig, "from_properties", lambda values: _config(tuple(values.items()))))
        stack.enter_context(patch.object(tempfile, "TemporaryDirectory", _one_folder(stack)))
        stack.enter_context(patch.object(CommitMetadata, "decode", staticmethod(_commit)))
        yield


def _cached_properties(module: ModuleType) -> Iterator[object]:
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == module.__name__:
            yield from (value for value in vars(kind).values() if isinstance(value, cached_property) and hasattr(value, "lock"))


_instant = _remembered(parse_instant_file)
_properties = _remembered(parse_properties)
_from_properties = TableConfig.from_properties
_config = _remembered(lambda pairs: _from_properties(dict(pairs)))
_settings = _remembered(lambda settings, options, computed: read_settings(settings, options, **dict(computed)))
_commit = _remembered(CommitMetadata.decode)
