"""A second writer runs at one storage call of the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyhudi.storage import Storage
from pyhudi.storage.base import FileInfo
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World

OPTIONS = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "pyhudi.threads": 1}


class Interrupted:
    """A storage that calls `then` just before the first call for which `when` is true."""

    def __init__(self, inner: Storage, when: Callable[[str, str], bool], then: Callable[[], object]) -> None:
        self._inner = inner
        self._when = when
        self._then: Callable[[], object] | None = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._pass("put_if_absent", path)
        return self._inner.put_if_absent(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        given = tuple(paths)
        self._pass("delete", given[0] if given else "")
        self._inner.delete(given)

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        self._pass("sweep", folder)
        return self._inner.sweep_unfinished(folder, before_ms)

    def stat(self, path: str) -> FileInfo | None:
        self._pass("stat", path)
        return self._inner.stat(path)

    def _pass(self, operation: str, path: str) -> None:
        if self._then is not None and self._when(operation, path):
            then, self._then = self._then, None
            then()


def rows(world: World, part: str = "a", stamp: int | None = None, **values: int) -> pa.Table:
    time = world.environment.now_ms() + 5000 if stamp is None else stamp
    keys = list(values)
    return pa.table({"id": keys, "part": [part] * len(keys), "ts": [time] * len(keys), "value": [values[key] for key in keys]})


def meeting(world: World, other: Callable[[], object]) -> TableContext:
    """The table for a writer that is planned and has not written yet when `other` acts."""
    context = world.table.context
    storage = Interrupted(context.storage, lambda operation, path: path.endswith(".inflight"), other)
    return replace(context, storage=storage)


def values(world: World) -> dict[str, int]:
    return world.scanned()
