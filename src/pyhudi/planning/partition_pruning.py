"""Partition pruning: which file slices a query reads, decided from partition paths alone, and what was pruned.

Source: docs/formats/reading.md, "Partitions and path filters".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

import pyarrow as pa

from pyhudi.records.column_statistics import Value, stored_value
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.filter_visitor import columns
from pyhudi.records.filters.range_pruning import prune_values
from pyhudi.records.html_repr import HtmlRepr
from pyhudi.records.keys.key_spec import KeySpec, partition_columns
from pyhudi.records.keys.partition_paths import folder_values
from pyhudi.table.file_slices import FileSlice


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
    found = folder_values(keys, path, schema, path_columns)
    return {name: tuple(map(stored_value, values)) for name, values in found.items()}


def _may_match(path: str, keys: KeySpec, schema: pa.Schema, condition: Expr, path_columns: Collection[str]) -> bool:
    values = partition_values_from_path(path, keys, schema, path_columns)
    return any(prune_values(condition, dict(zip(values, choice, strict=True))) for choice in product(*values.values()))
