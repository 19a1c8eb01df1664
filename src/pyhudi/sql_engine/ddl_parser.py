"""The statements about tables themselves.  Those about rows, and the function that reads any statement, are in `parse`."""

from __future__ import annotations

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.sql_engine.literals import place
from pyhudi.sql_engine.sql_ast import (
    FORMATS,
    AddColumns,
    AlterColumn,
    Column,
    CreateTable,
    DropColumns,
    DropPartition,
    DropTable,
    PartitionValue,
    RenameColumn,
    RenameTable,
    SetProperties,
    Statement,
    TableName,
    Truncate,
    Value,
)
from pyhudi.sql_engine.sql_types import data_type
from pyhudi.sql_engine.table_references import query_of
from pyhudi.sql_engine.tokens import Cursor


def create_table(cursor: Cursor) -> Statement:
    """CREATE TABLE, with a query behind it or without."""
    cursor.expect("CREATE")
    for words in (
        ("OR", "REPLACE"),
        ("EXTERNAL",),
        ("TEMPORARY",),
        ("TEMP",),
        ("GLOBAL",),
        ("VIEW",),
        ("DATABASE",),
        ("SCHEMA",),
    ):
        if cursor.sees(*words):
            raise Unsupported(f"the statement CREATE {' '.join(words)}")
    if cursor.sees("FUNCTION") or cursor.sees("INDEX"):
        raise Unsupported(f"the statement CREATE {'INDEX; Table.index.create does it' if cursor.sees('INDEX') else 'FUNCTION'}")
    cursor.expect("TABLE")
    if_not_exists = cursor.takes("IF", "NOT", "EXISTS")
    table = cursor.table()
    if cursor.sees("LIKE"):
        raise Unsupported("the statement CREATE TABLE ... LIKE")
    columns = _columns(cursor) if cursor.sees("(") else ()
    given = _Clauses()
    while _table_clause(cursor, given):
        pass
    if given.provider is None:
        cursor.fail("USING hudi")
    query = None
    if cursor.takes("AS") or (cursor.word is not None and not cursor.sees(";")):
        query = query_of(cursor.statement, cursor.rest("a query"))
    cursor.end()
    return CreateTable(
        table,
        (*columns, *given.partition_columns),
        given.partitioned_by,
        tuple(given.properties.items()),
        given.location,
        given.comment,
        if_not_exists,
        query,
    )


class _Clauses:
    """The clauses of CREATE TABLE, which come in any order."""

    def __init__(self) -> None:
        self.provider: str | None = None
        self.partitioned_by: tuple[str, ...] = ()
        self.partition_columns: tuple[Column, ...] = ()
        self.properties: dict[str, str] = {}
        self.location: str | None = None
        self.comment: str | None = None


def _table_clause(cursor: Cursor, given: _Clauses) -> bool:
    """Read one clause of CREATE TABLE; False where none comes."""
    at = cursor.offset
    if cursor.takes("USING"):
        given.provider = ".".join(cursor.dotted("a format")).lower()
        if given.provider not in FORMATS:
            raise Unsupported(f"{place(cursor.statement, at)}: a table USING {given.provider}; tables are created USING hudi")
    elif cursor.takes("PARTITIONED", "BY"):
        given.partitioned_by, given.partition_columns = _partitioned_by(cursor)
    elif cursor.takes("TBLPROPERTIES") or cursor.takes("OPTIONS"):
        given.properties.update(_properties(cursor))
    elif cursor.takes("LOCATION"):
        given.location = cursor.text("a path in quotes")
    elif cursor.takes("COMMENT"):
        given.comment = cursor.text("a comment in quotes")
    elif cursor.sees("CLUSTERED") or cursor.sees("CLUSTER") or cursor.sees("STORED") or cursor.sees("ROW"):
        assert cursor.word is not None, "a keyword was seen"
        raise Unsupported(f"{place(cursor.statement, at)}: CREATE TABLE ... {cursor.word.keyword}")
    else:
        return False
    return True


