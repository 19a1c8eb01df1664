"""Join bootstrapped base files with their source files: meta columns from the table, data columns from outside, row by row.

The two files have independent row groups.  Memory: one row group of either.

Source: docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import CorruptData, Internal, InvalidRequest, TableState, Unsupported
from pyhudi.format.bootstrap_index import SourceFile
from pyhudi.format.meta_columns import META_COLUMNS
from pyhudi.format.paths import file_name, parent_folder
from pyhudi.records.keys.key_spec import KeySpec, partition_columns, path_valued_columns
from pyhudi.records.keys.partition_paths import values_from_path
from pyhudi.records.stored_rows import in_table_columns
from pyhudi.records.timestamp_coercion import check_no_truncated_nanoseconds
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.storage.outside_names import check_source
from pyhudi.table.bootstrap_sources import BootstrapSources
from pyhudi.tasks.base_file_reader import OpenFile, open_base_file
from pyhudi.tasks.incoming_layout import rows_without_columns


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """How the columns of one partition are found in source files.

    Attributes:
        storage: Of the table, whose options open the source files too.
        keys: How the table names records; decides which columns the partition's path holds.
        constant_columns: Columns that are read from the path even if a file has them.
    """

    storage: StorageSpec
    keys: KeySpec
    partition: str
    constant_columns: Collection[str] = ()


def bootstrap_source_rows(
    storage: Storage, table: StorageSpec, bootstrap_sources: BootstrapSources | None, partition: str, path: str, needed: pa.Schema
) -> Iterator[pa.Table] | None:
    """Yield the rows of a base file whose data columns are stored outside of the table; None for a base file that has
    them itself.
    """
    source = None if bootstrap_sources is None else bootstrap_sources.sources.get(path)
    if bootstrap_sources is None or source is None:
        return None
    return joined_rows(storage, path, source, needed, JoinedColumns(table, bootstrap_sources.keys, partition))


def source_rows(
    source: SourceFile, needed: pa.Schema, columns: JoinedColumns, *, truncate_nanoseconds: bool = True
) -> Iterator[pa.Table]:
    """Yield the rows of a source file in the needed data columns, by its row groups.

    Raises:
        InvalidRequest: A timestamp would lose nanoseconds, and may not.
        HudiError: As `joined_rows`.
    """
    with open_source(columns.storage, source) as opened:
        constants = _constants(columns, needed, frozenset(opened.schema_arrow.names), source)
        try:
            yield from _row_groups(opened, needed, constants, truncate_nanoseconds=truncate_nanoseconds)
        except InvalidRequest as error:
            raise InvalidRequest(f"{source.uri} cannot be bootstrapped: {error}") from error


def joined_rows(
    storage: Storage, path: str, source: SourceFile | None, needed: pa.Schema, columns: JoinedColumns
) -> Iterator[pa.Table]:
    """Yield the rows of a metadata-only base file, in the needed columns, by row groups of the source file.

    Columns that the source file lacks come from the partition's path, and are null if the path lacks them, too.

    Raises:
        CorruptData: The two files have different row counts; and as `open_source`.
        Unsupported: Neither the source file nor the path holds a partition column.
    """
    head = pa.schema([field for field in needed if field.name in META_COLUMNS])
    data = pa.schema([field for field in needed if field.name not in META_COLUMNS])
    with open_base_file(storage, path) as file:
        heads = _row_groups(file, head, {})
        if not data.names:
            yield from heads
            return
        if source is None:
            raise Internal(f"the bootstrap source file was not looked up for {storage.absolute(path)}")
        with open_source(columns.storage, source) as opened:
            if opened.metadata.num_rows != file.metadata.num_rows:
                raise CorruptData(
                    f"the row counts of a base file and its bootstrap source {source.uri} differ",
                    expected=file.metadata.num_rows,
                    found=opened.metadata.num_rows,
                ).with_path(storage.absolute(path))
            rows = _row_groups(opened, data, _constants(columns, data, frozenset(opened.schema_arrow.names), source))
            yield from _joined(heads, rows, needed) if head.names else rows


@contextmanager
def open_source(table: StorageSpec, source: SourceFile) -> Iterator[OpenFile]:
    """Open a source file for reading during a `with` block.  table: storage of the table, whose options open the source
    too.

    Raises as `check_source_unchanged`, before and after: rows of a replaced file would be joined with wrong keys.
    """
    check_source_unchanged(table, source)
    storage = _source_storage(table, source)
    try:
        with open_base_file(storage, file_name(source.uri), is_bootstrapped=True) as file:
            yield file
    except CorruptData:
        # Concurrent changes to the file look like damage.
        check_source_unchanged(table, source)
        raise
    check_source_unchanged(table, source)


def _source_storage(table: StorageSpec, source: SourceFile) -> Storage:
    """The folder of a source file, opened with the options of the table."""
    check_source(source.uri, table, "a bootstrap source")
    return open_storage(StorageSpec(parent_folder(source.uri), table.options))


def check_source_unchanged(table: StorageSpec, source: SourceFile) -> None:
    """Raise TableState when a source file is missing, CorruptData when its size or time differs from that at bootstrap.

    table: as in `open_source`.
    """
    info = _source_storage(table, source).stat(file_name(source.uri))
    if info is None:
        raise TableState(f"{source.uri} is missing: it holds rows of a table that was bootstrapped over it; restore the file")
    if (info.size_bytes, info.modified_ms) != (source.size_bytes, source.modified_ms):
        raise CorruptData(
            "a file that the table was bootstrapped over has changed since",
            expected=f"{source.size_bytes} bytes of {source.modified_ms} ms",
            found=f"{info.size_bytes} bytes of {info.modified_ms} ms",
            path=source.uri,
        )


def _joined(heads: Iterable[pa.Table], rows: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Join each table of `rows` with as many rows of `heads`, in the order of the schema."""
    # Both have columns, and the same total number of rows, which the caller has checked.
    held: list[pa.Table] = []
    count = 0
    coming = iter(heads)
    for table in rows:
        while count < table.num_rows:
            more = next(coming, None)
            if more is None:
                raise Internal("batches of a base file and its bootstrap source are misaligned")
            held.append(more)
            count += more.num_rows
        if not held:
            continue
        head = pa.concat_tables(held)
        beside, held = head.slice(0, table.num_rows), [head.slice(table.num_rows)]
        count -= table.num_rows
        names = set(table.column_names)
        yield pa.table([(table if name in names else beside).column(name) for name in schema.names], schema=schema)


