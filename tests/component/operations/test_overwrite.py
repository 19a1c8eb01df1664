"""An overwrite replaces rows and columns in one atomic commit."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import HudiError, InvalidRequest, TableState
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from tests.support.needs import WIDE

INDEXES = {
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
}
KINDS = ["cow", "mor"]


def rows(ids: range, ts: int = 1, value: pa.DataType | None = None, **more: pa.Array) -> pa.Table:
    kind = value or pa.int64()
    numbers = pa.array([n * 10 + ts for n in ids], pa.int64())
    made = pa.table(
        {
            "id": [f"k{n:02}" for n in ids],
            "part": [("x", "y", "x/z")[n % 3] for n in ids],
            "ts": pa.array([ts] * len(ids), pa.int64()),
            "value": numbers.cast(kind),
        }
    )
    for name, column in more.items():
        made = made.append_column(name, column)
    return made


@pytest.fixture(scope="module")
def table_with_commits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table of each type, to be copied."""
    paths = {}
    for table_type in KINDS:
        path = paths[table_type] = tmp_path_factory.mktemp(table_type)
        table = Table.create(
            path, name="t", record_key="id", partition_by="part", ordering="ts", table_type=table_type, options=INDEXES
        )
        table.insert(rows(range(12)))
        table.upsert(rows(range(6), 2))
        table.index.create("secondary_index", "ts", name="by_ts")
    return paths


Made = Callable[[str], Table]


@pytest.fixture
def made(table_with_commits: dict[str, Path], tmp_path: Path) -> Made:
    """A table of a type, of its own for each call."""
    numbers = itertools.count()
    return lambda table_type: Table(
        shutil.copytree(table_with_commits[table_type], tmp_path / f"t{next(numbers)}"), options=INDEXES
    )


def overwrite(table: Table, data: object, operation: WriteOperation = WriteOperation.UPSERT, /, **options: str) -> WriteResult:
    settings = WriteSettings.of(parse_options({**INDEXES, **options}), operation).overwriting()
    return run_write(table.context.reloaded(), LocalEngine(1), data, settings)


def read(table: Table, as_of: str | None = None) -> list[dict[str, object]]:
    found = Table(table.uri).scan(as_of=as_of).to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


def expected(data: pa.Table) -> list[dict[str, object]]:
    return sorted(data.to_pylist(), key=lambda row: str(row["id"]))


NEW = {
    "the same columns": rows(range(20, 26)),
    "another order of columns": rows(range(20, 26)).select(["value", "ts", "part", "id"]),
    "a column more": rows(range(20, 26), more=pa.array(["m"] * 6)),
    "a column less": rows(range(20, 26)).drop_columns(["value"]),
    "a wider column": rows(range(20, 26), value=pa.float64()),
    "a narrower column": rows(range(20, 26), value=pa.int32()),
    "a column of another type": rows(range(20, 26), value=pa.string()).set_column(3, "value", pa.array([b"v"] * 6, pa.binary())),
    "no rows": rows(range(1)).slice(1),
}
# Types that other writers of Hudi cannot go on from: only on request.
OTHER_TYPES = ("a narrower column", "a column of another type")
EVOLVE = {"pyhudi.schema.mode": "evolve"}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "table_type"),
    [
        # Several and other columns at once are detected by the others; merge on read by a column of another type.
        *(pytest.param(name, "cow", marks=pytest.mark.wide if name in ("a wider column",) else ()) for name in NEW),
        pytest.param("a column more", "mor", marks=pytest.mark.wide),
        ("a column of another type", "mor"),
    ],
)
def test_the_new_rows_and_columns_are_all_there_is(made: Made, name: str, table_type: str) -> None:
    table, data = made(table_type), NEW[name]
    before, instant = read(table), table.timeline().completed_writes()[-1].request_time
    if name in OTHER_TYPES:
        with pytest.raises(InvalidRequest, match=r"would change types.*value from .* to .*pyhudi\.schema\.mode=evolve"):
            overwrite(table, data)
        assert read(table) == before
    result = overwrite(table, data, **EVOLVE)
    assert result.operation == "insert_overwrite_table" and result.rows_in == data.num_rows
    assert len([i for i in table.timeline().completed_writes() if i.request_time > instant]) == 1
    assert Table(table.uri).schema().equals(data.schema) or name == "no rows"
    assert read(table) == expected(data)
    # The past is there until a clean removes it, with the columns that it had.
    assert read(table, instant) == before
    assert Table(table.uri).validate().ok, str(Table(table.uri).validate())
    # The next write finds or builds all indexes, by the columns of today.
    more = data.slice(0, 2) if data.num_rows else rows(range(3))
    table.upsert(more, options=INDEXES)
    assert read(table) == (expected(data) if data.num_rows else expected(more))
    there = Table(table.uri).config.metadata_partitions
    assert {"files", "column_stats", "partition_stats", "record_index", "bloom_filters", "secondary_index_by_ts"} <= set(there)
    assert Table(table.uri).validate().ok, str(Table(table.uri).validate())
    for row in read(table)[:: 1 if WIDE else 3]:
        assert table.scan(filter=[("id", "=", row["id"])]).count() == 1
        assert table.scan(filter=[("ts", "=", row["ts"])]).count() >= 1
        if "value" in row and not isinstance(row["value"], bytes):
            assert table.scan(filter=[("value", "=", row["value"])]).count() >= 1