def _columns(cursor: Cursor) -> tuple[Column, ...]:
    cursor.expect("(")
    found = [_column(cursor)]
    while cursor.takes(","):
        found.append(_column(cursor))
    cursor.expect(")")
    return tuple(found)


def _column(cursor: Cursor) -> Column:
    name = ".".join(cursor.dotted("the name of a column"))
    kind = data_type(cursor)
    nullable, comment = True, None
    where: tuple[str | None, ...] = ()
    while True:
        at = cursor.offset
        if cursor.takes("NOT", "NULL"):
            nullable = False
        elif cursor.takes("COMMENT"):
            comment = cursor.text("a comment in quotes")
        elif cursor.sees("FIRST") or cursor.sees("AFTER"):
            where = _place(cursor)
        elif cursor.sees("DEFAULT") or cursor.sees("GENERATED"):
            assert cursor.word is not None, "a keyword was seen"
            raise Unsupported(f"{place(cursor.statement, at)}: a column with {cursor.word.keyword}")
        else:
            return Column(name, kind, nullable, comment, where)


def _place(cursor: Cursor) -> tuple[str | None, ...]:
    if cursor.takes("FIRST"):
        return (None,)
    cursor.expect("AFTER")
    return (cursor.name("the name of a column"),)


def _partitioned_by(cursor: Cursor) -> tuple[tuple[str, ...], tuple[Column, ...]]:
    """Names of columns, or columns with their types, which come behind the others."""
    mark, at = cursor.mark(), cursor.offset
    cursor.expect("(")
    cursor.dotted("the name of a column")
    if cursor.sees(",") or cursor.sees(")"):
        cursor.back_to(mark)
        return cursor.names("the name of a column"), ()
    if cursor.sees("("):
        raise Unsupported(f"{place(cursor.statement, at)}: PARTITIONED BY a transform; name a column")
    cursor.back_to(mark)
    columns = _columns(cursor)
    return tuple(column.name for column in columns), columns


def _properties(cursor: Cursor) -> dict[str, str]:
    cursor.expect("(")
    found: dict[str, str] = {}
    while True:
        at = cursor.offset
        key = cursor.text("a property") if cursor.sees_text() else ".".join(cursor.dotted("a property"))
        if not cursor.takes("="):
            cursor.takes("==")
        value = cursor.value("the value of a property")
        if key in found:
            raise InvalidRequest(f"{place(cursor.statement, at)}: property {key} is given twice")
        found[key] = _as_text(value)
        if not cursor.takes(","):
            break
    cursor.expect(")")
    return found


def _property_keys(cursor: Cursor) -> list[str]:
    cursor.expect("(")
    found = []
    while True:
        found.append(cursor.text("a property") if cursor.sees_text() else ".".join(cursor.dotted("a property")))
        if not cursor.takes(","):
            break
    cursor.expect(")")
    return found


def _as_text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def alter_table(cursor: Cursor) -> Statement:
    """ALTER TABLE: its columns, properties, partitions or name."""
    cursor.expect("ALTER")
    if not cursor.sees("TABLE"):
        raise Unsupported(f"the statement ALTER {cursor.name('TABLE').upper()}")
    cursor.expect("TABLE")
    table = cursor.table()
    at = cursor.offset
    found = _alteration(cursor, table)
    if found is None:
        word = cursor.name("ADD, DROP, RENAME, ALTER or CHANGE").upper()
        if word in {"SET", "UNSET", "RECOVER", "CLUSTER", "REPLACE", "ADD", "PARTITION"}:
            raise Unsupported(f"{place(cursor.statement, at)}: the statement ALTER TABLE ... {word}")
        cursor.back_to(cursor.mark() - 1)
        cursor.fail("ADD, DROP, RENAME, ALTER or CHANGE")
    cursor.end()
    return found


