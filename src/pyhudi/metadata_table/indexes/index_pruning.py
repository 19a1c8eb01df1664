"""Data skipping with indexes: the filter of a read, and pruning that several index types share.

Format: docs/formats/reading.md, "Data skipping".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.format.bloom_filter import BloomFilter
from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.metadata_table.metadata_keys import bloom_filter_keys, file_hashes
from pyhudi.metadata_table.reader.index_lookups import find_bloom_filters
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.planning.data_skipping import columns_with_statistics, record_key_texts, secondary_texts
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters.filter_ast import Expr, FunctionCall
from pyhudi.records.filters.filter_functions import as_index_expression
from pyhudi.records.filters.filter_visitor import calls
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.sql_functions import IndexExpression
from pyhudi.table.file_slices import BaseFile

FileT = tuple[str, BaseFile]
"""A base file and its table partition: (partition path, base file)."""

BaseFilePruner = Callable[[Sequence[FileT]], set[str]]
"""Returns the paths of those base files in which no row matches."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter on the rows of a table.

    Attributes:
        condition: Bound to the schema.
        schema: The table's columns.
        keys: The table's key settings.
        unusable: Columns that indexes cannot answer for, because queries do not read them from files by these names.
        stores_keys: The rows have the column `_hoodie_record_key`.
        indexed_in_utc: Expression indexes were evaluated in UTC, as filters are. Otherwise results that depend on the
            time zone are unusable.
        from_folder: Partition columns, for which indexes other than those of record keys cannot answer: rows have the
            value of their folder, and files may store another one.
    """

    condition: Expr
    schema: pa.Schema
    keys: KeySpec
    unusable: frozenset[str] = frozenset()
    stores_keys: bool = True
    indexed_in_utc: bool = False
    from_folder: frozenset[str] = frozenset()

    @property
    def record_keys(self) -> pa.StringArray | None:
        """The only record keys that matching rows can have; None if the filter does not restrict them."""
        keys = self.keys if self.unusable.isdisjoint(self.keys.record_fields) else replace(self.keys, record_fields=())
        return record_key_texts(self.condition, keys, self.schema, has_meta_columns=self.stores_keys)

    def matching_texts(self, column: str, layout: int = 1) -> pa.StringArray | None:
        """Return the only values that matching rows can have in a column, as text in an index layout; None if unrestricted."""
        if column.split(".")[0] in self.unusable | self.from_folder:
            return None
        try:
            return secondary_texts(self.condition, self.schema, column, layout)
        except InvalidRequest:
            # The index covers a column that the table does not have, so the filter cannot refer to it either.
            return None

    def for_expression(self, column: str, expression: IndexExpression) -> FunctionCall | None:
        """Return the filter's call of the function of an expression index with the same options; None if there is none."""
        if column.split(".")[0] in self.unusable | self.from_folder:
            return None
        for call in calls(self.condition):
            column_and_expression = as_index_expression(call)
            if column_and_expression is None or column_and_expression[0] != column:
                continue
            in_utc = self.indexed_in_utc or not expression.depends_on_zone(field_at(self.schema, column).type)
            if in_utc and column_and_expression[1] == replace(expression.normalized(), zone=column_and_expression[1].zone):
                return call
        return None

    def column_types(self, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return some columns with the types that the filter uses."""
        return tuple((name, str(field_at(self.schema, name).type)) for name in columns)

    def columns_in(self, definition: IndexDefinition | None) -> list[str]:
        """Return the columns of the filter that have statistics in an index."""
        if definition is None:
            return []
        return columns_with_statistics(self.condition, self.schema, definition.source_fields, self.unusable | self.from_folder)


@dataclass(frozen=True, slots=True)
class PrunedFiles:
    """Result of pruning files by an index.

    Attributes:
        columns: The columns of the filter that the index covers.
        units: String, the files in which no row matches: hash of the partition, a slash, and the file name.
    """

    columns: tuple[str, ...]
    units: pa.StringArray


def without_texts(metadata: MetadataTable, index: str, texts: pa.StringArray, files: Sequence[FileT]) -> set[str]:
    """Return the paths of base files whose Bloom filter in an index excludes all of the texts."""
    names: dict[str, list[str]] = {}
    for partition, base in files:
        names.setdefault(partition, []).append(base.name.text)
    rows = find_bloom_filters(metadata, names, index)
    columns = (rows[name].to_pylist() for name in ("key", "type_code", "bloom_filter"))
    filters = {key: (code, text) for key, code, text in zip(*columns, strict=True)}
    excluded = set()
    for partition, base in files:
        entry = filters.get(bloom_filter_keys(partition, file_hashes([base.name.text]))[0].as_py())
        if entry is None:
            continue
        stored = BloomFilter.from_text(entry[1].decode("ascii", "replace"), entry[0])
        if not len(texts) or not np.asarray(stored.might_contain(texts), dtype=np.bool_).any():
            excluded.add(base.path)
    return excluded
