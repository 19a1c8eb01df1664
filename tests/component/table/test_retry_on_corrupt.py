"""Documents read while another writer replaces them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE, PROPERTIES_FILE
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.table.retry_on_corrupt import PAUSES_MS

_names = itertools.count()


class ConcurrentWriter(ReplayEnvironment):
    """Each time that a reader waits the writer takes its next step; it has as many as it is given."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__(1)
        self.steps = list(steps)
        self.slept_ms: list[int] = []

    def sleep_ms(self, duration_ms: int) -> None:
        self.slept_ms.append(duration_ms)
        if self.steps:
            self.steps.pop(0)()
        super().sleep_ms(duration_ms)


@pytest.fixture(scope="module")
def made() -> Table:
    table = Table.create(f"memory://rewritten-{next(_names)}", record_key="id", ordering="ts")
    table.upsert(pa.table({"id": ["a"], "ts": [1], "city": ["sf"]}))
    table.index.create("record_index")
    table.index.create("secondary_index", name="city", columns=["city"])
    return table


def copied(made: Table) -> Storage:
    source, target = open_storage(made.uri), open_storage(f"memory://rewritten-{next(_names)}")
    for info in source.walk(""):
        target.put(info.path, source.read(info.path) or b"")
    return target


@pytest.mark.parametrize("path", [PROPERTIES_FILE, INDEX_DEFINITIONS_FILE])
@pytest.mark.parametrize("steps", range(1, len(PAUSES_MS) + 1))
def test_half_written_file_is_read_again(made: Table, path: str, steps: int) -> None:
    storage = copied(made)
    whole = storage.read(path) or b""
    parts = [whole[: len(whole) * step // steps // 2] for step in range(steps)]
    writer = ConcurrentWriter(*(lambda part=part: storage.put(path, part) for part in (*parts[1:], whole)))
    storage.put(path, parts[0])
    context = Table(storage.uri, environment=writer).context
    assert context.config.name and "secondary_index_city" in load_index_definitions(context)
    assert writer.slept_ms == list(PAUSES_MS[:steps])


@pytest.mark.parametrize("path", [PROPERTIES_FILE, INDEX_DEFINITIONS_FILE])
def test_damaged_file_is_reported_after_all_retries(made: Table, path: str) -> None:
    storage, writer = copied(made), ConcurrentWriter()
    storage.put(path, (storage.read(path) or b"")[:40])
    with pytest.raises(CorruptData) as caught:
        load_index_definitions(Table(storage.uri, environment=writer).context)
    assert caught.value.path == storage.absolute(path) and writer.slept_ms == list(PAUSES_MS)
