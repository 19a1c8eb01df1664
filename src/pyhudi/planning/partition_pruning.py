"""Partition pruning: which file slices a query reads, decided from partition paths alone, and what was pruned.

Source: docs/formats/reading.md, "Partitions and path filters".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest, TableState
from pyhudi.records.column_statistics import Value, stored_value
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.filter_visitor import columns
from pyhudi.records.filters.range_pruning import prune_values
from pyhudi.records.html_repr import HtmlRepr
from pyhudi.records.keys.key_spec import KeySpec, partition_columns, path_valued_columns
from pyhudi.records.keys.partition_paths import DEFAULT_PARTITION, is_exact, parse_partition_path, partition_value
from pyhudi.table.file_slices import FileSlice

_MOST_SEPARATORS = 6
"""Limit on the slashes of a path in a table with slash-separated dates; paths with more are not pruned."""


@dataclass(frozen=True, slots=True)
class PruningStep:
    """The result of one pruning step: `remaining` of `total` partitions or files, and the name of the step."""

    step: str
    unit: str
    remaining: int
    total: int


@dataclass(frozen=True, slots=True)
class ReadPlan(HtmlRepr):
    """The slices to read, in order of partition and file id, and how they were chosen."""

    slices: tuple[FileSlice, ...]
    prunings: tuple[PruningStep, ...] = field(default=())

    def __str__(self) -> str:
        lines = [f"read {len(self.slices)} file slices, {sum(s.size_bytes for s in self.slices):,} bytes"]
        lines += [f"  {p.step}: {p.remaining} of {p.total} {p.unit}" for p in self.prunings]
        return "\n".join(lines)


def prune_partitions(
    partitions: Iterable[str], keys: KeySpec, schema: pa.Schema, condition: Expr | None, path_columns: Collection[str] = ()
) -> tuple[tuple[str, ...], PruningStep | None]:
    """Return the partitions that may hold rows for which the condition, bound to the schema, is true.

    Only columns whose value the path determines are used, and those of `path_columns`, which have the path's text as
    value; a path that does not fit the partition fields is retained.
    """
    every = tuple(partitions)
    if condition is None or not keys.partition_fields:
        return every, None
    read = {name.split(".")[0] for name in columns(condition)}
    if read and not read & {*partition_columns(keys), *path_columns}:
        return every, PruningStep("partition paths", "partitions", len(every), len(every))
    matching = tuple(path for path in every if _may_match(path, keys, schema, condition, path_columns))
    return matching, PruningStep("partition paths", "partitions", len(matching), len(every))


def plan_slices(slices: Mapping[str, Iterable[FileSlice]], pruning: PruningStep | None) -> ReadPlan:
    """Return a plan that reads all the given slices."""
    all_slices = tuple(slice_ for partition in sorted(slices) for slice_ in slices[partition])
    return ReadPlan(all_slices, (pruning,) if pruning else ())


def partition_values_from_path(
    path: str, keys: KeySpec, schema: pa.Schema, path_columns: Collection[str]
) -> dict[str, tuple[Value | None, ...]]:
    """Return the values, in stored form, that rows of a partition may have in the columns that its path determines;
    none if the path does not fit the partition fields. path_columns: as in `prune_partitions`.
    """
    try:
        texts = dict(zip(partition_columns(keys), parse_partition_path(keys, path), strict=True))
        types = {name: schema.field(name).type for name in texts if schema.get_field_index(name) >= 0}
        exact = {name for name in path_valued_columns(keys) if name in types and is_exact(texts[name], types[name])}
        values = {name: partition_value(texts[name], type_) for name, type_ in types.items() if name in {*exact, *path_columns}}
        return {name: _values_of(name, value, path, keys) for name, value in values.items()}
    except (InvalidRequest, TableState, CorruptData):
        return {}


def _may_match(path: str, keys: KeySpec, schema: pa.Schema, condition: Expr, path_columns: Collection[str]) -> bool:
    values = partition_values_from_path(path, keys, schema, path_columns)
    return any(prune_values(condition, dict(zip(values, choice, strict=True))) for choice in product(*values.values()))


def _values_of(name: str, value: pa.Scalar, path: str, keys: KeySpec) -> tuple[Value | None, ...]:
    """The values, in stored form, that rows of a partition may have in a column when its path is read as `value`."""
    stored = stored_value(value)
    if pa.types.is_binary(value.type) and stored is None:
        return None, b""
    if not pa.types.is_string(value.type):
        return (stored,)
    if stored is None:
        # The partition of null also holds rows with an empty text, and with the name of this partition as their text.
        return None, "", DEFAULT_PARTITION
    if keys.slash_dates:
        return _dashes_or_slashes(str(stored))
    # A folder named column=value is parsed in Hive style regardless of the table's properties.
    is_hive_style = not keys.hive_style and f"/{name}=" in f"/{path}"
    return (stored, f"{name}={stored!s}") if is_hive_style else (stored,)


def _dashes_or_slashes(text: str) -> tuple[str, ...]:
    """The texts whose path is that of `text` in a table with slash-separated dates."""
    first, *parts = text.split("-")
    if len(parts) > _MOST_SEPARATORS:
        raise TableState(f"the partition value {text!r} has more than {_MOST_SEPARATORS} separators")
    return tuple(first + "".join(map("".join, zip(marks, parts, strict=True))) for marks in product("-/", repeat=len(parts)))
