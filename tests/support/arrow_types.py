"""Column types and layouts of other libraries with expected values, drawn for property tests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from pyhudi.records.schema_cast import conform_table

_PA: Any = pa
"""For what the stubs do not know."""

_EPOCH = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))


@dataclass(frozen=True)
class Kind:
    """A type as rows are given in, and the values that are drawn for it."""

    type: pa.DataType
    values: st.SearchStrategy[Any]

    def array(self, values: list[Any]) -> pa.Array:
        """The values in this type."""
        if pa.types.is_run_end_encoded(self.type):
            return pc.run_end_encode(pa.array(values, self.type.value_type))
        if isinstance(self.type, pa.BaseExtensionType):
            made: pa.Array = _PA.ExtensionArray.from_storage(self.type, pa.array(values, self.type.storage_type))
            return made
        return pa.array(values, self.type)


def _whole(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.one_of(st.integers(least, most), st.sampled_from([least, most]))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-(10**precision) + 1, 10**precision - 1).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
    )


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_BYTES = st.binary(max_size=12)
_MICROS = st.integers(-(2**55), 2**55)
_TIMES = _MICROS.map(lambda n: _EPOCH + timedelta(microseconds=n))
_SECONDS = st.integers(-(2**33), 2**33).map(lambda n: _EPOCH + timedelta(seconds=n))
_DAYS = st.integers(-200_000, 200_000).map(lambda n: date(1970, 1, 1) + timedelta(days=n))
_FLOATS = {width: st.floats(width=width, allow_nan=False) for width in (16, 32, 64)}

SCALARS = [
    Kind(pa.bool_(), st.booleans()),
    *(Kind(_PA.type_for_alias(f"int{bits}"), _whole(bits, signed=True)) for bits in (8, 16, 32, 64)),
    *(Kind(_PA.type_for_alias(f"uint{bits}"), _whole(bits, signed=False)) for bits in (8, 16, 32)),
    Kind(pa.float16(), _FLOATS[16]),
    Kind(pa.float32(), _FLOATS[32]),
    Kind(pa.float64(), _FLOATS[64]),
    *(Kind(kind, _TEXT) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *(Kind(kind, _BYTES) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    Kind(pa.binary(3), st.binary(min_size=3, max_size=3)),
    Kind(pa.date32(), _DAYS),
    Kind(pa.date64(), _DAYS),
    Kind(pa.timestamp("s", "Asia/Tokyo"), _SECONDS),
    Kind(pa.timestamp("ms", "UTC"), _SECONDS),
    Kind(pa.timestamp("us", "+02:00"), _TIMES),
    Kind(pa.timestamp("ns", "UTC"), _SECONDS),
    Kind(pa.decimal32(7, 2), _decimals(7, 2)),
    Kind(pa.decimal64(18, 18), _decimals(18, 18)),
    Kind(pa.decimal128(38, 10), _decimals(38, 10)),
    Kind(pa.decimal128(9, 0), _decimals(9, 0)),
]
WRAPPED = [
    Kind(pa.dictionary(pa.int8(), pa.string()), _TEXT),
    Kind(pa.dictionary(pa.int32(), pa.int64()), _whole(64, signed=True)),
    Kind(pa.dictionary(pa.uint16(), pa.large_binary()), _BYTES),
    Kind(pa.run_end_encoded(pa.int32(), pa.int64()), _whole(64, signed=True)),
    Kind(pa.run_end_encoded(pa.int16(), pa.string()), _TEXT),
    Kind(pa.json_(), _TEXT),
]


def _list_of(kind: Kind) -> st.SearchStrategy[Kind]:
    element = pa.field("e", kind.type)
    items = st.lists(st.none() | kind.values, max_size=3)
    return st.sampled_from(
        [
            *(Kind(of(element), items) for of in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)),
            Kind(pa.list_(element, 2), st.lists(st.none() | kind.values, min_size=2, max_size=2)),
        ]
    )


def _struct_of(column_types: list[Kind]) -> Kind:
    fields = {f"f{number}": kind for number, kind in enumerate(column_types)}
    values = st.tuples(*(st.none() | kind.values for kind in column_types)).map(
        lambda found: dict(zip(fields, found, strict=True))
    )
    return Kind(pa.struct([(name, kind.type) for name, kind in fields.items()]), values)


def _map_of(kind: Kind, keys: pa.DataType) -> Kind:
    entries = st.dictionaries(_TEXT, st.none() | kind.values, max_size=3).map(lambda found: list(found.items()))
    return Kind(pa.map_(keys, kind.type), entries)


def column_types() -> st.SearchStrategy[Kind]:
    """Types that a table takes, nested to some depth."""
    leaves = st.sampled_from(SCALARS)
    nested = st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.flatmap(_list_of),
            st.lists(inner, min_size=1, max_size=3).map(_struct_of),
            st.builds(_map_of, inner, st.sampled_from([pa.string(), pa.large_string(), pa.string_view()])),
        ),
        max_leaves=4,
    )
    return st.one_of(leaves, st.sampled_from(WRAPPED), nested)


def columns_of(found: list[Kind], rows: int) -> st.SearchStrategy[dict[str, pa.Array]]:
    """A column of some rows for each type."""
    values = st.tuples(*(st.lists(st.none() | kind.values, min_size=rows, max_size=rows) for kind in found))
    return values.map(
        lambda drawn: {f"c{place}": kind.array(each) for place, (kind, each) in enumerate(zip(found, drawn, strict=True))}
    )


def values_of(rows: pa.Table, schema: pa.Schema) -> dict[int, Any]:
    """Values by key, as texts that are equal for equal values, in the types of a table."""
    fitting = conform_table(rows.select(schema.names), schema)
    return {row["id"]: {name: repr(value) for name, value in row.items()} for row in fitting.to_pylist()}


def key_types() -> st.SearchStrategy[Kind]:
    """Types whose values name records and partitions."""
    return st.sampled_from([*SCALARS, *WRAPPED])


REFUSED = [
    pa.uint64(),
    pa.decimal256(50, 2),
    pa.decimal128(5, -2),
    pa.null(),
    pa.time32("s"),
    pa.time64("ns"),
    pa.duration("ns"),
    pa.month_day_nano_interval(),
    pa.uuid(),
    _PA.bool8(),
    _PA.fixed_shape_tensor(pa.int32(), [2]),
    _PA.opaque(pa.binary(), "what", "whose"),
    pa.map_(pa.int32(), pa.string()),
    pa.struct([]),
    pa.struct([("a", pa.int32()), ("a", pa.int32())]),
    pa.struct([("a", pa.int32()), ("A", pa.int32())]),
    pa.struct([("a b", pa.int32())]),
    pa.struct([("1", pa.int32())]),
    pa.struct([("a.b", pa.int32())]),
    pa.dense_union([pa.field("a", pa.int32())]),
]
"""Types of which a table takes none, at any depth."""
