"""A log file above its size limit is continued in the next version."""

from __future__ import annotations

import itertools

import pytest

from tests.support.log_file_cases import created, rows, run_log_files, seen, versions

_names = itertools.count()


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_a_write_of_several_log_files(log_format: str) -> None:
    options = {"hoodie.logfile.data.block.format": log_format, "hoodie.metadata.record.index.enable": True}
    run_log_files(created(f"memory://log-files-{next(_names)}", **options), lambda batch: batch)


def test_the_size_is_that_from_which_a_file_takes_no_further_block() -> None:
    table = created(f"memory://log-files-{next(_names)}", **{"hoodie.logfile.max.size": 10**6})
    table.insert(rows(range(40), 0))
    assert table.upsert(rows(range(30), 1)).log_files == 1 and versions(table) == [1]


def test_changes_in_several_log_files_are_returned_once() -> None:
    table = created(f"memory://log-files-{next(_names)}", **{"hoodie.table.cdc.enabled": True})
    since = table.insert(rows(range(40), 0)).completion_time
    assert table.upsert(rows(range(30), 1)).log_files > 2
    told = table.changes(after=since).to_arrow()
    assert sorted(told["op"].to_pylist()) == ["u"] * 30


def test_a_log_compaction_of_several_files_is_one_file() -> None:
    table = created(f"memory://log-files-{next(_names)}")
    table.insert(rows(range(40), 0))
    table.upsert(rows(range(30), 1))
    table.upsert(rows(range(20), 2))
    before, held = versions(table), seen(table)
    assert table.log_compact() is not None
    assert len(versions(table)) == len(before) + 1 and seen(table) == held
