"""PyHudi in one process, on Arrow: `pyhudi.Table` and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, TypeVar

import pyarrow as pa

import pyhudi as hp
from benchmarks import queries
from benchmarks.peers.arrow import ArrowPeer, load, stream
from benchmarks.peers.base import Measured, NotBuilt, Settings, Table
from benchmarks.peers.hudi_timeline import completion_times
from pyhudi.errors import Unsupported

T = TypeVar("T")

# One version of each file group stays, as the other systems are told in this step.
CLEANING = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"}


class PyHudiEmbedded(ArrowPeer):
    """All defaults."""

    def start(self, settings: Settings) -> dict[str, str]:
        return {"pyhudi": version(), **super().start(settings)}

    def read(self, table: Table, columns: Sequence[str] | None = None) -> pa.Table:
        return _scan(table, columns or queries.COLUMNS)

    def read_filtered(self, table: Table) -> pa.Table:
        return _scan(table, queries.COLUMNS, queries.FILTER_SQL)

    def read_key(self, table: Table, key: Sequence[int]) -> pa.Table:
        return _scan(table, queries.LOOKUP_COLUMNS, queries.lookup_sql(key))

    def read_changes(self, table: Table) -> pa.Table:
        return or_not_built(lambda: hp.Table(table.path).incremental(completion_times(table.path)[-1]).to_arrow())

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        def operation() -> None:
            created = hp.Table.create(
                table.path,
                name=table.name,
                record_key=list(queries.KEY_COLUMNS),
                partition_by=[queries.PARTITION_COLUMN],
                ordering=[queries.ORDERING_COLUMN],
                table_type=table.kind,
            )
            created.bulk_insert(stream(files))

        return measured(operation)

    def upsert(self, table: Table, files: Sequence[str]) -> Measured:
        return measured(lambda: hp.Table(table.path).upsert(load(files)))

    def delete(self, table: Table, files: Sequence[str]) -> Measured:
        return measured(lambda: hp.Table(table.path).delete(keys=load(files)))

    def compact(self, table: Table) -> Measured:
        return measured(lambda: hp.Table(table.path).compact())

    def cluster(self, table: Table) -> Measured:
        return measured(lambda: hp.Table(table.path).cluster(order_by=[queries.CLUSTER_COLUMN]))

    def clean(self, table: Table) -> Measured:
        return measured(lambda: hp.Table(table.path).clean(dry_run=False, options=CLEANING))


def measured(operation: Callable[[], Any]) -> Measured:
    """A step that changes the table: its result is looked at through the table, later."""
    return Measured(lambda: or_not_built(operation), lambda _: None)


def version() -> str:
    return metadata.version("pyhudi")


def or_not_built(operation: Callable[[], T]) -> T:
    """What PyHudi says it does not do yet is no failure of the benchmark."""
    try:
        return operation()
    except Unsupported as error:
        raise NotBuilt(str(error)) from error


def _scan(table: Table, columns: Sequence[str], where: str | None = None) -> pa.Table:
    return or_not_built(lambda: hp.Table(table.path).scan(columns=list(columns), filter=where).to_arrow())
