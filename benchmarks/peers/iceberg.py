"""pyiceberg with a SQLite catalog beside the table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform

from benchmarks import queries
from benchmarks.peers.arrow import ArrowPeer, load, stream
from benchmarks.peers.base import Measured, NotOffered, Settings, Table
from benchmarks.queries import Condition

_NAME = "bench.rows"
_MOST_KEYS = 1000


class PyIceberg(ArrowPeer):
    """Append, upsert and scan. Its upsert builds a filter of all keys, so larger batches are not offered."""

    kinds = ("cow",)

    def start(self, settings: Settings) -> dict[str, str]:
        return {"pyiceberg": pyiceberg.__version__, **super().start(settings)}

    def read(self, table: Table, columns: Sequence[str] | None = None, where: Condition = ()) -> pa.Table:
        names = tuple(columns or table.layout.columns or ("*",))
        rows: pa.Table = _open(table).scan(row_filter=queries.to_sql(where) or "true", selected_fields=names).to_arrow()
        return rows

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        def operation() -> None:
            os.makedirs(table.path)
            catalog = _catalog(table)
            catalog.create_namespace("bench")
            reader = stream(files)
            created = catalog.create_table(_NAME, reader.schema)
            with created.update_spec() as spec:
                spec.add_field(table.layout.partition, IdentityTransform(), table.layout.partition)
            created.append(reader.read_all())

        return Measured(operation, lambda _: None)

    def upsert(self, table: Table, files: Sequence[str]) -> Measured:
        rows = load(files)
        if rows.num_rows > _MOST_KEYS:
            raise NotOffered(f"an upsert of more than {_MOST_KEYS} keys")
        return Measured(lambda: _open(table).upsert(load(files), join_cols=list(table.layout.keys)), lambda _: None)


def _catalog(table: Table) -> Any:
    return SqlCatalog("bench", uri=f"sqlite:///{table.path}/catalog.db", warehouse=f"file://{table.path}")


def _open(table: Table) -> Any:
    return _catalog(table).load_table(_NAME)
