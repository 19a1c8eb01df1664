"""Schema evolution: `Table.alter`."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pyhudi.api.argument_types import checked_class
from pyhudi.api.attribute_hints import ForeignNames
from pyhudi.api.table_handle import TableHandle
from pyhudi.operations.admin.alter_columns import AlterSettings, run_alter
from pyhudi.operations.admin.constraints import run_add_constraint, run_drop_constraint
from pyhudi.operations.admin.stored_settings import table_constraints
from pyhudi.operations.commit.commit_settings import CommitSettings, with_commit_metadata
from pyhudi.operations.commit.results import WriteResult
from pyhudi.options.scope import TABLE_OPERATIONS
from pyhudi.records.schema_on_read.column_changes import Add, AllowNulls, ColumnChange, Comment, Drop, Move, Rename, Retype


@checked_class
class Alter(ForeignNames):
    """Schema evolution by column ids (schema on read), as returned by `Table.alter`. No data file is rewritten.

    A column is named by its dotted path: `stops.element.name` in a list of structs, `prices.value.net` in a map. Apache
    Hudi reads such a table with `hoodie.schema.on.read.enable=true`. Every method raises InvalidRequest for changes
    that the schema does not allow, and Unsupported for a table that cannot have column ids.

    Example:
        >>> result = table.alter.add("tip", pa.float64(), after="fare")
        >>> result = table.alter.rename("rider", "driver")
        >>> result = table.alter.drop("address.street")
    """

    def __init__(self, table: TableHandle) -> None:
        self._open = table

    def add(
        self,
        column: str,
        type: pa.DataType | str,
        *,
        after: str | None = None,
        first: bool = False,
        comment: str | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Add a column, which is null in all existing rows.

        Args:
            column: Path of the column.
            type: Type of its values, of Arrow or by its name in Spark SQL ("bigint", "array<string>"). The column is always
                nullable.
            after: Sibling column that precedes it; None for the last position.
            first: Place it first in its struct.
            comment: Comment of the column.
            commit_metadata: Entries stored in the commit.
            options: `hoodie.*` options of this call.

        Returns:
            The commit that changed the schema.
        """
        return self._change(
            "add", Add(column, _arrow_type(type), comment, after, first), with_commit_metadata(options, commit_metadata)
        )

    def drop(
        self, column: str, *, commit_metadata: Mapping[str, str] | None = None, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Drop a column and all nested columns. A column added later under the same name is a new one, null in existing rows.

        Args:
            column: Path of the column.
            commit_metadata: Entries stored in the commit.
            options: `hoodie.*` options of this call.

        Returns:
            The commit that changed the schema.
        """
        return self._change("drop", Drop(column), with_commit_metadata(options, commit_metadata))

    def rename(
        self,
        column: str,
        name: str,
        *,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Rename a column.

        Args:
            column: Path of the column.
            name: The new name alone, without the path before it.
            commit_metadata: Entries stored in the commit.
            options: `hoodie.*` options of this call.

        Returns:
            The commit that changed the schema.
        """
        return self._change("rename", Rename(column, name), with_commit_metadata(options, commit_metadata))

    def retype(
        self,
        column: str,
        type: pa.DataType | str,
        *,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Change the primitive type of a column, or of the entries of a list or map (`tags.element`, `prices.value`).

        Allowed: integers and floating point to wider numbers, decimals and strings; decimals and dates to strings;
        strings to dates, decimals and bytes; bytes to strings. Values are cast on read; a value that the new type
        cannot hold fails the read with InvalidRequest.

        Args:
            column: Path of the column.
            type: New type, as in `add`.
            commit_metadata: Entries stored in the commit.
            options: `hoodie.*` options of this call.

        Returns:
            The commit that changed the schema.
        """
        return self._change("retype", Retype(column, _arrow_type(type)), with_commit_metadata(options, commit_metadata))

    def reorder(
        self,
        column: str,
        *,
        after: str | None,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Move a column after a sibling column.

        Args:
            column: Path of the column.
            after: Sibling column; None moves the column to the first position of its struct.
            commit_metadata: Entries stored in the commit.
            options: `hoodie.*` options of this call.

        Returns:
            The commit that changed the schema.
        """
        return self._change("reorder", Move(column, after), with_commit_metadata(options, commit_metadata))

    def comment(
        self,
        column: str,
        text: str | None,
        *,
        commit_metadata: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Set or remove the comment of a column.

        Args:
            column: Path of the column.
            text: The comment; None removes it.
            commit_metadata: Entries stored in the commit.
            options: `hoodie.*` options of this call.

        Returns:
            The commit that changed the schema.
        """
        return self._change("comment", Comment(column, text), with_commit_metadata(options, commit_metadata))

    def allow_nulls(
        self, column: str, *, commit_metadata: Mapping[str, str] | None = None, options: Mapping[str, object] | None = None
    ) -> WriteResult:
        """Make a column nullable that may not be null.

        Args:
            column: Path of the column.
            commit_metadata: Entries stored in the commit.
            options: `hoodie.*` options of this call.

        Returns:
            The commit that changed the schema.
        """
        return self._change("allow_nulls", AllowNulls(column), with_commit_metadata(options, commit_metadata))

    def add_constraint(self, name: str, condition: str, *, options: Mapping[str, object] | None = None) -> None:
        """Add a CHECK constraint, which every row has to satisfy when PyHudi writes it, on both engines.

        All rows of the table are checked first. A condition that is null for a row is satisfied, as in SQL; combine it with
        `IS NOT NULL` to refuse nulls. Hudi keeps the constraint among the properties of the table, and does not enforce it.

        Args:
            name: Name of the constraint.
            condition: SQL text, as the filter of `Table.scan`.
            options: `hoodie.*` options of this call.

        Raises:
            InvalidRequest: The name is taken, the condition does not fit the columns, or a row violates it.
            WriteConflict: Other writes are in progress.

        Example:
            >>> table.alter.add_constraint("positive", "fare > 0")
        """
        parsed = self._open.parse(TABLE_OPERATIONS["alter.add_constraint"], options)
        run_add_constraint(self._open.load_context(parsed), CommitSettings.of(parsed), name, condition)

    def drop_constraint(self, name: str, *, options: Mapping[str, object] | None = None) -> None:
        """Drop a CHECK constraint.

        Args:
            name: Name of the constraint.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["alter.drop_constraint"], options)
        run_drop_constraint(self._open.load_context(parsed), CommitSettings.of(parsed), name)

    def constraints(self) -> dict[str, str]:
        """Return the conditions of the table's CHECK constraints by name."""
        return dict(table_constraints(self._open.context.reloaded().config))

    def _change(self, method: str, change: ColumnChange, options: Mapping[str, object] | None) -> WriteResult:
        parsed = self._open.parse(TABLE_OPERATIONS[f"alter.{method}"], options)
        return run_alter(self._open.load_context(parsed), change, AlterSettings.of(parsed))


def _arrow_type(type: pa.DataType | str) -> pa.DataType:
    """The type. Raises InvalidRequest for text that is no type of Spark SQL."""
    if not isinstance(type, str):
        return type
    from pyhudi.sql_engine.sql_types import parse_type

    return parse_type(type)
