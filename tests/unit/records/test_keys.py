from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, TableState, Unsupported
from pyhudi.options.table_options import TIME_PREFIXES
from pyhudi.records.keys.key_spec import (
    KeyGenerator,
    KeySpec,
    PartitionField,
    PartitionFieldType,
    infer_key_generator,
    partition_columns,
    path_valued_columns,
)
from pyhudi.records.keys.partition_paths import (
    decode_partition_value,
    encode_partition_value,
    parse_partition_path,
    partition_paths,
    partition_value,
)
from pyhudi.records.keys.record_keys import auto_record_keys, record_keys, split_record_keys
from pyhudi.records.keys.timestamp_key_rule import TimeRule, TimeType

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def spec(keys: str, parts: str = "", generator: str | None = None, **options: Any) -> KeySpec:
    return KeySpec.for_fields([k for k in keys.split(",") if k], [p for p in parts.split(",") if p], generator, **options)


def keys_of(key_spec: KeySpec, **columns: Any) -> list[str]:
    return list(record_keys(key_spec, pa.record_batch(columns)).to_pylist())


def paths_of(key_spec: KeySpec, **columns: Any) -> list[str]:
    return list(partition_paths(key_spec, pa.record_batch(columns)).to_pylist())


# --- record keys


def test_a_single_key_is_the_value() -> None:
    assert keys_of(spec("id", "p"), id=[1, 2]) == ["1", "2"]
    assert keys_of(spec("id"), id=["é", "a:1,b:2"]) == ["é", "a:1,b:2"]
    assert keys_of(spec("s.a"), s=[{"a": 5}]) == ["5"]
    assert keys_of(spec("id"), id=pa.array(["x", "y"]).dictionary_encode()) == ["x", "y"]


def test_a_composite_key_names_its_fields() -> None:
    columns = {"id": ["r1", None, ""], "x": ["y z", "1", "2"], "w": ["%&{}é", "3", "4"]}
    expected = ["id:r1,x:y z,w:%&{}é", "id:__null__,x:1,w:3", "id:__empty__,x:2,w:4"]
    assert keys_of(spec("id,x,w", "p"), **columns) == expected
    assert keys_of(spec("id,x,w"), **columns) == expected
    assert keys_of(spec("s.a,n"), s=[{"a": 5}, None], n=[1, 2]) == ["s.a:5,n:1", "s.a:__null__,n:2"]


def test_single_key_field_is_prefixed_when_configured() -> None:
    assert keys_of(spec("id", "", "GLOBAL_DELETE"), id=[1]) == ["id:1"]
    assert keys_of(KeySpec(KeyGenerator.COMPLEX, ("id",), (PartitionField("p"),), prefix_single_key=True), id=[1]) == ["id:1"]


@pytest.mark.parametrize(("ids", "row"), [([1, None], 1), (["a", ""], 1), ([None], 0)])
def test_a_row_without_a_key_is_refused_by_number(ids: list[Any], row: int) -> None:
    with pytest.raises(InvalidRequest, match=f"'id' is .* in row {row} "):
        keys_of(spec("id"), id=pa.array(ids, pa.string() if ids == [None] else None))


def test_a_composite_key_needs_one_part() -> None:
    with pytest.raises(InvalidRequest, match="all null or empty in row 1"):
        keys_of(spec("a,b"), a=["x", None], b=["", ""])


def test_key_columns_must_be_there_and_have_a_text() -> None:
    with pytest.raises(InvalidRequest, match="did you mean 'uuid'"):
        keys_of(spec("uid"), uuid=["1"])
    with pytest.raises(InvalidRequest, match="record key field"):
        keys_of(spec("l"), l=[[1]])
    with pytest.raises(InvalidRequest, match="generated"):
        keys_of(spec(""), id=[1])


