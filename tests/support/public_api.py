"""The public API as text: every name that a user may import, with its signature, as tests/support/public_api.txt holds it.

`python -m tests.support.public_api` writes the file: do so when the API is meant to change, and describe the change in
CHANGELOG.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType

GOLDEN = Path(__file__).with_suffix(".txt")

# What docs/reference describes.
MODULES = (
    "pyhudi",
    "pyhudi.api.table",
    "pyhudi.api.scan",
    "pyhudi.api.splits",
    "pyhudi.api.dataset",
    "pyhudi.api.merge",
    "pyhudi.api.services",
    "pyhudi.api.indexes",
    "pyhudi.api.alter",
    "pyhudi.api.inspect",
    "pyhudi.features.catalogs.catalog_store",
    "pyhudi.features.report.plot",
    "pyhudi.spark",
    "pyhudi.sql_engine",
    "pyhudi.api.spark_streaming",
    "pyhudi.api.doctor",
    "pyhudi.features.procedures",
    "pyhudi.errors",
    "pyhudi.storage",
    "pyhudi.operations.commit.results",
    "pyhudi.records.mergers",
)


def public_names(module: ModuleType) -> list[str]:
    """The names of `__all__`; without one, those that the module itself defines."""
    named = getattr(module, "__all__", None)
    if named is not None:
        return sorted(named)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


def signature(value: object) -> str:
    """The signature as the source spells it; defaults that print an address are left out."""
    try:
        text = str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    return text.replace("'", '"')


def members(kind: type) -> Iterator[str]:
    """The public parts of a class, those of its bases in this package included."""
    if issubclass(kind, Enum):
        yield from (f"{one.name} = {one.value!r}" for one in kind)
        return
    if is_dataclass(kind):
        yield from (f"{one.name}: {one.type}" for one in fields(kind) if not one.name.startswith("_"))
    known = {one.name for one in fields(kind)} if is_dataclass(kind) else set()
    for name in sorted(dir(kind)):
        value = inspect.getattr_static(kind, name)
        owner = next(base for base in kind.__mro__ if name in vars(base))
        if (name.startswith("_") and name != "__arrow_c_stream__") or name in known or not owner.__module__.startswith("pyhudi"):
            continue
        if isinstance(value, property):
            yield f"{name} -> {(value.fget.__annotations__ if value.fget else {}).get('return')}"
        elif isinstance(value, classmethod | staticmethod):
            yield f"{type(value).__name__} {name}{signature(getattr(kind, name))}"
        elif callable(value):
            yield f"{name}{signature(value)}"


def described() -> Iterator[str]:
    """The lines of the file."""
    for module_name in MODULES:
        module = import_module(module_name)
        yield f"{module_name}:"
        for name in public_names(module):
            value = getattr(module, name)
            home = getattr(value, "__module__", module_name)
            if isinstance(value, type) and home in MODULES and home != module_name:
                yield f"    {name} = {home}.{value.__qualname__}"
            elif isinstance(value, type):
                bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
                made = "" if issubclass(value, Enum | Exception) or is_dataclass(value) else signature(value)
                yield f"    class {name}({bases}){made}" if bases else f"    class {name}{made}"
                yield from (f"        {line}" for line in members(value))
            elif inspect.isfunction(value):
                yield f"    {name}{signature(value)}"
            else:
                yield f"    {name}: {type(value).__name__}"
        yield ""


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(described()), encoding="utf-8")
