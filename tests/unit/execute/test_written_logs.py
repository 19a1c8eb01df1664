"""Log files against what their commits say: of every golden table of the real Hudi, and where one was changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData
from pyhudi.execute.log_scan import check_written
from pyhudi.format.actions.commit import WriteStat
from pyhudi.format.names import parse_log_file
from pyhudi.storage import Storage
from pyhudi.table.slices import LogFile
from pyhudi.table.snapshot import read_commit
from tests.golden_tables import golden_cases, open_golden

CASES = [name for name in golden_cases(with_traits={"mor"}) if "v6" not in name]


def logs_of(table: Table) -> Iterator[tuple[Storage, LogFile, WriteStat]]:
    context = table.context
    for instant in context.timeline.load().completed_writes():
        for stats in read_commit(context.timeline, instant).partition_to_write_stats.values():
            for stat in stats:
                name = parse_log_file((stat.path or "").rsplit("/", 1)[-1])
                info = context.storage.stat(stat.path or "") if name else None
                if name is not None and info is not None:
                    yield context.storage, LogFile(info.path, name, info.size_bytes), stat


@pytest.mark.parametrize("name", CASES)
def test_the_real_hudi_writes_what_its_commits_say(name: str, tmp_path: Path) -> None:
    for storage, log, stat in logs_of(Table(open_golden(name, tmp_path).path)):
        assert check_written(storage, log, stat).instants == {log.name.instant_time}


def test_a_log_that_holds_something_else(tmp_path: Path) -> None:
    found = list(logs_of(Table(open_golden("mor_deletes", tmp_path).path)))
    assert len(found) > 2
    for storage, log, stat in found:
        whole = storage.read(log.path) or b""
        for data in (whole[:-1], whole + b"#", whole + whole, b""):
            storage.put(log.path, data)
            with pytest.raises(CorruptData, match=log.name.text.replace(".", r"\.")):
                check_written(storage, LogFile(log.path, log.name, len(data)), stat)
        storage.put(log.path, whole)
