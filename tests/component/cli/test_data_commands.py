"""Commands for rows: create, load, count, delete, changes, export."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli.app import app
from pyhudi.cli.output import Format, print_value
from pyhudi.errors import InvalidRequest
from pyhudi.operations.commit.results import CleanResult
from tests.support.rows import assert_same_rows

RUNNER = CliRunner()
ROWS = pa.table({"id": ["a", "b", "c"], "city": ["sf", "ny", "sf"], "n": [1, 2, 3]})
QUIET = ["-O", "hoodie.index.bloom.num_entries=100"]


def call(*arguments: object, code: int = 0) -> str:
    result = RUNNER.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def uri(tmp_path: Path) -> str:
    folder = tmp_path / "t"
    call(
        "create",
        folder,
        "--record-key",
        "id",
        "--partition-by",
        "city",
        "--table-type",
        "mor",
        "-O",
        "hoodie.table.cdc.enabled=true",
    )
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    call("load", folder, tmp_path / "rows.parquet", *QUIET)
    return str(folder)


def test_from_files_and_to_files(uri: str, tmp_path: Path) -> None:
    assert hp.Table(uri).config.is_cow is False
    assert call("count", uri) == "3\n"
    assert call("count", uri, "-f", "n > 1") == "2\n"
    for suffix, kind in ((".parquet", "parquet"), (".csv", "csv"), (".arrow", "ipc")):
        file = tmp_path / f"out{suffix}"
        assert "2 rows" in call("export", uri, file, "-c", "id,n", "-f", "city = 'sf'")
        found = pyarrow.dataset.dataset(str(file), format=kind).to_table()
        assert_same_rows(found, ROWS.filter(pa.array([True, False, True])).select(["id", "n"]), key=["id"])
        # What is there stays.
        with pytest.raises(InvalidRequest, match="exists already"):
            call("export", uri, file)
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out.arrow", "out.csv", "out.parquet"]


def test_load_error_names_the_schema_mode(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "more.csv"
    pa.csv.write_csv(pa.table({"id": ["d"], "city": ["sf"], "n": [4], "extra": ["x"]}), file)
    with pytest.raises(InvalidRequest, match="schema mode strict"):
        call("load", uri, file, "--schema-mode", "strict", *QUIET)
    result = json.loads(call("load", uri, file, "--mode", "insert", "-o", "json", *QUIET))
    assert result["schema_changes"] == ["extra string is new"]
    for wrong in (["load", uri, tmp_path / "rows.parquet", file], ["load", uri, file, "--mode", "delete"]):
        with pytest.raises(InvalidRequest):
            call(*wrong)
    with pytest.raises(InvalidRequest, match="has an unknown format"):
        call("export", uri, tmp_path / "out.xlsx")


def test_delete_previews_the_number_of_rows(uri: str) -> None:
    assert "would delete 2 rows" in call("delete", uri, "--where", "city = 'sf'")
    assert call("count", uri) == "3\n"
    before = hp.Table(uri).timeline().last_completed_write()
    call("delete", uri, "--where", "city = 'sf'", "--yes")
    assert call("count", uri) == "1\n"
    assert before is not None
    rows = json.loads(call("changes", uri, "--after", str(before.completion_time), "-o", "json"))
    assert [row["op"] for row in rows] == ["d", "d"]


def test_facts_for_programs_are_data(uri: str) -> None:
    facts = json.loads(call("show", uri, "-o", "json"))
    assert facts["pending"] == []
    assert facts["last write"]["state"] == "COMPLETED"
    assert facts["last write"]["instant"] < facts["last write"]["completed"]
    assert (facts["instants"], facts["partitions"]) == (1, 2)


def test_advice_is_in_the_spelling_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    planned = CleanResult(True, None, None, "KEEP_LATEST_COMMITS", files={"p": ("p/f.parquet",)})
    assert "dry_run=False" in str(planned)
    print_value(planned, Format.TABLE)
    assert "run it with   --yes" in capsys.readouterr().out


def test_sql(uri: str) -> None:
    found = call("sql", "SELECT count(*) AS n FROM t WHERE n > 1", "--table", f"t={uri}", "-o", "json")
    assert json.loads(found) == [{"n": 2}]
    assert call("sql", "DROP TABLE t", "-t", f"t={uri}") == ""
    with pytest.raises(InvalidRequest, match="line 1, column 1: expected a statement"):
        call("sql", "SELEC 1")
