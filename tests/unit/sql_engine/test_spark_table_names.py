"""Options in the configuration of a Spark session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from pyhudi.sql_engine.spark_table_names import settings


def session(**configuration: str) -> Any:
    conf = SimpleNamespace(getAll=configuration, get=lambda key, default: configuration.get(key, default))
    return cast("Any", SimpleNamespace(conf=conf))


def test_options_of_hudi_may_have_the_prefix_of_spark() -> None:
    """As in Hudi 1.2; the name without the prefix takes precedence."""
    found = settings(
        session(
            **{
                "spark.hoodie.clean.commits.retained": "3",
                "spark.hoodie.metadata.enable": "true",
                "hoodie.metadata.enable": "false",
                "pyhudi.sync": "x",
                "spark.sql.shuffle.partitions": "2",
            }
        )
    )
    assert found == {"hoodie.clean.commits.retained": "3", "hoodie.metadata.enable": "false", "pyhudi.sync": "x"}
