"""Clustering copies row groups: the same rows, statistics and indexes as by decoding; what cannot be copied is decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.tasks.base_file_reader import MAX_KEY, MIN_KEY, open_base_file
from tests.support.rows import assert_same_rows

COPY: dict[str, Any] = {"pyhudi.clustering.copy": "always"}
INDEXES: dict[str, Any] = {
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
}
EVOLVE: dict[str, Any] = {**COPY, "hoodie.clustering.plan.strategy.binary.copy.schema.evolution.enable": "true"}


def rows(batch: int, count: int = 40) -> pa.Table:
    random = np.random.default_rng(batch)
    return pa.table(
        {
            "id": [f"{batch}-{number}" for number in range(count)],
            "city": [("sf", "ny")[number % 2] for number in range(count)],
            "ts": pa.array(range(count), pa.int64()),
            "x": [float("nan")] * count if batch == 2 else random.random(count),
            "many": [[1, None, batch]] * count,
        }
    )


def make(uri: str, table_type: str = "cow", **options: Any) -> hp.Table:
    table = hp.Table.create(uri, record_key="id", partition_by="city", ordering="ts", table_type=table_type)
    for batch in range(4):
        table.bulk_insert(rows(batch), options=options)
    return table


def check_unchanged(table: hp.Table, before: pa.Table) -> None:
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))
    report = table.validate(keys=True)
    assert report.ok, str(report)


def test_rows_indexes_and_footers_are_those_of_a_clustering_that_decodes() -> None:
    tables = {mode: make(f"memory://copy-{mode}", **INDEXES) for mode in ("always", "never")}
    footers = {}
    for mode, table in tables.items():
        before = table.scan(["*"]).to_arrow()
        result = table.cluster(options={"pyhudi.clustering.copy": mode})
        assert (result.file_groups_read, result.file_groups_written, result.rows) == (8, 2, 160)
        assert result.file_groups_copied == (2 if mode == "always" else 0)
        assert bool(result.decoded_reasons) == (mode == "never")
        check_unchanged(table, before)
        for slice_ in table.scan().explain().slices:
            assert slice_.base is not None
            with open_base_file(table.context.storage, slice_.base.path) as file:
                names = set(file.read_row_group(0, columns=["_hoodie_file_name"])["_hoodie_file_name"].to_pylist())
                assert names == {Path(slice_.base.path).name}
                footers[mode, slice_.partition] = {
                    key: value for key, value in (file.metadata.metadata or {}).items() if key.decode() in (MIN_KEY, MAX_KEY)
                }
        updated = rows(1, 4).set_column(2, "ts", pa.array([500] * 4, pa.int64()))
        table.upsert(updated, options=INDEXES)
        assert table.scan(filter="ts = 500").count() == 4
        assert table.scan(filter="x > 0.5").count() > 0
    assert footers["always", "sf"] == footers["never", "sf"]


def test_large_row_groups_are_copied_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("memory://copy-auto")
    small = table.cluster()
    assert small.file_groups_copied == 0
    assert "on average" in small.decoded_reasons[0]
    monkeypatch.setattr("pyhudi.tasks.copy_row_groups._LEAST_GROUP_BYTES", 1)
    other = make("memory://copy-auto-large")
    decoded = other.cluster(options={"hoodie.parquet.compression.codec": "gzip"})
    assert (decoded.file_groups_copied, "codec" in decoded.decoded_reasons[0]) == (0, True)
    assert make("memory://copy-auto-same").cluster().file_groups_copied == 2


def test_one_group_is_split_into_several_files() -> None:
    table = make("memory://copy-split")
    before = table.scan(["*"]).to_arrow()
    result = table.cluster(options={**COPY, "hoodie.clustering.plan.strategy.target.file.max.bytes": "12000"})
    assert result.file_groups_copied == result.file_groups_written > 2
    check_unchanged(table, before)


def test_plan_names_the_strategy_class_of_hudi_and_is_executed_by_it() -> None:
    table = make("memory://copy-plan")
    strategy = "org.apache.hudi.client.clustering.run.strategy.SparkBinaryCopyClusteringExecutionStrategy"
    planned = table.schedule_clustering(options={"hoodie.clustering.execution.strategy.class": strategy})
    assert planned.instant is not None
    assert table.cluster(planned.instant).file_groups_copied == 2
    with pytest.raises(InvalidRequest, match="contradicts"):
        table.cluster(options={"hoodie.clustering.execution.strategy.class": strategy, "pyhudi.clustering.copy": "never"})


def test_sorted_clusterings_and_slices_with_logs_are_decoded() -> None:
    table = make("memory://copy-logs", "mor")
    assert make("memory://copy-sorted").cluster(order_by="x", options=COPY).decoded_reasons == ("rows are sorted",)
    table.upsert(rows(0, 4).set_column(2, "ts", pa.array([500] * 4, pa.int64())), options={"hoodie.compact.inline": "false"})
    before = table.scan(["*"]).to_arrow()
    result = table.cluster(options=COPY)
    assert (result.file_groups_copied, result.decoded_reasons) == (0, ("file slices have log files",))
    check_unchanged(table, before)
    compacted = make("memory://copy-without-logs", "mor")
    assert compacted.cluster(options=COPY).file_groups_copied == 2


def test_files_that_lack_a_column_are_decoded_or_get_nulls() -> None:
    for options, copied in ((COPY, 0), (EVOLVE, 2)):
        table = make(f"memory://copy-evolve-{copied}", **INDEXES)
        wide = rows(7).append_column("later", pa.array([{"a": [str(n)]} for n in range(40)]))
        table.bulk_insert(wide, options={**INDEXES, "pyhudi.schema.mode": "merge"})
        before = table.scan(["*"]).to_arrow()
        result = table.cluster(options=options)
        assert result.file_groups_copied == copied, result.decoded_reasons
        assert copied or "has no column later" in result.decoded_reasons[0]
        check_unchanged(table, before)


def test_a_column_that_was_widened_is_decoded() -> None:
    table = hp.Table.create("memory://copy-widened", record_key="id")
    for type_ in (pa.int32(), pa.int64()):
        table.bulk_insert(pa.table({"id": [str(type_)], "n": pa.array([1], type_)}), options={"pyhudi.schema.mode": "widen"})
    before = table.scan(["*"]).to_arrow()
    result = table.cluster(options=COPY)
    assert (result.file_groups_copied, "is int32" in result.decoded_reasons[0]) == (0, True)
    check_unchanged(table, before)


@pytest.mark.parametrize(
    "options", [{"hoodie.parquet.bloom.filter.enabled": "false"}, {"hoodie.bloom.index.filter.type": "SIMPLE"}]
)
def test_other_key_filters(options: dict[str, Any]) -> None:
    table = make(f"memory://copy-filter-{len(str(options))}", **options)
    before = table.scan(["*"]).to_arrow()
    assert table.cluster(options={**COPY, **options}).file_groups_copied == 2
    check_unchanged(table, before)
    assert table.scan(keys=[{"id": "1-3"}]).count() == 1


def test_tables_without_meta_columns() -> None:
    table = hp.Table.create("memory://copy-virtual", record_key="id", options={"hoodie.populate.meta.fields": "false"})
    for batch in range(3):
        table.bulk_insert(rows(batch))
    before = table.scan().to_arrow()
    assert table.cluster(options=COPY).file_groups_copied == 1
    assert_same_rows(table.scan().to_arrow(), before)


def test_damage_is_not_spread_to_the_new_file(tmp_path: Path) -> None:
    table = make(str(tmp_path / "t"))
    path = next(tmp_path.glob("t/sf/*.parquet"))
    whole = path.read_bytes()
    chunk = pq.read_metadata(path).row_group(0).column(8)
    damaged = bytearray(whole)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    damaged[start + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(CorruptData, match=path.name):
        table.cluster(options=COPY)
    path.write_bytes(whole)
    before = table.scan(["*"]).to_arrow()
    (pending,) = table.timeline().pending()
    assert table.cluster(pending.request_time, options=COPY).file_groups_copied == 2
    check_unchanged(table, before)
    assert len(list(tmp_path.glob("t/sf/*.parquet"))) == 5, "files of the failed attempt were removed"


def test_a_copied_file_is_copied_again_and_read_by_other_libraries(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    table = make(str(tmp_path / "t"))
    before = table.scan(["*"]).to_arrow()
    for _ in range(2):
        assert table.cluster(options={**COPY, "hoodie.table.services.incremental.enabled": False}).file_groups_copied == 2
        table.bulk_insert(rows(8, 0))
        check_unchanged(table, before)
    for slice_ in table.scan().explain().slices:
        assert slice_.base is not None
        path = str(tmp_path / "t" / slice_.base.path)
        assert pq.read_table(path, page_checksum_verification=True).num_rows == 80
        assert polars.read_parquet(path).height == 80
        assert duckdb.sql(f"SELECT count(many), count(DISTINCT _hoodie_file_name) FROM '{path}'").fetchall() == [(80, 1)]


def test_files_of_a_failed_attempt_without_markers_are_removed(tmp_path: Path) -> None:
    """Hudi's binary copy creates no markers."""
    table = make(str(tmp_path / "t"))
    before = table.scan(["*"]).to_arrow()
    planned = table.schedule_clustering(options=COPY)
    assert planned.instant is not None
    left = tmp_path / "t" / "sf" / f"{'0' * 8}-0000-0000-0000-{'0' * 12}-0_0-33-58_{planned.instant}.parquet"
    left.write_bytes(b"")
    assert table.cluster(planned.instant).file_groups_copied == 2
    assert not left.exists()
    check_unchanged(table, before)
