"""Conditions of filters made of a column and values, whatever they were written in.

Logic is SQL's: a comparison with null is unknown, and so is membership where null is among the values and none of them matches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.filters.tree import And, Compare, Constant, Expr, In, Or

OPERATORS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its dotted name."""

    name: str


def joined(kind: type[And] | type[Or], parts: Sequence[Expr]) -> Expr:
    """Conditions that must all hold (And), or of which any may (Or)."""
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def comparison(left: Any, op: str, right: Any) -> Expr:
    """A comparison of a column with a value, in either order.  op: of the tree's operators.

    Raises Unsupported for two columns, InvalidRequest for none.
    """
    if isinstance(left, Column) and isinstance(right, Column):
        raise Unsupported(f"comparing two columns ({left.name}, {right.name}) is not supported; text stands in single quotes")
    if isinstance(left, Column):
        return test_of(left.name, op, right)
    if isinstance(right, Column):
        return test_of(right.name, _FLIPPED[op], left)
    raise InvalidRequest("a comparison needs a column on one side")


def test_of(name: str, op: str, value: Any) -> Expr:
    """A comparison of a column with a value, which is unknown for null."""
    return Constant(None) if value is None else Compare(name, op, value)


def membership(name: str, values: Sequence[Any]) -> Expr:
    """Whether a column equals one of the values.  Null among them makes it unknown where none does."""
    present = tuple(value for value in values if value is not None)
    return In(name, present, len(present) < len(values))


def escaped_pattern(text: str) -> str:
    """The pattern of LIKE that a text alone matches."""
    return re.sub(r"([%_\\])", r"\\\1", text)
