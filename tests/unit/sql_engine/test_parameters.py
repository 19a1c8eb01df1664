"""Parameters of statements: which markers are replaced, and by which literals."""

from __future__ import annotations

import enum
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.sql_engine.parameters import bind


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("statement", "bound"),
    [
        ("SELECT :a, $a,:a", "SELECT 1, 1,1"),
        ("SELECT ':a', \":a\", `:a`, r':a' -- :a", "SELECT ':a', \":a\", `:a`, r':a' -- :a"),
        ("SELECT /* :a */ x::INT, :a", "SELECT /* :a */ x::INT, 1"),
        ("CAST(x AS STRUCT<a:INT, b: ARRAY<STRUCT<a:INT>>>) > :a", "CAST(x AS STRUCT<a:INT, b: ARRAY<STRUCT<a:INT>>>) > 1"),
        ("x < :a AND y > :a", "x < 1 AND y > 1"),
        ("SELECT ${a}", "SELECT ${a}"),
    ],
)
def test_markers(statement: str, bound: str) -> None:
    assert bind(statement, {"a": 1, "INT": 2}) == bound
    assert bind(statement, None) == statement


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-7, " -7"),
        (10**38 - 1, "9" * 38),
        (0.1, "CAST('0.1' AS DOUBLE)"),
        (math.inf, "CAST('Infinity' AS DOUBLE)"),
        (-math.inf, "CAST('-Infinity' AS DOUBLE)"),
        (math.nan, "CAST('NaN' AS DOUBLE)"),
        (np.float32(0.5), "CAST('0.5' AS DOUBLE)"),
        (np.int8(3), "3"),
        (pa.scalar(5), "5"),
        ("it's \\", r"'it\'s \\'"),
        (Decimal("-12.10"), "CAST('-12.10' AS DECIMAL(4, 2))"),
        (Decimal("0.005"), "CAST('0.005' AS DECIMAL(3, 3))"),
        (Decimal("1E+2"), "CAST('100' AS DECIMAL(3, 0))"),
        (Decimal(0), "CAST('0' AS DECIMAL(1, 0))"),
        (date(2024, 5, 6), "DATE '2024-05-06'"),
        (datetime(2024, 5, 6, 7, 8, 9), "TIMESTAMP '2024-05-06 07:08:09'"),
        (datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC), "TIMESTAMP '2024-05-06 07:08:09.000010+00:00'"),
        (b"\x00a", "X'0061'"),
        ([1, [None, "x"]], "array(1, array(NULL, 'x'))"),
        (np.array([1, 2]), "array(1, 2)"),
        (UUID(int=1), "'00000000-0000-0000-0000-000000000001'"),
    ],
)
def test_literals(value: Any, literal: str) -> None:
    assert bind("?", [value]) == literal
    assert bind(":v", {"v": value}) == literal


@pytest.mark.parametrize(
    ("statement", "params", "message"),
    [
        ("SELECT\n ?", {"a": 1}, "line 2, column 2: params is a dictionary, and the parameter [?] needs a list"),
        ("SELECT :a", [1], "the parameter :a needs a dictionary"),
        ("SELECT $a", {"b": 1}, "parameter [$]a has no value: params has values for b"),
        ("SELECT ?, ?", [1], "has no value: params has 1 values"),
        ("SELECT ?", [1, 2], "params has 2 values, and the statement has 1 parameters"),
        ("SELECT ?", "a", "params is 'a'"),
        ("SELECT ?", 5, "params is 5: pass a list"),
        ("SELECT ?", [{}], "parameter 1 is dict {}, which has no literal"),
        ("SELECT :a", {"a": 10**38}, ":a is int"),
        ("SELECT :a", {"a": Decimal("NaN")}, ":a is Decimal"),
        ("SELECT :a", {"a": Decimal("1E-39")}, "more than 38 digits"),
        ("SELECT :a", {"a": Color.RED}, ":a: Color.RED is a member of an Enum"),
    ],
)
def test_refused(statement: str, params: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        bind(statement, params)
