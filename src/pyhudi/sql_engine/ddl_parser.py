"""Parser of DDL statements. `parser` contains the DML statements and the entry point."""

from __future__ import annotations

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.literals import describe_position
from pyhudi.sql_engine.sql_types import column_type, data_type
from pyhudi.sql_engine.table_references import parse_query_text
from pyhudi.sql_engine.tokens import TokenCursor

_NOT_WITH_LIKE = ("PARTITIONED", "COMMENT", "OPTIONS")


def create_table(cursor: TokenCursor) -> S.Statement:
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
    return S.CreateTable(
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
        self.partition_columns: tuple[S.ColumnDefinition, ...] = ()
        self.properties: dict[str, str] = {}
        self.location: str | None = None
        self.comment: str | None = None


def _table_clause(cursor: TokenCursor, clauses: _Clauses) -> bool:
    """Parse one clause of CREATE TABLE; return False if none comes next."""
    at = cursor.offset
    if cursor.accept_keywords("USING"):
        clauses.provider = cursor.dotted_name("a format").lower()
        if clauses.provider not in S.FORMATS:
            raise Unsupported(
                f"{describe_position(cursor.statement, at)}: a table USING {clauses.provider}; tables are created USING hudi"
            )
    elif cursor.accept_keywords("PARTITIONED", "BY"):
        clauses.partitioned_by, clauses.partition_columns = _partitioned_by(cursor)
    elif cursor.accept_any("TBLPROPERTIES", "OPTIONS"):
        clauses.properties.update(_properties(cursor))
    elif cursor.accept_keywords("LOCATION"):
        clauses.location = cursor.text("a path in quotes")
    elif cursor.accept_keywords("COMMENT"):
        clauses.comment = cursor.text("a comment in quotes")
    elif cursor.at_any("CLUSTERED", "CLUSTER", "STORED", "ROW"):
        assert cursor.peek is not None, "a keyword comes next"
        raise Unsupported(f"{describe_position(cursor.statement, at)}: CREATE TABLE ... {cursor.peek.keyword}")
    else:
        return False
    return True


def _columns(cursor: TokenCursor) -> tuple[S.ColumnDefinition, ...]:
    return tuple(cursor.in_parentheses(lambda: _column(cursor)))


def _column(cursor: TokenCursor) -> S.ColumnDefinition:
    name = cursor.dotted_name("the name of a column")
    type_, hudi_type = column_type(cursor)
    nullable, comment, default = True, None, None
    where: tuple[str | None, ...] = ()
    while True:
        at = cursor.offset
        if cursor.accept_keywords("NOT", "NULL"):
            nullable = False
        elif cursor.accept_keywords("COMMENT"):
            comment = cursor.text("a comment in quotes")
        elif cursor.at_any("FIRST", "AFTER"):
            where = _place(cursor)
        elif cursor.accept_keywords("DEFAULT"):
            default = cursor.default_text()
        elif cursor.at_keywords("GENERATED"):
            raise Unsupported(f"{describe_position(cursor.statement, at)}: a column with GENERATED")
        else:
            return S.ColumnDefinition(name, type_, nullable, comment, where, default, hudi_type)


def _place(cursor: TokenCursor) -> tuple[str | None, ...]:
    if cursor.accept_keywords("FIRST"):
        return (None,)
    cursor.expect("AFTER")
    return (cursor.name("the name of a column"),)


def _partitioned_by(cursor: TokenCursor) -> tuple[tuple[str, ...], tuple[S.ColumnDefinition, ...]]:
    """Parse column names, or columns with types, which are appended to the table's columns."""
    mark, at = cursor.mark(), cursor.offset
    cursor.expect("(")
    cursor.dotted("the name of a column")
    if cursor.at_any(",", ")"):
        cursor.back_to(mark)
        return cursor.names("the name of a column"), ()
    if cursor.at_keywords("("):
        raise Unsupported(f"{describe_position(cursor.statement, at)}: PARTITIONED BY a transform; name a column")
    cursor.back_to(mark)
    columns = _columns(cursor)
    return tuple(column.name for column in columns), columns


def _properties(cursor: TokenCursor) -> dict[str, str]:
    properties: dict[str, str] = {}

    def parse_property() -> None:
        at, key = cursor.offset, cursor.property_key()
        cursor.accept_any("=", "==")
        value = cursor.value("the value of a property")
        if key in properties:
            raise InvalidRequest(f"{describe_position(cursor.statement, at)}: property {key} occurs twice")
        properties[key] = str(value).lower() if isinstance(value, bool) else str(value)

    cursor.in_parentheses(parse_property)
    return properties


def alter_table(cursor: TokenCursor) -> S.Statement:
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
        if word in {"SET", "UNSET", "CLUSTER", "REPLACE", "ADD", "PARTITION"}:
            raise Unsupported(f"{describe_position(cursor.statement, at)}: the statement ALTER TABLE ... {word}")
        cursor.back_to(cursor.mark() - 1)
        cursor.fail("ADD, DROP, RENAME, ALTER or CHANGE")
    cursor.end()
    return alteration


def _alteration(cursor: TokenCursor, table: S.TableName) -> S.Statement | None:
    if cursor.accept_keywords("ADD", "COLUMNS") or cursor.accept_keywords("ADD", "COLUMN"):
        return S.AddColumns(table, _columns(cursor) if cursor.at_keywords("(") else (_column(cursor),))
    if cursor.at_keywords("ADD", "PARTITION") or cursor.at_keywords("ADD", "IF", "NOT", "EXISTS"):
        return _added_partitions(cursor, table)
    if cursor.accept_keywords("RECOVER", "PARTITIONS"):
        return S.RepairTable(table)
    if cursor.accept_keywords("DROP", "PARTITION") or cursor.accept_keywords("DROP", "IF", "EXISTS", "PARTITION"):
        cursor.back_to(cursor.mark() - 1)
        return S.DropPartition(table, parse_partition(cursor, needs_values=True), if_exists=True)
    if cursor.accept_keywords("DROP", "COLUMNS") or cursor.accept_keywords("DROP", "COLUMN"):
        if cursor.at_keywords("IF", "EXISTS"):
            raise Unsupported("ALTER TABLE ... DROP COLUMN IF EXISTS")
        if cursor.at_keywords("("):
            return S.DropColumns(table, cursor.names("a column"))
        return S.DropColumns(table, tuple(cursor.separated(lambda: cursor.dotted_name("a column"))))
    if cursor.accept_keywords("RENAME", "COLUMN"):
        column = cursor.dotted_name("a column")
        cursor.expect("TO")
        return S.RenameColumn(table, column, cursor.name("the new name"))
    if cursor.accept_keywords("RENAME", "TO"):
        return S.RenameTable(table, cursor.table())
    if cursor.accept_keywords("SET", "TBLPROPERTIES") or cursor.accept_keywords("SET", "SERDEPROPERTIES"):
        return S.SetProperties(table, tuple(_properties(cursor).items()))
    if cursor.accept_keywords("UNSET", "TBLPROPERTIES"):
        if_exists = cursor.accept_keywords("IF", "EXISTS")
        return S.SetProperties(table, tuple((key, None) for key in cursor.in_parentheses(cursor.property_key)), if_exists)
    if cursor.accept_any("ALTER", "CHANGE"):
        cursor.accept_keywords("COLUMN")
        return _altered_column(cursor, table)
    return None


def _added_partitions(cursor: TokenCursor, table: S.TableName) -> S.Statement:
    cursor.expect("ADD")
    if_not_exists = cursor.accept_keywords("IF", "NOT", "EXISTS")
    partitions: list[tuple[S.PartitionValue, ...]] = []
    while not partitions or cursor.at_keywords("PARTITION"):
        partitions.append(parse_partition(cursor, needs_values=True))
        if cursor.at_keywords("LOCATION"):
            raise Unsupported(
                f"{describe_position(cursor.statement, cursor.offset)}: ADD PARTITION ... LOCATION; a Hudi table keeps its "
                "partitions in its own folder"
            )
        cursor.accept_keywords(",")
    return S.AddPartitions(table, tuple(partitions), if_not_exists)


def refresh_table(cursor: TokenCursor) -> S.Statement:
    """Parse REFRESH TABLE, and REFRESH INDEX i ON t."""
    cursor.expect("REFRESH")
    if cursor.at_keywords("FUNCTION"):
        raise Unsupported("the statement REFRESH FUNCTION")
    if cursor.accept_keywords("INDEX"):
        index = cursor.name("the name of an index")
        cursor.expect("ON")
        cursor.accept_keywords("TABLE")
        indexed = cursor.table()
        cursor.end()
        return S.RefreshIndex(index, indexed)
    cursor.accept_keywords("TABLE")
    table = S.TableName((cursor.text("a path"),)) if cursor.at_string() else cursor.table()
    cursor.end()
    return S.RefreshTable(table)


def repair_table(cursor: TokenCursor) -> S.Statement:
    """Parse MSCK REPAIR TABLE t [ADD | DROP | SYNC PARTITIONS]."""
    cursor.accept_keywords("MSCK")
    cursor.expect("REPAIR", "TABLE")
    table = cursor.table()
    if cursor.accept_any("ADD", "DROP", "SYNC"):
        cursor.expect("PARTITIONS")
    cursor.end()
    return S.RepairTable(table)


def _altered_column(cursor: TokenCursor, table: S.TableName) -> S.Statement:
    column = cursor.dotted_name("a column")
    new_type = comment = None
    where: tuple[str | None, ...] = ()
    at = cursor.offset
    if cursor.accept_keywords("TYPE"):
        new_type = data_type(cursor)
    elif cursor.accept_keywords("SET", "DEFAULT"):
        return S.AlterDefault(table, column, cursor.default_text())
    elif cursor.accept_keywords("DROP", "DEFAULT"):
        return S.AlterDefault(table, column, None)
    elif cursor.accept_keywords("DROP", "NOT", "NULL"):
        return S.AlterColumn(table, column, allows_nulls=True)
    elif column.lower() != "drop" and cursor.accept_keywords("DROP"):
        cursor.fail("NOT NULL or DEFAULT")
    elif cursor.at_keywords("SET"):
        raise Unsupported(f"{describe_position(cursor.statement, at)}: ALTER COLUMN ... SET NOT NULL")
    elif not cursor.at_any("COMMENT", "FIRST", "AFTER"):
        # Hive syntax: CHANGE COLUMN old new type.
        named = cursor.name("TYPE, COMMENT, FIRST or AFTER")
        if named.lower() != column.lower():
            raise Unsupported(
                f"{describe_position(cursor.statement, at)}: CHANGE COLUMN with another name; RENAME COLUMN {column} TO {named}"
            )
        new_type = data_type(cursor)
    if cursor.accept_keywords("COMMENT"):
        comment = cursor.text("a comment in quotes")
    if cursor.at_any("FIRST", "AFTER"):
        where = _place(cursor)
    return S.AlterColumn(table, column, new_type, comment, where)


def parse_partition(cursor: TokenCursor, *, needs_values: bool) -> tuple[S.PartitionValue, ...]:
    """Parse PARTITION (day = '2024-05-06', hour)."""

    def parse_value() -> S.PartitionValue:
        column = cursor.dotted_name("the name of a partition column")
        has_value = cursor.accept_any("=", "==")
        if needs_values and not has_value:
            cursor.fail("=")
        return S.PartitionValue(column, cursor.value("a value") if has_value else None, has_value)

    cursor.expect("PARTITION")
    values = tuple(cursor.in_parentheses(parse_value))
    names = [value.column.lower() for value in values]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequest(f"PARTITION names column {twice} twice: write one statement for each partition")
    return values


def truncate_table(cursor: TokenCursor) -> S.Statement:
    """Parse TRUNCATE TABLE, of a table or a partition."""
    cursor.expect("TRUNCATE")
    cursor.expect("TABLE")
    table = cursor.table()
    partition = parse_partition(cursor, needs_values=True) if cursor.at_keywords("PARTITION") else ()
    cursor.end()
    return S.Truncate(table, partition)


def create(cursor: TokenCursor) -> S.Statement:
    """Parse CREATE of a table, view, database or index."""
    cursor.expect("CREATE")
    replace = cursor.accept_keywords("OR", "REPLACE")
    is_global = cursor.accept_keywords("GLOBAL")
    temporary = cursor.accept_any("TEMPORARY", "TEMP")
    if cursor.accept_keywords("VIEW"):
        return _create_view(cursor, replace=replace, is_global=is_global and temporary)
    if replace or temporary or is_global or cursor.at_keywords("FUNCTION"):
        words = "OR REPLACE " if replace else "TEMPORARY " if temporary else ""
        raise Unsupported(f"the statement CREATE {words}{cursor.name('TABLE').upper()}")
    if cursor.accept_any("DATABASE", "SCHEMA"):
        return _create_database(cursor)
    return _create_index(cursor) if cursor.accept_keywords("INDEX") else create_table(cursor)


def _create_view(cursor: TokenCursor, *, replace: bool, is_global: bool) -> S.Statement:
    if_not_exists = cursor.accept_keywords("IF", "NOT", "EXISTS")
    name = cursor.table()
    if is_global:
        name = S.TableName((S.GLOBAL_VIEWS, *name.parts))
    columns = cursor.names("the name of a column") if cursor.at_keywords("(") else ()
    if cursor.accept_keywords("COMMENT"):
        cursor.text("a comment in quotes")
    cursor.expect("AS")
    return S.CreateView(name, columns, parse_query_text(cursor.statement, cursor.remaining("a query")), replace, if_not_exists)


def _create_database(cursor: TokenCursor) -> S.Statement:
    if_not_exists = cursor.accept_keywords("IF", "NOT", "EXISTS")
    name = cursor.dotted_name("the name of a database")
    if cursor.at_any("LOCATION", "MANAGED"):
        raise Unsupported(f"CREATE DATABASE {name} ... LOCATION; give each table a LOCATION")
    if cursor.accept_keywords("COMMENT"):
        cursor.text("a comment in quotes")
    cursor.end()
    return S.CreateDatabase(name, if_not_exists)


def _create_index(cursor: TokenCursor) -> S.Statement:
    """Parse CREATE INDEX name ON table [USING type] (column [OPTIONS (...)]) [OPTIONS (...)], as in Hudi."""
    if_not_exists = cursor.accept_keywords("IF", "NOT", "EXISTS")
    name = cursor.name("the name of an index")
    cursor.expect("ON")
    cursor.accept_keywords("TABLE")
    table = cursor.table()
    index_type = cursor.name("the type of an index").lower() if cursor.accept_keywords("USING") else None
    options: dict[str, str] = {}

    def parse_column() -> str:
        column = cursor.dotted_name("the name of a column")
        if cursor.accept_keywords("OPTIONS"):
            options.update(_properties(cursor))
        return column

    columns = cursor.in_parentheses(parse_column)
    if cursor.accept_keywords("OPTIONS"):
        options.update(_properties(cursor))
    cursor.end()
    return S.CreateIndex(name, table, index_type, tuple(columns), tuple(options.items()), if_not_exists)


def drop(cursor: TokenCursor) -> S.Statement:
    """Parse DROP of a table, view, database or index."""
    cursor.expect("DROP")
    object_type = cursor.name("TABLE").upper()
    if object_type not in ("TABLE", "VIEW", "DATABASE", "SCHEMA", "INDEX"):
        raise Unsupported(f"the statement DROP {object_type}")
    if_exists = cursor.accept_keywords("IF", "EXISTS")
    if object_type == "INDEX":
        index = cursor.name("the name of an index")
        cursor.expect("ON")
        cursor.accept_keywords("TABLE")
        dropped: S.Statement = S.DropIndex(index, cursor.table(), if_exists)
    elif object_type in ("DATABASE", "SCHEMA"):
        database = cursor.dotted_name("the name of a database")
        cascade = cursor.accept_keywords("CASCADE")
        cursor.accept_keywords("RESTRICT")
        dropped = S.DropDatabase(database, if_exists, cascade)
    elif object_type == "VIEW":
        dropped = S.DropView(cursor.table(), if_exists)
    else:
        dropped = S.DropTable(cursor.table(), if_exists, cursor.accept_keywords("PURGE"))
    cursor.end()
    return dropped
