"""Print results: as a table for people, as JSON or CSV for programs."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from pyhudi.errors import visible

_METHOD_CALL = re.compile(
    r"`?Table\.(create|repair|validate|compact|cluster|clean|archive|rollback|restore|savepoint|upgrade|downgrade|drop)"
    r"(?:\(\))?`?(?![\w(])"
)
_COMMANDS = (
    (re.compile(r"dry_run=False"), "--yes"),
    (re.compile(r"\bforce=True"), "--force"),
    (re.compile(r"`?Table\.(upgrade|downgrade)\(to=([0-9]+)\)`?"), r"`pyhudi \1 --to \2`"),
    (re.compile(r"`?Table\.(rollback|restore|savepoint)\('([^']*)'\)`?"), r"`pyhudi \1 TABLE \2`"),
    (re.compile(r"`?Table\.index\.(create|drop|rebuild)\('([^']*)'\)`?"), r"`pyhudi index \1 TABLE \2`"),
    (re.compile(r"`?Table\.index\.(create|drop|rebuild)(?:\(\))?`?(?![\w(])"), r"`pyhudi index \1`"),
    (re.compile(r"`?Table\.validate\(keys=True\)`?"), "`pyhudi validate --keys`"),
    (re.compile(r"`?Table\.drop_metadata_table\(\)`?"), "`pyhudi call delete_metadata_table TABLE`"),
    (re.compile(r"\bset pyhudi\.schema\.mode=(\w+)"), r"pass --schema-mode \1"),
    (re.compile(r"\bstorage_options=(?!\w)"), "--storage"),
    (re.compile(r"\boptions=(?!\w)"), "--option"),
)
"""Arguments of the Python API in messages, and the command line's words for them."""


class Format(StrEnum):
    """Output format, option `--output`."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def print_rows(rows: pa.Table, output: Format) -> None:
    """Print an Arrow table.

    JSON is one array of objects; CSV has a header line; nested values are JSON in tables and CSV. Rows that are too wide for the
    terminal are printed vertically, one line per value.
    """
    records = rows.to_pylist()
    if output is Format.JSON:
        print(json.dumps(records, default=_plain, indent=2))
        return
    if output is Format.CSV:
        _print_csv(rows.column_names, [list(record.values()) for record in records])
        return
    table = RichTable(header_style="bold", show_lines=False)
    for field in rows.schema:
        # Texts, because names and values may look like the markup of Rich.
        table.add_column(Text(_cell_line(field.name)), justify="right" if _is_number(field.type) else "left")
    for record in records:
        table.add_row(*(Text(_cell_line(value)) for value in record.values()))
    console = Console(width=None if sys.stdout.isatty() else 10_000)
    if console.measure(table, options=console.options.update(width=10_000)).maximum > console.width:
        _print_vertically(console, records)
    else:
        console.print(table)


def _print_csv(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    # A pipe receives names and values as they are; control characters are escaped for a terminal.
    cell = _cell_line if sys.stdout.isatty() else _cell
    writer = csv.writer(sys.stdout)
    writer.writerow([cell(name) for name in names])
    writer.writerows([cell(value) for value in row] for row in rows)


def _print_vertically(console: Console, records: list[dict[str, Any]]) -> None:
    """Print one line per value, for rows wider than the terminal; a table would break paths across lines."""
    for number, record in enumerate(records):
        if number:
            console.print()
        names = [_cell_line(name) for name in record]
        width = max(map(len, names))
        for name, value in zip(names, record.values(), strict=True):
            parts = value if isinstance(value, list) else [value]
            for place, part in enumerate(parts or [""]):
                line = Text.assemble((f"{name if place == 0 else '':<{width}}", "bold"), f"  {_cell_line(part)}")
                console.print(line, soft_wrap=True, highlight=False)


def in_commands(text: str) -> str:
    """Translate API calls in the advice of a result or an error to commands."""
    for pattern, command in _COMMANDS:
        text = pattern.sub(command, text)
    return _METHOD_CALL.sub(r"`pyhudi \1`", text)


def print_value(value: Any, output: Format) -> None:
    """Print a result: its text, with advice as commands, for people; its fields for programs."""
    if output is Format.TABLE:
        print_text(in_commands(str(value)))
        return
    fields = asdict(value) if is_dataclass(value) and not isinstance(value, type) else dict(value)
    if output is Format.JSON:
        print(json.dumps(fields, default=_plain, indent=2))
        return
    _print_csv(fields, [fields.values()])


def print_text(value: object, *, error: bool = False) -> None:
    """Print text with control characters escaped. error: print to standard error."""
    print(visible(str(value)), file=sys.stderr if error else sys.stdout, flush=True)


def _cell_line(value: Any) -> str:
    """A cell of one line, with control characters escaped."""
    return visible(_cell(value)).replace("\n", "\\n")


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=_plain)
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
