"""Jobs whose source is a folder of files."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import CorruptData, InvalidRequest, TableState, Unsupported
from pyhudi.storage.environment import ReplayEnvironment
from tests.support.ingestion import checkpoints, counted, write_lines

NOW_MS = 1_767_225_600_000


class Folder:
    """A folder of files, a table beside it, and a clock."""

    def __init__(self, path: Path) -> None:
        self.path, self.target, self.errors = path / "in", path / "t", path / "errors"
        self.path.mkdir()
        self.environment = ReplayEnvironment(3, NOW_MS)

    def run(self, source: dict[str, Any] | None = None, **settings: Any) -> Any:
        config = {
            "path": self.target,
            "record_key": "id",
            "ordering": "ts",
            "retries": 0,
            "source": {"kind": "files", "path": str(self.path), **(source or {})},
            **settings,
        }
        return hp.Ingest(config, environment=self.environment).run()[0]

    @property
    def table(self) -> Table:
        return Table(self.target, environment=self.environment)

    def rows(self, *columns: str) -> Counter[tuple[Any, ...]]:
        return counted(self.table, *columns)

    def bad(self) -> Counter[tuple[Any, ...]]:
        return counted(Table(self.errors), "record", "origin")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_numbers_widen_an_integer_column_if_the_job_has_a_schema_mode(folder: Folder) -> None:
    write_lines(folder.path / "1.json", [{"id": 1, "ts": 1, "price": 10}], NOW_MS - 9000)
    folder.run()
    write_lines(folder.path / "2.json", [{"id": 2, "ts": 1, "price": 10.5}], NOW_MS - 8000)
    with pytest.raises(InvalidRequest, match=r"10\.5"):
        folder.run()
    folder.run(schema_mode="evolve")
    assert folder.rows("id", "price") == Counter([(1, 10.0), (2, 10.5)])


def test_files_are_read_once_in_order_of_their_times(folder: Folder) -> None:
    write_lines(folder.path / "b.json", [{"id": 1, "ts": 2, "v": "new"}], NOW_MS - 5000)
    write_lines(folder.path / "sub/a.json", [{"id": 1, "ts": 1, "v": "old"}, {"id": 2, "ts": 1, "v": "x"}], NOW_MS - 9000)
    write_lines(folder.path / "_hidden.json", [{"id": 7, "ts": 1, "v": "x"}], NOW_MS - 9000)
    (folder.path / "empty.json").touch()
    result = folder.run()
    assert (result.batches, result.rows, result.remaining) == (1, 2, {})
    assert folder.rows("id", "v") == Counter({(1, "new"): 1, (2, "x"): 1})
    assert checkpoints(folder.table) == [str(NOW_MS - 5000)]
    assert folder.run().batches == 0
    write_lines(folder.path / "c.json", [{"id": 3, "ts": 1, "v": "y"}], NOW_MS - 4000)
    assert folder.run().rows == 1
    assert checkpoints(folder.table) == [str(NOW_MS - 5000), str(NOW_MS - 4000)]


@pytest.mark.full
def test_a_file_that_is_too_young_is_left_until_it_has_settled(folder: Folder) -> None:
    write_lines(folder.path / "a.json", [{"id": 1, "ts": 1}], NOW_MS - 5000)
    write_lines(folder.path / "b.json", [{"id": 2, "ts": 1}], NOW_MS - 100)
    before = folder.environment.now_ms()
    result = folder.run({"settle_seconds": 2})
    # The first read passes over b, and the second one waits for it.
    assert result.batches == 2
    assert 1900 < folder.environment.now_ms() - before < 10_000
    # A file of the same time as the youngest one that was read.
    assert folder.rows("id") == Counter({(1,): 1, (2,): 1})


@pytest.mark.full
def test_files_of_equal_modification_time_are_one_batch_despite_the_limit(folder: Folder) -> None:
    for number in range(6):
        write_lines(folder.path / f"{number}.json", [{"id": number, "ts": 1}], NOW_MS - 9000 + number // 2)
    size = (folder.path / "0.json").stat().st_size
    result = folder.run(max_bytes=size)
    assert result.batches == 3
    assert checkpoints(folder.table) == [str(NOW_MS - 9000 + number) for number in range(3)]
    assert sum(folder.rows("id").values()) == 6


@pytest.mark.full
def test_files_in_order_of_their_names(folder: Folder) -> None:
    write_lines(folder.path / "2026-01-02/a.json", [{"id": 2, "ts": 1}], NOW_MS - 9000)
    write_lines(folder.path / "2026-01-01/a.json", [{"id": 1, "ts": 1}], NOW_MS + 50_000)
    assert folder.run({"order": "name"}, max_bytes=1).batches == 2
    assert checkpoints(folder.table) == ["2026-01-01/a.json", "2026-01-02/a.json"]
    write_lines(folder.path / "2026-01-03/a.json", [{"id": 3, "ts": 1}], NOW_MS - 20_000)
    assert folder.run({"order": "name"}).rows == 1
    with pytest.raises(InvalidRequest, match="is no modification time"):
        folder.run()


@pytest.mark.full
def test_parquet_files_with_different_columns(folder: Folder) -> None:
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "ts": [1], "v": [1.5]}), folder.path / "a.parquet")
    pq.write_table(pa.table({"id": pa.array([2], pa.int64()), "ts": [1], "w": ["x"]}), folder.path / "b.parquet")
    folder.run({"order": "name"})
    assert folder.table.schema().field("id").type == pa.int64()
    assert folder.rows("id", "v", "w") == Counter({(1, 1.5, None): 1, (2, None, "x"): 1})


def test_types_of_csv_files_are_inferred_over_the_first_batch(folder: Folder) -> None:
    (folder.path / "a.csv").write_text(
        'id,ts,n,mixed,day,at,yes,empty,note\na,9,1,1,2026-01-02,2026-01-02 03:04:05.5,true,,"a, ""b""\nc"\n'
    )
    (folder.path / "b.csv").write_text("id,ts,n,mixed,day,at,yes,empty,note\nb,1,2.5,x,,2026-01-02 03:04:05,,,\n")
    with pytest.raises(InvalidRequest, match=r"timestamps without a time zone(.|\n)*pyhudi\.timestamps\.without\.zone=utc"):
        folder.run({"order": "name"})
    folder.run({"order": "name"}, options={"pyhudi.timestamps.without.zone": "utc"})
    types = {field.name: str(field.type) for field in folder.table.schema()}
    numbers = {"ts": "int64", "n": "double", "day": "date32[day]", "at": "timestamp[us, tz=UTC]", "yes": "bool"}
    assert types == {"id": "string", **numbers, "mixed": "string", "empty": "string", "note": "string"}
    assert folder.rows("n", "mixed", "note") == Counter({(1.0, "1", 'a, "b"\nc'): 1, (2.5, "x", None): 1})
    (folder.path / "c.csv").write_text("id,ts,n,at,more\na,10,3,2026-01-02 03:04:05,7\na,x,4,,8\nb,1,no,,9\nb,1,1,soon,9\n")
    options = {"pyhudi.timestamps.without.zone": "utc", "hoodie.write.set.null.for.missing.columns": "true"}
    result = folder.run({"order": "name"}, error_table=folder.errors, options=options)
    assert (result.rows, result.bad_rows) == (1, 3)
    assert folder.rows("id", "ts", "n", "more") == Counter({("a", 10, 3.0, 7): 1, ("b", 1, 2.5, None): 1})


def test_csv_files_with_transforms_keep_the_texts_of_the_table(folder: Folder) -> None:
    (folder.path / "a.csv").write_text("id,ts,code\n1,9,x1\n")
    transforms = [{"sql": "SELECT *, ts + 1 AS next FROM <SRC>"}]
    folder.run({"order": "name"}, transforms=transforms)
    (folder.path / "b.csv").write_text("id,ts,code\n1,10,001\n")
    folder.run({"order": "name"}, transforms=transforms)
    assert folder.rows("id", "ts", "next", "code") == Counter({(1, 10, 11, "001"): 1})


@pytest.mark.full
def test_csv_files_take_the_types_of_the_table(folder: Folder) -> None:
    other = Folder(folder.path)
    Table.create(
        other.target,
        record_key="id",
        ordering="ts",
        schema=pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("d", pa.date32())]),
    )
    (other.path / "a.csv").write_text("id;ts;d\n1;5;2026-01-02\n")
    (other.path / "b.csv.gz").write_bytes(gzip.compress(b"id;ts;d\n2;5;\nx;5;2026-01-02\n3;5\n3;5;someday\n"))
    result = other.run({"order": "name", "delimiter": ";"}, error_table=other.errors)
    assert result.bad_rows == 3
    assert [row["d"] is None for row in other.table.scan().to_arrow().sort_by("id").to_pylist()] == [False, True]
    assert {record for record, _ in other.bad()} == {
        "3;5",
        '{"id": "x", "ts": "5", "d": "2026-01-02"}',
        '{"id": "3", "ts": "5", "d": "someday"}',
    }


@pytest.mark.full
def test_csv_files_without_header(folder: Folder) -> None:
    (folder.path / "a.csv").write_text("1,5\n2,6\n")
    folder.run({"order": "name", "columns": ["id", "ts"]})
    assert folder.rows("id", "ts") == Counter({(1, 5): 1, (2, 6): 1})


@pytest.mark.full
def test_avro_files(folder: Folder) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, {"name": "ts", "type": ["null", "long"]}]}
    with (folder.path / "a.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"id": 1, "ts": 5}, {"id": 2, "ts": 6}], codec="deflate")
    folder.run({"order": "name"})
    assert folder.rows("id", "ts") == Counter({(1, 5): 1, (2, 6): 1})
    (folder.path / "b.avro").write_bytes(b"Obj\x01 damaged")
    with pytest.raises(CorruptData, match=r"b\.avro"):
        folder.run({"order": "name"})


def test_json_records_that_do_not_fit_go_to_the_error_table_once(folder: Folder) -> None:
    file = folder.path / "a.jsonl"
    file.write_text(
        '{"id": 1, "ts": 1, "v": {"x": [1]}}\nbroken\nbroken\n[1]\n{"id": "two", "ts": 1}\n\n{"ts": 1}\n{"id": 3}{"id": 4}\n'
    )
    result = folder.run({"order": "name"}, error_table=folder.errors)
    assert (result.rows, result.bad_rows) == (1, 6)
    assert folder.rows("id") == Counter({(1,): 1})
    origin = f"file:{file}"
    texts = ["broken", "[1]", '{"id": "two", "ts": 1}', '{"id": 3}{"id": 4}']
    assert folder.bad() == Counter(
        {**{(text, origin): 1 for text in texts}, ("broken", origin): 2, ('{"id": null, "ts": 1, "v": null}', "files"): 1}
    )


@pytest.mark.full
def test_a_bad_row_stops_the_job_without_an_error_table(folder: Folder) -> None:
    write_lines(folder.path / "a.json", [{"id": 1, "ts": 1}], NOW_MS - 9000)
    folder.run()
    (folder.path / "b.json").write_text('{"id": 2, "ts": 1}\n{"id": 3, "ts": "soon"}\n')
    with pytest.raises(InvalidRequest, match=r"b\.json cannot be written .*: .*ts.*Its record: .*soon.*set error_table"):
        folder.run({"settle_seconds": 0})
    assert folder.rows("id") == Counter({(1,): 1})
    assert len(checkpoints(folder.table)) == 1


@pytest.mark.full
def test_constraints_and_required_columns_are_checked_by_row(folder: Folder) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), ("ts", pa.int64()), pa.field("v", pa.int64(), False)])
    table = Table.create(folder.target, record_key="id", ordering="ts", schema=schema)
    table.alter.add_constraint("small", "v < 10")
    rows: list[dict[str, Any]] = [
        {"id": 1, "ts": 1, "v": 5},
        {"id": 2, "ts": 1, "v": 11},
        {"id": 3, "ts": None, "v": 1},
        {"id": 4, "ts": 1, "v": None},
    ]
    write_lines(folder.path / "a.json", rows, NOW_MS - 9000)
    assert folder.run(error_table=folder.errors).bad_rows == 3
    assert folder.rows("id", "v") == Counter({(1, 5): 1})
    reasons = {reason for (reason,) in counted(Table(folder.errors), "reason")}
    assert reasons == {"constraint small (v < 10) is violated", "ts is null", "v is null"}


@pytest.mark.full
def test_deletes_need_their_key_only(folder: Folder) -> None:
    write_lines(folder.path / "a.json", [{"id": 1, "ts": 1, "v": 1}, {"id": 2, "ts": 1, "v": 1}], NOW_MS - 9000)
    rows: list[dict[str, Any]] = [{"id": 1, "ts": 2, "v": None, "_hoodie_is_deleted": True}]
    write_lines(folder.path / "b.json", rows, NOW_MS - 8000)
    folder.run(max_bytes=1)
    assert folder.rows("id") == Counter({(2,): 1})


def test_transforms_are_a_chain(folder: Folder) -> None:
    write_lines(folder.path / "a.json", [{"id": number, "ts": 1, "v": number % 3} for number in range(9)], NOW_MS - 9000)

    def doubled(rows: pa.RecordBatchReader) -> pa.Table:
        table = rows.read_all()
        return table.append_column("twice", pa.array([2 * value for value in table["n"].to_pylist()]))

    sql = "SELECT a.v AS id, max(a.ts) AS ts, count(*) AS n FROM <SRC> a WHERE a.v IN (SELECT v FROM <SRC>) GROUP BY a.v"
    folder.run(transforms=[{"sql": sql}, doubled])
    assert folder.rows("id", "n", "twice") == Counter({(number, 3, 6): 1 for number in range(3)})


@pytest.mark.full
def test_rows_that_sql_drops_move_the_checkpoint(folder: Folder) -> None:
    write_lines(folder.path / "a.json", [{"id": 1, "ts": 1}], NOW_MS - 9000)
    write_lines(folder.path / "b.json", [{"id": 2, "ts": 1}], NOW_MS - 8000)
    sql = {"sql": "SELECT * FROM <SRC> WHERE id < 2"}
    folder.run(transforms=[sql], max_bytes=1)
    assert folder.rows("id") == Counter({(1,): 1})
    assert checkpoints(folder.table)[-1] == str(NOW_MS - 8000)
    assert folder.run(transforms=[sql]).batches == 0


@pytest.mark.full
def test_errors_of_transforms_have_their_names(folder: Folder) -> None:
    write_lines(folder.path / "a.json", [{"id": 1, "ts": 1}], NOW_MS - 9000)

    def wrong(_: Any) -> Any:
        raise ValueError("no way")

    with pytest.raises(InvalidRequest, match="transform wrong failed: ValueError: no way"):
        folder.run(transforms=[wrong])
    with pytest.raises(InvalidRequest, match="column nme does not exist"):
        folder.run(transforms=[{"sql": "SELECT nme FROM <SRC>"}])


@pytest.mark.full
def test_a_schema_from_a_file_decides_the_columns(folder: Folder, tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "string"}, {"name": "ts", "type": "long"}, {"name": "v", "type": ["null", "double"]}]
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "name": "r", "fields": fields}))
    write_lines(folder.path / "a.json", [{"id": "1", "ts": 1, "v": 1, "other": 2}], NOW_MS - 9000)
    folder.run(schema={"kind": "file", "path": str(tmp_path / "s.avsc")})
    assert folder.table.schema().names == ["id", "ts", "v"]
    assert folder.rows("id", "v") == Counter({("1", 1.0): 1})
    with pytest.raises(InvalidRequest, match=r"kind='files'.*did you mean file"):
        folder.run({"order": "name"}, schema={"kind": "files"}, ignore_checkpoint="a")


@pytest.mark.full
def test_a_schema_of_the_target_table_ignores_new_columns(folder: Folder) -> None:
    Table.create(folder.target, record_key="id", ordering="ts", schema=pa.schema([("id", pa.int64()), ("ts", pa.int64())]))
    write_lines(folder.path / "a.json", [{"id": 1, "ts": 1, "v": 1}], NOW_MS - 9000)
    folder.run(schema={"kind": "table"})
    assert folder.table.schema().names == ["id", "ts"]


@pytest.mark.full
def test_a_prescribed_checkpoint_is_used_once(folder: Folder) -> None:
    for number in range(3):
        write_lines(folder.path / f"{number}.json", [{"id": number, "ts": 1}], NOW_MS - 9000 + number)
    settings: dict[str, Any] = {"checkpoint": str(NOW_MS - 9000)}
    assert folder.run(**settings).rows == 2
    assert folder.run(**settings).batches == 0
    assert folder.run(checkpoint=str(NOW_MS - 8999)).rows == 1
    assert folder.run(ignore_checkpoint="first").rows == 3
    assert folder.run(ignore_checkpoint="first").batches == 0
    assert folder.run().batches == 0


@pytest.mark.full
def test_a_checkpoint_of_another_kind_of_source_is_refused(folder: Folder) -> None:
    write_lines(folder.path / "a.json", [{"id": 1, "ts": 1}], NOW_MS - 9000)
    folder.run()
    config = {"path": folder.target, "source": {"kind": "table", "path": str(folder.target)}}
    with pytest.raises(TableState, match="written by a source of kind files, and the job has kind table"):
        hp.Ingest(config).run()


@pytest.mark.full
def test_file_source_rejects_wrong_limits_and_formats(folder: Folder) -> None:
    with pytest.raises(Unsupported, match="set max_bytes, not max_rows"):
        folder.run(max_rows=10)
    (folder.path / "a.xyz").write_text("x")
    with pytest.raises(InvalidRequest, match=r"a\.xyz has an unknown format"):
        folder.run({"order": "name"})
    write_lines(folder.path / "b.json", [{"id": 1, "ts": 1}], NOW_MS - 9000)
    (folder.path / "c.csv").write_text("id,ts\n1,1\n")
    with pytest.raises(InvalidRequest, match="formats csv and json"):
        folder.run({"order": "name", "pattern": "*.[jc]s*"})
    assert folder.run({"order": "name", "pattern": "*.json"}).rows == 1


@pytest.mark.full
def test_a_damaged_file_is_named_and_nothing_of_the_batch_is_written(folder: Folder) -> None:
    pq.write_table(pa.table({"id": [1], "ts": [1]}), folder.path / "a.parquet")
    (folder.path / "b.parquet").write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(CorruptData, match=r"b\.parquet"):
        folder.run({"order": "name"})
    assert not folder.table.timeline().completed_writes()


def test_a_table_that_another_writer_has_just_created_is_used(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.path / "a.csv").write_text("id,ts\n1,5\n")
    keys = iter([None, ("id",)])
    monkeypatch.setattr("pyhudi.features.ingestion.ingest_table.TableIngestion._existing_key", lambda _: next(keys))
    Table.create(folder.target, record_key="id")
    folder.run({"order": "name"}, record_key=None, ordering=None)
    assert folder.rows("id", "ts") == Counter({(1, 5): 1})
