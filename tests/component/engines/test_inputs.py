"""Writes accept all Arrow data: PyArrow, Polars, pandas, and objects with the PyCapsule interface."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow.dataset import dataset

import pyhudi as hp
from pyhudi import Table
from pyhudi.engines.arrow.input_rows import arrow_reader, is_frame, typed_rows
from pyhudi.errors import InvalidRequest
from tests.support.rows import assert_same_rows

OPTIONS = {"hoodie.index.bloom.num_entries": 100, "hoodie.clean.automatic": False, "pyhudi.threads": 1}
ROWS = pa.table({"id": ["a", "b", "c"], "ts": [1, 2, 3], "v": [1.5, None, 2.5]})
_names = itertools.count()


class Stream:
    """A stream that can be had once, as of a database cursor."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows: pa.Table | None = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        assert self._rows is not None, "the stream was taken already"
        rows, self._rows = self._rows, None
        return rows.__arrow_c_stream__(requested_schema)


class Again(Stream):
    """A stream that can be had as often as one likes."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        assert self._rows is not None
        return self._rows.__arrow_c_stream__(requested_schema)


class Batch:
    """Offers one batch, and no stream."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


def batches() -> Iterator[pa.RecordBatch]:
    for start in range(3):
        yield from ROWS.slice(start, 1).to_batches()
        # Empty batches may be at any position.
        yield from ROWS.slice(0, 0).combine_chunks().to_batches()


KINDS: dict[str, Callable[[], Any]] = {
    "table": lambda: ROWS,
    "chunked table": lambda: pa.Table.from_batches(list(batches()), ROWS.schema),
    "batch": lambda: ROWS.to_batches()[0],
    "reader": lambda: ROWS.to_reader(max_chunksize=1),
    "list of tables": lambda: [ROWS.slice(0, 1), ROWS.slice(1)],
    "generator of frames of Polars": lambda: (pl.from_arrow(ROWS.slice(row, 1)) for row in range(3)),
    "generator of lazy frames": lambda: (pl.LazyFrame(ROWS.slice(row, 1)) for row in range(3)),
    "tuple of frames of pandas": lambda: (ROWS.slice(0, 2).to_pandas(), ROWS.slice(2).to_pandas()),
    "list of a dataset and a batch": lambda: [dataset(ROWS.slice(0, 2)), ROWS.slice(2).to_batches()[0]],
    "reader of a generator": lambda: pa.RecordBatchReader.from_batches(ROWS.schema, batches()),
    "polars": lambda: pl.from_arrow(ROWS),
    "pandas": lambda: pd.DataFrame({"id": ["a", "b", "c"], "ts": [1, 2, 3], "v": [1.5, None, 2.5]}),
    "pandas of Arrow": lambda: ROWS.to_pandas(types_mapper=pd.ArrowDtype),
    "one stream": lambda: Stream(ROWS),
    "streams": lambda: Again(ROWS),
    "one batch": lambda: Batch(ROWS.to_batches()[0]),
    "other layouts": lambda: pa.table(
        {
            "id": ROWS["id"].dictionary_encode(),
            "ts": ROWS["ts"].cast(pa.int32()),
            "v": ROWS["v"].cast(pa.float32()),
        }
    ),
    "large strings": lambda: ROWS.set_column(0, "id", ROWS["id"].cast(pa.large_string())),
    "columns of Python": lambda: ROWS.to_pydict(),
    "rows of Python": lambda: ROWS.to_pylist(),
    "generated rows": lambda: iter(ROWS.to_pylist()),
    "generated batches": batches,
    "generated tables": lambda: (ROWS.slice(start, 1) for start in range(3)),
    "lazy frame": lambda: pl.DataFrame(ROWS).lazy(),
    "dataset": lambda: dataset(ROWS),
    "scanner": lambda: dataset(ROWS).scanner(),
    "views": lambda: ROWS.set_column(0, "id", ROWS["id"].cast(pa.string_view())),
}


def new_table() -> Table:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
    uri = f"memory://inputs-{next(_names)}/t"
    return Table.create(uri, record_key="id", ordering="ts", schema=schema, options=OPTIONS)


