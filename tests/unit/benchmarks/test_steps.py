from __future__ import annotations

from benchmarks import data
from benchmarks.peers.base import Peer
from benchmarks.steps import CHAINS, STEPS, is_wanted, select


def test_names_are_unique_and_methods_exist() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    for step in STEPS:
        assert callable(getattr(Peer, step.method))
        assert step.batch in (None, "base", *data.BATCH_NAMES)


def test_batches_come_in_the_order_in_which_they_build_on_each_other() -> None:
    for chain in CHAINS.values():
        assert [step.batch for step in chain if step.changes_rows] == ["base", *data.BATCH_NAMES]


def test_a_name_stands_for_itself_and_its_beginning_for_several() -> None:
    cow = CHAINS["cow"]
    assert [step.name for step in cow if is_wanted(step, ["cow-upsert"])] == ["cow-upsert-1", "cow-upsert-10"]
    assert [step.name for step in cow if is_wanted(step, ["cow-upsert-1"])] == ["cow-upsert-1"]
    assert [step.name for step in cow if is_wanted(step, ["mor"])] == []
    assert [step for step in cow if is_wanted(step, [])] == [step for step in cow if step.reported]


def test_a_part_takes_along_what_its_table_needs() -> None:
    assert [step.name for step in select(CHAINS["cow"], ["cow-upsert-10"])] == [
        "cow-bulk-insert",
        "cow-upsert-1",
        "cow-upsert-10",
    ]
    reads = [step.name for step in select(CHAINS["cow"], ["cow-aggregate"])]
    assert reads[-1] == "cow-aggregate"
    assert "cow-last" in reads and "cow-full-read" not in reads
    assert select(CHAINS["mor"], ["cow"]) == ()


def test_no_pattern_is_everything() -> None:
    assert select(CHAINS["mor"], []) == CHAINS["mor"]
