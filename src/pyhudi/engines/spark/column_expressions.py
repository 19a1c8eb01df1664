"""Values and conditions that callers write for Spark: text, Columns and literals as Columns, and what can be known of them.

A value becomes one of the type of the column that takes it as in an INSERT of Spark's (`storeAssignmentPolicy=ANSI`): a number
becomes another kind of number, anything becomes text, a date a time; text becomes a number by a cast alone, which the caller
writes.  A number that its column does not hold is refused, whether the session is in ANSI mode or not.

What a text says is Spark's to decide.  Two things are read from it all the same, so that files need not be read: which columns an
`on` condition equates, and which rows of the table a condition can be true for.  Where it is not certain that the words mean to
Spark what they mean here, nothing is taken from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyhudi.engines.spark.jobs import REFUSAL
from pyhudi.engines.spark.type_conversion import Column, column, quoted
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.filters.build import joined
from pyhudi.records.filters.exact_pushdown import READ_OTHERWISE, certain
from pyhudi.records.filters.filter_ast import And, Expr
from pyhudi.records.filters.filter_parser import parse_filter


def expression(value: Any) -> Column:
    """Text is Spark SQL, a Column itself, anything else a literal."""
    if isinstance(value, Column):
        return value
    if isinstance(value, str):
        return F.expr(value)
    return F.lit(value.as_py() if isinstance(value, pa.Scalar) else value)


def side(alias: str | None, name: str) -> Column:
    """A column of one side of a join, or of a frame without an alias."""
    return column(name) if alias is None else F.col(f"{_quoted_part(alias)}.{_quoted_part(name)}")


def refused(bad: Column, why: Column, value: Column) -> Column:
    """The value; where `bad` is true the job fails with InvalidRequest, whose text is `why`."""
    return F.when(bad, F.raise_error(F.concat(F.lit(REFUSAL), why))).otherwise(value)


def stored_as(value: Column, given: T.DataType, wanted: T.DataType, name: str, *, exactly: bool = False) -> Column:
    """A value as a column takes it; see the module's head.  exactly: what a number's kind would round or cut is refused too.

    Raises InvalidRequest for a type that the column does not take.
    """
    if _same(given, wanted):
        return value
    if isinstance(given, T.NullType):
        return value.cast(wanted)
    if not _taken(given, wanted):
        raise InvalidRequest(
            f"column {name!r} is {wanted.simpleString()} and does not take a value of type {given.simpleString()}: cast it in "
            "the expression"
        )
    if not isinstance(wanted, T.NumericType):
        return value.cast(wanted)
    if exactly and isinstance(given, T.FloatType) and isinstance(wanted, T.DoubleType):
        # By way of the shortest text, as any other write takes it: 0.1 as a float becomes 0.1, not 0.10000000149011612.
        return value.cast("string").cast(wanted)
    found = value.try_cast(wanted)
    lost = found.isNull() | ~found.try_cast(given).eqNullSafe(value) if exactly else found.isNull()
    why = F.concat(F.lit(f"column {name!r} of type {wanted.simpleString()} cannot hold "), value.cast("string"))
    return refused(value.isNotNull() & lost, why, found)


def _taken(given: T.DataType, wanted: T.DataType) -> bool:
    """Whether Spark stores values of one type in columns of the other."""
    if isinstance(given, T.NumericType) and isinstance(wanted, T.NumericType):
        return True
    if isinstance(wanted, T.StringType):
        return isinstance(given, T.AtomicType)
    times = (T.DateType, T.TimestampType, T.TimestampNTZType)
    return isinstance(given, times) and isinstance(wanted, times)


def _same(given: T.DataType, wanted: T.DataType) -> bool:
    """Whether two types differ in nothing but what may be null."""
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return _same(given.elementType, wanted.elementType)
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        return _same(given.keyType, wanted.keyType) and _same(given.valueType, wanted.valueType)
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        return given.names == wanted.names and all(
            _same(one.dataType, other.dataType) for one, other in zip(given.fields, wanted.fields, strict=True)
        )
    return given == wanted


# ---------------------------------------------------------------------------------------------------------------------
# What rows match by


@dataclass(frozen=True, slots=True)
class MatchedBy:
    """The condition of a merge.  pairs: (column of the table, column of the source) that it equates; alone: it says no more."""

    condition: Column
    pairs: tuple[tuple[str, str], ...]
    alone: bool

    @classmethod
    def names(cls, names: tuple[str, ...], target: str, source: str) -> MatchedBy:
        """Columns of one name."""
        condition = F.lit(True)
        for name in names:
            condition = condition & (side(target, name) == side(source, name))
        return cls(condition, tuple((name, name) for name in names), True)

    @classmethod
    def text(cls, text: str, target: str, source: str) -> MatchedBy:
        """A condition over both aliases."""
        pairs: list[tuple[str, str]] = []
        parts = conjuncts(text)
        for part in parts:
            found = _EQUATION.fullmatch(part)
            if found is None:
                continue
            left, right = [(_plain(found[n]).casefold(), _plain(found[n + 1])) for n in (1, 3)]
            if (left[0], right[0]) == (target.casefold(), source.casefold()):
                pairs.append((left[1], right[1]))
            elif (right[0], left[0]) == (target.casefold(), source.casefold()):
                pairs.append((right[1], left[1]))
        return cls(F.expr(text), tuple(pairs), len(pairs) == len(parts))


_NAME = r"(`[^`]+`|[A-Za-z_]\w*)"
_EQUATION = re.compile(rf"{_NAME}\s*\.\s*{_NAME}\s*==?\s*{_NAME}\s*\.\s*{_NAME}")


def copied_column(value: Any, alias: str) -> str | None:
    """The column of a side that a value is a copy of, where its text is no more than that."""
    if not isinstance(value, str):
        return None
    found = _COPY.fullmatch(value.strip())
    return _plain(found[2]) if found is not None and _plain(found[1]).casefold() == alias.casefold() else None


_COPY = re.compile(rf"{_NAME}\s*\.\s*{_NAME}")


def _plain(name: str) -> str:
    return name.strip("`")


def _quoted_part(name: str) -> str:
    return quoted(name) if "." not in name else "`" + name.replace("`", "``") + "`"


# ---------------------------------------------------------------------------------------------------------------------
# What a condition says of the table's files


def files_condition(where: Any, alias: str | None, table: pa.Schema) -> Expr | None:
    """A filter that is true for every row for which the text is, as Spark reads it; None where nothing is known."""
    if not isinstance(where, str) or READ_OTHERWISE.search(where):
        return None
    found: list[Expr] = []
    for part in conjuncts(where):
        try:
            known = certain(parse_filter(part), table, alias=alias)
        except (InvalidRequest, Unsupported):
            continue
        if known is not None:
            found.append(known)
    return joined(And, found) if found else None


def conjuncts(text: str) -> list[str]:
    """The conditions that a text joins by AND; the whole text where it cannot be told apart with certainty."""
    parts: list[str] = []
    depth, begin = 0, 0
    for token in _TOKEN.finditer(text):
        word = token[0].upper()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word.startswith(("--", "/*")) or (depth == 0 and word in _NOT_BETWEEN_ANDS):
            return [text.strip()]
        if depth == 0 and word == "AND":
            parts.append(text[begin : token.start()].strip())
            begin = token.end()
    return [*parts, text[begin:].strip()]


_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\w+|--|/\*|\|\||.", re.DOTALL)
_NOT_BETWEEN_ANDS = frozenset({"OR", "||", "CASE", "BETWEEN", "\\"})
"""With these, what stands between two ANDs need not be a condition of its own."""
