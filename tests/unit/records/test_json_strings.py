"""JSON text of Arrow values is valid JSON with the same values."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import Unsupported
from pyhudi.records.json_strings import json_text

ROW = pa.struct(
    [
        pa.field("id", pa.string()),
        pa.field("n", pa.int64()),
        pa.field("items", pa.list_(pa.string())),
        pa.field("tags", pa.map_(pa.string(), pa.int32())),
        pa.field("inner", pa.struct([("x", pa.float64()), ("ok", pa.bool_())])),
        pa.field("raw", pa.binary()),
    ]
)
VALUES = st.fixed_dictionaries(
    {
        "id": st.none() | st.text(),
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "items": st.none() | st.lists(st.none() | st.text(), max_size=3),
        "tags": st.none() | st.dictionaries(st.text(), st.none() | st.integers(-5, 5), max_size=3).map(lambda d: list(d.items())),
        "inner": st.none()
        | st.fixed_dictionaries(
            {"x": st.none() | st.floats(allow_nan=False, allow_infinity=False), "ok": st.none() | st.booleans()}
        ),
        "raw": st.none() | st.binary(max_size=5),
    }
)


def meant(value: dict[str, Any] | None) -> Any:
    if value is None:
        return None
    tags, raw = value["tags"], value["raw"]
    return {
        **value,
        "tags": None if tags is None else dict(tags),
        "raw": None if raw is None else raw.decode("latin-1"),
    }


@settings(max_examples=150, deadline=None)
@given(st.lists(st.none() | VALUES, max_size=6), st.integers(0, 3))
def test_json_strings_round_trip(values: list[dict[str, Any] | None], skip: int) -> None:
    array = pa.array(values, ROW).slice(skip)
    texts = json_text(array).to_pylist()
    assert [None if text is None else json.loads(text) for text in texts] == [meant(value) for value in values[skip:]]


def test_the_form_is_that_of_avro() -> None:
    kind = pa.struct([("id", pa.string()), ("ts", pa.int64()), ("rider", pa.string()), ("fare", pa.float64())])
    rows = pa.array([{"id": "t001", "ts": 1, "rider": None, "fare": 11.0}, None], kind)
    assert json_text(rows).to_pylist() == ['{"id": "t001", "ts": 1, "rider": null, "fare": 11.0}', None]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (datetime.date(1970, 1, 3), pa.date32(), "2"),
        (datetime.datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=datetime.UTC), pa.timestamp("us", "UTC"), "1000005"),
        (datetime.time(0, 0, 1), pa.time64("us"), "1000000"),
        (datetime.time(0, 0, 1), pa.time32("ms"), "1000"),
        (Decimal("12.50"), pa.decimal128(6, 2), "12.50"),
        (1e10, pa.float64(), "1.0E10"),
        (0.1, pa.float32(), "0.1"),
        (float("nan"), pa.float64(), '"NaN"'),
        (float("-inf"), pa.float32(), '"-Infinity"'),
        ('a"b\\c\n\x01é', pa.string(), '"a\\"b\\\\c\\n\\u0001é"'),
        (b"\x00\xff", pa.binary(2), '"\\u0000\xff"'),
        ([], pa.list_(pa.int32()), "[]"),
        ({}, pa.struct([]), "{}"),
        (True, pa.bool_(), "true"),
    ],
)
def test_values(value: object, kind: pa.DataType, text: str) -> None:
    assert json_text(pa.array([value, None], kind)).to_pylist() == [text, None]
    assert json_text(pa.array([], kind)).to_pylist() == []


def test_a_type_that_tables_do_not_have() -> None:
    with pytest.raises(Unsupported):
        json_text(pa.array([datetime.timedelta(1)]))
