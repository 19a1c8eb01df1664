"""JSON records as Arrow batches. Records that cannot be parsed are reported, and the others are read.

Arrow parses blocks of lines. Only if a block fails, it is split in halves until the lines at fault are found.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.json as pj

from pyhudi.features.ingestion.row_checks import unified
from pyhudi.features.ingestion.source_protocol import ReadContext, TextRules

BLOCK_BYTES = 4 << 20
_MAX_BLOCK = 1 << 30

OnBad = Callable[[list[bytes], list[str]], None]


def line_blocks(read: Callable[[int], bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a file that are not empty, some megabytes at a time."""
    rest = b""
    while data := read(BLOCK_BYTES):
        whole, newline, rest_of_data = (rest + data).rpartition(b"\n")
        rest = rest_of_data if newline else rest + data
        if whole:
            yield [line for line in whole.split(b"\n") if line.strip()]
    if rest.strip():
        yield [rest]


def infer_json(blocks: Iterable[list[bytes]], known: pa.Schema | None, rules: TextRules) -> pa.Schema:
    """Return the columns of JSON records: known types, and Arrow's inference for the others; texts stay texts.

    Args:
        blocks: Records, one JSON object in each.
        known: Columns whose types are known. An integer column becomes wider for numbers that it cannot hold.
        rules: Which columns become wider.
    """
    schemas: list[pa.Schema] = []
    misfits: list[bytes] = []
    for block in blocks:
        for table in _parsed(block, _Parser(known, "infer"), lambda lines, _: misfits.extend(lines)):
            schema = pa.schema([_inferred(field, known) for field in table.schema])
            if not any(schema.equals(other) for other in schemas):
                schemas.append(schema)
    if known is not None and misfits:
        known = _widened(known, misfits, rules)
    merged = unified(schemas if known is None else [known, *schemas])
    return pa.schema([field for field in merged if not pa.types.is_null(field.type)])


def read_json(blocks: Iterable[list[bytes]], schema: pa.Schema, on_bad: OnBad) -> Iterator[pa.RecordBatch]:
    """Yield the records as batches of a schema; columns that it lacks are ignored.

    Args:
        blocks: Records, one JSON object in each.
        schema: Columns.
        on_bad: Called with records that are no JSON objects or do not fit the schema, and the reasons.
    """
    names = schema.names
    for block in blocks:
        for table in _parsed(block, _Parser(schema, "ignore"), on_bad):
            # Arrow returns no column for a batch in which none of the records has it.
            columns = [
                table.column(name) if name in table.column_names else pa.nulls(len(table), field.type)
                for name, field in zip(names, schema, strict=True)
            ]
            yield from pa.table(columns, schema=schema).combine_chunks().to_batches()


class _Parser:
    def __init__(self, schema: pa.Schema | None, unexpected: str) -> None:
        # Required parts are checked later, with the row's other values.
        nullable = None if schema is None else pa.schema([field.with_nullable(True) for field in schema])
        self._options = pj.ParseOptions(explicit_schema=nullable, unexpected_field_behavior=unexpected)

    def __call__(self, lines: list[bytes]) -> pa.Table:
        data = b"\n".join(line.replace(b"\n", b" ") for line in lines)
        table: pa.Table = pj.read_json(
            io.BytesIO(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=min(max(len(data), 1), _MAX_BLOCK)),
            parse_options=self._options,
        )
        if table.num_rows != len(lines):
            raise pa.ArrowInvalid("not one JSON object")
        return table


def _parsed(lines: list[bytes], parse: _Parser, on_bad: OnBad) -> Iterator[pa.Table]:
    if not lines:
        return
    try:
        yield parse(lines)
    except pa.ArrowException as error:
        if len(lines) == 1:
            on_bad(lines, [f"not a JSON object of these columns: {str(error).splitlines()[0][:200]}"])
            return
        half = len(lines) // 2
        yield from _parsed(lines[:half], parse, on_bad)
        yield from _parsed(lines[half:], parse, on_bad)


def _widened(known: pa.Schema, misfits: list[bytes], rules: TextRules) -> pa.Schema:
    """Return known columns, with wider types for integer columns that cannot hold numbers of some records."""
    integers = {field.name for field in known if pa.types.is_integer(field.type)} - rules.fixed_columns
    others = pa.schema([field for field in known if field.name not in integers])
    for table in _parsed(misfits, _Parser(others, "infer"), _ignore):
        for field in table.schema:
            is_wider = pa.types.is_integer(field.type) or (rules.widens_fractions and pa.types.is_floating(field.type))
            if field.name in integers and is_wider:
                position = known.get_field_index(field.name)
                both = [pa.schema([known.field(position)]), pa.schema([field])]
                known = known.set(position, pa.unify_schemas(both, promote_options="permissive").field(0))
    return known


def _ignore(_: list[bytes], __: list[str]) -> None:
    """Inference ignores records that cannot be parsed: reading reports them."""


def _inferred(field: pa.Field, known: pa.Schema | None) -> pa.Field:
    """Arrow infers timestamps from texts, depending on the values of a block; a text stays a text."""
    is_known = known is not None and known.get_field_index(field.name) >= 0
    return field if is_known else pa.field(field.name, _without_times(field.type))


def _without_times(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_time(type_):
        return pa.string()
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(child.name, _without_times(child.type)) for child in type_])
    if pa.types.is_list(type_):
        return pa.list_(_without_times(type_.value_type))
    return type_


def json_rows(blocks: Callable[[], Iterable[tuple[str, list[bytes]]]], context: ReadContext) -> pa.RecordBatchReader:
    """Open JSON records as a stream.

    Args:
        blocks: Opens the records, with the file or partition that contains them; called twice unless the schema is complete.
        context: Known columns, and where bad records are reported.
    """
    schema = context.schema
    if schema is None or not context.is_complete:
        schema = infer_json((block for _, block in blocks()), schema, context.texts)

    def rows() -> Iterator[pa.RecordBatch]:
        for origin, block in blocks():
            yield from read_json([block], schema, reporter(context, origin))

    return pa.RecordBatchReader.from_batches(schema, rows())


def reporter(context: ReadContext, origin: str) -> OnBad:
    """Return the function that reports bad records of a file or partition."""

    def report(lines: list[bytes], reasons: list[str]) -> None:
        context.reject([line.decode("utf-8", "backslashreplace") for line in lines], reasons, origin)

    return report
