"""The tree of a filter: what parse.py makes of its text and binding.py binds to a schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


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

    column: str
    op: str
    value: Any
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class In(Expr):
    """The column equals one of the values; has_null: null was among them, so that no match is unknown."""

    column: str
    values: tuple[Any, ...]
    has_null: bool = False
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Like(Expr):
    """The column's text matches an SQL pattern."""

    column: str
    pattern: str
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class IsNull(Expr):
    """The column is null; never unknown."""

    column: str


@dataclass(frozen=True, slots=True)
class Always(Expr):
    """`outcome` where the column has a value, unknown where it is null: a comparison that binding has decided."""

    column: str
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


def _parts(expr: Expr, kind: type[And] | type[Or]) -> tuple[Expr, ...]:
    """What a filter of that kind joins; another one alone.  A chain of `&` or `|` is one node, however long it is."""
    return expr.parts if isinstance(expr, kind) else (expr,)


def depth_of(expr: Expr) -> int:
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
