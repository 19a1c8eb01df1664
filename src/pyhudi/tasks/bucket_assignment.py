"""Assign rows to the file groups of their buckets (bucket index); new groups get a file id.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.keys.partition_paths import PLACEHOLDER_PARTITION
from pyhudi.tasks.tag_location import FileGroupCandidate, LookupByBuckets

Ints = npt.NDArray[np.int64]


class BucketCandidates:
    """File groups of buckets, numbered: existing ones, and those that the write creates on demand."""

    def __init__(self, candidates: Sequence[FileGroupCandidate], lookup: LookupByBuckets) -> None:
        self.candidates = list(candidates)
        self._lookup = lookup
        self._numbers: dict[tuple[str, int], int] = {}
        for number, place in enumerate(candidates):
            bucket = lookup.layout.bucket_from_file_id(place.partition, place.file_id)
            if bucket is None:
                raise Internal(f"file group {place.file_id} has no bucket")
            self._numbers[place.partition, bucket] = number
        self._partitions = tuple(dict.fromkeys(place.partition for place in candidates))

    def numbers(self, partition: str, cell: int) -> tuple[int, ...]:
        """Return the candidates of a cell: one, none if no group may be created, or one in each partition for rows
        without a partition.
        """
        if partition == PLACEHOLDER_PARTITION:
            candidates = (self._candidate_number(there, cell) for there in self._partitions)
            return tuple(number for number in candidates if number is not None)
        known = self._candidate_number(partition, cell)
        if known is not None:
            return (known,)
        bucket = self._lookup.layout.bucket_at(partition, cell)
        if self._lookup.new_file_id is None or bucket is None:
            return ()
        self._numbers[partition, bucket] = len(self.candidates)
        self.candidates.append(FileGroupCandidate(partition, self._lookup.new_file_id(partition, bucket), None))
        return (len(self.candidates) - 1,)

    def _candidate_number(self, partition: str, cell: int) -> int | None:
        bucket = self._lookup.layout.bucket_at(partition, cell)
        return None if bucket is None else self._numbers.get((partition, bucket))

    def route(self, keys: KeySpec, texts: pa.StringArray, paths: pa.StringArray) -> tuple[Ints, Ints]:
        """Return pairs of a row and its candidate. texts: record keys, paths: partition paths, one of each for each row."""
        encoded = pc.dictionary_encode(paths)
        names = encoded.dictionary.to_pylist()
        count = self._lookup.layout.cell_count
        codes = np.asarray(encoded.indices, dtype=np.int64) * count + self._lookup.layout.cells_for_keys(keys, texts, paths)
        distinct, which = np.unique(codes, return_inverse=True)
        by_code = [self.numbers(names[code // count], code % count) for code in distinct.tolist()]
        copies = np.array([len(numbers) for numbers in by_code], dtype=np.int64)[which] if by_code else which
        rows = np.repeat(np.arange(len(texts), dtype=np.int64), copies)
        flat = np.array([number for numbers in by_code for number in numbers], dtype=np.int64)
        starts = np.r_[0, np.cumsum([len(numbers) for numbers in by_code])].astype(np.int64)[:-1] if by_code else which
        offset = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
        return rows, flat[np.repeat(starts[which], copies) + offset] if len(rows) else rows
