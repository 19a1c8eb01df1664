from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, Internal, InvalidRequest, Unsupported
from pyhudi.format.arrow_to_avro import arrow_to_avro, minimal_decimal_size, sanitized_name
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.meta_columns import META_FIELDS, is_meta_field, with_meta_fields, without_meta_fields
from pyhudi.records.dotted_columns import column_at, field_at
from pyhudi.records.schema_cast import conform, refuse_rounding, relabel, unshared_items
from pyhudi.records.schema_evolution import SchemaMode, evolve, schema_changes, typed_nulls
from pyhudi.records.type_normalization import normalize_types
from tests.support.vectors import vector

TIMESTAMP = pa.timestamp("us", "UTC")


def scalars() -> st.SearchStrategy[pa.DataType]:
    decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
    plain = [pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(), TIMESTAMP]
    return st.one_of(st.sampled_from(plain), decimals)


def types() -> st.SearchStrategy[pa.DataType]:
    def grow(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        lists = st.builds(lambda t, n: pa.list_(pa.field("element", t, n)), children, st.booleans())
        maps = st.builds(lambda t, n: pa.map_(pa.string(), pa.field("value", t, n)), children, st.booleans())
        return st.one_of(lists, maps, fields(children).map(pa.struct))

    return st.recursive(scalars(), grow, max_leaves=6)


def fields(of: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    names = st.lists(st.sampled_from(["a", "b", "c_1", "fixed", "É", "t_record"]), min_size=1, max_size=4, unique=True)
    return names.flatmap(
        lambda ns: st.tuples(*(st.builds(lambda t, n, name=name: pa.field(name, t, n), of, st.booleans()) for name in ns)).map(
            list
        )
    )


SCHEMAS = fields(types()).map(pa.schema)


# --- Avro


@pytest.mark.parametrize("table", ["cow_v8_nonpartitioned", "cow_v8_simplekeygen_nonhivestyle"])
def test_the_schema_text_of_a_real_table_is_reproduced(table: str) -> None:
    archive = zipfile.ZipFile(io.BytesIO(vector(f"tables/{table}.zip")))
    names = [n for n in archive.namelist() if n.endswith(".commit") and not n.startswith("__") and archive.getinfo(n).file_size]
    assert names
    for name in names:
        record: Any = next(iter(fastavro.reader(io.BytesIO(archive.read(name)))))
        text = record["extraMetadata"]["schema"]
        schema = avro_to_arrow(text)
        assert normalize_types(schema).equals(schema)
        assert arrow_to_avro(schema, name.split("/")[0]) == text


@given(SCHEMAS)
def test_every_schema_round_trips_as_valid_avro(schema: pa.Schema) -> None:
    text = arrow_to_avro(schema, "t")
    assert avro_to_arrow(text).equals(schema)
    assert arrow_to_avro(schema, "other", text) == text
    if "É" not in text:
        fastavro.parse_schema(json.loads(text))


@given(SCHEMAS, SCHEMAS)
def test_a_changed_schema_keeps_valid_avro(before: pa.Schema, after: pa.Schema) -> None:
    text = arrow_to_avro(after, "t", arrow_to_avro(before, "t"))
    assert avro_to_arrow(text).equals(after)
    assert text == arrow_to_avro(after, "t")


def test_names_and_decimals_are_written_as_hudi_writes_them() -> None:
    schema = with_meta_fields(
        pa.schema([pa.field("d", pa.decimal128(10, 2)), pa.field("s", pa.struct([("x", pa.decimal128(18, 0))]), False)])
    )
    document = json.loads(arrow_to_avro(schema, "9we-ird.tbl name"))
    assert (document["name"], document["namespace"]) == ("__we__ird__tbl__name_record", "hoodie.__we__ird__tbl__name")
    assert document["fields"][0] == {"name": "_hoodie_commit_time", "type": ["null", "string"], "doc": "", "default": None}
    inner = "hoodie.__we__ird__tbl__name.__we__ird__tbl__name_record"
    assert document["fields"][5]["type"][1] == {
        "type": "fixed", "name": "fixed", "namespace": inner + ".d",
        "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2,
    }  # fmt: skip
    assert document["fields"][6]["type"]["namespace"] == inner
    assert document["fields"][6]["type"]["fields"][0]["type"][1]["namespace"] == inner + ".s.x"
    assert "default" not in document["fields"][6]


@pytest.mark.parametrize(("precision", "size"), [(1, 1), (2, 1), (3, 2), (9, 4), (10, 5), (18, 8), (38, 16)])
def test_decimals_take_the_fewest_bytes(precision: int, size: int) -> None:
    assert minimal_decimal_size(precision) == size


def test_avro_types_without_an_arrow_type_are_kept() -> None:
    text = json.dumps(
        {
            "type": "record", "name": "r", "namespace": "n", "fields": [
                {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
                {"name": "f", "type": ["null", {"type": "fixed", "name": "fx", "size": 3}], "default": None},
                {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
                {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "l", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
                {"name": "t", "type": ["int", "null"], "doc": "a count"},
                {"name": "tm", "type": {"type": "long", "logicalType": "time-micros"}},
                {"name": "b", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}},
                {"name": "e2", "type": ["null", "E"], "default": None},
                {"name": "odd", "type": {"type": "int", "logicalType": "no-such-thing"}},
            ],
        }
    )  # fmt: skip
    schema = avro_to_arrow(text)
    assert [str(field.type) for field in schema] == [
        "string", "fixed_size_binary[3]", "string", "timestamp[us, tz=UTC]", "timestamp[us]", "int32", "time64[us]",
        "decimal128(4, 1)", "string", "int32",
    ]  # fmt: skip
    assert [field.nullable for field in schema] == [False, True, False, False, False, True, False, False, True, False]
    assert schema.field("t").metadata == {b"comment": b"a count"}
    # One more column: the others keep their own names and types, and a name stays printed once.
    grown = json.loads(arrow_to_avro(schema.append(pa.field("new", pa.int64())), "t", text))
    assert grown["name"] == "r"
    assert grown["fields"][0]["type"]["name"] == "E"
    assert grown["fields"][8]["type"] == ["null", "n.E"]
    assert grown["fields"][1]["type"][1] == {"type": "fixed", "name": "fx", "size": 3}
    assert grown["fields"][5] == {"name": "t", "type": ["int", "null"], "doc": "a count"}
    assert avro_to_arrow(json.dumps(grown)).names == [*schema.names, "new"]


@pytest.mark.parametrize(
    "type_",
    [
        ["null", "int", "string"],
        "null",
        {"type": "array", "items": ["int", "long"]},
        {"type": "fixed", "name": "d", "size": 20, "logicalType": "decimal", "precision": 40},
        {"type": "record", "name": "x", "fields": [{"name": "next", "type": ["null", "x"]}]},
    ],
)
def test_avro_that_is_not_built_is_refused(type_: object) -> None:
    with pytest.raises(Unsupported):
        avro_to_arrow(json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": type_}]}))


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '"int"', "5", '{"type":"record","name":"r"}', '{"type":"record","fields":[]}',
        '{"type":"record","name":"r","fields":[{"name":"a"}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":"no.such"}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array"}}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"fixed","name":"f"}}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"bytes","logicalType":"decimal"}}]}',
    ],
)  # fmt: skip
def test_text_that_is_no_schema_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptData):
        avro_to_arrow(text)


@given(SCHEMAS, st.data())
def test_a_damaged_schema_text_gives_a_schema_or_one_of_two_errors(schema: pa.Schema, data: st.DataObject) -> None:
    text = arrow_to_avro(schema, "t")
    position = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:position] + data.draw(st.sampled_from(['"', "{", "null", "1", ""])) + text[position + 1 :]
    for candidate in (damaged, text[:position]):
        try:
            avro_to_arrow(candidate)
        except (CorruptData, Unsupported):
            pass


def test_table_names_are_sanitized() -> None:
    assert sanitized_name("trips") == "trips"
    assert sanitized_name("é") == "__"
    with pytest.raises(InvalidRequest):
        sanitized_name("")


def test_column_names_that_avro_forbids_are_refused() -> None:
    for name in ("a b", "1a", "", "a.b", "a-b"):
        with pytest.raises(InvalidRequest):
            arrow_to_avro(pa.schema([(name, pa.int32())]), "t")


# --- meta columns and lookup


def test_meta_columns_come_first_and_go() -> None:
    schema = pa.schema([("id", pa.int64()), ("_hoodie_record_key", pa.string()), ("v", pa.string())])
    full = with_meta_fields(schema)
    assert full.names == [*META_FIELDS, "id", "v"]
    assert with_meta_fields(full, operation_field=True).names == [*META_FIELDS, "_hoodie_operation", "id", "v"]
    assert without_meta_fields(full).names == ["id", "v"]
    batch = pa.record_batch({"id": [1], "_hoodie_file_name": ["x"]})
    assert without_meta_fields(batch).schema.names == ["id"]
    assert without_meta_fields(pa.table({"_hoodie_operation": ["I"], "id": [1]})).column_names == ["id"]
    assert is_meta_field("_hoodie_commit_time") and not is_meta_field("_hoodie_other")


def test_dotted_names_select_nested_columns() -> None:
    batch = pa.record_batch({"s": pa.array([{"a": 1}, None, {"a": None}]), "c": pa.array(["x", "y", None]).dictionary_encode()})
    assert column_at(batch, "s.a").to_pylist() == [1, None, None]
    assert column_at(batch, "c").type == pa.string()
    table = pa.Table.from_batches([batch, batch])
    assert column_at(table, "s.a").to_pylist() == [1, None, None] * 2
    assert column_at(table, "c").type == pa.string()
    assert field_at(batch.schema, "s.a").name == "s.a"
    with pytest.raises(InvalidRequest, match=r"did you mean 's\.a'"):
        field_at(batch.schema, "s.A")
    with pytest.raises(InvalidRequest, match="not a struct"):
        field_at(batch.schema, "c.x")


# --- normalize_types


def test_layouts_and_widths_become_canonical() -> None:
    cases = {
        pa.large_string(): pa.string(),
        pa.string_view(): pa.string(),
        pa.dictionary(pa.int8(), pa.large_string()): pa.string(),
        pa.run_end_encoded(pa.int32(), pa.int16()): pa.int32(),
        pa.large_binary(): pa.binary(),
        pa.binary_view(): pa.binary(),
        pa.binary(4): pa.binary(),
        pa.int8(): pa.int32(),
        pa.uint8(): pa.int32(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.float16(): pa.float32(),
        pa.date64(): pa.date32(),
        pa.timestamp("ns"): pa.timestamp("us"),
        pa.timestamp("ns", "UTC"): TIMESTAMP,
        pa.timestamp("s", "Asia/Tokyo"): TIMESTAMP,
        pa.large_list(pa.int8()): pa.list_(pa.int32()),
        pa.list_(pa.int8(), 2): pa.list_(pa.int32()),
        pa.list_view(pa.string_view()): pa.list_(pa.string()),
        pa.map_(pa.large_string(), pa.int8()): pa.map_(pa.string(), pa.int32()),
        pa.struct([("a", pa.uint32())]): pa.struct([("a", pa.int64())]),
    }
    if hasattr(pa, "decimal32"):  # PyArrow has them since 19
        decimals = {pa.decimal32(5, 2): pa.decimal128(5, 2), pa.decimal64(12, 2): pa.decimal128(12, 2)}
        cases |= {**decimals, pa.json_(): pa.string()}
    for given_, expected in cases.items():
        found = normalize_types(pa.schema([pa.field("c", given_, False, metadata={"comment": "why", "other": "x"})]))
        assert found.field("c").type == expected, given_
        assert not found.field("c").nullable
        assert found.field("c").metadata == {b"comment": b"why"}
    assert normalize_types(pa.schema([("l", pa.list_(pa.int32()))])).field("l").type.value_field.name == "element"


@pytest.mark.parametrize(
    ("type_", "hint"),
    [
        (pa.uint64(), "unsigned"),
        (pa.null(), "no type"),
        (pa.decimal256(50, 2), "38 digits"),
        (pa.decimal128(5, -1), "scale"),
        (pa.time64("us"), "time-of-day"),
        (pa.duration("s"), "duration type"),
        (pa.month_day_nano_interval(), "duration type"),
        (pa.uuid(), "storage type"),
        (pa.map_(pa.int32(), pa.int32()), "keys of a map"),
        (pa.struct([]), "at least one"),
        (pa.list_(pa.struct([("x", pa.uint64())])), r"c\[\].x"),
        (pa.dense_union([pa.field("a", pa.int32())]), "no such type"),
    ],
)
def test_types_that_hudi_cannot_hold_are_refused_with_a_hint(type_: pa.DataType, hint: str) -> None:
    with pytest.raises(InvalidRequest, match=hint):
        normalize_types(pa.schema([("ok", pa.int32()), ("c", type_)]))


def test_all_problems_are_named_at_once() -> None:
    schema = pa.schema([("a", pa.null()), ("b", pa.uint64()), ("a", pa.int32()), ("B", pa.int32()), ("c d", pa.int32())])
    with pytest.raises(InvalidRequest) as caught:
        normalize_types(schema)
    lines = str(caught.value).splitlines()
    assert len(lines) == 6
    assert "two columns of this name" in lines[1] and "only in case" in lines[2]


# --- evolve

KIND = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "ts": TIMESTAMP,
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "dec": pa.decimal128(10, 2),
    "wide": pa.decimal128(20, 4),
}


def evolved(table: str, incoming: str, mode: SchemaMode) -> pa.DataType | None:
    try:
        return evolve(pa.schema([("v", KIND[table])]), pa.schema([("v", KIND[incoming])]), mode).field("v").type
    except InvalidRequest:
        return None


@pytest.mark.parametrize(
    ("table", "incoming", "result"),
    [
        ("int", "long", "long"), ("int", "float", "float"), ("int", "double", "double"), ("int", "string", "string"),
        ("long", "float", "float"), ("long", "double", "double"), ("long", "string", "string"),
        ("float", "double", "double"), ("float", "string", "string"), ("double", "string", "string"),
        ("long", "int", "long"), ("float", "int", "float"), ("double", "int", "double"), ("string", "int", "string"),
        ("float", "long", "float"), ("double", "long", "double"), ("string", "long", "string"),
        ("double", "float", "double"), ("string", "float", "string"), ("string", "double", "string"),
        ("string", "date", "string"), ("string", "dec", "string"), ("dec", "string", "dec"), ("date", "string", "date"),
        ("wide", "dec", "wide"), ("dec", "int", "dec"), ("dec", "long", "dec"),
        ("int", "dec", None), ("long", "dec", None), ("dec", "wide", "dec"), ("dec", "double", "dec"),
        ("double", "dec", "double"),
        ("date", "ts", None), ("ts", "date", None), ("ts", "long", None), ("long", "ts", None), ("string", "ts", None),
        ("binary", "string", None), ("string", "binary", None), ("bool", "string", None), ("int", "bool", None),
        ("string", "bool", None), ("date", "int", None), ("int", "date", None), ("ts", "string", None),
    ],
)  # fmt: skip
def test_types_evolve_as_both_readers_understand(table: str, incoming: str, result: str | None) -> None:
    assert evolved(table, incoming, SchemaMode.EVOLVE) == (None if result is None else KIND[result])
    # What changes no column, and what loses nothing, needs no leave.
    kept = result if result == table else None
    lossless = {("int", "long"), ("int", "double"), ("float", "double")}
    widened = incoming if (table, incoming) in lossless else kept
    assert evolved(table, incoming, SchemaMode.WIDEN) == (None if widened is None else KIND[widened])
    assert evolved(table, incoming, SchemaMode.STRICT) == (None if kept is None else KIND[kept])


def test_strict_keeps_columns_and_what_may_be_null() -> None:
    table = pa.schema([pa.field("a", pa.int64(), False), pa.field("s", pa.struct([pa.field("x", pa.int64(), False)]))])
    same = pa.schema([("s", pa.struct([("x", pa.int32())])), ("a", pa.int32())])
    assert evolve(table, same, SchemaMode.STRICT).equals(table)
    nested = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    for more in (pa.schema([*same, ("b", pa.int32())]), pa.schema([("s", nested), same.field("a")])):
        with pytest.raises(InvalidRequest, match="schema mode strict"):
            evolve(table, more, SchemaMode.STRICT)


def test_fixed_columns_keep_their_type_in_every_mode() -> None:
    table = pa.schema([("k", pa.int32()), ("s", pa.struct([("t", pa.int64())])), ("text", pa.string()), ("d", pa.float64())])
    fixed = {"k": "a record key field", "s.t": "the ordering field", "text": "a partition field", "d": "a record key field"}
    for wider in ({"k": pa.float64()}, {"k": pa.string()}, {"s": pa.struct([("t", pa.float64())])}, {"d": pa.string()}):
        incoming = pa.schema([field.with_type(wider.get(field.name, field.type)) for field in table])
        for mode in SchemaMode:
            with pytest.raises(InvalidRequest, match="whose type cannot change"):
                evolve(table, incoming, mode, fixed=fixed)
    narrow = {"k": pa.int64(), "s": pa.struct([("t", pa.int32())]), "text": pa.int64(), "d": pa.int32()}
    incoming = pa.schema([field.with_type(narrow[field.name]) for field in table])
    assert evolve(table, incoming, fixed=fixed).equals(table)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.date32(), TIMESTAMP, pa.bool_(), pa.decimal128(4, 1)], ids=str)
