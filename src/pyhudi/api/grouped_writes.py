"""Group commits of the public API: which writes take part (`pyhudi.write.group`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.grouping_engine import GroupingEngine
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import Unsupported
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.group_commit import MAX_BATCH_BYTES, reason_against_group, write_in_group
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.options.declaration import Options
from pyhudi.options.write_options import GROUP, THREADS
from pyhudi.table.table_context import TableContext


def write_small_batch(context: TableContext, parsed: Options, data: Any, settings: WriteSettings) -> WriteResult:
    """Write rows as part of a group commit, or alone if they cannot be.

    Args:
        context: The table.
        parsed: All options of the call.
        data: Any input of the embedded engine.
        settings: Settings of the write.

    Raises:
        Unsupported: The write cannot be part of a group commit, and `pyhudi.write.group` is always.
    """
    rows, rest = _first_rows(data)
    reason = reason_against_group(settings, context.config, rows)
    single = replace(settings, group="never")
    if reason is not None or rest is not None:
        if settings.group == "always":
            raise Unsupported(f"{GROUP}=always: the write cannot be part of a group commit: {reason}; set auto to write it alone")
        batches = pa.RecordBatchReader.from_batches(rows.schema, chain(rows.to_batches(), rest or ()))
        return run_write(context, LocalEngine(parsed.integer(THREADS)), batches, single)

    def write_alone() -> WriteResult:
        return run_write(context.reloaded(), LocalEngine(parsed.integer(THREADS)), rows, single)

    return write_in_group(context, GroupingEngine(parsed.integer(THREADS)), rows, single, _digest(parsed, single), write_alone)


def _first_rows(data: Any) -> tuple[pa.Table, Iterator[pa.RecordBatch] | None]:
    """Return the rows up to a little more than the limit of a batch, and the others, None if there are none."""
    reader = arrow_reader(data)
    batches: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in reader:
        batches.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > MAX_BATCH_BYTES:
            return pa.Table.from_batches(batches, reader.schema), reader
    return pa.Table.from_batches(batches, reader.schema), None


def _digest(parsed: Options, settings: WriteSettings) -> str:
    """Return a digest of what determines a write. Options may hold secrets, so they are not stored themselves."""
    text = json.dumps([str(settings.operation), sorted(parsed.values), sorted(parsed.extra)])
    return hashlib.sha256(text.encode()).hexdigest()
