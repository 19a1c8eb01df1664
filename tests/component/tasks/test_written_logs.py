"""Log files compared with their commit metadata, for all golden tables and for changed files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData
from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.names import parse_log_file
from pyhudi.operations.admin.validate_data import LogContents, LogCount, count_log
from pyhudi.storage import Storage
from pyhudi.table.file_slices import LogFile
from pyhudi.table.snapshot import read_commit
from pyhudi.tasks.log_scan import InstantValidity
from tests.support.golden_tables import golden_cases, open_golden

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


def recorded_and_stored(
    storage: Storage, log: LogFile, stat: WriteStat, validity: InstantValidity
) -> list[tuple[int, LogContents]]:
    """Size and contents in the commit, and those of the files."""
    said = LogContents(stat.num_writes, stat.num_deletes, frozenset({log.name.instant_time}))
    held = count_log(LogCount(storage.spec(), log, validity))
    return [(stat.file_size_in_bytes, said), (log.size_bytes, held)]


@pytest.mark.sample(24)
@pytest.mark.parametrize("name", CASES)
def test_logs_of_hudi_match_their_commit_metadata(name: str, tmp_path: Path) -> None:
    table = Table(open_golden(name, tmp_path).path)
    for storage, log, stat in logs_of(table):
        said, held = recorded_and_stored(storage, log, stat, InstantValidity.of(table.context.timeline.load()))
        assert said == held


def test_log_that_differs_from_its_commit_metadata(tmp_path: Path) -> None:
    table = Table(open_golden("mor_deletes", tmp_path).path)
    found = list(logs_of(table))
    assert len(found) > 2
    validity = InstantValidity.of(table.context.timeline.load())
    for storage, log, stat in found:
        whole = storage.read(log.path) or b""
        for data in (whole[:-1], whole + b"#", b""):
            storage.put(log.path, data)
            with pytest.raises(CorruptData, match=log.name.text.replace(".", r"\.")):
                count_log(LogCount(storage.spec(), LogFile(log.path, log.name, len(data)), validity))
        storage.put(log.path, whole + whole)
        said, held = recorded_and_stored(storage, LogFile(log.path, log.name, 2 * len(whole)), stat, validity)
        assert said[0] != held[0] and said[1] != held[1]
        storage.put(log.path, whole)
