"""The tables of docs/data-types.md, for the tests that write each of their rows."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "data-types.md"


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without the marks of code."""
    section = re.split(rf"(?m)^## {re.escape(heading)}$", _PAGE.read_text())[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]
