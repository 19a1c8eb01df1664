"""A property that is computed on first access and cached."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:
    _Value = TypeVar("_Value")

    class cached_property(Generic[_Value]):
        """As `functools.cached_property`, without the lock that it has before Python 3.12.

        That lock is shared by all objects of a class: while one object reads from storage, every other thread would
        wait. Two threads that access one object concurrently may both compute the value.
        """

        def __init__(self, compute: Callable[[Any], _Value]) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value


__all__ = ["cached_property"]