@pytest.mark.sample(33)
@pytest.mark.parametrize("operation", ["upsert", "bulk_insert", "insert_overwrite"])
@pytest.mark.parametrize("kind", KINDS)
def test_written(kind: str, operation: str) -> None:
    table = new_table()
    result = getattr(table, operation)(KINDS[kind]())
    assert result.rows_inserted == 3
    assert_same_rows(table.scan().to_arrow(), ROWS)


@pytest.mark.sample(17)
@pytest.mark.parametrize("kind", KINDS)
def test_deleted(kind: str) -> None:
    table = new_table()
    table.upsert(pa.concat_tables([ROWS, pa.table({"id": ["d"], "ts": [1], "v": [0.5]})]))
    assert table.delete(KINDS[kind]()).rows_deleted == 3
    assert table.scan().to_arrow().column("id").to_pylist() == ["d"]


@pytest.mark.parametrize("kind", ["table", "reader", "polars", "pandas"])
def test_nothing_at_all(kind: str) -> None:
    table = new_table()
    table.upsert(ROWS)
    empty = {
        "table": ROWS.slice(0, 0),
        "reader": pa.RecordBatchReader.from_batches(ROWS.schema, []),
        "polars": pl.from_arrow(ROWS.slice(0, 0)),
        "pandas": pd.DataFrame(
            {"id": pd.Series([], dtype=str), "ts": pd.Series([], dtype="int64"), "v": pd.Series([], dtype=float)}
        ),
    }[kind]
    if kind == "pandas":
        # An empty column of objects has no type at all.
        empty = empty.astype({"id": "string"})
    result = table.upsert(empty)
    assert result.instant is not None
    assert table.upsert(ROWS.slice(0, 0), options={"hoodie.allow.empty.commit": False}).instant is None
    assert_same_rows(table.scan().to_arrow(), ROWS)


def test_the_index_of_a_pandas_frame_is_no_column() -> None:
    frame = pd.DataFrame({"id": ["a", "b", "c"], "ts": [1, 2, 3], "v": [1.5, 0.5, 2.5]})
    table = new_table()
    table.upsert(frame[frame["v"] > 1])
    assert table.schema().names == ["id", "ts", "v"]
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == ["a", "c"]
    # One that has a name is meant.
    named = Table.create(f"memory://inputs-{next(_names)}/t", record_key="id", options=OPTIONS)
    named.upsert(frame.set_index("id"))
    assert sorted(named.schema().names) == ["id", "ts", "v"]


def test_read_back_as_each_kind() -> None:
    table = new_table()
    table.upsert(ROWS)
    scan = table.scan()
    assert_same_rows(pa.table(scan), ROWS)
    assert_same_rows(scan.to_reader().read_all(), ROWS)
    assert_same_rows(pa.Table.from_batches(list(scan.to_batches()), scan.schema), ROWS)
    assert scan.to_polars().sort("id").equals(pl.DataFrame(ROWS))
    assert scan.to_pandas().sort_values("id")["ts"].tolist() == [1, 2, 3]
    assert scan.count() == 3
    assert scan.to_arrow().num_columns == 3
    # A scan is data like any other.
    other = new_table()
    other.bulk_insert(scan)
    assert_same_rows(other.scan().to_arrow(), ROWS)


def test_pandas_types_are_chosen() -> None:
    table = Table.create(f"memory://inputs-{next(_names)}/t", record_key="id", options=OPTIONS)
    table.insert({"id": ["a", "b"], "n": [2**53 + 1, None], "flag": [True, None]})
    scan = table.scan()
    assert str(scan.to_pandas()["n"].dtype) == "float64"
    for chosen in ({"dtype_backend": "pyarrow"}, {"dtype_backend": "numpy_nullable"}, {"types_mapper": pd.ArrowDtype}):
        frame = scan.to_pandas(**chosen).sort_values("id")
        assert frame["n"].iloc[0] == 2**53 + 1
        assert frame["flag"].iloc[0] == True  # noqa: E712 - any kind of truth
        assert frame["n"].isna().tolist() == [False, True]
    for wrong in ({"dtype_backend": "numpy"}, {"dtype_backend": "pyarrow", "types_mapper": pd.ArrowDtype}):
        with pytest.raises(InvalidRequest, match="dtype_backend"):
            scan.to_pandas(**wrong)


