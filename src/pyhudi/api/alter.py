"""Changing the columns of a table: `Table.alter`."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pyhudi.api.table_handle import TableHandle
from pyhudi.operations.admin.alter_columns import AlterSettings, run_alter
from pyhudi.operations.commit.results import WriteResult
from pyhudi.options.scope import VERBS
from pyhudi.records.schema_on_read.column_changes import Add, ColumnChange, Comment, Drop, Move, Rename, Retype


class Alter:
    """Changes of a table's columns, as `Table.alter` gives them.  No file is rewritten: columns go by ids from then on.

    t.alter.add("tip", pa.float64(), after="fare")
    t.alter.rename("rider", "driver")
    t.alter.drop("address.street")

    A column is named by its dotted path; `stops.element.name` lies in a list of structs, `prices.value.net` in a map.  Apache
    Hudi reads such a table with `hoodie.schema.on.read.enable=true`.  Every method raises InvalidRequest for what the columns do
    not allow, and Unsupported for a table whose columns cannot go by ids.
    """

    def __init__(self, table: TableHandle) -> None:
        self._open = table

    def add(
        self,
        column: str,
        type: pa.DataType,
        *,
        after: str | None = None,
        comment: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Add a column, which is null in every row that is there.

        Args:
            column: Its path.
            type: Of its values; they may always be null.
            after: The sibling behind which it stands; None for the last place.
            comment: What is said of it.
            options: `hoodie.*` options of this call.

        Returns:
            The commit that changed the columns.
        """
        return self._change("add", Add(column, type, comment, after), options)

    def drop(self, column: str, *, options: Mapping[str, object] | None = None) -> WriteResult:
        """Drop a column, with all below it.  A column that is added under its name later is another one, and null in old rows."""
        return self._change("drop", Drop(column), options)

    def rename(self, column: str, name: str, *, options: Mapping[str, object] | None = None) -> WriteResult:
        """Give a column another name.

        Args:
            column: Its path.
            name: The new name alone, without the path before it.
            options: `hoodie.*` options of this call.

        Returns:
            The commit that changed the columns.
        """
        return self._change("rename", Rename(column, name), options)

    def retype(self, column: str, type: pa.DataType, *, options: Mapping[str, object] | None = None) -> WriteResult:
        """Give a column another plain type: whole and floating numbers wider ones, decimals and text; decimals and dates text;
        text dates, decimals and bytes; bytes text.

        Values are cast as they are read; one that the new type does not hold ends a read with InvalidRequest.
        """
        return self._change("retype", Retype(column, type), options)

    def reorder(self, column: str, *, after: str | None, options: Mapping[str, object] | None = None) -> WriteResult:
        """Put a column behind a sibling, or, where `after` is None, to the first place of the struct that it is in."""
        return self._change("reorder", Move(column, after), options)

    def comment(self, column: str, text: str | None, *, options: Mapping[str, object] | None = None) -> WriteResult:
        """Say something of a column, or nothing any more."""
        return self._change("comment", Comment(column, text), options)

    def _change(self, method: str, change: ColumnChange, options: Mapping[str, object] | None) -> WriteResult:
        parsed = self._open.parse(VERBS[f"alter.{method}"], options)
        return run_alter(self._open.load_context(parsed), change, AlterSettings.of(parsed))
