"""No operation, command or procedure changes a table that PyHudi must not write.

Every public method, procedure and command is listed with what it does; an unlisted one fails the tests.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pyhudi.api.alter import Alter
from pyhudi.api.table import Indexes, Table
from pyhudi.cli.app import app
from pyhudi.errors import CorruptData, HudiError, TableExists, Unsupported
from pyhudi.features import procedures
from pyhudi.operations.write.micro_batches import StreamBatch
from pyhudi.operations.write.write_settings import WriteOperation
from tests.support.golden_tables import open_golden

ROWS = pa.table({"id": ["a", "b"], "part": ["x", "y"], "ts": [1, 1], "value": [1, 2]})
CDC = "hoodie.table.cdc.enabled"
KEYS = ROWS.select(["id", "part"])
UNREACHABLE_METASTORE = "thrift://127.0.0.1:1"


# Tables that are not written


def _golden(name: str, folder: Path) -> Path:
    return open_golden(name, folder).path


def _own(folder: Path) -> Path:
    table = Table.create(
        str(folder / "t"), record_key="id", partition_by="part", ordering="ts", table_type="mor", options={CDC: "true"}
    )
    for _ in range(2):
        table.upsert(ROWS, options={"hoodie.metadata.record.index.enable": "true"})
    table.savepoint()
    return folder / "t"


def _without_a_nested_column(folder: Path) -> Path:
    table = Table.create(str(folder / "t"), record_key="id", partition_by="place.city", ordering="ts")
    table.upsert(ROWS.append_column("place", pa.array([{"city": "x"}, {"city": "y"}])))
    return _set(folder / "t", **{"hoodie.datasource.write.drop.partition.columns": "true"})


def _set(path: Path, **properties: str) -> Path:
    file = path / ".hoodie" / "hoodie.properties"
    # As another writer leaves it, which knows nothing of our comments.
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    kept = [line for line in lines if line.partition("=")[0] not in properties]
    file.write_text("\n".join([*(f"{key}={value}" for key, value in properties.items()), *kept]) + "\n")
    return path


READ_ONLY: dict[str, Callable[[Path], Path]] = {
    "version 6, copy on write": partial(_golden, "cow_v6"),
    "version 6, merge on read": partial(_golden, "mor_v6"),
}
CLOSED: dict[str, Callable[[Path], Path]] = {"a part of another column": _without_a_nested_column}
BY_IDS: dict[str, Callable[[Path], Path]] = {
    "columns by ids, without meta columns": lambda folder: _set(
        _golden("cow_schema_on_read", folder), **{"hoodie.populate.meta.fields": "false"}
    ),
}
WITH_ROWS: dict[str, Callable[[Path], Path]] = {
    "files that are not Parquet": lambda folder: _set(_own(folder), **{"hoodie.table.base.file.format": "HFILE"}),
}
NOT_WRITTEN = {**READ_ONLY, **CLOSED, **BY_IDS, **WITH_ROWS}


# Operations


def last(table: Table) -> str:
    return table.timeline().completed_writes()[-1].request_time


def _serve(table: Table) -> None:
    stop = threading.Event()
    table.serve(stop, on_run=lambda outcomes: stop.set())


def _background_services(table: Table) -> None:
    with table.background_services():
        pass


def _exclusive(table: Table) -> None:
    with table.exclusive():
        pass


Call = Callable[[Table, str], object]
"""An operation on a table with a completed write."""

CHANGES: dict[str, Call] = {
    "create": lambda table, at: Table.create(table.uri, name=table.name, record_key="id"),
    "upsert": lambda table, at: table.upsert(ROWS),
    "insert": lambda table, at: table.insert(ROWS),
    "append": lambda table, at: table.append(ROWS),
    "bulk_insert": lambda table, at: table.bulk_insert(ROWS),
    "insert_overwrite": lambda table, at: table.insert_overwrite(ROWS),
    "insert_overwrite_table": lambda table, at: table.insert_overwrite_table(ROWS),
    "delete": lambda table, at: table.delete(KEYS),
    "update": lambda table, at: table.update({table.schema().names[-1]: None}),
    "merge": lambda table, at: table.merge(ROWS, on=ROWS.column_names[0]).when_matched_update_all().execute(),
    "delete_partitions": lambda table, at: table.delete_partitions("*"),
    "rewrite_record_keys": lambda table, at: table.rewrite_record_keys(),
    "write_batch": lambda table, at: table.write_batch(ROWS, WriteOperation.UPSERT, StreamBatch("stream", 1)),
    "rollback": lambda table, at: table.rollback(at),
    "exclusive": lambda table, at: _exclusive(table),
    "clean": lambda table, at: table.clean(dry_run=False),
    "archive": lambda table, at: table.archive(),
    "cluster": lambda table, at: table.cluster(),
    "schedule_clustering": lambda table, at: table.schedule_clustering(),
    "unschedule_clustering": lambda table, at: table.unschedule_clustering(at),
    "compact": lambda table, at: table.compact(),
    "schedule_compaction": lambda table, at: table.schedule_compaction(),
    "unschedule_compaction": lambda table, at: table.unschedule_compaction(at),
    "log_compact": lambda table, at: table.log_compact(),
    "schedule_log_compaction": lambda table, at: table.schedule_log_compaction(),
    "run_services": lambda table, at: table.run_services(),
    "serve": lambda table, at: _serve(table),
    "background_services": lambda table, at: _background_services(table),
    "savepoint": lambda table, at: table.savepoint(),
    "delete_savepoint": lambda table, at: table.delete_savepoint(at),
    "set_properties": lambda table, at: table.set_properties({"owner": "me"}),
    "restore": lambda table, at: table.restore(at),
    "run_ttl": lambda table, at: table.run_ttl(),
    "drop": lambda table, at: table.drop(),
    "drop_metadata_table": lambda table, at: table.drop_metadata_table(),
    "repair": lambda table, at: table.repair(dry_run=False),
    "upgrade": lambda table, at: table.upgrade(),
    "downgrade": lambda table, at: table.downgrade(),
}
LOOKS: dict[str, Call] = {
    "exists": lambda table, at: Table.exists(table.uri),
    "uri": lambda table, at: table.uri,
    "name": lambda table, at: table.name,
    "config": lambda table, at: table.config,
    "context": lambda table, at: table.context,
    "timeline": lambda table, at: table.timeline(),
    "expired_partitions": lambda table, at: table.expired_partitions(),
    "index": lambda table, at: table.index.list(),
    "alter": lambda table, at: table.alter,
    "tags": lambda table, at: table.tags(),
    "inspect": lambda table, at: table.inspect.timeline(),
    "plot": lambda table, at: table.plot,
    "read_blobs": lambda table, at: table.read_blobs([None]),
}
READS: dict[str, Call] = {
    "search": lambda table, at: table.search("value", [1.0]),
    "count": lambda table, at: table.count(),
    "schema": lambda table, at: table.schema(),
    "partitions": lambda table, at: table.partitions(),
    "scan": lambda table, at: table.scan().to_arrow(),
    "read_optimized": lambda table, at: table.read_optimized().to_arrow(),
    "lookup": lambda table, at: table.lookup(["a"]).to_arrow(),
    "filter_exists": lambda table, at: table.filter_exists({"id": ["a"]}),
    "incremental": lambda table, at: table.incremental("earliest").to_arrow(),
    "changes": lambda table, at: table.changes().to_arrow(),
    "validate": lambda table, at: table.validate(),
    "sync": lambda table, at: table.sync(metastore=UNREACHABLE_METASTORE),
}

ALTER_CHANGES: dict[str, Callable[[Alter], object]] = {
    "add": lambda alter: alter.add("more", pa.int32()),
    "drop": lambda alter: alter.drop("value"),
    "rename": lambda alter: alter.rename("value", "other"),
    "retype": lambda alter: alter.retype("value", pa.string()),
    "reorder": lambda alter: alter.reorder("value", after="id"),
    "comment": lambda alter: alter.comment("value", "text"),
    "allow_nulls": lambda alter: alter.allow_nulls("value"),
    "add_constraint": lambda alter: alter.add_constraint("positive", "id is not null"),
    "drop_constraint": lambda alter: alter.drop_constraint("positive"),
}
INDEX_CHANGES: dict[str, Callable[[Indexes], object]] = {
    "create": lambda index: index.create("bloom_filters"),
    "schedule": lambda index: index.schedule("bloom_filters"),
    "run": lambda index: index.run("20260101000000000"),
    "abort": lambda index: index.abort("20260101000000000"),
    "drop": lambda index: index.drop("record_index"),
    "rebuild": lambda index: index.rebuild(),
}
INDEX_LOOKS = {"list"}

PROCEDURE_CHANGES: dict[str, dict[str, object]] = {
    "drop_partition": {"partition": "x"},
    "truncate_table": {},
    "run_bootstrap": {
        "table_type": "COPY_ON_WRITE",
        "bootstrap_path": "/elsewhere",
        "base_path": "TABLE",
        "rowKey_field": "id",
    },
    "run_compaction": {"op": "scheduleandexecute"},
    "run_clustering": {},
    "run_clean": {},
    "run_ttl": {},
    "archive_commits": {},
    "partition_bucket_index_manager": {"overwrite": "a,4", "bucket_number": 2, "dry_run": False},
    "create_savepoint": {},
    "delete_savepoint": {"instant_time": "LAST"},
    "rollback_to_savepoint": {"instant_time": "LAST"},
    "rollback_to_instant": {"instant_time": "LAST"},
    "restore_to_instant": {"instant_time": "LAST"},
    "cleanup_stale_inflight_commits": {},
    "run_rollback_inflight_tableservice": {"pending_instant": "LAST"},
    "run_timeline_compaction": {},
    "create_metadata_table": {},
    "delete_metadata_table": {},
    "repair_add_partition_meta": {"dry_run": False},
    "repair_overwrite_hoodie_props": {"new_props_file_path": "PROPERTIES"},
    "repair_corrupted_clean_files": {},
    "delete_marker": {"instant_time": "LAST"},
    "set_audit_lock": {"state": "enabled"},
    "cleanup_audit_lock": {},
    "upgrade_table": {"to_version": "NINE"},
    "downgrade_table": {"to_version": "SIX"},
}

COMMAND_CHANGES: dict[str, tuple[str, ...]] = {
    "create": ("TABLE", "--record-key", "id"),
    "load": ("TABLE", "ROWS"),
    "ingest": ("--config", "JOB"),
    "delete": ("TABLE", "--where", "_hoodie_record_key = 'a'", "--yes"),
    "compact": ("TABLE",),
    "cluster": ("TABLE",),
    "clean": ("TABLE", "--yes"),
    "archive": ("TABLE",),
    "serve": ("TABLE", "--once"),
    "rollback": ("TABLE", "LAST", "--yes"),
    "savepoint": ("TABLE",),
    "restore": ("TABLE", "LAST", "--yes"),
    "upgrade": ("TABLE", "--yes"),
    "drop": ("TABLE", "--yes"),
    "downgrade": ("TABLE", "--yes"),
    "repair": ("TABLE", "--yes"),
    "call": ("delete_metadata_table", "TABLE"),
    "index create": ("TABLE", "bloom_filters"),
    "index drop": ("TABLE", "record_index", "--yes"),
    "index rebuild": ("TABLE",),
    "sql": ("TRUNCATE TABLE t", "--table", "NAMED"),
}
COMMAND_LOOKS: dict[str, tuple[str, ...]] = {
    "show": ("TABLE",),
    "timeline": ("TABLE",),
    "commits": ("TABLE",),
    "doctor": ("TABLE",),
    "markers": ("TABLE",),
    "index list": ("TABLE",),
    "procs": (),
}
COMMAND_READS: dict[str, tuple[str, ...]] = {
    "sync": ("TABLE", "--metastore", UNREACHABLE_METASTORE),
    "count": ("TABLE",),
    "changes": ("TABLE",),
    "export": ("TABLE", "EXPORT"),
    "schema": ("TABLE",),
    "head": ("TABLE",),
    "explain": ("TABLE",),
    "files": ("TABLE",),
    "slices": ("TABLE",),
    "partitions": ("TABLE",),
    "stats": ("TABLE",),
    "log": ("TABLE", "nothing.log.1"),
    "diff": ("TABLE", "LAST", "LAST"),
    "validate": ("TABLE",),
    "report": ("TABLE", "--to", "REPORT"),
}


def _public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def _commands() -> set[str]:
    def below(group: Any, prefix: str) -> set[str]:
        found: set[str] = set()
        for name, one in group.commands.items():
            found |= below(one, f"{prefix}{name} ") if hasattr(one, "commands") else {prefix + name}
        return found

    return below(get_command(app), "")


def test_every_public_operation_is_listed() -> None:
    assert _public(Table) == {*CHANGES, *LOOKS, *READS}, "add the operation to this file"
    assert _public(Alter) == {*ALTER_CHANGES, "constraints"}
    assert _public(Indexes) == {*INDEX_CHANGES, *INDEX_LOOKS}
    # A catalog sync is no change of the table.
    shown = {name for name in procedures.NAMES if name.startswith(("show_", "stats_", "validate_", "hive_sync", "copy_to_"))}
    shown |= {"commits_compare", "export_instants", "init_metadata_table"}
    assert set(procedures.NAMES) - shown == set(PROCEDURE_CHANGES)
    assert _commands() == {*COMMAND_CHANGES, *COMMAND_LOOKS, *COMMAND_READS}


def content(folder: Path) -> Mapping[str, bytes | None]:
    """Every file with its bytes, and every folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def _run_command(name: str, arguments: tuple[str, ...], path: Path, instant: str, tmp_path: Path) -> Exception | None:
    rows = tmp_path / "rows.parquet"
    pq.write_table(ROWS, rows)
    words = {"TABLE": str(path), "LAST": instant, "REPORT": str(tmp_path / "report.html")}
    job = tmp_path / "job.toml"
    source = f'{{ kind = "files", path = "{tmp_path}", order = "name", pattern = "{rows.name}" }}'
    job.write_text(f'[[table]]\npath = "{path}"\nsource = {source}\n')
    words |= {"JOB": str(job), "NAMED": f"t={path}", "ROWS": str(rows), "EXPORT": str(tmp_path / "export.parquet")}
    result = CliRunner().invoke(app, [*name.split(), *(words.get(word, word) for word in arguments)])
    return result.exception if isinstance(result.exception, HudiError) else None


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", NOT_WRITTEN)
def test_no_operation_changes_a_table_that_is_not_writable(kind: str, tmp_path: Path) -> None:
    path = NOT_WRITTEN[kind](tmp_path)
    before = content(path)
    table = Table(str(path))
    instant = last(table)
    properties = tmp_path / "other.properties"
    properties.write_bytes((path / ".hoodie" / "hoodie.properties").read_bytes() + b"hoodie.more=1\n")
    words = {"LAST": instant, "PROPERTIES": str(properties), "TABLE": str(path)}
    # Leading from one version to the other is what these are for.
    meant = {"upgrade"} if kind in WITH_ROWS else set()
    if kind.startswith("version 6"):
        meant = {"upgrade", "downgrade", "upgrade_table", "downgrade_table"}

    def refused(name: str, run: Callable[[], object], error: type[HudiError] = Unsupported) -> None:
        if name in meant:
            return
        with pytest.raises(error):
            run()
        assert content(path) == before, name

    def command(name: str, arguments: tuple[str, ...]) -> None:
        error = _run_command(name, arguments, path, instant, tmp_path)
        if error is not None:
            raise error

    for name, change in CHANGES.items():
        refused(name, partial(change, table, instant), TableExists if name == "create" else Unsupported)
    for name, build in INDEX_CHANGES.items():
        refused(f"index {name}", partial(build, table.index))
    for name, alter in ALTER_CHANGES.items():
        refused(f"alter {name}", partial(alter, table.alter))
    for name, arguments in PROCEDURE_CHANGES.items():
        given: dict[str, Any] = {key: words.get(str(value), value) for key, value in arguments.items()}
        refused(name, partial(procedures.call, name, path=str(path), **given), HudiError)
    for name, line in COMMAND_CHANGES.items():
        refused(name, partial(command, name, line), HudiError)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", [*READ_ONLY, *CLOSED, *BY_IDS])
