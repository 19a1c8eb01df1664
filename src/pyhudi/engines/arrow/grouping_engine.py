"""The embedded engine of a group commit: it returns prepared rows, and records which keys existed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.incoming import LocalIncoming
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.tasks.engine_protocol import PrepareRequest
from pyhudi.tasks.incoming_rows import incoming_schema

_IDENTITY = pa.schema([(RECORD_KEY, pa.string()), (PARTITION_PATH, pa.string())])


class GroupingEngine(LocalEngine):
    """An embedded engine for small batches of several writers."""

    def __init__(self, threads: int = 0) -> None:
        super().__init__(threads)
        self._existing: list[pa.Table] = []

    def prepared_rows(self, rows: pa.Table, request: PrepareRequest) -> pa.Table:
        """Return rows in the incoming layout, with one row for each key if the request combines them."""
        incoming = super().prepare(rows, request)
        try:
            return pa.concat_tables([incoming_schema(request).empty_table(), *incoming.buckets])
        finally:
            incoming.release()

    def prepare(self, data: object, request: PrepareRequest) -> LocalIncoming:
        """Prepare rows whose lookups are recorded."""
        incoming = super().prepare(data, request)
        incoming.on_lookup = self._record
        return incoming

    def existing_keys(self) -> pa.Table:
        """Record keys and partition paths of rows whose records the last lookup found."""
        return pa.concat_tables([_IDENTITY.empty_table(), *self._existing])

    def _record(self, found: list[tuple[pa.Table, npt.NDArray[np.int64]]]) -> None:
        """Replace what an earlier attempt of the write has found."""
        taken = (rows.select(_IDENTITY.names).take(pa.array(np.unique(numbers))) for rows, numbers in found)
        self._existing = [rows.cast(_IDENTITY) for rows in taken]
