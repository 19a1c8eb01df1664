"""Index HBASE around the commits of a table: nothing without the index, else the capability `features.hbase_index`."""

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
    """Raises Unsupported where the table may not be written under index HBASE, or the capability is missing."""
    if settings is not None:
        features.load("hbase_index", _PURPOSE).check_hbase(context, settings, has_metadata=has_metadata)


@contextmanager
def told_to_hbase(
    context: TableContext, engine: Engine, settings: HbaseSettings | None, statuses: Sequence[WriteStatus], instant_time: str
) -> Iterator[None]:
    """Around the commit of what tasks wrote: update the index."""
    if settings is None:
        yield
        return
    with features.load("hbase_index", _PURPOSE).update_hbase_index(context, engine, settings, statuses, instant_time):
        yield


def sync_rollback(context: TableContext, settings: CommitSettings, rolled_back: Iterable[str]) -> None:
    """Remove the entries of writes that are rolled back from the index, where the settings ask for it."""
    if settings.hbase is not None and settings.hbase.rollback_sync:
        features.load("hbase_index", _PURPOSE).sync_rollback(context, settings, rolled_back)
