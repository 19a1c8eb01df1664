"""Tables with every index, written by Apache Hudi: filtered reads return the rows that Hudi returns."""

from __future__ import annotations

import datetime
import shutil
import warnings
from collections.abc import Collection
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.api.table import Table
from pyhudi.format.paths import PARTITION_METADATA_FILE
from pyhudi.metadata_table.reader import index_lookups
from pyhudi.metadata_table.reader.metadata_listing import MetadataListing
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.records.filters.arrow_expressions import to_arrow
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.table.listing import DirectoryListing
from tests.interop.oracle import ApacheHudi
from tests.support.changed_types import CHANGES, DOUBLE, FLOAT, INT, LONG, TEXT
from tests.support.changed_types import changed as with_changed_type
from tests.support.needs import WIDE
from tests.support.rows import assert_same_rows, without_meta

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("rider", pa.string()),
        ("whole", pa.int32()),
        ("fare", pa.float64()),
        ("price", pa.decimal128(12, 3)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("city", pa.string()),
    ]
)
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
SOME_CHANGES = {(INT, LONG), (LONG, DOUBLE), (FLOAT, DOUBLE), (DOUBLE, TEXT)}
RIDERS = ("ann", "b$b", "c\\d", "chen$", "ünal", "ann$x", "")


def rows(first: int, count: int, ts: int = 1) -> pa.Table:
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = []
    for n in range(first, first + count):
        made.append(
            {
                "id": f"k{n:03d}",
                "ts": ts,
                "rider": RIDERS[n % len(RIDERS)] if n % 5 else None,
                "whole": n * ts,
                "fare": float("nan") if n % 11 == 0 else n / 4 * ts,
                "price": Decimal(n * ts) / 8,
                "day": datetime.date(2026, 1, 1) + datetime.timedelta(days=n),
                "moment": start + datetime.timedelta(hours=n, microseconds=ts),
                "flag": n % 2 == 0 if n % 7 else None,
                "city": ("oslo", "rome", "São Paulo")[n * 3 // 60 % 3],
            }
        )
    return pa.Table.from_pylist(made, SCHEMA)


FILTERS = (
    "id = 'k007'",
    "id in ('k001', 'k059', 'nobody')",
    "id = 'k007' and ts = 2",
    "_hoodie_record_key = 'k033'",
    "whole = 12",
    "whole > 100",
    "whole < 0",
    "whole between 18 and 22",
    "fare > 13.5",
    "fare <= 0",
    "fare <> 1",
    "price = 1.5",
    "price > 7",
    "day = date '2026-01-10'",
    "day > '2026-02-20'",
    "moment < timestamp '2026-01-01 05:00:00Z'",
    "moment >= timestamp '2026-01-03 00:00:00Z'",
    "flag = true",
    "flag is null",
    "rider is null",
    "rider is not null and whole > 50",
    "rider = 'ann'",
    "rider = 'b$b'",
    "rider = 'c\\\\d'",
    "rider in ('chen$', 'ünal')",
    "rider = ''",
    "rider = 'ANN'",
    "rider like 'a%'",
    "not (whole > 10)",
    "not (rider = 'ann') and whole < 30",
    "city = 'rome' and whole > 35",
    "city = 'oslo' or fare > 12",
    "ts = 2",
    "ts = 3",
)

# One filter for each index; the first for that of keys.
OF_EACH_INDEX = ("id = 'k007'", "whole > 100", "ts = 2", "city = 'rome' and whole > 35")
# And one for each type of column that has statistics, and for keys in lists.
OF_EACH_TYPE = (
    *OF_EACH_INDEX,
    "id in ('k001', 'k059', 'nobody')",
    "whole between 18 and 22",
    "not (whole > 10)",
    "price > 7",
    "day = date '2026-01-10'",
    "moment >= timestamp '2026-01-03 00:00:00Z'",
    "flag is null",
)

# Where Hudi 1.0.2 loses rows: keys with `$` and `\\` are not escaped in its lookups, and a `lower(rider)` index is applied to
# `rider`; NaN is above every number to Spark, and ours gives none.
ITS_DEFECTS = ("rider", "fare")


# Apache Hudi merges each file group of an index in a separate task, of 10 by default.
FEW_GROUPS = {"hoodie.metadata.record.index.min.filegroup.count": 2}


def options(table_type: str, **more: object) -> dict[str, Any]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.metadata.enable": True,
        "hoodie.metadata.record.index.enable": True,
        **FEW_GROUPS,
        "hoodie.metadata.index.column.stats.enable": True,
        "hoodie.metadata.index.bloom.filter.enable": True,
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.compact.inline": False,
        **more,
    }


