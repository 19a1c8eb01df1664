"""Check that PyHudi supports writing a table. Called once at the start of every mutating operation, before any read or write."""

from __future__ import annotations

from pyhudi.errors import Unsupported
from pyhudi.format.names import BASE_EXTENSIONS
from pyhudi.format.table_versions import written_versions
from pyhudi.metadata_table.codecs.metadata_partitions import EXPRESSION_INDEX_PREFIX, SECONDARY_INDEX_PREFIX
from pyhudi.metadata_table.indexes import check_writable_indexes
from pyhudi.options import table_options
from pyhudi.records.update_modes import check_merge_properties
from pyhudi.table.feature_support import check_omission, check_open
from pyhudi.table.schema_on_read_history import load_column_history
from pyhudi.table.snapshot import load_path_fields, load_schema, read_commit
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext


def check_writable(context: TableContext, *, retains_indexes: bool = True) -> None:
    """Check that PyHudi supports writing the table.

    Args:
        context: The table, with freshly loaded properties.
        retains_indexes: False for operations that add no records to the indexes. They are allowed on a table with an
            index that PyHudi cannot maintain.

    Raises:
        Unsupported: PyHudi must not write the table.
        InvalidRequest: The table stores a lock that the caller did not configure.
    """
    config, uri = context.config, context.storage.uri
    context.lock.check_usable()
    if not config.version.is_writable:
        raise Unsupported(
            f"cannot write the table at {uri}: it has version {int(config.version)}, and PyHudi writes versions "
            f"{written_versions()}. Table.upgrade() upgrades a table of version 6; no table is upgraded "
            "automatically."
        )
    check_open(context)
    check_key_generator(context)
    _check_ids_supported(context, retains_indexes=retains_indexes)
    if len(config.ordering_fields) > 1 and not config.version.has_ordering_fields:
        raise Unsupported(
            f"cannot write the table at {uri}: it has version {int(config.version)} and several ordering fields "
            f"({', '.join(config.ordering_fields)}); PyHudi only reads such tables"
        )
    check_merge_properties(config.merge)
    if config.base_file_format not in BASE_EXTENSIONS:
        raise Unsupported(
            f"cannot write the table at {uri}: its base files are {config.base_file_format}, and PyHudi writes "
            "only Parquet and ORC"
        )
    check_omission(config)
    if config.path_columns and not config.is_cow:
        schema = load_schema(context.timeline, context.timeline.load(), config)
        missing = () if schema is None else load_path_fields(config, schema).names
        if missing:
            raise Unsupported(
                f"cannot write the merge-on-read table at {uri}: its data files omit the partition columns "
                f"({', '.join(missing)}); "
                "PyHudi only reads such tables, because Hudi omits these columns only in copy-on-write tables"
            )
    if retains_indexes:
        check_writable_indexes(context)


def check_key_generator(context: TableContext) -> None:
    """Raise Unsupported if a class of the user computes the table's keys and paths."""
    config = context.config
    if config.keys.is_user_provided:
        name = config.property(table_options.GENERATOR_CLASS.stored_as) or config.property(table_options.GENERATOR_TYPE.stored_as)
        raise Unsupported(
            f"cannot write the table at {context.storage.uri}: PyHudi does not have its key generator {name}, and only reads "
            "such tables; copy its rows into a table with another key generator"
        )


def check_no_schema_on_read(context: TableContext) -> None:
    """Raise Unsupported if the table uses schema on read (columns resolved by id): its version cannot be changed."""
    if load_column_history(context, None, read_commit) is not None:
        raise Unsupported(
            f"cannot change the version of the table at {context.storage.uri}: it uses schema on read "
            f"({table_options.SCHEMA_ON_READ}), whose columns are resolved by id"
        )


def check_schema_on_read_supported(context: TableContext) -> None:
    """Raise Unsupported if the table could not be written after its columns were assigned ids (schema on read)."""
    without = _reason_against_ids(context.config, retains_indexes=True)
    if without is not None:
        raise Unsupported(
            f"cannot change columns of the table at {context.storage.uri} by id (ALTER TABLE): {without}. "
            "A write with pyhudi.schema.mode=evolve can change columns."
        )


def _check_ids_supported(context: TableContext, *, retains_indexes: bool) -> None:
    """Raise Unsupported for a schema-on-read table that PyHudi could write by column name only."""
    without = _reason_against_ids(context.config, retains_indexes=retains_indexes)
    if without is not None and load_column_history(context, None, read_commit) is not None:
        raise Unsupported(
            f"cannot write the table at {context.storage.uri}: it uses schema on read "
            f"({table_options.SCHEMA_ON_READ}), and "
            f"{without}; PyHudi only reads such tables"
        )


def _reason_against_ids(config: TableConfig, *, retains_indexes: bool) -> str | None:
    """Return why a table cannot be written with columns resolved by id, or None if it can."""
    partitions = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    by_name = [name for name in partitions if name.startswith((SECONDARY_INDEX_PREFIX, EXPRESSION_INDEX_PREFIX))]
    return (
        "it has no meta columns"
        if not config.populate_meta_fields
        else f"it has the index {by_name[0]}, which resolves columns by name (Table.index.drop() removes it)"
        if by_name and retains_indexes
        else "its data files omit partition columns"
        if config.path_columns
        else f"it was bootstrapped from {config.bootstrap_base_path}"
        if config.bootstrap_base_path
        else None
    )