@pytest.mark.parametrize("mode", SchemaMode)
def test_text_of_a_fixed_column_takes_no_dates_and_no_numbers_but_integers(kind: pa.DataType, mode: SchemaMode) -> None:
    table, fixed = pa.schema([("k", pa.string())]), {"k": "a record key field"}
    with pytest.raises(InvalidRequest, match="cast the column to the table's type") as refused:
        evolve(table, pa.schema([("k", kind)]), mode, fixed=fixed)
    assert ('astype("Int64").astype("string")' in str(refused.value)) == pa.types.is_floating(kind)
    assert evolve(table, pa.schema([("k", pa.dictionary(pa.int8(), pa.int16()))]), mode, fixed=fixed) == table


def test_missing_column_is_named_with_a_remedy_that_works() -> None:
    table = pa.schema([("k", pa.string()), ("s", pa.struct([("t", pa.int64())])), ("v", pa.int64())])
    fixed = {"s.t": "the ordering field", "k": "a record key field"}
    with pytest.raises(InvalidRequest) as refused:
        evolve(table, pa.schema([("other", pa.int64())]), fixed=fixed)
    by_column = {line.split()[0]: line for line in str(refused.value).splitlines()[2:]}
    assert by_column["k"].endswith("'k' is a record key field: add it to the data")
    assert by_column["s"].endswith("'s.t' is the ordering field: add it to the data")
    assert "set.null.for.missing.columns=true" in by_column["v"] and "missing_columns=" in by_column["v"]


