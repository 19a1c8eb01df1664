"""Writes of Apache Hudi that end between their data files and their commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Hudi loads the validators between the data files and the commit, and there is no such class: files and markers stay.
DYING: dict[str, Any] = {"hoodie.precommit.validators": "no.such.Validator"}

# A table service that Hudi started counts as dead at once, and not after 20 minutes without a new file.
SERVICES_ARE_DEAD: dict[str, Any] = {"pyhudi.service.expiry.ms": "0"}


def data_files(path: Path) -> set[Path]:
    found = (file for file in path.rglob("*") if file.suffix == ".parquet" or ".log." in file.name)
    return {file.relative_to(path) for file in found if ".hoodie" not in file.parts and not file.name.endswith(".crc")}
