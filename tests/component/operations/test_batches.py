"""Each batch of a stream is written once, also after its commit was archived and with two concurrent attempts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.operations.write.micro_batches import SINK_CHECKPOINT_KEY, StreamBatch, digest_source_offsets, find_last_batch
from pyhudi.operations.write.write_once import AlreadyCommitted, CommitSearch
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.table.snapshot import read_commit

OPTIONS = {"hoodie.index.bloom.num_entries": "100", "hoodie.metadata.enable": "false"}


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "ts": pa.array([1] * len(ids), pa.int64())})


def new_table(name: str, **options: str) -> hp.Table:
    return hp.Table.create(f"memory://batches-{name}", record_key="id", ordering="ts", options={**OPTIONS, **options})


def bulk(table: hp.Table, number: int, *ids: str, stream: str = "s") -> str | None:
    return table.write_batch(rows(*ids), WriteOperation.BULK_INSERT, StreamBatch(stream, number)).instant


def test_batch_is_committed_once() -> None:
    table = new_table("once")
    first = bulk(table, 0, "a")
    assert first is not None
    document = read_commit(table.context.timeline, table.timeline().find(first))
    assert document.extra_metadata[SINK_CHECKPOINT_KEY] == '{"s": "0"}'
    assert bulk(table, 0, "a") is None
    assert bulk(table, 1, "b") is not None
    assert bulk(table, 0, "a") is None
    assert bulk(table, 0, "c", stream="other") is not None
    table.upsert(rows("d"))
    assert bulk(table, 1, "b") is None
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == ["a", "b", "c", "d"]


def test_a_batch_whose_commit_was_archived_is_known() -> None:
    table = new_table(
        "archived", **{"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.automatic": "false"}
    )
    bulk(table, 7, "a")
    for number in range(6):
        table.bulk_insert(rows(f"x{number}"))
    timeline = table.timeline()
    assert all(
        SINK_CHECKPOINT_KEY not in read_commit(table.context.timeline, i).extra_metadata for i in timeline.completed_writes()
    )
    assert find_last_batch(table.context, timeline, "s", CommitSearch()) == 7
    assert bulk(table, 7, "a") is None
    assert bulk(table, 8, "b") is not None


def test_one_of_two_attempts_at_a_batch_commits() -> None:
    table = new_table("race")
    settings = WriteSettings.of(parse_options(OPTIONS), WriteOperation.BULK_INSERT)
    table.bulk_insert(rows("z"))

    class InterferingEngine(LocalEngine):
        def map(self, function, tasks):  # type: ignore[no-untyped-def]
            done = super().map(function, tasks)
            bulk(table, 0, "a")
            return done

    with pytest.raises(AlreadyCommitted):
        run_write(table.context, InterferingEngine(1), rows("a"), replace(settings, once=StreamBatch("s", 0)))
    assert not table.timeline().pending()
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == ["a", "z"]


def test_damaged_batch_number_is_reported() -> None:
    table = new_table("damaged")
    table.upsert(rows("a"), options={SINK_CHECKPOINT_KEY: "torn {"})
    with pytest.raises(CorruptData, match=SINK_CHECKPOINT_KEY):
        bulk(table, 0, "a")


def test_batch_number_with_other_source_offsets_is_refused(tmp_path: Path) -> None:
    """A checkpoint that was restored from an older copy numbers other rows like committed ones."""
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    table = new_table("rewound")

    def write(number: int, source: str, time_ms: int) -> str | None:
        (offsets / str(number)).write_text(f'v1\n{{"batchTimestampMs":{time_ms}}}\n{source}')
        digest = digest_source_offsets(str(tmp_path), number)
        assert digest is not None
        return table.write_batch(rows("a"), WriteOperation.BULK_INSERT, StreamBatch("s", number, digest)).instant

    assert write(0, '{"logOffset":0}', 1) is not None
    assert write(1, '{"logOffset":1}', 2) is not None
    assert write(0, '{"logOffset":0}', 3) is None and write(1, '{"logOffset":1}', 4) is None
    for number in (0, 1):
        with pytest.raises(InvalidRequest, match="the checkpoint is older than the table"):
            write(number, '{"logOffset":7}', 5)
    assert digest_source_offsets(str(tmp_path), 9) is None
    assert bulk(table, 1, "a", stream="s") is None, "a batch with unknown offsets is not compared"
