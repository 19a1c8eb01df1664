"""Convert filters from Polars expressions, such as `(pl.col("fare") > 10) & pl.col("city").is_in(["sf"])`.

Neither the string nor the JSON form of an expression is stable between releases of Polars. But its inputs can be
queried (`meta.pop`), and two expressions can be compared (`meta.eq`). So each node is rebuilt from its inputs by every
supported operator, and the equal one is its operator. No data is evaluated.

Null follows Polars' rules: a comparison with null is null, and null among the values of `is_in` matches nothing.
Functions of `filter_functions` are supported if Polars has them with the same meaning: division by literals only, casts
only if they cannot fail. Expressions of several columns at once are not supported.
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
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
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
"""Polars expressions of our functions of one argument."""

_CASTS = {"Float32": "float", "Float64": "double", "String": "string", "Date": "date"}
_BETWEEN = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "none": (">", "<")}


def is_expression(data: object) -> bool:
    """Return True for a Polars expression; does not import Polars."""
    return type(data).__module__.partition(".")[0] == "polars" and type(data).__name__ == "Expr"


def convert_polars_expression(expression: Any) -> Expr:
    """Convert an expression to a filter.

    Raises:
        Unsupported: The expression has a part that filters do not support; the message contains its text.
    """
    if not hasattr(expression.meta, "is_literal"):
        raise Unsupported("filters as expressions of Polars need Polars 1.14 or later: give the filter as SQL text")
    try:
        return as_filter(_node(expression, 0))
    except (Unsupported, InvalidRequest) as error:
        text = " ".join(str(expression).split())
        shown = text if len(text) <= 200 else text[:200] + "..."
        raise type(error)(f"the filter {shown}: {error}") from error


def convert_known_polars(expression: Any) -> Expr:
    """Convert the conditions of an expression that are joined by AND, without those that filters do not support."""
    import polars

    known: list[Expr] = []
    pending = [expression]
    while pending:
        part = pending.pop()
        inputs = part.meta.pop()
        if len(inputs) == 2 and any(part.meta.eq(left & right) for left, right in (inputs, inputs[::-1])):
            pending.extend(inputs)
            continue
        with suppress(Unsupported, InvalidRequest, polars.exceptions.PolarsError):
            known.append(convert_polars_expression(part))
    return join_conditions(And, known)


def _node(expression: Any, depth: int) -> Any:
    """Convert to the tree, a column, or the value of a literal."""
    import polars

    if depth > _DEPTH_LIMIT:
        raise InvalidRequest(f"the filter is nested more than {_DEPTH_LIMIT} levels deep")
    inputs = expression.meta.pop()
    if not inputs:
        return _leaf(polars, expression)
    if len(inputs) == 1:
        return _convert_unary(expression, inputs[0], depth)
    if len(inputs) == 2:
        # The order of inputs is not guaranteed: only the correct order gives an equal expression.
        for left, right in (inputs[::-1], inputs):
            tree = _convert_binary(expression, left, right, depth)
            if tree is not None:
                return tree
    if len(inputs) == 3:
        column = next((part for part in inputs if not part.meta.is_literal()), inputs[0])
        low, high = (part for part in inputs[::-1] if part is not column)
        for first, last in ((low, high), (high, low)):
            for closed, (above, below) in _BETWEEN.items():
                if expression.meta.eq(column.is_between(first, last, closed=closed)):
                    operand = _node(column, depth + 1)
                    return comparison(operand, above, _single(first)) & comparison(operand, below, _single(last))
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
    """Convert a function argument: a column, call or value."""
    node = _node(part, depth + 1)
    if isinstance(node, Expr):
        raise Unsupported(f"a function of the condition {part} is not supported")
    return node


def _convert_unary(expression: Any, part: Any, depth: int) -> Any:
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


def _convert_binary(expression: Any, left: Any, right: Any, depth: int) -> Any:
    same = expression.meta.eq
    for join in (operator.and_, operator.or_):
        if same(join(left, right)):
            return _chain(join, left, right, depth)
    for sign, compare in COMPARISONS.items():
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
        # In Polars a division by zero gives infinity.
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
    """Flatten a chain `a & b & c` of any length into one level."""
    parts = [right]
    while True:
        inputs = left.meta.pop()
        pair = next((inputs_ for inputs_ in (inputs[::-1], inputs) if len(inputs_) == 2 and left.meta.eq(join(*inputs_))), None)
        if pair is None:
            break
        left = pair[0]
        parts.append(pair[1])
    filters: Sequence[Expr] = [as_filter(_node(part, depth + 1)) for part in (left, *reversed(parts))]
    result = filters[0]
    for part in filters[1:]:
        result = join(result, part)
    return result


def _values(literal: Any) -> list[Any]:
    """Return the values of a literal: those of a list or series, or its single value."""
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
