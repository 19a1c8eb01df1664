"""What a hostile table says in place of a field's value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOREIGN_HOST = "127.0.0.1:9"
MARKUP = "[red]x[/red]<script>alert(1)</script>`|*"
CONTROL = "\x1b]0;owned\x07\u202e\r\x9b31m"
MODULE = "hostile_module"
"""Importing it is an attack that has succeeded."""


def payloads(value: Any, outside: Path, *, is_key: bool) -> Iterator[tuple[str, Any]]:
    """The kinds of attack on a value, and what each one puts in its place.

    Args:
        value: The field's value.
        outside: Another table, with the same file names, next to the table.
        is_key: The value is a key of a map.
    """
    if isinstance(value, bool):
        yield "flipped", not value
        yield "type", "no boolean"
    elif isinstance(value, int):
        yield from _numbers(value)
    elif isinstance(value, float):
        yield from (("number", number) for number in (float("nan"), float("inf"), -1e308))
    elif isinstance(value, str):
        yield from _texts(value, outside)
        if not is_key:
            yield "type", 7
            yield "type", None
    elif isinstance(value, bytes):
        yield from (("bytes", data) for data in (b"", value[:-1], value * 2, b"\xff" * 64, b"Obj\x01" + b"\xff" * 20))
    elif value is None:
        yield from _texts("rome/x", outside)
        yield from _numbers(0)
    elif isinstance(value, list | tuple):
        yield from (("list", items) for items in ([], [*value, *value], list(value[:1]) * 5_000, [*reversed(value)]))
        yield "type", "no list"
        yield "nesting", _nested(200)
    else:
        yield from (("map", items) for items in ({}, {**value, MARKUP: next(iter(value.values()), "x")}))
        yield "type", []
        yield "cycle", {**value, **{key: value for key in list(value)[:1]}}


def _numbers(value: int) -> Iterator[tuple[str, Any]]:
    for number in (-1, 0, value + 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 10**400):
        if number != value:
            yield "number", number
    yield "type", "9" * 400
    yield "type", None


def _texts(value: str, outside: Path) -> Iterator[tuple[str, str]]:
    last = value.rpartition("/")[2]
    for path in (f"../outside/{value}", f"../../{outside.name}/{value}", f"{outside}/{value}", f"rome/../../outside/{last}"):
        yield "path", path
    yield "path", f"..%2Foutside%2F{value}"
    yield "path", f"..\\outside\\{value}"
    yield "path", ".."
    yield "path", str(outside)
    for url in (f"file://{outside}/{value}", f"file:{outside}", f"pyfile://{outside}/{value}"):
        yield "url", url
    for scheme in ("http", "s3", "s3a", "hdfs", "abfs", "gs", "thrift", "jdbc:mysql"):
        yield "host", f"{scheme}://{FOREIGN_HOST}/{last}"
    yield "class", f"{MODULE}:Attack"
    yield "class", f"{MODULE}.Attack"
    yield "class", "java.lang.ProcessBuilder"
    yield "sql", "1); DROP TABLE t; --"
    yield "sql", f"(SELECT content FROM read_text('{outside}/.hoodie/hoodie.properties'))"
    yield "sql", "reflect('java.lang.Runtime', 'getRuntime')"
    for number in (
        "-1",
        "9" * 400,
        "1e999",
        "NaN",
        "1_0",
        "\uff11",
        "0x7fffffffffffffff",
        "9" * 17,
        "99999999999999999999",
        "9" * 5_000,
    ):
        yield "number", number
    yield "markup", MARKUP
    yield "markup", value + MARKUP
    yield "control", CONTROL
    yield "control", value + CONTROL
    yield "control", "a\0b"
    yield "control", "a\nb=c"
    yield "empty", ""
    yield "long", "x" * 100_000
    yield "nesting", "[" * 50_000
    yield "pattern", "(a+)+$"
    yield "repeated", value + "," + value
    yield "true", "true"


def _nested(depth: int) -> list[Any]:
    items: list[Any] = []
    for _ in range(depth):
        items = [items]
    return items
