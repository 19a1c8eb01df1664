"""An open table: where it is, its settings, its columns and its state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from pyhudi.api.table_handle import TableHandle
from pyhudi.operations.read.query import (
    table_schema,
)
from pyhudi.storage.environment import Environment
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

if TYPE_CHECKING:
    pass


class OpenedTable:
    """What all parts of `Table` have in common."""

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
            uri: Where the table lies.
            storage_options: Credentials and settings of the store, by the names that `docs/object-stores.md` lists.
            options: `hoodie.*` options that hold for every verb of this object.
            environment: Clock, identifiers and sleep; those of this machine by default.

        Raises:
            TableNotFound: There is no table at the URI.
            Unsupported: The table is of a version that cannot be read.
            CorruptData: The table's properties are damaged.
            InvalidRequest: An option contradicts the table.
        """
        self._open = TableHandle(uri, storage_options, options, environment)

    @property
    def uri(self) -> str:
        """Where the table lies."""
        return self._open.context.storage.uri

    @property
    def name(self) -> str:
        """`hoodie.table.name`."""
        return self._open.context.config.name

    @property
    def config(self) -> TableConfig:
        """The table's settings as read when it was opened."""
        return self._open.context.config

    @property
    def context(self) -> TableContext:
        """The open table as operations take it."""
        return self._open.context

    def schema(self, *, meta_columns: bool = False) -> pa.Schema:
        """The columns of the latest commit.

        Args:
            meta_columns: Whether the five `_hoodie_` columns are among them.

        Raises:
            TableState: The table has no commits and was created without a schema.
        """
        return table_schema(self._open.snapshot(), meta_columns=meta_columns)

    def timeline(self) -> Timeline:
        """The active timeline as it stands."""
        return self._open.context.timeline.load()

    def partitions(self) -> tuple[str, ...]:
        """All partition paths, sorted."""
        return self._open.snapshot().listing.partitions()
