"""Operation events: one log line and one listener call for every write and table service.

    remove = add_listener(lambda event: print(event.operation, event.seconds, event.figures()))

Every write and table service emits one event when it ends, successful or not, in the thread that ran it. An exception
of a listener is logged and does not affect the operation. Services that follow a write emit events of their own.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from pyhudi.errors import get_logger
from pyhudi.table.table_context import TableContext

_LOG = get_logger("pyhudi.operations")

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class OperationEvent:
    """One operation that ended.

    Attributes:
        operation: upsert, delete, compact, cluster, clean, archive, rollback, restore, savepoint, ...
        uri: Location of the table.
        table: Name of the table.
        seconds: Wall-clock duration.
        error: Class name of the exception, None if the operation succeeded.
        result: Return value, None if the operation failed.
    """

    operation: str
    uri: str
    table: str
    seconds: float
    error: str | None = None
    result: object = None

    def figures(self) -> Mapping[str, float]:
        """The numeric fields of the result by name, such as rows_inserted and bytes_written; empty if the operation failed."""
        result = self.result
        if not is_dataclass(result) or isinstance(result, type):
            return {}
        values = {field.name: getattr(result, field.name) for field in fields(result)}
        return {name: value for name, value in values.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}


Listener = Callable[[OperationEvent], object]

_listeners: tuple[Listener, ...] = ()
_mutex = threading.Lock()


def add_listener(listener: Listener) -> Callable[[], None]:
    """Call ``listener`` with every later event of this process.

    Args:
        listener: Function of one event. It runs in the thread of the operation; errors that it raises are logged.

    Returns:
        A function that removes the listener.
    """
    global _listeners
    with _mutex:
        _listeners = (*_listeners, listener)

    def remove() -> None:
        global _listeners
        with _mutex:
            _listeners = tuple(other for other in _listeners if other is not listener)

    return remove


def observed(name: str) -> Callable[[Callable[Concatenate[TableContext, P], R]], Callable[Concatenate[TableContext, P], R]]:
    """Decorate a table operation so that it emits an `OperationEvent` when it ends.

    Args:
        name: Name of the operation, unless its result has a name of its own.
    """

    def wrap(function: Callable[Concatenate[TableContext, P], R]) -> Callable[Concatenate[TableContext, P], R]:
        @functools.wraps(function)
        def run(context: TableContext, /, *args: P.args, **kwargs: P.kwargs) -> R:
            started = time.perf_counter()
            try:
                result = function(context, *args, **kwargs)
            except Exception as error:
                _ended(context, name, started, error=type(error).__name__)
                raise
            _ended(context, str(getattr(result, "operation", name)).lower(), started, result=result)
            return result

        return run

    return wrap


def _ended(context: TableContext, operation: str, started: float, *, error: str | None = None, result: object = None) -> None:
    seconds = time.perf_counter() - started
    instant: Any = getattr(result, "instant", None)
    if error is None:
        _LOG.info("%s %s of %s took %.3f s", operation, instant or "(nothing to do)", context.storage.uri, seconds)
    else:
        _LOG.info("%s of %s failed with %s after %.3f s", operation, context.storage.uri, error, seconds)
    notify_listeners(context, OperationEvent(operation, context.storage.uri, context.config.name, seconds, error, result))


def notify_listeners(context: TableContext, event: OperationEvent) -> None:
    """Pass an event to the listeners and to the observer of the table. Their errors are logged."""
    observer = context.observer
    observing = () if observer is None else (lambda ended: observer.ended(ended, context),)
    for listener in (*_listeners, *observing):
        try:
            listener(event)
        except Exception:
            _LOG.warning("a listener failed on %s of %s", event.operation, event.uri, exc_info=True)
