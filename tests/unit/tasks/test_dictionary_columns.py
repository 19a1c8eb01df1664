"""Text columns kept as dictionaries: from one version of a base file to the next, and their slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.format.names import WriteToken
from pyhudi.records.record_merge import EventTimeRule
from pyhudi.storage import Storage
from pyhudi.tasks.base_file_reader import open_base_file
from pyhudi.tasks.dictionary_columns import CODED, coded_rows, coded_schema, decode_dictionaries, repeated, replace_coded
from pyhudi.tasks.write_base_files import run_merge
from pyhudi.tasks.write_tasks import MergeTask, WriteStatus
from tests.support.base_writer import create, incoming, new_storage, read, spec

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("few", pa.string()), ("many", pa.string()), ("n", pa.int64())])
COUNT = 6000


def rows(start: int, count: int, ts: int, few: list[str | None]) -> pa.Table:
    numbers = range(start, start + count)
    values = {
        "id": [f"k{n:05}" for n in numbers],
        "ts": [ts] * count,
        "few": [few[n % len(few)] for n in numbers],
        "many": [f"text {n} of {ts}" for n in numbers],
        "n": list(numbers),
    }
    return pa.table(values, schema=SCHEMA)


def merged(storage: Storage, old: WriteStatus, newer: pa.Table, instant: str, **more: Any) -> WriteStatus:
    made = spec(storage, SCHEMA, instant, **more)
    assert old.stat.file_id is not None and old.stat.path is not None
    task = MergeTask("", old.stat.file_id, old.stat.path, WriteToken(1, 0, 1))
    return run_merge(made, task, incoming(newer), EventTimeRule("ts"))


def by_key(table: pa.Table) -> dict[str, tuple[Any, ...]]:
    columns = [table.column(name).to_pylist() for name in ("id", "ts", "few", "many", "n", "_hoodie_commit_time")]
    return {row[0]: row[1:] for row in zip(*columns, strict=True)}


@pytest.mark.parametrize("dictionary", ["true", "false"])
def test_values_survive_many_versions(dictionary: str) -> None:
    storage = new_storage()
    options = {"hoodie.parquet.dictionary.enabled": dictionary}
    # In addition to the ends of the alphabet, which are replaced below: the footer's bounds have to follow.
    (status,) = create(spec(storage, SCHEMA, "20260101000000000", options=options), rows(0, COUNT, 1, ["aaa", "m", None, "zzz"]))
    expected = by_key(read(storage, status.stat.path))
    for number in range(2, 5):
        instant = f"2026010{number}000000000"
        newer = rows(number * 100, 300, number, [f"x{number}", None])
        newer = pa.concat_tables([newer, rows(COUNT + number * 10, 5, number, ["fresh"])])
        status = merged(storage, status, newer, instant, options=options)
        for key, values in by_key(newer.append_column("_hoodie_commit_time", pa.array([instant] * newer.num_rows))).items():
            expected[key] = values
        assert by_key(read(storage, status.stat.path)) == expected
    status = merged(storage, status, rows(0, COUNT, 9, ["k", "l"]), "20260109000000000", options=options)
    table = read(storage, status.stat.path)
    assert set(table.column("few").to_pylist()) == {"k", "l", "fresh"}
    assert set(table.column("_hoodie_file_name").to_pylist()) == {str(status.stat.path)}
    with storage.open_input(str(status.stat.path)) as source:
        metadata = pq.ParquetFile(source).metadata
    column = metadata.row_group(0).column(table.column_names.index("few"))
    statistics = column.statistics
    assert statistics is not None and (statistics.min, statistics.max, statistics.null_count) == ("fresh", "l", 0)
    assert column.has_dictionary_page == (dictionary == "true")


def test_which_columns_have_a_dictionary() -> None:
    storage = new_storage()
    (status,) = create(spec(storage, SCHEMA), rows(0, COUNT, 1, ["a", "b"]))
    with storage.open_input(str(status.stat.path)) as source:
        group = pq.ParquetFile(source).metadata.row_group(0)
    found = {group.column(i).path_in_schema: group.column(i).has_dictionary_page for i in range(group.num_columns)}
    assert found == {
        "_hoodie_commit_time": True,
        "_hoodie_commit_seqno": False,
        "_hoodie_record_key": False,
        "_hoodie_partition_path": True,
        "_hoodie_file_name": True,
        "id": False,
        "ts": True,
        "few": True,
        "many": False,
        "n": False,
    }
    wanted = ["few", "many", "ts", "none", "_hoodie_commit_time"]
    with open_base_file(storage, str(status.stat.path), wanted) as file:
        coded = {field.name for field in file.schema_arrow if field.type == CODED}
    assert coded == {"few", "_hoodie_commit_time"}


def test_replaced_rows_and_idle_values() -> None:
    column = pa.array([f"v{n}" for n in range(100)] * 2).dictionary_encode()
    mask = np.zeros(200, dtype=np.bool_)
    mask[:199] = True
    values = pa.array(["v3", None, "new"] * 66 + ["v3"], pa.string())
    found = replace_coded(column, mask, values)
    assert found.to_pylist() == [*values.to_pylist(), "v99"]
    # Values that no row has are removed once there are many of them.
    assert sorted(found.dictionary.to_pylist()) == ["new", "v3", "v99"]


def test_nulls_and_empty_columns() -> None:
    column = pa.array([None, None], pa.string()).dictionary_encode()
    found = replace_coded(column, np.array([False, True]), pa.array(["a"], pa.string()))
    assert found.to_pylist() == [None, "a"]
    assert replace_coded(found, np.array([False, False]), pa.array([], pa.string())).to_pylist() == [None, "a"]


def test_rows_there_and_back() -> None:
    plain = pa.table({"a": ["x", None, "x"], "b": [1, 2, 3]})
    schema = coded_schema(plain.schema, {"a"})
    there = coded_rows(plain, schema)
    assert there.schema.equals(schema)
    assert decode_dictionaries(there).equals(plain)
    assert coded_rows(there, plain.schema).equals(plain)
    assert repeated("v", 3).to_pylist() == ["v"] * 3


@pytest.mark.parametrize(
    "texts",
    [
        ["N"],
        ["A", "N", "R"],
        ["ä", "ß"],
        ["1994", "1995", "1994"],
        ["12345678", "abcdefgh"],
        ["", ""],
        ["abc", "def"],
        ["a", "bc"],
        [],
    ],
)
@pytest.mark.parametrize("kind", ["whole", "sliced", "nulls", "empty"])
def test_texts_of_one_width(texts: list[str], kind: str) -> None:
    """As Arrow decodes them, for any slice of a dictionary or of its indices."""
    count = 0 if kind == "empty" or not texts else 50
    numbers = pa.array([None if kind == "nulls" and n % 7 == 0 else n % len(texts) for n in range(count)], pa.int32())
    values = pa.array(["before", *texts], pa.string()).slice(1)
    column = pa.DictionaryArray.from_arrays(numbers, values)
    if kind == "sliced":
        column = column.slice(3, 20)
    rows = pa.table({"a": pa.chunked_array([column, column], column.type), "b": pa.array(range(2 * len(column)))})
    found = decode_dictionaries(rows).column("a")
    found.validate(full=True)
    assert found.equals(pa.chunked_array([column.cast(pa.string())] * 2, pa.string()))
