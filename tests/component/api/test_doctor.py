"""`Table.doctor` reports every defect and nothing else."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.api.doctor import diagnose, java_version, worker_findings
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import TableState
from pyhudi.format.actions.clustering_plan import ClusteringGroup, ClusteringPlan, ClusteringStrategy, SliceInfo
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action
from pyhudi.format.paths import PROPERTIES_BACKUP
from pyhudi.operations.services.async_indexing import IndexSettings
from pyhudi.operations.services.index_admin import create_index, index_request
from pyhudi.options.supported import parse_options
from pyhudi.storage import liveness
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage, SimulatedCrash, StorageCall
from pyhudi.storage.heartbeats import heartbeat_path
from pyhudi.table.snapshot import read_commit
from tests.support.hudi_dead_writes import SERVICES_ARE_DEAD

ROWS = pa.table({"id": ["a", "b"], "part": ["x", "y"], "ts": [1, 1]})
QUIET = {"hoodie.compact.inline": False, "hoodie.clean.automatic": False, "hoodie.archive.automatic": False}


def make(path: Path, kind: str = "cow", writes: int = 1, **more: object) -> Table:
    table = Table.create(
        str(path), record_key="id", partition_by="part", ordering="ts", table_type=kind, options={**QUIET, **more}
    )
    for _ in range(writes):
        table.upsert(ROWS)
    return table


def of_table(table: Table, options: dict[str, object] | None = None) -> list[str]:
    found = diagnose(table, options).findings
    assert all(one.remedy for one in found)
    return [f"{one.check}: {one.finding}" for one in found if one.check in ("settings", "services", "state")]


def test_healthy_table_has_no_findings(tmp_path: Path) -> None:
    assert of_table(make(tmp_path / "t")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"hoodie.keep.min.commits": "5", "hoodie.keep.max.commits": "8"},
            "hoodie.clean.commits.retained=10 retains for queries",
        ),
        ({"hoodie.compact.inline": "true"}, "nothing to compact"),
        ({"hoodie.parquet.small.file.limit": "999999999"}, "all files are small"),
        ({"hoodie.metadata.enable": "false"}, "the next write removes it"),
        ({"hoodie.index.type": "NONSENSE"}, "hoodie.index.type"),
        (
            {
                "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
                "hoodie.clean.failed.writes.policy": "EAGER",
            },
            "roll back writes of the others",
        ),
    ],
)
def test_conflicting_options_are_reported(tmp_path: Path, options: dict[str, object], message: str) -> None:
    found = of_table(make(tmp_path / "t"), options)
    assert any(message in one for one in found), found


def test_services_that_are_overdue(tmp_path: Path) -> None:
    found = of_table(make(tmp_path / "mor", "mor", 7))
    assert any("a compaction is due: 6 of 5" in one or "delta commits since" in one for one in found), found
    small = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    found = of_table(make(tmp_path / "cow", "cow", 5), dict(small))
    assert any("a clean is due" in one for one in found) and any("an archival is due" in one for one in found), found


def test_pending_plan_without_an_executor_is_reported(tmp_path: Path) -> None:
    env = ReplayEnvironment(1, 1_700_000_000_000)
    table = Table.create(
        str(tmp_path / "t"), record_key="id", partition_by="part", ordering="ts", table_type="mor", options=QUIET, environment=env
    )
    table.upsert(ROWS)
    table.upsert(ROWS)
    planned = table.schedule_compaction().planned
    assert planned is not None
    assert any(f"{planned} was scheduled" in one for one in of_table(Table(table.uri, options=QUIET)))


def test_an_index_that_is_being_built(tmp_path: Path) -> None:
    """Only if its builder is dead was it started and not finished."""
    table = make(tmp_path / "t")
    seen: list[list[str]] = []

    def watch(number: int, call: StorageCall) -> None:
        changing = table.context.storage.stat(PROPERTIES_BACKUP) is not None
        if not seen and not changing and table.context.reloaded().config.metadata_partitions_inflight:
            seen.append(of_table(table))
            if dies:
                raise SimulatedCrash

    for dies in (False, True):
        seen.clear()
        context = replace(table.context, storage=FaultyStorage(table.context.storage, listener=watch))
        settings, request = IndexSettings.of(parse_options({})), index_request("bloom_filters")
        with pytest.raises(SimulatedCrash) if dies else nullcontext():
            create_index(context, LocalEngine(1), settings, request)
        assert seen == [[]]
        if not dies:
            table.index.drop("bloom_filters")
    liveness.remove_heartbeat(table.context.storage, table.timeline().pending(Action.INDEXING)[0].request_time)
    assert of_table(table, dict(SERVICES_ARE_DEAD)) == [
        "settings: the build of index bloom_filters did not finish: the index is not used"
    ]


def test_failed_writes_are_reported(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    store = table.context.timeline
    store.start(store.request("20991231000000000", Action.COMMIT))
    found = diagnose(table).findings
    assert [one.finding.endswith("a write failed") for one in found if one.check == "state"] == [True]
    assert any("repair" in one.remedy for one in found if one.check == "state")


@pytest.mark.parametrize(
    ("text", "version"),
    [('JAVA_VERSION="17.0.12"', 17), ('X="1"\nJAVA_VERSION="1.8.0_402"', 8), ('JAVA_VERSION="21"', 21), ("nothing", None)],
)
def test_java_versions(tmp_path: Path, text: str, version: int | None) -> None:
    (tmp_path / "release").write_text(text)
    assert java_version(tmp_path) == version
    assert java_version(tmp_path / "none" / "deeper") is None


def program(path: Path, answer: str) -> str:
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return str(path)


def test_workers_of_another_python(tmp_path: Path) -> None:
    other = program(tmp_path / "python", '{"python": [3, 9], "pyhudi": null, "pyarrow": null, "pyspark": "3.5.0"}')
    found = [one.finding for one in worker_findings(other, "do this")]
    assert any("workers run Python 3.9" in one for one in found)
    assert any("has no PyHudi" in one for one in found) and any("has no pyarrow" in one for one in found)
    assert any("pyspark is 3.5.0" in one for one in found)


def test_a_worker_that_does_not_run(tmp_path: Path) -> None:
    assert "does not run" in worker_findings(program(tmp_path / "python", "no json"), "do this")[0].finding
    assert "does not run" in worker_findings(str(tmp_path / "none"), "do this")[0].finding


def test_the_wrong_interpreter_and_java_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = {one.check: one for one in diagnose().findings}
    assert "does not exist" in found["workers"].finding and sys.executable in found["workers"].remedy
    assert "has no bin/java" in found["java"].finding
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"')
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found = {one.check: one for one in diagnose().findings}
    assert "Java 11 is too old" in found["java"].finding
    assert "workers" not in found


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ["SIMPLE", "CONSISTENT_HASHING"])
def test_a_clustering_that_leaves_buckets(tmp_path: Path, engine: str) -> None:
    """Plan as a writer that does not know the bucketing of the table.

    No process may move records out of the nodes of consistent hashing metadata, and writes wait for the plan; records in numbered
    buckets stay there.
    """
    more: dict[str, Any] = {"hoodie.index.type": "BUCKET", "hoodie.index.bucket.engine": engine}
    table = make(tmp_path / "t", "mor", **more)
    assert of_table(table) == []
    slices = tuple(
        SliceInfo(
            file_id=row["file_id"],
            partition_path=row["partition"],
            data_file_path=table.context.storage.absolute(row["base_path"]) if row["base_path"] else "",
            delta_file_paths=tuple(table.context.storage.absolute(path) for path in row["log_paths"]),
        )
        for row in table.inspect.file_slices().to_pylist()
    )
    plan = ClusteringPlan(input_groups=(ClusteringGroup(slices=slices),), strategy=ClusteringStrategy())
    time = table.timeline().latest_time()
    planned = str(int(time) + 1)
    table.context.timeline.request(planned, Action.CLUSTERING, RequestedReplaceMetadata.of_clustering(plan).encode())
    found = [one for one in diagnose(table).findings if one.check == "services"]
    with pytest.raises(TableState, match=planned):
        table.upsert(ROWS)
    if engine == "CONSISTENT_HASHING":
        assert "out of the file groups of their buckets" in found[0].finding
        assert f"unschedule_clustering({planned!r})" in found[0].remedy
        with pytest.raises(TableState, match="out of the consistent hashing nodes"):
            table.cluster(planned)
        table.unschedule_clustering(planned)
    else:
        assert not found
        before = table.scan().to_arrow().num_rows
        table.cluster(planned)
        assert table.scan().to_arrow().num_rows == before
    table.upsert(ROWS)
    assert of_table(table) == []


def as_hudi(table: Table, instant: str | None) -> None:
    """Store the completed file of an instant as Hudi does, without checksum."""
    store = table.context.timeline
    (done,) = [i for i in store.load().completed() if i.request_time == instant]
    table.context.storage.put(store.path(done), read_commit(store, done).encode(b"0" * 16))


def of_writers(table: Table) -> list[str]:
    found = diagnose(table).findings
    assert all(one.remedy for one in found)
    return [one.finding for one in found if one.check == "writers"]


def writers_of(table: Table) -> str:
    return dict(diagnose(table).checks)["writers"]


def test_writers_are_counted_by_library(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "mor", 3)
    as_hudi(table, table.timeline().completed_writes()[0].request_time)
    table.compact()
    assert writers_of(table) == "Hudi: 1 writes; PyHudi: 1 compactions, 2 writes"
    assert of_writers(table) == []


@pytest.mark.parametrize("service", ["compact", "cluster"])
def test_service_that_both_libraries_execute_is_reported(tmp_path: Path, service: str) -> None:
    table = make(tmp_path / "t", "mor" if service == "compact" else "cow", 2)

    def execute() -> str | None:
        table.upsert(ROWS)
        return table.compact().runs[0].instant if service == "compact" else table.cluster().instant

    execute()
    assert of_writers(table) == []
    as_hudi(table, execute())
    (finding,) = of_writers(table)
    assert finding.startswith(f"PyHudi and Hudi both execute {'compaction' if service == 'compact' else 'clustering'}")


def test_pending_write_without_a_heartbeat_next_to_pyhudi_is_reported(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    store = table.context.timeline
    store.start(store.request("20991231000000000", Action.COMMIT))
    (finding,) = of_writers(table)
    assert "20991231000000000" in finding and "is written without heartbeat" in finding
    table.context.storage.put(heartbeat_path("20991231000000000"), b"")
    assert of_writers(table) == []


def test_failed_write_of_hudi_without_a_heartbeat_is_no_running_writer(tmp_path: Path) -> None:
    """Hudi deletes the heartbeat of a write that fails."""
    table = make(tmp_path / "t")
    store = table.context.timeline
    store.start(store.request("20991231000000000", Action.COMMIT))
    for file in (tmp_path / "t" / ".hoodie" / "timeline").glob("20991231000000000*"):
        modified = file.stat().st_mtime - 300
        os.utime(file, (modified, modified))
    assert of_writers(table) == []


@pytest.mark.parametrize("version", [8, 9])
def test_streaming_writes_of_the_metadata_table_are_reported(tmp_path: Path, version: int) -> None:
    """Hudi 1.1 requests the delta commit before it writes data files."""
    table = Table.create(str(tmp_path / "t"), record_key="id", options={**QUIET, "hoodie.write.table.version": version})
    table.upsert(ROWS.select(["id", "ts"]))
    written = table.upsert(ROWS.select(["id", "ts"])).instant
    as_hudi(table, written)
    assert of_writers(table) == []
    requested = tmp_path / "t" / f".hoodie/metadata/.hoodie/timeline/{written}.deltacommit.requested"
    before = requested.stat().st_mtime - 2
    os.utime(requested, (before, before))
    found = of_writers(table)
    assert ["streaming" in one or "during its writes" in one for one in found][:1] == [True]
    assert [("upgrades it by default" in one) for one in found[1:]] == ([True] if version == 8 else [])
    for file in (tmp_path / "t" / ".hoodie" / "timeline").iterdir():
        # The files of a copy have other times.
        if written is not None and written in file.name:
            os.utime(file, (before + 3600, before + 3600))
    assert of_writers(table) == []


def move_before(table: Table, instant: str, earlier: str) -> None:
    """Give the instant of a completed write an earlier request time, as if its writer had taken it long before it planned."""
    root = Path(table.uri.removeprefix("file:"))
    store = table.context.timeline
    (done,) = [i for i in store.load().completed() if i.request_time == instant]
    encoded = read_commit(store, done).encode(b"0" * 16).replace(instant.encode(), earlier.encode())
    for file in [*root.rglob(f"*{instant}*")]:
        if ".hoodie/metadata" not in str(file) and ".heartbeat" not in str(file):
            file.rename(file.with_name(file.name.replace(instant, earlier)))
    table.context.storage.put(store.path(replace(done, request_time=earlier)), encoded)


def test_write_of_hudi_that_planned_long_after_it_took_its_instant_is_reported(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow", 1, **{"hoodie.metadata.enable": False})
    options = {"hoodie.metadata.enable": False}
    first = table.timeline().completed_writes()[0].request_time
    changed = ROWS.slice(0, 1)
    table.upsert(changed.set_column(2, "ts", pa.array([2])), options=options)
    lost = table.upsert(changed.set_column(2, "ts", pa.array([3])), options=options).instant
    assert lost is not None and table.validate().ok and of_writers(table) == []
    earlier = str(int(first) + 1)
    move_before(table, lost, earlier)
    # Neither library shows the acknowledged row any more.
    assert table.scan(filter="id = 'a'").to_arrow()["ts"].to_pylist() == [2]
    (finding,) = of_writers(table)
    assert earlier in finding and "no query reads" in finding
    result = table.validate()
    assert not result.ok and [one.path for one in result.findings] == [f"x/{name}" for name in files_with(tmp_path, earlier)]
    assert any("write them again" in remedy for remedy in result.remedies)


def files_with(folder: Path, instant: str) -> list[str]:
    return [file.name for file in folder.rglob(f"*_{instant}.parquet")]


def test_log_file_of_hudi_that_completed_late_is_reported_under_commit_time_ordering(tmp_path: Path) -> None:
    options = {**QUIET, "hoodie.metadata.enable": False}
    table = Table.create(str(tmp_path / "t"), record_key="id", table_type="mor", options=options)
    for value in (1, 2, 3):
        written = table.upsert(pa.table({"id": ["a"], "ts": [value]}), options=options).instant
    first = table.timeline().completed_writes()[0].request_time
    assert written is not None and of_writers(table) == []
    earlier = str(int(first) + 1)
    move_before(table, written, earlier)
    assert table.scan().to_arrow()["ts"].to_pylist() == [2]
    (finding,) = of_writers(table)
    assert f"{earlier}" in finding and "wins" in finding