def test_timestamps_in_keys() -> None:
    times = pa.array([1714979289123456, 1714979289000000, None, -1]).cast(pa.timestamp("us", "UTC"))
    assert keys_of(spec("t,id"), t=times, id=[1, 2, 3, 4])[:3] == [
        "t:1714979289123456,id:1",
        "t:1714979289000000,id:2",
        "t:__null__,id:3",
    ]
    consistent = KeySpec(KeyGenerator.NON_PARTITION, ("t", "id"), consistent_timestamps=True, timestamp_zone="Asia/Tokyo")
    assert keys_of(consistent, t=times, id=[1, 2, 3, 4]) == [
        "t:2024-05-06 16:08:09.123,id:1", "t:2024-05-06 16:08:09.0,id:2", "t:__null__,id:3", "t:1970-01-01 09:00:00.0,id:4",
    ]  # fmt: skip


def test_generated_keys() -> None:
    assert auto_record_keys("20240506070809123", 3, 10, 2).to_pylist() == ["20240506070809123_3_10", "20240506070809123_3_11"]


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("plain", [(None, "plain")]),
        ("a:1", [(None, "a:1")]),
        ("a,b", [(None, "a,b")]),
        ("a:1,b:2", [("a", "1"), ("b", "2")]),
        ("a:1,2,b:x:y", [("a", "1,2"), ("b", "x:y")]),
        ("a:__null__,b:__empty__", [("a", None), ("b", "")]),
        ("a:\n1,b:", [("a", "\n1"), ("b", "")]),
        ("a:\x001,b:2", [("a", "\x001"), ("b", "2")]),
        ("a:1:2,b:3,4", [("a", "1:2"), ("b", "3,4")]),
        ("a:1,b:2,", [("a", "1"), ("b", "2,")]),
        (",a:1,b:2", [(",a", "1"), ("b", "2")]),
        ("x,y:z", [("x,y", "z")]),
        ("a:,b:", [("a", ""), ("b", "")]),
    ],
)
def test_composite_keys_are_split(key: str, parts: list[tuple[str | None, str | None]]) -> None:
    found = split_record_keys(pa.array([None, key, "x"]).slice(1)).to_pylist()
    assert [(part["name"], part["value"]) for part in found[0]] == parts
    assert found[1] == [{"name": None, "value": "x"}]
    assert split_record_keys(pa.array(["z", key, key]).slice(1)).to_pylist() == [found[0]] * 2


SAFE = st.text(st.characters(blacklist_characters=",:", blacklist_categories=["Cs"]), min_size=1)


@given(st.lists(st.tuples(SAFE | st.none(), st.integers()), min_size=1))
def test_splitting_undoes_joining(rows: list[tuple[str | None, int]]) -> None:
    names = pa.array([name for name, _ in rows], pa.string())
    numbers = pa.array([str(number) for _, number in rows])
    keys = record_keys(spec("a,b"), pa.record_batch({"a": names, "b": numbers}))
    found = [[part["value"] for part in parts] for parts in split_record_keys(keys).to_pylist()]
    assert found == [[name, str(number)] for name, number in rows]


# --- partition paths


def test_paths_of_one_and_more_fields() -> None:
    assert paths_of(spec("id"), id=[1, 2]) == ["", ""]
    assert paths_of(spec("id", "p"), p=["a", "b/c", "", None]) == ["a", "b/c", HIVE_NULL, HIVE_NULL]
    assert paths_of(spec("id", "p", hive_style=True), p=["a", None]) == ["p=a", f"p={HIVE_NULL}"]
    assert paths_of(spec("id", "p,s.q"), p=["a", None, "a"], s=[{"q": 1}, {"q": 2}, None]) == [
        "a/1",
        f"{HIVE_NULL}/2",
        f"a/{HIVE_NULL}",
    ]
    assert paths_of(spec("id", "p,q", hive_style=True, url_encode=True), p=["x/y"], q=[1.0]) == ["p=x%2Fy/q=1.0"]
    assert paths_of(spec("id", "d"), d=[date(2024, 5, 6)]) == ["2024-05-06"]
    assert paths_of(spec("id", "b"), b=[True, False]) == ["true", "false"]
    assert paths_of(spec("id", "d"), d=[Decimal("1.50")]) == ["1.50"]
    assert partition_paths(spec("id", "p"), pa.record_batch({"p": pa.array([], pa.string())})).to_pylist() == []


