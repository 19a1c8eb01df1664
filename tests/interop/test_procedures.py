"""Procedures return the rows and columns that `CALL` of Apache Hudi returns on the same table."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import InstantNotFound, Table
from pyhudi.features import procedures
from pyhudi.format.instants import Action
from pyhudi.storage.environment import ReplayEnvironment
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.support.hudi_shared_table import SharedTable, keyed_rows
from tests.support.needs import WIDE
from tests.support.rows import assert_same_rows

KINDS = ("cow", "mor")
MANUAL = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.parquet.small.file.limit": 0,
}

# Apache Hudi keeps these in hash maps, so its order has no meaning.
UNORDERED = {
    "show_table_properties",
    "show_commit_extra_metadata",
    "show_rollback_detail",
    "stats_file_sizes",
    "validate_metadata_table_files",
    "show_commits_metadata",
    "show_archived_commits_metadata",
    "show_commit_files",
    "show_commit_partitions",
    "show_metadata_table_partitions",
}


def rows(numbers: range, value: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "ts": pa.array([value] * len(numbers), pa.int64()),
            "value": pa.array([value * 100 + number for number in numbers], pa.int64()),
            "part": ["ab"[number % 2] for number in numbers],
        }
    )


def build(path: Path, kind: str) -> Path:
    """A table with every sort of instant on its timeline, a planned compaction or clustering last but one."""
    table = Table.create(str(path), record_key="id", partition_by="part", ordering="ts", table_type=kind, options=MANUAL)
    table.upsert(rows(range(8), 1))
    table.upsert(rows(range(4, 12), 2))
    table.savepoint(user="somebody", comments="to keep")
    table.delete(rows(range(1), 3).select(["id", "part"]))
    table.rollback(table.upsert(rows(range(3), 4)).instant or "")
    table.upsert(rows(range(5, 8), 5))
    if kind == "mor":
        table.compact()
        table.upsert(rows(range(5, 7), 6))
        assert table.schedule_compaction().planned
        table.upsert(rows(range(5, 7), 7))
    else:
        table.cluster()
        table.insert(rows(range(20, 30), 7))
        table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
        assert table.schedule_clustering().instant
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One table of each kind, that no test changes."""
    return {kind: build(tmp_path_factory.mktemp("procedures") / kind, kind) for kind in KINDS}


def same(name: str, mine: pa.Table, real: pa.Table) -> None:
    assert mine.schema.names == real.schema.names
    assert mine.schema.types == real.schema.types
    ours, theirs = mine.to_pylist(), real.to_pylist()
    if name in UNORDERED:
        ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
    deviations = [[row.pop("std_dev") for row in found if "std_dev" in row] for found in (ours, theirs)]
    assert ours == theirs
    assert deviations[0] == pytest.approx(deviations[1])


READS: list[tuple[str, dict[str, Any]]] = [
    ("show_commits", {}),
    ("show_commits", {"limit": 3}),
    ("show_commits_metadata", {"limit": 100}),
    ("show_rollbacks", {}),
    ("show_savepoints", {}),
    ("show_table_properties", {"limit": 100}),
    ("show_clustering", {}),
    ("show_clustering", {"show_involved_partition": True}),
    ("show_compaction", {}),
    ("show_commit_extra_metadata", {}),
    ("show_metadata_table_files", {"partition": "a"}),
    ("show_metadata_table_files", {"partition": "none"}),
    ("show_metadata_table_files", {}),
    ("show_metadata_table_partitions", {}),
    ("validate_metadata_table_files", {}),
    ("validate_metadata_table_files", {"verbose": True}),
    ("stats_file_sizes", {"limit": 100}),
    ("stats_file_sizes", {"limit": 100, "partition_path": "a"}),
    ("stats_file_sizes", {"limit": 100, "partition_path": "/*"}),
    ("stats_wa", {}),
    ("stats_wa", {"limit": 2}),
    ("repair_corrupted_clean_files", {}),
]


