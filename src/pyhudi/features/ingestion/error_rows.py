"""Where rows go that do not fit: to an error table, or they stop the job.

The error table is a Hudi table whose record key identifies a bad row: the checkpoint from which its batch was read, the
file or partition, the text, and a count for equal texts. Rows are upserted before the batch commits, so that a row is
in the error table before the checkpoint passes it, and is there once if the batch is repeated after a crash.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest

_FLUSH_ROWS = 10_000
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("record", pa.string()),
        ("reason", pa.string()),
        ("origin", pa.string()),
        ("target", pa.string()),
        ("checkpoint", pa.string()),
        ("seen_ms", pa.int64()),
    ]
)


@dataclass(slots=True)
class ErrorRows:
    """Bad rows of one batch.

    Attributes:
        target: URI of the table that the batch is written to.
        start: Checkpoint from which the batch was read.
        open_table: Opens the error table; None stops the job at the first bad row.
        count: Number of bad rows.
    """

    target: str
    start: str | None
    open_table: Callable[[], Table] | None
    count: int = 0
    _pending: list[tuple[str, str, str, str]] = field(default_factory=list)
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, records: list[str], reasons: list[str], origin: str) -> None:
        """Add bad rows. Raises InvalidRequest if there is no error table."""
        if not records:
            return
        if self.open_table is None:
            raise InvalidRequest(
                f"a row of {origin} cannot be written to {self.target}: {reasons[0]}. Its record: {records[0][:200]}. "
                "Correct the source, or set error_table in the job"
            )
        for record, reason in zip(records, reasons, strict=True):
            self._seen[origin, record] += 1
            parts = (self.start or "", origin, record, str(self._seen[origin, record]))
            # Lengths separate the parts: no two rows have one id by moving a character.
            digest = hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "surrogatepass"))
            self._pending.append((digest.hexdigest(), record, reason, origin))
        self.count += len(records)
        if len(self._pending) >= _FLUSH_ROWS:
            self.flush()

    def open_error_table(self) -> Table:
        """Open the error table; the job must have one."""
        assert self.open_table is not None, "bad rows stop a job that has none"
        return self.open_table()

    def flush(self) -> None:
        """Commit the bad rows to the error table."""
        if not self._pending:
            return
        table = self.open_error_table()
        ids, records, reasons, origins = zip(*self._pending, strict=True)
        now_ms, count = table.context.env.now_ms(), len(ids)
        columns = [
            *(pa.array(values, pa.string()) for values in (ids, records, reasons, origins)),
            pa.array([self.target] * count, pa.string()),
            pa.array([self.start] * count, pa.string()),
            pa.array([now_ms] * count, pa.int64()),
        ]
        table.upsert(pa.Table.from_arrays(columns, schema=_SCHEMA))
        self._pending.clear()
