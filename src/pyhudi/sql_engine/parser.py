"""SQL parser: `parse` turns a statement into its AST.

The grammar is Spark's, with Hudi's statements. It is a recursive descent parser, because sqlglot does not parse
statements that it does not know (CALL, SHOW), loses the positions of expressions, and rewrites them, while Spark must
receive a condition as written. Queries and expressions inside a statement are parsed by sqlglot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.operations.changes.statement import Clause, ClauseAction, ClauseRows, DeleteStatement, MergeStatement, UpdateStatement
from pyhudi.records.sql_quoting import quote_name
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.ddl_parser import (
    alter_table,
    create,
    drop,
    parse_partition,
    refresh_table,
    repair_table,
    truncate_table,
)
from pyhudi.sql_engine.literals import describe_position
from pyhudi.sql_engine.table_references import parse_as_of_clause, parse_expression_text, parse_query_text
from pyhudi.sql_engine.tokens import TokenCursor

__all__ = ["parse"]

_QUERY_STARTS = ("SELECT", "WITH", "VALUES", "FROM", "(")
Assignments = Mapping[str, S.SelectQuery | None]
"""Values by column; None for DEFAULT."""


def parse(statement: str) -> S.Statement:
    """Parse one statement.

    Args:
        statement: SQL text.

    Returns:
        The AST node of the statement.

    Raises:
        InvalidRequest: Syntax error, with line, column and what was expected.
        Unsupported: A legal statement that PyHudi does not execute; the message names it.
    """
    cursor = TokenCursor(statement)
    word = cursor.peek
    if word is None:
        raise InvalidRequest("the SQL statement is empty")
    if word.keyword == "(" or cursor.at_keywords("WITH"):
        return _with_or_query(cursor)
    read = _STATEMENTS.get(word.keyword)
    if read is not None:
        return read(cursor)
    if word.keyword in _UNSUPPORTED_STATEMENTS:
        hint = f"; use {_ALTERNATIVES[word.keyword]}" if word.keyword in _ALTERNATIVES else ""
        raise Unsupported(f"the statement {word.keyword}{hint}")
    cursor.fail(f"a statement ({', '.join(_STATEMENTS)})")


# ---------------------------------------------------------------------------------------------------------------------
# Queries and DML


def _select(cursor: TokenCursor) -> S.Statement:
    return S.Select(_query(cursor))


def _query(cursor: TokenCursor) -> S.SelectQuery:
    return parse_query_text(cursor.statement, cursor.remaining("a query"))


def _with_or_query(cursor: TokenCursor) -> S.Statement:
    """Parse WITH ... SELECT. In Spark's WITH ... INSERT the common table expressions precede INSERT and belong to its query."""
    if not cursor.at_keywords("WITH"):
        return S.Select(_query(cursor))
    mark = cursor.mark()
    head = cursor.until(lambda here: here.at_any("SELECT", "INSERT", "MERGE", "FROM"), "WITH")
    if cursor.at_any("INSERT", "MERGE"):
        raise Unsupported(
            f"{describe_position(cursor.statement, head.offset)}: WITH in front of INSERT or MERGE; put it in front of the query"
        )
    cursor.back_to(mark)
    return S.Select(_query(cursor))


def _insert(cursor: TokenCursor) -> S.Statement:
    cursor.expect("INSERT")
    overwrite = cursor.accept_keywords("OVERWRITE")
    if not overwrite:
        cursor.expect("INTO")
    if cursor.at_any("DIRECTORY", "LOCAL"):
        raise Unsupported("the statement INSERT OVERWRITE DIRECTORY")
    cursor.accept_keywords("TABLE")
    table = cursor.table()
    if cursor.at_keywords("REPLACE"):
        raise Unsupported("the statement INSERT INTO ... REPLACE WHERE")
    partition = parse_partition(cursor, needs_values=False) if cursor.at_keywords("PARTITION") else ()
    if cursor.at_keywords("IF", "NOT", "EXISTS"):
        raise Unsupported("INSERT OVERWRITE ... PARTITION ... IF NOT EXISTS")
    by_name = cursor.accept_keywords("BY", "NAME")
    columns = None
    if not by_name and cursor.at_keywords("("):
        mark = cursor.mark()
        cursor.expect("(")
        is_query = cursor.at_any(*_QUERY_STARTS)
        cursor.back_to(mark)
        columns = None if is_query else cursor.names("the name of a column")
    if cursor.at_keywords("TABLE"):
        raise Unsupported("INSERT ... TABLE name; write SELECT * FROM name")
    return S.Insert(table, _query(cursor), columns, partition, overwrite, by_name)


