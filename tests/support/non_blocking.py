"""Writers under non-blocking concurrency control that overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage import Storage
from tests.simulation.tables import World

MODE = "hoodie.write.concurrency.mode"
NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"
OPTIONS: dict[str, object] = {
    MODE: NON_BLOCKING,
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "pyhudi.threads": 1,
}


class ActingStorage:
    """A storage that calls `then` once, when the writer's instant is inflight and it has written nothing."""

    def __init__(self, inner: Storage, then: Callable[[], object]) -> None:
        self._inner = inner
        self._then: Callable[[], object] | None = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        done = self._inner.put_if_absent(path, data)
        if path.endswith("commit.inflight") and self._then is not None:
            then, self._then = self._then, None
            then()
        return done


def rows(stamp: int, deleted: bool = False, /, **values: int) -> pa.Table:
    keys = list(values)
    return pa.table(
        {
            "id": keys,
            "part": ["a"] * len(keys),
            "ts": pa.array([stamp] * len(keys), pa.int64()),
            "value": pa.array(list(values.values()), pa.int64()),
            "_hoodie_is_deleted": [deleted] * len(keys),
        }
    )


def write_during(world: World, data: pa.Table, then: Callable[[], object], **options: object) -> WriteResult:
    """Write while something else happens in between."""
    context = world.table.context
    settings = WriteSettings.of(parse_options({**world.options, **options}), WriteOperation.UPSERT)
    return run_write(replace(context, storage=ActingStorage(context.storage, then)), LocalEngine(1), data, settings)
