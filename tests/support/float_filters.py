"""Filters on floating point, as Spark means them: NaN equals NaN and is above every number, -0.0 equals 0.0.

Each case: a filter of ours, the same in Spark's SQL, and what it is of a value that is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

VALUES = (-math.inf, -1.5, -0.0, 0.0, 0.25, 7.5, math.inf, math.nan, None)
LITERALS = (-1.5, -0.0, 0.0, 1.0, 7.5, math.inf, -math.inf, math.nan)
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
LISTS = ((math.nan, 0.0), (-0.0, 7.5), tuple(float(n) for n in range(70)), (*(float(n) for n in range(1, 70)), math.nan))

Case = tuple[Any, str, Callable[[float], bool]]


def rank(value: float) -> tuple[int, float]:
    return (1, 0.0) if math.isnan(value) else (0, value)


def literal(value: float) -> str:
    return f"double('{value!r}')"


def cases() -> list[Case]:
    found: list[Case] = []
    for op, test in OPERATORS.items():
        for number in LITERALS:

            def holds(value: float, test: Callable[[Any, Any], bool] = test, number: float = number) -> bool:
                return test(rank(value), rank(number))

            found.append(([("x", op, number)], f"x {op} {literal(number)}", holds))
    for numbers in LISTS:
        listed = ", ".join(literal(number) for number in numbers)

        def among(value: float, numbers: tuple[float, ...] = numbers) -> bool:
            return any(rank(value) == rank(number) for number in numbers)

        def outside(value: float, among: Callable[[float], bool] = among) -> bool:
            return not among(value)

        found.append(([("x", "in", numbers)], f"x in ({listed})", among))
        found.append(([("x", "not in", numbers)], f"x not in ({listed})", outside))
    found.append(("x = 'NaN'", "x = 'NaN'", math.isnan))
    found.append(("not (x > 0 and x < 'Infinity')", "not (x > 0 and x < 'Infinity')", lambda v: not 0 < v < math.inf))
    found.append(("x between -0.0 and 'NaN'", "x between -0.0D and 'NaN'", lambda v: v >= 0 or math.isnan(v)))
    found.append(("not x <= 7.5", "not x <= 7.5D", lambda v: v > 7.5 or math.isnan(v)))
    return found


CASES = cases()


def expected(case: Case) -> list[int]:
    """The places in VALUES that a case chooses."""
    return [place for place, value in enumerate(VALUES) if value is not None and case[2](value)]
