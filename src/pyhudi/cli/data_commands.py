"""Commands for data: create tables, load, count, query, delete and export rows."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet as pq
import typer

from pyhudi.api.table import Table
from pyhudi.api.write_function import write
from pyhudi.cli.arguments import (
    OptionsOption,
    OutputOption,
    StorageOption,
    TableArgument,
    YesOption,
    open_for_call,
    open_table,
    parse_pairs,
    split_names,
    table_name,
)
from pyhudi.cli.inspect_commands import AsOfOption, ColumnsOption, FilterOption
from pyhudi.cli.output import Format, print_rows, print_text, print_value
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.options.write_options import ONCE
from pyhudi.records.python_values import fit_columns
from pyhudi.records.schema_evolution import SchemaMode
from pyhudi.sql_engine import SessionCatalog
from pyhudi.sql_engine import sql as run_sql
from pyhudi.sql_engine.sql_catalog import stored_table

_READ = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".orc": "orc",
}
_WRITTEN = (".parquet", ".csv", ".arrow")
OnceOption = Annotated[
    str | None,
    typer.Option("--once", metavar="APPLICATION:VERSION", help="Write nothing if this or a later version is committed."),
]
CommitMetadataOption = Annotated[
    list[str] | None, typer.Option("--commit-metadata", metavar="KEY=VALUE", help="Stored in the commit; may be repeated.")
]
_LOADS = ("upsert", "append", "overwrite", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (create, load, delete, drop, count, changes, export, sql):
        app.command()(command)


def create(
    table: TableArgument,
    record_key: Annotated[list[str] | None, typer.Option("--record-key", help="A record key field; may be repeated.")] = None,
    partition_by: Annotated[list[str] | None, typer.Option("--partition-by", help="A partition field; may be repeated.")] = None,
    ordering: Annotated[
        list[str] | None, typer.Option("--ordering", help="An ordering field: the record with the larger value wins.")
    ] = None,
    table_type: Annotated[str | None, typer.Option("--table-type", help="cow (default) or mor.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Table name; the name of the folder by default.")] = None,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Create a table; its first write defines the columns."""
    settings: dict[str, Any] = {} if name is None else {"name": name}
    stored = stored_table(table_name(table))
    if stored is not None and storage:
        raise InvalidRequest(
            f"create {table} takes no --storage: name a profile of the configuration for catalog {stored.catalog.name}"
        )
    make = partial(Table.create, table, storage_options=parse_pairs(storage)) if stored is None else stored.create
    created = make(
        record_key=record_key,
        partition_by=partition_by,
        ordering=ordering,
        table_type=table_type,
        options=parse_pairs(options),
        **settings,
    )
    print_text(f"created {created.uri}")


