"""Configuration files: TOML documents, whose sections become settings classes with every key checked.

A secret is not written into a file: any text can be a reference, `{ env = "NAME" }` or `{ file = "path" }`.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pyhudi.errors import InvalidRequest

T = TypeVar("T")
_INJECTED = ("environment",)


def read_toml(path: str, purpose: str) -> dict[str, Any]:
    """Read a TOML file. kind: what it configures, for messages. Raises InvalidRequest if it cannot be read."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise InvalidRequest(f"there is no {purpose} file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the {purpose} file {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"the {purpose} file {path} is no valid TOML: {error}") from error


def parse_section(
    cls: Callable[..., T], values: Mapping[str, object], where: str, injected: Mapping[str, object] | None = None
) -> T:
    """Build a settings class from the keys of a section.

    Args:
        cls: A dataclass.
        values: Keys and values.
        where: Name of the section, for messages.
        injected: Values that the section cannot set.
    """
    injected = injected or {}
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    settable = [name for name in fields if name not in injected and name not in _INJECTED]
    for name in values:
        if name not in settable:
            raise InvalidRequest(f"{where} has the unknown key {name!r}{nearest(str(name), settable)}")
    for name, option in fields.items():
        required = option.default is dataclasses.MISSING and option.default_factory is dataclasses.MISSING
        if required and name not in values and name not in injected:
            raise InvalidRequest(f"{where} has no {name}, which it needs")
    hints = get_type_hints(cls)
    parsed = {name: _parsed(name, resolved(value), hints[name], where) for name, value in values.items()}
    return cls(**parsed, **injected)


def _parsed(name: str, value: object, hint: Any, where: str) -> object:
    """A value of the type of a field: text, number, flag, a list of texts or a section."""
    allowed = get_args(hint) if get_origin(hint) not in (tuple, Mapping, None) else (hint,)
    types = [get_origin(type_) or type_ for type_ in (allowed if get_origin(hint) is not None else (hint,))]
    if Any in types:
        return value
    if any(getattr(type_, "__name__", "") == "tuple" for type_ in types):
        items = [value] if isinstance(value, str) else value
        if isinstance(items, Sequence) and not isinstance(items, (str, bytes)):
            inner = next(get_args(type_)[0] for type_ in allowed if get_origin(type_) is tuple)
            if inner is not str or all(isinstance(item, str) for item in items):
                return tuple(items)
    if isinstance(value, bool):
        if bool in types:
            return value
    elif isinstance(value, int) and float in types:
        return float(value)
    elif any(isinstance(type_, type) and isinstance(value, type_) for type_ in types if type_ is not tuple):
        return value
    elif isinstance(value, os.PathLike) and str in types:
        return os.fspath(value)
    expected = " or ".join(_type_name(type_) for type_ in types if type_ is not type(None))
    raise InvalidRequest(f"{where} has a value of type {type(value).__name__} for {name}: pass {expected}")


def _type_name(type_: Any) -> str:
    names = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "tuple": "a list of texts"}
    name = getattr(type_, "__name__", str(type_))
    return names.get(name, "a section")


def resolved(value: Any) -> Any:
    """Replace the references of a value: `{ env = "NAME" }` and `{ file = "path" }`.

    Raises:
        InvalidRequest: The variable is not set, or the file cannot be read.
    """
    if isinstance(value, Mapping):
        if set(value) == {"env"}:
            text = os.environ.get(str(value["env"]))
            if text is None:
                raise InvalidRequest(f"the environment variable {value['env']}, which the configuration names, is not set")
            return text
        if set(value) == {"file"}:
            try:
                with open(os.path.expanduser(str(value["file"])), encoding="utf-8") as file:
                    return file.read().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidRequest(
                    f"the file {value['file']}, which the configuration names for a value, cannot be read"
                ) from error
        return {key: resolved(part) for key, part in value.items()}
    return value


def nearest(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    """End of a message about an unknown name: the most similar known name, or all of them."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(known)}" if known else ""
