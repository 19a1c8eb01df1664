"""Functions of BLOB and VARIANT columns that DuckDB lacks, computed in Arrow.

read_blob(b)                                  the bytes of a BLOB
variant_get(v, '$.a[0]', 'int')               a part of a VARIANT; an error if it is no value of the type
try_variant_get(v, '$.a[0]', 'int')           null instead
to_json(v)                                    JSON of a VARIANT; other values as DuckDB writes them
parse_json(text)                              a VARIANT; row by row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa
from sqlglot import exp

from pyhudi import features
from pyhudi.api.duckdb_scan import duckdb_type
from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import BLOB_TYPE, VARIANT_TYPE
from pyhudi.records.schema_cast import conform
from pyhudi.records.variants.variant_encoding import variants_from_json
from pyhudi.records.variants.variant_json import variants_to_json
from pyhudi.records.variants.variant_path import parse_path, target_type, variant_get
from pyhudi.sql_engine.duckdb_engine import PARSE_JSON, TO_JSON_MACRO, VARIANT_JSON, Database, RowFunction

_VARIANT_GETTERS = {"variant_get": True, "try_variant_get": False}


def add_column_functions(
    tree: exp.Expr, database: Database, roots: str | None, storage_options: Mapping[str, str] | None
) -> None:
    """Define the functions that a query calls, and name those that depend on their literals.

    Args:
        tree: The query, which is changed.
        database: The database that executes it.
        roots: Folders whose files `read_blob` may read, separated by commas.
        storage_options: Credentials and settings of their object stores.

    Raises:
        InvalidRequest: A path of `variant_get` is no literal, or invalid.
        Unsupported: `variant_get` to another type.
    """
    for call in list(tree.find_all(exp.Anonymous)):
        name = call.name.lower()
        if name == "read_blob":
            reader = features.load("blob_reader", "read_blob").BlobReader(roots, storage_options)
            database.add_function(name, RowFunction(reader.read), duckdb_type(BLOB_TYPE), "BLOB")
        elif name == PARSE_JSON:
            database.add_function(name, RowFunction(partial(_by_chunk, variants_from_json)), "VARCHAR", duckdb_type(VARIANT_TYPE))
        elif name == "pyhudi_to_json":
            database.add_function(
                VARIANT_JSON, RowFunction(partial(_of_variants, variants_to_json)), duckdb_type(VARIANT_TYPE), "VARCHAR"
            )
            database.add_macro(name, TO_JSON_MACRO)
        elif name in _VARIANT_GETTERS:
            _add_getter(call, database, strict=_VARIANT_GETTERS[name])


def _add_getter(call: exp.Anonymous, database: Database, *, strict: bool) -> None:
    """Define the function of one path and type, and call it."""
    arguments = call.expressions
    if len(arguments) != 3 or not all(isinstance(argument, exp.Literal) and argument.is_string for argument in arguments[1:]):
        raise InvalidRequest(f"{call.name} takes a VARIANT, a path and a type as text, such as variant_get(v, '$.a', 'int')")
    path, type_ = parse_path(arguments[1].name), target_type(arguments[2].name)
    name = f"pyhudi_{call.name.lower()}_{arguments[1].name.encode().hex()}_{type_}".replace("[us, tz=UTC]", "")
    compute = partial(_of_variants, partial(variant_get, path=path, type_=type_, strict=strict))
    database.add_function(name, RowFunction(compute), duckdb_type(VARIANT_TYPE), duckdb_type(type_))
    call.replace(exp.Anonymous(this=name, expressions=arguments[:1]))


def _of_variants(compute: Callable[[pa.Array], pa.Array], values: pa.ChunkedArray) -> pa.ChunkedArray:
    def canonical(chunk: pa.Array) -> pa.Array:
        rows = pa.RecordBatch.from_arrays([chunk], names=["v"])
        return compute(conform(rows, pa.schema([pa.field("v", VARIANT_TYPE)])).column(0))

    return _by_chunk(canonical, values)


def _by_chunk(compute: Callable[[pa.Array], pa.Array], values: pa.ChunkedArray) -> pa.ChunkedArray:
    results = [compute(chunk) for chunk in values.chunks]
    return pa.chunked_array(results) if results else pa.chunked_array([compute(pa.array([], values.type))])