def test_inspections_and_reads_change_nothing(kind: str, tmp_path: Path) -> None:
    path = NOT_WRITTEN[kind](tmp_path)
    before = content(path)
    table = Table(str(path))
    instant = last(table)
    for name, look in {**LOOKS, **READS}.items():
        with contextlib.suppress(HudiError):
            look(table, instant)
        assert content(path) == before, name
    for name in procedures.NAMES:
        if name not in PROCEDURE_CHANGES:
            wanted: dict[str, Any] = {
                parameter.name: instant for parameter in procedures.PROCEDURES[name].parameters if parameter.required
            }
            with contextlib.suppress(HudiError):
                procedures.call(name, path=str(path), **wanted)
            assert content(path) == before, name
    for name, line in {**COMMAND_LOOKS, **COMMAND_READS}.items():
        _run_command(name, line, path, instant, tmp_path)
        assert content(path) == before, name


@pytest.mark.parametrize("kind", CLOSED)
def test_rows_of_an_unreadable_table_are_not_read(kind: str, tmp_path: Path) -> None:
    path = _set(CLOSED[kind](tmp_path), **{CDC: "true"})
    table = Table(str(path))
    for name, look in LOOKS.items():
        if name != "expired_partitions":
            look(table, last(table))
    for name, read in READS.items():
        with pytest.raises(Unsupported, match=kind.partition(",")[0]) as caught:
            read(table, last(table))
        assert "neither read nor written" in str(caught.value), name
    with pytest.raises(Unsupported, match="neither read nor written"):
        table.clean(dry_run=True)
    found = CliRunner().invoke(app, ["doctor", str(path)])
    assert "neither read nor written" in found.output


