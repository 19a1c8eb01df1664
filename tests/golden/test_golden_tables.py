"""The golden tables are complete, small, listed, and have the traits of their names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.golden.version_9 import CASES
from tests.support.golden_tables import ROOT, GoldenTable, golden_cases, load_case, open_golden


def _names(table: GoldenTable, pattern: str) -> list[str]:
    return [path.relative_to(table.path).as_posix() for path in table.path.rglob(pattern)]


def _holds(pattern: str) -> Callable[[GoldenTable], bool]:
    return lambda table: bool(_names(table, pattern))


def _properties(table: GoldenTable) -> str:
    return (table.path / ".hoodie" / "hoodie.properties").read_text(encoding="iso-8859-1")


# What must be seen on disk where a case claims a trait.
EVIDENCE: dict[str, Callable[[GoldenTable], bool]] = {
    "cow": lambda table: "hoodie.table.type=COPY_ON_WRITE" in _properties(table),
    "mor": lambda table: "hoodie.table.type=MERGE_ON_READ" in _properties(table),
    "v6": lambda table: "hoodie.table.version=6" in _properties(table),
    "v9": lambda table: "hoodie.table.version=9" in _properties(table),
    "event_time": lambda table: "v6" in table.case.traits or "EVENT_TIME_ORDERING" in _properties(table),
    "commit_time": lambda table: "COMMIT_TIME_ORDERING" in _properties(table),
    "custom": lambda table: "hoodie.record.merge.mode=CUSTOM" in _properties(table),
    "no_meta_fields": lambda table: "hoodie.populate.meta.fields=false" in _properties(table),
    "cdc": lambda table: "hoodie.table.cdc.enabled=true" in _properties(table),
    "mdt": _holds("metadata/files/*.hfile"),
    "record_index": _holds("metadata/record_index/*.log*"),
    "avro_log": _holds(".*.log.*"),
    "parquet_log": _holds(".*.log.*"),
    "log_only": lambda table: not _names(table, "*.parquet"),
    "compaction": _holds("*.compaction.requested"),
    "pending_compaction": lambda table: _pending(table, "compaction"),
    "log_compaction": _holds("*.logcompaction.requested"),
    "clustering": _holds("*.clustering.requested"),
    "pending_clustering": lambda table: _pending(table, "clustering"),
    "replace": _holds("*.replacecommit"),
    "clean": _holds("*.clean"),
    "archived": _holds("timeline/history/*.parquet"),
    "savepoint": _holds("*.savepoint"),
    "restore": _holds("*.restore"),
    "rollback": _holds("*.rollback"),
    "schema_on_read": _holds(".schema/*.schemacommit"),
    "bootstrap": _holds(".bootstrap/.partitions/*.hfile"),
    "path_columns": lambda table: "hoodie.datasource.write.drop.partition.columns=true" in _properties(table),
    "failed_write": _holds(".temp/*/**/*"),
}


def _pending(table: GoldenTable, action: str) -> bool:
    """Whether an instant was requested that no completed file answers (a completed one is named by other actions)."""
    timeline = table.path / ".hoodie" / "timeline"
    requested = {path.name.split(".")[0] for path in timeline.glob(f"*.{action}.requested")}
    completed = {path.name.split("_")[0] for path in timeline.iterdir() if "_" in path.name}
    return bool(requested - completed)


def test_each_case_is_kept_and_listed() -> None:
    assert golden_cases() == sorted(case.name for case in CASES)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for case in CASES:
        kept = load_case(case.name)
        assert (kept.shows, kept.traits) == (case.shows, tuple(sorted(case.traits)))
        assert f"| {case.name} |" in readme


def test_golden_tables_stay_small() -> None:
    for release in ROOT.glob("hudi-*"):
        assert sum(path.stat().st_size for path in release.rglob("*") if path.is_file()) < 2_000_000


@pytest.mark.parametrize("name", golden_cases())
def test_golden_table_has_its_declared_traits(name: str, tmp_path: Path) -> None:
    table = open_golden(name, tmp_path)
    for trait in table.case.traits:
        if trait in EVIDENCE:
            assert EVIDENCE[trait](table), trait
    assert ("mdt" in table.case.traits) == (table.path / ".hoodie" / "metadata").exists()
    assert bool(_names(table, ".*.crc")) == (name == "cow_types")

    assert "snapshot" in [query.name for query in table.case.queries]
    for query in table.case.queries:
        assert table.expected(query.name).num_rows == query.row_count


def test_cases_are_chosen_by_traits() -> None:
    chosen = golden_cases(with_traits={"mor", "avro_log"}, without_traits={"mdt", "v6"})
    assert "mor_avro_logs" in chosen
    assert not {"mor_parquet_logs", "mor_v6", "mor_record_index", "cow_types"} & set(chosen)


def test_every_trait_is_explained() -> None:
    """So that a test cannot select a trait that a spelling mistake has emptied."""
    explained = EVIDENCE.keys() | {
        "deletes",
        "evolved_schema",
        "key_generator",
        "partial_update",
        "sql",
        "types",
        "default_bloom",
    }
    explained |= {"bucket", "consistent_bucket"}
    explained |= {
        "two_ordering_fields",
        "delete_marker",
        "avro_types",
        "fills",
        "indexes",
        "partitioned_record_index",
        "no_partitions",
        "by_1_1",
    }
    for path in ROOT.glob("*/case.json"):
        assert set(json.loads(path.read_text())["traits"]) <= explained
