"""Writes whose planning and commit are separate steps."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World
from tests.support.paused_write import PausedWrite

OPTIONS = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.file.group.count": 1,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.compact.max.delta.commits": 4,
    "hoodie.table.services.enabled": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.compact.inline.max.delta.commits": 1,
    "hoodie.parquet.small.file.limit": 0,
    "pyhudi.threads": 1,
}
GROUPS = {"a": [["k0", "k2"], ["k4", "k6"], ["k8"]], "b": [["k1", "k3"], ["k5"]]}
"""Partition -> the keys of its file groups."""


def rows(world: World, keys: list[str], part: str, value: int | None) -> pa.Table:
    world.environment.advance_ms(1000)
    size = len(keys)
    return pa.table(
        {
            "id": keys,
            "part": [part] * size,
            "ts": [world.environment.now_ms()] * size,
            "value": pa.array([value] * size, pa.int64()),
        }
    )


def begin(world: World, act: Callable[[TableContext], object]) -> PausedWrite:
    return PausedWrite(world.table.context, act)
