"""Convert Spark types to Arrow types and back, quote names for expressions, and create small DataFrames.

    boolean int long float double string binary date decimal array struct    the corresponding type
    byte, short                                                              int8, int16
    timestamp                                                                timestamp[us, UTC]
    timestamp_ntz                                                            timestamp[us]
    char(n), varchar(n)                                                      string
    variant                                                                  the struct of a VARIANT; only columns
    map                                                                      entries named key and value, as in Hudi's
    files

Other Spark types (intervals, user-defined types) are not supported in a Hudi table, and refused by column name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.hudi_types import HUDI_TYPE, VARIANT_TYPE, is_vector, stated_hudi_type
from pyhudi.records.sql_quoting import quote_name
from pyhudi.records.store_assignment import struct_positions
from pyhudi.records.vectors import in_spark_layout, spark_layout

__all__ = [
    "CATALOG_OPTIONS",
    "Column",
    "DataFrame",
    "SparkSession",
    "StreamingQuery",
    "catalogued_path",
    "column",
    "ddl",
    "literal",
    "located",
    "catalog_options",
    "quote_spark_name",
    "small_frame",
    "sql_refused",
    "to_arrow_schema",
    "to_spark_schema",
    "without_rows",
]

_PLAIN_TEXT = re.compile(r"[A-Za-z0-9 _:.,;=/()<>-]*")
"""Text whose SQL literal has the same meaning in every session."""

CATALOG_OPTIONS = "pyhudi.options.supported"
"""Key in the metadata of the first column of a catalog table: its path and its options, as JSON."""

_TO_ARROW: dict[type[T.DataType], pa.DataType] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.CharType: pa.string(),
    T.VarcharType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
    T.NullType: pa.null(),
}


def to_arrow_schema(schema: T.StructType) -> pa.Schema:
    """The Arrow schema of a DataFrame's columns.  Raises InvalidRequest with the first column that has no Arrow type."""
    return pa.schema([_arrow_field(field, field.name) for field in schema.fields])


def to_spark_schema(schema: pa.Schema) -> T.StructType:
    """The Spark schema of a table's columns.  Raises Unsupported with the first column that has no Spark type."""
    return T.StructType([_spark_field(field, field.name) for field in schema])


def column(name: str) -> Column:
    """A column by its dotted name, with any characters in its parts."""
    return F.col(quote_spark_name(name))


def quote_spark_name(name: str) -> str:
    """The quoted dotted name of a column for `select`, with any characters in its parts.

    A list of many columns is sent to the JVM several times faster as names than as Column objects.
    """
    return ".".join(map(quote_name, name.split(".")))


def select_expressions(frame: DataFrame, expressions: Sequence[Column | str]) -> DataFrame:
    """Select SQL expressions and columns.

    Text takes one call of the JVM per expression, a `Column` up to ten. If one of them is a `Column`, all become columns.
    """
    texts = [expression for expression in expressions if isinstance(expression, str)]
    if len(texts) == len(expressions):
        return frame.selectExpr(*texts)
    return frame.select(*[F.expr(item) if isinstance(item, str) else item for item in expressions])


def literal(text: str) -> str:
    """A SQL string literal for any text, independent of the session's settings for backslashes and quotes."""
    return f"'{text}'" if _PLAIN_TEXT.fullmatch(text) else f"CAST(X'{text.encode().hex()}' AS STRING)"


def ddl(*columns: tuple[str, str]) -> str:
    """A DDL schema from (name, type) pairs."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns)


def small_frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    """An Arrow table of the driver as a DataFrame."""
    return session.createDataFrame(pa.Table.from_batches(map(in_spark_layout, rows.to_batches()), spark_layout(rows.schema)))


def table_location(session: SparkSession, name: str) -> str:
    """Location of a table of the session's catalog. Raises InvalidRequest if the table does not exist or has no location."""
    if not session.catalog.tableExists(name):
        raise InvalidRequest(f"the session's catalog has no table {name!r}")
    unquoted = ".".join(part.strip("`") for part in name.split("."))
    catalogued = catalogued_path(session, unquoted)
    if catalogued is not None:
        return catalogued
    for row in session.sql(f"DESCRIBE TABLE EXTENDED {quote_spark_name(unquoted)}").collect():
        if row["col_name"] == "Location":
            return str(row["data_type"])
    raise InvalidRequest(f"table {name!r} of the session's catalog has no location; pass its path instead")


def catalog_options(columns: T.StructType) -> dict[str, str]:
    """The path and options that a PyHudi table of the session's catalog has in its columns; empty for other columns."""
    text = columns.fields[0].metadata.get(CATALOG_OPTIONS) if columns.fields else None
    return {} if text is None else dict(json.loads(text))


def catalogued_path(session: SparkSession, name: str) -> str | None:
    """Location of a catalog table created with `CREATE TABLE ... USING pyhudi`; None for other tables and for views."""
    known = session.catalog.getTable(quote_spark_name(name))
    if known.isTemporary or "VIEW" in known.tableType:
        # The columns of a view may be those of such a table.
        return None
    return catalog_options(session.table(quote_spark_name(name)).schema).get("path")


def located(session: SparkSession, name: str) -> str | None:
    """Location of a table of the session's catalog; None if it does not exist or has no location, such as a view."""
    try:
        return table_location(session, quote_spark_name(name))
    except InvalidRequest:
        return None


