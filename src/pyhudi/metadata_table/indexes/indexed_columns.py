"""Which columns the metadata table keeps statistics of.  Source: docs/formats/metadata-table.md, column_stats.

    1. Three meta columns, if the table has them: commit time, partition path, record key.
    2. The columns of a list, nested ones by dotted name; without a list the first N top-level columns in schema order.
       N does not count the meta columns, nor columns whose type has no statistics.

No statistics: structs, lists, maps, and in the first layout decimals that 30 digits, 15 of them decimals, cannot hold.  Tables
that Spark's record merger writes have none of binary and decimal columns either.  (Avro enums have none in Hudi; here they are
strings, and have.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.metadata_table.codecs.value_wrappers import has_statistics
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.meta_fields import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY

_META_COLUMNS = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)


def indexed_columns(
    schema: pa.Schema,
    *,
    max_columns: int = 32,
    names: Sequence[str] = (),
    with_meta_columns: bool = True,
    with_binary: bool = True,
    typed: bool = False,
) -> tuple[str, ...]:
    """The columns with statistics, in the order in which the index definition lists them.

    schema: the table's, with or without meta columns.  names: the list; empty for none.  Names that the table does not have, or
    whose columns have no statistics, are left out.  with_meta_columns: whether the table populates its meta columns.
    with_binary: false for Spark's record merger.  typed: statistics of the second layout.
    """
    if names:
        chosen = [
            name
            for name in dict.fromkeys(names)
            if name not in META_COLUMNS and _has_statistics(schema, name, with_binary=with_binary, typed=typed)
        ]
    else:
        columns = [field.name for field in schema if field.name not in META_COLUMNS]
        with_statistics = (name for name in columns if _has_statistics(schema, name, with_binary=with_binary, typed=typed))
        chosen = list(islice(with_statistics, max_columns))
    return (*(_META_COLUMNS if with_meta_columns else ()), *chosen)


def _has_statistics(schema: pa.Schema, name: str, *, with_binary: bool, typed: bool) -> bool:
    try:
        column = field_at(schema, name).type
    except InvalidRequest:
        return False
    if not with_binary and (pa.types.is_binary(column) or pa.types.is_fixed_size_binary(column) or pa.types.is_decimal(column)):
        return False
    return has_statistics(column, typed=typed)
