"""Views: the query of a view, and statements with their views replaced by queries."""

from __future__ import annotations

from collections.abc import Callable

from pyhudi.errors import InvalidRequest
from pyhudi.records.sql_quoting import quote_name
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.session_state import View
from pyhudi.sql_engine.table_references import parse_expression_text, parse_query_text, splice_query


def view_of(statement: S.CreateView, qualify: Callable[[S.TableName], S.TableName]) -> View:
    """Return the view of a statement, whose query names each table with its database."""

    def named(reference: S.Reference) -> str:
        written = statement.query.body.text[reference.start : reference.end]
        if reference.name is None or reference.name.path is not None or (name := qualify(reference.name)) == reference.name:
            return written
        as_of = "" if reference.as_of is None else f" TIMESTAMP AS OF '{reference.as_of}'"
        return ".".join(map(quote_name, name.parts)) + as_of

    return View(splice_query(statement.query, named), statement.columns)


def expand_views(
    query: S.SelectQuery,
    find: Callable[[S.TableName], View | None],
    within: tuple[View, ...] = (),
    *,
    expression: bool = False,
) -> S.SelectQuery:
    """Replace the views that a query, or the subqueries of an expression, read by their queries.

    Raises:
        InvalidRequest: A view reads itself, or the statement reads it as of a time.
    """
    views = {ref.start: find(ref.name) for ref in query.references if ref.name is not None and ref.name.path is None}
    if not any(views.values()):
        return query

    def replacement(reference: S.Reference) -> str:
        view = views.get(reference.start)
        if view is None:
            return query.body.text[reference.start : reference.end]
        if view in within or reference.as_of is not None:
            problem = "it reads itself" if view in within else "a view cannot be read as of a time. Read its tables AS OF"
            raise InvalidRequest(f"view {reference.name}: {problem}")
        inner = expand_views(parse_query_text(view.text, S.Fragment(view.text)), find, (*within, view)).body.text
        columns = ", ".join(map(quote_name, view.columns))
        return f"(SELECT * FROM ({inner}) AS `view_rows` ({columns}))" if columns else f"({inner})"

    text = splice_query(query, replacement)
    return (parse_expression_text if expression else parse_query_text)(text, S.Fragment(text))