@pytest.mark.parametrize("value", ["..", "a/../b", ".", "/a", "a/", "a//b", "a:b", ".hoodie", ".hoodie/x", "s3://x"])
def test_paths_that_no_store_holds_are_refused(value: str) -> None:
    with pytest.raises(InvalidRequest, match="row 1 "):
        paths_of(spec("id", "p"), p=["ok", value, value])


def test_a_colon_is_fine_when_encoded_or_further_down() -> None:
    assert paths_of(spec("id", "p", url_encode=True), p=["a:b"]) == ["a%3Ab"]
    assert paths_of(spec("id", "p,q"), p=["a"], q=["b:c"]) == ["a/b:c"]
    with pytest.raises(InvalidRequest, match="urlencode"):
        paths_of(spec("id", "p", hive_style=True), p=["a:b"])


def test_encoding_of_a_real_value() -> None:
    assert encode_partition_value("x y/z:w=%&{}é") == "x y%2Fz%3Aw%3D%25&%7B}é"
    assert encode_partition_value("\x00\x1f\x7f\"#'*?\\[]^") == "%00%1F%7F%22%23%27%2A%3F%5C%5B%5D%5E"
    assert encode_partition_value(" }&+,;|<>~!$@ü😀") == " }&+,;|<>~!$@ü😀"
    assert decode_partition_value("50% of %zz%2f%41") == "50% of %zz/A"


@given(st.text())
def test_decoding_undoes_encoding(text: str) -> None:
    assert decode_partition_value(encode_partition_value(text)) == text


@given(st.lists(st.text() | st.none()))
def test_encoded_paths_round_trip(values: list[str | None]) -> None:
    key_spec = spec("id", "p", url_encode=True)
    values = [None if value in ("", ".", "..", ".hoodie", HIVE_NULL) else value for value in values]
    paths = partition_paths(key_spec, pa.record_batch({"p": pa.array(values, pa.string())})).to_pylist()
    assert [parse_partition_path(key_spec, path)[0] for path in paths] == values


# --- times


def rule(type_: str, output: str, **options: Any) -> TimeRule:
    return TimeRule(TimeType(type_), output, **options)


@pytest.mark.parametrize(
    ("time", "values", "expected"),
    [
        (rule("UNIX_TIMESTAMP", "yyyy/MM/dd"), [1715000000, None], ["2024/05/06", "1970/01/01"]),
        (
            rule("DATE_STRING", "yyyyMMddHH", input_patterns=("yyyy-MM-dd HH:mm:ss",), output_zone="Asia/Tokyo"),
            ["2024-05-06 07:08:09", None, "2024-05-06 07:59:59"],
            ["2024050616", "1970010109", "2024050616"],
        ),
        (rule("EPOCHMILLISECONDS", "yyyy-MM-dd HH"), [-1, 0], ["1969-12-31 23", "1970-01-01 00"]),
        (rule("EPOCHMICROSECONDS", "yyyy SSS"), pa.array([1_999, -1]).cast(pa.timestamp("us")), ["1970 001", "1970 000"]),
        (rule("SCALAR", "yyyy/MM", scalar_unit="DAYS"), [date(2024, 5, 6)], ["2024/05"]),
        (rule("SCALAR", "HH", scalar_unit="HOURS"), [1.9, -1.9], ["01", "23"]),
        (rule("SCALAR", "ss", scalar_unit="NANOSECONDS"), [Decimal("2000000000.5")], ["02"]),
        (rule("UNIX_TIMESTAMP", "HH Z", output_zone="Europe/Berlin"), [1729987200, 1729994400], ["02 +0200", "03 +0100"]),
        (
            rule("MIXED", "yyyyMMdd", input_patterns=("yyyy-MM-dd", "yyyy-MM-dd'T'HHZ"), input_zone="Asia/Tokyo"),
            ["2024-05-06", "2024-05-06T00Z"],
            ["20240505", "20240506"],
        ),
    ],
)
def test_times_in_paths(time: TimeRule, values: Any, expected: list[str]) -> None:
    assert paths_of(spec("id", "t", "TIMESTAMP", time=time), t=values) == expected


