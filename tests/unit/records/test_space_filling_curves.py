"""Row orders: ranks, lexicographic order, and properties of the curves on whole grids."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.records.space_filling_curves import dense_ranks, hilbert_keys, linear_order, z_order_keys


def grid(dimensions: int, bits: int) -> list[np.ndarray]:
    axes = np.meshgrid(*([np.arange(1 << bits)] * dimensions), indexing="ij")
    return [axis.ravel().astype(np.int64) for axis in axes]


def test_dense_ranks_keep_order_and_put_null_first() -> None:
    column = pa.chunked_array([pa.array(["b", None, "a"]), pa.array(["c", "b"])])
    assert dense_ranks(column).tolist() == [2, 0, 1, 3, 2]


def test_a_nested_column_has_no_order() -> None:
    with pytest.raises(InvalidRequest, match="list"):
        dense_ranks(pa.chunked_array([pa.array([[1]])]))


def test_linear_order_is_lexicographic_and_stable() -> None:
    first = np.array([2, 1, 2, 1])
    second = np.array([0, 5, 0, 3])
    assert linear_order([first, second]).tolist() == [3, 1, 0, 2]


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 5), (3, 3)])
def test_hilbert_curve_covers_every_cell_in_adjacent_steps(dimensions: int, bits: int) -> None:
    axes = grid(dimensions, bits)
    keys = hilbert_keys(axes)
    assert len(np.unique(keys)) == len(keys)
    order = np.argsort(keys)
    steps = np.sum([np.abs(np.diff(axis[order])) for axis in axes], axis=0)
    assert np.all(steps == 1)


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 5), (3, 3)])
def test_z_order_fills_each_aligned_cube_before_the_next(dimensions: int, bits: int) -> None:
    axes = grid(dimensions, bits)
    order = np.argsort(z_order_keys(axes))
    for level in range(1, bits):
        cubes = [(axis[order] >> level).tolist() for axis in axes]
        seen = list(dict.fromkeys(zip(*cubes, strict=True)))
        size = 1 << (level * dimensions)
        blocks = list(zip(*cubes, strict=True))
        assert [blocks[i * size] for i in range(len(seen))] == seen


def test_curves_keep_more_bits_than_fit_by_scaling() -> None:
    ranks = [np.arange(0, 1 << 40, 1 << 30, dtype=np.int64)] * 3
    for keys in (z_order_keys(ranks), hilbert_keys(ranks)):
        assert len(np.unique(keys)) == len(keys)


def test_two_column_filter_reads_fewer_blocks_with_a_curve_than_in_lexicographic_order() -> None:
    random = np.random.default_rng(7)
    x, y = random.integers(0, 1000, 20_000), random.integers(0, 1000, 20_000)

    def blocks_met(order: np.ndarray) -> int:
        met = 0
        for block in np.array_split(order, 100):
            met += int(x[block].min() <= 120 and x[block].max() >= 100 and y[block].min() <= 120 and y[block].max() >= 100)
            met += int(y[block].min() <= 520 and y[block].max() >= 500)
        return met

    linear = blocks_met(linear_order([x, y]))
    assert blocks_met(np.argsort(z_order_keys([x, y]))) < linear / 3
    assert blocks_met(np.argsort(hilbert_keys([x, y]))) < linear / 3
