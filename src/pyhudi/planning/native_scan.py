"""How an engine's own Parquet reader gets the columns of a query from base files.

The base file of a slice is plain if it is a Parquet file, and each needed column is one of:

    stored       under the table's name, or the name that its id had when the file was written, with the same type
    narrower     an integer or a timestamp of milliseconds, which a cast widens without loss
    constant     the value that the partition path determines, the default of a column that the file lacks, or null

The engine reads the rows of a plain file, except those that the logs of its slice replace or delete. Every other slice is
read by PyHudi's reader (`tasks.read_slice`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.format.avro_to_arrow import column_default
from pyhudi.format.timestamp_units import has_wrong_unit
from pyhudi.records.schema_cast import has_required_part, same_type
from pyhudi.records.schema_on_read.column_ids import ColumnOrigin

MAX_SCANS = 64
"""Scans of one plan. An engine plans each of them on its own, so files beyond them are left to PyHudi's reader."""

MAX_LOG_BYTES = 64 << 20
"""Size of the logs that are merged in memory for one plan. Slices beyond it are left to PyHudi's reader, one at a time."""


@dataclass(frozen=True, slots=True)
class NativeColumn:
    """A column of a query, as an engine's reader gets it.

    Attributes:
        field: The column as the query returns it.
        stored_name: Its name in the files; None for a constant.
        is_cast: The values are cast to the type of `field`.
        value: The constant; None for a stored column.
    """

    field: pa.Field
    stored_name: str | None = None
    is_cast: bool = False
    value: pa.Scalar | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NativeFile:
    """A base file that an engine reads.

    Attributes:
        path: Path in the local file system.
        schema: Arrow schema of the file.
        row_count: Number of its rows.
        hidden: Numbers of rows that do not count, ascending; None for a slice without logs.
    """

    path: str
    schema: pa.Schema
    row_count: int
    hidden: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class NativeScan:
    """Base files with the same columns.

    Attributes:
        columns: The columns of the query, in order.
        files: The files, all with hidden rows or all without.
    """

    columns: tuple[NativeColumn, ...]
    files: tuple[NativeFile, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files."""
        return tuple(file.path for file in self.files)

    @property
    def has_hidden_rows(self) -> bool:
        """Whether rows of the files are hidden."""
        return self.files[0].hidden is not None


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """The columns of a base file.

    Attributes:
        schema: Its Arrow schema.
        plain: Columns that every engine decodes alike (`format.parquet.plain_columns`).
    """

    schema: pa.Schema
    plain: frozenset[str]


def native_columns(
    needed: pa.Schema,
    stored: StoredColumns,
    constants: Mapping[str, pa.Scalar],
    origins: Mapping[str, ColumnOrigin] | None,
) -> tuple[NativeColumn, ...] | None:
    """Return how an engine gets the needed columns from a file; None if its reader cannot.

    Args:
        needed: Columns of the query, as the table has them.
        stored: Columns of the file.
        constants: Columns whose values the partition path determines.
        origins: Names of the columns in the file, if they differ (`ColumnIds.origins`).
    """
    columns: list[NativeColumn] = []
    for field in needed:
        column = _native_column(field, stored, constants, origins)
        if column is None:
            return None
        columns.append(column)
    return tuple(columns)


def grouped_scans(files: Iterable[tuple[NativeFile, tuple[NativeColumn, ...]]]) -> list[NativeScan]:
    """Group files by their columns and schemas into scans that an engine can read as one."""
    groups: list[tuple[tuple[NativeColumn, ...], list[NativeFile]]] = []
    for file, columns in files:
        # Most files equal the one before them.
        for group_columns, group in reversed(groups):
            is_alike = (group[0].hidden is None) == (file.hidden is None)
            if is_alike and columns == group_columns and file.schema.equals(group[0].schema):
                group.append(file)
                break
        else:
            groups.append((columns, [file]))
    return [NativeScan(columns, tuple(group)) for columns, group in groups]


def _native_column(
    field: pa.Field, stored: StoredColumns, constants: Mapping[str, pa.Scalar], origins: Mapping[str, ColumnOrigin] | None
) -> NativeColumn | None:
    if field.name in constants:
        return _constant(field, constants[field.name])
    origin = ColumnOrigin(field.name, True) if origins is None else origins.get(field.name)
    if origin is None or origin.name not in stored.schema.names:
        default = column_default(field)
        if default is None and not field.nullable:
            return None
        return _constant(field, pa.scalar(None, field.type) if default is None else default)
    if origin.name not in stored.plain or origin.below is not None:
        return None
    source = stored.schema.field(origin.name)
    if (source.nullable and not field.nullable) or has_wrong_unit(source, field):
        # PyHudi's reader refuses nulls in it, and reads times of older releases in the declared unit.
        return None
    if source.type == field.type or (same_type(source.type, field.type) and not has_required_part(field.with_nullable(True))):
        return NativeColumn(field, origin.name)
    return NativeColumn(field, origin.name, is_cast=True) if _is_widened(source.type, field.type) else None


def _constant(field: pa.Field, value: pa.Scalar) -> NativeColumn | None:
    # Engines have no literals of nested types that differ only in names.
    return None if value.is_valid and pa.types.is_nested(field.type) else NativeColumn(field, value=value)


def _is_widened(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if each value of a type is one of the other, and engines cast it as PyHudi does."""
    types = pa.types
    if types.is_signed_integer(source) and types.is_signed_integer(target):
        return bool(source.bit_width < target.bit_width)
    if types.is_signed_integer(source) and types.is_float64(target):
        return bool(source.bit_width < target.bit_width)
    if types.is_timestamp(source) and types.is_timestamp(target):
        return bool(source.tz == target.tz and (source.unit, target.unit) == ("ms", "us"))
    return False
