"""The options of `format("pyhudi")`, whose keys Spark hands over in lower case."""

from __future__ import annotations

import warnings

import pytest

from pyhudi.errors import InvalidRequest

pytest.importorskip("pyspark")

from pyhudi.engines.spark.data_source import _divided_options
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.options.declaration import Option
from pyhudi.options.supported import SUPPORTED


def test_options_with_capitals_act() -> None:
    given = {"path": "/t", "hoodie.fileindex.dataskippingfailuremode": "strict", "pyhudi.storage.region": "x"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options, storage, path = _divided_options(given)
    assert ReadSettings.of(options).strict
    assert (storage, path) == ({"region": "x"}, "/t")


WITH_CAPITALS = [option for option in SUPPORTED.values() if any(s != s.lower() for s in option.all_names)]


@pytest.mark.parametrize("option", WITH_CAPITALS, ids=str)
def test_each_spelling_with_capitals_is_known(option: Option) -> None:
    value = option.default or (option.kind[0] if isinstance(option.kind, tuple) else "x")
    for spelling in option.all_names:
        options, _, _ = _divided_options({"path": "/t", spelling.lower(): value})
        assert options.explicit(option) == value


def test_names_of_flink_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"read\.start-commit"):
        _divided_options({"path": "/t", "read.start-commit": "earliest"})
