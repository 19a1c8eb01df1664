"""Literals, quoted names and comments of statements; tests/spark/test_literals.py compares them with Spark."""

from __future__ import annotations

import pytest

import pyhudi as hp


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'O''Brien'", "O'Brien"),
        ("''''", "'"),
        ('"say ""x"""', 'say "x"'),
        ("\"a''b\"", "a''b"),
        (r"'a\'b\n\\\%\q'", "a'b\n\\\\%q"),
        (r"'\u0041\U0001F600\uD83D\uDE00\101'", "A😀😀A"),
        (r"r'a\n' R'''' 'b''c'", r"a\nb'c"),
        ("'a'\n 'b'", "ab"),
        ("/* it's /* ' */ */ 'a' -- it's", "a"),
        ("'/* -- */'", "/* -- */"),
    ],
)
def test_text_literals(literal: str, value: str) -> None:
    assert hp.sql(f"SELECT {literal}\n AS c").to_pydict() == {"c": [value]}


@pytest.mark.parametrize(
    ("literal", "message"),
    [
        ("'a", "line 1, column 8: the quote ' is not closed"),
        ("1, `a", "line 1, column 11: the quote ` is not closed"),
        ("1 /* /* */", r"line 1, column 10: the comment /\* is not closed"),
        (r"'\uD83D'", "half of a surrogate pair"),
        (r"'\UFFFFFFFF'", "no character of Unicode"),
        ("n'a'", "no literal of Spark's"),
        ("0x1F", "no literal of Spark's"),
        ("1e400", "exceeds the largest double"),
        ("1e3L", "is no whole number"),
        ("1" * 39, "more than 38 digits"),
        ("DATE 'infinity'", "Write DATE '2024-05-06'"),
        ("DATE '2024/01/02'", "Write DATE '2024-05-06'"),
        ("TIMESTAMP '2024-01-02 24:00:00'", "Write DATE '2024-05-06'"),
        ("INTERVAL 1.5 DAY", "only seconds have a fraction"),
        ("INTERVAL '1 day 2'", "only seconds have a fraction"),
        (r"'ab' LIKE 'a\\b'", "Write two backslashes"),
    ],
)
def test_literal_that_spark_rejects_is_rejected(literal: str, message: str) -> None:
    with pytest.raises((hp.InvalidRequest, hp.Unsupported), match=message):
        hp.sql(f"SELECT {literal}")


def test_like_takes_a_backslash_for_an_escape() -> None:
    found = hp.sql(r"SELECT 'a%b' LIKE 'a\%b' AS a, 'axb' LIKE 'a\%b' AS b, 'axb' NOT LIKE 'a\_b' AS c, 'A_' ILIKE 'a\_' AS d")
    assert found.to_pylist() == [{"a": True, "b": False, "c": True, "d": True}]
