"""Hooks that keep the HBase index up to date on commit and rollback; they do nothing without it.

Implementation: `features.hbase_index`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pyhudi import features
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.hbase_lookup import HbaseSettings
from pyhudi.tasks.write_tasks import WriteStatus

_PURPOSE = "index HBASE"


def check_hbase(context: TableContext, settings: HbaseSettings | None, *, has_metadata: bool) -> None:
    """Raise Unsupported if the table cannot be written with the HBase index, or the feature is not installed."""
    if settings is not None:
        features.load("hbase_index", _PURPOSE).check_hbase(context, settings, has_metadata=has_metadata)


@contextmanager
def update_hbase_index(
    context: TableContext, engine: Engine, settings: HbaseSettings | None, statuses: Sequence[WriteStatus], instant_time: str
) -> Iterator[None]:
    """Update the HBase index around the commit of ``statuses``."""
    if settings is None:
        yield
        return
    with features.load("hbase_index", _PURPOSE).update_hbase_index(context, engine, settings, statuses, instant_time):
        yield


def sync_rollback(context: TableContext, settings: CommitSettings, rolled_back: Iterable[str]) -> None:
    """Remove the index entries of rolled-back writes, if the settings enable rollback sync."""
    if settings.hbase is not None and settings.hbase.rollback_sync:
        features.load("hbase_index", _PURPOSE).sync_rollback(context, settings, rolled_back)
