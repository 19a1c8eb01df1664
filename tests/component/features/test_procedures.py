"""Procedures: argument checks and refusals. tests/interop compares results with Apache Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import InvalidRequest, Table, TableNotFound, TableState, Unsupported
from pyhudi.features import procedures


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", table_type="mor")
    for ts in range(3):
        table.upsert(pa.table({"id": ["a", "b"], "ts": [ts, ts]}))
    return str(tmp_path / "t")


def test_a_call(path: str) -> None:
    found = procedures.call("SHOW_COMMITS", path=path, limit="2")
    assert found.num_rows == 2 and found.schema == procedures.PROCEDURES["show_commits"].output
    assert "limit int = 10" in procedures.describe("show_commits")


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("show_comits", {}, "did you mean show_commits"),
        ("show_commits", {"limt": 1}, "did you mean limit"),
        ("show_commits", {"limit": "many"}, "must be an integer"),
        ("show_commit_files", {}, "requires the argument 'instant_time'"),
        ("run_compaction", {"op": "nonsense"}, "scheduleAndExecute"),
        ("run_compaction", {"op": "run", "options": "nonsense"}, "not key=value"),
        ("run_clean", {"retain_commits": 1, "options": "hoodie.clean.commits.retained=2"}, "disagree"),
        ("repair_add_partition_meta", {"dry_run": "maybe"}, "true or false"),
        ("repair_overwrite_hoodie_props", {"new_props_file_path": "/none/such"}, "does not exist"),
    ],
)
def test_wrong_calls(path: str, name: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        procedures.call(name, path=path, **arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("run_clustering", {"predicate": "part = 'a'"}),
        ("run_clean", {"skip_locking": True}),
        ("run_clean", {"schedule_in_line": False}),
        ("run_ttl", {"ttl_policy": "KEEP_BY_CREATION_TIME"}),
        ("archive_commits", {"enable_metadata": False}),
        ("show_logfile_records", {"log_file_path_pattern": "*", "merge": True}),
    ],
)
def test_what_is_not_carried_out_is_refused(path: str, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        procedures.call(name, path=path, **arguments)


def test_tables(path: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="requires path="):
        procedures.call("show_commits")
    with pytest.raises(InvalidRequest, match="needs a Spark session"):
        procedures.call("show_commits", table="t")
    with pytest.raises(TableNotFound):
        procedures.call("show_commits", path=tmp_path / "none")
    with pytest.raises(TableState, match="no log file"):
        procedures.call("show_logfile_records", path=path, log_file_path_pattern="*.parquet")


@pytest.mark.parametrize("pattern", [".*.log.*", "{absolute}/.*.log.*", "{uri}/.*.log.*", "[.]*.{{log,other}}.?_*"])
def test_patterns_of_log_files(path: str, pattern: str) -> None:
    chosen = pattern.format(absolute=path, uri=Table(path).uri)
    assert procedures.call("show_logfile_records", path=path, log_file_path_pattern=chosen).num_rows == 4
    assert procedures.call("show_logfile_metadata", path=path, log_file_path_pattern=chosen).num_rows == 2


def test_markers_and_the_metadata_table(path: str) -> None:
    with pytest.raises(TableState):
        procedures.call("delete_marker", path=path, instant_time="20200101000000000")
    procedures.call("delete_metadata_table", path=path)
    with pytest.raises(TableState, match="no metadata table"):
        procedures.call("show_metadata_table_files", path=path)


def test_versions(path: str) -> None:
    assert procedures.call("upgrade_table", path=path, to_version="NINE").to_pylist() == [{"result": True}]
    assert int(Table(path).config.version) == 9
    assert procedures.call("downgrade_table", path=path, to_version="EIGHT").to_pylist() == [{"result": True}]
    assert int(Table(path).config.version) == 8
    with pytest.raises(InvalidRequest, match="'9' is none of SIX, EIGHT, NINE"):
        procedures.call("upgrade_table", path=path, to_version="9")