def _delete(cursor: TokenCursor) -> S.Statement:
    cursor.expect("DELETE")
    cursor.expect("FROM")
    table = cursor.table()
    alias = _alias(cursor, "WHERE")
    where = _where(cursor)
    cursor.end()
    return S.Delete(table, DeleteStatement(where, _qualifier(table, alias)))


def _update(cursor: TokenCursor) -> S.Statement:
    cursor.expect("UPDATE")
    table = cursor.table()
    alias = _alias(cursor, "SET")
    cursor.expect("SET")
    assignments = _assignments(cursor, lambda here: here.at_keywords("WHERE"), alias or table.parts[-1])
    where = _where(cursor)
    cursor.end()
    return S.Update(table, UpdateStatement(assignments, where, _qualifier(table, alias)))


def _qualifier(table: S.TableName, alias: str | None) -> str | None:
    """Qualifier of the table's columns; None for a path without an alias."""
    return alias or (None if table.path is not None else table.parts[-1])


def _where(cursor: TokenCursor) -> S.SelectQuery | None:
    return _expression(cursor, lambda _: False, "a condition") if cursor.accept_keywords("WHERE") else None


def _expression(cursor: TokenCursor, stops: Callable[[TokenCursor], bool], description: str) -> S.SelectQuery:
    return parse_expression_text(cursor.statement, cursor.until(stops, description))


def _alias(cursor: TokenCursor, *ends: str) -> str | None:
    """Parse an optional table alias: a name that is not one of the keywords that can follow."""
    if cursor.accept_keywords("AS"):
        return cursor.name("an alias")
    word = cursor.peek
    if word is None or word.keyword in {*ends, ";"}:
        return None
    return cursor.name("an alias")


def _assignments(cursor: TokenCursor, stops: Callable[[TokenCursor], bool], target: str) -> Assignments:
    return _by_column(cursor.separated(lambda: _assignment(cursor, stops, target)))


def _by_column(assignments: Sequence[tuple[str, S.SelectQuery | None]]) -> Assignments:
    by_column: dict[str, S.SelectQuery | None] = {}
    for column, value in assignments:
        if any(column.lower() == other.lower() for other in by_column):
            raise InvalidRequest(f"column {column} is assigned twice")
        by_column[column] = value
    return by_column


def _assignment(cursor: TokenCursor, stops: Callable[[TokenCursor], bool], target: str) -> tuple[str, S.SelectQuery | None]:
    column = _assigned(cursor.dotted("the column to be assigned"), target)
    if not cursor.accept_any("=", "=="):
        cursor.fail("==")
    return column, _value(cursor, lambda here: here.at_keywords(",") or stops(here))


def _value(cursor: TokenCursor, stops: Callable[[TokenCursor], bool]) -> S.SelectQuery | None:
    return None if cursor.accept_keywords("DEFAULT") else _expression(cursor, stops, "a value")


def _assigned(parts: tuple[str, ...], target: str) -> str:
    """The assigned column, without the table qualifier."""
    return ".".join(parts[1:] if len(parts) > 1 and parts[0].lower() == target.lower() else parts)


def _merge(cursor: TokenCursor) -> S.Statement:
    cursor.expect("MERGE")
    if cursor.at_keywords("WITH", "SCHEMA"):
        raise Unsupported("MERGE WITH SCHEMA EVOLUTION")
    cursor.expect("INTO")
    table = cursor.table()
    alias = _alias(cursor, "USING")
    cursor.expect("USING")
    source, source_alias = _source(cursor)
    cursor.expect("ON")
    on = _expression(cursor, lambda here: here.at_keywords("WHEN"), "a condition")
    clauses = []
    while cursor.accept_keywords("WHEN"):
        clauses.append(_merge_clause(cursor, alias or table.parts[-1]))
    if not clauses:
        cursor.fail("WHEN")
    cursor.end()
    statement = MergeStatement(source, on, tuple(clauses), _qualifier(table, alias) or "target", source_alias or "source")
    return S.MergeInto(table, statement)


