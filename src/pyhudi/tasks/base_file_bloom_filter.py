"""Bloom filter of a base file: inherited from the previous version of the file, or sized for the number of keys.

Source: docs/formats/bloom-filter.md, "Filter size"; docs/decisions/0003-bloom-filters-are-inherited.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from pyhudi.format.bloom_filter import BloomFilter, BloomKind
from pyhudi.tasks.base_file_reader import key_filter

# Keys that the smallest filter is sized for: 345 bytes of bits at the default rate.
_LEAST = 64


class FilterSizes(Protocol):
    """How filters are sized, from options (see `FileSettings`)."""

    @property
    def bloom_type(self) -> str: ...
    @property
    def bloom_entries(self) -> int: ...
    @property
    def bloom_fpp(self) -> float: ...
    @property
    def bloom_max_entries(self) -> int: ...


def inherited_filter(row_count: int, key_values: Mapping[bytes, bytes], sizes: FilterSizes) -> BloomFilter | None:
    """Return the filter to extend when a base file is rewritten; None if all keys have to be added again.

    row_count and key_values: of its footer.  The filter of a file with few rows is rebuilt, sized for the keys of the new file.
    """
    return key_filter(key_values) if row_count > _few(sizes) else None


class GrowingFilter:
    """The filter of a file that is being written.

    While there are few keys they are buffered, and `finish` sizes the filter for them, so that a file of few rows
    has a small one.  For more keys the options determine the filter, which grows with them.
    """

    def __init__(self, sizes: FilterSizes, inherited: BloomFilter | None = None) -> None:
        self._sizes = sizes
        self._filter = inherited
        self._held: list[pa.Array] = []
        self._count = 0

    def add(self, keys: pa.Array) -> None:
        """Add every key, in order.  keys: as for `BloomFilter.add`."""
        if self._filter is None:
            self._held.append(keys)
            self._count += len(keys)
            if self._count <= _few(self._sizes):
                return
            self._release(self._sizes.bloom_entries)
        else:
            self._filter.add(keys)

    def finish(self) -> BloomFilter:
        """Return the filter with all keys."""
        if self._filter is None:
            fitting = max(_LEAST, 1 << max(0, self._count - 1).bit_length())
            entries = self._sizes.bloom_entries
            self._release(min(fitting, entries) if _few(self._sizes) else entries)
        assert self._filter is not None, "held keys were released into a filter"
        return self._filter

    def _release(self, entries: int) -> None:
        sizes = self._sizes
        self._filter = BloomFilter.create(sizes.bloom_type, entries, sizes.bloom_fpp, sizes.bloom_max_entries)
        for keys in self._held:
            self._filter.add(keys)
        self._held = []


def _few(sizes: FilterSizes) -> int:
    """Up to how many keys a filter is sized by them.  A SIMPLE filter has a fixed size."""
    return sizes.bloom_entries // 2 if sizes.bloom_type == BloomKind.DYNAMIC_V0 else 0