VIEWS = {
    "list view": pa.array([[1], None, [], [2, 3]], pa.list_view(pa.int64())),
    "large list view": pa.array([[1], None, [], [2, 3]], pa.large_list_view(pa.int64())),
    "views in any order": pa.ListViewArray.from_arrays([2, 0, 1, 0], [2, 2, 2, 0], pa.array([1, 2, 3, 4])),
    "a part of an array": pa.array([[0, 0], [1], None, [], [2, 3], [9]], pa.list_view(pa.int64())).slice(1, 4),
    "views of text views": pa.array([[["a"]], None, [[]], [None, ["b", "c"]]], pa.list_view(pa.list_view(pa.string_view()))),
    "views in structs": pa.array([{"x": [1]}, None, {"x": None}, {"x": [2, 3]}], pa.struct([("x", pa.list_view(pa.int64()))])),
    "text views by number": pa.DictionaryArray.from_arrays([1, None, 0, 1], pa.array(["a", "b"], pa.string_view())),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_columns_of_views(kind: str) -> None:
    """Arrow's cast from a list view to a list makes buffers that are too short: what is read there may end the process."""
    table = Table.create(f"memory://inputs-views-{kind.replace(' ', '-')}", record_key="id")
    table.insert(pa.table({"id": ["a", "b", "c", "d"], "v": VIEWS[kind]}))
    assert table.scan().to_arrow().sort_by("id").column("v").to_pylist() == VIEWS[kind].to_pylist()


def test_python_objects_of_polars() -> None:
    """Polars hands them over as the bytes of their addresses."""
    table = Table.create("memory://inputs-objects", record_key="id")
    data = pl.DataFrame({"id": ["a", "b"], "v": pl.Series([object(), object()], dtype=pl.Object)})
    with pytest.raises(InvalidRequest, match=r"'v' has Python objects"):
        table.insert(data)
    assert not table.timeline().instants


@pytest.mark.parametrize("kind", [pl.Int128, pl.UInt128, pl.List(pl.Int128), pl.Struct({"x": pl.Int128})])
def test_numbers_of_128_bits_of_polars(kind: Any) -> None:
    table = Table.create(f"memory://inputs-wide-{next(_names)}", record_key="id")
    data = pl.DataFrame({"id": ["a"], "v": pl.Series([None], dtype=kind)})
    for given in (data, data.lazy()):
        with pytest.raises(InvalidRequest, match=r"'v' has 128-bit numbers"):
            table.insert(given)
    assert not table.timeline().instants


def test_rows_of_python_may_lack_columns() -> None:
    table = new_table()
    table.upsert([{"id": "a", "ts": 1, "v": None}, {"id": "b", "v": 0.5, "ts": 2}, {"ts": 3, "id": "c"}])
    expected = [{"id": "a", "ts": 1, "v": None}, {"id": "b", "ts": 2, "v": 0.5}, {"id": "c", "ts": 3, "v": None}]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    # A column that the first row lacks is one all the same.
    table.upsert([{"id": "a", "ts": 4, "v": 1.5}, {"id": "d", "ts": 4, "v": 1.5, "w": "new"}])
    assert table.scan(["w"], "id = 'd'").to_arrow().to_pylist() == [{"w": "new"}]


NOON = datetime(2026, 7, 1, 12)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "its columns are unknown"),
        (iter(()), "its columns are unknown"),
        ([1], "row 0 .* is not a dictionary"),
        ([{"id": "a"}, ("b",)], "row 1 .* is not a dictionary"),
        ({1: ["a"]}, "1 is not a string"),
        ({"id": ["a"], "ts": [1, 2]}, "differ in length: id 1, ts 2"),
        ({"id": ["a", "b"], "v": [1, "x"]}, "column 'v'"),
        ({"id": ["a"], "v": [2**63]}, "column 'v'"),
        ({"id": ["a", "b"], "v": [2**53 + 1, 0.5]}, "column 'v'"),
        ({"id": "a"}, r"column 'id' .* write a row as \[{...}\]"),
        ({"id": ["a", "b"], "v": [NOON.date(), NOON]}, "column 'v' mixes dates and times without a zone"),
        ({"id": ["a", "b"], "v": [NOON.replace(tzinfo=UTC), NOON]}, "times with a zone and times without a zone"),
        ([{"id": "a", "v": {"x": [NOON.date()]}}, {"id": "b", "v": {"x": [NOON]}}], r"'v.x\[\]' mixes dates"),
        (iter([ROWS, 5]), "item 1 .* is not a table or frame"),
        (iter([ROWS, ROWS.select(["id", "ts"])]), "item 1 .* other columns than the first one"),
        ([pl.from_arrow(ROWS), {"id": "d"}], "item 1 .* is not a table or frame"),
        ("text", "cannot be read as Arrow"),
        (5, "cannot be read as Arrow"),
    ],
)
def test_values_of_python_that_are_no_rows(data: Any, message: str) -> None:
    """Arrow cuts the hours off where a date comes first, and takes a time without a zone for one in UTC."""
    table = Table.create(f"memory://inputs-no-rows-{next(_names)}", record_key="id")
    with pytest.raises(InvalidRequest, match=message):
        table.insert(data)
    assert not table.timeline().completed_writes()