@pytest.fixture(scope="module")
def insertions(apache_hudi: ApacheHudi, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tables of either type with two insertions.  Not to be changed."""
    made = {}
    for table_type in TYPES:
        made[table_type] = tmp_path_factory.mktemp("skipping") / "inserted"
        inserted(apache_hudi, made[table_type], table_type)
    return made


@pytest.fixture(scope="module")
def changes(apache_hudi: ApacheHudi, insertions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same with an update and a deletion, of copies on write in a wide run alone.  Not to be changed."""
    made = {}
    for table_type, path in insertions.items() if WIDE else [("MERGE_ON_READ", insertions["MERGE_ON_READ"])]:
        made[table_type] = tmp_path_factory.mktemp("skipping") / "changed"
        shutil.copytree(path, made[table_type])
        changed(apache_hudi, made[table_type], table_type)
    return made


def inserted(hudi: ApacheHudi, path: Path, table_type: str, **more: object) -> None:
    hudi.write(rows(0, 30), path, partitions=2, **options(table_type, **more))
    hudi.write(rows(30, 30), path, partitions=2, **options(table_type, **more))


def changed(hudi: ApacheHudi, path: Path, table_type: str, **more: object) -> None:
    hudi.write(rows(20, 8, ts=2), path, **options(table_type, **more))
    hudi.write(rows(5, 2, ts=3), path, **options(table_type, **{"hoodie.datasource.write.operation": "delete"}, **more))


def check_listing(path: Path) -> MetadataTable:
    context = Table(path).context
    metadata = MetadataTable(context, context.timeline.load())
    listing, directories = MetadataListing(metadata), DirectoryListing(context.storage)
    assert listing.partitions() == directories.partitions()
    for partition, infos in directories.files(directories.partitions()).items():
        expected = {(i.path, i.size_bytes) for i in infos if not i.name.startswith(PARTITION_METADATA_FILE)}
        assert {(i.path, i.size_bytes) for i in listing.files([partition])[partition]} == expected
    return metadata


def check_filters(
    hudi: ApacheHudi, path: Path, ours_alone: tuple[str, ...] = ITS_DEFECTS, asked_of_it: Collection[str] = FILTERS
) -> dict[str, set[str]]:
    """The steps for each filter.

    asked_of_it: filters that Apache Hudi reads with, which takes a second each; a wide run uses all.
    """
    table = Table(path)
    every = table.scan(["*"]).to_arrow()
    asked = [text for text in (FILTERS if WIDE else asked_of_it) if not any(column in text for column in ours_alone)]
    theirs = dict(zip(["true", *asked], hudi.read_each(path, ["true", *asked]), strict=True))
    assert_same_rows(every, theirs["true"])
    taken: dict[str, set[str]] = {}
    for text in FILTERS:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scan = table.scan(["*"], text)
            found = scan.to_arrow()
        assert_same_rows(found, every.filter(to_arrow(parse_filter(text), every.schema)))
        taken[text] = {step.step for step in scan.explain().prunings}
        if text in theirs:
            assert_same_rows(found, theirs[text])
    return taken


@pytest.mark.parametrize("table_type", [pytest.param("COPY_ON_WRITE", marks=pytest.mark.wide), "MERGE_ON_READ"])
def test_tables_with_every_partition(hudi: ApacheHudi, changes: dict[str, Path], table_type: str) -> None:
    path = changes[table_type]
    metadata = check_listing(path)
    assert {"files", "column_stats", "partition_stats", "record_index", "bloom_filters"} <= set(metadata.partitions)
    taken = check_filters(hudi, path, asked_of_it=OF_EACH_TYPE if table_type == "MERGE_ON_READ" else OF_EACH_INDEX)
    assert "record index" in taken["id = 'k007'"]
    assert "statistics of files" in taken["whole > 100"]
    assert "partition statistics" in taken["ts = 3"]
    assert Table(path).scan(filter="ts = 3").explain().slices == ()


def test_bloom_filters_without_a_record_index(hudi: ApacheHudi, tmp_path: Path) -> None:
    more = {"hoodie.metadata.record.index.enable": False, "hoodie.index.type": "BLOOM"}
    hudi.write(rows(0, 60), tmp_path, partitions=2, **options("COPY_ON_WRITE", **more))
    hudi.write(rows(20, 8, ts=2), tmp_path, **options("COPY_ON_WRITE", **more))
    check_listing(tmp_path)
    taken = check_filters(hudi, tmp_path, asked_of_it=OF_EACH_INDEX[:1])
    assert "Bloom filters" in taken["id = 'k007'"]
    plan = Table(tmp_path).scan(filter="id = 'k007x'").explain()
    assert plan.slices == ()


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", pytest.param("MERGE_ON_READ", marks=pytest.mark.wide)])
def test_secondary_and_expression_indexes(hudi: ApacheHudi, insertions: dict[str, Path], tmp_path: Path, table_type: str) -> None:
    name = f"skipping_{table_type.lower()}"
    shutil.copytree(insertions[table_type], tmp_path, dirs_exist_ok=True)
    hudi.register(tmp_path, name)
    hudi.sql("SET hoodie.metadata.record.index.enable=true")
    hudi.sql("SET hoodie.metadata.index.bloom.filter.enable=true")
    for key, value in FEW_GROUPS.items():
        hudi.sql(f"SET {key}={value}")
    try:
        # Apache Hudi builds a secondary index from base files; over log files it fails.
        hudi.sql(f"CREATE INDEX idx_rider ON {name} (rider)")
        hudi.sql(f"CREATE INDEX idx_day ON {name} USING column_stats(ts) OPTIONS(expr='from_unixtime', format='yyyy-MM-dd')")
        if table_type == "COPY_ON_WRITE":
            # Its next write of log files would fail.
            hudi.sql(f"CREATE INDEX idx_same ON {name} USING bloom_filters(city) OPTIONS(expr='identity')")
    finally:
        hudi.sql("RESET hoodie.metadata.record.index.enable")
        hudi.sql("RESET hoodie.metadata.index.bloom.filter.enable")
        for key in FEW_GROUPS:
            hudi.sql(f"RESET {key}")
    changed(hudi, tmp_path, table_type)
    metadata = check_listing(tmp_path)
    assert "secondary_index_idx_rider" in metadata.partitions
    taken = check_filters(hudi, tmp_path, asked_of_it=OF_EACH_INDEX)
    assert "secondary index secondary_index_idx_rider" in taken["rider = 'b$b'"]
    keys = index_lookups.find_secondary_keys(metadata, "secondary_index_idx_rider", pa.array(["b$b", "c\\d"]))
    every = Table(tmp_path).scan(["*"]).to_arrow()
    wanted = {row["_hoodie_record_key"] for row in every.to_pylist() if row["rider"] in ("b$b", "c\\d")}
    assert set(keys.to_pylist()) == wanted
    assert without_meta(every).num_rows == 58


def test_expression_index_serves_only_its_expression(hudi: ApacheHudi, insertions: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(insertions["COPY_ON_WRITE"], tmp_path, dirs_exist_ok=True)
    hudi.register(tmp_path, "skipping_lower")
    hudi.sql("CREATE INDEX idx_low ON skipping_lower USING bloom_filters(city) OPTIONS(expr='lower')")
    metadata = check_listing(tmp_path)
    assert "expr_index_idx_low" in metadata.partitions
    assert Table(tmp_path).scan(filter="city = 'São Paulo'").count() > 0
    check_filters(hudi, tmp_path, (*ITS_DEFECTS, "city"), OF_EACH_INDEX)


# With each type that a column had, and each that it has.
@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(old, new, id=f"{old} to {new}", marks=() if (old, new) in SOME_CHANGES else pytest.mark.wide)
        for old, new in CHANGES
    ],
)
def test_hudi_finds_rows_by_a_column_of_changed_type(
    hudi: ApacheHudi, tmp_path: Path, old: pa.DataType, new: pa.DataType
) -> None:
    """A bound of the old type ends its query with a ClassCastException, also of a narrower number."""
    table = with_changed_type(tmp_path / "t", "cow", old, new).scan().to_arrow()
    values = dict(zip(table["id"].to_pylist(), table["n"].cast(pa.string()).to_pylist(), strict=True))
    # In an ordinary run one of each partition, of which the newest commit has touched the odd one.
    keys = sorted(values) if WIDE else ["k1", "k2"]
    found = hudi.read_each(tmp_path / "t", [f"n = '{values[key]}'" for key in keys])
    assert [rows["id"].to_pylist() for rows in found] == [[key] for key in keys]