def test_schema_changes_are_listed() -> None:
    old, new = pa.struct([("x", pa.float32()), ("y", pa.int32())]), pa.struct([("x", pa.float64()), ("z", pa.date32())])
    before = pa.schema([pa.field("a", pa.int32(), False), ("s", old), ("b", pa.int32())])
    after = pa.schema([("a", pa.int64()), ("s", new), ("c", pa.string())])
    assert schema_changes(before, after) == (
        "a was int32 and is int64", "a may be null", "s.x was float and is double", "s.z date32[day] is new", "s.y is dropped",
        "c string is new", "b is dropped",
    )  # fmt: skip
    assert schema_changes(before, before) == ()


def test_numbers_that_would_be_rounded_are_refused() -> None:
    fits, large = [1, 2**53, -(2**53), 2**53 + 2, None], [*[1] * 3, 2**53 + 1]
    shapes: list[tuple[Callable[[Any], pa.Array], Callable[[pa.DataType], pa.DataType]]] = [
        (lambda v: pa.array(v, pa.int64()), lambda t: t),
        (lambda v: pa.array(v, pa.int64()).dictionary_encode(), lambda t: t),
        (lambda v: pa.array([{"x": n} for n in v]), lambda t: pa.struct([("x", t)])),
        (lambda v: pa.array([None, v]), lambda t: pa.list_(t)),
        (lambda v: pa.array([[("k", n)] for n in v], pa.map_(pa.string(), pa.int64())), lambda t: pa.map_(pa.string(), t)),
    ]
    for build, kind in shapes:
        target = pa.schema([("v", kind(pa.float64()))])
        refuse_rounding(pa.record_batch({"v": build(fits)}), target)
        with pytest.raises(InvalidRequest, match="9007199254740993 cannot be stored as double"):
            refuse_rounding(pa.record_batch({"v": build(large)}), target)
    narrow = pa.record_batch({"v": pa.array([2**24 + 1], pa.int32())})
    refuse_rounding(narrow, pa.schema([("v", pa.float64())]))
    for value, width in ((2**24 + 1, pa.int32()), (2**63 - 1, pa.int64())):
        with pytest.raises(InvalidRequest, match="without rounding"):
            refuse_rounding(pa.record_batch({"v": pa.array([value], width)}), pa.schema([("v", pa.float32())]))


