"""Abstract syntax tree of filters: created by the parsers, bound to a schema by `binding`.

The operand of a condition is a column, by its dotted name, or a function of columns (a `FunctionCall`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from pyhudi.errors import Internal


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column by its dotted name.

    Attributes:
        name: Dotted name.
        type: Type of its values; None until bound.
    """

    name: str
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Literal:
    """A function argument that is a value other than null."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function (see `filter_functions`).

    Attributes:
        function: Name of the function.
        arguments: Columns, literals and calls.
        type: Type of the results; None until bound.
    """

    function: str
    arguments: tuple[ColumnRef | Literal | FunctionCall, ...]
    type: pa.DataType | None = None

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(_written, self.arguments))})"

    @property
    def result_type(self) -> pa.DataType:
        """Type of the results of a bound call."""
        if self.type is None:
            raise Internal("the filter is not bound to a schema")
        return self.type

    def columns(self) -> Iterator[ColumnRef]:
        """Yield the referenced columns in order of appearance."""
        for argument in self.arguments:
            if isinstance(argument, ColumnRef):
                yield argument
            elif isinstance(argument, FunctionCall):
                yield from argument.columns()


Operand: TypeAlias = str | FunctionCall


def _written(argument: ColumnRef | Literal | FunctionCall) -> str:
    if isinstance(argument, Literal):
        return repr(argument.value) if isinstance(argument.value, (str, bytes)) else str(argument.value)
    return argument.name if isinstance(argument, ColumnRef) else str(argument)


@dataclass(frozen=True, slots=True)
class Expr:
    """A filter. Create it with `parse_filter`; combine with `&`, `|` and `~`."""

    def __and__(self, other: Expr) -> Expr:
        return And((*_parts(self, And), *_parts(other, And)))

    def __or__(self, other: Expr) -> Expr:
        return Or((*_parts(self, Or), *_parts(other, Or)))

    def __invert__(self) -> Expr:
        return Not(self)


@dataclass(frozen=True, slots=True)
class Constant(Expr):
    """True, false or unknown (None) for every row."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Compare(Expr):
    """Comparison of an operand with a value.

    Attributes:
        column: Operand.
        op: One of = <> < <= > >=.
        value: Literal; in stored form (see `records.column_statistics`) once `type` is set.
        type: Type of the operand; None until bound.
    """

    column: Operand
    op: str
    value: Any
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class In(Expr):
    """The operand equals one of the values.

    Attributes:
        column: Operand.
        values: Values without null.
        has_null: True if null was among the values, so that no match is unknown.
        type: Type of the operand; None until bound.
    """

    column: Operand
    values: tuple[Any, ...]
    has_null: bool = False
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Like(Expr):
    """The operand matches an SQL LIKE pattern."""

    column: Operand
    pattern: str
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class IsNull(Expr):
    """The operand is null; never unknown."""

    column: Operand


@dataclass(frozen=True, slots=True)
class ConstantUnlessNull(Expr):
    """A comparison that binding has decided: `outcome` where the operand has a value, unknown where it is null."""

    column: Operand
    outcome: bool


@dataclass(frozen=True, slots=True)
class And(Expr):
    """All parts are true."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or(Expr):
    """At least one part is true."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not(Expr):
    """The part is false."""

    part: Expr


@dataclass(frozen=True, slots=True)
class UnsupportedCondition(Expr):
    """A condition of an engine that filters do not support; it may be true of any row. Used by `pushdown` only."""


def _parts(expr: Expr, kind: type[And] | type[Or]) -> tuple[Expr, ...]:
    """Return the parts of a filter of class `kind`, or the filter itself. A chain of `&` or `|` becomes one node."""
    return expr.parts if isinstance(expr, kind) else (expr,)


def expression_depth(expr: Expr) -> int:
    """Return the nesting depth of AND, OR and NOT."""
    depth, level = 0, [expr]
    while level:
        depth += 1
        level = [
            part
            for expr_ in level
            for part in (expr_.parts if isinstance(expr_, (And, Or)) else (expr_.part,) if isinstance(expr_, Not) else ())
        ]
    return depth