def _alteration(cursor: Cursor, table: TableName) -> Statement | None:
    if cursor.takes("ADD", "COLUMNS") or cursor.takes("ADD", "COLUMN"):
        return AddColumns(table, _columns(cursor) if cursor.sees("(") else (_column(cursor),))
    if cursor.takes("DROP", "PARTITION") or cursor.takes("DROP", "IF", "EXISTS", "PARTITION"):
        cursor.back_to(cursor.mark() - 1)
        return DropPartition(table, named_partition(cursor, needs_values=True), if_exists=True)
    if cursor.takes("DROP", "COLUMNS") or cursor.takes("DROP", "COLUMN"):
        if cursor.sees("IF", "EXISTS"):
            raise Unsupported("ALTER TABLE ... DROP COLUMN IF EXISTS")
        every = cursor.names("a column") if cursor.sees("(") else (".".join(cursor.dotted("a column")),)
        return DropColumns(table, every)
    if cursor.takes("RENAME", "COLUMN"):
        column = ".".join(cursor.dotted("a column"))
        cursor.expect("TO")
        return RenameColumn(table, column, cursor.name("the new name"))
    if cursor.takes("RENAME", "TO"):
        return RenameTable(table, cursor.table())
    if cursor.takes("SET", "TBLPROPERTIES"):
        return SetProperties(table, tuple(_properties(cursor).items()))
    if cursor.takes("UNSET", "TBLPROPERTIES"):
        if_exists = cursor.takes("IF", "EXISTS")
        return SetProperties(table, tuple((key, None) for key in _property_keys(cursor)), if_exists)
    if cursor.takes("ALTER") or cursor.takes("CHANGE"):
        cursor.takes("COLUMN")
        return _altered_column(cursor, table)
    return None


def _altered_column(cursor: Cursor, table: TableName) -> AlterColumn:
    column = ".".join(cursor.dotted("a column"))
    kind = comment = None
    where: tuple[str | None, ...] = ()
    at = cursor.offset
    if cursor.takes("TYPE"):
        kind = data_type(cursor)
    elif cursor.sees("SET") or cursor.sees("DROP"):
        raise Unsupported(f"{place(cursor.statement, at)}: ALTER COLUMN ... SET or DROP of NOT NULL or of a default")
    elif not (cursor.sees("COMMENT") or cursor.sees("FIRST") or cursor.sees("AFTER")):
        # Hive's form: CHANGE COLUMN old new type.
        named = cursor.name("TYPE, COMMENT, FIRST or AFTER")
        if named.lower() != column.lower():
            raise Unsupported(
                f"{place(cursor.statement, at)}: CHANGE COLUMN with another name; RENAME COLUMN {column} TO {named}"
            )
        kind = data_type(cursor)
    if cursor.takes("COMMENT"):
        comment = cursor.text("a comment in quotes")
    if cursor.sees("FIRST") or cursor.sees("AFTER"):
        where = _place(cursor)
    return AlterColumn(table, column, kind, comment, where)


def named_partition(cursor: Cursor, *, needs_values: bool) -> tuple[PartitionValue, ...]:
    """PARTITION (day = '2024-05-06', hour)."""
    cursor.expect("PARTITION")
    cursor.expect("(")
    found = []
    while True:
        column = ".".join(cursor.dotted("the name of a partition column"))
        given = cursor.takes("=") or cursor.takes("==")
        if needs_values and not given:
            cursor.fail("=")
        found.append(PartitionValue(column, cursor.value("a value") if given else None, given))
        if not cursor.takes(","):
            break
    cursor.expect(")")
    return tuple(found)


def truncate_table(cursor: Cursor) -> Statement:
    """TRUNCATE TABLE, whole or a partition."""
    cursor.expect("TRUNCATE")
    cursor.expect("TABLE")
    table = cursor.table()
    partition = named_partition(cursor, needs_values=True) if cursor.sees("PARTITION") else ()
    cursor.end()
    return Truncate(table, partition)


def drop_table(cursor: Cursor) -> Statement:
    """DROP TABLE."""
    cursor.expect("DROP")
    if not cursor.takes("TABLE"):
        raise Unsupported(f"the statement DROP {cursor.name('TABLE').upper()}")
    if_exists = cursor.takes("IF", "EXISTS")
    table = cursor.table()
    if cursor.sees("PURGE"):
        raise Unsupported(f"DROP TABLE {table} PURGE: no statement deletes the files of a table; delete its folder")
    cursor.end()
    return DropTable(table, if_exists)
