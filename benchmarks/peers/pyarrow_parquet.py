"""The limit without Spark: plain Parquet through PyArrow.  Reads the very base files of another system's table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks import queries
from benchmarks.peers.arrow import ArrowPeer, stream
from benchmarks.peers.base import Measured, NotOffered, Table
from benchmarks.peers.hudi_timeline import newest_base_files


class PyArrowParquet(ArrowPeer):
    """`pyarrow.dataset`, both ways."""

    kinds = ("cow",)

    def read(self, table: Table, columns: Sequence[str] | None = None) -> pa.Table:
        return _files(table).to_table(columns=list(columns or queries.COLUMNS))

    def read_filtered(self, table: Table) -> pa.Table:
        return _files(table).to_table(columns=list(queries.COLUMNS), filter=queries.arrow_filter())

    def read_key(self, table: Table, key: Sequence[int]) -> pa.Table:
        return _files(table).to_table(columns=list(queries.LOOKUP_COLUMNS), filter=queries.arrow_lookup(key))

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        def operation() -> None:
            parquet = ds.ParquetFileFormat()
            ds.write_dataset(
                stream(files),
                table.path,
                format=parquet,
                partitioning=ds.partitioning(pa.schema([(queries.PARTITION_COLUMN, pa.string())]), flavor="hive"),
                file_options=parquet.make_write_options(compression="zstd"),
            )

        return Measured(operation)

    def incremental(self, table: Table) -> Measured:
        raise NotOffered


def _files(table: Table) -> ds.Dataset:
    return ds.dataset(newest_base_files(table.path), format="parquet")
