"""Arithmetic and comparisons of columns, with the semantics of Spark's try_add, try_divide and similar functions under
ANSI rules.

Overflow and division by zero give null. Whole numbers keep the wider of their types; with floating point the common
type is double. NaN equals NaN and is above every number, -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.decimal_casts import cast_number

Numbers = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]

_LONG = np.iinfo(np.int64)


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that functions support in place of an equivalent one."""
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the common type of two numeric types, or of two equal types.

    Raises:
        InvalidRequest: There is no common type.
    """
    types = pa.types
    if left == right:
        return left
    if is_number(left) and is_number(right):
        if types.is_integer(left) and types.is_integer(right):
            return left if left.bit_width >= right.bit_width else right
        if types.is_floating(left) or types.is_floating(right):
            return pa.float64()
        left_decimal, right_decimal = as_decimal(left), as_decimal(right)
        scale = max(left_decimal.scale, right_decimal.scale)
        return _decimal(
            max(left_decimal.precision - left_decimal.scale, right_decimal.precision - right_decimal.scale) + scale, scale
        )
    raise InvalidRequest(f"values of types {left} and {right} have no common type: cast one of them")


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """Return the decimal type that represents every value of an integer type; decimal types are unchanged."""
    return kind if pa.types.is_decimal(kind) else pa.decimal128({8: 3, 16: 5, 32: 10}.get(kind.bit_width, 20), 0)


def is_number(kind: pa.DataType) -> bool:
    """Return True if arithmetic is supported on values of a type."""
    types = pa.types
    return bool(types.is_signed_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or types.is_decimal128(kind))


def arithmetic_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the result type of the operators + - * / %.

    Raises:
        InvalidRequest: An operand is not a number.
        Unsupported: Decimals of more digits than Spark supports, or operations in which Spark rounds decimals.
    """
    for type_ in (left, right):
        if not is_number(type_):
            raise InvalidRequest(f"{operator} takes numbers, not {type_}")
    if operator == "/":
        exact = not pa.types.is_floating(left) and not pa.types.is_floating(right)
        if exact and (pa.types.is_decimal(left) or pa.types.is_decimal(right)):
            raise Unsupported("division of decimals is not supported: cast them to double")
        return pa.float64()
    type_ = common_type(left, right)
    if not pa.types.is_decimal(type_):
        return type_
    if operator == "*":
        left_decimal, right_decimal = as_decimal(left), as_decimal(right)
        return _decimal(left_decimal.precision + right_decimal.precision + 1, left_decimal.scale + right_decimal.scale)
    if operator == "%":
        raise Unsupported("the remainder of decimals is not supported: cast them to double")
    return _decimal(type_.precision + 1, type_.scale)


def run_arithmetic(operator: str, left: pa.Array, right: pa.Array, kind: pa.DataType) -> pa.Array:
    """Evaluate an operator; `kind` is its `arithmetic_type`."""
    if pa.types.is_decimal(kind):
        operations = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
        return operations[operator](left.cast(as_decimal(left.type)), right.cast(as_decimal(right.type))).cast(kind)
    unknown = np.asarray(pc.or_(left.is_null(), right.is_null()), dtype=np.bool_)
    is_floating = pa.types.is_floating(kind)
    run, computed = (_FLOATS[operator], kind) if is_floating else (_INTEGER_FUNCTIONS[operator], pa.int64())
    results, failed = run(_numbers(left, computed), _numbers(right, computed))
    if not is_floating:
        failed |= (results < -(1 << kind.bit_width - 1)) | (results > (1 << kind.bit_width - 1) - 1)
    # NaN is a value: only the mask marks nulls.
    masked = pa.array(np.where(failed, results.dtype.type(0), results), mask=unknown | failed, from_pandas=False)
    return masked.cast(kind)


def absolute(values: pa.Array) -> pa.Array:
    """Return absolute values; null for the minimum of an integer type, which has no positive counterpart."""
    if pa.types.is_integer(values.type):
        least = pa.scalar(-(1 << values.type.bit_width - 1), values.type)
        values = pc.if_else(pc.equal(values, least), pa.scalar(None, values.type), values)
    return pc.abs(values)


def compare(operator: str, left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    """Compare two columns row by row in their `common_type`; null if either value is null."""
    type_ = common_type(left.type, right.type)
    left, right = (_comparable(side, type_) for side in (left, right))
    if operator in (">", ">="):
        left, right, operator = right, left, {">": "<", ">=": "<="}[operator]
    if not pa.types.is_floating(type_):
        return {"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal}[operator](left, right)
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    same = pc.or_(pc.equal(left, right), pc.and_(left_nan, right_nan))
    if operator in ("=", "<>"):
        return same if operator == "=" else pc.invert(same)
    below = pc.or_(pc.less(left, right), pc.and_(pc.invert(left_nan), right_nan))
    return below if operator == "<" else pc.or_(below, same)


def _decimal(precision: int, scale: int) -> pa.DataType:
    if precision > 38:
        raise Unsupported(f"decimals of {precision} digits are not supported: cast one side to double")
    return pa.decimal128(precision, scale)


def _comparable(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):
        return values.cast(pa.uint8())
    if pa.types.is_decimal(kind) and not pa.types.is_decimal(values.type):
        values = values.cast(as_decimal(values.type))
    return cast_number(values, kind) if values.type != kind else values


def _numbers(values: pa.Array, kind: pa.DataType) -> Numbers:
    return np.asarray(pc.fill_null(cast_number(values, kind), pa.scalar(0, kind)))


def _add_integers(left: Numbers, right: Numbers) -> tuple[Numbers, Flags]:
    results = left + right
    return results, ((left ^ results) & (right ^ results)) < 0


def _subtract_integers(left: Numbers, right: Numbers) -> tuple[Numbers, Flags]:
    results = left - right
    return results, ((left ^ right) & (left ^ results)) < 0


def _multiply_integers(left: Numbers, right: Numbers) -> tuple[Numbers, Flags]:
    results = left * right
    divisor = np.where((right == 0) | (right == -1), 1, right)
    overflow = (results // divisor != left) & (right != 0) & (right != -1)
    return results, overflow | ((right == -1) & (left == _LONG.min))


def _remainder_integers(left: Numbers, right: Numbers) -> tuple[Numbers, Flags]:
    # The remainder by -1 is 0, also for the minimum integer, whose quotient overflows.
    return np.fmod(left, np.where((right == 0) | (right == -1), 1, right)), right == 0


def _float(operation: Callable[[Numbers, Numbers], Numbers], *, divides: bool) -> Callable[..., tuple[Numbers, Flags]]:
    def run(left: Numbers, right: Numbers) -> tuple[Numbers, Flags]:
        with np.errstate(all="ignore"):
            results = operation(left, right)
        return results, (right == 0) if divides else np.zeros(len(left), dtype=np.bool_)

    return run


_INTEGER_FUNCTIONS = {"+": _add_integers, "-": _subtract_integers, "*": _multiply_integers, "%": _remainder_integers}
_FLOATS = {
    "+": _float(np.add, divides=False),
    "-": _float(np.subtract, divides=False),
    "*": _float(np.multiply, divides=False),
    "/": _float(np.divide, divides=True),
    "%": _float(np.fmod, divides=True),
}