@pytest.mark.parametrize("kind", KINDS)
def test_inspection_procedures_equal_those_of_hudi(hudi: ApacheHudi, tables: dict[str, Path], kind: str) -> None:
    path = tables[kind]
    hudi.register(path, kind)
    for name, arguments in READS:
        if name == "show_compaction" and kind == "cow":
            continue
        same(name, procedures.call(name, path=path, **arguments), hudi.call(name, table=kind, **arguments))
    timeline = Table(str(path)).timeline()
    # Every second one has each sort of write.
    for instant in timeline.completed_writes()[:: 1 if WIDE else 2]:
        for name in ("show_commit_files", "show_commit_partitions", "show_commit_write_stats"):
            arguments = {"instant_time": instant.request_time}
            same(name, procedures.call(name, path=path, **arguments), hudi.call(name, table=kind, **arguments))
    for instant in timeline.completed(Action.ROLLBACK):
        arguments = {"instant_time": instant.request_time}
        mine = procedures.call("show_rollback_detail", path=path, **arguments)
        same("show_rollback_detail", mine, hudi.call("show_rollback_detail", table=kind, **arguments))
    with pytest.raises(InstantNotFound):
        procedures.call("show_commit_files", path=path, instant_time="20200101000000000")
    with pytest.raises(HudiFailure):
        hudi.call("show_commit_files", table=kind, instant_time="20200101000000000")


LATER = [
    "run_clustering",
    "show_invalid_parquet",
    "partition_bucket_index_manager",
    "show_clean_plans",
    "show_cleans",
    "show_cleans_metadata",
    "show_metadata_table_column_stats",
]
"""Procedures of release 1.1.1 that 1.0.2 lacks, or whose arguments changed; see `test_procedure_declarations` for the others."""

LATEST = ["set_audit_lock", "show_audit_lock_status", "validate_audit_lock", "cleanup_audit_lock"]
"""Procedures of release 1.2.0; 1.1.1 has the first two of them."""


def test_later_procedures_have_the_arguments_and_columns_of_hudi(newer_hudi: ApacheHudi, newest_hudi: ApacheHudi) -> None:
    source = """
library = jvm.org.apache.spark.sql.hudi.command.procedures.HoodieProcedures
result = {}
for name in names:
    one = library.newBuilder(name).build()
    result[name] = [
        [[p.name(), p.dataType().simpleString(), p.required(), None if p.default() is None else str(p.default())]
         for p in one.parameters()],
        [[f.name(), f.dataType().simpleString()] for f in one.outputType().fields()],
    ]
"""
    kinds = {"string": str, "int": int, "bigint": int, "boolean": bool}
    types = {"string": "string", "int": "int32", "bigint": "int64", "double": "double", "boolean": "bool"}
    declared = {**newer_hudi.run(source, names=LATER), **newest_hudi.run(source, names=LATEST)}
    for name, (parameters, columns) in declared.items():
        mine = procedures.PROCEDURES[name]
        # `filter` is an argument of every procedure.
        common = ("table", "path", "filter", "other_path")
        there = {(p, kinds[kind], required, default) for p, kind, required, default in parameters if p not in common}
        here = {
            (p.name, p.kind, p.required, None if p.default is None else _java(p.default))
            for p in mine.parameters
            if p.name not in common
        }
        assert here == there, name
        assert [(f.name, str(f.type)) for f in mine.output] == [(c, types[kind]) for c, kind in columns], name


def _java(value: object) -> str:
    # py4j hands Python values out, so a switch is written as Python writes it.
    return str(value)


def test_log_files(hudi: ApacheHudi, tables: dict[str, Path]) -> None:
    """One file at a time: Apache Hudi fails where a pattern also fits a file without a data block."""
    hudi.register(tables["mor"], "mor")
    checked = 0
    for log in sorted(tables["mor"].glob("*/.*.log.*")):
        if log.name.endswith(".crc"):
            continue
        arguments: dict[str, Any] = {"log_file_path_pattern": str(log), "limit": 100}
        try:
            real = hudi.call("show_logfile_records", table="mor", **arguments)
            blocks = hudi.call("show_logfile_metadata", table="mor", **arguments)
        except HudiFailure:
            continue
        same("show_logfile_records", procedures.call("show_logfile_records", path=tables["mor"], **arguments), real)
        mine = procedures.call("show_logfile_metadata", path=tables["mor"], **arguments)
        columns = ("instant_time", "record_count", "block_type", "footer_metadata")
        assert answers(mine, *columns) == answers(blocks, *columns)
        headers = [[json.loads(text) for text in found["header_metadata"].to_pylist()] for found in (mine, blocks)]
        for header in headers[1]:
            # Apache Hudi lists the checksum of a block under the name of its header; PyHudi verifies it and lists nothing.
            assert header.pop("COMMAND_BLOCK_TYPE", "pyhudi crc32").startswith("pyhudi crc32")
        assert headers[0] == headers[1]
        checked += 1
    assert checked >= 4
    several = procedures.call("show_logfile_records", path=tables["mor"], log_file_path_pattern="*/.*.log.*", limit=100)
    assert several.num_rows >= checked


