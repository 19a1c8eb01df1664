"""The tree of a filter: what parse.py makes of its text and binding.py binds to a schema.

A condition is one of an operand: a column, by its dotted name, or what functions make of columns (a `FunctionCall`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from pyhudi.errors import Internal


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column by its dotted name.  type: of its values, once it is bound."""

    name: str
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Literal:
    """A value among the arguments of a function, none of which is null."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """What a function (see functions.py) makes of its arguments.  type: of its results, once it is bound."""

    function: str
    arguments: tuple[ColumnRef | Literal | FunctionCall, ...]
    type: pa.DataType | None = None

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(_written, self.arguments))})"

    @property
    def result_type(self) -> pa.DataType:
        """The type of the results of a bound call."""
        if self.type is None:
            raise Internal("the filter is not bound to a schema")
        return self.type

    def columns(self) -> Iterator[ColumnRef]:
        """The columns that it is made of, in order of appearance."""
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
    """A filter.  Build it with `parse_filter`; combine with `&`, `|` and `~`."""

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
    """column op value; op is one of = <> < <= > >=.  value is in stored form (see stats.py) once `type` is set."""

    column: Operand
    op: str
    value: Any
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class In(Expr):
    """The column equals one of the values; has_null: null was among them, so that no match is unknown."""

    column: Operand
    values: tuple[Any, ...]
    has_null: bool = False
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Like(Expr):
    """The column's text matches an SQL pattern."""

    column: Operand
    pattern: str
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class IsNull(Expr):
    """The column is null; never unknown."""

    column: Operand


@dataclass(frozen=True, slots=True)
class ConstantUnlessNull(Expr):
    """`outcome` where the column has a value, unknown where it is null: a comparison that binding has decided."""

    column: Operand
    outcome: bool


@dataclass(frozen=True, slots=True)
class And(Expr):
    """All parts hold."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or(Expr):
    """One of the parts holds."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not(Expr):
    """The part is false."""

    part: Expr


@dataclass(frozen=True, slots=True)
class UnsupportedCondition(Expr):
    """What an engine tests and filters do not have: it may be true of any row.  Only `pushdown` meets it."""


def _parts(expr: Expr, kind: type[And] | type[Or]) -> tuple[Expr, ...]:
    """What a filter of that kind joins; another one alone.  A chain of `&` or `|` is one node, however long it is."""
    return expr.parts if isinstance(expr, kind) else (expr,)


def expression_depth(expr: Expr) -> int:
    """The levels of AND, OR and NOT of a filter."""
    depth, level = 0, [expr]
    while level:
        depth += 1
        level = [
            part
            for one in level
            for part in (one.parts if isinstance(one, (And, Or)) else (one.part,) if isinstance(one, Not) else ())
        ]
    return depth
