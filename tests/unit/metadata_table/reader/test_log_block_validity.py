"""Validity of metadata log blocks by the two timelines."""

from __future__ import annotations

from pyhudi.format.instants import Action, Instant, State
from pyhudi.metadata_table.reader.metadata_reader import BlockValidity
from pyhudi.table.timeline.active_timeline import Timeline

T = [f"2026010100000{n}000" for n in range(10)]
INITIAL = "00000000000000000"


def done(time: str, action: Action = Action.DELTACOMMIT) -> Instant:
    return Instant(time, action, State.COMPLETED, time[:-3] + "500")


def pending(time: str, action: Action = Action.COMMIT) -> Instant:
    return Instant(time, action, State.INFLIGHT)


def validity(data: list[Instant], metadata: list[Instant], rolled_back: frozenset[str] = frozenset()) -> BlockValidity:
    return BlockValidity(Timeline.of(data), Timeline.of(metadata), lambda: rolled_back)


def test_committed_on_both() -> None:
    rule = validity([done(T[1], Action.COMMIT), done(T[2], Action.CLEAN)], [done(INITIAL), done(T[1]), done(T[2])])
    assert all(rule.counts(time) for time in (INITIAL, T[1], T[2]))


def test_writer_that_failed_between_its_two_commits_is_not_visible() -> None:
    rule = validity([done(T[1], Action.COMMIT), pending(T[2])], [done(INITIAL), done(T[1]), done(T[2])])
    assert rule.counts(T[1]) and not rule.counts(T[2])


def test_log_block_of_a_pending_metadata_commit_is_not_valid() -> None:
    metadata = [done(INITIAL), done(T[1]), Instant(T[2], Action.DELTACOMMIT, State.INFLIGHT), done(T[3])]
    rule = validity([done(T[1], Action.COMMIT), done(T[2], Action.COMMIT), done(T[3], Action.COMMIT)], metadata)
    assert rule.counts(T[1]) and not rule.counts(T[2]) and rule.counts(T[3])
    # Later than anything that it has completed.
    assert not rule.counts(T[4])


def test_instants_that_left_a_timeline() -> None:
    # T1 was archived by the table; the metadata table still has it.
    rule = validity([done(T[5], Action.COMMIT)], [done(T[1]), done(T[5])])
    assert rule.counts(T[1]) and rule.counts(T[5])
    # T0 is before the metadata table's start: it is valid if the table knows it, or has rolled it back.
    assert not validity([done(T[5], Action.COMMIT)], [done(T[1])]).counts(T[0])
    assert validity([done(T[0], Action.COMMIT)], [done(T[1])]).counts(T[0])
    assert validity([done(T[5], Action.COMMIT)], [done(T[1])], frozenset({T[0]})).counts(T[0])


def test_rollbacks_of_the_metadata_table_and_services() -> None:
    metadata = [done(INITIAL), done(T[1]), done(T[3], Action.ROLLBACK), done(T[4], Action.COMMIT)]
    rule = validity([done(T[1], Action.COMMIT)], metadata)
    assert rule.counts(T[3]) and rule.counts(T[4])


def test_the_rolled_back_instants_are_read_only_when_nothing_else_decides() -> None:
    asked: list[int] = []

    def load() -> frozenset[str]:
        asked.append(1)
        return frozenset()

    rule = BlockValidity(Timeline.of([done(T[5], Action.COMMIT)]), Timeline.of([done(T[1]), done(T[5])]), load)
    assert rule.counts(T[1]) and rule.counts(T[5]) and not asked
    assert not rule.counts(T[0]) and not rule.counts(T[0])
    assert asked == [1]
