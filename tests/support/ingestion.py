"""Sources and jobs for tests of ingestion."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.features.ingestion.checkpoints import KEY_V2
from pyhudi.features.ingestion.source_protocol import Limit

_names = itertools.count()
Rows = Sequence[Mapping[str, Any]]


def new_uri() -> str:
    """A table in memory that does not exist yet."""
    return f"memory://ingestion-{next(_names):06}"


class ListSource:
    """Batches of rows; the checkpoint is the number of batches that were read.  reads: the checkpoints it was asked with."""

    def __init__(self, batches: Sequence[Rows], schema: pa.Schema | None = None) -> None:
        self.batches = list(batches)
        self.schema = schema
        self.reads: list[str | None] = []

    def read(self, checkpoint: str | None, limit: Limit) -> tuple[pa.Table, str] | None:
        self.reads.append(checkpoint)
        number = int(checkpoint or 0)
        if number >= len(self.batches):
            return None
        return pa.Table.from_pylist(list(self.batches[number]), schema=self.schema), str(number + 1)


def counted(table: Table, *columns: str) -> Counter[tuple[Any, ...]]:
    """How often each row is in a table."""
    rows = table.scan(list(columns)).to_arrow()
    return Counter(zip(*(rows[column].to_pylist() for column in columns), strict=True))


def checkpoints(table: Table) -> list[str]:
    """The checkpoints in the commits of a table, oldest first."""
    found = []
    for row in table.inspect.commits().to_pylist():
        found += [value for key, value in row["metadata"] if key == KEY_V2]
    return found[::-1]


def write_lines(path: Path, rows: Rows, modified_ms: int) -> None:
    """A file of JSON lines with a modification time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    os.utime(path, ns=(modified_ms * 1_000_000,) * 2)
