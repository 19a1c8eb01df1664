"""Filters written as expressions of Polars, such as `(pl.col("fare") > 10) & pl.col("city").is_in(["sf"])`.

Neither the text nor the JSON of an expression is stable from one release of Polars to the next, but what it is made of can be
asked for (`meta.pop`), and so can whether two expressions are the same (`meta.eq`): each node is built anew from its inputs by
every operator that filters have, and is the one that it is the same as.  No data is looked at.

Null follows Polars' rules: a comparison with it is null, and null among the values of `is_in` matches nothing.
Functions are those of functions.py that Polars has in the same sense: division by literals alone, casts where they do not hang on
what is cast.  What is not done: expressions of several columns at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.filters.build import comparison, escaped_pattern, join_conditions, membership
from pyhudi.records.filters.filter_ast import And, ColumnRef, Expr, IsNull, Like, Not
from pyhudi.records.filters.filter_functions import build_call, cast_to
from pyhudi.records.filters.from_arrow import as_filter, literal_value, only_operand

_DEPTH_LIMIT = 100
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_TERMS: dict[str, Callable[[Any], Any]] = {
    "lower": lambda part: part.str.to_lowercase(),
    "upper": lambda part: part.str.to_uppercase(),
    "length": lambda part: part.str.len_chars(),
    "year": lambda part: part.dt.year(),
    "month": lambda part: part.dt.month(),
    "day": lambda part: part.dt.day(),
    "hour": lambda part: part.dt.hour(),
    "minute": lambda part: part.dt.minute(),
    "second": lambda part: part.dt.second(),
    "quarter": lambda part: part.dt.quarter(),
    "dayofyear": lambda part: part.dt.ordinal_day(),
    "weekofyear": lambda part: part.dt.week(),
    "to_date": lambda part: part.dt.date(),
    "abs": lambda part: part.abs(),
}
"""How Polars writes our functions of one argument."""

_CASTS = {"Float32": "float", "Float64": "double", "String": "string", "Date": "date"}
_BETWEEN = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "none": (">", "<")}


def is_expression(data: object) -> bool:
    """Whether it is an expression of Polars; Polars need not be installed to ask."""
    return type(data).__module__.partition(".")[0] == "polars" and type(data).__name__ == "Expr"


def convert_polars_expression(expression: Any) -> Expr:
    """The tree of an expression.  Raises Unsupported, with the expression's text, for what filters do not have."""
    if not hasattr(expression.meta, "is_literal"):
        raise Unsupported("filters as expressions of Polars need Polars 1.14 or later: give the filter as SQL text")
    try:
        return as_filter(_node(expression, 0))
    except (Unsupported, InvalidRequest) as error:
        text = " ".join(str(expression).split())
        shown = text if len(text) <= 200 else text[:200] + "..."
        raise type(error)(f"the filter {shown}: {error}") from error


def convert_known_polars(expression: Any) -> Expr:
    """The conditions of an expression that all have to hold, without those that filters do not have."""
    import polars

    known: list[Expr] = []
    todo = [expression]
    while todo:
        part = todo.pop()
        inputs = part.meta.pop()
        if len(inputs) == 2 and any(part.meta.eq(left & right) for left, right in (inputs, inputs[::-1])):
            todo.extend(inputs)
            continue
        with suppress(Unsupported, InvalidRequest, polars.exceptions.PolarsError):
            known.append(convert_polars_expression(part))
    return join_conditions(And, known)


def _node(expression: Any, depth: int) -> Any:
    """The tree, a column, or the value of a literal."""
    import polars

    if depth > _DEPTH_LIMIT:
        raise InvalidRequest(f"the filter is nested more than {_DEPTH_LIMIT} levels deep")
    inputs = expression.meta.pop()
    if not inputs:
        return _leaf(polars, expression)
    if len(inputs) == 1:
        return _of_one(expression, inputs[0], depth)
    if len(inputs) == 2:
        # Which input comes first is not promised: only in the right order are they the same expression.
        for left, right in (inputs[::-1], inputs):
            found = _of_two(expression, left, right, depth)
            if found is not None:
                return found
    if len(inputs) == 3:
        column = next((one for one in inputs if not one.meta.is_literal()), inputs[0])
        low, high = (one for one in inputs[::-1] if one is not column)
        for first, last in ((low, high), (high, low)):
            for closed, (above, below) in _BETWEEN.items():
                if expression.meta.eq(column.is_between(first, last, closed=closed)):
                    tested = _node(column, depth + 1)
                    return comparison(tested, above, _single(first)) & comparison(tested, below, _single(last))
    raise Unsupported(f"{expression} is not supported")