def _row_groups(
    file: OpenFile, needed: pa.Schema, path_values: Mapping[str, pa.Scalar], *, truncate_nanoseconds: bool = True
) -> Iterator[pa.Table]:
    """The needed columns of a file by its row groups.  path_values: columns stored in no file."""
    present = set(file.schema_arrow.names)
    stored = [name for name in needed.names if name in present and name not in path_values]
    for group in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if not needed.names:
            yield rows_without_columns(count)
            continue
        rows = file.read_row_group(group, columns=stored, use_threads=False) if stored else None
        lacking = {
            name: path_values.get(name, pa.scalar(None, needed.field(name).type)) for name in needed.names if name not in stored
        }
        if rows is not None and not truncate_nanoseconds:
            check_no_truncated_nanoseconds(rows)
        columns = {name: rows.column(name) for name in stored} if rows is not None else {}
        for name, value in lacking.items():
            columns[name] = pa.chunked_array([pa.repeat(value, count)])
        yield in_table_columns(pa.table(columns), None, needed)


def _constants(columns: JoinedColumns, needed: pa.Schema, present: Collection[str], source: SourceFile) -> dict[str, pa.Scalar]:
    from_path = {*path_valued_columns(columns.keys), *columns.constant_columns}
    names = [name for name in needed.names if name in from_path and (name in columns.constant_columns or name not in present)]
    lost = [name for name in partition_columns(columns.keys) if name in needed.names and name not in {*from_path, *present}]
    if lost:
        raise Unsupported(
            f"{source.uri} lacks the partition column {lost[0]!r}, and the partition path is built by a timestamp key generator, "
            "from which its values cannot be restored"
        )
    return values_from_path(columns.keys, columns.partition, needed, names)
