"""Functions in filters, with the semantics of Spark in a session with time zone UTC, vectorized over columns.

    year month day hour minute second quarter dayofweek weekday dayofyear weekofyear      of a date or timestamp
    date_format(t, format), from_unixtime(seconds [, format]), unix_timestamp(t [, format])
    to_date(t [, format]), to_timestamp(t [, format]), date_add(t, days), date_sub(t, days)
    upper lower length trim ltrim rtrim substring(s, pos [, len])                         of strings
    regexp_replace(s, pattern, replacement), regexp_extract(s, pattern [, idx])
    + - * / % abs                                                                         of numbers
    cast(x AS type)                                                                       to the types of `CASTS`
    variant_get(v, '$.a[0]', 'int')                                                       a part of a VARIANT
    = <> < <= > >=                                                                        of two columns or calls

Null gives null. So does every case in which Spark's ANSI mode raises an error, such as overflow or division by zero.
Results are those of try_add, try_divide, try_cast and similar functions, so that a filter never fails depending on
which rows are read. The common type of whole numbers and floating point is double, as in ANSI mode; there are no other
implicit casts.

`records.sql_functions` declares and evaluates the functions of one column; expression indexes use them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.hudi_types import VARIANT_TYPE
from pyhudi.records.arithmetic import absolute, arithmetic_type, canonical_type, common_type, compare, is_number, run_arithmetic
from pyhudi.records.casts import try_cast
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters.filter_ast import ColumnRef, FunctionCall, Literal, Operand
from pyhudi.records.spark_functions import render_absolute, render_arithmetic, render_cast, render_comparison, render_variant
from pyhudi.records.sql_functions import COLUMN_FUNCTIONS, IDENTITY, ColumnFunction, FunctionOption, IndexExpression, SqlFunction
from pyhudi.records.type_normalization import fits_record
from pyhudi.records.variants.variant_path import parse_path, target_type, variant_get

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")

_CAST = "cast "
_UTC_MICROS = pa.timestamp("us", "UTC")


def build_call(function: str, arguments: Sequence[Any]) -> Any:
    """Create a function call from columns, calls, literals and values; evaluates it if no argument is a column.

    Raises:
        InvalidRequest: Invalid arguments.
        Unsupported: The function is not supported in filters.
    """
    name = _ALIASES.get(function.lower(), function.lower())
    if name not in FUNCTIONS:
        known = ", ".join(sorted(set(FUNCTIONS) - {*COMPARISONS, *ARITHMETIC}))
        raise Unsupported(f"the function {function} is not supported; supported are: {known}")
    if any(argument is None for argument in arguments):
        return None
    call_arguments = tuple(
        argument_ if isinstance(argument_, (ColumnRef, FunctionCall, Literal)) else Literal(argument_, literal_type(argument_))
        for argument_ in arguments
    )
    omitted = [option.omitted for option in _options(name)[max(0, len(call_arguments) - 1) :]]
    if None not in omitted:
        call_arguments += tuple(Literal(argument_, literal_type(argument_)) for argument_ in omitted)
    call = FunctionCall(name, call_arguments)
    if any(not isinstance(argument_, Literal) for argument_ in call_arguments):
        return call
    bound = bind_call(call, pa.schema([]))
    return evaluate(bound, lambda _: pa.nulls(1), 1)[0].as_py()


def literal_type(value: Any) -> pa.DataType:
    """Return Spark's type of a literal.

    Raises:
        InvalidRequest: The value has no type.
    """
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        if -(1 << 63) <= value < 1 << 63:
            return pa.int32() if -(1 << 31) <= value < 1 << 31 else pa.int64()
    elif isinstance(value, float):
        return pa.float64()
    elif isinstance(value, Decimal) and value.is_finite():
        type_ = pa.scalar(value).type
        return type_ if type_.scale >= 0 else pa.decimal128(type_.precision - type_.scale, 0)
    elif isinstance(value, str):
        return pa.string()
    elif isinstance(value, bytes):
        return pa.binary()
    elif isinstance(value, datetime):
        return _UTC_MICROS
    elif isinstance(value, date):
        return pa.date32()
    raise InvalidRequest(f"{value!r} is not a valid function argument")


def bind_call(call: FunctionCall, schema: pa.Schema) -> FunctionCall:
    """Bind a call to a schema: sets the types of its columns and results. A bound call is bound again.

    Raises:
        InvalidRequest: A column is missing, or the function does not support its type.
        Unsupported: A format or type that is not supported.
    """
    arguments: list[ColumnRef | Literal | FunctionCall] = []
    for argument in call.arguments:
        if isinstance(argument, FunctionCall):
            arguments.append(bind_call(argument, schema))
        elif isinstance(argument, ColumnRef):
            type_ = _column_type(schema, argument.name)
            arguments.append(replace(argument, type=type_))
        else:
            arguments.append(argument)
    bound = replace(call, arguments=tuple(arguments))
    try:
        return replace(bound, type=_result_type(bound))
    except (InvalidRequest, Unsupported) as error:
        raise type(error)(f"{call}: {error}") from error


def _column_type(schema: pa.Schema, name: str) -> pa.DataType:
    try:
        type_ = field_at(schema, name).type
    except InvalidRequest as error:
        raise InvalidRequest(f"{error} (string literals need single quotes)") from error
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def evaluate(call: FunctionCall, read_column: Callable[[ColumnRef], pa.Array], count: int) -> pa.Array:
    """Evaluate a bound call.

    Args:
        call: Bound call.
        read_column: Returns the values of a column, `count` of them, in the column's bound type.
        count: Number of rows.
    """
    arguments = [
        evaluate(argument, read_column, count)
        if isinstance(argument, FunctionCall)
        else read_column(argument)
        if isinstance(argument, ColumnRef)
        else None
        for argument in call.arguments
    ]
    return run_function(call, arguments, count)


def run_function(call: FunctionCall, arguments: Sequence[pa.Array | None], count: int) -> pa.Array:
    """Evaluate the outermost function of a call on the values of its arguments; None for a literal."""
    function = FUNCTIONS[call.function]
    if isinstance(function, Operator):
        return function.run(call, arguments, count)
    values = _values(call, arguments, 0, count)
    return index_expression(call).evaluate(values.cast(canonical_type(values.type)))


def as_index_expression(call: Operand) -> tuple[str, IndexExpression] | None:
    """Convert a call to a column and an equivalent index expression in UTC; None if no expression index can have it."""
    if (
        not isinstance(call, FunctionCall)
        or call.function not in COLUMN_FUNCTIONS
        or not COLUMN_FUNCTIONS[call.function].is_indexable
    ):
        return None
    first, *others = call.arguments
    if not isinstance(first, ColumnRef) or not all(isinstance(argument, Literal) for argument in others):
        return None
    return first.name, index_expression(call).normalized()


def argument_types(call: FunctionCall) -> tuple[pa.DataType, ...]:
    """Return the types of the arguments of a bound call."""
    assert all(argument.type is not None for argument in call.arguments), "the filter is not bound to a schema"
    return tuple(argument.type for argument in call.arguments)  # type: ignore[misc]


# ---------------------------------------------------------------------------------------------------------------------
# The functions


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator(SqlFunction):
    """A function whose arguments may all be columns.

    Attributes:
        result_type: Result type for bound arguments.
        run: Evaluates the function on argument values; None for a literal.
    """

    result_type: Callable[[FunctionCall], pa.DataType]
    run: Callable[[FunctionCall, Sequence[pa.Array | None], int], pa.Array]


def index_expression(call: FunctionCall) -> IndexExpression:
    """Convert a call of a function of one column to an expression in UTC.

    Raises:
        InvalidRequest: Too many arguments, or one is missing.
        Unsupported: An argument after the first is not a literal.
    """
    options, names = call.arguments[1:], [option.name for option in _options(call.function)]
    if len(options) > len(names):
        raise InvalidRequest(f"{call.function} takes at most {1 + len(names)} arguments")
    for option in options:
        if not isinstance(option, Literal):
            raise Unsupported(f"the arguments of {call.function} after the first must be literals")
    values = [str(option.value) for option in options if isinstance(option, Literal)]
    return IndexExpression(call.function, tuple(zip(names, values, strict=False)))


def _options(function: str) -> list[FunctionOption]:
    declared = FUNCTIONS[function]
    return [option for option in declared.options if option.is_argument] if isinstance(declared, ColumnFunction) else []


def _result_type(call: FunctionCall) -> pa.DataType:
    function = FUNCTIONS[call.function]
    if isinstance(function, Operator):
        return function.result_type(call)
    if not call.arguments:
        raise InvalidRequest("a function needs at least one argument")
    type_ = call.arguments[0].type
    assert type_ is not None, "arguments are bound before the call"
    return index_expression(call).result_type(canonical_type(type_))


def _values(call: FunctionCall, arguments: Sequence[pa.Array | None], number: int, count: int) -> pa.Array:
    """Return the values of one argument."""
    values, argument = arguments[number], call.arguments[number]
    if values is not None:
        return values
    assert isinstance(argument, Literal), "only literals have no values"
    return pa.repeat(pa.scalar(argument.value, argument.type), count)


def _check_count(call: FunctionCall, count: int) -> None:
    if len(call.arguments) != count:
        raise InvalidRequest(f"{call.function} takes {count} argument{'' if count == 1 else 's'}, not {len(call.arguments)}")


# Numbers


def _arithmetic_type(call: FunctionCall) -> pa.DataType:
    _check_count(call, 2)
    return arithmetic_type(call.function, *argument_types(call))


def _run_arithmetic(call: FunctionCall, arguments: Sequence[pa.Array | None], count: int) -> pa.Array:
    left, right = (_values(call, arguments, number, count) for number in (0, 1))
    return run_arithmetic(call.function, left, right, call.result_type)


def _abs_type(call: FunctionCall) -> pa.DataType:
    _check_count(call, 1)
    type_ = argument_types(call)[0]
    if not is_number(type_):
        raise InvalidRequest(f"abs takes numbers, not {type_}")
    return type_


def _run_abs(call: FunctionCall, arguments: Sequence[pa.Array | None], count: int) -> pa.Array:
    return absolute(_values(call, arguments, 0, count))


def _comparison_type(call: FunctionCall) -> pa.DataType:
    _check_count(call, 2)
    type_ = common_type(*map(canonical_type, argument_types(call)))
    if pa.types.is_nested(type_):
        raise InvalidRequest(f"values of type {type_} cannot be compared")
    return pa.bool_()


def _run_comparison(call: FunctionCall, arguments: Sequence[pa.Array | None], count: int) -> pa.Array:
    left, right = (_values(call, arguments, number, count) for number in (0, 1))
    return compare(call.function, left.cast(canonical_type(left.type)), right.cast(canonical_type(right.type)))


# Casts

CASTS: Mapping[str, pa.DataType] = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": _UTC_MICROS,
}
"""Target types of CAST by their names in Spark."""

_CAST_ALIASES = {"integer": "int", "long": "bigint", "real": "float"}


def cast_to(operand: Any, kind: str) -> Any:
    """Cast a column, call or value to a type of `CASTS`, by its name in SQL.

    Raises:
        Unsupported: Another type.
    """
    name = _CAST_ALIASES.get(kind.lower(), kind.lower())
    if name not in CASTS:
        raise Unsupported(f"a cast to {kind} is not supported; supported types are {', '.join(CASTS)}")
    return build_call(_CAST + name, (operand,))


def _cast_type(call: FunctionCall) -> pa.DataType:
    _check_count(call, 1)
    source, target = argument_types(call)[0], CASTS[call.function.removeprefix(_CAST)]
    if try_cast(source, target) is None:
        raise Unsupported(f"a cast from {source} to {target} is not supported")
    return target


def _run_cast(call: FunctionCall, arguments: Sequence[pa.Array | None], count: int) -> pa.Array:
    values = _values(call, arguments, 0, count)
    cast = try_cast(values.type, CASTS[call.function.removeprefix(_CAST)])
    assert cast is not None, "calls are bound before they are run"
    return cast(values)


# Parts of variants


def _variant_type(call: FunctionCall) -> pa.DataType:
    _check_count(call, 3)
    values, path, kind = call.arguments
    if not fits_record(argument_types(call)[0], VARIANT_TYPE):
        raise InvalidRequest(f"{call.function} takes a VARIANT, not {values.type}")
    if not (isinstance(path, Literal) and isinstance(kind, Literal)):
        raise InvalidRequest(f"{call.function} takes a path and a type as text, such as variant_get(v, '$.a', 'int')")
    parse_path(str(path.value))
    return target_type(str(kind.value))


def _run_variant(call: FunctionCall, arguments: Sequence[pa.Array | None], count: int) -> pa.Array:
    path = call.arguments[1]
    assert isinstance(path, Literal), "calls are bound before they are run"
    return variant_get(_values(call, arguments, 0, count), parse_path(str(path.value)), call.result_type)


FUNCTIONS: Mapping[str, ColumnFunction | Operator] = {
    "variant_get": Operator(result_type=_variant_type, run=_run_variant, render=render_variant, aliases=("try_variant_get",)),
    **{name: function for name, function in COLUMN_FUNCTIONS.items() if name != IDENTITY},
    "abs": Operator(result_type=_abs_type, run=_run_abs, render=render_absolute),
    **dict.fromkeys(ARITHMETIC, Operator(result_type=_arithmetic_type, run=_run_arithmetic, render=render_arithmetic)),
    **dict.fromkeys(COMPARISONS, Operator(result_type=_comparison_type, run=_run_comparison, render=render_comparison)),
    **{
        _CAST + name: Operator(
            result_type=_cast_type, run=_run_cast, render=render_cast, is_monotonic=name in ("date", "timestamp")
        )
        for name in CASTS
    },
}
"""Functions of filters and SQL expressions by name."""

_ALIASES = {alias: name for name, function in FUNCTIONS.items() for alias in function.aliases}
