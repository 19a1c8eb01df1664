"""Projection and predicate pushdown into a planned read: engines push down into a scan, workers into a split of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.records.filters.filter_ast import And, Expr
from pyhudi.tasks.read_changes import ChangeSpec
from pyhudi.tasks.read_slice import ReadSpec

Spec = TypeVar("Spec", bound=ReadSpec | ChangeSpec)


def column_list(columns: str | Sequence[str] | None) -> Sequence[str] | None:
    """Return column names as a list; text is one name."""
    return [columns] if isinstance(columns, str) else columns


def narrowed(spec: Spec, columns: Sequence[str] | None, condition: Expr | None) -> Spec:
    """Push projection and predicate down into a read specification.

    Args:
        spec: The specification.
        columns: Output columns in order, None for all.
        condition: Predicate, bound to the columns of ``spec``.

    Raises:
        InvalidRequest: ``spec`` does not return one of the columns.
    """
    output = spec.output
    if columns is not None:
        names = list(dict.fromkeys([columns] if isinstance(columns, str) else columns))
        absent = [name for name in names if name not in output.names]
        if absent:
            raise InvalidRequest(f"column {absent[0]!r} is not among the columns of the read: {', '.join(output.names)}")
        output = pa.schema([output.field(name) for name in names])
    both = condition if spec.condition is None or condition is None else And((spec.condition, condition))
    return replace(spec, output=output, condition=spec.condition if condition is None else both)
