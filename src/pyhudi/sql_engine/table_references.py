"""Parse queries and expressions, and find the tables that they read.

sqlglot parses them by Spark's grammar. A table reference is a name in FROM or JOIN that is not a common table
expression. Its position in the text is known from its tokens, so that an engine can replace it and leave the rest as
written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.sql_quoting import quote_name
from pyhudi.sql_engine.literals import describe_position, parse_spark
from pyhudi.sql_engine.sql_ast import Fragment, Reference, SelectQuery, TableName, Value
from pyhudi.sql_engine.tokens import TokenCursor

FUNCTIONS = (
    "hudi_query",
    "hudi_table_changes",
    "hudi_metadata",
    "hudi_query_timeline",
    "hudi_filesystem_view",
    "hudi_vector_search",
)
"""Names of the table-valued functions."""

_MISSING = re.compile(r"Required keyword: '(\w+)' missing for <class '[\w.]+'>")
"""sqlglot's message for a missing part of an expression."""

_QUERIES = (exp.Query, exp.Values)


def parse_query_text(statement: str, body: Fragment) -> SelectQuery:
    """Parse a query. Raises InvalidRequest, with its position in the statement, for other text."""
    tree = parsed(body, statement)
    if not isinstance(tree, _QUERIES):
        beginning = body.text if len(body.text) <= 40 else f"{body.text[:40]}..."
        raise InvalidRequest(f"{describe_position(statement, body.offset)}: expected a query, found {beginning!r}")
    return _with_references(body, tree)


def parse_expression_text(statement: str, body: Fragment) -> SelectQuery:
    """Parse a condition or a value. Raises InvalidRequest, with its position in the statement, for other text."""
    return _with_references(body, parsed(body, statement, expression=True))


def _with_references(body: Fragment, tree: exp.Expr) -> SelectQuery:
    return SelectQuery(body, tuple(sorted(_references(tree, body), key=lambda reference: reference.start)))


def parsed(body: Fragment, statement: str, *, expression: bool = False) -> exp.Expr:
    """Parse a fragment of a statement with sqlglot."""
    try:
        return parse_spark(body.text, expression=expression)
    except ParseError as error:
        details = error.errors[0] if error.errors else {}
        offset = body.offset + _offset(body.text, details.get("line"), details.get("col"), details.get("highlight"))
        description = _MISSING.sub("expected an \\1 here", str(details.get("description", error)).removesuffix("."))
        highlight = details.get("highlight")
        near = f" (at {highlight!r})" if highlight else ""
        raise InvalidRequest(f"{describe_position(statement, offset)}: {description}{near}") from error
    except SqlglotError as error:
        raise InvalidRequest(f"{describe_position(statement, body.offset)}: {error}") from error


def _offset(text: str, line: int | None, column: int | None, highlight: str | None) -> int:
    """Position of a sqlglot error: sqlglot counts lines from one, and reports the column where the token ends."""
    if line is None or column is None:
        return 0
    before = sum(len(one) + 1 for one in text.split("\n")[: line - 1])
    return max(0, min(before + column - len(highlight or ""), len(text)))


def _references(tree: exp.Expr, body: Fragment) -> Iterator[Reference]:
    for table in tree.find_all(exp.Table):
        source = table.this
        if isinstance(source, exp.Identifier):
            parts = tuple(part.name for part in table.parts)
            if len(parts) > 1 or common_table_expression(table, parts[0]) is None:
                yield _table(table, parts, body)
        elif isinstance(source, exp.Anonymous) and source.name.lower() in FUNCTIONS:
            yield _function(table, source, body)


def _table(table: exp.Table, parts: tuple[str, ...], body: Fragment) -> Reference:
    start = min(part.meta["start"] for part in table.parts)
    cursor = TokenCursor(body.text, at=start)
    cursor.dotted("the name of a table, or hudi.`/path`")
    end = cursor.last_token_end
    as_of = parse_as_of_clause(cursor)
    if as_of is not None:
        end = cursor.last_token_end
    name = TableName(parts)
    alias = None if table.alias or name.path is not None else parts[-1]
    return Reference(name, start, end, _end_of_sample(cursor), as_of=as_of, alias=alias)


