"""A statement as a value: `parse`.

The grammar is Spark's, with Hudi's statements.  It is read by hand, word by word: sqlglot takes no statement apart that it does
not know (CALL, SHOW), forgets where an expression stood, and writes it anew in words of its own, while Spark is to get a
condition as it was written.  Queries and expressions within are read by sqlglot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.sql_engine.ddl_parser import alter_table, create_table, drop_table, named_partition, truncate_table
from pyhudi.sql_engine.literals import place
from pyhudi.sql_engine.sql_ast import (
    Assignment,
    Call,
    Delete,
    Describe,
    Fragment,
    Insert,
    Merge,
    MergeAction,
    MergeClause,
    MergeRows,
    Query,
    Select,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    Statement,
    Update,
    Value,
)
from pyhudi.sql_engine.table_references import as_of, expression_of, query_of
from pyhudi.sql_engine.tokens import Cursor

__all__ = ["parse"]


def parse(statement: str) -> Statement:
    """Read one statement.

    Raises InvalidRequest for what is none, with its line, its column and what was expected; Unsupported for one that is legal and
    not carried out, with its name.
    """
    cursor = Cursor(statement)
    word = cursor.word
    if word is None:
        raise InvalidRequest("there is no SQL statement in an empty text")
    if word.keyword == "(" or cursor.sees("WITH"):
        return _with_or_query(cursor)
    read = _STATEMENTS.get(word.keyword)
    if read is not None:
        return read(cursor)
    if word.keyword in _NOT_CARRIED_OUT:
        raise Unsupported(f"the statement {word.keyword}")
    cursor.fail(f"a statement ({', '.join(_STATEMENTS)})")


# ---------------------------------------------------------------------------------------------------------------------
# Queries, and rows to be written


def _select(cursor: Cursor) -> Statement:
    return Select(_query(cursor))


def _query(cursor: Cursor) -> Query:
    return query_of(cursor.statement, cursor.rest("a query"))


def _with_or_query(cursor: Cursor) -> Statement:
    """WITH ... SELECT; Spark's WITH ... INSERT has the common table expressions in front, and they belong to the query."""
    if not cursor.sees("WITH"):
        return Select(_query(cursor))
    mark = cursor.mark()
    head = cursor.until(
        lambda here: here.sees("SELECT") or here.sees("INSERT") or here.sees("MERGE") or here.sees("FROM"), "WITH"
    )
    if cursor.sees("INSERT") or cursor.sees("MERGE"):
        raise Unsupported(
            f"{place(cursor.statement, head.offset)}: WITH in front of INSERT or MERGE; put it in front of the query"
        )
    cursor.back_to(mark)
    return Select(_query(cursor))


def _insert(cursor: Cursor) -> Statement:
    cursor.expect("INSERT")
    overwrite = cursor.takes("OVERWRITE")
    if not overwrite:
        cursor.expect("INTO")
    if cursor.sees("DIRECTORY") or cursor.sees("LOCAL"):
        raise Unsupported("the statement INSERT OVERWRITE DIRECTORY")
    cursor.takes("TABLE")
    table = cursor.table()
    if cursor.sees("REPLACE"):
        raise Unsupported("the statement INSERT INTO ... REPLACE WHERE")
    partition = named_partition(cursor, needs_values=False) if cursor.sees("PARTITION") else ()
    if cursor.sees("IF", "NOT", "EXISTS"):
        raise Unsupported("INSERT OVERWRITE ... PARTITION ... IF NOT EXISTS")
    by_name = cursor.takes("BY", "NAME")
    columns = None
    if not by_name and cursor.sees("("):
        mark = cursor.mark()
        cursor.expect("(")
        is_query = (
            cursor.sees("SELECT") or cursor.sees("WITH") or cursor.sees("VALUES") or cursor.sees("FROM") or cursor.sees("(")
        )
        cursor.back_to(mark)
        columns = None if is_query else cursor.names("the name of a column")
    if cursor.sees("TABLE"):
        raise Unsupported("INSERT ... TABLE name; write SELECT * FROM name")
    return Insert(table, _query(cursor), columns, partition, overwrite, by_name)


def _delete(cursor: Cursor) -> Statement:
    cursor.expect("DELETE")
    cursor.expect("FROM")
    table = cursor.table()
    alias = _alias(cursor, "WHERE")
    where = _where(cursor)
    cursor.end()
    return Delete(table, alias, where)


