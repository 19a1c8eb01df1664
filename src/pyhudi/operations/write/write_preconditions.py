"""Check the options of a write against the table before the write takes an instant, so that a refused write leaves no trace.

Only the first attempt runs these checks. Changes by concurrent writers are checked when the write commits, under the
lock. The file slices that were loaded for the checks are reused if the state has not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from itertools import chain

import pyarrow as pa

from pyhudi.errors import TableState, Unsupported
from pyhudi.format.hudi_types import stated_hudi_type
from pyhudi.operations.write.index_lookup import check_lookup, depends_on_groups
from pyhudi.operations.write.key_form_check import check_one_key_form
from pyhudi.operations.write.operation_traits import OperationTraits
from pyhudi.operations.write.write_attempt import raise_stale_on_missing_file
from pyhudi.operations.write.write_schemas import WriteSchemas
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.options import table_options
from pyhudi.options.table_options import SLASH_DATES
from pyhudi.planning.bucket_routing import hashed_fields
from pyhudi.records.keys.key_spec import KeySpec, partition_columns, path_valued_columns
from pyhudi.records.keys.partition_paths import parse_partition_path
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.key_form import has_two_forms
from pyhudi.table.slash_dates import check_one_spelling
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_config import store_table_config
from pyhudi.table.table_context import TableContext

_SQL_TIMESTAMP = re.compile(r"\d+-\d\d-\d\d \d\d(:|%3A)\d\d(:|%3A)\d\d")
"""Timestamp in a partition path of Hudi's SQL: escaped, and without the fraction of `consistent_timestamps`."""

LoadedCommits = Mapping[str, tuple[FileSlice, ...]]
"""File slices of a snapshot that a write may touch, by partition."""


def check_preconditions(
    context: TableContext,
    settings: WriteSettings,
    shape: OperationTraits,
    schemas: WriteSchemas,
    snapshot: Snapshot,
    counts: Mapping[str, int] | None,
    *,
    columns: pa.Schema,
) -> LoadedCommits | None:
    """Check the options of a write against the table.

    Args:
        counts: Number of rows by partition path, None if they were not counted.
        columns: Columns of the input rows.

    Returns:
        The file slices that were loaded, None if none were needed.

    Raises:
        InvalidRequest, TableState, Unsupported: The table does not allow the options.
        SnapshotOutdated: The snapshot is stale.
    """
    check_columns_by_ids(context, schemas, snapshot)
    if context.config.keys.slash_dates:
        _keep_slash_dates(context, settings, snapshot)
    if not shape.replaces and has_two_forms(context.config.keys):
        with raise_stale_on_missing_file(snapshot):
            searched = None if counts is None else slices_to_search(shape, schemas, snapshot, counts).values()
            check_one_key_form(snapshot, None if searched is None else chain.from_iterable(searched))
    check_timestamp_paths(context, shape, schemas, lambda: snapshot, counts, columns=columns)
    if not shape.needs_lookup:
        return None
    if settings.index.buckets is not None:
        hashed_fields(schemas.keys, settings.index.buckets.hash_fields)
    if shape.replaces or not depends_on_groups(settings.index, is_cow=context.config.is_cow):
        check_lookup(settings.index, context, snapshot, ())
        return None
    with raise_stale_on_missing_file(snapshot):
        slices = slices_to_search(shape, schemas, snapshot, counts or {})
        check_lookup(settings.index, context, snapshot, (s for partition_slices in slices.values() for s in partition_slices))
    return slices


def _keep_slash_dates(context: TableContext, settings: WriteSettings, snapshot: Snapshot) -> None:
    """Check that no partition of a table with slash-separated dates has dashes, and store the property for later writers."""
    check_one_spelling(context.storage.uri, snapshot.listing.partitions())
    if not context.config.property(SLASH_DATES.stored_as):
        with context.locked(settings.commit.lock_wait_ms) as locked:
            store_table_config(locked.storage, {SLASH_DATES.stored_as: "true"}, locked.env)


def check_timestamp_paths(
    context: TableContext,
    shape: OperationTraits,
    schemas: WriteSchemas,
    load: Callable[[], Snapshot],
    counts: Mapping[str, int] | None,
    *,
    columns: pa.Schema,
) -> None:
    """Raise Unsupported if Hudi's SQL wrote partitions of a timestamp column: the rows to write have other paths.

    Args:
        load: Returns the snapshot; called only if partition paths hold timestamps.
        counts, columns: As in `check_preconditions`.
    """
    # A delete without partition columns searches all partitions.
    if shape.replaces_table or schemas.unplaced or (counts is not None and not counts):
        return
    keys = context.config.keys
    # Data files may omit partition columns, which rows to delete bring with a type of their own.
    stored = (*schemas.data_schema, *schemas.partition_columns)
    types = {field.name: field.type for field in (*columns, *stored)}
    fields = {name for name in path_valued_columns(keys) if name in types and pa.types.is_timestamp(types[name])}
    if not fields:
        return
    snapshot = load()
    sql_paths = {path for path in snapshot.listing.partitions() if _is_path_of_hudi_sql(path, keys, fields)}
    if sql_paths and not (counts and sql_paths.issuperset(counts)) and any(snapshot.slices(sql_paths).values()):
        raise Unsupported(
            f"cannot write the table at {context.storage.uri}: Hudi's SQL wrote partition path {min(sql_paths)!r} with formatted "
            "timestamps, where PyHudi would write another path, so records would be stored twice. Write the table with Hudi's "
            "SQL, or delete these partitions with `delete_partitions`"
        )


def _is_path_of_hudi_sql(path: str, keys: KeySpec, fields: Collection[str]) -> bool:
    try:
        texts = dict(zip(partition_columns(keys), parse_partition_path(keys, path), strict=True))
    except TableState:
        return False
    return any(text is not None and _SQL_TIMESTAMP.fullmatch(text) for text in (texts[name] for name in fields))


def check_columns_by_ids(context: TableContext, schemas: WriteSchemas, snapshot: Snapshot) -> None:
    """Raise Unsupported for a partial update of a table with schema on read, and for a column of a type of Hudi 1.2 in it."""
    if snapshot.history is None:
        return
    unsupported_field = next((field for field in schemas.data_schema if stated_hudi_type(field) is not None), None)
    if unsupported_field is not None:
        raise Unsupported(
            f"column {unsupported_field.name!r} of type {stated_hudi_type(unsupported_field)} in {context.storage.uri} "
            f"is not supported: the table uses schema on read ({table_options.SCHEMA_ON_READ}), "
            "and Hudi 1.2.0 cannot read such a table"
        )
    if schemas.partial:
        raise Unsupported(
            f"a partial update of {context.storage.uri} is not supported: the table uses schema on read "
            f"({table_options.SCHEMA_ON_READ}). Upsert whole rows."
        )


def slices_to_search(
    shape: OperationTraits, schemas: WriteSchemas, snapshot: Snapshot, counts: Mapping[str, int]
) -> dict[str, tuple[FileSlice, ...]]:
    """Return the latest file slices of the partitions that the write may touch."""
    return snapshot.slices(None if shape.global_keys or schemas.unplaced else counts)
