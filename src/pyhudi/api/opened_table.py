"""Base of `Table`: location, configuration, schema and state of an open table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from datetime import tzinfo
from typing import Self

import pyarrow as pa

from pyhudi.api.argument_types import checked_class
from pyhudi.api.table_handle import TableHandle
from pyhudi.errors import InvalidRequest
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.query import plan_snapshot_query, table_schema
from pyhudi.options.declaration import Options
from pyhudi.options.read_options import AS_OF
from pyhudi.options.table_options import STORED_OPTIONS
from pyhudi.options.write_options import ONCE
from pyhudi.planning.instant_arguments import InstantArgument, format_as_of
from pyhudi.storage.environment import Environment
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline


@checked_class
class OpenedTable:
    """Properties and methods that all parts of `Table` share."""

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
        *,
        as_of: InstantArgument | None = None,
        environment: Environment | None = None,
        trusted: bool = False,
        stored_options: bool = True,
    ) -> None:
        """Open a table.

        Args:
            uri: Location of the table.
            storage_options: Credentials and settings of the object store, see `docs/object-stores.md`.
            options: `hoodie.*` options that apply to every method of this object.
            as_of: Default time of scans, as in `scan`. The table is then read only.
            environment: Clock, id generator and sleep function; the system's by default.
            trusted: Use every option that the table stores, also those that name code, SQL, hosts, paths, locks or memory,
                as if you had passed it (`pyhudi.stored.options=trusted`).
            stored_options: False ignores all options that the table stores (`pyhudi.stored.options=none`).

        Raises:
            TableNotFound: No table exists at the URI.
            Unsupported: The table version cannot be read.
            CorruptData: `hoodie.properties` is damaged, or stores an illegal option; `stored_options=False` ignores it.
            InvalidRequest: An option contradicts the table.
        """
        options = with_trust(options, trusted=trusted, stored_options=stored_options)
        self._open = TableHandle(uri, storage_options, options, environment)
        if as_of is not None:
            self._open.options = with_as_of(self._open.options, as_of, self._open.context.config.zone)
        if self._open.options.explicit(ONCE) is not None:
            raise InvalidRequest(f"option {ONCE} identifies one write: pass it, or once=, to the write and not to the table")

    @property
    def uri(self) -> str:
        """Location of the table."""
        return self._open.context.storage.uri

    def _with_options(self, options: Mapping[str, object] | None) -> Self:
        """Return this table with further options, for every method. Raises InvalidRequest if one contradicts the table."""
        other = copy(self)
        other._open = self._open.with_options(options)
        return other

    @property
    def name(self) -> str:
        """Table name (`hoodie.table.name`)."""
        return self._open.context.config.name

    @property
    def config(self) -> TableConfig:
        """Table configuration, as of when the table was opened."""
        return self._open.context.config

    @property
    def context(self) -> TableContext:
        """The table context that operations take."""
        return self._open.context

    def schema(self, *, meta_columns: bool = False) -> pa.Schema:
        """Return the table schema as of the latest commit, or as of the time with which the table was opened.

        Args:
            meta_columns: Include the five `_hoodie_` meta columns.

        Raises:
            TableState: The table has no commits and was created without a schema.
        """
        as_of = self._open.options.text(AS_OF)
        if as_of is None:
            return table_schema(self._open.snapshot(), meta_columns=meta_columns)
        schema = plan_snapshot_query(
            self._open.context.reloaded(),
            as_of=as_of,
            settings=ReadSettings.of(self._open.options),
            cached=self._open.snapshot_cache,
        ).schema
        return with_meta_fields(schema) if meta_columns else schema

    def timeline(self) -> Timeline:
        """Load the active timeline."""
        return self._open.context.timeline.load()

    def partitions(self) -> tuple[str, ...]:
        """Return all partition paths, sorted."""
        return self._open.snapshot().listing.partitions()


def with_trust(options: Mapping[str, object] | None, *, trusted: bool, stored_options: bool) -> Mapping[str, object] | None:
    """Return the options with the use of stored options. Raises InvalidRequest if the arguments contradict each other."""
    if stored_options and not trusted:
        return options
    mode = "trusted" if trusted else "none"
    option = (options or {}).get(STORED_OPTIONS.key, mode)
    if option != mode or (trusted and not stored_options):
        raise InvalidRequest(f"trusted=True, stored_options=False and option {STORED_OPTIONS} exclude each other: pass one")
    return {**(options or {}), STORED_OPTIONS.key: mode}


def with_as_of(options: Options, as_of: InstantArgument | None, zone: tzinfo) -> Options:
    """Return the options with the time of snapshot queries. Raises InvalidRequest if an option contradicts it."""
    if as_of is None:
        return options
    time, option = format_as_of(as_of, zone), options.text(AS_OF)
    if option is not None and time != option:
        raise InvalidRequest(f"as_of={time} contradicts option {AS_OF}={option}")
    return options.merged({AS_OF.key: time})
