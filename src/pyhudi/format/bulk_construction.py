"""Very many small frozen objects at once, from columns of their fields."""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def made_of_columns(kind: Callable[..., T], count: int, columns: Mapping[str, Iterable[Any]]) -> list[T]:
    """Objects of a dataclass with slots, as its constructor would make them one by one, at a fifth of the time.

    kind: the class; columns: the values of each of its fields, `count` of each.  They are trusted: nothing that the class checks
    is looked at, and a field without a column has no value.
    """
    with _no_collection():
        made = list(map(object.__new__, [kind] * count))  # type: ignore[arg-type]
        for name, values in columns.items():
            deque(map(getattr(kind, name).__set__, made, values), maxlen=0)
    return made


_lock = threading.Lock()
_threads = 0
_was_on = False


@contextmanager
def _no_collection() -> Iterator[None]:
    """No search for cycles meanwhile: as objects are made that all stay, it would go over them again and again.

    Collection is on again when the last thread has left, if it was on when the first one came.
    """
    global _threads, _was_on
    with _lock:
        if not _threads:
            _was_on = gc.isenabled()
            gc.disable()
        _threads += 1
    try:
        yield
    finally:
        with _lock:
            _threads -= 1
            if not _threads and _was_on:
                gc.enable()
