"""An open table reads each Parquet footer once, until the file changes."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi import Scan, Table, scan_polars, sql
from pyhudi.errors import CorruptData, InvalidRequest, TableState
from pyhudi.format.parquet.parquet_file import SplitFooter, read_parted_footer
from pyhudi.options.read_options import READ_CHECKSUMS
from pyhudi.storage.base import FileInfo
from pyhudi.table import footer_cache as footers_module
from pyhudi.table.footer_cache import FooterCache
from pyhudi.tasks import base_file_reader

NO_SKIPPING = {"hoodie.enable.data.skipping": "false"}


def rows(keys: range, stamp: int = 0) -> pa.Table:
    values = pa.array([key + 1000 * stamp for key in keys], pa.int64())
    return pa.table({"id": [f"k{key:03}" for key in keys], "value": values, "ts": pa.array([stamp] * len(keys), pa.int64())})


def made(path: Path, kind: str = "cow", **more: Any) -> Table:
    table = Table.create(path, record_key="id", ordering="ts", table_type=kind, **more)
    table.bulk_insert(rows(range(30)))
    return table


def base_file(table: Table) -> Path:
    return max(Path(table.uri.removeprefix("file:")).glob("*.parquet"), key=lambda path: path.name.split("_")[-1])


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each footer that is read."""
    found: list[int] = []

    def reading(source: pa.NativeFile, keys: Sequence[bytes]) -> SplitFooter:
        found.append(source.size())
        return read_parted_footer(source, keys)

    monkeypatch.setattr(base_file_reader, "read_parted_footer", reading)
    return found


def of_key(table: Table, key: str) -> list[dict[str, Any]]:
    return table.scan(filter=f"id = '{key}'", options=NO_SKIPPING).to_arrow().to_pylist()


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_footer_is_read_once(kind: str, tmp_path: Path, fetched: list[int]) -> None:
    table = made(tmp_path / "t", kind)
    reader = Table(table.uri)
    assert reader.scan().to_arrow().num_rows == 30
    assert len(fetched) == 1
    assert len(reader.scan(filter="value >= 20", options=NO_SKIPPING).to_arrow()) == 10
    assert len(fetched) == 1
    # The key filter was released, because no key was looked up; from now on it is kept, too.
    assert of_key(reader, "k003")[0]["value"] == 3
    assert of_key(reader, "k999") == [] and of_key(reader, "k029")[0]["value"] == 29
    assert reader.scan().to_arrow().num_rows == 30
    assert len(fetched) == 2
    table.upsert(rows(range(5), 1))
    fetched.clear()
    assert of_key(reader, "k003")[0]["value"] == 1003 and of_key(reader, "k999") == []
    assert len(fetched) == (1 if kind == "cow" else 0)
    assert Table(table.uri).scan().to_arrow().num_rows == 30
    assert len(fetched) == (2 if kind == "cow" else 1)


def test_a_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    """Another file of the same name and size, as after a table was dropped and re-created, or a copy was restored."""
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    assert len(of_key(reader, "k003")) == 1
    path = base_file(table)
    data = bytearray(path.read_bytes())
    stood = path.stat().st_mtime_ns
    at = data.rindex(b"hoodie_min_record_key")
    data[at + 1] ^= 4
    path.write_bytes(data)
    os.utime(path, ns=(stood, stood + 5_000_000))
    with pytest.raises(CorruptData, match=path.name):
        of_key(reader, "k003")
    with pytest.raises(CorruptData, match=path.name):
        reader.scan().to_arrow()
    data[at + 1] ^= 4
    path.write_bytes(data)
    os.utime(path, ns=(stood, stood + 9_000_000))
    assert len(of_key(reader, "k003")) == 1 and reader.scan().to_arrow().num_rows == 30


def test_damaged_pages_are_noticed(tmp_path: Path) -> None:
    """Whose file has neither another size nor another time."""
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    assert len(of_key(reader, "k003")) == 1
    path = base_file(table)
    stood = path.stat()
    data = bytearray(path.read_bytes())
    for at in range(40, 80):
        data[at] ^= 0x55
    path.write_bytes(data)
    os.utime(path, ns=(stood.st_atime_ns, stood.st_mtime_ns))
    with pytest.raises(CorruptData, match=path.name):
        reader.scan(["*"]).to_arrow()


