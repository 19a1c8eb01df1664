"""Check the arguments of public functions against their annotations, before the function runs.

`checked` wraps a function, and `checked_class` the public methods of a class. An argument of a wrong type, an unknown or
a missing argument raises InvalidRequest instead of a TypeError from inside. The annotation is read as text, so packages
that only type checkers import (PySpark, Polars) stay unimported.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import numbers
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache, wraps
from typing import Any, TypeVar, cast

from pyhudi.api.attribute_hints import foreign_argument_hint
from pyhudi.errors import InvalidRequest

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True, slots=True)
class _AcceptedType:
    """One member of an annotation: how messages name it, and which values it accepts."""

    text: str
    accepts: Callable[[Any], bool]


def checked(function: _Function) -> _Function:
    """Return the function with a check of its arguments."""
    rules: list[tuple[inspect.Signature, Mapping[str, tuple[_AcceptedType, ...]]]] = []

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not rules:
            rules.append(_rules(function))
        signature, types = rules[0]
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidRequest(_call_error(function, signature, kwargs, error)) from None
        for name, value in bound.arguments.items():
            expected = types.get(name)
            if expected is not None and not any(type_.accepts(value) for type_ in expected):
                raise InvalidRequest(_type_error(_name(function), name, value, expected))
        return function(*args, **kwargs)

    return cast("_Function", call)


def checked_class(cls: _Class) -> _Class:
    """Check the arguments of the constructor and the public methods that the class itself defines."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and (name != "__init__" or is_dataclass(cls)):
            continue
        if inspect.isfunction(member):
            setattr(cls, name, checked(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(checked(member.__func__)))
    return cls


def _name(function: Callable[..., Any]) -> str:
    """Name of a function in messages: `Table.restore` for a method of any part of Table."""
    owner, _, name = function.__qualname__.rpartition(".")
    owner = "Table" if owner in ("TableReads", "TableWrites", "TableServices", "TableAdmin", "OpenedTable") else owner
    return owner if name == "__init__" else f"{owner}.{name}" if owner else name


def _call_error(function: Any, signature: inspect.Signature, kwargs: Mapping[str, Any], error: TypeError) -> str:
    names = [name for name in signature.parameters if name != "self" and name != "cls"]
    unknown = next((name for name in kwargs if name not in names), None)
    takes = f"it takes {', '.join(names)}" if names else "it takes no arguments"
    if unknown is None:
        return f"{_name(function)}(): {error}; {takes}"
    near = difflib.get_close_matches(unknown, names, 1)
    hint = foreign_argument_hint(unknown) or (f"did you mean {near[0]}=?" if near else "")
    return f"{_name(function)}() has no argument {unknown}=: {hint + '; ' if hint else ''}{takes}"


def _type_error(function: str, name: str, value: Any, types: Iterable[_AcceptedType]) -> str:
    expected = " or ".join(dict.fromkeys(type_.text for type_ in types))
    if isinstance(value, Mapping):
        # No values: options contain secrets.
        wrong = ", ".join(f"{key!r}: {type(member).__name__}" for key, member in list(value.items())[:5])
        return f"{function}: {name}= is a dictionary {{{wrong}}}; pass {expected}"
    shown = f"{value!r} ({type(value).__name__})" if isinstance(value, (str, numbers.Number)) else _type_name(value)
    return f"{function}: {name}={shown:.120} is of the wrong type; pass {expected}"


def _type_name(value: Any) -> str:
    module = type(value).__module__
    return type(value).__name__ if module == "builtins" else f"{module}.{type(value).__name__}"


def _rules(function: Callable[..., Any]) -> tuple[inspect.Signature, Mapping[str, tuple[_AcceptedType, ...]]]:
    signature = inspect.signature(function)
    types = {
        parameter.name: accepted
        for parameter in signature.parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and isinstance(parameter.annotation, str)
        and (accepted := _accepted_types(parameter.annotation))
    }
    return signature, types


@cache
def _accepted_types(annotation: str) -> tuple[_AcceptedType, ...]:
    """Members of the union that an annotation names; empty if every value is accepted."""
    types = [_accepted_type(member) for member in _members(ast.parse(annotation, mode="eval").body)]
    return () if None in types else tuple(type_ for type_ in types if type_ is not None)


def _members(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.BinOp):
        yield from _members(node.left)
        yield from _members(node.right)
    else:
        yield ast.unparse(node)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    return isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, Iterator)) and all(map(_is_text, value))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value))


