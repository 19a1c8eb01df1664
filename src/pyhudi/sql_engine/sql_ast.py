"""AST of SQL statements, with positions in the text.

Conditions, assigned values and queries remain text (`Fragment`): each engine parses expressions itself. Column names
are as written, without quotes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from pyhudi.operations.changes.statement import DeleteStatement, MergeStatement, UpdateStatement

Value = str | int | float | bool | None
"""A literal where a statement allows no expression: arguments of CALL, values of partitions and of properties."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a statement, as written.

    Attributes:
        text: The text.
        offset: Position of its first character in the statement.
    """

    text: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class TableName:
    """Table name: its parts without quotes. A path is a single part, or follows the name of a format."""

    parts: tuple[str, ...]

    @property
    def path(self) -> str | None:
        """Path of the table if the name is one: hudi.`/data/trips`, `s3://bucket/trips`."""
        last = self.parts[-1]
        if len(self.parts) == 2 and self.parts[0].lower() in FORMATS:
            return last
        return last if len(self.parts) == 1 and "/" in last else None

    def __str__(self) -> str:
        return ".".join(self.parts)


FORMATS = ("hudi", "pyhudi")
"""Formats in CREATE TABLE ... USING, and prefixes of a path."""


GLOBAL_VIEWS = "global_temp"
"""Spark's database of global temporary views."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A table referenced in a query.

    Attributes:
        name: Name of the table; None for a function.
        start: Position of the reference's first character in the query.
        end: Position after its last character.
        alias_at: Position of an alias: after TABLESAMPLE, otherwise `end`.
        function: Table-valued function; None for a table.
        arguments: Arguments of the function.
        as_of: Time of a time travel query.
        alias: Implicit qualifier of the columns; None if the query has an alias, or there is no qualifier.
    """

    name: TableName | None
    start: int
    end: int
    alias_at: int
    function: str | None = None
    arguments: tuple[Value, ...] = ()
    as_of: str | None = None
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """A query, or an expression with subqueries, and the tables that it references, in the order of the text.

    Attributes:
        column_names: Names that an alias gives to all columns of the query; empty without them.
    """

    body: Fragment
    references: tuple[Reference, ...]
    column_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of a new table, or a new column.

    Attributes:
        position: (None,) for FIRST, (x,) for AFTER x, otherwise ().
        default: Literal of DEFAULT, as written; None without DEFAULT.
        hudi_type: Name of a record of Hudi 1.2, such as BLOB; None for other types.
    """

    name: str
    type: pa.DataType
    nullable: bool = True
    comment: str | None = None
    position: tuple[str | None, ...] = ()
    default: str | None = None
    hudi_type: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """One part of PARTITION (...). has_value: False for a dynamic partition column, whose value comes from the query."""

    column: str
    value: Value = None
    has_value: bool = True


class Statement:
    """A statement."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Select(Statement):
    """SELECT, VALUES, WITH ... SELECT."""

    query: SelectQuery


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """CREATE TABLE, CREATE TABLE ... AS if there is a query, and CREATE TABLE ... LIKE if there is a table to copy."""

    table: TableName
    columns: tuple[ColumnDefinition, ...]
    partitioned_by: tuple[str, ...]
    properties: tuple[tuple[str, str], ...]
    location: str | None
    comment: str | None
    if_not_exists: bool
    query: SelectQuery | None = None
    like: TableName | None = None


@dataclass(frozen=True, slots=True)
class Insert(Statement):
    """INSERT INTO, INSERT OVERWRITE. columns: the columns of the query's values, in order; None for all columns."""

    table: TableName
    query: SelectQuery
    columns: tuple[str, ...] | None = None
    partition: tuple[PartitionValue, ...] = ()
    overwrite: bool = False
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class Delete(Statement):
    """DELETE FROM. change: its condition is a SelectQuery."""

    table: TableName
    change: DeleteStatement


@dataclass(frozen=True, slots=True)
class Update(Statement):
    """UPDATE. change: conditions and values are SelectQuery, the value of DEFAULT is None."""

    table: TableName
    change: UpdateStatement


@dataclass(frozen=True, slots=True)
class MergeInto(Statement):
    """MERGE INTO. change: source, conditions and values are SelectQuery, the value of DEFAULT is None."""

    table: TableName
    change: MergeStatement


@dataclass(frozen=True, slots=True)
class AddColumns(Statement):
    """ALTER TABLE ... ADD COLUMNS."""

    table: TableName
    columns: tuple[ColumnDefinition, ...]


@dataclass(frozen=True, slots=True)
class DropColumns(Statement):
    """ALTER TABLE ... DROP COLUMNS."""

    table: TableName
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameColumn(Statement):
    """ALTER TABLE ... RENAME COLUMN. to: the last part of the new name."""

    table: TableName
    column: str
    to: str


@dataclass(frozen=True, slots=True)
class AlterColumn(Statement):
    """ALTER TABLE ... ALTER COLUMN: type, comment, position (as in `ColumnDefinition`), DROP NOT NULL."""

    table: TableName
    column: str
    type: pa.DataType | None = None
    comment: str | None = None
    position: tuple[str | None, ...] = ()
    allows_nulls: bool = False


