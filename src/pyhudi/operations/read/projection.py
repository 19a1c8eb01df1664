"""Some of the columns and rows of what is read already: what engines hand down to a scan, and workers to a split of it."""

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


def narrowed(spec: Spec, columns: Sequence[str] | None, condition: Expr | None) -> Spec:
    """The spec that gives these of its columns, in this order, and of its rows those of the condition.

    columns: None for all.  condition: bound to the columns that `spec` gives.  Raises InvalidRequest for columns that it does not
    give.
    """
    output = spec.output
    if columns is not None:
        names = list(dict.fromkeys([columns] if isinstance(columns, str) else columns))
        absent = [name for name in names if name not in output.names]
        if absent:
            raise InvalidRequest(f"there is no column {absent[0]!r} among those that are read: {', '.join(output.names)}")
        output = pa.schema([output.field(name) for name in names])
    both = condition if spec.condition is None or condition is None else And((spec.condition, condition))
    return replace(spec, output=output, condition=spec.condition if condition is None else both)
