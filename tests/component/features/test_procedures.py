"""Procedures: argument checks and refusals. tests/interop compares results with Apache Hudi."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import InvalidRequest, Table, TableNotFound, TableState, Unsupported
from pyhudi.features import procedures
from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.instants import Action
from pyhudi.table.listing import DirectoryListing
from tests.support.hudi_dead_writes import SERVICES_ARE_DEAD


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
    ("name", "arguments", "message"),
    [
        ("show_comits", {}, "did you mean show_commits"),
        ("show_commits", {"limt": 1}, "did you mean limit"),
        ("show_commits", {"limit": "many"}, "must be an integer"),
        ("show_commits", {"limit": -1}, "limit=-1 of show_commits is negative"),
        ("show_commit_files", {}, "requires the argument 'instant_time'"),
        ("run_compaction", {"op": "nonsense"}, "scheduleAndExecute"),
        ("run_compaction", {"op": "run", "options": "nonsense"}, "not key=value"),
        ("run_compaction", {"op": "run", "limit": -1}, "limit=-1 is negative"),
        ("run_clean", {"retain_commits": 1, "options": "hoodie.clean.commits.retained=2"}, "disagree"),
        ("repair_add_partition_meta", {"dry_run": "maybe"}, "true or false"),
        ("repair_overwrite_hoodie_props", {"new_props_file_path": "/none/such"}, "does not exist"),
    ],
)
def test_wrong_calls(path: str, name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        procedures.call(name, path=path, **arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("run_clustering", {"predicate": "part = 'a'"}),
        ("Repair_Deduplicate", {}),
        ("repair_clustering_plan", {"instant": "1"}),
        ("restore_to_instant", {"instant_time": "1", "enable_consistency_guard": True}),
        ("run_clean", {"skip_locking": True}),
        ("run_clean", {"schedule_in_line": False}),
        ("run_ttl", {"ttl_policy": "KEEP_BY_CREATION_TIME"}),
        ("archive_commits", {"enable_metadata": False}),
        ("show_logfile_records", {"log_file_path_pattern": "*", "merge": True}),
    ],
)
def test_unsupported_procedures_are_refused(path: str, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        procedures.call(name, path=path, **arguments)


def test_partitions_of_a_clustering_and_of_file_sizes(tmp_path: Path) -> None:
    """A pattern applies unless partitions are named; partition paths may begin with a slash."""
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part")
    for _ in range(2):
        table.bulk_insert({"id": [1, 2, 3], "part": ["a", "b", "c"]})
    chosen: dict[str, Any] = {"show_involved_partition": True, "order": "id", "order_strategy": "z-order"}
    by_pattern = procedures.call("run_clustering", path=table.uri, partition_regex_pattern="[ab]", **chosen)
    assert by_pattern["involved_partitions"].to_pylist() == ["a,a,b,b"]
    both: dict[str, Any] = {"partition_regex_pattern": "z", "selected_partitions": "c"}
    assert procedures.call("run_clustering", path=table.uri, **both, **chosen)["involved_partitions"].to_pylist() == ["c,c"]
    sizes = procedures.call("stats_file_sizes", path=table.uri)
    assert procedures.call("stats_file_sizes", path=table.uri, partition_path="/*").equals(sizes)
    assert procedures.call("stats_file_sizes", path=table.uri, partition_path="/a")["num_files"].to_pylist() == [1, 1, 1, 3]


def test_metadata_table_is_created_and_opened(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", options={"hoodie.metadata.enable": False})
    table.insert({"id": [1, 2], "v": [3, 9]}, options={"hoodie.metadata.enable": False})
    with pytest.raises(TableState, match="no metadata table"):
        procedures.call("init_metadata_table", path=table.uri)
    (created,) = procedures.call("create_metadata_table", path=table.uri)["result"].to_pylist()
    assert created.startswith("Created Metadata Table in ")
    with pytest.raises(InvalidRequest, match="has a metadata table"):
        procedures.call("create_metadata_table", path=table.uri)
    (opened,) = procedures.call("init_metadata_table", path=table.uri, read_only=True)["result"].to_pylist()
    assert opened.startswith("Opened Metadata Table in ")
    (row,) = procedures.call("show_metadata_column_stats_overlap", path=table.uri, targetColumns="v").to_pylist()
    assert list(row.values()) == ["", "v", 1.0, 1, 1, 1, 1, 1, 1, 2]


def test_statistics_are_those_of_current_files(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part")
    for v in (1, 5):
        table.upsert(
            {"id": [1, 2], "v": [v, v + 2], "part": ["a", "b"]}, options={"hoodie.metadata.index.column.stats.enable": True}
        )
    stats = procedures.call("show_metadata_table_column_stats", path=table.uri, targetColumns="v", partition="a")
    assert [(row["min_value"], row["max_value"]) for row in stats.to_pylist()] == [("5", "5")]
    table.insert({"id": [3], "v": [6], "part": ["a"]}, options={"hoodie.parquet.small.file.limit": 0})
    rows = procedures.call("show_metadata_column_stats_overlap", path=table.uri, targetColumns="v").to_pylist()
    assert [(row["Partition path"], row["Maximum file overlap"], row["Total file number"]) for row in rows] == [
        ("a", 1, 2),
        ("b", 1, 1),
    ]


def test_folders_of_a_table(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part")
    table.insert({"id": [1, 2], "part": ["a", "b"]})
    (whole,) = procedures.call("show_fs_path_detail", path=table.uri).to_pylist()
    entries = procedures.call("show_fs_path_detail", path=table.uri, is_sub=True, sort=False).to_pylist()
    assert {row["storage_path"].rpartition("/")[2] for row in entries} == {".hoodie", "a", "b"}
    assert sum(row["file_num"] for row in entries) == whole["file_num"] and entries[0]["file_num"] >= entries[-1]["file_num"]
    assert whole["storage_size"] == sum(row["storage_size"] for row in entries) == whole["quota"]


def test_timeline_with_a_rollback(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id")
    first, second = (str(table.insert({"id": [number]}).instant) for number in (1, 2))
    table.rollback(second)
    rows = procedures.call("show_timeline", path=table.uri).to_pylist()
    assert [(row["action"], row["state"]) for row in rows] == [("rollback", "COMPLETED"), ("commit", "COMPLETED")]
    assert [row["rollback_info"] for row in rows] == [f"Rolled back: {second}", None]
    assert all(len(rows[1][name]) == len("12-31 23:59:59") for name in ("requested_time", "inflight_time", "completed_time"))
    assert procedures.call("show_timeline", path=table.uri, endTime=first).num_rows == 1
    assert procedures.call("show_rollbacks", path=table.uri, instant_time=second).num_rows == 1
    assert procedures.call("show_rollbacks", path=table.uri, instant_time=first).num_rows == 0


def test_restore_to_an_instant_with_an_audit(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id")
    first = table.insert({"id": [1]}).instant
    table.insert({"id": [2]})
    call: Any = partial(procedures.call, "restore_to_instant", path=table.uri)
    for wrong in ({}, {"audit_only": True}, {"instant_time": first, "start_restore_time": "1"}):
        with pytest.raises(InvalidRequest, match="restore_to_instant"):
            call(**wrong)
    (row,) = call(instant_time=first, audit_post_restore=True).to_pylist()
    assert (row["restore_result"], row["instants_rolled_back"], row["audit_result"]) == (True, 1, "PASSED")
    (audit,) = call(audit_only=True, start_restore_time=row["start_restore_time"])["audit_result"].to_pylist()
    assert audit == "PASSED" and table.scan().to_arrow()["id"].to_pylist() == [1]


def test_stale_instants(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", table_type="mor")
    table.upsert({"id": [1]})
    table.upsert({"id": [1]})
    planned = table.schedule_compaction().planned
    timeline = Path(table.uri.removeprefix("file:")) / ".hoodie" / "timeline"
    for name in ("20200101000000000.deltacommit.requested", "20200101000000000.deltacommit.inflight"):
        (timeline / name).write_bytes(b"")
    pending = procedures.call("show_inflight_commits", path=table.uri).to_pylist()
    assert [(row["instant_time"], row["action"], row["state"]) for row in pending] == [
        ("20200101000000000", "deltacommit", "INFLIGHT"),
        (planned, "compaction", "REQUESTED"),
    ]
    assert procedures.call("show_inflight_commits", path=table.uri, min_age_minutes=60).num_rows == 1
    call: Any = partial(procedures.call, "cleanup_stale_inflight_commits", path=table.uri)
    assert call().num_rows == 0
    (row,) = call(include_ingestion_commits=True, dry_run=True).to_pylist()
    assert row["rollback_status"] is None
    (row,) = call(include_ingestion_commits=True).to_pylist()
    assert (row["instant_time"], row["rollback_status"]) == ("20200101000000000", True)
    with pytest.raises(hp.InstantNotFound, match="no run of a compaction"):
        procedures.call("run_rollback_inflight_tableservice", path=table.uri, pending_instant=planned)
    (timeline / f"{planned}.compaction.inflight").write_bytes(b"")
    rollback: Any = partial(procedures.call, "run_rollback_inflight_tableservice", path=table.uri, pending_instant=planned)
    with pytest.raises(TableState, match="is alive"):
        rollback()
    (row,) = rollback(delete_request_instant_file=True, session_options=SERVICES_ARE_DEAD).to_pylist()
    assert row["instant"] == planned and not table.timeline().pending()


def test_archived_timeline_is_compacted(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id")
    assert procedures.call("run_timeline_compaction", path=table.uri).num_rows == 1
    options = "hoodie.keep.min.commits=2,hoodie.keep.max.commits=3,hoodie.clean.commits.retained=1"
    for number in range(6):
        table.insert({"id": [number]}, options={"hoodie.metadata.enable": False})
    assert procedures.call("archive_commits", path=table.uri, options=options)["result"].to_pylist() == [0]
    assert procedures.call("show_archived_commits", path=table.uri, end_ts="9").num_rows == 4
    (row,) = procedures.call("run_timeline_compaction", path=table.uri).to_pylist()
    assert len(row["start_compaction_time"]) == 17


def test_arguments_by_position_are_those_of_hudi() -> None:
    assert (procedures.positions("run_compaction") or ())[:3] == ("op", "table", "path")
    assert (procedures.positions("show_invalid_parquet") or ())[0] == "path"
    assert procedures.positions("Show_Commits") == ("table", "limit")
    assert procedures.positions("help") == ("cmd",) and procedures.positions("nope") is None


@pytest.mark.parametrize(("table_type", "service"), [("cow", "clustering"), ("mor", "compaction")])
def test_a_call_that_plans_nothing_executes_pending_plans(tmp_path: Path, table_type: str, service: str) -> None:
    table = Table.create(tmp_path / "t", record_key="id", table_type=table_type)
    for _ in range(2):
        table.upsert({"id": [1, 2], "v": [1, 2]})
    call: Any = partial(
        procedures.call, f"run_{service}", path=table.uri, session_options={"hoodie.compact.inline.max.delta.commits": 1}
    )
    (planned,) = call(op="schedule").to_pylist()
    assert planned["state"] == "REQUESTED"
    rows = call(op="scheduleAndExecute").to_pylist()
    assert rows == [{**planned, "state": "COMPLETED"}]


def test_file_system_views_of_patterns_with_slashes_at_the_ends(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part")
    table.insert({"id": [1, 2], "part": ["a", "b"]})
    for pattern, count in (("*/", 2), ("/a/", 1), ("*/*", 0)):
        assert procedures.call("show_fsview_all", path=table.uri, path_regex=pattern).num_rows == count


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


def table_with_clean(root: Path, kind: str = "cow") -> Table:
    """A partitioned table with three commits and one clean."""
    table = Table.create(str(root), record_key="id", partition_by="part", ordering="ts", table_type=kind)
    for ts in range(3):
        table.upsert(pa.table({"id": ["a", "b"], "ts": [ts, ts], "part": ["x", "y"]}))
    table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    return table


def test_cleans_are_shown_with_partitions_and_plans(tmp_path: Path) -> None:
    table = table_with_clean(tmp_path / "t")
    [clean] = procedures.call("show_cleans", path=table.uri).to_pylist()
    parts = procedures.call("show_cleans_metadata", path=table.uri).to_pylist()
    [plan] = procedures.call("show_clean_plans", path=table.uri).to_pylist()
    assert clean["clean_time"] == plan["plan_time"] and clean["total_files_deleted"] == 2
    assert [(row["partition_path"], row["success_delete_files"]) for row in parts] == [("x", 1), ("y", 1)]
    assert (plan["state"], plan["policy"], plan["total_partitions_to_clean"]) == ("COMPLETED", "KEEP_LATEST_COMMITS", 2)
    archived = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    for ts in range(3, 9):
        table.upsert(pa.table({"id": ["a", "b"], "ts": [ts, ts], "part": ["x", "y"]}))
    table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    table.archive(options=archived)
    times = procedures.call("show_cleans", path=table.uri, showArchived=True, limit=100)["clean_time"].to_pylist()
    assert clean["clean_time"] in times and times == sorted(times, reverse=True)


def test_file_slices_and_file_status(tmp_path: Path) -> None:
    table = table_with_clean(tmp_path / "t")
    latest = procedures.call("show_fsview_latest", path=table.uri, path_regex="x").to_pylist()
    every = procedures.call("show_fsview_all", path=table.uri, filter="partition = 'x'").to_pylist()
    assert [row["partition"] for row in latest] == ["x"] and len(every) == 2
    assert every[0]["data_file"] == latest[0]["data_file"] and latest[0]["data_file"].startswith("file:/")
    newest = latest[0]["base_instant"]
    before = procedures.call("show_fsview_latest", path=table.uri, path_regex="x", max_instant=newest).to_pylist()
    assert before[0]["base_instant"] == every[1]["base_instant"] < newest
    name = latest[0]["data_file"].rpartition("/")[2]
    status = procedures.call("show_file_status", path=table.uri, partition="x", file=name).to_pylist()[0]
    assert (status["status"], status["timeline"]) == ("exist", "active")
    [files] = [found.success_delete_files for found in cleaned(table).values() if found.partition_path == "x"]
    status = procedures.call("show_file_status", path=table.uri, partition="x", file=files[0]).to_pylist()[0]
    assert (status["status"], status["action"]) == ("deleted", "clean")
    assert procedures.call("show_file_status", path=table.uri, partition="x", file="z").to_pylist()[0]["status"] == "unknown"
    with pytest.raises(InvalidRequest, match="pass partition="):
        procedures.call("show_file_status", path=table.uri, file=name)


def cleaned(table: Table) -> Any:
    store = table.context.timeline
    return CleanMetadata.decode(store.read(store.load().completed(Action.CLEAN)[-1])).partition_metadata


def test_log_files_of_a_pending_compaction_are_scheduled(path: str) -> None:
    table = Table(path)
    table.schedule_compaction()
    table.upsert(pa.table({"id": ["a"], "ts": [9]}), options={"hoodie.compact.inline": False})
    [row] = procedures.call("show_fsview_latest", path=path).to_pylist()
    assert row["num_delta_files"] == 3 and row["delta_size_compaction_scheduled"] > row["delta_size_compaction_unscheduled"] > 0
    assert row["delta_files_compaction_scheduled"].count("HoodieLogFile") == 2


@pytest.mark.parametrize("damage", [lambda data: data[:-4], lambda data: data[:-40] + bytes(32) + data[-8:], lambda data: b""])
def test_unreadable_parquet_files_are_listed(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    table = table_with_clean(tmp_path / "t")
    assert procedures.call("show_invalid_parquet", path=table.uri).num_rows == 0
    damaged = sorted((tmp_path / "t" / "x").glob("*.parquet"))[0]
    damaged.write_bytes(damage(damaged.read_bytes()))
    [found] = procedures.call("show_invalid_parquet", path=table.uri)["path"].to_pylist()
    assert found.rpartition("/")[2] == damaged.name
    assert procedures.call("show_invalid_parquet", path=table.uri, partitions="y").num_rows == 0
    with pytest.raises(Unsupported, match="needDelete"):
        procedures.call("show_invalid_parquet", path=table.uri, needDelete=True)


def test_a_file_that_is_cleaned_after_the_listing_is_not_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with_clean(tmp_path / "t")
    listed = DirectoryListing.files

    def files(self: DirectoryListing, partitions: Any) -> Any:
        found = listed(self, partitions)
        sorted((tmp_path / "t" / "x").glob("*.parquet"))[0].unlink()
        return found

    monkeypatch.setattr(DirectoryListing, "files", files)
    assert procedures.call("show_invalid_parquet", path=table.uri).num_rows == 0


def test_metadata_table_content(tmp_path: Path) -> None:
    table = table_with_clean(tmp_path / "t")
    stats = dict(procedures.call("show_metadata_table_stats", path=table.uri).to_pandas().itertuples(index=False))
    assert int(stats["files.logFileCount"]) > 0 and int(stats["files.totalBaseFileSizeInBytes"]) >= 0
    ids = procedures.call("show_metadata_table_column_stats", path=table.uri, targetColumns="id", partition="x").to_pylist()
    assert {(row["column_name"], row["min_value"], row["max_value"]) for row in ids} == {("id", "a", "a")}


def test_partitions_are_dropped_and_the_table_truncated(tmp_path: Path) -> None:
    table = table_with_clean(tmp_path / "t")
    assert procedures.call("drop_partition", path=table.uri, partition="x").to_pylist() == [{"result": "Success"}]
    assert Table(table.uri).scan().to_arrow()["id"].to_pylist() == ["b"]
    assert procedures.call("truncate_table", path=table.uri)["result"].to_pylist() == ["Success"]
    assert Table(table.uri).scan().count() == 0


def test_commits_of_two_tables_are_compared(tmp_path: Path) -> None:
    older, newer = table_with_clean(tmp_path / "older"), table_with_clean(tmp_path / "newer")
    times = [instant.request_time for instant in newer.timeline().completed_writes()]
    [ahead] = procedures.call("commits_compare", path=newer.uri, other_path=older.uri)["compare_detail"].to_pylist()
    assert ahead == f"Source newer is ahead by 3 commits. Commits to catch up - [{', '.join(times)}]"
    statement = f"CALL commits_compare(table => '{older.uri}', path => '{newer.uri}')"
    assert hp.sql(statement)["compare_detail"].to_pylist()[0].startswith("Source older is behind by 3 commits.")


def test_instants_are_exported(tmp_path: Path) -> None:
    table = table_with_clean(tmp_path / "t")
    with pytest.raises(InvalidRequest, match="create it first"):
        procedures.call("export_instants", path=table.uri, local_folder=str(tmp_path / "out"))
    (tmp_path / "out").mkdir()
    procedures.call("export_instants", path=table.uri, local_folder=str(tmp_path / "out"), actions="commit", limit=2)
    exported = sorted((tmp_path / "out").iterdir())
    stored = sorted((tmp_path / "t" / ".hoodie" / "timeline").glob("*.commit"))[:2]
    assert [(file.name, file.read_bytes()) for file in exported] == [(file.name, file.read_bytes()) for file in stored]


def test_help_lists_and_describes_procedures() -> None:
    assert "show_cleans: " in procedures.call("help")["result"][0].as_py()
    assert procedures.call("help", cmd="show_cleans")["result"][0].as_py() == procedures.describe("show_cleans")
    assert "show_commits" in hp.sql("CALL help()")["result"][0].as_py()


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("copy_to_table", {"new_table": "n"}, "Spark session"),
        ("copy_to_temp_view", {"view_name": "n"}, "Spark session"),
        ("partition_bucket_index_manager", {"add": "a,4", "rule": "range"}, "rule=regex"),
        ("show_fsview_latest", {"merge": False}, "merge=false"),
        ("show_fsview_all", {"include_in_flight": True}, "include_in_flight"),
    ],
)
def test_unsupported_arguments_name_the_supported_way(path: str, name: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        procedures.call(name, path=path, **arguments)
