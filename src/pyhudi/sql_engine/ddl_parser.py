"""Parser of DDL statements. `parser` contains the DML statements and the entry point."""

from __future__ import annotations

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.sql_engine.literals import describe_position
from pyhudi.sql_engine.sql_ast import (
    FORMATS,
    AddColumns,
    AlterColumn,
    AlterDefault,
    ColumnDefinition,
    CreateDatabase,
    CreateIndex,
    CreateTable,
    CreateView,
    DropColumns,
    DropDatabase,
    DropIndex,
    DropPartition,
    DropTable,
    DropView,
    PartitionValue,
    RenameColumn,
    RenameTable,
    SetProperties,
    Statement,
    TableName,
    Truncate,
    Value,
)
from pyhudi.sql_engine.sql_types import column_type, data_type
from pyhudi.sql_engine.table_references import parse_query_text
from pyhudi.sql_engine.tokens import TokenCursor

_NOT_WITH_LIKE = ("PARTITIONED", "COMMENT", "OPTIONS")


def create_table(cursor: TokenCursor) -> Statement:
    """Parse CREATE TABLE, with columns, with a query, or with LIKE and the name of another table."""
    external = cursor.accept_keywords("EXTERNAL")
    cursor.expect("TABLE")
    if_not_exists = cursor.accept_keywords("IF", "NOT", "EXISTS")
    table = cursor.table()
    like = cursor.table() if cursor.accept_keywords("LIKE") else None
    columns = _columns(cursor) if like is None and cursor.at_keywords("(") else ()
    clauses = _Clauses()
    while not (like is not None and any(map(cursor.at_keywords, _NOT_WITH_LIKE))) and _table_clause(cursor, clauses):
        pass
    if clauses.provider is None and like is None:
        cursor.fail("USING hudi")
    if external and clauses.location is None and table.path is None:
        cursor.fail("LOCATION of an external table")
    query = None
    if like is None and (cursor.accept_keywords("AS") or (cursor.peek is not None and not cursor.at_keywords(";"))):
        query = parse_query_text(cursor.statement, cursor.remaining("a query"))
    cursor.end()
    return CreateTable(
        table,
        (*columns, *clauses.partition_columns),
        clauses.partitioned_by,
        tuple(clauses.properties.items()),
        clauses.location,
        clauses.comment,
        if_not_exists,
        query,
        like,
    )


class _Clauses:
    """Clauses of CREATE TABLE, which come in any order."""

    def __init__(self) -> None:
        self.provider: str | None = None
        self.partitioned_by: tuple[str, ...] = ()
        self.partition_columns: tuple[ColumnDefinition, ...] = ()
        self.properties: dict[str, str] = {}
        self.location: str | None = None
        self.comment: str | None = None


def _table_clause(cursor: TokenCursor, clauses: _Clauses) -> bool:
    """Parse one clause of CREATE TABLE; return False if none comes next."""
    at = cursor.offset
    if cursor.accept_keywords("USING"):
        clauses.provider = ".".join(cursor.dotted("a format")).lower()
        if clauses.provider not in FORMATS:
            raise Unsupported(
                f"{describe_position(cursor.statement, at)}: a table USING {clauses.provider}; tables are created USING hudi"
            )
    elif cursor.accept_keywords("PARTITIONED", "BY"):
        clauses.partitioned_by, clauses.partition_columns = _partitioned_by(cursor)
    elif cursor.accept_keywords("TBLPROPERTIES") or cursor.accept_keywords("OPTIONS"):
        clauses.properties.update(_properties(cursor))
    elif cursor.accept_keywords("LOCATION"):
        clauses.location = cursor.text("a path in quotes")
    elif cursor.accept_keywords("COMMENT"):
        clauses.comment = cursor.text("a comment in quotes")
    elif (
        cursor.at_keywords("CLUSTERED")
        or cursor.at_keywords("CLUSTER")
        or cursor.at_keywords("STORED")
        or cursor.at_keywords("ROW")
    ):
        assert cursor.peek is not None, "a keyword comes next"
        raise Unsupported(f"{describe_position(cursor.statement, at)}: CREATE TABLE ... {cursor.peek.keyword}")
    else:
        return False
    return True


def _columns(cursor: TokenCursor) -> tuple[ColumnDefinition, ...]:
    cursor.expect("(")
    columns = [_column(cursor)]
    while cursor.accept_keywords(","):
        columns.append(_column(cursor))
    cursor.expect(")")
    return tuple(columns)


