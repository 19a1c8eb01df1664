"""Column types of Hudi 1.2 that have a logical type of their own.

    VECTOR(4)            FLOAT elements; DOUBLE and INT8 are named: VECTOR(2, DOUBLE)
      Avro               fixed, logical type vector with dimension, elementType and storageBacking; named by type
      Parquet            FIXED_LEN_BYTE_ARRAY without annotation: the elements in order, little-endian
      Arrow              fixed_size_list of elements that are not nullable; the bytes are the same, so nothing is copied

    VARIANT              any value, in the binary encoding of Parquet
      Avro               record variant, logical type variant
      Arrow, Parquet     struct<metadata, value>; Arrow's extension arrow.parquet.variant in results and in rows to write

    BLOB                 bytes in the row (INLINE), or a range of a file outside of the table (OUT_OF_LINE)
      Avro               record blob, logical type blob, whose type is an enum
      Arrow, Parquet     struct<type, data, reference<external_path, offset, length, managed>>

Hudi names a type in the metadata entry `hudi_type` of an engine's column, and in no file. The footer of a Parquet file
lists its vector columns (`hoodie.vector.columns`). A table has such types regardless of its version.

Specification: docs/formats/base-file.md, "Types".
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest

HUDI_TYPE: Final = b"hudi_type"
"""Metadata key of a field: its type as Hudi names it, such as VECTOR(4)."""

VECTOR_COLUMNS: Final = "hoodie.vector.columns"
"""Footer key of Parquet files: the vector columns and their types in schema order."""

MOST_DIMENSIONS: Final = 1 << 20
"""Limit on the elements of a vector, which bounds the size of a value that a schema declares."""

INLINE: Final = "INLINE"
OUT_OF_LINE: Final = "OUT_OF_LINE"

BLOB_TYPE: Final = pa.struct(
    [
        pa.field("type", pa.string(), nullable=False),
        pa.field("data", pa.binary()),
        pa.field(
            "reference",
            pa.struct(
                [
                    pa.field("external_path", pa.string(), nullable=False),
                    pa.field("offset", pa.int64()),
                    pa.field("length", pa.int64()),
                    pa.field("managed", pa.bool_(), nullable=False),
                ]
            ),
        ),
    ]
)
"""Arrow type of a BLOB. Without `offset` and `length` it is the whole file; Hudi ignores `managed`."""

VARIANT_TYPE: Final = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
"""Arrow type of a VARIANT."""

VARIANT_EXTENSION: Final = "arrow.parquet.variant"
_EXTENSION_NAME: Final = b"ARROW:extension:name"
_EXTENSION: Final = {_EXTENSION_NAME: VARIANT_EXTENSION.encode(), b"ARROW:extension:metadata": b""}

_BLOB_AVRO: Final[Mapping[str, Any]] = {
    "type": "record",
    "name": "blob",
    "namespace": "",
    "fields": [
        {
            "name": "type",
            "type": {"type": "enum", "name": "blob_storage_type", "namespace": "", "symbols": [INLINE, OUT_OF_LINE]},
        },
        {"name": "data", "type": ["null", "bytes"], "default": None},
        {
            "name": "reference",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "reference",
                    "namespace": "",
                    "fields": [
                        {"name": "external_path", "type": "string"},
                        {"name": "offset", "type": ["null", "long"]},
                        {"name": "length", "type": ["null", "long"]},
                        {"name": "managed", "type": "boolean"},
                    ],
                },
            ],
            "default": None,
        },
    ],
    "logicalType": "blob",
}
_VARIANT_AVRO: Final[Mapping[str, Any]] = {
    "type": "record",
    "name": "variant",
    "namespace": "",
    "fields": [
        {"name": "metadata", "type": "bytes", "doc": "Variant metadata component"},
        {"name": "value", "type": "bytes", "doc": "Variant value component"},
    ],
    "logicalType": "variant",
}

RECORD_NAMES: Final = frozenset({"BLOB", "VARIANT"})
"""Types whose Arrow type alone does not tell them from a struct: only the field's metadata names them."""

_RECORDS: Final[Mapping[str, tuple[pa.DataType, Mapping[str, Any]]]] = {
    "BLOB": (BLOB_TYPE, _BLOB_AVRO),
    "VARIANT": (VARIANT_TYPE, _VARIANT_AVRO),
}
_ELEMENTS: Final[Mapping[str, pa.DataType]] = {"FLOAT": pa.float32(), "DOUBLE": pa.float64(), "INT8": pa.int8()}
_BACKING: Final = "FIXED_BYTES"
_VECTOR: Final = re.compile(r"VECTOR\s*\(\s*(-?[0-9]{1,18})\s*(?:,\s*(\w+)\s*)?(?:,\s*(\w+)\s*)?\)", re.IGNORECASE)