def _leaf(polars: Any, expression: Any) -> Any:
    if expression.meta.is_literal():
        return _single(expression)
    if not expression.meta.has_multiple_outputs():
        name = expression.meta.output_name(raise_if_undetermined=False)
        if name is not None and expression.meta.eq(polars.col(name)):
            return ColumnRef(name)
    raise Unsupported(f"{expression} is not supported: name one column, as in pl.col('a')")


def _argument(part: Any, depth: int) -> Any:
    """What a function is given: a column, call or value."""
    node = _node(part, depth + 1)
    if isinstance(node, Expr):
        raise Unsupported(f"a function of the condition {part} is not supported")
    return node


def _of_one(expression: Any, part: Any, depth: int) -> Any:
    import polars

    same = expression.meta.eq
    if same(~part):
        return Not(as_filter(_node(part, depth + 1)))
    if same(part.is_null()):
        return IsNull(only_operand(_node(part, depth + 1), "is_null"))
    if same(part.is_not_null()):
        return Not(IsNull(only_operand(_node(part, depth + 1), "is_not_null")))
    field = expression.meta.output_name(raise_if_undetermined=False)
    if field is not None and same(part.struct.field(field)):
        return ColumnRef(f"{only_operand(_node(part, depth + 1), 'a field')}.{field}")
    for function, build in _TERMS.items():
        if same(build(part)):
            return build_call(function, (_argument(part, depth),))
    if same(-part):
        return build_call("-", (0, _argument(part, depth)))
    for kind, name in _CASTS.items():
        if same(part.cast(getattr(polars, kind))):
            return cast_to(_argument(part, depth), name)
    raise Unsupported(f"{expression} is not supported")


def _of_two(expression: Any, left: Any, right: Any, depth: int) -> Any:
    same = expression.meta.eq
    for join in (operator.and_, operator.or_):
        if same(join(left, right)):
            return _chain(join, left, right, depth)
    for sign, compare in _COMPARISONS.items():
        if same(compare(left, right)):
            sides = [_node(side, depth + 1) for side in (left, right)]
            if any(isinstance(side, Expr) for side in sides):
                raise Unsupported("comparing a condition is not supported: use ~ for its opposite")
            return comparison(sides[0], sign, sides[1])
    for sign, combine in _ARITHMETIC.items():
        if same(combine(left, right)):
            return build_call(sign, (_argument(left, depth), _argument(right, depth)))
    if right.meta.is_literal() and same(left / right):
        divisor = _single(right)
        # Polars makes an infinity of a division by zero.
        if not divisor:
            raise Unsupported(f"division by {divisor} is not supported")
        return build_call("/", (_argument(left, depth), divisor))
    if same(left.is_in(right)):
        values = [value for value in _values(right) if value is not None]
        return membership(only_operand(_node(left, depth + 1), "is_in"), values)
    if same(left.str.starts_with(right)):
        return Like(only_operand(_node(left, depth + 1), "starts_with"), escaped_pattern(_text(right)) + "%")
    return None


def _chain(join: Callable[[Any, Any], Any], left: Any, right: Any, depth: int) -> Expr:
    """What `a & b & c` joins, as one level however long it is."""
    parts = [right]
    while True:
        inputs = left.meta.pop()
        pair = next((two for two in (inputs[::-1], inputs) if len(two) == 2 and left.meta.eq(join(*two))), None)
        if pair is None:
            break
        left = pair[0]
        parts.append(pair[1])
    read: Sequence[Expr] = [as_filter(_node(part, depth + 1)) for part in (left, *reversed(parts))]
    whole = read[0]
    for part in read[1:]:
        whole = join(whole, part)
    return whole


def _values(literal: Any) -> list[Any]:
    """The values of a literal: those of a list or of a series, or the one that it is."""
    import polars

    if not literal.meta.is_literal():
        raise Unsupported("values that are not literals are not supported")
    series = polars.select(literal).to_series()
    if isinstance(series.dtype, polars.List):
        series = series.explode() if len(series) == 1 and len(series[0]) else series.clear().explode()
    if str(series.dtype) in ("Int128", "UInt128"):
        return list(series.to_list())
    return [literal_value(value) for value in series.to_arrow()]


def _single(literal: Any) -> Any:
    values = _values(literal)
    if len(values) != 1:
        raise Unsupported(f"comparing with {len(values)} values is not supported: use is_in")
    return values[0]


def _text(literal: Any) -> str:
    value = _single(literal)
    if not isinstance(value, str):
        raise InvalidRequest(f"starts_with takes text, not {value!r}")
    return value
