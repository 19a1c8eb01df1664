"""Traversal of filter trees: referenced columns, key literals, and negation pushdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from pyhudi.records.filters.filter_ast import And, Compare, Constant, ConstantUnlessNull, Expr, FunctionCall, In, Not, Operand, Or

NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def columns(expr: Expr) -> tuple[str, ...]:
    """Return the dotted names of the columns that a filter reads, without duplicates, in order of appearance."""
    result: dict[str, None] = {}
    for operand in operands(expr):
        names = (operand,) if isinstance(operand, str) else (column.name for column in operand.columns())
        result.update(dict.fromkeys(names))
    return tuple(result)


def operands(expr: Expr) -> tuple[Operand, ...]:
    """Return the columns and function calls that a filter's conditions test, without duplicates."""
    leaf_operands = (leaf.column for leaf in leaf_conditions(expr) if not isinstance(leaf, Constant))  # type: ignore[attr-defined]
    return tuple(dict.fromkeys(leaf_operands))


def calls(expr: Expr) -> tuple[FunctionCall, ...]:
    """Return the function calls among the operands of a filter."""
    return tuple(operand for operand in operands(expr) if isinstance(operand, FunctionCall))


def key_literals(expr: Expr, column: Operand) -> list[Any] | None:
    """Return the only values of the column for which the filter can be true, without duplicates; None if it may have any.

    Values are in stored form for a bound filter, unchanged otherwise. An empty list means that no row can match.
    """
    if isinstance(expr, Compare) and expr.column == column and expr.op == "=":
        return list(equal_values(expr.value))
    if isinstance(expr, In) and expr.column == column:
        return [value for equal in dict.fromkeys(expr.values) for value in equal_values(equal)]
    if isinstance(expr, Constant) and not expr.value:
        return []
    if isinstance(expr, ConstantUnlessNull) and expr.column == column and not expr.outcome:
        return []
    if isinstance(expr, And):
        lists = [literals for literals in (key_literals(part, column) for part in expr.parts) if literals is not None]
        if not lists:
            return None
        others = [frozenset(literals) for literals in lists[1:]]
        return [value for value in lists[0] if all(value in other for other in others)]
    if isinstance(expr, Or):
        literals = [key_literals(part, column) for part in expr.parts]
        if any(part is None for part in literals):
            return None
        distinct = dict.fromkeys(value for part in literals if part is not None for value in part)
        return [value for equal in distinct for value in equal_values(equal)]
    return None


def leaf_conditions(expr: Expr) -> Iterable[Expr]:
    """Yield the leaf conditions of a filter in order of appearance."""
    if isinstance(expr, (And, Or)):
        for part in expr.parts:
            yield from leaf_conditions(part)
    elif isinstance(expr, Not):
        yield from leaf_conditions(expr.part)
    else:
        yield expr


def push_negations(expr: Expr, *, negated: bool = False) -> Expr:
    """Push NOT down to the leaves, and keep it only on leaves that have no negated form.

    Above these leaves only AND and OR remain, under which unknown may be treated as false without changing what is true.
    """
    if isinstance(expr, Not):
        return push_negations(expr.part, negated=not negated)
    if isinstance(expr, (And, Or)):
        node_type = (Or if isinstance(expr, And) else And) if negated else type(expr)
        return node_type(tuple(push_negations(part, negated=negated) for part in expr.parts))
    if not negated:
        return expr
    if isinstance(expr, Constant):
        return Constant(None if expr.value is None else not expr.value)
    if isinstance(expr, ConstantUnlessNull):
        return replace(expr, outcome=not expr.outcome)
    if isinstance(expr, Compare):
        return replace(expr, op=NEGATED[expr.op])
    return Not(expr)


Part = TypeVar("Part")


def join_in_pairs(parts: list[Part], join: Callable[[Part, Part], Part]) -> Part:
    """Join many parts as a balanced tree: Arrow and Spark recurse, and overflow the stack on a chain of thousands."""
    while len(parts) > 1:
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [join(left, right) for left, right in zip(parts[::2], parts[1::2], strict=False)] + odd
    return parts[0]


def equal_values(value: Any) -> tuple[Any, ...]:
    """The values that compare equal but differ in representation: hash lookups and record keys distinguish -0.0 from 0.0."""
    return (0.0, -0.0) if isinstance(value, float) and value == 0.0 else (value,)
