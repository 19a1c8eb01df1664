"""hudi-rs (`hudi`): reads Hudi tables in one process.  It reads the table of another system: `reads_of` in `systems.py`."""

from __future__ import annotations

from collections.abc import Sequence

import hudi
import pyarrow as pa
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from benchmarks import queries
from benchmarks.peers.arrow import ArrowPeer
from benchmarks.peers.base import Settings, Table
from benchmarks.peers.hudi_timeline import completion_times


class HudiRs(ArrowPeer):
    """Its filters choose files and row groups; what is left over is filtered with Arrow."""

    def start(self, settings: Settings) -> dict[str, str]:
        return {"hudi-rs": hudi.__version__, **super().start(settings)}

    def read(self, table: Table, columns: Sequence[str] | None = None) -> pa.Table:
        return _read(table, HudiReadOptions(projection=list(columns or queries.COLUMNS)))

    def read_filtered(self, table: Table) -> pa.Table:
        filters = [(queries.PARTITION_COLUMN, "=", queries.FILTER_YEAR), ("l_quantity", "<=", f"{queries.FILTER_QUANTITY}.00")]
        return _read(table, HudiReadOptions(filters=filters, projection=list(queries.COLUMNS))).filter(queries.arrow_filter())

    def read_key(self, table: Table, key: Sequence[int]) -> pa.Table:
        filters = [(column, "=", str(value)) for column, value in zip(queries.KEY_COLUMNS, key, strict=True)]
        return _read(table, HudiReadOptions(filters=filters, projection=list(queries.LOOKUP_COLUMNS))).filter(
            queries.arrow_lookup(key)
        )

    def read_changes(self, table: Table) -> pa.Table:
        # The range is open at its start, so it starts with the commit before the newest.
        before = completion_times(table.path)[-2]
        return _read(
            table,
            HudiReadOptions(projection=list(queries.COLUMNS))
            .with_query_type(HudiQueryType.Incremental)
            .with_start_timestamp(before),
        )


def _read(table: Table, options: HudiReadOptions) -> pa.Table:
    return pa.Table.from_batches(HudiTableBuilder.from_base_uri(table.path).build().read(options))
