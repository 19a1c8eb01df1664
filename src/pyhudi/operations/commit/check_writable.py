"""The gate before every verb that changes a table: may PyHudi write it?  It is asked once, before anything is read or written."""

from __future__ import annotations

from pyhudi.errors import Unsupported
from pyhudi.format.names import BASE_EXTENSIONS
from pyhudi.format.table_versions import written_versions
from pyhudi.metadata_table.codecs.metadata_partitions import EXPRESSION_INDEX_PREFIX, SECONDARY_INDEX_PREFIX
from pyhudi.metadata_table.indexes import check_writable_indexes
from pyhudi.records.update_modes import check_merge_properties
from pyhudi.table.feature_support import check_omission, check_open
from pyhudi.table.schema_on_read_history import load_column_history
from pyhudi.table.snapshot import load_path_fields, load_schema, read_commit
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext


def check_writable(context: TableContext, *, retains_indexes: bool = True) -> None:
    """Raises Unsupported when PyHudi must not write the table.

    context: with properties that were just read.  retains_indexes: False for a verb that adds no records to the indexes, which is
    then allowed beside an index that PyHudi cannot keep up to date.
    """
    config, uri = context.config, context.storage.uri
    if not config.version.is_writable:
        raise Unsupported(
            f"the table at {uri} has version {int(config.version)}; PyHudi writes versions {written_versions()} "
            f"(Table.upgrade() makes one of version 6 such a table; nothing is upgraded unasked)"
        )
    check_open(context)
    _check_ids_kept(context, retains_indexes=retains_indexes)
    if len(config.ordering_fields) > 1 and not config.version.has_ordering_fields:
        raise Unsupported(
            f"the table at {uri} has version {int(config.version)} and orders records by several fields "
            f"({', '.join(config.ordering_fields)}); such tables are read, and not written"
        )
    check_merge_properties(config.merge)
    if config.base_file_format not in BASE_EXTENSIONS:
        raise Unsupported(f"the base files of the table at {uri} are {config.base_file_format}; only Parquet and ORC are written")
    check_omission(config)
    if config.path_columns and not config.is_cow:
        schema = load_schema(context.timeline, context.timeline.load(), config)
        missing = () if schema is None else load_path_fields(config, schema).names
        if missing:
            raise Unsupported(
                f"the merge-on-read table at {uri} was written without its partition columns ({', '.join(missing)}); such tables "
                "are read, and not written: the real Hudi leaves them out of copy-on-write tables alone"
            )
    if retains_indexes:
        check_writable_indexes(context)


def check_no_schema_on_read(context: TableContext) -> None:
    """Raises Unsupported for a table whose columns go by ids, which stays of its version."""
    if load_column_history(context, None, read_commit) is not None:
        raise Unsupported(
            f"the table at {context.storage.uri} evolved on read (hoodie.schema.on.read.enable), and its columns go by ids; such "
            "tables are not taken to another version"
        )


def check_schema_on_read_supported(context: TableContext) -> None:
    """Raises Unsupported for a table whose columns may not be given ids: it could not be written then."""
    without = _lacking_for_ids(context.config, retains_indexes=True)
    if without is not None:
        raise Unsupported(
            f"the columns of the table at {context.storage.uri} cannot be changed by ids (ALTER TABLE): {without}; a write may "
            "change columns, with pyhudi.schema.mode=evolve"
        )


def _check_ids_kept(context: TableContext, *, retains_indexes: bool) -> None:
    """Raises Unsupported for a table whose columns go by ids, where PyHudi would go by names.  retains_indexes: as given to the
    gate.
    """
    without = _lacking_for_ids(context.config, retains_indexes=retains_indexes)
    if without is not None and load_column_history(context, None, read_commit) is not None:
        raise Unsupported(
            f"the table at {context.storage.uri} evolved on read (hoodie.schema.on.read.enable): its columns go by ids, and "
            f"{without}; such tables are read, and not written"
        )


def _lacking_for_ids(config: TableConfig, *, retains_indexes: bool) -> str | None:
    """Why a table cannot be written by ids; None where it can."""
    partitions = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    by_name = [name for name in partitions if name.startswith((SECONDARY_INDEX_PREFIX, EXPRESSION_INDEX_PREFIX))]
    return (
        "it has no meta columns"
        if not config.populate_meta_fields
        else f"it has the index {by_name[0]}, which goes by names (Table.index.drop() removes it)"
        if by_name and retains_indexes
        else "it leaves partition columns out of its files"
        if config.path_columns
        else f"it was bootstrapped from {config.bootstrap_base_path}"
        if config.bootstrap_base_path
        else None
    )