def test_column_of_only_nulls_takes_the_table_type() -> None:
    table = pa.schema([("a", pa.int64()), ("b", pa.string())])
    incoming = pa.schema([("a", pa.null()), ("b", pa.string()), ("c", pa.null())])
    assert typed_nulls(incoming, table).types == [pa.int64(), pa.string(), pa.null()]


def test_nulls_at_any_depth_take_the_tables_type() -> None:
    struct = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    table = pa.schema([("s", struct), ("l", pa.list_(struct)), ("m", pa.map_(pa.string(), struct)), ("t", pa.string())])
    untyped = pa.struct([("y", pa.list_(pa.null())), ("x", pa.null()), ("new", pa.null())])
    typed = pa.struct([("y", pa.list_(pa.string())), ("x", pa.int64()), ("new", pa.null())])
    incoming = pa.schema(
        [("s", untyped), ("l", pa.large_list(untyped)), ("m", pa.map_(pa.string(), untyped)), ("t", pa.list_(pa.null()))]
    )
    assert typed_nulls(incoming, table).types == [
        typed,
        pa.list_(typed),
        pa.map_(pa.string(), typed),
        pa.list_(pa.null()),
    ]
    dictionary = pa.schema([("t", pa.dictionary(pa.int32(), pa.null()))])
    assert typed_nulls(dictionary, table).types == [pa.string()]


