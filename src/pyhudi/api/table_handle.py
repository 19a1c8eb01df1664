"""An open table with its options and its lock: what `Table`, its services and its indexes share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest
from pyhudi.operations.admin.open_table import open_context
from pyhudi.operations.admin.option_consistency import check_against_table
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import THREADS
from pyhudi.operations.commit.results import (
    WriteResult,
)
from pyhudi.operations.services.background_services import BackgroundServices
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.options.scope import TableOperation, check_call_options, check_table_options
from pyhudi.options.supported import Options, parse_options
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks import LockSettings, open_lock
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.snapshot_cache import SnapshotCache
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession


class TableHandle:
    """A table at a URI, the options that hold for every verb, and the thread that runs services beside the writes, if any.

    snapshot_cache: the state that was loaded last, for verbs that read.  Pickled, it leaves that and the thread where they are.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None,
        options: Mapping[str, object] | None,
        environment: Environment | None,
    ) -> None:
        """Reads `hoodie.properties` only.  Arguments and errors as of `Table`."""
        self.options = parse_options(options)
        self.context = open_context(uri, storage_options, self.options, environment)
        self.background: BackgroundServices | None = None
        self.snapshot_cache = SnapshotCache()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "background": None}

    def at(self, context: TableContext) -> TableHandle:
        """The same table in another context of it."""
        other = copy(self)
        other.context = context
        return other

    @property
    def uri(self) -> str:
        """Where the table lies."""
        return self.context.storage.uri

    def parse(self, verb: TableOperation, options: Mapping[str, object] | None) -> Options:
        """The table's options with those of a call laid over them; refused where the verb does not go by them."""
        given = parse_options(options, base_options=self.options)
        check_call_options(verb, given)
        check_table_options(verb, self.options)
        if not options:
            return self.options
        parsed = self.options.merged(dict(given.values), dict(given.extra))
        check_against_table(parsed, self.context.config)
        return parsed

    def load_context(self, parsed: Options) -> TableContext:
        """The table as it is now, with the lock that the options name."""
        context, name = self.context.reloaded(), self.context.config.name
        wanted = LockSettings.of(parsed, name)
        if wanted == LockSettings.of(self.options, name):
            return context
        if context.holds_lock:
            raise InvalidRequest(
                f"options of this call name another lock than the one that the turn on {self.uri} holds; give options of the "
                "lock to Table(...)"
            )
        return replace(context, lock=open_lock(wanted, context.storage, context.env))

    def writable(self, parsed: Options, *, retains_indexes: bool = True) -> TableContext:
        """The table for a verb that changes it, as `load_context` gives it.  Raises Unsupported when PyHudi must not write it."""
        context = self.load_context(parsed)
        check_writable(context, retains_indexes=retains_indexes)
        return context

    def snapshot(self) -> Snapshot:
        """The table's present state."""
        return self.snapshot_cache.snapshot(self.context.reloaded())

    def engine(self, spark: SparkSession | None, parsed: Options) -> Engine:
        """The engine of a verb that brings no rows: the cluster of a session, or threads of this process."""
        if spark is None:
            return LocalEngine(parsed.integer(THREADS))
        from pyhudi.engines.spark.engine import SparkEngine

        return SparkEngine(spark)

    def write(self, write: Callable[[WriteSettings], WriteResult], settings: WriteSettings) -> WriteResult:
        """Write; what a thread beside the writer does is left to it, and it is told of the commit."""
        beside = self.background
        if beside is None or not beside.is_own_process:
            return write(settings)
        beside.check()
        result = write(replace(settings, services=settings.services.for_background_thread(beside.names)))
        beside.notify()
        return result


def is_spark_value(value: Any) -> bool:
    """Whether a value is of PySpark: a DataFrame or Column, classic or of Connect.  Asked without importing it."""
    return type(value).__module__.startswith("pyspark.sql.")
