"""`commit_metadata=`: entries of the caller in the commit, for every method and entry point that commits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli.app import app
from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, Instant, State

_numbers = itertools.count()
ENTRIES = {"job": "daily", "owner": "ada"}
ROWS = {"id": [1, 2], "n": [1, 1], "day": ["mon", "tue"]}
MORE = {"id": [2, 3], "n": [2, 2], "day": ["tue", "tue"]}
NO_INLINE = {"hoodie.compact.inline": "false"}

Call = Callable[[hp.Table, Mapping[str, str]], Any]

METHODS: dict[str, Call] = {
    "write": lambda t, m: hp.write(t.uri, MORE, commit_metadata=m),
    "overwrite": lambda t, m: hp.write(t.uri, MORE, "overwrite", where="day = 'tue'", commit_metadata=m),
    "upsert": lambda t, m: t.upsert(MORE, commit_metadata=m),
    "insert": lambda t, m: t.insert(MORE, commit_metadata=m),
    "append": lambda t, m: t.append(MORE, commit_metadata=m),
    "bulk_insert": lambda t, m: t.bulk_insert(MORE, commit_metadata=m),
    "insert_overwrite": lambda t, m: t.insert_overwrite(MORE, commit_metadata=m),
    "insert_overwrite_table": lambda t, m: t.insert_overwrite_table(MORE, commit_metadata=m),
    "delete by key": lambda t, m: t.delete([1], commit_metadata=m),
    "delete where": lambda t, m: t.delete(where="n = 1", commit_metadata=m),
    "delete_partitions": lambda t, m: t.delete_partitions("tue", commit_metadata=m),
    "update": lambda t, m: t.update({"n": 5}, commit_metadata=m),
    "update by expression": lambda t, m: t.update({"n": "n + 1"}, commit_metadata=m),
    "merge": lambda t, m: (
        t.merge(pa.table(MORE), on=["id", "day"], commit_metadata=m)
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    ),
    "alter": lambda t, m: t.alter.add("extra", "int", commit_metadata=m),
    "compact": lambda t, m: t.compact(commit_metadata=m),
    "log_compact": lambda t, m: t.log_compact(options={"hoodie.log.compaction.blocks.threshold": 1}, commit_metadata=m),
    "cluster": lambda t, m: t.cluster(
        order_by="n", commit_metadata=m, options={"hoodie.clustering.plan.strategy.small.file.limit": 1 << 30}
    ),
    "sql insert": lambda t, m: hp.sql(f"INSERT INTO hudi.`{t.uri}` VALUES (9, 9, 'mon')", commit_metadata=m),
    "sql update": lambda t, m: hp.sql(f"UPDATE hudi.`{t.uri}` SET n = 9", commit_metadata=m),
    "sql delete": lambda t, m: hp.sql(f"DELETE FROM hudi.`{t.uri}` WHERE n = 1", commit_metadata=m),
}


def latest(table: hp.Table) -> dict[str, str]:
    return dict(hp.Table(table.uri).inspect.commits().to_pylist()[0]["metadata"])


@pytest.fixture
def table() -> hp.Table:
    made = hp.Table.create(f"memory://metadata-{next(_numbers)}/t", record_key="id", partition_by="day", table_type="mor")
    made.insert(ROWS)
    return made


@pytest.mark.parametrize("name", METHODS)
def test_the_commit_has_the_entries(name: str, table: hp.Table) -> None:
    if "compact" in name:
        table.upsert(ROWS, options=NO_INLINE)
    result = METHODS[name](table, ENTRIES)
    assert getattr(result, "instant", "") is not None
    stored = latest(table)
    assert {key: stored.get(key) for key in ENTRIES} == ENTRIES


def test_services_that_follow_a_write_have_other_entries(table: hp.Table) -> None:
    options = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1, "_note": "x"}
    result = table.upsert(ROWS, commit_metadata=ENTRIES, options=options)
    assert result.services["compact"].startswith("run")
    compaction, write = hp.Table(table.uri).inspect.commits().to_pylist()[:2]
    assert (dict(compaction["metadata"]), dict(write["metadata"])) == ({}, {"_note": "x", **ENTRIES})


def test_a_clustering_plan_has_the_entries(table: hp.Table) -> None:
    clustering = table.schedule_clustering(order_by="n", commit_metadata=ENTRIES).instant
    assert clustering is not None
    data = table.context.timeline.read(Instant(clustering, Action.CLUSTERING, State.REQUESTED))
    clustering_plan = RequestedReplaceMetadata.decode(data).clustering_plan
    assert clustering_plan is not None
    assert (clustering_plan.extra_metadata or {}).items() >= ENTRIES.items()


def test_the_command_line_and_jobs_store_entries(tmp_path: Path) -> None:
    path, file = str(tmp_path / "t"), tmp_path / "in" / "rows.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table(ROWS), file)
    job = {"path": path, "record_key": "id", "commit_metadata": ENTRIES, "source": {"kind": "files", "path": str(file.parent)}}
    hp.Ingest({**job, "source": {**job["source"], "settle_seconds": 0}}).run()  # type: ignore[dict-item]
    assert latest(hp.Table(path)).items() >= ENTRIES.items()
    words = ["load", path, str(file), "--commit-metadata", "job=nightly", "--commit-metadata", "owner=bob"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert latest(hp.Table(path)) == {"job": "nightly", "owner": "bob"}


def test_invalid_entries_are_refused(table: hp.Table) -> None:
    for entries, word in (
        ({"schema": "x"}, "reserved"),
        ({"hoodie.x": "x"}, "reserved"),
        ({"n": 1}, "pass a dictionary of text"),
    ):
        with pytest.raises(InvalidRequest, match=word):
            table.upsert(MORE, commit_metadata=entries)  # type: ignore[arg-type]
    option = "pyhudi.commit.metadata"
    for text, word in (("{", "is no JSON"), ("[1]", "JSON object"), (json.dumps({"schema": "x"}), "reserved")):
        with pytest.raises(InvalidRequest, match=word):
            table.upsert(MORE, options={option: text})
    with pytest.raises(InvalidRequest, match="different entries"):
        table.upsert(MORE, commit_metadata=ENTRIES, options={option: "{}"})
    with pytest.raises(InvalidRequest, match="has no effect on clean"):
        table.clean(options={option: "{}"})
    assert latest(table) == {}
