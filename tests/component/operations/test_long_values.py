"""Long texts and bytes: short bounds in statistics, filters at their borders, and a small metadata table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.metadata_table.codecs.value_wrappers import unwrap
from pyhudi.metadata_table.reader.index_lookups import find_column_stats, find_partition_stats
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.records.column_statistics import MAX_BOUND_BYTES

RECORD_INDEX = {"hoodie.metadata.record.index.enable": True}
LONG = 20 << 20
TEXTS = {"p0": ["a" * 255, "a" * 300 + "x"], "p1": ["a" * 251 + "b", "a" * 252 + "b"], "p2": ["é" * 5000, "\U0001f600" * 2000]}
BORDERS = ["a" * 252, "a" * 251 + "b", "a" * 300 + "x", "a" * 300 + "y", "é" * 126, "é" * 5000, "\U0001f600" * 64, "\U0001f601"]


def rows() -> pa.Table:
    texts = [(partition, text) for partition, of_partition in TEXTS.items() for text in of_partition]
    return pa.table(
        {
            "id": [str(number) for number in range(len(texts))],
            "p": [partition for partition, _ in texts],
            "text": [text for _, text in texts],
            "data": [text.encode() for _, text in texts],
        }
    )


def bounds(table: hp.Table, column: str, type_: pa.DataType) -> list[str | bytes]:
    metadata = MetadataTable(hp.Table(table.uri).context, table.timeline())
    found = []
    for stats in (find_column_stats(metadata, [column]), find_partition_stats(metadata, [column])):
        for name in ("min", "max"):
            found += unwrap(stats.column(name).combine_chunks(), type_)[0].to_pylist()
    return found


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_filters_find_rows_at_the_borders_of_short_bounds(tmp_path: Path, kind: str, version: int) -> None:
    options = {"hoodie.write.table.version": version}
    table = hp.Table.create(tmp_path / "t", record_key="id", partition_by="p", table_type=kind, options=options)
    for _ in range(2):
        table.upsert(rows())
    for column, type_ in (("text", pa.string()), ("data", pa.binary())):
        stored = bounds(table, column, type_)
        assert len(stored) >= 12 and max(len(v.encode() if isinstance(v, str) else v) for v in stored) <= MAX_BOUND_BYTES
    every = [text for of_partition in TEXTS.values() for text in of_partition]
    for border in BORDERS:
        for op, expected in (
            ("=", [text for text in every if text == border]),
            ("<", [text for text in every if text < border]),
            (">=", [text for text in every if text >= border]),
        ):
            found = table.scan(filter=("text", op, border)).to_arrow()["text"].to_pylist()
            assert sorted(found) == sorted(expected), (op, border[:5], len(border))
    assert table.validate(keys=True).ok
    table.index.rebuild()
    assert table.validate().ok


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_the_metadata_table_of_long_cells_stays_small_and_readable(tmp_path: Path, kind: str) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id", table_type=kind)
    # The metadata table is compacted meanwhile.
    options = {"hoodie.metadata.compact.max.delta.commits": 1}
    for number in range(3):
        table.upsert(pa.table({"id": ["a"], "n": [number], "text": ["x" * LONG]}), options=options)
    size = sum(file.stat().st_size for file in (tmp_path / "t" / ".hoodie" / "metadata").rglob("*") if file.is_file())
    assert size < 1_000_000
    assert table.scan(["n"], filter=f"text = '{'x' * LONG}'").to_arrow()["n"].to_pylist() == [2]
    assert table.validate().ok


@pytest.mark.parametrize("damage", ["garbage", "empty", "folder"])
def test_a_metadata_table_that_cannot_be_read_is_rebuilt_after_a_failed_write(tmp_path: Path, damage: str) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id", partition_by="p", options=RECORD_INDEX)
    table.upsert({"id": ["a", "b"], "p": ["x", "y"]}, options=RECORD_INDEX)
    indexes = hp.Table(tmp_path / "t").config.metadata_partitions
    for file in list((tmp_path / "t" / ".hoodie" / "metadata" / "files").iterdir()):
        if damage == "folder":
            file.unlink()
        elif "partition_metadata" not in file.name:
            file.write_bytes(b"" if damage == "empty" else b"x" * 9000)
    # The write fails, and its rollback stays pending.
    with pytest.raises(hp.HudiError):
        hp.Table(tmp_path / "t").upsert({"id": ["a"], "p": ["x"]}, options=RECORD_INDEX)
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert hp.Table(tmp_path / "t").count() == 2
    hp.Table(tmp_path / "t").repair()
    table = hp.Table(tmp_path / "t")
    assert table.config.metadata_partitions == indexes
    table.upsert({"id": ["c"], "p": ["x"]})
    assert table.count() == 3 and table.validate().ok
