"""Parser of filters: SQL text and tuples to the abstract syntax tree of `filter_ast`.

`from_arrow` and `from_polars` convert expressions of pyarrow and Polars.

Grammar, keywords case-insensitive:

    filter   := or ;  or := and {OR and} ;  and := not {AND not} ;  not := NOT not | test
    test     := sum [rest]                                               a column alone must be boolean
    rest     := ( = | == | <> | != | < | <= | > | >= ) sum               one of the two sides has a column | [NOT] IN
             '(' sum {',' sum} ')' | [NOT] BETWEEN sum AND sum | [NOT] LIKE 'pattern' | [NOT] STARTS WITH 'text' | IS
             [NOT] NULL
    sum      := product {( + | - ) product} ;  product := unary {( * | / | % ) unary} ;  unary := {+ | -} primary
    primary  := '(' or ')' | CAST '(' sum AS type ')' | function '(' [sum {',' sum}] ')' | column | literal
    column   := part {'.' part} ;  part := name | `name` | "name"
    literal  := number | 'text' with '' for ' | TRUE | FALSE | NULL | DATE '2024-05-06' | TIMESTAMP '2024-05-06
             07:08:09' | X'6162'

A time without a time zone is UTC, and functions evaluate times in UTC. `filter_functions` lists the functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.byte_cursor import checked_text
from pyhudi.records.filters import from_arrow, from_polars
from pyhudi.records.filters.build import OPERATORS, comparison, escaped_pattern, join_conditions, membership, to_operand
from pyhudi.records.filters.filter_ast import (
    And,
    ColumnRef,
    Compare,
    Constant,
    Expr,
    FunctionCall,
    IsNull,
    Like,
    Not,
    Operand,
    Or,
    expression_depth,
)
from pyhudi.records.filters.filter_functions import build_call, cast_to
from pyhudi.records.plain_values import plain_value, plain_values

if TYPE_CHECKING:
    import polars

    Filter: TypeAlias = str | Expr | Sequence[Any] | pc.Expression | polars.Expr
else:
    Filter = str | Expr | Sequence[Any] | pc.Expression  # and of Polars, which need not be installed

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEPTH_LIMIT = 100

COMPUTED = "Table.update, Table.merge and hp.sql compute values, or compute them in a frame, and upsert that with based_on="
"""Hint in errors on how to assign computed values."""


def parse_value(text: str) -> Any:
    """Parse the value of an assignment: a `ColumnRef`, or the value of a literal in filter syntax.

    Raises:
        InvalidRequest: Syntax error.
        Unsupported: Functions, arithmetic and conditions.
    """
    return _Parser(checked_text(text, "the value"), "the value").parse_value()


def is_filter(condition: Any) -> bool:
    """Return True if a condition has the syntax of filters."""
    try:
        parse_filter(condition)
    except (InvalidRequest, Unsupported):
        return False
    return True


def is_computed(value: Any) -> bool:
    """Return True for text that is neither a literal nor a column."""
    if not isinstance(value, str):
        return False
    try:
        parse_value(value)
    except (InvalidRequest, Unsupported):
        return True
    return False


def parse_filter(text: Filter) -> Expr:
    """Parse a filter: SQL text, tuples, an expression of pyarrow or Polars, or a syntax tree.

    Tuples are (column, operator, value) with the operators of SQL and `in`, `not in`, `like`, `not like`, `is`, `is
    not`. A list of tuples is joined by AND, a list of lists by OR. Columns of tuples are dotted names, never function
    calls.

    Raises:
        InvalidRequest: Syntax error, with its position.
        Unsupported: Functions that filters do not support.
    """
    if isinstance(text, Expr):
        return _checked_depth(text)
    if isinstance(text, pc.Expression):
        return _checked_depth(from_arrow.convert_arrow_expression(text))
    if from_polars.is_expression(text):
        return _checked_depth(from_polars.convert_polars_expression(text))
    if isinstance(text, str):
        return _Parser(checked_text(text, "the filter")).parse()
    if not isinstance(text, Iterable):
        raise InvalidRequest(f"a filter must be SQL text, tuples or an expression of pyarrow or Polars, not {text!r}")
    conditions = list(text)
    if len(conditions) == 3 and isinstance(conditions[0], str) and isinstance(conditions[1], str):
        return _condition((conditions[0], conditions[1], conditions[2]))
    if not conditions:
        return Constant(True)
    if all(isinstance(part, list) for part in conditions):
        return join_conditions(Or, [parse_filter(part) for part in conditions])
    return join_conditions(And, [_condition(part) for part in conditions])


def _checked_depth(tree: Expr) -> Expr:
    if expression_depth(tree) > _DEPTH_LIMIT:
        raise InvalidRequest(f"the filter is nested more than {_DEPTH_LIMIT} levels deep")
    return tree


_TIME_TEXT = re.compile(
    r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?\s*(?:Z|UTC|[+-][0-9]{2}:?[0-9]{2})?)?\s*"
)


def parse_timestamp_micros(text: str) -> int:
    """Parse a time to microseconds since the epoch; UTC if it has no time zone.

    Raises:
        InvalidRequest: The string is not a time.
    """
    if _TIME_TEXT.fullmatch(text):
        try:
            parsed = datetime.fromisoformat(text.strip().replace("UTC", "Z").replace(" Z", "Z"))
            utc_time = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
            return (utc_time - _EPOCH) // timedelta(microseconds=1)
        except ValueError:
            pass
    raise InvalidRequest(f"{text!r} is not a time: write 2024-05-06 or 2024-05-06 07:08:09.123456, with +02:00 or Z for a zone")


def _date_of(text: str) -> date:
    try:
        return date.fromisoformat(text.strip()) if re.fullmatch(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}\s*", text) else _no_date(text)
    except ValueError as error:
        raise InvalidRequest(f"{text!r} is not a date: {error}") from error


def _no_date(text: str) -> date:
    raise InvalidRequest(f"{text!r} is not a date: write 2024-05-06")


# ---------------------------------------------------------------------------------------------------------------------
# Parsing text

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<bytes>[xX]'[0-9A-Fa-f]*')
    | (?P<text>'(?:[^']|'')*')
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<quoted>`(?:[^`]|``)+`|"(?:[^"]|"")+")
    | (?P<word>[^\W0-9]\w*)
    | (?P<symbol><=|>=|<>|!=|==|[=<>(),.+\-*/%])
    )""",
    re.VERBOSE,
)
_KEYWORDS = frozenset({"and", "or", "not", "in", "between", "like", "is", "null", "true", "false"})