def pair(hudi: ApacheHudi, path: Path, tmp_path: Path, name: str) -> tuple[Path, str]:
    """Two copies of a table, one for each.  Plans name files by full paths, so none may be pending."""
    hudi.register(path, name)  # which may add to the properties of the table
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for copy in (mine, theirs):
        shutil.copytree(path, copy)
    hudi.register(theirs, name)
    return mine, name


def twins(hudi: ApacheHudi, tmp_path: Path, kind: str, name: str) -> tuple[Path, str]:
    """Two tables with the same history, one for each."""
    mine, theirs = build(tmp_path / "mine", kind), build(tmp_path / "theirs", kind)
    hudi.register(theirs, name)
    return mine, name


def answers(table: pa.Table, *columns: str) -> list[dict[str, Any]]:
    return table.select(list(columns)).to_pylist() if columns else table.to_pylist()


def test_compaction_and_savepoints(hudi: ApacheHudi, tmp_path: Path) -> None:
    path, name = twins(hudi, tmp_path, "mor", "compacted")

    def both(procedure: str, *columns: str, **arguments: Any) -> list[dict[str, Any]]:
        mine = procedures.call(procedure, path=path, **arguments)
        real = hudi.call(procedure, table=name, **arguments)
        assert mine.schema.names == real.schema.names
        assert answers(mine, *columns) == answers(real, *columns)
        return mine.to_pylist()

    assert both("run_compaction", "operation_size", "state", op="run")[0]["state"] == "COMPLETED"
    assert both("run_compaction", op="run") == []
    assert both("run_compaction", op="schedule") == []
    due = "hoodie.compact.inline.max.delta.commits=1"
    assert both("run_compaction", "operation_size", "state", op="schedule", options=due)[0]["state"] == "REQUESTED"
    both("run_compaction", "operation_size", "state", op="run")
    # What is left to clean is the same on both sides.
    arguments = {"clean_policy": "KEEP_LATEST_FILE_VERSIONS", "file_versions_retained": 1}
    both("run_clean", "total_files_deleted", "bootstrap_part_metadata", "version", **arguments)
    assert both("run_clean", **arguments) == []
    last = [Table(str(tmp_path / copy)).timeline().completed_writes()[-1].request_time for copy in ("mine", "theirs")]
    for wanted in (True, False):
        mine = procedures.call("create_savepoint", path=path, commit_time=last[0], user="me", comments="x")
        real = hudi.call("create_savepoint", table=name, commit_time=last[1], user="me", comments="x")
        assert mine == real.cast(mine.schema) and answers(mine) == [{"create_savepoint_result": wanted}]
    assert len(procedures.call("show_savepoints", path=path)) == len(hudi.call("show_savepoints", table=name)) == 2
    both("rollback_to_savepoint")
    mine = procedures.call("delete_savepoint", path=path, instant_time=last[0])
    assert mine == hudi.call("delete_savepoint", table=name, instant_time=last[1]).cast(mine.schema)
    assert len(procedures.call("show_savepoints", path=path)) == len(hudi.call("show_savepoints", table=name)) == 1


def test_clustering(hudi: ApacheHudi, tmp_path: Path) -> None:
    path, name = twins(hudi, tmp_path, "cow", "clustered")
    mine = procedures.call("run_clustering", path=path, op="execute")
    real = hudi.call("run_clustering", table=name, op="execute")
    columns = ("input_group_size", "state", "involved_partitions")
    assert mine.schema.names == real.schema.names and mine.schema.types == real.schema.types
    assert answers(mine, *columns) == answers(real, *columns) and mine.num_rows == 1


