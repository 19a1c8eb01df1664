"""Rows whose meta columns stand in a base file of the table, and whose data columns in a file outside of it, row by row.

The two files are cut into row groups as each writer liked.  Memory: one row group of either.

Source: docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptData, Internal, TableState
from pyhudi.execute.open_base import open_base_file
from pyhudi.format.bootstrap import SourceFile
from pyhudi.format.paths import file_name_of, folder_of
from pyhudi.storage import open_storage
from pyhudi.storage.base import StorageSpec


@contextmanager
def open_source(table: StorageSpec, source: SourceFile) -> Iterator[pq.ParquetFile]:
    """A source file to read from during a `with` block.  table: where the table lies, whose options open the source too.

    Raises TableState when the file is gone, CorruptData when it is not the one that the table was made over: rows of another
    file would stand beside the keys of this one.
    """
    storage = open_storage(StorageSpec(folder_of(source.uri), table.options))
    name = file_name_of(source.uri)
    info = storage.stat(name)
    if info is None:
        raise TableState(f"{source.uri} is gone, and it holds rows of the table, which was bootstrapped over it: put it back")
    if (info.size_bytes, info.modified_ms) != (source.size_bytes, source.modified_ms):
        raise CorruptData(
            "a file that the table was bootstrapped over has changed since",
            expected=f"{source.size_bytes} bytes of {source.modified_ms} ms",
            found=f"{info.size_bytes} bytes of {info.modified_ms} ms",
            path=source.uri,
        )
    with open_base_file(storage, name) as file:
        yield file


def joined(heads: Iterable[pa.Table], rows: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """The tables of `rows`, each with as many of the rows of `heads` beside it, in the order of the schema.

    Both have columns, and the same number of rows in all, which the caller has checked.
    """
    held: list[pa.Table] = []
    count = 0
    coming = iter(heads)
    for table in rows:
        while count < table.num_rows:
            more = next(coming, None)
            if more is None:
                raise Internal("two files with as many rows ran out of step")
            held.append(more)
            count += more.num_rows
        if not held:
            continue
        head = pa.concat_tables(held)
        beside, held = head.slice(0, table.num_rows), [head.slice(table.num_rows)]
        count -= table.num_rows
        names = set(table.column_names)
        yield pa.table([(table if name in names else beside).column(name) for name in schema.names], schema=schema)
