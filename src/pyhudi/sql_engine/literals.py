r"""Lexical rules of Spark 4 for text literals, quoted names and comments, and parsing with them.

sqlglot's tokenizer reads a doubled quote as the end of one literal and the start of another, and knows fewer raw literals than
Spark does.  So the quoted parts of a statement are decoded here; sqlglot sees placeholders of the same length, and its tokens
get the decoded values:

    'it''s'                 a doubled quote is the quote itself; text in double quotes follows the same rules
    'a\nb'  '\u0041'        \0 \b \n \r \t \Z, \uXXXX, \UXXXXXXXX, three octal digits up to \177; \% and \_ keep
                            their backslash; before any other character a backslash is dropped
    r'a\nb'                 raw: nothing in it is special
    `a``b`                  a name; a doubled backquote is the backquote itself
    'a' 'b'                 adjacent literals with white space between them are one
    -- ...  /* ... */       comments; those in brackets nest
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError

from pyhudi.errors import InvalidRequest, Unsupported

__all__ = ["DIALECT", "parse_spark", "describe_position", "tokenize_spark"]

DIALECT = "spark"

_PART = re.compile(
    r"""
      (?P<hex>[xX]'[0-9A-Fa-f]*')
    | (?P<raw>[rR]'[^']*'|[rR]"[^"]*")
    | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<name>`(?:[^`]|``)*`)
    | (?P<comment>--(?:\\\n|[^\r\n])*)
    | (?P<bracketed>/\*(?!\+))
    | (?P<word>\w+)
    | (?P<open>['"`])
    """,
    re.VERBOSE | re.DOTALL,
)
_BRACKETS = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([01][0-7]{2})|(.))|(['\"])\5", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_NOT_BREAK = re.compile(r"[^\r\n]")
_REFUSED = (
    TokenType.NATIONAL_STRING,
    TokenType.BIT_STRING,
    TokenType.BYTE_STRING,
    TokenType.HEREDOC_STRING,
    TokenType.UNICODE_STRING,
)


def describe_position(statement: str, offset: int) -> str:
    """Line and column of a character of a statement, as in error messages."""
    before = statement[:offset]
    return f"SQL, line {before.count(chr(10)) + 1}, column {len(before) - (before.rfind(chr(10)) + 1) + 1}"


def tokenize_spark(statement: str, dialect: Any = DIALECT, lead: str = "") -> list[Any]:
    """Tokenize a statement, with the values that Spark 4 gives its literals and quoted names.

    Args:
        statement: SQL text.
        dialect: Spark's dialect of sqlglot, or one derived from it.
        lead: Text that the tokenizer reads before the statement; positions count from its start.

    Raises:
        InvalidRequest: A quote or a comment is not closed, or a literal is invalid in Spark.
        Unsupported: A literal of another dialect, which Spark would interpret differently.
    """
    masked, values = _masked(statement)
    try:
        tokens = Dialect.get_or_raise(dialect).tokenize(lead + masked)
    except SqlglotError as error:
        raise InvalidRequest(f"SQL that cannot be tokenized: {error}") from error
    for token in tokens:
        start = token.start - len(lead)
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) and start in values:
            token.text = values[start]
        elif token.token_type in _REFUSED or (token.token_type is TokenType.HEX_STRING and statement[start] not in "xX"):
            raise Unsupported(
                f"{describe_position(statement, start)}: {statement[start : token.end - len(lead) + 1]} is no literal of "
                "Spark's. Write text "
                "as 'text', bytes as X'6162'"
            )
    return tokens


def parse_spark(
    text: str, dialect: Any = DIALECT, *, expression: bool = False, check: Callable[[str, list[Any]], None] | None = None
) -> exp.Expr:
    """The tree of a query, or of an expression.

    Args:
        text: The query or the expression.
        dialect: Spark's dialect of sqlglot, or one made from it.
        expression: Whether it is an expression.
        check: Gets the text and its tokens before they are parsed, and raises for those that are refused.

    Raises:
        ParseError: sqlglot's, for what is no query or no expression.
        InvalidRequest, Unsupported: As `tokenize_spark`.
    """
    parser = Dialect.get_or_raise(dialect).parser()
    tokens = tokenize_spark(text, dialect)
    if check is not None:
        check(text, tokens)
    trees = parser.parse_into(exp.Condition, tokens, text) if expression else parser.parse(tokens, text)
    if not trees or trees[0] is None:
        raise ParseError(f"nothing to parse in {text!r}")
    tree: exp.Expr = trees[0]
    return tree


def without_quoted(statement: str) -> str:
    """Return the statement with placeholders for quoted parts and blanks for comments, at the same positions."""
    return _masked(statement)[0]


def _masked(statement: str) -> tuple[str, dict[int, str]]:
    """The statement with placeholders for quoted parts and blanks for comments, and the decoded values by position."""
    pieces: list[str] = []
    values: dict[int, str] = {}
    done = at = 0
    last_text: tuple[int, int] | None = None
    while (part := _PART.search(statement, at)) is not None:
        part_type, start, at = part.lastgroup, part.start(), part.end()
        if part_type in ("word", "hex"):
            continue
        if part_type == "open":
            raise InvalidRequest(
                f"{describe_position(statement, start)}: the quote {part[0]} is not closed. Close it, or double it in text"
            )
        if part_type == "bracketed":
            at = _end_of_brackets(statement, start)
        if part_type in ("comment", "bracketed"):
            pieces += [statement[done:start], _NOT_BREAK.sub(" ", statement[start:at])]
        elif part_type == "name":
            values[start] = part[0][1:-1].replace("``", "`")
            pieces += [statement[done:start], _placeholder("`", statement[start:at])]
        else:
            value = part[0][2:-1] if part_type == "raw" else _decoded(statement, start, part[0])
            if last_text is not None and not statement[last_text[1] : start].strip():
                # One literal: the placeholder of the first one is made longer.
                first = last_text[0]
                values[first] += value
                pieces[-1] = _placeholder("'", statement[first:at])
            else:
                first = start
                values[first] = value
                pieces += [statement[done:start], _placeholder("'", statement[start:at])]
            last_text = (first, at)
        done = at
    return "".join([*pieces, statement[done:]]), values


def _placeholder(quote: str, text: str) -> str:
    """A quoted text of the same length and line breaks, without anything to decode."""
    return quote + _NOT_BREAK.sub("x", text[1:-1]) + quote if len(text) > 2 else quote * 2


def _end_of_brackets(statement: str, start: int) -> int:
    depth = 0
    for bracket in _BRACKETS.finditer(statement, start):
        depth += 1 if bracket[0] == "/*" else -1
        if depth == 0:
            return bracket.end()
    raise InvalidRequest(f"{describe_position(statement, start)}: the comment /* is not closed. Close it with */")


def _decoded(statement: str, start: int, literal: str) -> str:
    """Value of a literal that is not raw."""
    quote, body = literal[0], literal[1:-1]

    def character(escape: re.Match[str]) -> str:
        four, eight, octal, other, doubled = escape.groups()
        if doubled is not None:
            return doubled if doubled == quote else doubled * 2
        if octal is not None:
            return chr(int(octal, 8))
        if other is not None:
            return _ESCAPED.get(other, other)
        try:
            return chr(int(four or eight, 16))
        except (ValueError, OverflowError) as error:
            raise InvalidRequest(
                f"{describe_position(statement, start)}: {escape[0]} in {literal} is no character of Unicode"
            ) from error

    value = _ESCAPE.sub(character, body)
    try:
        # Two escapes can be the halves of one surrogate pair.
        return value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeError as error:
        raise InvalidRequest(f"{describe_position(statement, start)}: {literal} has half of a surrogate pair") from error