@pytest.mark.parametrize(
    ("time_type", "unit", "expected"),
    [
        ("UNIX_TIMESTAMP", "SECONDS", "01 00.00.01.000"),
        ("EPOCHMILLISECONDS", "SECONDS", "01 00.00.00.001"),
        ("EPOCHMICROSECONDS", "SECONDS", "01 00.00.00.000"),
        ("SCALAR", "DAYS", "02 00.00.00.000"),
        ("SCALAR", "HOURS", "01 01.00.00.000"),
        ("SCALAR", "MINUTES", "01 00.01.00.000"),
        ("SCALAR", "SECONDS", "01 00.00.01.000"),
        ("DATE_STRING", "SECONDS", "01 00.00.00.000"),
    ],
)
def test_null_time_is_one_unit_after_the_epoch(time_type: str, unit: str, expected: str) -> None:
    """As Hudi 1.1.1 writes it."""
    time = rule(time_type, "dd HH.mm.ss.SSS", scalar_unit=unit, input_patterns=("yyyy",))
    values = pa.array([None], pa.string() if time_type == "DATE_STRING" else pa.int64())
    assert paths_of(spec("id", "t", "TIMESTAMP", time=time), t=values) == [expected]


@pytest.mark.parametrize(
    ("patterns", "input_zone", "output_zone", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "UTC", "UTC", "1970-01-01 00.00.00.001"),
        ("yyyy-MM-dd", "America/Los_Angeles", "America/Los_Angeles", "1969-12-31 00.00.00.000"),
        ("yyyy-MM-dd", "America/Los_Angeles", "UTC", "1969-12-31 08.00.00.000"),
        ("yyyy-MM,yyyy-MM-dd HH", "Asia/Tokyo", "Asia/Tokyo", "1970-01-01 00.00.00.000"),
        ("yyyy-MM-dd HH", "", "America/Los_Angeles", "1969-12-31 08.00.00.000"),
    ],
)
def test_null_text_is_printed_and_parsed(patterns: str, input_zone: str, output_zone: str, expected: str) -> None:
    prefix = "hoodie.keygen.timebased."
    properties = {
        prefix + "timestamp.type": "DATE_STRING",
        prefix + "input.dateformat": patterns,
        prefix + "output.dateformat": "yyyy-MM-dd HH.mm.ss.SSS",
        prefix + "output.timezone": output_zone,
    } | ({prefix + "input.timezone": input_zone} if input_zone else {})
    time = TimeRule.from_properties(properties)
    assert paths_of(spec("id", "t", "TIMESTAMP", time=time), t=pa.array([None], pa.string())) == [expected]


def test_null_timestamp_is_one_unit_after_the_epoch() -> None:
    time = rule("SCALAR", "yyyy-MM-dd", scalar_unit="DAYS")
    values = pa.array([None, 0], pa.timestamp("us", "UTC"))
    key_spec = replace(spec("id", "t", "TIMESTAMP", time=time), consistent_timestamps=True)
    assert paths_of(key_spec, t=values) == ["1970-01-02", "1970-01-01"]


def test_times_in_hive_style_and_encoded() -> None:
    time = rule("UNIX_TIMESTAMP", "yyyy/MM")
    assert paths_of(spec("id", "t", "TIMESTAMP", time=time, hive_style=True), t=[1715000000]) == ["t=2024/05"]
    assert paths_of(spec("id", "t", "TIMESTAMP", time=time, url_encode=True), t=[1715000000]) == ["2024%2F05"]
    assert paths_of(spec("id", "c:SIMPLE,t:TIMESTAMP", time=time), c=["x"], t=[1715000000]) == ["x/2024/05"]


