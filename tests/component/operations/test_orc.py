"""ORC base files give the same table as Parquet base files, also mixed in one table."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as po
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.instants import Instant
from pyhudi.format.paths import PROPERTIES_FILE
from pyhudi.storage import open_storage

FORMAT = "hoodie.table.base.file.format"
SEVERAL, SMALL_FILES = "hoodie.table.multiple.base.file.formats.enable", "hoodie.parquet.small.file.limit"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("place", pa.struct([("lat", pa.float64()), ("words", pa.list_(pa.string()))])),
    ]
)
MOMENT = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)
_names = itertools.count()


def rows(numbers: Iterable[int], ts: int) -> pa.Table:
    made = [
        {
            "id": f"k{n:02d}",
            "city": "ab"[n % 2],
            "ts": ts,
            "fare": None if n % 5 == 0 else n + ts / 8,
            "at": MOMENT + datetime.timedelta(hours=n, microseconds=ts),
            "place": None if n % 7 == 0 else {"lat": float(n), "words": ["x"] * (n % 3)},
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def new_table(form: str, table_type: str, **options: Any) -> Table:
    return Table.create(
        f"memory://orc-{next(_names)}",
        name="t",
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        options={FORMAT: form, **options},
    )


def files(table: Table) -> list[str]:
    """The base files, as their names end."""
    walked = open_storage(table.uri).walk("")
    return sorted({Path(info.path).suffix for info in walked if not info.path.startswith(".") and not info.name.startswith(".")})


def contents(table: Table, **question: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(**question).to_arrow().to_pylist(), key=lambda row: str(row["id"]))


def written(table: Table) -> list[Instant]:
    """Life with every kind of action; the writes."""
    index = {"hoodie.index.type": "BLOOM"}
    table.insert(rows(range(20), 1))
    table.upsert(rows((1, 2, 25), 2), options=index)
    # Late rows, which lose.
    table.upsert(rows((2, 3), 0))
    table.delete(rows((4, 5), 3).select(["id", "city"]))
    table.insert_overwrite(rows((6, 8), 4))
    table.upsert(rows((1, 6, 30), 5))
    return list(table.timeline().completed_writes())


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_orc_table_has_the_rows_of_a_parquet_table(table_type: str) -> None:
    index = "record.index" if table_type == "mor" else "index.bloom.filter"
    options = {f"hoodie.metadata.{index}.enable": True, "hoodie.table.cdc.enabled": table_type == "mor"}
    orc, parquet = (new_table(form, table_type, **options) for form in ("ORC", "PARQUET"))
    times, others = written(orc), written(parquet)

    def same(**question: Any) -> None:
        assert contents(orc, **question) == contents(parquet, **question)

    filters = ("id = 'k06'", "fare > 10", "at >= '2026-07-02'", "city = 'a' and ts = 4", "place.lat = 3", "fare is null")
    for condition in filters:
        same(filter=condition)
    for column in SCHEMA.names:
        assert orc.scan([column, "id"]).to_arrow().schema == parquet.scan([column, "id"]).to_arrow().schema
    same()
    for time, other in list(zip(times, others, strict=True))[1:5:3]:
        assert contents(orc, as_of=time.request_time) == contents(parquet, as_of=other.request_time)
    both = ((orc, times), (parquet, others))
    changed = [table.incremental(at[1].completion_time or "").to_arrow().sort_by("id") for table, at in both]
    assert changed[0].equals(changed[1])
    if table_type == "mor":
        images = [
            sorted((row["op"], row["before"] or "", row["after"] or "") for row in table.changes("000").to_arrow().to_pylist())
            for table in (orc, parquet)
        ]
        assert images[0] == images[1]
    for table in (orc, parquet):
        if table_type == "mor":
            table.compact()
        table.cluster(options={"hoodie.clustering.plan.strategy.sort.columns": "fare"})
        table.upsert(rows((7, 8), 6), options={"hoodie.index.type": "RECORD_INDEX" if table_type == "mor" else "BLOOM"})
    same()
    same(filter="fare > 10")
    assert contents_by_key(orc) == contents_by_key(parquet)
    assert orc.validate().ok
    said = [orc.inspect.column_stats().to_pylist(), parquet.inspect.column_stats().to_pylist()]
    data = [[s for s in one if s["column"] in SCHEMA.names] for one in said]
    bounds = [sorted((s["column"], str(s["min"]), str(s["max"]), s["null_count"] or 0) for s in one) for one in data]
    assert bounds[0] == bounds[1]
    assert (files(orc), files(parquet)) == ([".orc"], [".parquet"])


def contents_by_key(table: Table) -> list[dict[str, Any]]:
    return sorted(table.lookup(["k06", "k07", "k99"]).to_arrow().to_pylist(), key=lambda row: str(row["id"]))


def test_other_readers_see_rows_keys_and_schema(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", options={FORMAT: "orc"})
    table.insert(rows(range(3), 1))
    (path,) = (tmp_path / "t").glob("*.orc")
    file = po.ORCFile(path)
    assert set(dict(file.metadata)) == {
        b"orc.avro.schema",
        b"org.apache.hudi.bloomfilter",
        b"hoodie_bloom_filter_type_code",
        b"hoodie_min_record_key",
        b"hoodie_max_record_key",
    }
    assert file.read().column("_hoodie_record_key").to_pylist() == ["k00", "k01", "k02"]
    assert file.read().column("at").to_pylist()[0].isoformat() == "2026-07-01T12:00:00.000001"


def test_files_of_both_formats() -> None:
    """The table stores the format of new files; each file is read in the format of its name."""
    table = new_table("PARQUET", "cow")
    table.insert(rows(range(6), 1))
    storage = open_storage(table.uri)
    lines = [line for line in (storage.read(PROPERTIES_FILE) or b"").splitlines() if not line.startswith(b"#")]
    said = b"\n".join(lines).replace(b"formats.enable=false", b"formats.enable=true")
    storage.put(PROPERTIES_FILE, said.replace(b"base.file.format=PARQUET", b"base.file.format=ORC"))
    table = Table(table.uri)
    table.upsert(rows((0, 7), 2).take([0]))
    assert files(table) == [".orc", ".parquet"]
    assert contents(table) == contents_of(rows((0,), 2), rows(range(1, 6), 1))
    assert contents(table, filter="id = 'k01'") == rows((1,), 1).to_pylist()
    assert table.scan().to_dataset().to_table().num_rows == 6
    assert table.validate().ok


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_writes_and_services_choose_the_format(table_type: str) -> None:
    """Of a table that may have several; what they do not choose is the table's."""
    table = new_table("PARQUET", table_type, **{SEVERAL: True, "hoodie.compact.inline": False, SMALL_FILES: 0})
    orc = {"hoodie.base.file.format": "ORC"}
    table.insert(rows(range(4), 1))
    table.insert(rows(range(4, 8), 1), options=orc)
    assert files(table) == [".orc", ".parquet"]
    first = table.timeline().completed_writes()[0]
    table.upsert(rows((0, 5), 2), options={**orc, "hoodie.index.type": "BLOOM"})
    table.delete(rows((1, 4), 3).select(["id", "city"]))
    expected = contents_of(rows((0, 5), 2), rows((2, 3, 6, 7), 1))
    assert contents(table) == expected
    assert contents(table, as_of=first.request_time) == rows(range(4), 1).to_pylist()
    assert contents(table, filter="fare = 6.125") == rows((6,), 1).to_pylist()
    assert len(table.incremental(first.completion_time or "").to_arrow()) > 3
    if table_type == "mor":
        table.compact(options={**orc, "hoodie.compact.inline.max.delta.commits": 1})
        assert contents(table) == expected
    table.cluster(options=orc)
    table.clean(
        dry_run=False, options={"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    )
    assert (contents(table), files(table)) == (expected, [".orc"])
    table.upsert(rows((0,), 9))
    assert contents(table) == contents_of(rows((0,), 9), rows((5,), 2), rows((2, 3, 6, 7), 1))
    assert table.validate(keys=True).ok
    for wrong, error in (({"hoodie.base.file.format": "HFILE"}, Unsupported), ({SEVERAL: False}, InvalidRequest)):
        with pytest.raises(error):
            table.upsert(rows((0,), 9), options=wrong)
    # Where the table has one format, no write chooses another.
    with pytest.raises(InvalidRequest, match=f"one file format only .{SEVERAL}=false"):
        new_table("PARQUET", table_type).upsert(rows((0,), 1), options=orc)


def test_orc_table_is_created_by_each_call(tmp_path: Path) -> None:
    """By either option, by the properties of SQL, and by the first write of a job."""
    made = {
        "table's": Table.create(tmp_path / "a", record_key="id", options={FORMAT: "orc"}),
        "writes'": Table.create(tmp_path / "b", record_key="id", options={"hoodie.base.file.format": "ORC"}),
        "read optimized": Table.create(tmp_path / "c", record_key="id", options={"hoodie.table.ro.file.format": "ORC"}),
    }
    for number, key in enumerate((FORMAT, "hoodie.base.file.format")):
        path = tmp_path / f"sql{number}"
        made_by_sql(path, key, "ORC")
        made[f"SQL, {key}"] = Table(path)
    for way, table in made.items():
        assert table.config.base_file_format == "ORC", way
        table.insert(rows(range(2), 1).select(["id", "ts"]))
        assert (files(table), table.scan().count()) == ([".orc"], 2), way
    with pytest.raises(InvalidRequest, match="contradicts"):
        Table.create(tmp_path / "x", record_key="id", options={FORMAT: "ORC", "hoodie.base.file.format": "PARQUET"})
    with pytest.raises(Unsupported, match="HFILE"):
        made_by_sql(tmp_path / "y", FORMAT, "HFILE")


def made_by_sql(path: Path, key: str, form: str) -> None:
    given = f"primaryKey = 'id', preCombineField = 'ts', '{key}' = '{form}'"
    hp.sql(f"CREATE TABLE made (id STRING, ts BIGINT) USING hudi TBLPROPERTIES ({given}) LOCATION '{path}'", catalog=hp.Catalog())


def contents_of(*parts: pa.Table) -> list[dict[str, Any]]:
    return sorted(pa.concat_tables(parts).to_pylist(), key=lambda row: str(row["id"]))


def test_orc_rejects_hfile_tables_and_timestamps_out_of_range() -> None:
    with pytest.raises(Unsupported, match="HFILE"):
        new_table("HFILE", "cow")
    table = new_table("ORC", "cow")
    with pytest.raises(InvalidRequest, match="1677 to 2262"):
        table.insert(rows((1,), 1).set_column(4, "at", pa.array([MOMENT.replace(year=3000)], SCHEMA.field("at").type)))
    assert not table.timeline().completed_writes()


def test_a_damaged_file_is_named() -> None:
    table = new_table("ORC", "cow")
    table.insert(rows((1,), 1))
    storage = open_storage(table.uri)
    (path,) = (info.path for info in storage.walk("") if info.path.endswith(".orc"))
    whole = storage.read(path) or b""
    storage.put(path, whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    with pytest.raises(CorruptData, match=Path(path).name):
        table.scan().to_arrow()


def test_files_are_closed_at_their_size() -> None:
    table = new_table("ORC", "cow", **{"hoodie.parquet.max.file.size": 200_000, "hoodie.orc.compression.codec": "NONE"})
    many = pa.table(
        {"id": [f"{n:032d}" for n in range(30_000)], "city": ["a"] * 30_000, "ts": pa.array([1] * 30_000, pa.int64())}
    )
    table.bulk_insert(many)
    sizes = [info.size_bytes for info in open_storage(table.uri).walk("") if info.path.endswith(".orc")]
    assert len(sizes) > 3 and max(sizes) < 500_000, sizes
    assert table.scan().count() == 30_000