@dataclass(frozen=True, slots=True)
class _FilterToken:
    kind: str
    text: str
    position: int

    def is_keyword(self, keyword: str) -> bool:
        return self.kind == "word" and self.text.lower() == keyword

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind == "symbol" and self.text in symbols


class _Parser:
    """Recursive descent parser over the tokens of one text, with limited depth."""

    __slots__ = ("_depth", "_description", "_index", "_text", "_tokens")

    def __init__(self, text: str, description: str = "the filter") -> None:
        self._text = text
        self._description = description
        self._tokens = list(self._scan())
        self._index = 0
        self._depth = 0

    def parse(self) -> Expr:
        result = self._condition(self._or())
        if self._next.kind != "end":
            raise self._error("expected AND, OR or the end")
        return result

    def parse_value(self) -> Any:
        result = self._unary()
        if isinstance(result, (FunctionCall, Expr)):
            raise Unsupported(f"{self._description} {self._text!r}: only a literal or a column can be assigned; {COMPUTED}")
        if self._next.kind != "end":
            raise Unsupported(
                f"{self._description} {self._text!r}: only a literal or a column can be assigned, found {self._next.text!r} at "
                f"character {self._next.position}; {COMPUTED}"
            )
        return result

    def _scan(self) -> Iterable[_FilterToken]:
        position = 0
        end = len(self._text.rstrip())
        while position < end:
            match = _TOKEN.match(self._text, position)
            if match is None or match.lastgroup is None:
                error_position = position + len(self._text[position:]) - len(self._text[position:].lstrip())
                raise InvalidRequest(
                    f"{self._description} {self._text!r} cannot be parsed at character {error_position}: "
                    f"{self._text[error_position : error_position + 20]!r}"
                )
            yield _FilterToken(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
            position = match.end()
        yield _FilterToken("end", "", len(self._text))

    @property
    def _next(self) -> _FilterToken:
        return self._tokens[self._index]

    @property
    def _after(self) -> _FilterToken:
        return self._tokens[min(self._index + 1, len(self._tokens) - 1)]

    def _take(self) -> _FilterToken:
        token = self._next
        self._index += 1
        return token

    def _take_keyword(self, word: str) -> bool:
        if self._next.is_keyword(word):
            self._index += 1
            return True
        return False

    def _take_symbol(self, symbol: str) -> bool:
        if self._next.is_symbol(symbol):
            self._index += 1
            return True
        return False

    def _error(self, expected: str) -> InvalidRequest:
        next_text = self._next.text or "the end"
        return InvalidRequest(
            f"{self._description} {self._text!r}: {expected}, found {next_text!r} at character {self._next.position}"
        )

    def _condition(self, node: Any) -> Expr:
        """Convert a node to a condition. A column or call alone must be boolean."""
        if isinstance(node, Expr):
            return node
        if isinstance(node, (ColumnRef, FunctionCall)):
            return Compare(to_operand(node), "=", True)
        if node is None or isinstance(node, bool):
            return Constant(node)
        raise self._error("expected a comparison")

    def _or(self) -> Any:
        """Parse a condition, or a column, call or value alone, as in parentheses."""
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise InvalidRequest(f"the filter is nested more than {_DEPTH_LIMIT} levels deep")
        first = self._and()
        if self._next.is_keyword("or"):
            parts = [self._condition(first)]
            while self._take_keyword("or"):
                parts.append(self._condition(self._and()))
            first = join_conditions(Or, parts)
        self._depth -= 1
        return first

    def _and(self) -> Any:
        first = self._not()
        if not self._next.is_keyword("and"):
            return first
        parts = [self._condition(first)]
        while self._take_keyword("and"):
            parts.append(self._condition(self._not()))
        return join_conditions(And, parts)

    def _not(self) -> Any:
        negations = 0
        while self._take_keyword("not"):
            negations += 1
        test = self._test()
        if negations:
            test = self._condition(test)
        return Not(test) if negations % 2 else test

    def _test(self) -> Any:
        left = self._sum()
        if isinstance(left, Expr):
            return left
        token = self._next
        if token.kind == "symbol" and token.text in OPERATORS:
            self._take()
            return comparison(left, OPERATORS[token.text], self._side())
        return self._operand_test(left) if isinstance(left, (ColumnRef, FunctionCall)) else left

    def _side(self) -> Any:
        """Parse one side of a comparison."""
        side = self._sum()
        if isinstance(side, Expr):
            raise self._error("expected a column or a literal, not a condition,")
        return side

    def _operand_test(self, left: ColumnRef | FunctionCall) -> Any:
        operand = to_operand(left)
        if self._take_keyword("is"):
            negated = self._take_keyword("not")
            if not self._take_keyword("null"):
                raise self._error("expected NULL")
            return Not(IsNull(operand)) if negated else IsNull(operand)
        negated = self._next.is_keyword("not") and not self._after.is_keyword("not")
        if negated:
            self._take()
        test = self._range_test(left, operand)
        if test is None:
            if negated:
                raise self._error("expected IN, BETWEEN, LIKE or STARTS WITH")
            return left
        return Not(test) if negated else test

    def _range_test(self, left: ColumnRef | FunctionCall, operand: Operand) -> Expr | None:
        if self._take_keyword("in"):
            return membership(operand, self._list())
        if self._take_keyword("between"):
            low = self._side()
            if not self._take_keyword("and"):
                raise self._error("expected AND")
            return And((comparison(left, ">=", low), comparison(left, "<=", self._side())))
        if self._take_keyword("like"):
            return Like(operand, self._string())
        if self._next.is_keyword("starts") and self._after.is_keyword("with"):
            self._index += 2
            return Like(operand, escaped_pattern(self._string()) + "%")
        return None

    def _list(self) -> list[Any]:
        if not self._take_symbol("("):
            raise self._error("expected '('")
        values = [self._literal()]
        while self._take_symbol(","):
            values.append(self._literal())
        if not self._take_symbol(")"):
            raise self._error("expected ',' or ')'")
        return values

    def _string(self) -> str:
        if self._next.kind != "text":
            raise self._error("expected text in single quotes")
        return self._take().text[1:-1].replace("''", "'")

    def _literal(self) -> Any:
        start = self._index
        value = self._side()
        if isinstance(value, (ColumnRef, FunctionCall)):
            self._index = start
            raise self._error("expected a literal (string literals need single quotes)")
        return value

    def _sum(self) -> Any:
        left = self._product()
        while self._next.is_symbol("+", "-"):
            left = self._parse_arithmetic(left, self._product)
        return left

    def _product(self) -> Any:
        left = self._unary()
        while self._next.is_symbol("*", "/", "%"):
            left = self._parse_arithmetic(left, self._unary)
        return left

    def _parse_arithmetic(self, left: Any, right: Callable[[], Any]) -> Any:
        """Parse an arithmetic operator and its right side, and combine both sides."""
        operator = self._take().text
        sides = (left, right())
        if any(isinstance(side, Expr) for side in sides):
            raise self._error(f"expected columns and literals as operands of {operator}")
        return build_call(operator, sides)

    def _unary(self) -> Any:
        token = self._next
        if not token.is_symbol("-", "+"):
            return self._primary()
        self._take()
        if self._next.kind == "number":
            number = _number(self._take().text)
            return _negated(number) if token.text == "-" else number
        if self._next.kind in ("text", "bytes", "end", "symbol") and not self._next.is_symbol("("):
            raise self._error("expected a number")
        operand = self._primary()
        if isinstance(operand, Expr):
            raise self._error(f"expected a column or a number after {token.text}")
        return build_call("-", (0, operand)) if token.text == "-" else operand

    def _primary(self) -> Any:
        token = self._next
        if self._take_symbol("("):
            inner = self._or()
            if not self._take_symbol(")"):
                raise self._error("expected ')'")
            return inner
        if token.kind == "text":
            return self._string()
        if token.kind == "bytes":
            digits = self._take().text[2:-1]
            if len(digits) % 2:
                raise InvalidRequest(f"{self._description} {self._text!r}: X'{digits}' has an odd number of digits")
            return bytes.fromhex(digits)
        if token.kind == "number":
            return _number(self._take().text)
        if token.kind == "word" and token.text.lower() in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[self._take().text.lower()]
        if token.kind == "word" and token.text.lower() in ("date", "timestamp") and self._after.kind == "text":
            is_date = self._take().text.lower() == "date"
            text = self._string()
            return _date_of(text) if is_date else _EPOCH + timedelta(microseconds=parse_timestamp_micros(text))
        if token.kind == "word" and self._after.is_symbol("(") and token.text.lower() not in _KEYWORDS:
            return self._call()
        return self._column()

    def _call(self) -> Any:
        name = self._take().text
        self._take()
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise InvalidRequest(f"the filter is nested more than {_DEPTH_LIMIT} levels deep")
        if name.lower() in ("cast", "try_cast"):
            result = self._cast()
        else:
            arguments = [] if self._next.is_symbol(")") else [self._side()]
            while self._take_symbol(","):
                arguments.append(self._side())
            result = self._build_call(name, arguments)
        if not self._take_symbol(")"):
            raise self._error("expected ',' or ')'")
        self._depth -= 1
        return result

    def _cast(self) -> Any:
        operand = self._side()
        if not self._take_keyword("as"):
            raise self._error("expected AS")
        if self._next.kind != "word":
            raise self._error("expected a type")
        return cast_to(operand, self._take().text)

    def _build_call(self, name: str, arguments: list[Any]) -> Any:
        try:
            return build_call(name, arguments)
        except Unsupported as error:
            raise Unsupported(f"{self._description} {self._text!r}: {error}") from error

    def _column(self) -> ColumnRef:
        parts = [self._name()]
        while self._take_symbol("."):
            parts.append(self._name())
        if self._next.is_symbol("("):
            raise Unsupported(f"{self._description} {self._text!r}: the function {'.'.join(parts)} is not supported")
        return ColumnRef(".".join(parts))

    def _name(self) -> str:
        token = self._next
        if token.kind == "quoted":
            quote = token.text[0]
            return self._take().text[1:-1].replace(quote * 2, quote)
        if token.kind == "word" and token.text.lower() not in _KEYWORDS:
            return self._take().text
        raise self._error("expected a column or a literal")


_LONGEST_EXPONENT = 10
"""Maximum length of an exponent, including its sign."""


def _negated(number: int | Decimal | float) -> int | Decimal | float:
    """Negate a number exactly: Python's unary minus rounds a decimal to 28 digits."""
    return number.copy_negate() if isinstance(number, Decimal) and number else -number


def _number(text: str) -> int | Decimal | float:
    if len(text) > 1000:
        raise InvalidRequest(f"a number of {len(text)} characters is not supported")
    if text.isdecimal():
        return int(text)
    # In SQL a number with an exponent is a double, one with only a point a decimal.
    mantissa, _, exponent = text.lower().partition("e")
    if not exponent:
        return Decimal(text)
    if len(exponent) > _LONGEST_EXPONENT:
        raise InvalidRequest(f"a number with the exponent {exponent} is not supported")
    number = float(text)
    # Beyond the largest double, or below the smallest, a number is neither infinite nor 0.
    is_double = math.isfinite(number) and (number != 0 or not Decimal(mantissa))
    return number if is_double else Decimal(text)


def _condition(condition: Any) -> Expr:
    if isinstance(condition, Expr):
        return condition
    if not isinstance(condition, (tuple, list)) or len(condition) != 3 or not isinstance(condition[0], str):
        raise InvalidRequest(f"a condition must be a tuple (column, operator, value), not {condition!r}")
    name, op, value = condition
    op = " ".join(str(op).lower().split())
    if op in OPERATORS:
        if value is None:
            raise InvalidRequest(
                f"a comparison with null never matches: use ({name!r}, 'is', None) or ({name!r}, 'is not', None)"
            )
        return Compare(name, OPERATORS[op], _plain(value))
    if op in ("in", "not in"):
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise InvalidRequest(f"the operator {op!r} on {name!r} takes a list of values, not {value!r}")
        items = plain_values(value)
        test = membership(name, [_plain(item) for item in (value if items is None else items)])
        return test if op == "in" else Not(test)
    if op in ("like", "not like") and isinstance(value, str):
        pattern: str = _plain(value)
        return Like(name, pattern) if op == "like" else Not(Like(name, pattern))
    if op in ("is", "is not") and value is None:
        return IsNull(name) if op == "is" else Not(IsNull(name))
    known = ", ".join((*OPERATORS, "in", "not in", "like", "not like", "is", "is not"))
    raise InvalidRequest(f"invalid condition {condition!r}: the operators are {known}; is and is not take None")


def _plain(value: Any) -> Any:
    value = plain_value(value, "the value of a filter")
    return checked_text(value, "the value") if isinstance(value, str) else value
