"""User-defined mergers and key generators: registered by call, module or entry point, used and checked by their suite."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi import testing
from pyhudi.cli.app import app
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.actions.compaction_plan import CompactionOperation
from pyhudi.options import plugins
from pyhudi.planning import clustering, compaction
from pyhudi.records import mergers
from pyhudi.records.mergers import record_by_record
from pyhudi.storage.memory import forget_memory
from pyhudi.table.file_slices import FileSlice

_names = itertools.count()
ADDING = "com.example.AddingPayload"


@pytest.fixture
def uri(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place for a table, in a process that knows no rules yet."""
    monkeypatch.setattr(mergers, "_payloads", plugins.Registry("payload"))
    monkeypatch.setattr(compaction, "_registered", plugins.Registry("compaction strategy"))
    monkeypatch.setattr(clustering, "_registered", plugins.Registry("clustering strategy"))
    monkeypatch.setattr(plugins, "_loaded", set())
    name = f"plugins-{next(_names)}"
    yield f"memory://{name}"
    forget_memory(name)


def create(uri: str, **options: Any) -> hp.Table:
    quiet = {"hoodie.compact.inline": False, "hoodie.metadata.enable": False}
    return hp.Table.create(
        uri, record_key="id", partition_by="part", ordering="ts", table_type="mor", options={**quiet, **options}
    )


def rows(*keys: int, ts: int = 1, n: int = 1) -> pa.Table:
    return pa.Table.from_pylist([{"id": f"k{key}", "part": "ab"[key % 2], "ts": ts, "n": n} for key in keys])


@dataclass(frozen=True)
class Adding:
    """Adds up."""

    strategy_id: str = "c8b6a3a5-8a64-4dbb-a0ec-0a2f2a3b4c5d"

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, None]:
        at = newer.schema.get_field_index("n")
        return newer.set_column(at, newer.schema.field(at), pc.add(older["n"], newer["n"])), None


def test_custom_payload_class(uri: str) -> None:
    options = {"hoodie.datasource.write.payload.class": ADDING, "hoodie.write.record.merge.mode": "CUSTOM"}
    with pytest.raises(Unsupported, match="register_payload"):
        create(uri, **options).upsert(rows(1))
    hp.register_payload(ADDING, Adding())
    table = hp.Table(uri, options=options)
    table.upsert(rows(1, 2))
    table.upsert(rows(1, ts=2, n=10))
    table.upsert(rows(1, 2, ts=3, n=100))
    expected = {"k1": 111, "k2": 101}
    assert {row["id"]: row["n"] for row in table.scan().to_arrow().to_pylist()} == expected
    table.compact()
    assert {row["id"]: row["n"] for row in table.scan().to_arrow().to_pylist()} == expected
    with pytest.raises(InvalidRequest, match="is implemented by PyHudi"):
        hp.register_payload("org.apache.hudi.common.model.PartialUpdateAvroPayload", Adding())


def smallest(operations: Sequence[CompactionOperation]) -> Sequence[CompactionOperation]:
    return sorted(operations, key=lambda one: (one.partition_path or "", one.file_id or ""))[:1]


def test_custom_compaction_strategy(uri: str) -> None:
    table = create(uri)
    table.bulk_insert(rows(1, 2))
    table.upsert(rows(1, 2, ts=2))
    options = {"hoodie.compaction.strategy": "com.example.Smallest"}
    with pytest.raises(InvalidRequest, match="register_compaction_strategy"):
        table.compact(options=options)
    hp.register_compaction_strategy("com.example.Smallest", smallest)
    assert table.compact(options=options).runs[0].file_groups == 1
    left = [row for row in table.inspect.file_slices().to_pylist() if row["log_paths"]]
    assert [row["partition"] for row in left] == ["b"]
    assert table.compact(options=options).runs[0].file_groups == 1
    table.upsert(rows(1, ts=3))
    hp.register_compaction_strategy("com.example.Smallest", lambda operations: [replace(operations[0], file_id="other")])
    with pytest.raises(InvalidRequest, match="operations that were not offered"):
        table.compact(options=options)
    assert not table.timeline().pending()


def pairs(partition: str, slices: Sequence[FileSlice]) -> Sequence[Sequence[FileSlice]]:
    ordered = sorted(slices, key=lambda one: one.file_id)
    return [ordered[start : start + 2] for start in range(0, len(ordered), 2)]


