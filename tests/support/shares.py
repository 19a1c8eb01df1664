"""Splits a test into two: the smoke tier takes one share of its crash points, steps or examples, the rest tier the others.

A test with the marker `crash_points` runs once per share.  Its loop takes the items of `chosen`: three in the smoke tier.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TypeVar

import pytest

from tests.support.needs import WIDE

T = TypeVar("T")


class Share(StrEnum):
    """Which items a test uses.

    SMOKE: the first, the middle one and the last. OTHERS: the further ones of the tier.
    """

    SMOKE = "smoke"
    OTHERS = "others"


EACH_SHARE = pytest.mark.parametrize("share", [Share.SMOKE, pytest.param(Share.OTHERS, marks=pytest.mark.full)])
"""For a test that takes `share` as an argument."""


_active: list[Share] = []


@contextmanager
def taking(share: Share) -> Iterator[None]:
    """`chosen` returns this share."""
    _active.append(share)
    try:
        yield
    finally:
        _active.pop()


def is_smoke() -> bool:
    """Whether the active share is that of the smoke tier."""
    return bool(_active) and _active[-1] is Share.SMOKE


def chosen(items: Iterable[T], kind: Callable[[T], Hashable]) -> list[T]:
    """The items of the active share, in their order.

    The full tier has the first and the last item of each kind and those of SMOKE, the wide tier all items.
    """
    if not _active:
        raise AssertionError("no share is active: give the test the marker `crash_points`")
    every = list(items)
    smoke = {0, len(every) // 2, len(every) - 1} if every else set()
    if _active[-1] is Share.SMOKE:
        return [every[number] for number in sorted(smoke)]
    ends: dict[Hashable, tuple[int, int]] = {}
    for number, item in enumerate(every):
        of_kind = kind(item)
        ends[of_kind] = (ends.get(of_kind, (number, number))[0], number)
    of_tier = set(range(len(every))) if WIDE else {number for pair in ends.values() for number in pair}
    return [every[number] for number in sorted(of_tier - smoke)]
