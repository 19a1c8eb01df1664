"""Delete the records that match a filter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.operations.changes.changed_rows import columns_to_read
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.operations.write.write_attempt import raise_stale_on_missing_file, retry_on_conflict
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.read_slice import ReadSpec, run_read


@observed("delete")
def run_delete_where(
    context: TableContext,
    engine: Engine,
    where: Filter | None,
    settings: WriteSettings,
    read: Callable[[SnapshotQuery], Any] | None = None,
    *,
    all_columns: bool = False,
) -> WriteResult:
    """Delete the records that match a filter. The filter is evaluated again after a conflict with another writer.

    Args:
        engine: Reads and writes the rows.
        where: The filter; None deletes all records.
        read: Returns the rows of a query as input of the engine; None reads them into memory with tasks of the engine.
        all_columns: Query all columns, because ``read`` filters rows itself and drops all columns but `key_names`.
    """
    names = columns_to_read(context.config) if all_columns else key_names(context.config)

    def into_memory(query: SnapshotQuery) -> pa.Table:
        tables = engine.map(partial(_read_all, query.spec), query.plan.slices)
        return pa.concat_tables([query.spec.output.empty_table(), *tables])

    def attempt(context: TableContext) -> WriteResult:
        query = plan_snapshot_query(context.reloaded(), names, where)
        with raise_stale_on_missing_file(query.snapshot):
            return run_write(context, engine, (read or into_memory)(query), settings, base_snapshot=query.snapshot)

    return retry_on_conflict(context, settings.commit, attempt)


def key_names(config: TableConfig) -> list[str]:
    """Return the columns that identify a record."""
    if config.populate_meta_fields:
        return [RECORD_KEY, PARTITION_PATH]
    fields = (*config.keys.record_fields, *partition_columns(config.keys))
    return list(dict.fromkeys(name.split(".")[0] for name in fields))


def _read_all(spec: ReadSpec, slice_: FileSlice) -> pa.Table:
    return pa.concat_tables(list(run_read(spec, slice_)))