def vector_type(dimension: int, element: str = "FLOAT") -> pa.DataType:
    """Return the Arrow type of a vector.

    Args:
        dimension: Number of elements.
        element: FLOAT, DOUBLE or INT8.

    Raises:
        InvalidRequest: Another element type, or a dimension below 1 or above 1,048,576.
    """
    known = _ELEMENTS.get(element.upper())
    if known is None:
        raise InvalidRequest(f"unknown element type of a vector: {element}. Use {', '.join(_ELEMENTS)}")
    if not 1 <= dimension <= MOST_DIMENSIONS:
        raise InvalidRequest(f"the dimension of a vector must be between 1 and {MOST_DIMENSIONS}: {dimension}")
    return pa.list_(pa.field("element", known, nullable=False), dimension)


def is_vector(type_: pa.DataType) -> bool:
    """Return whether a canonical Arrow type is a vector."""
    return bool(pa.types.is_fixed_size_list(type_) and not type_.value_field.nullable and type_.value_type in _ELEMENTS.values())


def stated_hudi_type(field: pa.Field) -> str | None:
    """Return the name of a canonical field's type of Hudi 1.2; None for other types."""
    if is_vector(field.type):
        return hudi_type_name(field.type)
    name = (field.metadata or {}).get(HUDI_TYPE)
    return None if name is None else name.decode(errors="replace").strip().upper()


def given_hudi_type(field: pa.Field) -> bytes | None:
    """Return the name of the type of Hudi 1.2 that a caller's field names, also by an extension type of Arrow."""
    metadata = field.metadata or {}
    is_variant = metadata.get(_EXTENSION_NAME) == VARIANT_EXTENSION.encode() or (
        isinstance(field.type, pa.BaseExtensionType) and field.type.extension_name == VARIANT_EXTENSION
    )
    return metadata.get(HUDI_TYPE) or (b"VARIANT" if is_variant else None)


def with_extension(rows: pa.Table) -> pa.Table:
    """Return rows whose VARIANT columns have Arrow's extension name, by which other libraries know the type."""
    return _with_metadata(rows, lambda field: _EXTENSION if stated_hudi_type(field) == "VARIANT" else None)


def without_extension(rows: pa.Table) -> pa.Table:
    """Undo `with_extension`."""
    return _with_metadata(rows, lambda field: dict.fromkeys(_EXTENSION) if _EXTENSION_NAME in (field.metadata or {}) else None)


def _with_metadata(rows: pa.Table, change: Callable[[pa.Field], Mapping[bytes, bytes | None] | None]) -> pa.Table:
    """Return rows with changed metadata of fields: entries to set, None to remove one."""
    changes = [change(field) for field in rows.schema]
    if not any(changes):
        return rows
    fields = []
    for field, changed in zip(rows.schema, changes, strict=True):
        metadata = {**(field.metadata or {}), **(changed or {})}
        fields.append(field.with_metadata({key: text for key, text in metadata.items() if text is not None}))
    return pa.Table.from_arrays(rows.columns, schema=pa.schema(fields, rows.schema.metadata))


def record_from_avro(node: Mapping[str, Any]) -> str | None:
    """Return the name of the type whose record a resolved Avro node is, such as BLOB; None for other nodes.

    The fields of a VARIANT may be in either order: Hudi on Spark 4.0 wrote the value first.
    """
    name = str(node.get("logicalType")).upper()
    if node.get("type") != "record" or name not in _RECORDS:
        return None
    expected = [field["name"] for field in _RECORDS[name][1]["fields"]]
    names = [field["name"] for field in node["fields"]]
    return name if names == expected or (name == "VARIANT" and sorted(names) == expected) else None


def record_type(field: pa.Field) -> pa.DataType | None:
    """Return the Arrow type of the record that a canonical field's metadata names, such as BLOB; None for other types."""
    known = _RECORDS.get(stated_hudi_type(field) or "")
    return None if known is None else known[0]


def record_to_avro(field: pa.Field) -> Mapping[str, Any] | None:
    """Return the Avro node of a canonical field whose type is a record of Hudi 1.2; None for other types."""
    return _RECORDS[stated_hudi_type(field) or ""][1] if record_type(field) == field.type else None


