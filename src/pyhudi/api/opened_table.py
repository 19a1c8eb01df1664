"""Base of `Table`: location, configuration, schema and state of an open table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from pyhudi.api.argument_kinds import checked_class
from pyhudi.api.table_handle import TableHandle
from pyhudi.errors import InvalidRequest
from pyhudi.operations.read.query import (
    table_schema,
)
from pyhudi.operations.write.write_once import ONCE
from pyhudi.storage.environment import Environment
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

if TYPE_CHECKING:
    pass


@checked_class
class OpenedTable:
    """Properties and methods that all parts of `Table` share."""

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
        *,
        environment: Environment | None = None,
    ) -> None:
        """Open a table.

        Args:
            uri: Location of the table.
            storage_options: Credentials and settings of the object store, see `docs/object-stores.md`.
            options: `hoodie.*` options that apply to every method of this object.
            environment: Clock, id generator and sleep function; the system's by default.

        Raises:
            TableNotFound: No table exists at the URI.
            Unsupported: The table version cannot be read.
            CorruptData: `hoodie.properties` is damaged.
            InvalidRequest: An option contradicts the table.
        """
        self._open = TableHandle(uri, storage_options, options, environment)
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
        """Return the table schema as of the latest commit.

        Args:
            meta_columns: Include the five `_hoodie_` meta columns.

        Raises:
            TableState: The table has no commits and was created without a schema.
        """
        return table_schema(self._open.snapshot(), meta_columns=meta_columns)

    def timeline(self) -> Timeline:
        """Load the active timeline."""
        return self._open.context.timeline.load()

    def partitions(self) -> tuple[str, ...]:
        """Return all partition paths, sorted."""
        return self._open.snapshot().listing.partitions()
