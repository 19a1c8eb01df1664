"""Edit hoodie.properties as a person with a text editor does, past the checks of PyHudi."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def edit_properties(table: str | Path, values: Mapping[str, str]) -> None:
    """Set properties of a table on the local disk. Checksums are dropped."""
    file = Path(table, ".hoodie", "hoodie.properties")
    file.with_name(".hoodie.properties.crc").unlink(missing_ok=True)
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#") and line.partition("=")[0] not in values]
    escaped = (f"{key}={value}".replace("\\", "\\\\") for key, value in values.items())
    file.write_text("\n".join([*lines, *escaped]) + "\n")