def load(
    table: TableArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Parquet, CSV, JSON lines, Arrow or ORC.", exists=True)],
    mode: Annotated[
        str | None,
        typer.Option("--mode", help=f"As in hp.write: {', '.join(_LOADS)}; by default upsert, or insert without keys."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="With mode overwrite: predicate of the partitions that are replaced.")
    ] = None,
    schema_mode: Annotated[
        SchemaMode | None, typer.Option("--schema-mode", help="Schema evolution that the files may cause; merge by default.")
    ] = None,
    missing_columns: Annotated[
        str | None, typer.Option("--missing-columns", help="Columns that the files lack: error (default), null or keep.")
    ] = None,
    once: OnceOption = None,
    commit_metadata: CommitMetadataOption = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Load files into a table, as one commit."""
    if mode is not None and mode not in _LOADS:
        raise InvalidRequest(f"--mode {mode} is unknown: choose from {', '.join(_LOADS)}")
    formats = {_format_of(path) for path in files}
    if len(formats) > 1:
        raise InvalidRequest(f"the files have several formats ({', '.join(sorted(formats))}): load each format separately")
    opened, _ = open_for_call(table, storage, options)
    format_ = formats.pop()
    rows = _file_rows(files, format_, opened, may_widen=schema_mode is not None)
    result = write(
        table,
        rows,
        mode,
        where=where,
        schema_mode=None if schema_mode is None else str(schema_mode),
        missing_columns=missing_columns,
        commit_metadata=parse_pairs(commit_metadata),
        options=_with_once(parse_pairs(options), once),
        storage_options=parse_pairs(storage),
    )
    print_value(result, output)


def _file_rows(files: list[Path], format_: str, table: Table, *, may_widen: bool) -> Any:
    """The rows of files; those of CSV and JSON, which declare no types, in the types of the table's columns."""
    paths = [str(path) for path in files]
    if format_ not in ("csv", "json"):
        return pyarrow.dataset.dataset(paths, format=format_)
    try:
        columns = table.schema()
    except TableState:
        columns = pa.schema([])
    known = {field.name: field.type for field in columns}
    format_options: Any = format_
    if format_ == "csv":
        # The text of a number in a text column keeps its zeros.
        types = {name: type_ for name, type_ in known.items() if not (pa.types.is_integer(type_) or pa.types.is_nested(type_))}
        format_options = pyarrow.dataset.CsvFileFormat(convert_options=pyarrow.csv.ConvertOptions(column_types=types))
    rows = pyarrow.dataset.dataset(paths, format=format_options)
    if format_ == "json":
        # Arrow infers timestamps from texts.
        is_text = {name: pa.types.is_string(type_) or pa.types.is_date(type_) for name, type_ in known.items()}
        fields = [
            field.with_type(pa.string()) if is_text.get(field.name) and pa.types.is_timestamp(field.type) else field
            for field in rows.schema
        ]
        rows = pyarrow.dataset.dataset(paths, format=format_, schema=pa.schema(fields))
    if all(known.get(field.name, field.type) == field.type for field in rows.schema):
        return rows
    return fit_columns(rows.to_table(), columns, rows.schema.names, may_widen=may_widen)


def delete(
    table: TableArgument,
    where: Annotated[str | None, typer.Option("--where", help="Predicate, such as \"fare > 10 and city = 'sf'\".")] = None,
    keys: Annotated[
        list[str] | None, typer.Option("--keys", metavar="KEY,...", help="Values of the record key field; may be repeated.")
    ] = None,
    yes: YesOption = False,
    once: OnceOption = None,
    commit_metadata: CommitMetadataOption = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Delete rows by record key, or those that match a predicate."""
    opened, given = open_for_call(table, storage, options)
    if (where is None) == (keys is None):
        raise InvalidRequest("delete takes either --where or --keys: pass exactly one of them")
    rows = None if keys is None else _key_rows(opened, [key for part in keys for key in part.split(",")])
    if not yes:
        matches = opened.scan(filter=where) if rows is None else opened.lookup(rows)
        print_text(f"would delete {matches.count():,} rows of {opened.uri}; pass --yes to delete them")
        return
    entries = parse_pairs(commit_metadata)
    print_value(opened.delete(rows, where=where, commit_metadata=entries, options=_with_once(given, once)), output)


def _key_rows(table: Table, keys: list[str]) -> pa.Table:
    """Rows to delete by key. Raises InvalidRequest if the record key has several fields, or cannot have a value."""
    fields = table.config.keys.record_fields
    if len(fields) != 1 or "." in fields[0]:
        raise InvalidRequest(f"--keys takes values of one record key field, and {table.uri} has {len(fields)}: use --where")
    key_type = table.schema().field(fields[0]).type
    try:
        return pa.table({fields[0]: pa.array(keys, pa.string()).cast(key_type)})
    except pa.ArrowException as error:
        raise InvalidRequest(f"--keys: record key field {fields[0]} is {key_type}: {error}") from error


def drop(table: TableArgument, yes: YesOption = False, storage: StorageOption = None) -> None:
    """Delete a table with all of its files."""
    opened = open_table(table, storage)
    if not yes:
        print_text(f"would delete {opened.uri} with its {opened.count():,} rows and all files; pass --yes to do it")
        return
    opened.drop()
    stored = stored_table(table_name(table))
    if stored is not None:
        stored.forget()
    print_text(f"{opened.uri} deleted")


def _with_once(options: dict[str, str], once: str | None) -> dict[str, str]:
    return options if once is None else {**options, ONCE.key: once}


def count(
    table: TableArgument,
    filter: FilterOption = None,
    as_of: AsOfOption = None,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Count rows."""
    opened, given = open_for_call(table, storage, options)
    print_text(opened.scan(filter=filter, as_of=as_of, options=given).count())


def sql(
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="One statement, over hudi.`/path` or names.")],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="NAME=PATH", help="Register a table under a name; may be repeated."),
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="Text for the parameter :NAME; may be repeated."),
    ] = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Execute a SQL statement."""
    catalog = SessionCatalog()
    for name, path in parse_pairs(tables).items():
        catalog.register(name, path)
    values = parse_pairs(params) if params else None
    rows = run_sql(statement, values, catalog=catalog, storage_options=parse_pairs(storage), options=parse_pairs(options))
    if rows.num_columns:
        print_rows(rows, output)


def changes(
    table: TableArgument,
    after: Annotated[
        str | None, typer.Option("--after", help="Exclusive start: a completion time or a time; all changes by default.")
    ] = None,
    end: Annotated[str | None, typer.Option("--end", help="Inclusive end: a completion time or a time; now by default.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of rows.")] = 50,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Show every change, with the row before and after, of a table with change data capture (CDC)."""
    opened, given = open_for_call(table, storage, options)
    print_rows(opened.changes(after=after, end=end, options=given).head(limit), output)


