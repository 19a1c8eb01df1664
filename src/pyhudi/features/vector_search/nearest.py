"""The nearest of a stream of vectors, exact, in memory that does not grow with their number.

A block is compared with all queries by one matrix product in the precision of the column. Rounding errors of the
product are bounded, and each row that may be among the nearest by that bound is compared again in double precision. So
the result equals that of double precision throughout.

    l2        square root of the sum of squared differences
    cosine    1 - cosine; 1 if either vector has length 0
    dot       the negative inner product

A vector with a distance that is not a number is never found. Equal distances are in the order of the rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

METRICS: Final = ("cosine", "l2", "dot")

_BLOCK_BYTES: Final = 1 << 25
"""Bytes of vectors that are compared at once."""

_PIECE_BYTES: Final = 1 << 19
"""Bytes of vectors that stay in the cache between their product with one query and their length."""


class Nearest:
    """The k nearest rows of each query.

    Attributes:
        scores: Per query, ascending; `distances` converts them.
        rows: Per query, the rows of `scores`: numbers that the caller gave, in ascending order if scores are equal.
    """

    def __init__(self, queries: Doubles, k: int, metric: str) -> None:
        """queries: one in each row."""
        self._queries = queries
        self._k = k
        self._metric = metric
        self._lengths = np.sqrt(np.einsum("ij,ij->i", queries, queries))
        self._fits_floats = bool(((self._lengths == 0) | ((self._lengths > 1e-14) & (self._lengths < 1e14))).all())
        self.scores: list[Doubles] = [np.empty(0) for _ in queries]
        self.rows: list[Rows] = [np.empty(0, np.int64) for _ in queries]

    def add(self, vectors: npt.NDArray[Any], rows: Rows) -> None:
        """Compare vectors, one in each row of an array of floats or 8-bit integers; `rows` are their numbers."""
        size = max(1, _BLOCK_BYTES // max(1, vectors.shape[1] * vectors.itemsize))
        for start in range(0, len(vectors), size):
            self._add_block(vectors[start : start + size], rows[start : start + size])

    def merge(self, other: Nearest) -> None:
        """Add what another search with the same queries found."""
        for number, (scores, rows) in enumerate(zip(other.scores, other.rows, strict=True)):
            self._keep(number, scores, rows)

    def distances(self, number: int) -> Doubles:
        """Return the distances of the rows of a query."""
        scores = self.scores[number]
        if self._metric == "l2":
            return np.sqrt(scores)
        # -0.0 becomes 0.0 for cosine.
        return scores + 1 if self._metric == "cosine" else scores

    def _add_block(self, vectors: npt.NDArray[Any], rows: Rows) -> None:
        block = vectors.astype(np.float32) if vectors.dtype == np.int8 else vectors
        with np.errstate(all="ignore"):
            scores, squares = _products(block, self._queries.astype(block.dtype))
            if block.dtype == np.float32 and not (self._fits_floats and _fit_floats(block, squares)):
                self._add_block(block.astype(np.float64), rows)
                return
            margins, offsets = self._approximate(scores, squares)
        for number, score in enumerate(scores):
            margin = float(margins[number])
            limit = self._limit(number, score, margin, float(offsets[number]))
            chosen = np.flatnonzero(score <= limit + margin)
            if len(chosen):
                self._keep(number, self._exact(vectors[chosen].astype(np.float64), number), rows[chosen])

    def _approximate(self, products: npt.NDArray[Any], squares: npt.NDArray[Any]) -> tuple[Doubles, Doubles]:
        """Turn products into scores, in place; return bounds of their errors, and the offsets to the exact scores."""
        error = 4 * self._queries.shape[1] * float(np.finfo(products.dtype).eps)
        # Not a number only if all are.
        longest = float(np.sqrt(np.fmax.reduce(squares)))
        none = np.zeros(len(self._lengths))
        if self._metric == "dot":
            np.negative(products, out=products)
            margins, offsets = error * longest * self._lengths, none
        elif self._metric == "l2":
            products *= -2
            products += squares
            margins, offsets = error * (longest + self._lengths) ** 2, self._lengths**2
        else:
            lengths = np.sqrt(squares)
            products *= np.divide(-1, lengths, out=np.zeros_like(lengths), where=lengths != 0)
            scale = np.divide(1, self._lengths, out=none.copy(), where=self._lengths != 0)
            products *= scale[:, np.newaxis].astype(products.dtype)
            margins, offsets = none + 4 * error, none
        return np.nan_to_num(margins, nan=np.inf), offsets

    def _limit(self, number: int, scores: npt.NDArray[Any], margin: float, offset: float) -> float:
        """Return the score, less the offset, above which by more than the margin no row of a block is among the nearest."""
        nearest = self.scores[number]
        if len(nearest) == self._k:
            return float(nearest[-1]) - offset
        if len(scores) <= self._k:
            return np.inf
        limit = float(np.partition(scores, self._k - 1)[self._k - 1]) + margin
        return np.inf if np.isnan(limit) else limit

    def _exact(self, vectors: Doubles, number: int) -> Doubles:
        query = self._queries[number]
        if self._metric == "l2":
            differences = vectors - query
            squares: Doubles = np.einsum("ij,ij->i", differences, differences)
            return squares
        products: Doubles = vectors @ query
        if self._metric == "dot":
            return -products
        scale = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)) * self._lengths[number]
        cosines: Doubles = np.divide(products, scale, out=np.zeros_like(products), where=scale != 0)
        return -cosines

    def _keep(self, number: int, scores: Doubles, rows: Rows) -> None:
        known = ~np.isnan(scores)
        scores = np.concatenate([self.scores[number], scores[known]])
        rows = np.concatenate([self.rows[number], rows[known]])
        order = np.lexsort((rows, scores))[: self._k]
        self.scores[number], self.rows[number] = scores[order], rows[order]


def _products(block: npt.NDArray[Any], queries: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the inner products of each query, one in each row, with a block, and the squared lengths of the block."""
    count = len(block)
    squares = np.empty(count, block.dtype)
    single = np.empty((1, count), block.dtype) if len(queries) == 1 else None
    size = max(1, _PIECE_BYTES // max(1, block.shape[1] * block.itemsize))
    for start in range(0, count, size):
        piece = block[start : start + size]
        if single is not None:
            single[0, start : start + size] = piece @ queries[0]
        np.einsum("ij,ij->i", piece, piece, out=squares[start : start + size])
    return (queries @ block.T if single is None else single), squares


def _fit_floats(block: npt.NDArray[Any], squares: npt.NDArray[Any]) -> bool:
    """Whether products of single precision neither overflow nor underflow, so that their relative error is bounded."""
    extreme = ~((squares > 1e-28) & (squares < 1e28))
    return not block[extreme].any()
