"""Constructors of filter conditions from columns, function calls and values, shared by all parsers.

Logic is SQL's: a comparison with null is unknown, and so is membership if null is among the values and none of them matches.
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
    """Combine conditions by AND or OR."""
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def to_operand(term: ColumnRef | FunctionCall) -> Operand:
    """Return the operand of a condition: the name of a column, or the call itself."""
    return term.name if isinstance(term, ColumnRef) else term


def comparison(left: Any, op: str, right: Any) -> Expr:
    """Create a comparison of columns, calls and values, in either order.

    Args:
        left: Left side.
        op: Operator of the syntax tree.
        right: Right side.

    Raises:
        InvalidRequest: Both sides are values.
    """
    if isinstance(left, (ColumnRef, FunctionCall)) and isinstance(right, (ColumnRef, FunctionCall)):
        return Compare(build_call(op, (left, right)), "=", True)
    if isinstance(left, (ColumnRef, FunctionCall)):
        return build_comparison(to_operand(left), op, right)
    if isinstance(right, (ColumnRef, FunctionCall)):
        return build_comparison(to_operand(right), _FLIPPED[op], left)
    raise InvalidRequest("a comparison needs a column on one side")


def build_comparison(operand: Operand, op: str, value: Any) -> Expr:
    """Create a comparison of a column or call with a value; unknown for null."""
    return Constant(None) if value is None else Compare(operand, op, value)


def membership(operand: Operand, values: Sequence[Any]) -> Expr:
    """Create an IN condition. A null among the values makes the result unknown if no value matches."""
    not_null = tuple(value for value in values if value is not None)
    return In(operand, not_null, len(not_null) < len(values))


def escaped_pattern(text: str) -> str:
    """Escape a string as a LIKE pattern that matches only the string."""
    return re.sub(r"([%_\\])", r"\\\1", text)