def export(
    table: TableArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file: .parquet, .csv or .arrow.")],
    columns: ColumnsOption = None,
    filter: FilterOption = None,
    as_of: AsOfOption = None,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Export rows to a file, in batches."""
    if file.suffix not in _WRITTEN:
        raise InvalidRequest(f"{file} has an unknown format: use one of the endings {', '.join(_WRITTEN)}")
    names = split_names(columns)
    opened, given = open_for_call(table, storage, options)
    scan = opened.scan(names, filter, as_of, options=given)
    # No other process can have created a file or link under a random name, not even in a shared folder.
    unfinished = file.with_name(f"{file.name}.{uuid.uuid4().hex}.unfinished")
    rows = 0
    try:
        # Exclusive creation: an existing file, also of a concurrent export, is not overwritten.
        with file.open("xb"), unfinished.open("xb") as sink, _writer(file.suffix, sink, scan.schema) as writer:
            for batch in scan.to_batches():
                writer.write_batch(batch)
                rows += batch.num_rows
        unfinished.replace(file)
    except FileExistsError as error:
        raise InvalidRequest(f"{file} exists already: choose another file, or remove it") from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        raise
    print_text(f"{rows:,} rows of {opened.uri} exported to {file}")


def _format_of(path: Path) -> str:
    format_ = _READ.get(path.suffix)
    if format_ is None:
        raise InvalidRequest(f"{path} has an unknown format: use one of the endings {', '.join(_READ)}")
    return format_


class _ParquetWriter(pq.ParquetWriter):
    """Does not close a second time after a failed close, which would print a traceback on garbage collection."""

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.is_open = False


def _writer(suffix: str, sink: BinaryIO, schema: pa.Schema) -> Any:
    if suffix == ".parquet":
        return _ParquetWriter(sink, schema)
    if suffix == ".arrow":
        return pyarrow.ipc.new_file(sink, schema)
    nested = [field.name for field in schema if pa.types.is_nested(field.type) or pa.types.is_binary(field.type)]
    if nested:
        raise InvalidRequest(
            f"CSV cannot represent the nested columns {', '.join(nested)}: leave them out with --columns, or write .parquet"
        )
    return pyarrow.csv.CSVWriter(sink, schema)
