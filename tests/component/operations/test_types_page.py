"""Each row of the tables of docs/data-types.md is written and read back. tests/spark/test_types_page.py covers Spark."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi.engines.spark.type_conversion import to_spark_schema
from pyhudi.errors import InvalidRequest
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.table.snapshot import load_snapshot
from tests.support.types_page import rows_of

_names = itertools.count()
_SETTLED = {"pa": pa, "pl": pl}


def typed(text: str) -> Any:
    """The type that a cell of the page names."""
    return eval(text, {"__builtins__": {}}, _SETTLED)


def made() -> Table:
    return Table.create(f"memory://types-{next(_names)}", record_key="id", options={"hoodie.index.bloom.num_entries": 100})


def value_of(kind: pa.DataType) -> Any:
    """A value of a canonical type."""
    types = pa.types
    if types.is_boolean(kind):
        return True
    if types.is_integer(kind):
        return 7
    if types.is_floating(kind):
        return 0.5
    if types.is_string(kind):
        return '"text"'
    if types.is_binary(kind):
        return b"four"
    if types.is_date(kind):
        return datetime(2026, 7, 1).date()
    if types.is_timestamp(kind):
        return datetime(2026, 7, 1, 12, tzinfo=UTC)
    if types.is_decimal(kind):
        return Decimal("1.25")
    if types.is_list(kind):
        return [1, 2]
    return [("k", 1)] if types.is_map(kind) else {"x": 1}


@pytest.mark.sample(22)
@pytest.mark.parametrize(("given", "stored", "avro", "spark"), rows_of("Arrow"))
def test_arrow(given: str, stored: str, avro: str, spark: str) -> None:
    source, target = typed(given), typed(stored)
    value = value_of(target)
    plain = pa.array([value, None], target)
    if pa.types.is_run_end_encoded(source):
        values: Any = pc.run_end_encode(plain)
    elif pa.types.is_dictionary(source):
        values = plain.dictionary_encode()
    elif isinstance(source, pa.BaseExtensionType):
        values = plain.cast(source)
    else:
        values = pa.array([value, None], source)
    assert values.type == source
    table = made()
    table.insert(pa.table({"id": ["a", "b"], "v": values}))
    assert table.scan().to_arrow().sort_by("id").column("v").to_pylist() == [value, None]
    assert table.scan().schema.field("v").type == target
    schema = load_snapshot(table.context.reloaded()).schema
    assert schema is not None
    found = next(field for field in json.loads(schema.avro)["fields"] if field["name"] == "v")["type"][1]
    assert avro == (found if isinstance(found, str) else found.get("logicalType", found["type"]))
    assert to_spark_schema(table.schema())["v"].dataType.simpleString() == spark


@pytest.mark.parametrize(("given", "plain", "arrow"), rows_of("pandas"))
def test_pandas(given: str, plain: str, arrow: str) -> None:
    samples: dict[str, Any] = {"bool": True, "category": "a", "datetime64[ns, UTC]": datetime(2026, 7, 1, tzinfo=UTC)}
    table = made()
    table.insert(pd.DataFrame({"id": ["a"], "v": pd.Series([samples.get(given, 1)], dtype=given)}))
    assert str(table.scan().to_pandas()["v"].dtype) == plain
    assert str(table.scan().to_pandas(dtype_backend="pyarrow")["v"].dtype) == arrow


@pytest.mark.parametrize(("given", "back"), rows_of("Polars"))
def test_polars(given: str, back: str) -> None:
    table = made()
    table.insert(pl.DataFrame({"id": ["a"], "v": pl.Series([None], dtype=typed(given))}))
    assert str(table.scan().to_polars()["v"].dtype) == back


@pytest.mark.parametrize(("given", "back"), rows_of("Avro of other writers"))
def test_avro(given: str, back: str) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "v", "type": json.loads(given)}]}
    assert avro_to_arrow(json.dumps(record)).field("v").type == typed(back)


@pytest.mark.parametrize(("given", "remedy"), rows_of("Refused"))
def test_refused(given: str, remedy: str) -> None:
    schema = pa.schema([("id", pa.string()), ("v", typed(given))])
    with pytest.raises(InvalidRequest) as caught:
        made().insert(schema.empty_table())
    assert "\n  v: " in str(caught.value)
    assert remedy in str(caught.value)