def test_python_objects_of_pandas() -> None:
    table = Table.create("memory://inputs-pandas-objects", record_key="id")
    with pytest.raises(InvalidRequest, match=r"column 'v' cannot be read as Arrow: .* several types") as refused:
        table.insert(pd.DataFrame({"id": ["a"], "v": [object()]}))
    assert "0x" not in str(refused.value)
    with pytest.raises(InvalidRequest, match="column 'v' cannot be read as Arrow: Could not convert 'x'"):
        table.insert(pd.DataFrame({"id": ["a", "b"], "v": [1, "x"]}))


MAPS = pa.schema(
    [
        ("id", pa.int64()),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("s", pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.map_(pa.string(), pa.int64()))))])),
        ("l", pa.list_(pa.map_(pa.string(), pa.int64()))),
    ]
)
MAP_ROWS: list[dict[str, Any]] = [
    {"id": 1, "m": {"a": 1, "b": None}, "s": {"m": {"x": [{"y": 1}, None]}}, "l": [{"c": 2}, {}]},
    {"id": 2, "m": None, "s": None, "l": None},
    {"id": 3, "m": {}, "s": {"m": None}, "l": []},
    {"id": 4},
]
STORED_MAPS = [
    {"id": 1, "m": [("a", 1), ("b", None)], "s": {"m": [("x", [[("y", 1)], None])]}, "l": [[("c", 2)], []]},
    {"id": 2, "m": None, "s": None, "l": None},
    {"id": 3, "m": [], "s": {"m": None}, "l": []},
    {"id": 4, "m": None, "s": None, "l": None},
]


@pytest.mark.parametrize("form", ["rows", "columns", "pairs", "write", "merge", "generator", "pandas", "pandas write"])
def test_python_dictionaries_are_maps_where_the_table_has_maps(form: str) -> None:
    table = Table.create(f"memory://inputs-maps-{form}", record_key="id", schema=MAPS)
    if form == "rows":
        table.upsert(MAP_ROWS)
    elif form == "columns":
        table.insert({name: [row.get(name) for row in MAP_ROWS] for name in MAPS.names})
    elif form == "pairs":
        table.bulk_insert(STORED_MAPS)
    elif form == "write":
        hp.write(table.uri, MAP_ROWS)
    elif form == "generator":
        table.upsert(row for row in MAP_ROWS)
    elif form == "pandas":
        table.upsert(pd.DataFrame(MAP_ROWS))
    elif form == "pandas write":
        hp.write(table.uri, pd.DataFrame(MAP_ROWS, index=[5, 6, 7, 8]))
    else:
        table.merge(MAP_ROWS, on="id").when_not_matched_insert_all().execute()
    assert sorted(table.scan(MAPS.names).to_arrow().to_pylist(), key=lambda row: row["id"]) == STORED_MAPS
    assert table.schema().field("s").type == MAPS.field("s").type


_PART = pa.struct([("x", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))])