@pytest.mark.parametrize(
    ("time", "values", "message"),
    [
        (rule("UNIX_TIMESTAMP", "yyyy"), [0, 10**15], "row 1"),
        (rule("UNIX_TIMESTAMP", "yyyy"), [2**63 - 1], "row 0"),
        (rule("EPOCHMICROSECONDS", "yyyy"), [2**62], "row 0"),
        (rule("UNIX_TIMESTAMP", "yyyy"), ["2024"], "DATE_STRING"),
        (rule("DATE_STRING", "yyyy", input_patterns=("yyyy",)), [2024], "requires strings"),
        (rule("DATE_STRING", "yyyy", input_patterns=("yyyy",)), ["2024", "x"], "'x' in row 1"),
        (rule("UNIX_TIMESTAMP", "yyyy"), [True], "cannot be a time"),
        (rule("UNIX_TIMESTAMP", "yyyy"), [float("nan")], "not a time"),
    ],
)
def test_times_that_cannot_be_are_refused(time: TimeRule, values: list[Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        paths_of(spec("id", "t", "TIMESTAMP", time=time), t=values)


@given(st.lists(st.integers(-(10**11), 2 * 10**11)), st.sampled_from(["UTC", "Europe/Berlin", "+05:45"]))
def test_paths_of_many_times_are_those_of_each(seconds: list[int], zone: str) -> None:
    time = rule("UNIX_TIMESTAMP", "yyyy-MM-dd'T'HH", output_zone=zone)
    key_spec = spec("id", "t", "TIMESTAMP", time=time)
    seconds = [max(value, -62_000_000_000) for value in seconds]
    together = partition_paths(key_spec, pa.record_batch({"t": pa.array(seconds, pa.int64())})).to_pylist()
    assert together == [paths_of(key_spec, t=[value])[0] for value in seconds]


def test_bad_time_rules_are_refused() -> None:
    for options in ({"input_zone": "Mars"}, {"scalar_unit": "WEEKS"}):
        with pytest.raises(InvalidRequest):
            rule("SCALAR", "yyyy", **options)
    with pytest.raises(InvalidRequest, match=r"input\.dateformat"):
        rule("DATE_STRING", "yyyy")
    with pytest.raises(Unsupported):
        rule("SCALAR", "ww")


# --- reading paths


@pytest.mark.parametrize(
    ("parts", "options", "path", "values"),
    [
        ("", {}, "", ()),
        ("p", {}, "a", ("a",)),
        ("p", {}, "2024/05/06", ("2024/05/06",)),
        ("p", {"hive_style": True}, "p=2024/05/06", ("2024/05/06",)),
        ("p", {"hive_style": True}, f"p={HIVE_NULL}", (None,)),
        ("p", {}, "a=b", ("a=b",)),
        ("p", {"url_encode": True}, "a%2Fb", ("a/b",)),
        ("p", {}, "a%2Fb", ("a%2Fb",)),
        ("p,q", {}, f"{HIVE_NULL}/7", (None, "7")),
        ("p,q", {"hive_style": True}, "p=a/b/q=c", ("a/b", "c")),
        ("p,q", {"hive_style": True}, "p=a/q=c/d", ("a", "c/d")),
    ],
)
def test_paths_are_read(parts: str, options: dict[str, Any], path: str, values: tuple[str | None, ...]) -> None:
    assert parse_partition_path(spec("id", parts, **options), path) == values


def test_a_time_takes_as_many_folders_as_its_pattern() -> None:
    key_spec = spec("id", "c:SIMPLE,t:TIMESTAMP,d:SIMPLE", time=rule("UNIX_TIMESTAMP", "yyyy/MM"))
    assert parse_partition_path(key_spec, "x/2024/05/y") == ("x", "2024/05", "y")
    assert path_valued_columns(key_spec) == ("c", "d")
    assert partition_columns(key_spec) == ("c", "t", "d")


def test_paths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TableState, match="not encoded"):
        parse_partition_path(spec("id", "p,q"), "a/b/c")
    with pytest.raises(TableState, match="not partitioned"):
        parse_partition_path(spec("id"), "a")


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("07", pa.string(), "07"),
        ("7", pa.int32(), 7),
        ("-7", pa.int64(), -7),
        ("true", pa.bool_(), True),
        ("1.0E20", pa.float64(), 1e20),
        ("-Infinity", pa.float64(), float("-inf")),
        ("0.1", pa.float32(), float(np.float32(0.1))),
        ("2024-05-06", pa.date32(), date(2024, 5, 6)),
        ("1.50", pa.decimal128(10, 2), Decimal("1.50")),
        ("1E-8", pa.decimal128(10, 8), Decimal("1E-8")),
        ("6162", pa.binary(), b"ab"),
        ("1714979289123456", pa.timestamp("us", "UTC"), datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)),
        ("2024-05-06 07:08:09.123", pa.timestamp("us", "UTC"), datetime(2024, 5, 6, 7, 8, 9, 123000, UTC)),
        (None, pa.int32(), None),
    ],
)
def test_texts_of_a_path_become_values(text: str | None, type_: pa.DataType, value: Any) -> None:
    assert partition_value(text, type_) == pa.scalar(value, type_)


