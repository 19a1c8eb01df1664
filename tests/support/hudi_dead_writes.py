"""Writes of Apache Hudi that end between their data files and their commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Hudi loads the validators between the data files and the commit, and there is no such class: files and markers stay.
DYING: dict[str, Any] = {"hoodie.precommit.validators": "no.such.Validator"}


def data_files(path: Path) -> set[Path]:
    found = (file for file in path.rglob("*") if file.suffix == ".parquet" or ".log." in file.name)
    return {file.relative_to(path) for file in found if ".hoodie" not in file.parts and not file.name.endswith(".crc")}
