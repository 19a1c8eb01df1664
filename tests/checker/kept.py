"""Small schedules that failed once, and what is known to fail still.

A kept schedule has to pass.  One with a `known` reason has to fail, in the way that `fails` says; when it begins to pass, its
reason is to be taken away here.  While it stands, explorations pass failures over that read like it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.checker.run import Verdict
from tests.checker.schedules import Schedule


@dataclass(frozen=True)
class Kept:
    """fails: pattern of the faults that the schedule had.  known: why it still has them; None when it has to pass."""

    schedule: Schedule
    fails: str
    known: str | None = None


KEPT: dict[str, Kept] = {
    "statistics of a partition know the files of writers that began later": Kept(
        Schedule(
            "cow statistics",
            {"B": "insert aB1 | apart", "A": "insert aA1 | apart"},
            ["B 1: put_if_absent .hoodie/timeline/T.inflight 1: A"],
        ),
        r"scan v = \d+ gives",
        known="the record of the write that was requested last wins, though it knows fewer files",
    ),
    "of two writers that bring a key one opens a group and one fills a file": Kept(
        Schedule(
            "cow",
            {"A": "upsert a7", "B": "upsert a7 | apart"},
            [
                "A 1: put_if_absent .hoodie/.temp/T/a/F_W_T.parquet.marker.MERGE 1: B",
                "B 1: put_if_absent .hoodie/timeline/T.inflight 1: A",
            ],
        ),
        "keys stand twice",
        known="only writes that open file groups meet, not those whose new keys went into present ones",
    ),
    "archival takes commits away that a write has to meet": Kept(
        Schedule(
            "cow kept",
            {"A": "upsert a7", "B": "upsert b7 | apart"},
            ["A 1: delete .hoodie/timeline/T.commit.requested 1: B"],
        ),
        "InstantNotFound",
        known="a write that reads the timeline while it is archived ends with InstantNotFound",
    ),
    "a clustering that was planned on a lease that ran out": Kept(
        Schedule(
            "cow",
            {"A": "schedule_clustering", "B": "upsert a1"},
            ["A 1: list a 1: freeze 62000"],
        ),
        "no order of the operations explains",
        known="plans are stored without a proof of the lease",
    ),
    "a death in a clustering": Kept(
        Schedule("cow", {"A": "cluster"}, ["A 1: put_if_absent .hoodie/timeline/T_T.replacecommit 1: kill"]),
        "the next writer: TableState: upsert would change .* pending clustering",
        known="clusterings whose executor died are not settled by writers",
    ),
}


def excused(verdict: Verdict) -> bool:
    """Whether all that a failed run showed is known."""
    patterns = [re.compile(kept.fails) for kept in KEPT.values() if kept.known is not None]
    return all(any(pattern.search(fault) for pattern in patterns) for fault in verdict.faults)
