"""Conditions of filters made of columns, functions of them, and values, whatever they were written in.

Logic is SQL's: a comparison with null is unknown, and so is membership where null is among the values and none of them matches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyhudi.errors import InvalidRequest
from pyhudi.records.filters.filter_ast import And, ColumnRef, Compare, Constant, Expr, FunctionCall, In, Operand, Or
from pyhudi.records.filters.filter_functions import build_call

OPERATORS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def join_conditions(kind: type[And] | type[Or], parts: Sequence[Expr]) -> Expr:
    """Conditions that must all hold (And), or of which any may (Or)."""
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def to_operand(term: ColumnRef | FunctionCall) -> Operand:
    """What a condition speaks of: a column by its name, a call as it is."""
    return term.name if isinstance(term, ColumnRef) else term


def comparison(left: Any, op: str, right: Any) -> Expr:
    """A comparison of columns, calls and values, in either order.  op: of the tree's operators.

    Raises InvalidRequest where there are values alone.
    """
    if isinstance(left, (ColumnRef, FunctionCall)) and isinstance(right, (ColumnRef, FunctionCall)):
        return Compare(build_call(op, (left, right)), "=", True)
    if isinstance(left, (ColumnRef, FunctionCall)):
        return build_comparison(to_operand(left), op, right)
    if isinstance(right, (ColumnRef, FunctionCall)):
        return build_comparison(to_operand(right), _FLIPPED[op], left)
    raise InvalidRequest("a comparison needs a column on one side")


def build_comparison(operand: Operand, op: str, value: Any) -> Expr:
    """A comparison of a column or call with a value, which is unknown for null."""
    return Constant(None) if value is None else Compare(operand, op, value)


def membership(operand: Operand, values: Sequence[Any]) -> Expr:
    """Whether a column or call equals one of the values.  Null among them makes it unknown where none does."""
    present = tuple(value for value in values if value is not None)
    return In(operand, present, len(present) < len(values))


def escaped_pattern(text: str) -> str:
    """The pattern of LIKE that a text alone matches."""
    return re.sub(r"([%_\\])", r"\\\1", text)