def test_deleted_file_is_noticed(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    assert of_key(reader, "k999") == []
    base_file(table).unlink()
    for key in ("k999", "k003"):
        with pytest.raises(TableState, match="is missing"):
            of_key(reader, key)


def test_recreated_table_is_noticed(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    assert len(of_key(reader, "k003")) == 1
    shutil.rmtree(tmp_path / "t")
    again = Table.create(tmp_path / "t", record_key="id", ordering="ts")
    again.bulk_insert(rows(range(100, 130), 2))
    assert of_key(reader, "k003") == [] and of_key(reader, "k103")[0]["ts"] == 2


def test_cached_footers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = base_file(made(tmp_path / "t"))
    with pa.OSFile(str(path)) as source:
        footer = read_parted_footer(source, [b"org.apache.hudi.bloomfilter"])
    assert footer.texts
    monkeypatch.setattr(footers_module, "MAX_FOOTER_BYTES", 5 * footer.memory_bytes)
    held = FooterCache()
    files = [FileInfo(f"f{number}", 1, 1) for number in range(9)]
    for file in files:
        held.put(file, footer)
    assert [held.get(file) is not None for file in files] == [False] * 4 + [True] * 5
    assert held.get(FileInfo("f8", 2, 1)) is None and held.get(FileInfo("f8", 1, 2)) is None
    monkeypatch.setattr(footers_module, "MAX_FOOTER_BYTES", footer.memory_bytes - 1)
    held = FooterCache()
    held.put(files[0], footer)
    assert held.get(files[0]) is None


def test_a_pickled_query_leaves_footers_behind(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    assert len(of_key(table, "k003")) == 1
    query = table.scan(filter="id = 'k003'", options=NO_SKIPPING).query
    size = len(pickle.dumps(query.spec))
    assert size < 20_000
    assert pickle.loads(pickle.dumps(query.spec)).output == query.spec.output


# Page checksums


def price_table(path: Path) -> Table:
    plain = {"hoodie.parquet.compression.codec": "uncompressed", "hoodie.parquet.dictionary.enabled": "false"}
    table = Table.create(path, record_key="id", ordering="ts", options=plain)
    prices = pa.array([Decimal(key) / 4 for key in range(30)], pa.decimal128(12, 2))
    table.bulk_insert(rows(range(30)).append_column("price", prices))
    return table


def change_last_value(table: Table, column: str, *, later_ns: int = 0) -> None:
    """Change the last value of a column in the base file, which keeps its size. later_ns: added to its time."""
    path = base_file(table)
    stamp, group = path.stat(), pq.read_metadata(path).row_group(0)
    chunk = next(group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == column)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + later_ns))


READERS: dict[str, Callable[[Scan], pa.Table]] = {
    "arrow": Scan.to_arrow,
    "batches": lambda scan: scan.to_reader().read_all(),
    "dataset": lambda scan: scan.to_dataset().to_table(),
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("column", ["value", "price"])
def test_page_checksums_are_verified_always_once_or_never(tmp_path: Path, column: str, read: str) -> None:
    table = price_table(tmp_path / "t")
    readers = {mode: Table(table.uri, options={READ_CHECKSUMS.key: mode}) for mode in ("always", "once", "never")}
    expected = table.scan().to_arrow()
    for reader in readers.values():
        assert READERS[read](reader.scan()).num_rows == expected.num_rows
    change_last_value(table, column)
    assert READERS[read](readers["never"].scan())[column].to_pylist() != expected[column].to_pylist()
    for reader in (readers["always"], Table(table.uri), Table(table.uri, options={READ_CHECKSUMS.key: "once"})):
        with pytest.raises(CorruptData, match=base_file(table).name):
            READERS[read](reader.scan())
    if read == "dataset":
        # Arrow's own reader does not record what it has verified.
        with pytest.raises(CorruptData):
            READERS[read](readers["once"].scan())
        return
    assert READERS[read](readers["once"].scan())[column].to_pylist() != expected[column].to_pylist()
    change_last_value(table, "id", later_ns=5_000_000)
    with pytest.raises(CorruptData, match=base_file(table).name):
        READERS[read](readers["once"].scan())


def test_polars_and_duckdb_read_files_whose_page_checksums_are_verified(tmp_path: Path) -> None:
    table = price_table(tmp_path / "t")
    expected = table.scan().to_arrow()["value"].to_pylist()
    change_last_value(table, "value")
    for mode in ("always", "once", "never"):
        scan = Table(table.uri, options={READ_CHECKSUMS.key: mode}).scan(["id", "value"])
        reads: list[Callable[[], pa.Table]] = [
            lambda scan=scan: scan_polars(scan).collect().to_arrow(),  # type: ignore[misc]
            lambda scan=scan: scan.to_polars().to_arrow(),  # type: ignore[misc]
            lambda scan=scan: sql("SELECT * FROM s", tables={"s": scan}),  # type: ignore[misc]
        ]
        for read in reads:
            if mode != "never":
                with pytest.raises(CorruptData, match=base_file(table).name):
                    read()
            else:
                assert read()["value"].to_pylist() != expected


def test_each_column_is_verified_once(tmp_path: Path) -> None:
    table = price_table(tmp_path / "t")
    reader = Table(table.uri)
    assert reader.scan(["id", "value"]).to_arrow().num_rows == 30
    change_last_value(table, "price")
    for columns in (["price"], ["id", "price"], None):
        with pytest.raises(CorruptData, match=base_file(table).name):
            reader.scan(columns).to_arrow()
    assert reader.scan(["value", "id"]).to_arrow().num_rows == 30


def test_writes_verify_what_reads_do_not(tmp_path: Path) -> None:
    table = price_table(tmp_path / "t")
    reader = Table(table.uri)
    assert reader.scan(["*"]).to_arrow().num_rows == 30
    change_last_value(table, "value")
    assert reader.scan().to_arrow().num_rows == 30
    with pytest.raises(CorruptData, match=base_file(table).name):
        reader.upsert(reader.scan(limit=1).to_arrow())
    with pytest.raises(InvalidRequest, match=r"pyhudi\.read\.checksums"):
        reader.scan(options={READ_CHECKSUMS.key: "sometimes"})