@pytest.mark.parametrize(("name", "table_type"), [("a column less", "cow"), ("a column of another type", "mor")])
def test_a_rollback_brings_the_old_table_back(made: Made, name: str, table_type: str) -> None:
    table = made(table_type)
    before, schema = read(table), table.schema()
    result = overwrite(table, NEW[name], **EVOLVE)
    table.rollback(result.instant or "")
    assert read(table) == before and Table(table.uri).schema().equals(schema)
    table.upsert(rows(range(2), 5), options=INDEXES)
    assert [row["value"] for row in read(table)][:3] == [5, 15, before[2]["value"]]
    assert Table(table.uri).validate().ok


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", KINDS)
def test_rows_read_from_the_table_itself_may_replace_it(made: Made, table_type: str) -> None:
    table = made(table_type)
    before = read(table)
    # As a stream, which is read while the new files are written, and with the meta columns that hs.read gives.
    overwrite(table, table.scan(["*"]).to_reader())
    assert read(table) == before
    table.insert_overwrite_table(table.scan().to_reader())
    assert read(table) == before
    table.insert_overwrite(table.scan(filter="part = 'x'").to_reader())
    assert read(table) == before
    overwrite(table, table.scan(filter="ts = 2").to_reader(), **{"hoodie.clean.fileversions.retained": "1"})
    assert read(table) == [row for row in before if row["ts"] == 2]


def test_overwrite_combines_duplicate_keys_by_operation(made: Made) -> None:
    twice = pa.concat_tables([rows(range(3), 1), rows(range(3), 2), rows(range(1), 1)])
    assert overwrite(made("cow"), twice).rows_inserted == 3
    assert overwrite(made("cow"), twice, WriteOperation.INSERT).rows_inserted == 7
    assert overwrite(made("cow"), twice, WriteOperation.BULK_INSERT).rows_inserted == 7
    table = made("cow")
    overwrite(table, twice)
    assert {row["ts"] for row in read(table)} == {2}


def _failing() -> Iterator[pa.RecordBatch]:
    yield rows(range(20, 26)).to_batches()[0]
    raise RuntimeError("the source broke")


REFUSED: dict[str, object] = {
    "no key": rows(range(3)).drop_columns(["id"]),
    "no partition": rows(range(3)).drop_columns(["part"]),
    "no ordering field": rows(range(3)).drop_columns(["ts"]),
    "a null key": rows(range(3)).set_column(0, "id", pa.array(["a", None, "b"])),
    "a null ordering value": rows(range(3)).set_column(2, "ts", pa.array([1, None, 1])),
    "an index without its column": rows(range(3))
    .rename_columns(["id", "part", "value", "ts"])
    .set_column(3, "ts", pa.array([[1], [2], [3]])),
    "no rows at all": 17,
}


@pytest.mark.parametrize("name", [*REFUSED, "a source that breaks"])
def test_rejected_overwrite_keeps_the_table(made: Made, name: str) -> None:
    table = made("mor")
    before, config, writes = read(table), table.config, table.timeline().completed_writes()
    if name == "a source that breaks":
        with pytest.raises((RuntimeError, HudiError, pa.ArrowException)):
            overwrite(table, pa.RecordBatchReader.from_batches(rows(range(1)).schema, _failing()))
    else:
        with pytest.raises(InvalidRequest):
            overwrite(table, REFUSED[name])
    now = Table(table.uri)
    assert read(now) == before
    assert now.timeline().completed_writes() == writes and not now.timeline().pending()
    assert now.config.metadata_partitions == table.context.reloaded().config.metadata_partitions != ()
    assert config.keys == now.config.keys
    assert now.validate().ok


def test_a_partial_update_replaces_nothing() -> None:
    settings = WriteSettings.of(parse_options({"pyhudi.partial.update": "true"}), WriteOperation.UPSERT)
    with pytest.raises(InvalidRequest, match="partial update"):
        settings.overwriting()


@pytest.mark.sample(2)
@pytest.mark.parametrize("table_type", KINDS)
@pytest.mark.parametrize("name", ["a wider column", "a column of another type"])
def test_ranges_that_begin_before_the_overwrite(tmp_path: Path, table_type: str, name: str) -> None:
    """A range describes removed rows in the columns that they had; a range that includes both describes the remaining rows."""
    changed = {"hoodie.table.cdc.enabled": "true"}
    table = Table.create(
        tmp_path / "t", record_key="id", partition_by="part", ordering="ts", table_type=table_type, options=changed
    )
    first, before = table.insert(rows(range(6))), table.schema()
    second = table.upsert(rows(range(3), 2))
    overwrite(table, NEW[name], **EVOLVE)
    last = table.upsert(NEW[name].slice(0, 2), options=INDEXES)
    table = Table(table.uri)
    other = name == "a column of another type"
    assert first.completion_time and second.completion_time and last.completion_time
    for end, upserted in ((first, []), (second, rows(range(3), 2).to_pylist())):
        found = table.incremental(first.completion_time, end.completion_time).to_arrow()
        assert found.schema.equals(before if other else table.schema())
        now = {row["id"]: row for row in [*rows(range(6)).to_pylist(), *upserted]}
        assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [now[key] for key in sorted(now)]
        assert table.changes(first.completion_time, end.completion_time).count() == 6 + len(upserted)
        assert [f.name for f in table.changes(first.completion_time, end.completion_time, typed=True).to_arrow().schema]
    for start in (first, second):
        since = table.incremental(str(start.completion_time))
        assert since.schema.equals(table.schema())
        assert sorted(since.to_arrow().to_pylist(), key=lambda row: row["id"]) == expected(NEW[name])
    for start in (first, second):
        if other:
            with pytest.raises(TableState, match=r"value was int64 and is binary.*before the overwrite"):
                table.changes(str(start.completion_time)).to_arrow()
        else:
            assert table.changes(str(start.completion_time)).count() > 6
    assert table.changes(last.completion_time).count() == 2
