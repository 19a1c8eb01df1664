"""Rows by the code of what they belong to: runs of equal codes, rows put in order of code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyhudi.records.ordering import Ints


def run_starts(codes: Ints) -> Ints:
    """Where rows begin whose code is not that of the row before."""
    return np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]][: len(codes)]).astype(np.int64)


def runs(codes: Ints) -> Iterator[tuple[int, int]]:
    """The runs of rows of one code that stand together: the first row, and the one after the last."""
    starts = run_starts(codes)
    yield from zip(starts.tolist(), np.append(starts, len(codes))[1:].tolist(), strict=True)


def group_rows(codes: Ints, count: int) -> tuple[Ints, Ints]:
    """The rows in order of their code, those of one code in the order in which they come, and where each code begins among them.

    codes: from 0 to below `count`.  The second array has `count` + 1 numbers: code c has the places from c up to c + 1.
    """
    order = np.argsort(codes, kind="stable")
    return order, np.searchsorted(codes[order], np.arange(count + 1))
