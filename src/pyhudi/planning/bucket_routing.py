"""Simple bucket index: route record keys to the file groups of a partition by hash.

A key's hash selects its bucket, and a bucket is one file group, whose file id begins with the bucket's number. So a
write finds the file group of each key without reading anything, and a filter on the hashed fields leaves one file group
of a partition.

The table does not store its bucket layout: all its writers have to agree on the number of buckets and on the hashed
fields. File ids are validated here, and the footers of some files before each write. Partitions may have bucket counts
of their own, by rules over their paths: the table stores these from its first write on (`table.partition_buckets`).

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.names import format_shared_file_id, parse_bucket
from pyhudi.format.partition_bucket_config import BucketCounts
from pyhudi.format.stored_numbers import parse_digits
from pyhudi.options import index_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.index_options import BUCKET_COUNT
from pyhudi.records.hashing import bucket_hashes, bucket_ids
from pyhudi.records.java_patterns import is_found
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.keys.partition_paths import PLACEHOLDER_PARTITION
from pyhudi.table.file_slices import FileSlice

MAX_BUCKETS = 99_999_999
"""The largest count with eight-digit numbers."""

_FEW_BUCKETS = 100_000
"""More buckets than a partition has. One UUID in forty begins with eight digits by chance, one in forty thousand with so few."""


class Placement(Protocol):
    """How hashes of keys select file groups, for engines: a cell is computed per row, and each cell belongs to one
    bucket of the row's partition, or of any partition for a row without one.
    """

    @property
    def cell_count(self) -> int:
        """Number of cells; they count from 0."""
        ...

    def cells_for_keys(self, keys: KeySpec, texts: pa.StringArray, paths: pa.StringArray) -> npt.NDArray[np.int32]:
        """Return the cell of each record key (string) in its partition (string, `PLACEHOLDER_PARTITION` for a row
        without one), both without nulls.
        """
        ...

    def bucket_at(self, partition: str, cell: int) -> int | None:
        """Return the bucket of a partition that a cell belongs to; None for a partition that has no buckets yet."""
        ...

    def bucket_from_file_id(self, partition: str, file_id: str) -> int | None:
        """Return the bucket of a partition whose file group has an id; None when none has."""
        ...


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """Bucket layout of a table with the simple bucket index.

    Attributes:
        count: Buckets of each partition, at least 1.
        hash_fields: Hashed fields; empty for all record key fields.
        rules: Which partitions have other counts, in the syntax of the option.
        is_explicit: Whether the caller set the count.
        is_new: A rescale gives partitions these counts, in place of those that the table stores.
    """

    count: Annotated[int, BUCKET_COUNT]
    hash_fields: Annotated[tuple[str, ...], index_options.BUCKET_INDEX_HASH_FIELD] = ()
    rules: Annotated[
        str | None, index_options.BUCKET_INDEX_PARTITION_EXPRESSIONS, index_options.BUCKET_INDEX_PARTITION_RULE_TYPE
    ] = None
    is_explicit: Annotated[bool, BUCKET_COUNT] = True
    is_new: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_BUCKETS:
            raise InvalidRequest(f"option {BUCKET_COUNT}={self.count} has to be from 1 to {MAX_BUCKETS}")
        if self.rules is not None:
            _parsed(self.rules)

    @classmethod
    def of(cls, options: Options) -> BucketLayout:
        """Build from checked options."""
        given = options.explicit(BUCKET_COUNT) is not None
        return read_settings(
            cls, options, rules=options.text(index_options.BUCKET_INDEX_PARTITION_EXPRESSIONS), is_explicit=given
        )

    def from_table_counts(self, stored: BucketCounts) -> BucketLayout:
        """The layout by the counts that the table stores. Raises InvalidRequest if the caller's options contradict them."""
        if self.is_new:
            return self
        if self.rules is not None and _parsed(self.rules) != _parsed(stored.expressions):
            raise InvalidRequest(
                f"option {index_options.BUCKET_INDEX_PARTITION_EXPRESSIONS}={self.rules}: the table stores "
                f"{stored.expressions!r}; set the same rules, or "
                "omit the option"
            )
        if self.is_explicit and self.count != stored.default:
            raise InvalidRequest(
                f"option {BUCKET_COUNT}={self.count}: the table stores {stored.default} for the partitions that match "
                "none of its rules "
                f"({stored.expressions}); set the same count, or omit the option"
            )
        return replace(self, count=stored.default, rules=stored.expressions)

    def bucket_count(self, partition: str) -> int:
        """Return the number of buckets of a partition."""
        return self.count if self.rules is None else _ruled_count(self.rules, partition) or self.count

    def validated_fields(self, keys: KeySpec) -> tuple[str, ...]:
        """Return the hashed fields.  Raises InvalidRequest for fields that are not record key fields."""
        return hashed_fields(keys, self.hash_fields)

    @property
    def cell_count(self) -> int:
        """As in `Placement`: a cell is a bucket of the row's partition. If partitions have counts of their own, the
        cells of rows without a partition count to a common multiple of these counts, or are the hashes.
        """
        if self.rules is None:
            return self.count
        return min(math.lcm(self.count, *(count for _, count in _parsed(self.rules))), _HASHES)

    def cells_for_keys(self, keys: KeySpec, texts: pa.StringArray, paths: pa.StringArray) -> npt.NDArray[np.int32]:
        """As in `Placement`."""
        fields = self.validated_fields(keys)
        if self.rules is None:
            return bucket_ids(texts, self.count, keys.record_fields, fields)
        hashes = bucket_hashes(texts, keys.record_fields, fields)
        encoded = pc.dictionary_encode(paths)
        names = encoded.dictionary.to_pylist()
        counts = np.array(
            [self.cell_count if name == PLACEHOLDER_PARTITION else self.bucket_count(name) for name in names], dtype=np.int64
        )
        return (hashes % counts[np.asarray(encoded.indices)]).astype(np.int32) if names else hashes.astype(np.int32)

    def bucket_at(self, partition: str, cell: int) -> int | None:
        """As in `Placement`."""
        return cell % self.bucket_count(partition)

    def bucket_from_file_id(self, partition: str, file_id: str) -> int | None:
        """As in `Placement`."""
        return parse_bucket(file_id)


