"""Power failures at the changes of a local disk: docs/failure-model.md states what survives with which setting."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from shutil import copytree, rmtree
from tempfile import mkdtemp

import pytest

from pyhudi import HudiError, Table
from pyhudi.format.actions.commit_metadata import decode_lost_files
from pyhudi.storage import local
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.table.snapshot import read_commit
from tests.simulation.power_failures import Failure, Loss, RecordedDisk, lose_power
from tests.simulation.tables import SMALL, Rows, partition_of
from tests.support.shares import chosen

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads names of open files from /proc"),
    pytest.mark.filterwarnings("ignore:the metadata table:RuntimeWarning"),
]

OPTIONS = {
    **SMALL,
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": False,
    "hoodie.metadata.compact.max.delta.commits": 3,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.timeline.compaction.batch.size": 2,
    "pyhudi.threads": 1,
}
COMPACTING = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 2}
CREATED_MS = 1_767_225_600_000
FAILED_MS = CREATED_MS + 7_200_000
NEXT = {"k4": 44}


@dataclass
class Write:
    """An acknowledged write. steps: those of the disk until it returned; rows: of the table after it."""

    steps: int
    instant: str
    rows: Rows


@dataclass
class Record:
    disk: RecordedDisk
    writes: list[Write] = field(default_factory=list)


@cache
def recorded(kind: str, sync: str) -> Record:
    """Upserts and deleted partitions, with cleans, compactions, archival and merged files of the history."""
    root = Path(mkdtemp())
    record, rows, env = Record(RecordedDisk(root)), Rows(), ReplayEnvironment(7, CREATED_MS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "os", record.disk)
        table = Table.create(
            root / "t",
            record_key="id",
            partition_by="part",
            ordering="ts",
            table_type=kind,
            environment=env,
            options=OPTIONS if kind == "cow" else {**OPTIONS, **COMPACTING},
            storage_options={"sync": sync},
        )
        for number in range(12):
            env.advance_ms(1000)
            if number in (3, 8):
                done = table.delete_partitions("b")
                rows = {key: value for key, value in rows.items() if partition_of(key) != "b"}
            else:
                written = {f"k{key}": number * 100 + key for key in range(number % 2, 6)}
                done = table.upsert(batch(written, env.now_ms()))
                rows = {**rows, **written}
            assert done.instant is not None
            record.writes.append(Write(len(record.disk.steps), done.instant, rows))
    rmtree(root)
    return record


def batch(rows: Rows, stamp: int) -> list[dict[str, object]]:
    return [{"id": key, "part": partition_of(key), "ts": stamp, "value": value} for key, value in sorted(rows.items())]


class Remains:
    """What a power failure leaves; `copy` is used up by a change."""

    def __init__(self, record: Record, failure: Failure, sync: str, folder: Path) -> None:
        lose_power(record.disk.after(failure.step), failure, folder, CREATED_MS)
        self.path, self.sync = folder / "t", sync
        self.acknowledged = [write for write in record.writes if write.steps <= failure.step]
        later = [write.rows for write in record.writes if write.steps > failure.step][:1]
        self.expected = [self.acknowledged[-1].rows, *later]
        """Rows without and with the write that had not returned."""
        self.history = {item for write in record.writes for item in write.rows.items()}

    def table(self, **options: object) -> Table:
        env = ReplayEnvironment(9, FAILED_MS)
        return Table(self.path, options={**OPTIONS, **options}, environment=env, storage_options={"sync": self.sync})

    @contextmanager
    def copy(self) -> Iterator[Remains]:
        other = object.__new__(Remains)
        other.__dict__.update(self.__dict__)
        other.path = self.path.parent / "copy"
        copytree(self.path, other.path)
        yield other
        rmtree(other.path)

    def reads(self) -> list[list[tuple[str, int]] | HudiError]:
        """The rows that readers with and without metadata table find, or the error."""
        found: list[list[tuple[str, int]] | HudiError] = []
        for metadata in (True, False):
            try:
                rows = self.table(**{"hoodie.metadata.enable": metadata}).scan(["id", "value"]).to_arrow()
            except HudiError as error:
                found.append(error)
                continue
            found.append(sorted(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True)))
        return found

    def is_right(self, rows: object, written: Rows | None = None) -> bool:
        """Each acknowledged row is there, once."""
        return rows in [sorted({**expected, **(written or {})}.items()) for expected in self.expected]

    def check_timeline(self) -> None:
        store = self.table().context.timeline
        known = {instant.request_time for instant in store.load().completed()}
        known |= {row.instant_time for row in store.history.rows()}
        assert {write.instant for write in self.acknowledged} <= known

    def check_damage_is_found(self) -> bool:
        """Return whether `validate` finds errors. If it does not, all reads are right."""
        result = self.table().validate(keys=True)
        assert not result.ok or all(map(self.is_right, self.reads())), f"{result} does not report {self.reads()}"
        return not result.ok

    def check_next_writes(self) -> None:
        for stamp in range(3):
            self.table().upsert(batch(NEXT, FAILED_MS + stamp))
        assert all(self.is_right(rows, NEXT) for rows in self.reads()), self.reads()
        result = self.table().validate(keys=True)
        assert result.ok, result
        assert not self.table().timeline().pending_writes()


def failures(record: Record, losses: list[Loss]) -> list[Failure]:
    """Of the active share: at random steps after the first write, with each kind of loss."""
    random = Random(45)
    drawn = [
        Failure(random.randint(record.writes[0].steps, len(record.disk.steps)), loss, random.randrange(1 << 20))
        for loss in losses
        for _ in range(25)
    ]
    return chosen(drawn, lambda failure: failure.loss)


@contextmanager
def noted(failure: Failure) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"after {failure}")
        raise


@pytest.mark.crash_points
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_with_everything_synced_each_acknowledged_write_survives(kind: str, tmp_path: Path) -> None:
    record = recorded(kind, "all")
    for number, failure in enumerate(failures(record, list(Loss))):
        with noted(failure):
            remains = Remains(record, failure, "all", tmp_path / str(number))
            remains.check_timeline()
            assert all(map(remains.is_right, remains.reads())), remains.reads()
            assert not remains.check_damage_is_found()
            remains.check_next_writes()


@pytest.mark.crash_points
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_with_documents_synced_the_timeline_survives_and_losses_are_reported(kind: str, tmp_path: Path) -> None:
    record = recorded(kind, "documents")
    for number, failure in enumerate(failures(record, [Loss.EVERYTHING, Loss.CONTENT, Loss.ANY])):
        with noted(failure):
            check_with_documents(Remains(record, failure, "documents", tmp_path / str(number)))


@pytest.mark.parametrize("failure", [Failure(838, Loss.EVERYTHING), Failure(622, Loss.ANY, 480668)])
def test_loss_of_data_files_and_of_parts_of_the_metadata_table(failure: Failure, tmp_path: Path) -> None:
    """The metadata table is readable and lists no files, or some that a clean has deleted. Found by the wide tier."""
    check_with_documents(Remains(recorded("mor", "documents"), failure, "documents", tmp_path / "disk"))


def check_with_documents(remains: Remains) -> None:
    remains.check_timeline()
    if not remains.check_damage_is_found():
        remains.check_next_writes()
        return
    with remains.copy() as repaired:
        try:
            repaired.table().repair()
        except HudiError:
            # Lost files are listed, and stay lost.
            assert not repaired.table().validate().ok
        repaired.check_damage_is_found()
    with remains.copy() as accepted:
        accepted.table().repair(accept_loss=True)
        check_recorded_loss(accepted)


def check_recorded_loss(run: Remains) -> None:
    """A commit records lost files, or validation finds what the repair could not accept; no row is invented or doubled."""
    context = run.table().context
    commits = [read_commit(context.timeline, write) for write in context.timeline.load().completed_writes()]
    is_recorded = any(map(decode_lost_files, commits))
    is_reported = not run.table().validate(keys=True).ok
    for rows in run.reads():
        assert run.is_right(rows) or is_recorded or is_reported
        if is_reported:
            continue
        assert isinstance(rows, list), rows
        assert len(dict(rows)) == len(rows) and run.history.issuperset(rows)


@pytest.mark.crash_points
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_undone_deletions_are_reported_and_repaired(kind: str, tmp_path: Path) -> None:
    """Replaced rows are back for readers that list directories; a repair does not return them to all readers."""
    record = recorded(kind, "documents")
    for number, failure in enumerate(failures(record, [Loss.DELETIONS])):
        with noted(failure):
            remains = Remains(record, failure, "documents", tmp_path / str(number))
            remains.check_timeline()
            assert remains.is_right(remains.reads()[0])
            remains.check_damage_is_found()
            remains.table().repair()
            assert all(map(remains.is_right, remains.reads())), remains.reads()
            assert not remains.check_damage_is_found()
            remains.check_next_writes()


def test_without_syncs_nothing_survives(tmp_path: Path) -> None:
    """What the other tests find is a result of syncs, not of the model."""
    record = recorded("cow", "none")
    failure = Failure(len(record.disk.steps), Loss.EVERYTHING)
    lose_power(record.disk.after(failure.step), failure, tmp_path / "disk", CREATED_MS)
    assert os.listdir(tmp_path / "disk") == []