def _end_of_sample(cursor: TokenCursor) -> int:
    """Position after TABLESAMPLE, if it comes next."""
    end = cursor.last_token_end
    for keyword in ("TABLESAMPLE", "REPEATABLE"):
        if cursor.accept_keywords(keyword):
            cursor.enclosed()
            end = cursor.last_token_end
    return end


def parse_as_of_clause(cursor: TokenCursor) -> str | None:
    """Parse the time of TIMESTAMP AS OF or VERSION AS OF. Raises Unsupported unless it is a literal."""
    mark = cursor.mark()
    cursor.accept_keywords("FOR")
    if not any(cursor.accept_keywords(word, "AS", "OF") for word in ("TIMESTAMP", "VERSION", "SYSTEM_TIME", "SYSTEM_VERSION")):
        cursor.back_to(mark)
        return None
    if not (cursor.at_string() or cursor.at_any("DATE", "TIMESTAMP") or cursor.at_number()):
        raise Unsupported("AS OF with an expression; write the time as a literal, such as '2024-05-06 07:08:09' or an instant")
    return str(cursor.value("a time"))


def _function(table: exp.Table, function: exp.Anonymous, body: Fragment) -> Reference:
    start = function.meta["start"]
    cursor = TokenCursor(body.text, at=start)
    name = cursor.name("a function").lower()
    arguments = _arguments(
        cursor,
        lambda: _array(cursor) if cursor.accept_keywords("ARRAY") else cursor.value(f"a literal as argument of {name}"),
    )
    end, alias = cursor.last_token_end, None if table.alias else name
    return Reference(None, start, end, _end_of_sample(cursor), function=name, arguments=tuple(arguments), alias=alias)


def _arguments(cursor: TokenCursor, parse: Callable[[], Value]) -> list[Value]:
    """Parse arguments in parentheses, possibly none."""
    cursor.expect("(")
    if cursor.accept_keywords(")"):
        return []
    arguments = cursor.separated(parse)
    cursor.expect(")")
    return arguments


def _array(cursor: TokenCursor) -> str:
    """Parse the numbers of ARRAY(...), which an argument holds as JSON."""
    return json.dumps(_arguments(cursor, lambda: cursor.value("a number")))


def common_table_expression(table: exp.Table, name: str) -> exp.CTE | None:
    """The common table expression in scope of the table that has the name; None if there is none."""
    enclosing: exp.CTE | None = None
    node = table.parent
    while node is not None:
        if isinstance(node, exp.CTE):
            enclosing = node
        with_ = node.args.get("with_")
        if isinstance(with_, exp.With):
            for expression in _visible(with_, enclosing):
                if expression.alias.lower() == name.lower():
                    return expression
            enclosing = None
        node = node.parent
    return None


def _visible(with_: exp.With, around: exp.CTE | None) -> list[exp.CTE]:
    """Common table expressions in scope: those before the enclosing one, and the enclosing one itself if it is recursive."""
    expressions: list[exp.CTE] = with_.expressions
    if around is None or not any(expression is around for expression in expressions):
        return expressions
    place_of = next(number for number, expression in enumerate(expressions) if expression is around)
    return expressions[: place_of + (1 if with_.args.get("recursive") else 0)]


# Query text with replaced table references; the rest stays as written.


def splice_query(
    query: SelectQuery, replacement: Callable[[Reference], str], written: Callable[[str], str] = lambda text: text
) -> str:
    """Replace the table references of a query.

    Args:
        replacement: Text for a reference, without its alias.
        written: Transformation of the other text.
    """
    text, parts, at = query.body.text, [], 0
    for reference in query.references:
        alias = "" if reference.alias is None else f" AS {quote_name(reference.alias)}"
        parts += [written(text[at : reference.start]), replacement(reference)]
        parts += [written(text[reference.end : reference.alias_at]), alias]
        at = reference.alias_at
    return "".join([*parts, written(text[at:])])
