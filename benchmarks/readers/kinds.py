"""The readers, each as a function from base files to an Arrow table in memory.

    pyhudi       what reads of a table do, planned beforehand: checksums of pages are compared
    pyarrow      PyArrow alone, checksums compared
    polars       its lazy scan, filter first ("prefiltered")
    datafusion   parquet-rs, filters evaluated while it decodes: only rows that match are made of the other columns
    duckdb       its own reader

None of the last three compares checksums.  A reader whose library is not installed is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import pyhudi as hp
from benchmarks import queries
from pyhudi.table.file_slices import FileSlice

COMMIT_TIME = "_hoodie_commit_time"

COLUMNS: dict[str, tuple[str, ...]] = {
    "full": queries.COLUMNS,
    "few": queries.AGGREGATE_COLUMNS,
    "commit": queries.COLUMNS,
}
"""What each case reads: all columns, five of them, and all columns of the rows that the newest commit wrote."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A case: columns, and the commit whose rows are wanted, None for all rows."""

    columns: tuple[str, ...]
    commit: str | None


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """The base files of the newest state of a table without logs."""

    table: str
    paths: tuple[str, ...]
    newest_commit: str

    @classmethod
    def of(cls, table: str) -> BaseFiles:
        """Raises ValueError for a table whose newest state has log files: no other reader merges them."""
        query = hp.Table(table).scan().query
        paths = []
        for slice_ in query.tasks:
            if not isinstance(slice_, FileSlice) or slice_.base is None or slice_.logs:
                raise ValueError(f"{table} has rows that do not stand in base files alone")
            paths.append(os.path.join(table, slice_.base.path))
        return cls(table, tuple(paths), query.snapshot.timeline.completed()[-1].request_time)

    def asked(self, case: str) -> Asked:
        """A case by its name in `COLUMNS`."""
        return Asked(COLUMNS[case], self.newest_commit if case == "commit" else None)


Read = Callable[[Asked], pa.Table]


def _pyhudi(files: BaseFiles) -> Read:
    def read(asked: Asked) -> pa.Table:
        where = None if asked.commit is None else f"{COMMIT_TIME} = '{asked.commit}'"
        query = hp.Table(files.table).scan(columns=list(asked.columns), filter=where).query
        reader: Callable[[Any], Any] = query.reader
        return pa.concat_tables([rows for task in query.tasks for rows in reader(task)])

    return read


def _pyarrow(files: BaseFiles) -> Read:
    def read(asked: Asked) -> pa.Table:
        filtered = asked.commit is not None
        names = [*asked.columns, *([COMMIT_TIME] if filtered else [])]
        parts = []
        for path in files.paths:
            rows = pq.ParquetFile(path, page_checksum_verification=True).read(columns=names, use_threads=False)
            parts.append(rows.filter(pc.field(COMMIT_TIME) == asked.commit).select(asked.columns) if filtered else rows)
        return pa.concat_tables(parts)

    return read


def _polars(files: BaseFiles) -> Read:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    polars: Any = import_module("polars")

    def read(asked: Asked) -> pa.Table:
        found = polars.scan_parquet(list(files.paths), parallel="prefiltered" if asked.commit else "auto")
        if asked.commit is not None:
            found = found.filter(polars.col(COMMIT_TIME) == asked.commit)
        rows: pa.Table = found.select(list(asked.columns)).collect().to_arrow()
        return rows

    return read


def _datafusion(files: BaseFiles) -> Read:
    datafusion: Any = import_module("datafusion")
    config = (
        datafusion.SessionConfig()
        .with_target_partitions(1)
        .set("datafusion.execution.parquet.pushdown_filters", "true")
        .set("datafusion.execution.parquet.reorder_filters", "true")
    )

    def read(asked: Asked) -> pa.Table:
        context = datafusion.SessionContext(config)
        names = []
        for number, path in enumerate(files.paths):
            context.register_parquet(f"t{number}", path)
            names.append(f"t{number}")
        where = "" if asked.commit is None else f" where {COMMIT_TIME} = '{asked.commit}'"
        parts = [context.sql(f"select {', '.join(asked.columns)} from {name}{where}").to_arrow_table() for name in names]
        return pa.concat_tables(parts)

    return read


def _duckdb(files: BaseFiles) -> Read:
    duckdb: Any = import_module("duckdb")

    def read(asked: Asked) -> pa.Table:
        connection = duckdb.connect(config={"threads": 1})
        where = "" if asked.commit is None else f" where {COMMIT_TIME} = '{asked.commit}'"
        text = f"select {', '.join(asked.columns)} from read_parquet($paths, hive_partitioning = false){where}"
        rows: pa.Table = connection.sql(text, params={"paths": list(files.paths)}).to_arrow_table()
        return rows

    return read


READERS: dict[str, Callable[[BaseFiles], Read]] = {
    "pyhudi": _pyhudi,
    "pyarrow": _pyarrow,
    "polars": _polars,
    "datafusion": _datafusion,
    "duckdb": _duckdb,
}


def installed(names: Sequence[str] = tuple(READERS)) -> list[str]:
    """Those readers whose library can be imported here."""
    found = []
    for name in names:
        try:
            import_module(name)
        except ImportError:
            continue
        found.append(name)
    return found


def answer(rows: pa.Table) -> list[int]:
    """What all readers have to agree on: how many rows, and the sum of their ordering values."""
    return [rows.num_rows, pc.sum(rows.column("ts")).as_py() or 0]
