"""Files of a source as Arrow batches: Parquet, JSON lines, CSV and Avro.

Each format reads files in blocks, so that memory does not grow with their size; Avro reads one file at a time.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.features.ingestion.json_lines import json_rows, line_blocks
from pyhudi.features.ingestion.row_checks import cast_to_schema, unified
from pyhudi.features.ingestion.source_protocol import ReadContext
from pyhudi.records.type_normalization import normalize_types
from pyhudi.storage.base import Storage

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_BATCH_ROWS = 65_536
_EMPTY_IS_NULL: dict[str, Any] = {"strings_can_be_null": True, "null_values": [""]}

OpenFiles = Callable[[Storage, Sequence[str], ReadContext], pa.RecordBatchReader]


def open_parquet(storage: Storage, paths: Sequence[str], context: ReadContext) -> pa.RecordBatchReader:
    """Open Parquet files. Their columns are those of all files together."""
    schemas = []
    for path in paths:
        with _file_errors(storage, path), storage.open_input(path) as file:
            schemas.append(pq.read_schema(file))
    schema = _chosen(unified(schemas), context)

    def rows() -> Iterator[pa.RecordBatch]:
        for path in paths:
            with storage.open_input(path) as file:
                with _file_errors(storage, path):
                    batches = pq.ParquetFile(file).iter_batches(batch_size=_BATCH_ROWS)
                while (batch := _next(batches, storage, path)) is not None:
                    yield cast_to_schema(batch, schema, context, storage.absolute(path))

    return pa.RecordBatchReader.from_batches(schema, rows())


def open_json(storage: Storage, paths: Sequence[str], context: ReadContext) -> pa.RecordBatchReader:
    """Open files with one JSON object in each line."""

    def blocks() -> Iterator[tuple[str, list[bytes]]]:
        for path in paths:
            with _file_errors(storage, path), storage.open_input(path) as file:
                stream = _decompressed(file, path)
                for block in line_blocks(stream.read):
                    yield storage.absolute(path), block

    return json_rows(blocks, context)


def open_csv(
    storage: Storage, paths: Sequence[str], context: ReadContext, *, delimiter: str = ",", columns: Sequence[str] = ()
) -> pa.RecordBatchReader:
    """Open CSV files. Types that are not known are inferred over all values, as Arrow infers them; an empty value is null.

    Args:
        storage: The folder.
        paths: Files.
        context: Known columns, and where bad records are reported.
        delimiter: One character.
        columns: Names of the columns, for files without a header line.
    """
    headers = [list(columns) or _csv_header(storage, path, delimiter) for path in paths]
    known = context.schema if context.schema is not None else pa.schema([])
    texts = unified([pa.schema([(name, pa.string()) for name in header]) for header in headers])
    unknown = {*texts.names} - {*known.names} - context.texts.text_columns if not context.is_complete else set()

    def batches(path: str, header: list[str], skip: Callable[[Any], str]) -> Iterator[pa.RecordBatch]:
        """The rows of a file as texts."""
        with _file_errors(storage, path), storage.open_input(path) as file:
            yield from pv.open_csv(
                _decompressed(file, path),
                read_options=pv.ReadOptions(column_names=list(columns) or None, use_threads=False),
                parse_options=pv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
                convert_options=pv.ConvertOptions(column_types=dict.fromkeys(header, pa.string()), **_EMPTY_IS_NULL),
            )

    inferred = pa.schema([])
    for path, header in zip(paths, headers, strict=True):
        names = [name for name in header if name in unknown]
        for batch in batches(path, header, lambda _: "skip") if names else ():
            inferred = unify_csv([inferred, _infer_csv(batch.select(names))])
    types = {field.name: field.type for field in [*texts, *_normal(inferred), *known]}
    schema = _chosen(pa.schema([(name, types[name]) for name in texts.names]), context)

    def rows() -> Iterator[pa.RecordBatch]:
        for path, header in zip(paths, headers, strict=True):
            origin = storage.absolute(path)
            bad_rows: list[tuple[str, str]] = []

            def skip(row: Any, bad_rows: list[tuple[str, str]] = bad_rows) -> str:
                bad_rows.append((row.text or "", f"{row.actual_columns} values instead of {row.expected_columns}"))
                return "skip"

            for batch in batches(path, header, skip):
                yield cast_to_schema(batch, schema, context, origin)
            if bad_rows:
                context.reject([text for text, _ in bad_rows], [reason for _, reason in bad_rows], origin)

    return pa.RecordBatchReader.from_batches(schema, rows())


def open_avro(storage: Storage, paths: Sequence[str], context: ReadContext) -> pa.RecordBatchReader:
    """Open Avro container files with Polars."""
    try:
        import polars as pl
    except ImportError as error:
        raise InvalidRequest('Avro files need Polars: pip install "pyhudi[polars]"') from error

    def table(path: str, rows: int | None = None) -> pa.Table:
        with _file_errors(storage, path):
            data = storage.read(path)
            if data is None:
                raise InvalidRequest(f"{storage.absolute(path)} does not exist any more: run the job again")
            try:
                return pl.read_avro(io.BytesIO(data), n_rows=rows).to_arrow()
            except pl.exceptions.PolarsError as error:
                raise CorruptData(f"the Avro file cannot be read: {error}", path=storage.absolute(path)) from error

    schema = _chosen(unified([table(path, 0).schema for path in paths]), context)

    def rows() -> Iterator[pa.RecordBatch]:
        for path in paths:
            for batch in table(path).to_batches(max_chunksize=_BATCH_ROWS):
                yield cast_to_schema(batch, schema, context, storage.absolute(path))

    return pa.RecordBatchReader.from_batches(schema, rows())


def _chosen(file_schema: pa.Schema, context: ReadContext) -> pa.Schema:
    """The schema of the rows: that of the provider if it is complete."""
    if context.is_complete and context.schema is not None:
        return pa.schema([field.with_nullable(True) for field in context.schema])
    return file_schema


def unify_csv(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return one schema for CSV rows of several: values whose types have no common one are texts."""
    return unified(schemas, pa.string())


