"""Validators in Python, registered by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyhudi.api.scan import Scan
from pyhudi.errors import InvalidRequest
from pyhudi.options.plugins import Registry
from pyhudi.options.validator_options import VALIDATORS


@dataclass(frozen=True, slots=True)
class Validator:
    """A check of a write before it is published.

    Attributes:
        name: Its name in `hoodie.precommit.validators`.
        function: Called with a scan of the rows before the write and a scan of the rows after it. None or True accepts the
            write, False rejects it. Rows (anything with the Arrow PyCapsule interface) reject it if there are any, and
            the error shows ten of them. An exception rejects the write. It may be called again for one write, after other
            writers have committed.
    """

    name: str
    function: Callable[[Scan, Scan], Any]

    def __post_init__(self) -> None:
        name, function = cast("tuple[object, object]", (self.name, self.function))
        if not isinstance(name, str) or not name or "," in name or name != name.strip():
            raise InvalidRequest(f"Validator: name={name!r} is not a name without commas and surrounding blanks")
        if not callable(function):
            raise InvalidRequest(f"Validator {name}: function={function!r} is not callable; pass a function of two scans")


_registered: Registry[Validator] = Registry("validator")


def register_validator(validator: Validator) -> None:
    """Register a validator in this process under its name for `hoodie.precommit.validators`, replacing an earlier one.

    Args:
        validator: The validator.

    Raises:
        InvalidRequest: The argument is no Validator.
    """
    if not isinstance(cast(object, validator), Validator):
        raise InvalidRequest(f"register_validator takes a pyhudi.Validator, not {type(validator).__name__}")
    _registered.register(validator.name, validator)


def find_validator(name: str) -> Validator | None:
    """The validator registered under a name, None if there is none."""
    return _registered.find(name)


def unknown_validator(name: str, built_in: Sequence[str]) -> InvalidRequest:
    """The error for an unknown name. built_in: names of Hudi's validators."""
    return _registered.unknown(VALIDATORS, name, built_in, "register_validator")
