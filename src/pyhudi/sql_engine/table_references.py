"""Queries and expressions: are they well formed, and which tables do they read?

sqlglot reads them by Spark's grammar.  A table is one that stands in a FROM or a JOIN and is no common table expression; where it
stands in the text is known by its words, so that an engine may put something else in its place and leave the rest as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.sql_engine.literals import parse_spark, place
from pyhudi.sql_engine.sql_ast import Fragment, Reference, SelectQuery, TableName, Value
from pyhudi.sql_engine.tokens import TokenCursor

FUNCTIONS = (
    "hudi_query",
    "hudi_table_changes",
    "hudi_metadata",
    "hudi_query_timeline",
    "hudi_filesystem_view",
)
"""Table-valued functions."""

_MISSING = re.compile(r"Required keyword: '(\w+)' missing for <class '[\w.]+'>")
"""How sqlglot says that a part of something is not there."""

_QUERIES = (exp.Query, exp.Values)


def parse_query_text(statement: str, body: Fragment) -> SelectQuery:
    """A query.  Raises InvalidRequest for what is none, with its place in the statement."""
    tree = parsed(body, statement)
    if not isinstance(tree, _QUERIES):
        raise InvalidRequest(f"{place(statement, body.offset)}: expected a query, found {_beginning(body.text)}")
    return SelectQuery(body, tuple(sorted(_references(tree, body), key=lambda found: found.start)))


def parse_expression_text(statement: str, body: Fragment) -> SelectQuery:
    """A condition or a value.  Raises InvalidRequest for what is none, with its place in the statement."""
    tree = parsed(body, statement, expression=True)
    return SelectQuery(body, tuple(sorted(_references(tree, body), key=lambda found: found.start)))


def parsed(body: Fragment, statement: str, *, expression: bool = False) -> exp.Expr:
    """What sqlglot reads in a stretch of a statement."""
    try:
        return parse_spark(body.text, expression=expression)
    except ParseError as error:
        found = error.errors[0] if error.errors else {}
        offset = body.offset + _offset(body.text, found.get("line"), found.get("col"), found.get("highlight"))
        said = _MISSING.sub("expected an \\1 here", str(found.get("description", error)).removesuffix("."))
        highlight = found.get("highlight")
        near = f" (at {highlight!r})" if highlight else ""
        raise InvalidRequest(f"{place(statement, offset)}: {said}{near}") from error
    except SqlglotError as error:
        raise InvalidRequest(f"{place(statement, body.offset)}: {error}") from error


def _offset(text: str, line: int | None, column: int | None, highlight: str | None) -> int:
    """Where sqlglot found an error: it counts lines from one, and says in which column the word ends."""
    if line is None or column is None:
        return 0
    before = sum(len(one) + 1 for one in text.split("\n")[: line - 1])
    return max(0, min(before + column - len(highlight or ""), len(text)))


def _beginning(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def _references(tree: exp.Expr, body: Fragment) -> Iterator[Reference]:
    for table in tree.find_all(exp.Table):
        source = table.this
        if isinstance(source, exp.Identifier):
            parts = tuple(part.name for part in table.parts)
            if len(parts) > 1 or not _is_common(table, parts[0]):
                yield _table(table, parts, body)
        elif isinstance(source, exp.Anonymous) and source.name.lower() in FUNCTIONS:
            yield _function(table, source, body)


def _table(table: exp.Table, parts: tuple[str, ...], body: Fragment) -> Reference:
    start = min(part.meta["start"] for part in table.parts)
    cursor = TokenCursor(body.text, at=start)
    cursor.dotted("the name of a table, or hudi.`/path`")
    end = cursor.last_token_end
    asked = parse_as_of_clause(cursor)
    if asked is not None:
        end = cursor.last_token_end
    name = TableName(parts)
    # Where rows are sampled, the alias comes behind that.
    named = table.alias or name.path is not None or cursor.at_keywords("TABLESAMPLE")
    return Reference(name, start, end, as_of=asked, alias=None if named else parts[-1])


def parse_as_of_clause(cursor: TokenCursor) -> str | None:
    """The time of TIMESTAMP AS OF or VERSION AS OF.  Raises Unsupported for one that is no literal."""
    mark = cursor.mark()
    cursor.accept_keywords("FOR")
    if not any(cursor.accept_keywords(word, "AS", "OF") for word in ("TIMESTAMP", "VERSION", "SYSTEM_TIME", "SYSTEM_VERSION")):
        cursor.back_to(mark)
        return None
    if not (cursor.at_string() or cursor.at_keywords("DATE") or cursor.at_keywords("TIMESTAMP") or cursor.at_number()):
        raise Unsupported("AS OF takes a time as a literal, such as '2024-05-06 07:08:09' or an instant; other expressions")
    return str(cursor.value("a time"))


def _function(table: exp.Table, function: exp.Anonymous, body: Fragment) -> Reference:
    start = function.meta["start"]
    cursor = TokenCursor(body.text, at=start)
    name = cursor.name("a function").lower()
    arguments: list[Value] = []
    cursor.expect("(")
    while not cursor.accept_keywords(")"):
        if arguments:
            cursor.expect(",")
        arguments.append(cursor.value(f"a literal as argument of {name}"))
    return Reference(
        None, start, cursor.last_token_end, function=name, arguments=tuple(arguments), alias=None if table.alias else name
    )


def _is_common(table: exp.Table, name: str) -> bool:
    """Whether the name is that of a common table expression that can be seen where the table stands."""
    around: exp.CTE | None = None
    node = table.parent
    while node is not None:
        if isinstance(node, exp.CTE):
            around = node
        with_ = node.args.get("with_")
        if isinstance(with_, exp.With):
            if any(one.alias.lower() == name.lower() for one in _visible(with_, around)):
                return True
            around = None
        node = node.parent
    return False


def _visible(with_: exp.With, around: exp.CTE | None) -> list[exp.CTE]:
    """The expressions that a table sees: those before the one that it stands in, and that one itself where it is recursive."""
    every: list[exp.CTE] = with_.expressions
    if around is None or not any(one is around for one in every):
        return every
    place_of = next(number for number, one in enumerate(every) if one is around)
    return every[: place_of + (1 if with_.args.get("recursive") else 0)]


# A query with something else in the place of the tables that it reads; the rest stays as it was written.


def splice_query(
    query: SelectQuery, replacement: Callable[[Reference], str], written: Callable[[str], str] = lambda text: text
) -> str:
    """The text of a query.  replacement: what stands for a table, without its alias; written: what becomes of the other text."""
    text, parts, at = query.body.text, [], 0
    for reference in query.references:
        alias = "" if reference.alias is None else f" AS `{reference.alias.replace('`', '``')}`"
        parts += [written(text[at : reference.start]), replacement(reference) + alias]
        at = reference.end
    return "".join([*parts, written(text[at:])])
