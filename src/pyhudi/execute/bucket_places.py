"""Rows to the file groups of their buckets, by the simple bucket index; groups that do not exist yet get a file id.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal
from pyhudi.execute.layout import PLACEHOLDER_PARTITION
from pyhudi.execute.tag import ByBuckets, Place
from pyhudi.format.names import parse_bucket
from pyhudi.records.keys.spec import KeySpec

Ints = npt.NDArray[np.int64]


class BucketPlaces:
    """The file groups of buckets, numbered: those that the table has, and those that the write makes, as they are asked for."""

    def __init__(self, places: Sequence[Place], lookup: ByBuckets) -> None:
        self.places = list(places)
        self._lookup = lookup
        self._numbers: dict[tuple[str, int], int] = {}
        self._anywhere: dict[int, list[int]] = {}
        for number, place in enumerate(places):
            bucket = parse_bucket(place.file_id)
            if bucket is None:
                raise Internal(f"file group {place.file_id} has no bucket")
            self._numbers[place.partition, bucket] = number
            self._anywhere.setdefault(bucket, []).append(number)

    def numbers(self, partition: str, bucket: int) -> tuple[int, ...]:
        """The places of a bucket: one, none where no group is to be made, or one in each partition for rows that name none."""
        if partition == PLACEHOLDER_PARTITION:
            return tuple(self._anywhere.get(bucket, ()))
        known = self._numbers.get((partition, bucket))
        if known is not None:
            return (known,)
        if self._lookup.new_file_id is None:
            return ()
        self._numbers[partition, bucket] = len(self.places)
        self.places.append(Place(partition, self._lookup.new_file_id(partition, bucket), None))
        return (len(self.places) - 1,)

    def route(self, keys: KeySpec, texts: pa.StringArray, paths: pa.StringArray) -> tuple[Ints, Ints]:
        """Pairs of a row and the place that takes it.  texts: record keys, paths: partition paths, one of each for each row."""
        encoded = pc.dictionary_encode(paths)
        names = encoded.dictionary.to_pylist()
        count = self._lookup.layout.count
        codes = np.asarray(encoded.indices, dtype=np.int64) * count + self._lookup.layout.buckets_of(keys, texts)
        distinct, which = np.unique(codes, return_inverse=True)
        found = [self.numbers(names[code // count], code % count) for code in distinct.tolist()]
        copies = np.array([len(numbers) for numbers in found], dtype=np.int64)[which] if found else which
        rows = np.repeat(np.arange(len(texts), dtype=np.int64), copies)
        flat = np.array([number for numbers in found for number in numbers], dtype=np.int64)
        starts = np.r_[0, np.cumsum([len(numbers) for numbers in found])].astype(np.int64)[:-1] if found else which
        offset = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
        return rows, flat[np.repeat(starts[which], copies) + offset] if len(rows) else rows