@pytest.mark.parametrize(
    ("type_", "values", "stored"),
    [
        (pa.list_(_PART), [[], None, [None]], [[], None, [None]]),
        (pa.struct([("y", pa.list_(_PART))]), [{"y": []}, {"y": None}, None], [{"y": []}, {"y": None}, None]),
        (pa.map_(pa.string(), _PART), [{"k": None}, {}, None], [[("k", None)], [], None]),
        (_PART, [{}, None], [{"x": None, "m": None}, None]),
        (_PART, [pa.scalar({"x": 1, "m": [("a", 2)]}, _PART)], [{"x": 1, "m": [("a", 2)]}]),
        (MAPS.field("m").type, [pa.scalar([("a", 1)], MAPS.field("m").type), {"b": 2}], [[("a", 1)], [("b", 2)]]),
    ],
)
def test_empty_and_null_values_of_types_typed_rows_are_stored(type_: pa.DataType, values: list[Any], stored: list[Any]) -> None:
    schema = pa.schema([("id", pa.string()), ("v", type_)])
    table = Table.create(f"memory://inputs-empty-maps-{next(_names)}", record_key="id", schema=schema)
    table.upsert([{"id": str(number), "v": value} for number, value in enumerate(values)])
    assert table.scan(["id", "v"]).to_arrow().sort_by("id")["v"].to_pylist() == stored


def test_write_that_ignores_an_existing_table_does_not_convert_its_rows() -> None:
    table = Table.create("memory://inputs-ignored", record_key="id", schema=MAPS)
    hp.write(table.uri, [{"id": "a", "m": [1, 2]}], mode="ignore")
    assert table.scan().count() == 0


def test_new_fields_next_to_a_map_are_added() -> None:
    """The types of other fields are inferred: the table gets a field that it lacks."""
    table = Table.create("memory://inputs-fields-beside-maps", record_key="id", schema=MAPS)
    table.upsert([{"id": 1, "m": None, "s": {"m": {"x": []}, "added": 1}, "l": None}])
    assert table.scan(["s"]).to_arrow()["s"].to_pylist() == [{"m": [("x", [])], "added": 1}]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": "x"}, r"m\{\} +int64 +string"),
        ([1, 2], "column 'm' cannot be read as Arrow: a list in the place of a map holds pairs of a key and a value"),
        ([("a", 1, 2)], "a list in the place of a map holds pairs of a key and a value"),
        ([{}, "a"], "a list in the place of a map holds pairs"),
    ],
)
def test_values_that_are_no_maps_are_refused(value: Any, message: str) -> None:
    table = Table.create(f"memory://inputs-no-maps-{next(_names)}", record_key="id", schema=MAPS)
    with pytest.raises(InvalidRequest, match=message):
        table.upsert([{"id": 1, "m": value}])
    with pytest.raises(InvalidRequest, match="column 'm' cannot be read as Arrow: expected a dictionary or a list in each row"):
        table.upsert([{"id": 1, "m": {"a": 1}}, {"id": 2, "m": "text"}])
    assert not table.timeline().completed_writes()


def test_generators_of_frames_and_frames_without_maps_are_unchanged() -> None:
    frame = pd.DataFrame({"id": [1], "m": [{"a": 1}]})
    frames = typed_rows(iter([frame, frame]), lambda: MAPS)
    assert len(list(frames)) == 2
    declared = frame[["id"]].astype("Int64")
    assert typed_rows(declared, lambda: None) is declared
    table = typed_rows(frame, lambda: MAPS)
    assert table["m"].to_pylist() == [[("a", 1)]]
    reader = pa.table({"id": [1]}).to_reader()
    assert typed_rows(reader, lambda: MAPS) is reader


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ([[("a", 1)]], "make its values of one type, or pass a pyarrow array of the column's type, which a map always needs"),
        ([{1: "a"}], "make its values of one type, or pass a pyarrow array of the column's type, which a map always needs"),
        ([1, "x"], "make its values of one type, or pass a pyarrow array of the column's type"),
        ([2**70], "write integers of more than 64 bits as decimal.Decimal, or as text"),
        ([2**70, 0.5], "write integers of more than 64 bits as decimal.Decimal, or as text"),
    ],
)
def test_error_of_unreadable_values_names_a_remedy(values: list[Any], remedy: str) -> None:
    with pytest.raises(InvalidRequest, match=f"column 'v' cannot be read as Arrow: .*; {re.escape(remedy)}$"):
        arrow_reader({"v": values})
    assert arrow_reader({"v": [Decimal(2**70)]}).read_all()["v"].to_pylist() == [2**70]


