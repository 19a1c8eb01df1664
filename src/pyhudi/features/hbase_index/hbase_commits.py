"""Index HBASE beside the actions of a table: what lookups believe, what a commit tells it, and what a rollback takes out again.

What its entries mean is in `features.hbase_index.hbase_tasks`.

Source: docs/decisions/0019-index-hbase.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pyhudi.errors import HudiError, Unsupported
from pyhudi.features.hbase_index.hbase_client import open_hbase
from pyhudi.features.hbase_index.hbase_tasks import HbaseChange, roll_back_hbase, run_finish_hbase, run_prepare_hbase
from pyhudi.format.instants import timestamp_from_instant
from pyhudi.format.paths import SIDE_FOLDER, join_path
from pyhudi.operations.commit.commit_settings import INDEX_TYPE, CommitSettings
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.hbase_lookup import HbaseSettings
from pyhudi.tasks.write_tasks import WriteStatus

_LOG = logging.getLogger("pyhudi.features.hbase_index.hbase_commits")

_CLOCKS_DIFFER_MS = 600_000
"""How much earlier than a write's instant time by this clock a region server may have put what it told."""


def check_hbase(context: TableContext, settings: HbaseSettings | None, *, has_metadata: bool) -> None:
    """Whether a table may be written under index HBASE, before anything is written.

    has_metadata: it has a metadata table, or will have.  Raises Unsupported where it may not, InvalidRequest where HBase has no
    such table or an option is missing, StorageUnavailable where it does not answer.
    """
    if settings is None:
        return
    uri, version = context.storage.uri, context.config.version
    if not version.has_hbase_index:
        raise Unsupported(f"{INDEX_TYPE}=HBASE: {uri} has version {int(version)}, for which Hudi has no HBase index")
    if not has_metadata:
        raise Unsupported(f"{INDEX_TYPE}=HBASE needs the metadata table of {uri}, which it needs to collect keys")
    with open_hbase(settings) as table:
        table.check()


@contextmanager
def update_hbase_index(
    context: TableContext, engine: Engine, settings: HbaseSettings | None, statuses: Sequence[WriteStatus], instant_time: str
) -> Iterator[None]:
    """Around the commit of what tasks wrote: tell the index before it, and remove what was deleted after it.

    Raises StorageUnavailable where HBase does not answer before the commit.  Once that stands, nothing fails any more: what
    could not be removed is marked, and not believed.
    """
    if settings is None:
        yield
        return
    changes = list(_changes(context, settings, statuses, instant_time))
    engine.map(run_prepare_hbase, changes)
    yield
    try:
        engine.map(run_finish_hbase, changes)
        context.storage.delete_folder(join_path(SIDE_FOLDER, instant_time))
    except HudiError as error:
        _LOG.warning("%s is committed; deleted keys could not be removed from index HBASE: %s", instant_time, error)


def sync_rollback(context: TableContext, settings: CommitSettings, rolled_back: Iterable[str]) -> None:
    """Take out of index HBASE what writes told it that are rolled back, where the settings ask for it.  May be repeated."""
    index = settings.hbase
    if index is None or not index.rollback_sync:
        return
    for instant_time in rolled_back:
        count = roll_back_hbase(
            index, instant_time, timestamp_from_instant(instant_time, context.config.zone) - _CLOCKS_DIFFER_MS
        )
        _LOG.info("%d keys of %s were taken out of index HBASE", count, instant_time)


def _changes(
    context: TableContext, settings: HbaseSettings, statuses: Iterable[WriteStatus], instant_time: str
) -> Iterator[HbaseChange]:
    spec = context.storage.spec()
    for status in statuses:
        if status.indexed is not None and status.indexed.keys is not None:
            stat = status.stat
            yield HbaseChange(spec, settings, instant_time, status.indexed.keys, stat.partition_path or "", stat.file_id or "")
