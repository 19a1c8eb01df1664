"""Convert the input rows to the incoming layout, with native expressions if Spark's casts equal Hudi's, else through Arrow."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyhudi.engines.spark.jobs import REFUSAL
from pyhudi.engines.spark.native_keys import auto_key_column, key_column, path_column, raise_if
from pyhudi.engines.spark.type_conversion import DataFrame, column, quote_spark_name, select_expressions, to_spark_schema
from pyhudi.engines.spark.worker_errors import with_error_fields
from pyhudi.engines.spark.worker_tasks import ORDER, prepared, task_token
from pyhudi.errors import InvalidRequest
from pyhudi.format.avro_to_arrow import column_default
from pyhudi.format.meta_columns import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from pyhudi.records.java_strings import is_string_like
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.keys.partition_paths import PLACEHOLDER_PARTITION
from pyhudi.records.schema_cast import NULL_REMEDY, same_type
from pyhudi.records.schema_evolution import typed_nulls
from pyhudi.records.sql_quoting import quote_name
from pyhudi.records.type_normalization import normalize_types
from pyhudi.tasks.engine_protocol import PrepareRequest
from pyhudi.tasks.incoming_layout import DELETE_COLUMN
from pyhudi.tasks.incoming_rows import MOVED_STORED_ROW, incoming_schema, key_columns


def prepared_rows(frame: DataFrame, input_schema: pa.Schema, request: PrepareRequest) -> DataFrame:
    """The rows of a frame with columns `input_schema`, in the incoming layout; with ORDER if duplicates are combined."""
    rows: DataFrame | None = None
    if request.keys_only:
        rows = _key_rows(frame, input_schema, request)
    elif not request.constraints:
        rows = _native_rows(frame, input_schema, request)
    if rows is None:
        schema = to_spark_schema(incoming_schema(request))
        rows = frame.mapInArrow(_Prepare(request), schema)
    return rows.withColumn(ORDER, F.monotonically_increasing_id()) if request.combine else rows


class _Prepare:
    """Converts rows to the incoming layout, for columns whose cast differs between Spark and Hudi."""

    def __init__(self, request: PrepareRequest) -> None:
        self._request = request

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from prepared(self._request, batches, task_token().partition)


def _native_rows(frame: DataFrame, input_schema: pa.Schema, request: PrepareRequest) -> DataFrame | None:
    """The incoming layout as native expressions; None if a column needs Hudi's cast."""
    data: list[Column | str] = []
    input_columns = request.input_schema
    types = to_spark_schema(input_columns)
    untyped, input_schema = input_schema, typed_nulls(input_schema, input_columns)
    nulls = {field.name for field in untyped if pa.types.is_null(field.type)}
    columns = normalize_types(pa.schema([field for field in input_schema if field.name not in (*META_COLUMNS, DELETE_COLUMN)]))
    present_names = set(columns.names)
    for field, spark in zip(input_columns, types.fields, strict=True):
        if field.name not in present_names:
            if not field.nullable and column_default(field) is not None:
                return None
            if not field.nullable:
                raise InvalidRequest(f"column {field.name!r} is missing and may not be null. {NULL_REMEDY}")
            data.append(_null_column(field, spark.dataType))
            continue
        raw, normal = input_schema.field(field.name), columns.field(field.name)
        why = ""
        if not field.nullable and raw.nullable:
            why = f"column {field.name!r} may not be null, and is in a row. {NULL_REMEDY}"
        elif field.name in request.required_ordering:
            why = f"the ordering field {field.name!r} is null in a row"
        if field.name not in nulls and untyped.field(field.name).type != raw.type:
            # Untyped nulls within the column: Spark's cast does not check nested fields that must not be null.
            return None
        if field.name in nulls and pa.types.is_nested(field.type):
            if why:
                return None
            data.append(column(field.name).cast(spark.dataType).alias(field.name))
            continue
        name = value = quote_spark_name(field.name)
        if field.name in nulls or not same_type(raw.type, field.type):
            normalized = same_type(normal.type, field.type) and _safe_cast(raw.type, normal.type)
            if field.name not in nulls and not normalized and not _safe_cast(raw.type, field.type):
                return None
            value = _cast(name, spark.dataType)
        value = _checked_text(value, name, raw)
        if not why and value == name:
            data.append(name)
            continue
        if why:
            # A delete by key has no ordering value to compare.
            kept = f" AND NOT {quote_spark_name(DELETE_COLUMN)}" if request.marks_deletes and field.nullable else ""
            value = raise_if(value, f"{value} IS NULL{kept}", why)
        data.append(f"{value} AS {quote_name(field.name)}")
    key = (
        auto_key_column(request.instant_time)
        if request.keys.generates_keys
        else key_column(request.keys, _fitting(columns, input_columns))
    )
    path = path_column(request.keys, _fitting(columns, input_columns))
    marked = [quote_spark_name(DELETE_COLUMN)] if request.marks_deletes else []
    if request.stored_keys:
        names = {_STORED_KEY: RECORD_KEY, _STORED_PATH: PARTITION_PATH}
        stored = [f"CAST({name} AS STRING) AS `{alias}`" for alias, name in names.items()]
        cast = select_expressions(frame, [*data, *marked, *stored])
        key, path = _stored(request, key, path)
    else:
        cast = select_expressions(frame, [*data, *marked])
    # Keys are built from the cast values, as in the embedded engine.
    return cast.select(
        key.alias(RECORD_KEY), path.alias(PARTITION_PATH), *map(quote_spark_name, request.data_schema.names), *marked
    )