def test_custom_clustering_strategy(uri: str) -> None:
    table = create(uri)
    for ts in range(1, 5):
        table.insert(
            rows(2 * ts, ts=ts),
            options={"hoodie.parquet.small.file.limit": 0},
        )
    assert len(table.inspect.file_slices()) == 4
    options = {"hoodie.clustering.plan.strategy.class": "com.example.Pairs"}
    with pytest.raises(Unsupported, match="register_clustering_strategy"):
        table.cluster(options=options)
    hp.register_clustering_strategy("com.example.Pairs", pairs)
    done = table.cluster(options=options)
    assert (done.groups, done.file_groups_read, done.rows) == (2, 4, 4)
    assert len(table.inspect.file_slices()) == 2
    hp.register_clustering_strategy("com.example.Pairs", lambda partition, slices: [slices, slices])
    table.insert(rows(1, ts=9))
    with pytest.raises(InvalidRequest, match="duplicate slices"):
        table.cluster(options=options)
    assert not table.timeline().pending()


def test_installed_plugins_are_loaded_before_a_name_is_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def register() -> None:
        calls.append("now")
        hp.register_compaction_strategy("com.example.Smallest", smallest)

    entry = SimpleNamespace(value="example:register", load=lambda: register)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry] if group == "pyhudi.plugins" else [])
    table = create(uri)
    table.upsert(rows(1, 2))
    assert not calls
    table.compact(options={"hoodie.compaction.strategy": "com.example.Smallest"})
    table.compact(options={"hoodie.compaction.strategy": "com.example.Smallest"})
    assert calls == ["now"]


def test_the_command_line_imports_modules(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(str(tmp_path / "t"))
    table.bulk_insert(rows(1, 2))
    table.upsert(rows(1, 2, ts=2))
    module = "import pyhudi as hp\nhp.register_compaction_strategy('com.example.First', lambda operations: operations[:1])\n"
    (tmp_path / "pyhudi_example_plugin.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    call = ["compact", table.uri, "--option", "hoodie.compaction.strategy=com.example.First"]
    assert isinstance(CliRunner().invoke(app, call).exception, InvalidRequest)
    result = CliRunner().invoke(app, ["--plugin", "pyhudi_example_plugin", *call])
    assert result.exit_code == 0, result.output
    sys.modules.pop("pyhudi_example_plugin")
    missing = CliRunner().invoke(app, ["--plugin", "pyhudi_no_such_plugin", *call])
    assert isinstance(missing.exception, InvalidRequest) and "pyhudi_no_such_plugin" in str(missing.exception)


STATES = tuple(pa.table({"id": ["a", "b"], "n": pa.array([ts, 2 * ts], pa.int64())}) for ts in (1, 10, 100))


def test_the_suite_passes_rules_that_hold() -> None:
    testing.check_merger(Adding(), *STATES)
    testing.check_compaction_strategy(smallest)
    testing.check_clustering_strategy(pairs)


@dataclass(frozen=True)
class Wrong(Adding):
    how: str = ""

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, None]:
        rows, _ = super().merge(older, newer)
        if self.how == "associative":
            rows = rows.set_column(1, "n", pc.subtract(older["n"], newer["n"]))
        if self.how == "rows and":
            rows = rows.slice(1)
        if self.how == "omitted the columns id":
            rows = rows.drop_columns(["id"])
        if self.how == "depends on the position":
            rows = rows.set_column(1, "n", pa.array(range(len(rows)), pa.int64()))
        return rows, None


@pytest.mark.parametrize("how", ["associative", "rows and", "omitted the columns id", "depends on the position"])
def test_the_suite_finds_what_a_merger_must_not_do(how: str) -> None:
    with pytest.raises(InvalidRequest, match=how):
        testing.check_merger(Wrong(how=how), *STATES)


def test_the_suite_finds_what_cannot_be_pickled_and_partial_merges_that_differ() -> None:
    def last(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
        return newer

    with pytest.raises(InvalidRequest, match="cannot be pickled"):
        testing.check_merger(record_by_record("id-of-mine", last), *STATES)
    with pytest.raises(InvalidRequest, match="differently by partial_merge"):
        testing.check_merger(record_by_record("id-of-mine", last, lambda older, newer: older), *STATES)


@pytest.mark.parametrize("how", ["returned 1 results", "depends on other deletes"])
def test_suite_finds_invalid_delete_decisions_of_a_merger(how: str) -> None:
    @dataclass(frozen=True)
    class Deletes(Adding):
        def deletes(self, older: pa.Table, newer: pa.Table) -> pa.Array:
            return pa.array([True] if how == "returned 1 results" else [n == 0 for n in range(newer.num_rows)])

    with pytest.raises(InvalidRequest, match=how):
        testing.check_merger(Deletes(), *STATES)


def test_suite_finds_strategies_that_return_unknown_files() -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        testing.check_compaction_strategy(lambda operations: [*operations, *operations])
    with pytest.raises(InvalidRequest, match="not offered"):
        testing.check_compaction_strategy(lambda operations: [replace(one) for one in operations])
    turns = itertools.count()
    with pytest.raises(InvalidRequest, match="called again"):
        testing.check_clustering_strategy(lambda partition, slices: [slices[next(turns) % 2 :]])
