"""Import optional packages, or name the extra that installs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyhudi.errors import InvalidRequest


def imported(name: str, purpose: str) -> Any:
    """Import a package that has the name of its extra. Raises InvalidRequest if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise InvalidRequest(f'{purpose} needs {name}: pip install "pyhudi[{name}]"') from None


def imported_polars() -> Any:
    """Import Polars. Raises as `imported`."""
    return imported("polars", "a Polars frame")
