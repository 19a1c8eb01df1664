"""Build the writer specification that tasks of a write share."""

from __future__ import annotations

from dataclasses import replace

from pyhudi.metadata_table.writer.metadata_commit import indexing_requirements
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.write.early_conflict_settings import early_conflicts
from pyhudi.operations.write.operation_traits import OperationTraits
from pyhudi.operations.write.write_schemas import WriteSchemas
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.records.event_time_watermarks import check_event_time
from pyhudi.records.schema_on_read.column_ids import ColumnIds
from pyhudi.table.snapshot import Snapshot, TableSchema
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.cdc_writer import ChangeLogSpec
from pyhudi.tasks.hbase_lookup import with_keys
from pyhudi.tasks.write_tasks import PartialUpdateSpec, WriterSpec

_NO_LIMIT_BYTES = 1 << 62


def writer_spec(
    context: TableContext,
    settings: WriteSettings,
    shape: OperationTraits,
    schemas: WriteSchemas,
    snapshot: Snapshot,
    transaction: Transaction,
    *,
    ids: ColumnIds | None,
) -> WriterSpec:
    """Return how the tasks of an attempt write files. Raises the errors of `check_event_time`.

    Args:
        snapshot: The snapshot that the attempt is planned on.
        transaction: Its transaction.
        ids: Ids of the columns after the write, see `ReadSpec`.
    """
    config, files = context.config, settings.files
    if shape.is_bucketed:
        # A bucket is one file group of any size. A bucketed write reads no keys to locate a record, so it
        # records no row positions either.
        files = replace(files, max_file_size_bytes=_NO_LIMIT_BYTES, record_positions=False)
    stored = snapshot.schema.arrow if snapshot.schema else None
    if settings.event_time is not None:
        check_event_time(settings.event_time, schemas.data_schema)
    # With concurrent appends to shared file groups, completion times decide which record precedes a log file.
    keeps_changes = config.cdc_enabled and not shape.shares_groups
    changes = ChangeLogSpec(config.cdc_mode, schemas.schema_text, shape.deletes, files.marker_lists)
    return WriterSpec(
        storage=context.storage.spec(),
        instant_time=transaction.instant_time,
        data_schema=schemas.data_schema,
        avro_schema=TableSchema(schemas.data_schema, schemas.schema_text).stored_avro(config.name),
        files=files,
        keys=config.keys,
        populate_meta_fields=config.populate_meta_fields,
        rule=schemas.stored_rule,
        indexing=with_keys(indexing_requirements(context, settings.metadata, schemas.data_schema, stored), settings.commit.hbase),
        changes=changes if keeps_changes else None,
        partial=_partial_update(shape, schemas, config.name),
        # A concurrent writer commits after an exclusive write, and is the one that is planned again.
        early=None if context.holds_lock else early_conflicts(transaction, settings.early, by_bucket=shape.is_bucketed),
        ids=ids,
        extension=config.base_extension(files.base_format),
        event_time=settings.event_time,
    )


def _partial_update(shape: OperationTraits, schemas: WriteSchemas, table_name: str) -> PartialUpdateSpec | None:
    input_schema = schemas.input
    # A bucketed write has not looked up which keys exist, so even whole rows of new keys have to be skipped.
    if input_schema is None or not (schemas.partial or shape.is_bucketed):
        return None
    return PartialUpdateSpec(input_schema, TableSchema(input_schema, schemas.schema_text).stored_avro(table_name))
