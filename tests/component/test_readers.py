"""Lazy readers return the rows of `Scan.to_arrow` and open only files that the filter needs.

Each engine reads each table type by each query type; storage reads are counted.
"""

from __future__ import annotations

import io
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.api.dataset import HudiDataset
from pyhudi.api.scan import Scan
from pyhudi.api.splits import Split
from pyhudi.errors import CorruptData, InvalidRequest, TableState, Unsupported
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import And, Expr
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.filters.pushdown import pushed_down
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import FaultyStorage
from pyhudi.storage.memory import MemoryStorage
from tests.support.golden_tables import golden_cases, open_golden
from tests.support.rows import assert_same_rows

CITIES = ("la", "ny", "sf")


def rows(city: str, first: int, count: int = 4, ts: int = 1) -> pa.Table:
    """Fares of a city lie in a range of its own."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"{city}{n}" for n in numbers],
            "city": [city] * count,
            "ts": pa.array([ts] * count, pa.int64()),
            "seats": pa.array([4] * count, pa.int64()),
            "number": pa.array([100 * CITIES.index(city) + n for n in numbers], pa.int64()),
            "fare": [100.0 * CITIES.index(city) + n + 1 for n in numbers],
            "note": [None if n % 2 else "x" * 20 for n in numbers],
        }
    )


def everywhere(first: int, count: int = 4, ts: int = 1) -> pa.Table:
    return pa.concat_tables([rows(city, first, count, ts) for city in CITIES])


def made(uri: str, table_type: str = "cow", options: dict[str, object] | None = None) -> Table:
    return Table.create(uri, record_key="id", partition_by="city", ordering="ts", table_type=table_type, options=options)


def cow(uri: str) -> Table:
    table = made(uri)
    table.insert(everywhere(0))
    table.upsert(rows("sf", 2, 4, ts=2))
    return table


def mor(uri: str) -> Table:
    table = made(uri, "mor")
    table.insert(everywhere(0))
    table.upsert(rows("sf", 0, 4, ts=2))
    table.delete(["ny1"])
    return table


def nine(uri: str) -> Table:
    table = made(uri, "mor", options={"hoodie.write.table.version": 9})
    table.insert(everywhere(0))
    table.upsert(rows("sf", 0, 4, ts=2))
    return table


def evolved(uri: str) -> Table:
    """Files of the first write lack a column, and have a narrower type in another."""
    table = made(uri)
    narrow = everywhere(0).drop_columns(["note"])
    table.insert(narrow.set_column(3, "seats", narrow["seats"].cast(pa.int32())))
    table.upsert(rows("sf", 2, 4, ts=2))
    return table


def by_ids(uri: str) -> Table:
    """A column was renamed, one dropped, and another one has its name since."""
    table = made(uri)
    table.insert(everywhere(0))
    table.alter.rename("note", "remark")
    table.alter.add("note", pa.int64())
    changed = rows("sf", 2, 4, ts=2).rename_columns(["id", "city", "ts", "seats", "number", "fare", "remark"])
    table.upsert(changed.append_column("note", pa.array([7] * 4, pa.int64())))
    return table


def partition_columns_in_paths(uri: str) -> Table:
    table = made(uri, options={"hoodie.datasource.write.drop.partition.columns": True})
    table.insert(everywhere(0))
    table.upsert(rows("sf", 2, 4, ts=2))
    return table


KINDS: dict[str, Callable[[str], Table]] = {
    function.__name__: function for function in (cow, mor, nine, evolved, by_ids, partition_columns_in_paths)
}
QUESTIONS: dict[str, Callable[[Table], Scan]] = {
    "now": lambda table: table.scan(),
    "filtered": lambda table: table.scan(["fare", "id", "city"], filter="ts = 1"),
    "then": lambda table: table.scan(as_of=first_write(table)),
    "incremental": lambda table: table.incremental(after=first_completed(table)),
}


def first_write(table: Table) -> str:
    return table.timeline().completed_writes()[0].request_time


def first_completed(table: Table) -> str:
    return table.timeline().completed_writes()[0].completion_time or ""


class Watched:
    """A table whose storage calls are noted."""

    def __init__(self, uri: str) -> None:
        self.storage = FaultyStorage(open_storage(uri))
        self.table = Table(uri, dict(self.storage.spec().options))

    def opened(self, read: Callable[[], object]) -> set[str]:
        """The cities whose data files were opened."""
        before = len(self.storage.calls)
        read()
        paths = [call.path for call in self.storage.calls[before:] if "/.hoodie/" not in call.path]
        return {path.split("/")[-2].removeprefix("city=") for path in paths}


@pytest.fixture(scope="module")
def tables() -> dict[str, str]:
    return {kind: make(f"memory://readers/{kind}").uri for kind, make in KINDS.items()}


# Each reads the named columns of the rows of a filter, passed as text or in the form of the engine.


def by_splits(scan: Scan, columns: list[str], text: str | None) -> pa.Table:
    parts: list[Split] = pickle.loads(pickle.dumps(scan.splits()))
    return pa.concat_tables([part.to_arrow(columns, text) for part in parts] or [scan.schema.empty_table().select(columns)])


def by_dataset(scan: Scan, columns: list[str], text: str | None) -> pa.Table:
    return scan.to_dataset().to_table(columns, None if text is None else in_arrow(text))


def by_fragments(scan: Scan, columns: list[str], text: str | None) -> pa.Table:
    dataset = scan.to_dataset()
    condition = None if text is None else in_arrow(text)
    parts = [
        fragment.scanner(schema=dataset.schema, columns=columns, filter=condition, batch_size=3).to_table()
        for fragment in dataset.get_fragments(condition)
    ]
    return pa.concat_tables(parts or [dataset.schema.empty_table().select(columns)])


def by_polars(scan: Scan, columns: list[str], text: str | None) -> pa.Table:
    frame = hp.scan_polars(scan)
    frame = frame if text is None else frame.filter(pl.sql_expr(text))
    return frame.select(columns).collect().to_arrow().cast(pa.schema([scan.schema.field(name) for name in columns]))


def by_duckdb(scan: Scan, columns: list[str], text: str | None) -> pa.Table:
    duckdb = pytest.importorskip("duckdb")
    dataset = scan.to_dataset()
    where = "" if text is None else f" where {text}"
    connection = duckdb.connect()
    found = connection.register("t", dataset).sql(f"select {', '.join(columns)} from t{where}")
    return pa.table(found.to_arrow_table())


def by_datafusion(scan: Scan, columns: list[str], text: str | None) -> pa.Table:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    context.register_dataset("t", scan.to_dataset())
    where = "" if text is None else f" where {text}"
    table = context.sql(f"select {', '.join(columns)} from t{where}").to_arrow_table()
    return pa.table(table).cast(pa.schema([scan.schema.field(name) for name in columns]))


def in_arrow(text: str) -> pc.Expression:
    found: pc.Expression = eval(
        text.replace("city = ", "pc.field('city') == ")
        .replace("fare", "pc.field('fare')")
        .replace("number", "pc.field('number')"),
        {"pc": pc},
    )
    return found


Reader = Callable[[Scan, list[str], str | None], pa.Table]
READERS: tuple[Reader, ...] = (by_splits, by_dataset, by_fragments, by_polars, by_duckdb, by_datafusion)
CASES = [
    # Engines that read datasets have no further cases in the other tables.
    pytest.param(
        kind,
        read,
        id=f"{kind}-{read.__name__}",
        marks=pytest.mark.wide if kind not in ("cow", "mor") and read in READERS[4:] else (),
    )
    for kind in KINDS
    for read in READERS
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kind", "read"), CASES)
def test_every_reader_returns_the_rows_of_a_scan(tables: dict[str, str], kind: str, read: Reader) -> None:
    table = Table(tables[kind])
    for name, question in QUESTIONS.items():
        if (kind, name) == ("partition_columns_in_paths", "then"):
            continue
        scan = question(table)
        expected = scan.to_arrow()
        assert expected.num_rows > 0, name
        assert_same_rows(read(scan, scan.schema.names, None), expected, key=["id"])
        assert_same_rows(read(scan, ["id"], "fare > 2"), expected.filter(pc.field("fare") > 2).select(["id"]), key=["id"])


@pytest.mark.sample(14)
@pytest.mark.parametrize(("kind", "read"), [case for case in CASES if case.values[1] is not by_splits])
def test_a_filter_opens_the_files_that_it_needs(tables: dict[str, str], kind: str, read: Reader) -> None:
    """Those of a scan with that filter: by the path of a partition, and by statistics of the metadata table."""
    watched = Watched(tables[kind])
    scan = watched.table.scan()
    for text in ("city = 'ny'", "number > 190", "number > 1000000"):
        filtered = watched.table.scan(["id"], filter=text)
        expected, needed = filtered.to_arrow(), {slice_.partition for slice_ in filtered.explain().slices}
        # A change of a type drops the statistics.
        assert len(needed) < 3 or kind == "evolved", "this proves nothing"
        found: list[pa.Table] = []
        assert watched.opened(lambda text=text, found=found: found.append(read(scan, ["id"], text))) == needed, text  # type: ignore[misc]
        assert_same_rows(found[0], expected, key=["id"])


def test_the_splits_of_a_filtered_scan_open_the_files_that_it_needs(tables: dict[str, str]) -> None:
    watched = Watched(tables["mor"])
    parts = watched.table.scan(filter="city = 'ny'").splits()
    assert [part.number for part in parts] == [0]
    assert watched.opened(lambda: [part.to_arrow(["id"], "number > 2") for part in parts]) == {"ny"}


# Splits


def read_number(split: Split) -> list[str]:
    return sorted(name for batch in split.to_batches(["id"], filter="ts = 1") for name in batch["id"].to_pylist())


@pytest.mark.full
def test_splits_are_read_by_other_processes(tmp_path: Path) -> None:
    table = mor(str(tmp_path / "t"))
    scan = table.scan()
    splits = scan.splits()
    assert [len(split.files) for split in splits] == [1, 2, 2]
    table.insert(rows("la", 50), options={"hoodie.parquet.small.file.limit": 0})
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(read_number, splits))
    assert sorted(name for part in found for name in part) == sorted(
        scan.to_arrow().filter(pc.field("ts") == 1)["id"].to_pylist()
    )


def test_splits_hold_so_many_bytes(tables: dict[str, str]) -> None:
    scan = Table(tables["cow"]).scan()
    single = scan.splits()
    assert [split.number for split in single] == [0, 1, 2]
    assert all(split.instant == scan.query.snapshot.timeline.last_visible for split in single)
    assert all(file.startswith(tables["cow"]) for split in single for file in split.files)
    pair = single[0].size_bytes + single[1].size_bytes
    assert [len(split.files) for split in scan.splits(pair)] == [2, 1]
    assert [split.size_bytes for split in scan.splits(pair)] == [pair, single[2].size_bytes]
    assert [len(split.files) for split in scan.splits(1 << 40)] == [3]
    assert Table.create("memory://readers/none", record_key="id", schema=scan.schema).scan().splits() == []


def test_splits_of_change_data(tmp_path: Path) -> None:
    table = made(str(tmp_path / "t"), options={"hoodie.table.cdc.enabled": True})
    table.insert(everywhere(0))
    table.upsert(rows("sf", 2, 4, ts=2))
    scan = table.changes()
    expected = scan.to_arrow()
    assert_same_rows(pa.concat_tables(split.to_arrow() for split in scan.splits()), expected)
    assert_same_rows(scan.to_dataset().to_table(filter=pc.field("op") == "u"), expected.filter(pc.field("op") == "u"))
    assert_same_rows(
        hp.scan_polars(scan).filter(pl.col("op") == "u").collect().to_arrow().cast(scan.schema),
        expected.filter(pc.field("op") == "u"),
    )
    assert [len(split.files) for split in scan.splits()] == [1, 1, 1, 1]


def test_a_split_has_the_columns_of_its_scan(tables: dict[str, str]) -> None:
    [split] = Table(tables["cow"]).scan(["id", "fare"], filter="city = 'ny'").splits()
    assert split.to_arrow(["fare"], "id = 'ny2'").to_pylist() == [{"fare": 103.0}]
    assert "fare" not in repr(split) and "ny" in repr(split)
    with pytest.raises(InvalidRequest, match="column 'ts' is not among the columns of the read: id, fare"):
        split.to_batches(["ts"])
    with pytest.raises(InvalidRequest, match="ts"):
        split.to_batches(filter="ts = 1")
    with pytest.raises(InvalidRequest, match="0 or more"):
        Table(tables["cow"]).scan().splits(-1)


# Limits and streams


def test_a_scan_with_a_limit_reads_no_more_than_it_takes(tables: dict[str, str]) -> None:
    watched = Watched(tables["mor"])
    scan = watched.table.scan(limit=2)
    for read in (scan.to_arrow, lambda: pa.table(scan), lambda: hp.scan_polars(scan).collect(), lambda: scan.to_pandas()):
        found: list[Any] = []
        assert watched.opened(lambda read=read, found=found: found.append(read())) == {"la"}  # type: ignore[misc]
        assert len(found[0]) == 2
    assert scan.count() == 2 and watched.table.scan(limit=99).count() == watched.table.scan().count()
    assert watched.table.scan(limit=0).to_arrow().num_rows == 0
    assert watched.table.read_optimized(limit=5).to_arrow().num_rows == 5
    assert sum(batch.num_rows for batch in watched.table.scan(filter="fare > 2", limit=3).to_batches()) == 3
    for refused in (scan.splits, scan.to_dataset):
        with pytest.raises(InvalidRequest, match="limit"):
            refused()
    with pytest.raises(InvalidRequest, match="limit"):
        watched.table.scan(limit=-1)


def test_a_stream_is_read_while_it_is_consumed(tables: dict[str, str]) -> None:
    watched = Watched(tables["mor"])
    scan = watched.table.scan()
    reader = pa.RecordBatchReader.from_stream(scan)
    assert watched.opened(reader.read_next_batch) == {"la"}
    assert watched.opened(reader.read_next_batch) == {"ny"}


def test_other_libraries_read_a_scan_as_an_arrow_stream(tables: dict[str, str]) -> None:
    scan = Table(tables["mor"]).scan()
    expected = scan.to_arrow()
    assert_same_rows(pa.table(scan), expected)
    assert_same_rows(pl.DataFrame(scan).to_arrow(), expected)
    found = duckdb.sql("select count(*), min(id) from scan where city = 'sf'")
    assert found is not None and found.fetchall() == [(4, "sf0")]
    copy = made("memory://readers/copy-of-a-scan")
    assert copy.upsert(scan).rows_inserted == scan.count() == copy.scan().count()
    assert copy.delete(scan).rows_deleted == 11


@pytest.mark.parametrize(
    ("use", "method"),
    [
        (list, r"to_batches\(\) for record batches, to_arrow\(\)\.to_pylist\(\) for rows"),
        (pd.DataFrame, r"to_pandas\(\)"),
        (len, r"use count\(\)"),
        (bool, r"use count\(\)"),
    ],
)
def test_a_scan_used_as_a_list_names_the_method_instead(
    tables: dict[str, str], use: Callable[[Any], object], method: str
) -> None:
    with pytest.raises(TypeError, match=method):
        use(Table(tables["cow"]).scan())


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each read from an open file."""
    counted: list[int] = []

    class Counted(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            found = super().read(size)
            counted.append(len(found))
            return found

    opened = MemoryStorage.open_input
    monkeypatch.setattr(
        MemoryStorage, "open_input", lambda self, path: pa.PythonFile(Counted(opened(self, path).read()), mode="r")
    )
    return counted


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("read", [by_splits, by_dataset, by_polars, by_duckdb])
def test_only_requested_columns_are_read(kind: str, read: Reader, bytes_read: list[int]) -> None:
    table = made(
        f"memory://readers/wide-{kind}-{read.__name__}", kind, options={"hoodie.parquet.compression.codec": "uncompressed"}
    )
    wide = rows("la", 0, 2000).drop_columns(["note"])
    notes = pa.array([f"{n:02000d}" for n in range(2000)])
    table.insert(wide.append_column("note", notes))
    if kind == "mor":
        table.upsert(wide.slice(0, 1).append_column("note", notes.slice(0, 1)))
    scan = table.scan()
    bytes_read.clear()
    assert read(scan, ["ts"], "number > 5").num_rows == 1994
    # A footer holds the key filter; where Arrow reads the file, its footer is checked first.
    assert sum(bytes_read) < 1_100_000, "a column of 4 MB was read"
    bytes_read.clear()
    assert read(scan, ["note"], None).num_rows == 2000
    assert sum(bytes_read) > 4_000_000, "nothing was measured"


# Datasets


def test_arrow_reads_the_files_of_slices_without_logs(tables: dict[str, str]) -> None:
    dataset = Table(tables["mor"]).scan().to_dataset()
    assert [file.split("/")[-2] for file in dataset.files] == ["la"]
    kinds = [type(fragment).__name__ for fragment in dataset.get_fragments()]
    assert kinds == ["ParquetFileFragment", "SliceFragment", "SliceFragment"]
    assert len(Table(tables["mor"]).read_optimized().to_dataset().files) == 3
    assert Table(tables["cow"]).scan(filter="ts = 1").to_dataset().files == []
    by_names = Table(tables["by_ids"]).scan().to_dataset()
    assert [file.split("/")[-2] for file in by_names.files] == ["sf"], "the others have a column of another meaning under a name"
    told = Table(tables["partition_columns_in_paths"]).scan().to_dataset()
    assert [str(fragment.partition_expression) for fragment in told.get_fragments()] == [f'(city == "{city}")' for city in CITIES]


def test_direct_use_of_the_arrow_dataset_base_fails_or_is_correct(tables: dict[str, str]) -> None:
    plain, merged = (Table(tables[kind]).scan().to_dataset() for kind in ("cow", "mor"))
    assert_same_rows(ds.dataset([plain]).to_table(), plain.to_table())
    assert_same_rows(plain.sort_by("id").to_table(), plain.to_table())
    around: Callable[[], object]
    for around in (lambda: ds.dataset([merged]).to_table(), lambda: ds.Scanner.from_dataset(merged).to_table()):
        with pytest.raises(Unsupported, match="read the dataset through its own methods"):
            around()
    assert merged.replace_schema(merged.schema) is merged
    refused: Callable[[], object]
    for refused in (lambda: merged.replace_schema(pa.schema([])), lambda: merged.filter(pc.field("ts") == 1)):
        with pytest.raises(Unsupported, match=r"Table\.scan"):
            refused()
    # A method that pyarrow gives to datasets one day has to be thought of.
    known = {"format", "filesystem", "partitioning", "from_paths", "partition_expression", "join", "join_asof", "sort_by"}
    names = {name for name in dir(ds.FileSystemDataset) if not name.startswith("_")}
    assert names - known == names & vars(HudiDataset).keys()


def test_a_dataset_projects_and_counts(tables: dict[str, str]) -> None:
    for kind in ("cow", "mor"):
        scan = Table(tables[kind]).scan()
        dataset = pickle.loads(pickle.dumps(scan.to_dataset()))
        assert dataset.count_rows() == scan.count()
        assert dataset.count_rows(filter=pc.field("ts") == 2) == 4
        assert dataset.to_table(columns=[]).num_rows == scan.count()
        assert dataset.head(3, columns=["id"]).num_rows == 3
        twice = dataset.to_table({"twice": pc.multiply(pc.field("number"), 2)}, filter=pc.field("id") == "la1")
        assert twice.to_pylist() == [{"twice": 2}]
        assert dataset.take(pa.array([0])).num_rows == 1
        with pytest.raises(pa.ArrowInvalid, match="nope"):
            dataset.scanner(["nope"])
        with pytest.raises(pa.ArrowInvalid, match="nope"):
            dataset.scanner(filter=pc.field("nope") == 1)
        for fragment in dataset.get_fragments(pc.field("city") == "sf"):
            assert fragment.count_rows(filter=pc.field("ts") == 2) == 4
            assert fragment.head(2, columns=["id"]).num_rows == 2
            assert fragment.physical_schema.names[-7:] == dataset.schema.names
            assert fragment.partition_expression is not None
    with pytest.raises(Unsupported, match="with the schema of the dataset"):
        next(iter(Table(tables["mor"]).scan(filter="ts = 2").to_dataset().get_fragments())).scanner(pa.schema([]))


def test_every_reader_reports_damage(tmp_path: Path) -> None:
    table = cow(str(tmp_path / "t"))
    dataset = table.scan().to_dataset()
    [file] = (tmp_path / "t" / "ny").glob("*.parquet")
    data = bytearray(file.read_bytes())
    footer = pq.read_metadata(file).row_group(0)
    fares = footer.column([footer.column(n).path_in_schema for n in range(footer.num_columns)].index("fare"))
    data[(fares.dictionary_page_offset or 0) + fares.total_compressed_size - 2] ^= 255
    file.write_bytes(data)
    with pytest.raises(CorruptData):
        dataset.to_table()
    file.write_bytes(data[:-1])
    with pytest.raises(CorruptData, match="ny"):
        dataset.to_table()
    assert dataset.to_table(filter=pc.field("city") == "sf").num_rows == 6


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_scan_after_a_clean_succeeds_or_states_the_remedy(tmp_path: Path, kind: str) -> None:
    """Files that no clean removed are read as before, and the error of a missing one states what to do."""
    table = KINDS[kind](str(tmp_path / "t"))
    scan = table.scan()
    dataset, frame, splits = scan.to_dataset(), hp.scan_polars(scan), scan.splits()
    for ts in range(3, 6):
        table.upsert(
            rows("sf", 0, 6, ts), options={"hoodie.compact.inline": kind == "mor", "hoodie.compact.inline.max.delta.commits": 1}
        )
    before = {str(path) for path in (tmp_path / "t" / "sf").glob("*")}
    table.clean(
        dry_run=False, options={"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    )
    assert before - {str(path) for path in (tmp_path / "t" / "sf").glob("*")}, "nothing was cleaned"
    remedy = "is missing: if a clean removed it since this query began, run the query again"
    for read in (
        scan.to_arrow,
        lambda: scan.to_reader().read_all(),
        dataset.to_table,
        lambda: splits[-1].to_arrow(),
        lambda: list(dataset.get_fragments())[-1].to_table(),
    ):
        with pytest.raises(TableState, match=remedy):
            read()
    with pytest.raises((TableState, pl.exceptions.ComputeError), match=remedy):
        frame.collect()
    assert (
        dataset.to_table(filter=pc.field("city") == "la").num_rows == frame.filter(pl.col("city") == "la").collect().height == 4
    )
    assert table.scan().to_dataset().count_rows() == table.scan().count()


# Polars


def test_lazy_frame_of_a_table_by_path(tables: dict[str, str]) -> None:
    uri = tables["cow"]
    frame = hp.scan_polars(uri, ["id", "fare"], "city = 'ny'", options={"hoodie.metadata.enable": False})
    assert frame.collect_schema() == {"id": pl.String, "fare": pl.Float64}
    assert frame.select(pl.len()).collect().item() == 4
    assert hp.scan_polars(Table(uri), as_of=first_write(Table(uri))).select(pl.col("ts").max()).collect().item() == 1
    # The limit counts rows of the source, the predicate comes after it.
    assert hp.scan_polars(uri).head(5).filter(pl.col("city") == "sf").collect().height == 0
    assert hp.scan_polars(uri).filter(pl.col("city") == "sf").head(3).collect().height == 3
    assert hp.scan_polars(uri).group_by("city").agg(pl.len()).sort("city").collect(engine="streaming")["len"].to_list() == [
        4,
        4,
        6,
    ]
    with pytest.raises(InvalidRequest, match="a scan has its columns"):
        hp.scan_polars(Table(uri).scan(), ["id"])
    with pytest.raises(InvalidRequest, match="storage_options"):
        hp.scan_polars(Table(uri), storage_options={})


def test_a_package_that_is_missing_is_named_with_its_extra(tables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    scan = Table(tables["cow"]).scan()
    for name, read in (("polars", scan.to_polars), ("polars", lambda: hp.scan_polars(scan)), ("pandas", scan.to_pandas)):
        with monkeypatch.context() as patch, pytest.raises(InvalidRequest, match=rf'pip install "pyhudi\[{name}\]"'):
            patch.setitem(__import__("sys").modules, name, None)
            read()


# What is made of the filters of engines

SCHEMA = pa.schema([("a", pa.int64()), ("f", pa.float64()), ("t", pa.string()), ("s", pa.struct([("k", pa.int64())]))])
a, f, t = pc.field("a"), pc.field("f"), pc.field("t")


@pytest.mark.parametrize(
    ("expression", "filter_text"),
    [
        ((a > 1) & (t == "x"), "a > 1 and t = 'x'"),
        ((a > 1) & (pc.utf8_length(t) > 3), "a > 1"),
        ((a > 1) | (pc.utf8_length(t) > 3), None),
        (~(a > 1), "not a > 1"),
        (~((a > 1) & (pc.utf8_length(t) > 3)), None),
        (~((a > 1) | (pc.utf8_length(t) > 3)), "not a > 1"),
        (pc.utf8_length(t) > 3, None),
        (a == f, None),
        (pc.field("nope") > 1, None),
        (t > 1, None),
        (
            pc.if_else(a.is_valid(), a.isin([1, 5]), pa.scalar(None, pa.bool_())),
            "(a is not null and a is not null and a in (1, 5)) or (a is null and null)",
        ),
        (pc.if_else(a > 1, a > 2, a > 3), None),
        (pc.field("s", "k") > 1, "s.k > 1"),
        # Arrow finds NaN neither above nor below 1.
        (f > 1.0, "f > 1.0"),
        (~(f > 1.0), None),
        (f != float("nan"), None),
        (a > 1.5, None),
        (pl.col("a") > 1, "a > 1"),
        ((pl.col("a") > 1) & (pl.col("t").str.len_chars() > 3) & (pl.col("t") == "x"), "t = 'x' and a > 1"),
        ((pl.col("a") > 1) | (pl.col("t").str.len_chars() > 3), None),
        (pl.col("a") > pl.col("f"), None),
        (pl.col("nope") > 1, None),
    ],
    ids=str,
)
def test_expressions_without_a_filter_equivalent_prune_nothing(expression: Any, filter_text: str | None) -> None:
    found = pushed_down(expression, SCHEMA)
    expected: Expr | None = None if filter_text is None else pushed_down_text(filter_text)
    assert as_text(found) == as_text(expected)


def pushed_down_text(text: str) -> Expr:
    return bind(parse_filter(text), SCHEMA)


def as_text(expr: Expr | None) -> str:
    """With conditions that must all hold in order of their text."""
    if isinstance(expr, And):
        return " and ".join(sorted(as_text(part) for part in expr.parts))
    return repr(expr)


# Tables that Apache Hudi wrote

FIRST = ("cow_bootstrapped", "cow_path_columns", "cow_schema_on_read", "cow_types", "mor_bucket", "mor_v9_AWSDms")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FIRST else pytest.mark.wide) for name in golden_cases()])
def test_golden_tables(name: str, tmp_path: Path) -> None:
    scan = Table(open_golden(name, tmp_path).path).scan()
    rows = scan.to_arrow()
    assert_same_rows(scan.to_dataset().to_table(), rows)
    assert_same_rows(pa.concat_tables(split.to_arrow() for split in scan.splits()), rows)
    assert hp.scan_polars(scan).select(pl.len()).collect().item() == rows.num_rows
    outside = [
        file
        for split in scan.splits()
        for file in split.files
        if not file.startswith(scan.query.snapshot.context.storage.uri + "/")
    ]
    assert bool(outside) == (name == "cow_bootstrapped")