@pytest.mark.parametrize(
    ("text", "type_"),
    [("x", pa.int32()), ("1970-01-01", pa.int64()), ("3000000000", pa.int32()), ("yes", pa.bool_()), ("x", pa.float64()),
     ("zz", pa.binary()), ("x", pa.timestamp("us", "UTC")), ("1.555", pa.decimal128(10, 2)), ("1", pa.list_(pa.int32()))],
)  # fmt: skip
def test_texts_that_are_no_values_are_corrupt(text: str, type_: pa.DataType) -> None:
    with pytest.raises(CorruptData):
        partition_value(text, type_)


# --- properties


@pytest.mark.parametrize(
    ("keys", "parts", "kind"),
    [
        (["id"], [], "NON_PARTITION"),
        ([], [""], "NON_PARTITION"),
        (["a", "b"], [], "NON_PARTITION"),
        (["id"], ["p"], "SIMPLE"),
        ([], ["p"], "SIMPLE"),
        (["a", "b"], ["p"], "COMPLEX"),
        (["id"], ["p", "q"], "COMPLEX"),
        (["id"], ["p:SIMPLE"], "CUSTOM"),
    ],
)
def test_generators_are_inferred(keys: list[str], parts: list[str], kind: str) -> None:
    assert infer_key_generator(keys, parts) == kind


@pytest.mark.parametrize(
    "key_spec",
    [
        spec("id"),
        spec("", "p"),
        spec("a,b.c", "p,q", hive_style=True, url_encode=True),
        spec("id", "t", "TIMESTAMP", time=rule("SCALAR", "yyyy/MM/dd", scalar_unit="DAYS", output_zone="Asia/Tokyo")),
        spec("id", "t", "TIMESTAMP", time=rule("DATE_STRING", "yyyy", input_patterns=("yyyy-MM-dd", "dd.MM.yyyy, HH"))),
        spec("id", "c:SIMPLE,t:TIMESTAMP", time=rule("UNIX_TIMESTAMP", "yyyy")),
        spec("id", "c:SIMPLE,t:TIMESTAMP"),
        spec("id", "", "GLOBAL_DELETE"),
        KeySpec(KeyGenerator.NON_PARTITION, ("t",), consistent_timestamps=True),
    ],
)
def test_properties_describe_a_spec(key_spec: KeySpec) -> None:
    assert KeySpec.from_properties(key_spec.to_properties()) == key_spec


