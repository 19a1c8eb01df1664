"""Group rows by integer code: runs of equal codes, and stable sorting by code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyhudi.records.ordering import Ints


def run_starts(codes: Ints) -> Ints:
    """Return the positions of rows whose code differs from that of the row before."""
    return np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]][: len(codes)]).astype(np.int64)


def runs(codes: Ints) -> Iterator[tuple[int, int]]:
    """Yield the runs of consecutive rows with equal codes, as (first row, row after the last)."""
    starts = run_starts(codes)
    yield from zip(starts.tolist(), np.append(starts, len(codes))[1:].tolist(), strict=True)


def group_rows(codes: Ints, count: int) -> tuple[Ints, Ints]:
    """Sort rows by code, stably, and return the order and the offset of each code in it.

    Args:
        codes: Codes from 0 to below `count`.
        count: Number of codes.

    Returns:
        The row order, and `count` + 1 offsets: code c occupies offsets[c] up to offsets[c + 1].
    """
    order = np.argsort(codes, kind="stable")
    return order, np.searchsorted(codes[order], np.arange(count + 1))