def with_names_of(kind: T.DataType, target: T.DataType, path: str, *, by_name: bool) -> T.DataType:
    """A type with the field names of a target type at any depth; its fields keep their order.

    Args:
        kind: The type to rename.
        target: Type of the column.
        path: Name of the column, for errors.
        by_name: Match fields by name, not by position.

    Raises:
        InvalidRequest: A struct has other fields than the target.
    """
    if isinstance(kind, T.ArrayType) and isinstance(target, T.ArrayType):
        element = with_names_of(kind.elementType, target.elementType, path + "[]", by_name=by_name)
        return T.ArrayType(element, kind.containsNull)
    if isinstance(kind, T.MapType) and isinstance(target, T.MapType):
        key = with_names_of(kind.keyType, target.keyType, path + "{key}", by_name=by_name)
        value = with_names_of(kind.valueType, target.valueType, path + "{}", by_name=by_name)
        return T.MapType(key, value, kind.valueContainsNull)
    if not (isinstance(kind, T.StructType) and isinstance(target, T.StructType)):
        return kind
    positions = struct_positions(kind.names, target.names, by_name=by_name)
    if positions is None:
        raise InvalidRequest(
            f"column {path!r} is {target.simpleString()} and does not accept a value of type {kind.simpleString()}, which has "
            "other fields: select its fields in the statement"
        )
    fields = list(kind.fields)
    for position, child in zip(positions, target.fields, strict=True):
        field = kind.fields[position]
        type_ = with_names_of(field.dataType, child.dataType, f"{path}.{child.name}", by_name=by_name)
        fields[position] = T.StructField(child.name, type_, field.nullable, field.metadata)
    return T.StructType(fields)


def typed_literal(value: pa.Scalar) -> Column:
    """A value of a table column as a literal of its type; a null has none."""
    python_value = value.as_py()
    if python_value is None:
        return F.lit(None)
    if pa.types.is_timestamp(value.type) and value.type.tz is None:
        # PySpark converts a time without a zone by the zone of this process.
        python_value = python_value.isoformat(sep=" ")
    return F.lit(python_value).cast(to_spark_schema(pa.schema([pa.field("value", value.type)])).fields[0].dataType)


@contextmanager
def sql_refused() -> Iterator[None]:
    """Translate errors that Spark detects in SQL or types before execution into InvalidRequest, with Spark's message."""
    try:
        yield
    except AnalysisException as error:
        raise InvalidRequest(f"Spark refuses the statement: {str(error).partition(';')[0].strip()}") from error


def without_rows(session: SparkSession) -> DataFrame:
    """A frame without columns and rows."""
    return session.createDataFrame([], T.StructType([]))


def _arrow_field(field: T.StructField, path: str) -> pa.Field:
    if isinstance(field.dataType, T.VariantType) and path == field.name:
        return pa.field(field.name, VARIANT_TYPE, field.nullable, {HUDI_TYPE: "VARIANT"})
    arrow = _named_field(field.name, field.dataType, path, nullable=field.nullable)
    hudi_type = field.metadata.get(HUDI_TYPE.decode())
    return arrow if hudi_type is None else arrow.with_metadata({HUDI_TYPE: str(hudi_type)})


def _named_field(name: str, kind: T.DataType, path: str, *, nullable: bool) -> pa.Field:
    """Arrow has no void field without nulls, which Spark gives `array()` as element."""
    return pa.field(name, _arrow_type(kind, path), nullable or isinstance(kind, T.NullType))


def _arrow_type(kind: T.DataType, path: str) -> pa.DataType:
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.ArrayType):
        return pa.list_(_named_field("element", kind.elementType, path + "[]", nullable=kind.containsNull))
    if isinstance(kind, T.MapType) and not isinstance(kind.keyType, T.NullType):
        value = _named_field("value", kind.valueType, path + "{}", nullable=kind.valueContainsNull)
        return pa.map_(pa.field("key", _arrow_type(kind.keyType, path + "{key}"), False), value)
    if isinstance(kind, T.StructType):
        return pa.struct([_arrow_field(child, f"{path}.{child.name}") for child in kind.fields])
    for spark, arrow in _TO_ARROW.items():
        if type(kind) is spark:
            return arrow
    raise InvalidRequest(
        f"column {path!r} has the Spark type {kind.simpleString()}, which a Hudi table cannot hold: cast it first"
    )


def _spark_field(field: pa.Field, path: str) -> T.StructField:
    comment = (field.metadata or {}).get(b"comment")
    metadata = {"comment": comment.decode()} if comment else {}
    hudi_type = stated_hudi_type(field)
    if hudi_type is not None:
        metadata[HUDI_TYPE.decode()] = hudi_type
    # Workers exchange only whole columns in Spark's layout of variants; within other columns they are structs.
    is_variant = field.type == VARIANT_TYPE and path == field.name
    kind = T.VariantType() if is_variant else _spark_type(field.type, path)
    return T.StructField(field.name, kind, field.nullable, metadata or None)


def _spark_type(kind: pa.DataType, path: str) -> T.DataType:
    types = pa.types
    if types.is_decimal128(kind):
        return T.DecimalType(kind.precision, kind.scale)
    if types.is_list(kind) or is_vector(kind):
        return T.ArrayType(_spark_type(kind.value_type, path + "[]"), kind.value_field.nullable)
    if types.is_map(kind):
        value = _spark_type(kind.item_type, path + "{}")
        return T.MapType(_spark_type(kind.key_type, path + "{key}"), value, kind.item_field.nullable)
    if types.is_struct(kind):
        return T.StructType([_spark_field(child, f"{path}.{child.name}") for child in kind.fields])
    if types.is_timestamp(kind) and kind.unit == "us":
        return T.TimestampNTZType() if kind.tz is None else T.TimestampType()
    if types.is_fixed_size_binary(kind):
        return T.BinaryType()
    for spark, arrow in _TO_ARROW.items():
        if kind == arrow and spark not in (T.CharType, T.VarcharType, T.NullType):
            return spark()
    raise Unsupported(f"column {path!r} of type {kind} has no Spark type: leave it out with columns=")