def _is_number(value: Any, number_type: type) -> bool:
    return isinstance(value, number_type) and not isinstance(value, bool)


def _is_instant(value: Any) -> bool:
    """Whether the value is the result of a write or service, or an entry of the timeline."""
    return hasattr(type(value), "instant") and hasattr(type(value), "completion_time")


_PLAIN = {
    "None": _AcceptedType("None", lambda value: value is None),
    "str": _AcceptedType("text", _is_text),
    "bool": _AcceptedType("True or False", lambda value: isinstance(value, bool)),
    "int": _AcceptedType("a whole number", lambda value: _is_number(value, numbers.Integral)),
    "float": _AcceptedType("a number", lambda value: _is_number(value, numbers.Real)),
    "os.PathLike[str]": _AcceptedType("a path", _is_path),
    "Sequence[str]": _AcceptedType("a list of text", _is_texts),
    "Iterable[str]": _AcceptedType("a list of text", _is_texts),
    "Mapping[str, object]": _AcceptedType("a dictionary with text as keys", _is_mapping),
    "Mapping[str, Any]": _AcceptedType("a dictionary with text as keys", _is_mapping),
    "Mapping[str, str]": _AcceptedType(
        "a dictionary of text", lambda value: _is_mapping(value) and all(map(_is_text, value.values()))
    ),
    "tuple[str, int]": _AcceptedType(
        "a pair such as ('daily-load', 17)",
        lambda value: (
            isinstance(value, tuple) and len(value) == 2 and _is_text(value[0]) and _is_number(value[1], numbers.Integral)
        ),
    ),
    "Environment": _AcceptedType("an Environment", lambda value: hasattr(value, "monotonic_ms")),
    "RecordMerger": _AcceptedType("a RecordMerger", lambda value: hasattr(value, "strategy_id") and hasattr(value, "merge")),
    "Reporter": _AcceptedType("a Reporter", lambda value: hasattr(value, "begin")),
    "CommittedInstant": _AcceptedType("the result of a write, an entry of the timeline", _is_instant),
}
_CALLABLES = ("Callable", "Listener", "Grouping", "CompactionStrategyRule", "_Function")
_UNCHECKED = ("Any", "object", "Filter", "InstantArgument", "Axes", "TimeGenerator", "Literal")
"""Annotations of which the function itself checks the values."""

_PACKAGES = {
    **dict.fromkeys(("DataFrame", "Column", "SparkSession", "StreamingQuery"), "pyspark.sql"),
    **dict.fromkeys(("pa", "pc"), "pyarrow"),
    "threading": "threading",
    "Path": "pathlib",
}


def _accepted_type(member: str) -> _AcceptedType | None:
    """The type that a member of an annotation names, None if it accepts every value."""
    if member in _PLAIN:
        return _PLAIN[member]
    head = member.partition("[")[0]
    if head in _UNCHECKED or (head != member and head not in _CALLABLES):
        return None
    if head in _CALLABLES:
        return _AcceptedType("a function", callable)
    prefix, _, name = head.rpartition(".")
    package = _PACKAGES.get(prefix or name, "pyhudi")
    text = f"a {'Spark ' if package == 'pyspark.sql' else ''}{member}"
    return _AcceptedType(text, lambda value: _has_class(value, name, package))


def _has_class(value: Any, name: str, package: str) -> bool:
    """Whether a class of this name in this package is among the classes of a value."""
    return any(cls.__name__ == name and cls.__module__.startswith(package) for cls in type(value).__mro__)