def _infer_csv(texts: pa.RecordBatch) -> pa.Schema:
    """The types that Arrow infers for the values of a batch; null for a column without values."""
    data = pa.BufferOutputStream()
    pv.write_csv(texts, data)
    table: pa.Table = pv.read_csv(
        pa.BufferReader(data.getvalue()),
        read_options=pv.ReadOptions(use_threads=False),
        parse_options=pv.ParseOptions(newlines_in_values=True),
        convert_options=pv.ConvertOptions(**_EMPTY_IS_NULL),
    )
    schema: pa.Schema = table.schema
    return schema


def _normal(inferred: pa.Schema) -> pa.Schema:
    """Inferred columns that have values, in the types that tables have."""
    return normalize_types(pa.schema([field for field in inferred if not pa.types.is_null(field.type)]))


def _csv_header(storage: Storage, path: str, delimiter: str) -> list[str]:
    with _file_errors(storage, path), storage.open_input(path) as file:
        reader = pv.open_csv(
            _decompressed(file, path),
            read_options=pv.ReadOptions(use_threads=False),
            parse_options=pv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda _: "skip"),
        )
        names: list[str] = reader.schema.names
        return names


def _decompressed(file: pa.NativeFile, path: str) -> pa.NativeFile:
    for suffix, codec in _COMPRESSIONS.items():
        if path.endswith(suffix):
            return pa.CompressedInputStream(file, codec)
    return file


def _next(batches: Iterator[pa.RecordBatch], storage: Storage, path: str) -> pa.RecordBatch | None:
    with _file_errors(storage, path):
        return next(batches, None)


@contextmanager
def _file_errors(storage: Storage, path: str) -> Iterator[None]:
    """Translate Arrow's errors about a file."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise CorruptData(f"a file of the source cannot be read: {error}", path=storage.absolute(path)) from error


FORMATS = ("parquet", "json", "csv", "avro")


def find_format(path: str) -> str | None:
    """Return the format of a file by its ending; None if it is none of them."""
    for suffix in _COMPRESSIONS:
        path = path.removesuffix(suffix)
    endings = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".avro": "avro"}
    return next((name for ending, name in endings.items() if path.endswith(ending)), None)