def _source(cursor: TokenCursor) -> tuple[S.SelectQuery, str | None]:
    """Parse the source in USING: a query in parentheses, or a table, which becomes a query of all its rows."""
    if cursor.at_keywords("("):
        body = cursor.enclosed()
        alias = _alias(cursor, "ON")
        names: tuple[str, ...] = ()
        if alias is not None and cursor.at_keywords("("):
            names = cursor.names("the name of a column")
            columns = ", ".join(map(quote_name, names))
            body = S.Fragment(
                f"SELECT * FROM ({body.text}\n) AS {quote_name(alias)} ({columns})", body.offset - len("SELECT * FROM (")
            )
        return replace(parse_query_text(cursor.statement, body), column_names=names), alias
    start = cursor.offset
    name = cursor.dotted("a table, or a query in parentheses")
    if cursor.at_keywords("("):
        cursor.enclosed()
    parse_as_of_clause(cursor)
    read = f"SELECT * FROM {cursor.statement[start : cursor.last_token_end]}"
    query = parse_query_text(cursor.statement, S.Fragment(read, start - len("SELECT * FROM ")))
    return query, _alias(cursor, "ON") or (None if "/" in name[-1] else name[-1])


def _merge_clause(cursor: TokenCursor, target: str) -> Clause:
    rows = ClauseRows.MATCHED
    if cursor.accept_keywords("NOT"):
        rows = ClauseRows.OF_SOURCE
    cursor.expect("MATCHED")
    if rows is ClauseRows.OF_SOURCE and cursor.accept_keywords("BY"):
        if cursor.accept_keywords("SOURCE"):
            rows = ClauseRows.OF_TARGET
        else:
            cursor.expect("TARGET")
    where = _expression(cursor, lambda here: here.at_keywords("THEN"), "a condition") if cursor.accept_keywords("AND") else None
    cursor.expect("THEN")
    if rows is ClauseRows.OF_SOURCE:
        cursor.expect("INSERT")
        return Clause(ClauseAction.INSERT, _inserted(cursor), where, rows)
    if cursor.accept_keywords("DELETE"):
        return Clause(ClauseAction.DELETE, None, where, rows)
    if not cursor.accept_keywords("UPDATE"):
        cursor.fail("UPDATE or DELETE")
    cursor.expect("SET")
    if rows is ClauseRows.MATCHED and cursor.accept_keywords("*"):
        return Clause(ClauseAction.UPDATE, None, where, rows)
    values = _assignments(cursor, lambda here: here.at_keywords("WHEN"), target)
    return Clause(ClauseAction.UPDATE, values, where, rows)


def _inserted(cursor: TokenCursor) -> Assignments | None:
    if cursor.accept_keywords("*"):
        return None
    at = cursor.offset
    columns = cursor.names("the name of a column")
    cursor.expect("VALUES")
    values = cursor.in_parentheses(lambda: _value(cursor, lambda here: here.at_keywords(",")))
    if len(columns) != len(values):
        raise InvalidRequest(
            f"{describe_position(cursor.statement, at)}: INSERT names {len(columns)} columns and gives {len(values)} values"
        )
    # A column can be qualified with the table.
    return _by_column([(name.rpartition(".")[2], value) for name, value in zip(columns, values, strict=True)])


# ---------------------------------------------------------------------------------------------------------------------
# Procedures and SHOW statements


def _call(cursor: TokenCursor) -> S.Statement:
    cursor.expect("CALL")
    procedure = cursor.dotted("the name of a procedure")[-1]
    named: list[tuple[str, S.Value]] = []
    positional: list[S.Value] = []
    if cursor.peek is None or cursor.at_keywords(";"):
        # Hudi's grammar, where `CALL help` needs no parentheses.
        cursor.end()
        return S.CallProcedure(procedure, ())
    cursor.expect("(")
    while not cursor.accept_keywords(")"):
        if named or positional:
            cursor.expect(",")
        mark = cursor.mark()
        is_literal = cursor.at_string() or cursor.at_number() or cursor.at_keywords("-")
        name = None if is_literal else cursor.name("an argument")
        if name is not None and (cursor.accept_any("=>", "=")):
            named.append((name, cursor.value("a literal")))
            continue
        cursor.back_to(mark)
        positional.append(cursor.value("a literal, or name => literal"))
    cursor.end()
    return S.CallProcedure(procedure, tuple(named), tuple(positional))


