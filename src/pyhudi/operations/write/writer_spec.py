"""How the tasks of a write write files."""

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
    """What all writing tasks of an attempt share.  Raises as `check_event_time`.

    snapshot: the state that it is planned on; transaction: its own; ids: of the columns after it, see `ReadSpec`.
    """
    config, files = context.config, settings.files
    if shape.is_bucketed:
        # A bucket is one file group, whatever its size.
        # Nobody reads keys to find a record's bucket, so none are read to find its row.
        files = replace(files, max_file_size_bytes=_NO_LIMIT_BYTES, record_positions=False)
    stored = snapshot.schema.arrow if snapshot.schema else None
    if settings.event_time is not None:
        check_event_time(settings.event_time, schemas.data_schema)
    # What stands before a log is told by when others complete, where they append to the same file groups.
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
        # Whoever writes beside a turn commits after it, and is the one to be planned again.
        early=None if context.holds_lock else early_conflicts(transaction, settings.early, by_bucket=shape.is_bucketed),
        ids=ids,
        extension=config.base_extension(files.base_format),
        event_time=settings.event_time,
    )


def _partial_update(shape: OperationTraits, schemas: WriteSchemas, table_name: str) -> PartialUpdateSpec | None:
    given = schemas.input
    # By bucket nobody has looked up which keys are there, so that even of whole rows those of new keys are to be passed over.
    if given is None or not (schemas.partial or shape.is_bucketed):
        return None
    return PartialUpdateSpec(given, TableSchema(given, schemas.schema_text).stored_avro(table_name))