def _update(cursor: Cursor) -> Statement:
    cursor.expect("UPDATE")
    table = cursor.table()
    alias = _alias(cursor, "SET")
    cursor.expect("SET")
    assignments = _assignments(cursor, lambda here: here.sees("WHERE"), alias or table.parts[-1])
    where = _where(cursor)
    cursor.end()
    return Update(table, alias, assignments, where)


def _where(cursor: Cursor) -> Query | None:
    return _expression(cursor, lambda _: False, "a condition") if cursor.takes("WHERE") else None


def _expression(cursor: Cursor, stops: Callable[[Cursor], bool], what: str) -> Query:
    return expression_of(cursor.statement, cursor.until(stops, what))


def _alias(cursor: Cursor, *ends: str) -> str | None:
    """The alias of a table, if one comes: a name that is none of the words that may follow."""
    if cursor.takes("AS"):
        return cursor.name("an alias")
    word = cursor.word
    if word is None or word.keyword in {*ends, ";"}:
        return None
    return cursor.name("an alias")


def _assignments(cursor: Cursor, stops: Callable[[Cursor], bool], target: str) -> tuple[Assignment, ...]:
    found = [_assignment(cursor, stops, target)]
    while cursor.takes(","):
        found.append(_assignment(cursor, stops, target))
    return tuple(found)


def _assignment(cursor: Cursor, stops: Callable[[Cursor], bool], target: str) -> Assignment:
    column = _assigned(cursor.dotted("the column to be assigned"), target)
    if not cursor.takes("="):
        cursor.expect("==")
    if cursor.takes("DEFAULT"):
        return Assignment(column, None)
    return Assignment(column, _expression(cursor, lambda here: here.sees(",") or stops(here), "a value"))


def _assigned(parts: tuple[str, ...], target: str) -> str:
    """The column that is assigned, without the name of the table that may stand before it."""
    return ".".join(parts[1:] if len(parts) > 1 and parts[0].lower() == target.lower() else parts)


def _merge(cursor: Cursor) -> Statement:
    cursor.expect("MERGE")
    if cursor.sees("WITH", "SCHEMA"):
        raise Unsupported("MERGE WITH SCHEMA EVOLUTION")
    cursor.expect("INTO")
    table = cursor.table()
    alias = _alias(cursor, "USING")
    cursor.expect("USING")
    source, source_alias = _source(cursor)
    cursor.expect("ON")
    on = _expression(cursor, lambda here: here.sees("WHEN"), "a condition")
    clauses = []
    while cursor.takes("WHEN"):
        clauses.append(_merge_clause(cursor, alias or table.parts[-1]))
    if not clauses:
        cursor.fail("WHEN")
    cursor.end()
    return Merge(table, alias, source, source_alias, on, tuple(clauses))


def _source(cursor: Cursor) -> tuple[Query, str | None]:
    """What stands behind USING: a query in parentheses, or a table, which becomes a query for all of its rows."""
    if cursor.sees("("):
        query = query_of(cursor.statement, cursor.enclosed())
        return query, _alias(cursor, "ON")
    start = cursor.offset
    name = cursor.dotted("a table, or a query in parentheses")
    if cursor.sees("("):
        cursor.enclosed()
    as_of(cursor)
    read = f"SELECT * FROM {cursor.statement[start : cursor.end_of_last]}"
    query = query_of(cursor.statement, Fragment(read, start - len("SELECT * FROM ")))
    return query, _alias(cursor, "ON") or (None if "/" in name[-1] else name[-1])


def _merge_clause(cursor: Cursor, target: str) -> MergeClause:
    rows = MergeRows.MATCHED
    if cursor.takes("NOT"):
        rows = MergeRows.OF_SOURCE
    cursor.expect("MATCHED")
    if rows is MergeRows.OF_SOURCE and cursor.takes("BY"):
        if cursor.takes("SOURCE"):
            rows = MergeRows.OF_TARGET
        else:
            cursor.expect("TARGET")
    where = _expression(cursor, lambda here: here.sees("THEN"), "a condition") if cursor.takes("AND") else None
    cursor.expect("THEN")
    if rows is MergeRows.OF_SOURCE:
        cursor.expect("INSERT")
        return MergeClause(rows, MergeAction.INSERT, where, _inserted(cursor))
    if cursor.takes("DELETE"):
        return MergeClause(rows, MergeAction.DELETE, where)
    if not cursor.takes("UPDATE"):
        cursor.fail("UPDATE or DELETE")
    cursor.expect("SET")
    if rows is MergeRows.MATCHED and cursor.takes("*"):
        return MergeClause(rows, MergeAction.UPDATE, where, None)
    return MergeClause(rows, MergeAction.UPDATE, where, _assignments(cursor, lambda here: here.sees("WHEN"), target))


