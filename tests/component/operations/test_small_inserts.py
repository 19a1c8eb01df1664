"""Few inserts into a large merge-on-read table: chosen file group and cost."""

from __future__ import annotations

import pytest

from tests.support.small_inserts import created, rows, run_small_inserts


def test_few_inserts_do_not_rewrite_a_large_file() -> None:
    run_small_inserts(created("memory://small-inserts"), lambda batch: batch)


@pytest.mark.parametrize(
    ("table_type", "options"),
    [("mor", {"pyhudi.small.file.growth": 0}), ("mor", {"pyhudi.small.file.always.rewritten": 10**6}), ("cow", {})],
    ids=["any growth", "a small file", "copy on write"],
)
def test_options_that_make_few_inserts_rewrite_a_file(table_type: str, options: dict[str, object]) -> None:
    table = created(f"memory://rewriting-{table_type}-{len(str(options))}", table_type, **options)
    table.insert(rows(*range(1000)))
    result = table.upsert(rows(1000))
    assert (result.file_groups_new, result.file_groups_rewritten) == (0, 1)


def test_clustering_makes_one_of_the_small_files() -> None:
    table = created("memory://small-inserts-clustered")
    table.insert(rows(*range(100)))
    for number in range(8):
        table.insert(rows(*range(100 + number, 101 + number)))
    clustered = table.cluster()
    assert (clustered.file_groups_read, clustered.file_groups_written) == (4, 1)
    assert table.scan().to_arrow().num_rows == 108