def test_new_table_takes_the_normalized_schema() -> None:
    assert evolve(None, pa.schema([pa.field("a", pa.int8(), False)])).equals(pa.schema([pa.field("a", pa.int32(), False)]))


def test_order_new_columns_and_nullability() -> None:
    table = pa.schema([pa.field("a", pa.int32(), False), pa.field("b", pa.string(), False), pa.field("c", pa.int64())])
    incoming = pa.schema(
        [pa.field("n", pa.int8(), False), pa.field("c", pa.int64(), False), ("b", pa.string()), pa.field("a", pa.int32(), False)]
    )
    result = evolve(table, incoming)
    assert result.names == ["a", "b", "c", "n"]
    assert [field.nullable for field in result] == [False, False, True, True]
    for mode in (SchemaMode.WIDEN, SchemaMode.EVOLVE):
        assert [field.nullable for field in evolve(table, incoming, mode)] == [False, True, True, True]
        assert not evolve(table, incoming, mode, fixed={"b": "a record key field"}).field("b").nullable
    assert result.field("n").type == pa.int32()


def test_nested_columns_evolve_field_by_field() -> None:
    table = pa.schema(
        [
            ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
            ("l", pa.list_(pa.struct([("x", pa.int32())]))),
            ("m", pa.map_(pa.string(), pa.float32())),
        ]
    )
    incoming = pa.schema(
        [
            ("s", pa.struct([("new", pa.int32()), ("y", pa.string()), ("x", pa.int64())])),
            ("l", pa.list_(pa.struct([("x", pa.int32()), ("z", pa.date32())]))),
            ("m", pa.map_(pa.string(), pa.float64())),
        ]
    )
    result = evolve(table, incoming)
    assert result.field("s").type == pa.struct([("x", pa.int64()), ("y", pa.string()), ("new", pa.int32())])
    assert result.field("l").type == pa.list_(pa.struct([("x", pa.int32()), ("z", pa.date32())]))
    assert result.field("m").type == pa.map_(pa.string(), pa.float64())


