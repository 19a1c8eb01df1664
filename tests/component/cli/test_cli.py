"""Command line: output for people and for programs, and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli.app import app, run
from pyhudi.cli.output import Format, in_commands, print_rows
from pyhudi.errors import CorruptData, InvalidRequest, TableState

OPTIONS = {"hoodie.index.bloom.num_entries": "100"}
RUNNER = CliRunner()


@pytest.fixture
def table(tmp_path: Path) -> hp.Table:
    made = hp.Table.create(tmp_path / "t", record_key="id", partition_by="city", ordering="ts", options=OPTIONS)
    made.upsert(pa.table({"id": ["a", "b", "c"], "city": ["sf", "ny", "sf"], "ts": [1, 1, 1]}), options=OPTIONS)
    made.upsert(pa.table({"id": ["a"], "city": ["sf"], "ts": [2]}), options=OPTIONS)
    return made


def call(*arguments: str) -> str:
    result = RUNNER.invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_show_names_the_facts(table: hp.Table) -> None:
    facts = json.loads(call("show", table.uri, "--output", "json"))
    assert (facts["name"], facts["record key"], facts["partitions"]) == ("t", ["id"], 2)
    assert (facts["partitioned by"], facts["ordering field"], facts["pending"]) == (["city"], ["ts"], [])
    assert "files" in facts["metadata table"]
    assert re.search(r"^record key +id$", call("show", table.uri), re.MULTILINE)


def test_commits_count_what_changed_newest_first(table: hp.Table) -> None:
    rows = json.loads(call("commits", table.uri, "-o", "json"))
    assert [(row["operation"], row["inserted"], row["updated"]) for row in rows] == [("UPSERT", 0, 1), ("UPSERT", 3, 0)]


def test_advice_is_spelled_as_commands() -> None:
    assert in_commands("create one with Table.create or check the path") == "create one with `pyhudi create` or check the path"
    assert in_commands("run `Table.repair()`; dry_run=False") == "run `pyhudi repair`; --yes"
    # What commands take in another way stays as it is.
    assert in_commands("Table.update(...), Table.create(exist_ok=True)") == "Table.update(...), Table.create(exist_ok=True)"
    assert in_commands("pass force=True to remove what it writes") == "pass --force to remove what it writes"
    assert in_commands("run Table.upgrade(to=9)") == "run `pyhudi upgrade --to 9`"
    assert in_commands("or set pyhudi.schema.mode=widen") == "or pass --schema-mode widen"
    assert in_commands("drop it: Table.index.drop('record_index')") == "drop it: `pyhudi index drop TABLE record_index`"
    assert in_commands("a repair (or Table.index.rebuild()) rebuilds it") == "a repair (or `pyhudi index rebuild`) rebuilds it"
    assert in_commands("Table.rollback('2026') takes it back") == "`pyhudi rollback TABLE 2026` takes it back"
    assert in_commands("run `Table.validate(keys=True)`") == "run `pyhudi validate --keys`"
    assert in_commands("Table.drop_metadata_table() makes") == "`pyhudi call delete_metadata_table TABLE` makes"


def test_csv_has_a_header_and_a_line_for_each_row(table: hp.Table) -> None:
    lines = call("timeline", table.uri, "-o", "csv").strip().splitlines()
    assert lines[0] == "requested,completed,action,state"
    assert len(lines) == 3


@pytest.mark.parametrize("command", ["schema", "files", "slices", "partitions", "stats", "markers", "explain"])
def test_inspection_commands_change_nothing(table: hp.Table, command: str) -> None:
    before = table.timeline().instants
    assert call(command, table.uri)
    assert table.timeline().instants == before


def test_head_reads_rows_of_a_filter(table: hp.Table) -> None:
    rows = json.loads(call("head", table.uri, "-f", "city = 'sf'", "-c", "id,ts", "-o", "json"))
    assert sorted((row["id"], row["ts"]) for row in rows) == [("a", 2), ("c", 1)]


def test_diff_shows_the_records_that_changed(table: hp.Table) -> None:
    last = table.timeline().completed_writes()[-1].completion_time
    assert last is not None
    rows = json.loads(call("diff", table.uri, last, "-o", "json"))
    assert [row["id"] for row in rows] == ["a"]


def test_destructive_commands_preview_by_default(table: hp.Table) -> None:
    last = table.timeline().completed_writes()[-1].request_time
    assert "would roll back" in call("rollback", table.uri, last)
    assert table.scan(filter="id = 'a'").to_arrow()["ts"].to_pylist() == [2]
    call("rollback", table.uri, last, "--yes")
    assert table.scan(filter="id = 'a'").to_arrow()["ts"].to_pylist() == [1]


def test_restore_while_hudi_writes_needs_force(table: hp.Table) -> None:
    first = table.timeline().completed_writes()[0].request_time
    table.context.storage.put(".hoodie/.heartbeat/20990101000000000", b"")
    with pytest.raises(TableState, match="process of Hudi may be running write 20990101000000000"):
        call("restore", table.uri, first, "--yes")
    call("restore", table.uri, first, "--yes", "--force")
    assert table.scan(filter="id = 'a'").to_arrow()["ts"].to_pylist() == [1]


@pytest.mark.parametrize("command", ["rollback", "restore"])
def test_dry_run_of_an_unknown_instant_is_rejected(table: hp.Table, command: str) -> None:
    with pytest.raises(hp.InstantNotFound, match="20200101000000000"):
        call(command, table.uri, "20200101000000000")


def test_services_run_and_print_their_results(table: hp.Table) -> None:
    assert "clustering" in call("cluster", table.uri, "--order-by", "id")
    assert call("clean", table.uri)
    assert "tag:today" in call("savepoint", table.uri, "--tag", "today")
    assert call("count", table.uri, "--as-of", "tag:today") == call("count", table.uri)
    assert "would undo 0 writes" in call("restore", table.uri, "tag:today")
    assert "nothing" in call("archive", table.uri) or call("archive", table.uri)


def test_validate_reports_errors_by_exit_code(table: hp.Table) -> None:
    whole = json.loads(call("validate", table.uri, "--output", "json"))
    assert (whole["ok"], whole["errors"], whole["warnings"], whole["unchecked"], whole["findings"]) == (True, 0, 0, 0, [])
    victim = table.scan().explain().slices[0].base
    assert victim is not None
    table.context.storage.delete([victim.path])
    result = RUNNER.invoke(app, ["validate", table.uri])
    assert result.exit_code == 4
    assert victim.path.rsplit("/", 1)[-1] in result.output
    found = RUNNER.invoke(app, ["validate", table.uri, "--output", "json"])
    assert found.exit_code == 4
    facts = json.loads(found.output)
    assert (facts["ok"], facts["errors"], facts["warnings"]) == (False, len(facts["findings"]), 0)
    assert victim.path in [finding["path"] for finding in facts["findings"]]
    assert "timeline" in facts["checked"] and facts["remedies"]


def test_errors_are_one_message_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, code in ((["show", str(tmp_path / "none")], 1), (["head", str(tmp_path / "none"), "-O", "nonsense"], 2)):
        monkeypatch.setattr("sys.argv", ["pyhudi", *arguments])
        with pytest.raises(SystemExit) as stopped:
            run()
        assert stopped.value.code == code
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [("compact",), ("clean",), ("archive",), ("head",), ("repair",), ("index", "create", "record_index")], ids=" ".join
)
def test_an_option_without_effect_on_the_command(table: hp.Table, command: tuple[str, ...]) -> None:
    """Refused before anything is done, so that a refused creation of an index leaves none."""
    before = {info.path for info in table.context.storage.walk("")}
    wrong = "hoodie.clustering.plan.strategy.sort.columns=id"
    where = (table.uri, *command[2:]) if command[0] == "index" else (table.uri,)
    result = RUNNER.invoke(app, [*command[:2], *where, "-O", wrong])
    assert isinstance(result.exception, hp.InvalidRequest)
    assert f"option {wrong} has no effect on " in str(result.exception)
    assert {info.path for info in table.context.storage.walk("")} == before


def test_repair_previews_and_then_executes(table: hp.Table) -> None:
    assert "nothing to repair" in call("repair", table.uri)
    table.drop_metadata_table()
    table.context.storage.delete(["sf/.hoodie_partition_metadata"])
    result = RUNNER.invoke(app, ["repair", table.uri, "--only", "partition-metadata", "-o", "json"])
    assert result.exit_code == 4
    assert [step["path"] for step in json.loads(result.output)["steps"]] == ["sf/.hoodie_partition_metadata"]
    assert table.scan().count() == 1
    assert "it is written" in call("repair", table.uri, "--yes")
    assert table.scan().count() == 3
    assert call("repair", table.uri)


def test_repair_restores_properties_from_files_and_arguments(table: hp.Table) -> None:
    table.context.storage.delete([".hoodie/hoodie.properties"])
    told = ["--property", "hoodie.record.merge.mode=EVENT_TIME_ORDERING", "--property", "hoodie.table.precombine.field=ts"]
    with pytest.raises(InvalidRequest, match="urlencode"):
        RUNNER.invoke(app, ["repair", table.uri, *told], catch_exceptions=False)
    told += ["--property", "hoodie.datasource.write.partitionpath.urlencode=false"]
    assert RUNNER.invoke(app, ["repair", table.uri, *told]).exit_code == 4
    assert "hoodie.table.recordkey.fields=id" in call("repair", table.uri, *told, "--yes")
    assert hp.Table(table.uri).scan().count() == 3


def test_doctor_names_a_remedy_for_each_finding(table: hp.Table) -> None:
    result = RUNNER.invoke(app, ["doctor", table.uri, "-O", "hoodie.keep.min.commits=30", "-O", "hoodie.keep.max.commits=20"])
    assert result.exit_code == 4
    assert "hoodie.keep.max.commits=20 is not above" in result.output and "remedy: hoodie.keep.max.commits=40" in result.output
    found = json.loads(RUNNER.invoke(app, ["doctor", table.uri, "-O", "hoodie.keep.max.commitz=3", "-o", "json"]).output)
    assert any("hoodie.keep.max.commitz" in one["finding"] for one in found)


def test_procedures_by_name(table: hp.Table) -> None:
    rows = json.loads(call("call", "show_commits", table.uri, "-a", "limit=1", "-o", "json"))
    assert [row["total_update_records_written"] for row in rows] == [1]
    assert "show_commits: " in call("procs")
    assert "limit int = 10" in call("procs", "show_commits")


def test_the_version_needs_no_command() -> None:
    assert call("--version").strip() == hp.__version__


def test_help_lists_exit_codes_and_shell_completion_is_offered() -> None:
    assert "Exit codes" in call("--help")
    assert "--install-completion" in call("--help")


def test_tables_in_memory_and_object_stores_are_named_by_uri() -> None:
    made = hp.Table.create("memory://cli/t", record_key="id")
    made.upsert(pa.table({"id": ["a"]}))
    assert json.loads(call("show", "memory://cli/t", "-o", "json"))["record key"] == ["id"]


def test_rows_wider_than_the_terminal_are_printed_vertically(
    table: hp.Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = table.inspect.file_slices()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    print_rows(slices, Format.TABLE)
    shown = capsys.readouterr().out
    assert all(path in shown for path in slices["base_path"].to_pylist())
    print_rows(slices.select(["partition", "log_size_bytes"]), Format.TABLE)
    assert "┃" in capsys.readouterr().out


def test_indexes_are_listed_created_rebuilt_and_dropped(table: hp.Table) -> None:
    def names() -> set[str]:
        return {row["name"] for row in json.loads(call("index", "list", table.uri, "-o", "json"))}

    before = names()
    assert "record_index" in call("index", "create", table.uri, "record_index")
    made = json.loads(call("index", "create", table.uri, "secondary_index", "-c", "ts", "--name", "by_ts", "-o", "json"))
    assert made[0]["columns"] == "ts" and made[0]["state"] == "ready"
    gained = names() - before
    assert made[0]["name"] in gained
    assert made[0]["name"] in call("index", "rebuild", table.uri, made[0]["name"])
    assert "would drop" in call("index", "drop", table.uri, made[0]["name"]) and made[0]["name"] in names()
    call("index", "drop", table.uri, made[0]["name"], "--yes")
    assert made[0]["name"] not in names()


STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil"


def is_harmless(text: str) -> bool:
    return not any(char in text for char in "\x1b\x07\x9b\u202e")


@pytest.fixture
def steering(tmp_path: Path) -> hp.Table:
    made = hp.Table.create(tmp_path / "t", record_key="id", partition_by="city", ordering="ts", options=OPTIONS)
    made.upsert(pa.table({"id": [STEERING], "city": [STEERING.replace("]", "")], "ts": [1]}), options=OPTIONS)
    return made


def test_data_do_not_steer_the_terminal(steering: hp.Table) -> None:
    commands = (
        "show",
        "timeline",
        "commits",
        "head",
        "explain",
        "files",
        "slices",
        "partitions",
        "stats",
        "validate",
        "report --to -",
    )
    for command in commands:
        name, *rest = command.split()
        result = RUNNER.invoke(app, [name, steering.uri, *rest])
        assert result.exit_code == 0, (command, result.output)
        assert is_harmless(result.output), command


def test_errors_do_not_steer_the_terminal(steering: hp.Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert is_harmless(str(CorruptData(f"a key {STEERING}", path=f"/t/{STEERING}")))
    assert str(CorruptData("two\nlines\tstay")) == "two\nlines\tstay"
    assert is_harmless(str(InvalidRequest(STEERING)))
    for output in (Format.TABLE, Format.JSON):
        print_rows(pa.table({"key": [STEERING, "two\nlines"], "nested": [[STEERING], []]}), output)
        assert is_harmless(capsys.readouterr().out)


def test_report_is_written_to_the_requested_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    made = hp.Table.create(tmp_path / "t", record_key="id", name="../../evil", options=OPTIONS)
    made.upsert(pa.table({"id": ["a"]}), options=OPTIONS)
    call("report", made.uri)
    assert [path.name for path in inside.iterdir()] == ["evil-report.html"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "t"]


def test_settings_are_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        RUNNER.invoke(app, ["show", "s3://b/t", "--storage", "secret_access_key:hush"], catch_exceptions=False)
    assert "hush" not in str(caught.value)
