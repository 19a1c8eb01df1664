"""How answers are printed: as a table for people, as JSON or CSV for programs."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict, is_dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable


class Format(StrEnum):
    """`--output`."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def print_rows(rows: pa.Table, output: Format) -> None:
    """Print an Arrow table.  JSON is one array of objects; CSV has a header line; nested values are JSON in both tables and
    CSV.
    """
    records = rows.to_pylist()
    if output is Format.JSON:
        print(json.dumps(records, default=_plain, indent=2))
        return
    if output is Format.CSV:
        writer = csv.writer(sys.stdout)
        writer.writerow(rows.column_names)
        writer.writerows([[_cell(value) for value in record.values()] for record in records])
        return
    table = RichTable(*rows.column_names, header_style="bold", show_lines=False)
    for record in records:
        table.add_row(*(escape(_cell(value)) for value in record.values()))
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def print_value(value: Any, output: Format) -> None:
    """Print a result: its own text for people, its fields for programs."""
    if output is Format.TABLE:
        print(value)
        return
    fields = asdict(value) if is_dataclass(value) and not isinstance(value, type) else dict(value)
    if output is Format.JSON:
        print(json.dumps(fields, default=_plain, indent=2))
        return
    writer = csv.writer(sys.stdout)
    writer.writerow(fields)
    writer.writerow([_cell(field) for field in fields.values()])


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