def _compaction(cursor: TokenCursor) -> S.Statement:
    """Parse RUN or SCHEDULE COMPACTION ON t [AT instant], which calls the procedure run_compaction."""
    operation = "run" if cursor.accept_keywords("RUN") else "schedule"
    if operation == "schedule":
        cursor.expect("SCHEDULE")
    arguments: list[tuple[str, S.Value]] = [("op", operation), ("table", _compacted_table(cursor))]
    if cursor.accept_keywords("AT"):
        arguments.append(("timestamp", cursor.value("an instant")))
    cursor.end()
    return S.CallProcedure("run_compaction", tuple(arguments))


def _compacted_table(cursor: TokenCursor) -> str:
    """Parse COMPACTION ON and a table or a path in quotes."""
    cursor.expect("COMPACTION")
    cursor.expect("ON")
    if cursor.at_string():
        return cursor.text("a path")
    table = cursor.table()
    return table.path or str(table)


def _show(cursor: TokenCursor) -> S.Statement:
    cursor.expect("SHOW")
    if cursor.accept_keywords("PARTITIONS"):
        table = cursor.table()
        partition = parse_partition(cursor, needs_values=True) if cursor.at_keywords("PARTITION") else ()
        cursor.end()
        return S.ShowPartitions(table, partition)
    if cursor.accept_keywords("TBLPROPERTIES"):
        table, key = cursor.table(), None
        if cursor.accept_keywords("("):
            key = cursor.property_key()
            cursor.expect(")")
        cursor.end()
        return S.ShowProperties(table, key)
    if cursor.accept_keywords("TABLES"):
        database = cursor.dotted_name("the name of a database") if cursor.accept_any("IN", "FROM") else None
        is_like = cursor.accept_keywords("LIKE")
        pattern = cursor.text("a pattern in quotes") if is_like or cursor.at_string() else None
        cursor.end()
        return S.ShowTables(database, pattern)
    if cursor.accept_any("DATABASES", "SCHEMAS", "NAMESPACES"):
        catalog = cursor.name("the name of a catalog") if cursor.accept_any("IN", "FROM") else None
        cursor.end()
        return S.ShowDatabases(catalog)
    if cursor.accept_keywords("CREATE", "TABLE"):
        return _of_table(cursor, S.ShowCreateTable)
    if cursor.accept_keywords("COLUMNS"):
        _expect_in(cursor)
        return _of_table(cursor, S.ShowColumns)
    if cursor.accept_any("INDEXES", "INDEX"):
        _expect_in(cursor)
        cursor.accept_keywords("TABLE")
        return _of_table(cursor, S.ShowIndexes)
    if cursor.at_keywords("COMPACTION"):
        arguments: list[tuple[str, S.Value]] = [("table", _compacted_table(cursor))]
        if cursor.accept_keywords("LIMIT"):
            arguments.append(("limit", cursor.value("a number")))
        cursor.end()
        return S.CallProcedure("show_compaction", tuple(arguments))
    raise Unsupported(f"the statement SHOW {cursor.name('PARTITIONS, TABLES, COLUMNS, INDEXES or TBLPROPERTIES').upper()}")


def _of_table(cursor: TokenCursor, statement: Callable[[S.TableName], S.Statement]) -> S.Statement:
    table = cursor.table()
    cursor.end()
    return statement(table)


def _expect_in(cursor: TokenCursor) -> None:
    if not cursor.accept_keywords("IN"):
        cursor.expect("FROM")


def _describe(cursor: TokenCursor) -> S.Statement:
    if not cursor.accept_keywords("DESCRIBE"):
        cursor.expect("DESC")
    for word in ("QUERY", "FUNCTION", "DATABASE", "SCHEMA", "NAMESPACE", "SELECT", "WITH"):
        if cursor.at_keywords(word):
            raise Unsupported(f"the statement DESCRIBE {word}")
    mark = cursor.mark()
    if cursor.accept_keywords("HISTORY") and cursor.peek is not None and not cursor.at_any(".", ";"):
        raise Unsupported("the statement DESCRIBE HISTORY; use CALL show_commits")
    cursor.back_to(mark)
    cursor.accept_keywords("TABLE")
    extended = cursor.accept_any("EXTENDED", "FORMATTED")
    table = cursor.table()
    column = None if cursor.peek is None or cursor.at_keywords(";") else cursor.dotted_name("a column")
    cursor.end()
    return S.Describe(table, extended, column)


