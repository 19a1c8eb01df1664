"""Keep index HBASE consistent with the actions of a table: valid entries for lookups, updates by commits, and rollbacks.

`features.hbase_index.hbase_tasks` describes its entries.

Source: docs/decisions/0019-index-hbase.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pyhudi.errors import HudiError, Unsupported, get_logger
from pyhudi.features.hbase_index.hbase_client import open_hbase
from pyhudi.features.hbase_index.hbase_tasks import HbaseChange, roll_back_hbase, run_finish_hbase, run_prepare_hbase
from pyhudi.format.instants import timestamp_from_instant
from pyhudi.format.paths import SIDE_FOLDER, join_path
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.options.write_options import INDEX_TYPE
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.hbase_lookup import HbaseSettings
from pyhudi.tasks.write_tasks import WriteStatus

_LOG = get_logger("pyhudi.features.hbase_index.hbase_commits")

_CLOCKS_DIFFER_MS = 600_000
"""How much earlier than a write's instant time by this clock a region server may have stored an entry of the write."""


def check_hbase(context: TableContext, settings: HbaseSettings | None, *, has_metadata: bool) -> None:
    """Check that a table may be written under index HBASE, before anything is written.

    has_metadata: it has a metadata table, or will have.

    Raises:
        Unsupported: The table may not use the index.
        InvalidRequest: HBase has no such table or an option is missing.
        StorageUnavailable: HBase does not respond.
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
    """Wrap the commit of written files: update the index before it, and remove deleted keys after it.

    Raises StorageUnavailable if HBase does not respond before the commit.  After the commit nothing fails: entries that
    could not be removed are marked, and ignored by lookups.
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
    """Remove the entries of rolled back writes from index HBASE, if the settings require it.  Idempotent."""
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
