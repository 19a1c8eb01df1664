"""Convert filters from pyarrow expressions, such as `(pc.field("fare") > 10) & pc.field("city").isin(["sf"])`.

pyarrow exposes the structure of an expression only in its serialized form, which pickle stores. This is an Arrow IPC
file. Its schema contains the tree, in prefix order, as a list of key-value pairs; its columns of one row are the
literals and options.

    node     := ("field_ref", name) | ("nested_field_ref", n) and n of these | ("literal", column number) | ("call",
             function) {node} [("options", column number)] ("end", function)

The pairs repeat their keys, which pyarrow's dict does not preserve, so they are read from the message's flatbuffer.

Null follows pyarrow's rules, in which `isin` is never unknown. NaN is treated as in every filter: equal to itself and
above all numbers. Functions of `filter_functions` are supported under their pyarrow names if both agree on all values
in range. Not supported are division, which truncates whole numbers in pyarrow, and casts that can fail depending on the
value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.filters.build import comparison, escaped_pattern, membership, to_operand
from pyhudi.records.filters.filter_ast import (
    And,
    ColumnRef,
    Compare,
    Constant,
    Expr,
    FunctionCall,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Or,
    UnsupportedCondition,
)
from pyhudi.records.filters.filter_functions import CASTS, build_call, cast_to

_COMPARISONS = {"equal": "=", "not_equal": "<>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_MATCH, _SKIP, _EMIT_NULL, _INCONCLUSIVE = range(4)
"""Null handling of `isin`: nulls match a null among the values, match nothing, give null, or behave as in SQL."""


def convert_arrow_expression(expression: pc.Expression) -> Expr:
    """Convert an expression to a filter.

    Raises:
        Unsupported: The expression has a part that filters do not support; the message contains its text.
    """
    try:
        parts: Any = expression.__reduce__()
    except pa.ArrowNotImplementedError as error:
        raise Unsupported(f"the filter {_shorten(expression)}: {error}; name columns, as in pc.field('a')") from error
    serialised = parts[1][0]
    literals = pa.ipc.open_file(serialised).read_all()
    try:
        tree = _tree(_pairs(pa.ipc.read_message(serialised[8:]).metadata), literals)
    except (Unsupported, InvalidRequest) as error:
        raise type(error)(f"the filter {_shorten(expression)}: {error}") from error
    return as_filter(tree)


def convert_known_arrow(expression: pc.Expression) -> Expr:
    """Convert an expression that an engine pushes down, with `UnsupportedCondition` for parts that filters do not support."""
    try:
        parts: Any = expression.__reduce__()
    except pa.ArrowNotImplementedError:
        return UnsupportedCondition()
    serialised = parts[1][0]
    literals = pa.ipc.open_file(serialised).read_all()
    pairs = _pairs(pa.ipc.read_message(serialised[8:]).metadata)
    tree: Expr = _read_or_unsupported(lambda: as_filter(_tree(pairs, literals, lenient=True)))
    return tree


def columns_read(expression: pc.Expression) -> frozenset[str] | None:
    """Return the top-level columns that an expression references; None if that is unknown."""
    try:
        parts: Any = expression.__reduce__()
    except pa.ArrowNotImplementedError:
        return None
    names_read: set[str] = set()
    pairs = _pairs(pa.ipc.read_message(parts[1][0][8:]).metadata)
    for key, value in pairs:
        if key == "nested_field_ref":
            names = [next(pairs)[1] for _ in range(int(value))]
            names_read.add(names[0])
        elif key == "field_ref":
            names_read.add(value)
        elif key not in ("call", "end", "options", "literal"):
            return None
    return frozenset(names_read)


def as_filter(node: Any) -> Expr:
    """Convert a part of an expression to a filter. A column alone must be boolean."""
    if isinstance(node, Expr):
        return node
    if isinstance(node, (ColumnRef, FunctionCall)):
        return Compare(to_operand(node), "=", True)
    if node is None or isinstance(node, bool):
        return Constant(node)
    raise InvalidRequest(f"{node!r} is not a condition")


def literal_value(literal: pa.Scalar) -> Any:
    """Convert a literal to an equal Python value.

    Raises:
        InvalidRequest: There is no equal Python value.
    """
    try:
        value = literal.as_py()
    except (ValueError, OverflowError, ImportError) as error:
        raise InvalidRequest(f"the value {literal} of type {literal.type}: {error}") from error
    if getattr(value, "nanosecond", 0):
        raise InvalidRequest(f"the value {literal} has nanoseconds, but filters only support microseconds")
    return value


def only_operand(node: Any, function: str) -> Operand:
    """Return the column or call that a condition tests.

    Raises:
        Unsupported: Anything else.
    """
    if isinstance(node, (ColumnRef, FunctionCall)):
        return to_operand(node)
    raise Unsupported(f"{function} of anything but a column is not supported")


# ---------------------------------------------------------------------------------------------------------------------
# From pairs to the tree


@dataclass(slots=True)
class _PendingCall:
    """A function call whose arguments are being read."""

    function: str
    arguments: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    option_types: dict[str, pa.DataType] = field(default_factory=dict)


def _read_or_unsupported(read: Callable[[], Any]) -> Any:
    """Return the result of `read`, or `UnsupportedCondition` if it fails."""
    try:
        return read()
    except (Unsupported, InvalidRequest):
        return UnsupportedCondition()


def _read(read: Callable[[], Any]) -> Any:
    return read()


def _tree(pairs: Iterator[tuple[str, str]], literals: pa.Table, *, lenient: bool = False) -> Any:
    """Build the tree, a column, or a literal, iteratively, so that long chains do not overflow the stack.

    Args:
        pairs: Key-value pairs of the serialized expression.
        literals: Table of the literals and options.
        lenient: Replace what is not supported by `UnsupportedCondition` instead of raising.
    """
    attempt = _read_or_unsupported if lenient else _read
    root = _PendingCall("")
    calls = [root]
    for key, value in pairs:
        if key == "call":
            calls.append(_PendingCall(value))
        elif key == "end":
            finished = calls.pop()
            calls[-1].arguments.append(attempt(partial(_apply_call, finished)))
        elif key == "options":
            stored = literals.column(int(value))[0]
            options = attempt(partial(literal_value, stored))
            if isinstance(options, UnsupportedCondition):
                # Without its options the meaning of a call is unknown.
                calls[-1].function = key
                continue
            calls[-1].options = options
            calls[-1].option_types = {part.name: part.type for part in stored.type}
        elif key == "literal":
            calls[-1].arguments.append(attempt(partial(literal_value, literals.column(int(value))[0])))
        elif key == "nested_field_ref":
            calls[-1].arguments.append(ColumnRef(".".join(next(pairs)[1] for _ in range(int(value)))))
        elif key == "field_ref":
            calls[-1].arguments.append(ColumnRef(value))
        else:
            raise Unsupported(f"the expression part {key!r} is not supported")
    return root.arguments[0]


def _apply_call(call: _PendingCall) -> Any:
    if call.function in _COMPARISONS:
        left, right = call.arguments
        for side in (left, right):
            if isinstance(side, Expr):
                raise Unsupported("comparing a condition is not supported: use ~ for its opposite")
        return comparison(left, _COMPARISONS[call.function], right)
    if call.function in _TERMS:
        return _term(_TERMS[call.function], call)
    rule = _FUNCTIONS.get(call.function)
    if rule is None:
        raise Unsupported(f"the function {call.function} is not supported")
    return rule(call)


def _term(function: str, call: _PendingCall, *more: Any) -> Any:
    """Create one of our function calls from the arguments and further ones. pyarrow treats integer literals as 64-bit."""
    arguments = [
        Literal(argument, pa.int64()) if isinstance(argument, int) and not isinstance(argument, bool) else argument
        for argument in call.arguments
    ]
    if any(isinstance(argument, Expr) for argument in arguments):
        raise Unsupported(f"{call.function} of a condition is not supported")
    return build_call(function, (*arguments, *more))


def _cast(call: _PendingCall) -> Any:
    target = call.option_types["to_type"]
    name = next((name for name in _CASTS if CASTS[name] == target), None)
    if name is None or any(call.options[option] for option in call.options if option.startswith("allow_")):
        raise Unsupported("the function cast is only supported to " + ", ".join(_CASTS) + ", ".join(_CASTS))
    return cast_to(call.arguments[0], name)


def _day_of_week(call: _PendingCall) -> Any:
    numbering = (call.options.get("count_from_zero", True), call.options.get("week_start", 1))
    name = {(True, 1): "weekday", (False, 7): "dayofweek"}.get(numbering)
    if name is None:
        raise Unsupported(
            "the function day_of_week is only supported with count_from_zero=True, week_start=1, or count_from_zero=False, "
            "week_start=7"
        )
    return _term(name, call)


def _slice(call: _PendingCall) -> Any:
    start, stop, step = (call.options[name] for name in ("start", "stop", "step"))
    if step != 1 or start < 0 or stop < start:
        raise Unsupported("the function utf8_slice_codeunits is only supported with step 1 and 0 <= start <= stop")
    return _term("substring", call, start + 1, min(stop - start, 999_999_999))


def _isin(call: _PendingCall) -> Expr:
    name = only_operand(call.arguments[0], "isin")
    values, nulls = call.options["value_set"], call.options["null_matching_behavior"]
    test = membership(name, [value for value in values if value is not None])
    if nulls == _EMIT_NULL:
        return test
    if nulls == _INCONCLUSIVE:
        return membership(name, values)
    if nulls == _MATCH and None in values:
        return IsNull(name) | test
    return Not(IsNull(name)) & test


def _if_else(call: _PendingCall) -> Expr:
    """Convert `if_else(is_valid(a), condition, null)`, which DuckDB generates for IN lists."""
    test, chosen, other = call.arguments
    if not isinstance(test, (IsNull, Not)) or not isinstance(test if isinstance(test, IsNull) else test.part, IsNull):
        raise Unsupported("if_else is only supported with is_null or is_valid of a column as condition")
    return (test & as_filter(chosen)) | (Not(test) & as_filter(other))


def _is_null(call: _PendingCall) -> Expr:
    if call.options.get("nan_is_null"):
        raise Unsupported("is_null(nan_is_null=True) is not supported")
    return IsNull(only_operand(call.arguments[0], "is_null"))


def _like(call: _PendingCall) -> Expr:
    if call.options.get("ignore_case"):
        raise Unsupported(f"{call.function}(ignore_case=True) is not supported")
    pattern = call.options["pattern"]
    name = only_operand(call.arguments[0], call.function)
    return Like(name, pattern if call.function == "match_like" else escaped_pattern(pattern) + "%")


_TERMS = {
    "add": "+",
    "add_checked": "+",
    "subtract": "-",
    "subtract_checked": "-",
    "multiply": "*",
    "multiply_checked": "*",
    "abs": "abs",
    "abs_checked": "abs",
    "utf8_lower": "lower",
    "utf8_upper": "upper",
    "utf8_length": "length",
    "year": "year",
    "month": "month",
    "day": "day",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "quarter": "quarter",
    "day_of_year": "dayofyear",
    "iso_week": "weekofyear",
}
"""Names of our functions with the same meaning."""

_CASTS = ("float", "double", "string", "date")
"""Target types of casts that cannot fail, if they are supported at all."""

_FUNCTIONS: dict[str, Callable[[_PendingCall], Any]] = {
    "cast": _cast,
    "day_of_week": _day_of_week,
    "utf8_slice_codeunits": _slice,
    "and_kleene": lambda call: _joined(And, call),
    "or_kleene": lambda call: _joined(Or, call),
    "invert": lambda call: Not(as_filter(call.arguments[0])),
    "is_in": _isin,
    "if_else": _if_else,
    "is_null": _is_null,
    "is_valid": lambda call: Not(IsNull(only_operand(call.arguments[0], "is_valid"))),
    "starts_with": _like,
    "match_like": _like,
}


def _joined(kind: type[And] | type[Or], call: _PendingCall) -> Expr:
    left, right = (as_filter(argument) for argument in call.arguments)
    return left & right if kind is And else left | right


# ---------------------------------------------------------------------------------------------------------------------
# Key-value pairs of a schema message.  Source: Arrow's Message.fbs and Schema.fbs, and the layout of flatbuffers.

_MESSAGE_HEADER, _SCHEMA_METADATA, _PAIR_KEY, _PAIR_VALUE = 2, 2, 0, 1


def _pairs(message: pa.Buffer) -> Iterator[tuple[str, str]]:
    data = message.to_pybytes()
    schema = _child(data, _child(data, 0, None), _MESSAGE_HEADER)
    vector = _child(data, schema, _SCHEMA_METADATA)
    for number in range(struct.unpack_from("<I", data, vector)[0]):
        pair = _child(data, vector + 4 + 4 * number, None)
        yield _text(data, _child(data, pair, _PAIR_KEY)), _text(data, _child(data, pair, _PAIR_VALUE))


def _child(data: bytes, table: int, slot: int | None) -> int:
    """Return the position that a field of a flatbuffer table refers to; without a slot, that of the offset at `table` itself."""
    at = table
    if slot is not None:
        virtual = table - struct.unpack_from("<i", data, table)[0]
        at = table + struct.unpack_from("<H", data, virtual + 4 + 2 * slot)[0]
    return at + int(struct.unpack_from("<I", data, at)[0])


def _text(data: bytes, at: int) -> str:
    length = struct.unpack_from("<I", data, at)[0]
    return data[at + 4 : at + 4 + length].decode()


def _shorten(expression: pc.Expression) -> str:
    text = " ".join(str(expression).split())
    return text if len(text) <= 200 else text[:200] + "..."
