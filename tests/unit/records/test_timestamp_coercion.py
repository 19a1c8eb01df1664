"""Nanoseconds of literal values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.records.timestamp_coercion import check_literal_nanoseconds


class Expression:
    """A value with a field of every name, without a truth value, as a Column of Spark."""

    def __getattr__(self, name: str) -> Expression:
        return self

    def __bool__(self) -> bool:
        raise ValueError(self)


def test_only_timestamps_finer_than_microseconds_are_refused() -> None:
    accepted: tuple[Any, ...] = (Expression(), 1, "x", None, np.datetime64("2026-01-01T00:00:00.000001000", "ns"))
    for value in accepted:
        check_literal_nanoseconds(value, "at")
    for value in (SimpleNamespace(nanosecond=1), np.datetime64("2026-01-01T00:00:00.000000001", "ns")):
        with pytest.raises(InvalidRequest, match="at"):
            check_literal_nanoseconds(value, "at")