def test_properties_of_real_tables_are_read() -> None:
    table = {"hoodie.table.recordkey.fields": "id", "hoodie.table.partition.fields": ""}
    assert KeySpec.from_properties(table | {"hoodie.table.keygenerator.type": "NON_PARTITION"}) == spec("id")
    by_class = table | {
        "hoodie.table.partition.fields": "p",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.ComplexAvroKeyGenerator",
        "hoodie.table.keygenerator.type": "SIMPLE",
    }
    assert KeySpec.from_properties(by_class).generator is KeyGenerator.COMPLEX
    custom = {"hoodie.table.partition.fields": "c:simple,t:timestamp", "hoodie.table.keygenerator.type": "CUSTOM_AVRO"}
    assert [field.kind for field in KeySpec.from_properties(custom).partition_fields] == [
        PartitionFieldType.SIMPLE,
        PartitionFieldType.TIMESTAMP,
    ]
    old = custom | {"hoodie.table.partition.fields": "c"}
    assert KeySpec.from_properties(old).partition_fields == (PartitionField("c", PartitionFieldType.UNKNOWN),)
    with pytest.raises(InvalidRequest, match="not known"):
        paths_of(KeySpec.from_properties(old), c=["x"])
    wrapped = {"hoodie.table.partition.fields": "p", "hoodie.table.keygenerator.type": "SPARK_SQL"}
    assert KeySpec.from_properties(wrapped).generator is KeyGenerator.SIMPLE
    assert KeySpec.from_properties({}).generates_keys
    time = {
        "hoodie.table.partition.fields": "t",
        "hoodie.table.keygenerator.type": "TIMESTAMP",
        "hoodie.deltastreamer.keygen.timebased.timestamp.type": "MIXED",
        "hoodie.deltastreamer.keygen.timebased.input.dateformat": "yyyy-MM-dd, yyyy",
        "hoodie.deltastreamer.keygen.timebased.output.dateformat": "yyyy",
        "hoodie.deltastreamer.keygen.timebased.timezone": "GMT+8:00",
    }
    untold = {key: text for key, text in time.items() if not key.endswith("timestamp.type")}
    assert KeySpec.from_properties(untold).time is None
    with pytest.raises(InvalidRequest, match="is not known"):
        paths_of(KeySpec.from_properties(untold), t=["2024"])
    found = KeySpec.from_properties(time).time
    assert found == rule("MIXED", "yyyy", input_patterns=("yyyy-MM-dd", "yyyy"), input_zone="GMT+8:00", output_zone="GMT+8:00")
    specific = {TIME_PREFIXES[0] + name: "UTC" for name in ("input.timezone", "output.timezone")}
    assert KeySpec.from_properties(time | specific).time == found, "timezone takes precedence"


@pytest.mark.parametrize(
    "properties",
    [
        {"hoodie.table.keygenerator.class": "com.acme.SimpleKeyGenerator"},
        {"hoodie.table.keygenerator.type": "SPARK_SQL_UUID"},
    ],
)
def test_generators_of_others_are_read_and_compute_no_keys(properties: dict[str, str]) -> None:
    fields = {"hoodie.table.recordkey.fields": "id", "hoodie.table.partition.fields": "p,q:TIMESTAMP"}
    found = KeySpec.from_properties(fields | properties)
    assert found.is_user_provided
    assert partition_columns(found) == ("p", "q")
    assert path_valued_columns(found) == ()
    with pytest.raises(Unsupported, match="_hoodie_record_key"):
        record_keys(found, pa.record_batch({"id": [1]}))
    for name in properties.values():
        with pytest.raises(Unsupported, match=name):
            spec("id", "p", name)


def test_simple_generator_without_partition_field_is_read() -> None:
    """Hudi Streamer made such tables; a new table has a generator for its fields."""
    found = KeySpec.from_properties(
        {
            "hoodie.table.recordkey.fields": "id",
            "hoodie.table.partition.fields": "",
            "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        }
    )
    assert record_keys(found, pa.record_batch({"id": [1]})).to_pylist() == ["1"]
    assert partition_paths(found, pa.record_batch({"id": [1]})).to_pylist() == [""]
    with pytest.raises(InvalidRequest, match="NON_PARTITION"):
        spec("id", "", "SIMPLE")


@pytest.mark.parametrize(
    "build",
    [
        lambda: spec("a,b", "p", "SIMPLE"),
        lambda: spec("id", "p,q", "SIMPLE"),
        lambda: spec("id", "p", "NON_PARTITION"),
        lambda: spec("id,id"),
        lambda: spec("id", "p,p"),
        lambda: spec("id", "p:HOURLY"),
        lambda: KeySpec(KeyGenerator.COMPLEX, ("id",), (PartitionField("p", PartitionFieldType.TIMESTAMP),)),
        lambda: KeySpec.from_properties({"hoodie.datasource.write.hive_style_partitioning": "yes"}),
        lambda: KeySpec.from_properties({"hoodie.keygen.timebased.timestamp.type": "MIXED"}),
        lambda: KeySpec.from_properties(
            {"hoodie.keygen.timebased.timestamp.type": "NOON", "hoodie.keygen.timebased.output.dateformat": "yyyy"}
        ),
    ],
)
def test_specs_that_contradict_themselves_are_refused(build: Any) -> None:
    with pytest.raises(InvalidRequest):
        build()