def test_missing_columns_need_an_option() -> None:
    table = pa.schema(
        [("a", pa.int32()), pa.field("s", pa.struct([("x", pa.int32()), ("y", pa.int32())])), pa.field("b", pa.int32(), False)]
    )
    incoming = pa.schema([("a", pa.int32()), ("s", pa.struct([("x", pa.int32())]))])
    with pytest.raises(InvalidRequest) as caught:
        evolve(table, incoming)
    text = str(caught.value)
    assert "s.y" in text and "hoodie.write.set.null.for.missing.columns" in text and "column.drop" in text
    with pytest.raises(InvalidRequest, match=r"b .*may not be null: pass values for it, or set pyhudi\.schema\.mode=widen"):
        evolve(table, incoming, null_for_missing=True)
    assert evolve(table, incoming, partial=True).equals(table)
    kept = evolve(table, incoming, SchemaMode.WIDEN, null_for_missing=True)
    assert kept.names == ["a", "s", "b"] and kept.field("b").nullable
    assert evolve(table, incoming, SchemaMode.WIDEN, null_for_missing=True, allow_drop=True).equals(kept)
    dropped = evolve(table, incoming, allow_drop=True)
    assert dropped.names == ["a", "s"] and dropped.field("s").type == pa.struct([("x", pa.int32())])


def test_a_name_of_another_case_is_refused() -> None:
    table = pa.schema([("v", pa.int32())])
    allowed: tuple[dict[str, Any], ...] = ({}, {"null_for_missing": True}, {"allow_drop": True})
    for options in allowed:
        with pytest.raises(InvalidRequest, match="case sensitive"):
            evolve(table, pa.schema([("V", pa.int32())]), **options)


def test_every_difference_is_listed() -> None:
    table = pa.schema([("a", TIMESTAMP), ("b", pa.decimal128(10, 2)), ("c", pa.int32())])
    with pytest.raises(InvalidRequest) as caught:
        evolve(table, pa.schema([("a", pa.int64()), ("b", pa.date32()), ("d", pa.int32())]))
    lines = str(caught.value).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["a", "b", "c"]


# --- conform


def test_a_batch_that_fits_is_not_copied() -> None:
    batch = pa.record_batch({"a": pa.array([1, 2]), "s": pa.array([{"x": 1}, None])})
    assert conform(batch, batch.schema) is batch
    required = pa.schema([pa.field("a", pa.int64(), False), batch.schema.field("s")])
    out = conform(batch, required)
    assert out.schema.equals(required)
    assert out.column("a").buffers()[1].address == batch.column("a").buffers()[1].address