@pytest.mark.parametrize("version", ["6", "10"])
def test_open_table_is_refused_after_a_version_change_by_another_process(version: str, tmp_path: Path) -> None:
    path = _own(tmp_path)
    table = Table(str(path))
    instant = last(table)
    if version == "6":
        Table(str(path)).downgrade()
    else:
        _set(path, **{"hoodie.table.version": version})
    before = content(path)
    operations = {name: partial(change, table, instant) for name, change in CHANGES.items() if name != "create"}
    operations |= {f"index {name}": partial(build, table.index) for name, build in INDEX_CHANGES.items()}
    operations |= {f"alter {name}": partial(alter, table.alter) for name, alter in ALTER_CHANGES.items()}
    for name, operation in operations.items():
        if version == "6" and name in ("upgrade", "downgrade"):
            continue
        with pytest.raises(Unsupported):
            operation()
        assert content(path) == before, name


def test_unsupported_expression_index_can_be_dropped(tmp_path: Path) -> None:
    path = _own(tmp_path)
    table = Table(str(path))
    table.index.create("column_stats", "part", function="upper", name="later")
    definitions = path / ".hoodie" / ".index_defs" / "index.json"
    definitions.write_text(definitions.read_text().replace('"upper"', '"soundex"'))
    for refused in (lambda: table.upsert(ROWS), table.compact, table.cluster, table.index.rebuild):
        with pytest.raises(Unsupported, match="soundex"):
            refused()
    table.index.drop("expr_index_later")
    assert table.upsert(ROWS).rows_in == 2


