"""Packages that only some calls need: imported by these, or named with the extra that brings them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyhudi.errors import InvalidRequest


def imported(name: str, purpose: str) -> Any:
    """A package that has the name of its extra.  Raises InvalidRequest where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise InvalidRequest(f'{purpose} needs {name}: pip install "pyhudi[{name}]"') from None


def imported_polars() -> Any:
    """Polars.  Raises as `imported`."""
    return imported("polars", "a Polars frame")
