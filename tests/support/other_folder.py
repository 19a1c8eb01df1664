"""Files whose partition column has another value than their folder, as an UPDATE of that column by Hudi 0.15 left them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.format.parquet.parquet_file import ParquetWriter
from pyhudi.tasks import base_file_writer


@contextmanager
def with_other_values(column: str, value: Any) -> Iterator[None]:
    """Base files that are written during the `with` block store one value in a column."""

    class Writer(ParquetWriter):
        def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
            index = table.schema.get_field_index(column)
            field = table.schema.field(index)
            values = pa.repeat(pa.scalar(value, _plain(field.type)), table.num_rows).cast(field.type)
            super().write_table(table.set_column(index, field, pa.chunked_array([values], field.type)), row_group_size)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(base_file_writer, "ParquetWriter", Writer)
        yield


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_