@pytest.mark.parametrize(
    ("array", "target", "expected"),
    [
        (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
        (pa.array([2**53 + 1]), pa.float64(), [2.0**53]),
        (pa.array([1], pa.int32()), pa.string(), ["1"]),
        (pa.array([1.0, 1e20, None]), pa.string(), ["1.0", "1.0E20", None]),
        (pa.array([0.1], pa.float32()), pa.float64(), [0.1]),
        (pa.array([0.1], pa.float32()), pa.string(), ["0.1"]),
        (pa.array([19849], pa.int32()).cast(pa.date32()), pa.string(), ["2024-05-06"]),
        (pa.array([Decimal("1.50")]), pa.string(), ["1.50"]),
        (pa.array(["1.5", None]), pa.decimal128(10, 2), [Decimal("1.50"), None]),
        (pa.array([7], pa.int64()), pa.decimal128(10, 2), [Decimal("7.00")]),
        (pa.array([Decimal("1.5")], pa.decimal128(3, 1)), pa.decimal128(10, 2), [Decimal("1.50")]),
        (pa.array([1999, -1], pa.timestamp("ns")), TIMESTAMP, [1, -1]),
        (pa.array([1], pa.timestamp("s", "Asia/Tokyo")), TIMESTAMP, [1_000_000]),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"]),
        (pa.array([None, None]), pa.int64(), [None, None]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array([[1, None], None], pa.large_list(pa.int8())), pa.list_(pa.int64()), [[1, None], None]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), pa.list_(pa.string()), [["1", "2"], None]),
        (
            pa.array([[("k", 1)], None], pa.map_(pa.large_string(), pa.int8())),
            pa.map_(pa.string(), pa.int64()),
            [[("k", 1)], None],
        ),
    ],
)
def test_values_are_cast(array: pa.Array, target: pa.DataType, expected: list[object]) -> None:
    for padded in (array, pa.concat_arrays([array, array]).slice(len(array))):
        out = conform(pa.record_batch({"c": padded}), pa.schema([("c", target)])).column("c")
        out.validate(full=True)
        assert out.type == target
        assert (out.cast(pa.int64()) if pa.types.is_timestamp(target) else out).to_pylist() == expected


@pytest.mark.parametrize(
    ("array", "target"),
    [
        (pa.array([2**40]), pa.int32()),
        (pa.array([1]), TIMESTAMP),
        (pa.array([1]).cast(TIMESTAMP), pa.int64()),
        (pa.array(["x"]), pa.binary()),
        (pa.array([b"x"]), pa.string()),
        (pa.array(["x"]), pa.decimal128(5, 1)),
        (pa.array(["2024-1-1"]), pa.date32()),
        (pa.array([True]), pa.string()),
        (pa.array([10**9]), pa.decimal128(5, 1)),
        (pa.array([[1]]), pa.int64()),
        (pa.array([1.5]), pa.int64()),
    ],
)
def test_values_that_cannot_be_cast_are_refused(array: pa.Array, target: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match="'c'"):
        conform(pa.record_batch({"c": array}), pa.schema([("c", target)]))


def test_columns_are_ordered_filled_and_left_out() -> None:
    batch = pa.record_batch({"b": [1, 2], "extra": ["x", "y"], "s": [{"y": 1}, None]})
    target = pa.schema(
        [("s", pa.struct([("x", pa.string()), ("y", pa.int64())])), ("n", pa.list_(pa.int32())), ("b", pa.int64())]
    )
    assert conform(batch, target).to_pylist() == [{"s": {"x": None, "y": 1}, "n": None, "b": 1}, {"s": None, "n": None, "b": 2}]


def test_null_in_a_required_column_is_rejected() -> None:
    required = pa.schema([pa.field("a", pa.int64(), False)])
    with pytest.raises(InvalidRequest, match="row 1"):
        conform(pa.record_batch({"a": [1, None]}), required)
    with pytest.raises(InvalidRequest, match="missing"):
        conform(pa.record_batch({"b": [1]}), required)
    nested = pa.schema([("s", pa.struct([pa.field("x", pa.int64(), False)]))])
    with pytest.raises(InvalidRequest, match=r"s\.x"):
        conform(pa.record_batch({"s": pa.array([None, {"x": None}])}), nested)
    with pytest.raises(InvalidRequest, match=r"s\.x"):
        conform(pa.record_batch({"s": pa.array([{"y": 1}])}), nested)
    # A field is required only if its struct exists.
    assert conform(pa.record_batch({"s": pa.array([None, {"x": 1}])}), nested).to_pylist() == [{"s": None}, {"s": {"x": 1}}]
    items = pa.schema([("l", pa.list_(pa.field("element", pa.int64(), False)))])
    with pytest.raises(InvalidRequest, match=r"l\[\]"):
        conform(pa.record_batch({"l": pa.array([[1], [None]])}), items)
    assert conform(pa.record_batch({"l": pa.array([[None], [1]]).slice(1)}), items).to_pylist() == [{"l": [1]}]


@given(SCHEMAS, SCHEMAS)
def test_rows_conform_to_their_evolved_schema(table: pa.Schema, incoming: pa.Schema) -> None:
    try:
        target = evolve(table, incoming, SchemaMode.EVOLVE, null_for_missing=True)
    except InvalidRequest:
        return
    for schema in (table, incoming):
        empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        out = conform(empty, target)
        out.validate(full=True)
        assert out.schema.equals(target)


