from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyhudi import Unsupported
from pyhudi.format.paths import STAGED_FOLDER
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.memory import MemoryStorage
from pyhudi.tasks.staged_writes import (
    INLINE_BYTES,
    StagedRows,
    check_staged_size,
    drop_staged,
    stage_rows,
    staged_rows,
    sweep_staged,
)

SCHEMA = pa.schema([("n", pa.int64())])
DAY_MS = 24 * 3600 * 1000


def batches(count: int, rows: int) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield pa.record_batch([pa.array(range(number * rows, (number + 1) * rows))], schema=SCHEMA)


def stage(storage: MemoryStorage, write: str, count: int, rows: int, limit: int = 0) -> StagedRows:
    return stage_rows(storage, write, "0-1", SCHEMA, batches(count, rows), limit)


@pytest.fixture
def env() -> ReplayEnvironment:
    return ReplayEnvironment(1)


@pytest.fixture
def storage(env: ReplayEnvironment, request: pytest.FixtureRequest) -> MemoryStorage:
    return MemoryStorage(f"memory://staged-{request.node.name}", env)


def test_few_rows_are_inline_and_more_are_in_a_file(storage: MemoryStorage) -> None:
    rows = INLINE_BYTES // 8 // 2
    parts = [stage(storage, "few", 1, rows), stage(storage, "many", 3, rows)]
    assert [part.path is None for part in parts] == [True, False]
    assert [part.size_bytes for part in parts] == [rows * 8, 3 * rows * 8]
    values = [value for batch in staged_rows(storage, parts) for value in batch.column(0).to_pylist()]
    assert values == [*range(rows), *range(3 * rows)]
    drop_staged(storage, "many")
    assert storage.list(STAGED_FOLDER).folders == ()


@pytest.mark.parametrize("rows", [100, INLINE_BYTES // 8])
def test_more_rows_than_one_process_should_write_are_refused(storage: MemoryStorage, rows: int) -> None:
    whole = stage(storage, "whole", 3, rows, 3 * rows * 8)
    with pytest.raises(Unsupported, match=r"pyhudi\.spark\.write"):
        stage(storage, "refused", 3, rows, 3 * rows * 8 - 1)
    assert all("refused" not in folder for folder in storage.list(STAGED_FOLDER).folders)
    check_staged_size([whole, whole], 6 * rows * 8)
    check_staged_size([whole, whole], 0)
    with pytest.raises(Unsupported, match=r"staged\.bytes"):
        check_staged_size([whole, whole], 6 * rows * 8 - 1)


def test_rows_of_a_crashed_write_are_deleted_a_day_later(storage: MemoryStorage, env: ReplayEnvironment) -> None:
    stage(storage, "crashed", 3, INLINE_BYTES // 8)
    env.advance_ms(DAY_MS)
    stage(storage, "running", 3, INLINE_BYTES // 8)
    sweep_staged(storage, env.now_ms())
    assert len(storage.list(STAGED_FOLDER).folders) == 2
    env.advance_ms(1)
    sweep_staged(storage, env.now_ms())
    assert [folder.rsplit("/", 1)[-1] for folder in storage.list(STAGED_FOLDER).folders] == ["running"]
