"""Write rows to a table that may not exist: `pyhudi.write`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.api.table_handle import is_spark_value
from pyhudi.api.table_writes import engine_for
from pyhudi.engines.arrow.input_rows import arrow_reader, required_without_nulls, typed_rows
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.operations.admin.table_settings import with_table_arguments
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.save_modes import Save
from pyhudi.operations.write.write_settings import KEEP, WriteOperation, with_arguments
from pyhudi.options.declaration import Options
from pyhudi.options.supported import parse_options
from pyhudi.options.write_options import COMMIT_METADATA, ONCE, OPERATION, SCHEMA_MODE
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.schema_evolution import SchemaMode


def write(
    path: str | os.PathLike[str],
    data: Any,
    mode: str | None = None,
    *,
    where: Filter | None = None,
    record_key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    ordering: str | Sequence[str] | None = None,
    table_type: str | None = None,
    name: str | None = None,
    schema_mode: str | None = None,
    missing_columns: str | None = None,
    once: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult:
    """Write rows to a table, and create the table if it does not exist. If the first write fails, no table remains.

    If several writers create the table at once, one of them does, and the others use it.

    Args:
        path: Location of the table.
        data: Rows: anything with the Arrow PyCapsule interface (PyArrow, Polars, pandas, DuckDB), or a Spark DataFrame.
        mode: None upserts, as in Hudi: inserts new keys and merges the others; a table without record key takes all rows
            as new ones. "append" inserts, whether a key exists or not. "overwrite" replaces all rows and columns in one
            commit; type, key and partitioning of the table stay. "ignore" writes nothing if the table exists, and "error"
            raises. Or the name of an operation: "upsert", "insert", "bulk_insert", "insert_overwrite",
            "insert_overwrite_table".
        where: With mode "overwrite": predicate over the partition columns. Only the partitions that match it are replaced,
            and columns stay, as in `Table.insert_overwrite`.
        record_key: Record key fields of a new table, as in `Table.create`; an existing table must have the same.
        partition_by: Partition fields of a new table.
        ordering: Ordering fields of a new table.
        table_type: `cow` (default) or `mor`, for a new table.
        name: Name of a new table; defaults to the name of the folder.
        schema_mode: Schema evolution that the data may cause, as in `Table.upsert`.
        missing_columns: "error", "null" or "keep", as in `Table.upsert`. "keep" requires an upsert.
        once: Application id and version of this write, as in `Table.upsert`.
        commit_metadata: Entries stored in the commit, as shown by `Table.inspect.commits`.
        options: Further `hoodie.*` options. A new table stores those that define it; the others are those of this write.
        storage_options: Credentials and settings of the object store, see `docs/object-stores.md`.

    Returns:
        The instant of the write, and its statistics; no instant if nothing was written.

    Raises:
        TableExists: The table exists, and the mode is "error".
        InvalidRequest: The mode is unknown, or the data or an option does not fit the table.
        WriteConflict: Conflicts with other writers exhausted the retries.

    Example:
        >>> result = hp.write("/data/trips", frame, record_key="id", ordering="ts")
        >>> result = hp.write("/data/trips", frame, mode="append")
    """
    keeps = missing_columns == KEEP
    call = with_arguments(
        options,
        schema_mode=schema_mode,
        missing_columns=None if keeps else missing_columns,
        once=once,
        commit_metadata=commit_metadata,
    )
    parsed = with_table_arguments(
        parse_options(call),
        name=name,
        record_key=record_key,
        partition_by=partition_by,
        ordering=ordering,
        table_type=table_type,
    )
    if keeps and (kept := upsert_keeping(path, data, _mode(mode, parsed), parsed, storage_options)) is not None:
        return kept
    engine = engine_for(data, parsed)
    data = typed_rows(
        data,
        lambda: None if mode == "ignore" else table_columns(path, storage_options),
        may_widen=parsed.explicit(SCHEMA_MODE) is not None,
    )
    if parsed.value_or_default(SCHEMA_MODE) in (SchemaMode.WIDEN, SchemaMode.EVOLVE):
        stored = table_columns(path, storage_options) or ()
        data = required_without_nulls(data, {field.name for field in stored if not field.nullable})
    rows = data if is_spark_value(data) else arrow_reader(data)
    save = Save.planned(path, _mode(mode, parsed), parsed, storage_options, engine.input_schema(rows), where)
    return save.run(engine, rows, _no_partitions)


def upsert_keeping(
    path: str | os.PathLike[str], data: Any, mode: str, options: Options, storage_options: Mapping[str, str] | None
) -> WriteResult | None:
    """Upsert rows that may lack columns, whose stored values remain; None if there is no table or no column yet.

    Raises:
        InvalidRequest: The mode or the option names another operation.
    """
    word = options.explicit(OPERATION) if mode == "append" else mode
    if word not in (None, WriteOperation.UPSERT):
        raise InvalidRequest(f"missing_columns={KEEP!r} retains values of stored records: it requires an upsert, not {word}")
    if table_columns(path, storage_options) is None:
        return None
    of_call = {SCHEMA_MODE.key, ONCE.key, COMMIT_METADATA.key}
    values = dict(options.values)
    table = Table(path, storage_options, {**{k: v for k, v in values.items() if k not in of_call}, **dict(options.extra)})
    return table.upsert(data, missing_columns=KEEP, options={k: v for k, v in values.items() if k in of_call})


def _mode(mode: str | None, options: Options) -> str:
    """Return the mode of `Save`, where append leaves the operation to the options."""
    if mode is None:
        return "append"
    if mode.strip().lower() != "append":
        return mode
    explicit = options.explicit(OPERATION)
    if explicit in (WriteOperation.INSERT, WriteOperation.BULK_INSERT):
        return explicit
    if explicit is not None:
        raise InvalidRequest(f"mode append inserts, and contradicts option {OPERATION}={explicit}: leave the mode out")
    return str(WriteOperation.INSERT)


def _no_partitions(_: Any) -> list[str]:
    raise InvalidRequest("write does not delete partitions: use Table.delete_partitions")


def table_columns(path: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> pa.Schema | None:
    """Return the columns of the table; None if there is no table, or no column yet."""
    try:
        return Table(path, storage_options, stored_options=False).schema()
    except TableState:
        return None