def test_time_to_live(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Only columns are compared: on this table Hudi's procedure finds nothing, for any days."""
    old: dict[str, Any] = {"environment": ReplayEnvironment(1, 1_600_000_000_000), "options": MANUAL}
    table = Table.create(str(tmp_path / "old"), record_key="id", partition_by="part", ordering="ts", **old)
    table.upsert(rows(range(8), 1))
    Table(str(tmp_path / "old")).upsert(rows(range(0, 8, 2), 2), options=MANUAL)
    path, name = pair(hudi, tmp_path / "old", tmp_path, "ttl")
    mine = procedures.call("run_ttl", path=path, retain_days=30)
    real = hudi.call("run_ttl", table=name, retain_days=30)
    assert mine.schema.names == real.schema.names and mine.schema.types == real.schema.types
    assert answers(mine) == [{"deleted_partitions": "b"}]
    assert Table(str(path)).scan().count() == 4


def test_archived_commits(hudi: ApacheHudi, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id", partition_by="part", ordering="ts", options=MANUAL)
    for value in range(7):
        table.upsert(rows(range(4), value))
    table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1})
    hudi.register(tmp_path / "t", "archived")
    wide: dict[str, Any] = {"start_ts": "20200101000000000", "end_ts": "20990101000000000", "limit": 100}
    for name in ("show_archived_commits", "show_archived_commits_metadata"):
        mine = procedures.call(name, path=tmp_path / "t", **wide)
        same(name, mine, hudi.call(name, table="archived", **wide))
        assert mine.num_rows


