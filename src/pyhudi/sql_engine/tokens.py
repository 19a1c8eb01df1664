"""The words of a statement, read from left to right.

The tokens are those of literals.py; keywords of several words, which sqlglot joins, come one by one.  What does not fit raises
InvalidRequest with its line, its column and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import TokenType

from pyhudi.errors import InvalidRequest
from pyhudi.sql_engine.literals import place, tokenize_spark
from pyhudi.sql_engine.sql_ast import Fragment, TableName, Value

_TEXTS = (TokenType.STRING,)
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_LEAD = "( "
"""Stands before the text while it is taken apart: some keywords swallow the rest of a statement that begins with them."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token.  start, end: its characters in the statement, the last one included."""

    token_type: TokenType
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The word in capitals where it could be a keyword, else ''."""
        return "" if self.token_type in _TEXTS or self.token_type is TokenType.IDENTIFIER else self.text.upper()


class TokenCursor:
    """A place between the words of a statement."""

    def __init__(self, statement: str, at: int = 0) -> None:
        """At: the character at which a word begins that is the first one to be read."""
        self.statement = statement
        self._words = _words(statement)
        self._at = next((number for number, word in enumerate(self._words) if word.start >= at), len(self._words))

    # Where we are

    @property
    def peek(self) -> Token | None:
        """The next word; None at the end."""
        return self._words[self._at] if self._at < len(self._words) else None

    @property
    def offset(self) -> int:
        """Where the next word begins."""
        return self.peek.start if self.peek else len(self.statement)

    @property
    def last_token_end(self) -> int:
        """The character behind the word that was passed last."""
        return self._words[self._at - 1].end + 1

    def mark(self) -> int:
        """This place, to come back to."""
        return self._at

    def back_to(self, mark: int) -> None:
        """Go to a place that was marked."""
        self._at = mark

    def fail(self, expected: str) -> NoReturn:
        """Raises InvalidRequest: here stands something else than what was expected."""
        found = self.statement[self.peek.start : self.peek.end + 1] if self.peek else "the end of the statement"
        raise InvalidRequest(f"{place(self.statement, self.offset)}: expected {expected}, found {found}")

    # What comes next

    def at_keywords(self, *keywords: str) -> bool:
        """Whether these keywords come next."""
        after = self._words[self._at : self._at + len(keywords)]
        return [word.keyword for word in after] == list(keywords)

    def accept_keywords(self, *keywords: str) -> bool:
        """Whether these keywords came next; they are passed by."""
        found = self.at_keywords(*keywords)
        self._at += len(keywords) if found else 0
        return found

    def expect(self, *keywords: str) -> None:
        """Pass these keywords by.  Raises InvalidRequest where others come."""
        if not self.accept_keywords(*keywords):
            self.fail(" ".join(keywords))

    def end(self) -> None:
        """Raises InvalidRequest unless the statement ends here, with or without a semicolon."""
        self.accept_keywords(";")
        if self.peek is not None:
            self.fail("the end of the statement")

    # Names and literals

    def name(self, description: str) -> str:
        """A name, without its quotes."""
        word = self.peek
        if word is None or not (word.token_type is TokenType.IDENTIFIER or re.fullmatch(r"\w+", word.keyword)):
            self.fail(description)
        self._at += 1
        return word.text

    def dotted(self, description: str) -> tuple[str, ...]:
        """Names with dots between them."""
        parts = [self.name(description)]
        while self.accept_keywords("."):
            parts.append(self.name(description))
        return tuple(parts)

    def table(self) -> TableName:
        """The name of a table."""
        return TableName(self.dotted("the name of a table, or hudi.`/path`"))

    def names(self, description: str) -> tuple[str, ...]:
        """Names in parentheses, with commas."""
        self.expect("(")
        found = [".".join(self.dotted(description))]
        while self.accept_keywords(","):
            found.append(".".join(self.dotted(description)))
        self.expect(")")
        return tuple(found)

    def text(self, description: str) -> str:
        """A literal of text."""
        word = self.peek
        if word is None or word.token_type not in _TEXTS:
            self.fail(description)
        self._at += 1
        return word.text

    def at_string(self) -> bool:
        """Whether a literal of text comes next."""
        return self.peek is not None and self.peek.token_type in _TEXTS

    def at_number(self) -> bool:
        """Whether a number comes next, with no sign."""
        return self.peek is not None and self.peek.token_type is TokenType.NUMBER

    def value(self, description: str) -> Value:
        """A literal: text, a number, TRUE, FALSE, NULL."""
        if self.at_string():
            return self.text(description)
        for keyword, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self.accept_keywords(keyword):
                return value
        if self.accept_keywords("DATE") or self.accept_keywords("TIMESTAMP"):
            return self.text("text in quotes")
        sign = -1 if self.accept_keywords("-") else 1
        word = self.peek
        if word is None or word.token_type is not TokenType.NUMBER:
            self.fail(description)
        self._at += 1
        self._suffix(word)
        return sign * (int(word.text) if word.text.isdigit() else float(word.text))

    def _suffix(self, number: Token) -> None:
        """The letter of a number's type, as of 10L, is a word of its own."""
        word = self.peek
        if word is not None and word.start <= number.end + 1 and word.keyword in {"L", "S", "Y", "D", "F", "BD"}:
            self._at += 1

    # Stretches

    def until(self, stops: Callable[[TokenCursor], bool], description: str) -> Fragment:
        """All up to a word outside of parentheses and CASE for which `stops` is true, or up to the end."""
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
        return Fragment(self.statement[first : self._words[self._at - 1].end + 1], first)

    def enclosed(self) -> Fragment:
        """What stands in parentheses."""
        self.expect("(")
        inner = self.until(lambda _: False, "something in parentheses")
        self.expect(")")
        return inner

    def remaining(self, description: str) -> Fragment:
        """All up to the end."""
        found = self.until(lambda _: False, description)
        self.end()
        return found


def _words(statement: str) -> tuple[Token, ...]:
    found: list[Token] = []
    for token in tokenize_spark(statement, lead=_LEAD)[1:]:
        start = token.start - len(_LEAD)
        if token.token_type is TokenType.DCOLON and statement[start : start + 2] != "::":
            # The tokenizer makes a cast of a number's letter, and puts the sign of one between.
            continue
        if token.token_type in _TEXTS or token.token_type is TokenType.IDENTIFIER or not re.search(r"\s", token.text):
            found.append(Token(token.token_type, token.text, start, token.end - len(_LEAD)))
            continue
        # Between the words of a keyword may stand more blanks than one.
        written = statement[start : token.end - len(_LEAD) + 1]
        found += [
            Token(TokenType.VAR, part[0], start + part.start(), start + part.end() - 1) for part in re.finditer(r"\S+", written)
        ]
    return tuple(found)