NOT_UTF8 = "column {!r} has text that is not UTF-8 in a row: decode it with its encoding, or store the bytes in a binary column"


def _checked_text(value: str, name: str, field: pa.Field) -> str:
    """SQL of a value that fails if text in the input column `name` is not UTF-8."""
    is_text = _is_utf8(name, field.type)
    return value if is_text is None else raise_if(value, f"NOT ({is_text})", NOT_UTF8.format(field.name))


def _is_utf8(value: str, type_: pa.DataType, depth: int = 0) -> str | None:
    """SQL that is false if text in a value has other bytes; None if the type has no text."""
    types, item = pa.types, f"item_{depth}"
    if is_string_like(type_):
        return f"is_valid_utf8({value})"
    if types.is_struct(type_):
        parts = [_is_utf8(f"{value}.{quote_name(child.name)}", child.type, depth) for child in type_]
        known = [part for part in parts if part is not None]
        return None if not known else " AND ".join(f"coalesce({part}, true)" for part in known)
    if types.is_list(type_):
        inner = _is_utf8(item, type_.value_type, depth + 1)
        return None if inner is None else f"forall({value}, {item} -> coalesce({inner}, true))"
    if types.is_map(type_):
        keys = _is_utf8(f"map_keys({value})", pa.list_(type_.key_type), depth)
        values = _is_utf8(f"map_values({value})", pa.list_(type_.item_type), depth)
        return " AND ".join(f"coalesce({part}, true)" for part in (keys, values) if part is not None) or None
    return None


def _null_column(field: pa.Field, kind: T.DataType) -> Column | str:
    """A column of nulls; SQL unless its type is nested."""
    if pa.types.is_nested(field.type):
        return F.lit(None).cast(kind).alias(field.name)
    return f"{_cast('NULL', kind)} AS {quote_name(field.name)}"


def _cast(value: str, kind: T.DataType) -> str:
    """SQL that casts a value to a type that is not nested."""
    return f"CAST({value} AS {kind.simpleString()})"


_STORED_KEY, _STORED_PATH = "#stored_key", "#stored_path"


def _stored(request: PrepareRequest, new_key: Column, path: Column) -> tuple[Column, Column]:
    """Keys and paths of rows that carry those of stored records, as `incoming_rows` checks them."""
    stored, stored_path = column(_STORED_KEY), column(_STORED_PATH)
    missing: Column = (
        new_key if request.has_new_rows else F.raise_error(F.lit(f"{REFUSAL}{RECORD_KEY} is null in a row to update"))
    )
    before, between, after = MOVED_STORED_ROW.split("{!r}")
    why = F.concat(F.lit(f"{REFUSAL}{before}"), stored_path, F.lit(between), path, F.lit(after))
    moves = stored.isNotNull() & (stored_path != path)
    return F.coalesce(stored, missing), F.when(moves, F.raise_error(why)).otherwise(path)


def _fitting(columns: pa.Schema, data_schema: pa.Schema) -> pa.Schema:
    """The table's columns, nullable where the input columns are."""
    fields, present_names = [], set(columns.names)
    for field in data_schema:
        nullable = field.nullable if field.name not in present_names else columns.field(field.name).nullable and field.nullable
        fields.append(field.with_nullable(nullable))
    return pa.schema(fields)


def _key_rows(frame: DataFrame, input_schema: pa.Schema, request: PrepareRequest) -> DataFrame:
    if {RECORD_KEY, PARTITION_PATH} <= set(input_schema.names):
        why = F.raise_error(F.lit(f"{REFUSAL}{RECORD_KEY} is null in a row to delete"))
        key = F.when(column(RECORD_KEY).isNull(), why).otherwise(column(RECORD_KEY))
        path = F.coalesce(PARTITION_PATH, F.lit(""))
    else:
        columns = normalize_types(
            key_columns(pa.schema([field for field in input_schema if field.name not in META_COLUMNS]), request)
        )
        types = {field.name: field.dataType for field in to_spark_schema(columns).fields}
        frame = frame.withColumns({f.name: column(f.name).cast(types[f.name]) for f in columns if pa.types.is_decimal(f.type)})
        key = key_column(request.keys, columns)
        why = F.raise_error(F.lit(REFUSAL + NOT_UTF8.format(RECORD_KEY)))
        key = F.when(~F.is_valid_utf8(key.cast("string")), why).otherwise(key)
        named = all(name.split(".")[0] in input_schema.names for name in partition_columns(request.keys))
        path = path_column(request.keys, columns) if named else F.lit(PLACEHOLDER_PARTITION)
    return frame.select(
        key.cast("string").alias(RECORD_KEY), path.cast("string").alias(PARTITION_PATH), F.lit(True).alias(DELETE_COLUMN)
    )


def _safe_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Spark's cast equals that of `records.schema_cast`, for each value and in every session."""
    types = pa.types
    if types.is_integer(source) and types.is_integer(target):
        return bool(source.bit_width <= target.bit_width)
    if types.is_integer(source) and types.is_floating(target):
        # A number that would be rounded must be refused, which Spark's cast does not do.
        return bool(source.bit_width <= 32 and types.is_float64(target))
    if types.is_integer(source) and types.is_string(target):
        return True
    if types.is_decimal(source) and types.is_decimal(target):
        return bool(source.scale <= target.scale and source.precision - source.scale <= target.precision - target.scale)
    return bool(types.is_date32(source) and types.is_string(target))
