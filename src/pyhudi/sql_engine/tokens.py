"""Token cursor: the tokens of a statement, from left to right.

The tokens come from literals.py; keywords of several words, which sqlglot joins, are split. A syntax error raises
InvalidRequest with line, column and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from sqlglot import TokenType

from pyhudi.errors import InvalidRequest
from pyhudi.records.sql_quoting import text_literal
from pyhudi.sql_engine.literals import describe_position, tokenize_spark
from pyhudi.sql_engine.sql_ast import Fragment, TableName, Value

T = TypeVar("T")

_TEXTS = (TokenType.STRING,)
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_LEAD = "( "
"""Prefix of the text during tokenization: some keywords swallow the rest of a statement that begins with them."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        token_type: Type assigned by sqlglot.
        text: Text, decoded if quoted.
        start: Position of its first character in the statement.
        end: Position of its last character.
    """

    token_type: TokenType
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The word in upper case if it can be a keyword, otherwise ''."""
        return "" if self.token_type in _TEXTS or self.token_type is TokenType.IDENTIFIER else self.text.upper()


class TokenCursor:
    """A position between the tokens of a statement."""

    def __init__(self, statement: str, at: int = 0) -> None:
        """Start at the first token that begins at or after the character `at`."""
        self.statement = statement
        self._tokens_of = _tokens_of(statement)
        self._at = next((number for number, word in enumerate(self._tokens_of) if word.start >= at), len(self._tokens_of))

    # Position

    @property
    def peek(self) -> Token | None:
        """The next token; None at the end."""
        return self._tokens_of[self._at] if self._at < len(self._tokens_of) else None

    @property
    def offset(self) -> int:
        """Position of the next token's first character."""
        return self.peek.start if self.peek else len(self.statement)

    @property
    def last_token_end(self) -> int:
        """Position after the previous token."""
        return self._tokens_of[self._at - 1].end + 1

    def mark(self) -> int:
        """The current position, for `back_to`."""
        return self._at

    def back_to(self, mark: int) -> None:
        """Return to a marked position."""
        self._at = mark

    def fail(self, expected: str) -> NoReturn:
        """Raise InvalidRequest: the next token is not what was expected."""
        next_text = self.statement[self.peek.start : self.peek.end + 1] if self.peek else "the end of the statement"
        raise InvalidRequest(f"{describe_position(self.statement, self.offset)}: expected {expected}, found {next_text}")

    # Keywords

    def at_keywords(self, *keywords: str) -> bool:
        """Return True if these keywords come next."""
        after = self._tokens_of[self._at : self._at + len(keywords)]
        return [word.keyword for word in after] == list(keywords)

    def accept_keywords(self, *keywords: str) -> bool:
        """Consume these keywords if they come next, and return whether they did."""
        is_next = self.at_keywords(*keywords)
        self._at += len(keywords) if is_next else 0
        return is_next

    def at_any(self, *keywords: str) -> bool:
        """Return True if one of these keywords comes next."""
        return any(self.at_keywords(keyword) for keyword in keywords)

    def accept_any(self, *keywords: str) -> bool:
        """Consume one of these keywords if it comes next, and return whether it did."""
        return any(self.accept_keywords(keyword) for keyword in keywords)

    def expect(self, *keywords: str) -> None:
        """Consume these keywords. Raises InvalidRequest if other tokens come next."""
        if not self.accept_keywords(*keywords):
            self.fail(" ".join(keywords))

    def end(self) -> None:
        """Raise InvalidRequest unless the statement ends here, with or without a semicolon."""
        self.accept_keywords(";")
        if self.peek is not None:
            self.fail("the end of the statement")

    # Names and literals

    def name(self, description: str) -> str:
        """Consume a name and return it without quotes."""
        word = self.peek
        if word is None or not (word.token_type is TokenType.IDENTIFIER or re.fullmatch(r"\w+", word.keyword)):
            self.fail(description)
        self._at += 1
        return word.text

    def dotted(self, description: str) -> tuple[str, ...]:
        """Consume names separated by dots."""
        parts = [self.name(description)]
        while self.accept_keywords("."):
            parts.append(self.name(description))
        return tuple(parts)

    def dotted_name(self, description: str) -> str:
        """Consume names separated by dots, and return them as one text."""
        return ".".join(self.dotted(description))

    def table(self) -> TableName:
        """Consume a table name."""
        return TableName(self.dotted("the name of a table, or hudi.`/path`"))

    def names(self, description: str) -> tuple[str, ...]:
        """Consume comma-separated names in parentheses."""
        return tuple(self.in_parentheses(lambda: self.dotted_name(description)))

    def separated(self, parse: Callable[[], T]) -> list[T]:
        """Consume comma-separated items; `parse` consumes one."""
        items = [parse()]
        while self.accept_keywords(","):
            items.append(parse())
        return items

    def in_parentheses(self, parse: Callable[[], T]) -> list[T]:
        """Consume comma-separated items in parentheses; `parse` consumes one."""
        self.expect("(")
        items = self.separated(parse)
        self.expect(")")
        return items

    def property_key(self) -> str:
        """Consume the key of a property, in quotes or not."""
        return self.text("a property") if self.at_string() else self.dotted_name("a property")

    def text(self, description: str) -> str:
        """Consume a string literal."""
        word = self.peek
        if word is None or word.token_type not in _TEXTS:
            self.fail(description)
        self._at += 1
        return word.text

    def at_string(self) -> bool:
        """Return True if a string literal comes next."""
        return self.peek is not None and self.peek.token_type in _TEXTS

    def at_number(self) -> bool:
        """Return True if an unsigned number comes next."""
        return self.peek is not None and self.peek.token_type is TokenType.NUMBER

    def value(self, description: str) -> Value:
        """Consume a literal: a string, a number, TRUE, FALSE or NULL."""
        if self.at_string():
            return self.text(description)
        for keyword, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self.accept_keywords(keyword):
                return value
        if self.accept_any("DATE", "TIMESTAMP"):
            return self.text("text in quotes")
        sign = -1 if self.accept_keywords("-") else 1
        word = self.peek
        if word is None or word.token_type is not TokenType.NUMBER:
            self.fail(description)
        self._at += 1
        self._suffix(word)
        return sign * (int(word.text) if word.text.isdigit() else float(word.text))

    def default_text(self) -> str:
        """Consume a literal and return it in the syntax of filters, where a backslash is an ordinary character."""
        typed = next((word for word in ("DATE", "TIMESTAMP") if self.at_keywords(word)), "")
        begun = self.offset
        value = self.value("a literal as default")
        if not isinstance(value, str):
            return self.statement[begun : self.last_token_end]
        return f"{typed} {text_literal(value)}".lstrip()

    def _suffix(self, number: Token) -> None:
        """Consume the type suffix of a number, as in 10L, which is a token of its own."""
        word = self.peek
        if word is not None and word.start <= number.end + 1 and word.keyword in {"L", "S", "Y", "D", "F", "BD"}:
            self._at += 1

    # Text ranges

    def until(self, stops: Callable[[TokenCursor], bool], description: str) -> Fragment:
        """Consume up to a token outside of parentheses and CASE for which `stops` returns True, or up to the end."""
        begun, first = self._at, self.offset
        depth = 0
        while (word := self.peek) is not None:
            if depth == 0 and (word.keyword == ";" or stops(self)):
                break
            if word.token_type in _OPENING or word.keyword == "CASE":
                depth += 1
            elif word.token_type in _CLOSING or (word.keyword == "END" and depth):
                if not depth:
                    break
                depth -= 1
            self._at += 1
        if self._at == begun:
            self.fail(description)
        return Fragment(self.statement[first : self._tokens_of[self._at - 1].end + 1], first)

    def enclosed(self) -> Fragment:
        """Consume text in parentheses."""
        self.expect("(")
        inner = self.until(lambda _: False, "something in parentheses")
        self.expect(")")
        return inner

    def remaining(self, description: str) -> Fragment:
        """Consume everything up to the end."""
        fragment = self.until(lambda _: False, description)
        self.end()
        return fragment


def _tokens_of(statement: str) -> tuple[Token, ...]:
    tokens: list[Token] = []
    for token in tokenize_spark(statement, lead=_LEAD)[1:]:
        start = token.start - len(_LEAD)
        if token.token_type is TokenType.DCOLON and statement[start : start + 2] != "::":
            # The tokenizer represents the suffix of a number as a cast, with a `::` token in between.
            continue
        if token.token_type in _TEXTS or token.token_type is TokenType.IDENTIFIER or not re.search(r"\s", token.text):
            tokens.append(Token(token.token_type, token.text, start, token.end - len(_LEAD)))
            continue
        # The words of a keyword can be separated by several blanks.
        written = statement[start : token.end - len(_LEAD) + 1]
        tokens += [
            Token(TokenType.VAR, part[0], start + part.start(), start + part.end() - 1) for part in re.finditer(r"\S+", written)
        ]
    return tuple(tokens)
