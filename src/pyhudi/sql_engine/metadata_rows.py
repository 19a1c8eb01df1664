"""Rows of `hudi_metadata`: the records of the metadata table, in the columns of Hudi's function.

Bounds of column statistics are text, those of expressions null. Hudi returns bounds as one struct per type.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.api.table import Table
from pyhudi.errors import TableState
from pyhudi.metadata_table.codecs.files_codec import ALL_PARTITIONS
from pyhudi.metadata_table.codecs.metadata_schema import MetadataRecordType, Payload
from pyhudi.metadata_table.codecs.payload_codec import decode_payload, payload_type
from pyhudi.metadata_table.codecs.value_wrappers import unwrap
from pyhudi.metadata_table.indexes import index_for_partition
from pyhudi.metadata_table.metadata_keys import FILE_STATS_KEY_LENGTH
from pyhudi.metadata_table.reader.cell_merge import GroupCells, merge_column_stats_cells, merge_files, newest_cells
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.records.row_grouping import run_starts

_STATS = pa.struct(
    [
        *((name, pa.string()) for name in ("fileName", "columnName", "minValue", "maxValue")),
        *((name, pa.int64()) for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")),
        ("isTightBound", pa.bool_()),
    ]
)


def _nullable(type_: pa.DataType) -> pa.DataType:
    """The type with nullable fields: a record has one payload, and Spark keeps no NOT NULL within a null struct."""
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, _nullable(type_.item_type))
    return pa.struct([field.with_nullable(True) for field in type_])


_PAYLOADS: dict[Payload, pa.DataType] = {
    payload: _STATS if payload is Payload.COLUMN_STATS else _nullable(payload_type(payload)) for payload in Payload
}
METADATA_ROWS = pa.schema(
    [("partition", pa.string()), ("key", pa.string()), ("type", pa.int32())]
    + [(str(payload), type_) for payload, type_ in _PAYLOADS.items()]
)
"""`partition` is the partition of the metadata table, such as `files` or `record_index`."""

_BLOOM, _SECONDARY = "bloom_filters", "secondary_index"


def metadata_rows(table: Table) -> pa.Table:
    """Return METADATA_ROWS of a table. Raises TableState if it has no metadata table."""
    context = table.context.reloaded()
    if not context.config.has_metadata_table:
        raise TableState(f"the table at {context.storage.uri} has no metadata table; the next write creates it")
    metadata, schema = MetadataTable(context, context.timeline.load()), table.schema(meta_columns=True)
    definitions = load_index_definitions(context)
    parts = []
    for partition in context.config.metadata_partitions:
        index = index_for_partition(partition)
        index_kind = definitions[partition].kind if partition in definitions else (index.partition_type if index else partition)
        for group in metadata.scan(partition):
            parts += list(_group_rows(partition, index_kind.rstrip("_"), group, schema))
    return pa.concat_tables([METADATA_ROWS.empty_table(), *parts])


def _group_rows(partition: str, index_kind: str, group: GroupCells, schema: pa.Schema) -> Iterator[pa.Table]:
    if index_kind == "files":
        yield _file_rows(partition, merge_files(group))
    elif index_kind.endswith("_stats"):
        for batch in merge_column_stats_cells(group):
            keys = batch.column("key")
            # An expression index has statistics of files and of partitions.
            of_file = pc.equal(pc.binary_length(keys), FILE_STATS_KEY_LENGTH)
            of_files, of_partitions = (int(n) for n in (MetadataRecordType.COLUMN_STATS, MetadataRecordType.PARTITION_STATS))
            types = pc.if_else(of_file, of_files, of_partitions).cast(pa.int32())
            yield _rows(partition, keys, types, Payload.COLUMN_STATS, _stats(batch, schema))
    else:
        payload = {_BLOOM: Payload.BLOOM_FILTER, _SECONDARY: Payload.SECONDARY_INDEX}.get(index_kind, Payload.RECORD_INDEX)
        for cells in newest_cells(group):
            types, payloads = decode_payload(cells.values, cells.schema, payload)
            yield _rows(partition, cells.keys, types, payload, _fitted(payloads, _PAYLOADS[payload]))


def _file_rows(partition: str, files: pa.RecordBatch) -> pa.Table:
    """One row per partition, with the map of its files."""
    starts = np.append(run_starts(files.column("partition").dictionary_encode().indices.to_numpy()), files.num_rows)
    keys = files.column("partition").take(pa.array(starts[:-1]))
    entries = pa.StructArray.from_arrays(
        [files.column("size_bytes"), files.column("is_deleted")], fields=list(_PAYLOADS[Payload.FILES].item_type)
    )
    maps = pa.MapArray.from_arrays(pa.array(starts, pa.int32()), files.column("name"), entries)
    is_list = pc.equal(keys, ALL_PARTITIONS)
    types = pc.if_else(is_list, int(MetadataRecordType.PARTITION_LIST), int(MetadataRecordType.FILE_LIST)).cast(pa.int32())
    return _rows(partition, keys, types, Payload.FILES, maps)


def _stats(batch: pa.RecordBatch, schema: pa.Schema) -> pa.StructArray:
    names = batch.column("column_name")
    bounds = {}
    for bound in ("min", "max"):
        texts = pa.nulls(batch.num_rows, pa.string())
        for name in names.unique().to_pylist():
            if name not in schema.names or pa.types.is_nested(schema.field(name).type):
                continue
            of_column = pc.equal(names, name)
            values, _ = unwrap(batch.column(bound).filter(of_column), schema.field(name).type)
            if not pa.types.is_binary(values.type):
                texts = pc.replace_with_mask(texts, of_column, values.cast(pa.string()))
        bounds[bound] = texts
    counts = ("value_count", "null_count", "total_size_bytes", "total_uncompressed_size_bytes", "is_tight")
    arrays = [batch.column("file_name"), names, bounds["min"], bounds["max"], *(batch.column(name) for name in counts)]
    return pa.StructArray.from_arrays(arrays, fields=list(_STATS))


def _fitted(payloads: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Payloads of any version of Hudi in the fields of this one."""
    arrays = []
    for field in target_type:
        index = payloads.type.get_field_index(field.name)
        arrays.append(pa.nulls(len(payloads), field.type) if index < 0 else pc.struct_field(payloads, [index]).cast(field.type))
    return pa.StructArray.from_arrays(arrays, fields=list(target_type))


def _rows(partition: str, keys: pa.Array, types: pa.Array | int, payload: Payload, payloads: pa.Array) -> pa.Table:
    count = len(keys)
    columns = {
        "partition": pa.repeat(pa.scalar(partition), count),
        "key": keys.cast(pa.string()),
        "type": pa.repeat(pa.scalar(types, pa.int32()), count) if isinstance(types, int) else types,
    }
    for other, payload_type_ in _PAYLOADS.items():
        columns[str(other)] = payloads.cast(payload_type_) if other is payload else pa.nulls(count, payload_type_)
    return pa.table(columns, schema=METADATA_ROWS)
