"""Column types: from Spark SQL names to Arrow types and back."""

from __future__ import annotations

import pyarrow as pa

from pyhudi.errors import Unsupported
from pyhudi.format.hudi_types import (
    HUDI_TYPE,
    RECORD_NAMES,
    hudi_type_name,
    is_vector,
    parse_hudi_type,
    stated_hudi_type,
    vector_type,
)
from pyhudi.records.sql_quoting import quote_name, quote_text
from pyhudi.sql_engine.literals import describe_position
from pyhudi.sql_engine.tokens import TokenCursor

_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")
_TEXT = ("CHAR", "CHARACTER", "VARCHAR")
_UNSUPPORTED_TYPES = ("INTERVAL", "VOID", "GEOMETRY", "GEOGRAPHY", "TIME", "OBJECT")

_NAMES: tuple[tuple[pa.DataType, str], ...] = (
    (pa.bool_(), "boolean"),
    (pa.int8(), "tinyint"),
    (pa.int16(), "smallint"),
    (pa.int32(), "int"),
    (pa.int64(), "bigint"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.string(), "string"),
    (pa.binary(), "binary"),
    (pa.date32(), "date"),
)

COMMENT = b"comment"
"""Metadata key of a field's comment."""


def column_type(cursor: TokenCursor) -> tuple[pa.DataType, str | None]:
    """Parse the type of a column or of a struct's field that comes next, and the name of a record of Hudi 1.2 if it is one.

    Errors as in `data_type`.
    """
    word = cursor.peek.keyword if cursor.peek is not None else ""
    if word in RECORD_NAMES and cursor.accept_keywords(word):
        return parse_hudi_type(word), word
    return data_type(cursor), None


def data_type(cursor: TokenCursor) -> pa.DataType:
    """Parse the type that comes next.

    Raises:
        InvalidRequest: No type comes next.
        Unsupported: A Hudi table cannot store the type.
    """
    start = cursor.offset
    word = cursor.name("a type").upper()
    if word in _PLAIN:
        return _PLAIN[word]
    if word in _DECIMAL:
        return _decimal(cursor)
    if word == "ARRAY":
        cursor.expect("<")
        inner = data_type(cursor)
        cursor.expect(">")
        return pa.list_(pa.field("element", inner))
    if word == "MAP":
        cursor.expect("<")
        key = data_type(cursor)
        cursor.expect(",")
        value = data_type(cursor)
        cursor.expect(">")
        return pa.map_(pa.field("key", key, False), pa.field("value", value))
    if word == "STRUCT":
        return _struct(cursor)
    if word == "VECTOR":
        return _vector(cursor)
    if word in RECORD_NAMES:
        raise Unsupported(f"{describe_position(cursor.statement, start)}: a type {word} that is not a column of a new table")
    if word in _TEXT:
        # As in Hudi, the length is not stored.
        cursor.expect("(")
        _whole(cursor)
        cursor.expect(")")
        return pa.string()
    if word in _UNSUPPORTED_TYPES:
        raise Unsupported(
            f"{describe_position(cursor.statement, start)}: a column of type {word}, which a Hudi table cannot hold"
        )
    cursor.back_to(cursor.mark() - 1)
    cursor.fail("a type")


def parse_type(text: str) -> pa.DataType:
    """Parse text that is one type, such as `bigint`. Errors as in `data_type`."""
    cursor = TokenCursor(text)
    type_ = data_type(cursor)
    if cursor.peek is not None:
        cursor.fail("the end of the type")
    return type_


def field(
    name: str, type_: pa.DataType, *, nullable: bool = True, comment: str | None = None, hudi_type: str | None = None
) -> pa.Field:
    """A field with its comment and the name of its type of Hudi 1.2."""
    metadata = {COMMENT: comment, HUDI_TYPE: hudi_type}
    return pa.field(name, type_, nullable, {key: text.encode() for key, text in metadata.items() if text is not None} or None)


def column_type_name(column: pa.Field) -> str:
    """Name of a column's type in Spark SQL, or the name that Hudi 1.2 gives it."""
    stated = stated_hudi_type(column)
    return type_name(column.type) if stated is None else stated.lower()


def column_type_text(column: pa.Field) -> str:
    """Type of a column in CREATE TABLE, with the nullability and the comments of fields of structs."""
    type_ = column.type
    if stated_hudi_type(column) is None:
        if pa.types.is_struct(type_):
            return f"STRUCT<{', '.join(map(_field_text, type_))}>"
        if pa.types.is_map(type_):
            return f"MAP<{column_type_text(type_.key_field)}, {column_type_text(type_.item_field)}>"
        if pa.types.is_list(type_):
            return f"ARRAY<{column_type_text(type_.value_field)}>"
    return column_type_name(column).upper()


def _field_text(column: pa.Field) -> str:
    comment = (column.metadata or {}).get(COMMENT)
    parts = [f"{backquoted(column.name)}: {column_type_text(column)}", "" if column.nullable else "NOT NULL"]
    return " ".join(filter(None, (*parts, "" if comment is None else f"COMMENT {quote_text(comment.decode())}")))


def backquoted(name: str) -> str:
    """A name in a statement, in backquotes unless it is an identifier."""
    return name if name.isidentifier() else quote_name(name)


def type_name(type_: pa.DataType) -> str:
    """Name of a type in Spark SQL."""
    for arrow, name in _NAMES:
        if type_ == arrow:
            return name
    if pa.types.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if is_vector(type_):
        return hudi_type_name(type_).lower()
    if pa.types.is_list(type_):
        return f"array<{type_name(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{type_name(type_.key_type)},{type_name(type_.item_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{field.name}:{column_type_name(field)}' for field in type_)}>"
    return "binary" if pa.types.is_fixed_size_binary(type_) else str(type_)


def _decimal(cursor: TokenCursor) -> pa.DataType:
    precision, scale = 10, 0
    if cursor.accept_keywords("("):
        precision = _whole(cursor)
        scale = _whole(cursor) if cursor.accept_keywords(",") else 0
        cursor.expect(")")
    if not 0 < precision <= 38 or scale > precision:
        cursor.fail("a precision of 1 to 38 digits, and a scale of at most the precision")
    return pa.decimal128(precision, scale)


def _vector(cursor: TokenCursor) -> pa.DataType:
    cursor.expect("(")
    dimension = _whole(cursor)
    element = cursor.name("an element type") if cursor.accept_keywords(",") else "FLOAT"
    cursor.expect(")")
    return vector_type(dimension, element)


def _whole(cursor: TokenCursor) -> int:
    number = cursor.value("an integer")
    if not isinstance(number, int):
        cursor.fail("an integer")
    return number


def _struct(cursor: TokenCursor) -> pa.DataType:
    def parse_field() -> pa.Field:
        name = cursor.name("the name of a field")
        cursor.accept_keywords(":")
        type_, hudi_type = column_type(cursor)
        nullable = not cursor.accept_keywords("NOT", "NULL")
        comment = cursor.text("a comment in quotes") if cursor.accept_keywords("COMMENT") else None
        return field(name, type_, nullable=nullable, comment=comment, hudi_type=hudi_type)

    cursor.expect("<")
    fields = cursor.separated(parse_field)
    cursor.expect(">")
    return pa.struct(fields)
