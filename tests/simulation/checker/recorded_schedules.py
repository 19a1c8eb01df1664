"""Small schedules that failed once, and failures that are not fixed yet.

A schedule without `known` must pass. One with a `known` reason must fail as `fails` describes; remove the reason when it passes.
While it exists, explorations ignore failures with the same text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.simulation.checker.run import Verdict
from tests.simulation.checker.schedules import Schedule


@dataclass(frozen=True)
class RecordedSchedule:
    """fails: pattern of the faults that the schedule had.  known: why it still has them; None when it has to pass."""

    schedule: Schedule
    fails: str
    known: str | None = None


RECORDED_SCHEDULES: dict[str, RecordedSchedule] = {
    "partition statistics contain files of writers that started later": RecordedSchedule(
        Schedule(
            "cow statistics",
            {"B": "insert aB1 | apart", "A": "insert aA1 | apart"},
            ["B 1: put_if_absent .hoodie/timeline/T.inflight 1: A"],
        ),
        r"scan v = \d+ gives",
    ),
    "two writers insert one key: one into a new file group, one into a small file": RecordedSchedule(
        Schedule(
            "cow",
            {"A": "upsert a7", "B": "upsert a7 | apart"},
            [
                "A 1: put_if_absent .hoodie/.temp/T/a/F_W_T.parquet.marker.MERGE 1: B",
                "B 1: put_if_absent .hoodie/timeline/T.inflight 1: A",
            ],
        ),
        "keys stand twice",
    ),
    "a write looks up keys in a snapshot whose files were cleaned": RecordedSchedule(
        Schedule(
            "cow cleaned",
            {"A": "upsert a1 a2", "B": "upsert a1; upsert a1; upsert a1; upsert a1"},
            ["A 1: lock 1: B"],
        ),
        "keys stand twice",
    ),
    "archival removes commits that a pending write must check": RecordedSchedule(
        Schedule(
            "cow kept",
            {"A": "upsert a7", "B": "upsert b7 | apart"},
            ["A 1: delete .hoodie/timeline/T.commit.requested 1: B"],
        ),
        "archived meanwhile",
    ),
    "a clustering is planned after its lease expired": RecordedSchedule(
        Schedule(
            "cow",
            {"A": "schedule_clustering", "B": "upsert a1"},
            ["A 1: list a 1: freeze 62000"],
        ),
        "no order of the operations explains",
    ),
    "a crash during a clustering": RecordedSchedule(
        Schedule("cow", {"A": "cluster"}, ["A 1: put_if_absent .hoodie/timeline/T_T.replacecommit 1: kill before"]),
        "the next writer: TableState: upsert would change .* pending clustering",
    ),
    "a write that a pending clustering reads is rolled back": RecordedSchedule(
        Schedule("cow", {"A": "upsert a1; schedule_clustering; rollback"}),
        "the next writer: TableState: upsert would change .* pending clustering",
    ),
    "a clustering is planned between the two steps of another": RecordedSchedule(
        Schedule(
            "cow",
            {"A": "cluster", "B": "schedule_clustering"},
            ["A 1: list .hoodie/timeline 4: B"],
        ),
        r"InstantNotFound: the active timeline has no instant \d+ \(clustering\)",
    ),
    "the schema survives archival of the writes that recorded it": RecordedSchedule(
        Schedule("cow kept", {"B": "cluster; cluster; archive; scan"}),
        "has no commit yet",
    ),
    "the schema survives archival of the only write that recorded it": RecordedSchedule(
        Schedule("cow kept", {"A": "cluster", "B": "upsert a3; rollback; scan"}),
        "has no commit yet",
    ),
    "a filtered write is slower than a clean": RecordedSchedule(
        Schedule(
            "cow cleaned",
            {"C": "delete_where v <= 10", "B": "delete_where v <= 10; delete a7"},
            ["C 1: open_input a/F_W_T.parquet 2: B"],
        ),
        "is missing: if a clean removed it",
    ),
    "an insert that skips existing keys during a delete": RecordedSchedule(
        Schedule(
            "cow",
            {"A": "delete a3 a7", "C": "insert a3 a7 | drop apart"},
            ["A 1: lock 1: C", "C 1: put_if_absent .hoodie/timeline/T.inflight 1: A"],
        ),
        "no order of the operations explains",
    ),
    "an archival resumes after its lease expired": RecordedSchedule(
        Schedule(
            "cow kept",
            {"A": "upsert a2", "C": "delete_where v >= 3000; insert_overwrite a7"},
            ["A 1: put .hoodie/timeline/history/manifest_1 1: freeze 400000"],
        ),
        "the archive service that followed it failed: .*no such file",
    ),
    "a suspended writer was rolled back": RecordedSchedule(
        Schedule(
            "cow",
            {"A": "upsert a2; upsert b7", "B": "upsert a1"},
            [
                "A 1: put_if_absent .hoodie/timeline/T.inflight 1: freeze 130000",
                "B 1: open_input a/F_W_T.parquet 3: freeze 130000",
            ],
        ),
        "orphaned files",
    ),
    "the newest write is rolled back after the files it replaced were cleaned": RecordedSchedule(
        Schedule("cow cleaned", {"B": "delete_partitions b; upsert b1; rollback"}, takes_back=True),
        "after the newest write was taken back no order of the operations explains",
    ),
    "a savepoint is made while a clustering is pending": RecordedSchedule(
        Schedule(
            "mor kept",
            {"A": "schedule_clustering; bulk_insert bA20", "B": "savepoint; upsert b7; delete_where v >= 2000"},
            seed=5457,
        ),
        "keys stand twice|as of .* no order of the operations explains",
    ),
    "time travel while a clean deletes the files": RecordedSchedule(
        Schedule(
            "mor kept",
            {"A": "cluster; delete b7", "B": "travel"},
            ["A 2: list .hoodie/timeline 8: B"],
            seed=185,
            takes_back=True,
        ),
        "no order of the operations explains",
    ),
    "a clustering was suspended during a restore": RecordedSchedule(
        Schedule("mor kept", {"A": "cluster", "B": "restore"}, ["A 1: stat a/F_W_T.parquet 1: freeze 130000"], seed=9),
        "orphaned files",
    ),
    "the last response to a restore is lost": RecordedSchedule(
        Schedule(
            "cow kept",
            {"A": "savepoint; upsert a1; restore", "B": "scan"},
            ["A 3: put_if_absent .hoodie/timeline/T_T.restore 1: fail after"],
        ),
        "no order of the operations explains",
    ),
    "a restore crashes before its last call": RecordedSchedule(
        Schedule(
            "cow kept",
            {"A": "savepoint; upsert a1; restore", "B": "scan"},
            ["A 3: put_if_absent .hoodie/timeline/T_T.restore 1: kill before"],
        ),
        "no order of the operations explains",
    ),
    "a compaction was suspended while its newest write was archived": RecordedSchedule(
        Schedule(
            "mor kept",
            {"A": "upsert a3", "B": "insert bB11", "C": "services"},
            ["A 1: list .hoodie/timeline 1: C", "C 1: list b 1: freeze 400000"],
            seed=44,
        ),
        "SnapshotOutdated",
    ),
    "the metadata table is archived while another writer starts": RecordedSchedule(
        Schedule(
            "cow record index kept",
            {"B": "upsert a1", "A": "upsert b7"},
            ["B 1: lock 8: A", "A 1: lock 2: B"],
        ),
        "keys.arrow: no such file",
    ),
    "a writer suspended with spilled files is rolled back": RecordedSchedule(
        Schedule(
            "cow record index",
            {"A": "upsert b7", "B": "upsert a1; upsert a1"},
            [
                "A 1: open_input .hoodie/metadata/.hoodie/.temp/T/F_W_T.parquet.keys.arrow 1: freeze 400000",
                "B 1: end 1: freeze 130000",
            ],
        ),
        "keys.arrow",
    ),
    "a group commit that lost its lock and was rolled back removes files written afterwards": RecordedSchedule(
        Schedule(
            "cow grouped record index",
            {"A": "upsert a2", "B": "upsert a2", "C": "upsert a3"},
            [
                "A 1: list .hoodie/metadata/.hoodie/timeline 1: C",
                "B 1: open_input a/F_W_T.parquet 2: freeze 130000",
            ],
            seed=5084,
        ),
        "no instant .* is on the timeline to remove it",
    ),
    "a rolled back leader applies a batch again that its writer committed itself": RecordedSchedule(
        Schedule(
            "cow grouped",
            {"A": "upsert b7", "B": "insert aB10", "C": "insert aC20"},
            ["A 1: list b 1: B", "C 1: open_output a/F_W_T.parquet 1: freeze 400000"],
            seed=1605,
        ),
        "keys stand twice",
    ),
    "time travel over a batch committed by a leader after its writer crashed": RecordedSchedule(
        Schedule(
            "cow grouped",
            {"A": "widen b7 int; scan", "B": "upsert b7", "C": "upsert a3"},
            [
                "A 1: list .hoodie/.group 1: freeze 130000",
                "C 1: stat .hoodie/.group/1767225604015-F.arrow 4: kill before",
            ],
            seed=1424,
        ),
        "as of .* no order of the operations explains",
    ),
    "one clustering waits for its executor and another lost its executor": RecordedSchedule(
        Schedule(
            "cow grouped kept",
            {"A": "schedule_clustering", "B": "upsert a7", "C": "cluster"},
            ["C 1: put_if_absent a/.hoodie_partition_metadata 1: lost"],
            seed=546,
        ),
        "the next writer: TableState: upsert would change .* pending clustering",
    ),
    "two processes build the same index": RecordedSchedule(
        Schedule("cow metadata", {"A": "index bloom_filters", "B": "index bloom_filters"}, seed=500086),
        "InvalidRequest: .* has the index bloom_filters already",
    ),
}


def is_known(verdict: Verdict) -> bool:
    """Return whether every fault of a failed run is a known one."""
    patterns = [re.compile(recorded.fails) for recorded in RECORDED_SCHEDULES.values() if recorded.known is not None]
    return all(any(pattern.search(fault) for pattern in patterns) for fault in verdict.faults)