@pytest.mark.parametrize(("name", "width"), [("id", 32), ("id", 64), ("ts", 64), ("n", 32), ("n", 64)])
def test_whole_numbers_that_pandas_made_floats(name: str, width: int) -> None:
    """One missing value makes a column of whole numbers float64, which the table's column represents."""
    table = Table.create(f"memory://inputs-nulls-{name}-{width}", record_key="id", ordering="ts", options=OPTIONS)
    whole = pd.DataFrame({"id": [1, 2], "ts": [1, 2], "n": [1, 2]}).astype(f"int{width}")
    table.insert(whole)
    holes = whole.assign(**{name: [3, None]})
    if name == "n":
        assert table.upsert(holes).rows_updated == 2
        assert sorted(table.scan(["id", "n"]).to_arrow().to_pylist(), key=str) == [{"id": 1, "n": 3}, {"id": 2, "n": None}]
        assert str(table.schema().field(name).type) == f"int{width}"
    else:
        with pytest.raises(InvalidRequest, match=f"field '{name}' is null in row 1"):
            table.upsert(holes)
    if name == "id":
        with pytest.raises(InvalidRequest, match="field 'id' is null in row 1"):
            table.delete(holes[["id"]])


NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.float64())),
        ("ls", pa.list_(pa.struct([("p", pa.int64()), ("q", pa.list_(pa.date32()))]))),
    ]
)
UNTYPED = {"id": 2, "s": {"a": 1, "b": None}, "l": [], "m": None, "ls": [{"p": None, "q": [None]}]}


@pytest.mark.parametrize(
    "rows",
    [
        [UNTYPED],
        pl.DataFrame([UNTYPED]),
        pd.DataFrame([UNTYPED]),
        pa.Table.from_pylist([UNTYPED]),
    ],
    ids=["dictionaries", "polars", "pandas", "arrow"],
)
def test_nested_nulls_take_the_type_of_the_table(rows: Any) -> None:
    table = Table.create(f"memory://inputs-{next(_names)}/t", record_key="id")
    table.insert(NESTED.empty_table())
    for write in (table.insert, table.upsert):
        write(rows)
        assert table.schema() == NESTED
        assert table.scan().to_arrow().to_pylist() == [UNTYPED]


def test_nulls_in_maps_and_in_other_list_layouts_take_the_type_of_the_table() -> None:
    table = Table.create(f"memory://inputs-{next(_names)}/t", record_key="id")
    table.insert(NESTED.empty_table())
    rows = {
        "id": [2],
        "s": pa.array([{"b": None, "a": 1}]),
        "l": pa.array([[]], pa.large_list(pa.null())),
        "m": pa.array([[("k", None)]], pa.map_(pa.string(), pa.null())),
        "ls": pa.array([[None, None]], pa.list_(pa.null(), 2)),
    }
    table.upsert(pa.table(rows))
    assert table.schema() == NESTED
    expected = {"id": 2, "s": {"a": 1, "b": None}, "l": [], "m": [("k", None)], "ls": [None, None]}
    assert table.scan().to_arrow().to_pylist() == [expected]
    with pytest.raises(InvalidRequest, match=r"s\.new: type null"):
        table.upsert([{**UNTYPED, "s": {"a": 1, "b": None, "new": None}}])


