"""Which completed writes no reader sees, by the times of instants and the commits that files were made from."""

from __future__ import annotations

import pytest

from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation, WriteStat
from pyhudi.format.instants import Action, Instant, State
from pyhudi.planning.hidden_writes import find_hidden_writes, find_late_appends

UPSERT, COMPACT, CLUSTER = Operation.UPSERT, Operation.COMPACT, Operation.CLUSTER


def at(minute: int) -> str:
    return f"202405061400{minute:02d}000"[:17]


def commit(
    requested: int,
    completed: int,
    *,
    made_from: int | None = None,
    operation: Operation = UPSERT,
    log: bool = False,
    replaced: bool = False,
    partition: str = "p",
) -> tuple[Instant, CommitMetadata]:
    """A commit that writes a file of the one file group, made from the file of an earlier instant, or replaces the group."""
    group, time = f"{'f' * 36}-0", at(requested)
    name = f".{group}_{time}.log.1_0-1-1" if log else f"{group}_0-1-1_{time}.parquet"
    stat = WriteStat(
        file_id=group,
        path=f"{partition}/{name}",
        prev_commit="null" if made_from is None else at(made_from),
        partition_path=partition,
    )
    metadata = CommitMetadata(
        {} if replaced else {partition: (stat,)},
        operation_type=operation.value,
        partition_to_replace_file_ids={partition: (group,)} if replaced else None,
    )
    action = Action.REPLACECOMMIT if replaced else Action.DELTACOMMIT if log else Action.COMMIT
    return Instant(time, action, State.COMPLETED, at(completed)), metadata


def hidden(*commits: tuple[Instant, CommitMetadata], resized: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    found = list(find_hidden_writes(dict(commits), resized))
    assert all(one.write.request_time in one.path for one in found)
    return [(one.write.request_time, one.by.request_time) for one in found]


def test_serial_writes_hide_nothing() -> None:
    assert hidden(commit(1, 2), commit(3, 4, made_from=1), commit(5, 6, made_from=3)) == []


def test_write_that_plans_long_after_it_took_its_instant_is_hidden_by_the_later_one() -> None:
    """The write of minute 2 was planned after minute 6."""
    assert hidden(commit(1, 1), commit(4, 5, made_from=1), commit(2, 7, made_from=4)) == [(at(2), at(4))]


@pytest.mark.parametrize("completed", [(7, 8), (8, 7)])
def test_writes_made_from_the_same_file_hide_the_older_one(completed: tuple[int, int]) -> None:
    first, second = completed
    assert hidden(commit(1, 2), commit(3, first, made_from=1), commit(4, second, made_from=1)) == [(at(3), at(4))]


def test_later_write_that_is_right_does_not_count_for_one_that_was_hidden_before() -> None:
    found = hidden(commit(1, 1), commit(4, 5, made_from=1), commit(2, 7, made_from=4), commit(8, 9, made_from=4))
    assert found == [(at(2), at(4))]


def test_compactions_and_archived_predecessors_are_no_conflict() -> None:
    assert hidden(commit(2, 3, operation=COMPACT), commit(4, 5, made_from=1)) == []
    assert hidden(commit(4, 5, made_from=3), commit(6, 7, made_from=4)) == []
    assert hidden(commit(4, 5), commit(6, 7)) == []


@pytest.mark.parametrize("log", [False, True])
def test_write_that_was_requested_after_the_plan_of_a_clustering_of_its_group_is_hidden(log: bool) -> None:
    clustering = commit(3, 8, operation=CLUSTER, replaced=True)
    assert hidden(commit(1, 2), commit(4, 5, made_from=1, log=log), clustering) == [(at(4), at(3))]
    assert hidden(commit(1, 2), commit(4, 9, made_from=1, log=log), clustering) == [(at(4), at(3))]
    assert hidden(commit(1, 2), clustering) == []
    assert hidden(commit(4, 5, log=log), clustering, resized=frozenset({"p"})) == []


def test_overwrite_of_a_group_hides_nothing() -> None:
    assert hidden(commit(4, 5), commit(3, 8, operation=Operation.INSERT_OVERWRITE, replaced=True)) == []


def test_log_files_that_completed_late() -> None:
    def late(*commits: tuple[Instant, CommitMetadata]) -> list[tuple[str, str]]:
        return [(one.write.request_time, one.by.request_time) for one in find_late_appends(dict(commits))]

    assert late(commit(1, 2, log=True), commit(3, 4, log=True)) == []
    assert late(commit(1, 4, log=True), commit(2, 5, log=True)) == []
    assert late(commit(1, 5, log=True), commit(2, 4, log=True)) == [(at(1), at(2))]
    assert late(commit(1, 5, log=True), commit(2, 4, log=True, operation=Operation.LOG_COMPACT)) == []
    assert late(commit(1, 5, log=True), commit(2, 4, log=True, partition="q")) == []
