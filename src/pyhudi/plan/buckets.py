"""The simple bucket index: which file group of a partition takes a record key.

A key's hash names its bucket, and a bucket is one file group, whose file id begins with the bucket's number.  So a write finds
the file group of each key without reading anything, and a filter on the hashed fields leaves one file group of a partition.

The table does not say how it is bucketed: all its writers have to agree on the number of buckets and on the hashed fields.  What
file ids tell is checked here, and what the footers of some files tell before each write.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.names import format_shared_file_id, parse_bucket
from pyhudi.records.hashing import bucket_ids
from pyhudi.records.keys.spec import KeySpec
from pyhudi.settings import Option, Options, read_settings
from pyhudi.table.slices import FileSlice

MAX_BUCKETS = 99_999_999
"""As many as eight digits can number."""

_FEW_BUCKETS = 100_000
"""More buckets than a partition has.  One UUID in forty begins with eight digits by chance, one in forty thousand with so few."""


BUCKET_ENGINE = Option(
    "hoodie.index.bucket.engine", ("SIMPLE", "CONSISTENT_HASHING"), "SIMPLE", "how the buckets of index BUCKET are made"
)
BUCKET_COUNT = Option("hoodie.bucket.index.num.buckets", int, "256", "buckets of each partition, for index BUCKET")
HASH_FIELDS = Option("hoodie.bucket.index.hash.field", str, None, "key fields that choose a bucket; unset: all of them")


class Placement(Protocol):
    """How hashes of keys choose file groups, as engines ask it: cells are found row by row, without a look at partitions, and
    each cell lies within one bucket of any partition.
    """

    @property
    def cell_count(self) -> int:
        """How many cells there are; they count from 0."""
        ...

    def cells_of(self, keys: KeySpec, texts: pa.StringArray) -> npt.NDArray[np.int32]:
        """The cell of each record key (string, no nulls)."""
        ...

    def bucket_at(self, partition: str, cell: int) -> int | None:
        """The bucket of a partition in which a cell lies; None for a partition that has no buckets yet."""
        ...

    def bucket_of(self, partition: str, file_id: str) -> int | None:
        """The bucket of a partition whose file group has an id; None when none has."""
        ...


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """How a table of the simple bucket index is bucketed.

    count: buckets of each partition, at least 1; hash_fields: empty for all record key fields.
    """

    count: Annotated[int, BUCKET_COUNT]
    hash_fields: Annotated[tuple[str, ...], HASH_FIELDS] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_BUCKETS:
            raise InvalidRequest(f"option {BUCKET_COUNT}={self.count} has to be from 1 to {MAX_BUCKETS}")

    @classmethod
    def of(cls, options: Options) -> BucketLayout:
        """From checked options."""
        return read_settings(cls, options)

    def fields_of(self, keys: KeySpec) -> tuple[str, ...]:
        """The hashed fields.  Raises InvalidRequest for fields that are not record key fields."""
        return hashed_fields(keys, self.hash_fields)

    def buckets_of(self, keys: KeySpec, texts: pa.StringArray) -> npt.NDArray[np.int32]:
        """The bucket of each record key (string, no nulls)."""
        return bucket_ids(texts, self.count, keys.record_fields, self.fields_of(keys))

    @property
    def cell_count(self) -> int:
        """As of `Placement`: a cell is a bucket."""
        return self.count

    def cells_of(self, keys: KeySpec, texts: pa.StringArray) -> npt.NDArray[np.int32]:
        """As of `Placement`."""
        return self.buckets_of(keys, texts)

    def bucket_at(self, partition: str, cell: int) -> int | None:
        """As of `Placement`."""
        return cell

    def bucket_of(self, partition: str, file_id: str) -> int | None:
        """As of `Placement`."""
        return parse_bucket(file_id)


def hashed_fields(keys: KeySpec, hash_fields: tuple[str, ...]) -> tuple[str, ...]:
    """The fields whose values are hashed.  hash_fields: those of the option, empty for all record key fields.

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
    """The present slice of each bucket: (partition path, bucket) -> slice.

    Raises TableState for file groups that no write with this layout makes: a file id without a bucket number, a number beyond the
    count, two file groups of one bucket.
    """
    found: dict[tuple[str, int], FileSlice] = {}
    for slice_ in slices:
        place = slice_.partition or "the table"
        bucket = parse_bucket(slice_.file_id)
        if bucket is None:
            raise TableState(
                f"file group {slice_.file_id} in {place} was not written with a bucket index: its id names no bucket"
            )
        if bucket >= layout.count:
            raise TableState(
                f"file group {slice_.file_id} in {place} is bucket {bucket}, and {BUCKET_COUNT}={layout.count} "
                "has no such bucket; every write has to give the number with which the table was begun"
            )
        other = found.setdefault((slice_.partition, bucket), slice_)
        if other is not slice_:
            raise TableState(f"bucket {bucket} in {place} has two file groups, {other.file_id} and {slice_.file_id}")
    return found


def shared_file_id(partition: str, bucket: int, replaced: Collection[tuple[str, str]]) -> str:
    """The file id that every writer gives to the new file group of a bucket, so that all append to one group.

    replaced: the groups (partition, file id) that a completed instant replaced: what is written to such a group is never read.
    """
    names = (format_shared_file_id(bucket, index) for index in itertools.count())
    return next(file_id for file_id in names if (partition, file_id) not in replaced)


def are_buckets(file_ids: Iterable[str]) -> bool:
    """Whether file groups are buckets, as far as file ids tell: all of them begin with the number of one.  False for none."""
    numbers = [parse_bucket(file_id) for file_id in file_ids]
    return bool(numbers) and all(number is not None and number < _FEW_BUCKETS for number in numbers)


def in_buckets(file_id: str, numbers: Collection[int]) -> bool:
    """Whether a file group belongs to one of some buckets, or to none that its file id tells."""
    bucket = parse_bucket(file_id)
    return bucket is None or bucket in numbers