EMPTY_KEYS = [
    [],
    (),
    set(),
    pd.DataFrame(),
    pd.DataFrame({"id": []}),
    pl.DataFrame(),
    pl.DataFrame({"id": []}),
    pl.DataFrame({"id": []}).lazy(),
    pa.table({}),
    pa.table({"id": pa.array([], pa.null())}),
    pa.array([], pa.null()),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("keys", EMPTY_KEYS, ids=lambda keys: f"{type(keys).__module__}.{type(keys).__name__}")
def test_delete_without_keys_deletes_nothing(keys: Any) -> None:
    for fields, row in (("id", {"id": 1}), (["id", "b"], {"id": 1, "b": "x"})):
        table = Table.create(f"memory://inputs-{next(_names)}/t", record_key=fields)
        table.insert([row])
        if fields != "id" and not isinstance(keys, pa.Array) and is_frame(keys) and arrow_reader(keys).schema.names:
            continue
        assert table.delete(keys).rows_deleted == 0
        assert table.scan().to_arrow().to_pylist() == [row]


def test_delete_of_empty_rows_without_key_fields_names_their_columns() -> None:
    table = new_table()
    with pytest.raises(InvalidRequest, match="lack record key field id; their columns are: other"):
        table.delete(pa.table({"other": pa.array([], pa.int64())}))


@pytest.mark.parametrize("rows", [[], (), pl.DataFrame(), pd.DataFrame(), pa.table({})], ids=lambda rows: type(rows).__module__)
def test_writes_without_rows_and_columns_change_nothing(rows: Any) -> None:
    table = Table.create(f"memory://inputs-{next(_names)}/t", record_key="id")
    with pytest.raises(InvalidRequest):
        table.upsert(rows)
    table.upsert(ROWS)
    before = table.scan().to_arrow()
    for write in (table.insert, table.upsert, table.bulk_insert, table.append):
        write(rows)
    assert table.scan().to_arrow().equals(before)
    # An overwrite without rows would delete all records: it needs the columns of an empty frame.
    with pytest.raises(InvalidRequest):
        table.insert_overwrite_table(rows)
    assert table.scan().to_arrow().equals(before)


@pytest.mark.parametrize("wrap", [lambda frame: frame, lambda frame: [frame, frame], lambda frame: iter([frame])])
def test_pandas_columns_of_one_name_are_refused(wrap: Callable[[pd.DataFrame], Any]) -> None:
    table = Table.create("memory://pandas-equal-names", record_key="a", exist_ok=True)
    frame = pd.DataFrame([[1, 2, 3]], columns=["a", "v", "v"])
    for write in (table.upsert, table.insert):
        with pytest.raises(InvalidRequest, match="two columns named 'v': rename one of them"):
            write(wrap(frame))


def test_new_columns_of_python_decimals_hold_later_values() -> None:
    table = Table.create("memory://inputs-decimals", record_key="id", options=OPTIONS)
    table.upsert([{"id": 1, "price": Decimal("9.99"), "more": [Decimal(1)]}])
    table.upsert([{"id": 2, "price": Decimal("119.999"), "more": []}])
    assert table.schema().field("price").type == table.schema().field("more").type.value_type == pa.decimal128(38, 18)
    with pytest.raises(InvalidRequest, match="column 'price' of type decimal128"):
        table.upsert([{"id": 3, "price": Decimal(1) / 3, "more": None}])


def test_an_insert_that_evolves_the_schema_fills_missing_columns() -> None:
    table = Table.create("memory://inputs-missing", record_key="id", options=OPTIONS)
    table.insert({"id": [1], "v": [1.0]})
    table.insert({"id": [2]}, schema_mode="merge")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    with pytest.raises(InvalidRequest, match="missing"):
        table.insert({"id": [3]})
    with pytest.raises(InvalidRequest, match="missing"):
        table.upsert({"id": [2]}, schema_mode="merge")


def test_deeply_nested_columns_are_refused_by_name() -> None:
    kind: pa.DataType = pa.int64()
    value: Any = 1
    for _ in range(49):
        kind, value = pa.struct([("f", kind)]), {"f": value}
    table = Table.create("memory://inputs-deep", record_key="id", options=OPTIONS)
    with pytest.raises(InvalidRequest, match="d: it has more than 48 levels of nested types"):
        table.upsert(pa.table({"id": [1], "d": pa.array([value], kind)}))


def test_nanoseconds_of_pandas_timestamps_in_dictionaries_are_refused() -> None:
    table = Table.create("memory://inputs-nanoseconds", record_key="id", options=OPTIONS)
    rows = [{"id": 1, "at": pd.Timestamp("2026-01-01 00:00:00.000000001", tz="UTC")}]
    with pytest.raises(InvalidRequest, match=r"'at'.*microseconds"):
        table.upsert(rows)
    table.upsert(rows, options={"pyhudi.timestamps.nanoseconds": "cut"})
    assert table.count() == 1
