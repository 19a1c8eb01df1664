"""Scalars and collections of NumPy, pandas, Polars and PyArrow as plain values, wherever a value or a list of keys is passed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from pyhudi.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Literal:
    """A Python value in an assignment, where text is SQL otherwise.

    Attributes:
        value: The value.
    """

    value: Any


def lit(value: Any) -> Literal:
    """Mark a Python value as a value, in assignments of `Table.update` and `Table.merge`, where text is SQL otherwise.

    Args:
        value: The value.

    Returns:
        The marked value.

    Example:
        >>> result = table.update({"note": hp.lit("2025-01-01")}, where="id = 1")
    """
    return Literal(value)


def plain_value(value: Any, what: str) -> Any:
    """Return a scalar of NumPy, pandas or PyArrow as a Python value, and a UUID as text; other values as they are.

    Args:
        value: The value.
        what: The argument, for errors, such as "column 'fare'".

    Raises:
        InvalidRequest: The value is a member of an Enum.
    """
    if isinstance(value, Enum):
        name = f"{type(value).__name__}.{value.name}"
        raise InvalidRequest(f"{what}: {name} is a member of an Enum, whose type is not stored: pass {name}.value")
    if isinstance(value, (np.datetime64, np.timedelta64)):
        value = pa.scalar(value)
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, np.generic):
        return value.item()
    if is_uuid(type(value)):
        return str(value)
    if type(value).__module__.startswith("pandas.") and type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value


def is_uuid(cls: type) -> bool:
    """Return True for `uuid.UUID`, whose module this layer does not import because it reads the clock."""
    return any((base.__module__, base.__name__) == ("uuid", "UUID") for base in cls.__mro__)


def plain_values(values: Any) -> pa.Array | None:
    """Return the values of an array or series of NumPy, pandas, Polars or PyArrow; None for other collections."""
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return pa.array(values)
    package, kind = type(values).__module__.partition(".")[0], type(values).__name__
    if package == "polars" and kind == "Series":
        return pa.array(values.to_arrow())
    if package == "pandas" and not hasattr(values, "columns") and hasattr(values, "to_numpy"):
        series: Any = pa.array(values, from_pandas=True)
        return series.combine_chunks() if isinstance(series, pa.ChunkedArray) else series
    return None
