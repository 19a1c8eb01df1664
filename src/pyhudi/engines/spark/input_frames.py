"""Columns of the caller's DataFrames in the types that PyHudi's plans use.

CHAR, VARCHAR, collated strings    plain strings, whose comparisons are those of the stored bytes
structs of VARIANT                 Spark's variants, and back
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import types as T

from pyhudi.engines.spark.type_conversion import DataFrame, column, to_arrow_schema, to_spark_schema
from pyhudi.engines.spark.worker_errors import with_error_fields
from pyhudi.format.hudi_types import HUDI_TYPE
from pyhudi.records.schema_cast import conform
from pyhudi.records.type_normalization import normalize_types


def plain_frame(frame: DataFrame) -> DataFrame:
    """Return the caller's rows with plain strings, and with Spark's variants."""
    return with_variants(with_plain_strings(frame))


def with_plain_strings(frame: DataFrame) -> DataFrame:
    """Return a frame whose CHAR, VARCHAR and collated columns, nested ones too, are plain strings.

    Spark refuses to compare keys of two collations, and to collect CHAR and VARCHAR as Arrow.
    """
    casts = {}
    for field in frame.schema.fields:
        plain = _plain(field.dataType)
        if not _same(plain, field.dataType):
            casts[field.name] = column(field.name).cast(plain)
    return frame.withColumns(casts) if casts else frame


def _plain(kind: T.DataType) -> T.DataType:
    if isinstance(kind, (T.StringType, T.CharType, T.VarcharType)):
        return T.StringType()
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_plain(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        return T.MapType(_plain(kind.keyType), _plain(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, _plain(f.dataType), f.nullable, f.metadata) for f in kind.fields])
    return kind


def _same(left: T.DataType, right: T.DataType) -> bool:
    """Whether two types are equal with their collations, which PySpark's comparison of strings may leave out."""
    return left == right and left.simpleString() == right.simpleString()


def with_variants(frame: DataFrame) -> DataFrame:
    """Return a frame whose structs that are named VARIANT, in the metadata of their columns, are Spark's variants."""
    is_variant = {field.name for field in frame.schema.fields if _is_struct_of_variant(field)}
    if not is_variant:
        return frame
    given = to_arrow_schema(frame.schema)
    named = normalize_types(pa.schema([field for field in given if field.name in is_variant]))
    columns = pa.schema([named.field(field.name) if field.name in is_variant else field for field in given])
    return frame.mapInArrow(_Structs(columns), to_spark_schema(columns))


def without_variants(frame: DataFrame) -> DataFrame:
    """Return a frame with its variants as structs of nullable fields: `toArrow` of PySpark refuses null variants."""
    if not any(isinstance(field.dataType, T.VariantType) for field in frame.schema.fields):
        return frame
    fields = [
        T.StructField(field.name, _NULLABLE_PARTS, field.nullable) if isinstance(field.dataType, T.VariantType) else field
        for field in frame.schema.fields
    ]
    return frame.mapInArrow(_Structs(to_arrow_schema(T.StructType(fields))), T.StructType(fields))


_NULLABLE_PARTS = T.StructType([T.StructField("value", T.BinaryType()), T.StructField("metadata", T.BinaryType())])


def _is_struct_of_variant(field: T.StructField) -> bool:
    named = str(field.metadata.get(HUDI_TYPE.decode())).upper() == "VARIANT"
    return named and isinstance(field.dataType, T.StructType)


class _Structs:
    """Job that casts batches to columns."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield conform(batch, self._columns)
