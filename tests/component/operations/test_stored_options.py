"""Options that hoodie.properties stores: which of them apply, to whom, and how a caller accepts or ignores the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli.app import app
from pyhudi.options.declaration import Option
from pyhudi.options.supported import SUPPORTED, check_storable_option
from tests.support.properties import edit_properties

PREFIX = "pyhudi.table.options."
LOCKS = "org.apache.hudi.client.transaction.lock."
FILE_LOCK = {
    "hoodie.write.lock.provider": LOCKS + "FileSystemBasedLockProvider",
    "hoodie.write.lock.filesystem.path": "{folder}/locks",
}
METRICS = {
    "hoodie.metrics.on": "true",
    "pyhudi.metrics.reporters": "CSV",
    "pyhudi.metrics.csv.path": "{folder}/metrics.csv",
}
NOT_USED = r"stores options that only callers may set, and they are not used: hoodie\.metrics\.on, .*trusted=True .*\[trust\]"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of one row; the user has a home without configuration."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYHUDI_CONFIG", raising=False)
    (tmp_path / "home").mkdir()
    hp.Table.create(tmp_path / "t", record_key="id").insert({"id": [1]})
    return str(tmp_path / "t")


def store(path: str, options: Mapping[str, str]) -> None:
    folder = str(Path(path).parent)
    edit_properties(path, {PREFIX + key: value.replace("{folder}", folder) for key, value in options.items()})


def has_metrics(path: str) -> bool:
    return Path(path).with_name("metrics.csv").exists()


def ingest(path: str, options: Mapping[str, object]) -> None:
    lines = Path(path).with_name("input")
    lines.mkdir()
    (lines / "a.json").write_text('{"id": 2}\n')
    source = {"kind": "files", "path": str(lines)}
    hp.Ingest({"path": path, "record_key": "id", "options": options, "source": source}).run()


def command(path: str, options: Mapping[str, object]) -> None:
    named = [part for key, value in options.items() for part in ("-O", f"{key}={value}")]
    file = Path(path).with_name("rows.csv")
    file.write_text("id\n2\n")
    result = CliRunner().invoke(app, ["load", path, str(file), *named], catch_exceptions=False)
    assert result.exit_code == 0, result.output


WRITERS: Mapping[str, Callable[[str, Mapping[str, object]], object]] = {
    "Table": lambda path, options: hp.Table(path, options=options).insert({"id": [2]}),
    "write": lambda path, options: hp.write(path, {"id": [2]}, options=options),
    "sql": lambda path, options: hp.sql(f"INSERT INTO hudi.`{path}` VALUES (2)", options=options),
    "ingestion": ingest,
    "command line": command,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_options_of_the_caller_are_not_taken_from_a_table(writer: str, path: str) -> None:
    store(path, METRICS)
    with pytest.warns(UserWarning, match=NOT_USED):
        WRITERS[writer](path, {})
    assert not has_metrics(path)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_caller_can_trust_a_table(writer: str, path: str) -> None:
    store(path, METRICS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WRITERS[writer](path, {"pyhudi.stored.options": "trusted"})
    assert has_metrics(path)


@pytest.mark.parametrize(
    ("prefix", "is_trusted"),
    [
        ("{folder}", True),
        ("{folder}/t", True),
        ("file://{folder}/", True),
        ("/", True),
        ("{folder}/tt", False),
        ("s3://t", False),
    ],
)
def test_a_user_can_trust_locations(prefix: str, is_trusted: bool, path: str, tmp_path: Path) -> None:
    store(path, METRICS)
    text = f'[trust]\ntables = ["{prefix.format(folder=tmp_path)}"]\n'
    (tmp_path / "home" / ".pyhudi.toml").write_text(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hp.Table(path).insert({"id": [2]})
    assert (has_metrics(path), [str(one.message)[:5] for one in caught]) == (is_trusted, [] if is_trusted else ["table"])
    with pytest.raises(hp.InvalidRequest, match="exclude each other"):
        hp.Table(path, trusted=True, stored_options=False)


def test_the_working_directory_does_not_trust_tables(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(path, METRICS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".pyhudi.toml").write_text('[trust]\ntables = ["/"]\n')
    with pytest.warns(UserWarning, match=NOT_USED):
        hp.Table(path).insert({"id": [2]})
    assert not has_metrics(path)


def test_explicit_options_and_the_options_of_a_creation_are_the_callers(tmp_path: Path) -> None:
    own = {key: value.replace("{folder}", str(tmp_path)) for key, value in METRICS.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        created = hp.Table.create(tmp_path / "t", record_key="id", options={PREFIX + key: value for key, value in own.items()})
        created.insert({"id": [1]})
        hp.Table(tmp_path / "t", options=own).insert({"id": [2]})
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) > 1


def test_a_copy_of_a_table_has_its_ordinary_options_only(path: str) -> None:
    store(path, {**METRICS, "hoodie.clean.commits.retained": "3"})
    copy = f"{path}-copy"
    with pytest.warns(UserWarning, match=NOT_USED) as caught:
        hp.sql(f"CREATE TABLE hudi.`{copy}` LIKE hudi.`{path}`")
    assert len(caught) == 1 and not has_metrics(path)
    stored = [key.removeprefix(PREFIX) for key, _ in hp.Table(copy).config.properties if key.startswith(PREFIX)]
    assert stored == ["hoodie.clean.commits.retained"]


def test_ordinary_options_apply_to_everyone(path: str) -> None:
    store(
        path, {"hoodie.clean.commits.retained": "3", "hoodie.write.lock.wait_time_ms": "7", "hoodie.parquet.max.file.size": "9"}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = hp.Table(path)._open.options
        ignoring = hp.Table(path, stored_options=False)._open.options
    assert [options.integer(name) for name in ("hoodie.clean.commits.retained", "hoodie.write.lock.wait_time_ms")] == [3, 7]
    assert ignoring.integer("hoodie.clean.commits.retained") == 10


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("hoodie.clean.commits.retained", "many", "not a whole number"),
        ("hoodie.parquet.block.size", "0", "must be positive"),
        ("hoodie.metadata.enable", "perhaps", "neither true nor false"),
        ("hoodie.index.type", "nothing", "is none of SIMPLE"),
        ("hoodie.datasource.write.operation", "delete", "selects what one call"),
        ("hoodie.table.cdc.enabled", "true", "stored under that name"),
    ],
)
def test_illegal_values_are_errors_that_name_the_property(option: str, value: str, message: str, path: str) -> None:
    store(path, {option: value})
    for trusted in (True,) if SUPPORTED[option].origin == "caller" else (True, False):
        with pytest.raises(hp.CorruptData, match=f"hoodie.properties stores an illegal option: .*{message}"):
            hp.Table(path, trusted=trusted)
    table = hp.Table(path, stored_options=False)
    assert table.count() == 1
    table.set_properties({PREFIX + option: None})
    assert hp.Table(path, trusted=True).count() == 1


def test_a_table_cannot_declare_itself_trusted(path: str) -> None:
    store(path, {**METRICS, "pyhudi.stored.options": "trusted"})
    with pytest.warns(UserWarning, match=NOT_USED):
        hp.Table(path).insert({"id": [2]})
    assert not has_metrics(path)


def test_illegal_values_of_options_that_are_not_used_do_no_harm(path: str) -> None:
    store(path, {"pyhudi.threads": "many"})
    with pytest.warns(UserWarning, match=r"not used: pyhudi\.threads"):
        assert hp.Table(path).count() == 1
    with pytest.raises(hp.CorruptData, match=r"pyhudi\.threads='many' is not a whole number"):
        hp.Table(path, trusted=True)


# A stored lock


@pytest.mark.parametrize("stored_options", [True, False])
@pytest.mark.filterwarnings("ignore:table file")
def test_a_stored_lock_refuses_writes_and_allows_reads(path: str, stored_options: bool) -> None:
    store(path, FILE_LOCK)
    table = hp.Table(path, stored_options=stored_options)
    files = sorted(str(file) for file in Path(path).rglob("*"))
    writes: tuple[Callable[[], Any], ...] = (
        lambda: table.insert({"id": [2]}),
        lambda: table.delete({"id": [1]}),
        lambda: table.clean(),
        lambda: table.set_properties({"owner": "me"}),
        lambda: table.savepoint(table.timeline().completed_writes()[-1].request_time),
        lambda: table.index.create("record_index"),
        lambda: table.drop(),
        lambda: hp.write(path, {"id": [2]}),
        lambda: hp.sql(f"DELETE FROM hudi.`{path}`"),
    )
    for write in writes:
        with pytest.raises(
            hp.InvalidRequest, match=r"stores the lock of its writers .*FileSystemBasedLockProvider.* not configure"
        ):
            write()
    assert sorted(str(file) for file in Path(path).rglob("*")) == files
    assert table.count() == hp.sql(f"SELECT * FROM hudi.`{path}`").num_rows == 1


def test_a_lock_that_writers_of_hudi_take_from_the_properties_is_a_stored_lock(path: str, tmp_path: Path) -> None:
    lock = {key: value.replace("{folder}", str(tmp_path)) for key, value in FILE_LOCK.items()}
    edit_properties(path, lock)
    with (
        pytest.warns(UserWarning, match=r"not used: hoodie\.write\.lock\.filesystem\.path, hoodie\.write\.lock\.provider"),
        pytest.raises(hp.InvalidRequest, match=r"stores the lock of its writers .*FileSystemBasedLockProvider"),
    ):
        hp.Table(path).insert({"id": [2]})
    for table in (hp.Table(path, trusted=True), hp.Table(path, options=lock)):
        table.insert({"id": [2]})
    assert (tmp_path / "locks").exists()


OTHER = LOCKS + "StorageBasedLockProvider"


@pytest.mark.parametrize(
    ("stored", "passed", "is_refused"),
    [
        (FILE_LOCK, {}, True),
        (FILE_LOCK, {"pyhudi.stored.options": "trusted"}, False),
        (FILE_LOCK, FILE_LOCK, False),
        (FILE_LOCK, {"hoodie.write.lock.provider": FILE_LOCK["hoodie.write.lock.provider"]}, True),
        (FILE_LOCK, {"hoodie.write.lock.filesystem.path": "{folder}/locks"}, True),
        (FILE_LOCK, {"hoodie.write.lock.provider": OTHER}, False),
        ({"hoodie.write.lock.provider": OTHER}, {}, False),
        ({"hoodie.write.lock.provider": LOCKS + "InProcessLockProvider"}, {}, True),
        ({"hoodie.write.lock.filesystem.path": "{folder}/locks"}, {}, True),
        ({"hoodie.write.lock.storage.validity.timeout.secs": "60"}, {}, False),
        ({"hoodie.write.lock.dynamodb.billing_mode": "PROVISIONED"}, {}, False),
    ],
)
@pytest.mark.filterwarnings("ignore:table file")
def test_a_writer_needs_the_lock_that_the_table_stores(
    stored: Mapping[str, str], passed: Mapping[str, str], is_refused: bool, path: str, tmp_path: Path
) -> None:
    store(path, stored)
    options = {key: value.replace("{folder}", str(tmp_path)) for key, value in passed.items()}
    table = hp.Table(path, options=options)
    if is_refused:
        with pytest.raises(hp.InvalidRequest, match="stores the lock of its writers"):
            table.insert({"id": [2]})
        table._with_options({"pyhudi.stored.options": "trusted"}).insert({"id": [2]})
    else:
        table.insert({"id": [2]})
    assert table.count() == 2


# Declarations

NAMES_OF_THE_CALLER = ("url", "uri", "host", "endpoint", "credential", "path", "roots", "servers", "threads", "memory", "queries")


def storable(option: Option) -> bool:
    try:
        check_storable_option(option)
    except hp.InvalidRequest:
        return False
    return True


def test_no_option_that_names_something_outside_the_table_is_taken_from_it() -> None:
    subjects = (
        "hoodie.metrics.",
        "hoodie.precommit.",
        "hoodie.write.commit.callback.",
        "hoodie.datasource.hive_sync.",
        "hoodie.aws.",
    )
    for option in SUPPORTED.values():
        last = option.key.rpartition(".")[2]
        names_outside = any(word in last.split("_") or last == word for word in NAMES_OF_THE_CALLER) or option.key.startswith(
            subjects
        )
        if names_outside and storable(option) and option.key not in PATHS_IN_THE_TABLE:
            assert option.origin == "caller", option.key


PATHS_IN_THE_TABLE = {
    "hoodie.bloom.index.update.partition.path",
    "hoodie.simple.index.update.partition.path",
    "hoodie.record.index.update.partition.path",
    "hoodie.hbase.index.update.partition.path",
    "hoodie.datasource.read.extract.partition.values.from.path",
}


def test_create_stores_options_as_defaults_and_warns_of_others(tmp_path: Path) -> None:
    options = {
        "hoodie.index.type": "SIMPLE",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "pyhudi.threads": 2,
        "hoodie.datasource.write.operation": "insert",
    }
    with pytest.warns(UserWarning, match=r"options hoodie\.datasource\.write\.operation, pyhudi\.threads of Table\.create apply"):
        created = hp.Table.create(tmp_path / "t", record_key="id", options=options)
    stored = {key.removeprefix(PREFIX): value for key, value in created.config.properties if key.startswith(PREFIX)}
    assert stored == {"hoodie.index.type": "SIMPLE"}
    other = hp.Table(tmp_path / "t")
    other.upsert({"id": [1]})
    assert other.upsert({"id": [1]}).index == "SIMPLE"
    # A value of a call decides.
    assert other.upsert({"id": [1]}, options={"hoodie.index.type": "BLOOM"}).index == "BLOOM"
    # The table keeps its own defaults.
    again = hp.Table.create(tmp_path / "t", record_key="id", options={"hoodie.index.type": "BLOOM"}, exist_ok=True)
    assert again.upsert({"id": [1]}).index == "BLOOM"
    assert hp.Table(tmp_path / "t").upsert({"id": [1]}).index == "SIMPLE"


def test_the_options_of_a_first_write_are_not_stored(tmp_path: Path) -> None:
    hp.write(tmp_path / "t", {"id": [1]}, record_key="id", options={"hoodie.index.type": "SIMPLE"})
    assert not [key for key, _ in hp.Table(tmp_path / "t").config.properties if key.startswith(PREFIX)]


def test_stored_compaction_of_a_copy_on_write_table_is_removed_by_the_remedy_in_the_error(tmp_path: Path) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id", options={"hoodie.compact.inline": True})
    remedy = {f"{PREFIX}hoodie.compact.inline": None}
    with pytest.raises(hp.InvalidRequest, match="nothing to compact") as caught:
        hp.Table(tmp_path / "t").upsert({"id": [1]})
    assert f'set_properties({{"{next(iter(remedy))}": None}})' in str(caught.value)
    table.set_properties(remedy)
    assert hp.Table(tmp_path / "t").upsert({"id": [1]}).rows_inserted == 1
