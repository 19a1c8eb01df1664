"""Assignment of file groups to writing tasks is even although the rows are not."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

from pyhudi.engines.spark.routing import TASKS_A_CORE, Groups
from pyhudi.planning.record_placement import InsertTarget
from pyhudi.tasks.write_file_group import GroupTarget


def task_rows(inserts: dict[str, Sequence[int]], cores: int) -> list[int]:
    """Rows of each task, in ascending order.  inserts: the rows of each target, by partition."""
    plan: Any = SimpleNamespace(
        inserts={
            path: [InsertTarget(path, f"{path}-{number}", None, count) for number, count in enumerate(counts)]
            for path, counts in inserts.items()
        },
        target=lambda partition, file_id: GroupTarget(partition, file_id, None),
    )
    groups = Groups(plan, (), cores)
    targets = [target for path in inserts for target in groups.inserts[path]]
    labels = groups.label(np.array([number for number, _ in targets], dtype=np.int64))
    rows = [0] * groups.task_count
    for number, count in targets:
        rows[labels[number] % groups.task_count] += count
    return sorted(rows)


def test_a_partition_with_half_of_the_rows_is_shared() -> None:
    """It has as many files as its rows fill, and each is a task's."""
    rows = task_rows({"large": [1_000] * 32, **{f"p{n}": [1_000] for n in range(32)}}, cores=4)
    assert len(rows) == 4 * TASKS_A_CORE
    assert rows[0] == rows[-1] == 4_000


def test_a_file_group_with_half_of_the_rows_keeps_a_task_for_itself() -> None:
    """A file has one writer, so the task cannot be split; nothing else waits for it."""
    rows = task_rows({"large": [32_000], **{f"p{n}": [1_000] for n in range(32)}}, cores=4)
    assert rows[-1] == 32_000
    assert rows[-2] <= 3_000


def test_100_000_file_groups_are_dealt_out_to_a_bounded_number_of_tasks() -> None:
    rows = task_rows({"p": [10] * 100_000}, cores=8)
    assert len(rows) == 8 * TASKS_A_CORE
    assert rows[-1] - rows[0] <= 10