def _history(path: Path, version: str) -> None:
    column = {"id": 0, "name": "id", "optional": True, "type": "string"}
    schema = {"max_column_id": 0, "version_id": int(version), "type": "record", "fields": [column]}
    file = path / ".hoodie" / ".schema" / f"{version}_{int(version) + 1}.schemacommit"
    file.write_text(json.dumps({"schemas": [schema, {**schema, "version_id": 0}]}))


def test_uncommitted_schema_change_does_not_block_the_table(tmp_path: Path) -> None:
    path = _own(tmp_path)
    _history(path, "29990101000000000")
    assert Table(str(path)).scan().count() == 2
    assert Table(str(path)).upsert(ROWS).rows_in == 2


def test_table_with_lost_schema_history_is_refused(tmp_path: Path) -> None:
    """Apache Hudi deletes the history before it writes the next one; the newest commit still records that there are ids."""
    path = open_golden("cow_schema_on_read", tmp_path).path
    for file in (path / ".hoodie" / ".schema").iterdir():
        file.unlink()
    table = Table(str(path))
    for refused in (table.schema, table.scan, lambda: table.upsert(ROWS), table.cluster):
        with pytest.raises(Unsupported, match="latest_schema"):
            refused()


def test_error_names_the_damaged_schema_history(tmp_path: Path) -> None:
    path = _own(tmp_path)
    (path / ".hoodie" / ".schema" / f"{last(Table(str(path)))}_29990101000000000.schemacommit").write_bytes(b"{")
    with pytest.raises(CorruptData, match="schemacommit"):
        Table(str(path)).scan()
