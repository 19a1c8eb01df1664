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
class Word:
    """One token.  start, end: its characters in the statement, the last one included."""

    kind: TokenType
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The word in capitals where it could be a keyword, else ''."""
        return "" if self.kind in _TEXTS or self.kind is TokenType.IDENTIFIER else self.text.upper()


class Cursor:
    """A place between the words of a statement."""

    def __init__(self, statement: str, at: int = 0) -> None:
        """At: the character at which a word begins that is the first one to be read."""
        self.statement = statement
        self._words = _words(statement)
        self._at = next((number for number, word in enumerate(self._words) if word.start >= at), len(self._words))

    # Where we are

    @property
    def word(self) -> Word | None:
        """The next word; None at the end."""
        return self._words[self._at] if self._at < len(self._words) else None

    @property
    def offset(self) -> int:
        """Where the next word begins."""
        return self.word.start if self.word else len(self.statement)

    @property
    def end_of_last(self) -> int:
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
        found = self.statement[self.word.start : self.word.end + 1] if self.word else "the end of the statement"
        raise InvalidRequest(f"{place(self.statement, self.offset)}: expected {expected}, found {found}")

    # What comes next

    def sees(self, *keywords: str) -> bool:
        """Whether these keywords come next."""
        after = self._words[self._at : self._at + len(keywords)]
        return [word.keyword for word in after] == list(keywords)

    def takes(self, *keywords: str) -> bool:
        """Whether these keywords came next; they are passed by."""
        found = self.sees(*keywords)
        self._at += len(keywords) if found else 0
        return found

    def expect(self, *keywords: str) -> None:
        """Pass these keywords by.  Raises InvalidRequest where others come."""
        if not self.takes(*keywords):
            self.fail(" ".join(keywords))

    def end(self) -> None:
        """Raises InvalidRequest unless the statement ends here, with or without a semicolon."""
        self.takes(";")
        if self.word is not None:
            self.fail("the end of the statement")

    # Names and literals

    def name(self, what: str) -> str:
        """A name, without its quotes."""
        word = self.word
        if word is None or not (word.kind is TokenType.IDENTIFIER or re.fullmatch(r"\w+", word.keyword)):
            self.fail(what)
        self._at += 1
        return word.text

    def dotted(self, what: str) -> tuple[str, ...]:
        """Names with dots between them."""
        parts = [self.name(what)]
        while self.takes("."):
            parts.append(self.name(what))
        return tuple(parts)

    def table(self) -> TableName:
        """The name of a table."""
        return TableName(self.dotted("the name of a table, or hudi.`/path`"))

    def names(self, what: str) -> tuple[str, ...]:
        """Names in parentheses, with commas."""
        self.expect("(")
        found = [".".join(self.dotted(what))]
        while self.takes(","):
            found.append(".".join(self.dotted(what)))
        self.expect(")")
        return tuple(found)

    def text(self, what: str) -> str:
        """A literal of text."""
        word = self.word
        if word is None or word.kind not in _TEXTS:
            self.fail(what)
        self._at += 1
        return word.text

    def sees_text(self) -> bool:
        """Whether a literal of text comes next."""
        return self.word is not None and self.word.kind in _TEXTS

    def sees_number(self) -> bool:
        """Whether a number comes next, with no sign."""
        return self.word is not None and self.word.kind is TokenType.NUMBER

    def value(self, what: str) -> Value:
        """A literal: text, a number, TRUE, FALSE, NULL."""
        if self.sees_text():
            return self.text(what)
        for keyword, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self.takes(keyword):
                return value
        if self.takes("DATE") or self.takes("TIMESTAMP"):
            return self.text("text in quotes")
        sign = -1 if self.takes("-") else 1
        word = self.word
        if word is None or word.kind is not TokenType.NUMBER:
            self.fail(what)
        self._at += 1
        self._suffix(word)
        return sign * (int(word.text) if word.text.isdigit() else float(word.text))

    def _suffix(self, number: Word) -> None:
        """The letter of a number's type, as of 10L, is a word of its own."""
        word = self.word
        if word is not None and word.start <= number.end + 1 and word.keyword in {"L", "S", "Y", "D", "F", "BD"}:
            self._at += 1

    # Stretches

    def until(self, stops: Callable[[Cursor], bool], what: str) -> Fragment:
        """All up to a word outside of parentheses and CASE for which `stops` is true, or up to the end."""
        begun, first = self._at, self.offset
        depth = 0
        while (word := self.word) is not None:
            if depth == 0 and (word.keyword == ";" or stops(self)):
                break
            if word.kind in _OPENING or word.keyword == "CASE":
                depth += 1
            elif word.kind in _CLOSING or (word.keyword == "END" and depth):
                if not depth:
                    break
                depth -= 1
            self._at += 1
        if self._at == begun:
            self.fail(what)
        return Fragment(self.statement[first : self._words[self._at - 1].end + 1], first)

    def enclosed(self) -> Fragment:
        """What stands in parentheses."""
        self.expect("(")
        inner = self.until(lambda _: False, "something in parentheses")
        self.expect(")")
        return inner

    def rest(self, what: str) -> Fragment:
        """All up to the end."""
        found = self.until(lambda _: False, what)
        self.end()
        return found


def _words(statement: str) -> tuple[Word, ...]:
    found: list[Word] = []
    for token in tokenize_spark(statement, lead=_LEAD)[1:]:
        start = token.start - len(_LEAD)
        if token.token_type is TokenType.DCOLON and statement[start : start + 2] != "::":
            # The tokenizer makes a cast of a number's letter, and puts the sign of one between.
            continue
        if token.token_type in _TEXTS or token.token_type is TokenType.IDENTIFIER or not re.search(r"\s", token.text):
            found.append(Word(token.token_type, token.text, start, token.end - len(_LEAD)))
            continue
        # Between the words of a keyword may stand more blanks than one.
        written = statement[start : token.end - len(_LEAD) + 1]
        found += [
            Word(TokenType.VAR, part[0], start + part.start(), start + part.end() - 1) for part in re.finditer(r"\S+", written)
        ]
    return tuple(found)