_HASHES = 1 << 31
"""Number of possible key hashes."""


@lru_cache(maxsize=64)
def _parsed(rules: str) -> tuple[tuple[str, int], ...]:
    """Patterns and counts, split as in Hudi.  Raises InvalidRequest, Unsupported."""
    counts_by_pattern = []
    for rule in rules.rstrip(";").split(";"):
        pattern, *counts = rule.strip().rstrip(",").split(",")
        count = parse_digits(counts[0].strip()) if len(counts) == 1 else None
        if count is None or not 1 <= count <= MAX_BUCKETS:
            raise InvalidRequest(
                f"{index_options.BUCKET_INDEX_PARTITION_EXPRESSIONS}={rules}: {rule.strip()!r} is no regular "
                f"expression, a comma and a count from 1 to {MAX_BUCKETS}"
            )
        try:
            is_found(pattern.strip(), "")
        except Unsupported as error:
            raise Unsupported(f"{index_options.BUCKET_INDEX_PARTITION_EXPRESSIONS}={rules}: {error}") from error
        counts_by_pattern.append((pattern.strip(), count))
    return tuple(counts_by_pattern)


@lru_cache(maxsize=100_000)
def _ruled_count(rules: str, partition: str) -> int | None:
    return next((count for pattern, count in _parsed(rules) if is_found(pattern, partition)), None)


def hashed_fields(keys: KeySpec, hash_fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fields whose values are hashed.  hash_fields: those of the option, empty for all record key fields.

    Raises InvalidRequest for fields that are not record key fields.
    """
    fields = hash_fields or keys.record_fields
    unknown = [name for name in fields if name not in keys.record_fields]
    if unknown:
        raise InvalidRequest(
            f"the bucket index cannot hash {', '.join(unknown)}: record key fields are {', '.join(keys.record_fields)}"
        )
    return fields


def bucket_groups(slices: Iterable[FileSlice], layout: BucketLayout) -> dict[tuple[str, int], FileSlice]:
    """Map (partition path, bucket) to the current slice of each bucket.

    Raises TableState for file groups that do not match the layout: a file id without a bucket number, a number beyond
    the count, two file groups of one bucket.
    """
    groups: dict[tuple[str, int], FileSlice] = {}
    for slice_ in slices:
        place = slice_.partition or "the table"
        bucket = parse_bucket(slice_.file_id)
        if bucket is None:
            raise TableState(
                f"file group {slice_.file_id} in {place} was not written with a bucket index: its id names no bucket"
            )
        count = layout.bucket_count(slice_.partition)
        if bucket >= count:
            buckets = (
                f"{BUCKET_COUNT}={count}"
                if layout.rules is None
                else f"{index_options.BUCKET_INDEX_PARTITION_EXPRESSIONS}={layout.rules}"
            )
            raise TableState(
                f"file group {slice_.file_id} in {place} is bucket {bucket}, and {buckets} has no such bucket; use the bucket "
                "count that the table was created with"
            )
        other = groups.setdefault((slice_.partition, bucket), slice_)
        if other is not slice_:
            raise TableState(f"bucket {bucket} in {place} has two file groups, {other.file_id} and {slice_.file_id}")
    return groups


def shared_file_id(partition: str, bucket: int, replaced: Collection[tuple[str, str]]) -> str:
    """Return the file id that every writer gives to the new file group of a bucket, so that all append to one group.

    replaced: the groups (partition, file id) that a completed instant replaced; data written to such a group is never read.
    """
    names = (format_shared_file_id(bucket, index) for index in itertools.count())
    return next(file_id for file_id in names if (partition, file_id) not in replaced)


def are_buckets(file_ids: Iterable[str]) -> bool:
    """Whether file groups are buckets, judged by file ids: all begin with a bucket number.  False for no groups."""
    numbers = [parse_bucket(file_id) for file_id in file_ids]
    return bool(numbers) and all(number is not None and number < _FEW_BUCKETS for number in numbers)


def in_buckets(file_id: str, numbers: Collection[int]) -> bool:
    """Whether a file group belongs to one of some buckets, or its file id names no bucket."""
    bucket = parse_bucket(file_id)
    return bucket is None or bucket in numbers
