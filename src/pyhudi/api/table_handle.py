"""`TableHandle`: the open table, its options and its lock, shared by `Table`, its services and its indexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest
from pyhudi.operations.admin.open_table import open_context, open_table_lock
from pyhudi.operations.admin.option_consistency import check_against_table
from pyhudi.operations.admin.stored_settings import with_stored_options
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.metrics_settings import with_metrics
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.services.background_services import BackgroundServices
from pyhudi.operations.write.write_once import skip_if_committed
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.options.declaration import Options
from pyhudi.options.scope import TableOperation, check_call_options, check_table_options
from pyhudi.options.supported import parse_options
from pyhudi.options.table_options import STORED_OPTIONS
from pyhudi.options.write_options import THREADS
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks import LockSettings
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.snapshot_cache import SnapshotCache
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession


class TableHandle:
    """A table at a URI, its default options, and its background services if any.

    The snapshot cache holds the last loaded state, for reads. Pickling drops the cache and the background thread.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None,
        options: Mapping[str, object] | None,
        environment: Environment | None,
    ) -> None:
        """Read `hoodie.properties` only. Arguments and errors as in `Table`."""
        call_options = parse_options(options)
        self.context = open_context(uri, storage_options, call_options, environment)
        self.options = with_stored_options(call_options, self.context.config, self.uri)
        self.background: BackgroundServices | None = None
        self.snapshot_cache = SnapshotCache()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "background": None}

    def at(self, context: TableContext) -> TableHandle:
        """Return a copy of this handle with another context."""
        other = copy(self)
        other.context = context
        return other

    def with_options(self, options: Mapping[str, object] | None) -> TableHandle:
        """Return this handle with further default options. Raises InvalidRequest if one contradicts the table."""
        if not options:
            return self
        further = parse_options(options, base_options=self.options)
        merged = self.options.merged(dict(further.values), dict(further.extra))
        check_against_table(merged, self.context.config)
        if further.explicit(STORED_OPTIONS) is not None:
            merged = with_stored_options(merged, self.context.config, self.uri)
        other = self.at(self.load_context(merged))
        other.options = merged
        return other

    @property
    def uri(self) -> str:
        """Location of the table."""
        return self.context.storage.uri

    def parse(self, operation: TableOperation, options: Mapping[str, object] | None) -> Options:
        """Merge the options of a call into the table's options. Raises InvalidRequest for options that the operation
        does not accept.
        """
        call_options = parse_options(options, base_options=self.options)
        check_call_options(operation, call_options)
        check_table_options(operation, self.options)
        if not options:
            return self.options
        parsed = self.options.merged(dict(call_options.values), dict(call_options.extra))
        check_against_table(parsed, self.context.config)
        return parsed

    def load_context(self, parsed: Options) -> TableContext:
        """Reload the table configuration, with the lock provider that the options name."""
        context, name = with_metrics(self.context.reloaded(), parsed), self.context.config.name
        if LockSettings.of(parsed, name) == LockSettings.of(self.options, name):
            return context
        if context.holds_lock:
            raise InvalidRequest(
                f"options of this call name another lock than the one that exclusive() holds on {self.uri}; "
                "pass lock options to Table(...)"
            )
        return replace(context, lock=open_table_lock(parsed, context.config, context.storage, context.env))

    def writable(self, parsed: Options, *, retains_indexes: bool = True) -> TableContext:
        """Load the context for an operation that changes the table. Raises Unsupported if PyHudi cannot write it."""
        context = self.load_context(parsed)
        check_writable(context, retains_indexes=retains_indexes)
        return context

    def snapshot(self) -> Snapshot:
        """Load the latest snapshot, or return the cached one if it is current."""
        return self.snapshot_cache.snapshot(self.context.reloaded())

    def engine(self, spark: SparkSession | None, parsed: Options) -> Engine:
        """Engine of an operation without input rows: the cluster of a session, or threads of this process."""
        if spark is None:
            return LocalEngine(parsed.integer(THREADS))
        from pyhudi.engines.spark.engine import SparkEngine

        return SparkEngine(spark)

    def write(self, write: Callable[[WriteSettings], WriteResult], settings: WriteSettings) -> WriteResult:
        """Run a write, unless its application version is committed. Services that the background thread runs are left
        to it, and it is notified of the commit.
        """
        operation = str(settings.operation)
        return skip_if_committed(self.context, settings.once, operation, lambda: self._write(write, settings))

    def _write(self, write: Callable[[WriteSettings], WriteResult], settings: WriteSettings) -> WriteResult:
        background = self.background
        if background is None or not background.is_own_process:
            return write(settings)
        background.check()
        result = write(replace(settings, services=settings.services.for_background_thread(background.names)))
        background.notify()
        return result


def is_spark_value(value: Any) -> bool:
    """Return True for a PySpark DataFrame or Column, classic or Connect, without importing PySpark."""
    return type(value).__module__.startswith("pyspark.sql.")
