"""Upgrade and downgrade between versions 6 and 8 keep rows, history and archive."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import CorruptData, TableState, Unsupported
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.log.framing import BlockType, LogBlock, scan_blocks
from pyhudi.format.table_versions import TimelineLayout
from pyhudi.table.snapshot import read_commit
from tests.support.golden_tables import open_golden
from tests.support.rows import assert_same_rows

OPTIONS = {
    "hoodie.index.bloom.num_entries": "100",
    "hoodie.clean.automatic": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.compact.inline": "false",
}
UPGRADE = {"hoodie.index.bloom.num_entries": "100"}


def rows(batch: int, count: int = 6) -> pa.Table:
    return pa.table(
        {
            "id": [str(i) for i in range(count)],
            "part": [f"p{i % 2}" for i in range(count)],
            "ts": pa.array([batch] * count, pa.int64()),
        }
    )


def table_with_commits(uri: str | Path, table_type: str, writes: int = 4, /, **options: str) -> hp.Table:
    table = hp.Table.create(
        uri, record_key="id", partition_by="part", ordering="ts", table_type=table_type, options={**OPTIONS, **options}
    )
    for batch in range(writes):
        table.upsert(rows(batch))
    return table


@pytest.mark.parametrize("name", ["cow_v6", "mor_v6"])
def test_tables_of_apache_hudi_are_upgraded(name: str, tmp_path: Path) -> None:
    golden = open_golden(name, tmp_path)
    table = hp.Table(golden.path)
    before = table.timeline().completed_writes()
    result = table.upgrade(options=UPGRADE)
    assert (result.before, result.after) == (6, 8) and result.instants >= len(before)
    assert int(table.config.version) == 8
    assert_same_rows(table.scan(["*"]).to_arrow(), golden.expected("snapshot"), ignoring=("_hoodie_file_name",))
    assert {i.request_time for i in before} <= {i.request_time for i in table.timeline().completed_writes()}
    completions = [i.completion_time for i in table.timeline().completed() if i.completion_time]
    assert len(set(completions)) == len(completions)
    assert not [file for file in (golden.path / ".hoodie").iterdir() if file.name.endswith((".commit", ".deltacommit"))]
    assert table.upgrade(options=UPGRADE).instants == 0
    # It is a table like any other now.
    some = table.scan().to_arrow().slice(0, 1)
    table.upsert(some, options=OPTIONS)
    assert table.scan().count() == golden.expected("snapshot").num_rows
    assert table.validate().ok


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_downgrade_and_upgrade_keep_rows_and_instants(table_type: str, tmp_path: Path) -> None:
    table = table_with_commits(tmp_path / "t", table_type)
    table.delete_partitions("p1")
    table.insert(rows(9, 2))
    table.savepoint()
    before = table.scan().to_arrow()
    earlier = {i.request_time: table.scan(as_of=i.request_time).count() for i in table.timeline().completed_writes()[:2]}
    completions = {i.request_time: i.completion_time for i in table.timeline().completed_writes()}
    down = table.downgrade()
    assert (down.before, down.after) == (8, 6) and (down.compaction is None) == (table_type == "cow")
    assert int(table.config.version) == 6
    assert not (tmp_path / "t/.hoodie/timeline").exists() and not (tmp_path / "t/.hoodie/metadata").exists()
    assert_same_rows(table.scan().to_arrow(), before)
    with pytest.raises(Unsupported, match="version 6"):
        table.upsert(rows(5))
    assert table.downgrade().instants == 0
    up = table.upgrade()
    assert up.instants == down.instants
    assert_same_rows(table.scan().to_arrow(), before)
    # The files kept the completion times.
    after = {i.request_time: i.completion_time for i in table.timeline().completed_writes()}
    assert {time: after[time] for time in completions} == completions
    assert {time: table.scan(as_of=time).count() for time in earlier} == earlier
    assert table.timeline().completed(Action.SAVEPOINT)
    table.upsert(rows(20))
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {20}
    assert table.validate().ok


def wide(table: hp.Table, ts: int, keys: range, **options: object) -> str:
    data = {"id": [f"k{n}" for n in keys], "part": ["p"] * len(keys), "ts": [ts] * len(keys), "n": [n + ts for n in keys]}
    return str(table.upsert(pa.table(data), options=options).instant)


@pytest.mark.sample(1)
@pytest.mark.parametrize("copied", [False, True])
def test_the_past_of_a_table_with_logs_after_a_downgrade(tmp_path: Path, copied: bool) -> None:
    """Its log files are named after the delta commits that wrote them, and not after the base files that they belong to."""
    table = hp.Table.create(
        tmp_path / "t", record_key="id", partition_by="part", ordering="ts", table_type="mor", options=OPTIONS
    )
    for ts in range(3):
        wide(table, ts, range(4 * ts, 4 * ts + 8), **OPTIONS)
    table.delete(pa.table({"id": ["k0", "k5"], "part": ["p", "p"]}), options=OPTIONS)
    if not copied:
        # Its own commit is requested before the compaction, and completes after the compaction was planned.
        table.schedule_compaction(options=UPGRADE)
    else:
        table.compact(options=UPGRADE)
    wide(table, 7, range(2, 10), **OPTIONS)
    table.compact(options=UPGRADE)
    table.delete(where="id = 'k9'", options=OPTIONS)
    wide(table, 9, range(30, 33), **OPTIONS)
    moments = [i.request_time for i in table.timeline().completed_writes() if i.action is not Action.COMMIT]

    def incremental_results(table: hp.Table) -> list[object]:
        found: list[object] = [sorted(map(tuple, state(table.scan(as_of=moment)))) for moment in moments]
        for place, first in enumerate(moments):
            # The time before the first, because the start is excluded; version 8 is queried the same way.
            start = str(int(first) - 1)
            for end in moments[place:]:
                rows_ = table.incremental(start, end, ["id", "n"], options={"hoodie.datasource.read.incr.table.version": 6})
                found.append(sorted(map(tuple, state(rows_))))
        return found

    def state(scan: hp.Scan) -> list[tuple[object, ...]]:
        return [(row["id"], row["n"]) for row in scan.to_arrow().to_pylist()]

    before = incremental_results(table)
    table.downgrade(options=UPGRADE)
    if copied:
        for file in (tmp_path / "t/.hoodie").iterdir():
            os.utime(file)
    assert incremental_results(hp.Table(tmp_path / "t")) == before


def test_commits_from_before_an_upgrade_are_queried_one_by_one(tmp_path: Path) -> None:
    """Their logs have the times of base files, as the second logs of rows written during a resize have that of the resize."""
    golden = open_golden("mor_v6", tmp_path)
    table = hp.Table(golden.path)
    writes = table.timeline().completed_writes()
    before = {i.request_time: table.incremental(str(int(i.request_time) - 1), i.request_time).count() for i in writes}
    assert sum(count > 0 for count in before.values()) > 3
    table.upgrade(options=UPGRADE)
    table = hp.Table(golden.path)
    for instant in table.timeline().completed_writes():
        found = table.incremental(instant.completion_time, instant.completion_time).count()
        assert found == before.get(instant.request_time, 0)


def test_incremental_queries_of_version_6_go_by_request_times(tmp_path: Path) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id", partition_by="part", ordering="ts", options=OPTIONS)
    instants = [wide(table, ts, range(3 * ts, 3 * ts + 3), **OPTIONS) for ts in range(3)]
    table.downgrade(options=UPGRADE)
    table = hp.Table(tmp_path / "t")

    def changed(start: str, end: str | None = None, **options: object) -> set[str]:
        return set(table.incremental(start, end, ["_hoodie_commit_time"], options=options).to_arrow().column(0).to_pylist())

    for copied in (False, True):
        assert changed("earliest") == set(instants)
        assert changed("000") == set(instants)
        assert changed(instants[0]) == set(instants[1:])
        assert changed(instants[0], instants[1]) == {instants[1]}
        assert changed(instants[2]) == set()
        if copied:
            break
        for file in (tmp_path / "t/.hoodie").iterdir():
            os.utime(file)


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_downgrade_and_upgrade_convert_the_archived_timeline(table_type: str, tmp_path: Path) -> None:
    few = {"hoodie.keep.min.commits": "4", "hoodie.keep.max.commits": "5", "hoodie.clean.commits.retained": "2"}
    table = table_with_commits(
        tmp_path / "t", table_type, 12, **few, **{"hoodie.clean.automatic": "true", "hoodie.metadata.enable": "false"}
    )
    history = table.context.timeline.history
    archived = {(r.instant_time, r.action): (r.completion_time, r.metadata) for r in history.rows(documents=True)}
    assert len(archived) > 4
    down = table.downgrade()
    assert down.archived == len(archived)
    assert [file.name for file in (tmp_path / "t/.hoodie/archived").iterdir() if "crc" not in file.name] == [
        ".commits_.archive.1_1-0-1"
    ]
    up = table.upgrade()
    assert up.archived == len(archived)
    again = {
        (r.instant_time, r.action): (r.completion_time, r.metadata) for r in table.context.timeline.history.rows(documents=True)
    }
    assert {key: time for key, (time, _) in again.items()} == {key: time for key, (time, _) in archived.items()}
    assert all(document for _, document in again.values())
    table.upsert(rows(20))
    assert table.scan().count() == 6


def test_a_damaged_archive_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    few = {"hoodie.keep.min.commits": "4", "hoodie.keep.max.commits": "5", "hoodie.clean.commits.retained": "2"}
    table = table_with_commits(
        tmp_path / "t", "cow", 12, **few, **{"hoodie.clean.automatic": "true", "hoodie.metadata.enable": "false"}
    )
    table.downgrade()
    file = tmp_path / "t/.hoodie/archived/.commits_.archive.1_1-0-1"
    data = bytearray(file.read_bytes())
    place = data.rindex(b"UPSERT") - 40
    data[place : place + 30] = b"\xff" * 30
    file.write_bytes(bytes(data))
    with pytest.raises(CorruptData, match="archive"):
        table.upgrade()
    assert int(hp.Table(tmp_path / "t").config.version) == 6
    assert table.scan().count() == 6


def test_failed_writes_of_version_6_are_rolled_back(tmp_path: Path) -> None:
    golden = open_golden("mor_v6", tmp_path)
    table = hp.Table(golden.path)
    # The newest delta commit loses its completed file: its blocks are in logs that other commits appended to.
    newest = table.timeline().completed(Action.DELTACOMMIT)[-1]
    expected = table.scan(as_of=table.timeline().completed_writes()[-2].request_time).to_arrow()
    (golden.path / ".hoodie" / newest.file_name(TimelineLayout.V1)).unlink()
    assert_same_rows(table.scan().to_arrow(), expected)
    result = table.upgrade(options={**UPGRADE, "hoodie.metadata.enable": "false"})
    assert result.rolled_back == (newest.request_time,)
    assert newest.request_time not in {i.request_time for i in table.timeline().instants}
    assert_same_rows(table.scan().to_arrow(), expected)
    commands = []
    for info in table.context.storage.walk(""):
        if ".log." in info.path and not info.path.endswith(".crc"):
            read = lambda offset, length, path=info.path: table.context.storage.read_range(path, offset, length)  # noqa: E731
            commands += [b for b in scan_blocks(read, info.size_bytes) if isinstance(b, LogBlock) and b.kind is BlockType.COMMAND]
    assert commands


def test_a_pending_clustering_goes_both_ways(tmp_path: Path) -> None:
    table = table_with_commits(tmp_path / "t", "cow", **{"hoodie.metadata.enable": "false"})
    planned = table.schedule_clustering(order_by="id").instant
    assert planned is not None
    table.downgrade()
    assert os.path.exists(tmp_path / f"t/.hoodie/{planned}.replacecommit.requested")
    table.upgrade()
    assert [i.request_time for i in table.timeline().pending(Action.CLUSTERING)] == [planned]
    assert table.cluster(planned).completion_time is not None
    assert table.scan().count() == 6
    replaced = read_commit(table.context.timeline, table.timeline().find(planned))
    assert replaced.operation_type == "CLUSTER"
    table.downgrade()
    table.upgrade()
    assert table.scan().count() == 6
    mor = table_with_commits(tmp_path / "m", "mor")
    mor.schedule_clustering(order_by="id")
    with pytest.raises(TableState, match="is pending, so logs"):
        mor.downgrade()


def test_downgrade_and_upgrade_with_a_pending_restore_are_rejected(tmp_path: Path) -> None:
    table = table_with_commits(tmp_path / "t", "cow")
    store = table.context.timeline
    time = str(int(table.timeline().latest_time()) + 1)
    store.request(time, Action.RESTORE, b"")
    with pytest.raises(TableState, match="restore"):
        table.downgrade()
    store.remove_pending(time, Action.RESTORE)
    store.start(store.request(time, Action.COMMIT))
    assert table.downgrade().rolled_back == (time,)
    (tmp_path / f"t/.hoodie/{time}.restore.requested").write_bytes(b"")
    with pytest.raises(TableState, match="restore"):
        table.upgrade()
    assert Instant(time, Action.RESTORE, State.REQUESTED) in table.timeline().instants
