"""Conversion and extraction of VARIANT values for callers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import VARIANT_TYPE
from pyhudi.records.schema_cast import conform
from pyhudi.records.type_normalization import fits_record, takes_record
from pyhudi.records.variants import variant_encoding, variant_json, variant_path


def variant_from_json(texts: Any) -> pa.ChunkedArray:
    """Convert JSON to values of type VARIANT, as `parse_json` of Spark does. Runs row by row.

    Whole numbers become the narrowest integer, numbers with a fraction decimals of at most 38 digits, others double. A null
    row stays null; the text `null` becomes the variant null.

    Args:
        texts: Arrow array or list of text.

    Returns:
        struct<metadata: binary, value: binary>, for a column whose field names the type VARIANT.

    Raises:
        InvalidRequest: A text is not JSON, or an object has a name twice; names the row.

    Example:
        >>> values = hp.variant_from_json(['{"a": 1}', None])
    """
    column = _column(texts, pa.string(), "variant_from_json")
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_null(column.type)):
        raise InvalidRequest(f"variant_from_json takes text, not {column.type}: cast it to string")
    chunks = [variant_encoding.variants_from_json(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, VARIANT_TYPE)


def variant_to_json(values: Any) -> pa.ChunkedArray:
    """Convert values of type VARIANT to JSON text. A null row stays null; the variant null becomes the text `null`.

    Args:
        values: A VARIANT column of a scan, also one of another library with the Arrow extension `arrow.parquet.variant`.

    Returns:
        Text without spaces, the fields of objects in the order of their names.

    Raises:
        CorruptData: A value is invalid; names its row.

    Example:
        >>> hp.variant_to_json(table.scan().to_arrow()["event"]).to_pylist()
    """
    chunks = _variants(values, "variant_to_json").chunks
    return pa.chunked_array([variant_json.variants_to_json(chunk) for chunk in chunks], pa.string())


def variant_get(values: Any, path: str, type: str) -> pa.ChunkedArray:
    """Extract a part of values of type VARIANT, as `try_variant_get` of Spark does.

    Args:
        values: A VARIANT column, as for `variant_to_json`.
        path: Such as `$.a.b[0]['other name']`.
        type: boolean, int, bigint, float, double, string, date or timestamp. Objects and arrays become JSON text.

    Returns:
        The parts; null where a value lacks the path, or its part is no value of the type.

    Raises:
        InvalidRequest: The path is invalid.
        Unsupported: Another type.
        CorruptData: A value is invalid; names its row.

    Example:
        >>> hp.variant_get(rows["event"], "$.user.id", "bigint")
    """
    steps, target = variant_path.parse_path(path), variant_path.target_type(type)
    chunks = _variants(values, "variant_get").chunks
    return pa.chunked_array([variant_path.variant_get(chunk, steps, target) for chunk in chunks], target)


def _variants(values: Any, function: str) -> pa.ChunkedArray:
    column = _column(values, VARIANT_TYPE, function)
    storage = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
    if not fits_record(storage, VARIANT_TYPE) or pa.types.is_null(storage):
        raise InvalidRequest(f"{function}: {takes_record('VARIANT', VARIANT_TYPE)}, not {column.type}")
    schema = pa.schema([pa.field("v", VARIANT_TYPE)])
    batches = [pa.RecordBatch.from_arrays([chunk], names=["v"]) for chunk in column.chunks]
    return pa.chunked_array([conform(batch, schema).column(0) for batch in batches], VARIANT_TYPE)


def _column(values: Any, type_: pa.DataType, function: str) -> pa.ChunkedArray:
    if isinstance(values, pa.ChunkedArray):
        return values
    try:
        return pa.chunked_array([values if isinstance(values, pa.Array) else pa.array(values, type_)])
    except (pa.ArrowException, TypeError, AttributeError) as error:
        raise InvalidRequest(f"{function} takes an Arrow column or a list of values of type {type_}: {error}") from error