def test_repairs(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Three levels of partitions, because Apache Hudi looks at no others."""
    table = Table.create(str(tmp_path / "deep"), record_key="id", partition_by=["y", "m", "d"], ordering="ts", options=MANUAL)
    table.upsert(pa.table({"id": ["1", "2"], "ts": [1, 1], "y": ["2020", "2021"], "m": ["1", "1"], "d": ["1", "2"]}))
    for left in (tmp_path / "deep" / "2020" / "1" / "1").glob(".hoodie_partition_metadata*"):
        left.unlink()
    path, name = pair(hudi, tmp_path / "deep", tmp_path, "deep")
    calls: tuple[dict[str, Any], ...] = ({}, {"dry_run": False}, {})
    for arguments in calls:
        mine = procedures.call("repair_add_partition_meta", path=path, **arguments)
        real = hudi.call("repair_add_partition_meta", table=name, **arguments)
        assert mine == real.cast(mine.schema).sort_by("partition_path")
    written = [(tmp_path / copy / "2020/1/1/.hoodie_partition_metadata").read_text() for copy in ("mine", "theirs")]
    assert written[0].splitlines()[2:] == written[1].splitlines()[2:]
    properties = tmp_path / "new.properties"
    properties.write_text((path / ".hoodie" / "hoodie.properties").read_text() + "hoodie.something=1\n")
    mine = procedures.call("repair_overwrite_hoodie_props", path=path, new_props_file_path=str(properties))
    real = hudi.call("repair_overwrite_hoodie_props", table=name, new_props_file_path=str(properties))
    assert mine == real.cast(mine.schema).sort_by("property")


def test_missing_data_file(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Hudi's procedure reads both sides from the metadata table, so it finds no file missing; PyHudi's lists directories."""
    path = tmp_path / "gone"
    table = Table.create(str(path), record_key="id", partition_by="part", ordering="ts", options=MANUAL)
    table.upsert(rows(range(8), 1))
    hudi.register(path, "gone")
    victim = sorted((path / "a").glob("*.parquet"))[0]
    victim.unlink()
    mine = procedures.call("validate_metadata_table_files", path=path)
    assert [(row["file_name"], row["is_present_in_fs"]) for row in mine.to_pylist()] == [(victim.name, False)]
    assert hudi.call("validate_metadata_table_files", table="gone").num_rows == 0


KIND = "hoodie.datasource.query.type"
BEGIN, END = "hoodie.datasource.read.begin.instanttime", "hoodie.datasource.read.end.instanttime"
KEEPING: dict[str, Any] = {"hoodie.clean.automatic": False, "hoodie.parquet.small.file.limit": 0}


def write_by_both(shared: SharedTable) -> None:
    """Writes of both, a delete, what rewrites and what replaces."""
    shared.theirs(keyed_rows(("a", 1, "a1", 1), ("b", 1, "b1", 1), ("c", 1, "c1", 1), ("d", 1, "d1", 1)))
    shared.ours(keyed_rows(("a", 2, "a2", 2), ("e", 2, "e2", 2)))
    shared.theirs(keyed_rows(("b", 3, "b3", 3), ("c", 3, "c3", 3)))
    shared.ours(keyed_rows(("d", 4, "", 0)), "delete")
    if shared.kind == "mor":
        shared.table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    else:
        shared.table.cluster()
    shared.theirs(keyed_rows(("a", 5, "a5", 5), ("f", 5, "f5", 5)))
    shared.ours(keyed_rows(("g", 6, "g6", 6)), "insert_overwrite")


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_queries_and_procedures_of_version_9(newer_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    shared = SharedTable(newer_hudi, tmp_path / "t", kind, KEEPING)
    write_by_both(shared)
    table = shared.table

    def both(ours: pa.Table, **options: Any) -> None:
        """Hudi returns the same rows, meta columns included."""
        assert_same_rows(ours, shared.hudi.read(shared.path, **options))

    writes = table.timeline().completed_writes()
    times = [str(instant.completion_time) for instant in writes]
    ranges = [*itertools.combinations([*times, None], 2)] if WIDE else [(times[1], times[4]), (times[3], None)]
    for begin, end in [("000", None), *ranges]:
        assert begin is not None
        found = table.incremental(begin, end, ["*"]).to_arrow()
        both(found, **{KIND: "incremental", BEGIN: begin, **({} if end is None else {END: end})})
    for instant in writes if WIDE else [writes[3]]:
        both(table.scan(["*"], as_of=instant.request_time).to_arrow(), **{"as.of.instant": instant.request_time})
    both(table.read_optimized(["*"]).to_arrow(), **{KIND: "read_optimized"})

    table.savepoint(user="somebody", comments="to keep")
    table.rollback(shared.ours(keyed_rows(("g", 7, "g7", 7))))
    shared.hudi.register(shared.path, shared.name)
    asked = [(name, {**given, "partition": "x"} if given.get("partition") == "a" else given) for name, given in READS]
    asked += [
        (name, {"instant_time": instant.request_time})
        for name in ("show_commit_files", "show_commit_partitions", "show_commit_write_stats")
        for instant in (writes if WIDE else writes[-2:])
    ]
    asked += [("show_rollback_detail", {"instant_time": i.request_time}) for i in table.timeline().completed(Action.ROLLBACK)]
    for name, given in asked:
        if name != "show_compaction" or kind == "mor":
            same(name, procedures.call(name, path=shared.path, **given), shared.hudi.call(name, table=shared.name, **given))


@pytest.mark.wide
def test_time_to_live_of_version_9(newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    """PyHudi's deletes them, also after Hudi's procedure has failed on one; Apache Hudi writes them again."""
    mine = SharedTable(newer_hudi, tmp_path / "mine", "mor", KEEPING)
    old = Table.create(mine.path, options=mine.options, environment=ReplayEnvironment(1, 1_600_000_000_000))
    old.upsert(keyed_rows(("a", 1, "a1", 1), ("c", 1, "c1", 1)))
    mine.ours(keyed_rows(("c", 2, "c2", 2)))
    theirs = SharedTable(newer_hudi, tmp_path / "theirs", "mor", KEEPING)
    shutil.copytree(mine.path, theirs.path)
    with pytest.raises(HudiFailure, match=r"replacecommit\.inflight does not exist"):
        theirs.call("run_ttl", retain_days=30)
    for shared in (mine, theirs):
        assert shared.same() == {"a": "a1", "c": "c2"}
        assert procedures.call("run_ttl", path=shared.path, retain_days=30).to_pylist() == [{"deleted_partitions": "x"}]
        assert shared.same() == {"c": "c2"}
    theirs.theirs(keyed_rows(("a", 3, "a3", 3)))
    assert theirs.same() == {"a": "a3", "c": "c2"}
    theirs.checked()


@pytest.mark.parametrize("kind", KINDS)
def test_cleans_slices_and_exports(newer_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    path = build(tmp_path / kind, kind)
    table = Table(str(path))
    if kind == "mor":
        table.compact()
        table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    newer_hudi.register(path, "shown")
    for name in ("show_cleans", "show_cleans_metadata", "show_clean_plans", "show_fsview_all", "show_invalid_parquet"):
        arguments: dict[str, Any] = {"limit": 100}
        mine = procedures.call(name, path=path, **arguments)
        located = {"path": str(path)} if name == "show_invalid_parquet" else {"table": "shown"}
        theirs = newer_hudi.call(name, **located, **arguments)
        assert mine.schema.names == theirs.schema.names and mine.schema.types == theirs.schema.types
        assert sorted(answers(mine), key=repr) == sorted(answers(theirs), key=repr), name
    for folder, export in (("mine", procedures.call), ("theirs", newer_hudi.call)):
        (tmp_path / folder).mkdir()
        where: dict[str, Any] = {"path": path} if folder == "mine" else {"table": "shown"}
        export("export_instants", **where, local_folder=str(tmp_path / folder))
    exported = [{file.name for file in (tmp_path / folder).iterdir() if file.suffix != ".crc"} for folder in ("mine", "theirs")]
    assert exported[0] == exported[1] and exported[0]