def _inserted(cursor: Cursor) -> tuple[Assignment, ...] | None:
    if cursor.takes("*"):
        return None
    at = cursor.offset
    columns = cursor.names("the name of a column")
    cursor.expect("VALUES")
    cursor.expect("(")
    values: list[Query | None] = []
    while True:
        is_default = cursor.takes("DEFAULT")
        values.append(None if is_default else _expression(cursor, lambda here: here.sees(","), "a value"))
        if not cursor.takes(","):
            break
    cursor.expect(")")
    if len(columns) != len(values):
        raise InvalidRequest(f"{place(cursor.statement, at)}: INSERT names {len(columns)} columns and gives {len(values)} values")
    # A column may be qualified with the table.
    return tuple(Assignment(name.rpartition(".")[2], value) for name, value in zip(columns, values, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Procedures, and what tables are


def _call(cursor: Cursor) -> Statement:
    cursor.expect("CALL")
    procedure = cursor.dotted("the name of a procedure")[-1]
    named: list[tuple[str, Value]] = []
    positional: list[Value] = []
    cursor.expect("(")
    while not cursor.takes(")"):
        if named or positional:
            cursor.expect(",")
        mark = cursor.mark()
        is_literal = cursor.sees_text() or cursor.sees_number() or cursor.sees("-")
        name = None if is_literal else cursor.name("an argument")
        if name is not None and (cursor.takes("=>") or cursor.takes("=")):
            named.append((name, cursor.value("a literal")))
            continue
        cursor.back_to(mark)
        positional.append(cursor.value("a literal, or name => literal"))
    cursor.end()
    return Call(procedure, tuple(named), tuple(positional))


def _show(cursor: Cursor) -> Statement:
    cursor.expect("SHOW")
    if cursor.takes("PARTITIONS"):
        table = cursor.table()
        partition = named_partition(cursor, needs_values=True) if cursor.sees("PARTITION") else ()
        cursor.end()
        return ShowPartitions(table, partition)
    if cursor.takes("TBLPROPERTIES"):
        table, key = cursor.table(), None
        if cursor.takes("("):
            key = cursor.text("a property") if cursor.sees_text() else ".".join(cursor.dotted("a property"))
            cursor.expect(")")
        cursor.end()
        return ShowProperties(table, key)
    if cursor.takes("TABLES"):
        cursor.end()
        return ShowTables()
    raise Unsupported(f"the statement SHOW {cursor.name('PARTITIONS, TABLES or TBLPROPERTIES').upper()}")


def _describe(cursor: Cursor) -> Statement:
    if not cursor.takes("DESCRIBE"):
        cursor.expect("DESC")
    for word in ("QUERY", "FUNCTION", "DATABASE", "SCHEMA", "NAMESPACE", "SELECT", "WITH"):
        if cursor.sees(word):
            raise Unsupported(f"the statement DESCRIBE {word}")
    cursor.takes("TABLE")
    extended = cursor.takes("EXTENDED") or cursor.takes("FORMATTED")
    table = cursor.table()
    cursor.end()
    return Describe(table, extended)


_STATEMENTS: Mapping[str, Callable[[Cursor], Statement]] = {
    "SELECT": _select,
    "VALUES": _select,
    "FROM": _select,
    "WITH": _with_or_query,
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "MERGE": _merge,
    "CREATE": create_table,
    "ALTER": alter_table,
    "TRUNCATE": truncate_table,
    "DROP": drop_table,
    "CALL": _call,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
}

# fmt: off
_NOT_CARRIED_OUT = frozenset({
    "ADD", "ANALYZE", "BEGIN", "CACHE", "CLEAR", "COMMENT", "DECLARE", "EXECUTE", "EXPLAIN", "EXPORT",
    "GRANT", "IMPORT", "LIST", "LOAD", "LOCK", "MSCK", "OPTIMIZE", "REFRESH", "REPAIR", "REPLACE", "RESET",
    "REVOKE", "SET", "TABLE", "UNCACHE", "UNLOCK", "USE", "VACUUM",
})
# fmt: on
"""Words with which legal statements begin that are none of Hudi's, or that are not done."""
