"""Tasks that read file slices into Arrow.

A slice without log files is its base file: only the wanted columns are read, row groups whose statistics exclude the filter are
passed over, and the filter is
applied to what is left.  Columns that a file lacks are null; columns whose type was widened since are cast.

Source: reading and merging, "Snapshot read of one slice" and "Schema".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import Unsupported
from pyhudi.execute.layout import conform_table
from pyhudi.records.keys import KeySpec, parse_partition_path, partition_columns, partition_value, path_valued_columns
from pyhudi.records.predicates import Expr, columns, prune_ranges, to_arrow
from pyhudi.records.stats import footer_ranges
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.table.slices import FileSlice


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """What all tasks of one read share.

    table_schema: meta columns and data columns of the table.  output: the columns to give, in order.  condition: bound to
    table_schema; rows to give, None for all.
    values_from_path: partition columns are taken from the path even where the file has them.
    """

    storage: StorageSpec
    table_schema: pa.Schema
    output: pa.Schema
    condition: Expr | None
    keys: KeySpec
    values_from_path: bool = False


def run_read(spec: ReadSpec, slice_: FileSlice) -> Iterator[pa.Table]:
    """The rows of a slice as tables with the output's columns; at least one, maybe empty."""
    if slice_.logs:
        raise Unsupported(
            f"file slice {slice_.file_id} in {slice_.partition or 'the table'} has log files, which are not read yet"
        )
    if slice_.base is None:
        yield spec.output.empty_table()
        return
    yield from read_base_file(open_storage(spec.storage), spec, slice_.partition, slice_.base.path)


def read_base_file(storage: Storage, spec: ReadSpec, partition: str, path: str) -> Iterator[pa.Table]:
    """The rows of one base file, a table for each row group that may hold some."""
    wanted = list(spec.output.names)
    if spec.condition is not None:
        wanted += [name for name in sorted(columns(spec.condition)) if name.split(".")[0] not in wanted]
    heads = list(dict.fromkeys(name.split(".")[0] for name in wanted))
    needed = pa.schema([spec.table_schema.field(name) for name in heads])
    condition = None if spec.condition is None else to_arrow(spec.condition, needed)
    empty = True
    with pq.ParquetFile(storage.open_input(path)) as file:
        present = set(file.schema_arrow.names)
        constants = _path_values(spec, partition, needed, present)
        stored = [name for name in heads if name in present and name not in constants]
        for group in range(file.metadata.num_row_groups):
            if spec.condition is not None and not _group_may_match(file, group, spec.condition, needed, constants):
                continue
            rows = file.read_row_group(group, columns=stored, use_threads=False)
            count = file.metadata.row_group(group).num_rows
            for name, value in constants.items():
                rows = rows.append_column(needed.field(name), pa.repeat(value, count))
            table = conform_table(rows, needed) if heads else _rows_without_columns(count)
            if condition is not None:
                table = table.filter(condition)
            empty = False
            yield table.select(spec.output.names) if heads else table
    if empty:
        yield spec.output.empty_table()


def _path_values(spec: ReadSpec, partition: str, needed: pa.Schema, present: set[str]) -> dict[str, pa.Scalar]:
    """Partition columns that come from the path: those that the file lacks, or all when asked for."""
    usable = set(path_valued_columns(spec.keys))
    taken = [name for name in needed.names if name in usable and (spec.values_from_path or name not in present)]
    if not taken:
        return {}
    texts = dict(zip(partition_columns(spec.keys), parse_partition_path(spec.keys, partition), strict=True))
    return {name: partition_value(texts[name], needed.field(name).type) for name in taken}


def _group_may_match(
    file: pq.ParquetFile, group: int, condition: Expr, schema: pa.Schema, constants: dict[str, pa.Scalar]
) -> bool:
    names = [name for name in columns(condition) if name.split(".")[0] not in constants]
    return prune_ranges(condition, footer_ranges(file.metadata, schema, names, row_groups=[group]))


def _rows_without_columns(count: int) -> pa.Table:
    return pa.table({"": pa.nulls(count)}).select([])