def _column(cursor: TokenCursor) -> ColumnDefinition:
    name = ".".join(cursor.dotted("the name of a column"))
    kind, hudi_type = column_type(cursor)
    nullable, comment, default = True, None, None
    where: tuple[str | None, ...] = ()
    while True:
        at = cursor.offset
        if cursor.accept_keywords("NOT", "NULL"):
            nullable = False
        elif cursor.accept_keywords("COMMENT"):
            comment = cursor.text("a comment in quotes")
        elif cursor.at_keywords("FIRST") or cursor.at_keywords("AFTER"):
            where = _place(cursor)
        elif cursor.accept_keywords("DEFAULT"):
            default = cursor.default_text()
        elif cursor.at_keywords("GENERATED"):
            raise Unsupported(f"{describe_position(cursor.statement, at)}: a column with GENERATED")
        else:
            return ColumnDefinition(name, kind, nullable, comment, where, default, hudi_type)


def _place(cursor: TokenCursor) -> tuple[str | None, ...]:
    if cursor.accept_keywords("FIRST"):
        return (None,)
    cursor.expect("AFTER")
    return (cursor.name("the name of a column"),)


def _partitioned_by(cursor: TokenCursor) -> tuple[tuple[str, ...], tuple[ColumnDefinition, ...]]:
    """Parse column names, or columns with types, which are appended to the table's columns."""
    mark, at = cursor.mark(), cursor.offset
    cursor.expect("(")
    cursor.dotted("the name of a column")
    if cursor.at_keywords(",") or cursor.at_keywords(")"):
        cursor.back_to(mark)
        return cursor.names("the name of a column"), ()
    if cursor.at_keywords("("):
        raise Unsupported(f"{describe_position(cursor.statement, at)}: PARTITIONED BY a transform; name a column")
    cursor.back_to(mark)
    columns = _columns(cursor)
    return tuple(column.name for column in columns), columns


def _properties(cursor: TokenCursor) -> dict[str, str]:
    cursor.expect("(")
    properties: dict[str, str] = {}
    while True:
        at = cursor.offset
        key = cursor.text("a property") if cursor.at_string() else ".".join(cursor.dotted("a property"))
        if not cursor.accept_keywords("="):
            cursor.accept_keywords("==")
        value = cursor.value("the value of a property")
        if key in properties:
            raise InvalidRequest(f"{describe_position(cursor.statement, at)}: property {key} occurs twice")
        properties[key] = _as_text(value)
        if not cursor.accept_keywords(","):
            break
    cursor.expect(")")
    return properties


def _property_keys(cursor: TokenCursor) -> list[str]:
    cursor.expect("(")
    keys = []
    while True:
        keys.append(cursor.text("a property") if cursor.at_string() else ".".join(cursor.dotted("a property")))
        if not cursor.accept_keywords(","):
            break
    cursor.expect(")")
    return keys


def _as_text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def alter_table(cursor: TokenCursor) -> Statement:
    """Parse ALTER TABLE: columns, properties, partitions or name."""
    cursor.expect("ALTER")
    if not cursor.at_keywords("TABLE"):
        raise Unsupported(f"the statement ALTER {cursor.name('TABLE').upper()}")
    cursor.expect("TABLE")
    table = cursor.table()
    at = cursor.offset
    alteration = _alteration(cursor, table)
    if alteration is None:
        word = cursor.name("ADD, DROP, RENAME, ALTER or CHANGE").upper()
        if word in {"SET", "UNSET", "RECOVER", "CLUSTER", "REPLACE", "ADD", "PARTITION"}:
            raise Unsupported(f"{describe_position(cursor.statement, at)}: the statement ALTER TABLE ... {word}")
        cursor.back_to(cursor.mark() - 1)
        cursor.fail("ADD, DROP, RENAME, ALTER or CHANGE")
    cursor.end()
    return alteration


