"""hudi-rs (`hudi`): reads Hudi tables of another system in one process."""

from __future__ import annotations

from collections.abc import Sequence

import hudi
import pyarrow as pa
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from benchmarks import queries
from benchmarks.peers.arrow import ArrowPeer, aggregate_step
from benchmarks.peers.base import Measured, Settings, Table
from benchmarks.peers.hudi_timeline import completion_times
from benchmarks.queries import Condition


class HudiRs(ArrowPeer):
    """Its filters choose files and row groups; Arrow filters the rest."""

    def start(self, settings: Settings) -> dict[str, str]:
        return {"hudi-rs": hudi.__version__, **super().start(settings)}

    def read(self, table: Table, columns: Sequence[str] | None = None, where: Condition = ()) -> pa.Table:
        filters = [(column, operator, str(value)) for column, operator, value in where]
        rows = _read(table, HudiReadOptions(filters=filters, projection=list(columns or queries.COLUMNS)))
        return rows.filter(queries.to_arrow(where)) if where else rows

    def changed_rows(self, table: Table) -> pa.Table:
        options = HudiReadOptions(projection=list(queries.COLUMNS)).with_query_type(HudiQueryType.Incremental)
        # The start is exclusive.
        return _read(table, options.with_start_timestamp(completion_times(table.path)[-2]))

    def sql_aggregate(self, table: Table) -> Measured:
        return aggregate_step(lambda: self.aggregated(table))

    def sql_filter(self, table: Table) -> Measured:
        return self.filtered_read(table, queries.FILTER)


def _read(table: Table, options: HudiReadOptions) -> pa.Table:
    return pa.Table.from_batches(HudiTableBuilder.from_base_uri(table.path).build().read(options))
