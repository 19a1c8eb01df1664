"""Secondary and expression indexes as their definitions say: what has to be found out for them.

A definition says which column an index is over, and by which function.  What PyHudi cannot compute, it cannot keep up to date
either; such a table is not written before the index is dropped.

Source: storage format, "Metadata table", index definitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.execute.index_values import ExpressionIndex, FilterSettings, SecondaryIndex
from pyhudi.format.bloom import BloomKind
from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.format.metadata.partitions import BLOOM_FILTERS, COLUMN_STATS, PartitionKind, parse_partition
from pyhudi.format.metadata.wrapped import wrapped_kind
from pyhudi.records.columns import field_at
from pyhudi.records.expressions import OPTION_NAMES, IndexExpression, filter_texts
from pyhudi.records.text import has_text, is_binary_like
from pyhudi.table.config import local_zone_name
from pyhudi.table.context import TableContext
from pyhudi.table.metadata.records import load_index_definitions

_FILTER_KIND, _FILTER_ENTRIES, _FILTER_FPP, _FILTER_MAX_ENTRIES = "filtertype", "numentries", "fpp", "maxentries"
FILTER_OPTIONS = (_FILTER_KIND, _FILTER_ENTRIES, _FILTER_FPP, _FILTER_MAX_ENTRIES)
"""Options of an index that size its Bloom filters."""


@dataclass(frozen=True, slots=True)
class DefinedIndexes:
    """The secondary and expression indexes of a table.  The numbers of file groups are not known yet: 0."""

    secondary: tuple[SecondaryIndex, ...] = ()
    expressions: tuple[ExpressionIndex, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Their partitions of the metadata table."""
        return frozenset([*(index.partition for index in self.secondary), *(index.partition for index in self.expressions)])

    def only(self, names: Iterable[str]) -> DefinedIndexes:
        """Those of some partitions."""
        wanted = set(names)
        return DefinedIndexes(
            tuple(index for index in self.secondary if index.partition in wanted),
            tuple(index for index in self.expressions if index.partition in wanted),
        )

    def check(self, schema: pa.Schema) -> None:
        """Raises InvalidRequest or Unsupported, naming the index, when one cannot be computed from the columns of a table."""
        for secondary in self.secondary:
            with _named(secondary.partition):
                check_secondary_column(schema, secondary.column)
        for expression in self.expressions:
            with _named(expression.partition):
                result_type(expression, schema)


_PARTITIONED = "isPartitioned"


def check_kept(context: TableContext, partitions: Iterable[str]) -> None:
    """Raises Unsupported for an index among some partitions that PyHudi cannot keep up to date: it reads layouts that it does not
    write.
    """
    load_defined_indexes(context, partitions)
    definitions = load_index_definitions(context)
    for name in partitions:
        definition = definitions.get(name)
        if definition is None:
            continue
        with _named(name):
            if definition.layout > 1:
                raise Unsupported(f"layout {definition.layout} of its records is read, and not written")
            if definition.option(_PARTITIONED) == "true":
                raise Unsupported("it is partitioned: keys are unique within a partition of the table alone")


def is_defined(partition: str) -> bool:
    """Whether a partition of the metadata table is one that a definition tells of."""
    return parse_partition(partition) in (PartitionKind.SECONDARY_INDEX, PartitionKind.EXPRESSION_INDEX)


def load_defined_indexes(context: TableContext, partitions: Iterable[str]) -> DefinedIndexes:
    """Those of some partitions that a definition tells of.  Raises Unsupported for one that PyHudi does not know."""
    names = [partition for partition in partitions if is_defined(partition)]
    if not names:
        return DefinedIndexes()
    definitions = load_index_definitions(context)
    secondary, expressions = [], []
    for name in names:
        with _named(name):
            definition = definitions.get(name)
            if definition is None:
                raise Unsupported("it has no definition")
            if parse_partition(name) is PartitionKind.SECONDARY_INDEX:
                secondary.append(secondary_index(definition))
            else:
                expressions.append(expression_index(definition))
    return DefinedIndexes(tuple(secondary), tuple(expressions))


def secondary_index(definition: IndexDefinition) -> SecondaryIndex:
    """The index of a definition.  Raises Unsupported for a layout that is not known."""
    if len(definition.source_fields) != 1:
        raise Unsupported(f"a secondary index over {len(definition.source_fields)} columns")
    return SecondaryIndex(definition.name, definition.source_fields[0], 0, definition.layout)


def expression_index(definition: IndexDefinition) -> ExpressionIndex:
    """The index of a definition.  Raises InvalidRequest and Unsupported for functions and options that are not known."""
    if len(definition.source_fields) != 1:
        raise Unsupported(f"an expression index over {len(definition.source_fields)} columns")
    options = dict(definition.options)
    function = options.pop("expr", None) or definition.function
    filters = None
    if definition.kind == BLOOM_FILTERS:
        filters = _filter_settings({name: options.pop(name) for name in FILTER_OPTIONS if name in options})
    elif definition.kind != COLUMN_STATS:
        raise Unsupported(f"an expression index of type {definition.kind}")
    strange = sorted(set(options) - OPTION_NAMES)
    if strange:
        raise Unsupported(f"options {', '.join(strange)} of an expression index")
    zone = local_zone_name()
    if zone is None:
        raise Unsupported("the system does not name its time zone; set the environment variable TZ")
    return ExpressionIndex(
        definition.name, definition.source_fields[0], IndexExpression(function, tuple(sorted(options.items())), zone), filters
    )


def result_type(index: ExpressionIndex, schema: pa.Schema) -> pa.DataType:
    """The type of an index's results.  Raises InvalidRequest and Unsupported when they cannot be computed or indexed."""
    kind = index.expression.result_type(field_at(schema, index.column).type)
    if index.filters is not None:
        filter_texts(pa.array([], kind))
    elif wrapped_kind(kind) is None:
        raise InvalidRequest(f"values of type {kind} have no ranges in the metadata table")
    return kind


def check_secondary_column(schema: pa.Schema, column: str) -> None:
    """Raises InvalidRequest for a column that the table has not or that has no text beyond doubt."""
    kind = field_at(schema, column).type
    if not has_text(kind) or pa.types.is_floating(kind) or is_binary_like(kind):
        raise InvalidRequest(f"a secondary index cannot be over {column}: values of type {kind} have no text beyond doubt")


def _filter_settings(options: dict[str, str]) -> FilterSettings:
    try:
        return FilterSettings(
            BloomKind(options.get(_FILTER_KIND, BloomKind.DYNAMIC_V0.value)),
            int(options.get(_FILTER_ENTRIES, "60000")),
            float(options.get(_FILTER_FPP, "0.000000001")),
            int(options.get(_FILTER_MAX_ENTRIES, "100000")),
        )
    except ValueError as error:
        raise InvalidRequest(f"the sizes of an expression index's Bloom filters: {error}") from error


class _named:
    """Names the index in what goes wrong inside: it cannot be kept, so the table cannot be written with it."""

    def __init__(self, partition: str) -> None:
        self._partition = partition

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (InvalidRequest, Unsupported)):
            raise Unsupported(
                f"the table has {self._partition} in its metadata table, which PyHudi cannot keep up to date: {error}; "
                f"drop it before writing: Table.index.drop({self._partition!r}), or DROP INDEX in real Hudi"
            ) from error