def _alteration(cursor: TokenCursor, table: TableName) -> Statement | None:
    if cursor.accept_keywords("ADD", "COLUMNS") or cursor.accept_keywords("ADD", "COLUMN"):
        return AddColumns(table, _columns(cursor) if cursor.at_keywords("(") else (_column(cursor),))
    if cursor.accept_keywords("DROP", "PARTITION") or cursor.accept_keywords("DROP", "IF", "EXISTS", "PARTITION"):
        cursor.back_to(cursor.mark() - 1)
        return DropPartition(table, parse_partition(cursor, needs_values=True), if_exists=True)
    if cursor.accept_keywords("DROP", "COLUMNS") or cursor.accept_keywords("DROP", "COLUMN"):
        if cursor.at_keywords("IF", "EXISTS"):
            raise Unsupported("ALTER TABLE ... DROP COLUMN IF EXISTS")
        return DropColumns(table, cursor.names("a column") if cursor.at_keywords("(") else cursor.name_list("a column"))
    if cursor.accept_keywords("RENAME", "COLUMN"):
        column = ".".join(cursor.dotted("a column"))
        cursor.expect("TO")
        return RenameColumn(table, column, cursor.name("the new name"))
    if cursor.accept_keywords("RENAME", "TO"):
        return RenameTable(table, cursor.table())
    if cursor.accept_keywords("SET", "TBLPROPERTIES") or cursor.accept_keywords("SET", "SERDEPROPERTIES"):
        return SetProperties(table, tuple(_properties(cursor).items()))
    if cursor.accept_keywords("UNSET", "TBLPROPERTIES"):
        if_exists = cursor.accept_keywords("IF", "EXISTS")
        return SetProperties(table, tuple((key, None) for key in _property_keys(cursor)), if_exists)
    if cursor.accept_keywords("ALTER") or cursor.accept_keywords("CHANGE"):
        cursor.accept_keywords("COLUMN")
        return _altered_column(cursor, table)
    return None


def _altered_column(cursor: TokenCursor, table: TableName) -> Statement:
    column = ".".join(cursor.dotted("a column"))
    kind = comment = None
    where: tuple[str | None, ...] = ()
    at = cursor.offset
    if cursor.accept_keywords("TYPE"):
        kind = data_type(cursor)
    elif cursor.accept_keywords("SET", "DEFAULT"):
        return AlterDefault(table, column, cursor.default_text())
    elif cursor.accept_keywords("DROP", "DEFAULT"):
        return AlterDefault(table, column, None)
    elif cursor.accept_keywords("DROP", "NOT", "NULL"):
        return AlterColumn(table, column, allows_nulls=True)
    elif column.lower() != "drop" and cursor.accept_keywords("DROP"):
        cursor.fail("NOT NULL or DEFAULT")
    elif cursor.at_keywords("SET"):
        raise Unsupported(f"{describe_position(cursor.statement, at)}: ALTER COLUMN ... SET NOT NULL")
    elif not (cursor.at_keywords("COMMENT") or cursor.at_keywords("FIRST") or cursor.at_keywords("AFTER")):
        # Hive syntax: CHANGE COLUMN old new type.
        named = cursor.name("TYPE, COMMENT, FIRST or AFTER")
        if named.lower() != column.lower():
            raise Unsupported(
                f"{describe_position(cursor.statement, at)}: CHANGE COLUMN with another name; RENAME COLUMN {column} TO {named}"
            )
        kind = data_type(cursor)
    if cursor.accept_keywords("COMMENT"):
        comment = cursor.text("a comment in quotes")
    if cursor.at_keywords("FIRST") or cursor.at_keywords("AFTER"):
        where = _place(cursor)
    return AlterColumn(table, column, kind, comment, where)


def parse_partition(cursor: TokenCursor, *, needs_values: bool) -> tuple[PartitionValue, ...]:
    """Parse PARTITION (day = '2024-05-06', hour)."""
    cursor.expect("PARTITION")
    cursor.expect("(")
    parts = []
    while True:
        column = ".".join(cursor.dotted("the name of a partition column"))
        has_value = cursor.accept_keywords("=") or cursor.accept_keywords("==")
        if needs_values and not has_value:
            cursor.fail("=")
        parts.append(PartitionValue(column, cursor.value("a value") if has_value else None, has_value))
        if not cursor.accept_keywords(","):
            break
    cursor.expect(")")
    return tuple(parts)


def truncate_table(cursor: TokenCursor) -> Statement:
    """Parse TRUNCATE TABLE, of a table or a partition."""
    cursor.expect("TRUNCATE")
    cursor.expect("TABLE")
    table = cursor.table()
    partition = parse_partition(cursor, needs_values=True) if cursor.at_keywords("PARTITION") else ()
    cursor.end()
    return Truncate(table, partition)


