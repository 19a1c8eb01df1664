"""What a filtered read asks the indexes of a table, and what several kinds need to answer it.

Source: docs/formats/reading.md, "Data skipping".
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
from pyhudi.records.expression_functions import IndexExpression
from pyhudi.records.filters.filter_ast import Expr, FunctionCall
from pyhudi.records.filters.filter_functions import as_index_expression
from pyhudi.records.filters.filter_visitor import calls
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.table.file_slices import BaseFile

FileT = tuple[str, BaseFile]
"""A base file, and the partition of the table in which it lies."""

BaseFilePruner = Callable[[Sequence[FileT]], set[str]]
"""From base files to the paths of those in which no row matches."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter on the rows of a table.

    condition: bound to the schema.  unusable: columns of which indexes say nothing by their names, as queries do not read them
    from files by these.  stores_keys: the rows have the column `_hoodie_record_key`.  indexed_in_utc: expression indexes were
    evaluated in UTC, as filters are; else results that hang on the time zone say nothing.
    """

    condition: Expr
    schema: pa.Schema
    keys: KeySpec
    unusable: frozenset[str] = frozenset()
    stores_keys: bool = True
    indexed_in_utc: bool = False

    @property
    def record_keys(self) -> pa.StringArray | None:
        """The only record keys that matching rows can have; None when the filter does not say."""
        keys = self.keys if self.unusable.isdisjoint(self.keys.record_fields) else replace(self.keys, record_fields=())
        return record_key_texts(self.condition, keys, self.schema, has_meta_columns=self.stores_keys)

    def matching_texts(self, column: str, layout: int = 1) -> pa.StringArray | None:
        """The only values that matching rows can have in a column, as an index of a layout writes them; None when the filter does
        not say.
        """
        if column.split(".")[0] in self.unusable:
            return None
        try:
            return secondary_texts(self.condition, self.schema, column, layout)
        except InvalidRequest:
            # The index is over a column that the table no longer has; the filter cannot name it either.
            return None

    def for_expression(self, column: str, expression: IndexExpression) -> FunctionCall | None:
        """What the filter asks of the results of an expression index, by the same function with the same options; None for
        nothing.
        """
        if column.split(".")[0] in self.unusable:
            return None
        for call in calls(self.condition):
            found = as_index_expression(call)
            if found is None or found[0] != column:
                continue
            in_utc = self.indexed_in_utc or not expression.depends_on_zone(field_at(self.schema, column).type)
            if in_utc and found[1] == replace(expression.normalised(), zone=found[1].zone):
                return call
        return None

    def column_types(self, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Some columns with the types that the filter takes them for."""
        return tuple((name, str(field_at(self.schema, name).type)) for name in columns)

    def columns_in(self, definition: IndexDefinition | None) -> list[str]:
        """The columns of the filter of which the statistics of an index say something."""
        if definition is None:
            return []
        return columns_with_statistics(self.condition, self.schema, definition.source_fields, self.unusable)


@dataclass(frozen=True, slots=True)
class PrunedFiles:
    """What an index of files says of a filter.

    columns: those that it answers for.  units: string, the files in which no row matches, each as the hash of its partition, a
    slash and its name.
    """

    columns: tuple[str, ...]
    units: pa.StringArray


def without_texts(metadata: MetadataTable, index: str, texts: pa.StringArray, files: Sequence[FileT]) -> set[str]:
    """The paths of the base files that have a Bloom filter in an index, in which none of the texts is."""
    names: dict[str, list[str]] = {}
    for partition, base in files:
        names.setdefault(partition, []).append(base.name.text)
    found = find_bloom_filters(metadata, names, index)
    columns = (found[name].to_pylist() for name in ("key", "type_code", "bloom_filter"))
    filters = {key: (code, text) for key, code, text in zip(*columns, strict=True)}
    gone = set()
    for partition, base in files:
        entry = filters.get(bloom_filter_keys(partition, file_hashes([base.name.text]))[0].as_py())
        if entry is None:
            continue
        stored = BloomFilter.from_text(entry[1].decode("ascii", "replace"), entry[0])
        if not len(texts) or not np.asarray(stored.might_contain(texts), dtype=np.bool_).any():
            gone.add(base.path)
    return gone
