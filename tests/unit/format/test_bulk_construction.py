"""Construction of objects from columns of their fields."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pyhudi.table.file_slices import construct_many


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


def test_objects_are_those_of_the_constructor() -> None:
    assert construct_many(Point, 2, {"x": [1, 2], "y": iter((3, 4))}) == [Point(1, 3), Point(2, 4)]
    assert hash(construct_many(Point, 1, {"x": [1], "y": [0]})[0]) == hash(Point(1))
    assert construct_many(Point, 0, {"x": [], "y": []}) == []


@pytest.mark.parametrize("is_on", [True, False])
def test_collection_is_left_as_it_was_found(is_on: bool) -> None:
    before = gc.isenabled()
    seen: list[bool] = []

    def values() -> Iterator[int]:
        seen.append(gc.isenabled())
        construct_many(Point, 1, {"x": [1], "y": [1]})
        seen.append(gc.isenabled())
        yield 1
        raise ValueError("the column is damaged")

    try:
        (gc.enable if is_on else gc.disable)()
        with pytest.raises(ValueError, match="damaged"):
            construct_many(Point, 2, {"x": values(), "y": [1, 2]})
        assert seen == [False, False] and gc.isenabled() is is_on
    finally:
        (gc.enable if before else gc.disable)()