# ---------------------------------------------------------------------------------------------------------------------
# Relabelling


POINT = pa.struct([pa.field("x", pa.int64(), False)])
LOOSE_POINT = pa.struct([pa.field("x", pa.int64())])


def absent_points(kind: pa.DataType) -> pa.Array:
    """A point, and one that is null and whose field is marked as null too."""
    return pa.array([{"x": 1}], kind).take(pa.array([0, None]))


@pytest.mark.parametrize("kind", [POINT, LOOSE_POINT])
@pytest.mark.parametrize(
    "around",
    [
        lambda kind: kind,
        lambda kind: pa.struct([pa.field("point", kind)]),
        lambda kind: pa.list_(pa.field("element", kind)),
        lambda kind: pa.map_(pa.string(), kind),
    ],
)
def test_relabelling_takes_marks_of_null_from_required_fields_of_what_is_null(
    kind: pa.DataType, around: Callable[[pa.DataType], pa.DataType]
) -> None:
    points = absent_points(kind)
    source, target = around(kind), around(POINT)
    if pa.types.is_list(source):
        values = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), points, type=source)
    elif pa.types.is_map(source):
        values = pa.MapArray.from_arrays(pa.array([0, 2, 2], pa.int32()), pa.array(["a", "b"]), points, type=source)
    else:
        values = points if source == kind else pa.StructArray.from_arrays([points], fields=list(source))
    rows = pa.table({"id": ["a", "b"], "v": values})
    schema = pa.schema([pa.field("id", pa.string(), False), pa.field("v", target)])
    for part in (rows, rows.slice(1), rows.slice(0, 1)):
        result = relabel(part, schema)
        assert result.schema.equals(schema)
        assert result.to_pylist() == part.to_pylist()
        pq.write_table(result, pa.BufferOutputStream())
        assert relabel(result, rows.schema).to_pylist() == part.to_pylist()


def test_relabelling_casts_nothing_and_keeps_what_is_required() -> None:
    rows = pa.table({"v": pa.array([1, None], pa.int32())})
    with pytest.raises(Internal, match="int32 cannot be relabeled as int64"):
        relabel(rows, pa.schema([("v", pa.int64())]))
    with pytest.raises(Internal, match="columns v cannot be relabeled as w"):
        relabel(rows, pa.schema([("w", pa.int32())]))
    with pytest.raises(InvalidRequest, match="'v' may not be null: row 1"):
        relabel(rows, pa.schema([pa.field("v", pa.int32(), False)]))
    points = pa.table({"v": pa.array([{"x": None}], LOOSE_POINT)})
    with pytest.raises(InvalidRequest, match=r"'v\.x' may not be null: row 0"):
        relabel(points, pa.schema([("v", POINT)]))


def test_items_of_a_list_that_is_null_may_be_null() -> None:
    items = pa.array([1, None, None, 2])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), items, mask=pa.array([False, True, False]))
    target = pa.list_(pa.field("element", pa.int64(), False))
    assert relabel(pa.table({"v": lists}), pa.schema([("v", target)])).column("v").to_pylist() == [[1], None, [2]]


@pytest.mark.parametrize("text", [pa.string(), pa.string_view()])
@pytest.mark.parametrize("start", [0, 1])
def test_items_of_null_lists_and_maps_are_dropped(text: pa.DataType, start: int) -> None:
    offsets, is_null = pa.array([0, 2, 3, 4], pa.int32()), pa.array([False, True, False])
    letters = pa.array(["a", "b", "c", "d"], text)
    for array in (
        pa.ListArray.from_arrays(offsets, letters, mask=is_null),
        pa.MapArray.from_arrays(offsets, letters, letters, mask=is_null),
    ):
        rows = array.slice(start)
        unshared = unshared_items(rows)
        unshared.validate(full=True)
        assert (unshared.to_pylist(), unshared.type) == (rows.to_pylist(), rows.type)
        assert len(unshared.values) == [3, 1][start]


def test_map_with_other_names_of_its_entries_keeps_its_stored_schema() -> None:
    stored = {
        "type": "record",
        "name": "t_record",
        "namespace": "hoodie.t",
        "fields": [
            {
                "name": "m",
                "type": ["null", {"type": "map", "values": {"type": "string", "avro.java.string": "String"}}],
                "default": None,
                "doc": "kept",
                "aliases": ["old"],
            }
        ],
    }
    map_type = pa.map_(pa.field("keys", pa.string(), False), pa.field("values", pa.string(), False))
    schema = pa.schema([pa.field("m", map_type, metadata={"comment": "kept"})])
    assert json.loads(arrow_to_avro(schema, "t", previous=json.dumps(stored)))["fields"] == stored["fields"]