def create(cursor: TokenCursor) -> Statement:
    """Parse CREATE of a table, view, database or index."""
    cursor.expect("CREATE")
    replace = cursor.accept_keywords("OR", "REPLACE")
    temporary = cursor.accept_keywords("TEMPORARY") or cursor.accept_keywords("TEMP")
    if cursor.accept_keywords("VIEW"):
        return _create_view(cursor, replace=replace)
    if replace or temporary or cursor.at_keywords("GLOBAL") or cursor.at_keywords("FUNCTION"):
        words = "OR REPLACE " if replace else "TEMPORARY " if temporary else ""
        raise Unsupported(f"the statement CREATE {words}{cursor.name('TABLE').upper()}")
    if cursor.accept_keywords("DATABASE") or cursor.accept_keywords("SCHEMA"):
        return _create_database(cursor)
    return _create_index(cursor) if cursor.accept_keywords("INDEX") else create_table(cursor)


def _create_view(cursor: TokenCursor, *, replace: bool) -> Statement:
    if_not_exists = cursor.accept_keywords("IF", "NOT", "EXISTS")
    name = cursor.table()
    columns = cursor.names("the name of a column") if cursor.at_keywords("(") else ()
    if cursor.accept_keywords("COMMENT"):
        cursor.text("a comment in quotes")
    cursor.expect("AS")
    return CreateView(name, columns, parse_query_text(cursor.statement, cursor.remaining("a query")), replace, if_not_exists)


def _create_database(cursor: TokenCursor) -> Statement:
    if_not_exists = cursor.accept_keywords("IF", "NOT", "EXISTS")
    name = ".".join(cursor.dotted("the name of a database"))
    if cursor.at_keywords("LOCATION") or cursor.at_keywords("MANAGED"):
        raise Unsupported(f"CREATE DATABASE {name} ... LOCATION; give each table a LOCATION")
    if cursor.accept_keywords("COMMENT"):
        cursor.text("a comment in quotes")
    cursor.end()
    return CreateDatabase(name, if_not_exists)


def _create_index(cursor: TokenCursor) -> Statement:
    """Parse CREATE INDEX name ON table [USING type] (column [OPTIONS (...)]) [OPTIONS (...)], as in Hudi."""
    if_not_exists = cursor.accept_keywords("IF", "NOT", "EXISTS")
    name = cursor.name("the name of an index")
    cursor.expect("ON")
    cursor.accept_keywords("TABLE")
    table = cursor.table()
    kind = cursor.name("the type of an index").lower() if cursor.accept_keywords("USING") else None
    columns, options = [], {}
    cursor.expect("(")
    while True:
        columns.append(".".join(cursor.dotted("the name of a column")))
        if cursor.accept_keywords("OPTIONS"):
            options.update(_properties(cursor))
        if not cursor.accept_keywords(","):
            break
    cursor.expect(")")
    if cursor.accept_keywords("OPTIONS"):
        options.update(_properties(cursor))
    cursor.end()
    return CreateIndex(name, table, kind, tuple(columns), tuple(options.items()), if_not_exists)


def drop(cursor: TokenCursor) -> Statement:
    """Parse DROP of a table, view, database or index."""
    cursor.expect("DROP")
    kind = cursor.name("TABLE").upper()
    if kind not in ("TABLE", "VIEW", "DATABASE", "SCHEMA", "INDEX"):
        raise Unsupported(f"the statement DROP {kind}")
    if_exists = cursor.accept_keywords("IF", "EXISTS")
    if kind == "INDEX":
        index = cursor.name("the name of an index")
        cursor.expect("ON")
        cursor.accept_keywords("TABLE")
        dropped: Statement = DropIndex(index, cursor.table(), if_exists)
    elif kind in ("DATABASE", "SCHEMA"):
        database = ".".join(cursor.dotted("the name of a database"))
        cascade = cursor.accept_keywords("CASCADE")
        cursor.accept_keywords("RESTRICT")
        dropped = DropDatabase(database, if_exists, cascade)
    elif kind == "VIEW":
        dropped = DropView(cursor.table(), if_exists)
    else:
        dropped = DropTable(cursor.table(), if_exists, cursor.accept_keywords("PURGE"))
    cursor.end()
    return dropped
