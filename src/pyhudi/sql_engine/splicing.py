"""A query with something else in the place of the tables that it reads; the rest stays as it was written."""

from __future__ import annotations

from collections.abc import Callable

from pyhudi.sql_engine.sql_ast import Query, Reference


def spliced(query: Query, replacement: Callable[[Reference], str], written: Callable[[str], str] = lambda text: text) -> str:
    """The text of a query.  replacement: what stands for a table, without its alias; written: what becomes of the other text."""
    text, parts, at = query.body.text, [], 0
    for reference in query.references:
        alias = "" if reference.alias is None else f" AS `{reference.alias.replace('`', '``')}`"
        parts += [written(text[at : reference.start]), replacement(reference) + alias]
        at = reference.end
    return "".join([*parts, written(text[at:])])
