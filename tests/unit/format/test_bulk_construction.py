"""Objects of a class from columns of their fields."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pyhudi.format.bulk_construction import made_of_columns


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


def test_objects_are_those_of_the_constructor() -> None:
    assert made_of_columns(Point, 2, {"x": [1, 2], "y": iter((3, 4))}) == [Point(1, 3), Point(2, 4)]
    assert hash(made_of_columns(Point, 1, {"x": [1], "y": [0]})[0]) == hash(Point(1))
    assert made_of_columns(Point, 0, {"x": [], "y": []}) == []


@pytest.mark.parametrize("is_on", [True, False])
def test_collection_is_left_as_it_was_found(is_on: bool) -> None:
    before = gc.isenabled()
    seen: list[bool] = []

    def values() -> Iterator[int]:
        seen.append(gc.isenabled())
        made_of_columns(Point, 1, {"x": [1], "y": [1]})
        seen.append(gc.isenabled())
        yield 1
        raise ValueError("the column is damaged")

    try:
        (gc.enable if is_on else gc.disable)()
        with pytest.raises(ValueError, match="damaged"):
            made_of_columns(Point, 2, {"x": values(), "y": [1, 2]})
        assert seen == [False, False] and gc.isenabled() is is_on
    finally:
        (gc.enable if before else gc.disable)()
