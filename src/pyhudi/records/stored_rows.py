"""Rows of data files and log blocks in the columns of the table.

Source: docs/formats/reading.md, "Schema".
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pyhudi.format.timestamp_units import in_declared_units
from pyhudi.records.schema_cast import conform_table
from pyhudi.records.schema_on_read.column_ids import ColumnOrigin, by_ids


def in_table_columns(rows: pa.Table, origins: Mapping[str, ColumnOrigin] | None, schema: pa.Schema) -> pa.Table:
    """Return rows of a file or log block in the columns and types of the table.

    Args:
        rows: Columns of the file.
        origins: Result of `ColumnIds.origins`; None if columns have the names of the table.
        schema: Columns of the table.

    Raises:
        InvalidRequest: As `conform_table` and `by_ids`.
    """
    return conform_table(in_declared_units(by_ids(rows, origins, schema), schema), schema)
