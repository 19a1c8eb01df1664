"""Commands for rows: a table is created, filled from files, counted, and its rows are deleted and written to files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet as pq
import typer

from pyhudi.api.table import Table
from pyhudi.cli.arguments import (
    DryRunOption,
    OptionsOption,
    OutputOption,
    StorageOption,
    TableArgument,
    open_for_call,
    parse_pairs,
)
from pyhudi.cli.inspect_commands import AsOfOption, ColumnsOption, FilterOption
from pyhudi.cli.output import Format, print_rows, print_text, print_value
from pyhudi.errors import InvalidRequest
from pyhudi.records.schema_evolution import SchemaMode
from pyhudi.sql_engine import Catalog
from pyhudi.sql_engine import sql as run_sql

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
_LOADS = ("upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (create, load, delete, count, changes, export, sql):
        app.command()(command)


def create(
    table: TableArgument,
    record_key: Annotated[list[str] | None, typer.Option("--record-key", help="A column of the key; may be repeated.")] = None,
    partition_by: Annotated[list[str] | None, typer.Option("--partition-by", help="A column; may be repeated.")] = None,
    ordering: Annotated[list[str] | None, typer.Option("--ordering", help="The column whose larger value is the newer.")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="cow (the default) or mor.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Its name; the folder's name when left out.")] = None,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Make a table; it gets the columns of its first write."""
    made = Table.create(
        table,
        name=name,
        record_key=record_key,
        partition_by=partition_by,
        ordering=ordering,
        table_type=kind,
        storage_options=parse_pairs(storage),
        options=parse_pairs(options),
    )
    print_text(f"created {made.uri}")


def load(
    table: TableArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Parquet, CSV, JSON lines, Arrow or ORC.", exists=True)],
    operation: Annotated[str, typer.Option("--operation", help=f"How they are written: {', '.join(_LOADS)}.")] = "upsert",
    schema_mode: Annotated[
        SchemaMode | None, typer.Option("--schema-mode", help="What the files may change of the columns; widen by default.")
    ] = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Write the rows of files to a table, in one commit."""
    if operation not in _LOADS:
        raise InvalidRequest(f"--operation {operation} is none of {', '.join(_LOADS)}")
    formats = {_format_of(path) for path in files}
    if len(formats) > 1:
        raise InvalidRequest(f"the files are of several formats ({', '.join(sorted(formats))}): load those of each by themselves")
    opened, given = open_for_call(table, storage, options)
    rows = pyarrow.dataset.dataset([str(path) for path in files], format=formats.pop())
    mode = None if schema_mode is None else str(schema_mode)
    print_value(getattr(opened, operation)(rows, schema_mode=mode, options=given), output)


def delete(
    table: TableArgument,
    where: Annotated[str, typer.Option("--where", help="Which rows, such as \"fare > 10 and city = 'sf'\".")],
    dry_run: DryRunOption = True,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Delete the rows for which a condition is true."""
    opened, given = open_for_call(table, storage, options)
    if dry_run:
        print_text(f"would delete {opened.scan(filter=where).count():,} rows of {opened.uri}; give --no-dry-run to do it")
        return
    print_value(opened.delete(where=where, options=given), output)


def count(
    table: TableArgument,
    filter: FilterOption = None,
    as_of: AsOfOption = None,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """How many rows there are."""
    opened, given = open_for_call(table, storage, options)
    print_text(opened.scan(filter=filter, as_of=as_of, options=given).count())


def sql(
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="One statement, over hudi.`/path` or names.")],
    tables: Annotated[
        list[str] | None, typer.Option("--table", "-t", metavar="NAME=PATH", help="What a name stands for; may be repeated.")
    ] = None,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Carry a SQL statement out."""
    catalog = Catalog()
    for name, path in parse_pairs(tables).items():
        catalog.register(name, path)
    found = run_sql(statement, catalog=catalog, storage_options=parse_pairs(storage), options=parse_pairs(options))
    if found.num_columns:
        print_rows(found, output)


def changes(
    table: TableArgument,
    after: Annotated[
        str | None, typer.Option("--after", help="A completion time or a time that was read up to; all by default.")
    ] = None,
    end: Annotated[str | None, typer.Option("--end", help="A completion time or a time; now by default.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many at most.")] = 50,
    output: OutputOption = Format.TABLE,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Every change with the row before and after, of a table with change data capture."""
    opened, given = open_for_call(table, storage, options)
    print_rows(opened.changes(after=after, end=end, options=given).head(limit), output)


def export(
    table: TableArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that is not there yet: .parquet, .csv or .arrow.")],
    columns: ColumnsOption = None,
    filter: FilterOption = None,
    as_of: AsOfOption = None,
    storage: StorageOption = None,
    options: OptionsOption = None,
) -> None:
    """Write the rows to a file, one batch after the other."""
    if file.suffix not in _WRITTEN:
        raise InvalidRequest(f"{file} does not end with one of {', '.join(_WRITTEN)}, which say what is written")
    names = [name.strip() for name in columns.split(",")] if columns else None
    opened, given = open_for_call(table, storage, options)
    scan = opened.scan(names, filter, as_of, options=given)
    unfinished = file.with_name(f"{file.name}.unfinished")
    rows = 0
    try:
        # Made here alone: a file that is there, also of another export, is not written over.
        with file.open("xb"), unfinished.open("wb") as sink, _writer(file.suffix, sink, scan.schema) as writer:
            for batch in scan.to_batches():
                writer.write_batch(batch)
                rows += batch.num_rows
        unfinished.replace(file)
    except FileExistsError as error:
        raise InvalidRequest(f"{file} is there already: name another file, or remove it") from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        raise
    print_text(f"{rows:,} rows of {opened.uri} are in {file}")


def _format_of(path: Path) -> str:
    found = _READ.get(path.suffix)
    if found is None:
        raise InvalidRequest(f"{path} does not end with one of {', '.join(_READ)}, which say what a file holds")
    return found


class _ParquetWriter(pq.ParquetWriter):
    """Does not try to close again what failed to close, which would print a traceback when it is collected."""

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
            f"CSV has no form for the columns {', '.join(nested)}: leave them out with --columns, or write .parquet"
        )
    return pyarrow.csv.CSVWriter(sink, schema)
