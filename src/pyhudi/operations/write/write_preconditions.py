"""Whether the options of a write go with the table, asked before the write takes an instant: what is refused leaves no trace.

Only the first attempt asks: other writers who win change rows, and what they change of the table is met again when the attempt is
planned, under its instant.  What was looked at for it is planned on where the state is still the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.errors import Unsupported
from pyhudi.operations.write.index_lookup import check_lookup, depends_on_groups
from pyhudi.operations.write.operation_traits import OperationTraits
from pyhudi.operations.write.write_attempt import raise_stale_on_missing_file
from pyhudi.operations.write.write_schemas import WriteSchemas
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.planning.bucket_routing import hashed_fields
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext

LoadedCommits = Mapping[str, tuple[FileSlice, ...]]
"""The slices of a state that a write may touch, by partition."""


def check_preconditions(
    context: TableContext,
    settings: WriteSettings,
    shape: OperationTraits,
    schemas: WriteSchemas,
    snapshot: Snapshot,
    counts: Mapping[str, int],
) -> LoadedCommits | None:
    """Raises InvalidRequest, TableState or Unsupported for options that the table refuses; SnapshotOutdated as listing does.

    counts: rows by partition path.  Returns the slices that were looked at, None where none had to be.
    """
    check_columns_by_ids(context, schemas, snapshot)
    if not shape.needs_lookup:
        return None
    if settings.index.buckets is not None:
        hashed_fields(schemas.keys, settings.index.buckets.hash_fields)
    if shape.replaces or not depends_on_groups(settings.index, is_cow=context.config.is_cow):
        check_lookup(settings.index, context, snapshot, ())
        return None
    with raise_stale_on_missing_file(snapshot):
        slices = slices_to_search(shape, schemas, snapshot, counts)
        check_lookup(settings.index, context, snapshot, (s for found in slices.values() for s in found))
    return slices


def check_columns_by_ids(context: TableContext, schemas: WriteSchemas, snapshot: Snapshot) -> None:
    """Raises Unsupported for a partial update of a table whose columns go by ids."""
    if snapshot.history is not None and schemas.partial:
        raise Unsupported(
            f"a partial update of {context.storage.uri}, whose columns go by ids (hoodie.schema.on.read.enable): upsert "
            "whole rows"
        )


def slices_to_search(
    shape: OperationTraits, schemas: WriteSchemas, snapshot: Snapshot, counts: Mapping[str, int]
) -> dict[str, tuple[FileSlice, ...]]:
    """Latest slices of the partitions that the write may touch."""
    return snapshot.slices(None if shape.global_keys or schemas.unplaced else counts)
