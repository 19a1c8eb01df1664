"""Attribute names of delta-rs and PyIceberg raise an error that names PyHudi's method."""

from __future__ import annotations

import copy
import pickle
import re

import polars as pl
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi.api.attribute_hints import _TABLE
from pyhudi.errors import Unsupported


@pytest.fixture(scope="module")
def table() -> Table:
    made = Table.create("memory://elsewhere", record_key="id")
    made.insert({"id": ["a"], "fare": [1.5]})
    return made


def test_attribute_names_of_other_libraries_suggest_the_pyhudi_name(table: Table) -> None:
    for name, there in _TABLE.items():
        with pytest.raises(AttributeError, match=f"no attribute '{name}': use .{there[:4]}"):
            getattr(table, name)
        for operation in there.split(" or ."):
            assert hasattr(table, re.split(r"\W", operation)[0]), operation
    with pytest.raises(AttributeError, match=r"no attribute 'upser'$"):
        table.upser  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(copy.copy(table), "vacuum") and not hasattr(pickle.loads(pickle.dumps(table)), "vacuum")


def test_a_value_that_is_computed_is_left_to_sql(table: Table) -> None:
    for value in (pl.col("fare") + 1, pc.field("fare")):
        with pytest.raises(Unsupported, match=r"Table.merge and hp.sql compute values") as refused:
            table.update({"fare": value})
        assert " at 0x" not in str(refused.value)