def hudi_type_name(type_: pa.DataType) -> str:
    """Return the name of a vector type, such as VECTOR(4) or VECTOR(2, DOUBLE)."""
    element = _element_name(type_)
    return f"VECTOR({type_.list_size})" if element == "FLOAT" else f"VECTOR({type_.list_size}, {element})"


def parse_hudi_type(text: str) -> pa.DataType:
    """Return the Arrow type that a metadata entry `hudi_type` names.

    Raises:
        InvalidRequest: An unknown type, or a vector that Hudi does not have.
    """
    record = _RECORDS.get(text.strip().upper())
    if record is not None:
        return record[0]
    matched = _VECTOR.fullmatch(text.strip())
    if matched is None:
        known = ", ".join(_RECORDS)
        raise InvalidRequest(f"unknown Hudi type {text!r}: use {known}, VECTOR(dimension) or VECTOR(dimension, element type)")
    dimension, element, backing = matched.groups()
    if backing is not None and backing.upper() != _BACKING:
        raise InvalidRequest(f"unknown storage of a vector: {backing}. Leave it out")
    return vector_type(int(dimension), element or "FLOAT")


def vector_from_avro(node: Mapping[str, Any]) -> pa.DataType | None:
    """Return the type of a resolved Avro node with the logical type vector; None if its values cannot be decoded.

    Raises:
        CorruptData: Its size does not fit its dimension.
    """
    dimension, element = node.get("dimension"), _ELEMENTS.get(str(node.get("elementType", "FLOAT")))
    if node.get("type") != "fixed" or element is None or node.get("storageBacking", _BACKING) != _BACKING:
        return None
    if not isinstance(dimension, int) or dimension < 1 or node["size"] != dimension * element.bit_width // 8:
        raise CorruptData("the size of a vector does not fit its dimension", expected=dimension, found=node.get("size"))
    return pa.list_(pa.field("element", element, nullable=False), dimension)


def vector_to_avro(type_: pa.DataType) -> dict[str, Any]:
    """Return the Avro node of a vector type, as Hudi writes it."""
    element = _element_name(type_)
    return {
        "type": "fixed",
        "name": f"vector_{element.lower()}_{type_.list_size}",
        "namespace": "",
        "size": vector_size_bytes(type_),
        "logicalType": "vector",
        "dimension": type_.list_size,
        "elementType": element,
        "storageBacking": _BACKING,
    }


def vector_size_bytes(type_: pa.DataType) -> int:
    """Return the bytes of one vector."""
    return int(type_.list_size * type_.value_type.bit_width // 8)


def vector_columns_entry(fields: Iterable[pa.Field]) -> dict[str, str]:
    """Return the footer entry that lists the vector columns of a Parquet file; empty without any."""
    named = [f"{field.name}:{hudi_type_name(field.type)}" for field in fields if is_vector(field.type)]
    return {VECTOR_COLUMNS: ",".join(named)} if named else {}


def vectors_to_bytes(array: pa.Array) -> pa.Array:
    """Return vectors as fixed_size_binary without copying. Bytes of nulls are arbitrary."""
    type_ = array.type
    binary = pa.binary(vector_size_bytes(type_))
    if not len(array):
        return pa.array([], binary)
    elements = array.values
    width = elements.type.bit_width // 8
    start, count = array.offset * type_.list_size, len(array) * type_.list_size
    data = elements.buffers()[1].slice((elements.offset + start) * width, count * width)
    validity = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(binary, len(array), [validity, data], array.null_count)


def bytes_to_vectors(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return fixed_size_binary of a vector's width as vectors without copying.

    Raises:
        CorruptData: The width differs.
    """
    width = vector_size_bytes(type_)
    if array.type.byte_width != width:
        raise CorruptData(
            f"values of another size in a column of type {hudi_type_name(type_)}", expected=width, found=array.type.byte_width
        )
    if not len(array):
        return pa.array([], type_)
    data = array.buffers()[1].slice(array.offset * width, len(array) * width)
    elements = pa.Array.from_buffers(type_.value_type, len(array) * type_.list_size, [None, data])
    validity = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(type_, len(array), [validity], array.null_count, children=[elements])


def _element_name(type_: pa.DataType) -> str:
    return next(name for name, element in _ELEMENTS.items() if element == type_.value_type)


def _reduce_fixed_size_list(type_: pa.FixedSizeListType) -> tuple[Any, tuple[pa.Field, int]]:
    return pa.list_, (type_.value_field, type_.list_size)


# PyArrow's own pickle of the type drops the nullability of its elements.
copyreg.pickle(pa.FixedSizeListType, _reduce_fixed_size_list)