def _set(cursor: TokenCursor) -> S.Statement:
    """Parse SET [key [= value]]. As in Spark, the value is the rest of the statement, and may be in quotes."""
    cursor.expect("SET")
    for word in ("TIME", "ROLE", "CATALOG", "VAR", "VARIABLE"):
        if cursor.at_keywords(word):
            raise Unsupported(f"the statement SET {word}")
    if cursor.accept_keywords("-"):
        cursor.expect("V")
    if cursor.peek is None or cursor.at_keywords(";"):
        return S.SetOption()
    key = cursor.dotted_name("the name of an option")
    if not cursor.accept_keywords("="):
        cursor.end()
        return S.SetOption(key)
    if cursor.at_string():
        value = cursor.text("a value")
        cursor.end()
        return S.SetOption(key, value)
    return S.SetOption(key, cursor.remaining("a value").text.strip())


def _reset(cursor: TokenCursor) -> S.Statement:
    cursor.expect("RESET")
    key = None if cursor.peek is None or cursor.at_keywords(";") else cursor.dotted_name("the name of an option")
    cursor.end()
    return S.ResetOptions(key)


def _use(cursor: TokenCursor) -> S.Statement:
    cursor.expect("USE")
    cursor.accept_any("DATABASE", "SCHEMA", "NAMESPACE")
    name = cursor.dotted_name("the name of a database")
    cursor.end()
    return S.UseDatabase(name)


def _explain(cursor: TokenCursor) -> S.Statement:
    cursor.expect("EXPLAIN")
    modes = ("EXTENDED", "FORMATTED", "CODEGEN", "COST", "LOGICAL")
    mode = next((word for word in modes if cursor.accept_keywords(word)), "")
    if not cursor.at_any(*_QUERY_STARTS):
        raise Unsupported("EXPLAIN of a statement that is not a query; EXPLAIN the query that selects its rows")
    return S.Explain(mode, _query(cursor))


def _comment(cursor: TokenCursor) -> S.Statement:
    cursor.expect("COMMENT", "ON")
    if cursor.accept_keywords("COLUMN"):
        *parts, column = cursor.dotted("a column with its table")
        if not parts:
            cursor.fail("a column with its table, as in trips.fare")
        cursor.expect("IS")
        text = cursor.text("a comment in quotes")
        cursor.end()
        return S.CommentOnColumn(S.TableName(tuple(parts)), column, text)
    if not cursor.accept_keywords("TABLE"):
        raise Unsupported(f"the statement COMMENT ON {cursor.name('TABLE').upper()}")
    table = cursor.table()
    cursor.expect("IS")
    comment = None if cursor.accept_keywords("NULL") else cursor.text("a comment in quotes")
    cursor.end()
    return S.CommentOnTable(table, comment)


_STATEMENTS: Mapping[str, Callable[[TokenCursor], S.Statement]] = {
    "SELECT": _select,
    "VALUES": _select,
    "FROM": _select,
    "WITH": _with_or_query,
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "MERGE": _merge,
    "CREATE": create,
    "ALTER": alter_table,
    "TRUNCATE": truncate_table,
    "DROP": drop,
    "CALL": _call,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "SET": _set,
    "RESET": _reset,
    "USE": _use,
    "EXPLAIN": _explain,
    "COMMENT": _comment,
    "REFRESH": refresh_table,
    "MSCK": repair_table,
    "RUN": _compaction,
    "SCHEDULE": _compaction,
}

# fmt: off
_UNSUPPORTED_STATEMENTS = frozenset({
    "ADD", "ANALYZE", "BEGIN", "CACHE", "CLEAR", "DECLARE", "EXECUTE", "EXPORT",
    "GRANT", "IMPORT", "LIST", "LOAD", "LOCK", "OPTIMIZE", "REPAIR", "REPLACE",
    "REVOKE", "TABLE", "UNCACHE", "UNLOCK", "VACUUM",
})
# fmt: on
"""Keywords of legal statements that are not Hudi's, or not supported."""

_ALTERNATIVES = {
    "OPTIMIZE": "CALL run_clustering",
    "VACUUM": "CALL run_clean",
}
"""Procedures that do the work of statements of other table formats."""
