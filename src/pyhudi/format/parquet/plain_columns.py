"""Columns of a Parquet file whose physical layout every engine decodes to the same values.

Excluded: INT96 timestamps, times of day, decimals of variable length, JSON, UUID and half-precision floats, and lists and
maps in layouts older than the three levels of the format. Engines differ in the type or the value that they return for
these.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

_PLAIN_LEAVES = frozenset(
    {
        *(("BOOLEAN", "NONE"), ("FLOAT", "NONE"), ("DOUBLE", "NONE")),
        *(("INT32", logical) for logical in ("NONE", "INT", "DATE", "DECIMAL")),
        *(("INT64", logical) for logical in ("NONE", "INT", "TIMESTAMP", "DECIMAL")),
        *(("BYTE_ARRAY", logical) for logical in ("NONE", "STRING")),
        *(("FIXED_LEN_BYTE_ARRAY", logical) for logical in ("NONE", "DECIMAL")),
    }
)
"""Physical and logical types."""


def plain_columns(metadata: pq.FileMetaData, schema: pa.Schema) -> frozenset[str]:
    """Return the top-level columns that every engine decodes alike.

    Args:
        metadata: Footer of the file.
        schema: Its Arrow schema.
    """
    leaves = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    names: set[str] = set()
    position = 0
    for field in schema:
        paths = list(_leaf_paths(field.type, field.name))
        own = leaves[position : position + len(paths)]
        position += len(paths)
        if [leaf.path for leaf in own] == paths and all(
            (leaf.physical_type, leaf.logical_type.type) in _PLAIN_LEAVES for leaf in own
        ):
            names.add(field.name)
    # Columns with equal names cannot be distinguished.
    return frozenset(name for name in names if schema.names.count(name) == 1)


def _leaf_paths(type_: pa.DataType, path: str) -> Iterator[str]:
    """Paths of the leaves of a column whose lists and maps have the layout of the format."""
    if pa.types.is_struct(type_):
        for child in type_.fields:
            yield from _leaf_paths(child.type, f"{path}.{child.name}")
    elif pa.types.is_list(type_):
        yield from _leaf_paths(type_.value_type, f"{path}.list.{type_.value_field.name}")
    elif pa.types.is_map(type_):
        yield from _leaf_paths(type_.key_type, f"{path}.key_value.key")
        yield from _leaf_paths(type_.item_type, f"{path}.key_value.value")
    else:
        yield path
