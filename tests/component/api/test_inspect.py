"""`Table.inspect` returns Arrow tables with the documented schemas, for tables of PyHudi and of Apache Hudi."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.metadata_only import build
from pyhudi.api import inspect
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.names import MarkerType
from pyhudi.storage.locks import LEASE_PATH
from pyhudi.storage.markers import Markers
from tests.support.golden_tables import open_golden


@pytest.fixture
def golden(tmp_path: Path) -> Table:
    return Table(open_golden("mor_record_index", tmp_path).path)


def test_every_inspect_result_has_its_documented_schema(golden: Table, tmp_path: Path) -> None:
    empty = Table.create(tmp_path / "empty", name="t", record_key="id")
    for table in (golden, empty, Table(open_golden("cow_types", tmp_path).path)):
        look = table.inspect
        for answer, schema in (
            (look.timeline(), inspect.TIMELINE_SCHEMA),
            (look.commits(), inspect.COMMITS_SCHEMA),
            (look.files(), inspect.FILES_SCHEMA),
            (look.file_slices(), inspect.FILE_SLICES_SCHEMA),
            (look.partitions(), inspect.PARTITIONS_SCHEMA),
            (look.sizes(), inspect.SIZES_SCHEMA),
            (look.column_stats(), inspect.COLUMN_STATS_SCHEMA),
            (look.markers(), inspect.MARKERS_SCHEMA),
            (look.locks(), inspect.LOCKS_SCHEMA),
        ):
            assert answer.schema == schema


def test_files_and_slices(golden: Table) -> None:
    look = golden.inspect
    files = look.files().to_pylist()
    assert len(files) == 11 and all(file["is_committed"] for file in files)
    slices = look.file_slices().to_pylist()
    read = {path for row in slices for path in (row["base_path"], *row["log_paths"])}
    assert {file["path"] for file in files if file["is_current"]} == read
    partitions = look.partitions().to_pylist()
    assert [row["partition"] for row in partitions] == ["amsterdam", "berlin", "chicago"]
    assert sum(row["all_files"] for row in partitions) == 11
    assert sum(row["current_bytes"] for row in partitions) == sum(s.size_bytes for s in golden.scan().explain().slices)
    sizes = look.sizes().to_pylist()
    assert all(row["min_bytes"] <= row["median_bytes"] <= row["p90_bytes"] <= row["max_bytes"] for row in sizes)
    first = look.timeline()["request_time"][-1].as_py()
    assert {row["base_instant"] for row in look.file_slices(as_of=first).to_pylist()} == {first}


def test_statistics_from_the_index_and_from_footers(golden: Table, tmp_path: Path) -> None:
    stats = golden.inspect.column_stats().to_pylist()
    assert {row["source"] for row in stats} == {"metadata"}
    assert {row["partition"] for row in stats} == {"amsterdam", "berlin", "chicago"}
    fares = [row for row in stats if row["column"] == "fare" and row["min"] is not None]
    assert all(float(row["min"]) <= float(row["max"]) for row in fares)
    footers = Table(open_golden("cow_types", tmp_path).path).inspect.column_stats().to_pylist()
    assert {row["source"] for row in footers} == {"footer"} and len(footers) > 10


def test_record_index(golden: Table, tmp_path: Path) -> None:
    found = golden.inspect.record_index(["t004", "nobody"])
    assert found.column_names == ["key", "partition", "file_id", "instant_ms"]
    assert found.to_pylist()[0]["partition"] == "berlin" and found.num_rows == 1
    assert golden.inspect.record_index(pa.array([], pa.string())).num_rows == 0
    with pytest.raises(TableState, match="record index"):
        Table(open_golden("cow_types", tmp_path).path).inspect.record_index(["a"])


def test_log_blocks(golden: Table) -> None:
    logs = [row["path"] for row in golden.inspect.files().to_pylist() if row["kind"] == "log"]
    blocks = golden.inspect.log_blocks(logs[0]).to_pylist()
    assert [block["kind"] for block in blocks] == ["AVRO"]
    assert golden.inspect.log_blocks(logs[0]).schema == inspect.LOG_BLOCKS_SCHEMA
    folder = Path(golden.uri.removeprefix("file:")) / ".hoodie" / "metadata" / "files"
    inner = f".hoodie/metadata/files/{max(folder.glob('.files*.log*')).name}"
    assert golden.inspect.log_blocks(inner).to_pylist()[0]["kind"] == "HFILE"
    with pytest.raises(InvalidRequest):
        golden.inspect.log_blocks("amsterdam/a.parquet")
    with pytest.raises(TableState):
        golden.inspect.log_blocks(logs[0].replace("log.1", "log.7"))


def test_markers_and_locks(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", name="t", record_key="id")
    storage = table.context.storage
    Markers(storage, "20260101000000000").create("p/a.parquet", MarkerType.CREATE)
    assert table.inspect.markers().to_pylist() == [{"instant_time": "20260101000000000", "path": "p/a.parquet", "kind": "CREATE"}]
    storage.put(LEASE_PATH, b'{"expired":false,"validUntil":99999999999999,"owner":"me"}')
    storage.put(".hoodie/lock", b"")
    locks = table.inspect.locks().to_pylist()
    assert [(row["path"], row["owner"], row["is_held"]) for row in locks] == [
        (LEASE_PATH, "me", True),
        (".hoodie/lock", None, True),
    ]
    storage.put(LEASE_PATH, b"not json")
    assert table.inspect.locks().to_pylist()[0]["is_held"] is False


def test_commits_count_changed_rows_and_services_count_none(tmp_path: Path) -> None:
    options = {"hoodie.index.bloom.num_entries": "100", "hoodie.metadata.enable": "false"}
    table = Table.create(tmp_path / "t", record_key="id", partition_by="city", ordering="ts", table_type="mor", options=options)
    table.upsert(pa.table({"id": ["a", "b", "c"], "city": ["sf", "ny", "sf"], "ts": [1, 1, 1]}), options=options)
    table.upsert(pa.table({"id": ["a"], "city": ["sf"], "ts": [2]}), options=options)
    table.delete(pa.table({"id": ["b"], "city": ["ny"], "ts": [3]}), options=options)
    table.compact(options=options)
    table.cluster(order_by=["id"], options=options)
    rows = table.inspect.commits().to_pylist()[::-1]
    columns = ("operation", "is_service", "rows_inserted", "rows_updated", "rows_deleted", "rows_written", "file_groups_replaced")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("UPSERT", False, 3, 0, 0, 3, 0),
        ("UPSERT", False, 0, 1, 0, 1, 0),
        ("DELETE", False, 0, 0, 1, 0, 0),
        ("COMPACT", True, 0, 0, 0, 2, 0),
        ("CLUSTER", True, 0, 0, 0, 2, rows[-1]["file_groups_replaced"]),
    ]
    assert table.inspect.commits(2).to_pylist() == rows[-2:][::-1]


def test_uncommitted_files_are_listed_from_storage_only(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", name="t", record_key="id")
    table.upsert(pa.table({"id": ["a"]}))
    base = table.inspect.files()["path"][0].as_py()
    late = f"{base.rsplit('_', 1)[0]}_20991231000000000.parquet"
    table.context.storage.put(late, b"")
    assert table.inspect.files()["path"].to_pylist() == [base]
    found = table.inspect.files(on_storage=True).to_pylist()
    assert [(row["path"], row["is_committed"], row["is_current"]) for row in found] == [(base, True, True), (late, False, False)]
    sums = [table.inspect.partitions(on_storage=on)["all_files"].to_pylist() for on in (False, True)]
    assert sums == [[1], [2]]


def test_many_files_are_listed_from_the_metadata_table_only(tmp_path: Path) -> None:
    """The table is metadata alone: there is no folder of a partition that could be listed."""
    build(tmp_path / "t", 20, 100)
    look = Table(tmp_path / "t").inspect
    assert (look.files().num_rows, look.file_slices().num_rows, look.partitions().num_rows) == (2000, 2000, 20)
    assert look.column_stats().num_rows == 8000 and look.sizes()["base_files"].to_pylist() == [100] * 20