@dataclass(frozen=True, slots=True)
class AlterDefault(Statement):
    """ALTER TABLE ... ALTER COLUMN ... SET or DROP DEFAULT. default: a literal; None drops the default."""

    table: TableName
    column: str
    default: str | None


@dataclass(frozen=True, slots=True)
class SetProperties(Statement):
    """ALTER TABLE ... SET or UNSET TBLPROPERTIES. properties: None removes a key; if_exists: ignore missing keys."""

    table: TableName
    properties: tuple[tuple[str, str | None], ...]
    if_exists: bool = True


@dataclass(frozen=True, slots=True)
class RenameTable(Statement):
    """ALTER TABLE ... RENAME TO."""

    table: TableName
    to: TableName


@dataclass(frozen=True, slots=True)
class DropPartition(Statement):
    """ALTER TABLE ... DROP PARTITION."""

    table: TableName
    partition: tuple[PartitionValue, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class AddPartitions(Statement):
    """ALTER TABLE ... ADD PARTITION."""

    table: TableName
    partitions: tuple[tuple[PartitionValue, ...], ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class RefreshTable(Statement):
    """REFRESH TABLE."""

    table: TableName


@dataclass(frozen=True, slots=True)
class RepairTable(Statement):
    """MSCK REPAIR TABLE, ALTER TABLE ... RECOVER PARTITIONS."""

    table: TableName


@dataclass(frozen=True, slots=True)
class Truncate(Statement):
    """TRUNCATE TABLE. partition: () for the whole table."""

    table: TableName
    partition: tuple[PartitionValue, ...]


@dataclass(frozen=True, slots=True)
class DropTable(Statement):
    """DROP TABLE. purge: delete the files too."""

    table: TableName
    if_exists: bool
    purge: bool = False


@dataclass(frozen=True, slots=True)
class CallProcedure(Statement):
    """CALL procedure(...). positional: unnamed arguments, in order."""

    procedure: str
    arguments: tuple[tuple[str, Value], ...]
    positional: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowPartitions(Statement):
    """SHOW PARTITIONS."""

    table: TableName
    partition: tuple[PartitionValue, ...]


@dataclass(frozen=True, slots=True)
class ShowTables(Statement):
    """SHOW TABLES. database: None for the current one; pattern: of the names, `*` for any text, `|` between alternatives."""

    database: str | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowProperties(Statement):
    """SHOW TBLPROPERTIES. key: None for all keys."""

    table: TableName
    key: str | None


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """DESCRIBE TABLE. column: None for all columns."""

    table: TableName
    extended: bool
    column: str | None = None


@dataclass(frozen=True, slots=True)
class ShowColumns(Statement):
    """SHOW COLUMNS."""

    table: TableName


@dataclass(frozen=True, slots=True)
class ShowCreateTable(Statement):
    """SHOW CREATE TABLE."""

    table: TableName


@dataclass(frozen=True, slots=True)
class CommentOnTable(Statement):
    """COMMENT ON TABLE. comment: None removes it."""

    table: TableName
    comment: str | None


@dataclass(frozen=True, slots=True)
class CommentOnColumn(Statement):
    """COMMENT ON COLUMN."""

    table: TableName
    column: str
    comment: str


@dataclass(frozen=True, slots=True)
class CreateIndex(Statement):
    """CREATE INDEX.

    Attributes:
        kind: Index type after USING; None to choose it by the columns.
        columns: Indexed columns.
        options: Options of the column and of the index, such as `expr`.
    """

    name: str
    table: TableName
    kind: str | None
    columns: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropIndex(Statement):
    """DROP INDEX."""

    name: str
    table: TableName
    if_exists: bool


@dataclass(frozen=True, slots=True)
class RefreshIndex(Statement):
    """REFRESH INDEX."""

    name: str
    table: TableName


@dataclass(frozen=True, slots=True)
class ShowIndexes(Statement):
    """SHOW INDEXES."""

    table: TableName


@dataclass(frozen=True, slots=True)
class SetOption(Statement):
    """SET. key: None lists all options; value: None lists one."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ResetOptions(Statement):
    """RESET. key: None for all options."""

    key: str | None


@dataclass(frozen=True, slots=True)
class CreateView(Statement):
    """CREATE VIEW, temporary or not. columns: names of the query's columns; () for its own."""

    name: TableName
    columns: tuple[str, ...]
    query: SelectQuery
    replace: bool
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropView(Statement):
    """DROP VIEW."""

    name: TableName
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateDatabase(Statement):
    """CREATE DATABASE."""

    name: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropDatabase(Statement):
    """DROP DATABASE. cascade: remove the names of its tables too."""

    name: str
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class UseDatabase(Statement):
    """USE."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowDatabases(Statement):
    """SHOW DATABASES. catalog: None for the session."""

    catalog: str | None = None


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """EXPLAIN of a query. mode: EXTENDED, FORMATTED and the like, or ''."""

    mode: str
    query: SelectQuery
